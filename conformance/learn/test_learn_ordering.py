"""The lesson on ordering lets a right finder of dependencies pass, and no wrong one."""
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice, permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_ordering
from conformance.learn.lesson_ordering import (
    corrupted,
    drawn,
    fewest,
    hazards,
    implied,
    ordering,
    problems,
)
from conformance.learn.lessons import LESSONS
from impl import dependencies
from impl.dependencies import Accesses, Dependency, Touch

Order = Sequence[int] | None
Find = Callable[..., Any]


def module_of(find: Find) -> Any:
    return SimpleNamespace(Touch=Touch, find=find, __file__=dependencies.__file__)


def plainly(accesses: Accesses, order: Order = None) -> list[Dependency]:
    """The definition, with two loops: what the first hints lead to."""
    found = {}
    numbers = list(range(len(accesses)) if order is None else order)
    for place, after in enumerate(numbers):
        for before in numbers[:place]:
            for kind, (first, second) in lesson_ordering.KINDS.items():
                for one in accesses[before][first]:
                    for other in accesses[after][second]:
                        if one.storage == other.storage and one.overlaps(other):
                            found[before, after, kind, one.storage] = Dependency(
                                before, after, kind, one.storage, other.version)
    return list(found.values())


def byte_by_byte(accesses: Accesses, order: Order = None) -> list[Dependency]:
    """Of each byte: who wrote it last, and who has read it since. The fewest pairs of all."""
    writer: dict[tuple[int, int], int] = {}
    readers: dict[tuple[int, int], list[int]] = {}
    found: dict[Any, Dependency] = {}

    def note(before: int, after: int, kind: str, touch: Touch) -> None:
        found.setdefault((before, after, kind, touch.storage), Dependency(
            before, after, kind, touch.storage, touch.version))

    for number in range(len(accesses)) if order is None else order:
        reads, writes = accesses[number]
        for kind, touches in (("RAW", reads), ("WAW", writes)):
            for touch in touches:
                for byte in range(touch.start, touch.stop):
                    if (touch.storage, byte) in writer:
                        note(writer[touch.storage, byte], number, kind, touch)
        for touch in writes:
            for byte in range(touch.start, touch.stop):
                for reader in readers.pop((touch.storage, byte), ()):
                    note(reader, number, "WAR", touch)
        for touch in writes:
            writer.update({(touch.storage, byte): number
                           for byte in range(touch.start, touch.stop)})
        for touch in reads:
            for byte in range(touch.start, touch.stop):
                readers.setdefault((touch.storage, byte), []).append(number)
    return list(found.values())


def in_pieces(accesses: Accesses, order: Order = None) -> list[Dependency]:
    """What is left of each touch of the past, as pieces: covered by two, it is gone."""
    past: dict[str, list[Any]] = {"reads": [], "writes": []}
    found: dict[Any, Dependency] = {}
    for number in range(len(accesses)) if order is None else order:
        reads, writes = accesses[number]
        for kind, touches, side in (("RAW", reads, "writes"), ("WAR", writes, "reads"),
                                    ("WAW", writes, "writes")):
            for touch in touches:
                for other, piece in past[side]:
                    if piece.storage == touch.storage and piece.overlaps(touch):
                        found.setdefault((other, number, kind, touch.storage), Dependency(
                            other, number, kind, touch.storage, touch.version))
        for touch in writes:
            past = {side: [(other, left) for other, piece in pieces
                           for left in cut(piece, touch)] for side, pieces in past.items()}
        past["reads"] += [(number, touch) for touch in reads]
        past["writes"] += [(number, touch) for touch in writes]
    return list(found.values())


def cut(piece: Touch, touch: Touch) -> list[Touch]:
    if piece.storage != touch.storage or not piece.overlaps(touch):
        return [piece]
    ends = [(piece.start, touch.start), (touch.stop, piece.stop)]
    return [piece._replace(start=start, stop=stop) for start, stop in ends if start < stop]


def of_the_page(accesses: Accesses, order: Order = None) -> list[Dependency]:
    """Forgets what one kernel overwrites wholly."""
    readers: list[Any] = []
    writers: list[Any] = []
    found: dict[Any, Dependency] = {}
    for number in range(len(accesses)) if order is None else order:
        reads, writes = accesses[number]
        for kind, past, touches in (("RAW", writers, reads), ("WAR", readers, writes),
                                    ("WAW", writers, writes)):
            for touch in touches:
                for other, old in past:
                    if old.storage == touch.storage and old.overlaps(touch):
                        found[other, number, kind, touch.storage] = Dependency(
                            other, number, kind, touch.storage, touch.version)
        readers, writers = ([(other, old) for other, old in past if not any(
            old.storage == new.storage and new.start <= old.start and old.stop <= new.stop
            for new in writes)] for past in (readers, writers))
        readers += [(number, touch) for touch in reads]
        writers += [(number, touch) for touch in writes]
    return list(found.values())


def for_each_touch(accesses: Accesses, order: Order = None) -> list[Dependency]:
    """A pair for each two touches that meet."""
    numbers = list(range(len(accesses)) if order is None else order)
    return [Dependency(before, after, kind, one.storage, other.version)
            for place, after in enumerate(numbers) for before in numbers[:place]
            for kind, (first, second) in lesson_ordering.KINDS.items()
            for one in accesses[before][first] for other in accesses[after][second]
            if one.storage == other.storage and one.overlaps(other)]


def without(kind: str) -> Find:
    return lambda accesses, order=None: [
        each for each in dependencies.find(accesses, order) if each.kind != kind]


def rounded(accesses: Accesses, order: Order = None) -> list[Dependency]:
    """Takes every touch for one of the whole storage."""
    whole = [([t._replace(start=0, stop=99) for t in reads],
              [t._replace(start=0, stop=99) for t in writes]) for reads, writes in accesses]
    return dependencies.find(whole, order)


def forgetful(accesses: Accesses, order: Order = None) -> list[Dependency]:
    """Takes what is overwritten in part for gone."""
    found: list[Dependency] = []
    writer: dict[int, tuple[int, Touch]] = {}
    for number in range(len(accesses)) if order is None else order:
        for kind, touches in zip(("RAW", "WAW"), accesses[number], strict=True):
            found += [Dependency(writer[t.storage][0], number, kind, t.storage, t.version)
                      for t in touches if t.storage in writer
                      and writer[t.storage][1].overlaps(t)]
        writer.update({t.storage: (number, t) for t in accesses[number][1]})
    war = [each for each in dependencies.find(accesses, order) if each.kind == "WAR"]
    return [each for each in found if each.before != each.after] + war


def renamed(kind: str) -> Find:
    return lambda accesses, order=None: [
        each._replace(kind=kind) for each in dependencies.find(accesses, order)]


def waits_for_itself(accesses: Accesses, order: Order = None) -> list[Dependency]:
    return [*dependencies.find(accesses, order),
            *(Dependency(number, number, "RAW", 0, 0) for number in range(len(accesses)))]


def unwritten(accesses: Accesses, order: Order = None) -> list[Dependency]:
    raise NotImplementedError


WRONG: list[tuple[Find, str]] = [
    (without("RAW"), "dependencies.raw.order: kernel 1 does not wait for kernel 0, which writes "
                     "what it reads"),
    (without("WAR"), "in the order 1, 0, kernel 0 reads what kernel 1 has written, not what was "
                     "there before"),
    (without("WAW"), "in the order 1, 0, byte 0 of A is left with what kernel 0 has written, not "
                     "what kernel 1 has written"),
    (forgetful, "dependencies.raw.order: kernel 2 does not wait for kernel 0"),
    (rounded, "dependencies.ranges.disjoint: kernel 1 waits for kernel 0, and they may run in any"),
    (renamed("WAW"), "dependencies.waw.order: kernel 1 waits for kernel 0, but not by WAW"),
    (lambda *given: [each._replace(version=each.version - 1)
                     for each in dependencies.find(*given)],
     "dependencies.war.order: WAR 0 -> 1 names version 0 of A; name what kernel 1 writes"),
    (waits_for_itself, "dependencies.raw.order: kernel 0 waits for itself"),
    (lambda accesses, order=None: dependencies.find(accesses), "ordering.any-legal.equal: with "
     "other numbers, in the order [1, 0], you find"),
    (unwritten, "raised: your code raised NotImplementedError\n"),
    (lambda *given: [each for each in dependencies.find(*given) for _ in range(2)],
     "raised: you list WAR 0 -> 1 more than once"),
    (for_each_touch, "raised: you list RAW 0 -> 1 more than once"),
    (lambda *given: None, "raised: find answers a NoneType, and not a list of Dependency"),
    (lambda *given: [(0, 1)], "raised: find answers (0, 1), which is no Dependency"),
    (lambda *given: [Dependency(0, 7, "RAW", 0, 0)], "raised: there is no such thing as"),
    (lambda *given: [Dependency(0, 0, "ROW", 0, 0)], "raised: there is no such thing as"),
]


@pytest.mark.parametrize(("find", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_a_wrong_finder_is_shown_the_smallest_counterexample(find: Find, said: str) -> None:
    found = "\n".join(map(str, ordering(module_of(find))))
    assert said in found and "\n    kernel 0: " in found
    assert ("you find: " in found) is not said.startswith("raised")  # what it was cannot be drawn


@pytest.mark.parametrize("find", [
    dependencies.find, plainly, byte_by_byte, in_pieces, of_the_page])
def test_a_right_one_is_shown_none(find: Find) -> None:
    assert list(ordering(module_of(find))) == []


def test_problems_come_from_the_smallest_up() -> None:
    sizes = [len(each) for each in islice(problems(), 600)]
    assert sizes == sorted(sizes) and sizes[0] == 1


def test_the_hazards_are_what_orders_have_to_respect() -> None:
    """All orders that respect them give the same, and without one of the fewest some do not."""
    chooser = random.Random(3)
    for _ in range(25):
        problem = drawn(chooser, 4, 2)
        count, needed = len(problem), implied(set().union(*hazards(problem).values()), 4)
        orders = [order for order in permutations(range(count))
                  if all(order.index(before) < order.index(after) for before, after in needed)]
        assert not any(corrupted(problem, order) for order in orders)
        assert implied(needed, count) == needed and fewest(problem) <= len(needed)


def test_a_score_compares_with_ours_and_with_the_bounds() -> None:
    for find in (dependencies.find, plainly):
        head, *rows = lesson_ordering.score(module_of(find))
        assert head.split() == ["kernels", "pairs", "ours", "all", "at", "least"]
        for row in rows:
            _, mine, ours, most, least = map(int, row.split()[-5:])
            assert most >= mine >= least and most >= ours >= least
            assert mine == (ours if find is dependencies.find else most)


def test_the_page_shows_the_score_that_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "ordering.md").read_text(encoding="utf-8")
    head, *rows = lesson_ordering.score(module_of(dependencies.find))
    shown = page.partition(head)[2].partition("```")[0].splitlines()[1:]
    assert shown and set(shown) <= set(rows)


def test_a_file_takes_the_place_of_the_finder(tmp_path: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "my_ordering.py"
    assert learn.main(["start", "ordering", "--mine", str(mine)]) == 0
    text = mine.read_text(encoding="utf-8")
    assert "from impl.dependencies import *" in text and text.count("raise NotImpl") == 1
    assert "all 6 rules of this lesson are red" in capsys.readouterr().out
    overlay = learn.Overlay("ordering", mine)
    assert overlay.name == "impl.dependencies"
    assert overlay.find_spec("impl.ordering") is None
    spec = overlay.find_spec("impl.dependencies")
    assert spec is not None and str(spec.origin).endswith("dependencies/__init__.py")


def test_there_are_as_many_hints_as_the_page_says() -> None:
    page = (learn.ROOT / "docs" / "course" / "ordering.md").read_text(encoding="utf-8")
    words = ("six", "seven", "eight")
    assert f"the next of {words[len(LESSONS['ordering'].hints) - 6]} hints" in page
