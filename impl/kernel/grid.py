"""How many work-groups a kernel is launched with. Chapter: spec/device.md."""
from __future__ import annotations

from collections.abc import Sequence

from impl import symbolic
from impl.ir import RangeKind, UOp
from impl.kernel.analysis import Analysis


# --8<-- [start:grid]
class Grid:
    """The groups of a kernel's launches: one for each iteration of the prefix.

    Loops of the prefix that lanes share need a group only for every `lanes` iterations.
    """

    def __init__(self, ast: UOp) -> None:
        info = Analysis(ast).info
        self.variables, self.lanes = info.variables, info.lanes
        kinds = [(loop.src[0], loop.arg[1] is RangeKind.LANE) for loop in info.prefix]
        self.shared = [extent for extent, lane in kinds if lane]
        self.whole = [extent for extent, lane in kinds if not lane]
        self.fixed = None if self.variables else self._count({})

    def groups(self, values: Sequence[int] = ()) -> int:
        """How many groups run with these values of the variables; it may be none."""
        if self.fixed is not None:
            return self.fixed
        return self._count(dict(zip(self.variables, values, strict=True)))

    def _count(self, bound: dict[UOp, int]) -> int:
        count, items = 1, 1
        for extent in self.whole:
            count *= max(symbolic.evaluate(extent, bound), 0)
        for extent in self.shared:
            items *= max(symbolic.evaluate(extent, bound), 0)
        return count * -(-items // self.lanes) if self.shared else count
# --8<-- [end:grid]
