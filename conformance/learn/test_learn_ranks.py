"""The lesson on several processes lets right functions pass, and no wrong one."""
from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_ranks
from conformance.learn.lesson import published
from conformance.learn.lesson_ranks import END, LATE, OTHER, PARTS, absent, ended, gone
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.ranks")


def said_of(parts: dict[str, Any]) -> Iterator[str]:
    """What is said of the parts that are not the solution's."""
    module: Any = SimpleNamespace(
        **{name: parts.get(name, getattr(solution, name)) for name in PARTS})
    for name in parts:
        yield from map(str, PARTS[name](module))


# Right, in other ways than the solution ----------------------------------------------------


def with_queues(programs: Any) -> Any:
    """Each rank has a queue; who comes to a group is noted there."""
    left = [list(program) for program in programs]
    here: Any = {}
    waiting = list(range(len(programs)))
    while waiting:
        rank = waiting.pop()
        if not left[rank] or not left[rank][0][0]:
            continue
        event = left[rank][0]
        here.setdefault(event, set()).add(rank)
        if here[event] == set(event[0]):
            del here[event]
            for other in event[0]:
                left[other].pop(0)
                waiting.append(other)
    return [len(all_of) - len(rest) for all_of, rest in zip(programs, left, strict=True)]


def with_counters(whats: Any, place: int) -> Any:
    (most, often), = Counter(whats).most_common(1)
    wrong = most if 2 * often > len(whats) else whats[place]
    return [number for number in range(len(whats)) if whats[number] != wrong]


def by_pairs(whats: Any, place: int) -> Any:
    """Who agrees with more than half is right."""
    right = {what for what in whats if sum(what == each for each in whats) * 2 > len(whats)}
    return [number for number, what in enumerate(whats) if what not in (right or {whats[place]})]


def by_colours(programs: Any, positions: Any) -> Any:
    """Follows each one that waits, with a stack."""
    waits = {rank: absent(programs, positions, rank) for rank in range(len(programs))}
    guilty = {other for others in waits.values() for other in others if not waits[other]}
    if guilty:
        return sorted(guilty, reverse=True)

    def follow(way: Any) -> Any:
        for other in waits[way[-1]]:
            if other in way:
                return way[way.index(other):]
            found = follow([*way, other])
            if found:
                return found
        return []
    return next(filter(None, (follow([rank]) for rank in waits)), [])


def the_last_circle(programs: Any, positions: Any) -> Any:
    """The way goes on to the last one that is missing."""
    found = gone(programs, positions)
    rank = next((r for r in range(len(programs)) if absent(programs, positions, r)), None)
    if found or rank is None:
        return found
    way: Any = {}
    while rank not in way:
        way[rank] = len(way)
        rank = absent(programs, positions, rank)[-1]
    return list(way)[way[rank]:]


@pytest.mark.parametrize("parts", [
    {name: getattr(solution, name) for name in PARTS}, {"play": with_queues}, {"play": ended},
    {"differing": with_counters}, {"differing": by_pairs}, {"blamed": by_colours},
    {"blamed": the_last_circle}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert list(said_of(parts)) == []


# Wrong, as one writes them -----------------------------------------------------------------


def all_to_the_end(programs: Any) -> Any:
    return list(map(len, programs))


def in_step(programs: Any) -> Any:
    """All ranks have their first event at the same time, then their second."""
    places = [0] * len(programs)
    while any(place < len(program) for place, program in zip(places, programs, strict=True)):
        before = list(places)
        for rank, program in enumerate(programs):
            if places[rank] < len(program):
                group, what = program[places[rank]]
                if group and all(before[other] < len(programs[other]) and programs[other][
                        before[other]] == (group, what) for other in group):
                    places[rank] += 1
        if places == before or places[0] != max(places):
            return places
    return places


def whoever_comes(programs: Any) -> Any:
    """A rank that is alone at a group goes on."""
    return [next((place for place, (group, _) in enumerate(program) if not group), len(program))
            for program in programs]


def by_groups_alone(programs: Any) -> Any:
    """What they are about to do there is not compared."""
    same = [[(group, "") for group, _ in program] for program in programs]
    return ended(same)


def through_hanging(programs: Any) -> Any:
    """A rank goes on behind what never ends."""
    found = ended([[each for each in program if each[0]] for program in programs])
    return [place + sum(not group for group, _ in program[:place + 1])
            for place, program in zip(found, programs, strict=True)]


def once_round(programs: Any) -> Any:
    """Each rank is looked at once."""
    places = [0] * len(programs)
    for program in programs:
        if program and program[0][0] and all(solution.at(programs, places, other) == program[0]
                                             for other in program[0][0]):
            for other in program[0][0]:
                places[other] += 1
    return places


def the_first_is_right(whats: Any, place: int) -> Any:
    return [number for number, what in enumerate(whats) if what != whats[0]]


def i_am_right(whats: Any, place: int) -> Any:
    return [number for number, what in enumerate(whats) if what != whats[place]]


def the_rare_one(whats: Any, place: int) -> Any:
    least = min(whats, key=whats.count)
    return [number for number, what in enumerate(whats) if what == least]


def the_most_often_first(whats: Any, place: int) -> Any:
    most = max(whats, key=whats.count)
    return [number for number, what in enumerate(whats) if what != most]


def more_often(whats: Any, place: int) -> Any:
    """The text that comes most often, though it is not that of more than half."""
    often = Counter(whats).most_common(2)
    most = whats[place] if 2 * often[0][1] == len(whats) else often[0][0]
    return [number for number, what in enumerate(whats) if what != most]


def who_waits(programs: Any, positions: Any) -> Any:
    return [rank for rank in range(len(programs)) if absent(programs, positions, rank)]


def not_ended(programs: Any, positions: Any) -> Any:
    return [rank for rank, place in enumerate(positions) if place < len(programs[rank])]


def who_hangs(programs: Any, positions: Any) -> Any:
    """Who has ended is not looked at."""
    return [rank for rank, place in enumerate(positions)
            if place < len(programs[rank]) and not programs[rank][place][0]]


def with_the_way(programs: Any, positions: Any) -> Any:
    """A circle with the way that leads to it."""
    found = gone(programs, positions)
    rank = max((r for r in range(len(programs)) if absent(programs, positions, r)), default=None)
    if found or rank is None:
        return found
    way: Any = []
    while rank not in way:
        way.append(rank)
        rank = absent(programs, positions, rank)[0]
    return way


def no_circle(programs: Any, positions: Any) -> Any:
    return gone(programs, positions)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"play": all_to_the_end}, f"{END}: rank 0 comes to its event 0 (sum) and no further, since "
     "rank 1 does not come; you say 1"),
    ({"play": in_step}, f"{LATE}: rank 0 comes to its end, and you say that it stays at "),
    ({"play": whoever_comes}, f"{END}: rank 0 comes to its event 0 (sum) and no further"),
    ({"play": by_groups_alone}, f"{OTHER}: rank 0 comes to its event 0 (sum) and no further, "
     "since others are about to do something else there; you say 1"),
    ({"play": through_hanging}, f"{LATE}: rank 1 comes to its event 0 (hangs) and no further, "
     "since it does so for ever; you say 1"),
    ({"play": once_round}, f"{LATE}: rank 0 comes to its end, and you say that it stays at 1"),
    ({"play": lambda programs: None}, "raised: play answers None, and not a list of 2 numbers"),
    ({"differing": the_first_is_right}, f"{OTHER}: you name [1], and it is [0]: no text is that "),
    ({"differing": i_am_right}, f"{OTHER}: you name [0, 1], and it is [2]: most are about to do "
     "sum"),
    ({"differing": the_rare_one}, f"{OTHER}: you name [0, 1], and it is []: most are about to do"),
    ({"differing": the_most_often_first}, f"{OTHER}: you name [1], and it is [0]: no text is that"),
    ({"blamed": who_waits}, f"{END}: rank 1 has ended its program, and rank 0 waits for it; you "
     "blame [0], and it is [1]"),
    ({"blamed": not_ended}, f"{LATE}: rank 1 hangs, and rank 0 waits for it; you "
     "blame [0, 1], and it is [1]"),
    ({"blamed": who_hangs}, f"{END}: rank 1 has ended its program, and rank 0 waits for it"),
    ({"blamed": no_circle}, f"{LATE}: all that are missing wait themselves: there is a circle"),
    ({"blamed": with_the_way}, f"{LATE}: all that are missing wait themselves: there is a circle"),
    ({"differing": more_often}, f"{OTHER}: you name [1, 2], and it is [0, 2]: no text is that of "
     "more than half; rank 1 asks"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in "\n".join(said_of(parts))


def test_the_runtime_names_whom_the_reader_names() -> None:
    module: Any = published(importlib.import_module("impl.distributed.engine"))
    whats = [b"a", b"b", b"b"]
    assert module.strangers(whats, 0) == [0]
    vars(module).update(differing=lambda whats, place: [2, 1])
    lesson_ranks.install(module)
    assert module.strangers(whats, 0) == [1, 2]


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "ranks.md").read_text(encoding="utf-8")
    for parts in (WRONG[3][0], WRONG[14][0]):
        assert "\n".join(map(str.rstrip, next(said_of(parts)).strip().splitlines())) in page
    assert "\n".join(lesson_ranks.score(solution)) in page
    assert len(LESSONS["ranks"].hints) == 5 and "the next of five hints" in page
