"""What a kernel touches, found by running its loops one iteration at a time.

Slow and plain on purpose: it knows nothing of how kernels are made, so that tests can hold the
claims of a scheduler against it. Kernels whose addresses depend on data are refused.
"""
from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from impl import symbolic
from impl.ir import TRUE, Ops, UOp

Point = dict[UOp, int]
Buffer = tuple[Ops, int]


@dataclass(frozen=True)
class Event:
    """One element is read or written, in iteration `iteration` of the prefix."""

    iteration: int
    stage: int
    writes: bool
    buffer: Buffer
    place: int


def extent(loop: UOp) -> int:
    """The number of iterations of a loop."""
    return int(loop.src[0].arg)


def points(loops: tuple[UOp, ...], outer: Point) -> Iterator[Point]:
    """All iterations of some loops, the last loop quickest, each with those around them."""
    for numbers in itertools.product(*(range(extent(loop)) for loop in loops)):
        yield {**outer, **dict(zip(loops, numbers, strict=True))}


def events(kernel: UOp) -> Iterator[Event]:
    """Everything that a kernel reads and writes, in the order in which its text says so."""
    for iteration, outer in enumerate(points(kernel.arg.prefix, {})):
        for stage, store in enumerate(kernel.src):
            for inner in points(store.src[2:], outer):
                for buffer, place in _reads(store.src[1], inner):
                    yield Event(iteration, stage, False, buffer, place)
                for buffer, place in _place(store.src[0], inner):
                    yield Event(iteration, stage, True, buffer, place)


def _reads(value: UOp, outer: Point) -> Iterator[tuple[Buffer, int]]:
    loads = [node for node in value.toposort() if node.op is Ops.LOAD]
    for load in loads:
        loops = tuple(node for node in load.toposort()
                      if node.op is Ops.RANGE and node not in outer)
        for inner in points(loops, outer):
            yield from _place(load.src[0], inner)


def _place(index: UOp, point: Point) -> Iterator[tuple[Buffer, int]]:
    """The element that an INDEX names, if it is valid there."""
    pointer, flat, valid = index.src
    if valid is TRUE or symbolic.evaluate(valid, point):
        number = pointer.arg if pointer.op is Ops.PARAM else pointer.arg[0]
        yield (pointer.op, number), symbolic.evaluate(flat, point)


def reductions(kernel: UOp) -> dict[UOp, int]:
    """For every REDUCE of a kernel how many elements it combines, in all its repetitions."""
    free: dict[UOp, frozenset[UOp]] = {}
    found: dict[UOp, int] = {}
    for node in kernel.toposort():
        mine = frozenset().union(*(free[source] for source in node.src))
        if node.op is Ops.RANGE:
            mine |= {node}
        if node.op is Ops.REDUCE:
            count = 1
            for loop in mine:
                count *= extent(loop)
            found[node] = count
            mine -= set(node.src[1:])
        free[node] = mine
    return found
