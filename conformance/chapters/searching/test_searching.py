"""BEAM: steps found by trying them. Chapter: spec/searching.md."""
from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_builder import FLOAT, INT, flat, load, param, store
from conformance.trace import verifies
from impl import Context, Tensor, symbolic
from impl.caching import disk, texts
from impl.choosing import hand_steps
from impl.device import Device
from impl.dtypes import dtypes
from impl.groups import Local
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import Analysis, DeviceLimits
from impl.searching import beam
from impl.steps import OF_LANES, STEPS, GroupTop, Step, Thread
from impl.steps.step import ASKED_FOR


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A process that has searched nothing, with a folder of its own."""
    monkeypatch.setattr(beam, "_known", {})
    monkeypatch.setattr(disk, "_stores", disk.Stores())
    with Context(CACHE_FOLDER=str(tmp_path / "cache"), BEAM_BUDGET_SEC=3600):
        yield


@dataclass
class FakeBench:
    """A device that needs no compiler: `cost` says how long a kernel takes."""

    cost: Callable[[UOp], float] = lambda ast: 1.0
    limits: DeviceLimits = field(default_factory=DeviceLimits)
    version: str = "1"
    trials: list[tuple[str, ...]] = field(default_factory=list)
    released: int = 0

    def code_version(self) -> str:
        return self.version

    def trial(self, asts: Sequence[UOp], seconds: float) -> list[Any]:
        self.trials += [ast.arg.steps for ast in asts]
        return list(asts)

    def release(self, programs: Sequence[Any]) -> None:
        self.released += len(programs)

    def allocate(self, nbytes: int) -> Any:
        return Device["REFERENCE"].allocate(nbytes)

    def put(self, memory: Any, flat: np.ndarray) -> None:
        memory.device.put(memory, flat)

    def seconds(self, work: Callable[[], None]) -> float:
        raise AssertionError("a fake device runs nothing")

    def table(self, launches: Sequence[Any]) -> Any:
        raise AssertionError("a fake device runs nothing")


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples come from the fake device."""
    monkeypatch.setattr(beam.Trial, "sample",
                        lambda trial, program: trial.bench.cost(program))


def names(ast: UOp, bench: FakeBench, width: int = 2) -> list[str]:
    return [step.name for step, _ in beam.searched_steps(ast, bench, width)]


@verifies("searching.trial.harmless")
@pytest.mark.usefixtures("timed")
def test_what_is_fastest_is_found_in_several_generations() -> None:
    """The cost falls with each of three steps, the last of which alone would gain nothing."""
    def cost(ast: UOp) -> float:
        kinds = [name.partition("(")[0] for name in ast.arg.steps]
        good = "SWAP" in kinds, "SWAP" in kinds and "UNROLL" in kinds
        return 8.0 - 2 * sum(good) + 0.1 * len(kinds)

    bench = FakeBench(cost)
    found = names(kb.matmul(8, 8, 8), bench)
    assert sorted(name.partition("(")[0] for name in found) == ["SWAP", "UNROLL"]
    assert bench.released == len(bench.trials) and len(set(bench.trials)) == len(bench.trials)
    reasons = {reason for _, reason in beam.searched_steps(kb.matmul(8, 8, 8), bench, 2)}
    assert all(reason.startswith("BEAM=2: ") and "us" in reason for reason in reasons)


@verifies("progress.line.late")
@pytest.mark.usefixtures("timed")
def test_a_search_says_how_many_lists_it_has_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[beam.Progress] = []

    def noted(work: beam.Progress) -> beam.Progress:
        found.append(work)
        return work

    monkeypatch.setattr(beam.Progress, "__enter__", noted)
    bench = FakeBench()
    beam.searched_steps(kb.matmul(4, 4, 4), bench, 1)
    assert [(each.what, each.done) for each in found] == [
        ("searching steps of " + kb.matmul(4, 4, 4).arg.name, len(bench.trials))]


@verifies("searching.trial.harmless")
@pytest.mark.usefixtures("timed")
def test_the_list_of_the_rules_stays_unless_another_one_is_faster() -> None:
    product = kb.matmul(64, 64, 64)
    start = [step.name for step, _ in hand_steps(product, DeviceLimits())]
    slower = FakeBench(lambda ast: 1.0 if list(ast.arg.steps) == start else 1.5)
    assert names(product, slower) == start
    beam._known.clear()
    with Context(CACHELEVEL=0):
        assert names(product, FakeBench()) == start  # nothing makes a difference
        reasons = [reason for _, reason in beam.searched_steps(product, slower, 2)]
    assert ["BEAM=2 found nothing faster" in reason for reason in reasons[-2:]] == [False, True]


@verifies("searching.trial.harmless")
def test_a_start_that_lost_its_lead_is_chosen_when_it_has_it_again() -> None:
    """The last measurement counts, in which the start is the fastest."""
    product = kb.matmul(64, 64, 64)
    start = tuple(step.name for step, _ in hand_steps(product, DeviceLimits()))
    bench = FakeBench(lambda ast: 1.0 if ast.arg.steps == start else 3.0)
    made = beam._Search(product, bench, 2, hand_steps(product, DeviceLimits()))
    made.trial = SimpleNamespace(sample=bench.cost)  # type: ignore[assignment]
    first, other = (beam._Candidate(tuple(map(Step.parse, names)), beam.apply_steps(
        product, map(Step.parse, names))) for names in (start, ("SWAP(0,1)",)))
    first.program, other.program = first.ast, other.ast
    first.seconds, other.seconds = 2.0, 1.0
    assert made._last(first, [other]) == beam.Found(start, 1.0, 1.0, 0)


@verifies("searching.trial.harmless")
def test_a_lucky_sample_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """All look fast when they are tried, and are slow when they run beside the start again."""
    product = kb.matmul(64, 64, 64)
    start = tuple(step.name for step, _ in hand_steps(product, DeviceLimits()))
    count: dict[tuple[str, ...], int] = {}

    def sample(trial: Any, program: UOp) -> float:
        steps = program.arg.steps
        count[steps] = count.get(steps, 0) + 1
        lucky = count[steps] <= beam._SAMPLES + 1
        return 1.0 if steps == start else 0.5 if lucky else 2.0

    monkeypatch.setattr(beam, "_GENERATIONS", 2)
    monkeypatch.setattr(beam.Trial, "sample", sample)
    assert names(product, FakeBench()) == list(start)


@verifies("searching.trial.harmless")
def test_one_sample_that_was_disturbed_gives_nobody_up() -> None:
    product = kb.matmul(8, 8, 8)
    made = beam._Search(product, FakeBench(), 2, [])
    runners = [beam._Candidate((), product, program=name) for name in ("steady", "disturbed",
                                                                       "slow")]
    seconds = {"steady": iter([10.0] * 5), "disturbed": iter([9.0, 27.0, 9.0, 9.0, 9.0]),
               "slow": iter([90.0] * 5)}  # the first of each makes caches warm
    made.trial = SimpleNamespace(sample=lambda name: next(seconds[name]))  # type: ignore
    made._race(runners, ())
    assert [each.seconds for each in runners] == [10.0, 9.0, 90.0]


@verifies("searching.found.later")
@pytest.mark.usefixtures("timed")
def test_what_was_found_is_kept_for_equal_questions() -> None:
    bench = FakeBench(lambda ast: 5.0 - ("SWAP(0,1)" in ast.arg.steps))
    first = names(kb.matmul(8, 9, 10), bench)
    tried = len(bench.trials)
    assert first == ["SWAP(0,1)"] and tried

    def again(ast: UOp | None = None, width: int = 2, **changes: Any) -> bool:
        """Whether a new process searches again."""
        beam._known.clear()
        other = FakeBench(bench.cost, **changes)
        names(ast or kb.matmul(8, 9, 10), other, width)
        return bool(other.trials)

    assert not again()
    assert again(kb.matmul(8, 9, 11)) and again(width=3) and again(version="2")
    assert again(limits=DeviceLimits(vector_bytes=16))
    with Context(BEAM_UPCAST_MAX=64):
        assert again()
    with Context(IGNORE_BEAM_CACHE=1):
        assert again()
    with Context(CACHELEVEL=0):
        assert again()
    assert not again()
    before = beam.code_version
    beam.code_version = lambda: "other code"  # type: ignore[assignment]
    try:
        assert again()
    finally:
        beam.code_version = before


@verifies("searching.found.later")
@pytest.mark.usefixtures("timed")
@pytest.mark.parametrize("content", [
    b"", b"[]", b"{}", b'{"steps": ["UPCAST(9,9)"], "seconds": 1, "start_seconds": 1, "tried": 1}',
    b'{"steps": ["FASTER"], "seconds": 1, "start_seconds": 1, "tried": 1}'])
def test_what_was_kept_and_does_not_fit_is_searched_anew(content: bytes) -> None:
    bench = FakeBench()
    product = kb.matmul(8, 8, 8)
    disk.store().put("beam", beam._key(product, bench, 2), content)
    names(product, bench)
    assert bench.trials


@verifies("searching.found.later")
def test_a_kernel_is_known_by_what_it_computes() -> None:
    def named(ast: UOp) -> str:
        return texts.kernel_name(ast, named=False)

    same = {named(kb.matmul(8, 9, 10)) for _ in range(3)}
    renamed = kb.matmul(8, 9, 10)
    same.add(named(kb.kernel(*renamed.src, prefix=renamed.arg.prefix, name="other")))
    assert len(same) == 1
    others = [kb.matmul(9, 8, 10), kb.matmul(8, 9, 11), kb.matmul(8, 9, 10, True),
              kb.kernel(*renamed.src, prefix=renamed.arg.prefix[::-1]), kb.softmax(8, 9)]
    assert len(same | {named(ast) for ast in others}) == 6


@verifies("searching.trial.limits")
@pytest.mark.usefixtures("timed")
def test_no_trial_begins_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1 << 40, 1_000_000))
    monkeypatch.setattr(beam.time, "perf_counter", lambda: float(next(clock)))
    bench = FakeBench(lambda ast: 1.0 / (1 + len(ast.arg.steps)))
    product = kb.matmul(64, 64, 64)
    start = tuple(step.name for step, _ in hand_steps(product, DeviceLimits()))
    assert names(product, bench) == list(start)
    assert set(bench.trials) == {start, ()}


@pytest.mark.usefixtures("timed")
@verifies("searching.trial.every")
def test_long_texts_are_not_tried() -> None:
    bench = FakeBench()
    with Context(BEAM_UPCAST_MAX=8, BEAM_UOPS_MAX=60):
        names(kb.matmul(64, 64, 64), bench)
    starts = bench.trials[:2]
    for steps in bench.trials[2:]:
        ast = beam.apply_steps(kb.matmul(64, 64, 64), map(Step.parse, steps))
        assert kb.lane_values(ast) <= 8, (starts, steps)


@verifies("searching.trial.every")
def test_steps_of_every_kind_are_tried() -> None:
    draw = beam.random.Random(0)
    tried = {step.name.partition("(")[0] for step in
             beam.actions(Analysis(kb.matmul(8, 9, 10)), draw, DeviceLimits(threads=2))}
    assert tried == set(STEPS) - set(OF_LANES) - set(ASKED_FOR)
    lanes = DeviceLimits(lanes=64, lockstep=32, local_memory=32 << 10)
    steps = beam.actions(Analysis(kb.matmul(8, 9, 10)), draw, lanes)
    assert {step.name.partition("(")[0] for step in steps} == set(STEPS) - {
        "THREAD", "GROUPTOP", *ASKED_FOR}
    assert {step.amount for step in steps if type(step) is Local} == {8, 16, 32, 64}


@verifies("cpu.threads.count")
def test_no_more_threads_are_tried_than_there_are() -> None:
    for threads in (1, 2, 3):
        tried = {step.amount for step in beam.actions(
            Analysis(kb.matmul(8, 9, 10)), beam.random.Random(0), DeviceLimits(threads=threads))
            if isinstance(step, (Thread, GroupTop))}
        assert tried == ({threads} if threads > 1 else set())
    tried = {step.amount for step in beam.actions(
        Analysis(kb.matmul(64, 64, 64)), beam.random.Random(0), DeviceLimits(threads=2, parts=8))
        if isinstance(step, (Thread, GroupTop))}
    assert tried == {2, 16}


@pytest.mark.usefixtures("timed")
@verifies("searching.trial.harmless")
def test_a_kernel_of_unknown_memory_keeps_the_list_of_the_rules() -> None:
    i = new_range(8, RangeKind.GLOBAL)
    place = kb.apply(Ops.CAST, load(param(2, INT), i), dtype=dtypes.index)
    for index in (place, symbolic.mul(i, 1 << 40)):
        bench = FakeBench()
        ast = kb.kernel(store(param(0), i, load(param(1), index)), prefix=(i,))
        assert names(ast, bench) == [step.name for step, _ in hand_steps(ast, DeviceLimits())]
        assert not bench.trials


# On the machine


@pytest.mark.slow
@pytest.mark.device("CPU")
@verifies("searching.trial.harmless")
@pytest.mark.parametrize("kind", ["product", "rows", "scalar"])
def test_a_search_keeps_the_values(kind: str) -> None:
    draw = np.random.default_rng(0)
    a = draw.integers(-3, 4, (33, 20)).astype(np.float32)
    b = draw.integers(-3, 4, (20, 17)).astype(np.float32)
    with Context(DEVICE="CPU", BEAM=1, BEAM_BUDGET_SEC=1, PARALLEL=2):
        one, two = Tensor(a).realize(), Tensor(b).realize()
        if kind == "product":
            assert ((one @ two).numpy() == a @ b).all()
        elif kind == "scalar":
            assert (one * 2).sum().item() == a.sum() * 2
        else:
            found = one.softmax(1).numpy()
            wanted = np.exp(a - a.max(1, keepdims=True))
            np.testing.assert_allclose(found, wanted / wanted.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.device("CPU")
@verifies("searching.trial.harmless")
def test_what_a_kernel_overwrites_is_overwritten_once() -> None:
    with Context(DEVICE="CPU", BEAM=1, BEAM_BUDGET_SEC=1):
        state = Tensor(np.arange(40, dtype=np.float32)).realize()
        state.assign(state * 2 + 1).realize()
        assert state.tolist() == [2 * i + 1 for i in range(40)]


@pytest.mark.device("CPU")
@verifies("searching.trial.harmless")
def test_every_trial_finds_the_same_values() -> None:
    i = new_range(64, RangeKind.GLOBAL)
    twice = kb.apply(Ops.ADD, load(param(0), i), load(param(0), i))
    ast = kb.kernel(store(param(0), i, twice), prefix=(i,))
    bench: Any = Device["CPU"]
    trial = beam.Trial.of(ast, bench)
    assert trial is not None
    program = Device["CPU"].compile([ast])[0]
    seen = []
    for _ in range(3):
        assert trial.sample(program) > 0
        seen.append(trial.memories[0].view(FLOAT).copy())
    assert (seen[0] == seen[2]).all() and (seen[0] == 2 * trial.again[0].view(np.float32)).all()


@pytest.mark.device("CPU")
@verifies("searching.trial.limits")
def test_a_compiler_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """With what it started: gcc itself only waits for others."""
    child = tmp_path / "child"
    compiler = tmp_path / "slow-cc"
    compiler.write_text("#!/bin/sh\ntest \"$1\" = --version && echo 1 && exit 0\n"
                        f"sleep 600 &\necho $! > {child}\nwait\n")
    compiler.chmod(0o755)
    from impl.cpu.compiler import run_compiler
    for seconds in (0.3, 3, 30, 300):  # on a busy machine it may not have started anything yet
        with pytest.raises(subprocess.TimeoutExpired):
            run_compiler([str(compiler), "x"], seconds)
        if child.exists() and child.read_text():
            break
    number = int(child.read_text())
    for _ in range(1000):
        if not _runs(number):
            break
        time.sleep(0.01)
    assert not _runs(number)
    i = new_range(8, RangeKind.GLOBAL)
    ast = kb.kernel(store(param(0), i, load(param(1), i)), prefix=(i,))
    bench: Any = Device["CPU"]
    kb.run(ast, np.zeros(8, np.float32), np.zeros(8, np.float32))
    with Context(CC=str(compiler)):
        assert bench.trial([ast, ast], 0.2) == [None, None]


def _runs(number: int) -> bool:
    """Whether a process is there, and not only waited for."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.device("CPU")
@verifies("searching.trial.limits")
def test_what_is_refused_is_given_up(tmp_path: Path) -> None:
    compiler = tmp_path / "broken-cc"
    compiler.write_text("#!/bin/sh\ntest \"$1\" = --version && echo 1 && exit 0\nexit 1\n")
    compiler.chmod(0o755)
    i = new_range(8, RangeKind.GLOBAL)
    ast = kb.kernel(store(param(0), flat((i, 1)), load(param(1), i)), prefix=(i,))
    bench: Any = Device["CPU"]
    kb.run(ast, np.zeros(8, np.float32), np.zeros(8, np.float32))
    with Context(CC=str(compiler)):
        assert bench.trial([ast], 5) == [None]


@pytest.mark.device("CPU")
@verifies("searching.found.later")
def test_the_cpu_keeps_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench: Any = Device["CPU"]
    monkeypatch.setattr(beam._Search, "_is_over", lambda self: self.tried > 2)
    with Context(PARALLEL=2):
        first = beam.searched_steps(kb.matmul(16, 16, 16), bench, 1)
        files = list((tmp_path / "cache").glob("beam-*.entry"))
        assert len(files) == 1
        entry = json.loads(files[0].read_bytes().partition(b"\n")[2])
        assert entry["steps"] == [step.name for step, _ in first] and entry["tried"] > 2
        assert 0 < entry["seconds"] <= entry["start_seconds"] * 1.0001
        beam._known.clear()
        count = os.stat(files[0]).st_mtime_ns
        assert beam.searched_steps(kb.matmul(16, 16, 16), bench, 1) == first
        assert os.stat(files[0]).st_mtime_ns == count


@pytest.mark.device("CPU")
@verifies("searching.trial.limits")
def test_what_cannot_be_printed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from impl.cpu import backend
    bench: Any = Device["CPU"]
    ast = kb.matmul(4, 4, 4)
    kb.run(ast, *(np.zeros(16, np.float32) for _ in range(3)))

    def broken(*_: Any) -> None:
        raise KeyError("a fault of the printer")

    monkeypatch.setattr(backend, "render", broken)
    assert bench.trial([ast], 5) == [None]


@verifies("searching.found.later")
@pytest.mark.usefixtures("timed")
def test_what_was_found_first_is_forgotten_first_and_found_again(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam, "_MOST_KNOWN", 2)
    asts, bench = [kb.matmul(8, 9, size) for size in (10, 11, 12)], FakeBench()
    first = [names(ast, bench, 1) for ast in asts]
    assert len(beam._known) == 2
    other = FakeBench()
    assert [names(ast, other, 1) for ast in asts] == first and not other.trials
    assert len(beam._known) == 2
