"""TensorFlow on the CPU: eager, with `tf.function`, and with `tf.function(jit_compile=True)`.

Tensors are immutable. What a program writes to is a `tf.Variable` from then on: a slice of it is
assigned, other regions are scattered. Inside of a captured function no variable is made, and what
is not one yet is updated as `tf.tensor_scatter_nd_update` documents. Operations that have no
kernel for some dtypes are composed of those that have one: `matmul` of small integers is that of
`int64`, bools have `logical_or` for a maximum. `floordiv` and `mod` are not declared: a division
by zero is an error. Captured functions are traced again for other numbers, as documented. Kernels
take subnormal numbers for zero (tensorflow/tensorflow#127905), which is declared.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402 (the level is read when the library begins)
import tensorflow as tf  # noqa: E402

from conformance.adapters.library import (  # noqa: E402
    CompilingAdapter,
    Function,
    LibraryAdapter,
    Variables,
    slices,
)
from conformance.adapters.numpy_adapter import places  # noqa: E402
from conformance.protocol import Array, Statement  # noqa: E402

tf.get_logger().setLevel("ERROR")  # it warns of functions that are traced often
Tensor = Any  # tf.Tensor or tf.Variable
SMALL = (tf.int8, tf.int16, tf.uint8, tf.uint16, tf.uint32, tf.uint64)


def _or_bool(plain: Function, logical: Function) -> Function:
    """A function of numbers, and what it is of bools."""
    return lambda x, *more: (logical if x.dtype == tf.bool else plain)(x, *more)


def _reduced(function: Callable[..., Any], logical: Callable[..., Any] | None = None) -> Function:
    return lambda s, x: (logical if logical and x.dtype == tf.bool else function)(
        x, axis=s["axes"], keepdims=s["keepdims"])


def _wide(function: Callable[..., Any]) -> Function:
    """A function that has no kernel for small integers: their low bits are those of `int64`."""
    def wide(x: Tensor, *more: Tensor) -> Tensor:
        if x.dtype not in SMALL:
            return function(x, *more)
        return tf.cast(function(*(tf.cast(each, tf.int64) for each in (x, *more))), x.dtype)
    return wide


def _windowed(s: Statement, x: Tensor) -> Tensor:
    return x[slices(s)] if x.shape.rank else x


class Adapter(LibraryAdapter[Tensor]):
    """Drives TensorFlow, one operation at a time."""

    functions = {
        "neg": lambda x: tf.bitwise.invert(x) + 1 if x.dtype.is_unsigned else tf.negative(x),
        "abs": lambda x: x if x.dtype.is_unsigned else tf.abs(x), "relu": tf.nn.relu,
        "not": _or_bool(tf.bitwise.invert, tf.logical_not), "exp": tf.exp, "log": tf.math.log,
        "sqrt": tf.sqrt, "sin": tf.sin, "tanh": tf.tanh, "reciprocal": tf.math.reciprocal,
        "add": tf.add, "sub": tf.subtract, "mul": tf.multiply, "div": tf.divide, "pow": tf.pow,
        "maximum": _or_bool(tf.maximum, tf.logical_or),
        "minimum": _or_bool(tf.minimum, tf.logical_and),
        "less": _or_bool(tf.less, lambda x, y: tf.logical_not(x) & y),
        "less_equal": _or_bool(tf.less_equal, lambda x, y: tf.logical_not(x) | y),
        "equal": tf.equal, "and": lambda x, y: x & y, "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y, "where": tf.where, "matmul": _wide(tf.matmul),
        "copy": tf.identity, "contiguous": tf.identity,
        "gather": lambda x, at: tf.gather(x, tf.cast(at, tf.int64)),
    }
    shaped = {
        "reshape": lambda s, x: tf.reshape(x, s["shape"]),
        "expand": lambda s, x: tf.broadcast_to(x, s["shape"]),
        "permute": lambda s, x: tf.transpose(x, s["order"]),
        "pad": lambda s, x: tf.pad(x, s["widths"]) if x.shape.rank else x,
        "flip": lambda s, x: tf.reverse(x, s["axes"]), "shrink": _windowed, "stride": _windowed,
        "sum": _reduced(tf.reduce_sum), "prod": _reduced(tf.reduce_prod),
        "max": _reduced(tf.reduce_max, tf.reduce_any),
        "min": _reduced(tf.reduce_min, tf.reduce_all), "mean": _reduced(tf.reduce_mean),
        "cast": lambda s, x: tf.cast(x, s["dtype"]),
        "bitcast": lambda s, x: tf.bitcast(x, s["dtype"]),
        "softmax": lambda s, x: tf.nn.softmax(x, s["axis"]),
        "cumsum": lambda s, x: _wide(lambda x: tf.cumsum(x, s["axis"]))(x),
    }
    effects = (*LibraryAdapter.effects, "assign", "store")

    def __init__(self, name: str = "tensorflow", **declared: Any) -> None:
        super().__init__(name, tf.__version__, choices={"flushed": ["float32", "float64"]},
                         **declared)

    def array(self, elements: Array) -> Tensor:
        return tf.constant(elements)

    def full(self, dtype: str, shape: Sequence[int], value: Any) -> Tensor:
        return tf.fill(tuple(shape), tf.constant(value, dtype))

    def elements(self, tensor: Tensor) -> Array:
        return np.asarray(tensor.numpy())

    def held(self, tensor: Tensor) -> Tensor:
        return tf.identity(tensor)

    def evaluate(self, statement: Statement, sources: Sequence[Tensor]) -> Tensor:
        return super().evaluate(statement, [tf.convert_to_tensor(each) for each in sources])

    def write(self, target: Tensor, view: Sequence[Statement], value: Tensor) -> Tensor:
        value = tf.convert_to_tensor(value)
        if tf.executing_eagerly():
            target = changeable(target)
        numbers = places(target.shape, view).reshape(-1)
        if view and target.shape.rank:
            where = np.stack(np.unravel_index(numbers, tuple(target.shape)), axis=-1)
            updates = tf.reshape(value, [-1])
            if not isinstance(target, tf.Variable):
                return tf.tensor_scatter_nd_update(target, where, updates)
            if len(view) == 1 and view[0]["do"] == "shrink":
                target[slices(view[0])].assign(value)
            else:
                target.scatter_nd_update(where, updates)
        elif isinstance(target, tf.Variable):
            target.assign(tf.reshape(value, target.shape))
        else:
            return tf.reshape(value, target.shape)
        return target


class Graph(CompilingAdapter[Tensor], Adapter):
    """Drives `tf.function`: what stands between two boundaries is one graph."""

    with_xla = False

    def __init__(self, name: str = "tensorflow graph") -> None:
        super().__init__(name, observes=("values", "replay"))

    def captured(self, function: Function) -> Function:
        made: Function = tf.function(function, autograph=False, jit_compile=self.with_xla)
        return made

    def repeat(self, statement: Statement, variables: Variables[Tensor]) -> None:
        prepare(statement["statements"], variables)
        super().repeat(statement, variables)

    def together(self, statements: Sequence[Statement], variables: Variables[Tensor]) -> None:
        prepare(statements, variables)
        super().together(statements, variables)


class Compiled(Graph):
    """Drives `tf.function(jit_compile=True)`, which is XLA."""

    with_xla = True

    def __init__(self) -> None:
        super().__init__("tensorflow xla")


def changeable(tensor: Tensor) -> Tensor:
    return tensor if isinstance(tensor, tf.Variable) else tf.Variable(tensor)


def prepare(statements: Sequence[Statement], variables: Variables[Tensor]) -> None:
    """What a captured function writes to has to be a variable before."""
    for statement in statements:
        if statement.get("target") in variables:
            variables[statement["target"]] = changeable(variables[statement["target"]])
