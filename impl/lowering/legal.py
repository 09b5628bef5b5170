"""What a language has no operation or type for, made of what it has. Chapter: spec/lowering.md.

Needs: a kernel after its steps. Guarantees: the same values, and no node to which a rule of the
language applies. A language names the rules that it wants; those that all want are `COMMON`.
"""
from __future__ import annotations

from collections.abc import Callable, Collection

from impl.dtypes import ALL, HALF, DType, dtypes
from impl.ir import FALSE, FLOAT_ONLY, TRUE, Ops, UOp
from impl.rewrite import PatternMatcher, Rule, UPat, applies, graph_rewrite
from impl.rewrite.folding import FLOATS, INTEGERS, WHOLE
from impl.settings import get

#: What an operation on bools is among those that tell whether its result is not 0.
OF_BOOLS = {Ops.ADD: Ops.OR, Ops.MAXIMUM: Ops.OR, Ops.MUL: Ops.AND, Ops.MINIMUM: Ops.AND,
            Ops.FLOORDIV: Ops.AND, Ops.SUB: Ops.CMPNE, Ops.XOR: Ops.CMPNE}
#: Operations on floats that round.
_ROUNDING = sorted(FLOAT_ONLY | {Ops.ADD, Ops.SUB, Ops.MUL, Ops.POW})
_WHOLE_OPERATIONS = (Ops.NEG, Ops.ADD, Ops.SUB, Ops.MUL, Ops.FLOORDIV, Ops.FLOORMOD, Ops.MAXIMUM,
                     Ops.MINIMUM, Ops.POW, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR)
#: The unsigned numbers of each size, in bytes, and all types that are others.
_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_NO_BITS = frozenset(d for d in ALL if d not in _BITS.values())
_SHORT = frozenset(d for d in ALL if d.kind in "iu" and d.itemsize < 4)


def _as(node: UOp, dtype: DType) -> UOp:
    return UOp.const(dtype, node.arg) if node.op is Ops.CONST else UOp(Ops.CAST, dtype, (node,))


def _computed_in(node: UOp, dtype: DType) -> UOp:
    """The operation on operands of another type, and its result as one of its own."""
    found = UOp(node.op, dtype, tuple([_as(source, dtype) for source in node.src]), node.arg)
    return UOp(Ops.CAST, node.dtype, (found,))


def _by_way_of(node: UOp, dtype: DType) -> UOp:
    """A cast in two steps."""
    return UOp(Ops.CAST, node.dtype, (_as(node.src[0], dtype),))


def _not(b: UOp) -> UOp:
    return UOp(Ops.CMPNE, dtypes.bool, (b, TRUE))


def _bools(op: Ops, *sources: UOp) -> UOp:
    return UOp(op, dtypes.bool, sources)


def _of_bits(place: UOp) -> UOp:
    """A place in memory that holds unsigned numbers."""
    bits = _BITS[place.dtype.itemsize]
    return place.replace(dtype=bits, src=(place.src[0].replace(dtype=bits), *place.src[1:]))


def _store_bits(node: UOp, place: UOp, x: UOp) -> UOp:
    bits = _BITS[place.dtype.itemsize]
    stored = _of_bits(place), UOp(Ops.BITCAST, bits, (x,))
    return node.replace(dtype=bits, src=(*stored, *node.src[2:]))


def _bits_of_a_half(node: UOp, x: UOp) -> UOp | None:
    """By way of an unsigned number, between a half and what is none."""
    bits = dtypes.uint16
    if node.dtype in HALF and x.dtype is not bits:
        return UOp(Ops.BITCAST, node.dtype, (
            UOp(Ops.BITCAST if x.dtype in HALF else Ops.CAST, bits, (x,)),))
    if x.dtype in HALF and node.dtype is not bits:
        return UOp(Ops.CAST, node.dtype, (UOp(Ops.BITCAST, bits, (x,)),))
    return None


_x, _b, _c = UPat.var("x"), UPat.var("b", dtypes.bool), UPat.var("c", dtypes.bool)


def _pat(ops: Ops | list[Ops], dtype: DType | Collection[DType], *src: UPat) -> UPat:
    return UPat(ops, dtype, src or None, name="node")


def _list(*rows: tuple[str, str, UPat, Callable[..., UOp | None]]) -> PatternMatcher:
    # r[impl rewrite.rule.named]
    return PatternMatcher([Rule(pattern, function, name, reason)
                           for name, reason, pattern, function in rows])


# r[impl kernel.integer.value, kernel.half.wide, dtypes.cast.float]
#: What every language wants: arithmetic of bools and of halves, and casts that take two steps.
COMMON = _list(
    ("b + c", "a result of bools is true where it is not 0, which needs no sum",
     _pat(list(OF_BOOLS), dtypes.bool, _b, _c),
     lambda node, b, c: _bools(OF_BOOLS[node.op], b, c)),
    ("b ** c", "0 to the power of 1 is 0, and every other power of bools is 1",
     _pat(Ops.POW, dtypes.bool, _b, _c), lambda b, c: _bools(Ops.OR, b, _not(c))),
    ("b << c", "a bool that is shifted by 1 is gone",
     _pat([Ops.SHL, Ops.SHR], dtypes.bool, _b, _c), lambda b, c: _bools(Ops.AND, b, _not(c))),
    ("b mod c", "a remainder of 0 and 1 is 0", _pat(Ops.FLOORMOD, dtypes.bool, _b, _c),
     lambda: FALSE),
    ("-b", "1 becomes -1, which is not 0 either", _pat(Ops.NEG, dtypes.bool, _b), lambda b: b),
    ("b < c", "of two bools the first is less if it is false and the other true",
     _pat(Ops.CMPLT, dtypes.bool, _b, _c), lambda b, c: _bools(Ops.AND, _not(b), c)),
    ("b <= c", "of two bools the first is at most the other if it is false, or that is true",
     _pat(Ops.CMPLE, dtypes.bool, _b, _c), lambda b, c: _bools(Ops.OR, _not(b), c)),
    ("floor(n)", "a whole number is whole", _pat([Ops.TRUNC, Ops.FLOOR], WHOLE, _x), lambda x: x),
    ("h + h", "halves are held as float32, and rounded after each operation",
     _pat([Ops(op) for op in _ROUNDING], HALF), lambda node: _computed_in(node, dtypes.float32)),
    ("1 / x", "a reciprocal is a quotient, and rounded as one", _pat(Ops.RECIPROCAL, FLOATS, _x),
     lambda x: UOp(Ops.DIV, x.dtype, (UOp.const(x.dtype, 1), x))),
    ("bool(x)", "what is not 0 is true",
     _pat(Ops.CAST, dtypes.bool, UPat.var("x", FLOATS | INTEGERS)),
     lambda x: _bools(Ops.CMPNE, x, UOp.const(x.dtype, 0))),
    ("half(n)", "halves are made of float32", _pat(Ops.CAST, HALF, UPat.var("x", WHOLE)),
     lambda node, x: _by_way_of(node, dtypes.float32)),
    ("bfloat16(double)", "halves are made of float32",
     _pat(Ops.CAST, dtypes.bfloat16, UPat.var("x", dtypes.float64)),
     lambda node, x: _by_way_of(node, dtypes.float32)),
    ("short(x)", "what fits into 32 bits wraps around, as elsewhere",
     _pat(Ops.CAST, _SHORT, UPat.var("x", FLOATS)), lambda node, x: _by_way_of(node, dtypes.int32)),
)
#: Where a float becomes an unsigned integer by way of one that has room for negative ones.
UNSIGNED_CASTS = _list(
    ("uint32(x)", "what fits into 64 bits wraps around, as elsewhere",
     _pat(Ops.CAST, dtypes.uint32, UPat.var("x", FLOATS)),
     lambda node, x: _by_way_of(node, dtypes.int64)),
)
#: For a language without pointers, whose memory is words, whose integers have 32 bits at least,
#: whose bools are no numbers, and in which what is unsigned has no sign to change.
WORDS = _list(
    ("short + short", "short integers are held in 32 bits, and cut back after each operation",
     _pat(list(_WHOLE_OPERATIONS), _SHORT),
     lambda node: _computed_in(node, dtypes.int32 if node.dtype.kind == "i" else dtypes.uint32)),
    ("-n", "a whole number is negative by being taken from 0", _pat(Ops.NEG, INTEGERS, _x),
     lambda x: UOp(Ops.SUB, x.dtype, (UOp.const(x.dtype, 0), x))),
    ("number(b)", "true is 1, and false is 0", _pat(Ops.CAST, FLOATS | INTEGERS, _b),
     lambda node, b: UOp(Ops.WHERE, node.dtype, (b, UOp.const(node.dtype, 1),
                                                 UOp.const(node.dtype, 0)))),
    ("load x", "memory holds bits, of which a value is made",
     UPat(Ops.LOAD, _NO_BITS, src=(UPat(Ops.INDEX, name="place"),), name="node"),
     lambda node, place: UOp(Ops.BITCAST, node.dtype, (
         node.replace(dtype=_BITS[node.dtype.itemsize], src=(_of_bits(place),)),))),
    ("store x", "memory holds bits, which are made of a value",
     UPat(Ops.STORE, src=(UPat(Ops.INDEX, _NO_BITS, name="place"), _x), name="node",
          allow_any_len=True), _store_bits),
    ("bits of bits", "the same bits again", UPat(Ops.BITCAST, src=(UPat(Ops.BITCAST, src=(_x,)),),
                                                 name="node"),
     lambda node, x: x if node.dtype is x.dtype else None),
    ("bits of n", "whole numbers of one size are equal where they wrap around",
     _pat(Ops.BITCAST, WHOLE, UPat.var("x", WHOLE)),
     lambda node, x: UOp(Ops.CAST, node.dtype, (x,))),
    ("bits of a half", "halves are made of unsigned numbers, and these of halves",
     UPat(Ops.BITCAST, src=(_x,), name="node"), _bits_of_a_half),
)


def legalize(ast: UOp, rules: PatternMatcher) -> UOp:
    """The kernel in what a language has: the rules of the language, until none applies."""
    # r[impl lowering.legal.exact+2]
    if not applies(ast, rules) and not get("TRACK_MATCH_STATS"):
        return ast
    return graph_rewrite(ast, rules, name="legalize")
