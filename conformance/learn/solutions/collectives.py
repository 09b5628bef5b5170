"""A solution of the lesson collectives: python -m conformance.learn solution collectives"""
from __future__ import annotations

Move = tuple[int, int, int, bool]


def all_reduce(count: int) -> list[list[Move]]:
    """Parts go round a ring: first each device adds its own, then they are handed on."""
    def turn(number: int, first: int, add: bool) -> list[Move]:
        """Everybody sends to the next one; device 0 begins with part `first`."""
        return [(i, (i + 1) % count, (i + first - number) % count, add) for i in range(count)]

    return [*[turn(number, 0, True) for number in range(count - 1)],
            *[turn(number, 1, False) for number in range(count - 1)]]
