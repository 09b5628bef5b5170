"""Algebra on scalars that never changes a result, not even by a bit. Chapter: spec/rewrite.md.

What is true of numbers is not always true of floating numbers: `x + 0.0` turns -0.0 into 0.0, and
`x * 0.0` is NaN for an infinite x. Each rule below holds for every value of the types that it names
(r[rewrite.simplify.exact]).
"""
from __future__ import annotations

import math
from collections.abc import Callable

from impl.dtypes import ALL, DType, Scalar, dtypes
from impl.ir import BINARY, FALSE, TRUE, UNARY, Ops, UOp
from impl.rewrite.matcher import PatternMatcher, Rule, UPat, graph_rewrite

INTEGERS = frozenset([d for d in ALL if d.kind in "iu"] + [dtypes.index])
FLOATS = frozenset(d for d in ALL if d.kind == "f")
WHOLE = INTEGERS | {dtypes.bool}
#: Bits of the significand: all whole numbers of that many bits are numbers of the type.
_SIGNIFICAND = {dtypes.float16: 11, dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}


# --8<-- [start:fold]
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
# --8<-- [end:fold]


# --8<-- [start:casts]
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


def double_cast(node: UOp, inner: UOp, x: UOp) -> UOp | None:
    """A cast of a cast: the first one goes if it loses nothing."""
    if not holds_all(inner.dtype, x.dtype):
        return None
    return x if node.dtype is x.dtype else UOp(Ops.CAST, node.dtype, (x,))
# --8<-- [end:casts]


def _zero(node: UOp) -> UOp:
    return UOp.const(node.dtype, 0)


def _divide_by_power(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x / 2**k is x * 2**-k: both round the same real number."""
    mantissa, exponent = math.frexp(abs(c.arg))
    if mantissa != 0.5 or not -14 <= exponent <= 14:  # the reciprocal is normal in every type
        return None
    return UOp(Ops.MUL, node.dtype, (x, UOp.const(node.dtype, 1.0 / c.arg)))



# --8<-- [start:rules]
_x, _y = UPat.var("x"), UPat.var("y")
_whole_x, _integer_x = UPat.var("x", WHOLE), UPat.var("x", INTEGERS)
_float_x, _bool_x = UPat.var("x", FLOATS), UPat.var("x", dtypes.bool)
_a, _b, _c = UPat.const(name="a"), UPat.const(name="b"), UPat.const(name="c")


def _rule(name: str, pattern: UPat, function: Callable[..., UOp | None]) -> Rule:
    return Rule(pattern, function, name)


#: Rules whose result has the shape and the element type of what they replace.
ALGEBRA = PatternMatcher([
    _rule("fold binary", UPat([Ops(op) for op in BINARY], src=(_a, _b), name="node"), fold_binary),
    _rule("fold unary", UPat([Ops(op) for op in UNARY], src=(_a,), name="node"), fold_unary),
    # integers and bools
    _rule("x + 0", UPat.alu(Ops.ADD, _integer_x, UPat.const(0)), lambda x: x),
    _rule("x - 0", UPat.alu(Ops.SUB, _integer_x, UPat.const(0)), lambda x: x),
    _rule("x - x", UPat.alu(Ops.SUB, _integer_x, _x), lambda x: _zero(x)),
    _rule("x * 0", UPat.alu(Ops.MUL, _integer_x, UPat.const(0)), lambda x: _zero(x)),
    _rule("x * 1", UPat.alu(Ops.MUL, _x, UPat.const(1)), lambda x: x),
    _rule("x // 1", UPat.alu(Ops.FLOORDIV, _integer_x, UPat.const(1)), lambda x: x),
    _rule("x mod 1", UPat.alu(Ops.FLOORMOD, _integer_x, UPat.const(1)), lambda x: _zero(x)),
    _rule("x & x", UPat([Ops.AND, Ops.OR, Ops.MAXIMUM, Ops.MINIMUM], src=(_x, _x)), lambda x: x),
    _rule("x ^ x", UPat.alu(Ops.XOR, _whole_x, _x), lambda x: _zero(x)),
    _rule("x & 0", UPat.alu(Ops.AND, _whole_x, UPat.const(0)), lambda x: _zero(x)),
    _rule("x | 0", UPat([Ops.OR, Ops.XOR], src=[_whole_x, UPat.const(0)]), lambda x: x),
    _rule("x & true", UPat.alu(Ops.AND, _bool_x, UPat.const(True)), lambda x: x),
    _rule("x | true", UPat.alu(Ops.OR, _bool_x, UPat.const(True)), lambda x: TRUE),
    _rule("x << 0", UPat([Ops.SHL, Ops.SHR], src=(_integer_x, UPat.const(0))), lambda x: x),
    # comparisons; a NaN differs from itself
    _rule("x == x", UPat([Ops.CMPEQ, Ops.CMPLE], src=(_whole_x, _x)), lambda x: TRUE),
    _rule("x != x", UPat.alu(Ops.CMPNE, _whole_x, _x), lambda x: FALSE),
    _rule("x < x", UPat.alu(Ops.CMPLT, _x, _x), lambda x: FALSE),
    _rule("b == true", UPat.alu(Ops.CMPEQ, _bool_x, UPat.const(True)), lambda x: x),
    _rule("b != false", UPat.alu(Ops.CMPNE, _bool_x, UPat.const(False)), lambda x: x),
    _rule("not not b", UPat([Ops.CMPNE, Ops.XOR], src=[
        UPat([Ops.CMPNE, Ops.XOR], src=[_bool_x, UPat.const(True)]), UPat.const(True)]),
        lambda x: x),
    # floating numbers
    _rule("x + -0.0", UPat.alu(Ops.ADD, _float_x, UPat.const(-0.0)), lambda x: x),
    _rule("x - 0.0", UPat.alu(Ops.SUB, _float_x, UPat.const(0.0)), lambda x: x),
    _rule("x / 1.0", UPat.alu(Ops.DIV, _float_x, UPat.const(1.0)), lambda x: x),
    _rule("x / 2**k", UPat(Ops.DIV, src=(_float_x, _c), name="node"), _divide_by_power),
    # any type
    _rule("- -x", UPat(Ops.NEG, src=(UPat(Ops.NEG, src=(UPat.var("x", INTEGERS | FLOATS),)),)),
          lambda x: x),
    _rule("x + -y", UPat.alu(Ops.ADD, _x, UPat(Ops.NEG, INTEGERS | FLOATS, (_y,))),
          lambda x, y: UOp(Ops.SUB, x.dtype, (x, y))),
    _rule("x - -y", UPat.alu(Ops.SUB, _x, UPat(Ops.NEG, INTEGERS | FLOATS, (_y,))),
          lambda x, y: UOp(Ops.ADD, x.dtype, (x, y))),
    _rule("where(constant)", UPat(Ops.WHERE, src=(_c, _x, _y)), lambda c, x, y: x if c.arg else y),
    _rule("where(c, x, x)", UPat(Ops.WHERE, src=(UPat(), _x, _x)), lambda x: x),
    _rule("where(c, true, false)", UPat(Ops.WHERE, src=(
        _bool_x, UPat.const(True), UPat.const(False)), dtype=dtypes.bool), lambda x: x),
    _rule("where(c, where(c, x, y), z)", UPat(Ops.WHERE, src=(
        _c2 := UPat.var("c"), UPat(Ops.WHERE, src=(_c2, _x, UPat())), UPat.var("z")), name="node"),
        lambda node, c, x, z: node.replace(src=(c, x, z))),
    _rule("where(c, x, where(c, y, z))", UPat(Ops.WHERE, src=(
        _c2, _x, UPat(Ops.WHERE, src=(_c2, UPat(), UPat.var("z")))), name="node"),
        lambda node, c, x, z: node.replace(src=(c, x, z))),
    _rule("cast to the same type", UPat(Ops.CAST, src=(_x,), name="node"),
          lambda node, x: x if node.dtype is x.dtype else None),
    _rule("double cast", UPat(Ops.CAST, src=(UPat(Ops.CAST, src=(_x,), name="inner"),),
                              name="node"), double_cast),
    _rule("bitcast to the same type", UPat(Ops.BITCAST, src=(_x,), name="node"),
          lambda node, x: x if node.dtype is x.dtype else None),
])
# --8<-- [end:rules]


class _SameShape(PatternMatcher):
    """The rules, each of which applies only where the result has the shape of the node.

    In a kernel nothing has a shape. In a tensor graph `x * 0` cannot become one scalar zero.
    """

    def match(self, node: UOp, context: object = None,
              statistics: dict[str, list[int]] | None = None) -> tuple[UOp, Rule] | None:
        found = super().match(node, context, statistics)
        if found is None or (node.shape is not None and found[0].shape != node.shape):
            return None
        return found


_SIMPLIFY = _SameShape(ALGEBRA.rules)


def simplify(graph: UOp, gate: Callable[[UOp], bool] | None = None) -> UOp:
    """The graph with numbers folded and idle operations gone; every value stays what it was."""
    return graph_rewrite(graph, _SIMPLIFY, gate=gate)  # r[impl rewrite.simplify.exact]


