"""Quick plans: each looks at every temporary once and never changes its mind.

    walk_through_time   an allocator that knows the future; for any number of temporaries
    lowest_first        always the one that can lie lowest comes next
    first_fit           in a fixed order, each at the lowest offset where it meets nobody

The last two take a time that grows with the square of the number, and are left out beyond a limit.
"""
from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from impl.host import has_numpy, np

if TYPE_CHECKING:
    from impl.memory.spans import Lifetime

#: The most temporaries for which each way is tried.
MOST_LOWEST_FIRST = 4096
MOST_FIRST_FIT = 1024

#: Up to so many Python alone is as quick.
_FEW = 32

_PLACED = 1 << 62  # more than any offset


def best(spans: Sequence[Lifetime], bound: int) -> dict[int, int]:
    """The offsets of the first plan that needs no more than `bound`, or else of the lowest."""
    found: dict[int, int] = {}
    least = -1
    for attempt in _attempts(spans):
        offsets = attempt()
        height = max((offsets[span.storage] + span.nbytes for span in spans), default=0)
        if least < 0 or height < least:
            found, least = offsets, height
        if least <= bound:
            break
    return found


def _attempts(spans: Sequence[Lifetime]) -> Iterator[Callable[[], dict[int, int]]]:
    yield lambda: walk_through_time(spans)
    if len(spans) <= MOST_LOWEST_FIRST:
        yield lambda: lowest_first(sorted(spans, key=by_length))
        yield lambda: lowest_first(sorted(spans, key=by_size))
        yield lambda: lowest_first(sorted(spans, key=by_area))
    if len(spans) <= MOST_FIRST_FIT:
        yield lambda: first_fit(sorted(spans, key=by_size))


def by_size(span: Lifetime) -> tuple[int, ...]:
    """The largest first."""
    return -span.nbytes, span.first, span.storage


def by_area(span: Lifetime) -> tuple[int, ...]:
    """The largest first, where length counts twice."""
    return -span.nbytes * (span.last - span.first + 1) ** 2, span.first, span.storage


def by_length(span: Lifetime) -> tuple[int, ...]:
    """The longest life first."""
    return span.first - span.last, -span.nbytes, span.storage


def lowest_first(spans: Sequence[Lifetime]) -> dict[int, int]:
    """Fill the arena from below: next is always the one that can lie lowest, on what lies there.

    Of several that can lie equally low, the first of the sequence.
    """
    # r[impl host.numpy.without]: both ways choose the same
    return _lowest_first_many(spans) if len(spans) > _FEW and has_numpy() \
        else _lowest_first_few(spans)


def _lowest_first_few(spans: Sequence[Lifetime]) -> dict[int, int]:
    """The same, span by span."""
    lows, waiting = [0] * len(spans), list(range(len(spans)))
    offsets: dict[int, int] = {}
    while waiting:
        place = min(waiting, key=lows.__getitem__)
        waiting.remove(place)
        span, low = spans[place], lows[place]
        offsets[span.storage] = low  # r[impl memory.reuse.disjoint+2]
        for other in waiting:
            if spans[other].first <= span.last and spans[other].last >= span.first:
                lows[other] = max(lows[other], low + span.nbytes)
    return offsets


def _lowest_first_many(spans: Sequence[Lifetime]) -> dict[int, int]:
    """The same, all at once by NumPy."""
    firsts = np.array([span.first for span in spans], np.int64)
    lasts = np.array([span.last for span in spans], np.int64)
    lows = np.zeros(len(spans), np.int64)
    offsets: dict[int, int] = {}
    for _ in spans:
        place = int(lows.argmin())
        span, low = spans[place], int(lows[place])
        offsets[span.storage] = low  # r[impl memory.reuse.disjoint+2]
        beside = (firsts <= span.last) & (lasts >= span.first)
        np.maximum(lows, low + span.nbytes, out=lows, where=beside)
        lows[place] = _PLACED
        firsts[place] = _PLACED  # nothing is beside it from now on
    return offsets


def first_fit(spans: Sequence[Lifetime]) -> dict[int, int]:
    """Place one after the other, each at the lowest offset where it meets nobody."""
    offsets: dict[int, int] = {}
    placed: list[tuple[int, int, Lifetime]] = []  # offset, end, whose; sorted by offset
    for span in spans:
        offset = 0
        for start, end, other in placed:
            if span.meets(other):
                if start - offset >= span.nbytes:
                    break
                offset = max(offset, end)
        offsets[span.storage] = offset  # r[impl memory.reuse.disjoint+2]
        bisect.insort(placed, (offset, offset + span.nbytes, span),
                      key=lambda row: (row[0], row[1], row[2].storage))
    return offsets


class _FreeList:
    """Free byte intervals, for a planner that walks through time."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.top = 0

    def take(self, nbytes: int) -> int:
        """The smallest free interval that fits, or new bytes at the top."""
        best = -1
        for i, (start, end) in enumerate(zip(self.starts, self.ends, strict=True)):
            size = end - start
            if size >= nbytes and (best < 0 or size < self.ends[best] - self.starts[best]):
                best = i
        if best >= 0:
            offset = self.starts[best]
            self.starts[best] += nbytes
            if self.starts[best] == self.ends[best]:
                del self.starts[best], self.ends[best]
            return offset
        if self.ends and self.ends[-1] == self.top:  # the last free interval grows
            offset = self.starts.pop()
            self.ends.pop()
        else:
            offset = self.top
        self.top = offset + nbytes
        return offset

    def give(self, start: int, end: int) -> None:
        """Return an interval; neighbours grow together."""
        at = bisect.bisect_left(self.starts, start)
        self.starts.insert(at, start)
        self.ends.insert(at, end)
        for i in (at, at - 1):
            if 0 <= i < len(self.starts) - 1 and self.ends[i] == self.starts[i + 1]:
                del self.starts[i + 1]
                self.ends[i] = self.ends.pop(i + 1)


def walk_through_time(spans: Sequence[Lifetime]) -> dict[int, int]:
    """Walk through the order; give back what died before, then take what is born."""
    free = _FreeList()
    offsets: dict[int, int] = {}
    dying = sorted(spans, key=lambda s: (s.last, s.storage))
    gone = 0
    for span in sorted(spans, key=lambda s: (s.first, -s.nbytes, s.storage)):
        while gone < len(dying) and dying[gone].last < span.first:
            dead = dying[gone]
            free.give(offsets[dead.storage], offsets[dead.storage] + dead.nbytes)
            gone += 1
        offsets[span.storage] = free.take(span.nbytes)
    return offsets
