"""Sums that go together: which, how large, and that nothing else changes."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.oracle.checker import check
from conformance.trace import verifies
from impl import Context, Mesh, Tensor, TinyJit

DEVICES = tuple(f"REFERENCE:{i}" for i in range(3))


def gradients(mesh: Mesh, layers: int = 3, model: bool = False) -> list[Tensor]:
    """The gradients of a net whose rows are spread; with `model` its columns are, too."""
    numbers = np.random.default_rng(3)
    x = Tensor(numbers.standard_normal((6, 4)).astype(np.float32)).shard(mesh, data=0)
    weights = []
    for layer in range(layers):
        weight = Tensor(numbers.standard_normal((4, 4)).astype(np.float32), requires_grad=True)
        weights.append(weight.shard_(mesh, **{"model": (layer + 1) % 2} if model else {}))
        x = (x @ weights[-1]).tanh()
    x.sum().backward()
    return [weight.grad for weight in weights if weight.grad is not None]


def transfers(*values: Tensor) -> list[dict[str, Any]]:
    """The all-reduces of a schedule."""
    document = Tensor.schedule_document(*values, rounds=True)
    assert check(document) == []
    rows = {row["id"]: row for row in document["kernels"]}
    return [rows[number] for number in document["order"]
            if rows[number].get("transfer", "").startswith("all-reduce")]


@verifies("collectives.together.bucket+2")
@pytest.mark.parametrize("most, expected", [(25 << 20, [3]), (2 * 64, [2, 1]), (64, [1, 1, 1]),
                                            (0, [1, 1, 1])])
def test_sums_wait_until_a_bucket_is_full(most: int, expected: list[int]) -> None:
    with Context(DEVICE="REFERENCE", BUCKET_BYTES=most):
        found = transfers(*gradients(Mesh(DEVICES, {"data": 3})))
    assert [len(row["reads"]) for row in found] == expected
    assert sum(row["sent"] for row in found) == 3 * (2 * 64 * 2 // 3)


@verifies("collectives.together.bucket+2")
def test_what_is_not_alike_or_needs_another_goes_alone() -> None:
    with Context(DEVICE="REFERENCE"):
        x = Tensor(np.arange(6, dtype=np.float32)).shard(DEVICES, 0)
        n = Tensor(np.arange(6, dtype=np.int32)).shard(DEVICES, 0)
        assert len(transfers(x.sum(), n.sum(), x.max())) == 3
        once = x.sum()
        twice = (x * once).sum()
        found = transfers(once, twice, (x * x).sum())
        assert [len(row["reads"]) for row in found] == [2, 1]
        assert [one.item() for one in (once, twice)] == [15.0, 225.0]


@verifies("collectives.together.bucket+2")
def test_gradients_wait_while_layers_need_sums_along_another_axis() -> None:
    mesh = Mesh([f"REFERENCE:{i}" for i in range(4)], {"data": 2, "model": 2})
    with Context(DEVICE="REFERENCE"):
        found = transfers(*gradients(mesh, 4, True))
    over = [(row["name"], len(row["reads"])) for row in found]
    assert [count for name, count in over if name == "all-reduce over data"] == [4]
    assert len([name for name, _ in over if name == "all-reduce over model"]) > 1


@verifies("collectives.together.equal")
@pytest.mark.parametrize("name", ["", "naive", "ring", "tree", "all-to-all"])
@pytest.mark.parametrize("overlap", [0, 2])
def test_a_sum_has_the_same_bits_alone_and_with_others(name: str, overlap: int) -> None:
    mesh = Mesh(DEVICES, {"data": 3})
    seen = []
    for most in (0, 25 << 20):
        with Context(DEVICE="REFERENCE", BUCKET_BYTES=most, ALLREDUCE=name, OVERLAP=overlap):
            seen.append([each.numpy().tobytes() for each in gradients(mesh)])
    assert seen[0] == seen[1]


@verifies("collectives.together.equal")
def test_as_many_bytes_are_sent_in_the_rounds() -> None:
    sent = []
    for most in (0, 25 << 20):
        with Context(DEVICE="REFERENCE", BUCKET_BYTES=most):
            found = transfers(*gradients(Mesh(DEVICES, {"data": 3})))
        sent.append(sum(stop - start for row in found for each in row["collective"]["rounds"]
                        for sender, to, start, stop, _ in each["sends"] if sender != to))
    assert sent[0] == sent[1] > 0


@verifies("collectives.together.equal")
@pytest.mark.parametrize("overlap", [0, 2])
def test_a_replay_sends_sums_together(overlap: int) -> None:
    with Context(DEVICE="REFERENCE", OVERLAP=overlap):
        @TinyJit
        def both(x: Tensor) -> tuple[Tensor, Tensor]:
            return x.sum(0).realize(), (x * x).sum(1).sum().realize()

        for step in range(4):
            x = Tensor(np.arange(12, dtype=np.float32).reshape(6, 2) + step).shard(DEVICES, 0)
            first, second = both(x)
            values = x.numpy()
            assert first.tolist() == values.sum(0).tolist()
            assert second.item() == (values * values).sum()


@verifies("collectives.together.equal")
def test_one_value_in_two_sums() -> None:
    """What is the same memory, seen in two ways, is the source of two transfers."""
    with Context(DEVICE="REFERENCE", SPEC=2):
        x = Tensor(np.arange(24, dtype=np.float32).reshape(6, 4)).shard(DEVICES, 0)
        total = x.sum(0)
        seen = [total + 1, total.reshape(2, 2) * 2, (x * 2).sum(0), (x * x).sum(1).sum()]
        Tensor.realize(*seen)
        values = x.numpy()
        expected = [values.sum(0) + 1, values.sum(0).reshape(2, 2) * 2, 2 * values.sum(0),
                    (values * values).sum()]
        for mine, theirs in zip(seen, expected, strict=True):
            assert mine.tolist() == theirs.tolist()
