"""Adapters of real implementations: what the suite says of them, and that it says so.

NumPy and a C compiler are everywhere; an adapter whose library is absent is left out.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from conformance import protocol
from conformance.adapters.impl_adapter import Adapter
from conformance.adapters.library import unwrapped, wrapped
from conformance.peers.upstream import told
from conformance.protocol import Program, Statement, shapes
from conformance.runner import report
from conformance.runner.checks import collect, run_suite
from conformance.runner.report import Expectation
from conformance.runner.starter import write_starter
from conformance.runner.subject import Subject, fails
from conformance.trace import ROOT, verifies

HERE = Path(__file__).parent.parent
REPORTS = HERE / "reports"
NAMES = {"numpy": "numpy_adapter:Adapter", "numexpr": "numexpr_adapter:Adapter",
         "torch": "torch_adapter:Adapter", "jax": "jax_adapter:Adapter",
         "tinygrad": "tinygrad_adapter:Adapter", "autograd": "autograd_adapter:Adapter",
         "mlx": "mlx_adapter:Adapter", "tensorflow": "tensorflow_adapter:Adapter",
         "pytensor": "pytensor_adapter:Interpreted", "drjit": "drjit_adapter:Adapter"}


def expected(name: str) -> list[Expectation]:
    path = REPORTS / f"{name}.expected.json"
    return Expectation.read(path) if path.exists() else []


def has_llvm() -> bool:
    """Whether Dr.Jit finds a library that its kernels for the processor are compiled with."""
    import drjit

    return bool(drjit.has_backend(drjit.JitBackend.LLVM))


@pytest.mark.slow
def test_numpy_fails_where_it_is_known_to_and_nowhere_else() -> None:
    subject = Subject.of("conformance.adapters.numpy_adapter:Adapter")
    found = run_suite(subject, collect(), expected=expected("numpy"))
    assert found.ok, found.table()
    assert found.counts()["pass"] > 25 and found.counts()["xfail"] == 1


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("needs a C compiler")
    path = tmp_path_factory.mktemp("c") / "eager"
    source = HERE / "adapters" / "c" / "eager.c"
    subprocess.run([*compiler.split(), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1",
                    "-ffp-contract=off", "-o", str(path), str(source), "-lm"], check=True)
    return path


@pytest.mark.slow
def test_an_implementation_in_c_passes_every_test_of_values(interpreter: Path) -> None:
    subject = Subject.of(command=str(interpreter))
    try:
        found = run_suite(subject, collect())
    finally:
        subject.close()
    assert found.ok, found.table()
    assert found.counts()["pass"] > 28
    assert subject.info.language == "C"


def test_the_interpreter_in_c_answers_what_it_cannot_do(interpreter: Path) -> None:
    subject = Subject.of(command=str(interpreter))
    unknown = {"format": "tensor-program/1", "statements": [
        {"do": "input", "to": "t0", "dtype": "bfloat16", "shape": [1], "data": "0000"}]}
    absent = {"format": "tensor-program/1", "statements": [{"do": "observe", "names": ["x"]}]}
    try:
        with pytest.raises(protocol.Unsupported, match="bfloat16"):
            subject.adapter.run(unknown, {"values"}, {})
        with pytest.raises(protocol.ImplementationError, match="x is not defined"):
            subject.adapter.run(absent, {"values"}, {})
    finally:
        subject.close()


@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_declares_what_it_has_and_no_more(name: str) -> None:
    if not find_spec(name):
        pytest.skip(f"{name} is not installed")
    if name == "tinygrad" and not shutil.which("clang"):
        pytest.skip("tinygrad's CPU device needs clang")
    if name == "drjit" and not has_llvm():
        pytest.skip("Dr.Jit needs a shared library of LLVM")
    subject = Subject.of(f"conformance.adapters.{NAMES[name]}")
    protocol.check("message", {"type": "started", "info": subject.info.to_json()})
    assert set(subject.info.statements) <= set(protocol.STATEMENTS)
    program: Program = {"format": "tensor-program/1", "statements": [
        {"do": "input", "to": "t0", "dtype": "float32", "shape": [2], "data": "0000803f00000040"},
        {"do": "add", "to": "t1", "from": ["t0", "t0"]},
        {"do": "where", "to": "t2", "from": ["c", "t0", "t1"]},
        {"do": "observe", "names": ["t1", "t2"]}]}
    program["statements"].insert(2, {"do": "less", "to": "c", "from": ["t0", "t1"]})
    assert fails(subject, program) == ""


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_committed_reports_are_whole_and_have_no_surprise(path: Path) -> None:
    header, *tests, footer = report.read(path)
    assert tests and footer["ok"], footer
    for test in tests:
        if test["witness"]:
            shapes.check_program(test["witness"])
    known = {each.test for each in expected(path.stem)}
    assert known == {test["test"] for test in tests if test["verdict"] == "xfail"}


@pytest.mark.parametrize("path", sorted(REPORTS.glob("*.expected.json")), ids=lambda p: p.stem)
def test_what_is_expected_to_fail_says_where_and_why(path: Path) -> None:
    for entry in json.loads(path.read_text(encoding="utf-8")):
        assert entry["reason"] and entry["versions"], entry
        assert (ROOT / entry["witness"]).is_file(), entry["witness"]


def test_autograd_fails_where_it_is_known_to_and_nowhere_else() -> None:
    """It was written by somebody who had nothing but the guide."""
    pytest.importorskip("autograd", reason="autograd is not installed")
    subject = Subject.of("conformance.adapters.autograd_adapter:Adapter")
    found = run_suite(subject, collect(["conventions", "dtypes", "tensor"]),
                      expected=expected("autograd"))
    assert found.ok, found.table()
    assert found.counts()["pass"] > 20 and found.counts()["xfail"] == 1


#: Libraries that take no time to be tried.
QUICK = ("autograd", "dask", "drjit", "mlx", "numexpr", "numpy", "pytensor")


@pytest.mark.parametrize("path", [path for name in QUICK for path in
                                  sorted((HERE / "witnesses" / name).glob("*.py"))],
                         ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_plain_code_of_a_library_shows_what_was_seen(path: Path) -> None:
    """Where it is installed in that version; others may have been mended since."""
    library = path.parent.name
    if not find_spec(library):
        pytest.skip(f"{library} is not installed")
    known = REPORTS / f"{library}.expected.json"
    seen = {each["versions"] for each in json.loads(known.read_text(encoding="utf-8"))} \
        if known.exists() else {told(path)[0].split(",")[0].split()[-1]}
    if version(library) not in seen:
        pytest.skip(f"{library} {version(library)} is not the version that was looked into")
    if library == "drjit" and not has_llvm():
        pytest.skip("Dr.Jit needs a shared library of LLVM")
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stdout.startswith("expected "), run.stdout + run.stderr


@pytest.mark.parametrize("language", ("python", "c"))
def test_what_new_writes_passes_at_once(language: str, tmp_path: Path,
                                        interpreter: Path) -> None:
    path, commands = write_starter("mine", tmp_path, language)
    with pytest.raises(ValueError, match="exists"):
        write_starter("mine", tmp_path, language)
    with pytest.raises(ValueError, match="no name"):
        write_starter("my-impl", tmp_path, language)
    assert commands[-1].startswith(("python -m conformance --impl", "python -m conformance run"))
    if language == "python":
        sys.path.insert(0, str(tmp_path))
        try:
            subject = Subject.of(f"{path.stem}:Adapter")
            found = run_suite(subject, collect(["conventions", "tensor"]))
        finally:
            sys.path.remove(str(tmp_path))
        assert found.ok and found.counts()["pass"] >= 9, found.table()


def test_arguments_come_out_of_their_containers() -> None:
    for nested in range(5):
        assert unwrapped(wrapped({"x": 1}, nested)) == {"x": 1}
    assert wrapped({"x": 1}, 3) == [{"inner": [{"x": 1}]}]


@verifies("replay.arguments.call")
def test_calls_are_given_their_arguments() -> None:
    body: list[Statement] = [
        {"do": "constant", "to": "c", "dtype": "int32", "shape": [], "value": {"given": "k"}},
        {"do": "add", "to": "y", "from": ["x", "c"]}, {"do": "observe", "names": ["x", "y"]}]
    calls: Statement = {"do": "calls", "given": [{"x": "t0", "k": 2}, {"x": "t1", "k": 3}],
                        "statements": body}
    first, second = protocol.calls(calls)
    assert [first[0]["value"], second[0]["value"]] == [2, 3]
    assert second[1]["from"] == ["t1", "c"] and second[2]["names"] == ["t1", "y"]
    scalar: Statement = {"do": "input", "dtype": "int32", "shape": [], "data": "01000000"}
    inputs = [{**scalar, "to": "t0"}, {**scalar, "to": "t1"}]
    protocol.check("program", protocol.program([*inputs, calls]))
    shapes.check_program(protocol.program([*inputs, calls]))
    for wrong, said in (({**calls, "given": [{"x": "t0", "k": 2}, {"x": "t1"}]}, "other arguments"),
                        ({**calls, "given": [{"x": "t0", "k": 2}, {"x": "t1", "k": 2.5}]},
                         "several kinds"),
                        ({**calls, "statements": [{"do": "neg", "to": "x", "from": ["t0"]}]},
                         "is changed"), (body[0], "no call gives")):
        with pytest.raises(shapes.ProgramError, match=said):
            shapes.check_program(protocol.program([*inputs, wrong]))


def test_a_loop_of_no_statements_is_one() -> None:
    """What a program repeats may be nothing, and the adapter of this project writes it as code."""
    values: Statement = {"do": "input", "to": "t0", "dtype": "int8", "shape": [2], "data": "f6fb"}
    program = protocol.program([values, {"do": "repeat", "count": 2, "statements": []},
                                {"do": "observe", "names": ["t0"]}])
    shapes.check_program(program)
    found = Adapter().run(program, ())
    assert [value.data for value in found.values] == ["f6fb"]
