"""Random functions, transformed here and by JAX. Chapter: spec/transforms.md.

    python -m conformance.chapters.transforms.against_jax --count 300
"""
from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from conformance.generators.functions import Function, drawn, operations_of
from impl import Tensor, func

Array = np.ndarray[Any, Any]


def _total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: f(*given).sum()


def transformed(function: Function, x: Array, y: Array, which: int,
                ) -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """What is compared: a name, what `impl` gives, and how to ask JAX."""
    import jax

    mine, theirs = function.impl, function.jax
    tx, ty, many = Tensor(x), Tensor(y), np.stack([x, x * 0.5, -x])
    yield "value", mine(tx, ty), lambda: theirs(x, y)
    yield "grad", func.grad(_total(mine), (0, 1))(tx, ty), \
        lambda: jax.grad(_total(theirs), (0, 1))(x, y)
    yield "jvp", func.jvp(mine, (tx, ty), (ty.sum() + 0 * tx, 1 + 0 * ty)), \
        lambda: jax.jvp(theirs, (x, y), (y.sum() + 0 * x, 1 + 0 * y))
    if which % 3 == 0:
        yield "jacrev", func.jacrev(mine, 1)(tx, ty), lambda: jax.jacrev(theirs, 1)(x, y)
        yield "vmap", func.vmap(mine, (0, None))(Tensor(many), ty), \
            lambda: jax.vmap(theirs, (0, None))(many, y)
    elif which % 3 == 1:
        yield "jacfwd", func.jacfwd(mine)(tx, ty), lambda: jax.jacfwd(theirs)(x, y)
        yield "vmap of grad", func.vmap(func.grad(_total(mine), 1), (0, None), -1)(
            Tensor(many), ty), lambda: jax.vmap(jax.grad(_total(theirs), 1), (0, None), -1)(many, y)
        yield "vjp", func.vjp(mine, tx, ty)[1](mine(tx, ty).sin()), \
            lambda: jax.vjp(theirs, x, y)[1](jax.numpy.sin(theirs(x, y)))
    else:
        yield "hessian", func.hessian(_total(mine))(tx, ty), \
            lambda: jax.hessian(_total(theirs))(x, y)
        yield "grad of vmap", func.grad(lambda a: func.vmap(mine, (0, None))(a, ty).sin().sum())(
            Tensor(many)), lambda: jax.grad(lambda a: jax.numpy.sin(jax.vmap(
                theirs, (0, None))(a, y)).sum())(many)
        yield "checkpoint", func.grad(lambda a: func.checkpoint(mine)(a, ty).sum())(tx), \
            lambda: jax.grad(_total(theirs))(x, y)


def _parts(value: Any) -> list[Array]:
    if isinstance(value, (tuple, list)):
        return [part for each in value for part in _parts(each)]
    return [np.asarray(value.numpy() if isinstance(value, Tensor) else value)]


def differences(seed: int, count: int, told: bool = False) -> tuple[list[str], set[str], int]:
    """What differs, the operations that were met, and how many comparisons there were."""
    import jax

    chooser, found, functions, compared = random.Random(seed), list[str](), list[Function](), 0
    with jax.enable_x64(True):
        for number in range(count):
            function = drawn(chooser)
            functions.append(function)
            if told and number % 10 == 0:
                print(f"{number} functions, {compared} comparisons, {len(found)} differ",
                      file=sys.stderr, flush=True)
            numbers = np.random.default_rng(chooser.randrange(1 << 30))
            x, y = (numbers.uniform(-1.2, 1.2, shape) for shape in function.shapes)
            for name, mine, theirs in transformed(function, x, y, number):
                compared += 1
                wanted = _parts(theirs())
                got = _parts(mine)
                if len(got) != len(wanted) or any(
                        a.shape != b.shape or not np.allclose(a, b, 1e-7, 1e-9, equal_nan=True)
                        for a, b in zip(got, wanted, strict=True)):
                    found.append(f"{name} of function {number}, {function}: {got} instead of "
                                 f"{wanted}")
    return found, operations_of(functions), compared


def main() -> int:
    """Compare many functions, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found, met, compared = differences(given.seed, given.count, told=True)
    print("\n".join(found[:5]))
    print(f"{given.count} functions of {len(met)} operations, {compared} comparisons, "
          f"{len(found)} differ")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
