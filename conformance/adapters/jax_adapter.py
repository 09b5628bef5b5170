"""JAX, compiled by `jit` and eager.

Arrays are immutable: there is no assignment and no store, and they are not declared.  64-bit
types are on, as `jax_enable_x64` documents.  A captured function is a `jit` of it; numbers among
its arguments are traced.  `floordiv` and `mod` are not declared: JAX leaves division by zero open.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

config: Any = jax.config
config.update("jax_enable_x64", True)
config.update("jax_platforms", "cpu")

import jax.numpy as jnp  # noqa: E402 (the platform is chosen before)
import numpy as np  # noqa: E402

from conformance.adapters.library import (  # noqa: E402
    CompilingAdapter,
    Function,
    LibraryAdapter,
    Variables,
    slices,
)
from conformance.protocol import Array  # noqa: E402

Arrays = Variables[jax.Array]


def _reduced(function: Callable[..., Any], dtype: bool = False) -> Function:
    return lambda s, x: function(x, axis=tuple(s["axes"]), keepdims=s["keepdims"],
                                 **({"dtype": x.dtype} if dtype else {}))


class Eager(LibraryAdapter[jax.Array]):
    """Drives JAX, one operation at a time."""

    functions = {
        "neg": jnp.negative, "abs": jnp.abs, "relu": jax.nn.relu, "not": jnp.invert,
        "exp": jnp.exp, "log": jnp.log, "sqrt": jnp.sqrt, "sin": jnp.sin, "tanh": jnp.tanh,
        "reciprocal": jnp.reciprocal, "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply,
        "div": jnp.divide, "maximum": jnp.maximum, "minimum": jnp.minimum, "pow": jnp.power,
        "less": jnp.less, "less_equal": jnp.less_equal, "equal": jnp.equal,
        "and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor, "where": jnp.where,
        "matmul": jnp.matmul, "gather": lambda x, index: x[index],
        "contiguous": lambda x: x, "copy": jnp.copy,
    }
    shaped = {
        "reshape": lambda s, x: jnp.reshape(x, s["shape"]),
        "expand": lambda s, x: jnp.broadcast_to(x, s["shape"]),
        "permute": lambda s, x: jnp.transpose(x, s["order"]),
        "pad": lambda s, x: jnp.pad(x, s["widths"]) if x.ndim else x,
        "flip": lambda s, x: jnp.flip(x, tuple(s["axes"])),
        "shrink": lambda s, x: x[slices(s)], "stride": lambda s, x: x[slices(s)],
        "sum": _reduced(jnp.sum, True), "prod": _reduced(jnp.prod, True),
        "max": _reduced(jnp.max), "min": _reduced(jnp.min), "mean": _reduced(jnp.mean),
        "cast": lambda s, x: x.astype(s["dtype"]),
        "bitcast": lambda s, x: jax.lax.bitcast_convert_type(x, np.dtype(s["dtype"])),
        "softmax": lambda s, x: jax.nn.softmax(x, s["axis"]),
        "cumsum": lambda s, x: jnp.cumsum(x, s["axis"], dtype=x.dtype),
    }

    def __init__(self, name: str = "jax eager", **declared: Any) -> None:
        super().__init__(name, jax.__version__, **declared)

    def array(self, elements: Array) -> jax.Array:
        return jnp.asarray(elements)

    def full(self, dtype: str, shape: Sequence[int], value: Any) -> jax.Array:
        return jnp.full(tuple(shape), value, dtype)

    def elements(self, tensor: jax.Array) -> Array:
        return np.asarray(tensor)

    def captured(self, function: Function) -> Function:
        compiled: Function = jax.jit(function)
        return compiled


class Adapter(CompilingAdapter[jax.Array], Eager):
    """Drives `jax.jit`: what stands between two boundaries is compiled as one function."""

    def __init__(self) -> None:
        super().__init__("jax", observes=("values", "replay"))

    def reset(self) -> None:
        forget: Function = jax.clear_caches
        forget()
