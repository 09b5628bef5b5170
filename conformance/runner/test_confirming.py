"""What is printed to be run was run, in a new process, and failed there."""
from __future__ import annotations

import json
import shlex
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import protocol
from conformance.oracle import OracleAdapter
from conformance.protocol import Info, Observation, Options, Program, Value
from conformance.runner.checks import SMOKE, Check, run_check
from conformance.runner.command import main
from conformance.runner.confirming import Question, options_of
from conformance.runner.report import Result
from conformance.runner.subject import Subject


def _spoilt(observation: Observation) -> Observation:
    return Observation([Value.of(each.name, -each.array()) for each in observation.values])


class WrongWhenFast(OracleAdapter):
    """Wrong while a setting is on."""

    def info(self) -> Info:
        return replace(super().info(), settings=("FAST",))

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        seen = super().run(program, observe, options)
        return _spoilt(seen) if (options or {}).get("settings", {}).get("FAST") else seen


class WrongTheSecondTime(OracleAdapter):
    """Wrong whenever something was run before, until it is reset."""

    ran = False

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        seen = super().run(program, observe, options)
        self.ran, before = True, self.ran
        return _spoilt(seen) if before else seen

    def reset(self) -> None:
        self.ran = False


def _result(adapter: str, tries: int = 1, **settings: int) -> Result:
    """What came of a check that asks about an addition, with a setting, so many times."""
    def asks(subject: Subject) -> None:
        def again(program: Program) -> None:
            for _ in range(tries):
                subject.check_values(program, settings=settings)
        subject.check_smallest(SMOKE, again)

    check = Check("test_values.test_asks", asks, ("a.b.c",), "values", ())
    return run_check(Subject.of(f"{__name__}:{adapter}"), check, ("values",), ())


def test_the_command_of_a_witness_has_all_that_it_needs(tmp_path: Path) -> None:
    found = _result("WrongWhenFast", FAST=1)
    assert found.verdict == "fail" and "--setting=FAST=1" in found.repro
    path = tmp_path / "witness.json"
    path.write_text(protocol.paste(found.witness or {}), encoding="utf-8")
    words = shlex.split(found.repro.replace("witness.json", str(path)))[3:]
    assert main(words) == 1  # and without the setting, nothing is wrong
    assert main([each for each in words if "FAST" not in each or "Fast" in each]) == 0


def test_what_fails_by_what_came_before_it_is_a_check_to_be_run() -> None:
    found = _result("WrongTheSecondTime", tries=2)
    assert found.verdict == "fail" and "fails alone" in found.message
    assert "--check test_values.test_asks" in found.repro


def test_a_question_is_what_its_command_says(capsys: pytest.CaptureFixture[str],
                                            tmp_path: Path) -> None:
    question = Question(SMOKE, ("order", "values"),
                        {"settings": {"A": 1, "B": 0}, "order_seed": 3, "poison": True})
    assert question.words() == ["--tier=order,values", "--setting=A=1", "--setting=B=0",
                                "--order-seed=3", "--poison"]
    assert options_of(["A=1", "B=0"], 3, True) == question.options
    assert options_of([], None, False) == {}
    (tmp_path / "program.json").write_text(json.dumps(SMOKE), encoding="utf-8")
    assert main(["run", str(tmp_path / "program.json"), "--impl",
                 f"{__name__}:WrongWhenFast", "--setting", "FAST"]) == 2
    assert "--setting NAME=1" in capsys.readouterr().out
