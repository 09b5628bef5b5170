"""Whatever an executable does, the suite gets an answer and goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance import oracle
from conformance.generators import programs
from conformance.protocol import ImplementationError, ProtocolError, Unsupported
from conformance.protocol.subprocess_adapter import SubprocessAdapter
from conformance.runner.checks import SMOKE, collect, run_check, run_suite, smoke
from conformance.runner.subject import Subject

DEMO = Path(__file__).parent.parent / "demo"


def misbehaving(manner: str) -> SubprocessAdapter:
    return SubprocessAdapter([sys.executable, str(DEMO / "misbehaving.py"), manner], timeout=60.0,
                             longest_line=1_000_000)


@pytest.fixture
def naive() -> Iterator[SubprocessAdapter]:
    adapter = SubprocessAdapter([sys.executable, str(DEMO / "naive.py")])
    yield adapter
    adapter.close()


@pytest.mark.parametrize(("manner", "message"), [
    ("crash", "ended with status 3"), ("half", "half a line"), ("garbage", "not an answer"),
    ("sequence", "answered with 99"), ("endless", "too long"), ("form", "'values' is missing"),
    ("deep", "not an answer")])
def test_each_breach_is_named_and_the_process_replaced(manner: str, message: str) -> None:
    adapter = misbehaving(manner)
    for _ in range(2):  # a fresh process takes the place of the broken one, to the same end
        with pytest.raises(ProtocolError, match=message):
            adapter.run(SMOKE, {"values"})
    adapter.close()


def test_a_request_that_is_not_answered_ends() -> None:
    adapter = misbehaving("hang")
    adapter.timeout = 0.3
    adapter.info()
    with pytest.raises(ProtocolError, match="no answer within 0.3 seconds"):
        adapter.run(SMOKE, {"values"})
    adapter.close()


def test_a_process_that_reads_nothing_ends() -> None:
    """What is sent does not fit into the pipe; writing it must not wait for ever."""
    adapter = misbehaving("deaf")
    large = {**SMOKE, "note": "x" * 1_000_000}
    adapter.run(SMOKE, {"values"})
    adapter.timeout = 0.3
    with pytest.raises(ProtocolError, match="it read nothing for 0.3 seconds"):
        adapter.run(large, {"values"})
    adapter.timeout = 60.0
    adapter.run(SMOKE, {"values"})  # by a fresh process
    adapter.close()


@pytest.mark.parametrize(("manner", "message"), [
    ("chatter", "not an answer: b'hello"), ("twice", "answered with 1")])
def test_what_is_said_without_being_asked_breaks_the_next_request(manner: str,
                                                                  message: str) -> None:
    adapter = misbehaving(manner)
    adapter.run(SMOKE, {"values"})
    with pytest.raises(ProtocolError, match=message):
        adapter.run(SMOKE, {"values"})
    adapter.close()


def test_what_a_crash_left_on_standard_error_is_shown() -> None:
    with pytest.raises(ProtocolError, match="about to crash"):
        misbehaving("crash").run(SMOKE, {"values"})


def test_noise_on_standard_error_means_nothing() -> None:
    adapter = misbehaving("noisy")
    assert adapter.run(SMOKE, {"values"}).values == []
    adapter.close()


def test_answers_that_are_no_results() -> None:
    with pytest.raises(Unsupported, match="add"):
        misbehaving("unsupported").run(SMOKE, {"values"})
    with pytest.raises(ImplementationError, match="no"):
        misbehaving("error").run(SMOKE, {"values"})


def test_what_cannot_be_started_breaks_the_harness_only() -> None:
    subject = Subject.of(command="./there-is-no-such-executable")
    assert "cannot be started" in smoke(subject)
    report = run_suite(subject, collect())
    assert not report.ok and not report.results and "cannot be started" in report.harness


def test_unsupported_that_was_not_declared_is_a_failure() -> None:
    subject = Subject(misbehaving("unsupported"), "", [])
    check = next(each for each in collect() if "effects.value.eager" in each.rules)
    assert run_check(subject, check, ["values"], ()).verdict == "fail"


@pytest.mark.parametrize("manner", ["crash", "garbage", "half", "sequence", "form", "error", "deep",
                                    "drip", "orphan", "shape", "endless", "hang"])
def test_each_breach_has_a_verdict(manner: str) -> None:
    adapter = misbehaving(manner)
    adapter.timeout = 0.5 if manner in ("drip", "orphan", "hang") else 60.0
    check = next(each for each in collect(["conventions"]) if "zero" in each.rules[0])
    subject = Subject(adapter, "", [], shrinks=False)
    verdict = run_check(subject, check, ["values"], ()).verdict
    assert verdict == ("fail" if manner == "shape" else "error")
    adapter.close()


def test_the_demo_agrees_with_the_oracle(naive: SubprocessAdapter) -> None:
    chosen = [*programs.witnesses().values(), *map(programs.random_program, range(60))]
    for program in chosen:
        assert not oracle.differences(program, naive.run(program, {"values"}).values)


@pytest.mark.slow
def test_the_demo_passes_the_suite(naive: SubprocessAdapter) -> None:
    subject = Subject(naive, "", naive.command, "quick")
    report = run_suite(subject, collect())
    assert report.ok, report.table()
    assert report.counts()["pass"] > 40
