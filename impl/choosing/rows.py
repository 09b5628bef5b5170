"""Sums over rows of memory, which are read from end to end. Chapter: spec/choosing.md.

In y = x W with few rows of x, and in a sum over the first axis, one output needs an element of each
row. A vector of outputs held in registers would visit a few bytes of a row and go on to the next:
no processor fetches ahead over such strides. Here some rows at a time are read from end to end.
"""
from __future__ import annotations

import functools
import math
import operator

from impl.blocking.chunk import Chunk
from impl.choosing.planner import Planner
from impl.choosing.products import Roles, order_loops
from impl.dtypes import HALF
from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import LANES
from impl.steps.loops import Cut, Own
from impl.steps.padding import PadTo
from impl.steps.split import Split
from impl.steps.upcast import Upcast

#: So many rows of memory are read at a time: each is a stream that a processor follows. What
#: several outputs multiply an element with has to stay in registers, so there they are fewer.
_STREAMS, _STREAMS_SHARED = 8, 4
#: With more outputs for an element of a row than this, a tile of registers is faster.
_MOST_OUTPUTS = 8
#: Rows of so many vectors fit the registers whole.
_LEAST_VECTORS = 8


def plan_rows(planner: Planner, node: UOp) -> bool:
    """Take the steps for a sum over rows of memory; False if it is none."""
    # r[impl choosing.rows.vector]
    roles = _find_roles(planner, node)
    if roles is None:
        return False
    width = planner.limits.elements(node.dtype.itemsize)
    column, loop = roles.column.arg[0], roles.inner[0].arg[0]
    parts = planner.threads()
    if planner.extent(roles.column) % (width * parts):
        column = planner.take(PadTo(planner.position(column), width * parts),
                              "the last vector is stored in part")[0].arg[0]
    roles = Roles(planner.numbered[column], roles.rows, roles.first, roles.inner)
    order_loops(planner, roles)
    if parts > 1:
        whole = planner.extent(planner.numbered[column])
        made = planner.take(Cut(planner.position(column), whole // parts), "a part a thread")
        column = made[-1].arg[0]
    planner.take(Own(planner.position(column)), "rows are read from end to end")
    streams = _STREAMS_SHARED if roles.rows else _STREAMS
    made = planner.take(Chunk(planner.position(loop), streams), "so many rows are read at a time")
    for inner in made:
        if inner.arg[1] is RangeKind.REDUCE and planner.extent(inner) > 1:
            planner.take(Split(planner.position(inner.arg[0]), planner.extent(inner), 0),
                         "what is added to a sum is loaded side by side")
    for row in roles.rows:
        planner.take(Upcast(planner.position(row.arg[0]), planner.extent(row)),
                     "rows share what is loaded")
    planner.take(Upcast(planner.position(column), width), "vector along the rows of memory")
    return True


def _find_roles(planner: Planner, node: UOp) -> Roles | None:
    """The column runs along the rows of memory; its rows are outputs that need the same ones."""
    known, loads = planner.known, planner.loads(node)
    if len(known.ast.src) != 1 or len(node.src) != 2 or node.dtype in HALF or known.lanes \
            or node.arg is not Ops.ADD:
        return None
    loop, grows = node.src[1], planner.growth[known.ast.src[0].src[0].src[1]] or {}
    column = next((r for r in known.info.prefix if grows.get(r) == 1), None)
    width = planner.limits.elements(node.dtype.itemsize)
    if column is None or planner.extent(loop) < 2 * _STREAMS or not planner.may_own(column) \
            or planner.extent(column) < _LEAST_VECTORS * width:
        return None
    if sum(n.op is Ops.REDUCE and loop in n.src[1:] for n in known.order) != 1:
        return None
    wide = [load for load in loads if _along(planner, load, column, loop)]
    touched = functools.reduce(operator.or_, (known.free[load] for load in wide), 0)
    rows = tuple(r for r in known.info.prefix if r is not column and planner.extent(r) > 1
                 and known.free[node] & ~touched & known.mask((r,)))
    if not wide or math.prod(planner.extent(r) for r in rows) > _MOST_OUTPUTS \
            or any(r.arg[1] in LANES or not planner.extent(r) for r in known.ranges) \
            or not planner.use(loads, column).vector:
        return None
    return Roles(column, rows, 0, (loop,))


def _along(planner: Planner, load: UOp, column: UOp, loop: UOp) -> bool:
    """Whether a load reads rows of memory along the column, one for each element of the sum."""
    grows = planner.growth[load.src[0].src[1]] or {}
    return grows.get(column) == 1 and abs(grows.get(loop, 0)) >= planner.extent(column)


__all__ = ["plan_rows"]
