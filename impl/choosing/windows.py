"""Which sums run over windows, and what is copied for them. Chapter: spec/choosing.md."""
from __future__ import annotations

import math

from impl.blocking.windows import Pair, Window, find_pairs, reads_arguments
from impl.choosing.planner import Planner, cut_vector
from impl.ir import Ops, RangeKind, UOp
from impl.steps.loops import Cut, Own, Swap
from impl.steps.split import Split
from impl.steps.upcast import Upcast

#: So many rows of outputs share an element of the window, where that divides them or nearly.
_MOST_ROWS = 8
#: Products that are written out for one place of a row of the window.
_MOST_PRODUCTS = 64


def plan_windows(planner: Planner, node: UOp) -> bool:
    """Take the steps for a sum over windows whose outputs share only the window's elements."""
    # r[impl choosing.window.shared]
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
                or not reads_arguments(known, value.src[factor]):
            continue
        _windows(planner, node, factor, pairs)
        return True
    return False


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
    made = planner.take(Window(planner.position(node.src[1].arg[0]), factor))
    width = planner.limits.elements(node.dtype.itemsize)
    copy = next(s for s in planner.known.ast.src if made[0] in s.src)
    cut_vector(planner, copy.src[-1].arg[0], width)
    cut_vector(planner, outputs[-1], width)
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
