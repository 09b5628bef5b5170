"""The suite as a product of its own: a wheel, starters, reports for a CI, parts of a run."""
from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conformance.protocol import Info, ProtocolError
from conformance.protocol.subprocess_adapter import SubprocessAdapter
from conformance.runner.checks import collect, run_suite
from conformance.runner.command import main, part_of
from conformance.runner.report import Report, Result, results_of
from conformance.runner.starter import write_starter
from conformance.runner.subject import Subject

ROOM = Path(__file__).parent.parent
#: The command in a process that has neither `impl` nor pytest.
ALONE = """import sys
sys.path.insert(0, sys.argv.pop(1))
sys.modules["impl"] = sys.modules["pytest"] = None
from conformance.runner.command import main
sys.exit(main(sys.argv[1:]))
"""
NAIVE = f"{sys.executable} {ROOM / 'demo' / 'naive.py'}"


@pytest.mark.slow
def test_the_wheel_runs_where_neither_the_implementation_nor_pytest_is(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="it builds the wheel")
    source, there = tmp_path / "source", tmp_path / "there"
    shutil.copytree(ROOM, source, ignore=shutil.ignore_patterns(
        "chapters", "bench", "reports", "__pycache__", "saboteurs", "emulation", "learn"))
    subprocess.run([sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", "dist"],
                   cwd=source, check=True, capture_output=True)
    [wheel] = (source / "dist").glob("tensor_conformance-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(there)
        names = archive.namelist()
    assert not [name for name in names if "impl_adapter" in name or "chapters/" in name]
    ran = subprocess.run([sys.executable, "-c", ALONE, str(there), "run", "--cmd", NAIVE,
                          "--chapter", "digits"], capture_output=True, text=True, cwd=tmp_path,
                         env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"})
    count = len(collect(["digits"]))
    assert ran.returncode == 0 and f"asked: {count} of {count} checks" in ran.stdout, ran.stderr
    ran = subprocess.run([sys.executable, "-c", ALONE, str(there), "steps"], text=True,
                         capture_output=True, cwd=tmp_path,
                         env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"})
    assert ran.returncode == 2 and "needs a clone" in ran.stdout


@pytest.mark.parametrize("language, compiler", [("go", "go"), ("rust", "rustc")])
def test_starters_pass_the_first_tier(tmp_path: Path, language: str, compiler: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    _, commands = write_starter("mine", tmp_path, language)
    assert commands[1] == "python -m conformance run --cmd ./mine"
    built = subprocess.run(commands[0].split(), cwd=tmp_path, capture_output=True, text=True)
    if built.returncode:
        pytest.skip(f"{compiler} does not work here: {built.stderr[-200:]}")
    subject = Subject.of(command=str(tmp_path / "mine"), profile="smoke")
    try:
        report = run_suite(subject, collect(("conventions", "statements", "sizes")))
    finally:
        subject.close()
    assert report.ok and report.counts()["pass"] > 20, report.table()


def test_another_version_of_the_protocol_is_refused_in_words(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("""import json
for _ in iter(input, ""):
    print(json.dumps({"type": "started", "protocol": "tensor-conformance/9",
                      "info": {"name": "x", "version": "1"}}), flush=True)
""")
    with pytest.raises(ProtocolError, match="it speaks 'tensor-conformance/9', and this suite"):
        SubprocessAdapter([sys.executable, str(other)]).info()


def _report() -> Report:
    return Report(Info("x", "1"), ["values"], "ci", 0, [
        Result("test_sizes.test_a", ["r"], "values", "pass", examples=3),
        Result("test_sizes.test_b", ["r"], "values", "fail", "1 is not 2", examples=2),
        Result("test_memory.test_c", ["r"], "memory", "not-run", "the tier is not claimed")])


def test_a_report_says_how_much_was_asked() -> None:
    report = _report()
    assert "asked: 2 of 3 checks, 5 programs, tiers values; not asked: 1 not-run" in report.table()
    report.grammar = {"cells": 7, "met": 6, "missing": ["after add sub"]}
    assert ", 5 programs, 6 of 7 cells of the grammar, tiers values;" in report.table()
    assert list(report.lines())[-1]["grammar"]["missing"] == ["after add sub"]
    assert report.badge()["message"] == "1 of 2 checks" and report.badge()["color"] == "red"
    suite = ElementTree.fromstring(report.junit())
    assert [suite.get(each) for each in ("tests", "failures", "errors", "skipped")] == list("3101")
    assert [[each.tag for each in case] for case in suite] == [[], ["failure"], ["skipped"]]


def test_a_run_in_parts_and_one_that_goes_on(tmp_path: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--impl", "conformance.adapters.numpy_adapter:Adapter", "--profile", "smoke",
               "--chapter", "digits"]
    names = []
    for number in (1, 2):
        path = tmp_path / f"{number}.jsonl"
        assert main([*command, "--shard", f"{number}/2", "--report", str(path)]) == 0
        names.append([each.test for each in results_of(path)])
    count = len(collect(["digits"]))
    assert [len(each) for each in names] == [(count + 1) // 2, count // 2]
    assert not {*names[0]} & {*names[1]}
    capsys.readouterr()
    assert main([*command, "--resume", "--report", str(tmp_path / "1.jsonl")]) == 0
    left = sum(each.verdict == "unsupported" for each in results_of(tmp_path / "1.jsonl"))
    assert f"asked: {count - left} of {count} checks" in capsys.readouterr().out
    assert len(results_of(tmp_path / "1.jsonl")) == count
    assert main([*command, "--shard", "3/2"]) == 2
    with pytest.raises(ValueError, match="2/4"):
        part_of("a")
