"""Bugs that once passed every other test: each test here fails for one of them.

A test cites the rule that its bug breaks. The bug is named in the docstring.
"""
from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Device, Tensor, TinyJit, settings
from impl.effects import advance, collect, leaf_of, mark_realized


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


def same_as_eager(program: Callable[[Callable[..., Any]], Any]) -> Any:
    """What a program computes with its function captured, after comparing it with eager calls."""
    eager = program(lambda function: function)
    assert program(TinyJit) == eager
    return eager


# Replay


@verifies("replay.effects.all", observe="replay")
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_one_of_several_states_advances(count: int) -> None:
    """The bug: of three or more tensors that a call changes, a replay leaves out the last."""
    def program(captured: Callable[..., Any]) -> list[list[float]]:
        states = [numbers(number, -number) for number in range(count)]

        def body(x: Tensor) -> None:
            for factor, state in enumerate(states):
                state.assign(state + x * (factor + 1))

        step = captured(body)
        for value in range(5):
            step(numbers(value, 1))
        return [state.tolist() for state in states]

    found = same_as_eager(program)
    assert found == [[n + 10 * (n + 1), -n + 5 * (n + 1)] for n in range(count)]


@verifies("replay.effects.all", observe="replay")
def test_every_one_of_several_gradients_is_set() -> None:
    """The same bug, where what is left out is a gradient."""
    def program(captured: Callable[..., Any]) -> list[list[float]]:
        weights = [Tensor([1.0, 2.0]).requires_grad_() for _ in range(4)]

        def body(x: Tensor) -> None:
            for weight in weights:
                weight.grad = None
            total = x.sum()
            for factor, weight in enumerate(weights):
                total = total + (weight * x * (factor + 1)).sum()
            total.backward()

        step = captured(body)
        for value in range(4):
            step(numbers(value, 1))
        return [weight.grad.tolist() for weight in weights if weight.grad is not None]

    assert same_as_eager(program) == [[3, 1], [6, 2], [9, 3], [12, 4]]


@verifies("replay.readers.kept", observe="replay")
def test_every_one_of_several_old_values_is_kept() -> None:
    """The bug: of several buffers whose old value is held, a replay saves only the first."""
    states = [numbers(10 * n, n) for n in range(3)]

    def body(x: Tensor) -> None:
        for state in states:
            state.assign(state + x)

    step = TinyJit(body)
    for _ in range(3):
        step(numbers(1, 1))
    held = [Tensor(state.uop) for state in states]
    step(numbers(1, 1))
    step(numbers(1, 1))
    assert [one.tolist() for one in held] == [[10 * n + 3, n + 3] for n in range(3)]
    assert [one.tolist() for one in states] == [[10 * n + 5, n + 5] for n in range(3)]


@verifies("replay.random.advances", observe="replay")
@pytest.mark.parametrize("copies", [0, 1, 2])
def test_random_numbers_advance_across_a_copy(copies: int) -> None:
    """The bug: the counter stands still in a replay of several tables with copies in between."""
    here = Device.DEFAULT
    other = "REFERENCE" if here != "REFERENCE" else "CPU"

    def program(captured: Callable[..., Any]) -> list[list[float]]:
        Tensor.manual_seed(5)

        def body(x: Tensor) -> Tensor:
            y = (x + Tensor.rand(2)).realize()
            for _ in range(copies):
                y = y.to(other).realize().to(here) + Tensor.rand(2)
            return y

        step = captured(body)
        return [step(numbers(0, 0)).tolist() for _ in range(5)] + [Tensor.rand(2).tolist()]

    found = same_as_eager(program)
    assert len({tuple(one) for one in found}) == 6


# Effects


@verifies("effects.war.rescue")
def test_a_reader_of_what_was_computed_deep_in_its_graph() -> None:
    """The bug: readers are sought by the buffers that a graph names, and not among those that a
    part of it was computed into."""
    gc.collect()
    x = numbers(1, 2, 3)
    middle = x * 2
    reader = middle.flip(0) + 1  # names x only, and has `middle` in memory from the next line on
    middle.realize()
    x.assign(x * 0).realize()
    middle.assign(middle + 5)
    assert collect([middle.uop]).rescued == 1
    middle.realize()
    assert (reader.tolist(), middle.tolist(), x.tolist()) == ([7, 5, 3], [7, 9, 11], [0, 0, 0])


@verifies("effects.version.overwritten")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_node_of_an_overwritten_buffer_is_forgotten(count: int) -> None:
    """The bug: of several nodes in one buffer, an overwrite forgets the first only."""
    memory = numbers(0, 0)
    leaf, nodes = memory.uop, [(Tensor([1.0, 2.0]) * 3).uop for _ in range(count)]
    for node in nodes:
        mark_realized(node, leaf)
    assert all(leaf_of(node) is leaf for node in nodes)
    advance(leaf.arg[0], 1)
    assert [node.realized for node in nodes] == [None] * count


# Settings


@verifies("settings.plan.key")
@verifies("caching.key.settings")
@pytest.mark.parametrize(("name", "value"), [
    ("CC", "another-compiler"), ("NOOPT", 1), ("FUSE", 0), ("NO_MEMORY_PLANNER", 1),
    ("POISON", 1), ("ORDER_SEED", 7)])
def test_what_changes_plans_is_known_as_such(name: str, value: settings.Value) -> None:
    """The bug: the compiler is registered as changing no plan, and a plan is found whose kernels
    another compiler has made. A list of its own, since the registry cannot check itself."""
    with Context(DEVICE="REFERENCE", **{name: settings.REGISTRY[name].default}):
        key = settings.plan_key()
        total = (numbers(1, 2) + 1).sum()
        document = total.schedule_document()["cache"]["key"]
        with Context(**{name: value}):
            assert settings.plan_key() != key
            assert total.schedule_document()["cache"]["key"] != document
