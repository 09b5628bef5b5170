"""The fuzzer: what it reports, where it goes on, and that it survives what it tests."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import protocol
from conformance.generators import coverage, effect_programs, programs
from conformance.oracle import OracleAdapter
from conformance.protocol import Info, Observation, Options, Program, Value, shapes
from conformance.runner import fuzz
from conformance.runner.fuzz import Fuzzing, Job, explained, options_of, run_chunk, shares

RIGHT = "conformance.oracle:OracleAdapter"


class WrongAboutFlips(OracleAdapter):
    """Answers zeros where a program flips something."""

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        seen = super().run(program, observe, options)
        if any(each["do"] == "flip" for each in program["statements"]):
            seen.values = [Value(v.name, v.dtype, v.shape, "07" * (len(v.data) // 2))
                           for v in seen.values]
        return seen


class Refusal(Exception):
    """What an implementation that refuses says."""


class RefusesOrIsWrong(WrongAboutFlips):
    """Refuses what it is not wrong about."""

    def info(self) -> Info:
        return replace(super().info(), choices={"refuses": ["Refusal"]})

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        if not any(each["do"] == "flip" for each in program["statements"]):
            raise Refusal("not without a flip")
        return super().run(program, observe, options)


def test_a_failure_is_not_shrunk_to_a_refusal() -> None:
    job = Job(f"{__name__}:RefusesOrIsWrong", count=40, styles="effects", most_failures=2)
    failures = run_chunk(job, 0, 40).failures
    assert len(failures) == 2
    for each in failures:
        assert any(statement["do"] == "flip" for statement in each["witness"]["statements"])
        assert not each["shrunk"].startswith("Refusal")


class DiesOnBits(OracleAdapter):
    """Takes its process with it when it is asked for bits."""

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        if any(each["do"] == "bitcast" for each in program["statements"]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(program, observe, options)


def test_every_list_of_choices_is_a_well_formed_program_of_effects() -> None:
    for number in range(300):
        program = effect_programs.random_program(number, 20)
        protocol.check("program", program)
        shapes.check_program(program)
    assert effect_programs.random_program(7) == effect_programs.random_program(7)


def test_every_hazard_is_generated() -> None:
    met = {name for number in range(400)
           for name in coverage.hazards(effect_programs.random_program(number, 14))}
    assert met == set(coverage.HAZARDS)


def test_hazards_are_told_apart() -> None:
    witnesses = programs.witnesses()
    waiting = coverage.hazards(witnesses["reader-before-view-write"])
    assert {"reader waits", "reader observed", "view shrink"} <= waiting and "swap" not in waiting
    assert "swap" in coverage.hazards(witnesses["swap-halves-lazy"])
    assert "swap" not in coverage.hazards(witnesses["several-writers-after-a-read"])
    assert "write from moved value" in coverage.hazards(witnesses["shift-up-in-place"])
    assert "write from moved value" not in coverage.hazards(witnesses["uint8-wraps-around"])
    assert "capture with state" in coverage.hazards(witnesses["replayed-state-advances"])


def test_a_run_reports_what_it_did(tmp_path: Path) -> None:
    path, said = tmp_path / "report.json", io.StringIO()
    job = Job(RIGHT, seed=3, count=60, styles="effects", chunk=20)
    tally = Fuzzing(job, 1, path, tell=said, every=0).run()
    report = json.loads(path.read_text())
    assert report["complete"] and len(report["chunks"]) == 3 and not tally.failures
    assert report["tally"]["programs"] + report["tally"]["skipped"] == 60
    assert report["tally"]["hazards"]["reader waits"] > 10
    assert said.getvalue().count("a second") == 4
    assert "RAW" in report["not met"]  # the oracle schedules nothing


def test_a_cut_run_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    job = Job(RIGHT, count=60, styles="effects", chunk=20)
    whole = Fuzzing(job, 1, path).run()
    cut = json.loads(path.read_text())
    cut["tally"] = run_chunk(job, 0, 20).to_json()
    cut["chunks"] = [[0, 20]]
    path.write_text(json.dumps(cut))
    again = Fuzzing(job, 1, path, resume=True)
    assert len(again.done) == 1
    assert again.run() == whole
    with pytest.raises(ValueError, match="another job"):
        Fuzzing(Job(RIGHT, count=61), 1, path, resume=True)


def test_a_failure_is_shrunk_and_can_be_pasted() -> None:
    job = Job(f"{__name__}:WrongAboutFlips", count=200, styles="effects", most_failures=1)
    tally = Fuzzing(job, 1, tell=io.StringIO()).run()
    [failure] = tally.failures
    # An input, a flip, an observation, and what makes the zero of the target visible.
    assert len(failure["witness"]["statements"]) <= 4
    assert "python -m conformance run witness.json" in explained(failure)


def test_a_process_that_dies_is_a_failure_of_its_chunk() -> None:
    job = Job(f"{__name__}:DiesOnBits", count=30, styles="effects", chunk=15, most_failures=9)
    fuzzing = Fuzzing(job, 2, tell=io.StringIO())
    tally = fuzzing.run()
    bits = [number for number in range(30)
            if "bits" in coverage.hazards(effect_programs.random_program(number, job.size))]
    assert [each["program"] for each in tally.failures] == sorted({n // 15 * 15 for n in bits})
    assert tally.failures and "died" in explained(tally.failures[0])
    assert len(fuzzing.done) == 2


class WithoutDoubles(OracleAdapter):
    """A device that has no float64."""

    def info(self) -> Info:
        known = super().info()
        return replace(known, dtypes=tuple(each for each in known.dtypes if each != "float64"))


def test_each_program_runs_on_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a device lacks something the others still run; a failure says on which device."""
    monkeypatch.setattr(fuzz, "ON_DEVICES", __name__)
    job = Job(count=40, chunk=20, devices="OracleAdapter,WithoutDoubles")
    tally = Fuzzing(job, tell=io.StringIO()).run()
    assert tally.devices["OracleAdapter"] == tally.programs > tally.everywhere > 20
    assert tally.devices["WithoutDoubles"] == tally.everywhere and not tally.failures
    job = Job(count=200, styles="effects", most_failures=1, devices="OracleAdapter,WrongAboutFlips")
    [failure] = Fuzzing(job, tell=io.StringIO()).run().failures
    assert failure["device"] == "WrongAboutFlips" and "WrongAboutFlips" in explained(failure)


def test_shares_of_settings() -> None:
    assert shares("a:2 b") == ["a", "a", "b"]
    with pytest.raises(ValueError, match="shares"):
        shares("")
    job = Job(settings="ordinary NOOPT=1,DEVICE=REFERENCE", orders=True)
    found = [options_of(job, number) for number in range(40)]
    assert [options_of(job, number) for number in range(40)] == found
    assert {setting for _, setting, _ in found} == {"ordinary", "NOOPT=1,DEVICE=REFERENCE"}
    assert all(options["order_seed"] == number for number, (_, _, options) in enumerate(found))
    assert {"NOOPT": 1, "DEVICE": "REFERENCE"} in [o.get("settings") for _, _, o in found]
