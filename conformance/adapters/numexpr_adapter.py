"""numexpr as the conformance suite drives it: the example of the guide.

numexpr evaluates expressions over NumPy arrays and has nothing else: no movements, no stores, no
products of matrices.  Its sums of `int32` and its `abs` and `maximum` of integers are of other
dtypes, so `int32` and these functions are not declared.
"""
from __future__ import annotations

from collections.abc import Callable

import numexpr
import numpy as np

from conformance.adapters.library import LibraryAdapter
from conformance.protocol import Array, Statement


def expression(text: str) -> Callable[..., Array]:
    """An operation on the sources, which the text calls a, b and c."""
    return lambda *sources: numexpr.evaluate(text, dict(zip("abc", sources, strict=False)))


def reduction(name: str) -> Callable[[Statement, Array], Array]:
    """numexpr reduces one axis at a time; the last one first, so that the others keep theirs."""
    def reduce(statement: Statement, x: Array) -> Array:
        for axis in sorted(statement["axes"], reverse=True):
            x = numexpr.evaluate(f"{name}(x, axis={axis})")
            x = np.expand_dims(x, axis) if statement["keepdims"] else x
        return np.array(x)
    return reduce


class Adapter(LibraryAdapter[Array]):
    """Drives numexpr."""

    functions = {
        "neg": expression("-a"), "not": expression("~a"), "exp": expression("exp(a)"),
        "log": expression("log(a)"), "sqrt": expression("sqrt(a)"), "sin": expression("sin(a)"),
        "tanh": expression("tanh(a)"), "add": expression("a + b"), "sub": expression("a - b"),
        "mul": expression("a * b"), "div": expression("a / b"), "floordiv": expression("a // b"),
        "mod": expression("a % b"), "pow": expression("a ** b"), "less": expression("a < b"),
        "less_equal": expression("a <= b"), "equal": expression("a == b"),
        "and": expression("a & b"), "or": expression("a | b"), "xor": expression("a ^ b"),
        "where": expression("where(a, b, c)"), "copy": expression("a"),
    }
    shaped = {name: reduction(name) for name in ("sum", "prod", "max", "min")}

    def __init__(self) -> None:
        super().__init__("numexpr", numexpr.__version__, dtypes=("int64", "float32", "float64"))

    def array(self, elements: Array) -> Array:
        return elements

    def elements(self, tensor: Array) -> Array:
        return np.asarray(tensor)
