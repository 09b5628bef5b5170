"""The benchmark of generated code: what it rejects, what it writes, and what it shows.

No test here looks at a time.
"""
from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from conformance.bench import __main__ as command
from conformance.bench import drawing, limits, rounds, run, suite, table, timings, worker
from conformance.bench.limits import Limits, Speeds
from conformance.bench.operations import Numpy
from conformance.bench.peers import NotMeasured, Ready, impl_peer, load, numpy_peer
from conformance.bench.processes import Worker
from conformance.bench.workloads import Array, Work, Workload, WrongAnswer, check
from conformance.runner.test_runner import living
from conformance.trace import ROOT
from impl import TinyJit

GIB = 1e9
MACHINE = Limits(1, 100 * GIB, (Speeds(1 << 20, 80 * GIB, 100 * GIB),
                                Speeds(1 << 27, 20 * GIB, 10 * GIB)), "C")


# ---------------------------------------------------------------- what a workload has to do

@pytest.mark.parametrize("name, work", [
    ("elementwise", Work(1 << 26, 1 << 26, 3 << 24)),
    ("sum", Work(1 << 26, 4, 1 << 24)),
    ("matmul_512", Work(2 << 20, 1 << 20, 1 << 28)),
    ("attention_512", Work(3 * 4 << 20, 4 << 20, 1 << 31)),
    ("conv2d_64", Work(4 * (8 * 64 * 56 * 56 + 64 * 64 * 9), 4 * 8 * 64 * 56 * 56,
                       2 * 8 * 64 * 56 * 56 * 64 * 9)),
    ("matmul_half", Work(2 * (512 * 384 + 384 * 448), 2 * 512 * 448, 2 * 512 * 384 * 448)),
    ("attention_causal", Work(3 * 4 * 2 * 6 * 256 * 48, 4 * 2 * 6 * 256 * 48,
                              4 * 2 * 6 * 48 * (256 * 257 // 2))),
])
def test_bytes_and_operations_follow_from_the_definition(name: str, work: Work) -> None:
    assert suite.workload(name).work == work


def test_a_step_reads_everything_and_writes_its_parameters() -> None:
    one = suite.workload("mlp_step")
    sizes = {name: array.nbytes for name, array in one.inputs.items()}
    assert one.work.read == sum(sizes.values())
    assert one.work.written == 4 + sum(sizes[name] for name in one.parameters)
    assert one.work.operations == 2 * 128 * (2 * 784 * 512 + 3 * 512 * 10)


#: Values that are quickly computed in float64.
SMALL = [name for name in suite.FURTHER if name not in (
    "softmax_long", "broadcast", "permuted", "add_transposed", "strided", "cross_entropy",
    "sum_middle", "sum_first", "argmax", "matvec", "matmul_flat", "vecmat", "gather")]


@pytest.mark.parametrize("name", SMALL)
def test_what_is_written_is_the_value(name: str) -> None:
    one = suite.workload(name)
    wide = 2 if name == "matmul_half" else 4
    assert one.exact().size * wide == one.work.written
    if name not in ("strided", "gather"):
        assert one.work.read == sum(array.nbytes for array in one.inputs.values())


def test_there_are_thirty_further_shapes() -> None:
    assert len(suite.FURTHER) >= 30
    assert not set(suite.FURTHER) & set(suite.TABLE)


def test_the_definitions_of_convolution_and_attention() -> None:
    chooser, words = np.random.default_rng(3), Numpy()
    x, weight = chooser.standard_normal((2, 4, 7, 6)), chooser.standard_normal((6, 2, 3, 2))
    padded, answer = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), np.zeros((2, 6, 4, 4))
    for n, k, i, j in np.ndindex(answer.shape):
        first = k // 3 * 2  # three outputs and two inputs in each of two groups
        seen = padded[n, first:first + 2, 2 * i:2 * i + 3, 2 * j:2 * j + 2]
        answer[n, k, i, j] = (seen * weight[k]).sum()
    np.testing.assert_allclose(words.conv2d(x, weight, 2, 1, 2), answer)
    query, key, value = (chooser.standard_normal((1, 1, 3, 4)) for _ in range(3))
    scores = query[0, 0] @ key[0, 0].T / 2
    first = np.exp(scores[1, :2]) / np.exp(scores[1, :2]).sum() @ value[0, 0, :2]
    np.testing.assert_allclose(words.attention(query, key, value, causal=True)[0, 0, 1], first)


# ---------------------------------------------------------------- the limit

def test_the_limit_is_the_operations_or_the_bytes() -> None:
    assert MACHINE.seconds(Work(0, 0, 200 * 10**9)) == 2
    # 2^26 bytes each way at the speed of a copy from memory.
    assert math.isclose(MACHINE.seconds(Work(1 << 26, 1 << 26, 1)), (1 << 27) / 20e9)
    # A quarter of that is copied, the rest is only read.
    assert math.isclose(MACHINE.seconds(Work(1 << 26, 1 << 24, 1)),
                        (1 << 25) / 20e9 + 3 * (1 << 24) / 10e9)
    assert math.isclose(MACHINE.seconds(Work(1 << 19, 0, 1)), (1 << 19) / 100e9), "in the cache"
    assert MACHINE.around(1 << 30) == MACHINE.speeds[-1], "greater than anything measured"
    assert Limits.from_json(json.loads(json.dumps(MACHINE.as_json()))) == MACHINE


def test_the_best_of_all_parts_is_what_is_possible() -> None:
    slow = Limits(1, 50 * GIB, (Speeds(1 << 20, 90 * GIB, 9 * GIB),
                                Speeds(1 << 27, 2 * GIB, 11 * GIB)), "C")
    two = Limits(2, 60 * GIB, MACHINE.speeds, "C")
    result = {"runs": [{"limits": one.as_json()} for one in (slow, MACHINE, two)]}
    assert limits.possible(result, 1) == Limits(1, 100 * GIB, (
        Speeds(1 << 20, 90 * GIB, 100 * GIB), Speeds(1 << 27, 20 * GIB, 11 * GIB)), "C")
    assert limits.possible(result, 2).peak == 100 * GIB, "what one thread can, two can"


@pytest.mark.device("CPU")
def test_the_probes_of_this_machine_run() -> None:
    found = limits.measure(1)
    assert found.probe in ("C", "NumPy") and found.peak > 0
    assert [one.footprint for one in found.speeds] == sorted(o.footprint for o in found.speeds)
    assert all(one.copy > 0 and one.read > 0 for one in found.speeds)


def test_without_a_compiler_numpy_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "build", lambda folder: None)
    monkeypatch.setattr(limits, "TRIES", 1)
    monkeypatch.setattr(limits, "MIB", 1 << 10)
    assert limits.measure(1).probe == "NumPy"


# ---------------------------------------------------------------- what is wrong is not timed

class Saboteur(numpy_peer.NumpyPeer):
    """NumPy, with something wrong in its answers from one run on."""

    def __init__(self, wrong: Callable[[Array], Array], after: int = 0) -> None:
        self.wrong, self.left = wrong, after

    def ready(self, workload: Workload) -> Ready:
        made = super().ready(workload)

        def values(answer: Any) -> list[Array]:
            self.left -= 1
            right = made.values(answer)[0]
            return [right if self.left >= 0 else self.wrong(right)]
        return Ready(made.run, values)


def _one_wrong(x: Array) -> Array:
    changed = x.copy()
    changed.flat[-1] += 0.001 * abs(x).max() + 1
    return changed


@pytest.mark.parametrize("wrong", [
    lambda x: x * 1.001, lambda x: x[:-1], lambda x: x.astype(np.float16).astype(np.float32) * 1.01,
    lambda x: np.where(x == x.max(), np.nan, x), _one_wrong])
def test_wrong_values_are_rejected(wrong: Callable[[Array], Array]) -> None:
    for name in ("softmax_tiny", "matmul_tall"):
        with pytest.raises(WrongAnswer):
            worker.ask(Saboteur(wrong), "prepare", {"workload": name})


def test_values_that_are_wrong_the_second_time_are_rejected() -> None:
    with pytest.raises(WrongAnswer):
        worker.ask(Saboteur(_one_wrong, after=1), "prepare", {"workload": "softmax_tiny"})


def test_whole_numbers_have_to_be_exact() -> None:
    one = suite.workload("matmul_int8")
    right = one.exact()
    check(one, [right])
    off = right.copy()
    off[0, 0] += 1
    with pytest.raises(WrongAnswer):
        check(one, [off])


def test_values_in_float64_are_kept_for_the_next_process(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = suite.workload("softmax_tiny")
    assert worker.expected(one) is None, "nobody said where"
    monkeypatch.setenv(worker.EXPECTED, str(tmp_path))
    first, second = worker.expected(one), worker.expected(one)
    assert first is not None and second is not None and first.dtype == np.float64
    assert [path.name for path in tmp_path.iterdir()] == ["softmax_tiny.npy"]
    np.testing.assert_array_equal(first, second)


@pytest.mark.device("CPU")
@pytest.mark.parametrize("name", ["softmax_tiny", "attention_odd", "mlp_step"])
def test_ours_is_captured_and_right(name: str) -> None:
    peer = load("impl")
    assert worker.ask(peer, "prepare", {"workload": name})["seconds"] > 0
    assert worker.ask(peer, "time", {"workload": name, "seconds": 0.0})["calls"] == 1
    one, made = suite.workload(name), peer.ready(suite.workload(name))
    for _ in range(3):
        made.run()
    made.reset()  # a step begins anew, from the parameters as they were
    check(one, made.values(made.run()))


def test_numpy_computes_no_gradients() -> None:
    with pytest.raises(NotMeasured, match="computes no gradients"):
        worker.ask(load("numpy"), "prepare", {"workload": "mlp_step"})


def test_workloads_are_computed_right_in_onnx() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    peer = load("onnxruntime")
    for name in SMALL:
        worker.ask(peer, "prepare", {"workload": name})


# ---------------------------------------------------------------- the command

def _run(path: Path, *arguments: str) -> dict[str, Any]:
    assert command.main(["run", "--quick", "--output", str(path), *arguments]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.slow
@pytest.mark.device("CPU")
def test_a_run_is_merged_shown_and_drawn(tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    only = ("--against", "numpy", "--further", "--only")
    result = _run(path, *only, "softmax_tiny,matmul_tiny")
    assert [row["key"] for row in result["rows"]] == ["matmul_tiny.1", "softmax_tiny.1"]
    for row in result["rows"]:
        assert row.keys() >= {"title", "group", "unit", "threads", "run", "load", "read",
                              "written", "operations", "limit", "results", "ratios"}
        for said in row["results"].values():
            assert 0 < said["low"] <= said["median"] <= said["high"] and said["count"] == 1
    again = _run(path, *only, "softmax_tiny", "--merge")
    assert [row["key"] for row in again["rows"]] == ["matmul_tiny.1", "softmax_tiny.1"]
    assert [row["run"] for row in again["rows"]] == [0, 1]
    assert [one["commit"] for one in again["runs"]] == [rounds.commit()] * 2
    before, after = result["rows"][0], again["rows"][0]
    assert after == {**before, "limit": after["limit"]}, "what was not measured stays"
    assert after["limit"] <= before["limit"], "another part may have seen more of the machine"
    capsys.readouterr()
    assert command.main(["table", str(path), "--drawings", str(tmp_path)]) == 0
    assert "| softmax, 3 x 5 |" in capsys.readouterr().out
    drawn = {one.name for one in tmp_path.glob("*.svg")}
    assert drawn == {"roofline-shapes-1.svg", "ratios-shapes-1.svg"}


def test_what_cannot_be_asked_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "--against", "fortran"]) == 2
    assert "no such peer: fortran" in capsys.readouterr().out
    assert command.main(["run", "--against", "none", "--merge"]) == 2
    assert "name it with --output" in capsys.readouterr().out
    for wrong in ("0", "one", "4096", ""):
        with pytest.raises(SystemExit):
            command.main(["run", "--threads", wrong])
    assert run.threads("1") == [1]


def test_a_peer_that_hangs_or_crashes_is_reported(tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, dict[str, Any]] = {
        "numpy": {"missing": "over the limit of 60 s", "over": True},
        "jax": {"error": "its process ended with status -11"}}
    asked: list[tuple[str, str]] = []

    def start(one: Worker, limit: float = 120) -> dict[str, Any]:
        return {"version": "1"}

    def ask(one: Worker, method: str, arguments: Any, limit: float) -> dict[str, Any]:
        assert limit == 60
        asked.append((one.name, method))
        return said.get(one.name) or {"seconds": 0.002, "calls": 1}
    monkeypatch.setattr(Worker, "start", start)
    monkeypatch.setattr(Worker, "ask", ask)
    monkeypatch.setattr(limits, "measure", lambda threads: MACHINE)
    result = _run(tmp_path / "result.json", "--against", "numpy,jax", "--only", "matmul_512")
    (row,) = result["rows"]
    assert row["results"] == {"impl": {"median": 2, "low": 2, "high": 2, "count": 1},
                              "numpy": {"missing": "over the limit of 60 s"},
                              "jax": {"error": "its process ended with status -11"}}
    assert [name for name, method in asked if method == "time"] == ["impl"]
    assert "| failed: its process ended with status -11 |" in table.markdown(result)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="has no such signal")
def test_a_process_that_died_between_two_questions_is_reported() -> None:
    one = Worker("numpy", 1)
    try:
        assert "version" in one.start() and one.process is not None
        os.kill(one.process.pid, signal.SIGKILL)
        one.process.wait()
        assert one.ask("add", {}, 60) == {"error": "its process ended with status -9"}
        assert one.ask("add", {}, 60)["seconds"] > 0, "the next question starts it again"
    finally:
        one.close()


needs_stopping = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="has no such signal")


def _stands_still(process: int) -> bool:
    """Whether a child of this process was stopped since this was asked last."""
    for _ in range(6000):
        if os.WIFSTOPPED(os.waitpid(process, os.WUNTRACED | os.WNOHANG)[1]):
            return True
        time.sleep(0.01)
    return False


@needs_stopping
def test_who_has_no_turn_stands_still() -> None:
    one = Worker("numpy", 1)
    try:
        assert "version" in one.start() and one.process is not None
        assert _stands_still(one.process.pid)
        assert one.ask("add", {}, 60)["seconds"] > 0, "it goes on when it is asked"
        assert _stands_still(one.process.pid)
    finally:
        one.close()


@needs_stopping
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks Linux")
def test_who_stands_still_ends_with_the_benchmark() -> None:
    text = ("import os, signal; from conformance.bench.processes import Worker; "
            "one = Worker('numpy', 1); one.start(); print(one.process.pid, flush=True); "
            "os.kill(os.getpid(), signal.SIGKILL)")
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE,
                          text=True)
    assert done.returncode == -signal.SIGKILL
    for _ in range(6000):
        if not living(int(done.stdout)):  # it need not be waited for by whoever is left with it
            return
        time.sleep(0.01)
    os.killpg(int(done.stdout), signal.SIGKILL)
    pytest.fail("a process that stood still was left over")


def _result(**times: float) -> dict[str, Any]:
    """A result with one workload; times in ms."""
    results = {name: {"median": time, "low": time, "high": time, "count": 3}
               for name, time in times.items()}
    rows = [{"key": "sum.1", "group": "Generated code", "title": "sum, 2^24", "unit": "ms",
             "goal": None, "threads": 1, "run": 0, "load": 0.1, "results": results, "ratios": {},
             "read": 1 << 26, "written": 4, "operations": 1 << 24, "limit": 5.0}]
    return {"kind": "run", "rows": rows, "runs": [{"limits": MACHINE.as_json()}],
            "versions": {"impl": "0.1", "jax": "0.10", "numpy": "2.4"},
            "machine": {"processor": "a processor", "cores": 2, "system": "Linux",
                        "python": "3.11"}}


def test_a_row_says_our_time_the_best_peer_and_the_limit() -> None:
    shown = table.markdown(_result(impl=10.0, jax=8.0, numpy=20.0))
    assert "| sum, 2^24 | 10 (10 to 10) | JAX 8 | 0.80 | 50% | 62% | 8 | 20 |" in shown
    assert "Limits: 100 GFLOP/s; over 1 MiB: copy 80, read 100 GB/s" in shown
    assert "0.80 at the median, least 0.80 (sum, 2^24); 0 of 1 at 1 or above" in shown
    ahead = table.markdown(_result(impl=6.0, jax=9.0))
    assert "| **1.50** | 83% | 56% |" in ahead
    alone = _result(impl=6.0)
    assert timings.ratio(alone["rows"][0]) is None
    assert "| sum, 2^24 | 6 (6 to 6) |  |  | 83% |  |" in table.markdown(alone)


def test_what_is_behind_is_listed_with_the_best_peer() -> None:
    assert timings.behind(_result(impl=10.0, jax=8.0)).splitlines()[2:] == [
        "| sum, 2^24 | 1 | 10 | JAX 8 | 0.80 | 50% |"]
    assert timings.behind(_result(impl=7.0, jax=8.0)) == "In no row: ours is the fastest."


def test_only_the_furthest_behind_are_shown_at_once() -> None:
    row = _result(impl=10.0, jax=8.0)["rows"][0]
    rows = [{**row, "title": f"row {n}", "results": {
        **row["results"], "impl": {**row["results"]["impl"], "median": 10.0 + n}}}
        for n in range(13)]
    lines = timings.behind({"rows": rows}).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:12]] == [f"row {n}" for n in
                                                                    range(12, 2, -1)]
    assert lines[12:15] == ["", '??? note "3 more"', ""] and lines[15:17] == [
        "    " + line for line in lines[:2]]
    assert [line.split("|")[1].strip() for line in lines[17:]] == ["row 2", "row 1", "row 0"]
    assert "more" not in timings.behind({"rows": rows[:10]})


def test_every_workload_has_a_dot_in_a_drawing() -> None:
    result = _result(impl=10.0, jax=8.0, numpy=20.0)
    for name, svg, caption in drawing.drawings(result):
        tree = ElementTree.fromstring(drawing.standalone(svg))
        dots = [one for one in tree.iter() if one.tag.endswith("circle")]
        assert [one.get("class") for one in dots].count("ours") == 1, name
        assert len(dots) == (2 if name.startswith("roofline") else 3)
        assert caption and all("sum, 2^24" in "".join(tree.itertext()) for _ in dots)
    assert [name for name, *_ in drawing.drawings(result)] == ["roofline-generated-1",
                                                               "ratios-generated-1"]


def test_the_axis_has_round_marks() -> None:
    axis = drawing.Scale(0.1, 10, 0, 100)
    assert [round(axis(mark)) for mark in (0.1, 1, 10)] == [0, 50, 100]
    assert np.allclose(axis.marks(), [0.1, 0.2, 0.5, 1, 2, 5, 10])
    assert axis.inside(99) == 10


@pytest.mark.device("CPU")
@pytest.mark.parametrize("name", ["gelu", "cross_entropy", "mlp_step"])
def test_what_is_timed_is_a_replay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TinyJit] = []

    def captured(function: Any) -> TinyJit:
        made.append(TinyJit(function))
        return made[-1]
    monkeypatch.setattr(impl_peer.ImplPeer, "TinyJit", staticmethod(captured))
    ready = impl_peer.make().ready(suite.workload(name))
    ready.run()
    assert made[0].replays == 2 and made[0].traces == 0, made[0].explain()
