"""Values that are laid on a mesh, and brought from it to one device. Chapter: spec/multi.md."""
from __future__ import annotations

import math

from impl.gradient import nodes
from impl.ir import Ops, Shape, UOp
from impl.multi.mesh import TOGETHER, Mesh, Sharding
from impl.multi.pieces import Piece, axis_in_pieces, brought, with_sources
from impl.multi.transfers import Transfer
from impl.places import Place, copied_to, is_free
from impl.symbolic import identical


def placed_piece(given: Piece, wanted: Sharding) -> Piece:
    """A value that is laid on a mesh: from one device, or from another sharding."""
    if given.sharding is not None and given.sharding.mesh != wanted.mesh:
        given = Piece(on_one_device(given, given.sharding.mesh.members()[0]), given.shape)
    return _scattered(given, wanted) if given.sharding is None else brought(given, wanted.axes)


def copied_piece(node: UOp, given: Piece) -> Piece:
    """A copy: to a mesh it is one for each device; from a mesh it is the whole value."""
    if isinstance(node.arg, Mesh):
        return placed_piece(given, Sharding.copies(node.arg, len(given.shape)))
    if given.sharding is None:
        return Piece(with_sources(node, [given.node]), given.shape)
    return Piece(on_one_device(given, node.arg), given.shape)


def _scattered(given: Piece, wanted: Sharding) -> Piece:
    """A value of one device, cut into pieces for all of a mesh."""
    mesh = wanted.mesh
    if wanted.is_copies:
        sent = copied_to(given.node, Transfer("broadcast", mesh, mesh))
        return Piece(sent, given.shape, wanted)
    node, shape, cut = given.node, given.shape, wanted.cut
    place: dict[str, int] = {}
    for axis, name in enumerate(wanted.axes):
        if name is None:
            continue
        at = axis + len(place)
        node = axis_in_pieces(node, at, shape[axis], mesh.extent(name))
        whole, ones = nodes.shape_of(node), name.split(TOGETHER)
        node = nodes.reshape(node, (*whole[:at], *(mesh.axes[one] for one in ones),
                                    *whole[at + 1:]))
        place.update({one: at + number for number, one in enumerate(ones)})
    # All pieces of a device in one place: axes of the mesh first, in its order.
    front = [place[name] for name in cut]
    behind = [a for a in range(len(node.shape or ())) if a not in front]
    node = nodes.permute(node, (*front, *behind))
    local = wanted.local(shape)
    node = nodes.reshape(node, (math.prod(mesh.extent(name) for name in cut), *local))
    if len(cut) < len(mesh.axes):  # copies along the other axes
        node = _repeated_for(node, mesh, list(cut), local)
    sent = copied_to(node, Transfer("scatter", mesh, mesh))
    return Piece(sent, shape, wanted)


def _repeated_for(node: UOp, mesh: Mesh, names: list[str], local: Shape) -> UOp:
    """The pieces along some axes of a mesh, repeated for the devices along all others."""
    sizes = mesh.axes.items()
    shape = tuple(size if name in names else 1 for name, size in sizes)
    spread = nodes.expand(nodes.reshape(node, (*shape, *local)), (*mesh.axes.values(), *local))
    return nodes.reshape(spread, (len(mesh.devices), *local))


def on_one_device(given: Piece, device: Place) -> UOp:
    """The whole value of a mesh, on one device."""
    assert given.sharding is not None
    mesh, shape = given.sharding.mesh, given.shape
    settled = brought(given, given.axes)
    if given.sharding.is_copies:
        return copied_to(settled.node, Transfer("select", device, mesh))
    node = copied_to(settled.node, Transfer("gather", device, mesh))
    local = given.sharding.local(shape)
    node = nodes.reshape(node, (*mesh.axes.values(), *local))
    names, cut = list(mesh.axes), given.sharding.cut
    kept = tuple((0, size if name in cut else 1) for name, size in mesh.axes.items())
    node = nodes.shrink(node, (*kept, *((0, size) for size in local)))
    order: list[int] = [i for i, name in enumerate(names) if name not in cut]
    for axis, name in enumerate(given.axes):
        ones = name.split(TOGETHER) if name else []
        order += [*map(names.index, ones), len(names) + axis]
    node = nodes.permute(node, tuple(order))
    whole = tuple(size * given.sharding.count(axis) for axis, size in enumerate(local))
    return nodes.shrink(nodes.reshape(node, whole), tuple((0, size) for size in shape))


def leaf_piece(node: UOp, leaf: UOp) -> Piece:
    """What is in memory: on a mesh the buffer knows how it lies there."""
    buffer, version, _ = leaf.arg
    shape = node.shape or ()
    sharding = buffer.sharding(shape)
    if sharding is None:  # what is made of no memory is where it was computed, too
        return Piece(leaf if is_free(node) else node, shape)
    if sharding.is_copies and (node is leaf or identical(leaf.shape, shape)):
        return Piece(leaf, shape, sharding)
    return Piece(UOp(Ops.BUFFER, node.dtype, (), (buffer, version, sharding.local(shape))),
                 shape, sharding)
