"""Lifetimes, reuse and arenas: where every temporary lives. Chapter: spec/memory.md.

A temporary is alive from the kernel that first writes it to the kernel that last touches it. Two
temporaries may share bytes if they are never alive at the same position. One arena per device holds
them all; the planner looks for offsets that keep the arena close to the lower bound, which is the
most bytes alive at any one position.

    spans        from when to when each temporary is alive
    parts        parts of time that share no temporary, each planned alone
    greedy       a few quick plans; mostly one of them reaches the bound
    search       where none does, a search under a budget of cells
    takeovers    before all that: which temporary takes over the memory of one that dies

Needs: the order of the kernels, and the temporaries that each touches, with their sizes.
Guarantees: of each device one arena, in which temporaries that are alive at one position share
no byte.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from impl.dependencies import most_alive
from impl.memory import greedy, search
from impl.memory.spans import ALIGNMENT, Lifetime, aligned, lifetimes

__all__ = ["ALIGNMENT", "Lifetime", "MemoryPlan", "aligned", "assign", "height", "lifetimes",
           "lower_bound", "parts", "plan"]

#: How many cells the search may look at (see `search`): ten seconds or so.
SEARCH_BUDGET = 1_000_000_000
#: The same for a schedule, which somebody waits for: a fifth of a second at most, or so. Where
#: plans are claimed to be as small as can be, it is a second: one of some thousand needs more.
PLAN_BUDGET = SEARCH_BUDGET // 50
_FEW, _BUDGET_OF_FEW = 40, SEARCH_BUDGET // 10


@dataclass
class MemoryPlan:
    """Offsets in one arena, in bytes, and what there is to compare its size with."""

    offsets: dict[int, int] = field(default_factory=dict)
    lifetimes: list[Lifetime] = field(default_factory=list)
    planned: int = 0
    unplanned: int = 0
    lower_bound: int = 0


def lower_bound(spans: Sequence[Lifetime]) -> int:
    """The most bytes alive at one position: no plan can do with less."""
    return most_alive((span.first, span.last, span.nbytes) for span in spans)


def plan(spans: Sequence[Lifetime], reuse: bool = True) -> MemoryPlan:
    """Offsets for all temporaries of one device (r[memory.reuse.disjoint]).

    Without `reuse` every temporary gets bytes of its own (NO_MEMORY_PLANNER=1).
    """
    total = sum(span.nbytes for span in spans)
    bound = lower_bound(spans)
    if not reuse:  # r[impl memory.off.equal]
        return MemoryPlan(_one_after_the_other(spans), list(spans), total, total, bound)
    # r[impl memory.planned.bounds, memory.plan.claimed]
    offsets = assign(spans, bound, _BUDGET_OF_FEW if len(spans) <= _FEW else PLAN_BUDGET)
    return MemoryPlan(offsets, list(spans), height(offsets, spans), total, bound)


def assign(spans: Sequence[Lifetime], enough: int, budget: int = SEARCH_BUDGET) -> dict[int, int]:
    """Offsets that need at most `enough` bytes; the lowest found, where none are found for that.

    `budget` is how many cells the search may look at (see `search`), for all parts together. The
    more there is to win, the more of it is used. With 0 the answer is the best of the quick plans.
    """
    offsets, left = dict[int, int](), budget
    for part in parts(spans):
        quick = greedy.best(part, enough)
        excess = height(quick, part) - enough
        if excess > 0:
            share = budget if 8 * excess >= enough else budget * 8 * excess // enough
            quick, spent = search.improve(part, quick, enough, min(share, left))
            left -= spent
        offsets.update(quick)
    return offsets


def parts(spans: Sequence[Lifetime]) -> Iterator[list[Lifetime]]:
    """The temporaries, cut where no life goes on: what lies in one part meets none in another."""
    part: list[Lifetime] = []
    last = -1
    for span in sorted(spans, key=lambda span: (span.first, span.storage)):
        if part and span.first > last:
            yield part
            part = []
        part.append(span)
        last = max(last, span.last)
    if part:
        yield part


def height(offsets: dict[int, int], spans: Sequence[Lifetime]) -> int:
    """The bytes that an arena needs for these offsets."""
    return max((offsets[s.storage] + s.nbytes for s in spans), default=0)


def _one_after_the_other(spans: Sequence[Lifetime]) -> dict[int, int]:
    offsets, top = {}, 0
    for span in spans:
        offsets[span.storage] = top
        top += span.nbytes
    return offsets
