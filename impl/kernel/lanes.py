"""Steps that give parts of a kernel to the lanes of work-groups. Chapter: spec/kernel.md.

A device with work-groups runs each iteration of the prefix in one group, whose lanes share the
loops of the stages; or, where the iterations are short, in one lane. `Local` says which loops the
lanes share; what passes between them, and where they wait, follows from the stages.
"""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from impl import symbolic
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, Limits, buffer_key, shared_loops
from impl.kernel.padding import PadTo
from impl.kernel.steps import Step, StepError, _reduce, _Reducer, _Rewriter, _sink
from impl.kernel.threads import _at

#: No group has more lanes, whatever a device can do.
MOST_LANES = 1024
#: Partial results that one lane combines.
_COMBINED = 16


# --8<-- [start:local]
@dataclass(frozen=True)
class Local(Step):
    """Let the `amount` lanes of a work-group share the iterations of a loop.

    Legal for a loop of the prefix if those behind it are shared too: then a lane runs whole
    iterations by itself. Legal for a loop of a stage, next to those of it that are shared
    already, unless the prefix is shared: then the lanes of a group run an iteration together.
    Legal for the loop of a reduction that depends on nothing but the prefix and shared BLOCK
    loops: each lane combines a part, and the parts are combined by way of a LOCAL.
    """

    amount: int

    def apply(self, known: Analysis) -> UOp:
        """Any order of output iterations is legal, also at the same time."""
        # r[impl kernel.lane.legal]
        kinds = (RangeKind.GLOBAL, RangeKind.LOOP, RangeKind.REDUCE)
        loop, lanes = self._loop(known, kinds), known.info.lanes
        if not 2 <= self.amount <= MOST_LANES or lanes not in (1, self.amount):
            raise StepError(self.name, f"{self.amount} lanes, where the kernel has {lanes}",
                            f"use one number for the whole kernel, from 2 to {MOST_LANES}")
        problem = _not_in_lanes(known, loop)
        if problem:
            raise StepError(self.name, problem, "name another loop, or leave it as it is")
        if loop.arg[1] is RangeKind.REDUCE:
            return self._reduced(known, loop)
        shared = UOp(Ops.RANGE, loop.dtype, loop.src, (loop.arg[0], RangeKind.LANE))
        rewriter = _Rewriter(known, {loop: shared}, {loop: (shared,)})
        prefix = tuple(shared if other is loop else other for other in known.info.prefix)
        stores = [rewriter.store(store, False) for store in known.ast.src]
        return self._made(known, stores, prefix)

    def _made(self, known: Analysis, stores: Sequence[UOp], prefix: tuple[UOp, ...]) -> UOp:
        done = _sink(known, stores, self.name, prefix)
        return done.replace(arg=replace(done.arg, lanes=self.amount))

    def _reduced(self, known: Analysis, loop: UOp) -> UOp:
        """The parts of a reduction, and their combinations, as stages of their own."""
        size = self._size(loop)
        if size < self.amount:
            raise StepError(self.name, f"the loop has {size} iterations", "use fewer lanes")
        if size % self.amount:  # what is beyond the end combines the identity
            before, steps = set(known.ranges), known.info.steps
            ast = PadTo(known.position[loop], self.amount).apply(known)
            known = Analysis(ast.replace(arg=replace(ast.arg, steps=steps)))
            loop = next(r for r in known.ranges if r not in before)
        rewriter, stores = _Parts(known, loop, self.amount), list[UOp]()
        for store in known.ast.src:
            done = rewriter.value(store)
            stores += [*rewriter.stores, done]
            rewriter.stores.clear()
        return self._made(known, stores, known.info.prefix)
# --8<-- [end:local]


def _not_in_lanes(known: Analysis, loop: UOp) -> str:
    """Why the lanes of a group cannot share a loop; empty if they can."""
    prefix = known.info.prefix
    if known.info.threads > 1:
        return "the kernel is shared by threads"
    if loop in prefix:
        if any(r.arg[1] is RangeKind.LANE for r in known.ranges if r not in prefix):
            return "a stage is shared already"
        behind = prefix[prefix.index(loop) + 1:]
        if any(r.arg[1] is not RangeKind.LANE for r in behind):
            return "a loop of the prefix behind it is not shared"
        return ""
    if any(r.arg[1] is RangeKind.LANE for r in prefix):
        return "the prefix is shared, so that each lane runs its iterations by itself"
    if loop.arg[1] is RangeKind.REDUCE:
        return _no_parts(known, loop)
    return next(filter(None, (_no_neighbour(store, loop) for store in known.ast.src)), "")


def _no_neighbour(store: UOp, loop: UOp) -> str:
    """Whether another loop stands between this one and those of the stage that are shared."""
    own = [r for r in store.src[2:] if r.arg[1] not in (RangeKind.UPCAST, RangeKind.UNROLL)]
    shared = [i for i, r in enumerate(own) if r.arg[1] is RangeKind.LANE]
    if loop not in own or not shared or own.index(loop) in (shared[0] - 1, shared[-1] + 1):
        return ""
    return "another loop stands between it and those that are shared"


def _no_parts(known: Analysis, loop: UOp) -> str:
    """Why the reductions over a loop cannot be stages of their own; empty if they can."""
    # r[impl kernel.group.legal]
    stores = [store.toposort() for store in known.ast.src]
    for node in known.order:
        if node.op is not Ops.REDUCE or loop not in node.src[1:]:
            continue
        if known.free[node] & ~known.prefix:
            return "a reduction over it depends on loops behind the prefix"
        users = [i for i, nodes in enumerate(stores) if node in nodes]
        if any(shared_loops(known.ast.src[i]) for i in users):
            return "it is in stages that share a loop"
        loaded = {buffer_key(n.src[0].src[0]) for n in node.toposort() if n.op is Ops.LOAD}
        if any(store.src[0].src[0].op is Ops.PARAM
               and buffer_key(store.src[0].src[0]) in loaded
               for store in known.ast.src[:users[-1]]):
            return "it reads what a stage before stores"
    return ""


# --8<-- [start:parts]
class _Parts(_Reducer):
    """Rewrites the reductions over one loop: each lane combines a part, and then they are combined.

    Neighbouring lanes take neighbouring elements. Their results lie in a LOCAL; lanes combine some
    of these each, as long as there are many, and all lanes combine the rest.
    """

    def __init__(self, known: Analysis, loop: UOp, amount: int) -> None:
        size = loop.src[0].arg // amount
        part = new_range(amount, RangeKind.LANE)
        inner = (new_range(size, RangeKind.REDUCE),) if size > 1 else ()
        place = symbolic.add(symbolic.mul(inner[0], amount), part) if inner else part
        super().__init__(known, loop, place, inner, part, True)
        self.amount = amount
        self.stores: list[UOp] = []
        taken = [node.arg[0] for node in known.order if node.op is Ops.LOCAL]
        self.numbers = itertools.count(max(taken, default=-1) + 1)

    def _combined(self, op: Ops, value: UOp, loops: tuple[UOp, ...]) -> UOp:
        """A tree: its order is fixed by the numbers of the parts."""
        # r[impl kernel.group.order]
        found = self._stored(_reduce(op, value, loops), self.inner, self.amount)
        parts = self.amount
        while parts > _COMBINED and parts % _COMBINED == 0:
            parts //= _COMBINED
            lane, again = new_range(parts, RangeKind.LANE), new_range(_COMBINED, RangeKind.REDUCE)
            place = symbolic.add(symbolic.mul(again, parts), lane)
            some = _reduce(op, UOp(Ops.LOAD, value.dtype, (_at(found, place),)), (again,))
            found = self._stored(some, lane, parts)
        last = new_range(parts, RangeKind.REDUCE)
        return _reduce(op, UOp(Ops.LOAD, value.dtype, (_at(found, last),)), (last,))

    def _stored(self, value: UOp, lane: UOp, count: int) -> UOp:
        """The LOCAL in which each lane stores its value."""
        local = UOp(Ops.LOCAL, value.dtype, (), (next(self.numbers), count))
        self.stores.append(UOp(Ops.STORE, value.dtype, (_at(local, lane), value, lane)))
        return local
# --8<-- [end:parts]


# --8<-- [start:choose]
def lane_steps(ast: UOp, limits: Limits) -> list[tuple[Step, str]]:
    """Steps for a kernel on a device with work-groups, each with its reason."""
    planner = _Planner(ast, limits)
    planner.run()
    return planner.steps


#: LOCALs of an iteration with more bytes are shared by the lanes of a group.
_PRIVATE_BYTES = 256


class _Planner:
    """Looks at a kernel, takes a step, and looks at what became of it."""

    def __init__(self, ast: UOp, limits: Limits) -> None:
        self.known, self.limits = Analysis(ast), limits
        self.lanes = min(256, limits.lanes)
        self.steps: list[tuple[Step, str]] = []

    def take(self, step: Step, reason: str) -> None:
        """Apply a step and look at what became of the kernel."""
        self.known = Analysis(step.apply(self.known))
        self.steps.append((step, reason))

    def run(self) -> None:
        """Each iteration of the prefix in a lane, or, if it needs much memory, in a group."""
        locals_ = [n for n in self.known.order if n.op is Ops.LOCAL]
        private = sum(n.arg[1] * n.dtype.itemsize for n in locals_)
        if self.known.info.prefix and private <= _PRIVATE_BYTES:
            for loop in self.known.info.prefix[::-1]:
                self.take(Local(self.known.position[loop], self.lanes),
                          "each lane runs iterations of the prefix by itself")
            return
        for place in range(len(self.known.ast.src)):
            own = [r for r in self.known.ast.src[place].src[2:]
                   if r.arg[1] is RangeKind.LOOP]
            for loop in own[::-1]:
                if not _not_in_lanes(self.known, loop):
                    self.take(Local(self.known.position[loop], self.lanes),
                              "the lanes of a group share an iteration of the prefix")
# --8<-- [end:choose]
