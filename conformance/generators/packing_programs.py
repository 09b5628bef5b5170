"""Programs whose temporaries fill memory without a gap, if they are placed well; and chains of
kernels that need little of it, if they run one after the other.

How little memory suffices is known here, since the programs are made from it: a rectangle, time by
bytes, is cut into boxes, and each box is a temporary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft
from conformance.protocol import Program
from conformance.protocol.shapes import Kind

#: Elements of a unit of memory: what is beside the boxes, numbers, is small against one.
UNIT = 256


@dataclass(frozen=True)
class Box:
    """A temporary: the phases in which it is alive, half open, and its units of memory."""

    first: int
    stop: int
    size: int


#: Seeds of boxes that are not placed well by their size, their length or the order they come in.
HARD = (23, 25, 27, 34, 41, 71, 80, 83, 96, 97, 99, 105, 109, 130, 131, 147, 148, 159, 161, 165,
        171, 172, 175, 191)


#: Seeds of boxes with holes between them, that are not placed well by simple methods either.
WITH_HOLES = (440, 6021, 6605, 14802)


def boxes(seed: int) -> list[Box]:
    """Boxes that fill a rectangle, from its first phase to its last."""
    return _cut(seed, (4, 7), (6, 12), 3)


def boxes_with_holes(seed: int) -> tuple[list[Box], int]:
    """Boxes of a rectangle of which some are left out, so that no phase is full; and the bytes of
    its height, which suffice.  It may be that what is alive at one time needs less, and all less
    than that cannot be reached.
    """
    chosen, dice = _cut(seed, (6, 10), (8, 20), 4), Random(seed + 99)
    enough, free = least(chosen), set[int]()
    for box in sorted(chosen, key=lambda box: (box.size, dice.random())):
        phases = {*range(box.first, box.stop)}
        if not phases <= free:
            chosen.remove(box)
            free |= phases
    return chosen, enough


def _cut(seed: int, phases_between: tuple[int, int], heights_between: tuple[int, int],
         longest: int) -> list[Box]:
    """Boxes that fill a rectangle whose sizes lie between these, alive in so many phases each."""
    dice = Random(seed)
    phases, height = dice.randint(*phases_between), dice.randint(*heights_between)
    stops, found = [0] * height, list[Box]()  # until when each unit is taken
    for phase in range(phases):
        for low in range(height):
            if stops[low] > phase:
                continue
            stop = min(phases, phase + dice.randint(1, longest))
            free = next((each for each in range(low, height) if stops[each] > phase), height)
            size = min(free - low, dice.randint(1, height // 2))
            stops[low:low + size] = [stop] * size
            found.append(Box(phase, stop, size))
    Random(seed + 7).shuffle(found)
    return found


def least(chosen: Sequence[Box]) -> int:
    """The bytes that suffice for these boxes: those of all that are alive in the first phase."""
    return 4 * UNIT * sum(box.size for box in chosen if box.first == 0)


def packed(chosen: Sequence[Box], padded: bool = False) -> Program:
    """A program with these temporaries.  A number goes from phase to phase: what begins in a phase
    is made of it, and gives it an element at the end of its first phase and of its last.  All that
    the number has been is looked at: so it is in memory of its own.

    `padded`: a box is the number among zeros, which one kernel makes without another temporary.
    """
    draft = Draft()
    passed = draft.add("input", dtype="float32", shape=[1],
                       data=protocol.encode(np.ones(1, np.float32)))
    names, kept = dict[int, str](), list[str]()
    for phase in range(max(box.stop for box in chosen) + 1):
        # All that began is read before anything is read last: so all of it is alive together.
        for due in ("first", "last"):
            for number, box in enumerate(chosen):
                if phase == (box.first + 1 if due == "first" else box.stop):
                    place = number if padded else 0 if due == "first" else box.size * UNIT - 1
                    element = draft.add("shrink", names[number], bounds=[[place, place + 1]])
                    passed = draft.add("minimum" if padded else "maximum", passed, element)
                    kept.append(passed)
        for number, box in enumerate(chosen):
            if box.first == phase:
                names[number] = draft.add("contiguous", _filled(draft, passed, number,
                                                                box.size * UNIT, padded))
    draft.append({"do": "drop", "names": [each for each in draft.kinds if each not in kept]})
    draft.append({"do": "observe", "names": kept})
    return protocol.program(draft.statements)


def _filled(draft: Draft, passed: str, number: int, size: int, padded: bool) -> str:
    """What no other box has: the number with another one added, or at another place."""
    if padded:
        return draft.add("pad", passed, widths=[[number, size - 1 - number]])
    more = draft.constant(Kind("float32", (size,)), number + 1)
    return draft.add("add", draft.add("expand", passed, shape=[size]), more)


def chains(count: int, sizes: Sequence[int], together: bool) -> Program:
    """Chains of kernels that do not depend on each other, with temporaries of these units.

    `together`: written kernel by kernel, all first ones, all second ones; or chain by chain.
    """
    draft, ends = Draft(), dict[int, str]()
    for number in range(count):
        ends[number] = draft.add("input", dtype="float32", shape=[1], data=protocol.encode(
            np.array([number], np.float32)))
    steps = [(number, size) for number in range(count) for size in (*sizes, 0)]
    if together:
        steps = [(number, size) for size in (*sizes, 0) for number in range(count)]
    for number, size in steps:
        first = draft.add("shrink", ends[number], bounds=[[0, 1]])
        if size:
            shape = (size * UNIT,)
            spread = draft.add("expand", first, shape=list(shape))
            more = draft.constant(Kind("float32", shape), size)
            ends[number] = draft.add("contiguous", draft.add("add", spread, more))
        else:
            ends[number] = draft.add("neg", first)
    kept = list(ends.values())
    draft.append({"do": "drop", "names": [each for each in draft.kinds if each not in kept]})
    draft.append({"do": "observe", "names": kept})
    return protocol.program(draft.statements)


#: Seeds of graphs where who looks at less than the whole order takes one that needs more memory
#: than that of the numbers.
GRAPHS = (232, 329, 331, 638, 709, 926)


def graph(seed: int) -> Program:
    """Temporaries of several sizes, each made of elements of one or two before it; two numbers at
    the end are looked at, and nothing else.
    """
    dice, draft = Random(seed), Draft()
    begin = draft.add("input", dtype="float32", shape=[1], data=protocol.encode(
        np.ones(1, np.float32)))
    count, names, ends = dice.randint(5, 9), list[str](), list[str]()
    for number in range(count):
        last = number >= count - 2
        below = range(min(number, count - 2))
        sources = sorted({*dice.choices(below, k=dice.randint(1, 2))}) if number else []
        value = begin
        for place, source in enumerate(sources):
            element = draft.add("shrink", names[source], bounds=[[source, source + 1]])
            value = draft.add("add", value, element) if place else element
        if last:
            ends.append(draft.add("neg", value))
        else:
            size = dice.choice((1, 2, 4, 8)) * UNIT // 4
            names.append(draft.add("contiguous", _filled(draft, value, number, size, padded=True)))
    draft.append({"do": "drop", "names": [each for each in draft.kinds if each not in ends]})
    draft.append({"do": "observe", "names": ends})
    return protocol.program(draft.statements)
