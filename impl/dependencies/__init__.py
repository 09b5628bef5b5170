"""RAW, WAR and WAW: what must happen before what. Chapter: spec/dependencies.md.

Whether two accesses must wait for each other is decided here and nowhere else: by `hazards`. It is
asked in five ways, by how much is known of the accesses:

    find          of kernels in a legal order: on versions and byte ranges; what a schedule lists
    waits         the same on whole storages: enough to compare orders that are only tried
    of_versions   of what has no order yet, and names the versions that it reads and writes
    History       of stages that find their kernels one by one, on whole storages
    must_wait     of stages within a kernel, which threads or lanes share, on whole buffers

    past          the accesses so far, by bytes or by storage
    lives         from when to when a storage is needed
    elements      whether iterations of one kernel are in each other's way

Needs: of each kernel, in a legal order, what it touches: storages, versions and byte ranges.
Guarantees: of two kernels that are in each other's way the later one waits, at least by way of
others; an order that respects all that `find` lists computes the same values.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from impl.dependencies.elements import apart, same_element, same_iteration
from impl.dependencies.hazards import hazards, must_wait
from impl.dependencies.lives import Lives, alive_bytes, most_alive, under_way
from impl.dependencies.past import History, Past, Touch

__all__ = ["Accesses", "Dependency", "History", "Lives", "Pair", "Past", "Touch", "alive_bytes",
           "apart", "find", "hazards", "most_alive", "must_wait", "of_versions", "same_element",
           "same_iteration", "touched_storages", "under_way", "waits"]

Accesses = list[tuple[list[Touch], list[Touch]]]  # of each kernel, what it reads and writes
Pair = tuple[int, int]  # a kernel, and one that must not start before it has finished
Version = TypeVar("Version", bound=Hashable)


def touched_storages(accesses: Accesses) -> list[list[int]]:
    """The storages that each kernel touches."""
    return [[t.storage for t in (*reads, *writes)] for reads, writes in accesses]


class Dependency(NamedTuple):
    """Kernel `after` must not start before kernel `before` has finished."""

    before: int
    after: int
    kind: str
    storage: int
    version: int

    @property
    def hands_on(self) -> bool:
        """Whether a value passes from the one kernel to the other."""
        return self.kind == "RAW"


def find(accesses: Accesses, order: Sequence[int] | None = None) -> list[Dependency]:
    """All dependences between kernels; they are numbered in a legal order, or one is given.

    RAW: a read after the writes of what it reads. WAR: a write after the reads of what it
    replaces. WAW: a write after the writes it replaces. Bytes that do not meet do not count.
    """
    found: dict[tuple[int, int, str, int], Dependency] = {}
    written: defaultdict[int, Past] = defaultdict(Past)
    read: defaultdict[int, Past] = defaultdict(Past)

    def writers(touch: Touch) -> Sequence[tuple[int, Touch]]:
        return written[touch.storage].meeting(touch) if touch.storage in written else ()

    def readers(touch: Touch) -> Sequence[tuple[int, Touch]]:
        return read[touch.storage].meeting(touch) if touch.storage in read else ()

    for kernel in range(len(accesses)) if order is None else order:
        reads, writes = accesses[kernel]
        # r[impl dependencies.raw.order, dependencies.war.order, dependencies.waw.order]
        for kind, (other, _), mine in hazards(reads, writes, readers, writers):
            key = (other, kernel, kind, mine.storage)
            if other != kernel and key not in found:
                found[key] = Dependency(other, kernel, kind, mine.storage, mine.version)
        for touch in reads:
            read[touch.storage].add(kernel, touch)
        for touch in writes:
            written[touch.storage].forget(touch)
            written[touch.storage].add(kernel, touch)
            read[touch.storage].forget(touch, but=kernel)
    return list(found.values())


def waits(touched: Sequence[tuple[Collection[int], Collection[int]]]) -> set[Pair]:
    """Who must come before whom, if all that touch a storage touch the same bytes of it.

    `touched` are the storages that each reads and writes; all are numbered in a legal order.
    """
    pairs: set[Pair] = set()
    written: dict[int, tuple[int, ...]] = {}
    read: dict[int, list[int]] = {}
    for number, (reads, writes) in enumerate(touched):
        for _, other, _ in hazards(reads, writes, read.get, written.get):
            pairs.add((other, number))
        for storage in writes:
            written[storage] = number,
            read.pop(storage, None)
        for storage in reads:
            read.setdefault(storage, []).append(number)
    return pairs


def of_versions(reads: Sequence[Iterable[Version]], writes: Sequence[Iterable[Version]],
                replaces: Sequence[Iterable[Version]]) -> set[Pair]:
    """Who must come before whom, known by the versions alone: there is no order yet.

    Each reads, writes and replaces some versions. RAW within a version; WAR and WAW from the
    version that is replaced.
    """
    readers: dict[Version, list[int]] = {}
    writers: dict[Version, list[int]] = {}
    for side, all_versions in ((readers, reads), (writers, writes)):
        for number, versions in enumerate(all_versions):
            for version in versions:
                side.setdefault(version, []).append(number)
    return {(other, number) for number, (mine, old) in enumerate(zip(reads, replaces, strict=True))
            for _, other, _ in hazards(mine, old, readers.get, writers.get) if other != number}
