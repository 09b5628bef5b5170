"""JAX, compiled by `jit` and eager.

Arrays are immutable: there is no assignment and no store, and they are not declared.  64-bit
types are on, as `jax_enable_x64` documents.  A captured function is a `jit` of it; numbers among
its arguments are traced.  `floordiv` and `mod` are not declared: JAX leaves division by zero open.

A mesh is one of eight devices that XLA makes of the processor.  JAX cuts an axis only into parts of
one size.  A `jit` runs on one set of devices, so only the eager adapter moves values between them.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

os.environ["XLA_FLAGS"] = \
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import jax  # noqa: E402 (the devices are made when it begins)

config: Any = jax.config
config.update("jax_enable_x64", True)
config.update("jax_platforms", "cpu")

import jax.numpy as jnp  # noqa: E402 (the platform is chosen before)
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from conformance.adapters.library import (  # noqa: E402
    CompilingAdapter,
    Function,
    LibraryAdapter,
    Variables,
    slices,
)
from conformance.protocol import Array, Laid, Statement, Value  # noqa: E402

Arrays = Variables[jax.Array]


def _reduced(function: Callable[..., Any], dtype: bool = False) -> Function:
    return lambda s, x: function(x, axis=tuple(s["axes"]), keepdims=s["keepdims"],
                                 **({"dtype": x.dtype} if dtype else {}))


def _sharded(statement: Statement, x: jax.Array) -> jax.Array:
    """An array on a mesh."""
    names, sizes = zip(*statement["axes"], strict=True)
    devices = [jax.devices()[number] for number in statement["devices"]]
    mesh = Mesh(np.array(devices, object).reshape(sizes), names)
    cut = statement["cut"]
    if set(cut) - set(names):
        raise ValueError(f"{mesh} has not the axes of {cut}")
    return _put(x, mesh, [tuple(name for name in names if cut.get(name) == axis)
                          for axis in range(x.ndim)])


def _put(x: jax.Array, mesh: Mesh, names: Sequence[Any]) -> jax.Array:
    made: Any = PartitionSpec  # without types in some versions
    spec = made(*(each or None for each in names))
    found: jax.Array = jax.device_put(x, NamedSharding(mesh, spec))
    return found


def _like(x: jax.Array, other: jax.Array) -> jax.Array:
    found: jax.Array = jax.device_put(x, other.sharding)
    return found


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
        "contiguous": lambda x: x, "shard_like": _like,
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
        "copy": lambda s, x: jax.device_put(x, jax.devices()[0]) if "device" in s else jnp.copy(x),
        "shard": _sharded,
    }
    effects = (*LibraryAdapter.effects, "shards")

    def __init__(self, name: str = "jax eager", **declared: Any) -> None:
        super().__init__(name, jax.__version__, **{
            "observes": ("values", "sharded"), "meshes": tuple(map(str, jax.devices()[:6])),
            "choices": {"meshes": {"uneven": False}}, **declared})

    def array(self, elements: Array) -> jax.Array:
        return jnp.asarray(elements)

    def full(self, dtype: str, shape: Sequence[int], value: Any) -> jax.Array:
        return jnp.full(tuple(shape), value, dtype)

    def elements(self, tensor: jax.Array) -> Array:
        return np.asarray(tensor)

    def laid(self, name: str, tensor: jax.Array) -> Laid:
        sharding = tensor.sharding
        if not isinstance(sharding, NamedSharding):  # it has left the mesh, as what is empty does
            [device] = sharding.device_set
            return Laid(name, (jax.devices().index(device),), (("rows", 1),), {},
                        [Value.of(name, np.asarray(tensor))])
        cut = {one: axis for axis, names in enumerate(sharding.spec)
               for one in (names if isinstance(names, tuple) else (names,)) if one is not None}
        parts = {each.device: each.data for each in tensor.addressable_shards}
        devices = list(sharding.mesh.devices.flat)
        return Laid(name, tuple(map(jax.devices().index, devices)),
                    tuple(sharding.mesh.shape.items()), cut,
                    [Value.of(name, np.asarray(parts[device])) for device in devices])

    def captured(self, function: Function) -> Function:
        compiled: Function = jax.jit(function)
        return compiled


class Adapter(CompilingAdapter[jax.Array], Eager):
    """Drives `jax.jit`: what stands between two boundaries is compiled as one function."""

    def __init__(self) -> None:
        super().__init__("jax", observes=("values", "replay"), meshes=(), choices={})

    def reset(self) -> None:
        forget: Function = jax.clear_caches
        forget()
