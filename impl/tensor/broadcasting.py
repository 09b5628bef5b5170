"""Shapes and dtypes in which operands meet, and casts. Chapter: spec/tensor.md."""
from __future__ import annotations

import functools

from impl.dtypes import DType, Scalar, dtypes
from impl.errors import ShapeError
from impl.gradient import nodes
from impl.ir import Ops, Shape, UOp
from impl.symbolic import common_size, identical, is_symbolic, present
from impl.tensor.packed import in_bytes, taken_apart


def broadcast_shape(a: Shape, b: Shape, operation: str) -> Shape:
    """The shape to which both spread: axes align at the right, and size 1 repeats.

    Raises:
        ShapeError: two sizes differ and neither is 1 (r[tensor.arguments.refused]).
    """
    if present[0] and any(is_symbolic(size) for size in (*a, *b)):
        return _spread(a, b, operation)  # a capture takes note of what is compared
    return _spread_numbers(a, b, operation)


def _spread(a: Shape, b: Shape, operation: str) -> Shape:
    rank = max(len(a), len(b))
    left = (1,) * (rank - len(a)) + a
    right = (1,) * (rank - len(b)) + b
    for first, second in zip(left, right, strict=True):
        if first != second and 1 not in (first, second):  # r[impl tensor.arguments.refused+2]
            raise ShapeError(operation, f"shapes {a} and {b} do not broadcast: {first} against "
                             f"{second}", "make the sizes equal, or one of them 1 (.unsqueeze)")
    # r[impl tensor.broadcast.rule+2]
    # r[impl symbolic.size.general]
    return tuple(common_size(x, y) for x, y in zip(left, right, strict=True))


_spread_numbers = functools.cache(_spread)


def broadcast_pair(a: UOp, b: UOp, operation: str) -> tuple[UOp, UOp]:
    """Both nodes in one shape; a node of shape `()` stays as it is."""
    if a.shape and b.shape and not identical(a.shape, b.shape):
        shape = broadcast_shape(a.shape, b.shape, operation)
        return nodes.broadcast(a, shape), nodes.broadcast(b, shape)
    return a, b


def weak_dtype(dtype: DType, value: Scalar) -> DType:
    """The dtype in which a Python number meets a tensor of `dtype` (r[dtypes.scalar.weak])."""
    # r[impl dtypes.scalar.weak+2]
    if dtype.kind == "f" or isinstance(value, bool):
        return dtype
    if isinstance(value, float):
        return dtypes.default_float
    return dtypes.default_int if dtype.kind == "b" else dtype


def converted(x: UOp, dtype: DType) -> UOp:
    """A cast whose result is the same on every device, also of what the dtype does not hold."""
    cut = nodes.cast(x, dtype)
    if x.dtype.kind != "f" or dtype.kind not in "iu" or cut.op is not Ops.CAST:
        return cut
    least, greatest = UOp.const(dtype, dtype.min), UOp.const(dtype, dtype.max)
    above = nodes.binary(Ops.CMPLE, UOp.const(x.dtype, float(dtype.max + 1)), x)
    below = nodes.binary(Ops.CMPLE, x, UOp.const(x.dtype, float(dtype.min)))
    known = nodes.binary(Ops.CMPEQ, x, x)
    # r[impl dtypes.cast.nearest]
    inside = nodes.where(known, cut, UOp.const(dtype, 0))
    return nodes.where(above, greatest, nodes.where(below, least, inside))


_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def bits_as(x: UOp, wanted: DType) -> UOp:
    """The bits of the last axis read as elements of another size."""
    if x.dtype.bits == 4 or wanted.bits == 4:
        return _halves_as(x, wanted)
    own, shape = x.dtype.itemsize, nodes.shape_of(x)
    bits = x if x.dtype is _UNSIGNED[own] else UOp(Ops.BITCAST, _UNSIGNED[own], (x,))
    times = max(own, wanted.itemsize) // min(own, wanted.itemsize)
    if wanted.itemsize < own and shape:
        wide, part = (*shape, times), _UNSIGNED[wanted.itemsize]
        shifts = _shifts(times, wide, bits.dtype, wanted.itemsize)
        spread = nodes.expand(nodes.reshape(bits, (*shape, 1)), wide)
        made = nodes.cast(nodes.binary(Ops.SHR, spread, shifts), part)
        result = nodes.reshape(made, (*shape[:-1], shape[-1] * times))
    elif shape and shape[-1] % times == 0:
        whole, wide = _UNSIGNED[wanted.itemsize], (*shape[:-1], shape[-1] // times, times)
        parts = nodes.cast(nodes.reshape(bits, wide), whole)
        made = nodes.binary(Ops.SHL, parts, _shifts(times, wide, whole, own))
        result = nodes.reshape(nodes.reduce(Ops.ADD, made, (len(wide) - 1,)), wide[:-1])
    else:
        raise ShapeError("bitcast", f"{x.dtype.name} {shape} is no whole number of {wanted.name}",
                         f"give a last axis whose size is a multiple of {times}")
    return result if wanted is result.dtype else UOp(Ops.BITCAST, wanted, (result,))


def _halves_as(x: UOp, wanted: DType) -> UOp:
    """From or to integers of 4 bits, by way of bytes."""
    shape = nodes.shape_of(x)
    if wanted.bits == 4 and shape:
        seen = bits_as(x, dtypes.uint8) if x.dtype.itemsize > 1 else UOp(
            Ops.BITCAST, dtypes.uint8, (x,)) if x.dtype is not dtypes.uint8 else x
        return taken_apart(seen, wanted)
    if not shape or shape[-1] % 2:
        raise ShapeError("bitcast", f"{x.dtype.name} {shape} is no whole number of {wanted.name}",
                         "give a last axis whose size is a multiple of 2")
    made = in_bytes(x)
    if wanted.itemsize > 1:
        return bits_as(made, wanted)
    return made if wanted is dtypes.uint8 else UOp(Ops.BITCAST, wanted, (made,))


def _shifts(count: int, shape: Shape, dtype: DType, itemsize: int) -> UOp:
    """How far each part of a wide element is from its lowest bit, along the last axis."""
    place = nodes.cast(nodes.iota_along(count, len(shape) - 1, len(shape)), dtype)
    return nodes.expand(nodes.scale(place, 8 * itemsize), shape)
