"""Sums over a window that moves along memory: what the windows share is copied once.

Chapter: spec/kernel.md. A depthwise convolution reads `x[y + i, x + j]`: an element is in many
windows. `Window` copies the elements, padding included, and the windows read the copy.
"""
from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from impl import symbolic
from impl.dtypes import dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import LANES, Analysis, Growth, growth
from impl.kernel.blocking import MOST_PACKED, Cut, Pack, gated, local_place
from impl.kernel.padding import PadTo
from impl.kernel.planner import Planner
from impl.kernel.steps import Own, Split, StepError, Swap, Upcast, with_stores

#: So many rows of outputs share an element of the window, where that divides them or nearly.
_MOST_ROWS = 8
#: Products that are written out for one place of a row of the window.
_MOST_PRODUCTS = 64
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
    load = next((n for n in value.toposort() if n.op is Ops.LOAD), None)
    found = (grows.get(load.src[0].src[1]) if load is not None else None) or {}
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

    def apply(self, known: Analysis) -> UOp:
        """A copy has the same elements."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.REDUCE,))
        found = self.operands(known, loop)
        if len(found) != 1:
            raise StepError(self.name, "the loop has several operands", "name the loop of one sum")
        (value, reduced), = found.items()
        if not _is_copied(known, value):
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


def plan_windows(planner: Planner, node: UOp) -> bool:
    """Take the steps for a sum over windows whose outputs share only the window's elements."""
    # r[impl kernel.window.shared]
    known, value = planner.known, node.src[0]
    if node.arg is not Ops.ADD or value.op is not Ops.MUL or len(known.ast.src) != 1 \
            or known.lanes or any(r.arg[1] is not RangeKind.REDUCE or not planner.extent(r)
                                  for r in node.src[1:]):
        return False
    outputs = [r for r in known.info.prefix if planner.extent(r) > 1]
    grows = planner.growth[known.ast.src[0].src[0].src[1]] or {}
    for factor, other in ((0, 1), (1, 0)):
        pairs = find_pairs(known, value.src[factor], outputs, list(node.src[1:]))
        column = pairs[-1].output if pairs else None
        shared = known.free[value.src[other]]
        if column is None or grows.get(column) != 1 or not planner.may_own(column) \
                or any(shared >> known.position[pair.output] & 1 for pair in pairs) \
                or not _is_copied(known, value.src[factor]):
            continue
        _windows(planner, node, factor, pairs)
        return True
    return False


def _is_copied(known: Analysis, value: UOp) -> bool:
    loads = [n for n in value.toposort() if n.op is Ops.LOAD]
    return bool(loads) and all(n.src[0].src[0].op is Ops.PARAM for n in loads) \
        and not known.reads_stored(loads)


def _windows(planner: Planner, node: UOp, factor: int, pairs: list[Pair]) -> None:
    """Copy the windows, then cut vectors off the last of the outputs and a tile off another."""
    outputs = [pair.output.arg[0] for pair in pairs]
    for count in range(len(outputs)):
        last = len(planner.known.info.prefix) - 1 - count
        place = planner.position(outputs[-1 - count])
        if place != last:
            planner.take(Swap(place, last), "outputs that share elements stand inside")
    outputs[0] = _parts(planner, outputs[0], pairs[0])
    for number in outputs[::-1]:
        planner.take(Own(planner.position(number)), "outputs share a copy of what they read")
    made = planner.take(Window(planner.position(node.src[1].arg[0]), factor),
                        "an element is in many windows, and padding is looked at once")
    width = planner.limits.elements(node.dtype.itemsize)
    copy = next(s for s in planner.known.ast.src if made[0] in s.src)
    if pairs[-1].stride == 1:
        _vector(planner, copy.src[-1].arg[0], width)
    _vector(planner, outputs[-1], width)
    if len(pairs) > 1:
        _tile(planner, outputs[-2], pairs[-2])


def _parts(planner: Planner, number: int, pair: Pair) -> int:
    """Leave a part of an output loop outside, if threads have nothing else to share."""
    others = [planner.extent(r) for r in planner.known.info.prefix if r.arg[0] != number]
    extent, threads = planner.extent(pair.output), planner.threads()
    if math.prod(others[:planner.position(number)]) >= threads or extent % threads \
            or extent < threads * _MOST_ROWS:
        return number
    made = planner.take(Cut(planner.position(number), extent // threads), "a part a thread")
    return made[-1].arg[0]


def _tile(planner: Planner, number: int, pair: Pair) -> None:
    """Some rows of outputs at once: they share elements of the window, and what they read."""
    extent, window = planner.extent(planner.numbered[number]), planner.extent(pair.inner)
    rows = max(range(2, _MOST_ROWS + 1), key=lambda n: (-(-extent // n) * -n, n))
    if extent < rows:
        return
    planner.take(Upcast(planner.position(number), rows),
                 "register tile: rows share an element of the window")
    if pair.stride == 1 and rows * window <= _MOST_PRODUCTS:
        planner.take(Split(planner.position(pair.inner.arg[0]), window, 0),
                     "rows read what others have read")


def _vector(planner: Planner, number: int, width: int) -> None:
    """Cut a vector off a loop, or all of it."""
    extent = planner.extent(planner.numbered[number])
    while width > 2 and width >= 2 * extent:
        width //= 2
    if extent % width:
        number = planner.take(PadTo(planner.position(number), width),
                              "the last vector is stored in part")[0].arg[0]
    planner.take(Upcast(planner.position(number), width), "vector along the columns")


__all__ = ["Pair", "Window", "find_pairs", "plan_windows"]
