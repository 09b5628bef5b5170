"""Integers of 4 bits, two to a byte, the first one in the lower half. Chapter: spec/dtypes.md.

In a kernel and among temporaries each has a byte of its own. What a tensor holds is packed: a
buffer of bytes, and the expression that takes them apart, which is computed where it is read.
"""
from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Sequence
from typing import Any

from impl.dtypes import DType, dtypes
from impl.gradient import nodes
from impl.host import np
from impl.ir import Ops, Shape, UOp, in_memory
from impl.multi import Mesh
from impl.places import Place
from impl.symbolic import is_symbolic

#: The tensor of bytes behind an expression that takes it apart.
_memory_of: weakref.WeakKeyDictionary[UOp, Any] = weakref.WeakKeyDictionary()


def in_bytes(x: UOp) -> UOp:
    """The bytes of an even number of integers along the last axis."""
    shape = nodes.shape_of(x)
    halves = nodes.reshape(nodes.cast(x, dtypes.uint8), (*shape[:-1], shape[-1] // 2, 2))
    low = nodes.binary(Ops.AND, halves, UOp.const(dtypes.uint8, 15))
    moved = nodes.binary(Ops.SHL, low, _shifts(nodes.shape_of(halves)))
    axis = len(shape)
    return nodes.reshape(nodes.reduce(Ops.ADD, moved, (axis,)), (*shape[:-1], shape[-1] // 2))


def taken_apart(x: UOp, dtype: DType) -> UOp:
    """The integers of bytes, twice as many along the last axis."""
    shape = nodes.shape_of(x)
    pairs = nodes.expand(nodes.reshape(x, (*shape, 1)), (*shape, 2))
    moved = nodes.binary(Ops.SHR, pairs, _shifts((*shape, 2)))
    return nodes.reshape(nodes.cast(moved, dtype), (*shape[:-1], 2 * shape[-1]))


def _shifts(shape: Shape) -> UOp:
    half = nodes.cast(nodes.iota_along(2, len(shape) - 1, len(shape)), dtypes.uint8)
    return nodes.expand(nodes.scale(half, 4), shape)


def seen_apart(memory: Any, dtype: DType, shape: Shape) -> UOp:
    """What a tensor of bytes holds, in a shape."""
    # r[impl dtypes.nibble.packed]
    flat, count = taken_apart(memory.uop, dtype), math.prod(shape)
    found = nodes.reshape(nodes.shrink(flat, ((0, count),)), shape)
    _memory_of[found] = memory
    return found


def bytes_of_numbers(numbers: Sequence[Any]) -> list[int]:
    """The bytes of integers, where NumPy cannot be imported."""
    return [low & 15 | (high & 15) << 4
            for low, high in itertools.zip_longest(numbers[::2], numbers[1::2], fillvalue=0)]


def halves_on_host(held: np.ndarray, dtype: DType) -> np.ndarray:
    """The integers of bytes that the host has."""
    return cut_to_four(np.stack([held, held >> 4], -1).reshape(-1), dtype)


def cut_to_four(held: np.ndarray, dtype: DType) -> np.ndarray:
    """Integers as their 4 lowest bits have them."""
    low = held & 15
    return (low.astype(np.int8) ^ 8) - 8 if dtype is dtypes.int4 else low


def bytes_of(node: UOp) -> Any:
    """The tensor of bytes that an expression takes apart; None if it is another one."""
    return _memory_of.get(node)


def is_packable(shape: Shape, place: Place) -> bool:
    """Whether integers of such a shape are packed there."""
    return not isinstance(place, Mesh) and bool(shape) and 0 not in shape \
        and not any(map(is_symbolic, shape))


def realize_packed(tensors: Sequence[Any], runtime: Any) -> None:
    """Compute tensors, and keep those with integers of 4 bits as bytes."""
    made, waiting = [], []
    for tensor in tensors:
        node = tensor.uop
        if node.dtype.bits != 4 or in_memory(node) is not None \
                or not is_packable(node.shape, tensor.device):
            waiting.append(tensor)
        elif bytes_of(node) is None:
            count = math.prod(node.shape)
            flat = nodes.pad(nodes.reshape(node, (count,)), ((0, count % 2),))
            holder = tensor._holding(in_bytes(flat), tensor.device)
            made.append((tensor, node, holder))
            waiting.append(holder)
    if waiting:
        runtime.realize(waiting)
    for tensor, node, holder in made:
        if tensor.uop is node:
            tensor.uop = seen_apart(holder, node.dtype, node.shape)
