"""Random functions, transformed here and by JAX. Chapter: spec/transforms.md.

    python -m conformance.chapters.transforms.against_jax --count 300

The names and their meaning are those of JAX, so each combination of transforms is written once, and
both libraries run it.
"""
from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.generators.functions import Function, drawn, operations_of
from impl import Tensor, func

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Given:
    """What a combination is given: a library, a function of two arrays, and arrays for it."""

    lib: Any
    make: Callable[[Array], Any]
    f: Callable[..., Any]
    arrays: tuple[Array, Array]

    @property
    def x(self) -> Any:
        """The first argument."""
        return self.make(self.arrays[0])

    @property
    def y(self) -> Any:
        """The second argument."""
        return self.make(self.arrays[1])

    def many(self, axis: int = 0, which: int = 0) -> Any:
        """Three examples of an argument, along an axis."""
        one = self.arrays[which]
        return self.make(np.stack([one, one * 0.5 + 0.1, -one], axis))

    @property
    def whole(self) -> Any:
        """Three whole numbers."""
        return self.make(np.array([2, -1, 3], np.int32))

    def total(self, *given: Any) -> Any:
        """One number."""
        return self.f(*given).sum()

    def square(self, *given: Any) -> Any:
        """One number, which is not linear in the result."""
        return (self.f(*given) * self.f(*given)).sum()


@dataclass(frozen=True)
class Combination:
    """Transforms of a function: `forward` if JAX needs a derivative forwards for it."""

    name: str
    of: Callable[[Given], Any]
    forward: bool = field(default=False, kw_only=True)


def _tree(g: Given) -> dict[str, Any]:
    return {"x": g.x, "more": (g.y, g.x * 2)}


def _of_tree(g: Given) -> Callable[..., Any]:
    return lambda d: {"first": g.f(d["x"], d["more"][0]), "rest": (d["more"][1] * d["x"],)}


COMBINATIONS = (
    Combination("grad", lambda g: g.lib.grad(g.total, (0, 1))(g.x, g.y)),
    Combination("grad with aux", lambda g: g.lib.grad(
        lambda a, b: (g.square(a, b), (g.f(a, b), {"half": b / 2})), 1, has_aux=True)(g.x, g.y)),
    Combination("value_and_grad of a tree", lambda g: g.lib.value_and_grad(
        lambda d: (_of_tree(g)(d)["first"] * 3).sum() + d["more"][1].sum())(_tree(g))),
    Combination("vjp of a tree", lambda g: (pulled := g.lib.vjp(_of_tree(g), _tree(g)))[1](
        pulled[0])),
    Combination("vjp twice", lambda g: (lambda pull: (pull(g.f(g.x, g.y)), pull(g.f(g.x, g.y) * 2))
                                        )(g.lib.vjp(g.f, g.x, g.y)[1])),
    Combination("jvp", lambda g: g.lib.jvp(g.f, (g.x, g.y), (g.x * g.x, g.y + 1)), forward=True),
    Combination("jvp of a tree", lambda g: g.lib.jvp(_of_tree(g), (_tree(g),), (_tree(g),)),
                forward=True),
    Combination("linearize", lambda g: (lambda value, change: (value, change(g.x, g.y * 2),
                                                               change(g.x * 0, g.y)))(
        *g.lib.linearize(g.f, g.x, g.y)), forward=True),
    Combination("jacrev", lambda g: g.lib.jacrev(g.f, (0, 1))(g.x, g.y)),
    Combination("jacfwd", lambda g: g.lib.jacfwd(g.f, 1)(g.x, g.y), forward=True),
    Combination("jacrev with aux", lambda g: g.lib.jacrev(
        lambda a, b: (g.f(a, b), a.sum()), has_aux=True)(g.x, g.y)),
    Combination("hessian", lambda g: g.lib.hessian(g.square)(g.x, g.y), forward=True),
    Combination("hessian of both", lambda g: g.lib.hessian(g.total, (0, 1))(g.x, g.y),
                forward=True),
    Combination("jacfwd of jacrev", lambda g: g.lib.jacfwd(g.lib.jacrev(g.f, 1))(g.x, g.y),
                forward=True),
    Combination("jacrev of jacfwd", lambda g: g.lib.jacrev(g.lib.jacfwd(g.f), 1)(g.x, g.y),
                forward=True),
    Combination("jacrev of jacrev", lambda g: g.lib.jacrev(g.lib.jacrev(g.f))(g.x, g.y)),
    Combination("grad of grad", lambda g: g.lib.grad(
        lambda a, b: (g.lib.grad(g.square)(a, b) * a).sum(), (0, 1))(g.x, g.y)),
    Combination("hvp", lambda g: g.lib.jvp(lambda a: g.lib.grad(g.square)(a, g.y), (g.x,),
                                           (g.x + 1,)), forward=True),
    Combination("vjp of jvp", lambda g: g.lib.vjp(lambda a: g.lib.jvp(
        lambda b: g.f(b, g.y), (a,), (a * a,))[1], g.x)[1](g.f(g.x, g.y)), forward=True),
    Combination("vmap along axis 0", lambda g: g.lib.vmap(g.f, (0, None))(g.many(), g.y)),
    Combination("vmap along the last axis", lambda g: g.lib.vmap(g.f, (-1, None), -1)(
        g.many(g.x.ndim), g.y)),
    Combination("vmap along axis 1", lambda g: g.lib.vmap(g.f, (None, 1))(g.x, g.many(1, 1))),
    Combination("vmap of both", lambda g: g.lib.vmap(g.f, (0, 1))(g.many(), g.many(1, 1))),
    Combination("vmap of a tree", lambda g: g.lib.vmap(
        lambda d: {"a": g.f(d["x"], d["more"][0]), "b": d["more"][1]},
        ({"x": 1, "more": (None, 0)},), {"a": -1, "b": 0})(
            {"x": g.many(1), "more": (g.y, g.many())})),
    Combination("vmap with what is common", lambda g: g.lib.vmap(
        lambda a: (g.f(a, g.y), g.y * 2), 0, (0, None))(g.many())),
    Combination("vmap of vmap", lambda g: g.lib.vmap(
        g.lib.vmap(g.f, (None, 0)), (0, None), 1)(g.many(), g.many(0, 1))),
    Combination("vmap of grad", lambda g: g.lib.vmap(g.lib.grad(g.square, (0, 1)), (0, None), -1)(
        g.many(), g.y)),
    Combination("grad of vmap", lambda g: g.lib.grad(lambda a, b: (g.lib.vmap(g.f, (0, None))(
        a, b) * 0.5).sum(), (0, 1))(g.many(), g.y)),
    Combination("grad of vmap of both", lambda g: g.lib.grad(lambda a, b: (g.lib.vmap(
        g.square, (1, 0))(a, b)).sum(), (0, 1))(g.many(1), g.many(0, 1))),
    Combination("vmap of jvp", lambda g: g.lib.vmap(lambda a, b: g.lib.jvp(
        lambda c: g.f(c, g.y), (a,), (b,))[1], (0, None))(g.many(), g.x), forward=True),
    Combination("jvp of vmap", lambda g: g.lib.jvp(lambda a: g.lib.vmap(g.f, (0, None))(a, g.y), (
        g.many(),), (g.many() * 2,)), forward=True),
    Combination("vmap of jacrev", lambda g: g.lib.vmap(g.lib.jacrev(g.f), (None, 0))(
        g.x, g.many(0, 1))),
    Combination("vmap of hessian", lambda g: g.lib.vmap(g.lib.hessian(g.total), (0, None))(
        g.many(), g.y), forward=True),
    Combination("jacfwd of vmap", lambda g: g.lib.jacfwd(lambda b: g.lib.vmap(
        g.f, (0, None))(g.many(), b))(g.y), forward=True),
    Combination("grad of a checkpoint", lambda g: g.lib.grad(
        lambda a: (g.lib.checkpoint(g.f)(a, g.y) * 2).sum())(g.x)),
    Combination("vmap of a checkpoint", lambda g: g.lib.vmap(g.lib.grad(lambda a: g.lib.checkpoint(
        g.square)(a, g.y)))(g.many())),
    Combination("whole numbers beside", lambda g: g.lib.vmap(
        lambda n, a: (g.f(a * n, g.y), n * n), (0, None))(g.whole, g.x)),
    Combination("grad beside whole numbers", lambda g: g.lib.grad(
        lambda n, a: (g.f(a, g.y) * n[0]).sum(), 1)(g.whole, g.x)),
    Combination("vmap of grad beside whole numbers", lambda g: g.lib.vmap(g.lib.grad(
        lambda n, a: (g.f(a, g.y) * n).sum(), argnums=1), (0, 0))(g.whole, g.many())),
)


#: What is compiled runs once.
_QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def parts_of_value(value: Any) -> list[Array]:
    """The arrays of a result, those of dictionaries in the order of their names."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, (tuple, list)):
        return [part for each in value for part in parts_of_value(each)]
    return [np.asarray(value.numpy() if isinstance(value, Tensor) else value)]


def _agree(mine: list[Array], theirs: list[Array]) -> bool:
    return len(mine) == len(theirs) and all(
        a.shape == b.shape and np.allclose(a, b, 1e-7, 1e-8, equal_nan=True)
        for a, b in zip(mine, theirs, strict=True))


def difference(combination: Combination, function: Function, arrays: tuple[Array, Array],
               ) -> str | None:
    """What `impl` gives and JAX does not, if anything."""
    import jax

    def of_jax() -> Any:
        return combination.of(Given(jax, jax.numpy.asarray, function.jax, arrays))
    try:
        mine = parts_of_value(combination.of(Given(func, Tensor, function.impl, arrays)))
    except Exception as error:  # the report says for which function
        return f"{type(error).__name__}: {error}"
    if _agree(mine, parts_of_value(jax.jit(of_jax, compiler_options=_QUICK)())):
        return None
    # Compiled as a whole, JAX gives wrong values at times: what counts is each operation alone.
    theirs = parts_of_value(of_jax())
    return None if _agree(mine, theirs) else f"{mine} instead of {theirs}"


def differences(seed: int, count: int, each: int = 4, told: bool = False,
                ) -> tuple[list[str], set[str], int]:
    """What differs, the operations that were met, and how many comparisons there were."""
    import jax

    chooser, found, functions, compared = random.Random(seed), list[str](), list[Function](), 0
    turn = iter(range(seed, 1 << 60))
    with jax.enable_x64(True):
        for number in range(count):
            function = drawn(chooser, chooser.choice((2, 4, 6)))
            functions.append(function)
            if told and number % 10 == 0:
                print(f"{number} functions, {compared} comparisons, {len(found)} differ",
                      file=sys.stderr, flush=True)
            numbers = np.random.default_rng(chooser.randrange(1 << 30))
            x, y = (numbers.uniform(-1.2, 1.2, shape) for shape in function.shapes)
            for _ in range(each):
                combination = COMBINATIONS[next(turn) % len(COMBINATIONS)]
                if combination.forward and not function.forward:
                    continue
                compared += 1
                differs = difference(combination, function, (x, y))
                if differs is not None:
                    found.append(f"{combination.name} of function {number}, {function}: {differs}")
    return found, operations_of(functions), compared


def main() -> int:
    """Compare many functions, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--each", type=int, default=4, help="combinations for each function")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found, met, compared = differences(given.seed, given.count, given.each, told=True)
    print("\n".join(found[:40]))
    print(f"{given.count} functions of {len(met)} operations, {compared} comparisons of "
          f"{len(COMBINATIONS)} combinations, {len(found)} differ")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
