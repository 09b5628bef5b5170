"""Gradients of what is computed in order: running results, and rows that are written by index.

Chapter: spec/gradient.md. All of it is running results and scatters again, so a gradient costs as
much as its value, whatever the length.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Set

from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.gradient import nodes
from impl.gradient.nodes import cast, div, mul, shape_of, where
from impl.ir import Ops, UOp

Parts = Iterator[tuple[UOp, UOp]]


def _constant(node: UOp, value: float) -> UOp:
    return UOp.const(node.dtype, value)


def _equal(a: UOp, b: UOp) -> UOp:
    return UOp(Ops.CMPEQ, dtypes.bool, (a, b))


def scan(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """An element takes part in its own result and in all behind it."""
    source, (op, axis, *keys) = node.src[0], node.arg
    if keys:
        raise GraphError("gradient", "SCAN by key has no gradient rule",
                         "call .detach() on the tensor that it reads")
    if op is Ops.ADD:
        yield source, nodes.flipped_scan(Ops.ADD, gradient, axis)
    elif op is Ops.MUL:
        yield source, _products(node, gradient)
    else:
        yield source, _extremes(node, gradient)


def _products(node: UOp, gradient: UOp) -> UOp:
    """Of running products: without the element, which is a quotient unless it is 0.

    Behind the first zero all products are 0. So only that zero and what is before it matter; the
    zero itself has the products with a 1 in its place.
    """
    source, axis = node.src[0], node.arg[1]
    is_zero = _equal(source, _constant(node, 0))
    zeros = nodes.scan(Ops.ADD, cast(is_zero, dtypes.int32), axis)
    before, first = _equal(zeros, _constant(zeros, 0)), _equal(zeros, _constant(zeros, 1))
    first = UOp(Ops.AND, dtypes.bool, (first, is_zero))
    without = nodes.scan(Ops.MUL, where(first, _constant(node, 1), source), axis)
    quotient = div(nodes.flipped_scan(Ops.ADD, mul(gradient, node), axis),
                   where(before, source, _constant(node, 1)))
    at_zero = nodes.flipped_scan(Ops.ADD, mul(gradient, without), axis)
    # r[impl gradient.product.zero]
    return where(before, quotient, where(first, at_zero, _constant(node, 0)))


def _extremes(node: UOp, gradient: UOp) -> UOp:
    """Of running extremes: each result is the last element that was as extreme."""
    source, axis = node.src[0], node.arg[1]
    shape = shape_of(source)
    place = nodes.expand(nodes.iota_along(shape[axis], axis, len(shape)), shape)
    chosen = UOp(Ops.OR, dtypes.bool, (_equal(source, node),
                                       UOp(Ops.CMPNE, dtypes.bool, (source, source))))
    last = nodes.scan(Ops.MAXIMUM, where(chosen, place, _constant(place, 0)), axis)
    return nodes.scatter_along(Ops.ADD, nodes.full_like(source, 0), last, gradient, axis)


def gather(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """A row collects the gradients of all places that read it."""
    values, index = node.src
    shape, count = shape_of(values), math.prod(shape_of(index))
    rows = nodes.reshape(gradient, (count, *shape[1:]))
    yield values, nodes.scatter(Ops.ADD, nodes.full_like(values, 0),
                                nodes.reshape(index, (count,)), rows)


def scatter(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """A row of values takes part in the row that it was written to, if it was not replaced."""
    base, index, values = node.src
    if node.arg is Ops.ADD:
        own = gradient
        read = UOp(Ops.GATHER, gradient.dtype, (gradient, index))
    elif node.arg is None:
        own, read = _of_replaced(node, gradient)
    elif node.arg is Ops.MUL:
        own, read = _of_multiplied(node, gradient)
    else:
        own, read = _of_extremes(node, gradient)
    if base in leads:
        yield base, own
    if values in leads:
        yield values, read


def _rows(mark: UOp, shape: tuple[int, ...]) -> UOp:
    """One element for each row, spread over the rows."""
    ones = (*shape_of(mark), *(1 for _ in shape[1:]))
    return nodes.expand(nodes.reshape(mark, ones), shape)


def _of_replaced(node: UOp, gradient: UOp) -> tuple[UOp, UOp]:
    """The last writer of a row has its gradient."""
    base, index, values = node.src
    rows, count = shape_of(base)[0], shape_of(index)[0]
    number = nodes.iota(count)
    writer = nodes.scatter(None, nodes.full(_constant(number, -1), (rows,)), index, number)
    kept = _equal(writer, _constant(writer, -1))
    last = _equal(UOp(Ops.GATHER, writer.dtype, (writer, index)), number)
    read = UOp(Ops.GATHER, gradient.dtype, (gradient, index))
    return (where(_rows(kept, shape_of(base)), gradient, _constant(node, 0)),
            where(_rows(last, shape_of(values)), read, _constant(node, 0)))


def _of_multiplied(node: UOp, gradient: UOp) -> tuple[UOp, UOp]:
    """The product of all other factors, right beside zeros too."""
    base, index, values = node.src
    is_zero = _equal(values, _constant(node, 0))
    zeros = nodes.scatter(Ops.ADD, nodes.full(UOp.const(dtypes.int32, 0), shape_of(base)), index,
                          cast(is_zero, dtypes.int32))
    without = where(is_zero, _constant(node, 1), values)
    product = nodes.scatter(Ops.MUL, nodes.full_like(base, 1), index, without)
    none = _equal(zeros, _constant(zeros, 0))
    own = mul(gradient, where(none, product, _constant(node, 0)))

    def at(rows: UOp) -> UOp:
        return UOp(Ops.GATHER, rows.dtype, (rows, index))

    others = nodes.sub(at(zeros), cast(is_zero, dtypes.int32))
    share = div(at(mul(gradient, mul(base, product))), without)
    # r[impl gradient.product.zero]
    return own, where(_equal(others, _constant(others, 0)), share, _constant(node, 0))


def _of_extremes(node: UOp, gradient: UOp) -> tuple[UOp, UOp]:
    """All that are as extreme as the result share its gradient."""
    base, index, values = node.src

    def at(rows: UOp) -> UOp:
        return UOp(Ops.GATHER, rows.dtype, (rows, index))

    mine = cast(_equal(base, node), node.dtype)
    theirs = cast(_equal(values, at(node)), node.dtype)
    share = div(gradient, nodes.scatter(Ops.ADD, mine, index, theirs))
    return mul(mine, share), mul(theirs, at(share))  # r[impl gradient.max.tie]
