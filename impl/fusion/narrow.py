"""Floats of 8 bits and integers of 4 in a kernel, made of types that devices have. Chapter:
spec/dtypes.md.

A kernel holds a float of 8 bits as its bits in a uint8, and computes with a float32 that is
rounded after each operation. An integer of 4 bits is held in 8, and cut back.
"""
from __future__ import annotations

from collections.abc import Sequence

from impl.dtypes import FLOAT8, FORMATS, NARROW, DType, dtypes, float8_code
from impl.ir import COMPARISONS, ELEMENTWISE, Ops, UOp, toposort

#: Nodes that say where a value is, or hand it on; their bits are all that matters.
_PASSED = frozenset((Ops.PARAM, Ops.LOCAL, Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.WHERE, Ops.SINK))
_HELD = {dtypes.float8_e4m3fn: dtypes.uint8, dtypes.float8_e5m2: dtypes.uint8,
         dtypes.int4: dtypes.int8, dtypes.uint4: dtypes.uint8}
_U32, _F32 = dtypes.uint32, dtypes.float32


def expressed(ast: UOp) -> UOp:
    """The kernel without types that no device has."""
    order = toposort((ast,))
    if not any([node.dtype in NARROW for node in order]):
        return ast
    done: dict[UOp, UOp] = {}
    for node in order:
        done[node] = _expressed(node, [done[source] for source in node.src])
    return done[ast]


def _expressed(node: UOp, held: Sequence[UOp]) -> UOp:
    """A node whose sources are held as kernels hold them."""
    dtype, op = node.dtype, node.op
    if op in _PASSED:
        return node.replace(dtype=_HELD.get(dtype, dtype), src=tuple(held))
    if op is Ops.CONST and dtype in NARROW:
        number = float8_code(node.arg, dtype) if dtype in FLOAT8 else node.arg
        return UOp.const(_HELD[dtype], number)
    if op is Ops.BITCAST:
        return _bits(node, held[0])
    if op not in ELEMENTWISE and op is not Ops.REDUCE:
        return node.replace(src=tuple(held))
    sources = tuple([_number(each, source.dtype)
                     for each, source in zip(held, node.src, strict=True)])
    if dtype not in NARROW:
        if op is Ops.CAST and sources[0].dtype is dtype:
            return sources[0]
        return node.replace(src=sources)
    wide = _F32 if dtype in FLOAT8 else _HELD[dtype]
    if op is Ops.CAST:
        found = _cast(sources[0], wide)
    else:
        found = node.replace(dtype=dtypes.bool if op in COMPARISONS else wide, src=sources)
    return _coded(found, dtype) if dtype in FLOAT8 else _cut(found, dtype)


def _cast(x: UOp, wide: DType) -> UOp:
    if x.dtype is wide:
        return x
    if x.dtype.kind == "f" and wide.kind in "iu":  # cut off, as larger integers are
        x = UOp(Ops.CAST, dtypes.int32, (x,))
    return UOp(Ops.CAST, wide, (x,))


def _bits(node: UOp, held: UOp) -> UOp:
    """The same bits read as another type."""
    target = _HELD.get(node.dtype, node.dtype)
    seen = held if held.dtype is target else UOp(Ops.BITCAST, target, (held,))
    return _cut(seen, node.dtype) if node.dtype.bits == 4 else seen


def _number(held: UOp, dtype: DType) -> UOp:
    """What is computed with in place of a held value."""
    return _decoded(held, dtype) if dtype in FLOAT8 else held


def _cut(x: UOp, dtype: DType) -> UOp:
    """An integer of 8 bits as the 4 lowest have it."""
    four = UOp.const(x.dtype, 4)
    if dtype is dtypes.uint4:
        return UOp(Ops.AND, x.dtype, (x, UOp.const(x.dtype, 15)))
    return UOp(Ops.SHR, x.dtype, (UOp(Ops.SHL, x.dtype, (x, four)), four))


def _of(op: Ops, a: UOp, b: UOp | int) -> UOp:
    """An operation on words."""
    return UOp(op, _U32, (a, UOp.const(_U32, b) if isinstance(b, int) else b))


def _chosen(a: UOp, least: int, one: UOp | int, other: UOp) -> UOp:
    """One word where another is `least` or more, and else the other."""
    below = UOp(Ops.CMPLT, dtypes.bool, (a, UOp.const(_U32, least)))
    first = UOp.const(_U32, one) if isinstance(one, int) else one
    return UOp(Ops.WHERE, _U32, (below, other, first))


def _coded(x: UOp, dtype: DType) -> UOp:
    """The bits of a float32 that is rounded to nearest, ties to even: `dtypes.to_bits`."""
    # r[impl dtypes.narrow.rounded]
    digits, bias, most, nan = FORMATS[dtype]
    bits, drop = UOp(Ops.BITCAST, _U32, (x,)), 23 - digits
    size = _of(Ops.AND, bits, 0x7FFFFFFF)
    even = _of(Ops.ADD, _of(Ops.AND, _of(Ops.SHR, size, drop), 1), (1 << drop - 1) - 1)
    plain = _of(Ops.SUB, _of(Ops.SHR, _of(Ops.ADD, size, even), drop), bias << digits)
    # Below the least normal number: a sum with this one is rounded to the least step.
    step = UOp.const(_F32, 2.0 ** (bias - 127 - digits + 24))
    total = UOp(Ops.ADD, _F32, (UOp(Ops.BITCAST, _F32, (size,)), step))
    small = _of(Ops.SUB, UOp(Ops.BITCAST, _U32, (total,)), bias - digits + 24 << 23)
    code = _chosen(size, bias + 1 << 23, plain, small)
    code = _chosen(code, most + 1, nan if dtype is dtypes.float8_e4m3fn else most, code)
    code = _chosen(size, 0x7F800001, nan, code)
    signed = _of(Ops.OR, code, _of(Ops.AND, _of(Ops.SHR, bits, 24), 0x80))
    return UOp(Ops.CAST, dtypes.uint8, (signed,))


def _decoded(held: UOp, dtype: DType) -> UOp:
    """The float32 of the bits of a float of 8."""
    digits, bias, most, _ = FORMATS[dtype]
    code = UOp(Ops.CAST, _U32, (held,))
    size = _of(Ops.AND, code, 0x7F)
    moved = _of(Ops.SHL, size, 23 - digits)
    plain = _of(Ops.ADD, moved, bias << 23)
    number = UOp(Ops.CAST, _F32, (UOp(Ops.CAST, dtypes.int32, (size,)),))
    least = UOp(Ops.MUL, _F32, (number, UOp.const(_F32, 2.0 ** (bias - 126 - digits))))
    value = _chosen(size, 1 << digits, plain, UOp(Ops.BITCAST, _U32, (least,)))
    endless = 0x7FC00000 if dtype is dtypes.float8_e4m3fn else _of(Ops.ADD, moved, 2 * bias << 23)
    value = _chosen(size, most + (dtype is dtypes.float8_e4m3fn), endless, value)
    sign = _of(Ops.SHL, _of(Ops.AND, code, 0x80), 24)
    return UOp(Ops.BITCAST, _F32, (_of(Ops.OR, value, sign),))
