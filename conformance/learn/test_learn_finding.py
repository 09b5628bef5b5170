"""The lesson on somebody else's bug lets right functions pass, and no wrong one."""
from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance import learn, oracle, protocol
from conformance.generators import programs
from conformance.learn import lesson_finding
from conformance.learn.lesson_finding import (
    EAGER,
    FAULTS,
    ISOLATED,
    LAW,
    PARTS,
    REGION,
    RIGHT,
    Changed,
    broken,
    trimmed,
)
from conformance.learn.lessons import LESSONS
from conformance.runner.subject import Failure, Subject

solution: Any = importlib.import_module("conformance.learn.solutions.finding")
given, made, stored = solution.given, solution.made, solution.stored
assigned, observed = solution.assigned, solution.observed
FLIP, LAST = solution.FLIP, solution.LAST


def said_of(parts: dict[str, Any]) -> Iterator[str]:
    """What is said of the parts that are not the solution's."""
    module: Any = SimpleNamespace(
        **{name: parts.get(name, getattr(solution, name)) for name in PARTS})
    for name in parts:
        yield from map(str, PARTS[name](module))


# Right, in other ways than the solution ----------------------------------------------------


def with_a_constant() -> Any:
    return [given("x", 1), made("neg", "y", "x"),
            {"do": "constant", "to": "c", "dtype": "int32", "shape": [1], "value": 7},
            assigned("x", "c"), observed("y")]


def a_sum_waits() -> Any:
    return [given("a", 4, 5), made("sum", "b", "a", axes=[0], keepdims=False),
            made("add", "d", "a", "a"), stored("a", "d"), observed("b")]


def one_by_one(statements: Any, fails: Any) -> Any:
    """From the back, again and again until nothing changes."""
    before = None
    while before != len(statements):
        before = len(statements)
        for place in reversed(range(before)):
            rest = statements[:place] + statements[place + 1:]
            if fails(rest):
                statements = rest
    return statements


def by_halves(statements: Any, fails: Any) -> Any:
    """Pieces of half of what is left, then of half of that."""
    size = len(statements) // 2
    while size:
        place, changed = len(statements), False
        while place > 0:
            rest = statements[:max(place - size, 0)] + statements[place:]
            if fails(rest):
                statements, changed = rest, True
            place -= size
        size = size if changed and size == 1 else size // 2
    return statements


def by_the_oracle(run: Any) -> Any:
    """The suite knows what a program means."""
    for program, _ in solution.known():
        found = run(program)
        wanted = [(each.name, each.value.reshape(-1).tolist())
                  for each in oracle.run(protocol.program(program))]
        if found != wanted:
            return program
    return None


def by_looking_more_often(run: Any) -> Any:
    """The same program with everything computed at once. Not all faults differ in that."""
    for program, right in solution.known():
        eager = []
        for each in program:
            eager.append(each)
            name = each.get("to") or each.get("target")
            if name:
                eager.append({"do": "realize", "names": [name]})
        for each in (program, eager):
            found = run(each)
            if found is None or [values for _, values in found] != right:
                return each
    return None


@pytest.mark.parametrize("parts", [
    {name: getattr(solution, name) for name in PARTS}, {"witness": with_a_constant},
    {"witness": a_sum_waits}, {"shrink": one_by_one}, {"shrink": by_halves},
    {"hunt": by_the_oracle}, {"hunt": by_looking_more_often}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert list(said_of(parts)) == []


# Wrong, as one writes them -----------------------------------------------------------------


def looked_at_first() -> Any:
    return [given("x", 1), made("neg", "y", "x"), {"do": "realize", "names": ["y"]},
            given("c", 7), assigned("x", "c"), observed("y")]


def never_written() -> Any:
    return [given("x", 1), made("neg", "y", "x"), observed("y")]


def with_more() -> Any:
    return [given("x", 1), made("neg", "y", "x"), made("neg", "z", "x"), given("c", 7),
            assigned("x", "c"), observed("y")]


def large() -> Any:
    return [given("x", *range(9)), made("neg", "y", "x"), stored("x", "x", FLIP), observed("y")]


def of_halves(statements: Any, fails: Any) -> Any:
    """The half that fails, as long as there is one."""
    while True:
        middle = len(statements) // 2
        for half in (statements[:middle], statements[middle:]):
            if fails(half):
                statements = half
                break
        else:
            return statements


def once(statements: Any, fails: Any) -> Any:
    """Each statement is tried once, from the front."""
    for each in list(statements):
        rest = [other for other in statements if other is not each]
        if fails(rest):
            statements = rest
    return statements


def not_asked(statements: Any, fails: Any) -> Any:
    return statements[:-2]


def the_other_way(statements: Any, fails: Any) -> Any:
    """Leaves out what is needed."""
    return [each for place, each in enumerate(statements)
            if fails(statements[:place] + statements[place + 1:])]


def from_the_front(statements: Any, fails: Any) -> Any:
    """All pairs first, and everything anew after each success."""
    for one in range(len(statements)):
        for other in range(one, len(statements)):
            rest = statements[:one] + statements[one + 1:other] + statements[other + 1:]
            if fails(rest):
                return from_the_front(rest, fails)
    return statements


def for_ever(statements: Any, fails: Any) -> Any:
    while True:
        fails(statements)


def only(*places: int) -> Any:
    """A hunt with some of the programs."""
    def hunt(run: Any) -> Any:
        for place, (program, right) in enumerate(solution.known()):
            if place in places:
                found = run(program)
                if found is None or [values for _, values in found] != right:
                    return program
        return None
    return hunt


def first_value(run: Any) -> Any:
    """Looks at the first element of the first value only."""
    for program, right in solution.known():
        found = run(program)
        if found is None or found[0][1][0] != right[0][0]:
            return program
    return None


def floats_to_the_bit(run: Any) -> Any:
    """A sum of floats has to be what Python adds up."""
    data = protocol.encode(np.array([1e8, 1.0, -1e8, 0.5], np.float32))
    program = [{"do": "input", "to": "x", "dtype": "float32", "shape": [4], "data": data},
               made("sum", "y", "x", axes=[0], keepdims=False), observed("y")]
    return solution.hunt(run) or (program if run(program) != [("y", [0.5])] else None)


def suspicious(run: Any) -> Any:
    """Takes a change of what was written for a fault."""
    program = [given("x", 1), given("c", 2), assigned("x", "c"), observed("x")]
    return program if run(program) != [("x", [1])] else None


def the_last_one(run: Any) -> Any:
    """Answers the wrong program."""
    return [given("x", 1), observed("x")] if solution.hunt(run) else None


def undefined(run: Any) -> Any:
    run([observed("nobody")])


def from_the_back_once(statements: Any, fails: Any) -> Any:
    """Each statement is asked about once."""
    for place in reversed(range(len(statements))):
        fewer = statements[:place] + statements[place + 1:]
        statements = fewer if fails(fewer) else statements
    return statements


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"witness": looked_at_first}, f"{EAGER}: the runtime in which a reader that waits sees a "
     "later write shows nothing of it"),
    ({"witness": never_written}, f"{EAGER}: the runtime in which a reader that waits sees a later"),
    ({"witness": with_more}, f"{EAGER}: statement 2 is not needed (neg z from x)"),
    ({"witness": large}, f"{EAGER}: 9 elements are given; fewer show it"),
    ({"witness": lambda: None}, "raised: None is no program: a list of statements"),
    ({"witness": lambda: [assigned("x", "x")]}, "raised: that is no program: "),
    ({"shrink": of_halves}, f"{LAW}: statement 3 is not needed ("),
    ({"shrink": once}, f"{LAW}: statement "),
    ({"shrink": not_asked}, f"{LAW}: your program of "),
    ({"shrink": the_other_way}, f"{LAW}: your program of "),
    ({"shrink": from_the_front}, "raised: your code raised RuntimeError: more than "),
    ({"shrink": for_ever}, "raised: your code raised RuntimeError: more than 50 programs were run"),
    ({"shrink": lambda statements, fails: None}, "raised: shrink answers None, and not a list"),
    ({"hunt": only(0)}, f"{REGION}: you find nothing in a runtime in which a write through a "
     "reshape is lost"),
    ({"hunt": only(0, 1, 2, 3, 4, 5, 6)}, f"{ISOLATED}: you find nothing in a runtime in which "),
    ({"hunt": first_value}, f"{EAGER}: you find nothing in a runtime in which a value is computed"),
    ({"hunt": floats_to_the_bit}, f"{LAW}: you find a fault in "),
    ({"hunt": suspicious}, f"{LAW}: you find a fault in a small lazy runtime, and there is none"),
    ({"hunt": the_last_one}, f"{EAGER}: the program that you answer has the right values, though "),
    ({"hunt": undefined}, "raised: your code raised ValueError: that is no program: "),
    ({"hunt": lambda run: None}, f"{EAGER}: you find nothing in a runtime in which a reader that "),
    ({"shrink": from_the_back_once}, f"{LAW}: statement 4 is not needed (abs z from c): without"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    found = []
    for each in said_of(parts):  # no further than to the one
        if said in each:
            return
        found.append(each)
    pytest.fail("\n".join(found))


def test_each_fault_is_one_and_a_right_runtime_has_none() -> None:
    """Of the programs of the solution each finds something, and each fault is found."""
    found = set()
    for program, right in solution.known():
        wanted = [each.value.reshape(-1).tolist() for each in oracle.run(protocol.program(program))]
        assert wanted == right
        assert not any(broken(make(), program) for _, make in RIGHT[:3])
        wrong = {fault.what for fault in FAULTS if broken(Changed(fault.change), program)}
        assert wrong
        found |= wrong
    assert found == {fault.what for fault in FAULTS}


def test_the_suite_shrinks_as_the_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "shrink", programs.shrink)  # as it is, when this is over
    asked = []

    def shrink(statements: Any, fails: Any) -> Any:
        asked.append(len(statements))
        return one_by_one(statements, fails)

    lesson_finding.install(SimpleNamespace(shrink=shrink))  # type: ignore[arg-type]
    fault, statements = lesson_finding.problems()[-1]
    adapter: Any = Changed(fault.change)
    adapter.info, adapter.reset = adapter.adapter.info, adapter.adapter.reset
    subject = Subject(adapter, "", [])
    with pytest.raises(Failure) as failed:
        subject.check_whole(protocol.program(statements))
    witness = failed.value.witness
    assert asked == [len(statements)] and witness is not None
    assert trimmed(witness["statements"]) == witness["statements"]
    assert len(witness["statements"]) < 9 and broken(Changed(fault.change), witness["statements"])


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "finding.md").read_text(encoding="utf-8")
    for parts in (WRONG[2][0], WRONG[13][0]):
        assert "\n".join(map(str.rstrip, next(said_of(parts)).strip().splitlines())) in page
    assert "\n".join(lesson_finding.score(solution)) in page
    assert len(LESSONS["finding"].hints) == 6 and "the next of six hints" in page
    assert json.dumps(solution.witness()[1]) in page
    real = learn.ROOT / "conformance" / "witnesses" / "tinygrad" / "lazy_reader_sees_later_write.py"
    assert real.exists() and real.name in page
