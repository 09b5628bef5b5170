"""A training step of a GPT, and the same in half the memory. Chapter: spec/transforms.md.

    python -m conformance.bench checkpoint --layers 8
"""
from __future__ import annotations

import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

import numpy as np

from impl import GlobalCounters, Tensor, TinyJit, func
from impl.transforms.trees import Tree

WIDTH, LENGTH, BATCH, HEADS, WORDS = 64, 64, 8, 4, 128
#: How many times as long a step in half the memory may take.
MOST = 1.35
Weights = dict[str, Any]


def drawn(chooser: np.random.Generator, *shape: int) -> Tensor:
    return Tensor((chooser.standard_normal(shape) * 0.05).astype(np.float32))


def weights_of(layers: int) -> Weights:
    """Random weights, each in memory of its own."""
    chooser = np.random.default_rng(0)
    blocks = [{"qkv": drawn(chooser, WIDTH, 3 * WIDTH), "out": drawn(chooser, WIDTH, WIDTH),
               "up": drawn(chooser, WIDTH, 4 * WIDTH), "down": drawn(chooser, 4 * WIDTH, WIDTH)}
              for _ in range(layers)]
    return {"words": drawn(chooser, WORDS, WIDTH), "places": drawn(chooser, LENGTH, WIDTH),
            "last": drawn(chooser, WIDTH, WORDS), "blocks": blocks}


def block(x: Tensor, weights: Weights) -> Tensor:
    """Attention and two products, each beside a way past them."""
    parts = (x.layernorm() @ weights["qkv"]).reshape(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS)
    query, key, value = parts.permute(2, 0, 3, 1, 4)
    seen = query.scaled_dot_product_attention(key, value, is_causal=True)
    x = x + seen.permute(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH) @ weights["out"]
    return x + (x.layernorm() @ weights["up"]).gelu() @ weights["down"]


def step_of(each: Callable[[Tensor, Weights], Tensor]) -> Callable[[Weights], Any]:
    """The loss and its gradients, with blocks computed by `each`."""
    chooser = np.random.default_rng(1)
    read, wanted = (Tensor(chooser.integers(0, WORDS, (BATCH, LENGTH)).astype(np.int32))
                    for _ in range(2))

    def loss(weights: Weights) -> Tensor:
        x = weights["words"][read] + weights["places"]
        for one in weights["blocks"]:
            x = each(x, one)
        scores = (x @ weights["last"]).reshape(BATCH * LENGTH, WORDS)
        return scores.cross_entropy(wanted.reshape(BATCH * LENGTH))
    return func.value_and_grad(loss)


def planned(result: Any) -> int:
    """The bytes of temporaries in the plan of a step."""
    leaves = Tree(result).leaves
    found: int = leaves[0].schedule_document(*leaves[1:])["memory"]["planned"]
    return found


def timed(step: Callable[[Weights], Any], weights: Weights) -> tuple[float, int]:
    """The processor time of a captured step, and its operations."""
    start, before = time.process_time(), GlobalCounters.operations
    step(weights)[0].item()
    return time.process_time() - start, GlobalCounters.operations - before


def add_arguments(parser: ArgumentParser) -> None:
    """How many layers, and how often a step is taken."""
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=15)


def main(options: Namespace) -> int:
    """Print bytes and times of both; the status is 1 if half the memory takes too long."""
    weights = weights_of(options.layers)
    Tensor.realize(*Tree(weights).leaves)
    plain = step_of(block)
    most = planned(plain(weights))
    limited = func.checkpoint_within(step_of(func.checkpoint(block)), most // 2)
    print(f"{most} bytes of temporaries, and {planned(limited(weights))} with a limit of "
          f"{most // 2}")
    steps = [TinyJit(plain), TinyJit(limited)]
    for step in steps:
        for _ in range(3):
            timed(step, weights)
    found = [[timed(step, weights) for step in steps] for _ in range(options.rounds)]
    first, second = (statistics.median(one[i][0] for one in found) for i in range(2))
    ratios = sorted(two[0] / one[0] for one, two in found)
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    print(f"{1e3 * first:.1f} and {1e3 * second:.1f} ms of processor time a step, in turns, "
          f"medians of {options.rounds}: {statistics.median(ratios):.2f} times as long (half of "
          f"the turns between {low:.2f} and {high:.2f}), "
          f"{found[0][1][1] / found[0][0][1]:.2f} times the operations")
    return int(statistics.median(ratios) > MOST)
