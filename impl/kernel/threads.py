"""Steps that give parts of a kernel to threads, and when they pay. Chapter: spec/kernel.md.

A THREAD loop is an output loop whose iterations are shared out in chunks that run at the same time.
A reduction that depends on no loop is cut into as many parts first; their results lie in a LOCAL.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from impl import symbolic
from impl.ir import DEAR, TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, Limits, estimate, shared_loops, stage_of
from impl.kernel.steps import Reducer, Rewriter, Step, StepError, reduce, with_stores

#: A part of a reduction with at least 16 times as many elements is a multiple of this many, so that
#: the parts begin at the beginning of a cache line.
_LINE = 64


#: No kernel is cut into more chunks, and no setting asks for more threads.
MOST_THREADS = 1024


@dataclass(frozen=True)
class Thread(Step):
    """Let `amount` threads share the iterations of an output loop.

    Legal for one loop of the prefix: its iterations need nothing of each other. Without a prefix,
    legal for loops of the stages, as long as nothing outside of all loops is read from an argument
    that the kernel also stores: each phase computes such values again.
    """

    amount: int

    def apply(self, known: Analysis) -> UOp:
        """Any order of output iterations is legal, also at the same time."""
        # r[impl kernel.thread.legal]
        info = known.info
        loop = self._loop(known, (RangeKind.GLOBAL, RangeKind.LOOP))
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

    amount: int

    def apply(self, known: Analysis) -> UOp:
        """Every element is combined once."""
        # r[impl kernel.group.legal+3]
        loop = self._loop(known, (RangeKind.REDUCE,))
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
        # r[impl kernel.group.order]
        local = UOp(Ops.LOCAL, value.dtype, (), (next(self.numbers), self.amount))
        partial = reduce(op, value, loops)
        self.stores.append(UOp(Ops.STORE, value.dtype, (element_of(local, self.inner), partial,
                                                        self.inner)))
        again = new_range(self.amount, RangeKind.REDUCE)
        return reduce(op, UOp(Ops.LOAD, value.dtype, (element_of(local, again),)), (again,))


def element_of(buffer: UOp, index: UOp) -> UOp:
    return UOp(Ops.INDEX, buffer.dtype, (buffer, index, TRUE))


#: Nanoseconds of work that a thread should get at least: to give it its part and to wait for it
#: takes one or two thousand. That it may have to be woken first is the device's business.
SHARE = 5_000
#: So many nanoseconds a part takes at least where threads get several.
_PART = 20_000
#: Where so many parts are left for each thread, more make little difference.
_SEVERAL = 4
#: What one thread does in a nanosecond, where nothing is in its way: bytes moved and operations.
_BYTES, _OPERATIONS = 20, 100
#: A reduction is cut into parts of at least as many elements; what combines them is not cut again.
_LEAST_PART = 16
#: A loop that keeps fewer threads busy on average is not shared out.
_LEAST_BUSY = 1.2

Choice = tuple[Step, str] | None


def duration(ast: UOp) -> int:
    """Nanoseconds that one thread needs for a kernel, at the least."""
    # r[impl kernel.thread.pays+2]
    known = Analysis(ast)
    cost = estimate(ast)
    dear = sum(DEAR[node.op] * _iterations(known, known.free[node]) for node in known.order
               if node.op in DEAR and node.dtype.kind == "f")
    return max(cost.bytes // _BYTES, (cost.operations + dear) // _OPERATIONS)


def _iterations(known: Analysis, mask: int) -> int:
    return math.prod(max(_extent(loop), 1) for loop in known.loops(mask))


def _extent(loop: UOp) -> int:
    """The number of iterations; the greatest, if it is known at run time only."""
    return symbolic.bounds(loop.src[0])[1]


def threads_for(nanoseconds: int, limits: Limits) -> int:
    """How many threads a kernel should get: each has to be worth its price."""
    return min(limits.threads, nanoseconds // SHARE)


def parts_for(known: Analysis, nanoseconds: int, threads: int, limits: Limits) -> int:
    """Into how many parts to cut what takes so long: several a thread, if that is worth it.

    Who is done early takes parts of others. So a thread whose processor is slow for a while, as
    others use it, holds up nobody for longer than a part takes.
    """
    # r[impl kernel.thread.balance]
    if known.info.threads > 1:
        return known.info.threads
    each = min(limits.parts, nanoseconds // (_PART * threads), MOST_THREADS // threads)
    return threads * max(each, 1)


def part_of_reduction(known: Analysis, threads: int, limits: Limits) -> Choice:
    """Cut a reduction that has to be finished before anything else can begin, if it is long."""
    if threads < 2:
        return None
    for node in known.order:
        if node.op is not Ops.REDUCE or known.free[node]:
            continue
        loop = max(node.src[1:], key=_extent)
        amount = parts_for(known, _alone(known, node), threads, limits)
        fixed = loop.arg[1] is RangeKind.REDUCE and loop.src[0].op is Ops.CONST
        if fixed and _extent(loop) >= _LEAST_PART * amount and not not_apart(known, loop) and \
                _alone(known, node) >= SHARE:
            return (GroupTop(known.position[loop], amount),
                    f"a reduction over everything: {amount} parts for {threads} threads")
    return None


def _alone(known: Analysis, node: UOp) -> int:
    """Nanoseconds for a reduction or a stage, reckoned by its innermost loops."""
    order = stage_of(node).order if node.op is Ops.STORE else node.toposort()
    count = max(_iterations(known, mask) for mask in {known.free[below] for below in order})
    return count * node.dtype.itemsize // _BYTES


def part_of_loop(known: Analysis, nanoseconds: int, threads: int, limits: Limits) -> Choice:
    """The loop whose iterations are best shared out: in the prefix, or else of the next stage."""
    if threads < 2:
        return None
    if known.info.prefix:
        parts = parts_for(known, nanoseconds, threads, limits)
        return _best(known, known.info.prefix, threads, parts)
    again = [_alone(known, node) for node in known.order
             if node.op is Ops.REDUCE and not known.free[node]]
    if max(again, default=0) >= SHARE:
        return None  # every thread would compute the reduction again
    times = {store: _alone(known, store) for store in known.ast.src}
    long = [store for store, time in times.items() if time >= SHARE]
    shortest = min((times[store] for store in long), default=0)
    parts = parts_for(known, shortest if sum(again) < SHARE // 10 else 0, threads, limits)
    return next(filter(None, (_best(known, store.src[2:], threads, parts) for store in long)), None)


def _best(known: Analysis, loops: Sequence[UOp], threads: int, parts: int) -> Choice:
    """The first loop that keeps nearly all threads busy all the time; else the best of them.

    One with few iterations gives way to one with more: with few parts, the last one takes long.
    """
    loops = [loop for loop in loops if loop.arg[1] in (RangeKind.GLOBAL, RangeKind.LOOP)
             and not not_shared(known, loop)]
    busy = [_extent(loop) / max(-(-_extent(loop) // threads), 1) for loop in loops]
    best = max(busy, default=0)
    if best < _LEAST_BUSY:
        return None
    good = [loop for loop, share in zip(loops, busy, strict=True)
            if share >= min(best, 0.9 * threads)]
    loop = max(good, key=lambda loop: min(_extent(loop), parts, _SEVERAL * threads))
    if known.info.threads == 1:
        parts = _even(_extent(loop), threads, parts)
    return (Thread(known.position[loop], parts), f"long enough for {threads} threads: "
            f"{_extent(loop)} iterations are shared out in {parts} parts")


def _even(extent: int, threads: int, parts: int) -> int:
    """At most so many parts: one for each iteration if there are few, else as many for each thread,
    and equal ones if there are such.
    """
    if extent <= parts:
        return max(extent, threads)
    several = range(parts, max(parts // 2, threads - 1), -threads)
    return next((n for n in several if extent % n == 0), parts)
