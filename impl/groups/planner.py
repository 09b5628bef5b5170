"""A kernel on its way to steps for work-groups. Chapter: spec/groups.md."""
from __future__ import annotations

from collections.abc import Callable

from impl.choosing.planner import Planner
from impl.groups.lanes import Inner
from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import Analysis, DeviceLimits
from impl.kernel.private import exceeds
from impl.steps.padding import PadTo
from impl.steps.step import Step

#: Where a warp has fewer lanes, vectors and caches do what local memory does elsewhere.
_TILES_FROM = 16


class GroupPlanner(Planner):
    """Looks at a kernel, takes a step, and looks at what became of it."""

    def __init__(self, ast: UOp, limits: DeviceLimits) -> None:
        super().__init__(ast, limits)
        self.alone: set[int] = set()  # numbers of loops that every lane runs by itself
        self.in_step = limits.lockstep >= _TILES_FROM

    def block(self, number: int, tile: int, why: str) -> None:
        """Cut a block off a loop of the prefix, which is made a multiple first."""
        if self.extent(self.numbered[number]) % tile:
            made = self.take(PadTo(self.position(number), tile), "a whole number of blocks")
            number = made[0].arg[0]
        self.take(Inner(self.position(number), tile), why)

    def sum_over(self, loop: UOp) -> UOp:
        return next(n for n in self.known.order if n.op is Ops.REDUCE and loop in n.src[1:])

    def product(self) -> tuple[UOp, UOp, UOp] | None:
        """The loops of rows, columns and the sum, if the kernel is a product worth a tile."""
        known = self.known
        sums = [n for n in known.order if n.op is Ops.REDUCE]
        if len(known.ast.src) != 1 or known.ast.src[0].src[2:] or len(sums) != 1:
            return None
        node = sums[0]
        if node.arg is not Ops.ADD or node.src[0].op is not Ops.MUL or len(node.src) != 2:
            return None
        one, two = (known.free[factor] for factor in node.src[0].src)
        rows = [r for r in known.info.prefix if one & ~two & known.mask((r,))]
        columns = [r for r in known.info.prefix if two & ~one & known.mask((r,))]
        if not rows or not columns or min(self.extent(rows[-1]), self.extent(columns[-1])) < 32:
            return None
        return (rows[-1], columns[-1], node.src[1]) if self.extent(node.src[1]) >= 16 else None

    def share_out(self, make: Callable[[int], Step], reason: str,
                  take: Callable[[Step, str], bool] | None = None) -> None:
        """Share the loops of all stages, as many of each as stand side by side."""
        take = take or self.take_if_fits
        for place in range(len(self.known.ast.src)):
            numbers = [r.arg[0] for r in self.known.ast.src[place].src[2:]
                       if r.arg[1] is RangeKind.LOOP]
            for number in numbers[::-1]:
                if self.numbered[number].arg[1] is RangeKind.LOOP and number not in self.alone:
                    take(make(self.position(number)), reason)

    def take_if_fits(self, step: Step, reason: str) -> bool:
        """Take a step if it is legal, and local memory is large enough for it."""
        # r[impl groups.memory.most]
        before, count = self.known, len(self.steps)
        if not self.take_if_legal(step, reason):
            return False
        if exceeds(self.known.ast, self.limits.local_memory):
            self.undo(before, count)
            return False
        return True

    def undo(self, before: Analysis, count: int) -> None:
        """The kernel as it was, after `count` steps."""
        del self.steps[count:]
        self._look(before)
