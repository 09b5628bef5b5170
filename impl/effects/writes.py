"""A write to a part of memory, as the next version of it. Chapter: spec/effects.md."""
from __future__ import annotations

from collections.abc import Iterator

from impl.effects.turns import lock
from impl.errors import ShapeError
from impl.ir import Ops, UOp
from impl.symbolic import is_number


def write(base: UOp, view: UOp, value: UOp) -> UOp:
    """The next version of `base`: the same value, with the region `view` replaced by `value`.

    `view` is a chain of movement operations over `base`; `value` has the shape of `view`.

    Raises:
        ShapeError: the view repeats elements (EXPAND), so that one element would be written
            several times (r[effects.view-write.expanded]), or shapes differ.
    """
    walk = view
    while walk is not base:
        windows = walk.op is Ops.UNFOLD and walk.arg[2] != 1  # size 1 is a stride
        if walk.op in (Ops.EXPAND, Ops.PAD) or windows:  # r[impl effects.view-write.expanded]
            raise ShapeError("assign", f"the view of shape {view.shape} repeats or adds elements "
                             "of the tensor it looks at, so one element would be written twice",
                             "write to the unexpanded tensor, or to a copy (`.contiguous()`)")
        walk = walk.src[0]
    if value.shape != view.shape:
        raise ShapeError("assign", f"a value of shape {value.shape} does not fit the region of "
                         f"shape {view.shape}", "expand or reshape the value first")
    if any(is_number(size, 0) for size in value.shape or ()):
        return base  # r[impl effects.view-write.empty]
    # r[impl effects.value.eager, effects.variable.isolated]
    with lock:
        return UOp(Ops.AFTER, base.dtype, (base, UOp(Ops.STORE, base.dtype, (view, value))))


def way(write: UOp) -> Iterator[UOp]:
    """The movement operations of an AFTER from its view down to its base.

    Some may have been computed: as values. As the place of a write they are still operations.
    """
    base, step = write.src[0], write.src[1].src[0]
    while step is not base:
        yield step
        step = step.src[0]
