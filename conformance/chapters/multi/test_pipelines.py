"""Ring attention and a pipeline with microbatches, in a step of a small GPT, as on one device."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from conformance.ways.programs import (
    Parameters,
    Size,
    drawn,
    one_after_the_other,
    parameters,
    pipelined,
    ring_attention,
)
from impl import Context, Tensor

COUNT = 4
DEVICES = tuple(f"REFERENCE:{i}" if i else "REFERENCE" for i in range(COUNT))
SIZE = Size(batch=2, tokens=4, width=4, heads=2, words=6)


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def gradients(p: Parameters, loss: Tensor) -> list[Tensor]:
    loss.backward()
    found = [value.grad for value in p.values()]
    assert all(gradient is not None for gradient in found)
    return [gradient for gradient in found if gradient is not None]


def same(mine: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=2e-3, atol=2e-5)


def permutes(tensors: Sequence[Tensor]) -> tuple[list[int], set[str]]:
    """The bytes of each permute from a device, and what other transfers there are."""
    rows: list[dict[str, Any]] = Tensor.schedule_document(*tensors)["kernels"]
    sent = [row["sent"] for row in rows if row["name"].startswith("permute")]
    return sent, {row["name"].partition(" ")[0] for row in rows if "sent" in row} - {"permute"}


def on_one_device(layers: int) -> tuple[Tensor, list[Tensor]]:
    p = parameters(SIZE, layers)
    for value in p.values():
        value.requires_grad = True
    words, targets = drawn(SIZE)
    loss = one_after_the_other(p, words, targets, SIZE.heads)
    return loss, gradients(p, loss)


@verifies("collectives.permute.roll")
@verifies("multi.value.equal")
@pytest.mark.parametrize("overlap", [0, 2])
def test_ring_attention_is_attention(overlap: int) -> None:
    """Keys and values of one block at a time: 2(k-1) permutes of a block, and no gathering."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((2, SIZE.heads, SIZE.tokens, 4)).astype(np.float32)
              for _ in range(4)]
    whole, spread = ([Tensor(a) for a in arrays],
                     [Tensor(a).shard(DEVICES, 2).realize() for a in arrays])
    for tensor in (*whole[:3], *spread[:3]):
        tensor.requires_grad = True
    q, k, v, slope = whole
    expected = q.scaled_dot_product_attention(k, v, is_causal=True)
    (expected * slope).sum().backward()
    with Context(OVERLAP=overlap, SPEC=2):
        q, k, v, slope = spread
        found = ring_attention(q, k, v, COUNT)
        piece = arrays[0].nbytes // COUNT
        sent, others = permutes([found])
        assert sent == [piece] * (2 * (COUNT - 1)) and others <= {"broadcast", "scatter"}
        (found * slope).sum().backward()
        slopes = [x.grad for x in spread[:3] if x.grad is not None]
        sent, others = permutes(slopes)  # keys and values go round, and so do their gradients
        assert sent == [piece] * (4 * (COUNT - 1)) and others <= {"broadcast", "scatter"}
        same([found, *slopes], [expected, *(x.grad for x in whole[:3] if x.grad is not None)])


@verifies("multi.value.equal")
def test_a_step_with_ring_attention_is_that_of_one_device() -> None:
    p = parameters(SIZE, 1)
    for value in p.values():
        value.shard_(DEVICES)
        value.requires_grad = True
    words, targets = (x.shard(DEVICES, 1).realize() for x in drawn(SIZE))
    loss = one_after_the_other(p, words, targets, SIZE.heads, COUNT)
    slopes = gradients(p, loss)
    piece = SIZE.activations // COUNT
    sent, _ = permutes([loss, *slopes])
    assert sent == [piece] * (4 * (COUNT - 1))
    expected, theirs = on_one_device(1)
    same([loss, *slopes], [expected, *theirs])


@pytest.mark.slow
@verifies("multi.value.equal")
def test_a_pipeline_is_the_layers_one_after_the_other() -> None:
    """Each turn but the last sends a microbatch on, and its gradient back."""
    p = parameters(SIZE, COUNT)
    for value in p.values():
        value.shard_(DEVICES, 0 if value.ndim == 3 else None)
        value.requires_grad = True
    with Context(OVERLAP=2):
        words, targets = (x.shard(DEVICES).realize() for x in drawn(SIZE))
        loss = pipelined(p, words, targets, SIZE.heads)
        slopes = gradients(p, loss)
        sent, others = permutes([loss, *slopes])
        turns, piece = SIZE.batch + COUNT - 1, SIZE.activations // SIZE.batch
        assert len(sent) == 2 * (turns - 1) and set(sent) == {piece}
        assert others <= {"broadcast", "scatter", "all-reduce"}
        expected, theirs = on_one_device(COUNT)
        same([loss, *slopes], [expected, *theirs])
