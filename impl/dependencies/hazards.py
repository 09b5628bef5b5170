"""The one rule by which accesses wait for each other. Chapter: spec/dependencies.md."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
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


def must_wait(reads: Iterable[Mine], writes: Iterable[Mine], read: Collection[Mine],
              written: Collection[Mine]) -> bool:
    """Whether new accesses have to wait for those that were `read` and `written` before; each is
    given by what it touches, as a whole.
    """
    return any(True for _ in hazards(reads, writes, lambda mine: (mine,) if mine in read else (),
                                     lambda mine: (mine,) if mine in written else ()))
