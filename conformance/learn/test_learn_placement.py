"""The lesson on versions lets right places pass, and no wrong one."""
from __future__ import annotations

import importlib
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_placement
from conformance.learn.lesson import published
from conformance.learn.lesson_placement import CYCLE, HELD, NOTED, ONE, SAFE, versions
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.placement")


def said_of(**parts: Any) -> str:
    module: Any = SimpleNamespace(order=parts.get("order", solution.order),
                                  place=parts.get("place", solution.place))
    return "\n".join(map(str, versions(module)))


def placed(never: Any = lambda stage, held: stage.overwrites in (*held, *stage.crossed),
           order: Any = solution.order, taken: bool = True, most: Any = None,
           stages_of: Any = list) -> Any:
    """The solution's `place`, with some parts of it in another way."""
    def place(stages: Any, held: Any) -> Any:
        chosen: list[int] = []
        used: set[Any] = set()
        for stage in stages_of(stages):
            old = stage.overwrites
            if old is None or never(stage, held) or taken and old in used:
                continue
            if order is None or order(stages, [*chosen, stage.number]) is not None:
                if most is None or len(chosen) < most:
                    chosen.append(stage.number)
                    used.add(old)
        return chosen
    return place


# Right, in other ways than the solution ----------------------------------------------------


def from_the_front(stages: Any, chosen: Any) -> Any:
    """Pairs first, then Kahn's algorithm with counts."""
    maker = {each.writes: each.number for each in stages}
    pairs = set()
    for one in stages:
        mine = one.number in chosen and one.overwrites is not None
        for value in (*one.reads, *([one.overwrites] if one.overwrites and (
                mine or not one.whole) else [])):
            if value in maker:
                pairs.add((maker[value], one.number))
        for other in stages if mine else ():
            copies = (not other.whole and other.number not in chosen
                      and other.overwrites == one.overwrites)
            if other is not one and (one.overwrites in other.reads or copies):
                pairs.add((other.number, one.number))
    missing = {each.number: sum(after == each.number for _, after in pairs) for each in stages}
    ready = [number for number, count in missing.items() if count == 0]
    for number in ready:
        for before, after in sorted(pairs):
            if before == number:
                missing[after] -= 1
                if missing[after] == 0:
                    ready.append(after)
    return ready if len(ready) == len(stages) else None


def by_trying(stages: Any, chosen: Any) -> Any:
    """All orders of few stages."""
    edges = lesson_placement.must(stages, chosen)
    return next((list(walk) for walk in itertools.permutations([s.number for s in stages])
                 if all(walk.index(one) < walk.index(two) for one, two in edges)), None)


def largest(stages: Any, held: Any) -> Any:
    """Every choice, the largest first."""
    wishes = [s.number for s in stages if s.overwrites is not None
              and s.overwrites not in (*held, *s.crossed)]
    old = {s.number: s.overwrites for s in stages}
    for size in range(len(wishes), -1, -1):
        for chosen in itertools.combinations(wishes, size):
            if len({old[each] for each in chosen}) == size and solution.order(stages, chosen):
                return list(chosen)
    return []


@pytest.mark.parametrize("parts", [
    {}, {"order": from_the_front}, {"order": by_trying}, {"place": largest},
    {"place": placed(stages_of=lambda stages: stages[::-1])}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert said_of(**parts) == ""


# Wrong, as one writes them -----------------------------------------------------------------


def of_flow(stages: Any, chosen: Any) -> Any:
    """Only who makes what; nobody waits for a reader."""
    return lesson_placement.has_order(stages, []) and by_edges(
        stages, lesson_placement.must(stages, []))


def by_edges(stages: Any, edges: Any) -> Any:
    return next((list(walk) for walk in itertools.permutations([s.number for s in stages])
                 if all(walk.index(one) < walk.index(two) for one, two in edges)), None)


def as_written(stages: Any, chosen: Any) -> Any:
    """The order of the program, if nobody reads later what is overwritten."""
    for stage in stages:
        if stage.number in chosen and any(stage.overwrites in other.reads
                                          for other in stages[stage.number + 1:]):
            return None
    return [each.number for each in stages]


def without_copies(stages: Any, chosen: Any) -> Any:
    """A part that goes elsewhere reads nothing of the old value."""
    return by_edges(stages, lesson_placement.must(
        [each._replace(whole=True) for each in stages], chosen))


def waits_for_itself(stages: Any, chosen: Any) -> Any:
    if any(s.number in chosen and s.overwrites in s.reads for s in stages):
        return None
    return solution.order(stages, chosen)


def only_old_readers(stages: Any, held: Any) -> Any:
    """In place if nobody else reads the old value at all."""
    return [s.number for s in stages if s.overwrites and s.overwrites not in (*held, *s.crossed)
            and not any(s.overwrites in other.reads for other in stages if other is not s)
            and not any(s.overwrites == other.overwrites for other in stages[:s.number])]


def overwriters_last(stages: Any, chosen: Any) -> Any:
    return [s.number for s in stages if s.number not in chosen] + list(chosen)


def readers_before_it(stages: Any, chosen: Any) -> Any:
    """Waits for those readers alone that come before it in the program."""
    edges = {(one, two) for one, two in lesson_placement.must(stages, chosen)
             if one < two or (one, two) in lesson_placement.must(stages, [])}
    return by_edges(stages, edges)


def makers_forgotten(stages: Any, chosen: Any) -> Any:
    """Only readers before writers; who makes what is not looked at."""
    return by_edges(stages, set(lesson_placement.must(stages, chosen)) - set(
        lesson_placement.must(stages, [])))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"place": lambda stages, held: []}, f"{NOTED}: stage 0 has memory of its own, and no hazard"),
    ({"place": lambda stages, held: [s.number for s in stages if s.overwrites]},
     f"{SAFE}: stage 0 is in place, and reads elements of x0 that another of its iterations"),
    ({"place": placed(lambda stage, held: stage.overwrites in stage.crossed)},
     f"{HELD}: stage 0 is in place, and x0 can still be seen after the run"),
    ({"place": placed(lambda stage, held: stage.overwrites in held)}, f"{SAFE}: stage 0 is in "),
    ({"place": placed(lambda stage, held: bool(stage.crossed) or stage.overwrites in held)},
     f"{NOTED}: stage 0 has memory of its own, and no hazard forces that: 0 could be in place"),
    ({"place": placed(lambda stage, held: stage.overwrites in (*held, *stage.reads))},
     f"{NOTED}: stage 0 has memory of its own"),
    ({"place": placed(lambda stage, held: stage.writes in held or stage.overwrites in (
        *held, *stage.crossed))}, f"{NOTED}: stage 0 has memory of its own"),
    ({"place": placed(taken=False)}, f"{ONE}: stages 0 and 1 are both in place, over x0"),
    ({"place": placed(order=None)}, f"{CYCLE}: with 0 in place, stages wait for each other in a "
     "circle: 1 after 0; 0 after 1"),
    ({"place": placed(most=1)}, f"{NOTED}: stage "),
    ({"place": only_old_readers}, f"{NOTED}: stage 0 has memory of its own"),
    ({"place": lambda stages, held: None}, "raised: place answers None, and not a list of stages"),
    ({"place": lambda stages, held: [0, 0]}, "raised: place answers [0, 0]"),
    ({"order": of_flow}, f"{CYCLE}: with 0 in place, stage 1 has to run before stage 0"),
    ({"order": as_written}, f"{CYCLE}: you say that there is no order with 0 in place; there is"),
    ({"order": without_copies}, f"{CYCLE}: with 0 in place, stage 1 has to run before stage 0"),
    ({"order": waits_for_itself}, f"{CYCLE}: you say that there is no order with 0 in place"),
    ({"order": lambda stages, chosen: []}, "raised: order answers [], and not a list of all"),
    ({"order": overwriters_last}, f"{CYCLE}: with 0 in place, stage 0 has to run before stage 1"),
    ({"order": readers_before_it}, f"{CYCLE}: with 0 in place, stage 1 has to run before stage 0"),
    ({"order": makers_forgotten}, f"{CYCLE}: "),
    ({"order": lambda stages, chosen: None}, f"{CYCLE}: you say that there is no order"),
    ({"order": lambda stages, chosen: [s.number for s in stages]},
     f"{CYCLE}: with 0 in place, stage 1 has to run before stage 0"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in said_of(**parts)


def test_the_runtime_writes_where_the_reader_says() -> None:
    module = published(importlib.import_module("impl.placement"))
    known: Any = module
    known.place = solution.place
    lesson_placement.install(module)
    from impl import Context, Tensor
    passes: Any = importlib.import_module("impl.schedule.passes")
    with Context(DEVICE="REFERENCE"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "place_writes", known.place_writes)

        def notes(*tensors: Tensor) -> Any:
            return Tensor.schedule_document(*tensors)["notes"]

        x, y = (Tensor([1, 2, 3, 4]).realize() for _ in range(2))
        kept = Tensor(x.uop)
        x[0:2] = 9
        assert notes(x) == ["copy: assign of (4,) is not in place: the old version stays "
                            "observable"] and kept.shape == (4,)
        y.assign(y.flip(0))
        assert notes(y) == ["copy: assign of (4,) is not in place: it reads elements that it has "
                            "overwritten"]
        assert (x.tolist(), kept.tolist(), y.tolist()) == ([9, 9, 3, 4], [1, 2, 3, 4],
                                                           [4, 3, 2, 1])


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "placement.md").read_text(encoding="utf-8")
    for parts in (WRONG[2][0], WRONG[8][0]):
        said = said_of(**parts).split("\n\nplacement")[0]
        assert "\n".join(map(str.rstrip, said.strip().splitlines())) in page
    module: Any = SimpleNamespace(place=solution.place)
    assert "\n".join(lesson_placement.score(module)) in page
    assert len(LESSONS["placement"].hints) == 6 and "the next of six hints" in page
