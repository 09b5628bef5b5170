"""Views of a value, and writes through them. Chapter: spec/tensor.md."""
from __future__ import annotations

from typing import Any

from impl.effects import write
from impl.gradient import nodes
from impl.ir import Ops, UOp

Path = tuple[tuple[Ops, Any], ...]


def has_memory(node: UOp) -> bool:
    """Whether a node is a version of some buffer, so that assigning writes to that buffer."""
    while node.op is Ops.AFTER:
        node = node.src[0]
    return node.op in (Ops.BUFFER, Ops.CONTIGUOUS, Ops.COPY) or node.realized is not None


def as_memory(node: UOp) -> UOp:
    """The node, or one of the same value through which no view of it can be simplified.

    A part of a value can only be replaced where the value is in memory.
    """
    if node.op in (Ops.BUFFER, Ops.AFTER, Ops.CONTIGUOUS, Ops.COPY):
        return node
    return node.realized or UOp(Ops.CONTIGUOUS, node.dtype, (node,))


def follow(node: UOp, path: Path) -> UOp:
    """The view of a node that a chain of movement operations shows."""
    for op, arg in path:
        node = UOp(op, arg, (node,)) if op is Ops.BITCAST else nodes.move(node, op, arg)
    return node


def written_through(memory: UOp, path: Path, value: UOp) -> UOp:
    """The memory with the region replaced that a path shows; the value is of the path's dtype."""
    moves = tuple(step for step in path if step[0] is not Ops.BITCAST)
    if value.dtype is not memory.dtype:  # bits are as good before the movements as after them
        value = UOp(Ops.BITCAST, memory.dtype, (value,))  # r[impl tensor.assign.view+3]
    return write(memory, follow(memory, moves), value)
