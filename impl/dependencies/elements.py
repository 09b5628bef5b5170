"""Whether iterations of one kernel are in each other's way. Chapter: spec/dependencies.md.

The iterations of a kernel have no order: what one of them reads no other one may write.
"""
from __future__ import annotations

from collections.abc import Sequence

from impl.ir import UOp
from impl.ranges import Access


def same_element(read: Access, write: Access) -> bool:
    """Whether both are at one place in memory, whatever the shapes in which it is seen."""
    return read.pattern.flat is write.pattern.flat


def apart(first: Access, second: Access) -> bool:
    """Whether no iteration of the one can touch an element of the other."""
    low_1, high_1 = first.pattern.bounds
    low_2, high_2 = second.pattern.bounds
    return high_1 < low_2 or high_2 < low_1


def same_iteration(read: Access, mine: Sequence[UOp], write: Access,
                   theirs: Sequence[UOp]) -> bool:
    """Whether an iteration of a common prefix reads no element that another one writes.

    `mine` and `theirs` are the loops of that prefix, as the reader and the writer name them.
    """
    return read.shape == write.shape and all(
        any(read.index[axis] is one and write.index[axis] is other
            for axis in range(len(read.shape)))
        for one, other in zip(mine, theirs, strict=True))
