"""What each device has of a value, and how that is brought into another sharding. Chapter:
spec/multi.md.

What has to be sent for it `transfers` lists. What was brought somewhere once is there for others.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import TypeAlias

from impl.dtypes import dtypes
from impl.gradient import nodes
from impl.ir import ELEMENTWISE, Ops, Shape, UOp
from impl.multi.coordinates import coordinate
from impl.multi.mesh import Mesh, Sharding, piece
from impl.multi.transfers import NOTED, Axes, Due, Transfer, as_if_cut, bytes_sent, passages
from impl.places import copied_to, device_kind
from impl.symbolic import identical, is_symbolic

#: What a value was brought to: the node there, what that was brought to, and how often.
Brought: TypeAlias = "dict[Axes, tuple[UOp, Brought, int]]"


@dataclass(slots=True)
class Piece:
    """What each device has of a value.

    Without a `sharding` the value is on one device, or made of no memory. Pieces with something
    `due` have still to be combined, along an axis of the mesh, by an operation. What repeats a
    `narrow` value is sent as that, and repeated where it arrives. What was `brought_from` other
    pieces is had as those for nothing; and so is what was `brought_to` others, so many times. Of
    those it knows the nodes, and what they were brought to: pieces that held each other would live
    until Python looks for circles.
    """

    node: UOp
    shape: Shape
    sharding: Sharding | None = None
    due: Due = ()
    narrow: Piece | None = None
    brought_from: Piece | None = None
    brought_to: Brought | None = None

    @property
    def axes(self) -> Axes:
        """The cut of each axis."""
        return (None,) * len(self.shape) if self.sharding is None else self.sharding.axes

    @property
    def cuts(self) -> int:
        """How many axes are cut."""
        return len(self.axes) - self.axes.count(None)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole value."""
        return math.prod(self.shape) * self.node.dtype.itemsize


def lifted(given: Piece, mesh: Mesh) -> Piece:
    """A value that is on no mesh as copies; what is made of no memory needs no transfer."""
    if given.sharding is not None:
        return given
    node = given.node
    if nodes.device_of(node) is not None:
        node = copied_to(node, Transfer("broadcast", mesh, mesh))
    return Piece(node, given.shape, Sharding.copies(mesh, len(given.shape)))


def price(given: Piece, axes: Axes) -> int:
    """Bytes that each device sends to bring a value into a sharding."""
    assert given.sharding is not None
    if not given.due and (axes == given.axes or given.sharding.is_copies):
        return 0
    if given.brought_from is not None and axes == given.brought_from.axes:
        return 0
    if given.narrow is not None:
        return price(given.narrow, before_repeated(given, axes))
    if given.brought_to and axes in given.brought_to and given.brought_to[axes][2]:
        return 0
    return bytes_sent(given.sharding.mesh, given.axes, axes, given.due, given.shape,
                      given.node.dtype.itemsize)


def brought(given: Piece, axes: Axes) -> Piece:
    """A value in another sharding of its mesh, with nothing due any more.

    What is due is combined first; then axes change places, are put together, and last are cut:
    so nothing is sent that nobody needs.
    """
    assert given.sharding is not None
    if axes == given.axes and not given.due:
        return given
    before = given.brought_from
    if before is not None and axes == before.axes:  # r[impl collectives.gather.undone+2]
        return before
    if given.narrow is not None:
        narrow = brought(given.narrow, before_repeated(given, axes))
        return repeated(narrow, given.shape, axes)
    if given.brought_to is None:
        given.brought_to = {}
    # r[impl multi.memory.gone]
    node, further, times = given.brought_to.get(axes) or (_sent(given, axes), {}, 0)
    given.brought_to[axes] = node, further, times + 1
    return Piece(node, given.shape, Sharding(given.sharding.mesh, axes),
                 brought_from=None if given.due else given, brought_to=further)


def _sent(given: Piece, axes: Axes) -> UOp:
    """A value that has to be sent, in another sharding of its mesh."""
    assert given.sharding is not None
    mesh, node, now = given.sharding.mesh, given.node, list(given.axes)
    instead = "" if given.due else _instead(node, given.axes, axes)
    for transfer, cut, joined in passages(mesh, given.axes, axes, given.due, instead):
        if cut is not None:
            node = axis_in_pieces(node, cut, given.shape[cut], transfer.count, True)
            now[cut] = transfer.axis
        if transfer.kind == "all-reduce":
            shape = nodes.shape_of(node)
            if not any(map(is_symbolic, shape)):
                transfer = as_if_cut(transfer, shape, tuple(now), node.dtype.itemsize)
        node = _exchanged(node, transfer) or copied_to(node, transfer)
        if joined is not None:
            node = _joined(node, joined, given.shape[joined])
            now[joined] = None
    for axis, wanted in enumerate(axes):
        if wanted is not None and now[axis] is None:
            node = _own(node, axis, given.shape[axis], wanted, mesh)
    return node


def _exchanged(node: UOp, transfer: Transfer) -> UOp | None:
    """What two processes make together of what each has, where the kernels that need it combine it:
    so nothing but that passes over it. None where a collective does it.
    """
    # r[impl distributed.pair.combined+2]
    shape, mesh = nodes.shape_of(node), transfer.mesh
    kind = device_kind(mesh.devices[0].partition("@")[0])  # what stands behind is the process
    if transfer.kind != "all-reduce" or not mesh.is_of_processes or transfer.count != 2 \
            or transfer.op not in (Ops.ADD, Ops.MUL) or node.dtype.itemsize < 4 \
            or kind == "CUDA" or any(map(is_symbolic, shape)) \
            or math.prod(shape) * node.dtype.itemsize <= NOTED:
        return None
    own = UOp(Ops.CONTIGUOUS, node.dtype, (node,))  # computed once, for both
    other = copied_to(own, replace(transfer, kind="permute", shift=1))
    return UOp(transfer.op, node.dtype, (own, other))


def _instead(node: UOp, axes: Axes, wanted: Axes) -> str:
    """How the memory from which a value is computed could lie so that nothing were sent; empty
    where that is not known, or not one way for all of it.
    """
    # r[impl multi.transfer.instead+4]
    if any(name is not None and identical((size,), (1,))
           for name, size in zip(axes, nodes.shape_of(node), strict=True)):
        return "it lay " + in_words(wanted) if node.op is Ops.BUFFER else ""  # as new axes look
    found, leaves, computed = set[str](), set[UOp](), False
    left = [(node, wanted)]
    seen = set(left)
    while left:
        one, lying = left.pop()
        if one.op is Ops.BUFFER:
            found.add(in_words(lying))
            leaves.add(one)
            continue
        before = _as_before(one, lying)
        if before is None or len(seen) > _MOST:
            return ""
        computed = computed or len(one.src) > 1 or one.op is Ops.REDUCE
        fresh = [(source, before) for source in one.src
                 if nodes.shape_of(source) and (source, before) not in seen]
        seen.update(fresh)
        left += fresh
    if len(found) != 1:
        return ""
    what = "it" if node.op is Ops.BUFFER else "the tensor that it shows" if not computed else \
        f"the tensor{'s' * (len(leaves) > 1)} that it is computed from"
    return f"{what} lay {found.pop()}"


#: How many values are looked at for advice.
_MOST = 100


def _as_before(node: UOp, lying: Axes) -> Axes | None:
    """How what a value is computed from would have to lie, for it to lie so; None if not known."""
    if node.op in ELEMENTWISE or node.op is Ops.CONTIGUOUS or not node.src:
        return lying
    if node.op is Ops.REDUCE:
        return with_whole(lying, *node.arg[1])
    if node.op not in _VIEWS:
        return None
    before = nodes.shape_of(node.src[0])
    if not any(lying):
        return (None,) * len(before)
    if node.op is Ops.PERMUTE:
        return tuple([lying[node.arg.index(axis)] for axis in range(len(before))])
    if node.op is Ops.RESHAPE:
        return _with_ones_moved(nodes.shape_of(node), before, lying)
    if node.op is Ops.EXPAND:
        sizes = zip(before, nodes.shape_of(node), strict=True)
        return tuple([name if identical((old,), (new,)) else None
                      for name, (old, new) in zip(lying, sizes, strict=True)])
    return None


#: What shows memory in another form, and needs nothing of other devices where that is whole.
_VIEWS = frozenset({Ops.PERMUTE, Ops.RESHAPE, Ops.EXPAND, Ops.SHRINK, Ops.PAD, Ops.FLIP})


def _with_ones_moved(shape: Shape, before: Shape, axes: Axes) -> Axes | None:
    """The cuts of a shape, as those of one that differs in axes of size 1 only; else None."""
    wide, names = [], []
    for size, name in zip(shape, axes, strict=True):
        if not identical((size,), (1,)):
            wide.append(size)
            names.append(name)
        elif name is not None:
            return None
    if not identical(tuple(wide), tuple(size for size in before if not identical((size,), (1,)))):
        return None
    left = iter(names)
    return tuple([None if identical((size,), (1,)) else next(left) for size in before])


def count_brought(given: Piece, axes: Axes, change: int) -> None:
    """Change how often a value was brought into a sharding."""
    if given.narrow is not None:
        count_brought(given.narrow, before_repeated(given, axes), change)
    elif given.brought_to and axes in given.brought_to:
        node, further, times = given.brought_to[axes]
        given.brought_to[axes] = node, further, times + change


def before_repeated(given: Piece, axes: Axes) -> Axes:
    """How a value lies, before it is repeated, that is to lie so afterwards."""
    assert given.narrow is not None
    found, before = list(axes), given.narrow.shape
    for axis, name in enumerate(axes):
        if name is not None and not identical((before[axis],), (given.shape[axis],)):
            found[axis] = None
    return tuple(found)


def _own(node: UOp, axis: int, size: int, name: str, mesh: Mesh) -> UOp:
    """Each device's own part of what all of them have: nothing is sent."""
    shape, count = nodes.shape_of(node), mesh.extent(name)
    if node.op is Ops.EXPAND and nodes.shape_of(node.src[0])[axis] == 1 != size:
        width = piece(size, count)
        return nodes.expand(node.src[0], (*shape[:axis], width, *shape[axis + 1:]))
    pieces = axis_in_pieces(node, axis, size, count, True)
    return UOp(Ops.GATHER, node.dtype, (pieces, coordinate(mesh, name)))


def axis_in_pieces(node: UOp, axis: int, size: int, count: int, front: bool = False) -> UOp:
    """An axis as two, the pieces and what is in one; the pieces perhaps as the first of all."""
    shape, width = nodes.shape_of(node), piece(size, count)
    node = nodes.pad(node, _at(axis, len(shape), (0, width * count - size)))
    node = nodes.reshape(node, (*shape[:axis], count, width, *shape[axis + 1:]))
    if not front:
        return node
    return nodes.permute(node, (axis, *[a for a in range(len(shape) + 1) if a != axis]))


def _joined(node: UOp, axis: int, size: int) -> UOp:
    """The pieces along the first axis, one behind the other along another axis."""
    count, *local = nodes.shape_of(node)
    rank = len(local)
    node = nodes.permute(node, (*range(1, axis + 1), 0, *range(axis + 1, rank + 1)))
    whole = (*local[:axis], count * local[axis], *local[axis + 1:])
    node = nodes.reshape(node, whole)
    return nodes.shrink(node, tuple((0, size if a == axis else extent)
                                    for a, extent in enumerate(whole)))


def _at(axis: int, rank: int, pair: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(pair if a == axis else (0, 0) for a in range(rank))


def in_words(axes: Axes) -> str:
    """A sharding, as one would ask for it."""
    cut = ", ".join(f"{name}={axis}" for axis, name in enumerate(axes) if name)
    return f"cut as {cut}" if cut else "as copies"


def freed(given: Piece, axes: Sequence[int]) -> Piece:
    """The value with some axes whole on every device, and nothing due."""
    return brought(given, with_whole(given.axes, *axes) if axes else given.axes)


def with_whole(axes: Axes, *freed: int) -> Axes:
    """A sharding with some axes whole."""
    found = list(axes)
    for axis in freed:
        found[axis] = None
    return tuple(found)


def repeated(narrow: Piece, shape: Shape, axes: Axes | None) -> Piece:
    """A value repeated to a shape; along the axes that it gains it may be cut as one likes."""
    assert narrow.sharding is not None
    sharding = narrow.sharding if axes is None else narrow.sharding.along(axes)
    node = nodes.expand(narrow.node, sharding.local(shape))
    return Piece(node, shape, sharding, narrow.due, narrow)


def inside(given: Piece, axis: int) -> UOp | None:
    """Which elements of a piece are elements of the value; None if all are."""
    assert given.sharding is not None
    name, size = given.axes[axis], given.shape[axis]
    count = given.sharding.count(axis)
    if name is None or size % count == 0:
        return None
    width, rank = piece(size, count), len(given.shape)
    start = nodes.mul(nodes.cast(coordinate(given.sharding.mesh, name), dtypes.int64),
                      UOp.const(dtypes.int64, width))
    along = nodes.cast(nodes.iota_along(width, axis, rank), dtypes.int64)
    place = UOp(Ops.ADD, dtypes.int64, (along, start))
    mask = UOp(Ops.CMPLT, dtypes.bool, (place, UOp.const(dtypes.int64, size)))
    return nodes.expand(mask, given.sharding.local(given.shape))


def with_sources(node: UOp, sources: Sequence[UOp]) -> UOp:
    """The node with other sources."""
    if all(map(is_, sources, node.src)):
        return node
    return UOp(node.op, node.dtype, tuple(sources), node.arg, node.tag)
