"""From when to when a storage is needed, and how much is alive at a time. Chapter:
spec/dependencies.md.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

Life = tuple[int, int, int]  # the first position, the last one, and bytes


class Lives:
    """The first and the last position in an order at which each storage is touched."""

    def __init__(self, order: Iterable[int], touched: Sequence[Iterable[int]]) -> None:
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        for position, kernel in enumerate(order):
            for storage in touched[kernel]:
                self.first.setdefault(storage, position)  # r[impl memory.poison.unseen]
                self.last[storage] = position  # r[impl memory.lifetime.covers+2]

    def of(self, nbytes: dict[int, int]) -> list[Life]:
        """The lives of some storages, with their sizes."""
        return [(first, self.last[storage], nbytes[storage])
                for storage, first in self.first.items() if storage in nbytes]


def under_way(order: Sequence[int], pairs: Iterable[tuple[int, int]], lanes: Sequence[str],
              ) -> dict[int, int]:
    """The last position of the order at which each transfer may still be under way.

    `lanes` says of each kernel where it runs: in "compute", in "copy", or in none, when all is done
    that was begun. Transfers are done in their order. So one is done when a kernel starts that
    waits for it, or for a later one.
    """
    # r[impl collectives.transfer.untouched+2]
    needs: dict[int, list[int]] = {}
    for before, after in pairs:
        if lanes[before] == "copy" and lanes[after] != "copy":
            needs.setdefault(after, []).append(before)
    place = {kernel: position for position, kernel in enumerate(order)}
    found: dict[int, int] = {}
    begun: deque[int] = deque()
    for position, kernel in enumerate(order):
        if lanes[kernel] == "copy":
            begun.append(kernel)
            continue
        latest = position if not lanes[kernel] else \
            max(map(place.__getitem__, needs.get(kernel, ())), default=-1)
        while begun and place[begun[0]] <= latest:
            found[begun.popleft()] = position - 1
    found.update(dict.fromkeys(begun, len(order) - 1))
    return found


def alive_bytes(lives: Iterable[Life], count: int) -> list[int]:
    """How many bytes are alive at each of `count` positions; a life has its first and its last."""
    change = _changes(lives)
    live, found = 0, []
    for position in range(count):
        live += change.get(position, 0)
        found.append(live)
    return found


def most_alive(lives: Iterable[Life]) -> int:
    """The most bytes that are alive at one position."""
    change = _changes(lives)
    live = most = 0
    for position in sorted(change):
        live += change[position]
        most = max(most, live)
    return most


def _changes(lives: Iterable[Life]) -> dict[int, int]:
    """By how many bytes more, or less, are alive at a position than at the one before."""
    change: dict[int, int] = {}
    for first, last, nbytes in lives:
        change[first] = change.get(first, 0) + nbytes
        change[last + 1] = change.get(last + 1, 0) - nbytes
    return change
