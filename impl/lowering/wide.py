"""Accesses of up to 16 bytes at once, on devices with work-groups. Chapter: spec/lowering.md.

A lane that is a range of kind UPCAST or UNROLL has neighbouring elements. Where they begin at a
multiple of their number, and are valid together, one access of the hardware moves them all.
"""
from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from impl.ir import Ops, UOp
from impl.kernel import LANES, growth
from impl.kernel.analysis import WIDE_BYTES

if TYPE_CHECKING:
    from impl.lowering.lower import Lowered


def wide_accesses(low: Lowered, most: int, kept: Collection[UOp]) -> dict[UOp, tuple[UOp, int]]:
    """For each INDEX that may be accessed in pieces: the lane, and how many elements a piece has.

    `most` is the language's limit; what is `kept` in registers has no address.
    """
    # r[impl lowering.wide.legal]
    known, found = low.known, dict[UOp, tuple[UOp, int]]()
    for index, access in low.access.items():
        lane = next((lane for lane, step in access.steps.items() if step == 1
                     and lane.arg[1] in LANES and lane.src[0].op is Ops.CONST), None)
        if lane is None or index.src[0] in kept:
            continue
        if known.free[index.src[2]] >> known.position[lane] & 1:
            continue  # some may be valid, and some not
        count = min(most, WIDE_BYTES // index.src[0].dtype.itemsize)
        while count > 1 and (lane.src[0].arg % count or not _begins_at_multiples(
                low, index, lane, count)):
            count //= 2
        if count > 1:
            found[index] = lane, count
    return found


def _begins_at_multiples(low: Lowered, index: UOp, lane: UOp, count: int) -> bool:
    """Whether a place is a multiple of `count` where the lane is at 0, whatever the loops are."""
    divisor: dict[UOp, int] = {}
    grows = growth(index.src[1].toposort(), [lane], ({}, divisor))[index.src[1]]
    return grows is not None and divisor[index.src[1]] % count == 0
