"""autograd as the conformance suite drives it.

Outside of a trace the functions of `autograd.numpy` are those of NumPy.  What autograd adds is the
trace, so each function that has a derivative runs in one, over those operands that are floats.
It has no assignment, and a bitcast means nothing to it.
"""
from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence

import autograd.numpy as np
from autograd import make_vjp

from conformance.adapters.library import LibraryAdapter
from conformance.protocol import Array, Statement


def traced(function: Callable[..., Array]) -> Callable[..., Array]:
    """The value of the function as autograd computes it on the way to a derivative."""
    def call(*sources: Array) -> Array:
        floats = tuple(i for i, source in enumerate(sources) if source.dtype.kind == "f")
        value = make_vjp(function, floats)(*sources)[1] if floats else function(*sources)
        return np.array(value)  # a value of its own: movements are views
    return call


def shaped(function: Callable[..., Array]) -> Callable[..., Array]:
    """The same for a function of the statement and the sources."""
    return lambda s, *sources: traced(lambda *boxes: function(s, *boxes))(*sources)


def reduction(function: Callable[..., Array]) -> Callable[..., Array]:
    """A reduction with the dtype of its operand, where NumPy widens integers."""
    return shaped(lambda s, x: function(
        x, axis=tuple(s["axes"]), keepdims=s["keepdims"]).astype(x.dtype))


def softmax(statement: Statement, x: Array) -> Array:
    """autograd has none; of halves in float32, and of nothing, where `np.max` raises, nothing."""
    if x.size == 0:
        return x
    wide, axis = x.astype(np.result_type(x.dtype, np.float32)), statement["axis"]
    powers = np.exp(wide - np.max(wide, axis=axis, keepdims=True))
    return (powers / np.sum(powers, axis=axis, keepdims=True)).astype(x.dtype)


class Adapter(LibraryAdapter[Array]):
    """Drives autograd."""

    functions = {
        "neg": traced(np.negative), "abs": traced(np.abs), "exp": traced(np.exp),
        "relu": traced(lambda x: np.maximum(x, 0)), "not": np.invert, "log": traced(np.log),
        "sqrt": traced(np.sqrt), "sin": traced(np.sin), "tanh": traced(np.tanh),
        "reciprocal": traced(np.reciprocal), "add": traced(np.add), "sub": traced(np.subtract),
        "mul": traced(np.multiply), "div": traced(np.divide), "floordiv": np.floor_divide,
        "mod": traced(np.mod), "maximum": traced(np.maximum), "minimum": traced(np.minimum),
        "pow": traced(np.power), "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor, "less": np.less, "less_equal": np.less_equal, "equal": np.equal,
        "where": traced(np.where), "matmul": traced(np.matmul), "contiguous": np.array,
        "gather": traced(lambda x, index: x[index]), "copy": np.array,
    }
    shaped = {
        "cast": shaped(lambda s, x: x.astype(s["dtype"])),
        "reshape": shaped(lambda s, x: np.reshape(x, s["shape"])),
        "expand": shaped(lambda s, x: np.broadcast_to(x, tuple(s["shape"]))),
        "permute": shaped(lambda s, x: np.transpose(x, s["order"])),
        "pad": shaped(lambda s, x: np.pad(x, s["widths"], "constant")),
        "shrink": shaped(lambda s, x: x[tuple(slice(*pair) for pair in s["bounds"])]),
        "flip": shaped(lambda s, x: x[tuple(  # `np.flip` has no derivative
            slice(None, None, -1 if axis in s["axes"] else 1) for axis in range(x.ndim))]),
        "stride": shaped(lambda s, x: x[tuple(slice(None, None, n) for n in s["steps"])]),
        "sum": reduction(np.sum), "prod": reduction(np.prod), "max": reduction(np.max),
        "min": reduction(np.min), "mean": reduction(np.mean), "softmax": shaped(softmax),
        "cumsum": shaped(lambda s, x: np.cumsum(x, s["axis"]).astype(x.dtype)),
    }
    effects = (*LibraryAdapter.effects, "assign", "store")

    def __init__(self) -> None:
        super().__init__("autograd", importlib.metadata.version("autograd"), dtypes=(
            "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
            "float16", "float32", "float64"))

    def array(self, elements: Array) -> Array:
        return np.array(elements)

    def elements(self, tensor: Array) -> Array:
        return np.asarray(tensor)

    def write(self, target: Array, view: Sequence[Statement], value: Array) -> Array:
        """What a program for autograd does: choose each element from the target or the value."""
        places = np.reshape(np.arange(target.size), target.shape)
        for statement in view:
            places = self.shaped[statement["do"]](statement, places)
        chosen = np.arange(target.size)
        chosen[places.ravel()] = target.size + np.arange(value.size)
        choose = traced(lambda *both: np.concatenate([np.ravel(part) for part in both])[chosen])
        return np.reshape(choose(target, value), target.shape)
