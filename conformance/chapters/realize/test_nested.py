"""Runs within runs: handlers of signals, and finalizers.  Chapter: spec/realize.md.

Python calls a handler between any two steps of a program. Here a trace function calls it at the
beginning of the k-th function of `impl` that a step calls, for all k.
"""
from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, TinyJit
from impl.errors import GraphError
from impl.schedule import schedule_cache


def interrupted(step: Callable[[], object], place: int, handler: Callable[[], object]) -> bool:
    """Run a step, and a handler where its `place`-th function of `impl` begins; whether it came."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> None:
        nonlocal count
        if frame.f_globals.get("__name__", "").startswith("impl."):
            count += 1
            if count == place + 1:
                sys.settrace(None)
                handler()

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return count > place


def places(stride: int) -> Iterator[int]:
    yield from range(0, 100_000, stride)


class Two:
    """Two states, and a step that changes both; `jit`: one that is replayed."""

    def __init__(self, jit: bool) -> None:
        self.w, self.v = (Tensor(np.zeros(4, np.float32)).realize() for _ in range(2))
        self.one = Tensor(np.ones(4, np.float32)).realize()
        self.step = TinyJit(self.body) if jit else self.body
        self.steps = 0
        for _ in range(4 if jit else 1):
            self.run()

    def body(self, one: Tensor) -> None:
        self.w.assign(self.w * 1 + one)
        self.v.assign(self.v * 1 + self.w)

    def run(self) -> None:
        self.steps += 1
        self.step(self.one)
        self.w.realize(self.v)

    def values(self) -> tuple[float, float]:
        return self.w.numpy()[3].item(), self.v.numpy()[3].item()

    def expected(self) -> tuple[float, float]:
        return float(self.steps), float(self.steps * (self.steps + 1) // 2)


@verifies("realize.nested.apart")
@verifies("realize.nested.refused")
@pytest.mark.parametrize("jit", [False, True])
def test_a_handler_that_reads(jit: bool) -> None:
    """It gets a value that there was before or after the step, or a refusal; the step is done."""
    with Context(DEVICE="REFERENCE"):
        states, refused, seen = Two(jit), 0, set[float]()

        def read() -> None:
            nonlocal refused
            try:
                seen.add(states.w.numpy()[3].item() - states.steps)
            except GraphError as error:
                assert "in the middle of a run" in str(error)
                refused += 1

        for place in places(5 if jit else 23):
            if not interrupted(states.run, place, read):
                break
            assert states.values() == states.expected(), place
        assert seen <= {-1.0, 0.0} and refused


@verifies("realize.nested.later")
@pytest.mark.parametrize("jit", [False, True])
def test_a_handler_that_assigns(jit: bool) -> None:
    """What it assigns is there afterwards, and so is what the step does."""
    with Context(DEVICE="REFERENCE"):
        states = Two(jit)

        def add() -> None:
            states.v.assign(states.v + 100)

        def run() -> None:  # the body is not interrupted: w = w + 1 may lose what a handler does
            states.steps += 1
            if jit:
                states.step(states.one)
            else:
                states.w.realize(states.v)

        for turn, place in enumerate(places(3 if jit else 23), 1):
            for _ in range(2 * jit):  # the states are where a replay has left them
                states.run()
            if not jit:
                states.body(states.one)
            if not interrupted(run, place, add):
                break
            w, v = states.expected()
            assert states.values() == (w, v + 100 * turn), place


@verifies("realize.nested.apart")
def test_a_handler_that_writes_what_is_read() -> None:
    """An expression that is being written down, or planned, or computed, has the values of then."""
    with Context(DEVICE="REFERENCE"):
        w = Tensor(np.ones((3, 4), np.float32)).realize()

        found: list[Tensor] = []

        def compute() -> None:
            found.append(((w + 1).sum(0) * w).realize())

        def overwrite() -> None:
            w.assign(w * 2).realize()

        seen: list[float] = []
        for place in places(7):
            w.assign(Tensor.ones(3, 4)).realize()
            found.clear()
            came = interrupted(compute, place, overwrite)
            seen.append(found[0].numpy()[2, 3].item())
            if not came:
                break
            assert w.numpy()[2, 3].item() == 2, place
        # What was written down first, w + 1, has the value of before the handler, or of after it.
        assert seen == sorted(seen, reverse=True) and {*seen} <= {18, 12, 6}, seen


@verifies("realize.nested.apart")
def test_temporaries_of_a_handler_lie_elsewhere() -> None:
    """A run and the one in its middle have temporaries each, and plans that are right."""
    with Context(DEVICE="REFERENCE"):
        x = Tensor(np.arange(64, dtype=np.float32).reshape(8, 8)).realize()

        def several(x: Tensor) -> Tensor:
            return (x @ (x.softmax() * x.sum(0)).contiguous()).contiguous().sum(1)

        expected, other = several(x).numpy(), several(x.T + 1).numpy()
        schedule_cache.clear()
        found: list[np.ndarray] = []
        for place in places(61):
            found.clear()
            came = interrupted(lambda: found.append(several(x).numpy()), place,
                               lambda: found.append(several(x.T + 1).numpy()))
            assert np.array_equal(found[-1], expected), place
            if not came:
                break
            assert np.array_equal(found[0], other), place


@pytest.mark.slow
@verifies("realize.nested.apart")
def test_a_capture_holds_nothing_of_a_handler() -> None:
    """What a handler does in the middle of a capture is done once, and so is what it calls."""
    with Context(DEVICE="REFERENCE"):
        ticks = 0
        before = signal.signal(signal.SIGINT, lambda *_: tick())

        def tick() -> None:
            nonlocal ticks
            ticks += 1
            done.assign(done + 1)

        try:
            for place in places(211):
                states, ticks = Two(False), 0
                done = Tensor(np.zeros(4, np.float32)).realize()
                states.step = TinyJit(states.body)
                states.run()  # the next call is captured
                came = interrupted(states.run, place, lambda: signal.raise_signal(signal.SIGINT))
                for _ in range(3):
                    states.run()
                assert states.values() == states.expected(), place
                assert done.numpy()[0] == ticks == came, place
                if not came:
                    break
        finally:
            signal.signal(signal.SIGINT, before)


@verifies("realize.nested.apart")
def test_a_handler_captures_nothing() -> None:
    """A function that a handler calls in the middle of its own first call is not captured there."""
    with Context(DEVICE="REFERENCE"):
        one = Tensor(np.ones(4, np.float32)).realize()
        for place in places(11):
            s, held = Tensor(np.zeros(4, np.float32)).realize(), list[Tensor]()

            def body(one: Tensor, s: Tensor = s) -> Tensor:
                s.assign(s + one)
                return s * 1

            step = TinyJit(body)

            def call(step: Any = step, held: list[Tensor] = held) -> None:
                held.append(step(one))

            came = interrupted(call, place, call)
            found = [s.numpy()[0].item()]
            for _ in range(4):
                step(one)
                found.append(s.numpy()[0].item())
            assert found == [found[0] + n for n in range(5)], (place, found)
            assert step.replays >= 2, (place, step.explain())  # it is captured afterwards
            if not came:
                break
