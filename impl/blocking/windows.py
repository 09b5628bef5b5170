"""Sums over a window that moves along memory: what the windows share is copied once.

Chapter: spec/blocking.md. A depthwise convolution reads `x[y + i, x + j]`: an element is in many
windows. `Window` copies the elements, padding included, and the windows read the copy.
"""
from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.blocking.pack import MOST_PACKED, Pack, gated, local_place
from impl.dtypes import dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import LANES, Analysis, Growth, growth
from impl.steps.declaration import Declaration
from impl.steps.step import StepError, with_stores

#: A vector that is stored in part may be read whole: the copy has so many elements more.
_SLACK = 64


@dataclass(frozen=True)
class Pair:
    """An output loop and a loop of a sum of which an operand sees stride * output + step * inner.

    `reach` is how many values that has.
    """

    output: UOp
    inner: UOp
    stride: int
    step: int

    @property
    def reach(self) -> int:
        size: int = self.output.src[0].arg
        window: int = self.inner.src[0].arg
        return self.stride * (size - 1) + self.step * (window - 1) + 1

    @property
    def shared(self) -> bool:
        """Whether windows share elements, and none below `reach` is read by no window."""
        size, window = self.output.src[0].arg, self.inner.src[0].arg
        return bool(self.step == 1 and window > self.stride
                    or self.stride == 1 and size > self.step and window > 1)


def find_pairs(known: Analysis, value: UOp, outputs: list[UOp], sums: list[UOp]) -> list[Pair]:
    """The pairs of an operand, the one whose neighbours lie side by side last."""
    grows = growth(value.toposort(), [*outputs, *sums])
    places = [n.src[0].src[1] for n in value.toposort() if n.op is Ops.LOAD]
    found = max([grows.get(place) or {} for place in places], key=len, default={})
    if not found:  # memory is read in phases, say: a part of the place is the sum of two loops
        for node in value.toposort():
            if node.dtype is dtypes.index and len(grown := grows.get(node) or {}) == 2:
                found = {**grown, **found}
    pairs: list[Pair] = []
    for inner in sums:
        for output in outputs:
            one, two = found.get(output, 0), found.get(inner, 0)
            if one > 0 and two > 0 and all(pair.output is not output for pair in pairs):
                unit = math.gcd(one, two)
                pair = Pair(output, inner, one // unit, two // unit)
                if pair.shared and _only(value, grows, pair):
                    pairs.append(pair)
                    break
    return sorted(pairs, key=lambda pair: -found[pair.output] // pair.stride)


def _only(value: UOp, grows: dict[UOp, Growth | None], pair: Pair) -> bool:
    """Whether a value sees the two loops of a pair through that sum alone."""
    stack, seen = [value], {value}
    while stack:
        node = stack.pop()
        grown = grows.get(node)
        if node.dtype is dtypes.index and grown is not None:
            one, two = grown.get(pair.output, 0), grown.get(pair.inner, 0)
            if one * pair.step != two * pair.stride:
                return False
            continue
        if node in (pair.output, pair.inner):
            return False
        stack += [source for source in node.src if source not in seen]
        seen.update(node.src)
    return True


@dataclass(frozen=True)
class Window(Pack):
    """Copy what the windows of a sum of products over `axis` read of operand `factor`, once.

    Legal like PACK, if the operand sees an output loop of the stage and a loop of the sum through
    one sum of the two alone. The copy is as long as that sum has values, and has no conditions.
    With a stride, elements that one place of the window reads lie side by side in it.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="a stage copies what the windows of a sum over `axis` share of operand `factor`",
        why="an element is in many windows, and padding is looked at once",
        loops=(RangeKind.REDUCE,),
        only="as for PACK, with one sum of two loops alone")

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """A copy has the same elements."""
        # r[impl steps.value.equal]
        found = self.operands(known, loop)
        if len(found) != 1:
            raise StepError(self.name, "the loop has several operands", "name the loop of one sum")
        (value, reduced), = found.items()
        if not reads_arguments(known, value):
            raise StepError(self.name, "the operand is not read from arguments alone that no stage "
                            "stores", "pack the other one")
        stores = list(known.ast.src)
        user = next(s for s in stores if value in s.src[1].toposort())
        outer, inner = self.spans(known, user, value, reduced)
        if any(r.src[0].op is not Ops.CONST or r.arg[1] in LANES for r in inner):
            raise StepError(self.name, "lanes are cut already, or a size is open", "copy first")
        outputs = [r for r in inner if r not in reduced]
        pairs = find_pairs(known, value, outputs, [r for r in inner if r in reduced])
        if not pairs:
            raise StepError(self.name, "the operand is not read in windows", "pack it instead")
        number = known.free_local()
        copy, read = _copied(value, inner, pairs, number)
        if read.src[0].src[0].arg[1] * value.dtype.itemsize > MOST_PACKED:
            raise StepError(self.name, "the copy is too large", "cut an outer loop first")
        place = self.before(stores, user, len(outer))
        changed = user.replace(src=(user.src[0], user.src[1].substitute({value: read}),
                                    *user.src[2:]))
        made = copy.replace(src=(*copy.src[:2], *outer, *copy.src[2:]))
        done = [changed if s is user else s for s in stores]
        return with_stores(known, [*done[:place], made, *done[place:]], self.name)


def _copied(value: UOp, inner: list[UOp], pairs: list[Pair], number: int) -> tuple[UOp, UOp]:
    """The stage that copies, and the LOAD that reads the copy in the operand's place."""
    paired = {r for pair in pairs for r in (pair.output, pair.inner)}
    instead: dict[UOp, UOp] = {}
    loops: list[UOp] = []
    wanted: list[UOp] = []       # what reads, one for each dimension of the copy
    inside: list[UOp] = []
    for loop in (r for r in inner if r not in paired):
        instead[loop] = new_range(loop.src[0].arg, RangeKind.LOOP)
        loops.append(instead[loop])
        wanted.append(loop)
    for pair in pairs:
        stride, length = pair.stride, -(-pair.reach // pair.stride)
        step, along = new_range(stride, RangeKind.LOOP), new_range(length, RangeKind.LOOP)
        place = symbolic.add(symbolic.mul(along, stride), step) if stride > 1 else along
        if stride * length > pair.reach:
            inside.append(symbolic.less_than(place, pair.reach))
        zero = UOp.const(dtypes.index, 0)
        instead |= {pair.output: place, pair.inner: zero} if pair.step > 1 or stride == 1 else \
            {pair.output: zero, pair.inner: place}
        if stride > 1:
            loops.append(step)
            wanted.append(symbolic.mod(pair.inner, stride))
        loops.append(along)
        wanted.append(symbolic.add(pair.output, symbolic.floordiv(pair.inner, stride))
                      if stride > 1 else
                      symbolic.add(pair.output, symbolic.mul(pair.inner, pair.step)))
    sizes = [loop.src[0].arg for loop in loops]
    local = UOp(Ops.LOCAL, value.dtype, (), (number, math.prod(sizes) + _SLACK))
    copy = gated(symbolic.rebuild(value, instead),
                 functools.reduce(symbolic.logical_and, inside, TRUE))
    target, read = local_place(local, loops, sizes), local_place(local, wanted, sizes)
    return (UOp(Ops.STORE, value.dtype, (target, copy, *loops)),
            UOp(Ops.LOAD, value.dtype, (read,)))


def reads_arguments(known: Analysis, value: UOp) -> bool:
    loads = [n for n in value.toposort() if n.op is Ops.LOAD]
    return bool(loads) and all(n.src[0].src[0].op is Ops.PARAM for n in loads) \
        and not known.reads_stored(loads)


__all__ = ["Pair", "Window", "find_pairs", "reads_arguments"]
