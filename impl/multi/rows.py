"""Rows that are looked up, or combined into others. Chapter: spec/multi.md."""
from __future__ import annotations

import math

from impl.dtypes import dtypes
from impl.gradient import nodes
from impl.ir import Ops, UOp, identity
from impl.multi.coordinates import coordinate
from impl.multi.mesh import piece, together
from impl.multi.pieces import Piece, brought, freed, inside, with_sources
from impl.multi.transfers import Transfer
from impl.places import copied_to


def gathered_rows(node: UOp, given: list[Piece]) -> Piece:
    """Rows by their numbers. Where the rows are cut, each device looks up those that it has, and
    the bits of all are put together; or the rows are gathered, if that sends less.
    """
    index = brought(given[1], given[1].axes)
    taken = together(index.axes)
    rows = freed(given[0], [a for a, name in enumerate(given[0].axes)
                            if a and together([name]) & taken])
    assert rows.sharding is not None
    result = nodes.shape_of(node)
    name = rows.axes[0]
    if name is not None:
        nbytes = math.prod(result) * node.dtype.itemsize
        if together([name]) & taken or node.dtype.kind == "b" or 2 * nbytes > rows.nbytes:
            rows, name = freed(rows, [0]), None
    axes = index.axes + rows.axes[1:]
    sharding = rows.sharding.along(axes) if rows.sharding else None
    assert sharding is not None
    if name is None:
        found = UOp(Ops.GATHER, node.dtype, (rows.node, index.node))
        return Piece(found, result, sharding)
    return Piece(_looked_up(rows, index.node, name), result, sharding)


_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def _looked_up(rows: Piece, index: UOp, name: str) -> UOp:
    """The rows that stand on some device, as bits: zeros elsewhere, so that a sum is the row."""
    assert rows.sharding is not None
    mesh, size = rows.sharding.mesh, rows.shape[0]
    width = piece(size, mesh.extent(name))
    wide = nodes.cast(index, dtypes.int64)
    inside = UOp(Ops.CMPLT, dtypes.bool, (wide, UOp.const(dtypes.int64, size)))
    start = nodes.mul(nodes.cast(coordinate(mesh, name), dtypes.int64),
                      UOp.const(dtypes.int64, width))
    here = UOp(Ops.SUB, dtypes.int64, (wide, start))
    here = nodes.where(inside, here, UOp.const(dtypes.int64, -1))
    found = UOp(Ops.GATHER, rows.node.dtype, (rows.node, here))
    bits = _BITS[found.dtype.itemsize]
    total = copied_to(UOp(Ops.BITCAST, bits, (found,)),
                  Transfer("all-reduce", mesh, mesh, name, Ops.ADD))
    return UOp(Ops.BITCAST, rows.node.dtype, (total,))


def scattered_rows(node: UOp, given: list[Piece]) -> Piece:
    """Rows combined into others. Where the rows that come are cut, each device combines its own
    with nothing, and the results of all are due.
    """
    base, index, values = (brought(one, one.axes) for one in given)
    name = values.axes[0]
    if name is None or node.arg is None or together([name]) & together(base.axes[1:]):
        return _whole_scatter(node, base, index, values)
    values = brought(values, (name, *base.axes[1:]))
    index = brought(index, (name,))
    base = freed(base, [0])
    assert base.sharding is not None
    place, mask = index.node, inside(index, 0)
    if mask is not None:  # r[impl multi.uneven.masked]
        place = nodes.where(mask, place, UOp.const(place.dtype, -1)) \
            if place.dtype.kind == "i" else place
        if place.dtype.kind != "i":
            return _whole_scatter(node, base, index, values)
    start = -0.0 if node.arg is Ops.ADD and node.dtype.kind == "f" else \
        identity(node.arg, node.dtype)
    begin = nodes.constant(base.node)
    alone = begin is not None and begin.arg == start  # r[impl collectives.due.scattered+2]
    if begin is not None and alone:
        start = begin.arg  # a zero with its sign
    empty = nodes.full(UOp.const(node.dtype, start), nodes.shape_of(base.node))
    mine = UOp(Ops.SCATTER, node.dtype, (empty, place, values.node), node.arg)
    parts = Piece(mine, base.shape, base.sharding, ((name, node.arg),))
    if alone:
        return parts
    total = brought(parts, base.axes).node
    return Piece(UOp(node.arg, node.dtype, (base.node, total)), base.shape, base.sharding)


def _whole_scatter(node: UOp, base: Piece, index: Piece, values: Piece) -> Piece:
    base = freed(base, [0])
    index = freed(index, [0])
    values = brought(values, (None, *base.axes[1:]))
    sources = [base.node, index.node, values.node]
    return Piece(with_sources(node, sources), base.shape, base.sharding)
