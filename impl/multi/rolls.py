"""A value that moves round along an axis: where it is cut, pieces go from device to device.

Chapter: spec/multi.md. A roll is a part of the value twice, one behind the other; its gradient is
the sum of two parts of a value with zeros around it. Both are found again here.
"""
from __future__ import annotations

from impl.gradient import nodes
from impl.ir import Ops, UOp
from impl.multi.mesh import Sharding
from impl.multi.transfers import Transfer
from impl.places import copied_to
from impl.symbolic import is_symbolic


def rolled(value: UOp, axis: int, shift: int) -> UOp:
    """The elements moved along an axis by `shift`, from 1 to its size - 1."""
    shape = nodes.shape_of(value)
    size = shape[axis]
    once = nodes.reshape(value, (*shape[:axis], 1, *shape[axis:]))
    twice = nodes.expand(once, (*shape[:axis], 2, *shape[axis:]))
    behind = nodes.reshape(twice, (*shape[:axis], 2 * size, *shape[axis + 1:]))
    bounds = [(0, extent) for extent in shape]
    bounds[axis] = (size - shift, 2 * size - shift)
    return nodes.shrink(behind, tuple(bounds))


def roll_of(node: UOp) -> tuple[UOp, int, int] | None:
    """The value that a node is a roll of, the axis and the shift; None if it is none."""
    if node.op is Ops.SHRINK:
        return _forwards(node)
    return _backwards(node) if node.op is Ops.RESHAPE and node.src[0].op is Ops.REDUCE else None


def _chain(node: UOp, *ops: Ops) -> list[UOp]:
    """A node and its first sources, if they are these operations; else nothing."""
    found = []
    for op in ops:
        if node.op is not op:
            return []
        found.append(node)
        node = node.src[0]
    return [*found, node]


def _forwards(node: UOp) -> tuple[UOp, int, int] | None:
    chain = _chain(node, Ops.SHRINK, Ops.RESHAPE, Ops.EXPAND, Ops.RESHAPE)
    if not chain:
        return None
    _, behind, _, _, value = chain
    shape = nodes.shape_of(value)
    axis = _doubled(nodes.shape_of(behind), shape)
    if axis is None or rolled(value, axis, shape[axis] - node.arg[axis][0]) is not node:
        return None
    return value, axis, shape[axis] - node.arg[axis][0]


def _backwards(node: UOp) -> tuple[UOp, int, int] | None:
    chain = _chain(node, Ops.RESHAPE, Ops.REDUCE, Ops.RESHAPE, Ops.PAD)
    if not chain:
        return None
    _, total, apart, padded, value = chain
    shape = nodes.shape_of(value)
    axis = _doubled(nodes.shape_of(padded), shape)
    if axis is None or total.arg != (Ops.ADD, (axis,)) or node.shape != shape \
            or apart.shape != (*shape[:axis], 2, *shape[axis:]):
        return None
    shift = padded.arg[axis][0]
    return (value, axis, shift) if 0 < shift < shape[axis] else None


def _doubled(shape: tuple[int, ...], before: tuple[int, ...]) -> int | None:
    """The one axis along which one shape is twice another."""
    if len(shape) != len(before) or any(is_symbolic(size) for size in (*shape, *before)):
        return None
    found = [axis for axis, sizes in enumerate(zip(shape, before, strict=True))
             if sizes[0] != sizes[1]]
    return found[0] if len(found) == 1 and shape[found[0]] == 2 * before[found[0]] else None


def rolled_pieces(node: UOp, size: int, axis: int, shift: int, sharding: Sharding) -> UOp | None:
    """The pieces of a value of `size` along an axis, moved on; None if pieces would be split."""
    name, count = sharding.axes[axis], sharding.count(axis)
    if name is None or size % count or shift % (size // count):
        return None
    mesh = sharding.mesh
    # r[impl collectives.permute.roll]
    return copied_to(node, Transfer("permute", mesh, mesh, name,
                                    shift=shift // (size // count)))
