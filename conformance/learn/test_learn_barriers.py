"""The lesson on barriers lets right functions pass, and no wrong one."""
from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.chapters.lowering.test_lowering import looped, unwaited
from conformance.learn import lesson_barriers
from conformance.learn.lesson import published
from conformance.learn.lesson_barriers import WAIT, Again, Touched, stage
from conformance.learn.lessons import LESSONS
from impl.lowering import lower

solution: Any = importlib.import_module("conformance.learn.solutions.barriers")
Calls = Callable[..., Any]


def said_of(parts: dict[str, Any]) -> str:
    module: Any = SimpleNamespace(
        must_wait=parts.get("must_wait", solution.must_wait),
        barriers=parts.get("barriers", solution.barriers))
    return "\n".join(map(str, lesson_barriers.lesson_barriers(module)))


# Right, in other ways than the solution ----------------------------------------------------


def by_names(before: Touched, after: Touched) -> bool:
    return any(name in after.stored or name in before.stored and name in after.loaded
               for name in before.stored | before.loaded)


def by_pairs(before: Touched, after: Touched) -> bool:
    return not (before.stored.isdisjoint(after.loaded) and before.loaded.isdisjoint(after.stored)
                and before.stored.isdisjoint(after.stored))


def with_sets(items: Any) -> Any:
    """What is open is two sets, which change."""
    def go(items: Any, stored: set[str], loaded: set[str]) -> Any:
        found: list[Any] = []
        for item in items:
            if isinstance(item, Again):
                while True:
                    ends = set(stored), set(loaded)
                    inner = go(item.items, *ends)
                    if ends[0] <= stored and ends[1] <= loaded:
                        break
                    stored |= ends[0]
                    loaded |= ends[1]
                for mine, end in zip((stored, loaded), ends, strict=True):
                    mine.clear()
                    mine.update(end)
                found.append(inner)
                continue
            waits = bool(stored & (item.stored | item.loaded) or loaded & item.stored)
            if waits:
                stored.clear()
                loaded.clear()
            stored |= item.stored
            loaded |= item.loaded
            found.append(waits)
        return found
    return go(items, set(), set())


def walker(passes: int = 6, start: bool = True, left: bool = True, reset: bool = True,
           wait: Calls = by_pairs, keeps: bool = True) -> Calls:
    """Goes through a loop so many times; or with a mistake."""
    def go(items: Any, now: Touched) -> Any:
        found: list[Any] = []
        for item in items:
            if isinstance(item, Again):
                entered = now if start else Touched()
                for _ in range(passes):
                    entered |= go(item.items, entered)[1]
                inner, after = go(item.items, entered)
                now = after if left else now
                found.append(inner)
                continue
            waits = wait(now, item)
            now = (item if keeps else Touched()) if waits and reset else now | item
            found.append(waits)
        return found, now
    return lambda items: go(items, Touched())[0]


@pytest.mark.parametrize("parts", [
    {}, {"must_wait": by_names}, {"must_wait": by_pairs}, {"barriers": with_sets},
    {"barriers": walker()}, {"barriers": walker(12, wait=by_names)}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert said_of(parts) == ""


# Wrong, as one writes them -----------------------------------------------------------------


def after_each(items: Any) -> Any:
    """Lanes wait after each stage, and so before each but the first."""
    return [after_each(item.items) if isinstance(item, Again) else True for item in items]


def never(items: Any) -> Any:
    return [never(item.items) if isinstance(item, Again) else False for item in items]


def flat(items: Any) -> Any:
    """Loops are taken apart."""
    return [waits for item in items for waits in (
        flat(item.items) if isinstance(item, Again) else [False])]


def between_neighbours(items: Any) -> Any:
    """Only what stands directly before is looked at."""
    found: list[Any] = []
    before = Touched()
    for item in items:
        if isinstance(item, Again):
            found.append(between_neighbours(item.items))
            before = Touched()
        else:
            found.append(by_pairs(before, item))
            before = item
    return found


def raw(before: Touched, after: Touched) -> bool:
    return bool(before.stored & after.loaded)


def without_war(before: Touched, after: Touched) -> bool:
    return bool(before.stored & (after.loaded | after.stored))


def without_waw(before: Touched, after: Touched) -> bool:
    return bool(before.stored & after.loaded or before.loaded & after.stored)


def also_loads(before: Touched, after: Touched) -> bool:
    return bool((before.stored | before.loaded) & (after.stored | after.loaded))


RACE = f"{WAIT}: no barrier stands between a "
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"must_wait": raw}, f"{WAIT}: you say False, though a store of A comes after a store of it"),
    ({"must_wait": without_war}, f"{WAIT}: you say False, though a store of A comes after a load"),
    ({"must_wait": without_waw}, f"{WAIT}: you say False, though a store of A comes after a "
     "store of it"),
    ({"must_wait": also_loads}, f"{WAIT}: you say True, though nothing of it is in the way"),
    ({"must_wait": lambda before, after: before.stored & after.loaded},
     "raised: must_wait answers frozenset(), and not True or False"),
    ({"barriers": never}, RACE + "store of A in stage 0 and a store of it in stage 1"),
    ({"barriers": after_each}, f"{WAIT}: lanes wait 1 time, and 0 times would do\n\n"
     "    barrier\n    stage 0: stores A"),
    ({"barriers": flat}, RACE + "store of A in stage 0 and a store of it in stage 1"),
    ({"barriers": between_neighbours}, RACE),
    ({"barriers": walker(reset=False)}, f"{WAIT}: lanes wait 2 times, and 1 time would do"),
    ({"barriers": walker(keeps=False)}, RACE),
    ({"barriers": walker(0)}, RACE + "store of A in stage 0 and a store of it in stage 0"),
    ({"barriers": walker(1)}, RACE + "store of A in stage 3 and a load of it in stage 0"),
    ({"barriers": walker(start=False)}, RACE + "store of A in stage 0 and a load of it in stage 1"),
    ({"barriers": walker(left=False)}, RACE + "load of A in stage 0 and a store of it in stage 1"),
    ({"barriers": lambda items: None}, "raised: barriers answers None; it should be a list"),
    ({"barriers": lambda items: [1 for _ in items]}, "raised: barriers answers [1]; it should be"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in said_of(parts)


def test_lanes_that_do_not_wait_are_seen_to_load_what_is_wrong() -> None:
    steps = [(0, stage("A"), False), (1, stage("", "A"), False)]
    assert "lane 0 first: in stage 1 lane 0 loads 0 from A[3], and should load 103" in (
        lesson_barriers._seen(steps))
    assert lesson_barriers._seen([steps[0], (1, stage("", "A"), True)]) == ""


def test_the_runtime_puts_barriers_where_the_reader_says() -> None:
    module = published(importlib.import_module("impl.lowering.waits"))
    known: Any = module
    kernel = looped([("AB", ""), ("A", "C"), ("", "B"), ("", "A"), ("BC", "")])
    known.barriers = solution.barriers
    lesson_barriers.install(module)
    for right in (True, False):
        if not right:
            known.barriers = walker(1)
        low = lower(kernel.replace(arg=replace(kernel.arg, lanes=32)), False)
        known.place_waits(low)
        assert unwaited(low) is not right


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "barriers.md").read_text(encoding="utf-8")
    for parts in (WRONG[9][0], WRONG[12][0]):
        assert "\n".join(map(str.rstrip, said_of(parts).strip().splitlines())) in page
    assert "\n".join(lesson_barriers.score(solution)) in page
    assert len(LESSONS["barriers"].hints) == 4 and "the next of four hints" in page
