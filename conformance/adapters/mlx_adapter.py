"""MLX, on the CPU.

It is lazy: `realize` is `mx.eval`. Arrays that are written to are other arrays afterwards, so a
store writes the places of its elements in a flat copy. `matmul` is documented for floats alone,
`floordiv` and `mod` may end the process, and functions of float64 are those of float32
(ml-explore/mlx#3047): none of these is declared. Sums of small integers are wider, as documented,
and cast back. `mx.compile` is documented for functions without effects, and not driven.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.adapters.library import Function, LibraryAdapter, slices
from conformance.protocol import Array, Statement

mx.set_default_device(mx.cpu)

DTYPES: dict[str, Any] = {name: getattr(mx, f"{name}_" if name == "bool" else name) for name in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32")}


def _reduced(function: Callable[..., Any]) -> Function:
    """A reduction, of the dtype of its operand; no axes are all of them in MLX."""
    def reduce(s: Statement, x: mx.array) -> mx.array:
        found = function(x, axis=s["axes"], keepdims=s["keepdims"]) if s["axes"] else x
        return found.astype(x.dtype)
    return reduce


def _flipped(s: Statement, x: mx.array) -> mx.array:
    return x[tuple(slice(None, None, -1) if axis in s["axes"] else slice(None)
                   for axis in range(x.ndim))] if s["axes"] else x


MOVEMENTS: dict[str, Function] = {
    "reshape": lambda s, x: mx.reshape(x, s["shape"]),
    "expand": lambda s, x: mx.broadcast_to(x, s["shape"]),
    "permute": lambda s, x: mx.transpose(x, s["order"]) if x.ndim else x,
    "pad": lambda s, x: mx.pad(x, [tuple(pair) for pair in s["widths"]]) if x.ndim else x,
    "flip": _flipped, "shrink": lambda s, x: x[slices(s)] if x.ndim else x,
    "stride": lambda s, x: x[slices(s)] if x.ndim else x,
}


class Adapter(LibraryAdapter[mx.array]):
    """Drives MLX."""

    functions = {
        "neg": mx.negative, "abs": mx.abs, "relu": lambda x: mx.maximum(x, mx.zeros_like(x)),
        "not": mx.bitwise_invert, "exp": mx.exp, "log": mx.log, "sqrt": mx.sqrt, "sin": mx.sin,
        "tanh": mx.tanh, "reciprocal": mx.reciprocal, "add": mx.add, "sub": mx.subtract,
        "mul": mx.multiply, "div": mx.divide, "maximum": mx.maximum, "minimum": mx.minimum,
        "pow": mx.power, "less": mx.less, "less_equal": mx.less_equal, "equal": mx.equal,
        "and": mx.bitwise_and, "or": mx.bitwise_or, "xor": mx.bitwise_xor, "where": mx.where,
        "copy": lambda x: mx.array(x), "contiguous": mx.contiguous,
        "gather": lambda x, index: x[index],
    }
    shaped = {
        **MOVEMENTS, "sum": _reduced(mx.sum), "prod": _reduced(mx.prod), "max": _reduced(mx.max),
        "min": _reduced(mx.min), "mean": _reduced(mx.mean),
        "cast": lambda s, x: x.astype(DTYPES[s["dtype"]]),
        "bitcast": lambda s, x: mx.view(x, DTYPES[s["dtype"]]),
        "softmax": lambda s, x: mx.softmax(x, s["axis"]),
        "cumsum": lambda s, x: mx.cumsum(x, s["axis"]).astype(x.dtype),
    }
    effects = (*LibraryAdapter.effects, "assign", "store")

    def __init__(self) -> None:
        super().__init__("mlx", mx.__version__, dtypes=tuple(DTYPES))

    def array(self, elements: Array) -> mx.array:
        return mx.array(elements)

    def full(self, dtype: str, shape: Sequence[int], value: Any) -> mx.array:
        return mx.full(tuple(shape), value, dtype=DTYPES[dtype])

    def realize(self, tensors: Sequence[mx.array]) -> None:
        mx.eval(*tensors)

    def elements(self, tensor: mx.array) -> Array:
        return np.array(tensor)

    def write(self, target: mx.array, view: Sequence[Statement], value: mx.array) -> mx.array:
        if not view:
            return mx.array(value)
        places = np.arange(target.size).reshape(target.shape)
        for step in view:
            places = np.array(MOVEMENTS[step["do"]](step, mx.array(places)))
        if not places.size:
            return target
        flat = mx.array(mx.reshape(target, (-1,)))
        flat[mx.array(places.reshape(-1))] = mx.reshape(value, (-1,))
        return mx.reshape(flat, target.shape)
