"""What is measured of the machine. Chapter: spec/cpu.md."""
from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Device
from impl.caching import disk
from impl.cpu import calibration
from impl.cpu.calibration import Measured, cached_bytes, worth_keeping
from impl.errors import CompileError

MIB = 1 << 20


@contextmanager
def kept_in(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """As if the default folder were this one."""
    with monkeypatch.context() as patch:
        patch.setattr(disk, "default_folder", lambda: str(folder))
        yield


@verifies("cpu.calibration.streams")
def test_the_greatest_size_that_the_caches_serve() -> None:
    fast, slow = (Measured(size * MIB, cached, 10.0) for size, cached in ((16, 8.0), (32, 14.0)))
    assert worth_keeping([slow, fast], told=300 * MIB) == 16 * MIB
    equal = Measured(16 * MIB, 10.5, 10.0)  # not faster by a tenth
    assert worth_keeping([slow, equal], told=300 * MIB) == 16 * MIB


@verifies("cpu.calibration.streams")
def test_where_the_caches_serve_all_or_nothing() -> None:
    served = [Measured(32 * MIB, 9.0, 10.0)]
    assert worth_keeping(served, told=300 * MIB) == 300 * MIB
    assert worth_keeping(served, told=8 * MIB) == 32 * MIB
    never = [Measured(size * MIB, 15.0, 10.0) for size in (32, 16, 8)]
    assert worth_keeping(never, told=300 * MIB) == 4 * MIB
    assert worth_keeping([], told=300 * MIB) == 300 * MIB


@verifies("cpu.calibration.streams")
def test_both_ways_are_measured_by_kernels_that_copy() -> None:
    """Each copies what it should, and one of them has the instruction for it where there is one."""
    copies = calibration._copies()
    for copy in copies:
        left, right = (calibration.fresh(2 * MIB, 64) for _ in range(2))
        left[:] = 7
        right[:] = 0
        copy(2, right.ctypes.data, left.ctypes.data)
        assert (right == 7).all()
    assert len(copies) == 2 or platform.machine() != "x86_64"
    found = calibration.measured_copies()
    assert len(found) >= bool(copies)
    assert all(each.cached > 0 and each.streamed > 0 for each in found)


@verifies("cpu.calibration.streams")
@pytest.mark.parametrize(("memory", "sizes"), [
    (1 << 30, [64, 32, 16, 8]), (512 * MIB, [32, 16, 8]), (128 * MIB, [8]), (64 * MIB, [])])
def test_little_memory_has_small_blocks(
        memory: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured may not be what a small control group ends a process for."""
    asked: list[int] = []

    def seconds(copy: object, count: int, *_: int) -> float:
        asked.append(count)
        return 2.0 if len(asked) % 2 else 1.0
    monkeypatch.setattr(calibration, "memory_bytes", lambda: memory)
    monkeypatch.setattr(calibration, "fresh", lambda size, _: np.zeros(1))
    monkeypatch.setattr(calibration, "_copies", lambda: [None, None])
    monkeypatch.setattr(calibration, "_seconds", seconds)
    found = calibration.measured_copies()
    assert [each.nbytes // MIB for each in found] == sizes


@verifies("cpu.calibration.streams")
def test_nothing_is_measured_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> bytes:
        raise CompileError("compile", "no", "none")
    monkeypatch.setattr(calibration, "compile_unit", refuses)
    assert calibration.measured_copies() == []


@verifies("cpu.calibration.streams")
def test_kernels_are_made_for_what_was_measured() -> None:
    assert Device["CPU"].limits.third_cache == cached_bytes()


@verifies("cpu.calibration.kept")
def test_it_is_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def measured() -> list[Measured]:
        asked.append(1)
        return [Measured(32 * MIB, 15.0, 10.0), Measured(16 * MIB, 10.0 + 5 * len(asked), 10.0)]
    monkeypatch.setattr(calibration, "measured_copies", measured)
    with kept_in(monkeypatch, tmp_path / "kept"):
        found = []
        for _ in range(2):  # as two processes would
            found.append(cached_bytes.__wrapped__())
    assert len(asked) == 1 and len(set(found)) == 1
    with kept_in(monkeypatch, tmp_path / "other"):
        cached_bytes.__wrapped__()
    assert len(asked) == 2


@verifies("cpu.calibration.kept")
def test_another_folder_for_kernels_has_the_same(tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a process with CACHE_FOLDER would make other kernels than one without."""
    sizes = iter((32, 16, 8))
    monkeypatch.setattr(calibration, "measured_copies",
                        lambda: [Measured(next(sizes) * MIB, 9.0, 10.0)])
    with kept_in(monkeypatch, tmp_path / "default"):
        first = cached_bytes.__wrapped__()
        with Context(CACHE_FOLDER=str(tmp_path / "own")):
            assert cached_bytes.__wrapped__() == first
    assert next(sizes) == 16


@verifies("cpu.calibration.kept")
def test_of_several_processes_the_first_one_is_believed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile() -> list[Measured]:
        monkeypatch.setattr(calibration, "measured_copies", lambda: never)
        assert cached_bytes.__wrapped__() == 4 * MIB  # another one is done before
        return [Measured(32 * MIB, 15.0, 10.0), Measured(16 * MIB, 9.0, 10.0)]
    never = [Measured(size * MIB, 15.0, 10.0) for size in (32, 16, 8)]
    monkeypatch.setattr(calibration, "measured_copies", meanwhile)
    with kept_in(monkeypatch, tmp_path):
        assert cached_bytes.__wrapped__() == 4 * MIB


@verifies("cpu.calibration.kept")
def test_another_processor_is_measured_for_itself(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "measured_copies", lambda: [Measured(32 * MIB, 9.0, 10.0)])
    with kept_in(monkeypatch, tmp_path):
        cached_bytes.__wrapped__()
        monkeypatch.setattr(calibration, "processor", lambda: "another")
        monkeypatch.setattr(calibration, "measured_copies",
                            lambda: [Measured(8 * MIB, 15.0, 10.0)])
        assert cached_bytes.__wrapped__() == 4 * MIB


@verifies("cpu.calibration.kept")
def test_a_damaged_entry_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "measured_copies", lambda: [])
    with kept_in(monkeypatch, tmp_path / "kept"):
        said = cached_bytes.__wrapped__()
        entry, = (tmp_path / "kept").glob("calibration-*.entry")
        head, _, content = entry.read_bytes().partition(b"\n")
        assert json.loads(content) == {"cached_bytes": said}
        entry.write_bytes(head + b"\n{}")
        assert cached_bytes.__wrapped__() == said


def test_what_is_printed_of_a_processor() -> None:
    said = subprocess.run([sys.executable, "-m", "impl.cpu"], capture_output=True, text=True,
                          check=True, env={**os.environ}).stdout
    assert "processors " in said and "kernels are made for" in said
