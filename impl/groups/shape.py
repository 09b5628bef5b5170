"""How many work-groups a launch has, and of how many lanes. Chapter: spec/device.md."""
from __future__ import annotations

from collections.abc import Sequence

from impl import symbolic
from impl.ir import RangeKind, UOp
from impl.kernel.analysis import Analysis


class Shape:
    """The groups of a kernel's launches: one for each iteration of the prefix.

    Loops of the prefix that lanes share need a group only for every `lanes` iterations. A kernel
    that is cut into `phases` has a launch for each: of so many `threads`, in groups of `together`
    lanes, where they share the phase, and of one lane where they do not.
    """

    def __init__(self, ast: UOp, phases: Sequence[bool] = (), threads: int = 1,
                 together: int = 1) -> None:
        info = Analysis(ast).info
        self.variables, self.lanes = info.variables, info.lanes
        self.phases, self.threads, self.together = tuple(phases), threads, together
        kinds = [(loop.src[0], loop.arg[1] is RangeKind.LANE) for loop in info.prefix]
        self.shared = [extent for extent, lane in kinds if lane]
        self.whole = [extent for extent, lane in kinds if not lane]
        self.fixed = None if self.variables else self._count({})

    def launches(self, values: Sequence[int] = ()) -> list[tuple[int, int]]:
        """How many groups of how many lanes each launch has, with these values of the variables;
        there may be no groups.
        """
        if self.phases:
            many = -(-self.threads // self.together), self.together
            return [many if shared else (1, 1) for shared in self.phases]
        return [(self.groups(values), self.lanes)]

    def groups(self, values: Sequence[int] = ()) -> int:
        """How many groups run with these values of the variables; it may be none."""
        # r[impl opencl.launch.reach]
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
