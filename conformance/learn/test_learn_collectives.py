"""The lesson on several devices lets right rounds pass, and no wrong ones."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_collectives
from conformance.learn.lesson_collectives import collectives, played, turns
from conformance.learn.lessons import LESSONS
from conformance.learn.solutions.collectives import all_reduce as ring
from impl.collectives import steps

Rounds = list[list[tuple[int, int, int, bool]]]
AllReduce = Callable[[int], Any]


def module_of(all_reduce: AllReduce) -> Any:
    return SimpleNamespace(all_reduce=all_reduce, __file__=steps.__file__, parts=steps.parts,
                           Move=steps.Move, _own=steps._own, predicted=steps.predicted,
                           ALGORITHMS={"all-reduce": dict(steps.ALGORITHMS["all-reduce"])})


def backward(count: int) -> Rounds:
    """The ring, the other way round."""
    return [[(count - 1 - a, count - 1 - b, part, add) for a, b, part, add in moves]
            for moves in ring(count)]


def added_up(count: int) -> Rounds:
    """Everybody adds up one part of all."""
    return [[((i + t) % count, i, i, True) for i in range(count)] for t in range(1, count)]


def direct(count: int) -> Rounds:
    """Everybody sends its whole part to all, a device in each round."""
    return [*added_up(count), *[[(i, (i + t) % count, i, False) for i in range(count)]
                                for t in range(1, count)]]


def at_once(count: int) -> Rounds:
    """Everybody sends its whole part to all, in one round."""
    return [*added_up(count), [move for moves in direct(count)[count - 1:] for move in moves]]


def halved(count: int) -> Rounds:
    """Halves are exchanged, then halves of halves; as a ring where that does not come out."""
    if count & (count - 1):
        return ring(count)
    down: Rounds = []
    width = count
    while width > 1:
        width //= 2
        down.append([(i, i ^ width, part, True) for i in range(count) for part in range(count)
                     if part // width == (i ^ width) // width])
    up = [[(b, a, part, False) for a, b, part, _ in moves] for moves in reversed(down)]
    return [*down, *up]


def naive(count: int) -> Rounds:
    return [*[[(i, 0, part, True) for part in range(count)] for i in range(1, count)],
            [(0, i, part, False) for i in range(1, count) for part in range(count)]]


def one_at_a_time(count: int) -> Rounds:
    return [[move] for moves in ring(count) for move in moves]


def two_orders(count: int) -> Rounds:
    """Four devices, of which two add up part 0 each in an order of its own."""
    if count != 4:
        return ring(count)
    first: Rounds = [[(1, 0, 0, True), (0, 1, 0, True)], [(2, 0, 0, True), (3, 1, 0, True)],
                     [(3, 0, 0, True), (2, 1, 0, True)], [(0, 2, 0, False), (0, 3, 0, False)]]
    return [*first, *[[move for move in moves if move[2]] for moves in ring(4)]]


def mixed_up(count: int) -> Rounds:
    """The second half begins with a part that is not whole."""
    return [*ring(count)[:count - 1],
            *[[(a, b, (part + 1) % count, add) for a, b, part, add in moves]
              for moves in ring(count)[count - 1:]]]


WRONG: list[tuple[AllReduce, str]] = [
    (lambda n: [], "collectives.reduce.equal: device 0 ends with 0 in part 0, and 1 is missing"),
    (lambda n: None, "raised: all_reduce answers None, and not a list of lists"),
    (lambda n: [[(0, 1)]], "raised: (0, 1) is no move"),
    (lambda n: [[(0, n, 0, True)]], "raised: (0, 1, 0, True) names a device or a part"),
    (lambda n: [[(0, 0, 0, True)]], "raised: (0, 0, 0, True): device 0 sends something to itself"),
    (lambda n: [][0], "raised: your code raised IndexError"),
    (lambda n: ring(n)[:n - 1], "collectives.reduce.equal: device 0 ends with 0 in part 0"),
    (lambda n: ring(n)[1:], "is missing"),
    (lambda n: ring(n) + ring(n),
     "device 0 ends with (1+0)+(1+0) in part 0, and 0 is in it 2 times"),
    (lambda n: [[(*move[:3], True) for move in moves] for moves in ring(n)], "is in it 2 times"),
    (lambda n: [[(*move[:3], False) for move in moves] for moves in ring(n)], "is missing"),
    (mixed_up, "is missing"),
    (two_orders, "part 0 is ((0+1)+2)+3 on device 0 and ((1+0)+3)+2 on device 1: floats that are "
                 "added in another order have other bits"),
    (lambda n: [[(i, (p - 1) % n, p, True) for p in range(n) for i in range(n) if i != (p - 1) % n],
                *ring(n)[n - 1:]], "collectives.round.before: in round 1 2 moves write part"),
    (naive, "collectives.bytes.theory: device 0 sends 6 parts; 4 would do"),
    (one_at_a_time, "collectives.algorithm.named: it takes 4 turns, in each of which a device"),
    (lambda n: ring(n) if n < 4 else ring(4),
     "collectives.reduce.equal: device 0 ends with 3+(2+(1+0)) in part 0, and 4 is missing"),
]


@pytest.mark.parametrize(("all_reduce", "said"), WRONG, ids=[said[:60] for _, said in WRONG])
def test_wrong_rounds_are_shown_on_the_fewest_devices(all_reduce: AllReduce, said: str) -> None:
    found = "\n".join(map(str, collectives(module_of(all_reduce))))
    assert said in found and " in a part" not in found and "\n    " in found


@pytest.mark.parametrize("all_reduce", [ring, backward, direct, at_once, halved])
def test_right_ones_of_any_style_are_shown_none(all_reduce: AllReduce) -> None:
    assert list(map(str, collectives(module_of(all_reduce)))) == []


def test_time_is_that_of_the_busiest_device() -> None:
    for all_reduce, wanted in ((ring, 6), (at_once, 6), (halved, 6), (naive, 24),
                               (one_at_a_time, 24)):
        rounds = [[lesson_collectives.PartMove(*move) for move in moves]
                  for moves in all_reduce(4)]
        assert turns(rounds, 4) == wanted, all_reduce
    assert played([], 2) == [[0, 0], [1, 1]]


@pytest.mark.parametrize("all_reduce", [ring, direct, halved])
def test_the_runtime_runs_the_readers_rounds(all_reduce: AllReduce) -> None:
    """Each element is summed once, also where parts differ in size, or have none."""
    module = module_of(all_reduce)
    lesson_collectives.install(module)
    for size, count in ((7, 3), (2, 4), (8, 4)):
        held = [[10.0 ** device] * size for device in range(count)]
        own, *rounds = module.ALGORITHMS["all-reduce"]["ring"](size, count)
        assert all(move.given and move.is_local for move in own)
        for moves in rounds:
            before = [list(values) for values in held]
            for m in moves:
                for at in range(m.start, m.stop):
                    held[m.receiver][at] = before[m.sender][at] + (
                        before[m.receiver][at] if m.combined else 0.0)
        assert held == [[float("1" * count)] * size] * count


def test_the_page_shows_what_is_printed() -> None:
    page = (Path(learn.ROOT) / "docs" / "course" / "collectives.md").read_text(encoding="utf-8")
    module = module_of(ring)
    lesson_collectives.install(module)
    assert all(line in page for line in lesson_collectives.score(module))
    found = list(collectives(module_of(lambda n: [[(i, i + 1, 0, True)] for i in range(n - 1)])))
    assert str(found[0]).replace("\n\n", "\n").rstrip() in page.replace("\n\n", "\n")
    assert len(LESSONS["collectives"].hints) == 7 and "the next of seven hints" in page
