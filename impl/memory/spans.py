"""From when to when each temporary is alive. Chapter: spec/memory.md."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from impl.dependencies import Lives

#: Every offset is a multiple of this many bytes: a cache line, and the widest vector.
ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """A temporary: how many bytes it needs, and its first and last position in the order."""

    storage: int
    nbytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive at some position."""
        return self.first <= other.last and other.first <= self.last


def lifetimes(order: Sequence[int], touched: Sequence[Sequence[int]],
              nbytes: dict[int, int]) -> list[Lifetime]:
    """The lifetime of every temporary, in positions of the order (r[memory.lifetime.covers])."""
    lives = Lives(order, touched)
    return [Lifetime(storage, aligned(nbytes[storage]), first, lives.last[storage])
            for storage, first in lives.first.items() if storage in nbytes]


def aligned(nbytes: int) -> int:
    """The size rounded up to the alignment (r[memory.alignment.arena])."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT  # r[impl memory.alignment.arena]
