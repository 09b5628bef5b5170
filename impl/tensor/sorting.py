"""Order: where the elements of an axis stand when they are sorted. Chapter: spec/tensor.md.

Short axes are compared, every element with every other one. Long ones are sorted digit by digit,
from the last to the first, and keep their order where a digit is equal: a radix sort. What makes a
pass of it is a running count by key: how many elements with my digit came before me.
"""
from __future__ import annotations

import math

from impl.dtypes import DType, dtypes
from impl.gradient import nodes
from impl.gradient.nodes import binary, cast, scale, shape_of, where
from impl.ir import Ops, UOp
from impl.symbolic import greatest, is_symbolic
from impl.tensor.elementwise import compare
from impl.tensor.movement import joined

#: Axes of up to so many elements are sorted by comparing each element with each other one.
_COMPARED = 128
#: So many of the first elements are found by looking for the next one again and again.
_LOOKED_FOR = 8
#: Of rows that are so many times longer than what is asked for, only some blocks are sorted.
_MANY = 32
_DIGIT = 8
_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def order_key(x: UOp, descending: bool) -> UOp:
    """Unsigned numbers in the order of the elements; NaN is the greatest, -0.0 equals 0.0."""
    unsigned, kind = _UNSIGNED[x.dtype.itemsize], x.dtype.kind
    sign, ones = 1 << 8 * x.dtype.itemsize - 1, (1 << 8 * x.dtype.itemsize) - 1

    def number(value: int) -> UOp:
        return UOp.const(unsigned, value)

    if kind == "b":
        key = cast(x, unsigned)
    elif kind == "u":
        key = x
    else:
        bits = UOp(Ops.BITCAST, unsigned, (x,))
        key = binary(Ops.XOR, bits, number(sign))
        if kind == "f":  # the greater a negative number's bits, the less it is
            negative = compare(Ops.CMPLE, number(sign), bits)
            key = where(negative, binary(Ops.XOR, bits, number(ones)), key)
            key = where(compare(Ops.CMPEQ, x, UOp.const(x.dtype, 0)), number(sign), key)
            key = where(compare(Ops.CMPNE, x, x), number(ones), key)
    return binary(Ops.XOR, key, number(ones)) if descending else key


def sort_origin(x: UOp, descending: bool) -> UOp:
    """Where the elements of the last axis in order come from, as int32.

    Equal elements keep their order, and NaN counts as greater than every number.
    """
    shape = shape_of(x)
    count = shape[-1]
    rows = math.prod(shape[:-1])
    key = nodes.reshape(order_key(nodes.detach(x), descending), (rows, count))
    return nodes.reshape(_order(key), shape)


def _order(key: UOp) -> UOp:
    """Where the unsigned numbers of each row come from when they are sorted."""
    # r[impl tensor.sort.order, tensor.linear.work+2]
    return _by_rank(key) if greatest(shape_of(key)[1]) <= _COMPARED else _by_digits(key)


def _by_rank(key: UOp) -> UOp:
    """Each element's place is how many others come before it."""
    rows, count = shape_of(key)
    wide = rows, count, count
    mine = nodes.expand(nodes.reshape(key, (rows, count, 1)), wide)
    other = nodes.expand(nodes.reshape(key, (rows, 1, count)), wide)
    earlier = compare(Ops.CMPLT, nodes.expand(nodes.iota_along(count, 2, 3), wide),
                      nodes.expand(nodes.iota_along(count, 1, 3), wide))
    tie = binary(Ops.AND, compare(Ops.CMPEQ, other, mine), earlier)
    before = binary(Ops.OR, compare(Ops.CMPLT, other, mine), tie)
    rank = nodes.reduce(Ops.ADD, cast(before, dtypes.int32), (2,))
    number = nodes.expand(nodes.iota_along(count, 1, 2), (rows, count))
    nothing = nodes.full(UOp.const(dtypes.int32, 0), (rows, count))
    return nodes.scatter_along(None, nothing, nodes.reshape(rank, (rows, count)), number, 1)


def _by_digits(key: UOp) -> UOp:
    """A radix sort. Keys of up to 32 bits and the places that they come from are one number."""
    shape, bits = shape_of(key), 8 * key.dtype.itemsize
    place = nodes.expand(nodes.iota_along(shape[1], 1, 2), shape)
    if bits > 32:
        for low in range(0, bits, _DIGIT):
            to = _places(key, low)
            key, place = _moved(key, to), _moved(place, to)
        return place
    both = packed(key, place)
    for low in range(32, 32 + bits, _DIGIT):
        both = _moved(both, _places(both, low))
    return cast(binary(Ops.AND, both, UOp.const(dtypes.uint64, _LOW)), dtypes.int32)


def _places(key: UOp, low: int) -> UOp:
    """Where each element goes when they are ordered by the digit from bit `low` on."""
    rows, count = shape_of(key)
    most = 1 << _DIGIT
    digit = cast(binary(Ops.AND, binary(Ops.SHR, key, UOp.const(key.dtype, low)),
                        UOp.const(key.dtype, most - 1)), dtypes.int32)
    one = nodes.full(UOp.const(dtypes.int32, 1), (rows, count))
    rank = nodes.scan_by_key(Ops.ADD, one, digit, most, 1)
    nothing = nodes.full(UOp.const(dtypes.int32, 0), (rows, most))
    counts = nodes.scatter_along(Ops.ADD, nothing, digit, one, 1)
    first = nodes.sub(nodes.scan(Ops.ADD, counts, 1), counts)
    start = nodes.gather_along(first, digit, 1)
    return nodes.sub(nodes.add(start, rank), UOp.const(dtypes.int32, 1))


def _moved(x: UOp, places: UOp) -> UOp:
    nothing = nodes.full(UOp.const(x.dtype, 0), shape_of(x))
    return nodes.scatter_along(None, nothing, places, x, 1)


_LOW = (1 << 32) - 1


def packed(key: UOp, place: UOp) -> UOp:
    """A key of up to 32 bits and a place as one number, in the order of the keys."""
    wide: DType = dtypes.uint64
    high = binary(Ops.SHL, cast(key, wide), UOp.const(wide, 32))
    return binary(Ops.OR, high, cast(cast(place, dtypes.uint32), wide))


def first_origin(x: UOp, count: int, descending: bool) -> UOp | None:
    """Where the first of the sorted last axis come from; None if that is better asked of all."""
    shape = shape_of(x)
    if count < 1 or x.dtype.itemsize > 4 or any(is_symbolic(size) for size in shape):
        return None
    if math.prod(shape) == 0 or shape[-1] < (count if count <= _LOOKED_FOR else _MANY * count):
        return None
    rows, size = math.prod(shape[:-1]), shape[-1]
    key = nodes.reshape(order_key(nodes.detach(x), not descending), (rows, size))
    made = _one_by_one(key, count) if count <= _LOOKED_FOR else _of_the_best_blocks(key, count)
    return nodes.reshape(made, (*shape[:-1], count))


def _one_by_one(key: UOp, count: int) -> UOp:
    """The next one is the greatest of those less than the one before; no two are equal, since the
    place is a part of them.
    """
    shape, last = shape_of(key), 1
    place = nodes.expand(nodes.iota_along(shape[1], 1, 2), shape)
    both = packed(key, binary(Ops.XOR, place, UOp.const(place.dtype, -1)))
    found = [nodes.reduce(Ops.MAXIMUM, both, (last,))]
    while len(found) < count:
        less = compare(Ops.CMPLT, both, nodes.expand(found[-1], shape))
        rest = where(less, both, UOp.const(both.dtype, 0))
        found.append(nodes.reduce(Ops.MAXIMUM, rest, (last,)))
    together = found[0] if count == 1 else joined(found, last)
    low = cast(binary(Ops.AND, together, UOp.const(together.dtype, _LOW)), dtypes.uint32)
    return cast(binary(Ops.XOR, low, UOp.const(low.dtype, _LOW)), dtypes.int32)


def _of_the_best_blocks(key: UOp, count: int) -> UOp:
    """The greatest `count` numbers are in the `count` blocks whose greatest are the greatest."""
    rows, size = shape_of(key)
    block = 1 << max(1, round(math.log2(size / count) / 2))
    blocks = -(-size // block)
    padded = nodes.pad(key, ((0, 0), (0, blocks * block - size)))
    most = nodes.reduce(Ops.MAXIMUM, nodes.reshape(padded, (rows, blocks, block)), (2,))
    best = _greatest(nodes.reshape(most, (rows, blocks)), count)
    # In the order of their places, so that what is equal keeps its order.
    ascending = _order(cast(best, dtypes.uint32))
    best = nodes.reshape(nodes.gather_along(best, ascending, 1), (rows, count, 1))
    wide = rows, count, block
    inner = nodes.expand(nodes.iota_along(block, 2, 3), wide)
    place = nodes.add(scale(nodes.expand(best, wide), block), inner)
    place = nodes.reshape(place, (rows, count * block))
    chosen = _greatest(nodes.gather_along(padded, place, 1), count)
    return nodes.gather_along(place, chosen, 1)


def _greatest(key: UOp, count: int) -> UOp:
    """Where the greatest numbers of each row are, in order."""
    rows, _ = shape_of(key)
    turned = binary(Ops.XOR, key, UOp.const(key.dtype, (1 << 8 * key.dtype.itemsize) - 1))
    return nodes.shrink(_order(turned), ((0, rows), (0, count)))
