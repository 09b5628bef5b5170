"""White-box tests of the chapter collectives: rounds, bytes, and what a mesh holds afterwards."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Device, GlobalCounters, Mesh, Tensor
from impl.collectives import ALGORITHMS, MeshDevice, Move, Peers, rounds, running
from impl.collectives.running import SETTINGS
from impl.collectives.steps import permuted, predicted, sent
from impl.device import Memory
from impl.dtypes import dtypes
from impl.errors import ArgumentError, CompileError
from impl.ir import Ops
from impl.schedule import schedule_cache

DEVICES = tuple(f"REFERENCE:{i}" if i else "REFERENCE" for i in range(5))


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


#: Of each collective the pieces that a device is given, and those that it gets.
PIECES = {"all-reduce": (1, 1), "all-gather": (1, 0), "reduce-scatter": (0, 1),
          "all-to-all": (0, 0), "broadcast": (1, 1)}
EVERY = [(kind, name) for kind, known in ALGORITHMS.items() for name in known]


def carried_out(kind: str, name: str, size: int, given: list[np.ndarray]) -> list[np.ndarray]:
    """What every device has after the rounds of an algorithm; what it is given has all pieces."""
    count = len(given)
    device = Device[Mesh(DEVICES[:count])]
    assert isinstance(device, MeshDevice)
    source, target = (device.allocate(4 * size * (pieces or count) or 1)
                      for pieces in PIECES[kind])
    for member, array in zip(source.members, given, strict=True):
        member.device.copy_in(member, array)
    group = Peers(device.members, dtypes.float32)
    group.run(rounds(kind, size, count, 4, name), source.members, target.members, Ops.ADD)
    elements = size * (PIECES[kind][1] or count)
    return [m.device.copy_out(m, dtypes.float32, elements) for m in target.members]


def meant(kind: str, size: int, given: np.ndarray) -> list[np.ndarray]:
    """What every device has to have."""
    count, total = len(given), given.sum(0)
    return {"all-reduce": [total] * count, "all-gather": [given.reshape(-1)] * count,
            "reduce-scatter": list(total.reshape(-1, size)) if size else [total] * count,
            "all-to-all": list(given.reshape(count, -1, size).swapaxes(0, 1).reshape(count, -1))
            if kind == "all-to-all" and size else [given.reshape(-1)[:0]] * count,
            "broadcast": [given[0]] * count}[kind]


@verifies("collectives.reduce.equal+2")
@verifies("collectives.round.before+2")
@pytest.mark.parametrize(("kind", "name"), EVERY)
@pytest.mark.parametrize("size", [0, 1, 3, 17])
def test_every_device_has_what_it_should(kind: str, name: str, size: int) -> None:
    for count in (1, 2, 3, 4, 5):
        random = np.random.default_rng(count)
        shape = (count, size * (PIECES[kind][0] or count))
        whole = random.integers(-99, 99, shape).astype(np.float32)
        found = carried_out(kind, name, size, list(whole))
        for mine, theirs in zip(found, meant(kind, size, whole), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        if kind == "all-reduce":
            rough = random.standard_normal(shape) * 10.0 ** np.arange(count)[:, None]
            first, *others = carried_out(kind, name, size, list(rough.astype(np.float32)))
            for other in others:
                assert first.tobytes() == other.tobytes()


@verifies("collectives.memory.reached+2")
@pytest.mark.parametrize("name", ALGORITHMS["all-reduce"])
def test_memory_that_another_device_cannot_be_given_is_copied_first(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[Memory]] = []
    monkeypatch.setattr(type(Device["REFERENCE"]), "shared_memory", False)
    monkeypatch.setattr(running, "_combined", lambda program, memories: given.append(memories))
    carried_out("all-reduce", name, 6, list(np.ones((3, 6), np.float32)))
    assert given and all(target.device is other.device for target, other in given)


def theory(kind: str, name: str, s: int, k: int) -> tuple[int, int, int]:
    """Moves, elements of all of them, and those that the busiest device sends; k is a power of 2.
    """
    deep = k.bit_length() - 1
    runs = k // 2 * deep * s  # of a tree whose runs of pieces double
    whole, last = (k - 1) * k * s, (k - 1) * s
    known: dict[str, dict[str, tuple[int, int, int]]] = {
        "all-reduce": {
            "naive": (2 * (k - 1), 2 * last, last), "tree": (2 * (k - 1), 2 * last, deep * s),
            "ring": (2 * k * (k - 1), 2 * last, 2 * last // k)},
        "all-gather": {
            "naive": (2 * (k - 1), whole + last, whole),
            "tree": (2 * (k - 1), whole + runs, deep * k * s), "ring": (k * (k - 1), whole, last)},
        "reduce-scatter": {
            "naive": (2 * (k - 1), whole + last, k * s),
            "tree": (2 * (k - 1), whole + runs, (k + k // 2 - 1) * s),
            "ring": (k * (k - 1), whole, last)},
        "all-to-all": {"naive": (k * (k - 1), whole, last), "ring": (k * (k - 1), whole, last)},
        "broadcast": {
            "naive": (k - 1, last, last), "tree": (k - 1, last, deep * s),
            "ring": (k * k - 1, last + last // k, 2 * last // k)}}
    return known[kind]["ring" if name == "all-to-all" else name]


@verifies("collectives.bytes.theory")
@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_moves_and_bytes_are_what_theory_says(kind: str, name: str) -> None:
    for count in (2, 4, 8, 16):
        for size in (count, 48 * count):
            found = ALGORITHMS[kind][name](size, count)
            elements = sent(found, count)
            moves = sum(not move.is_local for moves in found for move in moves)
            assert (moves, sum(elements), max(elements)) == theory(kind, name, size, count), count


@verifies("collectives.bytes.theory")
def test_parts_that_are_not_even_differ_by_an_element_each() -> None:
    for kind, name in EVERY:
        for count in (3, 5, 7):
            found = ALGORITHMS[kind][name](64, count)
            even = ALGORITHMS[kind][name](64 * count, count)
            for mine, theirs in zip(sent(found, count), sent(even, count), strict=True):
                assert abs(mine - theirs / count) <= 2 * (count - 1), (kind, name, count)
    assert sent(permuted(64, 4, 1), 4) == [64] * 4
    assert sent(permuted(64, 4, 4), 4) == [0] * 4


@verifies("collectives.bytes.theory")
def test_devices_copy_what_the_rounds_say() -> None:
    for kind, name in EVERY:
        given = [np.ones(4 * 8 if PIECES[kind][0] == 0 else 8, np.float32)] * 4
        GlobalCounters.reset()
        carried_out(kind, name, 8, given)
        moves = [m for each in ALGORITHMS[kind][name](8, 4) for m in each if m.stop > m.start]
        copies = GlobalCounters.copies - 2 * 4  # what the test itself brings and reads
        assert copies == sum(not move.combined for move in moves), (kind, name)
        assert GlobalCounters.kernels == sum(move.combined for move in moves), (kind, name)


@verifies("collectives.algorithm.named+2")
def test_an_algorithm_is_chosen_by_name_or_by_time() -> None:
    for kind, known in ALGORITHMS.items():
        for name, algorithm in known.items():
            assert rounds(kind, 64, 4, 4, name) == algorithm(64, 4)
        for size in (1, 1 << 24):
            best = min(predicted(each(size, 4), 4) for each in known.values())
            assert predicted(rounds(kind, size, 4, 4), 4) == best
        with pytest.raises(ArgumentError, match="ring"):
            rounds(kind, 8, 2, 4, "rings")
    assert len(rounds("all-reduce", 1, 8, 4)) < len(ALGORITHMS["all-reduce"]["ring"](1, 8))


@verifies("collectives.algorithm.named+2")
@pytest.mark.parametrize(("kind", "setting"), SETTINGS.items())
def test_each_collective_has_a_setting(kind: str, setting: str) -> None:
    mesh = Mesh(DEVICES[:4])
    x = Tensor(np.arange(64, dtype=np.float32).reshape(8, 8)).shard(mesh, 0).realize()
    found = {}
    for name in ALGORITHMS[kind]:
        ways = {"all-reduce": lambda: x.sum(0), "all-gather": lambda: x.shard(mesh),
                "reduce-scatter": lambda: x.sum(0).shard(mesh, 0),
                "all-to-all": lambda: x.shard(mesh, 1),
                "broadcast": lambda: Tensor(np.arange(64, dtype=np.float32)).shard(mesh)}
        with Context(**{setting: name}):
            tensor = ways[kind]()
            GlobalCounters.reset()
            tensor.realize()
            found[name] = GlobalCounters.copies, GlobalCounters.kernels
            whole = {"all-reduce": x.numpy().sum(0), "reduce-scatter": x.numpy().sum(0),
                     "broadcast": np.arange(64)}.get(kind, x.numpy())
            np.testing.assert_array_equal(tensor.numpy(), whole)
    if kind != "all-to-all":  # there only the rounds differ
        assert found["ring"] != found["naive"]


@verifies("collectives.round.before+2")
def test_a_swap_is_one_round() -> None:
    device = Device[Mesh(DEVICES[:2])]
    assert isinstance(device, MeshDevice)
    memory = device.allocate(8)
    for number, member in enumerate(memory.members):
        member.device.copy_in(member, np.full(2, number, np.float32))
    Peers(device.members, dtypes.float32).run(
        [[Move(0, 1, 0, 2), Move(1, 0, 0, 2)]], memory.members, memory.members)
    assert [m.device.copy_out(m, dtypes.float32, 2).tolist() for m in memory.members] \
        == [[1, 1], [0, 0]]


@verifies("collectives.round.before+2")
def test_memory_that_the_host_cannot_see_is_staged() -> None:
    """What is combined is brought to the device first."""
    device = Device[Mesh(DEVICES[:3])]
    assert isinstance(device, MeshDevice)
    source, target = device.allocate(12), device.allocate(12)
    for number, member in enumerate(source.members):
        member.device.copy_in(member, np.full(3, number + 1, np.float32))
    group = Peers(device.members, dtypes.float32)
    group.shared = False
    GlobalCounters.reset()
    found = rounds("all-reduce", 3, 3, 4, "ring")
    group.run(found, source.members, target.members, Ops.ADD)
    assert GlobalCounters.copies == sum(len(moves) for moves in found)
    assert [m.device.copy_out(m, dtypes.float32, 3).tolist() for m in target.members] \
        == [[6, 6, 6]] * 3


@verifies("collectives.due.scattered+2")
def test_a_spread_gradient_is_scattered() -> None:
    """Half of what an all-reduce sends, and no device keeps what it does not need."""
    x = Tensor(np.ones((8, 8), np.float32)).shard(DEVICES[:4], 0).realize()
    w = Tensor(np.ones((8, 8), np.float32)).shard(DEVICES[:4], 0).realize()
    update = w - x.T @ x
    reasons = [row["reason"] for row in Tensor.schedule_document(update)["boundaries"]]
    assert not any("all-reduce" in reason for reason in reasons), reasons
    labels = [row["name"] for row in Tensor.schedule_document(update)["kernels"]
              if row["kind"] == "copy"]
    np.testing.assert_array_equal(update.numpy(), np.full((8, 8), -7))
    assert labels


@verifies("collectives.gather.undone+2")
def test_what_is_gathered_and_cut_again_is_not_sent() -> None:
    x = Tensor(np.arange(32, dtype=np.float32).reshape(8, 4)).shard(DEVICES[:4], 0).realize()
    other = Tensor(np.ones((8, 4), np.float32)).shard(DEVICES[:4], 0).realize()
    for found in (x.shard(DEVICES[:4]).shard(DEVICES[:4], 0) + 1,
                  x.shard(DEVICES[:4], 1).shard(DEVICES[:4], 0) + 1, x.shard(DEVICES[:4]) + other):
        rows = Tensor.schedule_document(found)["kernels"]
        assert [row["kind"] for row in rows] == ["kernel"]
        np.testing.assert_array_equal(found.numpy(), np.arange(32).reshape(8, 4) + 1)
    kept = x.shard(DEVICES[:4])  # who wants the whole value has it
    cut = kept.shard(DEVICES[:4], 0) + 1
    rows = Tensor.schedule_document(kept * 2, cut)["kernels"]
    assert sum(row["kind"] == "copy" for row in rows) == 1


@verifies("multi.transfer.instead+4")
@verifies("multi.transfer.cut+2")
def test_a_transfer_names_the_placement_that_sends_nothing() -> None:
    mesh = Mesh(DEVICES[:4], {"data": 2, "model": 2})
    random = np.random.default_rng(0)
    for first, second in (({"data": 0}, {"data": 1}), ({"model": 1}, {"model": 0})):
        told, tensors = "", [random.standard_normal((4, 8)).astype(np.float32) for _ in range(2)]
        x, y = (Tensor(value).shard(mesh, **cut).realize()
                for value, cut in zip(tensors, (first, second), strict=True))
        rows = Tensor.schedule_document(x + y)["kernels"]
        (told,) = [row["transfer"] for row in rows if "transfer" in row]
        wanted = next(iter(first.items()))
        assert told.endswith(f"nothing would be sent if it lay cut as {wanted[0]}={wanted[1]}")
        y = Tensor(tensors[1]).shard(mesh, **dict([wanted])).realize()  # as it was told
        assert not any("transfer" in row for row in Tensor.schedule_document(x + y)["kernels"])
    x = Tensor(np.ones((4, 8), np.float32)).shard(mesh, data=0).realize()
    (told,) = [row["transfer"] for row in Tensor.schedule_document(x.cumsum(0))["kernels"]
               if "transfer" in row]
    assert told.endswith("nothing would be sent if it lay as copies")
    due, cut = ([row["transfer"] for row in Tensor.schedule_document(value)["kernels"]
                 if "transfer" in row] for value in (x.sum(0), x.sum(0).shard(mesh, data=0)))
    assert len(due) == 1 and due[0].endswith("all need it; 16 would be sent if it were needed cut")
    assert len(cut) == 1 and ", 16 bytes from each device" in cut[0]
    # Where an axis does not divide, the last piece is filled up.
    uneven = Tensor(np.ones((4, 7), np.float32)).shard(DEVICES[:2], 0).realize()
    wide = Tensor(np.ones((4, 7, 6), np.float32)).shard(DEVICES[:2], 0).realize()
    for value, axis, whole, least in ((uneven.sum(0), 0, 28, 16), (wide.sum(0), 1, 168, 84)):
        (told,) = [row["transfer"] for row in Tensor.schedule_document(value)["kernels"]
                   if "transfer" in row]
        assert f", {whole} bytes" in told
        assert told.endswith(f"all need it; {least} would be sent if it were needed cut")
        rows = Tensor.schedule_document(value.shard(DEVICES[:2], axis))["kernels"]
        assert [row["sent"] for row in rows if "sent" in row] == [least]
    (told,) = [row["transfer"] for row in Tensor.schedule_document(
        uneven.sum(0), wide.sum(0))["kernels"] if "transfer" in row]
    assert told.endswith("; 100 would be sent if it were needed cut; 2 values go together")
    spread = Tensor(np.ones((4, 8, 4), np.float32)).shard(mesh, data=0, model=1).realize()
    # Only an axis that is not cut.
    for value, least in ((spread.sum(0), 32), (spread[:, :, 0].sum(0), 0)):
        (told,) = [row["transfer"] for row in Tensor.schedule_document(value)["kernels"]
                   if "transfer" in row]
        assert told.endswith(f"; {least} would be sent if it were needed cut" if least
                             else "need it")
    few = Tensor.schedule_document(x.sum())["kernels"]
    assert not any("needed cut" in row.get("transfer", "") for row in few)  # nobody can cut it
    other = Tensor(np.ones((4, 8), np.float32)).shard(mesh, data=0).realize()
    for value, which in ((x + 1, "tensor"), (x.exp() * other, "tensors")):
        (told,) = [row["transfer"] for row in Tensor.schedule_document(value.cumsum(0))["kernels"]
                   if "transfer" in row]
        assert told.endswith(f"nothing would be sent if the {which} that it is computed from lay "
                             "as copies")
    turned = Tensor(np.ones((8, 4), np.float32)).shard(mesh, data=1).realize()
    (told,) = [row["transfer"] for row in Tensor.schedule_document(
        (x.exp() * turned.T).shard(mesh, data=1))["kernels"] if "transfer" in row]
    assert told.endswith("needed cut along another")  # they would have to lie in two ways
    scattered = Tensor.schedule_document(Tensor.empty(8, 4).shard(mesh, data=0))["kernels"]
    assert [row["sent"] for row in scattered if "sent" in row] == [64]


PRODUCTS: list[tuple[str, dict[str, int], dict[str, int], Any]] = [
    ("w", {"data": 0}, {"data": 0}, lambda x, w: x @ w),
    ("w", {"data": 0}, {"data": 1}, lambda x, w: x @ w),
    ("w", {"data": 0}, {"data": 1}, lambda x, w: x @ w.T),
    ("w", {"data": 0, "model": 1}, {"data": 0}, lambda x, w: x @ w.half().float()),
    ("x", {"data": 1}, {}, lambda x, w: x.cumsum(1)),
    ("x", {"model": 0}, {}, lambda x, w: x.T.reshape(1, 8, 1, 4).flip(3)),
    ("x", {"data": 0}, {"data": 0}, lambda x, w: x.shard(w.sharding.mesh, data=1)),
    ("x", {"data": 1}, {}, lambda x, w: x.T.shard(x.sharding.mesh, data=1)),
    ("x", {"data": 0}, {}, lambda x, w: (x.softmax(1) * 2 + x).cumsum(0)),
    ("x", {"data": 0}, {}, lambda x, w: (x.exp() + x).T.contiguous().shard(x.sharding.mesh, data=0)
     ),
]


@verifies("multi.transfer.instead+4")
@pytest.mark.parametrize("number", range(len(PRODUCTS)))
def test_who_does_as_a_transfer_says_sends_nothing(number: int) -> None:
    """Also where a view is sent: what it says is how the tensor should lie."""
    which, first, second, of = PRODUCTS[number]
    mesh = Mesh(DEVICES[:4], {"data": 2, "model": 2})

    def transfers(x: dict[str, int], w: dict[str, int]) -> list[str]:
        found = of(Tensor(np.ones((4, 8), np.float32)).shard(mesh, **x).realize(),
                   Tensor(np.ones((8, 8), np.float32)).shard(mesh, **w).realize())
        return [row["transfer"] for row in Tensor.schedule_document(found)["kernels"]
                if "transfer" in row and "all need it" not in row["transfer"]]
    (told,) = transfers(first, second)
    words = told.rpartition(" lay ")[2]
    wished = {} if words == "as copies" else {
        name: int(axis) for name, axis in (each.split("=") for each in words.removeprefix(
            "cut as ").split(", "))}
    assert not transfers(*((wished, second) if which == "x" else (first, wished))), told


@verifies("realize.failure.left+2")
@pytest.mark.parametrize("algorithm", ["ring", "naive"])
def test_a_compiler_that_fails_at_a_collective_changes_nothing(
        algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it fails at a kernel that combines what arrives."""
    with Context(DEVICE="REFERENCE", ALLREDUCE=algorithm):
        device, mesh = type(Device["REFERENCE"]), ("REFERENCE", "REFERENCE:1")
        loaded, left, failed = device.load, 0, 0

        def loads(self: Any, asts: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise CompileError("test", "no", "none")
            return loaded(self, asts)

        for most in range(9):
            schedule_cache.clear()
            state = Tensor(np.ones((4, 6), np.float32)).shard(mesh, 0).realize()
            for place in (*mesh, state.uop.arg[0].device):  # nothing is compiled yet
                monkeypatch.setattr(Device[place], "programs", {})
            state.assign(state + 1)
            total = (state * 3).sum(0) + 1
            with monkeypatch.context() as patched:
                left = most
                patched.setattr(device, "load", loads)
                try:
                    Tensor.realize(state, total)
                except CompileError:
                    failed += 1
            assert state.tolist() == [[2.0] * 6] * 4
            assert total.tolist() == [25.0] * 6
    assert 3 <= failed < 9
