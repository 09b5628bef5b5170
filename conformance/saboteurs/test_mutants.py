"""What measures the portable suite: faults can be made, and some are found."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.saboteurs import mutants
from conformance.saboteurs.reaching import Reached
from conformance.trace import ROOT


@pytest.mark.parametrize("chosen", mutants.FAULTS)
def test_every_fault_can_be_made(chosen: str) -> None:
    for change in mutants.written(chosen=chosen):
        compile(change.text, change.file, "exec")


def test_a_fault_is_found_by_the_suite_alone() -> None:
    [fault] = mutants.written(name="what is empty keeps an element")
    assert mutants.tried(fault, mutants.Asked(0)).startswith("test_")


def test_mutants_are_drawn_from_the_seed() -> None:
    one, again, other = (mutants.drawn(3, seed, "runtime") for seed in (0, 0, 1))
    assert one == again != other
    of_one = mutants.drawn(3, 0, "impl", kind="ordering")
    assert {(each.kind, each.file) for each in of_one} == {("ordering", "impl/ordering.py")}
    assert mutants.table([(one[0], "test_x"), (one[1], ""), (one[2], "")]).endswith(
        "1 of    3    33 %")
    found = [(one[0], "test_x"), (one[1], ""), (one[2], mutants.UNCHANGED), (one[0], "test_y")]
    assert mutants.speed(found, [1, 50, 60, 3]) == \
        "found in 2.0 s (median), nine of ten in 3.0 s"


@pytest.mark.slow
def test_what_takes_too_long_is_neither_found_nor_alive() -> None:
    file = "conformance/saboteurs/runtime/schedule.py"
    code = (ROOT / file).read_text(encoding="utf-8")
    endless = mutants.Change("x", "endless", mutants.RUNTIME, file, code.replace(
        "def planned(", "def planned(*_, **__):\n    while True:\n        pass\n\n\ndef unused("))
    assert endless.text != code
    found = mutants.tried(endless, mutants.Asked(0, busy=2))
    assert found == f"{mutants.UNDECIDED}: in the first program"
    assert mutants.table([(endless, found), (endless, "test_x")]).splitlines() == [
        "x                 1 of    1   100 %", "all               1 of    1   100 %",
        "1 more were not decided in time"]
    assert not mutants.speed([(endless, found)], [3.0])


def test_what_takes_many_times_as_long_does_not_end() -> None:
    asked = mutants.Asked(0, reached=Reached({}, {"test_x": 0.5}, []))
    assert asked.is_endless("test_x", 21.0)
    assert not asked.is_endless("test_x", 19.0)
    assert not asked.is_endless("test_y", 500.0)
    assert not mutants.Asked(0).is_endless("test_x", 500.0)
    slow = mutants.Asked(0, reached=Reached({}, {"test_x": 3.0}, []))
    assert not slow.is_endless("test_x", 59.0)
    assert slow.is_endless("test_x", 61.0)


@pytest.mark.slow
def test_what_shows_the_same_is_no_part_of_the_rate() -> None:
    file, *_ = mutants.SUBJECTS["runtime"][1][0].rpartition("*")
    code = (ROOT / file / "schedule.py").read_text(encoding="utf-8")
    same = mutants.Change("x", "same", mutants.RUNTIME, f"{file}schedule.py", code + "# no change")
    other = mutants.Change("x", "other", mutants.RUNTIME, same.file,
                           code.replace("ALIGNMENT = 64", "ALIGNMENT = 32"))
    usual = mutants.usual(mutants.RUNTIME)
    found = [mutants.tried(each, mutants.Asked(0, "quick", usual)) for each in (same, other)]
    assert found[0] == mutants.UNCHANGED != found[1]
    assert mutants.table([(same, found[0])]) == "1 more show what the code itself shows"


def test_each_change_has_a_cache_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on disk is of the code as it stands: a change would hide behind it, and spoil it."""
    def folder(*_: object) -> str:
        return os.environ["CACHE_FOLDER"]
    monkeypatch.setattr(mutants, "found_by", folder)
    fault = mutants.written(name="what is empty keeps an element")[0]
    first, second = (mutants.tried(fault, mutants.Asked(0)) for _ in range(2))
    assert first != second and not Path(first).exists()
    assert os.environ.get("CACHE_FOLDER") not in (first, second)
