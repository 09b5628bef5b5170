"""Transfers that go together: small ones cost what it takes to start them. Chapter:
spec/collectives.md.

A training step has a sum for each gradient. They are ready one after the other, and nobody needs
one before all are there, most often. So a sum waits in a *bucket* for others like it, until there
is nothing else to do, or the bucket is full.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from impl.dtypes import DType
from impl.multi.transfers import Transfer

#: What has to agree for transfers to go together.
Likeness: TypeAlias = tuple[Transfer, DType]


def likeness(task: object, dtype: DType) -> Likeness | None:
    """What a transfer has in common with those that it may go with; None of what goes alone."""
    # r[impl collectives.together.bucket+2]
    if isinstance(task, Transfer) and task.kind == "all-reduce":
        return _uncut(task), dtype
    return None


@lru_cache(4096)
def _uncut(transfer: Transfer) -> Transfer:
    """Of what would be sent otherwise nothing is said: that of each is another."""
    return replace(transfer, cut=0)


def gone_together(transfers: Sequence[Transfer]) -> Transfer:
    """Several transfers of one likeness, as one: what it would send if its values were needed cut.
    """
    each = [transfer.cut for transfer in transfers]
    return replace(transfers[0], cut=sum(each) if all(each) else 0)


class Buckets:
    """Transfers, by their numbers, that are ready and wait for others; `most` are bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.waiting: dict[Likeness, tuple[int, list[int]]] = {}  # bytes, and who waits

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def add(self, number: int, like: Likeness | None, nbytes: int) -> list[int]:
        """Who goes now that one more is ready: itself, a bucket that has no room for it, nobody."""
        if like is None or nbytes >= self.most:
            return [number]
        total, going = self.waiting.get(like, (0, []))
        if total + nbytes > self.most:  # r[impl collectives.together.bucket+2]
            del self.waiting[like]
            self.waiting[like] = nbytes, [number]
            return going
        self.waiting[like] = total + nbytes, [*going, number]
        return []

    def next(self, behind: Callable[[], Sequence[int]]) -> list[int]:
        """Those who wait in the bucket behind which the most transfers stand, one after the other;
        `behind` tells how many.

        Sums along one axis of a mesh are what the next layer waits for, and sums along another one
        are gradients: there will be more of them.
        """
        like = next(iter(self.waiting))
        if len(self.waiting) > 1:
            most = behind()
            like = max(self.waiting, key=lambda each: max(map(
                most.__getitem__, self.waiting[each][1])))
        return self.waiting.pop(like)[1]


def behind(after: Sequence[Sequence[int]], transfers: Collection[int]) -> list[int]:
    """For each number the most transfers that come after it, one after the other; `after` says who
    waits for whom.
    """
    missing = [0] * len(after)
    for others in after:
        for other in others:
            missing[other] += 1
    order = [number for number, count in enumerate(missing) if not count]
    for number in order:  # it grows meanwhile
        for other in after[number]:
            missing[other] -= 1
            if not missing[other]:
                order.append(other)
    found = [0] * len(after)
    for number in reversed(order):
        found[number] = max((found[other] + (other in transfers) for other in after[number]),
                            default=0)
    return found
