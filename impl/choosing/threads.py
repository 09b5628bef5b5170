"""How many threads share a kernel, and which loop. Chapter: spec/choosing.md."""
from __future__ import annotations

import math
from collections.abc import Sequence

from impl import symbolic
from impl.ir import DEAR, Ops, RangeKind, UOp
from impl.kernel.analysis import Analysis, DeviceLimits, Way, estimate, stage_of
from impl.steps.step import Step
from impl.steps.threads import MOST_THREADS, GroupTop, Thread, not_apart, not_shared

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
#: A reduction is cut into so many parts at most: enough for as many threads.
_MOST_PARTS = 128
#: A loop that keeps fewer threads busy on average is not shared out.
_LEAST_BUSY = 1.2
Choice = tuple[Step, str] | None


def duration(ast: UOp) -> int:
    """Nanoseconds that one thread needs for a kernel, at the least."""
    # r[impl choosing.threads.shares+2]
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


def threads_for(nanoseconds: int, limits: DeviceLimits) -> int:
    """How many threads a kernel should get: each has to be worth its price."""
    return min(limits.threads, nanoseconds // SHARE)


def parts_for(known: Analysis, nanoseconds: int, threads: int, limits: DeviceLimits) -> int:
    """Into how many parts to cut what takes so long: several a thread, if that is worth it.

    Who is done early takes parts of others. So a thread whose processor is slow for a while, as
    others use it, holds up nobody for longer than a part takes.
    """
    # r[impl choosing.threads.shares+2]
    if known.info.threads > 1:
        return known.info.threads
    each = min(limits.parts, nanoseconds // (_PART * threads), MOST_THREADS // threads)
    return threads * max(each, 1)


def part_of_reduction(known: Analysis, limits: DeviceLimits) -> Choice:
    """Cut a reduction that has to be finished before anything else can begin, if it is long.

    Into as many parts for one thread as for many: the sum of parts is rounded as they are.
    """
    if limits.threads * limits.parts < 2:
        return None
    for node in known.order:
        if node.op is not Ops.REDUCE or known.free[node]:
            continue
        loop = max(node.src[1:], key=_extent)
        fixed = loop.arg[1] is RangeKind.REDUCE and loop.src[0].op is Ops.CONST
        # r[impl choosing.threads.sum]
        most = min(_alone(known, node) // SHARE, _extent(loop) // _LEAST_PART, _MOST_PARTS)
        amount = known.info.threads if known.info.threads > 1 \
            else 1 << max(most, 1).bit_length() - 1
        if fixed and 2 <= amount <= most and not not_apart(known, loop):
            return (GroupTop(known.position[loop], amount),
                    f"a reduction over everything is made in {amount} parts")
    return None


def _alone(known: Analysis, node: UOp) -> int:
    """Nanoseconds for a reduction or a stage, reckoned by its innermost loops."""
    order = stage_of(node).order if node.op is Ops.STORE else node.toposort()
    count = max(_iterations(known, mask) for mask in {known.free[below] for below in order})
    return count * node.dtype.itemsize // _BYTES


def part_of_loop(known: Analysis, nanoseconds: int, threads: int, limits: DeviceLimits) -> Choice:
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
    long = [store for store, time in times.items() if time >= SHARE
            and store.arg is not Way.TILES]  # r[impl choosing.product.unit]
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
