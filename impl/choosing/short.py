"""Rows that are shorter than a vector: several of them at a time. Chapter: spec/choosing.md.

The greatest of seven numbers that lie side by side is no work for a vector of sixteen. But the
greatest of sixteen rows is: a vector has one element of each, and nothing has to be combined
within it.
"""
from __future__ import annotations

import math

from impl.choosing.plain import LEAST_VECTOR
from impl.choosing.planner import Planner
from impl.ir import Ops, RangeKind, UOp
from impl.steps.loops import Own
from impl.steps.padding import PadTo
from impl.steps.split import Split
from impl.steps.upcast import Abreast, Upcast

#: With fewer vectors of rows than this the rows are left to the other rules.
_LEAST_VECTORS = 4
#: So much longer a loop of few rows may become.
_MOST_PADDED = 1.6
#: What is written out of a row, at most.
_MOST_STAGES = 6


def plan_short(planner: Planner) -> None:
    """Take the steps for a kernel whose stages and reductions all run along short rows."""
    # r[impl choosing.rows.vector]
    width = planner.limits.elements(_widest(planner))
    row = _find_row(planner, width)
    if row is None:
        return
    for number in [r.arg[0] for r in planner.known.ranges if r.arg[1] is RangeKind.REDUCE]:
        loop = planner.numbered[number]
        if planner.extent(loop) > 1:
            planner.take(Split(planner.position(number), planner.extent(loop), 0),
                         "a short row is written out")
    number, reason = row.arg[0], "a vector has an element of each of several short rows"
    if len(planner.known.ast.src) == 1 and planner.may_own(row):
        planner.take(Own(planner.position(number)), "rows may leave a rest")
        planner.take(Upcast(planner.position(number), width), reason)
        return
    if planner.extent(row) % width:
        number = planner.take(PadTo(planner.position(number), width),
                              "the last rows are stored in part")[0].arg[0]
    planner.take(Abreast(planner.position(number), width), reason)


def _find_row(planner: Planner, width: int) -> UOp | None:
    """The last loop of the prefix, if all else is shorter than a vector and lies across it."""
    known = planner.known
    if not known.info.prefix or known.lanes or len(known.ast.src) > _MOST_STAGES \
            or any(r.arg[1] is not RangeKind.REDUCE and r.arg[1] is not RangeKind.LOOP
                   for r in known.ranges[len(known.info.prefix):]):
        return None
    row = known.info.prefix[-1]
    reduced = [n for n in known.order if n.op is Ops.REDUCE]
    lists = [n.src[1:] for n in reduced] + [store.src[2:] for store in known.ast.src]
    sizes = [[planner.extent(r) for r in loops] for loops in lists]
    if not reduced or any(0 in each or math.prod(each) >= width for each in sizes) \
            or planner.extent(row) < _LEAST_VECTORS * width \
            and not _pays(planner, row, sizes, width):
        return None
    across = False
    for node in known.order:
        if node.op is Ops.LOAD and node.src[0].src[0].op is Ops.PARAM:
            grows = planner.growth[node.src[0].src[1]]
            if grows is None:
                return None
            inner = any(step == 1 and r.arg[1] is RangeKind.REDUCE for r, step in grows.items())
            across |= inner and grows.get(row, 0) > 1
    return row if across else None


def _pays(planner: Planner, row: UOp, sizes: list[list[int]], width: int) -> bool:
    """Whether few rows may be padded: no other loop can be a vector where stages hand on elements.
    """
    extent = planner.extent(row)
    return not planner.may_own(row) and all(each[-1] < LEAST_VECTOR for each in sizes if each) \
        and -(-extent // width) * width <= _MOST_PADDED * extent


def _widest(planner: Planner) -> int:
    """The bytes of the widest elements that are computed."""
    return max((max(n.dtype.itemsize, 4) for n in planner.known.order
                if n.op in (Ops.LOAD, Ops.REDUCE)), default=4)


__all__ = ["plan_short"]
