"""Process replay: recording in one process, asking again in this one. Chapter: spec/playback.md."""
from __future__ import annotations

import contextlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from conformance.trace import ROOT, verifies
from impl import Context, Tensor, Variable, playback
from impl.caching import Store, disk
from impl.device import Device
from impl.playback import __main__ as command_line
from impl.playback import compare, records
from impl.schedule import schedule_cache


@contextlib.contextmanager
def recording(device: str = "", **settings: Any) -> Iterator[Path]:
    """A folder in which everything that happens meanwhile is recorded."""
    path = Path(tempfile.mkdtemp())
    schedule_cache.clear()
    named = {"DEVICE": device} if device else {}
    try:
        with mock.patch.object(disk, "_said", set()), \
                mock.patch.object(records, "_recorded", set()), \
                Context(CAPTURE_PROCESS_REPLAY=1, CACHE_FOLDER=str(path), CACHELEVEL=1,
                        **named, **settings):
            yield path / "process_replay"
    finally:
        shutil.rmtree(path, ignore_errors=True)


def numbers(*shape: int) -> Tensor:
    size = int(np.prod(shape))
    return Tensor(np.arange(size, dtype=np.float32).reshape(shape)).realize()


def work() -> None:
    """Schedules of all sorts: several kernels, writes, held versions, variables, random numbers."""
    Tensor.manual_seed(1)  # the upper bits of a seed are a constant of the graph
    x, state = numbers(8, 8), numbers(8)
    (x.softmax(1) @ x).sum(0).realize()
    held = Tensor(state.uop)
    state.assign(state + x.sum(0))
    Tensor.realize(state, held)
    (x * Variable("count", 1, 9).bind(4)).flip(0).realize()
    shifted = x[1:4]
    shifted.assign(x[0:3] * 2)
    late = x + 1
    Tensor.realize(x, late, shifted)
    Tensor.rand(5).realize()
    (x[numbers(3).cast("int32")].pad(((1, 0), (0, 2))) * -0.0).realize()


def outcomes(folder: Path) -> list[str]:
    return sorted(verdict.outcome for verdict in playback.replay(folder))


def command(folder: Path, *more: str) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        status = command_line.main([str(folder), *more])
    return status, text.getvalue()


def only_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


@verifies("playback.record.complete", observe="schedule")
def test_everything_is_recorded_and_comes_out_again() -> None:
    with recording("REFERENCE") as folder:
        work()
        found = [record for _, record in playback.read_records(folder)]
        assert len(found) == len(schedule_cache) >= 6
        assert all(isinstance(r, playback.Record) and "test_playback.py" in r.line for r in found)
        assert outcomes(folder) == ["same"] * len(found)
        for setting in ("FUSE", "NO_MEMORY_PLANNER"):
            with Context(**{setting: 1 if setting.startswith("NO_") else 0}):
                work()
        assert outcomes(folder) == ["same"] * (3 * len(found))


@verifies("playback.record.complete", observe="schedule")
@pytest.mark.device("CPU")
def test_another_process_asks_the_same() -> None:
    """Other seeds of hashes, no shared memory: the names and the answers are the same."""
    code = "from conformance.chapters.playback.test_playback import work; work()"
    with recording() as folder:
        names = []
        for seed in ("1", "2"):
            environment = {**os.environ, "CAPTURE_PROCESS_REPLAY": "1", "CACHELEVEL": "1",
                           "CACHE_FOLDER": str(folder.parent), "PYTHONHASHSEED": seed,
                           "DEVICE": "CPU"}
            subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, check=True)
            names.append(sorted(path.name for path in folder.iterdir()))
        assert names[0] == names[1]
        kinds = [r.kind for _, r in playback.read_records(folder) if isinstance(r, records.Record)]
        assert kinds.count("schedule") >= 6 and kinds.count("program") >= 6
        assert outcomes(folder) == ["same"] * len(kinds)
        status, text = command(folder)
        assert status == 0 and f"{len(kinds)} same, 0 changed, 0 skipped" in text


@verifies("playback.record.complete", observe="schedule")
def test_nothing_is_recorded_unasked() -> None:
    with recording("REFERENCE") as folder, Context(CAPTURE_PROCESS_REPLAY=0):
        work()
        assert not folder.exists()


@verifies("playback.replay.told", observe="schedule")
def test_other_kernels_are_shown() -> None:
    """The recorded settings are those that count, and not those of the replay."""
    with recording("REFERENCE") as folder:
        x = numbers(8, 8)
        (x.softmax(1) @ x).sum(0).realize()
        with Context(FUSE=0):
            assert outcomes(folder) == ["same"]
        plain = compare.realize.environment
        with mock.patch.object(compare.realize, "environment",
                               lambda effects: compare_without_fusion(plain(effects))):
            (verdict,) = playback.replay(folder)
            status, text = command(folder)
        assert verdict.outcome == "changed" and "\n-order [0" in verdict.detail
        assert "\n+kernels {" in verdict.detail and "\n+dependencies {" in verdict.detail
        assert status == 1 and "changed in" in text and "kernels" in text
        assert command(folder)[0] == 0


def compare_without_fusion(environment: Any) -> Any:
    from dataclasses import replace
    return replace(environment, fuse=False)


@verifies("playback.replay.told", observe="schedule")
@pytest.mark.parametrize("part", ["order", "memories", "dependencies", "accesses"])
def test_each_part_of_a_schedule_is_compared(part: str) -> None:
    with recording("REFERENCE") as folder:
        x = numbers(64, 64)
        ((x @ x).contiguous() @ (x.T @ x).contiguous()).sum().realize()
        plain = compare.make_plan

        def spoiled(*given: Any) -> Any:
            plan = plain(*given)
            value = getattr(plan, part)
            assert value, "there is nothing to be changed"
            setattr(plan, part, value[::-1] if part in ("order", "accesses") else
                    {} if part == "memories" else value[1:])
            return plan

        with mock.patch.object(compare, "make_plan", spoiled):
            assert outcomes(folder) == ["changed"]


@verifies("playback.replay.told", observe="schedule")
@pytest.mark.device("CPU")
def test_another_source_text_is_shown() -> None:
    with recording("CPU") as folder:
        (numbers(16) * 1.375).realize()
        kind = type(Device["CPU"])
        plain = kind.source
        with mock.patch.object(kind, "source",
                               lambda self, ast: f"{plain(self, ast)}\n// one line more"):
            status, text = command(folder)
        assert status == 1 and "1 same, 1 changed" in text
        assert "\n    +// one line more\n" in text


@verifies("playback.replay.told", observe="schedule")
def test_an_error_is_another_answer() -> None:
    with recording("REFERENCE") as folder:
        (numbers(4) + 1).realize()
        with mock.patch.object(compare, "make_plan", side_effect=RuntimeError("no idea")):
            status, text = command(folder)
        assert status == 1 and "RuntimeError: no idea" in text


@verifies("playback.replay.told", observe="schedule")
def test_nothing_compared_is_no_success() -> None:
    with recording("REFERENCE") as folder:
        assert command(folder) == (2, f"{folder} is not there; nothing was compared\n")
        folder.mkdir(mode=0o700)
        assert command(folder)[0] == 2
        (numbers(4) + 1).realize()
        assert command(folder)[0] == 0
        file = only_file(folder)
        file.write_bytes(file.read_bytes()[:-1])
        assert command(folder)[0] == 2


@verifies("playback.replay.told", observe="schedule")
def test_what_cannot_be_compared_is_skipped() -> None:
    with recording("REFERENCE") as folder:
        (numbers(4) + 1).realize()
        (_, record), = playback.read_records(folder)
        assert isinstance(record, records.Record)
        pickled = pickle.dumps(record, 4)
        store, older = Store(folder), b"tensor-schedule-record/0\n"
        store.put(records.KIND, "older", older + pickled)
        store.put(records.KIND, "garbage", records.FORMAT.encode() + b"\n" + pickled[:-40])
        record.settings["NO_SUCH_SETTING"] = 1
        store.put(records.KIND, "setting", records.FORMAT.encode() + b"\n" + pickle.dumps(record))
        del record.settings["NO_SUCH_SETTING"]
        record.device = "QUANTUM"
        store.put(records.KIND, "device", records.FORMAT.encode() + b"\n" + pickle.dumps(record))
        assert outcomes(folder) == ["same"] + ["skipped"] * 4
        status, text = command(folder)
        assert status == 0 and "1 same, 0 changed, 4 skipped" in text
        for reason in ("record/0", "NO_SUCH_SETTING", "QUANTUM", "cannot be read"):
            assert reason in text


@verifies("playback.replay.told", observe="schedule")
@pytest.mark.device("CPU")
def test_programs_of_another_processor_are_skipped() -> None:
    with recording("CPU") as folder:
        (numbers(16) * 1.625).realize()
        with mock.patch.object(type(Device["CPU"]), "plan_key", lambda self: ("another",)):
            assert outcomes(folder) == ["same", "skipped"]


class Intruder:
    """Whoever loads it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


@verifies("playback.record.private", observe="schedule")
def test_what_others_could_have_written_is_not_loaded() -> None:
    with recording("REFERENCE") as folder:
        (numbers(4) + 1).realize()
        file = only_file(folder)
        if hasattr(os, "geteuid"):
            file.chmod(0o666)
            with contextlib.redirect_stderr(io.StringIO()):
                assert outcomes(folder) == ["skipped"]
            file.chmod(0o600)
            folder.chmod(0o777)
            status, text = command(folder)
            assert status == 2 and "chmod" in text
            folder.chmod(0o700)
        made = folder.parent / "made"
        Store(folder).put(records.KIND, "intruder", records.FORMAT.encode() + b"\n"
                          + pickle.dumps(Intruder(str(made)), 4))
        assert outcomes(folder) == ["same", "skipped"] and not made.exists()


@verifies("playback.record.private", observe="schedule")
def test_a_folder_of_others_is_not_written_either() -> None:
    with recording("REFERENCE") as folder, contextlib.redirect_stderr(io.StringIO()) as text:
        folder.mkdir()
        folder.chmod(0o777)
        (numbers(4) + 1).realize()
        (numbers(5) + 1).realize()
        if hasattr(os, "geteuid"):
            assert not list(folder.iterdir()) and len(text.getvalue().splitlines()) == 1
