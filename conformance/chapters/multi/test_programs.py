"""What meshes are used for: a step of a small GPT in all the usual ways, each as on one device."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Mesh, Tensor, TinyJit, nn

DEVICES = tuple(f"REFERENCE:{i}" if i else "REFERENCE" for i in range(4))
GRID = Mesh(DEVICES, {"data": 2, "model": 2})
BATCH, TOKENS, WIDTH, HEADS, WORDS = 4, 4, 8, 2, 12
#: Parameters whose columns are spread in tensor parallelism, and those whose rows are.
COLUMNS, ROWS = ("q", "k", "v", "up"), ("out", "down")

Place = Callable[[str, Tensor], Any]


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def parameters() -> dict[str, Tensor]:
    random = np.random.default_rng(0)
    shapes = {"words": (WORDS, WIDTH), "places": (TOKENS, WIDTH), "up": (WIDTH, 4 * WIDTH),
              "down": (4 * WIDTH, WIDTH), "head": (WIDTH, WORDS),
              **{name: (WIDTH, WIDTH) for name in ("q", "k", "v", "out")}}
    return {name: Tensor((random.standard_normal(shape) / 4).astype(np.float32))
            for name, shape in shapes.items()}


def logits(p: dict[str, Tensor], words: Tensor) -> Tensor:
    """One block of a transformer."""
    hidden = p["words"][words] + p["places"]
    normed = hidden.layernorm()
    q, k, v = ((normed @ p[name]).reshape(-1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)
               for name in "qkv")
    mixed = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2)
    hidden = hidden + mixed.reshape(-1, TOKENS, WIDTH) @ p["out"]
    hidden = hidden + (hidden.layernorm() @ p["up"]).gelu() @ p["down"]
    return hidden.layernorm() @ p["head"]


def trained(place_parameter: Place, place_input: Callable[[Tensor], Tensor],
            captured: bool = False) -> tuple[list[float], dict[str, np.ndarray]]:
    """The losses of three steps, and the parameters after them."""
    p = parameters()
    for name, tensor in p.items():
        place_parameter(name, tensor)
        tensor.requires_grad = True
    optimizer = nn.optim.AdamW(list(p.values()), lr=0.01)

    def step(words: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad()
        found = logits(p, words).reshape(BATCH * TOKENS, WORDS)
        loss = found.sparse_categorical_crossentropy(targets.reshape(BATCH * TOKENS))
        loss.backward()
        optimizer.step()
        return loss.realize()

    run = TinyJit(step) if captured else step
    random, losses = np.random.default_rng(1), []
    for _ in range(4 if captured else 3):
        words, targets = (place_input(Tensor(random.integers(0, WORDS, (BATCH, TOKENS))
                                             .astype(np.int32))).realize() for _ in range(2))
        losses.append(float(run(words, targets).item()))
    return losses[:3], {} if captured else {name: tensor.numpy() for name, tensor in p.items()}


def nowhere(name: str, tensor: Tensor) -> None:
    """As it is: on one device."""


def columns_and_rows(name: str) -> int | None:
    """Which axis of a parameter tensor parallelism cuts."""
    return 1 if name in COLUMNS else 0 if name in ROWS else None


Ways = dict[str, tuple[Place, Callable[[Tensor], Tensor]]]


def ways(line: Mesh, grid: Mesh) -> Ways:
    """How parameters and inputs are placed, on the same devices in a line and as 2 x 2."""
    return {
        "data parallel": (lambda n, t: t.shard_(line), lambda x: x.shard(line, data=0)),
        "sharded parameters": (lambda n, t: t.shard_(line, data=0),
                               lambda x: x.shard(line, data=0)),
        "tensor parallel": (lambda n, t: t.shard_(grid, model=columns_and_rows(n)),
                            lambda x: x.shard(grid)),
        "sequence parallel": (lambda n, t: t.shard_(line), lambda x: x.shard(line, data=1)),
        "data and tensor": (lambda n, t: t.shard_(grid, model=columns_and_rows(n)),
                            lambda x: x.shard(grid, data=0)),
    }


WAYS: Ways = ways(Mesh(DEVICES, {"data": 4}), GRID) | {
    "three devices, uneven": (lambda n, t: t.shard_(DEVICES[:3], 0),
                              lambda x: x.shard(DEVICES[:3], 0))}


@pytest.fixture(scope="module")
def one_device() -> tuple[list[float], dict[str, np.ndarray]]:
    with Context(DEVICE="REFERENCE"):
        return trained(nowhere, lambda x: x)


@pytest.mark.slow
@verifies("multi.value.equal")
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("way", WAYS)
def test_a_step_is_that_of_one_device(way: str, captured: bool, one_device: Any) -> None:
    losses, values = trained(*WAYS[way], captured=captured)
    np.testing.assert_allclose(losses, one_device[0], rtol=1e-5)
    for name, value in values.items():
        np.testing.assert_allclose(value, one_device[1][name], rtol=2e-3, atol=2e-4, err_msg=name)


def sent(way: str, batch: int) -> int:
    """The bytes that each device sends in a step."""
    place_parameter, place_input = WAYS[way]
    p, random = parameters(), np.random.default_rng(1)
    for name, tensor in p.items():
        place_parameter(name, tensor)
        tensor.requires_grad = True
    words, targets = (place_input(Tensor(random.integers(0, WORDS, (batch, TOKENS))
                                         .astype(np.int32))).realize() for _ in range(2))
    Tensor.realize(*p.values())
    optimizer = nn.optim.AdamW(list(p.values()), lr=0.01)
    loss = logits(p, words).flatten(0, 1).sparse_categorical_crossentropy(targets.flatten())
    loss.backward()
    for name, tensor in p.items():
        assert tensor.grad is not None and tensor.grad.sharding == tensor.sharding, name
    kernels = Tensor.schedule_document(loss, *optimizer.schedule_step())["kernels"]
    return sum(kernel["sent"] for kernel in kernels if " over " in kernel.get("transfer", ""))


#: Bytes of all parameters, of those that tensor parallelism cuts, of the activations of a sample.
ALL = 4 * (2 * WORDS * WIDTH + TOKENS * WIDTH + 12 * WIDTH * WIDTH)
CUT, SAMPLE = 4 * 12 * WIDTH * WIDTH, 4 * TOKENS * WIDTH


@verifies("multi.gradient.sharding")
@pytest.mark.parametrize(("way", "least"), [
    # Gradients are combined and sent back: each device sends 3/4 of them twice.
    ("data parallel", ALL * 3 // 2),
    # Parameters are gathered once, and each gradient sent to where it is kept.
    ("sharded parameters", ALL * 3 // 2),
    # Four all-reduces of activations among two, and gradients need nothing.
    ("tensor parallel", 4 * 64 * SAMPLE),
    # The same for half of the batch; then gradients among two, of what each has.
    ("data and tensor", 4 * 32 * SAMPLE + ALL - CUT + CUT // 2),
])
def test_a_step_sends_what_its_way_needs(way: str, least: int) -> None:
    assert least <= sent(way, 64) <= least * 1.01
