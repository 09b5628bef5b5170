"""The lesson on bounds lets right arithmetic on intervals pass, and no wrong one."""
from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_symbolic
from conformance.learn.lesson_symbolic import VALUES, bounds, has_to_be_tight, possible
from conformance.learn.lessons import LESSONS
from conformance.learn.solutions.symbolic import interval

published: Any = importlib.import_module("impl.symbolic.bounds")
Bounds = tuple[int, int]
Interval = Callable[[str, Bounds, Bounds], Any]
_NAMES = {text: name for name, text in lesson_symbolic.OPERATIONS.items()}


def module_of(interval: Interval) -> Any:
    return SimpleNamespace(interval=interval, __file__=published.__file__)


def ours(operation: str, left: Bounds, right: Bounds) -> Bounds:
    rules = {op.name: rule for op, rule in published._BOUND_RULES.items()}
    found: Bounds = rules[_NAMES[operation]](None, [left, right])
    return found


def corners(operation: str, left: Bounds, right: Bounds) -> Bounds:
    """Right for + - * max min, and for // where 0 is no divisor."""
    found = [VALUES[operation](a, b) for a in left for b in right]
    return min(found), max(found)


def plainly(operation: str, left: Bounds, right: Bounds) -> Bounds:
    """In another way than ours: a quotient of an interval with 0 in it is taken apart."""
    (low, high), (least, most) = left, right
    if operation == "mod":
        if least == most > 0 and low // least == high // least:
            return low % least, high % least
        return min(least + 1, 0), max(most - 1, 0)
    if operation == "//" and least <= 0 <= most:
        parts = [(0, 0)] + [corners("//", left, each) for each in ((least, -1), (1, most))
                            if each[0] <= each[1]]
        return min(each[0] for each in parts), max(each[1] for each in parts)
    return corners(operation, left, right)


def tight(operation: str, left: Bounds, right: Bounds) -> Bounds:
    """Quotients by 1 and -1 too, if they are divisors; remainders are no larger than the number."""
    (low, high), (least, most) = left, right
    if operation == "//":
        found = [a // b for a in left for b in {least, most, -1, 1}
                 if b and least <= b <= most] + [0] * (least <= 0 <= most)
        return min(found), max(found)
    if operation != "mod" or least == most:
        return plainly(operation, left, right)
    bottom, top = min(least + 1, 0), max(most - 1, 0)
    return (max(bottom, low) if high <= 0 and most <= 0 else bottom,
            min(top, high) if low >= 0 and least >= 0 else top)


def by_negation(operation: str, left: Bounds, right: Bounds) -> Bounds:
    """a - b is a + -b, and the least is the greatest of what is turned round."""
    if operation == "-":
        return plainly("+", left, (-right[1], -right[0]))
    if operation == "min":
        low, high = plainly("max", (-left[1], -left[0]), (-right[1], -right[0]))
        return -high, -low
    return plainly(operation, left, right)


def but(operation: str, answer: Interval) -> Interval:
    return lambda asked, left, right: (answer if asked == operation else plainly)(
        asked, left, right)


def counted(operation: str, left: Bounds, right: Bounds) -> Bounds:
    """Walks through all numbers."""
    if left[1] - left[0] > 1000:
        raise MemoryError
    found = possible(operation, left, right)
    return found[0], found[-1]


WRONG: list[tuple[Interval, str]] = [
    (but("+", lambda o, a, b: (a[0] + b[0], a[1])), "symbolic.bounds.sound: 0 + 1 is 1"),
    (but("-", lambda o, a, b: (a[0] - b[0], a[1] - b[1])),
     "symbolic.bounds.sound: 0 - 0 is 0, and you say 0 to -1"),
    (but("*", lambda o, a, b: (a[0] * b[0], a[1] * b[1])),
     "symbolic.bounds.sound: -1 * 0 is 0, and you say 0 to -1"),
    (but("max", lambda o, a, b: (max(a[0], b[0]), max(a[1], b[0]))), "symbolic.bounds.sound: "),
    (but("min", lambda o, a, b: (a[0], b[1])), "symbolic.bounds.sound: 0 min -1 is -1"),
    (but("//", corners), "symbolic.bounds.sound: "),
    (but("//", lambda o, a, b: tuple(int(x / b[0]) if b[0] else 0 for x in a)),
     "symbolic.bounds.sound: "),
    (but("mod", corners), "symbolic.bounds.sound: -3 mod 2 is 1"),
    (but("mod", lambda o, a, b: (0, max(b[1] - 1, 0))), "symbolic.bounds.sound: "),
    (but("mod", lambda o, a, b: (min(b[0] + 1, 0), max(b[1] - 1, 0))),
     "symbolic.division.simple: you say 0 to 1, and 0 to 0 is true as well"),
    (lambda o, a, b: (-10 ** 30, 10 ** 30), "symbolic.division.simple: you say -1000"),
    (lambda o, a, b: None, "raised: interval answers None, and not a pair of whole numbers"),
    (lambda o, a, b: (0.5, 1), "raised: interval answers (0.5, 1)"),
    (lambda o, a, b: [][0], "raised: your code raised IndexError"),
]


@pytest.mark.parametrize(("interval", "said"), WRONG, ids=[said[:50] for _, said in WRONG])
def test_a_wrong_interval_is_shown_the_smallest_counterexample(interval: Interval,
                                                               said: str) -> None:
    found = "\n".join(map(str, bounds(module_of(interval))))
    assert said in found and "    left from " in found


def test_who_counts_does_not_come_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither who walks through all numbers, nor who makes a list of them first."""
    monkeypatch.setattr(lesson_symbolic, "SHORT", 0.05)
    for walk, said in ((counted, "your code raised MemoryError: a small problem does not need"),
                       (walked, "TimeoutError: it was not done after 0.05 seconds")):
        (found,) = bounds(module_of(walk))
        assert found.rule == "raised" and said in found.message
        assert "who tries all numbers between is never done" in found.picture


def walked(operation: str, left: Bounds, right: Bounds) -> Bounds:
    if operation != "+" or left[1] - left[0] < 1000:
        return plainly(operation, left, right)
    found = [each for each in range(*left) if each < 0]
    return len(found), 0


def test_far_away_it_has_to_be_right() -> None:
    (found,) = bounds(module_of(
        lambda o, a, b: (0, 7) if b == (7, 7) else plainly(o, a, b)))
    assert found.message == "of left mod right you say (0, 7); it is (0, 6)"


@pytest.mark.parametrize("interval", [interval, ours, plainly, tight, by_negation])
def test_a_right_one_is_shown_none(interval: Interval) -> None:
    assert list(bounds(module_of(interval))) == []


def test_where_it_has_to_be_tight() -> None:
    assert has_to_be_tight("+", (0, 3)) and has_to_be_tight("mod", (4, 4))
    assert not has_to_be_tight("mod", (3, 4)) and not has_to_be_tight("//", (0, 0))


def test_the_runtime_asks_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def watched(operation: str, left: Bounds, right: Bounds) -> Bounds:
        asked.append(operation)
        return plainly(operation, left, right)

    module: Any = SimpleNamespace(interval=watched, _BOUND_RULES=dict(published._BOUND_RULES))
    lesson_symbolic.install(module)
    for op, rule in module._BOUND_RULES.items():
        if op.name in lesson_symbolic.OPERATIONS:
            rule(None, [(1, 2), (3, 4)])
    assert sorted(asked) == sorted(VALUES)


def test_the_page_shows_the_score_that_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "symbolic.md").read_text(encoding="utf-8")
    lines = list(lesson_symbolic.score(module_of(interval)))
    assert all(line in page for line in lines), lines
    words = ("five", "six", "seven")
    assert f"the next of {words[len(LESSONS['symbolic'].hints) - 5]} hints" in page


def test_a_loop_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn, "SHORT", 0.2)
    monkeypatch.setattr(learn, "import_module", lambda name: SimpleNamespace(interval=endless))
    found = learn._counterexamples("symbolic")
    assert [each.rule for each in found] == ["raised"]
    assert "TimeoutError: it was not done after 0.2 seconds" in found[0].message


def endless(operation: str, left: Bounds, right: Bounds) -> Bounds:
    while True:
        pass


def test_a_file_takes_the_place_of_the_arithmetic(tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "my_symbolic.py"
    assert learn.main(["start", "symbolic", "--mine", str(mine)]) == 0
    assert "def interval(operation" in mine.read_text(encoding="utf-8")
    assert "all 4 rules of this lesson are red" in capsys.readouterr().out
    assert learn.Overlay("symbolic", mine).find_spec("impl.symbolic.bounds") is not None
