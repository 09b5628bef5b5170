"""Results that share memory with the state of a captured function. See spec/replay.md."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.chapters.replay.test_replay_calls import first, numbers, same_as_eager
from conformance.trace import verifies
from impl import Tensor, TinyJit
from impl.errors import ReplayError

Body = Callable[[Tensor], Tensor]
FORMS: dict[str, Body] = {
    "sum": lambda w: w + 0, "tensor": Tensor, "product": lambda w: w * 1,
    "view": lambda w: w.reshape(2, 1), "itself": lambda w: w}


@verifies("replay.state.parted", observe="replay")
@pytest.mark.parametrize("form", ["sum", "tensor", "product"])
def test_an_output_that_is_fed_back(form: str) -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        w, held = numbers(1), [numbers(2)]

        def body(x: Tensor) -> Tensor:
            w.assign(w + x)
            return FORMS[form](w)

        step = captured(body)
        for _ in range(6):
            held.append(step(held[-1]))
        assert captured is not TinyJit or step.replays == 4  # no capture for each pair that parts
        return [first(each) for each in (*held, w)]

    same_as_eager(program)


@verifies("replay.state.parted", observe="replay")
def test_two_tensors_that_were_one_and_are_both_used() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        w = numbers(3)
        old, view = Tensor(w), w.reshape(1, 2)

        def body(x: Tensor) -> Tensor:
            w.assign(w + x)
            return w * 100 + old * 10 + view

        step = captured(body)
        return [first(step(numbers(i))) for i in range(5)]

    same_as_eager(program)


@pytest.mark.slow
@verifies("replay.state.parted", observe="replay")
@verifies("replay.state.eager", observe="replay")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("held", [0, 1, 3, 9])
@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_a_state_that_is_returned_under_another_tensor(form: str, held: int, kind: Any) -> None:
    def program(captured: Callable[..., Any]) -> list[Any]:
        w = Tensor(np.zeros(2, kind)).realize()

        def body(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            w.assign(w + x)
            return FORMS[form](w), w + 0, w * 2

        step, results, found = captured(body), list[Any](), list[Any]()
        for i in range(6):
            results.append(step(Tensor(np.array([i, 1], kind)).realize()))
            results = results[len(results) - min(held, len(results)):]
            found += [each.tolist() for result in results for each in result]
        return [*found, w.tolist()]

    same_as_eager(program)


@verifies("replay.state.parted", observe="replay")
@verifies("replay.nested.inlined+2", observe="replay")
@pytest.mark.parametrize("nested", [False, True])
def test_functions_that_share_a_state(nested: bool) -> None:
    def program(captured: Callable[..., Any]) -> list[Any]:
        w = numbers(0)

        def add(x: Tensor) -> Tensor:
            w.assign(w + x)
            return w + 0

        inner = captured(add)

        def double(x: Tensor) -> Tensor:
            w.assign((inner(x) if nested else x) + w * 2)
            return Tensor(w)

        outer, held = captured(double), list[Tensor]()
        for i in range(5):
            held += [inner(numbers(i)), outer(numbers(1))]
        return [first(each) for each in (*held, w)]

    same_as_eager(program)


@verifies("replay.state.parted", observe="replay")
@pytest.mark.parametrize("reached", [False, True])
def test_where_gradients_flow_the_call_is_right_or_refused(reached: bool) -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        w = numbers(1).requires_grad_()
        held, found = [w + 0], list[float]()
        old = held[0]

        def body(x: Tensor) -> Tensor:
            w.grad = None
            (w * x * (old if reached else 1)).sum().backward()
            assert w.grad is not None
            w.assign((w - w.grad).detach())
            return w + 0

        step = captured(body)
        for i in range(5):
            try:
                held.append(step(numbers(i)))
            except ReplayError as error:
                assert error.remedy
                break
            found.append(first(w))
        return found

    eager, replayed = program(lambda function: function), program(TinyJit)
    assert replayed == eager[:len(replayed)] and replayed
