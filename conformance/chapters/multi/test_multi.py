"""White-box tests of the chapter multi: what lies where, and what is sent."""
from __future__ import annotations

import copy
import gc
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.runner.fuzz import Job, explained, run_chunk
from conformance.trace import verifies
from impl import (
    Context,
    Mesh,
    Ops,
    Tensor,
    TinyJit,
    UOp,
    Variable,
    dtypes,
    func,
    nn,
    run_schedule,
)
from impl.errors import ArgumentError, AxisError, DeviceError
from impl.linear import linear_to_schedule, lower_sink_to_linear
from impl.multi import Sharding

DEVICES = tuple(f"REFERENCE:{i}" if i else "REFERENCE" for i in range(6))


@pytest.fixture(autouse=True)
def reference() -> Any:
    """Interpreted devices: any number of them, and nothing to compile."""
    with Context(DEVICE="REFERENCE"):
        yield


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Whole numbers, whose sums are the same in any order."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


GRID = Mesh(DEVICES[:4], {"data": 2, "model": 2})
MESHES = [Mesh(DEVICES[:n]) for n in (1, 2, 3, 4, 6)] + [Mesh(DEVICES[:4], {"data": 2, "model": 2})]

#: Programs on one matrix of 6 rows and 4 columns, and what NumPy makes of it.
PROGRAMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], Any]]] = {
    "elementwise": (lambda x: x * 2 + 1, lambda a: a * 2 + 1),
    "rows": (lambda x: x.sum(1), lambda a: a.sum(1)),
    "columns": (lambda x: x.sum(0), lambda a: a.sum(0)),
    "least": (lambda x: x.min(), lambda a: a.min()),
    "greatest": (lambda x: x.max(0), lambda a: a.max(0)),
    "product": (lambda x: x @ x.T, lambda a: a @ a.T),
    "gram": (lambda x: x.T @ x, lambda a: a.T @ a),
    "reshape": (lambda x: x.reshape(2, 3, 4), lambda a: a.reshape(2, 3, 4)),
    "flat": (lambda x: x.reshape(24) + 1, lambda a: a.reshape(24) + 1),
    "joined": (lambda x: x.reshape(3, 8), lambda a: a.reshape(3, 8)),
    "flip": (lambda x: x.flip(0), lambda a: a[::-1]),
    "pad": (lambda x: x.pad(((1, 2), (0, 1))), lambda a: np.pad(a, ((1, 2), (0, 1)))),
    "part": (lambda x: x[1:5, 1:3], lambda a: a[1:5, 1:3]),
    "steps": (lambda x: x[::2], lambda a: a[::2]),
    "turned": (lambda x: x.T + x.T.flip(1), lambda a: a.T + a.T[:, ::-1]),
    "running": (lambda x: x.cumsum(0), lambda a: a.cumsum(0)),
    "sorted": (lambda x: x.sort(0)[0], lambda a: np.sort(a, 0)),
    "picked": (lambda x: x[Tensor([4, 0, 4]).to(x.device)], lambda a: a[[4, 0, 4]]),
    "joined twice": (lambda x: x.cat(x, dim=0), lambda a: np.concatenate([a, a])),
    "spread": (lambda x: x.sum(1, keepdim=True) - x, lambda a: a.sum(1, keepdims=True) - a),
    "bits": (lambda x: (x > 0).where(x, -x), np.abs),
}


def placements(mesh: Mesh) -> list[dict[str, int | None]]:
    """Ways to lay a matrix on a mesh."""
    names = list(mesh.axes)
    if len(names) == 1:
        return [{names[0]: axis} for axis in (0, 1, None)]
    return [{names[0]: 0, names[1]: 1}, {names[0]: 1, names[1]: 0}, {names[1]: 0}]


@verifies("multi.value.equal")
@verifies("multi.uneven.masked")
@pytest.mark.parametrize("mesh", MESHES, ids=lambda m: "x".join(map(str, m.axes.values())))
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_one_device(name: str, mesh: Mesh) -> None:
    program, expected = PROGRAMS[name]
    array = numbers(6, 4)
    for placement in placements(mesh):
        found = program(Tensor(array).shard(mesh, **placement))
        np.testing.assert_array_equal(found.numpy(), expected(array), f"{placement}")


@verifies("multi.value.equal")
@pytest.mark.parametrize("axis", [0, 1, None])
def test_writes_reach_every_piece_and_no_older_value(axis: int | None) -> None:
    array = numbers(5, 4)
    x = Tensor(array).shard(DEVICES[:3], axis)
    before = x + 1
    x[1:4, 2] = 7
    x += 1
    expected = array.copy()
    expected[1:4, 2] = 7
    np.testing.assert_array_equal(before.numpy(), array + 1)
    np.testing.assert_array_equal(x.numpy(), expected + 1)


@verifies("multi.value.equal")
def test_gradients_and_optimisers() -> None:
    """A step of a network, data parallel, with spread parameters, and on one device."""
    array, target = numbers(6, 4), numbers(6, 3, seed=1)

    def trained(place_x: Any, place_w: Any) -> list[np.ndarray]:
        w = Tensor(numbers(4, 3, seed=2) / 8)
        place_w(w)
        w.requires_grad = True
        optimizer = nn.optim.Adam([w], lr=0.25)
        for _ in range(3):
            optimizer.zero_grad()
            error = place_x(Tensor(array)) @ w - place_x(Tensor(target))
            (error * error).mean().backward()
            optimizer.step()
        return [w.numpy(), optimizer.param_groups[0].states[0]["exp_avg"].numpy()]

    one = trained(lambda x: x, lambda w: None)
    for axis in (None, 0, 1):
        several = trained(lambda x: x.shard(DEVICES[:4], 0),
                          lambda w, axis=axis: w.shard_(DEVICES[:4], axis))
        for found, expected in zip(several, one, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@verifies("multi.value.equal")
def test_replays_are_those_of_one_device() -> None:
    state = Tensor(numbers(6, 4)).shard(DEVICES[:4], 0).realize()

    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state.sum(0).realize()

    captured, expected = TinyJit(step), numbers(6, 4)
    for turn in range(5):
        given = numbers(6, 4, seed=turn)
        found = captured(Tensor(given).shard(DEVICES[:4], 0).realize())
        expected = expected + given
        np.testing.assert_array_equal(found.numpy(), expected.sum(0))
    np.testing.assert_array_equal(state.numpy(), expected)


@verifies("multi.shard.parts+2")
@pytest.mark.parametrize("size", [1, 2, 5, 6, 7, 8])
def test_parts_follow_each_other(size: int) -> None:
    array = np.arange(size, dtype=np.float32)
    for count in (2, 3, 4):
        width = -(-size // count)
        found = [part.numpy() for part in Tensor(array).shard(DEVICES[:count], 0).shards]
        for i, part in enumerate(found):
            np.testing.assert_array_equal(part, array[i * width:(i + 1) * width])
        assert [part.device for part in Tensor(array).shard(DEVICES[:count], 0).shards] \
            == list(DEVICES[:count])


@verifies("multi.uneven.masked")
def test_what_lies_past_the_end_is_in_no_result() -> None:
    """Division makes NaN there, and the least of all may be greater than zero."""
    for count in (2, 4):
        x = Tensor(np.array([3, 5, 4, 9, 7], np.float32)).shard(DEVICES[:count], 0)
        assert x.min().item() == 3
        assert (1 / x).max().item() == np.float32(1) / np.float32(3)
        assert (x / x).prod().item() == 1
        rows = Tensor(np.zeros(3, np.float32)).shard(DEVICES[:count])
        index = Tensor(np.array([0, 2, 2, 0, 2], np.int32)).shard(DEVICES[:count], 0)
        assert rows.scatter(0, index, x, reduce='add').tolist() == [12, 0, 16]


def copies(tensor: Tensor) -> int:
    """How many transfers a schedule has."""
    return sum(row["kind"] == "copy" for row in Tensor.schedule_document(tensor)["kernels"])


def sent(*tensors: Tensor) -> dict[str, int]:
    """The bytes that each device sends in all transfers of each name."""
    found = Counter[str]()
    for row in Tensor.schedule_document(*tensors)["kernels"]:
        found[row["name"]] += row.get("sent", 0)
    return {name: nbytes for name, nbytes in found.items() if nbytes}


@verifies("multi.operands.cheapest+5")
def test_what_a_product_leaves_due_has_its_price() -> None:
    def placed(*shape: int, axis: int | None) -> Tensor:
        return Tensor(numbers(*shape)).shard(DEVICES[:4], axis).realize()

    weights = placed(16, 16, axis=0)
    for batch in (4, 64):  # either is dearer than 16 * 16 numbers without what is due
        rows = placed(batch, 8, 16, axis=0)
        assert sent(rows @ weights) == {"all-gather over shard": 4 * 16 * 16 * 3 // 4}
        assert (rows @ weights).sharding.axes == ("shard", None, None)
    # What would have to be gathered is larger than the result: that is combined.
    columns, long = placed(2, 64, axis=1), placed(64, 2, axis=0)
    assert sent(columns @ long) == {"all-reduce over shard": 2 * 4 * 2 * 2 * 3 // 4}
    # Nothing is computed on every device to save a transfer.
    short, whole = placed(8, 4, axis=1), placed(4, 64, axis=None)
    assert sent(short @ whole) == {"all-reduce over shard": 2 * 4 * 8 * 64 * 3 // 4}


@verifies("multi.operands.cheapest+5")
def test_what_was_gathered_once_is_had() -> None:
    """Weights that are larger than the batch are gathered for the result, and not moved again."""
    x, *weights = (Tensor(numbers(*shape)).shard(DEVICES[:4], 0).realize()
                   for shape in ((8, 8), (8, 16), (16, 8)))
    for weight in (x, *weights):
        weight.requires_grad = True
    ((x @ weights[0]).tanh() @ weights[1]).square().sum().backward()
    slopes = [each.grad for each in (x, *weights) if each.grad is not None]
    nbytes = 4 * 2 * 8 * 16 * 3 // 4
    with Context(SPEC=2):
        assert sent(*slopes) == dict.fromkeys(
            ("all-gather over shard", "reduce-scatter over shard"), nbytes)


@verifies("multi.due.gathered+2")
@pytest.mark.parametrize("width", [6, 8])
def test_gradients_of_what_was_gathered_are_scattered(width: int) -> None:
    """Attention over spread tokens: keys and values are gathered, their gradients scattered."""
    x = Tensor(numbers(3, 8, width)).shard(DEVICES[:4], 1).realize()
    weights = [Tensor(numbers(width, width, seed=n) / 8).shard(DEVICES[:4]).realize()
               for n in range(3)]
    for each in (x, *weights):
        each.requires_grad = True
    q, k, v = (x @ weight for weight in weights)
    q.scaled_dot_product_attention(k, v).square().sum().backward()
    slopes = [each.grad for each in (x, *weights) if each.grad is not None]
    tokens, all_weights = 4 * 2 * 3 * 8 * width * 3 // 4, 4 * 3 * width * width
    assert sent(*slopes) == {"all-gather over shard": tokens, "reduce-scatter over shard": tokens,
                             "all-reduce over shard": 2 * all_weights * 3 // 4}
    plain = [Tensor(each.numpy()) for each in (x, *weights)]
    for each in plain:
        each.requires_grad = True
    q, k, v = (plain[0] @ weight for weight in plain[1:])
    q.scaled_dot_product_attention(k, v).square().sum().backward()
    for slope, one in zip(slopes, plain, strict=True):
        assert one.grad is not None
        wanted = one.grad.numpy()  # where a sum cancels, its terms say what rounding may cost
        np.testing.assert_allclose(slope.numpy(), wanted, rtol=1e-3, atol=1e-6 * abs(wanted).max())


@verifies("multi.operands.cheapest+5")
def test_the_smaller_operand_moves() -> None:
    def placed(array: np.ndarray, axis: int | None) -> Tensor:
        return Tensor(array).shard(DEVICES[:2], axis).realize()

    rows, columns, whole = (placed(numbers(8, 6), axis) for axis in (0, 1, None))
    narrow = placed(numbers(1, 6), 1)
    assert (rows + rows).sharding.axes == ("shard", None) and copies(rows + rows) == 0
    assert (rows + whole).sharding.axes == ("shard", None) and copies(rows + whole) == 0
    assert (whole + columns).sharding.axes == (None, "shard") and copies(whole + columns) == 0
    assert (rows + columns).sharding.axes == ("shard", None)  # equally dear: the first's
    assert (columns + rows).sharding.axes == (None, "shard")
    assert copies(rows + columns) == 1
    assert (narrow + rows).sharding.axes == ("shard", None)  # six numbers against 48
    grid = Mesh(DEVICES[:4], {"data": 2, "model": 2})
    left = Tensor(numbers(8, 6)).shard(grid, data=0).realize()
    right = Tensor(numbers(6, 8)).shard(grid, model=1).realize()
    assert (left @ right).sharding.axes == ("data", "model") and copies(left @ right) == 0


def any_cut(random: np.random.Generator, mesh: Mesh, rank: int) -> dict[str, int | None]:
    """Some axis, or none, for each axis of a mesh."""
    drawn = {name: int(random.integers(-1, rank)) for name in mesh.axes}
    return {name: None if axis < 0 else axis for name, axis in drawn.items()}


def bytes_told(tensor: Tensor) -> int:
    """How many bytes a schedule says that it would have cost to follow a wish."""
    notes = Tensor.schedule_document(tensor)["notes"]
    return int(notes[0].rpartition("send ")[2].split()[0]) if notes else 0


@verifies("multi.operands.priced")
@pytest.mark.parametrize("axes", [{"a": 4}, {"a": 2, "b": 2}, {"a": 2, "b": 3}], ids=str)
def test_what_transfers_are_said_to_cost_is_what_they_send(axes: dict[str, int]) -> None:
    mesh, random = Mesh(DEVICES[:np.prod([*axes.values()])], axes), np.random.default_rng(len(axes))
    told = 0
    for _ in range(12):
        shape = tuple(map(int, random.integers(2, 8, 3)))
        x = Tensor(numbers(*shape)).shard(mesh, **any_cut(random, mesh, 3)).realize()
        y = Tensor(numbers(*shape)).shard(mesh, **any_cut(random, mesh, 3)).realize()
        for value in (x, x.sum(1), x.sum(2, keepdim=True).expand(*shape)):
            cut = any_cut(random, mesh, len(value.shape))
            more = [sum(sent(each).values()) for each in (value.shard(mesh, **cut), value)]
            found = bytes_told(value.shard(mesh, **cut, wish=True))
            assert found == max(0, more[0] - more[1]), (x.sharding, value.shape, cut)
            told += found
        least = min(sum(sent(each).values()) for each in (x.shard_like(y) + y, x + y.shard_like(x)))
        assert sum(sent(x + y).values()) <= least, (x.sharding, y.sharding, shape)
        turned = x.shard_like(y)
        np.testing.assert_array_equal(turned.numpy(), x.numpy())
    assert told


@verifies("multi.transfer.places")
def test_what_changes_places_does_so_before_others_are_gathered() -> None:
    """A piece is smallest then."""
    x = Tensor(numbers(64, 64)).shard(GRID, data=0, model=1).realize()
    nbytes = 4 * 64 * 64
    assert sent(x.shard(GRID, data=1)) == {
        "all-gather over model": nbytes // 4, "all-to-all over data": nbytes // 4}
    assert sent(x.shard(GRID, model=0, data=1)) == {
        "all-gather over data": nbytes // 4, "all-to-all over model": nbytes // 4}
    third = Tensor(numbers(8, 8, 8)).shard(GRID, data=0, model=1).realize()
    assert sent(third.shard(GRID, data=2)) == {
        "all-to-all over data": 4 * 8 ** 3 // 8, "all-gather over model": 4 * 8 ** 3 // 4}


@verifies("multi.operands.priced")
def test_what_was_brought_from_somewhere_lies_there_for_nothing() -> None:
    x = Tensor(numbers(8, 8)).shard(DEVICES[:4], 0).realize()
    turned = x.shard(DEVICES[:4], 1)
    back = turned.shard(DEVICES[:4], 0, wish=True)
    assert back.sharding.axes == ("shard", None) and not sent(back + 1)


@verifies("multi.program.one+2")
def test_a_plan_is_that_of_any_number_of_devices() -> None:
    def document(count: int) -> list[Any]:
        x = Tensor(numbers(24, 24)).shard(DEVICES[:count], 0).realize()
        w = Tensor(numbers(24, 24)).shard(DEVICES[:count], 1).realize()
        rows = Tensor.schedule_document(((x @ w).relu() @ w.T).softmax(1))["kernels"]
        return [(row["kind"], len(row["reads"]), row["stages"]) for row in rows]

    assert document(2) == document(3) == document(4) == document(6)


@verifies("multi.result.sharding")
def test_a_result_lies_where_it_was_computed() -> None:
    x = Tensor(numbers(8, 6)).shard(DEVICES[:2], 0)
    for value, axes in ((x * 2, ("shard", None)), (x.T, (None, "shard")), (x.sum(0), (None,)),
                        (x.reshape(4, 2, 6), ("shard", None, None)), (x.sum(1), ("shard",))):
        assert value.sharding == Sharding(Mesh(DEVICES[:2]), axes)
        assert value.realize().sharding == Sharding(Mesh(DEVICES[:2]), axes)
    for alike in (x.zeros_like(), x.full_like(3), x.rand_like(), x.randn_like(),
                  x.randint_like()):
        assert alike.sharding == alike.realize().sharding == x.sharding
    ones = Tensor.ones(3, 4, device=x.device)
    assert ones.sharding == ones.realize().sharding == Sharding.copies(Mesh(DEVICES[:2]), 2)
    leaf = (x * 2).realize().uop
    assert leaf.op is Ops.BUFFER and leaf.arg[0].size == 24


@verifies("multi.shard.asked+2")
def test_a_tensor_names_its_devices_as_they_were_given() -> None:
    two = DEVICES[:2]
    x = Tensor(numbers(4, 2)).to_(two)
    device: Any = x.device
    assert device == two and two == device and tuple(device) == two == device[:]
    assert len(device) == 2 and device[1] == two[1] and x.sharding.is_copies
    w = Tensor(numbers(4, 2), requires_grad=True).to_(two)
    (w * x).sum().backward()
    assert w.grad is not None and w.grad.device == device and x.to_(two[0]).device == two[0]


@verifies("multi.mesh.devices+2")
@pytest.mark.parametrize(("devices", "axes"), [
    ((), None), (("CPU", "CPU"), None), (("CPU", "CPU:1"), {"data": 3}),
    (("CPU", "CPU:1"), {"data": 1}), (("CPU",), {"two words": 1})])
def test_a_mesh_that_is_none_is_refused(devices: tuple[str, ...], axes: Any) -> None:
    with pytest.raises(ArgumentError, match="Mesh"):
        Mesh(devices, axes)


@verifies("multi.mesh.axis+2")
def test_what_cannot_be_cut_is_refused() -> None:
    x, mesh = Tensor(numbers(4, 4)), Mesh(DEVICES[:4], {"data": 2, "model": 2})
    with pytest.raises(ArgumentError, match="data, model"):
        x.shard(mesh, rows=0)
    with pytest.raises(AxisError, match="axis 2"):
        x.shard(mesh, data=2)
    with pytest.raises(ArgumentError, match="data=1"):
        x.shard(mesh, 1)


@verifies("multi.shard.parts+2")
@verifies("multi.value.equal")
def test_two_axes_of_a_mesh_cut_one_axis() -> None:
    """The first axis of the mesh is the slowest; one of the two goes its own way afterwards."""
    array = numbers(10, 3)
    x = Tensor(array).shard(Mesh(DEVICES[:4], {"data": 2, "model": 2}), model=0, data=0)
    assert x.sharding.cut == {"data": 0, "model": 0}
    assert repr(x.sharding).startswith("Sharding(axis 0 over 'data' and 'model' on")
    assert [part.shape[0] for part in x.shards] == [3, 3, 3, 1]
    columns = Tensor(array).shard(x.device, data=1)
    for found, wanted in ((x + columns, 2 * array), (x.sum(0), array.sum(0)),
                          (x.T @ x, array.T @ array), (x.flip(0) * x, array[::-1] * array)):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)


@verifies("tensor.arguments.refused+2")
def test_operands_on_different_places_are_an_error_that_names_both() -> None:
    x = Tensor(numbers(4, 4))
    with pytest.raises(DeviceError, match=r"mesh\(REFERENCE,REFERENCE:1"):
        x.shard(DEVICES[:2], 0) + x
    with pytest.raises(DeviceError, match=r"\.to\(Mesh\("):  # not the parameters to one device
        x @ x.shard(DEVICES[:2])


@verifies("multi.transfer.told")
def test_a_schedule_says_what_is_sent_and_why() -> None:
    def told(value: Tensor) -> str:
        found = [row["transfer"] for row in Tensor.schedule_document(value)["kernels"]
                 if "transfer" in row]
        assert len(found) == 1, found
        return str(found[0])

    x = Tensor(numbers(8, 8)).shard(DEVICES[:4], 0).realize()
    w = Tensor(numbers(8, 8)).shard(DEVICES[:4], 0).realize()
    for value, begins, why in (
            (x.sum(0), "all-reduce over shard, 48 bytes", "part of the result"),
            (x.flip(0).contiguous(), "all-gather over shard, 192 bytes", "as a whole"),
            (x + w.T, "all-to-all over shard, 48 bytes", "along another"),
            (w - x.T @ x, "reduce-scatter over shard, 192 bytes", "keeps a piece")):
        assert told(value).startswith(begins) and why in told(value), told(value)
        assert told(value) in value.explain()


@verifies("multi.print.elements+2")
def test_a_tensor_on_a_mesh_is_printed_like_one_of_a_device() -> None:
    mesh = Mesh(DEVICES[:4], {"data": 2, "model": 2})
    for cut in ({}, {"data": 0}, {"model": 0, "data": 1}, {"data": 0, "model": 0}):
        x = Tensor(numbers(5, 3)).shard(mesh, **cut)
        assert str(x).endswith(", lazy>")
        alone = Tensor(numbers(5, 3)).realize()
        assert str(x.realize()).split(":\n")[1:] == str(alone).split(":\n")[1:] != []


@verifies("tensor.pickle.value+3")
def test_a_copy_of_a_tensor_lies_as_the_tensor() -> None:
    mesh = Mesh(DEVICES[:4], {"data": 2, "model": 2})
    for cut in ({"data": 1}, {"data": 0, "model": 0}, {}):
        x = Tensor(numbers(5, 3)).shard(mesh, **cut)
        x.requires_grad = True
        for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
            assert again.sharding == x.sharding and again.requires_grad
            np.testing.assert_array_equal(again.numpy(), x.numpy())


@verifies("multi.mesh.devices+2")
@pytest.mark.parametrize(("devices", "axes"), [
    ("CPU", None), (3, None), (DEVICES[:2], {"data": "2"}), (DEVICES[:2], {"data": 2.0}),
    (DEVICES[:2], {1: 2}), (DEVICES[:2], [2]), (DEVICES[:2], {"a": -1, "b": -2}),
    (DEVICES[:2], {"a": 0, "b": 2}), (DEVICES[:2], {"": 2})])
def test_what_is_no_mesh_is_refused_in_words(devices: Any, axes: Any) -> None:
    with pytest.raises(ArgumentError, match="Mesh: .*Remedy"):
        Mesh(devices, axes)


@verifies("multi.mesh.devices+2")
def test_a_mesh_of_one_axis_equals_its_devices() -> None:
    x = Tensor(numbers(8, 8)).shard(DEVICES[:4], 0)
    place: object = x.device
    assert place == DEVICES[:4] and not place != DEVICES[:4] and place != DEVICES[:3]
    assert Mesh(("cpu:0", "CPU:01")) is Mesh(("CPU", "CPU:1"))
    with pytest.raises(ArgumentError, match="each once"):
        Mesh(("CPU", "CPU:0"))


@verifies("multi.value.equal")
def test_each_mesh_of_a_schedule_has_its_own_coordinates() -> None:
    array = numbers(5, 4)
    meshes = [GRID, Mesh(DEVICES[:4], {"model": 2, "data": 2}), Mesh(DEVICES[:2], {"data": 2})]
    found = []
    for mesh in meshes:
        whole = Tensor(array).shard(mesh)
        found.append((whole + 1 + Tensor(array).shard(mesh, data=0)).max(0))
    Tensor.realize(*found)
    for each in found:
        np.testing.assert_array_equal(each.numpy(), (2 * array + 1).max(0))


@verifies("multi.value.equal")
def test_a_replay_of_several_sizes_lies_as_the_first() -> None:
    step = TinyJit(lambda x: (x * 2).realize())
    array = Tensor(numbers(4, 9)).shard(DEVICES[:2], 0).realize()
    size = Variable("columns", 1, 9)
    for count in (3, 5, 7, 2):
        found = step(array[:, :size.bind(count)])
        np.testing.assert_array_equal(found.numpy(), 2 * numbers(4, 9)[:, :count])


@verifies("multi.value.equal")
def test_a_large_result_with_random_numbers_is_replayed() -> None:
    Tensor.manual_seed(0)  # of some seeds two sums are the same by chance
    x = Tensor(np.ones((64, 1024), np.float32)).shard(DEVICES[:2], 0).realize()

    def step(given: Tensor) -> Tensor:
        with Tensor.train():
            return given.dropout(0.5).realize()

    captured = TinyJit(step)
    sums = [captured(x).sum().item() for _ in range(5)]
    assert len(set(sums)) == 5 and all(60_000 < total < 71_000 for total in sums), sums
    rows = run_and_read(x)
    np.testing.assert_array_equal(rows, x.numpy() + 1)


@verifies("multi.value.equal")
def test_a_result_of_a_replay_that_is_a_view_of_an_old_state_lies_as_at_first() -> None:
    state = Tensor(numbers(2, 3)).shard(DEVICES[:2], 1)

    def step() -> Tensor:
        before = Tensor(state.reshape(1, 2, 3))
        state.reshape(6)[3:].assign(Tensor.zeros(3).shard(DEVICES[:2], 0))
        Tensor.realize(before, state)
        return before

    captured, array = TinyJit(step), numbers(2, 3)
    for _ in range(4):
        found = captured()
        np.testing.assert_array_equal(found.numpy(), array[None])
        assert found.sharding.axes == (None, None, "shard")
        array[1] = 0


@verifies("multi.value.equal")
def test_constants_of_a_device_and_of_a_mesh_are_results_of_one_function() -> None:
    """Those that were computed on the device are there, and nothing is taken from them."""
    x = Tensor(numbers(6)).shard(DEVICES[:2], 0)

    def step() -> tuple[Tensor, Tensor, Tensor]:
        ones = Tensor.full((5,), 3)
        Tensor.realize(x, ones)
        return (x + 0).realize(), ones, ones.flip(0).realize()

    captured = TinyJit(step)
    for _ in range(4):
        assert [found.sum().item() for found in captured()] == [numbers(6).sum(), 15, 15]


@verifies("multi.write.kept")
def test_what_is_assigned_lies_as_its_target_did() -> None:
    for realized in (True, False):
        target = Tensor(numbers(4, 6)).shard(DEVICES[:2], 1)
        if realized:
            target.realize()
        target.assign(Tensor(2 * numbers(4, 6)).shard(DEVICES[:2], 0))
        assert target.sharding.axes == target.realize().sharding.axes == (None, "shard")
        target[1:3] = Tensor(numbers(2, 6)).shard(DEVICES[:2], 0)
        assert target.sharding.axes == target.realize().sharding.axes == (None, "shard")


@verifies("multi.wish.followed")
@pytest.mark.parametrize(("way", "axis", "lies", "more"), [
    ("cut", 1, ("shard", None), 48), ("cut", None, ("shard", None), 192),
    ("cut", 0, ("shard", None), 0), ("copies", 1, (None, "shard"), 0),
    ("due", 1, (None, "shard"), 0), ("new", 1, (None, "shard"), 0)])
def test_a_wish_is_followed_if_nothing_more_is_sent(
        way: str, axis: int | None, lies: tuple[str | None, ...], more: int) -> None:
    square = numbers(8, 8)
    cut, copies = (Tensor(square).shard(DEVICES[:4], each).realize() for each in (0, None))
    value = {"cut": cut + 1, "copies": copies + 1, "due": cut.T @ cut, "new": Tensor(square)}[way]
    asked = value.shard(DEVICES[:4], axis, wish=True)
    document = Tensor.schedule_document(asked)
    assert [f"send {more} bytes more" in note for note in document["notes"]] == [True] * bool(more)
    assert not more or "test_multi.py" in asked.explain().partition("note: ")[2]
    assert asked.sharding.axes == lies == asked.realize().sharding.axes
    assert (asked.numpy() == value.numpy()).all()


@pytest.mark.slow
@verifies("multi.value.equal")
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_cache_grows_by_a_row_in_each_call(axis: int) -> None:
    """Cut along samples, along time, and along heads; as much as is there is read."""
    rows = numbers(4, 2, 1, 2, 3)
    cache = Tensor.zeros(2, 4, 2, 3).shard(DEVICES[:2], axis).contiguous().realize()

    def step(row: Tensor, start: Any) -> Tensor:
        cache[:, start:start + 1].assign(row)
        there = cache[:, :start + 1]
        return (there * row).sum((2, 3), keepdim=True).mul(there).sum(1).realize()

    captured = TinyJit(step)
    for number, row in enumerate(rows):
        there = rows[:number + 1, :, 0].transpose(1, 0, 2, 3)
        expected = ((there * row).sum((2, 3), keepdims=True) * there).sum(1)
        given = Tensor(row).shard(DEVICES[:2], None if axis == 1 else axis).realize()
        assert (captured(given, Variable("start", 0, 3).bind(number)).numpy() == expected).all()


@verifies("multi.value.equal")
def test_a_wish_within_functions_and_gradients() -> None:
    x = Tensor(numbers(4, 4)).shard(DEVICES[:2], 0).realize()
    captured = TinyJit(lambda t: (t.shard(DEVICES[:2], 1, wish=True) * 2).realize())
    assert all((captured(x).numpy() == 2 * numbers(4, 4)).all() for _ in range(3))
    rows = func.vmap(lambda row: (row + 1).shard(DEVICES[:2], 0, wish=True))(x)
    assert (rows.numpy() == numbers(4, 4) + 1).all()
    x.requires_grad = True
    (x.shard(DEVICES[:2], 1, wish=True) * x.detach()).sum().backward()
    assert x.grad is not None and (x.grad.numpy() == numbers(4, 4)).all()


def heads(x: Any) -> Any:
    """A matrix where a tensor is, or as it is."""
    matrix = numbers(3, 6, seed=1)
    return Tensor(matrix).shard(x.device) if isinstance(x, Tensor) else matrix


#: Programs on (2, 4, 3), cut along the second axis, that begin or end with merged axes.
MERGED: dict[str, Callable[[Any], Any]] = {
    "a sum": lambda x: x.reshape(8, 3).sum(),
    "rows": lambda x: (x.reshape(8, 3) * x.reshape(8, 3).max(1).reshape(8, 1)).sum(0),
    "back": lambda x: (x.reshape(8, 3) - x.reshape(8, 3).sum(1).reshape(8, 1)).reshape(2, 4, 3),
    "turned": lambda x: (x.reshape(8, 3).T + 1).T.reshape(2, 4, 3),
    "apart": lambda x: (x.reshape(8, 3) @ heads(x)).reshape(2, 4, 2, 3),
    "of ones": lambda x: x.reshape(1, 8, 1, 3).max(1).sum(2),
    "of three": lambda x: (x.reshape(24) * 2).max(),
    "twice": lambda x: (x.reshape(8, 3) + 1).reshape(24).sum() + x.reshape(2, 12).max(1).sum(),
}


@verifies("multi.reshape.merged")
@pytest.mark.parametrize("program", MERGED)
@pytest.mark.parametrize("count", [2, 3])
def test_axes_are_merged_after_what_follows(program: str, count: int) -> None:
    values = numbers(2, 4, 3)
    x = Tensor(values).shard(DEVICES[:count], 1).realize()
    found = MERGED[program](x)
    sent = [kernel["transfer"].split()[0] for kernel
            in Tensor.schedule_document(found)["kernels"] if "transfer" in kernel]
    assert "all-gather" not in sent
    assert (found.numpy() == MERGED[program](values)).all()


@verifies("multi.value.equal")
def test_what_is_asked_for_merged_is_put_together() -> None:
    """A value that is merged, one that needs it so, and the gradients of both ways."""
    values, rows = numbers(2, 4, 3), np.array([5, 0, 5])
    x = Tensor(values).shard(DEVICES[:2], 1).realize()
    x.requires_grad = True
    flat = x.reshape(8, 3) * 2
    picked = flat[Tensor(rows).shard(DEVICES[:2]).realize()]
    ((picked * picked).sum() + (flat * flat).sum()).backward()
    expected = 8 * values.reshape(8, 3)
    np.add.at(expected, rows, 8 * values.reshape(8, 3)[rows])
    assert x.grad is not None and (x.grad.numpy().reshape(8, 3) == expected).all()
    assert (flat.numpy() == 2 * values.reshape(8, 3)).all()
    assert (flat.flip(0).reshape(2, 4, 3).numpy()
            == 2 * values.reshape(8, 3)[::-1].reshape(2, 4, 3)).all()


@verifies("multi.scatter.rows")
@pytest.mark.parametrize(("words", "axis"), [(4, 1), (4, 2), (5, 1), (1, 1)])
def test_rows_that_are_added_lie_where_they_were_looked_up(words: int, axis: int) -> None:
    """Numbers of rows are whole, so that a row that is added twice, or never, shows."""
    index = np.random.default_rng(0).integers(-3, 3, (3, words, 2))
    table = Tensor(numbers(3, 4)).shard(DEVICES[:2]).realize()
    table.requires_grad = True
    found = table[Tensor(index).shard(DEVICES[:2], axis).realize()]
    given = Tensor(numbers(3, words, 2, 4, seed=1)).shard(DEVICES[:2], axis).realize()
    (found * given).sum().backward()
    assert table.grad is not None
    sent = [kernel["transfer"].split()[0] for kernel
            in Tensor.schedule_document(table.grad)["kernels"] if "transfer" in kernel]
    assert words != 4 or sent == ["all-reduce"]
    expected = np.zeros((3, 4), np.float32)
    np.add.at(expected, index, given.numpy())
    assert (table.grad.numpy() == expected).all()


@verifies("multi.write.region")
@verifies("multi.value.equal")
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_a_part_is_written_where_it_lies(axis: int | None) -> None:
    """A copy of what was there, which has the same node as one that a write may make, stays."""
    start = Variable("start", 0, 5).bind(4)
    expected = numbers(5, 6, 4)
    cache = Tensor(expected.copy()).shard(DEVICES[:2], axis).realize()
    before = cache.clone()
    row = Tensor(numbers(5, 1, 4, seed=1)).shard(DEVICES[:2], axis).realize()
    cache[:, 1:2] = row
    sent = ["transfer" in kernel for kernel in Tensor.schedule_document(cache)["kernels"]]
    assert any(sent) == (axis == 1) and (axis == 1 or len(sent) == 1)
    assert (before.numpy() == expected).all()
    expected[:, 1:2] = row.numpy()
    assert (cache.numpy() == expected).all()
    cache[:, start:start + 1].assign(2 * row)
    expected[:, 4:5] = 2 * row.numpy()
    cache.permute(2, 0, 1)[1:3, 4].assign(7)
    expected[4, :, 1:3] = 7
    assert (cache.numpy() == expected).all()


@verifies("multi.value.equal")
def test_a_part_that_is_in_memory_is_a_place_too() -> None:
    """On one device, beside a mesh: the node of the view has a value, and is written to."""
    target = Tensor.full((2, 1), 3.0)
    nothing = target.shard(DEVICES[:2], 0)[0:0]
    target[2:2].assign(nothing.to(DEVICES[0]))
    part, value = Tensor(target[0:1]), 2 * target[1:2]
    target[0:1].assign(value)
    assert part.tolist() == [[3]]
    Tensor.realize(target, nothing)
    assert target.tolist() == [[6], [3]]


@pytest.mark.slow
@verifies("multi.value.equal")
@verifies("multi.shards.held+2")
def test_random_programs_on_random_meshes_also_as_replays() -> None:
    """A sample of `python -m conformance fuzz --meshes`."""
    job = Job("conformance.emulation.devices:REFERENCE", count=25, size=8, meshes=True)
    tally = run_chunk(job, 0, 25)
    assert not tally.failures, "\n".join(map(explained, tally.failures))
    assert tally.programs + tally.skipped + tally.refused == 50 and tally.programs > 40


@verifies("multi.result.sharding")
def test_constants_that_were_laid_lie_so_when_they_are_computed() -> None:
    value = Tensor.zeros(4, 4).shard(DEVICES[:2], 0) + 1
    assert value.sharding == value.realize().sharding == Sharding(
        Mesh(DEVICES[:2]), ("shard", None))
    there = Tensor.full((3, 4), 2.0).shard(DEVICES[:2], 0)
    here = there.to(DEVICES[0])
    again = here.shard(DEVICES[:2], 1)
    assert here.sum().item() == again.sum().item() == 24


@verifies("multi.shards.own+2")
def test_what_a_device_has_is_read_without_sending_it() -> None:
    """Each device's memory is looked at: copies that differ would show."""
    x = Tensor(numbers(5, 4)).shard(DEVICES[:3], 0).realize()
    for value in (x, x.shard(DEVICES[:3]).realize(), x.shard(DEVICES[:3], 1).realize()):
        for number, part in enumerate(value.shards):
            row, = Tensor.schedule_document(part)["kernels"][:1]
            assert row["transfer"].startswith(f"own to {DEVICES[number]}, 0 bytes"), row
    copies = x.shard(DEVICES[:3]).realize()
    memory = copies.uop.arg[0].memory
    memory.members[1].device.copy_in(memory.members[1], np.zeros((5, 4), np.float32))
    assert [part.sum().item() == 0 for part in copies.shards] == [False, True, False]


def run_and_read(x: Tensor) -> np.ndarray:
    """What the schedule of a value makes, step by step."""
    value = x + 1
    run_schedule(linear_to_schedule(lower_sink_to_linear(
        UOp(Ops.SINK, dtypes.index, (value.uop,))) or value.uop))
    return value.numpy()


@verifies("multi.value.equal")
def test_constants_that_lie_on_a_device_do_not_lie_on_a_mesh() -> None:
    """Who is made of no memory is one node everywhere, and may have been computed elsewhere."""
    def sorted_on_mesh() -> list[float]:
        found: list[float] = Tensor([1.0, 2.0, 3.0]).shard(DEVICES[:2], 0).msort().tolist()
        return found

    assert sorted_on_mesh() == [1, 2, 3]
    assert Tensor(3).median(0)[1].tolist() == 0
    assert sorted_on_mesh() == [1, 2, 3]


@verifies("multi.value.equal")
@verifies("tensor.assign.view+3")
def test_a_view_reaches_a_tensor_that_was_laid_elsewhere() -> None:
    for before, after in ((None, 2), (2, 4), (4, 2), (2, None)):
        x = Tensor([1.0, 2.0, 3.0])
        if before:
            x = x.shard(DEVICES[:before], 0)
        x.realize()
        view = x[1:]
        if after:
            x.shard_(DEVICES[:after], 0)
        view += 1
        assert x.tolist() == [1, 3, 4] and view.tolist() == [3, 4]


@verifies("multi.memory.gone")
def test_nothing_of_a_plan_waits_for_the_garbage_to_be_collected() -> None:
    """A gathered value, rows in order, axes that are merged, and a step of training."""
    w = Tensor(numbers(5, 7)).shard_(DEVICES[:2], 0)
    b = Tensor(numbers(7)).shard_(DEVICES[:2])
    w.requires_grad = b.requires_grad = True
    optimizer = nn.optim.SGD([w, b], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        x = Tensor(numbers(6, 5)).shard(DEVICES[:2], 0)
        loss = ((x @ w + b).tanh() ** 2).mean()
        loss.backward()
        optimizer.step()
        loss.item()

    programs: list[Callable[[], Any]] = [
        step, w.numpy, lambda: (w * 2).sort()[0].numpy(), lambda: (w * 2).reshape(-1).sum().item(),
        lambda: (b + w).sum(0).numpy()]
    for program in programs:
        program()  # what stays from then on stays for a reason
        gc.collect()
        gc.disable()
        try:
            program()
            before = len(living_nodes())
            gc.collect()
            assert len(living_nodes()) == before
        finally:
            gc.enable()


def living_nodes() -> list[UOp]:
    """All nodes that there are."""
    return [each for each in gc.get_objects() if isinstance(each, UOp)]
