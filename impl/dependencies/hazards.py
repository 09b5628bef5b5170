"""The one rule by which accesses wait for each other. Chapter: spec/dependencies.md."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Earlier = TypeVar("Earlier")
Mine = TypeVar("Mine")


def hazards(reads: Iterable[Mine], writes: Iterable[Mine],
            readers: Callable[[Mine], Iterable[Earlier] | None],
            writers: Callable[[Mine], Iterable[Earlier] | None],
            ) -> Iterator[tuple[str, Earlier, Mine]]:
    """The kind of each hazard between new accesses and earlier ones, with both.

    `readers` and `writers` tell which earlier accesses meet one of ours; None is as good as an
    empty answer. Two reads never wait.
    """
    for mine in reads:
        for earlier in writers(mine) or ():  # r[impl dependencies.raw.order]
            yield "RAW", earlier, mine
    for mine in writes:
        for earlier in readers(mine) or ():  # r[impl dependencies.war.order]
            yield "WAR", earlier, mine
        for earlier in writers(mine) or ():  # r[impl dependencies.waw.order]
            yield "WAW", earlier, mine
