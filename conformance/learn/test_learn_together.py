"""All parts of a reader run at once, and are compared with ours."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conformance import learn
from conformance.learn import together
from conformance.learn.lessons import LESSONS
from conformance.learn.overlay import digest
from conformance.learn.test_learn import run

PROGRAM = """
import sys
from impl import Tensor, TinyJit
x = Tensor([[0.5, 2.0, -1.0], [1.0, 0.0, 3.0]])
w = Tensor([[1.0, 2.0], [0.5, -1.0], [0.25, 1.0]], requires_grad=True)
step = TinyJit(lambda x: (x.T.flip(1).T @ w).softmax(1).realize())
for _ in range(3):
    print(step(x).sum().item())
(x @ w).exp().pad(((1, 0), (0, 0))).reshape(6).max().backward()
w[0:2] = w[0:2] * 2
print(w.sum().item(), w.grad.sum().item(), sys.argv[1])
"""


def written(folder: Path, *slugs: str) -> None:
    """The solutions of some lessons, as if they had been checked."""
    known = {}
    for slug in slugs:
        mine = folder / f"my_{slug}.py"
        solution = Path(together.__file__).parent / "solutions" / f"{slug}.py"
        text = solution.read_text(encoding="utf-8") if solution.exists() else \
            learn.template(slug).partition("\n\n\n")[0] + "\n\n" + learn.solution(slug)
        mine.write_text(text, encoding="utf-8")
        known[slug] = {"green": list(LESSONS[slug].rules), "hints": 0, "file": digest(mine)}
    (folder / ".learn.json").write_text(json.dumps(known), encoding="utf-8")


def test_all_solutions_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "REFERENCE")
    written(tmp_path, *LESSONS)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    found = run(tmp_path, "run", "--", "python", "program.py", "word")
    assert found.returncode == 0, found.stdout + found.stderr
    first, *values = found.stdout.splitlines()
    assert first == f"your parts: {', '.join(LESSONS)}"
    assert [round(float(each), 4) for each in values[:3]] == [2.0] * 3
    total, slope, word = values[3].split()
    assert word == "word" and float(total) == 6.25 and float(slope) > 0
    counted = {line[:30].strip(): re.findall(r"[\d,.]+", line[30:]) for line in values[5:-1]}
    assert values[-1] == "both print the same 4 lines"
    assert set(counted) == {*together.COUNTED.values()}
    assert all(int(each) > 4 for each in counted["kernels run"])


def test_a_part_that_is_not_done_is_left_out(tmp_path: Path,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, "memory", "ranges", "symbolic")
    mine = tmp_path / "my_memory.py"
    mine.write_text(mine.read_text(encoding="utf-8") + "# and more\n", encoding="utf-8")
    progress = learn.Progress(mine)
    progress.of("ranges")["green"].pop()
    progress.write("ranges")
    assert together.chosen(tmp_path, False) == (["symbolic"], {
        "memory": "it was changed after its last check",
        "ranges": "not all of its rules are green"})
    assert together.chosen(tmp_path, True)[0] == ["ranges", "symbolic", "memory"]
    assert learn.main(["run", "--mine", str(tmp_path / "nowhere")]) == 1
    assert "no lesson is done" in capsys.readouterr().err


def test_a_part_that_raises_ends_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my_symbolic.py").write_text("raise RuntimeError('mine')", encoding="utf-8")
    (tmp_path / "program.py").write_text("import impl.symbolic", encoding="utf-8")
    program = str(tmp_path / "program.py")
    assert learn.main(["run", "--mine", str(tmp_path), "--unchecked", "--", program]) == 1
    said = capfd.readouterr().err
    assert "RuntimeError: mine" in said and "your scheduler ended with status 1" in said


@pytest.mark.parametrize(("words", "program"), [
    (["python", "-m", "impl", "--epochs", "2"], ["-m", "impl", "--epochs", "2"]),
    (["python3.12", "a.py"], ["a.py"]), (["a.py", "b"], ["a.py", "b"]), ([], ["-m", "impl"])])
def test_a_program_is_named_as_on_the_command_line(words: list[str], program: list[str]) -> None:
    assert together.program_of(words) == program


@pytest.mark.parametrize("words", [["make"], ["python"], ["python", "-m"], ["python", "-c", "1"]])
def test_what_is_no_program_is_refused(words: list[str],
                                       capsys: pytest.CaptureFixture[str]) -> None:
    assert learn.main(["run", "--", *words]) == 2
    assert "Remedy: run -- python -m impl" in capsys.readouterr().err


def test_what_is_printed_is_compared() -> None:
    assert together.said_apart(["a", "b"], ["a", "b"]) == ["both print the same 2 lines"]
    assert together.said_apart(["loss 0.5    9.8 s"], ["loss 0.5   10.2 s"]) == [
        "both print the same 1 lines, but for times"]
    assert "differ" in together.said_apart(["loss 0.5 9 s"], ["loss 0.6 9 s"])[0]
    assert together.said_apart(["a", "1"], ["a", "2", "c"]) == [
        "2 of 3 printed lines differ, the first:", "  yours: 1", "  ours:  2"]


def test_counts_stand_side_by_side() -> None:
    counts = dict.fromkeys(together.COUNTED, 1200)
    head, *lines = together.table(counts, {**counts, "kernels": 7})
    assert head.split() == ["yours", "ours"] and lines[0].split()[2:] == ["1,200", "7"]
    assert lines[-1].split() == ["seconds", "1200.0", "1200.0"]
