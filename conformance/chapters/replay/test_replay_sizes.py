"""Captured functions whose sizes depend on bound variables. See spec/replay.md."""
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor, TinyJit, Variable, nn
from impl.errors import ShapeError, VariableError

ROWS = np.random.default_rng(5).standard_normal((10, 3)).astype(np.float32)
N = Variable("n", 1, 20)
RATE = 2


def table() -> Tensor:
    return Tensor(ROWS).realize()


def same(found: Tensor, wanted: Any) -> None:
    assert tuple(found.shape) == np.shape(wanted)
    np.testing.assert_allclose(found.numpy(), wanted, 1e-5, 1e-6)


@verifies("replay.sizes.follow+3", observe="replay")
def test_a_variable_among_the_arguments() -> None:
    t = table()

    @TinyJit
    def both(x: Tensor, n: Any) -> tuple[Tensor, Tensor]:
        return (x[:n] * 2).realize().sum(0), x[:n] + 1

    for value in (4, 3, 7, 1, 10, 2):
        total, more = both(t, N.bind(value))
        same(total, (ROWS[:value] * 2).sum(0))
        same(more, ROWS[:value] + 1)
    assert both.replays == 3


@verifies("replay.sizes.follow+3", observe="replay")
def test_a_tensor_with_a_symbolic_size() -> None:
    t = table()
    twice = TinyJit(lambda x: [(x * 2).realize() @ x.T, x])
    for value in (4, 3, 9, 1, 10, 2):
        product, given = twice(t[: N.bind(value)])
        same(product, ROWS[:value] * 2 @ ROWS[:value].T)
        same(given, ROWS[:value])
    assert twice.replays == 3


@verifies("replay.sizes.follow+3", observe="replay")
def test_arithmetic_on_a_variable_as_an_argument() -> None:
    t = table()
    part = TinyJit(lambda x, stop: x[1:stop])
    for value in (4, 3, 7, 1):
        same(part(t, N.bind(value) + 1), ROWS[1:value + 1])
    assert part.replays == 1


@verifies("replay.sizes.follow+3", observe="replay")
def test_state_at_a_position() -> None:
    at = Variable("at", 0, 9)
    keys, held = Tensor.zeros(10, 3).contiguous().realize(), np.zeros((10, 3), np.float32)

    @TinyJit
    def step(row: Tensor, n: Any) -> Tensor:
        keys[n:n + 1] = row
        return keys[: n + 1].sum(0)

    for number in range(10):
        held[number] = ROWS[number]
        same(step(Tensor(ROWS[number:number + 1]), at.bind(number)), held[:number + 1].sum(0))
        same(keys, held)
    assert step.replays == 7


@verifies("replay.sizes.follow+3", observe="replay")
def test_between_devices() -> None:
    t = table()
    moved = TinyJit(lambda x: (x * 2).to("REFERENCE") + 1)
    for value in (4, 3, 9, 1, 10):
        same(moved(t[: N.bind(value)]), ROWS[:value] * 2 + 1)


@verifies("replay.sizes.same", observe="replay")
def test_beyond_the_tensor() -> None:
    t, n = table(), Variable("n", 1, 20)
    top = TinyJit(lambda x, count: x[:count] * 2)
    for value in (4, 3, 7, 10):
        same(top(t, n.bind(value)), ROWS[:value] * 2)
    for value in (11, 20):
        same(top(t, n.bind(value)), ROWS[:value] * 2)
    same(top(t, n.bind(2)), ROWS[:2] * 2)


@verifies("replay.sizes.same", observe="replay")
def test_another_way_through_the_body() -> None:
    t = table()

    def body(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 5 else x + 1

    ways = TinyJit(body)
    for value in (3, 4, 2):
        same(ways(t[: N.bind(value)]), ROWS[:value] + 1)
    for value in (6, 7, 5, 8, 10, 3):
        same(ways(t[: N.bind(value)]), ROWS[:value] * 2 if value > 5 else ROWS[:value] + 1)
    assert len(ways.entries) == 2 and ways.replays == 4


@verifies("replay.sizes.same", observe="replay")
def test_sizes_of_two_variables_that_must_agree() -> None:
    t, m = table(), Variable("m", 1, 20)
    added = TinyJit(lambda x, y: x + y)
    for value in (3, 4, 2):
        same(added(t[: N.bind(value)], t[: m.bind(value)]), ROWS[:value] * 2)
    with pytest.raises(ShapeError):
        added(t[: N.bind(3)], t[: m.bind(4)])


@verifies("replay.sizes.same", observe="replay")
def test_numbers_made_of_sizes() -> None:
    t = table()
    bodies: list[Any] = [lambda x: x * (1.0 / x.shape[0]),
                         lambda x: sum((x[place] for place in range(x.shape[0])), Tensor(0.0))]
    wanted: list[Any] = [lambda x: x / len(x), lambda x: x.sum(0)]
    for body, reference in zip(bodies, wanted, strict=True):
        captured = TinyJit(body)
        for value in (4, 3, 7, 1, 10, 10, 2):
            same(captured(t[: N.bind(value)]), reference(ROWS[:value]))
        assert captured.replays == 1  # the second 10: a capture for each value


@verifies("replay.sizes.same", observe="replay")
def test_a_number_that_is_one_for_two_sizes() -> None:
    """Two captures agree, and a third would not."""
    t = table()
    halves = TinyJit(lambda x: x * float(len(range(x.shape[0] // 2))))
    for value in (4, 4, 5, 6, 8, 4):
        same(halves(t[: N.bind(value)]), ROWS[:value] * (value // 2))


@verifies("replay.sizes.same", observe="replay")
@verifies("replay.arguments.call", observe="replay")
def test_other_expressions_are_other_arguments() -> None:
    t, m = table(), Variable("m", 1, 20)
    same_shape = TinyJit(lambda x: x + 1)
    for value in (3, 4, 5):
        same_shape(t[: N.bind(value)])
    for other in (t[: m.bind(5)], t[:5], t[: N.bind(4) + 1]):
        assert same_shape(other).tolist() == (other + 1).tolist()
    with pytest.raises(VariableError, match="n"):
        added = TinyJit(lambda x, y: x + y)
        for _ in range(2):
            added(t[: N.bind(3)].sum(), t[: N.bind(3)])
            added(t[: N.bind(3)], t[: N.bind(4)])


@pytest.mark.slow
@verifies("symbolic.bound.number", observe="replay")
@verifies("replay.sizes.same", observe="replay")
@pytest.mark.parametrize("body", [
    lambda x, n: x.sum() * (2 if n > 4.0 else 3),
    lambda x, n: x.sum() * (2 if x.shape[0] == 4.0 else 3),
    lambda x, n: x.sum() * (2 if x.shape[0] != 4.0 else 3),
    lambda x, n: x.sum() * (2 if np.float32(4.5) > x.shape[0] else 3),
    lambda x, n: x.sum() * len([each for each in (1.5, 2.5, 5.5) if each < n]),
    lambda x, n: x.sum() * (2 if 4.5 < x.shape[0] else 3),
    lambda x, n: x.sum() * (2 if 1.0 * x.shape[0] > 4.5 else 3),
    lambda x, n: x.sum() * (2 if RATE * 2 + 0.5 < x.shape[0] else 3),
    lambda x, n: x.sum() * (2 if -(-RATE - math.sqrt(6.25)) < n else 3),
    lambda x, n: x.sum() * (2 if x.shape[0] in [4.0, 5.0] else 3),
    lambda x, n: x.sum() * len(x),
    lambda x, n: x.sum() * (2 if len(x) > 4 else 3),
    lambda x, n: x.sum() * (2 if n.unbind()[1] > 4 else 3),
    lambda x, n: x.sum() * (2 if Variable.unbind(n)[1] > 4 else 3)])
def test_numbers_that_python_takes_out_of_a_size(body: Any) -> None:
    t, step = table(), TinyJit(body)
    for value in (8, 8, 7, 6, 4, 2, 5):
        bound = N.bind(value)
        np.testing.assert_allclose(step(t[:bound], bound).item(), body(t[:bound], bound).item(),
                                   1e-5)


@verifies("replay.sizes.same", observe="replay")
def test_a_row_of_an_embedding_is_written_to_a_cache() -> None:
    """No size has the operator of matrices."""
    embedding, cache = nn.Embedding(20, 3), Tensor.zeros(20, 3).contiguous().realize()

    def write(x: Tensor, n: Any) -> Tensor:
        row = embedding(x)
        cache[n] = row[0]
        return row @ cache.T
    step = TinyJit(write)
    for number in (3, 1, 4, 5, 9):
        found, row = step(Tensor([number]), N.bind(number)), embedding.weight[number].numpy()
        assert np.isclose(found.numpy()[0, number], row @ row)
        assert np.allclose(cache[number].numpy(), row)
    assert step.replays == 2


@verifies("replay.explain.short")
def test_what_a_capture_is_right_for_is_told() -> None:
    t = table()
    alone, counted = TinyJit(lambda x: x.sum()), TinyJit(lambda x: x.sum() * (1.0 / x.shape[0]))
    for step in (alone, counted):
        for _ in range(2):
            step(t[:N.bind(4)])
    assert "no other capture has shown that the kernels are the same" in alone.explain()
    assert "Python may make a number of n, as 1.0 / n does" in counted.explain()
    alone(t[:N.bind(5)])
    assert "no other capture" not in alone.explain()


@verifies("replay.sizes.same", observe="replay")
def test_a_length_is_not_that_of_two_captures_that_differ_in_something_else() -> None:
    step, t, m = TinyJit(lambda x, y: x.sum() * len(x) + y.sum()), table(), Variable("m", 1, 20)
    for first, second in ((4, 2), (4, 2), (4, 3), (6, 3), (2, 5)):
        x, y = t[:N.bind(first)], t[:m.bind(second)]
        wanted = ROWS[:first].sum() * first + ROWS[:second].sum()
        np.testing.assert_allclose(step(x, y).item(), wanted, 1e-4)
