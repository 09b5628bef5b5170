"""White-box tests of the chapter linear: the schedule step by step."""
from __future__ import annotations

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Ops, Tensor, UOp, dtypes, run_schedule
from impl.effects import Buffer, leaf_of
from impl.errors import GraphError, VariableError
from impl.linear import (
    create_linear_with_vars,
    create_schedule,
    get_kernel_graph,
    linear_of_params,
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


@verifies("linear.order.legal+2")
def test_a_shuffled_kernel_graph_is_ordered_again() -> None:
    y, expected = several()
    graph = get_kernel_graph(sink(y))
    assert len(graph.src) > 1
    shuffled = UOp(Ops.SINK, dtypes.index, graph.src[::-1])
    run_schedule(linear_to_schedule(create_schedule(shuffled)))
    np.testing.assert_allclose(y.numpy(), expected)


def versions(call: UOp, side: str) -> set[tuple[Buffer, int]]:
    """The versions of buffers that a CALL reads or writes."""
    run = call.arg.bound
    return {(run.buffers[touch.storage], touch.version)
            for touch in getattr(run.plan.kernels[call.arg.number], side)}


@verifies("linear.order.legal+2")
def test_what_is_overwritten_is_read_before() -> None:
    """By a kernel that only the memory keeps from running later."""
    x = Tensor(np.arange(8, dtype=np.float32)).realize()
    nine = Tensor(np.full(4, 9, np.float32)).realize()
    with Context(FUSE=0):
        old = x.flip(0).contiguous()
        x[2:6] = nine
        graph = get_kernel_graph(sink(x, old))
    for calls in (graph.src, graph.src[::-1]):
        ordered = create_schedule(UOp(Ops.SINK, dtypes.index, calls)).src
        after = [{(buffer, version - 1) for buffer, version in versions(call, "writes")}
                 for call in ordered]
        pairs = [(reader, writer) for reader, call in enumerate(ordered)
                 for writer, replaced in enumerate(after)
                 if reader != writer and versions(call, "reads") & replaced]
        assert pairs and all(reader < writer for reader, writer in pairs)
    run_schedule(linear_to_schedule(create_schedule(graph)))
    assert old.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert x.tolist() == [0, 1, 9, 9, 9, 9, 6, 7]


@verifies("linear.order.legal+2")
def test_of_several_plans_the_first_runs_first() -> None:
    state = Tensor(np.arange(4, dtype=np.float32)).realize()
    calls: list[UOp] = []
    for factor in (2, 3):
        state.assign((state + 1) * factor)
        calls += get_kernel_graph(sink(state)).src
    ordered = create_schedule(UOp(Ops.SINK, dtypes.index, tuple(calls[::-1])))
    assert list(ordered.src) == calls
    run_schedule(linear_to_schedule(ordered))
    assert state.tolist() == [9, 15, 21, 27]


@verifies("linear.order.legal+2")
def test_a_linear_between_whose_kernels_others_run_is_refused() -> None:
    array = np.linspace(-1, 1, 6, dtype=np.float32)
    with Context(DEVICE="REFERENCE", FUSE=0):
        y, expected = separate(Tensor(array).realize(), array)
        linear = lower_sink_to_linear(sink(y))
        assert linear is not None and len(linear.src) > 2
        around = UOp(Ops.LINEAR, dtypes.index, (linear.src[0], *linear.src[2:]))
        calls = UOp(Ops.CALL, dtypes.index, (around,)), linear.src[1]
        for each in (calls, calls[::-1]):
            with pytest.raises(GraphError, match="put them in one LINEAR"):
                create_schedule(UOp(Ops.SINK, dtypes.index, each))
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5)


@verifies("linear.entry.nested+2")
def test_a_kernel_is_not_lowered_again() -> None:
    y, _ = several()
    linear = lower_sink_to_linear(sink(y))
    assert linear is not None and lower_sink_to_linear(linear.src[0].src[0]) is None
    run_schedule(linear_to_schedule(linear))


@verifies("linear.variables.one-value")
def test_one_name_with_two_values_raises() -> None:
    for other in (9, 5):
        bound = Variable("n", 0, 9).bind(3), Variable("n", 0, other).bind(4)
        one, two = (Tensor(bind).cast(dtypes.float32) for bind in bound)
        with pytest.raises(VariableError, match="n: .*3.*4"):
            create_linear_with_vars(sink(one + two))


@verifies("linear.variables.one-value")
def test_what_was_computed_with_another_value_is_no_part_of_the_schedule() -> None:
    variable = Variable("n", 0, 9)
    one, two = (Tensor(variable.bind(value)).cast(dtypes.float32) * 2 for value in (3, 4))
    both = one + two
    one.realize()
    linear, values = create_linear_with_vars(sink(both))
    assert values == {"n": 4}
    run_schedule(linear_to_schedule(linear, values))
    assert both.item() == 14


@verifies("linear.entry.nested+2")
def test_a_nested_linear_is_flattened() -> None:
    y, expected = several()
    linear = lower_sink_to_linear(sink(y))
    assert linear is not None
    assert len(linear.src) > 1
    inner = UOp(Ops.LINEAR, dtypes.index, linear.src[:1])
    nested = UOp(Ops.LINEAR, dtypes.index, (
        UOp(Ops.LINEAR, dtypes.index, (inner, *linear.src[1:])),))
    items = linear_to_schedule(nested)
    assert [i.ast for i in items] == [call.src[0] for call in linear.src]
    run_schedule(items)
    np.testing.assert_allclose(y.numpy(), expected)


def made_of(*tensors: Tensor) -> list[UOp]:
    """The memory of tensors, as sources of a CALL."""
    leaves = [leaf_of(t.uop) for t in tensors]
    return [leaf.arg[0].leaf((t.numel(),)) for leaf, t in zip(leaves, tensors, strict=True) if leaf]


@verifies("linear.entry.nested+2")
def test_a_linear_is_called_with_other_buffers() -> None:
    with Context(DEVICE="REFERENCE"):
        x, other = (Tensor(np.arange(n, n + 6, dtype=np.float32).reshape(2, 3)).realize()
                    for n in (1, 7))
        y = ((x @ x.T).sum(0) * 2).contiguous()
        linear = lower_sink_to_linear(sink(y))
        assert linear is not None and len(linear.src) > 0
        run_schedule(linear_to_schedule(linear))
        leaves = made_of(x, y)
        steps = linear_of_params(linear, [leaf.arg[0] for leaf in leaves])
        assert not {leaf.arg[0] for leaf in leaves} & {
            node.arg[0] for node in steps.toposort() if node.op is Ops.BUFFER}
        first, second, third = (Tensor(np.zeros(2, np.float32)).realize() for _ in range(3))
        square = Tensor(np.zeros((2, 3), np.float32)).realize()
        # One call within another, its own number for each buffer; then the same by itself.
        params = (UOp(Ops.PARAM, dtypes.float32, (), (1, (6,))),
                  UOp(Ops.PARAM, dtypes.float32, (), (0, (2,))))
        inner = UOp(Ops.CALL, dtypes.index, (steps, *params))
        outer = UOp(Ops.LINEAR, dtypes.index, (inner,))
        calls = [UOp(Ops.CALL, dtypes.index, (outer, *made_of(first, other))),
                 UOp(Ops.CALL, dtypes.index, (steps, *made_of(x, second))),
                 UOp(Ops.CALL, dtypes.index, (steps, *made_of(square, third)))]
        whole = create_schedule(UOp(Ops.SINK, dtypes.index, tuple(calls)))
        assert {call.src[0] for call in whole.src} == {outer, steps}
        run_schedule(linear_to_schedule(whole))
        a, b = other.numpy(), x.numpy()
        np.testing.assert_allclose(first.numpy(), (a @ a.T).sum(0) * 2)
        np.testing.assert_allclose(second.numpy(), (b @ b.T).sum(0) * 2)
        assert third.tolist() == [0, 0]


@verifies("linear.entry.nested+2")
def test_calls_are_ordered_by_what_their_kernels_do() -> None:
    with Context(DEVICE="REFERENCE"):
        steps = lower_sink_to_linear(sink(several()[0]))
        assert steps is not None and len(steps.src) > 1
        parts = [UOp(Ops.CALL, dtypes.index, (UOp(Ops.LINEAR, dtypes.index, (call,)),))
                 for call in steps.src]
        ordered = create_schedule(UOp(Ops.SINK, dtypes.index, tuple(parts[::-1])))
        assert list(ordered.src) == parts


@verifies("linear.entry.nested+2")
def test_a_call_that_lacks_a_buffer_is_refused() -> None:
    with Context(DEVICE="REFERENCE"):
        x = Tensor([1.0, 2.0, 3.0]).realize()
        y = x * 2
        linear = lower_sink_to_linear(sink(y))
        assert linear is not None
        run_schedule(linear_to_schedule(linear))
        (source, target), short = made_of(x, y), made_of(Tensor([1.0]).realize())
        steps = linear_of_params(linear, [source.arg[0], target.arg[0]])
        for given, says in (([source], "asks for buffer 1 of its CALL, which has 1"),
                            ([*short, target], "3 elements of float32 as buffer 0 .* has 1")):
            call = UOp(Ops.CALL, dtypes.index, (steps, *given))
            with pytest.raises(GraphError, match=says):
                linear_to_schedule(UOp(Ops.LINEAR, dtypes.index, (call,)))


@verifies("linear.memory.kept+3")
def test_kept_buffers_get_memory_of_their_own() -> None:
    array = np.linspace(-1, 1, 64, dtype=np.float32)
    with Context(FUSE=0):
        y, expected = separate(Tensor(array).realize(), array)
        linear = lower_sink_to_linear(sink(y))
    assert linear is not None and y.uop.realized is not None
    result: Buffer = y.uop.realized.arg[0]
    items = linear_to_schedule(linear)
    first, *others = (item.writes[0] for item in items if item.writes != [result])
    memory_planner(items, keep=[result, first])
    assert result.memory is None and first.memory is None
    assert others and all(buffer.memory is not None for buffer in others)
    run_schedule(items)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5)


def separate(x: Tensor, array: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """An expression of several kernels with temporaries between them; `array` is what x is."""
    y = ((x * 2).contiguous().flip(0).exp().contiguous().flip(0) + 1).contiguous().flip(0)
    return (y * 1).contiguous(), (np.exp(array[::-1] * 2)[::-1] + 1)[::-1]


@verifies("linear.memory.kept+3")
@pytest.mark.parametrize("held", ["tensor", "expression"])
def test_what_living_tensors_need_is_not_placed(held: str) -> None:
    """Neither what a tensor is, nor what its pending expression reads."""
    array = np.linspace(-1, 1, 64, dtype=np.float32)
    x = Tensor(array).realize()
    with Context(FUSE=0):
        first = (x + 3).contiguous()
        y, expected = separate(first, array + 3)
        linear = lower_sink_to_linear(sink(first, y))
        assert linear is not None and first.uop.realized is not None
        buffer: Buffer = first.uop.realized.arg[0]
        needs = first if held == "tensor" else first + 10
        del first
        items = memory_planner(linear_to_schedule(linear))
    assert buffer.memory is None
    assert any(b.memory is not None and b is not x.uop.arg[0] for i in items for b in i.bufs)
    run_schedule(items)
    np.testing.assert_allclose(needs.numpy(), array + (3 if held == "tensor" else 13), rtol=1e-6)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5)


@verifies("linear.memory.kept+3")
@pytest.mark.parametrize("part", [False, True])
def test_what_comes_from_before_is_not_placed(part: bool) -> None:
    """Two schedules that are called with a buffer, the second planned before the first has run."""
    x = Tensor(np.ones(64, np.float32)).realize()
    first, state = (x * 6).contiguous(), Tensor(np.full(64, 5, np.float32)).realize()
    given = Buffer(first.device, dtypes.float32, 64)
    before = called(first, first, given)
    if part:
        state[10:20] = 7  # writes what it does not fill
    with Context(FUSE=0):
        y = (state.exp() * 2).contiguous().flip(0) + 1
        after = called(y, state, given)
    items = memory_planner(linear_to_schedule(after))
    assert given.memory is None
    run_schedule([*linear_to_schedule(before), *items])
    expected = np.full(64, 6.0)
    if part:
        expected[10:20] = 7
    np.testing.assert_allclose(y.numpy(), np.exp(expected)[::-1] * 2 + 1, rtol=1e-5)


def called(value: Tensor, changed: Tensor, given: Buffer) -> UOp:
    """The schedule of a value, which has run, called with a buffer in place of a tensor's."""
    linear = lower_sink_to_linear(sink(value))
    assert linear is not None
    run_schedule(linear_to_schedule(linear))
    (own,) = made_of(changed)
    steps = linear_of_params(linear, [own.arg[0]])
    call = UOp(Ops.CALL, dtypes.index, (steps, given.leaf((given.size,))))
    return UOp(Ops.LINEAR, dtypes.index, (call,))


@verifies("linear.memory.kept+3")
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2, 3], [0, 0, 1, 2, 3]])
def test_places_are_right_for_a_part_of_the_order_alone(order: list[int]) -> None:
    """The rest of the kernels waits, and needs what was made. In another order nothing is placed.
    """
    array = np.linspace(-1, 1, 64, dtype=np.float32)
    with Context(FUSE=0):
        y, expected = separate(Tensor(array).realize(), array)
        linear = lower_sink_to_linear(sink(y))
        assert linear is not None and len(linear.src) > 3
        calls = tuple(linear.src[n] for n in order)
        items = memory_planner(linear_to_schedule(UOp(Ops.LINEAR, dtypes.index, calls)))
    placed = [item.writes[0].memory is not None for item in items]
    assert placed == [order == sorted(set(order))] * len(order)
    if order == sorted(order):
        run_schedule(items)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5)


@verifies("linear.read.waits")
@pytest.mark.parametrize("asked", ["before", "after"])
def test_what_is_read_before_its_linear_runs(asked: str) -> None:
    """It is computed then, once, whether the items of the LINEAR are there already or not."""
    with Context(DEVICE="REFERENCE", FUSE=0):
        big = Tensor(np.full(64, 7, np.float32)).realize()
        del big  # its memory is given to another
        x, state = (Tensor(np.arange(3, dtype=np.float32)).realize() for _ in range(2))
        y = x * 2 + 5
        state.assign(state + x)
        linear = lower_sink_to_linear(sink(y, state))
        assert linear is not None and len(linear.src) > 1
        items = linear_to_schedule(linear) if asked == "before" else []
        assert (y + 1).tolist() == [6, 8, 10]
        assert state.tolist() == [0, 2, 4]
        items = items or linear_to_schedule(linear)
        assert [item.metadata["kernel"] for item in items] == list(range(len(linear.src)))
        run_schedule(items)
        assert y.tolist() == [5, 7, 9] and state.tolist() == [0, 2, 4]
        run_schedule(linear_to_schedule(linear))  # what is asked for again runs again
        assert state.tolist() == [0, 3, 6]


@verifies("linear.read.waits")
def test_a_linear_that_waits_is_called_with_other_buffers() -> None:
    with Context(DEVICE="REFERENCE"):
        x, other = (Tensor(np.arange(n, n + 3, dtype=np.float32)).realize() for n in (0, 10))
        x.assign(x + 1)
        linear = lower_sink_to_linear(sink(x))
        assert linear is not None
        (own,), (given,) = made_of(x), made_of(other)
        steps = linear_of_params(linear, [own.arg[0]])
        for leaf in (given, own):
            call = UOp(Ops.CALL, dtypes.index, (steps, leaf))
            run_schedule(linear_to_schedule(UOp(Ops.LINEAR, dtypes.index, (call,))))
            assert other.tolist() == [11, 12, 13]
        assert x.tolist() == [1, 2, 3]


@verifies("linear.read.waits")
def test_a_linear_that_waits_runs_with_the_values_that_are_given() -> None:
    with Context(DEVICE="REFERENCE"):
        for early in (False, True):
            y = Tensor(Variable("n", 0, 9).bind(4)).cast(dtypes.float32) * 2
            linear, values = create_linear_with_vars(sink(y))
            assert values == {"n": 4}
            if early:
                assert y.tolist() == 8
            run_schedule(linear_to_schedule(linear, {"n": 7}))
            assert y.tolist() == 14


@verifies("realize.schedule.once")
def test_what_was_scheduled_before_runs_before() -> None:
    x = Tensor(np.full(8, 2, np.float32)).realize()
    y = x * 3
    items = y.schedule()
    z = y + 1
    linear = lower_sink_to_linear(sink(z))
    assert all(item.done for item in items) and linear is not None
    run_schedule(linear_to_schedule(linear))
    assert z.tolist() == [7] * 8
    assert y.tolist() == [6] * 8
