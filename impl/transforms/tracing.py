"""Calling a function on stand-ins, and putting values in their place. Chapter: spec/transforms.md.

There are two kinds of stand-ins. A *variable* has the value of its argument and is another node:
what depends on it depends on the argument at this place, and on nothing else that has the value.
Its values can be looked at. A *placeholder* has no values: it stands for one example of many.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from impl.effects import Placeholder, constant_of
from impl.ir import Ops, UOp
from impl.multi import Mesh, Sharding
from impl.realize.session import session
from impl.tensor import Tensor
from impl.tensor.parameters import expressions_kept

_numbers = itertools.count()


def variable(tensor: Tensor) -> Tensor:
    """A tensor of the same value, which is a node of its own."""
    node, tag = tensor.uop, ("variable", next(_numbers))
    if constant_of(node) is not None:  # a number would be seen through a movement
        made = UOp(Ops.CONTIGUOUS, node.dtype, (node,), None, tag)
    else:
        made = UOp(Ops.RESHAPE, node.dtype, (node,), node.shape, tag)
    return Tensor._holding(made, tensor.device)


def is_variable(node: UOp) -> bool:
    """Whether the node was made by `variable`."""
    return isinstance(node.tag, tuple) and node.tag[:1] == ("variable",)


def placeholder(tensor: Tensor, shape: tuple[int, ...], operation: str) -> Tensor:
    """A tensor without values, of the dtype and on the device of another one."""
    buffer = Placeholder(tensor.device, tensor.dtype, shape, operation)
    if isinstance(tensor.device, Mesh):
        buffer.lie(shape, Sharding.copies(tensor.device, len(shape)))
    return Tensor._holding(buffer.leaf(shape), tensor.device)


@contextmanager
def looked_at() -> Iterator[list[UOp]]:
    """Within it, what is realized keeps its expression: a derivative goes through it. The list that
    it gives has to live until the derivative is taken.
    """
    with traced(), expressions_kept() as kept:  # r[impl transforms.values.looked]
        yield kept


def traced() -> AbstractContextManager[None]:
    """Within it a function is called on stand-ins: a captured function is a part of it."""
    # r[impl replay.nested.inlined+2]
    return session.capturing.inlining()
