"""Sums of products of bytes, four at a time. Chapter: spec/blocking.md.

Processors have an instruction that multiplies four unsigned bytes with four signed ones and adds
the products to a 32-bit sum. `Dot` puts a sum of products of int8 in that form.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.dtypes import dtypes
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis
from impl.steps.declaration import Declaration
from impl.steps.step import Step, StepError, with_stores

#: Bytes of a word; a signed byte and this make the unsigned one with the same bits but the first.
_BYTES, _SIGN = 4, 0x80


def is_bytes(node: UOp) -> bool:
    """Whether a reduction is a sum over one loop of products of int8, computed in int32."""
    value = node.src[0]
    return (node.op is Ops.REDUCE and node.arg is Ops.ADD and node.dtype is dtypes.int32
            and len(node.src) == 2 and node.src[1].src[0].op is Ops.CONST
            and node.src[1].src[0].arg >= _BYTES and value.op is Ops.MUL
            and all(f.op is Ops.CAST and f.src[0].dtype is dtypes.int8 for f in value.src))


@dataclass(frozen=True)
class Dot(Step):
    """Sum products of int8 four at a time: a word has four elements of an operand.

    The instruction takes unsigned bytes on one side. a + 128 is one, with the bits of a but the
    first; so a b = (a + 128) b - 128 b, and what was added too much is a sum of its own, over one
    operand. Legal for the only loop of sums of products of int8 in int32, of four iterations or
    more. A rest is added as it is.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="four products of int8 at a time",
        why="four products of bytes at a time",
        loops=(RangeKind.REDUCE,),
        only="the only loop of sums of such products in int32, of four iterations or more")

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Integers wrap around: sums are equal in any order."""
        # r[impl steps.value.equal, kernel.integer.value]
        found = [n for n in known.order if n.op is Ops.REDUCE and loop in n.src[1:]]
        if not all(is_bytes(node) for node in found):
            raise StepError(self.name, "it is not the loop of sums of products of int8 alone, "
                            "or has fewer than 4 iterations", "leave it as it is")
        made = {node: _sum(node, loop) for node in found}
        stores = [store.replace(src=(store.src[0], store.src[1].substitute(made),
                                     *store.src[2:])) for store in known.ast.src]
        return with_stores(known, stores, self.name)


def _sum(node: UOp, loop: UOp) -> UOp:
    """The sum over whole words, without what is too much, and the sum over the rest."""
    size: int = loop.src[0].arg
    one, two = node.src[0].src
    words, again = (new_range(size // _BYTES, RangeKind.REDUCE) for _ in range(2))
    sign = _number(_SIGN * 0x01010101 - (1 << 32))
    unsigned = _apply(Ops.XOR, _word(one, loop, words), sign)
    total = _apply(Ops.SUB, _added(_apply(Ops.DOT, unsigned, _word(two, loop, words)), words),
                   _added(_apply(Ops.DOT, sign, _word(two, loop, again)), again))
    if rest := size % _BYTES:
        left = new_range(rest, RangeKind.REDUCE)
        last = symbolic.rebuild(node.src[0], {loop: symbolic.add(left, size - rest)})
        total = _apply(Ops.ADD, total, _added(last, left))
    return total


def _word(factor: UOp, loop: UOp, words: UOp) -> UOp:
    """Four elements of an operand in one int32, the first in the lowest byte."""
    found = None
    for place in range(_BYTES):
        at = symbolic.add(symbolic.mul(words, _BYTES), place)
        byte = _apply(Ops.AND, symbolic.rebuild(factor, {loop: at}), _number(255))
        moved = _apply(Ops.SHL, byte, _number(8 * place)) if place else byte
        found = moved if found is None else _apply(Ops.OR, found, moved)
    assert found is not None
    return found


def _number(value: int) -> UOp:
    return UOp.const(dtypes.int32, value)


def _apply(op: Ops, one: UOp, two: UOp) -> UOp:
    return UOp(op, dtypes.int32, (one, two))


def _added(value: UOp, loop: UOp) -> UOp:
    return UOp(Ops.REDUCE, dtypes.int32, (value, loop), Ops.ADD)


__all__ = ["Dot", "is_bytes"]
