"""What the statements of programs compute, on flat NumPy arrays and in tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Statement = dict[str, Any]

#: Elements that a fused loop takes at a time.
TILE = 64
#: Parts that the rows of a reduction are shared out to.
PARTS = 4


def in_singles(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, computed in singles where its operands are halves."""
    def apply(*sources: Array) -> Any:
        if sources[0].dtype != np.float16:
            return function(*sources)
        return function(*(each.astype(np.float32) for each in sources)).astype(np.float16)
    return apply


def divided(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of integers, zero where the divisor is."""
    def apply(a: Array, b: Array) -> Any:
        return np.where(b == 0, np.zeros_like(a), function(a, np.where(b == 0, 1, b)))
    return apply


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "abs": np.abs, "relu": lambda x: np.where(x < 0, np.zeros_like(x), x),
    "not": np.invert, "exp": in_singles(np.exp), "log": in_singles(np.log),
    "sqrt": in_singles(np.sqrt), "sin": in_singles(np.sin), "tanh": in_singles(np.tanh),
    "reciprocal": lambda x: (np.ones_like(x) / x), "add": np.add, "sub": np.subtract,
    "mul": np.multiply, "div": np.divide, "floordiv": divided(np.floor_divide),
    "mod": divided(np.remainder), "maximum": np.maximum, "minimum": np.minimum,
    "pow": in_singles(np.power), "less": np.less, "less_equal": np.less_equal,
    "equal": np.equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "where": np.where, "contiguous": np.copy, "copy": np.copy}
TYPED: dict[str, Callable[..., Any]] = {
    "cast": lambda x, dtype: x.astype(dtype), "bitcast": lambda x, dtype: x.view(dtype)}
MOVEMENTS = ("reshape", "expand", "permute", "pad", "shrink", "flip", "stride")
COMPARISONS = ("less", "less_equal", "equal")


def elementwise(do: str) -> bool:
    """Whether a statement computes each element of its result from those at the same place."""
    return do in ELEMENTWISE or do in TYPED or do == "constant"


def moved(steps: Sequence[Statement], x: Array, beyond: Any = 0) -> Array:
    """What a chain of movements makes of an array; `beyond` is what a pad puts around it."""
    for step in steps:
        do = step["do"]
        if do == "reshape":
            x = x.reshape(step["shape"])
        elif do == "expand":
            x = np.broadcast_to(x, step["shape"])
        elif do == "permute":
            x = x.transpose(step["order"])
        elif do == "pad":
            x = np.pad(x, step["widths"], constant_values=beyond) if x.ndim else x
        elif do == "flip":
            x = np.flip(x, tuple(step["axes"]))
        elif do == "shrink":
            x = x[tuple(slice(start, stop) for start, stop in step["bounds"])]
        else:
            x = x[tuple(slice(None, None, each) for each in step["steps"])]
    return x


def result(statement: Statement, kinds: Sequence[tuple[str, tuple[int, ...]]],
           ) -> tuple[str, tuple[int, ...]]:
    """The dtype and the shape of what a statement makes, from those of its operands."""
    do = statement["do"]
    if do in ("input", "constant"):
        return statement["dtype"], tuple(statement["shape"])
    dtype, shape = kinds[-1] if do == "where" else kinds[0]
    if do in COMPARISONS:
        return "bool", shape
    if do in TYPED:
        return statement["dtype"], shape
    if "axes" in statement:
        axes, keep = statement["axes"], statement["keepdims"]
        return dtype, tuple(1 if axis in axes else size for axis, size in enumerate(shape)
                            if keep or axis not in axes)
    if do == "matmul":
        return dtype, (*shape[:-1], kinds[1][1][-1])
    if do == "gather":
        return dtype, (*kinds[1][1], *shape[1:])
    return dtype, shape


def computed(statement: Statement, sources: Sequence[Array]) -> Array:
    """The elements of what an elementwise statement makes of flat sources of one length."""
    do = statement["do"]
    if do in TYPED:
        return TYPED[do](sources[0], statement["dtype"])
    return ELEMENTWISE[do](*sources)


def whole(statement: Statement, sources: Sequence[Array]) -> Array:
    """What a statement makes that is not elementwise, of sources with their shapes."""
    do, x = statement["do"], sources[0]
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    if "axes" in statement:
        return reduced(do, wide, tuple(statement["axes"]), statement["keepdims"]).astype(x.dtype)
    if do == "cumsum":
        return np.cumsum(wide, statement["axis"], dtype=wide.dtype).astype(x.dtype)
    if do == "softmax":
        return softmax(wide, statement["axis"]).astype(x.dtype)
    if do == "matmul":
        return np.matmul(wide, sources[1].astype(wide.dtype)).astype(x.dtype)
    return x[sources[1].astype(np.int64)]  # gather


def softmax(x: Array, axis: int) -> Array:
    if not x.size:
        return x
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def reduced(do: str, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """A reduction: the reduced axes are brought to the end, the rows shared out."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)
             if keepdims or axis not in axes]
    count = prod(x.shape[axis] for axis in axes)
    rows = x.transpose([*kept, *axes]).reshape(prod(x.shape[axis] for axis in kept), count)
    made = np.empty(len(rows), x.dtype)
    share = -(-len(rows) // PARTS)
    for part in range(PARTS):
        start, stop = part * share, min(len(rows), (part + 1) * share)
        if start < stop:
            made[start:stop] = of_rows(do, rows[start:stop])
    return made.reshape(shape)


def of_rows(do: str, rows: Array) -> Array:
    """A reduction of each row."""
    if do == "sum":
        return rows.sum(1, dtype=rows.dtype)
    if do == "mean":
        return rows.sum(1, dtype=rows.dtype) / rows.dtype.type(rows.shape[1])
    if do == "prod":
        return rows.prod(1, dtype=rows.dtype)
    return rows.max(1) if do == "max" else rows.min(1)
