"""Stages whose iterations depend on each other: scans and scatters. Chapter: spec/ranges.md."""
from __future__ import annotations

import math
from collections.abc import Sequence

from impl import symbolic
from impl.ir import Ops, RangeKind, Shape, UOp, new_range
from impl.ranges.indices import ZERO, Index, loops_within
from impl.ranges.stages import Form, InOrder, Pattern, cast
from impl.ranges.tracing import Tracer, names_row


def form_in_order(node: UOp, tracer: Tracer, index: Index) -> Form:
    """A SCAN stores each element beside the one before it; a SCATTER fills its result with the
    base and then changes the rows that the index names.
    """
    shape = node.shape
    assert shape is not None
    value, write = tracer.trace(node.src[0], index, inside=False), Pattern(shape, index)
    make = _scan if node.op is Ops.SCAN else _scatter
    more = make(node, tracer, value, write)
    return Form(loops_within(index), value, write, tracer.reads, tracer.reduced,
                tracer.operations + 1, more)


def _scan(node: UOp, tracer: Tracer, value: UOp, write: Pattern) -> InOrder | None:
    op, axis, *table = node.arg
    index = write.index
    if table:
        row = tracer.as_index(tracer.trace(node.src[1], index, inside=False))
        inside = symbolic.logical_and(symbolic.less_equal(0, row),
                                      symbolic.less_than(row, table[0]))
        place = Pattern((table[0],), (row,), inside)
        return InOrder(op, loops_within(index[axis:]), value, place, write, table[0], row)
    if index[axis] is ZERO:
        return None
    one_less = (*index[:axis], symbolic.sub(index[axis], 1), *index[axis + 1:])
    before = Pattern(write.shape, one_less, symbolic.less_equal(1, index[axis]))
    return InOrder(op, loops_within(index[axis:]), value, before, write)


def _scatter(node: UOp, tracer: Tracer, value: UOp, write: Pattern) -> InOrder:
    base, places, values = node.src
    assert values.shape is not None
    index = tuple(new_range(size, RangeKind.LOOP, len(write.shape) + axis) if size != 1 else ZERO
                  for axis, size in enumerate(values.shape))
    picked = tracer.as_index(tracer.trace(places, index[:1], inside=False))
    given = tracer.trace(values, index, inside=False)
    # r[impl ranges.order.combined+2]
    target = Pattern(write.shape, (picked, *index[1:]), names_row(node, picked))
    return InOrder(node.arg, loops_within(index), given, target, target)


def form_of_loop(node: UOp, tracer: Tracer, index: Index) -> Form:
    """The nest of a LOOP, which is run otherwise: it only says which memory is read and written,
    each source as a whole.
    """
    shape = node.shape
    assert shape is not None
    value = UOp.const(node.dtype, 0)
    for source in node.src:
        loops = tuple(ZERO if size == 1 else tracer.loop(size) for size in source.shape or ())
        read = tracer.trace(source, loops, inside=False)
        used = loops_within(loops)
        whole = UOp(Ops.REDUCE, read.dtype, (read, *used), Ops.MAXIMUM) if used else read
        value = UOp(Ops.ADD, node.dtype, (value, cast(whole, node.dtype)))
    return Form(loops_within(index), value, Pattern(shape, index), tracer.reads, tracer.reduced)


def form_of_given(node: UOp, write: Pattern, read: Sequence[Shape]) -> Form:
    """The nest of a kernel that the user has written: it only says which memory is read, argument
    after argument, and written, each as a whole.
    """
    reads = []
    for slot, shape in enumerate(read):
        size = math.prod(shape)
        reads.append((slot, Pattern((size,), (new_range(size, RangeKind.REDUCE, (1 << 10) + slot),
                                              ))))
    loops = [pattern.index[0] for _, pattern in reads]
    return Form(loops_within(write.index), UOp.const(node.dtype, 0), write, reads, loops)
