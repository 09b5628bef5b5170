"""Functions of tensors drawn by chance, each written twice: for `impl` and for JAX.

A function is a list of steps on a growing list of values, so it can be printed and run by anybody
who has the table of operations. Values have at most two axes, of sizes 1 to 3, and stay moderate.
"""
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """An operation on one or two values; `shape` gives the shape of the result, or None."""

    name: str
    inputs: int
    shape: Callable[..., Shape | None]
    impl: Callable[..., Any]
    jax: Callable[..., Any]  # gets jax.numpy as its first argument
    smooth: bool = True      # whether it has second derivatives wherever it is met


def _same(shape: Shape) -> Shape:
    return shape


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    pairs = list(zip(a, b, strict=True))
    return tuple(map(max, pairs)) if all(x == y or 1 in (x, y) for x, y in pairs) else None


def _matmul(a: Shape, b: Shape) -> Shape | None:
    return (a[0], b[1]) if len(a) == len(b) == 2 and a[1] == b[0] else None


def _first_less(shape: Shape) -> Shape | None:
    return shape[1:] if shape else None


def _kept(shape: Shape) -> Shape | None:
    return (*shape[:-1], 1) if shape else None


def _ranked(shape: Shape) -> Shape | None:
    return shape or None


def _turned(shape: Shape) -> Shape | None:
    return shape[::-1] if len(shape) == 2 else None


def _flat(shape: Shape) -> Shape:
    count = 1
    for size in shape:
        count *= size
    return (count,)


def _longer(shape: Shape) -> Shape | None:
    return (*shape[:-1], shape[-1] + 2) if shape and shape[-1] < 3 else None


def _cut(shape: Shape) -> Shape | None:
    return (*shape[:-1], shape[-1] - 1) if shape and shape[-1] > 1 else None


def _rows(shape: Shape) -> Shape | None:
    return (3, *shape[1:]) if shape and shape[0] > 1 else None


def _windows(shape: Shape) -> Shape | None:
    return (*shape[:-1], shape[-1] - 1, 2) if shape and len(shape) == 1 and shape[-1] > 1 else None


def _written(x: Any) -> Any:
    x = x * 1
    x[0] = x[-1] * 2
    return x


def _picked(x: Any) -> Any:
    from impl import Tensor
    return x[Tensor([1, 0, 1], device=x.device)]


OPERATIONS: tuple[Operation, ...] = (
    Operation("sin", 1, _same, lambda x: x.sin(), lambda np, x: np.sin(x)),
    Operation("tanh", 1, _same, lambda x: x.tanh(), lambda np, x: np.tanh(x)),
    Operation("exp of tanh", 1, _same, lambda x: x.tanh().exp(), lambda np, x: np.exp(np.tanh(x))),
    Operation("log", 1, _same, lambda x: (x * x + 1).log(), lambda np, x: np.log(x * x + 1)),
    Operation("sqrt", 1, _same, lambda x: (x * x + 1).sqrt(), lambda np, x: np.sqrt(x * x + 1)),
    Operation("reciprocal", 1, _same, lambda x: 1 / (x * x + 2), lambda np, x: 1 / (x * x + 2)),
    Operation("sigmoid", 1, _same, lambda x: x.sigmoid(), lambda np, x: 1 / (1 + np.exp(-x))),
    Operation("cube", 1, _same, lambda x: x.tanh() ** 3, lambda np, x: np.tanh(x) ** 3),
    Operation("erf-like", 1, _same, lambda x: (-x * x).exp(), lambda np, x: np.exp(-x * x)),
    Operation("add", 2, _broadcast, lambda x, y: x + y, lambda np, x, y: x + y),
    Operation("sub", 2, _broadcast, lambda x, y: x - y, lambda np, x, y: x - y),
    Operation("mul", 2, _broadcast, lambda x, y: x.sin() * y, lambda np, x, y: np.sin(x) * y),
    Operation("div", 2, _broadcast, lambda x, y: x / (y * y + 1), lambda np, x, y: x / (y * y + 1)),
    Operation("pow", 2, _broadcast, lambda x, y: (x * x + 1) ** y.tanh(),
              lambda np, x, y: (x * x + 1) ** np.tanh(y)),
    Operation("where", 2, _broadcast, lambda x, y: (x < y).where(x * x, y),
              lambda np, x, y: np.where(x < y, x * x, y)),
    Operation("maximum", 2, _broadcast, lambda x, y: x.maximum(y),
              lambda np, x, y: np.maximum(x, y)),
    Operation("matmul", 2, _matmul, lambda x, y: x @ y, lambda np, x, y: x @ y),
    Operation("sum", 1, _first_less, lambda x: x.sum(0), lambda np, x: x.sum(0)),
    Operation("mean", 1, _kept, lambda x: x.mean(-1, keepdim=True),
              lambda np, x: x.mean(-1, keepdims=True)),
    Operation("max", 1, _first_less, lambda x: x.max(0), lambda np, x: x.max(0)),
    Operation("prod", 1, _first_less, lambda x: x.prod(0), lambda np, x: x.prod(0)),
    Operation("softmax", 1, _ranked, lambda x: x.softmax(-1), lambda np, x: np.exp(
        x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(
            -1, keepdims=True)),
    Operation("logsumexp", 1, _first_less, lambda x: x.logsumexp(0),
              lambda np, x: np.log(np.exp(x).sum(0))),
    Operation("cumsum", 1, _ranked, lambda x: x.cumsum(-1), lambda np, x: np.cumsum(x, -1)),
    Operation("cumprod", 1, _ranked, lambda x: x.sin().cumprod(-1),
              lambda np, x: np.cumprod(np.sin(x), -1)),
    Operation("turned", 1, _turned, lambda x: x.permute(1, 0), lambda np, x: x.T),
    Operation("flat", 1, _flat, lambda x: x.reshape(-1), lambda np, x: x.reshape(-1)),
    Operation("flip", 1, _ranked, lambda x: x.flip(-1), lambda np, x: np.flip(x, -1)),
    Operation("pad", 1, _longer, lambda x: x.pad((1, 1)), lambda np, x: np.pad(
        x, [(0, 0)] * (x.ndim - 1) + [(1, 1)])),
    Operation("cut", 1, _cut, lambda x: x[..., 1:], lambda np, x: x[..., 1:]),
    Operation("rows", 1, _rows, _picked, lambda np, x: x[np.array([1, 0, 1])]),
    Operation("windows", 1, _windows, lambda x: x.unfold(0, 2, 1),
              lambda np, x: np.stack([x[:-1], x[1:]], -1)),
    Operation("written", 1, _ranked, _written, lambda np, x: x.at[0].set(x[-1] * 2)),
)


@dataclass(frozen=True)
class Function:
    """A function of two tensors: steps, each an operation and the places of its inputs."""

    shapes: tuple[Shape, Shape]
    steps: tuple[tuple[Operation, tuple[int, ...]], ...]
    shape: Shape

    def impl(self, *given: Any) -> Any:
        """What `impl` computes."""
        values = list(given)
        for operation, places in self.steps:
            values.append(operation.impl(*[values[place] for place in places]))
        return values[-1]

    def jax(self, *given: Any) -> Any:
        """What JAX computes."""
        import jax.numpy
        values = [jax.numpy.asarray(each) for each in given]
        for operation, places in self.steps:
            values.append(operation.jax(jax.numpy, *[values[place] for place in places]))
        return values[-1]

    def __str__(self) -> str:
        lines = [f"{number + 2} = {operation.name}{places}"
                 for number, (operation, places) in enumerate(self.steps)]
        return f"of {self.shapes}: " + "; ".join(lines)


def drawn(chooser: random.Random, length: int = 6) -> Function:
    """A function, whose result depends on its last step."""
    shapes: list[Shape] = [_shape(chooser), _shape(chooser)]
    first = shapes[0], shapes[1]
    steps: list[tuple[Operation, tuple[int, ...]]] = []
    while len(steps) < length:
        operation = chooser.choice(OPERATIONS)
        places = _places(chooser, len(shapes), operation.inputs)
        found = operation.shape(*[shapes[place] for place in places])
        if found is not None and len(found) <= 2:
            steps.append((operation, places))
            shapes.append(found)
    return Function(first, tuple(steps), shapes[-1])


def _places(chooser: random.Random, count: int, inputs: int) -> tuple[int, ...]:
    """Often the last value, so that one step leads to another."""
    return tuple(count - 1 if chooser.random() < 0.6 else chooser.randrange(count)
                 for _ in range(inputs))


def _shape(chooser: random.Random) -> Shape:
    return tuple(chooser.randint(1, 3) for _ in range(chooser.choice((1, 2, 2))))


def operations_of(functions: Sequence[Function]) -> set[str]:
    """The names of what some functions do."""
    return {operation.name for function in functions for operation, _ in function.steps}
