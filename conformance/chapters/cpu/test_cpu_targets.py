"""Kernels for other processors than this one, and for other compilers. Chapter: spec/cpu.md."""
from __future__ import annotations

import platform
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conformance.kernels import crossed
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import load, param, store
from conformance.trace import verifies
from impl import Context, Tensor, settings
from impl.cpu import compiler, machine
from impl.device import Device
from impl.dtypes import dtypes
from impl.errors import CompileError, SettingError
from impl.ir import Ops, RangeKind, new_range

pytestmark = pytest.mark.device("CPU")
on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 has these")


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A compiler that writes down what it was told, a line for each run."""
    said, program = tmp_path / "said", tmp_path / "compiler"
    program.write_text(f'#!/bin/sh\necho "$@" >> {said}\nexec cc "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CC", str(program))
    with Context(CC=str(program), CACHELEVEL=0):
        yield said


@on_x86
@verifies("cpu.target.settings")
def test_kernels_are_made_for_the_target_that_is_named(words: Path) -> None:
    given = np.arange(100, dtype=np.float32)
    with Context(DEVICE="CPU", CPU_TARGET="x86-64"):
        found = (Tensor(given).realize() * 7.75).numpy()
    assert (found == given * np.float32(7.75)).all()
    made = [line for line in words.read_text().splitlines() if " -c " in line]
    assert made and all("-march=x86-64 " in line and "native" not in line for line in made)


@on_x86
@verifies("cpu.target.settings")
def test_steps_are_chosen_for_the_target_that_is_named() -> None:
    def chosen() -> tuple[tuple[int, int], tuple[str, ...]]:
        limits = Device["CPU"].limits
        program = Device["CPU"].compile([kb.matmul(48, 48, 48)])[0]
        return (limits.vector_bytes, limits.vector_registers), program.steps
    with Context(CPU_TARGET="x86-64"):
        narrow = chosen()
    assert narrow[0] == (16, 16) and any(step.endswith(",4)") for step in narrow[1])
    for extension, target, wanted in (("avx2", "x86-64-v3", (32, 16)),
                                      ("avx512vl", "x86-64-v4", (64, 32))):
        if extension in machine.own_features():
            with Context(CPU_TARGET=target):
                wide = chosen()
            assert wide[0] == wanted and wide[1] != narrow[1]


@verifies("cpu.target.settings")
def test_registers_of_processors() -> None:
    def registers(text: str) -> tuple[int, int, bool]:
        found = machine.vectors_of(frozenset(text.split()))
        return found.width, found.registers, found.dots
    assert registers("x8664 sse2") == (16, 16, False)
    assert registers("x8664 avx avx2 fma") == (32, 16, False)
    assert registers("x8664 avx2 avx512f") == (64, 32, False)
    assert registers("x8664 avx2 avx512f avx512vnni") == (64, 32, True)
    assert registers("aarch64 asimd") == registers("arm64") == (16, 32, False)


@verifies("cpu.target.settings")
def test_a_target_that_nobody_knows_is_an_error() -> None:
    with Context(CPU_TARGET="abacus"), pytest.raises(CompileError, match="CPU_TARGET=abacus"):
        _ = Device["CPU"].limits


@on_x86
@verifies("cpu.target.settings")
def test_a_target_that_is_wider_than_the_processor_is_an_error(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "own_features", lambda: frozenset(("x8664", "sse2", "avx")))
    compiler._features.cache_clear()
    with Context(CPU_TARGET="x86-64-v3"), pytest.raises(CompileError, match="no avx2, f16c, fma"):
        _ = Device["CPU"].limits
    with Context(CPU_TARGET="x86-64"):
        assert Device["CPU"].limits.vector_bytes == 16
    compiler._features.cache_clear()


@verifies("cpu.target.settings")
def test_vectors_of_any_width() -> None:
    given = np.random.default_rng(0).integers(-9, 9, (33, 50)).astype(np.float32)
    for width in (16, 32, 64):
        with Context(DEVICE="CPU", VECTOR_BYTES=width):
            x = Tensor(given).realize()
            assert Device["CPU"].limits.vector_bytes == width
            for value in (x * 3 + 1, x @ x.transpose(0, 1)):
                program = Device["CPU"].compile([value.schedule()[-1].ast])[0]
                assert f"f32x{width // 4}" in (program.source or "")
            assert ((x @ x.transpose(0, 1)).numpy() == given @ given.T).all()


@verifies("cpu.target.settings")
@verifies("settings.error.clear")
def test_no_other_width_is_taken() -> None:
    with pytest.raises(SettingError, match="VECTOR_BYTES.*48.*0, 16, 32, 64"):
        Context(VECTOR_BYTES=48)
    assert settings.get("VECTOR_BYTES") == 0


# Halves, where neither the compiler nor the processor knows them


def halves_of(values: np.ndarray) -> np.ndarray:
    """float32 or float64 as the bits of halves."""
    i = new_range(values.size, RangeKind.GLOBAL)
    read = load(param(1, dtypes.float32 if values.dtype == np.float32 else dtypes.float64), i)
    cast = kb.apply(Ops.CAST, read, dtype=dtypes.float16)
    out = np.zeros(values.size, np.float16)
    kb.run(kb.kernel(store(param(0, dtypes.float16), i, cast), prefix=(i,)), out, values)
    return out.view(np.uint16)


def floats_of(values: np.ndarray) -> np.ndarray:
    i = new_range(values.size, RangeKind.GLOBAL)
    cast = kb.apply(Ops.CAST, load(param(1, dtypes.float16), i), dtype=dtypes.float32)
    out = np.zeros(values.size, np.float32)
    kb.run(kb.kernel(store(param(0), i, cast), prefix=(i,)), out, values)
    return out


@on_x86
@verifies("cpu.values.reference")
@verifies("kernel.half.wide")
@pytest.mark.parametrize("noopt", [0, 1])
def test_halves_without_a_type_for_them(noopt: int) -> None:
    """Every half, and the floats and doubles at, between and beside neighbouring halves."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    known = every[np.isfinite(every)].astype(np.float64)
    known = np.unique(np.append(known, [65536.0, 1e30, -65536.0, -1e30]))
    middle = (known[1:] + known[:-1]) / 2
    exact = np.concatenate([known, middle, np.nextafter(middle, 1e300),
                            np.nextafter(middle, -1e300), [np.inf, -np.inf, 1e-300, -1e-300]])
    single = np.concatenate([exact.astype(np.float32), np.nextafter(
        middle.astype(np.float32), np.float32(1e30))])
    with np.errstate(all="ignore"):
        wanted = exact.astype(np.float16), single.astype(np.float16)
    with Context(CC="cc -U__FLT16_MAX__", CPU_TARGET="x86-64", CACHELEVEL=0, NOOPT=noopt):
        assert (floats_of(every).view(np.uint32)[~np.isnan(every)]
                == every.astype(np.float32).view(np.uint32)[~np.isnan(every)]).all()
        assert np.isnan(floats_of(every[np.isnan(every)])).all()
        assert (halves_of(exact) == wanted[0].view(np.uint16)).all()
        assert (halves_of(single) == wanted[1].view(np.uint16)).all()
        assert np.isnan(halves_of(np.full(20, np.nan, np.float32)).view(np.float16)).all()
        assert np.isnan(halves_of(np.full(20, np.nan)).view(np.float16)).all()


# Processors that are not there


@verifies("cpu.values.reference")
def test_kernels_for_another_processor_give_what_is_right() -> None:
    """Under an emulator; a kernel that is wrong is seen."""
    problem = crossed.missing()
    if problem:
        pytest.skip(problem)
    kernels = [given for seed in range(4000, 4006) for given in crossed.drawn(seed)]
    assert crossed.check(kernels) == []
    other = kernels[0].case.arguments[0]
    other.after = other.after[::-1] + 1
    assert len(crossed.check(kernels[:1])) == 1


@verifies("cpu.values.reference")
def test_chunks_of_another_processor() -> None:
    problem = crossed.missing()
    if problem:
        pytest.skip(problem)
    kernels = [given for seed in range(4010, 4014) for given in crossed.drawn(seed, threads=2)]
    assert crossed.check(kernels) == []
