"""Ring attention and a pipeline with microbatches, in a step of a small GPT, as on one device."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor

COUNT = 4
DEVICES = tuple(f"REFERENCE:{i}" if i else "REFERENCE" for i in range(COUNT))
BATCH, TOKENS, WIDTH, HEADS, WORDS = 4, 4, 4, 2, 6


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def ring_attention(q: Tensor, k: Tensor, v: Tensor, count: int) -> Tensor:
    """Causal attention (batch, heads, tokens, width), tokens in `count` blocks.

    The blocks of keys and values go round; no device ever has more than one of them.
    """
    batch, heads, tokens, width = q.shape
    length = tokens // count
    q, k, v = (x.reshape(batch, heads, count, length, width) for x in (q, k, v))
    rows = np.arange(tokens).reshape(count, length, 1)
    most = total = mixed = Tensor([0.0])
    for turn in range(count):
        columns = np.roll(np.arange(tokens).reshape(count, 1, length), turn, 0)
        seen = Tensor(rows >= columns).shard_like(q[0, 0, :, :, :1])
        scores = seen.where(q @ k.transpose(-1, -2) / width ** 0.5, -float("inf"))
        top = scores.max(-1, keepdim=True).detach()
        now = top if turn == 0 else most.maximum(top)
        share = (scores - now).exp()
        kept = 0.0 if turn == 0 else (most - now).exp()
        total = share.sum(-1, keepdim=True) + (total * kept if turn else 0.0)
        mixed = share @ v + (mixed * kept if turn else 0.0)
        most = now
        if turn + 1 < count:
            k, v = k.roll(1, 2), v.roll(1, 2)
    return (mixed / total).reshape(batch, heads, tokens, width)


Parameters = dict[str, Tensor]


def parameters(layers: int) -> Parameters:
    """Each layer's parameters lie one behind the other, along the first axis."""
    random = np.random.default_rng(0)
    shapes = {"words": (WORDS, WIDTH), "head": (WIDTH, WORDS),
              "up": (layers, WIDTH, 4 * WIDTH), "down": (layers, 4 * WIDTH, WIDTH),
              **{name: (layers, WIDTH, WIDTH) for name in ("q", "k", "v", "out")}}
    return {name: Tensor((random.standard_normal(shape) / 4).astype(np.float32))
            for name, shape in shapes.items()}


def block(p: Parameters, hidden: Tensor, ring: int = 0) -> Tensor:
    """A layer on (layers, batch, tokens, width): of each its own, or of the only one."""
    layers, batch, tokens, width = hidden.shape
    w = {name: value.unsqueeze(1) for name, value in p.items() if value.ndim == 3}
    normed = hidden.layernorm()
    q, k, v = ((normed @ w[name]).reshape(layers * batch, tokens, HEADS, width // HEADS)
               .transpose(1, 2) for name in "qkv")
    mixed = ring_attention(q, k, v, ring) if ring else \
        q.scaled_dot_product_attention(k, v, is_causal=True)
    hidden = hidden + mixed.transpose(1, 2).reshape(hidden.shape) @ w["out"]
    return hidden + (hidden.layernorm() @ w["up"]).gelu() @ w["down"]


def loss_of(p: Parameters, hidden: Tensor, targets: Tensor) -> Tensor:
    """The losses of (batch, tokens, width), one for each token."""
    found = (hidden.layernorm() @ p["head"]).log_softmax(-1)
    return -(found * targets.one_hot(WORDS)).sum(-1)


def one_after_the_other(p: Parameters, words: Tensor, targets: Tensor, ring: int = 0) -> Tensor:
    """All layers on the whole batch."""
    layers = p["q"].shape[0]
    hidden = p["words"][words].unsqueeze(0)
    for layer in range(layers):
        own = {name: value[layer:layer + 1] for name, value in p.items() if value.ndim == 3}
        hidden = block(own, hidden, ring)
    return loss_of(p, hidden.squeeze(0), targets).mean()


def pipelined(p: Parameters, words: Tensor, targets: Tensor, stages: int) -> Tensor:
    """A layer on each device; microbatches go from device to device, one step a turn."""
    micro = words.shape[0] // stages * 2 or 1
    pieces = [words[i:i + micro] for i in range(0, words.shape[0], micro)]
    place = Tensor(np.arange(stages).reshape(stages, 1, 1, 1)).shard_like(p["q"].unsqueeze(3))
    hidden, losses = Tensor([0.0]), []
    for turn in range(len(pieces) + stages - 1):
        entering = p["words"][pieces[min(turn, len(pieces) - 1)]].unsqueeze(0)
        hidden = entering.expand(stages, -1, -1, -1) if turn == 0 else \
            (place == 0).where(entering, hidden.roll(1, 0))
        hidden = block(p, hidden)
        if turn >= stages - 1:  # what leaves the last device
            done = turn - stages + 1
            wanted = targets[done * micro:(done + 1) * micro].unsqueeze(0)
            found = loss_of(p, hidden, wanted.expand(stages, -1, -1))
            losses.append((place[:, :, :, 0] == stages - 1).where(found, 0.0).sum())
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss
    return total / (words.shape[0] * words.shape[1])


def given() -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(1)
    words, targets = (Tensor(random.integers(0, WORDS, (BATCH, TOKENS)).astype(np.int32))
                      for _ in range(2))
    return words, targets


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
    p = parameters(layers)
    for value in p.values():
        value.requires_grad = True
    loss = one_after_the_other(p, *given())
    return loss, gradients(p, loss)


@verifies("collectives.permute.roll")
@verifies("multi.value.equal")
@pytest.mark.parametrize("overlap", [0, 2])
def test_ring_attention_is_attention(overlap: int) -> None:
    """Keys and values of one block at a time: 2(k-1) permutes of a block, and no gathering."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((2, HEADS, TOKENS, 4)).astype(np.float32) for _ in range(4)]
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
    p = parameters(1)
    for value in p.values():
        value.shard_(DEVICES)
        value.requires_grad = True
    words, targets = (x.shard(DEVICES, 1).realize() for x in given())
    loss = one_after_the_other(p, words, targets, COUNT)
    slopes = gradients(p, loss)
    piece = 4 * BATCH * TOKENS * WIDTH // COUNT
    sent, _ = permutes([loss, *slopes])
    assert sent == [piece] * (4 * (COUNT - 1))
    expected, theirs = on_one_device(1)
    same([loss, *slopes], [expected, *theirs])


@verifies("multi.value.equal")
def test_a_pipeline_is_the_layers_one_after_the_other() -> None:
    """Each turn but the last sends a microbatch on, and its gradient back."""
    p = parameters(COUNT)
    for value in p.values():
        value.shard_(DEVICES, 0 if value.ndim == 3 else None)
        value.requires_grad = True
    with Context(OVERLAP=2):
        words, targets = (x.shard(DEVICES).realize() for x in given())
        loss = pipelined(p, words, targets, COUNT)
        slopes = gradients(p, loss)
        sent, others = permutes([loss, *slopes])
        micro, turns = 2, BATCH // 2 + COUNT - 1
        piece = 4 * micro * TOKENS * WIDTH
        assert len(sent) == 2 * (turns - 1) and set(sent) == {piece}
        assert others <= {"broadcast", "scatter", "all-reduce"}
        expected, theirs = on_one_device(COUNT)
        same([loss, *slopes], [expected, *theirs])
