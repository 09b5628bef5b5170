"""Steps that give parts of a kernel to the lanes of work-groups. Chapter: spec/groups.md.

A device with work-groups runs each iteration of the prefix in one group, whose lanes share the
loops of the stages; or, where the iterations are short, in one lane. `Local` says which loops the
lanes share; what passes between them, and where they wait, follows from the stages.
"""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from impl import symbolic
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, accessed, loaded, shared_loops
from impl.steps.declaration import Amount, Counting, Declaration, Trace
from impl.steps.padding import PadTo
from impl.steps.rewriting import (
    Reducer,
    Rewriter,
    element_of,
    reduce,
    refuse_passed,
)
from impl.steps.step import Step, StepError, with_stores
from impl.steps.threads import not_apart, not_shared

#: No group has more lanes, whatever a device can do.
MOST_LANES = 1024
#: No device exchanges values among more lanes.
MOST_EXCHANGED = 32
#: Partial results that one lane of a group combines, and one of all groups, where a step of the
#: tree is a launch.
_COMBINED, _COMBINED_TOP = 16, 128
#: No kernel is shared by more lanes of all groups.
MOST_ITEMS = 1 << 20


@dataclass(frozen=True)
class Local(Step):
    """Let the `amount` lanes of a work-group divide the iterations of a loop.

    Legal for a loop of the prefix if those behind it are shared too: then a lane runs whole
    iterations by itself. Legal for a loop of a stage, next to those of it that are shared
    already, unless the prefix is shared: then the lanes of a group run an iteration together.
    Legal for the loop of a reduction that depends on nothing but the prefix, in stages that share
    no BLOCK loop: each lane combines a part, and the parts are combined by way of a LOCAL.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="the n lanes of a work-group divide the iterations of a loop",
        why="lanes run at the same time, and share memory",
        loops=(RangeKind.GLOBAL, RangeKind.LOOP, RangeKind.REDUCE),
        only="no iteration needs what another one stores; all lanes come where they wait",
        not_after=(Trace.THREADS,),
        counted=Counting.LANES,
        instead="UPCAST for lanes, THREAD for processors")

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Any order of output iterations is legal, also at the same time."""
        # r[impl groups.lane.legal+2]
        lanes = known.info.lanes
        if not 2 <= self.amount <= MOST_LANES or lanes not in (1, self.amount):
            raise StepError(self.name, f"{self.amount} lanes, where the kernel has {lanes}",
                            f"use one number for the whole kernel, from 2 to {MOST_LANES}")
        problem = _not_in_lanes(known, loop)
        if problem:
            raise StepError(self.name, problem, "name another loop, or leave it as it is")
        if loop.arg[1] is RangeKind.REDUCE:
            return self._reduced(known, loop)
        shared = UOp(Ops.RANGE, loop.dtype, loop.src, (loop.arg[0], RangeKind.LANE))
        rewriter = Rewriter(known, {loop: shared}, {loop: (shared,)})
        prefix = tuple(shared if other is loop else other for other in known.info.prefix)
        stores = [rewriter.store(store, False) for store in known.ast.src]
        return self._made(known, stores, prefix)

    def _made(self, known: Analysis, stores: Sequence[UOp], prefix: tuple[UOp, ...]) -> UOp:
        done = with_stores(known, stores, self.name, prefix)
        return done.replace(arg=replace(done.arg, lanes=self.amount))

    def _reduced(self, known: Analysis, loop: UOp, width: int = 1) -> UOp:
        """The parts of a reduction, and their combinations, as stages of their own."""
        rewritten = _cut(self, known, loop, self.amount, RangeKind.LANE, width)
        return self._made(known, rewritten, known.info.prefix)


@dataclass(frozen=True)
class Warp(Local):
    """LOCAL for a reduction, on a device whose lanes run in warps of `width`, a power of two.

    Each lane combines a part. The lanes of a warp combine their parts by exchanging them, and only
    the result of each warp passes through a LOCAL; a group of one warp needs none. Legal where
    LOCAL is, for whole warps: then all lanes of a warp come to the exchange, or none.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="n lanes of a group reduce a part each, and warps of `width` exchange theirs",
        why="a warp combines parts without memory",
        loops=(RangeKind.REDUCE,),
        only="as for LOCAL; `width` is a power of two that divides n",
        not_after=(Trace.THREADS,),
        counted=Counting.LANES,
        instead="GROUP, or LOCAL on a device without warps")

    width: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """The same elements in an order that the numbers of the lanes fix."""
        # r[impl kernel.warp.whole+2]
        if not 2 <= self.width <= MOST_EXCHANGED or self.width & (self.width - 1) \
                or self.amount % self.width:
            raise StepError(self.name, f"{self.amount} lanes are no whole warps of {self.width}",
                            f"ask for a power of two from 2 to {MOST_EXCHANGED}, and a multiple "
                            "of it as lanes")
        return super().changed(known, loop)

    def _reduced(self, known: Analysis, loop: UOp, width: int = 1) -> UOp:
        return super()._reduced(known, loop, self.width)


def _cut(step: Step, known: Analysis, loop: UOp, amount: int, kind: RangeKind,
         width: int = 1) -> list[UOp]:
    """The stores once the reductions over a loop are cut into parts, stages of their own."""
    size = step.size_of(loop)
    if size < amount:
        raise StepError(step.name, f"the loop has {size} iterations", "use fewer lanes")
    if size % amount:  # what is beyond the end combines the identity
        before = set(known.ranges)
        known = Analysis(PadTo(known.position[loop], amount).apply(known))
        loop = next(r for r in known.ranges if r not in before)
    rewriter, stores = _Parts(known, loop, amount, kind, width), list[UOp]()
    for store in known.ast.src:
        done = rewriter.value(store)
        stores += [*rewriter.stores, done]  # what is combined stands before its first use
        rewriter.stores.clear()
    return stores


@dataclass(frozen=True)
class Inner(Step):
    """Cut `amount` iterations off a loop of the prefix: they become a loop of the stages.

    So a group has a block of outputs, whose lanes share what is read for it. Legal where OWN is,
    for a loop whose fixed extent is a multiple of `amount`.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="n iterations of a loop of the prefix become a loop of the stages",
        why="the lanes of a group share what is read for a block of outputs",
        loops=(RangeKind.GLOBAL,),
        amount=Amount(divides=True),
        only="nothing passes between stages",
        not_after=(Trace.EXCHANGE,),
        instead="OWN, or UPCAST")

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Nothing private is shared by the stages."""
        # r[impl steps.value.equal]
        size = self.size_of(loop)
        refuse_passed(self.name, known)
        inner = new_range(self.amount, RangeKind.LOOP)
        outer = (new_range(size // self.amount, RangeKind.GLOBAL),) if size > self.amount else ()
        place = symbolic.add(symbolic.mul(outer[0], self.amount), inner) if outer else inner
        rewriter = Rewriter(known, {loop: place}, {loop: outer})
        stores = []
        for store in known.ast.src:
            done, at = rewriter.store(store, False), 2 + len(shared_loops(store))
            stores.append(done.replace(src=(*done.src[:at], inner, *done.src[at:])))
        prefix = tuple(new for old in known.info.prefix
                       for new in (outer if old is loop else (old,)))
        return with_stores(known, stores, self.name, prefix)


@dataclass(frozen=True)
class Grid(Step):
    """Let `amount` lanes of all groups divide a loop: groups wait for each other between stages.

    Legal without a prefix, for loops of stages that stand side by side, and for the loops of
    reductions that depend on no loop. See THREAD, which does the same for processors.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="n lanes of all groups divide a loop",
        why="without a prefix one group would do all the work",
        loops=(RangeKind.LOOP, RangeKind.REDUCE),
        only="no prefix; as for THREAD and GROUPTOP",
        not_after=(Trace.LANES,),
        counted=Counting.LANES,
        instead="THREAD for a stage, GROUPTOP for a reduction")

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Any order of output iterations is legal, also at the same time."""
        # r[impl groups.lane.legal+2]
        info = known.info
        if not 2 <= self.amount <= MOST_ITEMS or info.threads not in (1, self.amount):
            raise StepError(self.name, f"{self.amount} lanes, where the kernel has {info.threads}",
                            f"use one number for the whole kernel, from 2 to {MOST_ITEMS}")
        reduced = loop.arg[1] is RangeKind.REDUCE
        problem = not_apart(known, loop) if reduced else _no_grid(known, loop)
        if problem:
            raise StepError(self.name, problem, "name another loop, or leave it as it is")
        if reduced:
            stores = _cut(self, known, loop, self.amount, RangeKind.THREAD)
        else:
            shared = UOp(Ops.RANGE, loop.dtype, loop.src, (loop.arg[0], RangeKind.THREAD))
            rewriter = Rewriter(known, {loop: shared}, {loop: (shared,)})
            stores = [rewriter.store(store, False) for store in known.ast.src]
        done = with_stores(known, stores, self.name)
        return done.replace(arg=replace(done.arg, threads=self.amount))


def _no_grid(known: Analysis, loop: UOp) -> str:
    """Why the lanes of all groups cannot share a stage's loop; empty if they can."""
    users = [store for store in known.ast.src if loop in store.src]
    beside = next(filter(None, (_no_neighbour(s, loop, RangeKind.THREAD) for s in users)), "")
    problem = not_shared(known, loop)
    return beside or ("" if problem == "another loop of the stage is shared already" else problem)


def _not_in_lanes(known: Analysis, loop: UOp) -> str:
    """Why the lanes of a group cannot share a loop; empty if they can."""
    prefix = known.info.prefix
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
    if any(loop in store.src and any(n.op is Ops.MMA for n in store.src[1].toposort())
           for store in known.ast.src):  # r[impl kernel.mma.layout+2]
        return "the lanes of its stage are the warps of an MMA"
    return next(filter(None, (_no_neighbour(store, loop, RangeKind.LANE)
                              for store in known.ast.src)), "")


def _no_neighbour(store: UOp, loop: UOp, kind: RangeKind) -> str:
    """Whether another loop stands between this one and those of the stage that are shared."""
    own = [r for r in store.src[2:] if r.arg[1] not in (RangeKind.UPCAST, RangeKind.UNROLL)]
    shared = [i for i, r in enumerate(own) if r.arg[1] is kind]
    if loop not in own or not shared or own.index(loop) in (shared[0] - 1, shared[-1] + 1):
        return ""
    return "another loop stands between it and those that are shared"


def _no_parts(known: Analysis, loop: UOp) -> str:
    """Why the reductions over a loop cannot be stages of their own; empty if they can."""
    # r[impl steps.threads.refused+2]
    stores = [store.toposort() for store in known.ast.src]
    for node in known.order:
        if node.op is not Ops.REDUCE or loop not in node.src[1:]:
            continue
        if known.free[node] & ~known.prefix:
            return "a reduction over it depends on loops behind the prefix"
        users = [i for i, nodes in enumerate(stores) if node in nodes]
        if any(shared_loops(known.ast.src[i]) for i in users):
            return "it is in stages that share a loop"
        read = loaded(node.toposort())
        if any(store.src[0].src[0].op is Ops.PARAM
               and accessed(store) in read
               for store in known.ast.src[:users[-1]]):
            return "it reads what a stage before stores"
    return ""


class _Parts(Reducer):
    """Rewrites the reductions over one loop: each lane combines a part, and then they are combined.

    Neighbouring lanes take neighbouring elements. Their results lie in a LOCAL; lanes combine some
    of these each, as long as there are many, and all lanes combine the rest. If lanes of a warp
    can exchange values, `width` of them combine theirs first: by a reduction over a LANE loop.
    """

    def __init__(self, known: Analysis, loop: UOp, amount: int, kind: RangeKind,
                 width: int) -> None:
        size = loop.src[0].arg // amount
        self.among = new_range(width, kind) if width > 1 else None
        self.part = new_range(amount // width, kind) if width < amount else None
        part = symbolic.total([symbolic.mul(loop, stride) for loop, stride in
                               ((self.part, width), (self.among, 1)) if loop is not None])
        inner = (new_range(size, RangeKind.REDUCE),) if size > 1 else ()
        place = symbolic.add(symbolic.mul(inner[0], amount), part) if inner else part
        super().__init__(known, loop, place, inner, part, True)
        self.amount, self.kind = amount // width, kind
        self.most = _COMBINED if kind is RangeKind.LANE else _COMBINED_TOP
        self.stores: list[UOp] = []
        self.numbers = itertools.count(known.free_local())

    def _combined(self, op: Ops, value: UOp, loops: tuple[UOp, ...]) -> UOp:
        """A tree: its order is fixed by the numbers of the parts."""
        # r[impl steps.parts.order]
        value = reduce(op, value, loops)
        if self.among is not None:
            value = reduce(op, value, (self.among,))
        if self.part is None:
            return value
        found = self._stored(value, self.part, self.amount)
        parts = self.amount
        while parts > self.most and parts % self.most == 0:
            parts //= self.most
            lane, again = new_range(parts, self.kind), new_range(self.most, RangeKind.REDUCE)
            place = symbolic.add(symbolic.mul(again, parts), lane)
            some = reduce(op, UOp(Ops.LOAD, value.dtype, (element_of(found, place),)), (again,))
            found = self._stored(some, lane, parts)
        last = new_range(parts, RangeKind.REDUCE)
        return reduce(op, UOp(Ops.LOAD, value.dtype, (element_of(found, last),)), (last,))

    def _stored(self, value: UOp, lane: UOp, count: int) -> UOp:
        """The LOCAL in which each lane stores its value."""
        local = UOp(Ops.LOCAL, value.dtype, (), (next(self.numbers), count))
        self.stores.append(UOp(Ops.STORE, value.dtype, (element_of(local, lane), value, lane)))
        return local

