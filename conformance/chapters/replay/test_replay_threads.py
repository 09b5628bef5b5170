"""Other threads while a function is captured. See spec/replay.md."""
from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, TinyJit
from impl.cpu.programs import CPUTable
from impl.effects import lock
from impl.tensor.random import generator


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


class During:
    """A function that, while it is captured, lets another thread do something."""

    def __init__(self, work: Any) -> None:
        self.work, self.calls = work, 0
        self.threads: list[threading.Thread] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 2:
            begun = threading.Event()
            thread = threading.Thread(target=self.begin, args=(begun,))
            thread.start()
            self.threads.append(thread)
            while not begun.is_set():
                time.sleep(0.001)
            time.sleep(0.05)  # the other thread is at work, or waits for its turn
        return x * 2

    def begin(self, begun: threading.Event) -> None:
        begun.set()
        self.work()

    def check(self) -> None:
        """Captured all the same, and right."""
        step = TinyJit(self, trust=True)
        assert [step(numbers(i)).item() for i in range(2)] == [0, 2]
        for thread in self.threads:
            thread.join(300)
            assert not thread.is_alive()
        assert [step(numbers(i)).item() for i in range(4)] == [0, 2, 4, 6]
        assert step.replays == 4 and self.calls == 2


@verifies("replay.thread.isolated+2", observe="replay")
def test_another_thread_writes() -> None:
    state = numbers(1, 2, 3, 4)

    def work() -> None:
        state.assign(state + 1)
        state[1:3] = state[0:2] * 10

    During(work).check()
    assert state.tolist() == [2, 20, 30, 5]


@verifies("replay.thread.isolated+2", observe="replay")
def test_another_thread_draws() -> None:
    """A replay advances the counter by what the function drew, and by nothing else."""
    drawn: list[Tensor] = []
    Tensor.manual_seed(7)
    During(lambda: drawn.append(Tensor.rand(100))).check()
    assert generator.counter == 100
    again = Tensor.rand(100)
    Tensor.manual_seed(7)
    assert drawn[0].tolist() == Tensor.rand(100).tolist() != again.tolist()


@verifies("replay.thread.isolated+2", observe="replay")
def test_another_thread_realizes_and_keeps() -> None:
    kept: list[Tensor] = []
    shared = numbers(5)
    During(lambda: kept.append((shared * 3).realize())).check()
    assert kept[0].item() == 15


@pytest.mark.slow
@verifies("replay.thread.isolated+2", observe="replay")
@pytest.mark.parametrize("how", ["thread", "future", "queue", "simple queue", "lock"])
def test_a_function_that_waits_for_a_thread(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    state = numbers(0)

    def work() -> float:
        state.assign(state + 1)
        return float(state.sum().item())

    def wait(x: Tensor) -> Tensor:
        if how == "future":
            with ThreadPoolExecutor(1) as pool:
                return x + pool.submit(work).result()
        results: Any = queue.SimpleQueue() if how == "simple queue" else queue.Queue()
        done = threading.Lock()
        done.acquire()

        def run() -> None:
            results.put(work())
            done.release()

        thread = threading.Thread(target=run)
        thread.start()
        if how == "thread":
            thread.join()
        elif how == "lock":
            done.acquire()
        return x + results.get()

    found: list[float] = []
    step = TinyJit(wait, trust=True)
    worker = threading.Thread(target=lambda: found.extend(
        step(numbers(10)).item() for _ in range(3)), daemon=True)
    worker.start()
    worker.join(300)
    assert found == [11, 12, 13] and state.item() == 3
    assert capsys.readouterr().err.count("was not captured") == 1


@verifies("replay.thread.isolated+2", observe="replay")
def test_a_function_that_waits_only_once_is_captured_later() -> None:
    calls: list[int] = []

    def body(x: Tensor) -> Tensor:
        calls.append(0)
        if len(calls) == 2:
            thread = threading.Thread(target=lambda: numbers(1).sum().item())
            thread.start()
            thread.join()
        return x + 1

    step = TinyJit(body, trust=True)
    assert [step(numbers(i)).item() for i in range(6)] == [1, 2, 3, 4, 5, 6]
    assert len(calls) == 3 and step.replays == 3


@verifies("replay.thread.isolated+2", observe="replay")
def test_captures_that_wait_for_one_another() -> None:
    """A captured function waits for a thread that calls another one."""
    inner = TinyJit(lambda x: x * 3)

    def body(x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            return x + pool.submit(lambda: inner(numbers(2)).item()).result()

    outer = TinyJit(body, trust=True)
    assert [outer(numbers(1)).item() for _ in range(5)] == [7] * 5
    assert [inner(numbers(i)).item() for i in range(4)] == [0, 3, 6, 9]


@verifies("replay.thread.isolated+2", observe="replay")
def test_an_argument_that_is_assigned_while_a_thread_is_waited_for() -> None:
    def body(x: Tensor) -> Tensor:
        thread = threading.Thread(target=lambda: numbers(1).sum().item())
        x.assign(x + 1)
        thread.start()
        thread.join()
        return x

    step, x = TinyJit(body, trust=True), numbers(0)
    for turn in range(1, 5):
        assert step(x) is x and x.item() == turn


@verifies("replay.entries.limit", observe="replay")
def test_who_goes_through_the_captures_sees_each_once() -> None:
    """Though another call changes their order meanwhile."""
    step = TinyJit(lambda x, factor: x * factor)
    for factor in (2, 2, 3, 3):
        step(numbers(1), factor)
    seen = step.entries
    first, second = seen
    assert step(numbers(5), factor=2).item() == 10 and step(numbers(5), 2).item() == 10
    assert tuple(seen) == (first, second) and step.entries[0] is not first
    step.cache_clear()
    assert tuple(seen) == (first, second) and not step.entries


@verifies("replay.entries.limit", observe="replay")
def test_two_captures_at_once_are_no_more_than_there_may_be(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread has found room for one, and waits for its turn; then there is room no more."""
    step = TinyJit(lambda x, factor: x * factor)
    step(numbers(1), 1)
    asked, between = TinyJit._is_traced, [3]

    def found(jit: TinyJit[..., Any]) -> bool:
        answer = asked(jit)
        if between:  # what another thread does
            step(numbers(1), between.pop())
        return answer

    monkeypatch.setattr(TinyJit, "_is_traced", found)
    with Context(JIT_ENTRIES=1):
        assert step(numbers(5), 2).item() == 10
    assert len(step.entries) == 1 and step.traces == 1


@verifies("replay.call.interrupted")
@pytest.mark.parametrize("short", [True, False])
def test_a_call_inside_of_a_replay_runs_as_it_is(short: bool,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler of a signal may come between any two steps: here before the kernels run."""
    step, launch, inner = TinyJit(lambda x: x * 2), CPUTable.replay, list[Any]()
    values = [numbers(number) for number in (1, 2, 3)]
    for value in values * 2:
        step(value)

    def interrupted(table: Any) -> None:
        if not inner:
            inner.append(None)
            inner[0] = step(values[2])
        launch(table)

    replays = step.replays
    monkeypatch.setattr(CPUTable, "replay", interrupted)
    if not short:
        for entry in step.entries:
            entry.shortcut = None
    assert step(values[0]).tolist() == [2.0] and inner[0].tolist() == [6.0]
    assert step.replays == replays + 1


@verifies("replay.thread.isolated+2", observe="replay")
def test_captures_that_are_always_disturbed_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    captures, quiet, original = list[int](), list[bool](), TinyJit._capture

    def noted(jit: Any, *given: Any) -> Any:
        captures.append(jit.calls)
        return original(jit, *given)
    monkeypatch.setattr(TinyJit, "_capture", noted)

    def disturbed(x: Tensor) -> Tensor:
        lock.disturbed = lock.disturbed or not quiet
        return x + 1
    step, one = TinyJit(disturbed, trust=True), numbers(1)
    assert [step(one).item() for _ in range(40)] == [2] * 40
    assert captures == [2, 3, 6, 13, 28] and step.replays == 0
    assert "not captured 5 times in a row" in step.explain()
    quiet.append(True)
    while len(captures) < 6:
        assert step(one).item() == 2
    assert step.calls == 59 and [step(one).item() for _ in range(3)] == [2] * 3
    assert step.replays == 3 and "in a row" not in step.explain()
