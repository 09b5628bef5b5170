"""A run of the suite: what it demands of a check, what it writes down, and how it ends."""
from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.oracle import OracleAdapter
from conformance.protocol import Adapter, Info, Observation, Options, Program
from conformance.runner import report
from conformance.runner.checks import Check, collect, run_check, run_suite
from conformance.runner.command import main
from conformance.runner.interruption import UNREAD, heed_termination
from conformance.runner.subject import Subject
from conformance.saboteurs.__main__ import DEMO
from conformance.trace import ROOT


class SaysNothing:
    """A right implementation that claims every tier, but nothing ever happens in its schedules."""

    def __init__(self, adapter: Adapter, manner: str) -> None:
        self.adapter, self.manner = adapter, manner

    def info(self) -> Info:
        return self.adapter.info()

    def reset(self) -> None:
        self.adapter.reset()

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        seen = self.adapter.run(program, observe, options or {})
        if self.manner == "no documents":
            seen.schedule = []
        for document in seen.schedule:
            document.update(kernels=[], dependencies=[], order=[], boundaries=[])
            if "memory" in document:
                document["memory"].update(placements=[], arenas=[], planned=0, unplanned=0,
                                          lower_bound=0)
        return seen

    def close(self) -> None:
        getattr(self.adapter, "close", lambda: None)()


#: The checks that ask about schedules, also about those of several devices.
SCHEDULED = [check for check in collect() if check.tier in ("schedule", "order", "memory")
             or check.tier == "multi" and check.rules[0].split(".")[0] in (
                 "schedule", "dependencies", "ordering", "memory")]
#: What these ask about is not in the schedules that say nothing; the others are about plans.
OF_PLANS = [check for check in collect() if check.tier == "cache"]


@pytest.mark.slow
@pytest.mark.parametrize("manner", ["no documents", "empty documents"])
def test_a_rule_whose_condition_never_occurs_is_not_passed(manner: str) -> None:
    """It has not been verified: there was nothing that could have broken it."""
    subject = Subject.of(command=DEMO)
    subject.wrap = lambda adapter: SaysNothing(adapter, manner)
    subject.adapter = subject.wrap(subject.adapter)
    try:
        checks: list[Check] = SCHEDULED + (OF_PLANS if manner == "no documents" else [])
        passed = [check.name for check in checks
                  if run_check(subject, check, subject.info.observes, ()).verdict == "pass"]
    finally:
        subject.close()
    assert len(checks) > 12 and not passed


def test_what_met_nothing_is_inconclusive_which_is_no_failure() -> None:
    subject = Subject.of(command=DEMO, profile="quick")
    subject.wrap = lambda adapter: SaysNothing(adapter, "empty documents")
    subject.adapter = subject.wrap(subject.adapter)
    try:
        found = run_suite(subject, [check for check in collect(["memory", "dependencies"])
                                    if check.tier != "values"])
    finally:
        subject.close()
    assert found.ok and found.counts().get("inconclusive", 0) >= 4, found.table()
    assert "pass" not in found.counts()
    assert "INCONCLUSIVE test_memory.test_what_is_alive" in found.table()
    assert "no two temporaries were ever alive together" in found.table()


class OneDevice(OracleAdapter):
    """Claims the tier `multi`, and lists one device."""

    def info(self) -> Info:
        return replace(super().info(), observes=("values", "multi"))


class TwoDevices(OneDevice):
    """Has two devices, of which nobody sees where one ends."""

    def info(self) -> Info:
        return replace(super().info(), devices=("one", "other"))


def test_the_tier_multi_is_of_two_devices() -> None:
    checks = collect(["multi"])
    found = run_suite(Subject(OneDevice(), "", []), checks)
    assert "the tier multi with 1 device" in found.harness and not found.results
    found = run_suite(Subject(TwoDevices(), "", []), checks)
    verdicts = {each.test.split(".")[1]: each.verdict for each in found.results}
    assert found.ok and found.counts() == {"pass": 4, "unsupported": 8}, verdicts
    found = run_suite(Subject(OracleAdapter(), "", []), checks, tiers=["multi"])
    assert found.counts() == {"unsupported": len(checks)}


def test_the_quick_profile_asks_every_check_and_fewer_programs() -> None:
    counts = {}
    for profile in ("quick", "ci"):
        subject = Subject.of("conformance.oracle:OracleAdapter", profile=profile)
        found = run_suite(subject, collect(["conventions", "tensor", "effects"]))
        assert found.ok
        counts[profile] = {each.test: each.examples for each in found.results
                           if each.verdict == "pass"}
    assert counts["quick"].keys() == counts["ci"].keys()
    assert all(counts["ci"][test] >= count > 0 for test, count in counts["quick"].items())
    assert sum(counts["quick"].values()) < sum(counts["ci"].values()) / 2


def test_a_report_says_how_it_was_made(tmp_path: Path) -> None:
    path = tmp_path / "a report.jsonl"
    words = ["--impl", "conformance.oracle:OracleAdapter", "--chapter", "dtypes",
             "--report", str(path)]
    assert main(words) == 0
    assert shlex.split(report.read(path)[0]["command"]) == ["python", "-m", "conformance", *words]


def interrupted(subject: Subject) -> None:
    raise KeyboardInterrupt


def test_nobody_has_to_read_all_that_is_printed() -> None:
    """As in `python -m conformance rules | head`."""
    with subprocess.Popen([sys.executable, "-m", "conformance", "rules"], cwd=ROOT,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == UNREAD


def test_an_interrupted_run_leaves_a_report_that_says_so(tmp_path: Path) -> None:
    subject = Subject.of("conformance.oracle:OracleAdapter")
    checks = collect(["dtypes"])
    assert len(checks) >= 2
    checks[1] = replace(checks[1], function=interrupted)
    found = run_suite(subject, checks)
    found.write(tmp_path / "report.jsonl")
    header, *tests, footer = report.read(tmp_path / "report.jsonl")
    assert [each["test"] for each in tests] == [checks[0].name] and not footer["ok"]
    assert footer["interrupted"] == f"in {checks[1].name}, after 1 of {len(checks)} tests"
    assert f"INTERRUPTED {footer['interrupted']}" in found.table()


def test_a_signal_that_got_lost_ends_the_run_before_the_next_test() -> None:
    """Python drops what is raised in a destructor, and so the signal with it."""
    def lost(subject: Subject) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)

    subject = Subject.of("conformance.oracle:OracleAdapter")
    checks = collect(["dtypes"])
    checks[0] = replace(checks[0], function=lost)
    before = signal.getsignal(signal.SIGTERM)
    try:
        heed_termination()
        found = run_suite(subject, checks)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert found.interrupted == f"in {checks[1].name}, after 1 of {len(checks)} tests"


#: Ctrl-C may be ignored in what starts the tests; here it is not.
PROGRAM = """
import signal, sys
from conformance.runner.command import main
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("words", [
    ["--chapter", "effects"], ["fuzz", "--count", "100000", "--chunk", "20"],
    ["fuzz", "--count", "100000", "--chunk", "20", "-n", "2"]], ids=["suite", "fuzz", "fuzz -n"])
def test_a_run_that_is_ended_says_so_in_one_line(words: list[str], number: int,
                                                 tmp_path: Path) -> None:
    """And leaves a report, no traceback and no process."""
    program, path = tmp_path / "program.py", tmp_path / "report"
    program.write_text(PROGRAM, encoding="utf-8")
    fuzzing = words[0] == "fuzz"
    run = subprocess.Popen(
        [sys.executable, str(program), *words, "--impl", f"{__name__}:Slow", "--report", str(path)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "STARTED": str(tmp_path / "started")})
    started = path if fuzzing else tmp_path / "started"
    while not started.exists() and run.poll() is None:
        time.sleep(0.05)
    if number == signal.SIGINT:
        os.killpg(run.pid, number)  # as a terminal does: to all of them
    else:
        run.send_signal(number)
    out, err = run.communicate()
    assert run.returncode == 130, err
    assert "Traceback" not in out + err
    assert "interrupted after" in err if fuzzing else "INTERRUPTED" in out
    if fuzzing:
        known = json.loads(path.read_text(encoding="utf-8"))
        assert known["interrupted"] and not known["complete"]
    else:
        assert "interrupted" in report.read(path)[-1]
    while living(run.pid):  # what it has started ends with it, if not at once
        time.sleep(0.05)


#: A command as its module runs it, which says when it has begun.
COMMAND = """
import pathlib, signal, sys, time
from conformance.runner.interruption import quietly, status_of
def command():
    pathlib.Path("started").touch()
    while True:
        time.sleep(0.01)
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if len(sys.argv) > 1:
        import subprocess
        command = lambda: status_of(subprocess.Popen([sys.executable, __file__]))
    sys.exit(quietly(command))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("words", [[], ["in another process"]])
def test_any_command_that_is_ended_says_so_in_one_line(words: list[str], number: int,
                                                       tmp_path: Path) -> None:
    """Also one that runs in a process of its own, as that of `sanitize` does."""
    program = tmp_path / "command.py"
    program.write_text(COMMAND, encoding="utf-8")
    run = subprocess.Popen([sys.executable, str(program), *words], text=True, cwd=tmp_path,
                           stderr=subprocess.PIPE, start_new_session=True,
                           env={**os.environ, "PYTHONPATH": str(ROOT)})
    while not (tmp_path / "started").exists() and run.poll() is None:
        time.sleep(0.05)
    if number == signal.SIGINT:
        os.killpg(run.pid, number)
    else:
        run.send_signal(number)
    _, err = run.communicate()
    assert (run.returncode, err) == (130, "interrupted\n")
    while living(run.pid):
        time.sleep(0.05)


def living(group: int) -> list[int]:
    """The processes of a group that run; none where the system does not say."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of, *_ = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(of) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


class Slow(OracleAdapter):
    """Right, and takes its time."""

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        Path(os.environ["STARTED"]).touch()
        time.sleep(0.01)
        return super().run(program, observe, options)
