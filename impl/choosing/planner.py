"""A kernel on its way to good steps, and questions about it. Chapter: spec/choosing.md."""
from __future__ import annotations

from dataclasses import dataclass

from impl import symbolic
from impl.choosing.threads import duration, threads_for
from impl.ir import TRUE, Ops, RangeKind, UOp, toposort
from impl.kernel.analysis import LANES, Analysis, DeviceLimits, Growth, Growths, growth
from impl.steps.loops import Own
from impl.steps.padding import PadTo
from impl.steps.rewriting import passes
from impl.steps.split import Split
from impl.steps.step import DECLARED, Step, StepError
from impl.steps.upcast import Upcast, is_carried

Reasoned = list[tuple[Step, str]]
#: A sum of so many additions, one after another, is worth several accumulators.
LONG = 256


@dataclass(frozen=True)
class _Use:
    """How the elements that a reduction reads lie along one loop."""

    contiguous: int  # loads of neighbouring elements
    constant: int    # loads of one element again and again
    scattered: int

    @property
    def vector(self) -> bool:
        """Whether all loads are vectors or a number for the whole vector."""
        return self.contiguous > 0 and self.scattered == 0


class Planner:
    """Looks at a kernel, takes a step, and looks at what became of it."""

    def __init__(self, ast: UOp, limits: DeviceLimits) -> None:
        self.limits = limits
        self.steps: Reasoned = []
        self.cut: set[int] = set()  # numbers of loops that a step made, or that were looked at
        self.made: set[int] = set()
        self.refused: set[str] = set()  # steps that were looked at in vain
        self.nanoseconds = duration(ast) if limits.threads > 1 else 0
        self.known = Analysis(ast)
        self._growths: Growths = {}, {}
        self._look(self.known)

    def _look(self, known: Analysis) -> None:
        self.known = known
        self.growth = growth(known.order, known.ranges, self._growths)
        self.numbered = {loop.arg[0]: loop for loop in self.known.ranges}

    def threads(self) -> int:
        """How many threads the kernel will get."""
        return max(threads_for(self.nanoseconds, self.limits), 1)

    def take(self, step: Step, reason: str = "") -> list[UOp]:
        """Apply a step and look at what became of the kernel; the answer are the new loops.

        Without a reason of the case at hand it is the one that the step declares.
        """
        before = set(self.known.ranges)
        self._look(Analysis(step.apply(self.known), self.known))
        self.steps.append((step, reason or DECLARED[step.kind].why))
        made = [r for r in self.known.ranges if r not in before]
        self.cut.update(r.arg[0] for r in made if r.arg[1] in LANES)
        self.made.update(r.arg[0] for r in made)
        return made

    def take_if_legal(self, step: Step, reason: str = "") -> bool:
        """Take a step if it is legal."""
        try:
            self.take(step, reason)
        except StepError:
            return False
        return True

    def _take(self, step: Step, reason: str) -> UOp | None:
        """Apply a step; the answer is the loop that is left of the one it cut, if any is."""
        made = self.take(step, reason)
        lanes = [r for r in made if r.arg[1] in LANES]
        for loop in made:
            if loop in lanes:
                continue
            if loop in self.known.info.prefix or loop.arg[1] is RangeKind.REDUCE:
                return loop
            if any(loop in s.src and lanes and lanes[0] in s.src for s in self.known.ast.src):
                return loop
        return None

    def position(self, number: int) -> int:
        """Where a loop stands: what a step calls it."""
        return self.known.position[self.numbered[number]]

    def again(self, node: UOp) -> UOp:
        """What a reduction has become: the one with the most work over the same loops."""
        numbers = {loop.arg[0] for loop in node.src[1:]}
        found = [n for n in self.known.order if n.op is Ops.REDUCE and n.arg is node.arg
                 and {loop.arg[0] for loop in n.src[1:]} == numbers]
        return max(found, key=self.work)

    def extent(self, loop: UOp) -> int:
        """The number of iterations; 0 if it is known at run time only."""
        return int(loop.src[0].arg) if loop.src[0].op is Ops.CONST else 0

    def work(self, node: UOp) -> int:
        """How many elements a reduction combines, all in all."""
        total = 1
        for loop in self.known.loops(self.known.free[node] | self.known.free[node.src[0]]):
            total *= max(self.extent(loop), 1)
        return total

    def loads(self, node: UOp) -> list[UOp]:
        """What a reduction reads in each iteration, without what inner reductions read."""
        return [n for n in node.src[0].toposort(lambda u: u.op is not Ops.REDUCE)
                if n.op is Ops.LOAD and self.known.free[n] & self.known.mask(node.src[1:])]

    def use(self, loads: list[UOp], loop: UOp) -> _Use:
        counts = [0, 0, 0]
        bit = 1 << self.known.position[loop]
        for load in loads:
            step = self.step(load.src[0].src[1], loop) if self.known.free[load] & bit else 0
            if step == 1:
                counts[0] += 1
            elif step == 0 or self._is_table(load):
                counts[1] += 1  # only its validity may depend on the loop
            else:
                counts[2] += 1
        return _Use(*counts)

    def step(self, index: UOp, loop: UOp) -> int | None:
        """How far an index goes with a loop; None if that is not known. It may begin anywhere: a
        row whose number is loaded lies side by side like another one.
        """
        # r[impl choosing.plain.row]
        grows: Growth | None = self.growth[index]
        if grows is None:
            grows = growth(toposort([index]), (loop,))[index]
        return None if grows is None else grows.get(loop, 0)

    def few_apart(self, loop: UOp, loads: list[UOp], most: int) -> bool:
        """Whether a loop of a reduction is long, and what is loaded lies so few elements apart
        along it: as in few columns. A vector along it is taken out of longer ones.
        """
        # r[impl choosing.reduction.long]
        steps = [self.step(load.src[0].src[1], loop) or 0 for load in loads]
        return loop.arg[1] is RangeKind.REDUCE and self.extent(loop) >= LONG and bool(steps) \
            and all(0 < step <= most for step in steps)

    def _is_table(self, load: UOp) -> bool:
        """Whether all elements that a load may read are one vector, which stays in a register."""
        # r[impl choosing.product.table]
        index = load.src[0]
        least, most = symbolic.bounds(index.src[1])
        return index.src[2] is TRUE and least == 0 \
            and most < self.limits.elements(load.dtype.itemsize)

    def whole_rest(self, before: set[UOp], rest: int, width: int) -> None:
        """Make one vector, stored or combined in part, of what a step left of a vector loop."""
        # r[impl choosing.plain.lanes]
        kinds = (RangeKind.LOOP, RangeKind.REDUCE)
        left = next((loop for loop in self.known.ranges if loop not in before
                     and loop.arg[1] in kinds and self.extent(loop) == rest), None)
        if rest < 2 or left is None or width <= rest:
            return
        reason = "the rest is a vector in part"
        longer = self.take(PadTo(self.known.position[left], width), reason)[0]
        place = self.known.position[longer]
        step = Upcast(place, width) if left.arg[1] is RangeKind.LOOP else Split(place, width)
        self.take(step, reason)

    def settle(self, amounts: dict[int, int]) -> None:
        """Loops of the prefix cannot leave a rest: make them the stages' own, or cut less off."""
        prefix = self.known.info.prefix
        places = [i for i, loop in enumerate(prefix) if self.extent(loop)
                  and self.extent(loop) % amounts.get(loop.arg[0], 1)]
        if places and self.may_own(prefix[-1]):
            for _ in range(len(prefix) - places[0]):
                last = self.known.info.prefix[-1]
                self._take(Own(self.known.position[last]), "its extent leaves a rest")
        elif places:
            for place in places:
                loop = prefix[place]
                divisors = [d for d in range(1, amounts[loop.arg[0]] + 1)
                            if self.extent(loop) % d == 0]
                amounts[loop.arg[0]] = power(divisors[-1]) if len(divisors) > 1 else 1
                if self.extent(loop) % amounts[loop.arg[0]]:
                    amounts[loop.arg[0]] = divisors[-1]

    def may_own(self, loop: UOp) -> bool:
        """Whether the loop may leave a rest: it is, or can become, a loop of the stages."""
        return loop.arg[1] is RangeKind.LOOP or not passes(self.known)

    def upcast(self, number: int, amounts: dict[int, int], reason: str) -> UOp | None:
        loop, amount = self.numbered.get(number), amounts[number]
        if loop is None or amount < 2 or self.extent(loop) % amount and (
                loop in self.known.info.prefix or is_carried(self.known, loop)):
            return None
        return self._take(Upcast(self.known.position[loop], amount), reason)


def cut_vector(planner: Planner, number: int, width: int) -> None:
    """Cut a vector off a loop, or all of it."""
    extent = planner.extent(planner.numbered[number])
    while width > 2 and width >= 2 * extent:
        width //= 2
    if extent % width:
        number = planner.take(PadTo(planner.position(number), width),
                              "the last vector is stored in part")[0].arg[0]
    planner.take(Upcast(planner.position(number), width), "vector along the columns")


def power(value: int) -> int:
    """The greatest power of two that is at most `value`."""
    return 1 << (value.bit_length() - 1)
