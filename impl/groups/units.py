"""Which products units compute, and in what blocks. Chapter: spec/groups.md."""
from __future__ import annotations

import math

from impl.groups.lanes import Local
from impl.groups.pipeline import COPIES, early_copies
from impl.groups.planner import GroupPlanner
from impl.groups.tensor_cores import TC
from impl.ir import UOp
from impl.kernel.fragments import UNIT_OF, UNITS, WARP, Unit
from impl.kernel.private import exceeds
from impl.steps.padding import PadTo
from impl.steps.step import StepError

#: Blocks of outputs, each with how many warps share it down and across: the largest first.
_BLOCKS = ((128, 4, 2), (64, 2, 2), (32, 2, 2))
#: Groups that keep a device busy; with fewer, blocks are made smaller.
_BUSY_GROUPS = 96
#: Larger blocks are not worth more outputs than so many times those that are wanted.
_MOST_PADDED = 1.25
#: The most bytes of an operand that are copied for each row of a block, part after part.
_LINE_BYTES = 128


def plan_units(planner: GroupPlanner) -> bool:
    """Take the steps for a product that a unit of the device can compute; False if there is none.

    A group gets the largest block that leaves work for all groups and does not pad much.
    """
    # r[impl groups.units.chosen]
    found, limits = planner.product(), planner.limits
    if found is None:
        return False
    before, steps = planner.known, len(planner.steps)
    rows, columns = (planner.extent(loop) for loop in found[:2])
    total = planner.sum_over(found[2])
    several = planner.work(total) // (rows * columns * planner.extent(found[2]))
    for name in limits.units:
        for block, down, across in _BLOCKS:
            groups = [-(-size // block) for size in (rows, columns)]
            padded = math.prod(groups) * block * block > _MOST_PADDED * rows * columns
            idle = math.prod(groups) * several < _BUSY_GROUPS
            if down * across * WARP > limits.lanes or block > _BLOCKS[-1][0] and (padded or idle):
                continue
            for part in _parts(planner, found[2], UNIT_OF[name]):
                if _try_block(planner, found, UNIT_OF[name], (block, down, across), part):
                    return True
                planner.undo(before, steps)
    return False


def _parts(planner: GroupPlanner, loop: UOp, unit: Unit) -> list[tuple[int, int]]:
    """How many elements of the sum are copied at a time, and how many copies there are: three, if
    the device copies by itself, so that one is multiplied while two are under way; else two.
    """
    # r[impl groups.units.chosen]
    extent = planner.extent(loop)
    most = _part(extent, unit)
    found = [(deep, copies) for copies in COPIES for deep in (most, most // 2)
             if deep and deep % unit.depth == 0 and -(-extent // deep) >= copies]
    return [*(found if planner.limits.asynchronous else ()), (most, 1)]


def _part(extent: int, unit: Unit) -> int:
    """How many elements of a sum are copied at a time: many, if that does not pad it much."""
    most = _LINE_BYTES // unit.dtype.itemsize
    sizes = [size for size in (most, most // 2, most // 4) if size % unit.depth == 0]
    padded = {size: -(-extent // size) * size for size in sizes}
    return next((size for size in sizes if padded[size] * 8 <= extent * 9),
                min(sizes, key=lambda size: padded[size]))


def _try_block(planner: GroupPlanner, found: tuple[UOp, UOp, UOp], unit: Unit,
               block: tuple[int, int, int], part: tuple[int, int]) -> bool:
    """Take the steps for a block of this size; False if one is not legal, or memory too small."""
    (size, down, across), (deep, copies) = block, part
    row, column, loop = found
    number = loop.arg[0]
    why = f"a group computes {size} x {size} outputs of a product"
    try:
        for outer in (column.arg[0], row.arg[0]):  # the last one is the outermost in the stage
            planner.block(outer, size, why)
        if planner.extent(loop) % deep:
            made = planner.take(PadTo(planner.position(number), deep), "a whole number of parts")
            number = made[0].arg[0]
        planner.take(TC(planner.position(number), UNITS.index(unit), deep, down, across),
                     f"its warps multiply matrices: {unit.name}")
        if copies > 1:
            planner.take(*early_copies(planner.known, copies))
    except StepError:
        return False
    if exceeds(planner.known.ast, planner.limits.local_memory):
        return False
    lanes = planner.known.info.lanes
    planner.share_out(lambda axis: Local(axis, lanes), "the lanes of a group copy operands",
                      planner.take_if_legal)
    return not exceeds(planner.known.ast, planner.limits.local_memory)


__all__ = ["plan_units"]
