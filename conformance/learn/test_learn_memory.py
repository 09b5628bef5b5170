"""The lesson on memory lets a right planner pass, in any style, and no wrong one."""
from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.learn.lesson_memory import Temporary, memory, picture, problems
from conformance.learn.lessons import LESSONS
from conformance.trace import ROOT
from impl.memory import Lifetime, MemoryPlan

solution: Any = importlib.import_module("conformance.learn.solutions.memory")
ours: Any = importlib.import_module("impl.memory")
DISJOINT, BOUNDS, ARENA = ("memory.reuse.disjoint", "memory.planned.bounds",
                           "memory.alignment.arena")
SMALL, OFF = "memory.plan.small", "memory.off.equal"


def module_of(plan: Any = solution.plan, lower_bound: Any = solution.lower_bound) -> Any:
    return SimpleNamespace(Lifetime=Lifetime, plan=plan, lower_bound=lower_bound)


def planner(place: Callable[[Any], dict[int, int]], apart: Any = None) -> Any:
    """A planner that places by a function, and says truly what comes of it."""
    def plan(spans: Any, reuse: bool = True) -> MemoryPlan:
        offsets = (place if reuse else apart or side_by_side)(spans)
        return MemoryPlan(offsets, list(spans), solution.height(offsets, spans),
                          sum(span.nbytes for span in spans), solution.lower_bound(spans))
    return plan


def side_by_side(spans: Any) -> dict[int, int]:
    return {span.storage: sum(one.nbytes for one in spans[:number])
            for number, span in enumerate(spans)}


# Right, in other ways than the solution ----------------------------------------------------


def by_positions(spans: Any) -> int:
    return max((sum(span.nbytes for span in spans if span.first <= position <= span.last)
                for span in spans for position in [span.first]), default=0)


def from_below(spans: Any) -> dict[int, int]:
    low, offsets = {span: 0 for span in spans}, dict[int, int]()
    while low:
        span = min(low, key=lambda one: (low[one], one.first - one.last, one.storage))
        offsets[span.storage] = start = low.pop(span)
        for other in low:
            if span.meets(other):
                low[other] = max(low[other], start + span.nbytes)
    return offsets


def by_units(spans: Any) -> dict[int, int]:
    """Looks at all offsets, one after the other, until nothing is in the way."""
    offsets: dict[int, int] = {}
    placed: list[Any] = []
    for span in sorted(spans, key=lambda one: (-one.nbytes, one.first)):
        offset = 0
        while any(span.meets(other) and offset < offsets[other.storage] + other.nbytes
                  and offsets[other.storage] < offset + span.nbytes for other in placed):
            offset += 64
        offsets[span.storage] = offset
        placed.append(span)
    return offsets


@pytest.mark.parametrize("module", [
    module_of(), module_of(ours.plan, ours.lower_bound), module_of(lower_bound=by_positions),
    module_of(planner(from_below)), module_of(planner(by_units))])
def test_a_right_one_is_shown_none(module: Any) -> None:
    assert [str(each) for each in memory(module)] == []


# Wrong, as one writes them -----------------------------------------------------------------


def first_fit(meets: Any = lambda one, other: one.meets(other), fits: Any = lambda gap, size:
              size <= gap, arranged: Any = sorted, near: Any = lambda rows: rows) -> Any:
    """First fit with one part exchanged."""
    def place(spans: Any) -> dict[int, int]:
        offsets: dict[int, int] = {}
        placed: list[Any] = []
        for span in sorted(spans, key=lambda one: -one.nbytes):
            offset = 0
            for start, size in arranged([(offsets[other.storage], other.nbytes) for other in
                                         near(placed) if meets(span, other)]):
                if fits(start - offset, span.nbytes):
                    break
                offset = max(offset, start + size)
            offsets[span.storage] = offset
            placed.append(span)
        return offsets
    return planner(place)


def end_by_end(spans: Any) -> dict[int, int]:
    """Each on the one that was placed before, if they meet, else at 0."""
    offsets: dict[int, int] = {}
    for one, span in zip([None, *spans], spans, strict=False):
        offsets[span.storage] = offsets[one.storage] + one.nbytes if one and one.meets(span) else 0
    return offsets


def changed(**other: Any) -> Any:
    """A right plan with another number in it."""
    def plan(spans: Any, reuse: bool = True) -> Any:
        made = solution.plan(spans, reuse)
        return SimpleNamespace(**{**vars(made), **{name: change(made) for name, change
                                                   in other.items()}})
    return plan


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"lower_bound": lambda spans: sum(span.nbytes for span in spans if span.first == 0)},
     f"{BOUNDS}: lower_bound answers "),
    ({"lower_bound": lambda spans: max(span.nbytes for span in spans)},
     "raised: your code raised ValueError: max() "),
    ({"lower_bound": lambda spans: max([span.nbytes for span in spans], default=0)},
     f"{BOUNDS}: lower_bound answers 64; the most that is alive at one position is 128"),
    ({"lower_bound": lambda spans: max((sum(s.nbytes for s in spans if s.first <= t < s.last)
                                        for t in range(9)), default=0)},
     f"{BOUNDS}: lower_bound answers 0; the most that is alive at one position is 64"),
    ({"lower_bound": lambda spans: None}, "raised: lower_bound answers None, which is no whole"),
    ({"plan": planner(lambda spans: dict.fromkeys([span.storage for span in spans], 0))},
     f"{DISJOINT}: temporaries 0 and 1 are alive at position 0 and share bytes 0 to 64"),
    ({"plan": planner(side_by_side)}, f"{SMALL}: 128 bytes are planned, where 64 are alive"),
    ({"plan": planner(end_by_end)}, f"{DISJOINT}: temporaries "),
    ({"plan": first_fit(lambda one, other: one.first < other.last and other.first < one.last)},
     f"{DISJOINT}: temporaries 0 and 1 are alive at position "),
    ({"plan": first_fit(lambda one, other: other.first <= one.first <= other.last)},
     f"{DISJOINT}: temporaries "),
    ({"plan": first_fit(fits=lambda gap, size: gap > 0)}, f"{DISJOINT}: temporaries "),
    ({"plan": first_fit(fits=lambda gap, size: size <= gap + 64)}, f"{DISJOINT}: temporaries "),
    ({"plan": first_fit(arranged=list)}, f"{DISJOINT}: temporaries "),
    ({"plan": first_fit(near=lambda placed: placed[-1:])}, f"{DISJOINT}: temporaries 0 and 2"),
    ({"plan": first_fit(lambda one, other: True)}, f"{SMALL}: 128 bytes are planned"),
    ({"plan": lambda spans, reuse=True: solution.plan(spans)},
     f"{OFF}: temporaries 0 and 1 share bytes, though reuse is off"),
    ({"plan": lambda spans, reuse=True: {span.storage: 0 for span in spans}},
     "raised: plan answers a dict, and not a plan: MemoryPlan(offsets, lifetimes, planned"),
    ({"plan": lambda spans, reuse=True: None}, "raised: plan answers a NoneType"),
    ({"plan": lambda spans, reuse=True: MemoryPlan()}, f"{ARENA}: temporary 0 has no offset"),
    ({"plan": changed(offsets=lambda made: [0])}, "raised: the offsets of your plan are a list"),
    ({"plan": changed(offsets=lambda made: dict.fromkeys(made.offsets))},
     "raised: offsets[0] of your plan is no whole number"),
    ({"plan": changed(offsets=lambda made: {s: at + 1 for s, at in made.offsets.items()})},
     f"{ARENA}: temporary 0 lies at 1, which is no multiple of 64"),
    ({"plan": changed(planned=lambda made: max(made.offsets.values(), default=0))},
     f"{ARENA}: temporary 0 ends at 64, but `planned` is 0"),
    ({"plan": changed(planned=lambda made: made.unplanned)},
     f"{BOUNDS}: `planned` is 128, and the highest end is 64"),
    ({"plan": changed(lifetimes=lambda made: made.lifetimes[::-1])},
     "raised: the lifetimes of your plan are not the spans as they came"),
    ({"plan": changed(unplanned=lambda made: made.planned)},
     f"{BOUNDS}: the plan states lower_bound and unplanned as (64, 64), but they are (64, 128)"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "said"), WRONG, ids=[said[:70] for _, said in WRONG])
def test_a_wrong_planner_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                              said: str) -> None:
    assert said in "\n".join(map(str, memory(module_of(**parts))))


def test_problems_come_from_the_smallest_up() -> None:
    sizes = [len(each) for each in islice(problems(), 100)]
    assert sizes == sorted(sizes) and sizes[:2] == [0, 1]


def test_a_picture_shows_who_lies_where() -> None:
    problem = [Temporary(64, 0, 1), Temporary(128, 1, 2), Temporary(64, 2, 2)]
    assert picture(problem, {0: 0, 1: 0, 2: 128}).splitlines() == [
        "position        0  1  2",
        "0 to 64         0  *  1",
        "64 to 128       .  1  1",
        "128 to 192      .  .  2"]


def test_a_plan_may_not_lie_about_its_numbers() -> None:
    def plan(spans: Any, reuse: bool = True) -> Any:
        return SimpleNamespace(offsets={}, lifetimes=[], planned=0, unplanned=1, lower_bound=0)

    module: Any = SimpleNamespace(Lifetime=lambda *given: SimpleNamespace(), plan=plan,
                                  lower_bound=lambda spans: 0)
    first = next(memory(module))
    assert "the plan states lower_bound and unplanned as (0, 1), but they are (0, 0)" in str(first)


def test_the_page_shows_what_is_printed() -> None:
    module: Any = SimpleNamespace(**{**vars(ours), "plan": solution.plan, "Lifetime": Lifetime,
                                     "lower_bound": solution.lower_bound})
    page = (ROOT / "docs" / "course" / "memory.md").read_text(encoding="utf-8")
    assert "\n".join(LESSONS["memory"].score(module)) in page
    said = list(memory(module_of(first_fit(
        lambda one, other: one.first < other.last and other.first < one.last))))
    shown = [line.strip() for line in page.splitlines()]
    assert [line.strip() for line in str(said[0]).splitlines() if line.strip() not in shown] == []
