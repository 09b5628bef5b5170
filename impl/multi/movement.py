"""Movement operations of pieces: which axes stay cut. Chapter: spec/multi.md."""
from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from impl.gradient import nodes
from impl.ir import Shape, UOp
from impl.multi.mesh import Mesh, Sharding
from impl.multi.pieces import Piece, freed, repeated, with_sources
from impl.multi.transfers import Axes
from impl.symbolic import identical, is_symbolic, present


def permuted_piece(node: UOp, given: list[Piece]) -> Piece:
    one = given[0]
    axes = tuple(one.axes[axis] for axis in node.arg)
    return _moved(one, nodes.permute(one.node, node.arg), node, axes)


def _moved(one: Piece, local: UOp, node: UOp, axes: Axes) -> Piece:
    assert one.sharding is not None
    return Piece(local, nodes.shape_of(node), one.sharding.along(axes), one.due)


def expanded_piece(node: UOp, given: list[Piece]) -> Piece:
    one, shape = given[0], nodes.shape_of(node)
    grown = [axis for axis, name in enumerate(one.axes)
             if name is not None and not identical((one.shape[axis],), (shape[axis],))]
    return repeated(freed(one, grown), shape, None)


def padded_piece(node: UOp, given: list[Piece]) -> Piece:
    one = freed(given[0], [a for a, widths in enumerate(node.arg) if widths != (0, 0)])
    return _moved(one, nodes.pad(one.node, node.arg), node, one.axes)


def shrunk_piece(node: UOp, given: list[Piece]) -> Piece:
    shape = given[0].shape
    cut = [a for a, (start, stop) in enumerate(node.arg) if not identical((start, stop),
                                                                         (0, shape[a]))]
    one = freed(given[0], cut)
    assert one.sharding is not None
    local = one.sharding.local(shape)
    bounds = tuple(node.arg[a] if a in cut else (0, size) for a, size in enumerate(local))
    return _moved(one, nodes.shrink(one.node, bounds), node, one.axes)


def flipped_piece(node: UOp, given: list[Piece]) -> Piece:
    one = freed(given[0], node.arg)
    return _moved(one, with_sources(node, [one.node]), node, one.axes)


def unfolded_piece(node: UOp, given: list[Piece]) -> Piece:
    axis = node.arg[0]
    one = freed(given[0], [axis])
    return _moved(one, with_sources(node, [one.node]), node,
                  (*one.axes[:axis], None, None, *one.axes[axis + 1:]))


def folded_piece(node: UOp, given: list[Piece]) -> Piece:
    axis = node.arg[0]
    one = freed(given[0], [axis, axis + 1])
    return _moved(one, with_sources(node, [one.node]), node,
                  (*one.axes[:axis], None, *one.axes[axis + 2:]))


def reshaped_piece(node: UOp, given: list[Piece]) -> Piece:
    """A cut axis stays cut where each device's elements are still one block of an axis."""
    one, shape = given[0], nodes.shape_of(node)
    assert one.sharding is not None
    if one.sharding.is_copies:  # the usual case, and quick
        return _moved(one, nodes.reshape(one.node, shape), node, (None,) * len(shape))
    if present[0] and any(map(is_symbolic, (*one.shape, *shape))):
        place = {} if one.shape != shape else {a: a for a in range(len(shape))}
        lost, axes = _lost_and_kept(one.axes, place, len(shape))
        local = one.sharding.along(axes).local(shape)
    else:
        lost, axes, local = _reshaped(one.sharding.mesh, one.axes, one.shape, shape)
    if lost:
        one = freed(one, lost)
    return _moved(one, nodes.reshape(one.node, local), node, axes)


@lru_cache(4096)
def _reshaped(mesh: Mesh, axes: Axes, before: Shape, shape: Shape
              ) -> tuple[list[int], Axes, Shape]:
    """The axes that are cut and cannot be kept, how the others lie, and the shape of a piece."""
    place = _kept_axes(mesh, axes, before, shape)
    lost, axes = _lost_and_kept(axes, place, len(shape))
    return lost, axes, Sharding(mesh, axes).local(shape)


def _lost_and_kept(before: Axes, place: dict[int, int], rank: int) -> tuple[list[int], Axes]:
    """The axes that are cut and have no place, and how the new ones lie."""
    axes: list[str | None] = [None] * rank
    for axis, name in enumerate(before):
        if name is not None and axis in place:
            axes[place[axis]] = name
    lost = [axis for axis, name in enumerate(before) if name is not None and axis not in place]
    return lost, tuple(axes)


def _kept_axes(mesh: Mesh, axes: Axes, before: Shape, shape: Shape) -> dict[int, int]:
    """The axes of a value that are cut, each with the axis of the new shape that can be."""
    found = {}
    for old, new in _blocks(before, shape):
        first = next((axis for axis in old if before[axis] != 1), None)
        target = next((axis for axis in new if shape[axis] != 1), None)
        name = None if first is None else axes[first]
        if first is None or target is None or name is None:
            continue
        count = mesh.extent(name)
        even = before[first] % count == 0 and shape[target] % count == 0
        if even or before[first] == shape[target]:
            found[first] = target
    return found


def _blocks(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """The least runs of axes of two shapes that have equally many elements."""
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = list[int](), list[int]()
        a = b = 1
        while not left or not right or a != b:
            if (a <= b or j == len(new)) and i < len(old):
                left.append(i)
                a, i = a * old[i], i + 1
            elif j < len(new):
                right.append(j)
                b, j = b * new[j], j + 1
            else:
                break
        yield left, right
