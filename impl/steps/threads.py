"""Steps that give parts of a kernel to threads. Chapter: spec/steps.md.

A THREAD loop is an output loop whose iterations are shared out in chunks that run at the same time.
A reduction that depends on no loop is cut into as many parts first; their results lie in a LOCAL.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from impl import symbolic
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, shared_loops
from impl.steps.declaration import Counting, Declaration
from impl.steps.rewriting import Reducer, Rewriter, element_of, reduce
from impl.steps.step import Step, StepError, with_stores

#: A part of a reduction with at least 16 times as many elements is a multiple of this many, so that
#: the parts begin at the beginning of a cache line.
_LINE = 64
#: No kernel is cut into more chunks, and no setting asks for more threads.
MOST_THREADS = 1024


@dataclass(frozen=True)
class Thread(Step):
    """Let `amount` threads divide the iterations of an output loop.

    Legal for one loop of the prefix: its iterations need nothing of each other. Without a prefix,
    legal for loops of the stages, as long as nothing outside of all loops is read from an argument
    that the kernel also stores: each phase computes such values again.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="n threads divide the iterations of an output loop",
        why="long enough for several threads",
        loops=(RangeKind.GLOBAL, RangeKind.LOOP),
        only="no part needs what another one stores",
        counted=Counting.THREADS)

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Any order of output iterations is legal, also at the same time."""
        # r[impl steps.threads.refused+2]
        info = known.info
        if not 2 <= self.amount <= MOST_THREADS or info.threads not in (1, self.amount):
            raise StepError(self.name, f"{self.amount} threads, where the kernel has "
                            f"{info.threads}", "use one number for the whole kernel, from 2 to "
                            f"{MOST_THREADS}")
        problem = not_shared(known, loop)
        if problem:
            raise StepError(self.name, problem, "name another loop, or leave it as it is")
        shared = UOp(Ops.RANGE, loop.dtype, loop.src, (loop.arg[0], RangeKind.THREAD))
        rewriter = Rewriter(known, {loop: shared}, {loop: (shared,)})
        prefix = tuple(shared if other is loop else other for other in info.prefix)
        stores = [rewriter.store(store, False) for store in known.ast.src]
        done = with_stores(known, stores, self.name, prefix)
        return done.replace(arg=replace(done.arg, threads=self.amount))


def not_shared(known: Analysis, loop: UOp) -> str:
    """Why threads cannot share an output loop; empty if they can."""
    prefix = known.info.prefix
    if any(other.arg[1] is RangeKind.THREAD for other in prefix):
        return "another loop of the prefix is shared already"
    if loop in prefix:
        return ""
    if prefix:
        return "it is no loop of the prefix, which the kernel has"
    if any(shared_loops(store) for store in known.ast.src):
        return "stages share a loop, and take turns in each of its iterations"
    if any(other.arg[1] is RangeKind.THREAD for store in known.ast.src if loop in store.src
           for other in store.src[2:]):
        return "another loop of the stage is shared already"
    if known.reads_stored(n for n in _of_arguments(known.order) if not known.free[n]):
        return "outside of loops, the kernel reads what a stage stores"
    return ""


@dataclass(frozen=True)
class GroupTop(Step):
    """Cut a reduction into `amount` parts, one a thread; their results are combined in order.

    Legal for a loop of fixed extent, without a prefix, if the reductions over it depend on no loop,
    read no argument that the kernel stores, and are needed by no stage in a BLOCK loop. A rest is
    reduced apart and combined last.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="a reduction of everything is made in n parts, by as many threads",
        why="a reduction over everything is long enough for several threads",
        loops=(RangeKind.REDUCE,),
        only="no prefix; it depends on no loop and reads nothing that is stored",
        counted=Counting.THREADS)

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Every element is combined once."""
        # r[impl steps.threads.refused+2]
        size = self.size_of(loop)
        threads = known.info.threads
        if not 1 < self.amount <= min(size, MOST_THREADS) or threads not in (1, self.amount):
            raise StepError(self.name, f"the loop has {size} iterations, the kernel "
                            f"{threads} threads", f"ask for 2 to {min(size, MOST_THREADS)} parts")
        problem = not_apart(known, loop)
        if problem:
            raise StepError(self.name, problem, "leave the reduction as it is")
        rewriter, stores = _Partials(known, loop, size, self.amount), list[UOp]()
        for store in known.ast.src:
            done = rewriter.value(store)
            stores += [*rewriter.stores, done]  # what is combined stands before its first use
            rewriter.stores.clear()
        found = with_stores(known, stores, self.name)
        return found.replace(arg=replace(found.arg, threads=self.amount))


def not_apart(known: Analysis, loop: UOp) -> str:
    """Why the reductions over a loop cannot be stages of their own; empty if they can."""
    if known.info.prefix:
        return "the kernel has a prefix"
    for node in known.order:
        if node.op is Ops.REDUCE and loop in node.src[1:]:
            if known.free[node]:
                return "a reduction over it depends on other loops"
            if known.reads_stored(_of_arguments(node.src[0].toposort())):
                return "it reads what a stage stores"
    for store in known.ast.src:
        if shared_loops(store) and any(n.op is Ops.REDUCE and loop in n.src[1:]
                                       for n in store.toposort()):
            return "a stage in a shared loop needs it"
    return ""


def _of_arguments(nodes: Iterable[UOp]) -> Iterator[UOp]:
    """The loads from arguments of the kernel."""
    return (n for n in nodes if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.PARAM)


class _Partials(Reducer):
    """Rewrites the reductions over one loop: a stage stores the parts, which are combined."""

    def __init__(self, known: Analysis, loop: UOp, size: int, amount: int) -> None:
        unit = _LINE if size >= 16 * _LINE * amount else 1
        each = size // (amount * unit) * unit
        part, inner = new_range(amount, RangeKind.THREAD), new_range(each, RangeKind.REDUCE)
        place = symbolic.add(symbolic.mul(part, each), inner)
        super().__init__(known, loop, place, (inner,), part, True)
        if size > amount * each:
            left = new_range(size - amount * each, RangeKind.REDUCE)
            self.rest = (symbolic.add(left, amount * each), left)
        self.amount = amount
        self.stores: list[UOp] = []
        self.numbers = itertools.count(known.free_local())

    def _combined(self, op: Ops, value: UOp, loops: tuple[UOp, ...]) -> UOp:
        """The parts are stored by a stage of their own, and combined in order."""
        # r[impl steps.parts.order]
        local = UOp(Ops.LOCAL, value.dtype, (), (next(self.numbers), self.amount))
        partial = reduce(op, value, loops)
        self.stores.append(UOp(Ops.STORE, value.dtype, (element_of(local, self.inner), partial,
                                                        self.inner)))
        again = new_range(self.amount, RangeKind.REDUCE)
        return reduce(op, UOp(Ops.LOAD, value.dtype, (element_of(local, again),)), (again,))
