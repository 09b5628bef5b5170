"""Dr.Jit, with its LLVM backend on the CPU: needs a shared library of LLVM.

It is lazy: `realize` is `dr.eval`. A variable of a program is a tensor; a store assigns a slice of
it, or scatters into its array, and leaves other tensors as they were. Integers of 16 bits are not
there. Some operations are documented otherwise and not declared: the mean of nothing is zero,
`power` goes by way of `exp2` and `log2`, and `matmul` is one of small fixed arrays. A quotient of
integers that rounds down is not there either. Padding and `expand` are composed of others, and
reductions of integers of 8 bits. Fast math is off. With LLVM 15 a maximum ends the process: 19 is
what it was looked into with.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import drjit as dr
import numpy as np
from drjit import llvm

from conformance.adapters.library import Function, LibraryAdapter, selection
from conformance.adapters.numpy_adapter import places
from conformance.protocol import Array, Statement

Tensor = Any  # one of those below
TENSORS: dict[str, Any] = {
    "bool": llvm.TensorXb, "int8": llvm.TensorXi8, "int32": llvm.TensorXi,
    "int64": llvm.TensorXi64, "uint8": llvm.TensorXu8, "uint32": llvm.TensorXu,
    "uint64": llvm.TensorXu64, "float16": llvm.TensorXf16, "float32": llvm.TensorXf,
    "float64": llvm.TensorXf64}


def _or_bool(plain: Function, logical: Function) -> Function:
    """A function of numbers, and what it is of bools."""
    return lambda x, *more, **fields: (logical if dr.is_mask_v(x) else plain)(x, *more, **fields)


def _of_some(function: Function) -> Function:
    """A function that ends the process where there are no elements, and is not called there."""
    return lambda *sources: (function(*sources) if len(sources[-1].array)
                             else dr.zeros(type(sources[-1]), sources[-1].shape))


def _wide(function: Function) -> Function:
    """A reduction, which integers of 8 bits do not have: their low bits are those of `int32`."""
    def wide(s: Statement, x: Tensor) -> Tensor:
        if not isinstance(x, (llvm.TensorXi8, llvm.TensorXu8)):
            return function(s, x)
        return type(x)(function(s, llvm.TensorXi(x)))
    return wide


def _reduced(function: Callable[..., Tensor]) -> Function:
    return _wide(lambda s, x: function(x, axis=tuple(s["axes"]), keepdims=s["keepdims"]))


def _indexed(s: Statement, x: Tensor) -> Tensor:
    return x[selection(s, x.ndim)] if x.ndim else x


def _expanded(s: Statement, x: Tensor) -> Tensor:
    repeats = [now if now != before else 1 for now, before in zip(s["shape"], x.shape, strict=True)]
    return dr.tile(x, repeats) if repeats else x


def _padded(s: Statement, x: Tensor) -> Tensor:
    sizes = [before + size + after
             for size, (before, after) in zip(x.shape, s["widths"], strict=True)]
    padded = dr.zeros(type(x), tuple(sizes))
    if sizes:
        padded[tuple(slice(before, before + size) for size, (before, _)
                     in zip(x.shape, s["widths"], strict=True))] = x.array
    return padded if sizes else x


def _gathered(x: Tensor, at: Tensor) -> Tensor:
    rows = dr.take(x, llvm.UInt32(at.array), 0)
    return dr.reshape(rows, (*at.shape, *x.shape[1:]))


class Adapter(LibraryAdapter[Tensor]):
    """Drives Dr.Jit."""

    functions = {
        "neg": lambda x: -x, "abs": dr.abs, "relu": lambda x: dr.maximum(x, 0),
        "not": lambda x: ~x, "exp": _of_some(dr.exp), "log": _of_some(dr.log), "sqrt": dr.sqrt,
        "sin": _of_some(dr.sin), "tanh": _of_some(dr.tanh), "reciprocal": dr.rcp,
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
        "maximum": _or_bool(dr.maximum, lambda x, y: x | y),
        "minimum": _or_bool(dr.minimum, lambda x, y: x & y), "less": lambda x, y: x < y,
        "less_equal": lambda x, y: x <= y, "equal": lambda x, y: x == y,
        "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
        "where": _of_some(dr.select), "gather": _gathered, "copy": dr.copy, "contiguous": dr.copy,
    }
    shaped = {
        "reshape": lambda s, x: dr.reshape(x, tuple(s["shape"])), "expand": _expanded,
        "permute": lambda s, x: dr.transpose(x, tuple(s["order"])) if x.ndim else x,
        "pad": _padded, "flip": _indexed, "shrink": _indexed, "stride": _indexed,
        "sum": _reduced(dr.sum), "prod": _reduced(dr.prod),
        "max": _reduced(_or_bool(dr.max, dr.any)), "min": _reduced(_or_bool(dr.min, dr.all)),
        "cast": lambda s, x: TENSORS[s["dtype"]](x),
        "bitcast": lambda s, x: dr.reinterpret_array(TENSORS[s["dtype"]], x),
        "cumsum": _wide(lambda s, x: dr.cumsum(x, s["axis"])),
    }
    effects = (*LibraryAdapter.effects, "assign", "store")

    def __init__(self) -> None:
        dr.set_flag(dr.JitFlag.FastMath, False)  # documented to take x * 0 for 0
        super().__init__("drjit", dr.__version__, dtypes=tuple(TENSORS))

    def array(self, elements: Array) -> Tensor:
        return TENSORS[elements.dtype.name](elements)

    def full(self, dtype: str, shape: Sequence[int], value: Any) -> Tensor:
        if "int" in dtype:
            value = int(value)  # Dr.Jit refuses a fraction
        return dr.full(TENSORS[dtype], value, tuple(shape))

    def elements(self, tensor: Tensor) -> Array:
        return np.asarray(tensor.numpy())

    def realize(self, tensors: Sequence[Tensor]) -> None:
        dr.eval(*tensors)

    def evaluate(self, statement: Statement, sources: Sequence[Tensor]) -> Tensor:
        """What is not changed is handed back as it is: a store would change both."""
        found = super().evaluate(statement, sources)
        return dr.copy(found) if any(found is each for each in sources) else found

    def write(self, target: Tensor, view: Sequence[Statement], value: Tensor) -> Tensor:
        if not view or not target.ndim:
            return dr.copy(dr.reshape(value, target.shape))
        if len(view) == 1 and view[0]["do"] in ("shrink", "stride", "flip"):
            target[selection(view[0], target.ndim)] = value.array
        elif len(value.array):
            numbers = places(target.shape, view).reshape(-1)
            dr.scatter(target.array, value.array, llvm.UInt32(numbers.astype(np.uint32)))
        return target

    def reset(self) -> None:
        dr.flush_kernel_cache()
