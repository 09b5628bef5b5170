"""Operations on numbers, carried out where it is certain what a device would get, and casts that
lose nothing. Chapter: spec/rewrite.md."""
from __future__ import annotations

import math
from collections.abc import Callable

from impl.dtypes import EVERY, SIGNIFICANDS, DType, Scalar, dtypes
from impl.ir import FALSE, TRUE, Ops, UOp
from impl.symbolic.bounds import bounds

INTEGERS = frozenset([d for d in EVERY if d.kind in "iu"] + [dtypes.index])
FLOATS = frozenset(d for d in EVERY if d.kind == "f")
WHOLE = INTEGERS | {dtypes.bool}


def _shift(left: int, right: int, dtype: DType, up: bool) -> int | None:
    if not 0 <= right < dtype.bits:
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
# Computed in 53 bits and rounded to 24 or fewer, these four give what arithmetic in the type
# gives: 53 is more than twice 24, and 24 more than twice the digits of a half.
_FLOAT_MEANING: dict[Ops, Callable[[float, float], float]] = {
    Ops.ADD: lambda a, b: a + b,
    Ops.SUB: lambda a, b: a - b,
    Ops.MUL: lambda a, b: a * b,
    Ops.DIV: lambda a, b: a / b,
}


def _is_zero(number: Scalar) -> bool:
    return number == 0


def _is_one(number: Scalar) -> bool:
    return number == 1


def _is_plus_zero(number: Scalar) -> bool:
    return number == 0 and math.copysign(1.0, number) > 0


def _is_minus_zero(number: Scalar) -> bool:
    """Of whole numbers there is one zero."""
    return number == 0 and (isinstance(number, int) or math.copysign(1.0, number) < 0)


def _is_true(number: Scalar) -> bool:
    return number is True


#: Which numbers change nothing, right of an operation, and left of one that commutes: x + a is x
#: for these a, whatever x is.
#: -0.0 + 0.0 is 0.0, so 0.0 is not among those of an addition.
NEUTRAL: dict[Ops, Callable[[Scalar], bool]] = {
    Ops.ADD: _is_minus_zero, Ops.SUB: _is_plus_zero, Ops.MUL: _is_one, Ops.DIV: _is_one,
    Ops.FLOORDIV: _is_one, Ops.OR: _is_zero, Ops.XOR: _is_zero, Ops.AND: _is_true,
    Ops.SHL: _is_zero, Ops.SHR: _is_zero}


def fold_binary(node: UOp, a: UOp, b: UOp) -> UOp | None:
    """The number that an operation on two numbers gives, where that is certain."""
    return fold(node.op, a, b)


def fold(op: Ops, a: UOp, b: UOp) -> UOp | None:
    """The same of an operation that is not a node yet; its operands have one dtype."""
    if op in _COMPARISON:  # NaN compares in Python as it does in IEEE 754
        return TRUE if _COMPARISON[op](a.arg, b.arg) else FALSE
    dtype = a.dtype
    value = (_whole if dtype in WHOLE else _floating)(op, dtype, a.arg, b.arg)
    return None if value is None else UOp.const(dtype, value)


def _whole(op: Ops, dtype: DType, a: int, b: int) -> int | None:
    if op in (Ops.SHL, Ops.SHR):
        return _shift(a, b, dtype, op is Ops.SHL)
    if dtype is dtypes.bool and op in (Ops.SUB, Ops.FLOORDIV, Ops.FLOORMOD):
        return None
    meaning = _WHOLE_MEANING.get(op)
    return None if meaning is None else meaning(a, b)  # UOp.const wraps around


def _floating(op: Ops, dtype: DType, a: float, b: float) -> float | None:
    if op in (Ops.MAXIMUM, Ops.MINIMUM):
        if a != a or b != b:
            return math.nan
        if a == b == 0:
            return None  # which zero wins is not specified
        return max(a, b) if op is Ops.MAXIMUM else min(a, b)
    if op is Ops.DIV and b == 0:
        return None
    meaning = _FLOAT_MEANING.get(op)
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
        wider = SIGNIFICANDS[target] > SIGNIFICANDS[source] if target.kind == "f" else False
        return wider and target.itemsize > source.itemsize
    bits = source.bits - (source.kind == "i")
    if target.kind == "f":
        return bits <= SIGNIFICANDS[target]
    if source.kind == "i" and target.kind == "u":
        return False
    return bits <= target.bits - (target.kind == "i")


def fits(dtype: DType, low: int, high: int) -> bool:
    """Whether all whole numbers of an interval are values of an integer type."""
    return dtype is dtypes.index or bool(dtype.min <= low and high <= dtype.max)


def double_cast(node: UOp, inner: UOp, x: UOp) -> UOp | None:
    """A cast of a cast: the first one goes if it loses nothing."""
    if not holds_all(inner.dtype, x.dtype) and not (
            x.dtype in INTEGERS and inner.dtype in INTEGERS and fits(inner.dtype, *bounds(x))):
        return None
    return x if node.dtype is x.dtype else UOp(Ops.CAST, node.dtype, (x,))


def compare_whole(node: UOp, y: UOp, x: UOp, c: UOp) -> UOp | None:
    """A float that is the whole number x, compared with a number: x itself is compared."""
    if not holds_all(y.dtype, x.dtype):
        return None
    first, number = node.src[0] is y, c.arg
    if math.isfinite(number) and number != math.trunc(number):
        # Between two whole numbers: the one of them that keeps the answer; equal to none.
        number = math.nan if node.op in (Ops.CMPEQ, Ops.CMPNE) else \
            math.ceil(number) if (node.op is Ops.CMPLT) is first else math.floor(number)
    if math.isfinite(number) and fits(x.dtype, int(number), int(number)):
        whole = UOp.const(x.dtype, int(number))
        return UOp(node.op, dtypes.bool, (x, whole) if first else (whole, x))
    compared = _COMPARISON[node.op]  # and 0 stands for each whole number of the type
    return TRUE if (compared(0, number) if first else compared(number, 0)) else FALSE
