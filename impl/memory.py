"""Lifetimes, reuse and arenas: where every temporary lives. Chapter: spec/memory.md.

A temporary is alive from the kernel that first writes it to the kernel that last touches it. Two
temporaries may share bytes if they are never alive at the same step. One arena per device holds
them all; the planner looks for offsets that keep the arena close to the lower bound, which is the
most bytes alive at any one step.
"""
from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

#: Every offset is a multiple of this many bytes: a cache line, and the widest vector.
ALIGNMENT = 64


# --8<-- [start:lifetime]
@dataclass(frozen=True)
class Lifetime:
    """A temporary: how many bytes it needs, and the first and last step that touch it."""

    storage: int
    nbytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


def lifetimes(order: Sequence[int], touched: Sequence[Sequence[int]],
              nbytes: dict[int, int]) -> list[Lifetime]:
    """The lifetime of every temporary, in steps of the order (r[memory.lifetime.covers])."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, kernel in enumerate(order):
        for storage in touched[kernel]:
            if storage in nbytes:
                first.setdefault(storage, step)  # r[impl memory.poison.unseen]
                last[storage] = step  # r[impl memory.lifetime.covers]
    return [Lifetime(s, aligned(nbytes[s]), first[s], last[s]) for s in first]
# --8<-- [end:lifetime]


def aligned(nbytes: int) -> int:
    """The size rounded up to the alignment (r[memory.alignment.arena])."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT  # r[impl memory.alignment.arena]


@dataclass
class MemoryPlan:
    """Offsets in one arena, in bytes, and what there is to compare its size with."""

    offsets: dict[int, int] = field(default_factory=dict)
    lifetimes: list[Lifetime] = field(default_factory=list)
    planned: int = 0
    unplanned: int = 0
    lower_bound: int = 0


# --8<-- [start:bound]
def lower_bound(spans: Sequence[Lifetime]) -> int:
    """The most bytes alive at one step: no plan can do with less."""
    changes: dict[int, int] = {}
    for span in spans:
        changes[span.first] = changes.get(span.first, 0) + span.nbytes
        changes[span.last + 1] = changes.get(span.last + 1, 0) - span.nbytes
    live = most = 0
    for step in sorted(changes):
        live += changes[step]
        most = max(most, live)
    return most
# --8<-- [end:bound]


# --8<-- [start:plan]
def plan(spans: Sequence[Lifetime], reuse: bool = True) -> MemoryPlan:
    """Offsets for all temporaries of one device (r[memory.reuse.disjoint]).

    Without `reuse` every temporary gets bytes of its own (NO_MEMORY_PLANNER=1).
    """
    total = sum(span.nbytes for span in spans)
    bound = lower_bound(spans)
    if not reuse:  # r[impl memory.off.equal]
        offsets = _one_after_the_other(spans)
        return MemoryPlan(offsets, list(spans), total, total, bound)
    best = _by_time(spans)
    if len(spans) <= 1024 and _height(best, spans) > bound:
        for key in (_by_size, _by_area, _by_length):
            candidate = _first_fit(sorted(spans, key=key))
            best = min(best, candidate, key=lambda offsets: _height(offsets, spans))
    # r[impl memory.planned.bounds]
    return MemoryPlan(best, list(spans), _height(best, spans), total, bound)
# --8<-- [end:plan]


def _by_size(span: Lifetime) -> tuple[int, ...]:
    return -span.nbytes, span.first, span.storage


def _by_area(span: Lifetime) -> tuple[int, ...]:
    return -span.nbytes * (span.last - span.first + 1), span.first, span.storage


def _by_length(span: Lifetime) -> tuple[int, ...]:
    return span.first - span.last, -span.nbytes, span.storage


def _height(offsets: dict[int, int], spans: Sequence[Lifetime]) -> int:
    return max((offsets[s.storage] + s.nbytes for s in spans), default=0)


def _one_after_the_other(spans: Sequence[Lifetime]) -> dict[int, int]:
    offsets, top = {}, 0
    for span in spans:
        offsets[span.storage] = top
        top += span.nbytes
    return offsets


# --8<-- [start:first_fit]
def _first_fit(spans: Sequence[Lifetime]) -> dict[int, int]:
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
        offsets[span.storage] = offset  # r[impl memory.reuse.disjoint]
        bisect.insort(placed, (offset, offset + span.nbytes, span),
                      key=lambda row: (row[0], row[1], row[2].storage))
    return offsets
# --8<-- [end:first_fit]


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


def _by_time(spans: Sequence[Lifetime]) -> dict[int, int]:
    """Walk through the steps; give back what died before, then take what is born."""
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
