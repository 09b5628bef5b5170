"""Calling a function on stand-ins, and putting values in their place. Chapter: spec/transforms.md.

There are two kinds of stand-ins. A *variable* has the value of its argument and is another node:
what depends on it depends on the argument at this place, and on nothing else that has the value.
Its values can be looked at. A *placeholder* has no values: it stands for one example of many.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from impl.effects import Placeholder, constant_of
from impl.gradient import Custom, below
from impl.ir import Ops, UOp, give_origin
from impl.multi import Mesh, Sharding
from impl.tensor import Tensor
from impl.tensor.base import keeping

_numbers = itertools.count()


def variable(tensor: Tensor) -> Tensor:
    """A tensor of the same value, which is a node of its own."""
    node, tag = tensor.uop, ("variable", next(_numbers))
    if constant_of(node) is not None:  # a number would be seen through a movement
        made = UOp(Ops.CONTIGUOUS, node.dtype, (node,), None, tag)
    else:
        made = UOp(Ops.RESHAPE, node.dtype, (node,), node.shape, tag)
    return Tensor._holding(made, tensor.device)


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
    kept: list[UOp] = []
    keeping.append(kept)  # r[impl transforms.values.looked]
    try:
        yield kept
    finally:
        keeping.remove(kept)


def substituted(roots: Sequence[UOp], replaced: Mapping[UOp, UOp],
                through: int = -1) -> list[UOp]:
    """The graphs with nodes replaced; a node that reads none of `through` stays as it is."""
    done: dict[UOp, UOp] = dict(replaced)
    for node in below(roots, through):
        if node in done:
            continue
        if node.op is Ops.BUFFER:
            done[node] = node  # in memory: its value is what it is
            continue
        sources = tuple([done[source] for source in node.src])
        custom = node.tag if node.op is Ops.DETACH and node.tag is not None else None
        changed = sources != node.src
        if custom is not None:
            changed = changed or any(done[each] is not each for each in custom.inputs)
        if not changed:
            done[node] = node
            continue
        tag = node.tag if custom is None else _custom_of(custom, done, replaced, through)
        made = done[node] = UOp(node.op, node.dtype, sources, node.arg, tag)
        if made.origin is None and node.origin is not None:
            give_origin(made, node.origin)
    return [done[root] for root in roots]


def _custom_of(custom: Custom, done: Mapping[UOp, UOp], replaced: Mapping[UOp, UOp],
               through: int) -> Custom:
    """The same gradient of one's own, with nodes replaced in what it gives too."""
    def pull(gradient: UOp) -> list[UOp | None]:
        # What comes in is of the outside already: only what the function adds is replaced.
        place = Placeholder(None, gradient.dtype, gradient.shape or ()).leaf(gradient.shape or ())
        found = custom.pull(place)
        known = [part for part in found if part is not None]
        bits = -1 if through < 0 else through | place.reads
        made = iter(substituted(known, {**replaced, place: gradient}, bits))
        return [None if part is None else next(made) for part in found]
    return Custom(tuple(done[each] for each in custom.inputs), pull)
