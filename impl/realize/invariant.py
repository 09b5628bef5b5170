"""What is the same in every iteration of a loop, and so is computed once. Chapter: spec/loops.md.
"""
from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import NamedTuple

from impl.ir import ELEMENTWISE, MOVEMENT, Ops, UOp
from impl.loops import body, param
from impl.symbolic import is_symbolic

#: What moves elements, and neither leaves any out nor adds others.
_ALL_MOVED = (Ops.EXPAND, Ops.RESHAPE, Ops.PERMUTE)
#: What is not elementwise, and the same in every iteration if its sources are.
_HEAVY = frozenset((Ops.FOLD, Ops.REDUCE, Ops.GATHER, Ops.SCAN, Ops.SCATTER, Ops.LOOP))
_PURE = ELEMENTWISE | MOVEMENT | _HEAVY | {Ops.CONST, Ops.IOTA, Ops.PARAM, Ops.CONTIGUOUS}
#: A product with fewer rows reads a matrix as quickly along its sums.
_LEAST_ROWS = 4
#: Fewer columns are no vector.
_LEAST_COLUMNS = 8


class Parted(NamedTuple):
    """A body in two parts: what is computed once, and the rest, in which PARAM `slots[i]` is
    `first[i]`.
    """

    first: Sequence[UOp]
    slots: Sequence[int]
    rest: Sequence[UOp]


def parted(roots: Sequence[UOp], changing: Container[int]) -> Parted:
    """Part a body whose PARAMs of these slots are others in each iteration."""
    # r[impl loops.invariant.once]
    return _Parting(body(roots), changing).parted()


class _Parting:
    """A body, and which of its nodes are the same in every iteration.

    `bytes_of` has the bytes of the largest PARAM that such a node is made of; what is made of none
    is a number or a pattern, and costs no memory where it is computed.
    """

    def __init__(self, graph: UOp, changing: Container[int]) -> None:
        self.graph, self.order = graph, graph.toposort()
        self.bytes_of: dict[UOp, int] = {}
        self.computes: dict[UOp, bool] = {}  # whether more is done than to move elements
        self.heavy: dict[UOp, bool] = {}
        for node in self.order:
            sources = node.src
            if node.op not in _PURE or node.op is Ops.PARAM and node.arg[0] in changing \
                    or not all(source in self.bytes_of for source in sources) \
                    or any(map(is_symbolic, node.shape or ())):
                continue
            self.bytes_of[node] = _bytes(node) if node.op is Ops.PARAM else \
                max([self.bytes_of[source] for source in sources], default=0)
            self.heavy[node] = node.op in _HEAVY or any([self.heavy[s] for s in sources])
            self.computes[node] = node.op in ELEMENTWISE or node.op in _HEAVY \
                or any([self.computes[s] for s in sources])

    def parted(self) -> Parted:
        """Both parts."""
        replaced: dict[UOp, UOp] = {}
        turned: dict[tuple[UOp, UOp], UOp] = {}  # for one product; another reads it as it lies
        first: dict[UOp, UOp] = {}
        free = max([n.arg[0] + 1 for n in self.order if n.op is Ops.PARAM], default=0)

        def given(node: UOp) -> UOp:
            return first.setdefault(node, param(free + len(first), node))
        for node in self.order:
            for operand in self._operands(node):
                if (found := _turned(node, operand)) is not None:
                    stored, order = found
                    back = tuple(order.index(axis) for axis in range(len(order)))
                    made = UOp(Ops.PERMUTE, node.dtype, (given(stored),), back)
                    turned[node.src[0], operand] = UOp(Ops.EXPAND, node.dtype, (made,), operand.arg)
        for node in self.order:
            if node not in self.bytes_of:
                for source in node.src:
                    if (node, source) not in turned \
                            and (bottom := self._bottom(source, replaced)) is not None:
                        replaced[bottom] = given(bottom)
        done = dict(replaced)
        for node in self.order:
            if node not in done:
                sources = tuple([turned.get((node, s)) or done[s] for s in node.src])
                done[node] = node if sources == node.src else node.replace(src=sources)
        return Parted([*first], range(free, free + len(first)), done[self.graph].src)

    def _operands(self, node: UOp) -> list[UOp]:
        """Of a sum of products: the factor that is the same in every iteration, if one is."""
        if node.op is not Ops.REDUCE or node.arg[0] is not Ops.ADD or node in self.bytes_of \
                or node.src[0].op is not Ops.MUL:
            return []
        return [each for each in node.src[0].src if each in self.bytes_of]

    def _bottom(self, node: UOp, replaced: dict[UOp, UOp]) -> UOp | None:
        """What a node that is the same in every iteration is a repetition of, if that is worth
        being stored: it takes no more memory than what it is made of, or is more than elementwise.
        """
        while node in self.bytes_of and node not in replaced and node.op in _ALL_MOVED:
            node = node.src[0]
        if node in replaced or not self.computes.get(node):
            return None
        made_of = self.bytes_of[node]
        return node if made_of and (self.heavy[node] or _bytes(node) <= made_of) else None


def _bytes(node: UOp) -> int:
    return math.prod(node.shape or ()) * node.dtype.itemsize


def _turned(reduced: UOp, operand: UOp) -> tuple[UOp, tuple[int, ...]] | None:
    """The matrix by which rows are multiplied, with its columns side by side and not the terms of a
    sum; and which axis of it each axis is. None if it lies so, or is no such matrix.
    """
    if operand.op is not Ops.EXPAND:
        return None
    matrix, other = operand.src[0], next(s for s in reduced.src[0].src if s is not operand)
    sizes, axes = matrix.shape or (), reduced.arg[1]
    rows = math.prod(size for size, own in zip(operand.arg, sizes, strict=True) if own != size)
    lies = [axis for axis in _as_stored(matrix) if sizes[axis] > 1]
    columns = [axis for axis in lies if axis not in axes and _repeats(other, axis)]
    if rows < _LEAST_ROWS or not columns or sizes[columns[-1]] < _LEAST_COLUMNS \
            or lies[-1] not in axes:
        return None
    order = (*(axis for axis in range(len(sizes)) if axis != columns[-1]), columns[-1])
    return UOp(Ops.PERMUTE, matrix.dtype, (matrix,), order), order


def _repeats(node: UOp, axis: int) -> bool:
    """Whether a factor is the same along an axis."""
    return node.op is Ops.EXPAND and (node.src[0].shape or ())[axis] == 1


def _as_stored(matrix: UOp) -> list[int]:
    """Its axes in the order in which they lie in memory, as far as permutations say."""
    node, axes = matrix, list(range(len(matrix.shape or ())))
    while node.op in (Ops.PERMUTE, Ops.RESHAPE):
        below, sizes = node.src[0], node.shape or ()
        if node.op is Ops.PERMUTE:
            axes = [axes[node.arg.index(axis)] for axis in range(len(sizes))]
        else:
            long = [axis for axis, size in zip(axes, sizes, strict=True) if size != 1]
            if [size for size in sizes if size != 1] != [n for n in below.shape or () if n != 1]:
                break
            axes = [-1 if size == 1 else long.pop(0) for size in below.shape or ()]
        node = below
    return [axis for axis in axes if axis >= 0]
