"""Which stages are products of matrices, and what those ask of their kernel.

Chapter: spec/fusion.md.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from impl.fusion.limits import FusionLimits
from impl.ir import UOp
from impl.ranges import Stage
from impl.symbolic import extent

#: A sum of fewer products is soon done, and one kernel is started sooner than two.
_LEAST_SUM = 16
#: The same of a window: its elements are shared by neighbours.
_LEAST_WINDOW = 8


def is_product(stage: Stage, limits: FusionLimits) -> bool:
    """Whether a stage adds many products of two matrices: one has no columns, the other no rows."""
    # r[impl fusion.split.product]
    form = stage.form
    results = math.prod(extent(loop) for loop in form.loops)
    if not form.reduced or form.iterations <= max(limits.small_kernel, _LEAST_SUM * results):
        return False
    wide = {loop for loop in form.loops if extent(loop) > 1}
    used = _used(stage)
    return any(wide & one - two and wide & two - one for one in used for two in used)


def is_window(stage: Stage, limits: FusionLimits) -> bool:
    """Whether a stage adds many products over a window that moves with a loop of its results."""
    # r[impl fusion.stages.product]
    form = stage.form
    results = math.prod(extent(loop) for loop in form.loops)
    if form.iterations < max(limits.small_kernel, _LEAST_WINDOW * results):
        return False
    reduced, loops = {*form.reduced}, {*form.loops}
    used = _used(stage)
    return len(used) > 1 and any(
        loops & ranges and reduced & ranges for _, pattern in form.reads
        for index in pattern.index if (ranges := {*index.toposort()}))


def has_tile(stage: Stage, prefix: Sequence[UOp]) -> bool:
    """Whether a product has rows and columns for a tile where these loops are those of its kernel.

    Its rows are the last of them, and its columns the last of its own; without loops of its own it
    has both.
    """
    # r[impl fusion.stages.product]
    own = [loop for loop in stage.loops if loop not in prefix and extent(loop) > 1]
    if not own:
        return True
    if not prefix or sum(extent(loop) > 1 for loop in stage.form.reduced) > 1:
        return False
    row, column = prefix[-1], own[-1]
    used = _used(stage)
    return any(row in one and column not in one for one in used) \
        and any(column in one and row not in one for one in used)


def _used(stage: Stage) -> list[set[UOp]]:
    """The loops of what is read anew in a sum, for each read."""
    reduced = {*stage.form.reduced}
    return [used for _, pattern in stage.form.reads if (used := {*pattern.ranges}) & reduced]
