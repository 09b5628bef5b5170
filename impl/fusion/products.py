"""Which stages are products of matrices, and what those ask of their kernel.

Chapter: spec/fusion.md.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from impl.fusion.limits import FusionLimits
from impl.ir import Ops, UOp
from impl.ranges import Form, Pattern, Stage
from impl.symbolic import extent

#: A sum of fewer products is soon done, and one kernel is started sooner than two; so many are
#: enough where the results do not stay in a cache: what else is done with them waits for memory.
_LEAST_SUM, _LEAST_LARGE = 16, 4
#: The same of a window: its elements are shared by neighbours.
_LEAST_WINDOW = 8


class Tiled:
    """Which stages are products, or sums over windows: asked of their forms, of each once."""

    def __init__(self, limits: FusionLimits) -> None:
        self.limits = limits
        self.known: dict[Form, bool] = {}

    def __contains__(self, stage: Stage) -> bool:
        found = self.known.get(stage.form)
        if found is None:
            form = stage.form
            found = self.known[form] = bool(form.reduced) and (
                is_product(form, self.limits) or is_window(form, self.limits))
        return found


def is_product(form: Form, limits: FusionLimits) -> bool:
    """Whether a nest adds many products of two matrices: one has no columns, the other no rows."""
    # r[impl fusion.split.product]
    results = math.prod(extent(loop) for loop in form.loops)
    least = _LEAST_LARGE if limits.is_large(results) else _LEAST_SUM
    if not form.reduced or form.iterations <= max(limits.small_kernel, least * results):
        return False
    wide = {loop for loop in form.loops if extent(loop) > 1}
    used = [{*pattern.ranges} for pattern in _read(form)]
    return any(wide & one - two and wide & two - one for one in used for two in used)


def is_window(form: Form, limits: FusionLimits) -> bool:
    """Whether a nest adds many products over a window that moves with a loop of its results."""
    # r[impl fusion.stages.product]
    results = math.prod(extent(loop) for loop in form.loops)
    if form.iterations < max(limits.small_kernel, _LEAST_WINDOW * results):
        return False
    reduced, loops = {*form.reduced}, {*form.loops}
    used = [{*pattern.ranges} for pattern in _read(form)]
    return len(used) > 1 and any(
        loops & ranges and reduced & ranges for _, pattern in form.reads
        for index in pattern.index if (ranges := {*index.toposort()}))


def has_tile(stage: Stage, prefix: Sequence[UOp]) -> bool:
    """Whether a product has rows and columns for a tile where these loops are those of its kernel.

    Its rows are the last of them, and its columns the last of its own; without loops of its own it
    has both. But where weights that all rows share are multiplied with what lies side by side along
    the rows, as the results do, those were better the columns.
    """
    # r[impl fusion.stages.product]
    wide = [loop for loop in stage.loops if extent(loop) > 1]
    own = [loop for loop in wide if loop not in prefix]
    if not own:
        return True
    if not prefix or sum(extent(loop) > 1 for loop in stage.form.reduced) > 1:
        return False
    row, column = prefix[-1], own[-1]
    first = [pattern for pattern in _read(stage.form)
             if row in pattern.ranges and column not in pattern.ranges]
    second = [pattern for pattern in _read(stage.form)
              if column in pattern.ranges and row not in pattern.ranges]
    both = {loop for each in first for loop in each.ranges if loop not in stage.form.reduced}
    turned = wide[-1] is row and any(row in innermost(each) for each in first) \
        and not any(both & {*each.ranges} for each in second)
    return bool(first and second) and not turned


def innermost(pattern: Pattern) -> Sequence[UOp]:
    """What the place depends on in the last axis along which it is no number: elements lie side by
    side there.
    """
    return next((index.toposort() for index in reversed(pattern.index)
                 if index.op is not Ops.CONST), ())


def in_strips(stage: Stage, prefix: Sequence[UOp]) -> bool:
    """Whether one iteration of these loops stores elements that do not lie side by side, and each
    of them beside those of other iterations.
    """
    # r[impl fusion.stages.strips]
    inner = innermost(stage.write.pattern)
    own = [loop for loop in stage.loops if loop not in prefix and extent(loop) > 1]
    return bool(own) and not any(loop in inner for loop in own) and any(
        loop in inner for loop in prefix if extent(loop) > 1)


def _read(form: Form) -> list[Pattern]:
    """How a nest walks over what it reads anew in a sum."""
    reduced = {*form.reduced}
    return [pattern for _, pattern in form.reads if not reduced.isdisjoint(pattern.ranges)]
