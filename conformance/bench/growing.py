"""Programs of any length, to see what an operation costs as graphs grow.

One text serves all libraries: it uses Python's operators, and an `Operations` for the rest. An
operation is one of these calls; the number of them is the same for everyone.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

PLACES, WIDTH = 8, 16
#: How many inputs there are; longer programs use them again.
INPUTS = 16


class Operations(Protocol):
    """What libraries call by different names. Reductions keep the last axis, with size 1."""

    def mean(self, x: Any) -> Any: ...
    def sum(self, x: Any) -> Any: ...
    def max(self, x: Any) -> Any: ...
    def exp(self, x: Any) -> Any: ...
    def sqrt(self, x: Any) -> Any: ...
    def relu(self, x: Any) -> Any: ...
    def transpose(self, x: Any) -> Any: ...

    def apart(self, x: Any) -> Any:
        """x, in memory of its own: what follows is another kernel."""


def chain(inputs: Sequence[Any], count: int, lib: Operations) -> tuple[Any, int]:
    """Additions and multiplications by turns, each of the one before."""
    x = inputs[0]
    for i in range(count):
        other = inputs[1 + i % (INPUTS - 1)]
        x = x * other if i % 2 else x + other
    return x, count


def tree(inputs: Sequence[Any], count: int, lib: Operations) -> tuple[Any, int]:
    """A balanced sum of leaves; every leaf is an input times a number of its own."""
    level = [inputs[i % INPUTS] * ((i + 1) / count) for i in range((count + 1) // 2)]
    operations = len(level)
    while len(level) > 1:
        rest = level[-1:] if len(level) % 2 else []
        level = [a + b for a, b in zip(level[::2], level[1::2], strict=False)] + rest
        operations += len(level) - len(rest)
    return level[0], operations


def separate(inputs: Sequence[Any], count: int, lib: Operations) -> tuple[Any, int]:
    """Additions, each of the one before, and each in a kernel of its own."""
    x = inputs[0]
    for i in range(count):
        x = lib.apart(x + inputs[1 + i % (INPUTS - 1)])
    return x, count


def transformer(inputs: Sequence[Any], count: int, lib: Operations) -> tuple[Any, int]:
    """Layers of a small transformer with one head; 32 operations a layer."""
    x, weights = inputs[0], inputs[1:7]
    layers = max(1, count // 32)
    for _ in range(layers):
        normal = _normal(x, lib)
        query, key, value = (normal @ w for w in weights[:3])
        scores = (query @ lib.transpose(key)) * 0.25
        raised = lib.exp(scores - lib.max(scores))
        x = x + ((raised / lib.sum(raised)) @ value) @ weights[3]
        x = x + lib.relu(_normal(x, lib) @ weights[4]) @ weights[5]
    return x, 32 * layers


def _normal(x: Any, lib: Operations) -> Any:
    centred = x - lib.mean(x)
    return centred / lib.sqrt(lib.mean(centred * centred) + 1e-5)


PROGRAMS: dict[str, Callable[[Sequence[Any], int, Operations], tuple[Any, int]]] = {
    "chain": chain, "tree": tree, "transformer": transformer, "separate": separate,
}


def inputs(program: str) -> list[np.ndarray]:
    """What a program starts from: a few little arrays."""
    chooser = np.random.default_rng(11)
    if program == "transformer":
        shapes = [(PLACES, WIDTH), *[(WIDTH, WIDTH)] * 6]
        return [(chooser.standard_normal(s) / 4).astype(np.float32) for s in shapes]
    return [chooser.uniform(0.9, 1.1, 4).astype(np.float32) for _ in range(INPUTS)]


class Exact:
    """The operations of NumPy, in float64: what the libraries are compared with."""

    def mean(self, x: Any) -> Any:
        return x.mean(-1, keepdims=True)

    def sum(self, x: Any) -> Any:
        return x.sum(-1, keepdims=True)

    def max(self, x: Any) -> Any:
        return x.max(-1, keepdims=True)

    def exp(self, x: Any) -> Any:
        return np.exp(x)

    def sqrt(self, x: Any) -> Any:
        return np.sqrt(x)

    def relu(self, x: Any) -> Any:
        return np.maximum(x, 0)

    def transpose(self, x: Any) -> Any:
        return x.T

    def apart(self, x: Any) -> Any:
        return x


def expected(program: str, count: int) -> np.ndarray:
    """The value of a program in float64."""
    exact = [array.astype(np.float64) for array in inputs(program)]
    return np.asarray(PROGRAMS[program](exact, count, Exact())[0])
