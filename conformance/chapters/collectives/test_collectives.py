"""White-box tests of the chapter collectives: rounds, bytes, and what a mesh holds afterwards."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Device, GlobalCounters, Mesh, Tensor
from impl.collectives import ALGORITHMS, MeshDevice, Move, Peers, rounds
from impl.collectives.steps import predicted, sent
from impl.dtypes import dtypes
from impl.errors import ArgumentError
from impl.ir import Ops

DEVICES = tuple(f"REFERENCE:{i}" if i else "REFERENCE" for i in range(5))


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def reduced(name: str, given: list[np.ndarray]) -> list[np.ndarray]:
    """What every device has after the rounds of an algorithm."""
    device = Device[Mesh(DEVICES[:len(given)])]
    assert isinstance(device, MeshDevice)
    memory = device.allocate(given[0].nbytes)
    for member, array in zip(memory.members, given, strict=True):
        member.device.copy_in(member, array)
    group = Peers(device.members, dtypes.float32)
    group.run(rounds(given[0].size, len(given), 4, name), memory.members, Ops.ADD)
    return [m.device.copy_out(m, dtypes.float32, given[0].size) for m in memory.members]


@verifies("collectives.reduce.equal")
@verifies("collectives.round.before")
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("size", [1, 3, 8, 17])
def test_every_device_has_the_same_sum(name: str, size: int) -> None:
    for count in (2, 3, 4, 5):
        random = np.random.default_rng(count)
        whole = [random.integers(-99, 99, size).astype(np.float32) for _ in range(count)]
        for found in reduced(name, whole):
            np.testing.assert_array_equal(found, sum(whole))
        uneven = [(random.standard_normal(size) * 10 ** i).astype(np.float32)
                  for i in range(count)]
        first, *others = reduced(name, uneven)
        for other in others:
            assert first.tobytes() == other.tobytes()


@verifies("collectives.bytes.ring")
@pytest.mark.parametrize("name", ["ring", "all-to-all"])
def test_no_device_sends_more_than_theory_says(name: str) -> None:
    for count in (2, 3, 4, 7, 8):
        for size in (count, 5 * count + 3, 1000):
            least = 2 * (count - 1) / count * size
            for elements in sent(ALGORITHMS[name](size, count), count):
                assert abs(elements - least) <= 2 * (count - 1)


@verifies("collectives.algorithm.named")
def test_an_algorithm_is_chosen_by_name_or_by_time() -> None:
    for name, algorithm in ALGORITHMS.items():
        assert rounds(64, 4, 4, name) == algorithm(64, 4)
    for size in (1, 1 << 24):
        best = min(predicted(each(size, 4), 4) for each in ALGORITHMS.values())
        assert predicted(rounds(size, 4, 4), 4) == best
    assert len(rounds(1, 8, 4)) < len(ALGORITHMS["ring"](1, 8))
    with pytest.raises(ArgumentError, match="ring"):
        rounds(8, 2, 4, "rings")
    x = Tensor(np.arange(32, dtype=np.float32)).shard(DEVICES[:4], 0).realize()
    counts = {}
    for name in ("naive", "ring"):
        with Context(ALLREDUCE=name):
            GlobalCounters.reset()
            (x * len(name)).reshape(4, 8).sum(0).realize()
            counts[name] = GlobalCounters.copies
    assert counts["ring"] > counts["naive"]


@verifies("collectives.round.before")
def test_a_swap_is_one_round() -> None:
    device = Device[Mesh(DEVICES[:2])]
    assert isinstance(device, MeshDevice)
    memory = device.allocate(8)
    for number, member in enumerate(memory.members):
        member.device.copy_in(member, np.full(2, number, np.float32))
    Peers(device.members, dtypes.float32).run(
        [[Move(0, 1, 0, 2), Move(1, 0, 0, 2)]], memory.members)
    assert [m.device.copy_out(m, dtypes.float32, 2).tolist() for m in memory.members] \
        == [[1, 1], [0, 0]]


@verifies("collectives.due.scattered")
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
