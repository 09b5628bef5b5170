"""The lesson on memory: a reader's planner, judged by who shares bytes with whom, and by its size.

    memory.reuse.disjoint: temporaries 0 and 1 are alive at position 1 and share bytes 0 to 64

        position    0  1  2
        0 to 64     0  *  1
"""
from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import (
    Counterexample,
    Lesson,
    first_of_each,
    is_whole,
    published,
    raised,
)

UNIT = 64  # bytes; every size and every offset is a multiple


class Temporary(NamedTuple):
    """A temporary of `nbytes` bytes, alive from position `first` to `last`, both included."""

    nbytes: int
    first: int
    last: int


Problem = Sequence[Temporary]


def problems() -> Iterator[Problem]:
    """Small problems from the smallest up: all with up to three temporaries, then some larger."""
    lives = sorted((Temporary(nbytes, first, last) for nbytes in (UNIT, 2 * UNIT)
                    for first in range(3) for last in range(first, 3)),
                   key=lambda each: (each.last, each.nbytes))
    for count in range(4):
        yield from combinations_with_replacement(lives, count)
    chooser = random.Random(0)
    for count in (4, 5, 6, 9):
        for _ in range(150):
            firsts = [chooser.randrange(5) for _ in range(count)]
            yield [Temporary(UNIT * chooser.choice((1, 1, 2, 3)), first,
                             chooser.randrange(first, 6)) for first in firsts]


def most_alive(problem: Problem) -> int:
    """The lower bound by its definition."""
    positions = range(1 + max((each.last for each in problem), default=0))
    return max(sum(each.nbytes for each in problem if each.first <= position <= each.last)
               for position in positions)


def memory(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on memory."""
    return first_of_each(_judged(module, problem) for problem in problems())


def _judged(module: ModuleType, problem: Problem) -> Iterator[Counterexample]:
    spans = [module.Lifetime(number, *each) for number, each in enumerate(problem)]
    described = "\n".join(f"temporary {number}: {each.nbytes} bytes, positions {each.first} to "
                          f"{each.last}" for number, each in enumerate(problem)) or "no temporaries"
    try:
        bound = module.lower_bound(spans)
        shared, apart = module.plan(list(spans)), module.plan(list(spans), False)
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, described)
        return
    answered = "" if is_whole(bound) else f"lower_bound answers {bound!r}, which is no whole number"
    answered = answered or _unlike(shared) or _unlike(apart)
    if answered:
        yield Counterexample("raised", answered, described)
        return
    least = most_alive(problem)
    if bound != least:
        yield Counterexample("memory.planned.bounds", f"lower_bound answers {bound}; the most "
                             f"that is alive at one position is {least}", described)
    for plan in (shared, apart):
        wrong = _misplaced(problem, plan)
        if wrong:
            yield Counterexample(*wrong, described)
            return
        if not isinstance(plan.lifetimes, (list, tuple)) or [*plan.lifetimes] != spans:
            yield Counterexample("raised", "the lifetimes of your plan are not the spans as they "
                                 "came", described)
            return
    for rule, message in (*_clashes(problem, shared.offsets), *_sizes(problem, shared, least)):
        yield Counterexample(rule, message, f"{described}\n\n{picture(problem, shared.offsets)}")
    for one, other in _pairs(problem):
        if _common(problem, apart.offsets, one, other):
            yield Counterexample("memory.off.equal", f"temporaries {one} and {other} share bytes, "
                                 "though reuse is off", f"{described}\n\n"
                                 + picture(problem, apart.offsets))
            return


def _unlike(plan: Any) -> str:
    """What keeps an answer from being a plan at all, or ""."""
    numbers = ("planned", "unplanned", "lower_bound")
    if not all(hasattr(plan, name) for name in ("offsets", "lifetimes", *numbers)):
        return (f"plan answers a {type(plan).__name__}, and not a plan: "
                "MemoryPlan(offsets, lifetimes, planned, unplanned, lower_bound)")
    if not isinstance(plan.offsets, dict):
        return f"the offsets of your plan are a {type(plan.offsets).__name__}, and not a dict"
    wrong = [name for name in numbers if not is_whole(getattr(plan, name))]
    wrong += [f"offsets[{storage!r}]" for storage, offset in plan.offsets.items()
              if not is_whole(offset)]
    return f"{wrong[0]} of your plan is no whole number" if wrong else ""


def _misplaced(problem: Problem, plan: Any) -> tuple[str, str] | None:
    """What is wrong with single offsets of a plan."""
    rule = "memory.alignment.arena"
    for number, each in enumerate(problem):
        if number not in plan.offsets:
            return rule, f"temporary {number} has no offset"
        offset = plan.offsets[number]
        if offset < 0 or offset % UNIT:
            return rule, f"temporary {number} lies at {offset}, which is no multiple of {UNIT}"
        if offset + each.nbytes > plan.planned:
            return rule, (f"temporary {number} ends at {offset + each.nbytes}, but `planned` is "
                          f"{plan.planned}")
    return None


def _clashes(problem: Problem, offsets: dict[int, int]) -> Iterator[tuple[str, str]]:
    for one, other in _pairs(problem):
        first, last = (max(problem[one].first, problem[other].first),
                       min(problem[one].last, problem[other].last))
        common = _common(problem, offsets, one, other)
        if first <= last and common:
            where = f"at position {first}" if first == last else f"at positions {first} to {last}"
            yield "memory.reuse.disjoint", (
                f"temporaries {one} and {other} are alive {where} and share bytes "
                f"{common.start} to {common.stop}")
            return


def _sizes(problem: Problem, plan: Any, least: int) -> Iterator[tuple[str, str]]:
    total = sum(each.nbytes for each in problem)
    end = max((plan.offsets[number] + each.nbytes for number, each in enumerate(problem)),
              default=0)
    stated = (plan.lower_bound, plan.unplanned)
    if stated != (least, total):
        yield "memory.planned.bounds", (f"the plan states lower_bound and unplanned as {stated}, "
                                        f"but they are {(least, total)}")
    elif not least <= plan.planned <= total:
        yield "memory.planned.bounds", (f"{plan.planned} bytes are planned; that is not from "
                                        f"{least}, the lower bound, to {total}, nothing shared")
    elif plan.planned != end:
        yield "memory.planned.bounds", (f"`planned` is {plan.planned}, and the highest end is "
                                        f"{end}")
    elif 2 * plan.planned > 3 * least:
        yield "memory.plan.small", (f"{plan.planned} bytes are planned, where {least} are alive "
                                    "at most; share more")


def _pairs(problem: Problem) -> Iterator[tuple[int, int]]:
    return ((one, other) for other in range(len(problem)) for one in range(other))


def _common(problem: Problem, offsets: dict[int, int], one: int, other: int) -> range:
    """The bytes in which both lie."""
    return range(max(offsets[one], offsets[other]),
                 min(offsets[each] + problem[each].nbytes for each in (one, other)))


def picture(problem: Problem, offsets: dict[int, int]) -> str:
    """Positions to the right, addresses downwards; `*` where more than one temporary lies."""
    positions = range(1 + max((each.last for each in problem), default=0))
    ends = [offsets[number] + each.nbytes for number, each in enumerate(problem)]
    edges = sorted({0, *offsets.values(), *ends})
    lines = [f"{'position':<14}" + "".join(f"{position:>3}" for position in positions)]
    for start, stop in zip(edges, edges[1:], strict=False):
        cells = []
        for position in positions:
            here = [number for number, each in enumerate(problem)
                    if each.first <= position <= each.last
                    and offsets[number] <= start < ends[number]]
            cells.append("  ." if not here else "  *" if len(here) > 1 else f"{here[0]:>3}")
        lines.append(f"{f'{start} to {stop}':<14}" + "".join(cells))
    return "\n".join(lines)


# The score ---------------------------------------------------------------------------------

#: Five temporaries for which every order of first fit that sorts by one number is too large.
KNOT = [Temporary(256, 4, 5), Temporary(128, 3, 4), Temporary(128, 1, 2), Temporary(64, 2, 3),
        Temporary(128, 0, 3)]


def drawn(count: int) -> Problem:
    """So many temporaries of many sizes, most of which are short."""
    chooser = random.Random(count)
    firsts = [chooser.randrange(count) for _ in range(count)]
    return [Temporary(UNIT * chooser.choice((1, 1, 2, 3, 5, 8)), first,
                      first + chooser.choice((1, 1, 2, 3, count // 3))) for first in firsts]


def score(module: ModuleType) -> Iterator[str]:
    """Bytes with the reader's planner, with ours, and the bound that none can beat."""
    ours = published(module)
    yield f"{'bytes':<16}{'nothing shared':>15}{'yours':>9}{'ours':>9}{'at least':>10}"
    for name, problem in (("a knot of 5", KNOT),
                          *((f"{count} temporaries", drawn(count)) for count in (20, 60, 200))):
        spans = [module.Lifetime(number, *each) for number, each in enumerate(problem)]
        yield (f"{name:<16}{sum(each.nbytes for each in problem):>15}"
               f"{module.plan(list(spans)).planned:>9}{ours.plan(list(spans)).planned:>9}"
               f"{most_alive(problem):>10}")


MEMORY = Lesson(
    functions=("lower_bound", "plan"),
    names="""\
A temporary is a Lifetime. It says its number, its bytes, and its first and last position in the
order of the kernels:
    span.storage, span.nbytes, span.first, span.last
    span.meets(other)     whether both are alive at some position
A plan is
    MemoryPlan(offsets, lifetimes, planned, unplanned, lower_bound)
with {storage: offset}, the spans as they came, and three numbers of bytes: up to the highest end,
with nothing shared, and your lower bound. Offsets are multiples of 64, as is
span.nbytes.""",
    rules=("memory.planned.bounds", "memory.alignment.arena", "memory.reuse.disjoint",
           "memory.off.equal", "memory.poison.unseen", "memory.plan.small"),
    hints=(
        "Write `lower_bound` first: for each position, add up what is alive there. No temporaries "
        "need no bytes.",
        "Then let `plan` share nothing, one temporary after the other. That is right, and keeps "
        "all rules but one: memory.plan.small.",
        "Every temporary needs an offset in a plan, with reuse and without; `planned` is the "
        "highest end, so that without reuse it is the sum of all sizes.",
        "To share, take one temporary after the other. Collect the places of those that it meets "
        "(`one.meets(other)`), sort them by offset, and walk along until a gap is large enough.",
        "Still far from the bound? Let the largest choose first: they are the hard ones to "
        "place.",
        "With reuse=False nothing is shared. The values have to be the same either way; that is "
        "how one finds out that a planner is at fault."),
    counterexamples=memory, number=13, score=score)
