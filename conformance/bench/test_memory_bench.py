"""The benchmark of memory plans: its files, its checks, and what it says. See spec/memory.md."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conformance.bench import memory as bench
from conformance.bench.memory import Problem, ProblemError, Row, WrongPlan

#: The temporaries of the chapter's knot, in units.
KNOT = "id,lower,upper,size\nd,4,6,4\nc,3,5,2\nb,1,3,2\na,2,4,1\ne,0,4,2\n"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "conformance.bench", "memory", *arguments],
                          text=True, capture_output=True, check=False)


def problem_file(folder: Path, text: str, name: str = "knot.6.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_is_measured(tmp_path: Path) -> None:
    problem_file(tmp_path, KNOT)
    problem_file(tmp_path, "size,id,upper,lower\n3,x,2,0\n\n3,y,4,2\n", "small.4.csv")
    found = command("--csv", str(tmp_path))
    assert found.returncode == 0, found.stderr
    header, knot, small = (line.split() for line in found.stdout.splitlines())
    assert header[0] == "file"
    assert knot[:7] == ["knot", "5", "6", "6", "7", "6", "1.0000"]
    assert small[:7] == ["small", "2", "4", "3", "3", "3", "0.7500"]


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    problem_file(tmp_path, KNOT, "tight.5.csv")
    found = command("--csv", str(tmp_path), "--least", "--repeat", "1")
    assert found.returncode == 0
    assert found.stdout.splitlines()[1].endswith("does not fit")


@pytest.mark.parametrize(("name", "text", "says"), [
    ("knot.csv", KNOT, "knot.csv: the file's name holds no capacity; call it knot.CAPACITY.csv"),
    ("knot.0.csv", KNOT, "the file's name holds no capacity"),
    ("a.6.csv", "", "a.6.csv:1: the columns are missing; they have to be id,lower,upper,size"),
    ("a.6.csv", "id,from,to,size\n", "a.6.csv:1: the columns are id,from,to,size"),
    ("a.6.csv", "id,lower,upper,size\n1,0,1\n", "a.6.csv:2: 3 cells where there are 4 columns"),
    ("a.6.csv", KNOT + "f,1,x,3\n", "a.6.csv:7: {'id': 'f', 'lower': '1', 'upper': 'x'"),
    ("a.6.csv", KNOT + "f,3,3,3\n", "a.6.csv:7: a life from 3 to before 3"),
    ("a.6.csv", KNOT + "f,3,4,-1\n", "of -1 bytes; upper has to be above lower"),
    ("a.6.csv", KNOT + "e,3,4,1\n", "a.6.csv:7: the id e was there before"),
    ("a.6.csv", KNOT + '"e,3,4,1\n', "a.6.csv: cannot be read as a table of text"),
])
def test_what_is_no_problem_is_refused(name: str, text: str, says: str, tmp_path: Path) -> None:
    problem_file(tmp_path, text, name)
    with pytest.raises(ProblemError) as caught:
        bench.read(bench.files(tmp_path)[0])
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_the_status_says_that_a_file_was_refused(tmp_path: Path) -> None:
    problem_file(tmp_path, "id,lower,upper,size\n1,0,1\n")
    for place in (tmp_path, tmp_path / "missing.6.csv", tmp_path / "none"):
        found = command("--csv", str(place))
        assert found.returncode == 1 and not found.stdout
        assert str(place) in found.stderr and "Traceback" not in found.stderr
    (tmp_path / "empty").mkdir()
    assert "give the folder" in command("--csv", str(tmp_path / "empty")).stderr


@pytest.mark.parametrize("offsets", [{}, {0: 0}, {0: 0, 1: 0}, {0: 0, 1: -3}, {0: 0, 1: 2},
                                     {0: 0, 2: 3}])
def test_a_wrong_plan_is_seen(offsets: dict[int, int]) -> None:
    rows = [Row("x", 0, 2, 3), Row("y", 1, 3, 3)]
    with pytest.raises(WrongPlan):
        bench.checked_height(rows, offsets)
    assert bench.checked_height(rows, {0: 0, 1: 3}) == 6
    assert bench.checked_height([rows[0], Row("z", 2, 3, 3)], {0: 0, 1: 0}) == 3


def test_a_planner_that_is_wrong_fails_the_benchmark(
        monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = problem_file(tmp_path, KNOT)
    monkeypatch.setattr(bench.memory, "assign", lambda spans, *_: {s.storage: 0 for s in spans})
    problem = bench.read(path)
    assert isinstance(problem, Problem) and problem.capacity == 6
    with pytest.raises(WrongPlan, match="share bytes"):
        bench.measure(problem, 1000, False, 1)


def test_the_bound_by_definition() -> None:
    rows = [Row("x", 0, 2, 3), Row("y", 1, 3, 4), Row("z", 2, 3, 5)]
    assert bench.live_bound(rows) == 9
    assert bench.live_bound([]) == 0
