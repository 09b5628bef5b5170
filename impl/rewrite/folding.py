"""Operations on numbers, carried out where it is certain what a device would get, and casts that
lose nothing. Chapter: spec/rewrite.md."""
from __future__ import annotations

import math
from collections.abc import Callable

from impl.dtypes import ALL, DType, Scalar, dtypes
from impl.ir import FALSE, TRUE, Ops, UOp
from impl.symbolic.bounds import bounds

INTEGERS = frozenset([d for d in ALL if d.kind in "iu"] + [dtypes.index])
FLOATS = frozenset(d for d in ALL if d.kind == "f")
WHOLE = INTEGERS | {dtypes.bool}
#: Bits of the significand: all whole numbers of that many bits are numbers of the type.
_SIGNIFICAND = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}


def _shift(left: int, right: int, dtype: DType, up: bool) -> int | None:
    if not 0 <= right < 8 * dtype.itemsize:
        return None
    return left << right if up else left >> right


_WHOLE_MEANING: dict[Ops, Callable[[int, int], int]] = {
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.FLOORDIV: lambda a, b: a // b if b else 0,
    Ops.FLOORMOD: lambda a, b: a % b if b else 0,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.MAXIMUM: max,
    Ops.MINIMUM: min,
}
_COMPARISON: dict[Ops, Callable[[Scalar, Scalar], bool]] = {
    Ops.CMPLT: lambda a, b: a < b,
    Ops.CMPLE: lambda a, b: a <= b,
    Ops.CMPEQ: lambda a, b: a == b,
    Ops.CMPNE: lambda a, b: a != b,
}
# Computed in 53 bits and rounded to 24, these four give what float32 arithmetic gives.
_FLOAT_MEANING: dict[Ops, Callable[[float, float], float]] = {
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.DIV: lambda a, b: a / b,
}


def fold_binary(node: UOp, a: UOp, b: UOp) -> UOp | None:
    """The number that an operation on two numbers gives, where that is certain."""
    if node.op in _COMPARISON:  # NaN compares in Python as it does in IEEE 754
        return TRUE if _COMPARISON[node.op](a.arg, b.arg) else FALSE
    value = _whole(node, a.arg, b.arg) if node.dtype in WHOLE else _floating(node, a.arg, b.arg)
    return None if value is None else UOp.const(node.dtype, value)


def _whole(node: UOp, a: int, b: int) -> int | None:
    if node.op in (Ops.SHL, Ops.SHR):
        return _shift(a, b, node.dtype, node.op is Ops.SHL)
    if node.dtype is dtypes.bool and node.op in (Ops.SUB, Ops.FLOORDIV, Ops.FLOORMOD):
        return None
    meaning = _WHOLE_MEANING.get(node.op)
    return None if meaning is None else meaning(a, b)  # UOp.const wraps around


def _floating(node: UOp, a: float, b: float) -> float | None:
    if node.op in (Ops.MAXIMUM, Ops.MINIMUM):
        if a != a or b != b:
            return math.nan
        if a == b == 0:
            return None  # which zero wins is not specified
        return max(a, b) if node.op is Ops.MAXIMUM else min(a, b)
    if node.dtype not in (dtypes.float32, dtypes.float64) or (node.op is Ops.DIV and b == 0):
        return None
    meaning = _FLOAT_MEANING.get(node.op)
    return None if meaning is None else meaning(a, b)


def fold_unary(node: UOp, a: UOp) -> UOp | None:
    """The number that an operation on a number gives, where that is certain."""
    value, dtype = a.arg, node.dtype
    if node.op is Ops.CAST:
        return cast_number(value, a.dtype, dtype)
    if node.op is Ops.NEG and dtype is not dtypes.bool:
        return UOp.const(dtype, -value)
    if node.op in (Ops.TRUNC, Ops.FLOOR) and dtype.kind == "f" and math.isfinite(value):
        whole = math.trunc(value) if node.op is Ops.TRUNC else math.floor(value)
        return UOp.const(dtype, math.copysign(whole, value) if whole == 0 else whole)
    return None


def cast_number(value: Scalar, source: DType, target: DType) -> UOp | None:
    """A number in another type; None where a device might find another one."""
    if source.kind == "f" and target.kind in "iu":
        if not math.isfinite(value) or not target.min <= math.trunc(value) <= target.max:
            return None  # unspecified
    return UOp.const(target, value)


def holds_all(target: DType, source: DType) -> bool:
    """Whether every value of `source` is a value of `target`."""
    if source is target or source.kind == "b":
        return True
    if target.kind == "b":
        return False
    if source.kind == "f":
        wider = _SIGNIFICAND[target] > _SIGNIFICAND[source] if target.kind == "f" else False
        return wider and target.itemsize > source.itemsize
    bits = 8 * source.itemsize - (source.kind == "i")
    if target.kind == "f":
        return bits <= _SIGNIFICAND[target]
    if source.kind == "i" and target.kind == "u":
        return False
    return bits <= 8 * target.itemsize - (target.kind == "i")


def fits(dtype: DType, low: int, high: int) -> bool:
    """Whether all whole numbers of an interval are values of an integer type."""
    return dtype is dtypes.index or bool(dtype.min <= low and high <= dtype.max)


def double_cast(node: UOp, inner: UOp, x: UOp) -> UOp | None:
    """A cast of a cast: the first one goes if it loses nothing."""
    if not holds_all(inner.dtype, x.dtype) and not (
            x.dtype in INTEGERS and inner.dtype in INTEGERS and fits(inner.dtype, *bounds(x))):
        return None
    return x if node.dtype is x.dtype else UOp(Ops.CAST, node.dtype, (x,))
