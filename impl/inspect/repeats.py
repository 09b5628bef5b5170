"""Parts of a schedule that stand in it several times in a row, such as the layers of a network."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from impl.inspect.text import Document, Row, ordered_kernels

#: So many distances between equal kernels are tried, those that occur most often.
MOST_TRIED = 12


@dataclass(frozen=True)
class Repeat:
    """`times` parts of `length` kernels each, one after the other from position `start` on."""

    start: int
    length: int
    times: int

    @property
    def stop(self) -> int:
        """The position behind the last part."""
        return self.start + self.length * self.times


def repeats(document: Document) -> list[Repeat]:
    """The repeated parts of a schedule, which do not overlap, in its order.

    Two kernels are alike if they have one name, compute the same line and move as many bytes.
    """
    kernels = [_signature(kernel) for kernel in ordered_kernels(document)]
    found: list[Repeat] = []
    taken = bytearray(len(kernels))
    # The repeats that save most come first; those that overlap them are left out.
    for one in sorted(_runs(kernels), key=lambda r: (-r.length * (r.times - 1), r.length, r.start)):
        if not any(taken[one.start:one.stop]):
            taken[one.start:one.stop] = b"\1" * (one.stop - one.start)
            found.append(one)
    return sorted(found, key=lambda one: one.start)


def _signature(kernel: Row) -> tuple[Any, ...]:
    return (kernel.get("name"), kernel["kind"], kernel.get("label"), kernel.get("bytes"),
            kernel["device"], kernel.get("operations"))


def _runs(kernels: Sequence[tuple[Any, ...]]) -> list[Repeat]:
    """For each distance that is tried the stretches in which each kernel is like the one after it
    at that distance."""
    last: dict[tuple[Any, ...], int] = {}
    distances: Counter[int] = Counter()
    for position, kernel in enumerate(kernels):
        if kernel in last:
            distances[position - last[kernel]] += 1
        last[kernel] = position
    found = []
    for distance, _ in distances.most_common(MOST_TRIED):
        start = 0
        for position in range(len(kernels) - distance + 1):
            here = position + distance
            # r[impl inspect.repeats.whole]
            if here < len(kernels) and kernels[position] == kernels[here]:
                continue
            times = (here - start) // distance
            if times > 1 and times * distance > 2:
                found.append(Repeat(start, distance, times))
            start = position + 1
    return found


def collapsed(document: Document) -> Document:
    """The schedule with one part of each repeat, whose kernels say how often: `times`.

    What another part needs, or is needed for, stands at the one that is left. What a part hands to
    the next one is not shown.
    """
    kernels, place = ordered_kernels(document), dict[int, int]()
    times = dict[int, int]()
    for one in repeats(document):
        for position in range(one.start, one.stop):
            place[position] = one.start + (position - one.start) % one.length
            times[kernels[place[position]]["id"]] = one.times
    kept = {kernel["id"]: kernels[place.get(position, position)]["id"]
            for position, kernel in enumerate(kernels)}
    at = {kernel["id"]: position for position, kernel in enumerate(kernels)}
    waits: dict[tuple[int, int, str], Row] = {}
    for row in document["dependencies"]:
        before, after = kept[row["before"]], kept[row["after"]]
        if at[before] < at[after]:
            waits.setdefault((before, after, row["kind"]),
                             {**row, "before": before, "after": after})
    left = [number for number in document["order"] if kept[number] == number]
    return {**document, "order": left, "dependencies": [*waits.values()],
            "kernels": [{**kernels[at[number]], "times": times.get(number, 1)}
                        for number in left]}
