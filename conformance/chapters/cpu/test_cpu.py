"""Compiling, the cache of compiled kernels, the table of launches. Chapter: spec/cpu.md."""
from __future__ import annotations

import ctypes
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, INT, flat, load, param, reduce, store
from conformance.trace import verifies
from impl import Context, GlobalCounters, Tensor, cpu, symbolic
from impl.caching import disk
from impl.cpu import backend, compiler, objects
from impl.device import Device
from impl.dtypes import DType, dtypes
from impl.errors import CompileError
from impl.ir import COMPARISONS, Ops, RangeKind, UOp, new_range
from impl.render import SourceText, symbol

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.device("CPU")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A process that knows no kernel yet, with a cache folder of its own."""
    monkeypatch.setattr(objects, "loaded", objects.Objects())
    monkeypatch.setattr(disk, "_stores", disk.Stores())
    monkeypatch.setattr(disk, "_said", set())
    with Context(CACHE_FOLDER=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process would know."""
    monkeypatch.setattr(objects, "loaded", objects.Objects())
    monkeypatch.setattr(disk, "_stores", disk.Stores())
    monkeypatch.setattr(disk, "_said", set())
    Device["CPU"].programs.clear()
    GlobalCounters.reset()


def object_in(folder: Path) -> Path:
    """The object of the one kernel that is kept there; the runtime may be in another."""
    said = next(folder.glob("kernel-*.entry")).read_bytes().partition(b"\n")[2]
    return folder / str(json.loads(said)["object"])


def scaled(count: int, factor: float, name: str = "scaled") -> UOp:
    i = new_range(count, RangeKind.GLOBAL)
    value = kb.apply(Ops.MUL, load(param(1), i), kb.number(FLOAT, factor))
    return kb.kernel(store(param(0), i, value), prefix=(i,), name=name)


def check(ast: UOp, factor: float, count: int = 10) -> None:
    out = np.zeros(count, np.float32)
    kb.run(ast, out, np.arange(count, dtype=np.float32))
    assert (out == np.arange(count, dtype=np.float32) * np.float32(factor)).all()


def patiently(event: threading.Event, turns: int = 300) -> bool:
    """Whether an event comes while this thread has so many turns: few on a busy machine."""
    return any(event.wait(0.01) for _ in range(turns))


# Compiling


@verifies("cpu.compile.shared+2")
def test_all_kernels_of_a_call_share_compiler_runs(fresh: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0
    plain = objects.compile_unit

    def counted(*given: object) -> bytes:
        nonlocal runs
        runs += 1
        return plain(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(objects, "compile_unit", counted)
    monkeypatch.setattr(objects, "processors", lambda: 2)
    asts = [scaled(10, 1 + n / 7) for n in range(20)]
    Device["CPU"].compile(asts)
    assert runs <= 2
    for n, ast in enumerate(asts):
        check(ast, 1 + n / 7)


@verifies("cpu.compile.shared+2")
def test_compilers_run_while_the_last_kernel_is_printed(fresh: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    plain, printed, begun, printing = objects.compile_unit, backend.render, threading.Event(), 0

    def compiled(command: list[str], unit: list[Any], *given: Any) -> bytes:
        if any(source.name == "scaled" for _, source in unit):  # not the runtime alone
            begun.set()
        return plain(command, unit, *given)

    def rendered(*given: object) -> object:
        nonlocal printing
        printing += 1
        if printing == 4:
            assert patiently(begun), "nothing was compiled before the last kernel was printed"
        return printed(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(objects, "compile_unit", compiled)
    monkeypatch.setattr(backend, "render", rendered)
    monkeypatch.setattr(objects, "_WORTH_STARTING", 200)
    asts = [scaled(10, 1 + n / 7) for n in range(4)]
    Device["CPU"].compile(asts)
    assert printing == 4
    for n, ast in enumerate(asts):
        check(ast, 1 + n / 7)


@verifies("cpu.compile.shared+2")
@pytest.mark.parametrize(("count", "wanted"), [
    (1, [["printed"], ["printed"], ["one", "two", "ts_run"]]),
    (2, [["ts_run"], ["printed"], ["printed"], ["one", "two"]])])
def test_the_runtime_is_compiled_by_who_has_nothing_to_do(
        count: int, wanted: list[list[str]], fresh: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[list[str]] = []
    start, printed = objects.Build._start, backend.render

    def started(build: objects.Build, unit: list[Any]) -> None:
        happened.append([source.name for _, source in unit])
        start(build, unit)

    def rendered(*given: Any) -> object:
        happened.append(["printed"])
        return printed(*given)

    monkeypatch.setattr(objects, "processors", lambda: count)
    monkeypatch.setattr(objects.Build, "_start", started)
    monkeypatch.setattr(backend, "render", rendered)
    asts = [scaled(10, 1.75, "one"), scaled(12, 1.75, "two")]
    Device["CPU"].compile(asts)
    assert happened == wanted
    for ast, size in zip(asts, (10, 12), strict=True):
        check(ast, 1.75, size)


@verifies("cpu.compile.shared+2")
@pytest.mark.parametrize(("count", "wanted"), [
    (1, [2, 6, 2]), (2, [2, 2, 6]), (8, [2, 2, 2, 2, 2])])
def test_units_are_longer_where_all_processors_have_a_compiler(
        count: int, wanted: list[int], fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units: list[int] = []
    start = objects.Build._start

    def started(build: objects.Build, unit: list[Any]) -> None:
        start(build, unit)
        units.append(sum(source is not objects.RUNTIME for _, source in unit))

    asts = [scaled(10, 1.5 + n / 8) for n in range(10)]
    Device["CPU"].compile([scaled(9, 1.5)])  # the runtime is there
    monkeypatch.setattr(objects, "_length", len)
    monkeypatch.setattr(objects, "_WORTH_STARTING", 2)
    monkeypatch.setattr(objects, "_WORTH_A_PROCESS", 100)
    monkeypatch.setattr(objects, "processors", lambda: count)
    monkeypatch.setattr(objects.Build, "_start", started)
    Device["CPU"].compile(asts)
    assert units == wanted


@verifies("cpu.compile.once")
def test_kernels_that_differ_in_names_only_are_compiled_once(fresh: Path) -> None:
    GlobalCounters.reset()
    one, two = Device["CPU"].compile([scaled(10, 3, "one"), scaled(10, 3, "two")])
    assert GlobalCounters.compiled == 1
    assert (one.name, two.name) == ("one", "two")
    assert one.function == two.function  # type: ignore[attr-defined]


@verifies("cpu.compile.failure")
def test_a_missing_compiler_is_named(fresh: Path) -> None:
    with Context(CC="no-such-compiler"), pytest.raises(CompileError) as caught:
        Device["CPU"].compile([scaled(10, 1.25)])
    for part in ("CC=no-such-compiler", "DEVICE=REFERENCE", "test_cpu.py"):
        assert part in str(caught.value)


@verifies("cpu.compile.failure")
def test_a_refused_kernel_is_kept(fresh: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "broken-cc"
    compiler.write_text("#!/bin/sh\ntest \"$1\" = --version && echo 1 && exit 0\n"
                        "echo 'error: no more registers' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with Context(CC=str(compiler)), pytest.raises(CompileError) as caught:
        Device["CPU"].compile([scaled(10, 1.5, "unlucky")])
    message = str(caught.value)
    for part in ("no more registers", "unlucky", "NOOPT=1", "test_cpu.py"):
        assert part in message
    kept = Path(message.split("the source is in ")[1].split(";")[0])
    assert "void kernel_" in kept.read_text()
    kept.unlink()


@verifies("cpu.compile.failure")
@pytest.mark.parametrize(("compiler", "said"), [
    ("false", "false .*refused unlucky(, ts_run)?: it ended with status 1 and said nothing"),
    ("true", "true .*refused unlucky(, ts_run)?: it ended with status 0 and wrote no file")])
def test_what_is_no_compiler_is_said_to_be_none(compiler: str, said: str, fresh: Path) -> None:
    with Context(CC=compiler), pytest.raises(CompileError, match=said) as caught:
        Device["CPU"].compile([scaled(10, 1.5, "unlucky")])
    Path(str(caught.value).split("the source is in ")[1].split(";")[0]).unlink()


@verifies("cpu.compile.failure")
def test_what_stood_beside_a_refused_kernel_is_kept(
        fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = objects.compile_unit

    def refusing(command: list[str], unit: list[Any], line: str) -> bytes:
        if any(source.name == "unlucky" for _, source in unit):
            raise CompileError("compile", "refused unlucky", "none")
        return compiled(command, unit, line)

    asts = [scaled(10 + place, 1.5, name) for place, name in enumerate(("one", "unlucky", "two"))]
    monkeypatch.setattr(objects, "_WORTH_STARTING", 0)  # each kernel in a run of its own
    monkeypatch.setattr(objects, "compile_unit", refusing)
    with pytest.raises(CompileError, match="unlucky"):
        Device["CPU"].compile(asts)
    monkeypatch.undo()
    before = GlobalCounters.compiled
    Device["CPU"].compile(asts)
    assert GlobalCounters.compiled == before + 1


@verifies("realize.nested.apart")
def test_the_handler_of_a_signal_compiles_while_a_compiler_is_started(
        fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pools of a process have a lock in common, which the thread has then."""
    class Interrupted(ThreadPoolExecutor):
        inside = False

        def submit(self, *given: Any, **named: Any) -> Any:
            assert not Interrupted.inside, "it would wait for ever"
            Interrupted.inside = True
            try:
                check(scaled(10, 4.25), 4.25)
                return super().submit(*given, **named)
            finally:
                Interrupted.inside = False
    monkeypatch.setattr(objects, "ThreadPoolExecutor", Interrupted)
    check(scaled(10, 4.75), 4.75)
    assert GlobalCounters.compiled >= 2


@verifies("cpu.compile.linked")
@pytest.mark.skipif(sys.platform != "linux", reason="another linker")
def test_what_calls_nothing_is_linked_without_libraries(tmp_path: Path) -> None:
    said, script = tmp_path / "said", tmp_path / "compiler"
    name, *words = compiler.required_compiler()
    script.write_text(f'#!/bin/sh\necho "$@" >> {said}\nexec {name} "$@"\n')
    script.chmod(0o755)
    calls = "{ double x = *((double **)args)[0]; *((double **)args)[0] = fma(tgamma(x), x, 1); }"
    before = "double tgamma(double), fma(double, double, double);"
    for text, libraries, stored in (("{ *((double **)args)[0] += 1; }", 0, 6), (calls, 1, 121)):
        source = SourceText("one", text, (before,), "void {name}(void **args)")
        made = compiler.compile_unit([str(script), *words], [("one", source)], "")
        assert ("-lm" in said.read_text().splitlines()[-1]) == libraries
        path = tmp_path / f"{stored}.so"
        path.write_bytes(made)
        value = ctypes.c_double(5)
        ctypes.CDLL(str(path))[symbol("one")](ctypes.byref(ctypes.pointer(value)))
        assert value.value == stored
    # What CC says of the language of a source is not so of an object.
    assert compiler.compile_unit([str(script), *words, "-x", "c"], [("one", source)], "")


@verifies("cpu.call.clean")
@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64",
                    reason="other registers, or another linker")
def test_a_call_of_the_library_finds_clean_registers() -> None:
    """Without it a float64 exponential took 270 ns, and with it 11."""
    with Context(DEVICE="CPU", CPU_TARGET="x86-64-v3"):
        body = ("{ f64x4 *x = ((f64x4 **)args)[0]; f64x4 y = *x + *x, z;"
                " for (long l = 0; l < 4; l++) z[l] = __builtin_exp(y[l]); *x = z + y; }")
        kind = "typedef double f64x4 __attribute__((vector_size(32)));"
        source = SourceText("one", body, (kind,), "void {name}(void **args)")
        made = compiler.compile_unit(compiler.required_compiler(), [("one", source)], "")
    assert b"\xc5\xf8\x77" in made  # vzeroupper


# Values


@verifies("cpu.values.reference")
@pytest.mark.parametrize("noopt", [0, 1])
def test_random_kernels_store_what_the_reference_stores(noopt: int) -> None:
    kernels = [kb.random_kernel(1000 + seed) for seed in range(40)]
    with Context(NOOPT=noopt):
        Device["CPU"].compile([made.ast for made in kernels])
        for seed, made in enumerate(kernels):
            found = made.result(made.ast, "CPU", seed)
            assert (found == made.result(made.ast, "REFERENCE", seed)).all(), seed


def expressions(dtype: DType) -> list[UOp]:
    """Kernels out[i] = f(a[i], b[i]) that a compiler may be tempted to simplify."""
    i = new_range(64, RangeKind.GLOBAL)
    a, b = load(param(1, dtype), i), load(param(2, dtype), i)
    one, nothing = kb.number(dtype, 1), kb.number(dtype, 0)
    pairs = [Ops.ADD, Ops.SUB, Ops.MUL, Ops.MAXIMUM, Ops.MINIMUM, Ops.CMPLT, Ops.CMPLE, Ops.CMPEQ,
             Ops.CMPNE]
    values = [kb.apply(op, a, b) for op in pairs]
    values += [kb.apply(op, a, a) for op in (Ops.SUB, Ops.CMPEQ, Ops.CMPNE, Ops.MAXIMUM)]
    values += [kb.apply(Ops.SUB, kb.apply(Ops.ADD, a, b), a), kb.apply(Ops.ADD, a, nothing),
               kb.apply(Ops.MUL, a, nothing), kb.apply(Ops.SUB, nothing, a),
               kb.apply(Ops.CMPLT, a, kb.apply(Ops.ADD, a, one)),
               kb.apply(Ops.MUL, kb.apply(Ops.MUL, a, b), b)]
    if dtype.kind == "f":
        values += [kb.apply(op, a) for op in kb.FLOAT_FUNCTIONS]
        values += [kb.apply(Ops.DIV, a, b), kb.apply(Ops.DIV, a, a),
                   kb.apply(Ops.DIV, a, kb.number(dtype, 3)),
                   kb.apply(Ops.MUL, kb.apply(Ops.SQRT, a), kb.apply(Ops.SQRT, a))]
    else:
        values += [kb.apply(op, a, b) for op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.SHL, Ops.SHR)]
    wide = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)
    values += [kb.apply(Ops.CAST, kb.apply(Ops.CAST, a, dtype=other), dtype=dtype)
               for other in wide]
    # Comparisons are stored as numbers, so that all outputs have one type.
    values = [kb.apply(Ops.CAST, v, dtype=dtype) if v.op in COMPARISONS else v for v in values]
    return [kb.kernel(store(param(0, dtype), i, value), prefix=(i,)) for value in values]


def results(asts: Sequence[UOp], dtype: DType) -> list[bytes]:
    """What each kernel stores, NaN as one pattern."""
    found = []
    for ast in asts:
        out = np.zeros(64, dtype.numpy)
        given = [kb.special(dtype), kb.special(dtype, seed=1)]
        kb.run(ast, out, *given[:Device["CPU"].compile([ast])[0].arguments - 1])
        seen = kb.to_host(out, dtype)
        found.append(np.where(seen != seen, np.float32("nan"), seen).tobytes())
    return found


@pytest.mark.slow
@verifies("cpu.flags.safe")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint8],
                         ids=lambda d: d.name)
def test_flags_change_no_value(fresh: Path, monkeypatch: pytest.MonkeyPatch,
                               dtype: DType) -> None:
    """With all flags, kernels give the bits that they give without any optimisation."""
    asts = expressions(dtype)
    Device["CPU"].compile(asts)
    fast = results(asts, dtype)
    forget(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "FLAGS", ("-O0", "-std=gnu11", "-fPIC", "-fwrapv",
                                          "-ffp-contract=off", "-w"))
        Device["CPU"].compile(asts)
        assert GlobalCounters.compiled > len(asts) // 2
        plain = results(asts, dtype)
    forget(monkeypatch)
    different = [ast.src[0].src[1] for ast, one, two in zip(asts, fast, plain, strict=True)
                 if one != two]
    assert not different, [(value.op.name, [s.op.name for s in value.src]) for value in different]


@verifies("cpu.flags.safe")
def test_a_compiler_that_knows_fewer_flags_compiles(fresh: Path, tmp_path: Path) -> None:
    """GCC 10, say: an unknown flag is an error, except where the version is asked for."""
    named = shutil.which("gcc")
    if named is None or "Free Software Foundation" not in compiler.compiler_identity((named,)):
        pytest.skip("no GCC")
    older = tmp_path / "older-gcc"
    older.write_text('#!/bin/sh\nfor each; do test "$each" = -fno-ipa-modref && exit 1; done\n'
                     f'exec {named} "$@"\n')
    older.chmod(0o755)
    with Context(DEVICE="CPU", CC=str(older)):
        assert (Tensor([1.0, 2.0]).realize() * 1.375).tolist() == [1.375, 2.75]
    assert GlobalCounters.compiled


@verifies("cpu.flags.safe")
@verifies("dtypes.cast.float")
@pytest.mark.parametrize("whole", [dtypes.int32, dtypes.int64, dtypes.uint64],
                         ids=lambda d: d.name)
@pytest.mark.parametrize("kind", [dtypes.float16, dtypes.float32, dtypes.float64],
                         ids=lambda d: d.name)
def test_a_float_that_was_an_integer_is_one(kind: DType, whole: DType) -> None:
    """GCC 12 makes a truncation of two casts, which would leave -0 and NaN as they are."""
    values = [np.nan, np.inf, -0.5, -0.0, 2.7, 300.0, 1e30, -1e30]
    with np.errstate(over="ignore"):
        given = np.array(values).astype(kind.numpy)
    with Context(DEVICE="CPU"):
        back = Tensor(given).realize().cast(whole).cast(kind)
        seen, bounded = back.numpy(), back.tanh().numpy()
    assert seen[2:6].tolist() == [0.0, 0.0, 2.0, 300.0] and not np.signbit(seen[2:4]).any()
    assert not np.isnan(seen).any() and not np.isnan(bounded).any()
    if kind is not dtypes.float16:  # the largest integers are infinite as float16
        assert np.isfinite(seen).all() and (seen == np.trunc(seen)).all()


@pytest.mark.slow
@verifies("cpu.flags.safe")
@verifies("conventions.zero.sign")
@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int64, dtypes.bool, dtypes.float16,
                                   dtypes.float32], ids=lambda d: d.name)
def test_zero_less_zero_is_not_negative(dtype: DType, noopt: int) -> None:
    """GCC 12 takes 0.0 - x for -x where it sees that x is a cast or a choice."""
    with Context(DEVICE="CPU", NOOPT=noopt):
        for count in (3, 8):
            x = Tensor([0] * count, dtype=dtype).realize()
            for found in (0.0 - x, 0.0 - x.cast("float64"), 0.0 - x.cast("float32").abs(),
                          0.0 - (x > 0).cast("float32"), 0.0 - (x > 0).where(1.0, 0.0)):
                assert not np.signbit(found.numpy()).any()
        minus = 0.0 - Tensor([-0.0, 2.0, -math.inf]).realize()
        assert [repr(number) for number in minus.tolist()] == ["0.0", "-2.0", "inf"]


# The cache


@verifies("cpu.cache.key")
def test_a_second_process_compiles_nothing(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asts = [scaled(10, 2.5), kb.softmax(4, 20)]
    Device["CPU"].compile(asts)
    forget(monkeypatch)
    Device["CPU"].compile(asts)
    assert (GlobalCounters.compiled, GlobalCounters.cache_hits) == (0, 2)
    check(asts[0], 2.5)


@verifies("cpu.cache.key")
def test_the_key_has_all_that_matters(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another kernel, other flags, another compiler, another processor: compiled again."""
    def compiled(factor: float = 2.5) -> int:
        forget(monkeypatch)
        Device["CPU"].compile([scaled(10, factor)])
        return GlobalCounters.compiled

    assert (compiled(), compiled()) == (1, 0)
    assert compiled(2.75) == 1
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "FLAGS", (*cpu.FLAGS, "-DOTHER"))
        assert compiled() == 1
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "compiler_identity", lambda command: "another compiler")
        assert compiled() == 1
    compiler._identity.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "processor", lambda: "another processor")
        assert compiled() == 1
    compiler._identity.cache_clear()
    assert compiled() == 0


@verifies("cpu.cache.key")
@pytest.mark.skipif(os.name == "nt", reason="a compiler that is a script")
def test_another_compiler_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for name in ("one", "two", "one"):
        script = tmp_path / name / "compiler-of-a-path"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\necho compiler {name}\n")
        script.chmod(0o755)
        with monkeypatch.context() as patch, Context(CC=script.name):
            patch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
            keys.append(compiler.compiled_by())
    assert keys[0] == keys[2] != keys[1]


@verifies("cpu.object.trusted")
def test_another_object_under_the_same_name_is_not_loaded(
        fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the function that is looked for, and could be loaded."""
    program = Device["CPU"].compile([scaled(10, 3.25)])[0]
    unit = object_in(fresh)
    unit.unlink()
    other = fresh / "other.c"
    called = symbol(program.key)  # type: ignore[attr-defined]
    other.write_text(f"void {called}(void **args) {{ (*(float **)args)[0] = 42; }}\n")
    subprocess.run([*compiler.find_compiler(), "-shared", "-fPIC", "-o", str(unit), str(other)],
                   check=True)
    forget(monkeypatch)
    check(scaled(10, 3.25), 3.25)
    assert GlobalCounters.compiled == 1


@verifies("cpu.object.trusted")
@pytest.mark.parametrize("damage", ["empty", "garbage", "cut", "swapped", "entry", "gone", "path",
                                    "forged"])
def test_a_damaged_object_is_built_again(fresh: Path, damage: str,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never loaded: most of these would crash the process, or give other numbers."""
    Device["CPU"].compile([scaled(10, 3.5)])
    entry, unit = next(fresh.glob("kernel-*.entry")), object_in(fresh)
    content = unit.read_bytes()
    unit.unlink()  # a library that is in use must not change under its user
    written = {"empty": b"", "garbage": b"\x7fELF" + os.urandom(5000), "cut": content[:2000],
               "swapped": content, "entry": content, "path": content,
               "forged": content}
    if damage in written:
        unit.write_bytes(written[damage])
    if damage == "swapped":  # the object of another kernel
        other = fresh / "other"
        with Context(CACHE_FOLDER=str(other)):
            Device["CPU"].compile([scaled(10, 4.5)])
        unit.unlink()
        unit.write_bytes(object_in(other).read_bytes())
    if damage == "entry":
        entry.write_text('{"format": 1')
    if damage in ("path", "forged"):
        head, _, content = entry.read_bytes().partition(b"\n")
        changed = json.dumps({**json.loads(content), "object": "../x.so"}).encode()
        if damage == "forged":  # also its checksum
            head = b" ".join((*head.split()[:-1], hashlib.sha256(changed).hexdigest().encode()))
        entry.write_bytes(head + b"\n" + changed)
    forget(monkeypatch)
    check(scaled(10, 3.5), 3.5)
    assert GlobalCounters.compiled == 1


@verifies("cpu.object.trusted")
def test_the_folder_belongs_to_its_owner(fresh: Path, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    Device["CPU"].compile([scaled(10, 5.5)])
    assert fresh.stat().st_mode & 0o077 == 0
    fresh.chmod(0o777)
    forget(monkeypatch)
    check(scaled(10, 5.5), 5.5)
    assert GlobalCounters.compiled == 1, "an object that others may have written was loaded"
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and str(fresh) in error and "chmod" in error


@verifies("cpu.cache.without")
def test_an_unusable_folder_stops_nobody(fresh: Path, tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with Context(CACHE_FOLDER=str(blocked / "cache")):
        check(scaled(10, 6.5), 6.5)
        check(scaled(10, 6.75), 6.75)
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and str(blocked) in error


@verifies("cpu.cache.without")
def test_level_zero_leaves_the_folder_alone(fresh: Path) -> None:
    with Context(CACHELEVEL=0):
        check(scaled(10, 7.5), 7.5)
    assert not fresh.exists()


@verifies("cpu.cache.without")
def test_level_zero_reads_nothing(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(scaled(10, 7.25), 7.25)
    before = sorted(fresh.iterdir())
    forget(monkeypatch)
    with Context(CACHELEVEL=0):
        check(scaled(10, 7.25), 7.25)
    assert GlobalCounters.compiled == 1 and sorted(fresh.iterdir()) == before


@verifies("cpu.cache.whole")
def test_files_get_their_names_in_order_when_they_are_whole(
        fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed leaves no part of a file, and no entry without its object."""
    whole: dict[str, bytes] = {}
    plain = os.replace

    def replace(source: str, target: Path) -> None:
        whole[target.name] = Path(source).read_bytes()
        if target.name.startswith("kernel-"):
            assert json.loads(whole[target.name].partition(b"\n")[2])["object"] in whole
        plain(source, target)

    monkeypatch.setattr(os, "replace", replace)
    Device["CPU"].compile([scaled(10, 8.5), scaled(10, 9.5)])
    assert {each.name: each.read_bytes() for each in fresh.iterdir()} == whole
    assert sum(name.startswith("kernel-") for name in whole) == 2


@pytest.mark.slow
@verifies("cpu.cache.whole")
def test_processes_share_a_folder(tmp_path: Path) -> None:
    """Several at once, all with the same kernels: each gets right ones, and no rest is left."""
    code = ("from conformance.chapters.cpu import test_cpu as t\n"
            "for n in range(6): t.check(t.scaled(10, 1 + n), 1 + n)\n")
    environment = {**os.environ, "CACHE_FOLDER": str(tmp_path / "cache"), "CACHELEVEL": "1"}
    running = [subprocess.Popen([sys.executable, "-c", code], env=environment,
                                stderr=subprocess.PIPE, cwd=ROOT)
               for _ in range(3)]
    for process in running:
        assert process.communicate()[1] == b"" and process.returncode == 0
    assert not list((tmp_path / "cache").glob(".new-*"))


KILLED = """
import os, signal, sys, threading, time
from conformance.chapters.cpu import test_cpu as t
moment = float(sys.argv[1])
if moment < 0:    # between writing the file and giving it its name
    left, plain = int(-moment), os.replace
    def replace(*given):
        global left
        left -= 1
        os.kill(os.getpid(), signal.SIGKILL) if left == 0 else plain(*given)
    os.replace = replace
else:
    threading.Timer(moment, os.kill, (os.getpid(), signal.SIGKILL)).start()
for n in range(50):
    t.Device["CPU"].compile([t.scaled(10, n + 0.5), t.scaled(10, n + 0.75)])
time.sleep(60)  # if it has been as quick as that
"""


@pytest.mark.slow
@verifies("cpu.cache.whole")
@pytest.mark.parametrize("moment", [-1, -2, -3, 0.05, 0.12, 0.3])
def test_a_killed_process_leaves_nothing_wrong(fresh: Path, monkeypatch: pytest.MonkeyPatch,
                                               moment: float) -> None:
    environment = {**os.environ, "CACHE_FOLDER": str(fresh), "CACHELEVEL": "1"}
    run = subprocess.run([sys.executable, "-c", KILLED, str(moment)], env=environment, cwd=ROOT,
                         check=False, capture_output=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    for entry in fresh.glob("kernel-*.entry"):
        content = entry.read_bytes().partition(b"\n")[2]
        assert (fresh / json.loads(content)["object"]).exists()
    forget(monkeypatch)
    for n in range(3):
        check(scaled(10, n + 0.5), n + 0.5)
    forget(monkeypatch)
    check(scaled(10, 0.5), 0.5)
    assert GlobalCounters.compiled == 0


@verifies("cpu.cache.whole")
def test_a_process_killed_while_the_compiler_runs(fresh: Path, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler outlives the process that started it."""
    plain, begun, killed = cpu.find_compiler()[0], tmp_path / "begun", tmp_path / "killed"
    compiler = tmp_path / "slow-cc"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec {plain} --version\n'
                        f'touch {begun}\nwhile [ ! -e {killed} ]; do sleep 0.01; done\n'
                        f'exec {plain} "$@"\n')
    compiler.chmod(0o755)
    environment = {**os.environ, "CACHE_FOLDER": str(fresh), "CACHELEVEL": "1",
                   "CC": str(compiler)}
    process = subprocess.Popen([sys.executable, "-c", KILLED, "60"], env=environment, cwd=ROOT,
                               stderr=subprocess.DEVNULL)
    while not begun.exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL and begun.exists()
    killed.touch()
    forget(monkeypatch)
    with Context(CC=str(compiler)):
        check(scaled(10, 0.5), 0.5)
    assert GlobalCounters.compiled == 1


@verifies("cpu.threads.process")
def test_a_launch_does_not_wait_for_a_compiler(fresh: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread compiles until the launch is over."""
    program = Device["CPU"].compile([scaled(10, 3)])[0]
    memories = [Device["CPU"].allocate(40) for _ in range(2)]
    plain, begun, launched = objects.compile_unit, threading.Event(), threading.Event()
    waited: list[bool] = []

    def compiled(*given: object) -> bytes:
        begun.set()
        waited.append(patiently(launched))
        return plain(*given)  # type: ignore[arg-type]

    def work() -> None:
        with Context(CACHE_FOLDER=str(fresh)):
            Device["CPU"].compile([scaled(10, 4)])

    monkeypatch.setattr(objects, "compile_unit", compiled)
    other = threading.Thread(target=work)
    other.start()
    assert patiently(begun, 3000)
    program(memories)
    launched.set()
    other.join()
    assert waited == [True]


@verifies("cpu.threads.process")
def test_threads_compile_and_run_at_once(fresh: Path) -> None:
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            with Context(CACHE_FOLDER=str(fresh)):
                for n in range(4):
                    check(scaled(10, 1 + (n + thread) % 5), 1 + (n + thread) % 5)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# Launches and memory


@verifies("cpu.table.call")
def test_a_table_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Device["CPU"].compile([scaled(4, 1)])[0]
    memories = [Device["CPU"].allocate(16) for _ in range(2)]
    calls = 0
    run = objects.loaded.run

    def counted(*given: object) -> int:
        nonlocal calls
        calls += 1
        return int(run(*given))

    monkeypatch.setattr(objects.loaded, "run", counted)
    table = Device["CPU"].table([(program, memories, ())] * 1000)
    table.run()
    assert calls == 1


@verifies("cpu.memory.kept")
def test_freed_memory_is_used_again() -> None:
    block = Device["CPU"].allocate(12_345)
    address = block.address
    del block
    assert Device["CPU"].allocate(12_345).address == address


# Witnesses of compiler faults


@verifies("cpu.compiler.fault")
@pytest.mark.parametrize("noopt", [0, 1])
def test_conditional_loads_that_stand_together(noopt: int) -> None:
    """GCC 12 gives all vectors of a group of conditional loads the mask of the first.

    Here an inner loop of four is written out, and the loop around it becomes a vector loop.
    """
    n, r, j, j2, j3 = (new_range(size, kind) for size, kind in (
        (4, RangeKind.GLOBAL), (3, RangeKind.GLOBAL), (4, RangeKind.LOOP), (4, RangeKind.LOOP),
        (2, RangeKind.LOOP)))
    valid = symbolic.logical_and(symbolic.less_than(0, n), symbolic.less_than(n, 3))
    address = symbolic.add(flat((n, 12), (r, 4), (j, 1)), -12)
    row = kb.local(0, 4, INT)
    ast = kb.kernel(store(row, j, load(param(2, INT), address, valid), j),
                    store(param(0, INT), flat((n, 12), (r, 4), (j2, 1)), load(row, j2), j2),
                    store(param(1, INT), flat((n, 6), (r, 2), (j3, 1)),
                          load(row, symbolic.mul(j3, 3)), j3), prefix=(n, r))
    given = np.arange(-2, 22, dtype=np.int32).reshape(2, 3, 4)
    whole, strided = np.full((4, 3, 4), 7, np.int32), np.full((4, 3, 2), 7, np.int32)
    with Context(NOOPT=noopt):
        kb.run(ast, whole, strided, given)
    wanted = np.pad(given, ((1, 1), (0, 0), (0, 0)))
    assert (whole == wanted).all() and (strided == wanted[:, :, ::3]).all()


@verifies("cpu.compiler.fault")
@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_padding_with_its_own_slice(device: str, noopt: int) -> None:
    """The same, as a user writes it: a padded tensor, and every third of its last axis."""
    given = np.arange(-2, 22, dtype=np.int32).reshape(2, 3, 4)
    with Context(DEVICE=device, NOOPT=noopt):
        x = Tensor(given).realize()
        whole = x.pad(((1, 1), (0, 0), (0, 0)))
        strided = whole[:, :, ::3]
        Tensor.realize(whole, strided)
        wanted = np.pad(given, ((1, 1), (0, 0), (0, 0)))
        assert (whole.numpy() == wanted).all() and (strided.numpy() == wanted[:, :, ::3]).all()


@verifies("cpu.compiler.fault")
@pytest.mark.parametrize("noopt", [0, 1])
def test_conditional_loads_from_small_stage_buffers(noopt: int) -> None:
    """GCC 12 thinks that a masked load of a vector cannot read from a smaller array."""
    n, r, j, j2, j3 = (new_range(size, kind) for size, kind in (
        (4, RangeKind.GLOBAL), (3, RangeKind.GLOBAL), (2, RangeKind.LOOP), (2, RangeKind.LOOP),
        (5, RangeKind.LOOP)))
    row = kb.local(0, 2, INT)
    valid = symbolic.logical_and(symbolic.less_than(1, j3), symbolic.less_than(j3, 4))
    ast = kb.kernel(
        store(row, j, load(param(2, INT), flat((n, 1), (r, 4), (j, 12))), j),
        store(param(0, INT), flat((n, 6), (r, 2), (j2, 1)), load(row, j2), j2),
        store(param(1, INT), flat((n, 15), (r, 5), (j3, 1)),
              load(row, symbolic.add(j3, -2), valid), j3), prefix=(n, r))
    given = np.arange(-2, 22, dtype=np.int32).reshape(2, 3, 4)
    turned, padded = np.full((4, 3, 2), 7, np.int32), np.full((4, 3, 5), 7, np.int32)
    with Context(NOOPT=noopt):
        kb.run(ast, turned, padded, given)
    assert (turned == given.transpose(2, 1, 0)).all()
    assert (padded == np.pad(given.transpose(2, 1, 0), ((0, 0), (0, 0), (2, 1)))).all()


@verifies("cpu.compiler.fault")
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.int32, dtypes.int64], ids=lambda d: d.name)
def test_windows_with_padding(dtype: object) -> None:
    """Convolutions with gates, in types that need several vectors for one loop."""
    kind = next(d for d in (dtypes.int8, dtypes.int32, dtypes.int64) if d is dtype)
    for width, taps in ((5, 3), (16, 3), (33, 5)):
        row, x, k = (new_range(size, loop) for size, loop in (
            (6, RangeKind.GLOBAL), (width, RangeKind.GLOBAL), (taps, RangeKind.REDUCE)))
        place = symbolic.sub(symbolic.add(x, k), taps // 2)
        valid = symbolic.logical_and(symbolic.less_equal(0, place),
                                     symbolic.less_than(place, width))
        value = load(param(1, kind), symbolic.add(flat((row, width)), place), valid)
        total = reduce(Ops.ADD, kb.apply(Ops.MUL, value, load(param(2, kind), k)), k)
        ast = kb.kernel(store(param(0, kind), flat((row, width), (x, 1)), total), prefix=(row, x))
        generator = np.random.default_rng(0)
        image = generator.integers(-3, 4, (6, width)).astype(kind.numpy)
        weight = generator.integers(-3, 4, taps).astype(kind.numpy)
        wide = np.pad(image, ((0, 0), (taps // 2, taps // 2)))
        wanted = sum(wide[:, n:n + width] * weight[n] for n in range(taps))
        for noopt in (0, 1):
            out = np.zeros_like(image)
            with Context(NOOPT=noopt):
                kb.run(ast, out, image, weight)
            assert (out == wanted).all()


@verifies("cpu.compiler.fault")
@pytest.mark.parametrize("rows", [4, 5, 9])
@pytest.mark.parametrize("dtype", ["int8", "int32", "float32", "float64"])
def test_rows_that_move_in_place(dtype: str, rows: int) -> None:
    """GCC 12 makes a block copy of each row, and copies a row that has been overwritten.

    The source of the kernel is right: each iteration reads all rows before it writes one.
    """
    with Context(DEVICE="CPU"):
        given = np.arange(4 * rows).astype(dtype).reshape(rows, 4)
        x = Tensor(given.copy()).realize()
        kept = Tensor(x[:-1])
        x[1:] = kept
        kept.assign(kept - kept)
        assert (x.numpy() == np.concatenate([given[:1], given[:-1]])).all()
        assert (kept.numpy() == 0).all()


@verifies("cpu.flags.safe")
def test_a_load_that_only_a_condition_uses() -> None:
    """GCC 12 takes `v = p[i]; c ? v : 0` for a conditional load, and mixes up such conditions."""
    for seed in range(8):
        choose = np.random.default_rng(seed)
        shape = tuple(int(size) for size in choose.integers(2, 6, 3))
        values = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
        for axis in range(3):
            index = choose.integers(0, shape[axis], shape).astype(np.int32)
            with Context(DEVICE="CPU"):
                found = Tensor(values).gather(axis, Tensor(index)).numpy()
            np.testing.assert_array_equal(found, np.take_along_axis(values, index, axis))
