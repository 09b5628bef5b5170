"""The benchmark runs, and the figures that do not depend on the machine do not get worse.

No test here looks at a time.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.bench import __main__ as command
from conformance.bench import figures, growing, record, rounds, schedule, suite, table, workloads
from conformance.bench.peers import jax_peer, load, torch_peer
from conformance.bench.processes import Worker
from conformance.trace import ROOT


def _quick(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "result.json"
    assert command.main(["schedule", "--quick", "--json", str(path), *arguments]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_figures_that_do_not_depend_on_the_machine_are_no_worse_than_recorded() -> None:
    found = record.worse(record.recorded(), record.measured())
    assert not found, "\n".join([
        *found, "Remedy: find out why. If it has to be so, run `python -m conformance.bench record`"
        " and say in the commit message what it buys."])


def test_worse_is_seen_and_better_is_not() -> None:
    before = {"a": 100.0, "b": 0.0, "c": 1.0}
    assert record.worse(before, {"a": 101.9, "b": 0.0, "c": 0.5}) == []
    assert record.worse(before, {"a": 102.1, "b": 1.0}) == [
        "a: 102.1, recorded 100.0", "b: 1.0, recorded 0.0", "c: not measured, recorded 1.0"]


@pytest.mark.slow
@pytest.mark.device("CPU")
def test_a_quick_run_has_sane_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = _quick(tmp_path, "--against", "none")
    found = {row["key"]: row["results"]["impl"].get("median") for row in result["rows"]}
    assert None not in found.values()
    assert all(found[f"kernels.{name}"] >= 1 for name in figures.WORKLOADS)
    assert found["memory.bound.gpt_step"] <= found["memory.planned.gpt_step"]
    assert found["memory.planned.gpt_step"] <= found["memory.unplanned.gpt_step"]
    # A step reads every parameter and writes it.
    for name in ("mlp_step", "gpt_step"):
        one = suite.workload(name)
        parameters = sum(one.inputs[parameter].nbytes for parameter in one.parameters)
        assert found[f"bytes.{name}"] * 1e6 >= 2 * parameters
    assert "GPT step" in capsys.readouterr().out


def test_a_peer_that_is_absent_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError('no module named jax')")
    starting = Worker.start

    def without(worker: Worker, limit: float = 120) -> Any:
        worker.environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{ROOT}"
        return starting(worker, limit)
    monkeypatch.setattr(Worker, "start", without)
    result = _quick(tmp_path, "--against", "jax", "--only", "kernels.softmax")
    assert list(result["versions"]) == ["impl"] and result["commit"] == rounds.commit()
    assert capsys.readouterr().out.splitlines()[0] == \
        "jax is left out: not installed: no module named jax"


def test_an_unknown_peer_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["schedule", "--against", "fortran"]) == 2
    assert "no such peer: fortran" in capsys.readouterr().out


def test_a_process_that_takes_too_long_is_ended() -> None:
    worker = Worker("impl", 1)
    try:
        said = worker.ask("grown", {"program": "chain", "count": 10_000}, 0.0)
        assert said == {"missing": "over the limit of 0 s", "over": True}
        assert worker.process is None
        again = worker.ask("grown", {"program": "chain", "count": 10}, 120)
        assert again["operations"] == 10
    finally:
        worker.close()


@pytest.mark.parametrize("program", list(growing.PROGRAMS))
def test_growing_programs_are_computed_right(program: str) -> None:
    peer = load("impl")
    np.testing.assert_allclose(peer.grown_value(program, 40), growing.expected(program, 40),
                               rtol=1e-4, atol=1e-5)
    said = peer.grown(program, 40)
    assert said["nodes"] >= said["operations"] > 0
    if program == "separate":
        assert said["kernels"] == said["operations"]


def _mlp_answers() -> tuple[workloads.Workload, list[np.ndarray]]:
    one = suite.workload("mlp_step")
    return one, load("impl").values(one)


def test_what_is_timed_is_checked_first() -> None:
    one, answers = _mlp_answers()
    workloads.check(one, answers)
    with pytest.raises(workloads.WrongAnswer, match="mlp_step: off"):
        workloads.check(one, [answers[0] * 1.01, *answers[1:]])
    idle = [answers[0], *(one.inputs[name] for name in one.parameters)]
    with pytest.raises(workloads.WrongAnswer, match="the gradients of mlp_step"):
        workloads.check(one, idle)
    for place in range(1, len(answers)):  # each parameter, its gradient taken twice
        before = one.inputs[one.parameters[place - 1]]
        wrong = list(answers)
        wrong[place] = 2 * answers[place] - before
        with pytest.raises(workloads.WrongAnswer, match="the gradients"):
            workloads.check(one, wrong)


def test_a_wrong_library_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ArgumentParser()
    schedule.add_arguments(options)
    run = rounds.Run([], options.parse_args([]))

    class Wrong:
        def ask(self, method: str, arguments: dict[str, Any], limit: float) -> dict[str, Any]:
            assert method == "check", "nothing is measured after a failed check"
            return {"error": "computes something else"}
    run.workers["impl"] = Wrong()  # type: ignore[assignment]
    one = next(figures.measurements(False, False))
    assert rounds.row(one.figures[0], run.measure(one))["results"]["impl"] == \
        {"error": "computes something else"}


def test_libraries_are_asked_in_turns() -> None:
    options = ArgumentParser()
    schedule.add_arguments(options)
    run = rounds.Run([], options.parse_args(["--repeats", "3"]))
    asked: list[str] = []

    class Noted:
        def __init__(self, name: str, answers: list[dict[str, Any]]) -> None:
            self.name, self.answers = name, answers

        def ask(self, method: str, arguments: dict[str, Any], limit: float) -> dict[str, Any]:
            if method.startswith("check"):
                return {}
            asked.append(self.name)
            return self.answers.pop(0)
    run.workers["impl"] = Noted("impl", [{"seconds": s} for s in (1, 3, 2)])  # type: ignore
    run.workers["jax"] = Noted("jax", [{"seconds": 4}, {"missing": "over"}])  # type: ignore
    one = next(m for m in figures.measurements(False, False) if m.method == "cold")
    made = rounds.row(one.figures[0], run.measure(one))
    assert asked == ["impl", "jax", "impl", "jax", "impl"]
    assert made["results"] == {"impl": {"median": 2000, "low": 1000, "high": 3000, "count": 3},
                               "jax": {"missing": "over"}}
    assert made["ratios"] == {}


def test_what_is_over_the_limit_is_not_tried_in_a_greater_size() -> None:
    options = ArgumentParser()
    schedule.add_arguments(options)
    run = rounds.Run([], options.parse_args([]))
    asked: list[Any] = []

    class Slow:
        def ask(self, method: str, arguments: dict[str, Any], limit: float) -> dict[str, Any]:
            if method == "grown":
                asked.append((arguments["program"], arguments["count"]))
            return {"missing": "over the limit", "over": True} if method == "grown" else {}
    run.workers["jax"] = Slow()  # type: ignore[assignment]
    rows = [run.measure(one) for one in figures.measurements(False, False)
            if one.arguments.get("program") in ("chain", "tree")]
    assert asked == [("chain", 100), ("tree", 100)]
    assert all(said["jax"][0]["missing"] == "over the limit" for said in rows)


def test_a_table_shows_goals_ratios_and_what_is_missing() -> None:
    made = rounds.row(figures.Figure("k", "Kernels", "softmax", "us",
                                       figures.number("seconds", 1e6), 30),
                        {"impl": [{"seconds": 2e-5}], "jax": [{"seconds": 5e-5}],
                         "torch.compile": [{"missing": "not a stage"}]})
    result = {"machine": {"processor": "a processor", "cores": 2, "system": "Linux",
                          "python": "3.11"},
              "threads": 1, "quick": False, "rows": [made],
              "versions": {"impl": "0.1", "jax": "0.10", "torch.compile": "2.13"}}
    assert "| softmax | us | 30 | **20** | 50, 2.5x | not a stage |" in table.markdown(result)
    assert "torch.compile 2.13." in table.markdown(result), "an older one, without its commit"
    assert "torch.compile 2.13; commit abc." in table.markdown({**result, "commit": "abc"})


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_result_names_the_commit_if_there_is_one(tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROOT", tmp_path)
    assert rounds.commit() is None

    def git(*words: str) -> str:
        return subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *words],
                              cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    git("init", "-q")
    assert rounds.commit() is None, "nothing is committed"
    (tmp_path / "text").write_text("1")
    git("add", "text")
    git("commit", "-q", "-m", "One")
    assert rounds.commit() == git("rev-parse", "HEAD")[:12]
    (tmp_path / "text").write_text("2")
    assert str(rounds.commit()).endswith("-dirty")


def test_what_is_behind_is_said() -> None:
    def made(title: str, ours: float, peer: float, goal: float | None) -> dict[str, Any]:
        figure = figures.Figure("k", "G", title, "us", figures.number("seconds", 1e6), goal)
        return rounds.row(figure, {"impl": [{"seconds": ours}], "jax": [{"seconds": peer}]})
    rows = [made("ahead", 2e-6, 3e-6, 4), made("slower than JAX", 2e-6, 1e-6, 4),
            made("over the goal", 5e-6, 6e-6, 4), made("ahead without a goal", 2e-6, 3e-6, None)]
    assert table.behind({"rows": rows}).splitlines()[2:] == [
        "| G: slower than JAX | **2**&nbsp;us | 4 | JAX 0.5x |",
        "| G: over the goal | 5&nbsp;us | 4 |  |"]
    late = [{**rows[0], "key": key, "goal": goal, "ratios": {}, "results": {"impl": {
        "missing": "over the limit of 20 s"}}} for key, goal in (("k", 4), ("node.k", None))]
    assert table.behind({"rows": late}).splitlines()[2:] == [
        "| G: ahead | over the limit of 20 s | 4 |  |"], "no unit, and said once"
    assert table.behind({"rows": rows[:1]}) == "In no row: every goal is reached."


def test_calls_in_generated_wrappers_are_counted() -> None:
    source = """
    def call(self, args):
        buf0 = empty_strided_cpu((2, 3), (3, 1), torch.float32)
        extern_kernels.mm(arg0_1, arg1_1, out=buf0)
        cpp_fused_add_0(buf0)
        buf1 = torch.ops.aten._flash.default(buf0)
        assert_size_stride(buf1, (2, 3), (3, 1), 'torch.ops')
runner = Runner()
    cpp_fused_not_called(buf0)
"""
    assert len(torch_peer.CALL.findall(torch_peer.wrapper(source))) == 3


def test_instructions_of_compiled_programs_are_counted() -> None:
    text = """HloModule m

%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %add.1 = f32[4]{0} add(%p, %p)
}

%body (t: (f32[4])) -> (f32[4]) {
  %t = (f32[4]{0}) parameter(0)
  %g = f32[4]{0} get-tuple-element(%t), index=0
  %f = f32[4]{0} fusion(%g), kind=kLoop, calls=%fused
  ROOT %r = (f32[4]{0}) tuple(%f)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %dot.1 = f32[4]{0} dot(%x, %x), metadata={op_name="call(x)"}
  %w = (f32[4]{0}) while(%dot.1), condition=%cond, body=%body
  ROOT %o = f32[4]{0} get-tuple-element(%w), index=0
}
"""
    assert jax_peer.count_kernels(text) == 2
