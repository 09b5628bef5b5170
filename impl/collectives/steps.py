"""Collectives as rounds of moves between the devices of a group. Chapter: spec/collectives.md.

Devices of a group are 0 to k-1. A part is a run of elements, from `start` to `stop`, of the source
or of the value. In a round every move reads what was there before the round.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from impl.errors import ArgumentError


@dataclass(frozen=True)
class Move:
    """Elements `start` to `stop` of the value on `sender`, sent to the same place on `receiver`.

    With `combined` they are combined with what stands there, else they replace it.
    """

    sender: int
    receiver: int
    start: int
    stop: int
    combined: bool = False


Rounds = list[list[Move]]


def parts(size: int, count: int) -> list[tuple[int, int]]:
    """A run of elements in `count` parts that differ by one element at most."""
    edges = [size * i // count for i in range(count + 1)]
    return list(zip(edges, edges[1:], strict=False))


def naive(size: int, count: int) -> Rounds:
    """All send all they have to the first, one after the other, and it sends the result to all."""
    found = [[Move(i, 0, 0, size, True)] for i in range(1, count)]
    return [*found, [Move(0, i, 0, size) for i in range(1, count)]]


def ring(size: int, count: int) -> Rounds:
    """Each sends a part to its neighbour, k-1 times combined and k-1 times as it is."""
    cut = parts(size, count)
    # r[impl collectives.bytes.ring]
    reducing = [[Move(i, (i + 1) % count, *cut[(i - turn) % count], True) for i in range(count)]
                for turn in range(count - 1)]
    gathering = [[Move(i, (i + 1) % count, *cut[(i + 1 - turn) % count]) for i in range(count)]
                 for turn in range(count - 1)]
    return reducing + gathering


def tree(size: int, count: int) -> Rounds:
    """Pairs combine, then pairs of pairs; the result comes back the same way."""
    up: Rounds = []
    step = 1
    while step < count:
        up.append([Move(i + step, i, 0, size, True) for i in range(0, count - step, 2 * step)])
        step *= 2
    down = [[Move(m.receiver, m.sender, 0, size) for m in moves] for moves in reversed(up)]
    return up + down


def all_to_all(size: int, count: int) -> Rounds:
    """Everybody combines one part of all, and sends it to all: k rounds, as few bytes as ring."""
    cut = parts(size, count)
    reducing = [[Move((i + turn) % count, i, *cut[i], True) for i in range(count)]
                for turn in range(1, count)]
    return [*reducing, [Move(i, j, *cut[i]) for i in range(count) for j in range(count) if i != j]]


#: All-reduce by name.
ALGORITHMS: dict[str, Callable[[int, int], Rounds]] = {
    "naive": naive, "ring": ring, "tree": tree, "all-to-all": all_to_all,
}


#: Seconds to start a move, and for a byte: what a link in one machine takes, about.
LATENCY, PER_BYTE = 5e-6, 1e-10


def predicted(found: Rounds, itemsize: int) -> float:
    """Seconds that the rounds take, each as long as its busiest device."""
    total = 0.0
    for moves in found:
        busy: dict[int, float] = {}
        for move in moves:
            cost = LATENCY + PER_BYTE * (move.stop - move.start) * itemsize
            for device in (move.sender, move.receiver):
                busy[device] = busy.get(device, 0.0) + cost
        total += max(busy.values(), default=0.0)
    return total


def rounds(size: int, count: int, itemsize: int, name: str = "") -> Rounds:
    """The all-reduce that is asked for by name, or the one that takes least time.

    Raises:
        ArgumentError: there is no such algorithm.
    """
    if name:
        if name not in ALGORITHMS:
            raise ArgumentError("all-reduce", f"{name!r} is no algorithm",
                                f"use {', '.join(ALGORITHMS)}")
        return ALGORITHMS[name](size, count)
    found = [algorithm(size, count) for algorithm in ALGORITHMS.values()]
    return min(found, key=lambda each: predicted(each, itemsize))


def sent(found: Rounds, count: int) -> Sequence[int]:
    """How many elements each device of a group sends."""
    total = [0] * count
    for moves in found:
        for move in moves:
            total[move.sender] += move.stop - move.start
    return total
