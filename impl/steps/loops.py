"""Loops exchanged, cut, made one, or moved between the prefix and the stages.

Chapter: spec/steps.md.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import (
    Analysis,
    shared_loops,
)
from impl.steps.declaration import Amount, Declaration, Trace
from impl.steps.rewriting import Rewriter, refuse_passed
from impl.steps.step import Step, StepError, with_stores


@dataclass(frozen=True)
class Swap(Step):
    """Exchange two loops of the prefix, or two loops of the stages that have both.

    Legal for output loops of one kind; if one extent depends on nothing but variables, as here,
    their order is free.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="exchanges two output loops",
        why="contiguous stores innermost",
        loops=(RangeKind.GLOBAL, RangeKind.LOOP),
        only="both in the prefix, or both in the same stages")

    other: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Any order of output iterations is legal."""
        # r[impl steps.value.equal]
        one, two = loop, self._loop(known, (loop.arg[1],), self.other)
        if one is two:
            raise StepError(self.name, "it is one loop", "name two")
        exchange = {one: two, two: one}
        info = known.info
        if one in info.prefix and two in info.prefix:
            prefix = tuple(exchange.get(loop, loop) for loop in info.prefix)
            return with_stores(known, known.ast.src, self.name, prefix)
        found = [store for store in known.ast.src if one in store.src and two in store.src]
        if not found:
            raise StepError(self.name, "no stage has both loops", "name two loops of one stage")
        stores = [store.replace(src=tuple(exchange.get(s, s) for s in store.src))
                  if store in found else store for store in known.ast.src]
        return with_stores(known, stores, self.name)


@dataclass(frozen=True)
class Own(Step):
    """Make the last loop of the prefix a loop of the stages, the outermost of each.

    Legal if no memory passes between stages: it is private to one iteration of the prefix.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="the last loop of the prefix becomes a loop of the stages, which may leave a rest",
        why="its extent leaves a rest",
        loops=(RangeKind.GLOBAL,),
        only="nothing passes between stages",
        not_after=(Trace.EXCHANGE,))

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Nothing private is shared by the stages."""
        # r[impl steps.value.equal]
        if not known.info.prefix or loop is not known.info.prefix[-1]:
            raise StepError(self.name, "it is not the last loop of the prefix", "name that one")
        refuse_passed(self.name, known)
        own = UOp(Ops.RANGE, loop.dtype, loop.src, (loop.arg[0], RangeKind.LOOP))
        rewriter = Rewriter(known, {loop: own}, {loop: (own,)})
        stores = []
        for store in known.ast.src:
            done = rewriter.store(store, False)
            place = 2 + len(shared_loops(done))
            stores.append(done.replace(src=(*done.src[:place], own, *done.src[place:])))
        return with_stores(known, stores, self.name, known.info.prefix[:-1])


@dataclass(frozen=True)
class Merge(Step):
    """Make one loop of two that stand directly inside each other: `axis` around `other`.

    Legal for two loops of one kind and of fixed extent, if one never stands without the other.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="one loop of two that stand directly inside each other",
        why="contiguous together",
        loops=(RangeKind.GLOBAL, RangeKind.LOOP, RangeKind.REDUCE),
        only="both of fixed extent, never one without the other")

    other: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """The same iterations in the same order."""
        # r[impl steps.value.equal]
        outer, inner = loop, self._loop(known, (loop.arg[1],), self.other)
        size = self.size_of(inner)
        self._check(known, outer, inner)
        merged = new_range(self.size_of(outer) * size, outer.arg[1])
        rewriter = Rewriter(known, {outer: symbolic.floordiv(merged, size),
                                    inner: symbolic.mod(merged, size)},
                            {outer: (), inner: (merged,)})
        prefix = tuple(new for old in known.info.prefix
                       for new in rewriter.loops.get(old, (old,)))
        stores = [rewriter.store(store, False) for store in known.ast.src]
        return with_stores(known, stores, self.name, prefix)

    def _check(self, known: Analysis, outer: UOp, inner: UOp) -> None:
        lists = [known.info.prefix, *(store.src[2:] for store in known.ast.src)]
        lists += [node.src[1:] for node in known.order if node.op is Ops.REDUCE]
        for loops in lists:
            if (outer in loops or inner in loops) and not _directly(loops, outer, inner):
                raise StepError(self.name, "the loops do not stand directly inside each other",
                                "name two that always do, the outer one first")


def _directly(loops: Sequence[UOp], outer: UOp, inner: UOp) -> bool:
    return outer in loops and loops[loops.index(outer) + 1:][:1] == (inner,)


@dataclass(frozen=True)
class Share(Step):
    """Make the last loop of the prefix a BLOCK loop: stages share it, its iterations have an order.

    Always legal: an order is one of any. What stages copy outside of it serves all iterations.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="the last loop of the prefix becomes a BLOCK loop of the stages",
        why="its iterations share copies of operands",
        loops=(RangeKind.GLOBAL,),
        only="it is the last one")

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """The loop becomes the outermost of all stages."""
        # r[impl steps.value.equal]
        if loop is not known.info.prefix[-1]:
            raise StepError(self.name, "it is not the last loop of the prefix", "name that one")
        own = UOp(Ops.RANGE, loop.dtype, loop.src, (loop.arg[0], RangeKind.BLOCK))
        rewriter = Rewriter(known, {loop: own}, {loop: (own,)})
        stores = []
        for store in known.ast.src:
            done = rewriter.store(store, False)
            stores.append(done.replace(src=(*done.src[:2], own, *done.src[2:])))
        return with_stores(known, stores, self.name, known.info.prefix[:-1])


@dataclass(frozen=True)
class Cut(Step):
    """Make two loops of an output loop: an outer one, and `amount` iterations inside of it.

    Then threads may share the outer one, and the stages own the other; or lanes the inner one, so
    that each has an iteration of every round. Legal for an extent that is a multiple of `amount`.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="two loops of an output loop, the inner one of n iterations",
        why="a part a thread",
        loops=(RangeKind.GLOBAL, RangeKind.LOOP),
        amount=Amount(divides=True, below=True))

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """The same iterations in the same order."""
        # r[impl steps.value.equal]
        size = self.size_of(loop)
        both = (new_range(size // self.amount, loop.arg[1]), new_range(self.amount, loop.arg[1]))
        place = symbolic.add(symbolic.mul(both[0], self.amount), both[1])
        rewriter = Rewriter(known, {loop: place}, {loop: both})
        prefix = tuple(new for old in known.info.prefix
                       for new in (both if old is loop else (old,)))
        stores = [rewriter.store(store, False) for store in known.ast.src]
        return with_stores(known, stores, self.name, prefix)
