"""The stress commands, for a few seconds each; and that they see what is wrong."""
from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from conformance.oracle import OracleAdapter
from conformance.protocol import Observation, Options, Program, Value
from conformance.runner import stress
from conformance.trace import verifies


class Wrong(OracleAdapter):
    """Right, but that one value has another shape in every third run."""

    def __init__(self) -> None:
        self.runs = 0

    def run(self, program: Program, observe: Collection[str],
            options: Options | None = None) -> Observation:
        self.runs += 1
        seen = super().run(program, observe, options)
        if self.runs % 3 == 0 and seen.values:
            last = seen.values[-1]
            seen.values[-1] = Value.of(last.name, np.zeros((*last.shape, 2), np.int8))
        return seen


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = stress.main(arguments)
    return status, capsys.readouterr().out


@pytest.mark.slow
@verifies("realize.thread.serial+2")
def test_threads_for_some_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run(capsys, "threads", "--seconds", "4")
    assert status == 0 and "wrong: 0" in text, text


@pytest.mark.slow
@pytest.mark.device("CPU")
@verifies("cpu.cache.whole")
def test_processes_for_some_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run(capsys, "processes", "--seconds", "4", "--round", "2")
    assert status == 0 and "wrong: 0" in text and "0 rounds" not in text, text


@pytest.mark.slow
@pytest.mark.device("CPU")
@verifies("cpu.cache.whole")
def test_processes_that_are_killed(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run(capsys, "kill", "--times", "3")
    assert status == 0 and "3 killed" in text and "torn: 0" in text, text


def test_wrong_values_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    status, text = run(capsys, "threads", "--seconds", "1", "--impl",
                       "conformance.runner.test_stress:Wrong")
    assert status == 1 and "wrong: 0" not in text, text


def test_torn_files_are_seen(tmp_path: Path) -> None:
    name = hashlib.sha256(b"content").hexdigest()
    (tmp_path / f"{name}.so").write_bytes(b"content")
    (tmp_path / "other").write_bytes(b"content")
    assert not stress.torn(tmp_path)
    (tmp_path / f"{name}.so").write_bytes(b"conten")
    assert stress.torn(tmp_path) == [f"{name}.so is torn"]


def test_a_process_that_fails_is_wrong(tmp_path: Path) -> None:
    parser_options = Namespace(size=5, impl="no.such.module:Adapter", impl_cmd="",
                                      folder_variable="CACHE_FOLDER")
    (tmp_path / "tmp").mkdir()
    (found,) = stress.outcome(stress.worker(parser_options, tmp_path, count=1)).wrong
    assert "no" in found and "ModuleNotFoundError" in found
