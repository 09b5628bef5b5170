"""Loops without reductions: one loop of many, vectors along it, stores past the caches.

Chapter: spec/kernel.md. A loop along which results are stored contiguously becomes a vector, in
kernels of elementwise operations and in the stages of others alike.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from impl import symbolic
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import LANES, Analysis, Way, accessed, loaded
from impl.kernel.steps import Rewriter, Step, StepError, with_stores

_OUTPUT = (RangeKind.GLOBAL, RangeKind.LOOP)


@dataclass(frozen=True)
class Merge(Step):
    """Make one loop of two that stand directly inside each other: `axis` around `other`.

    Legal for two loops of one kind and of fixed extent, if one never stands without the other.
    """

    other: int

    def apply(self, known: Analysis) -> UOp:
        """The same iterations in the same order."""
        # r[impl kernel.step.equal+2]
        outer = self._loop(known, (*_OUTPUT, RangeKind.REDUCE))
        inner = self._loop(known, (outer.arg[1],), self.other)
        size = self.size_of(inner)
        self._check(known, outer, inner)
        merged = new_range(self.size_of(outer) * size, outer.arg[1])
        rewriter = _Merger(known, {outer: symbolic.floordiv(merged, size),
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


class _Merger(Rewriter):
    """Also puts the new loop into reductions."""

    def _node(self, node: UOp) -> UOp:
        if node.op is not Ops.REDUCE:
            return super()._node(node)
        loops = [new for old in node.src[1:] for new in self.loops.get(old, (old,))]
        return node.replace(src=(self.done[node.src[0]], *loops))


@dataclass(frozen=True)
class Stream(Step):
    """What is stored along a loop goes past the caches, where the device can do that.

    Legal for stores to memory that the kernel does not read.
    """

    def apply(self, known: Analysis) -> UOp:
        """Where a value waits on its way to memory is no part of it."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (*_OUTPUT, *LANES))
        read = loaded(known.order)
        found = [store for store in known.ast.src
                 if loop in store.src[2:] or known.free[store.src[0]] & known.mask((loop,))]
        if not found or any(store.src[0].src[0].op is not Ops.PARAM
                            or accessed(store) in read for store in found):
            raise StepError(self.name, "the kernel reads what is stored along it",
                            "name a loop of outputs")
        return with_stores(known, [store.replace(arg=Way.PAST) if store in found else store
                                   for store in known.ast.src], self.name)
