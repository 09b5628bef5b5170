"""Movement operations against NumPy, element by element.  Chapter: spec/ranges.md."""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.trace import verifies
from impl import Context, Tensor, Variable, symbolic
from impl.dtypes import dtypes
from impl.effects import collect, new_buffer_node
from impl.fusion import FusionLimits, choose_cuts
from impl.ir import Ops, RangeKind, Shape, UOp, new_range
from impl.nn.functional import fold
from impl.places import Place
from impl.ranges import (
    Access,
    Form,
    Index,
    Stage,
    StageGraph,
    Tracer,
    output_ranges,
    reshape_index,
    source_index,
    write_pattern,
)

SHAPES: list[Shape] = [(6,), (2, 3), (3, 1, 4), (4, 4), (1,), (2, 2, 3)]
ABSENT = -1
CHOICES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1 << 20)), min_size=1, max_size=5)


@pytest.fixture(autouse=True)
def on_the_reference_device() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def source(*shape: int) -> UOp:
    return new_buffer_node(Place("REFERENCE"), dtypes.int32, shape)


def divided(count: int, choice: int) -> Shape:
    """A shape with `count` elements."""
    sizes = []
    while count > 1:
        parts = [d for d in range(2, count + 1) if count % d == 0]
        sizes.append(parts[choice % len(parts)])
        count, choice = count // sizes[-1], choice // 3
    return tuple(sizes)


def moved(node: UOp, array: np.ndarray, kind: int, choice: int) -> tuple[UOp, np.ndarray]:
    """A movement operation on a node, and what it means, said with NumPy."""
    assert node.shape is not None
    shape, rank = node.shape, len(node.shape)
    axis = choice % rank if rank else 0
    if rank == 0 or kind == 0:
        to = divided(math.prod(shape), choice)
        return UOp(Ops.RESHAPE, node.dtype, (node,), to), array.reshape(to)
    if kind == 1:
        grown = tuple(3 if size == 1 else size for size in shape)
        return UOp(Ops.EXPAND, node.dtype, (node,), grown), np.broadcast_to(array, grown)
    if kind == 2:
        orders = list(itertools.permutations(range(rank)))
        order = orders[choice % len(orders)]
        return UOp(Ops.PERMUTE, node.dtype, (node,), order), array.transpose(order)
    if kind == 3:
        widths = tuple(((choice >> a) % 3, (choice >> a + 3) % 2) for a in range(rank))
        padded = np.pad(array, widths, constant_values=ABSENT)
        return UOp(Ops.PAD, node.dtype, (node,), widths), padded
    if kind == 4:
        bounds = tuple((choice % size if a == axis else 0, size) for a, size in enumerate(shape))
        return (UOp(Ops.SHRINK, node.dtype, (node,), bounds),
                array[tuple(slice(*each) for each in bounds)])
    if kind == 5:
        return UOp(Ops.FLIP, node.dtype, (node,), (axis,)), np.flip(array, axis)
    return unfolded(node, array, axis, choice)


def unfolded(node: UOp, array: np.ndarray, axis: int, choice: int) -> tuple[UOp, np.ndarray]:
    step, dilation = choice % 3 + 1, choice // 3 % 2 + 1
    size = choice // 7 % 3 + 1
    span = (size - 1) * dilation + 1
    if span > array.shape[axis]:
        return node, array
    count = (array.shape[axis] - span) // step + 1
    rows = [np.take(array, [o * step + k * dilation for k in range(size)], axis)
            for o in range(count)]
    argument = (axis, count, size, step, dilation)
    return UOp(Ops.UNFOLD, node.dtype, (node,), argument), np.stack(rows, axis)


def element(view: UOp, base: UOp, place: tuple[int, ...]) -> int:
    """The flat number of the element of `base` that a view shows, or ABSENT."""
    index: Index = tuple(UOp.const(dtypes.index, number) for number in place)
    while view is not base:
        index, inside = source_index(view, index)
        if not symbolic.evaluate(inside, {}):
            return ABSENT
        view = view.src[0]
    assert base.shape is not None
    numbers = [symbolic.evaluate(i, {}) for i in index]
    assert all(0 <= n < size for n, size in zip(numbers, base.shape, strict=True))
    return int(np.ravel_multi_index(numbers, base.shape)) if base.shape else 0


@verifies("ranges.index.exact+2")
@pytest.mark.parametrize("kind", range(7))
def test_one_movement_shows_what_numpy_shows(kind: int) -> None:
    """Every permutation of three axes among them, and every axis flipped."""
    base = source(2, 3, 4)
    for choice in range(12):
        view, array = moved(base, np.arange(24).reshape(2, 3, 4), kind, choice)
        for place in np.ndindex(array.shape):
            assert element(view, base, place) == array[place]


@verifies("ranges.index.exact+2")
@given(st.sampled_from(SHAPES), CHOICES)
@settings(max_examples=150)
def test_every_view_shows_what_numpy_shows(shape: Shape, steps: list[tuple[int, int]]) -> None:
    base = view = source(*shape)
    array = np.arange(math.prod(shape)).reshape(shape)
    for kind, choice in steps:
        view, array = moved(view, array, kind, choice)
        if array.size > 400:
            break
    assert view.shape == array.shape
    for place in np.ndindex(array.shape):
        assert element(view, base, place) == array[place]


@verifies("ranges.index.exact+2")
@given(st.sampled_from(SHAPES), CHOICES)
@settings(max_examples=100)
def test_loops_and_numbers_give_one_index(shape: Shape, steps: list[tuple[int, int]]) -> None:
    """Simplifying an index over loops changes nothing."""
    base = view = source(*shape)
    array = np.arange(math.prod(shape)).reshape(shape)
    for kind, choice in steps:
        view, array = moved(view, array, kind, choice)
    if array.size > 400:
        return
    assert view.shape is not None
    loops = tuple(new_range(size, RangeKind.LOOP) for size in view.shape)
    index: Index = loops
    conditions, walk = [], view
    while walk is not base:
        index, inside = source_index(walk, index)
        conditions.append(inside)
        walk = walk.src[0]
    for place in np.ndindex(array.shape):
        point = dict(zip(loops, place, strict=True))
        if all(symbolic.evaluate(condition, point) for condition in conditions):
            numbers = [symbolic.evaluate(i, point) for i in index]
            assert np.ravel_multi_index(numbers, shape) == array[place]
        else:
            assert array[place] == ABSENT


@verifies("ranges.reshape.local+4")
def test_a_reshape_leaves_other_axes_alone() -> None:
    for outer, inner, kept in [((2, 12, 5), (2, 3, 4, 5), {0: 0, 2: 3}),
                               ((2, 3, 4, 5), (2, 12, 5), {0: 0, 3: 2}),
                               ((7, 6), (7, 1, 6), {0: 0, 1: 2}), ((8, 3), (2, 4, 3), {1: 2}),
                               ((1, 5, 1), (5,), {1: 0})]:
        loops = output_ranges(outer)
        index = reshape_index(loops, outer, inner)
        for old, new in kept.items():
            assert index[new] is loops[old]


# Stages


def stages(*tensors: Tensor) -> tuple[StageGraph, list[Stage]]:
    effects = collect([tensor.uop for tensor in tensors])
    cuts = choose_cuts(effects.roots, effects.nodes, FusionLimits(), True)
    graph = StageGraph(cuts.reasons, cuts.alias, Place("REFERENCE")).build()
    return graph, graph.stages


def numbers(*shape: int) -> Tensor:
    return Tensor(np.arange(math.prod(shape), dtype=np.float32).reshape(shape)).realize()


def samples() -> list[tuple[Tensor, ...]]:
    """Values of many sorts; together they have all kinds of stages."""
    x, y, state = numbers(4, 6), numbers(6, 4), numbers(4, 6)
    state[1:3, ::2] = x[1:3, ::2] * 2
    return [(x + 1,), (x.softmax(1),), (x @ y, x.sum(0)), (x.pad((1, 2, 0, 3)).exp().sum(1),),
            (x.exp().pad((1, 2)),), (x.unfold(1, 3).sum(2),), (state, state.flip(0)),
            (x.reshape(2, 2, 6).permute(2, 0, 1).reshape(12, 2).max(1),),
            (x.sum(1), x.sum(1) * 2), (x[1:1].sum(), x[0:0])]


def inside(access: Access, point: dict[UOp, int], size: int) -> None:
    if symbolic.evaluate(access.valid, point):
        place = [symbolic.evaluate(i, point) for i in access.index]
        assert all(0 <= p < s for p, s in zip(place, access.shape, strict=True)), place
        assert math.prod(access.shape) <= size


@verifies("ranges.reshape.local+4")
def test_a_reshape_below_padding_divides_nothing() -> None:
    x = numbers(2, 6, 5)
    shaped = (x * 2).reshape(2, 1, 6, 5) + 1  # a reshape that is no alias, and taken apart again
    windows = shaped.reshape(2, 6, 5).pad(((0, 0), (1, 1), (0, 0))).unfold(1, 3, 1).sum(3)
    _, made = stages(windows)
    index = made[-1].reads[0].pattern.flat
    assert not [part for part in index.toposort() if part.op in (Ops.FLOORDIV, Ops.FLOORMOD)]
    padded = np.pad(x.numpy() * 2 + 1, ((0, 0), (1, 1), (0, 0)))
    expected = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    np.testing.assert_allclose(windows.numpy(), expected, rtol=1e-6)


@verifies("ranges.reshape.local+4")
def test_windows_that_are_added_up_divide_no_place() -> None:
    """Rows of windows, added where they lie: a place and its window have bounds only together."""
    columns = numbers(2, 27, 64)
    image: Tensor = fold(columns, (8, 8), 3, padding=1)
    _, made = stages(image)
    for access in made[-1].reads:
        index = access.pattern.flat
        assert not [part for part in index.toposort() if part.op in (Ops.FLOORDIV, Ops.FLOORMOD)]
    windows, expected = columns.numpy().reshape(2, 3, 3, 3, 8, 8), np.zeros((2, 3, 10, 10))
    for row, column in np.ndindex(3, 3):
        expected[:, :, row:row + 8, column:column + 8] += windows[:, :, row, column]
    np.testing.assert_allclose(image.numpy(), expected[:, :, 1:-1, 1:-1], rtol=1e-6)


@verifies("ranges.access.inside")
def test_nothing_is_touched_outside_its_storage() -> None:
    count = 0
    for tensors in samples():
        graph, found = stages(*tensors)
        for stage in found:
            loops = [u for u in stage.form.value.toposort() if u.op is Ops.RANGE]
            loops += [u for u in stage.loops if u not in loops]
            for place in itertools.product(*(range(int(u.src[0].arg)) for u in loops)):
                point = dict(zip(loops, place, strict=True))
                for access in (*stage.reads, stage.write):
                    node = graph.values[access.value].node
                    assert node.shape is not None
                    inside(access, point, math.prod(node.shape))
                    count += 1
    assert count > 1000


@verifies("ranges.outside.zero")
def test_padding_is_zero_over_any_function() -> None:
    x = np.array([[-1.0, 0.0], [2.0, np.inf]], np.float32)
    widths = ((1, 0), (2, 1))
    with np.errstate(all="ignore"):
        functions: list[tuple[Any, Any]] = [
            (lambda t: t.exp(), np.exp), (lambda t: t + 5, lambda a: a + 5),
            (lambda t: t.reciprocal(), lambda a: 1 / a), (lambda t: t, lambda a: a),
            (lambda t: t.log(), np.log)]
        for ours, theirs in functions:
            got = ours(Tensor(x)).pad((2, 1, 1, 0)).numpy()
            np.testing.assert_allclose(got, np.pad(theirs(x), widths), rtol=1e-6)
            got = ours(Tensor(x).pad((2, 1, 1, 0))).numpy()
            np.testing.assert_allclose(got, theirs(np.pad(x, widths)), rtol=1e-6)
    got = (Tensor(x)[:1] + 1).pad((0, 0, 1, 1)).prod(0).numpy()
    np.testing.assert_array_equal(got, [0, 0])


@verifies("ranges.outside.zero")
@pytest.mark.parametrize("fuse", [0, 1])
def test_a_gather_of_no_row_gives_zero(fuse: int) -> None:
    rows = Tensor(np.arange(1, 7, dtype=np.float32).reshape(3, 2)).realize()
    index = Tensor([0, 3, -1, 2, 1 << 30, -(1 << 31)]).realize()
    found = np.array([[1, 2], [0, 0], [0, 0], [5, 6], [0, 0], [0, 0]])
    with Context(FUSE=fuse):
        for values, wanted in [(rows, found), (rows + 10, np.where(found, found + 10, 0)),
                               (rows.exp(), np.where(found, np.exp(found), 0))]:
            got = Tensor(UOp(Ops.GATHER, rows.dtype, (values.uop, index.uop)))
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-6)


@verifies("ranges.order.combined+2")
@pytest.mark.parametrize("step, dilation", [(1, 1), (2, 1), (3, 1), (1, 2), (2, 3)])
def test_fold_adds_windows_of_two(step: int, dilation: int) -> None:
    windows = np.array([[1, 10], [2, 20], [3, 30]], np.int32)
    expected = np.zeros(9 + dilation, np.int32)
    for window, tap in itertools.product(range(3), range(2)):
        expected[window * step + tap * dilation] += windows[window, tap]
    shape = 0, 9 + dilation, step, dilation
    node = UOp(Ops.FOLD, dtypes.int32, (Tensor(windows).uop,), shape)
    np.testing.assert_array_equal(Tensor(node).numpy(), expected)


@verifies("ranges.order.combined+2")
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3),
       st.integers(0, 3))
@settings(max_examples=60)
def test_fold_adds_the_windows(count: int, taps: int, step: int, dilation: int,
                               more: int) -> None:
    extent = (count - 1) * step + (taps - 1) * dilation + 1 + more
    windows = np.arange(1, 2 * count * taps + 1, dtype=np.int32).reshape(2, count, taps)
    expected = np.zeros((2, extent), np.int32)
    for window, tap in itertools.product(range(count), range(taps)):
        expected[:, window * step + tap * dilation] += windows[:, window, tap]
    with Context(DEVICE="REFERENCE"):
        node = UOp(Ops.FOLD, dtypes.int32, (Tensor(windows).uop,), (1, extent, step, dilation))
        np.testing.assert_array_equal(Tensor(node).numpy(), expected)


@verifies("ranges.stage.one-value+2")
def test_a_number_that_was_realized_is_read_before_an_equal_one_is_stored() -> None:
    """One stage writes the number, another one stores what it is made of."""
    whole, number = Tensor.zeros(3, 1).contiguous().realize(), Tensor.full((1, 1), 3.0)
    whole.shrink(((0, 1), (0, 1))).assign(number)
    assert number.tolist() == [[3]]
    other = Tensor.full((1,), 3.0)
    Tensor.realize(whole, other)
    assert whole.tolist() == [[3], [0], [0]] and other.tolist() == [3]


@verifies("schedule.document.devices+2")
def test_a_number_that_lies_on_one_device_is_computed_on_others() -> None:
    """A number in an expression has no device, and is the same node wherever it stands."""
    assert Tensor.full((), 2.5).realize().item() == 2.5
    there = Tensor([1.0, 2.0, 3.0], device="CPU:1").realize() * 2.5
    (kernel,) = Tensor.schedule_document(there)["kernels"]
    assert len(kernel["reads"]) == 1 and there.tolist() == [2.5, 5, 7.5]


@verifies("ranges.stage.one-value+2")
def test_each_value_has_one_stage() -> None:
    for tensors in samples():
        graph, found = stages(*tensors)
        made = [stage.write.value for stage in found]
        assert len(set(made)) == len(made)
        needed = {value.number for value in graph.values
                  if not value.leaf and 0 not in value.shape}
        assert set(made) == needed
        earlier: set[int] = set()
        for stage in found:  # sources first
            assert all(a.value in earlier or graph.values[a.value].leaf for a in stage.reads)
            earlier.add(stage.write.value)


def forms(*tensors: Tensor) -> list[Form]:
    """The form of each stage that computes something."""
    return [stage.form for stage in stages(*tensors)[1]]


def layers(count: int) -> Tensor:
    value = numbers(8, 8)
    for _ in range(count):
        value = ((value @ numbers(8, 8)).relu().softmax(1) + 1).contiguous()
    return value


@verifies("ranges.form.shared+2")
def test_a_layer_that_repeats_is_traced_once() -> None:
    few, many = forms(layers(2)), forms(layers(12))
    assert len(many) == 6 * len(few)
    assert len(set(map(id, many))) == len(set(map(id, few))) < len(few)


@verifies("ranges.form.shared+2")
def test_what_a_form_depends_on() -> None:
    x, y, wide = numbers(4, 4), numbers(4, 4), numbers(4, 6)
    n, k = Variable("n", 1, 9).bind(3), Variable("k", 1, 9).bind(3)
    pairs: list[tuple[Tensor, Tensor, bool]] = [
        (x + y, y + x, True), (x.exp() + y, y.exp() + x, True), (x + x, x + y, False),
        (x * 2, x * 3, False), (x * 0.0, x * -0.0, False), (x * 2, y * 2, True),
        (x.sum(0), x.sum(1), False), (x.sum(0), x.max(0), False), (x[1:], x[:3], False),
        (x + 1, wide + 1, False), (x + 1, x.int() + 1, False), (x.flip(0), x.flip(1), False),
        (x * n, y * n, True), (x * n, x * k, False), (x.reshape(16) + 1, y.reshape(16) + 1, True),
        (x.pad((1, 0)), x.pad((0, 1)), False), (x.permute(1, 0) + 1, x + 1, False)]
    for one, other, same in pairs:
        first, second = forms(one.contiguous(), other.contiguous())
        assert (first is second) is same, (one, other)


@verifies("ranges.form.shared+2")
def test_a_write_is_a_form_of_its_own_place() -> None:
    def written(place: Any, value: Tensor) -> Tensor:
        state = numbers(4, 4)
        state[place] = value
        return state

    x, y = numbers(4), numbers(4)
    states = [written(1, x), written(1, y), written(2, x), written((slice(None), 1), x)]
    first, again, other, column = forms(*states)
    assert first is again
    assert len({id(form) for form in (first, other, column)}) == 3


@verifies("ranges.form.shared+2")
@verifies("effects.view-write.region")
def test_a_write_goes_to_its_place_though_its_view_was_asked_for() -> None:
    def written(start: int) -> tuple[Tensor, Tensor]:
        state = Tensor(list(range(8))).realize()
        old = state[start:start + 2]
        state[start:start + 2] = Tensor([10, 20]).realize()
        return old, state

    (old, state), (other_old, other_state) = written(0), written(4)
    Tensor.realize(old, other_old, state, other_state)
    assert old.tolist() == [0, 1] and other_old.tolist() == [4, 5]
    assert state.tolist() == [10, 20, 2, 3, 4, 5, 6, 7]
    assert other_state.tolist() == [0, 1, 2, 3, 10, 20, 6, 7]


@verifies("ranges.stage.one-value+2")
def test_nothing_is_computed_for_nothing() -> None:
    x = numbers(4, 6)
    empty = (x[2:2] + 1).exp()
    assert empty.schedule_document()["kernels"] == []
    assert empty.numpy().shape == (0, 6)
    total = empty.sum(0)
    (kernel,) = Tensor.schedule_document(total, empty.contiguous() * 2)["kernels"]
    assert kernel["reads"] == []
    assert total.tolist() == [0.0] * 6


@verifies("ranges.stage.lean")
def test_a_node_at_an_index_is_computed_once() -> None:
    y = source(4)
    for _ in range(40):
        y = UOp(Ops.MUL, y.dtype, (y, y))
    tracer = Tracer(lambda node: (0, node.shape or ()) if node.op is Ops.BUFFER else None)
    expression = tracer.trace(y, output_ranges((4,)))
    assert tracer.operations == 40
    assert len(tracer.reads) == 1
    assert len([u for u in expression.toposort() if u.op is Ops.MUL]) == 40


@verifies("ranges.stage.lean")
def test_a_node_that_is_reached_on_two_ways_is_computed_once() -> None:
    """Two flips lead back to the index where the sum is needed already."""
    x = source(3, 4)
    total = UOp(Ops.REDUCE, x.dtype, (x,), (Ops.ADD, (1,)))
    around = UOp(Ops.FLIP, x.dtype, (UOp(Ops.FLIP, x.dtype, (total,), (0,)),), (0,))
    tracer = Tracer(lambda node: (0, node.shape or ()) if node.op is Ops.BUFFER else None)
    expression = tracer.trace(UOp(Ops.ADD, x.dtype, (total, around)), output_ranges((3, 1)))
    assert len(tracer.reduced) == len(tracer.reads) == 1
    assert len([u for u in expression.toposort() if u.op is Ops.REDUCE]) == 1


@verifies("ranges.reduce.own+2")
def test_the_loops_of_a_reduction_are_its_own() -> None:
    x = source(3, 4)
    total = UOp(Ops.REDUCE, x.dtype, (x,), (Ops.ADD, (1,)))
    most = UOp(Ops.REDUCE, x.dtype, (x,), (Ops.MAXIMUM, (1,)))
    turned = UOp(Ops.FLIP, x.dtype, (total,), (0,))
    both = UOp(Ops.ADD, x.dtype, (UOp(Ops.ADD, x.dtype, (total, turned)), most))
    tracer = Tracer(lambda node: (0, node.shape or ()) if node.op is Ops.BUFFER else None)
    index = output_ranges((3, 1))
    expression = tracer.trace(both, index)
    reductions = [u for u in expression.toposort() if u.op is Ops.REDUCE]
    loops = [loop for node in reductions for loop in node.src[1:]]
    assert len(reductions) == 3
    assert len(set(loops)) == 3
    free: dict[UOp, set[UOp]] = {}
    for node in expression.toposort():
        free[node] = {node} if node.op is Ops.RANGE else set()
        free[node] = free[node].union(*(free[s] for s in node.src))
        if node.op is Ops.REDUCE:
            free[node] -= set(node.src[1:])
    assert free[expression] == {index[0]}


@verifies("ranges.trace.depth")
def test_tracing_does_not_recurse() -> None:
    y = source(4)
    for step in range(20_000):
        y = (UOp(Ops.NEG, y.dtype, (y,)) if step % 2 else UOp(Ops.FLIP, y.dtype, (y,), (0,)))
    tracer = Tracer(lambda node: (0, node.shape or ()) if node.op is Ops.BUFFER else None)
    tracer.trace(y, output_ranges((4,)))
    assert tracer.operations == 10_000


@verifies("effects.view-write.region")
@given(st.sampled_from(SHAPES), CHOICES)
@settings(max_examples=100)
def test_a_write_names_the_element_that_a_read_names(shape: Shape,
                                                     steps: list[tuple[int, int]]) -> None:
    base = view = source(*shape)
    array = np.arange(math.prod(shape)).reshape(shape)
    for kind, choice in steps:
        if kind in (0, 2, 4, 5):
            view, array = moved(view, array, kind, choice)
    assert view.shape is not None
    index = output_ranges(view.shape)
    access = write_pattern(view, base, index)
    for place in np.ndindex(array.shape):
        point = {i: n for i, n in zip(index, place, strict=True) if i.op is Ops.RANGE}
        found = [symbolic.evaluate(i, point) for i in access.index]
        assert np.ravel_multi_index(found, shape) == array[place]
