"""Calling a function on stand-ins, and putting values in their place. Chapter: spec/transforms.md.

There are two kinds of stand-ins. A *variable* has the value of its argument and is another node:
what depends on it depends on the argument at this place, and on nothing else that has the value.
Its values can be looked at. A *placeholder* has no values: it stands for one example of many.
"""
from __future__ import annotations

import functools
import itertools
import operator
import threading
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from impl.effects import Placeholder, constant_of, living, living_here, lock
from impl.effects.versions import is_pending
from impl.errors import TraceError
from impl.gradient import below
from impl.ir import Ops, UOp, in_memory, line_of, toposort
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


def _is_computed(before: UOp, now: UOp) -> bool:
    """Whether a node has only given way to the leaf that has its value now."""
    leaf = in_memory(now)
    return leaf is not None and leaf is in_memory(before)


def _is_there(node: UOp) -> bool:
    """Whether a value can still be had: it needs no memory that holds another one by now."""
    leaves = [in_memory(each) for each in toposort((node,), is_pending)]
    return all(leaf is None or leaf.arg[1] == leaf.arg[0].version for leaf in leaves)


def call_on_placeholders(operation: str, stand_ins: Set[UOp],
                         function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function on placeholders, once for many times: it may assign to nothing outside.

    Raises:
        TraceError: it has assigned to one, or left a gradient at one. That has its own value again,
            unless it is in memory that was overwritten, and its own gradient.
    """
    bits = functools.reduce(operator.or_, [each.reads for each in stand_ins], 0)
    changed: list[UOp] = []
    left = False
    with lock.turn() as free:  # what other threads assign is none of the function's: they wait
        mine = free or lock.owner == threading.get_ident()
        before: list[tuple[Any, UOp, Any]] = [
            (holder, holder.uop, holder.grad)  # type: ignore[attr-defined]  # tensors are all
            for holder in living() if holder.uop not in stand_ins]
        try:
            with traced():
                returned = function(*args, **kwargs)
        finally:
            alone = mine and not lock.disturbed  # else a thread that it waited for has gone on
            here = living_here() if any(h.grad is not g for h, _, g in before) else set[int]()
            for holder, node, gradient in before:
                now = holder.uop
                if holder.grad is not gradient and id(holder.grad) in here:
                    holder.grad, left = gradient, True
                if now is not node and not _is_computed(node, now) and (
                        alone or now.reads & bits and not stand_ins.isdisjoint(below([now]))):
                    changed.append(now)
                    if _is_there(node):
                        holder.uop = node
    if not changed and not left:
        return returned
    raise _assigned(operation, changed)  # no name here: it would keep what lived `before`


def _assigned(operation: str, changed: list[UOp]) -> TraceError:
    """The error for a function that has changed tensors from outside, or their gradients."""
    # r[impl transforms.trace.assigned+4]
    does = "assigns to a tensor" if changed else "leaves a gradient at a tensor"
    error = TraceError(operation, f"the function {does} from outside; it is traced once, and "
                       "stands for any number of times",
                       "return the value, or hand it on in the carry of a scan")
    written = [node for node in reversed(below(changed[:1])) if node.origin is not None]
    error.say_line(line_of(written[0].origin) if written else "")
    return error
