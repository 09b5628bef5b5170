"""The step SPREAD: a copy whose lines begin in different banks. Chapter: spec/groups.md."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from impl.blocking.pack import Pack
from impl.ir import RangeKind
from impl.steps.declaration import Declaration

#: What a lane reads of local memory at once.
_BANKED_BYTES = 16


@dataclass(frozen=True)
class Spread(Pack):
    """PACK for lanes that read at once, each a line of its own: lines begin in different banks.

    They are as much longer than they need to be as one access moves.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="PACK, with lines that begin in different banks of local memory",
        why="lanes that read at once do not wait for a bank",
        loops=(RangeKind.REDUCE,),
        only="as for PACK",
        instead="PACK: caches have no banks to mind")

    def strides(self, sizes: Sequence[int], line: int, itemsize: int) -> list[int]:
        """The lines are longer; within one nothing changes."""
        # r[impl groups.memory.lanes]
        steps, outer = super().strides(sizes, line, itemsize), len(sizes) - line
        length = math.prod(sizes[outer:])
        longer = length + max(_BANKED_BYTES // itemsize, 1) if line else length
        return [step // length * longer if place < outer else step
                for place, step in enumerate(steps)]
