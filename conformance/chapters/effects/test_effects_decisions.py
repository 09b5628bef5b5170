"""What this implementation decides about versions and waiting readers.  See spec/effects.md."""
from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, GlobalCounters, Tensor
from impl.effects import Buffer, collect, leaf_of, write
from impl.errors import GraphError, ShapeError
from impl.ir import Ops, UOp


@pytest.fixture(autouse=True)
def on_the_reference_device() -> Iterator[None]:
    gc.collect()
    with Context(DEVICE="REFERENCE"):
        yield


def vector(*values: float) -> Tensor:
    return Tensor(list(values), dtype="float32").realize()


def memory(tensor: Tensor) -> Buffer:
    assert tensor.uop.op is Ops.BUFFER
    buffer: Buffer = tensor.uop.arg[0]
    return buffer


@verifies("effects.version.overwritten")
def test_an_overwritten_version_is_an_error() -> None:
    x = vector(1, 2, 3)
    old = x.uop
    x.assign(x * 2).realize()
    assert leaf_of(x.uop) is x.uop
    with pytest.raises(GraphError, match="version 0 of .* was overwritten by version 1"):
        leaf_of(old)
    with pytest.raises(GraphError, match="overwritten"):
        Tensor(old).tolist()
    with pytest.raises(GraphError, match="overwritten"):
        (Tensor(old) + 1).tolist()


@verifies("effects.value.eager")
@verifies("effects.variable.isolated")
def test_two_handles_of_one_value() -> None:
    first = vector(1, 2, 3)
    second, third = Tensor(first), Tensor(first)
    first.assign(first + 10)
    second[0:1] = Tensor([7.0])
    assert first.tolist() == [11, 12, 13]
    assert second.tolist() == [7, 2, 3]
    assert third.tolist() == [1, 2, 3]


@verifies("effects.version.held")
def test_a_held_version_keeps_its_memory() -> None:
    first = vector(1, 2, 3)
    second, buffer = Tensor(first), memory(first)
    first.assign(first + 10).realize()
    assert memory(second) is buffer
    assert buffer.version == 0
    assert memory(first) is not buffer
    first[1:] = Tensor([0.0, 0.0])  # nobody holds this version but the variable itself
    moved = memory(first) if first.uop.op is Ops.BUFFER else None
    assert moved is None
    assert second.tolist() == [1, 2, 3]
    assert first.tolist() == [11, 0, 0]


@verifies("effects.version.held")
def test_all_versions_that_are_held_keep_their_memory() -> None:
    one, other = vector(1, 2, 3), vector(4, 5, 6)
    held = [Tensor(one), Tensor(other)]
    buffers = [memory(each) for each in held]
    one.assign(one + other)
    other.assign(other * 2)
    Tensor.realize(one, other)
    assert [memory(each) for each in held] == buffers
    assert [each.tolist() for each in held] == [[1, 2, 3], [4, 5, 6]]
    assert (one.tolist(), other.tolist()) == ([5, 7, 9], [8, 10, 12])


@verifies("effects.version.held")
def test_a_version_is_held_by_an_expression_that_was_computed() -> None:
    x = vector(1, 2, 3)
    one = x + 1
    other = Tensor(one.uop)
    one.realize()
    buffer = memory(one)
    one.assign(one * 2)
    x.assign(x * 0)
    Tensor.realize(one, x)
    assert other.tolist() == [2, 3, 4]
    assert memory(other.realize()) is buffer
    assert (one.tolist(), x.tolist()) == ([4, 6, 8], [0, 0, 0])


@verifies("effects.version.overwritten")
def test_a_shared_node_outlives_its_version() -> None:
    """A scalar is one node for all who use it; a write to one variable is none to the others."""
    total = Tensor(0.0).realize()
    total.assign(total + 1).realize()
    assert (Tensor([1.0]) + 0.0).tolist() == [1]
    assert Tensor(0.0).tolist() == 0
    x = vector(1, 2, 3)
    makers: list[Callable[[], Tensor]] = [lambda: Tensor.zeros(3), lambda: x * 2]
    for make in makers:
        node, value = make().uop, make()  # the node is kept, but by no tensor
        expected = value.realize().tolist()
        value.assign(value + 1).realize()
        assert node.realized is None
        assert make().uop is node
        assert make().tolist() == expected


@verifies("effects.war.rescue")
def test_waiting_readers_are_computed_first() -> None:
    x = vector(1, 2, 3)
    direct, deep = x + 100, ((x * 2).flip(0) + 1).reshape(3, 1)
    x.assign(x * 0)
    effects = collect([x.uop])
    assert effects.rescued == 2
    assert set(effects.roots) == {x.uop, direct.uop, deep.uop}
    x.realize()
    GlobalCounters.reset()
    assert direct.tolist() == [101, 102, 103]
    assert deep.tolist() == [[7], [5], [3]]
    assert x.tolist() == [0, 0, 0]
    assert GlobalCounters.kernels == 0


@verifies("effects.war.rescue")
def test_readers_of_what_a_rescued_value_overwrites() -> None:
    x, y = vector(1, 2, 3), vector(4, 5, 6)
    reader = y * 10
    y.assign(y + x)
    x.assign(x * 0)
    assert collect([x.uop]).rescued == 2
    assert x.tolist() == [0, 0, 0]
    assert reader.tolist() == [40, 50, 60]
    assert y.tolist() == [5, 7, 9]


@verifies("effects.war.rescue")
def test_readers_of_a_view_and_of_a_version_in_between() -> None:
    x = vector(1, 2, 3, 4)
    view = x[1:3]
    x[0:2] = Tensor([9.0, 9.0])
    between = x + 0
    again = x.reshape(2, 2)[0]
    x[1:] = x[:3]
    assert x.tolist() == [9, 9, 9, 3]
    assert view.tolist() == [2, 3]
    assert between.tolist() == [9, 9, 3, 4]
    assert again.tolist() == [9, 9]


@verifies("effects.war.rescue")
def test_a_write_through_a_reshape_is_a_write_to_its_memory() -> None:
    x = Tensor([[1, 2], [3, 4]]).realize()
    reader, other = x + 0, Tensor(x.reshape(4))
    other[1:2] = Tensor([9])
    other.realize()
    assert reader.tolist() == [[1, 2], [3, 4]]
    assert x.tolist() == [[1, 2], [3, 4]]
    assert other.tolist() == [1, 9, 3, 4]


@verifies("effects.rescue.dead")
def test_nothing_is_computed_for_the_dead() -> None:
    x = vector(1, 2, 3)
    reader = x.exp() + 1
    del reader
    x.assign(x + 1)
    assert collect([x.uop]).rescued == 0
    (kernel,) = x.schedule_document()["kernels"]
    assert kernel["stages"] == 1
    for _ in range(3):  # as the steps of a training loop do
        loss = (x * x).sum()
        x.assign(x + 1)
    assert collect([x.uop]).rescued == 1  # only the last loss is still there
    del loss
    assert collect([x.uop]).rescued == 0


@verifies("effects.assign.in-place+2")
def test_an_unobserved_value_is_overwritten_in_place() -> None:
    weights, gradient = vector(1, 2, 3), vector(1, 1, 1)
    buffer = memory(weights)
    for step in range(1, 4):
        weights.assign(weights - gradient * 0.5).realize()
        assert memory(weights) is buffer
        assert buffer.version == step
    weights[1:2] = Tensor([8.0])
    weights.realize()
    assert memory(weights) is buffer
    assert weights.tolist() == [-0.5, 8, 1.5]


@verifies("effects.assign.in-place+2")
@pytest.mark.parametrize(("write_it", "note"), [
    (lambda x: x.assign(x.flip(0)), "is not in place: it reads elements that it has overwritten"),
    (lambda x: x.__setitem__(slice(1, 4), x[:3]), "goes through a temporary"),
])
def test_what_cannot_be_in_place_says_so(write_it, note) -> None:  # type: ignore[no-untyped-def]
    x = vector(1, 2, 3, 4)
    expected = np.array([1, 2, 3, 4])
    expected = expected[::-1] if "is not" in note else np.array([1, 1, 2, 3])
    write_it(x)
    (said,) = x.schedule_document()["notes"]
    assert note in said
    assert x.tolist() == expected.tolist()


@verifies("effects.view-write.expanded")
def test_a_view_that_repeats_cannot_be_written() -> None:
    row = Tensor([[1, 2, 3]]).realize()
    with pytest.raises(ShapeError, match="written twice"):
        row.expand(2, 3).assign(Tensor([[1, 2, 3], [4, 5, 6]]))
    windows = Tensor([1, 2, 3, 4]).realize()
    leaf = windows.uop
    overlapping = UOp(Ops.UNFOLD, leaf.dtype, (leaf,), (0, 3, 2, 1, 1))
    with pytest.raises(ShapeError, match="written twice"):
        write(leaf, overlapping, overlapping)
    padded = UOp(Ops.PAD, leaf.dtype, (leaf,), ((1, 0),))
    with pytest.raises(ShapeError, match="adds elements"):
        write(leaf, padded, padded)
    assert row.tolist() == [[1, 2, 3]]
    assert windows.tolist() == [1, 2, 3, 4]
    windows[::2] = Tensor([8, 9])  # a stride shows each element once
    assert windows.tolist() == [8, 2, 9, 4]


@verifies("effects.view-write.empty")
def test_a_write_to_nothing_is_no_write() -> None:
    x = vector(1, 2, 3)
    leaf = x.uop
    x[1:1] = Tensor.zeros(0)
    assert x.uop is leaf
    nothing = UOp(Ops.SHRINK, leaf.dtype, (leaf,), ((2, 2),))
    assert write(leaf, nothing, nothing) is leaf
    grid = Tensor.full((1, 3), 2.0)
    grid.reshape(3)[1:1] = Tensor.zeros(0)
    assert grid.tolist() == [[2, 2, 2]]


@verifies("effects.view-write.region")
def test_a_region_of_a_value_without_memory() -> None:
    makers: list[Callable[[], Tensor]] = [lambda: Tensor.full((1, 3), 2.0),
                                          lambda: Tensor([[1.0, 1.0, 1.0]]) + 1]
    for make in makers:
        grid = make()
        grid.reshape(3)[0:1] = Tensor([7.0])
        assert grid.tolist() == [[7, 2, 2]]


@verifies("effects.realize.order-independent+2")
def test_a_realize_takes_a_set() -> None:
    for turned in (False, True):
        x = vector(1, 2, 3)
        reader = x * 10
        x.assign(x + 1)
        later = x * 10
        tensors = [x, reader, later]
        Tensor.realize(*(tensors[::-1] if turned else tensors))
        assert [t.tolist() for t in tensors] == [[2, 3, 4], [10, 20, 30], [20, 30, 40]]


@verifies("effects.version.single-writer", observe="schedule")
def test_versions_count_from_one() -> None:
    x = vector(1, 2, 3, 4)
    for start in range(3):
        x[start:start + 2] = x[start + 1:start + 2].expand(2)
    document = x.schedule_document()
    written = [touch for kernel in document["kernels"] for touch in kernel["writes"]]
    state = [b["id"] for b in document["buffers"] if b["kind"] == "state"]
    versions = sorted(touch["version"] for touch in written if touch["buffer"] in state)
    assert versions == [1, 2, 3]
    assert x.tolist() == [2, 3, 4, 4]
