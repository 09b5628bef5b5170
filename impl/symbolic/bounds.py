"""The least and the greatest value of an index. Chapter: spec/symbolic.md."""
from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.ir import COMPARISONS, Ops, UOp, note_bounds

Index = UOp | int
Bounds = tuple[int, int]
_index, _bool = dtypes.index, dtypes.bool


@lru_cache(maxsize=4096)
def const(value: int) -> UOp:
    """The number as an index."""
    return UOp.const(_index, value)


def bounds(node: Index) -> Bounds:
    """The least and the greatest value that the node can have: always true, not always tight.

    r[symbolic.bounds.sound]. Floating nodes have no bounds and are an error.
    """
    if not isinstance(node, UOp):
        return node, node
    known = node.bounds
    if known is not None:
        return known
    stack = [node]
    while stack:
        top = stack[-1]
        waiting = [s for s in top.src if s.bounds is None and s.dtype.kind != "f"]
        if waiting and top.op in _BOUND_RULES:
            stack.extend(waiting)
        else:
            note_bounds(top, _bounds_of(stack.pop()))  # r[impl symbolic.bounds.sound]
    assert node.bounds is not None
    return node.bounds


def _bounds_of(node: UOp) -> Bounds:
    """The bounds of a node whose sources have theirs."""
    dtype = node.dtype
    if dtype.kind == "f":
        raise GraphError("bounds", f"{node!r} is a floating number", "ask only for integers")
    limits = int(dtype.min), int(dtype.max)
    rule = _BOUND_RULES.get(node.op)
    if rule is None or any(s.dtype.kind == "f" for s in node.src):
        return limits
    found = rule(node, [s.bounds or (0, 0) for s in node.src])
    # Index arithmetic is exact. Arithmetic in other types wraps around where it does not fit.
    fits = dtype is _index or (limits[0] <= found[0] and found[1] <= limits[1])
    return found if fits else limits


def _corners(combine: Callable[[int, int], int], left: Bounds, right: Bounds) -> Bounds:
    values = [combine(a, b) for a in left for b in right]
    return min(values), max(values)


def _quotient_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    (low, high), (least, most) = given
    if least <= 0 <= most:  # at most as large as when divided by 1 or -1
        extreme = max(abs(low), abs(high))
        return -extreme, extreme
    return _corners(lambda a, b: a // b, (low, high), (least, most))


def _remainder_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    (low, high), (least, most) = given
    if 0 <= low and high < least:
        return low, high
    if 0 < least == most and low // least == high // least:
        return low % least, high % least
    return min(least + 1, 0), max(most - 1, 0)


def _and_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    (low, high), (least, most) = given
    if low >= 0 or least >= 0:  # the one that is not negative limits the result
        return 0, min(b for a, b in given if a >= 0)
    return int(node.dtype.min), int(node.dtype.max)


def _or_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    if min(low for low, _ in given) < 0:
        return int(node.dtype.min), int(node.dtype.max)
    return 0, (1 << max(high for _, high in given).bit_length()) - 1


def _cast_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    low, high = given[0]
    if node.dtype is _bool:
        return int(low > 0 or high < 0), int((low, high) != (0, 0))
    if node.dtype.kind == "i" and (low < node.dtype.min or high > node.dtype.max):
        return int(node.dtype.min), int(node.dtype.max)  # it wraps around: any value may come out
    return low, high


def _shift_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    value, (least, most) = given
    if least < 0 or most >= node.dtype.bits:
        return int(node.dtype.min), int(node.dtype.max)
    if node.op is Ops.SHL:
        return _corners(lambda a, b: a << b, value, (least, most))
    return _corners(lambda a, b: a >> b, value, (least, most))


def _comparison_bounds(node: UOp, given: list[Bounds]) -> Bounds:
    return 0, 1


_BOUND_RULES: dict[Ops, Callable[[UOp, list[Bounds]], Bounds]] = {
    Ops.CONST: lambda node, given: (int(node.arg), int(node.arg)),
    Ops.DEFINE_VAR: lambda node, given: node.arg[1:],
    Ops.BIND: lambda node, given: given[0],
    Ops.IOTA: lambda node, given: (0, max(0, node.arg - 1)),
    # An empty loop has no values at all, so that any bounds are true.
    Ops.RANGE: lambda node, given: (0, max(0, given[0][1] - 1)),
    Ops.NEG: lambda node, given: (-given[0][1], -given[0][0]),
    Ops.ADD: lambda node, given: (given[0][0] + given[1][0], given[0][1] + given[1][1]),
    Ops.SUB: lambda node, given: (given[0][0] - given[1][1], given[0][1] - given[1][0]),
    Ops.MUL: lambda node, given: _corners(lambda a, b: a * b, given[0], given[1]),
    Ops.FLOORDIV: _quotient_bounds,
    Ops.FLOORMOD: _remainder_bounds,
    Ops.MAXIMUM: lambda node, given: (max(given[0][0], given[1][0]), max(given[0][1], given[1][1])),
    Ops.MINIMUM: lambda node, given: (min(given[0][0], given[1][0]), min(given[0][1], given[1][1])),
    Ops.WHERE: lambda node, given: (min(given[1][0], given[2][0]), max(given[1][1], given[2][1])),
    Ops.CAST: _cast_bounds,
    Ops.AND: _and_bounds,
    Ops.OR: _or_bounds,
    Ops.XOR: _or_bounds,
    Ops.SHL: _shift_bounds,
    Ops.SHR: _shift_bounds,
    **{op: _comparison_bounds for op in COMPARISONS},
}
