"""Products that a processor's unit for matrices computes. Chapter: spec/lowering.md.

A stage of such a kernel stores the sums of a whole block of outputs, and its STORE says so
(`Way.TILES`). Without the unit the same stage is two loops around a sum.
"""
from __future__ import annotations

from dataclasses import dataclass

from impl.dtypes import DType, dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp
from impl.kernel.analysis import growth

#: The types of operands, each with that of the sum.
SUMS: dict[DType, DType] = {dtypes.int8: dtypes.int32, dtypes.bfloat16: dtypes.float32}


@dataclass(frozen=True)
class Operand:
    """One operand: an INDEX that is always valid, and how far its elements are apart."""

    index: UOp
    outer: int   # along the row of the first operand, the column of the second
    inner: int   # along the sum


@dataclass(frozen=True)
class TileProduct:
    """A sum of products over one loop, for each of some rows and columns.

    The first operand lies side by side along the sum. Extents are fixed.
    """

    sum: UOp
    row: UOp
    column: UOp
    first: Operand
    second: Operand

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Rows, columns, and how many products are summed."""
        rows, columns, depth = (int(loop.src[0].arg)
                                for loop in (self.row, self.column, self.sum.src[1]))
        return rows, columns, depth

    @property
    def loops(self) -> tuple[UOp, UOp, UOp]:
        """The loops that the unit runs."""
        return self.row, self.column, self.sum.src[1]


def tile_product(node: UOp, row: UOp, column: UOp) -> TileProduct | None:
    """A reduction as a product of two matrices that the unit can read; None if it is none."""
    if node.op is not Ops.REDUCE or node.arg is not Ops.ADD or len(node.src) != 2 \
            or node.src[0].op is not Ops.MUL:
        return None
    loop, found = node.src[1], list[Operand]()
    if loop.arg[1] is not RangeKind.REDUCE \
            or any(each.src[0].op is not Ops.CONST for each in (row, column, loop)):
        return None
    for factor in node.src[0].src:
        load = factor.src[0] if factor.op is Ops.CAST else factor
        if load.op is not Ops.LOAD or SUMS.get(load.dtype) is not node.dtype \
                or load.src[0].src[2] is not TRUE:
            return None
        place = load.src[0].src[1]
        grown = growth(place.toposort(), (row, column, loop))[place]
        if grown is None:
            return None
        own, other = (row, column) if not found else (column, row)
        if other in grown and not found:  # the operands come the other way round
            return _turned(node, row, column)
        if other in grown:
            return None
        found.append(Operand(load.src[0], grown.get(own, 0), grown.get(loop, 0)))
    first, second = found
    if first.inner != 1 or second.inner < 1 or first.outer < 1 or second.outer < 1 \
            or first.index.dtype is not second.index.dtype:
        return None
    return TileProduct(node, row, column, first, second)


def _turned(node: UOp, row: UOp, column: UOp) -> TileProduct | None:
    """The same where the factor of the columns is written first."""
    value = node.src[0]
    one, two = value.src
    if row not in one.toposort() and column not in two.toposort():
        turned = node.replace(src=(value.replace(src=(two, one)), *node.src[1:]))
        found = tile_product(turned, row, column)
        return None if found is None else TileProduct(node, row, column, found.first, found.second)
    return None


def tiles_of(store: UOp) -> tuple[TileProduct, int] | None:
    """What a stage has the unit compute, and how far its rows are apart; None if it is as others.

    Its last two loops are rows and columns. The columns of what it stores lie side by side.
    """
    index, loops = store.src[0], store.src[2:]
    if len(loops) < 2 or any(loop.arg[1] is not RangeKind.LOOP for loop in loops[-2:]) \
            or index.src[2] is not TRUE:
        return None
    grown = growth(index.src[1].toposort(), loops[-2:])[index.src[1]]
    if grown is None or grown.get(loops[-1]) != 1 or grown.get(loops[-2], 0) < 1:
        return None
    found = tile_product(store.src[1], loops[-2], loops[-1])
    return None if found is None else (found, grown[loops[-2]])


__all__ = ["SUMS", "Operand", "TileProduct", "tile_product", "tiles_of"]
