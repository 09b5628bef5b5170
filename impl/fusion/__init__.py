"""Where a kernel begins and ends, and why. Chapter: spec/fusion.md.

Two decisions. `choose_cuts` says which values get a loop nest (a stage) of their own and leaves
all others to be computed inside their users. `group_stages` puts stages that share a prefix of
loops into one kernel: what passes between them then stays private to one iteration of the prefix.
Both weigh bytes through memory against work done twice, and both write their reasons down.

Two more make other groups of these where they need too much memory: `compute_late` computes again,
late, what would be kept for long, and `split_at_peak` cuts the kernel at the peak in two. A product
of matrices that only hands on elements is cut off by `split_products`. Then
`touches` lists what each reads and writes, and an `Assembler` makes each group one kernel.
"""
from __future__ import annotations

from impl.fusion.assemble import Assembler, Kernel
from impl.fusion.cuts import Cuts, choose_cuts
from impl.fusion.groups import Blocked, Group, Grouping, Member, group_stages
from impl.fusion.late import compute_late
from impl.fusion.limits import FusionLimits
from impl.fusion.split import split_at_peak, split_products
from impl.fusion.touches import private_storages, touches

__all__ = ["Assembler", "Blocked", "Cuts", "Group", "Grouping", "Kernel", "FusionLimits", "Member",
           "choose_cuts", "compute_late", "group_stages", "private_storages", "split_at_peak",
           "split_products", "touches"]
