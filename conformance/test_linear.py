"""White-box tests of the chapter linear: the schedule step by step."""
from __future__ import annotations

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Ops, Tensor, UOp, dtypes, run_schedule
from impl.effects import Buffer
from impl.errors import VariableError
from impl.linear import (
    create_linear_with_vars,
    create_schedule,
    get_kernel_graph,
    linear_to_schedule,
    lower_sink_to_linear,
    memory_planner,
)
from impl.symbolic import Variable


def sink(*tensors: Tensor) -> UOp:
    return UOp(Ops.SINK, dtypes.index, tuple(t.uop for t in tensors))


def several() -> tuple[Tensor, np.ndarray]:
    """An expression of several kernels: a product, a column reduction of it, another product."""
    array = np.random.default_rng(0).integers(-3, 4, (128, 64)).astype(np.float32)
    x = Tensor(array).realize()
    total = (x @ x.T).sum(0).reshape(1, 128)
    return (total @ x) + 1, (array @ array.T).sum(0)[None] @ array + 1


@verifies("linear.order.legal")
def test_a_shuffled_kernel_graph_is_ordered_again() -> None:
    y, expected = several()
    graph = get_kernel_graph(sink(y))
    assert len(graph.src) > 1
    shuffled = UOp(Ops.SINK, dtypes.index, graph.src[::-1])
    run_schedule(linear_to_schedule(create_schedule(shuffled)))
    np.testing.assert_allclose(y.numpy(), expected)


@verifies("linear.kernel.none")
def test_a_kernel_is_not_lowered_again() -> None:
    y, _ = several()
    linear = lower_sink_to_linear(sink(y))
    assert linear is not None and lower_sink_to_linear(linear.src[0].src[0]) is None
    run_schedule(linear_to_schedule(linear))


@verifies("linear.variables.one-value")
def test_one_name_with_two_values_raises() -> None:
    variable = Variable("n", 0, 9)
    both = [Tensor(variable.bind(value)).cast(dtypes.float32) for value in (3, 4)]
    with pytest.raises(VariableError, match="n: .*3.*4"):
        create_linear_with_vars(sink(both[0] + both[1]))


@verifies("linear.nested.flat")
def test_a_nested_linear_is_flattened() -> None:
    y, expected = several()
    linear = lower_sink_to_linear(sink(y))
    assert linear is not None
    nested = UOp(Ops.LINEAR, dtypes.index, (
        UOp(Ops.LINEAR, dtypes.index, linear.src[:1]), *linear.src[1:]))
    items = linear_to_schedule(nested)
    assert [i.ast for i in items] == [call.src[0] for call in linear.src]
    run_schedule(items)
    np.testing.assert_allclose(y.numpy(), expected)


@verifies("linear.memory.kept")
def test_kept_buffers_get_memory_of_their_own() -> None:
    y, expected = several()
    linear = lower_sink_to_linear(sink(y))
    assert linear is not None and y.uop.realized is not None
    result: Buffer = y.uop.realized.arg[0]
    items = memory_planner(linear_to_schedule(linear), keep=[result])
    assert result.memory is None
    placed = {b for item in items for b in item.bufs if b.memory is not None and b is not result}
    assert placed
    run_schedule(items)
    np.testing.assert_allclose(y.numpy(), expected)
