"""Algebra on scalars that never changes a result, not even by a bit. Chapter: spec/rewrite.md.

What is true of numbers is not always true of floating numbers: `x + 0.0` turns -0.0 into 0.0, and
`x * 0.0` is NaN for an infinite x. Each rule below holds for every value of the types that it names
(r[rewrite.simplify.exact]).
"""
from __future__ import annotations

import math
from collections.abc import Callable

from impl.dtypes import dtypes
from impl.ir import BINARY, COMPARISONS, FALSE, TRUE, UNARY, Ops, UOp
from impl.rewrite.folding import (
    FLOATS,
    INTEGERS,
    NEUTRAL,
    WHOLE,
    compare_whole,
    double_cast,
    fits,
    fold_binary,
    fold_unary,
)
from impl.rewrite.matcher import PatternMatcher
from impl.rewrite.patterns import UPat
from impl.rewrite.rule import Rule
from impl.rewrite.walk import Maker, applies, graph_rewrite
from impl.settings import get
from impl.symbolic.bounds import bounds


def _zero(node: UOp) -> UOp:
    return UOp.const(node.dtype, 0)


def _divide_by_power(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x / 2**k is x * 2**-k: both round the same real number."""
    mantissa, exponent = math.frexp(abs(c.arg))
    if mantissa != 0.5 or not -14 <= exponent <= 14:  # the reciprocal is normal in every type
        return None
    return UOp(Ops.MUL, node.dtype, (x, UOp.const(node.dtype, 1.0 / c.arg)))


def _decided(node: UOp, x: UOp, y: UOp) -> UOp | None:
    """A comparison of whole numbers whose bounds say how it comes out."""
    (low, high), (least, most) = bounds(x), bounds(y)
    apart, one = high < least or most < low, low == high == least == most
    always, never = {Ops.CMPLT: (high < least, low >= most), Ops.CMPLE: (high <= least, low > most),
                     Ops.CMPEQ: (one, apart), Ops.CMPNE: (apart, one)}[node.op]
    return TRUE if always else FALSE if never else None


def _greater(x: UOp, y: UOp) -> UOp | None:
    (low, high), (least, most) = bounds(x), bounds(y)
    return x if low >= most else y if least >= high else None


def _smaller(x: UOp, y: UOp) -> UOp | None:
    (low, high), (least, most) = bounds(x), bounds(y)
    return x if high <= least else y if most <= low else None


def _below(x: UOp, c: UOp) -> bool:
    low, high = bounds(x)
    return low >= 0 and high < c.arg


def _divided_product(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x*c // c is x, and x*c mod c is 0, if the product is not too large for its type."""
    low, high = sorted(value * c.arg for value in bounds(x))
    if c.arg == 0 or not fits(node.dtype, low, high):
        return None
    return x if node.op is Ops.FLOORDIV else _zero(node)


def _divided_sum(node: UOp, x: UOp, c: UOp, y: UOp) -> UOp | None:
    """(x*c + y) // c is x, and the remainder is y, if 0 <= y < c and all fits into the type."""
    if c.arg <= 0 or not _below(y, c):
        return None
    (low, high), (least, most) = bounds(x), bounds(y)
    inside = fits(node.dtype, low * c.arg, high * c.arg) \
        and fits(node.dtype, low * c.arg + least, high * c.arg + most)
    return None if not inside else x if node.op is Ops.FLOORDIV else y


def _together(node: UOp, x: UOp, a: UOp, b: UOp) -> UOp:
    """(x + a) + b is x + (a + b), and the same for products: whole numbers wrap around."""
    number = a.arg + b.arg if node.op is Ops.ADD else a.arg * b.arg
    return UOp(node.op, node.dtype, (x, UOp.const(node.dtype, number)))


_x, _y, _z = UPat.var("x"), UPat.var("y"), UPat.var("z")
_whole_x, _integer_x = UPat.var("x", WHOLE), UPat.var("x", INTEGERS)
_integer_y, _condition = UPat.var("y", INTEGERS), UPat.var("c", dtypes.bool)
_bool_x = UPat.var("x", dtypes.bool)
_a, _b, _c = UPat.cvar("a"), UPat.cvar("b"), UPat.cvar("c")
_0, _1, _TRUE, _FALSE = map(UPat.const, (0, 1, True, False))
_SIGNED = INTEGERS | FLOATS
_number = UPat(Ops.CAST, FLOATS, (_integer_x,), name="y")
_COMPARISONS = [Ops(op) for op in sorted(COMPARISONS)]


def _pat(ops: Ops | list[Ops], *src: UPat, dtype: object = None, name: str = "node") -> UPat:
    """An operation on sources in this order, captured."""
    return UPat(ops, dtype, src, name=name)  # type: ignore[arg-type]


def _alu(op: Ops, *src: UPat) -> UPat:
    return UPat.alu(op, *src, name="node")


def _neutral(op: Ops) -> UPat:
    """An operation on x and a number that changes nothing."""
    test = NEUTRAL[op]
    return UPat.alu(op, _x, UPat(Ops.CONST, where=lambda number: test(number.arg)))


def _list(*rows: tuple[str, str, UPat, Callable[..., UOp | None]]) -> PatternMatcher:
    # r[impl rewrite.rule.named]
    return PatternMatcher([Rule(pattern, function, name, reason)
                           for name, reason, pattern, function in rows])


#: Rules whose result has the shape and the element type of what they replace.
ALGEBRA = _list(
    ("fold binary", "what is known need not be computed each time",
     _pat([Ops(op) for op in BINARY], _a, _b), fold_binary),
    ("fold unary", "what is known need not be computed each time",
     _pat([Ops(op) for op in UNARY], _a), fold_unary),
    # any type: `NEUTRAL` says which numbers change nothing, here and where tensors are made
    ("x + 0", "zero changes no number; of floats it is minus zero, which keeps the sign of a zero",
     _neutral(Ops.ADD), lambda x: x),
    ("x - 0", "zero taken away changes no number, and no sign of a zero", _neutral(Ops.SUB),
     lambda x: x),
    ("x * 1", "one changes no number", _neutral(Ops.MUL), lambda x: x),
    ("x / 1", "a number is its own quotient by one", _neutral(Ops.DIV), lambda x: x),
    ("x // 1", "a whole number is its own quotient by one", _neutral(Ops.FLOORDIV), lambda x: x),
    ("x | 0", "zero has no bit to add", _neutral(Ops.OR), lambda x: x),
    ("x ^ 0", "zero has no bit to change", _neutral(Ops.XOR), lambda x: x),
    ("x & true", "the other condition decides", _neutral(Ops.AND), lambda x: x),
    ("x << 0", "a shift by nothing moves nothing", _neutral(Ops.SHL), lambda x: x),
    ("x >> 0", "a shift by nothing moves nothing", _neutral(Ops.SHR), lambda x: x),
    # whole numbers and bools: they wrap around, and nothing is lost
    ("x - x", "no whole number differs from itself", _alu(Ops.SUB, _integer_x, _x),
     lambda x: _zero(x)),
    ("x * 0", "no whole number is infinite", _alu(Ops.MUL, _integer_x, _0), lambda x: _zero(x)),
    ("x mod 1", "one leaves no remainder", _alu(Ops.FLOORMOD, _integer_x, _1), lambda x: _zero(x)),
    ("x & x", "a choice between equals is none",
     _pat([Ops.AND, Ops.OR, Ops.MAXIMUM, Ops.MINIMUM], _x, _x), lambda x: x),
    ("x ^ x", "equal bits differ nowhere", _alu(Ops.XOR, _whole_x, _x), lambda x: _zero(x)),
    ("x & 0", "no bit is in both", _alu(Ops.AND, _whole_x, _0), lambda x: _zero(x)),
    ("x | true", "one condition that holds is enough", _alu(Ops.OR, _bool_x, _TRUE),
     lambda x: TRUE),
    ("x + a + b", "whole numbers may be added in any order",
     _alu(Ops.ADD, UPat.alu(Ops.ADD, _integer_x, _a), _b), _together),
    ("x * a * b", "whole numbers may be multiplied in any order",
     _alu(Ops.MUL, UPat.alu(Ops.MUL, _integer_x, _a), _b), _together),
    # whole numbers whose bounds are known
    ("x < y, decided", "the bounds of both sides say how a comparison comes out",
     _pat(_COMPARISONS, _integer_x, _integer_y), _decided),
    ("max(x, y), decided", "one side is never the smaller one",
     _pat(Ops.MAXIMUM, _integer_x, _integer_y), _greater),
    ("min(x, y), decided", "one side is never the greater one",
     _pat(Ops.MINIMUM, _integer_x, _integer_y), _smaller),
    ("x // c, small", "a number from 0 to below the divisor has the quotient 0",
     _pat(Ops.FLOORDIV, _integer_x, _c), lambda x, c: _zero(x) if _below(x, c) else None),
    ("x mod c, small", "a number from 0 to below the divisor is its own remainder",
     _pat(Ops.FLOORMOD, _integer_x, _c), lambda x, c: x if _below(x, c) else None),
    ("x*c // c", "a product that fits into its type is divided without a remainder",
     _pat([Ops.FLOORDIV, Ops.FLOORMOD], UPat.alu(Ops.MUL, _integer_x, _c), _c), _divided_product),
    ("(x*c + y) // c", "a number is its quotient times the divisor, and the remainder",
     _pat([Ops.FLOORDIV, Ops.FLOORMOD],
          UPat.alu(Ops.ADD, UPat.alu(Ops.MUL, _integer_x, _c), _y), _c), _divided_sum),
    # comparisons; a NaN differs from itself
    ("x == x", "every whole number equals itself",
     _pat([Ops.CMPEQ, Ops.CMPLE], _whole_x, _x), lambda x: TRUE),
    ("x != x", "no whole number differs from itself", _pat(Ops.CMPNE, _whole_x, _x),
     lambda x: FALSE),
    ("x < x", "nothing is less than itself, a NaN neither", _pat(Ops.CMPLT, _x, _x),
     lambda x: FALSE),
    ("float(n) == float(n)", "no whole number becomes a NaN",
     _pat([Ops.CMPEQ, Ops.CMPLE], _number, UPat.var("y")), lambda: TRUE),
    ("float(n) != float(n)", "no whole number becomes a NaN",
     _pat(Ops.CMPNE, _number, UPat.var("y")), lambda: FALSE),
    ("float(n) < c", "what holds each whole number of a type orders them as they are",
     UPat(_COMPARISONS, src=[_number, _c], name="node"), compare_whole),
    ("b == true", "a condition is what it says", _alu(Ops.CMPEQ, _bool_x, _TRUE), lambda x: x),
    ("b != false", "a condition is what it says", _alu(Ops.CMPNE, _bool_x, _FALSE), lambda x: x),
    ("not not b", "a condition denied twice holds", UPat([Ops.CMPNE, Ops.XOR], src=[
        UPat([Ops.CMPNE, Ops.XOR], src=[_bool_x, _TRUE]), _TRUE]), lambda x: x),
    # floating numbers
    ("x / 2**k", "both round the same real number, and a product is cheaper",
     _pat(Ops.DIV, _x, _c), _divide_by_power),
    # any type
    ("- -x", "the sign is changed twice",
     _pat(Ops.NEG, UPat(Ops.NEG, src=(UPat.var("x", _SIGNED),))), lambda x: x),
    ("x + -y", "a subtraction is one operation", _alu(Ops.ADD, _x, UPat(Ops.NEG, _SIGNED, (_y,))),
     lambda x, y: UOp(Ops.SUB, x.dtype, (x, y))),
    ("x - -y", "an addition is one operation", _alu(Ops.SUB, _x, UPat(Ops.NEG, _SIGNED, (_y,))),
     lambda x, y: UOp(Ops.ADD, x.dtype, (x, y))),
    ("where(constant)", "the other value is never taken",
     _pat(Ops.WHERE, _c, _x, _y), lambda c, x, y: x if c.arg else y),
    ("where(c, x, x)", "a choice between equals is none",
     _pat(Ops.WHERE, UPat(), _x, _x), lambda x: x),
    ("where(c, true, false)", "a condition is what it says",
     _pat(Ops.WHERE, _bool_x, _TRUE, _FALSE, dtype=dtypes.bool), lambda x: x),
    ("where(c, where(c, x, y), z)", "where the condition holds, it holds inside too",
     _pat(Ops.WHERE, _condition, UPat(Ops.WHERE, src=(_condition, _x, UPat())), _z),
     lambda node, c, x, z: node.replace(src=(c, x, z))),
    ("where(c, x, where(c, y, z))", "where the condition fails, it fails inside too",
     _pat(Ops.WHERE, _condition, _x, UPat(Ops.WHERE, src=(_condition, UPat(), _z))),
     lambda node, c, x, z: node.replace(src=(c, x, z))),
    ("where(x <= c, c, x)", "that is the greater one of two whole numbers",
     _pat(Ops.WHERE, UPat([Ops.CMPLT, Ops.CMPLE], src=(_integer_x, _c)), _c, _x),
     lambda x, c: UOp(Ops.MAXIMUM, x.dtype, (x, c))),
    ("cast to the same type", "nothing is converted",
     _pat(Ops.CAST, _x), lambda node, x: x if node.dtype is x.dtype else None),
    ("double cast", "the first conversion loses nothing, so that the second may begin before it",
     _pat(Ops.CAST, UPat(Ops.CAST, src=(_x,), name="inner")), double_cast),
    ("bitcast to the same type", "no bit is read otherwise",
     _pat(Ops.BITCAST, _x), lambda node, x: x if node.dtype is x.dtype else None),
)


def _same_shape(node: UOp, answer: UOp) -> bool:
    """In a kernel nothing has a shape. In a tensor graph `x * 0` cannot become one scalar zero."""
    return node.shape is None or answer.shape == node.shape


_SIMPLIFY = PatternMatcher(ALGEBRA.rules, _same_shape)


def simplify(graph: UOp, gate: Callable[[UOp], bool] | None = None) -> UOp:
    """The graph with numbers folded and idle operations gone; every value stays what it was."""
    # r[impl rewrite.simplify.exact]
    if is_simple(graph, gate) and not get("TRACK_MATCH_STATS"):
        return graph
    return graph_rewrite(graph, _SIMPLIFY, gate=gate, name="simplify")


def is_simple(graph: UOp, gate: Callable[[UOp], bool] | None = None) -> bool:
    """Whether no rule applies to a node: a glance at each, and nothing is made."""
    return not applies(graph, _SIMPLIFY, gate)


def simplifier() -> Maker:
    """What makes nodes of a kernel that are simple, of sources that are."""
    return Maker(ALGEBRA, "simplify")
