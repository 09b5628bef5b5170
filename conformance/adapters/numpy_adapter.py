"""NumPy.  It executes each statement where it stands, so there is nothing to capture or plan.

Its sums accumulate in the dtype that is asked for, as documented; it has no `relu` and no
`softmax`.  Movements are views in NumPy; a variable of a program is not one, hence the copies.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from conformance.adapters.library import LibraryAdapter, slices
from conformance.protocol import Array, Observation, Options, Program, Statement

MOVEMENTS: dict[str, Callable[[Statement, Array], Array]] = {
    "reshape": lambda s, x: x.reshape(s["shape"]),
    "expand": lambda s, x: np.broadcast_to(x, s["shape"]),
    "permute": lambda s, x: x.transpose(s["order"]),
    "pad": lambda s, x: np.pad(x, s["widths"]) if x.ndim else x,
    "flip": lambda s, x: np.flip(x, tuple(s["axes"])),
    "shrink": lambda s, x: x[slices(s)], "stride": lambda s, x: x[slices(s)],
}


def places(shape: Sequence[int], view: Sequence[Statement]) -> Array:
    """The numbers of the elements that a view selects, in the form of the selected region."""
    numbers = np.arange(math.prod(shape)).reshape(tuple(shape))
    for step in view:
        numbers = MOVEMENTS[step["do"]](step, numbers)
    return numbers


def _reduced(function: Callable[..., Any], **fields: Any) -> Callable[[Statement, Array], Array]:
    return lambda s, x: np.asarray(function(x, axis=tuple(s["axes"]), keepdims=s["keepdims"],
                                            **{name: x.dtype for name in fields}))


class Adapter(LibraryAdapter[Array]):
    """Drives NumPy."""

    functions = {
        "neg": np.negative, "abs": np.abs, "not": np.invert, "exp": np.exp, "log": np.log,
        "sqrt": np.sqrt, "sin": np.sin, "tanh": np.tanh, "reciprocal": np.reciprocal,
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
        "floordiv": np.floor_divide, "mod": np.remainder, "maximum": np.maximum,
        "minimum": np.minimum, "pow": np.power, "less": np.less, "less_equal": np.less_equal,
        "equal": np.equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
        "where": np.where, "matmul": np.matmul, "contiguous": np.copy, "copy": np.copy,
        "gather": lambda x, index: x[index],
    }
    shaped = {
        **MOVEMENTS, "sum": _reduced(np.sum, dtype=True), "prod": _reduced(np.prod, dtype=True),
        "max": _reduced(np.max), "min": _reduced(np.min), "mean": _reduced(np.mean),
        "cast": lambda s, x: x.astype(s["dtype"]), "bitcast": lambda s, x: x.view(s["dtype"]),
        "cumsum": lambda s, x: np.cumsum(x, axis=s["axis"], dtype=x.dtype),
    }
    effects = (*LibraryAdapter.effects, "assign", "store")

    def __init__(self) -> None:
        super().__init__("numpy", np.__version__)

    def run(self, program: Program, observe: Any, options: Options | None = None) -> Observation:
        with np.errstate(all="ignore"):
            return super().run(program, observe, options)

    def evaluate(self, statement: Statement, sources: Sequence[Array]) -> Array:
        return np.array(super().evaluate(statement, sources), order="C")

    def array(self, elements: Array) -> Array:
        return elements

    def elements(self, tensor: Array) -> Array:
        return tensor

    def write(self, target: Array, view: Sequence[Statement], value: Array) -> Array:
        region = target
        for step in view:
            region = MOVEMENTS[step["do"]](step, region)
        if np.shares_memory(region, target):
            region[...] = value
        else:  # a reshape of what was moved is a copy: the elements are written by number
            target.reshape(-1)[places(target.shape, view)] = value
        return target
