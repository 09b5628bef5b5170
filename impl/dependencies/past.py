"""Accesses so far, found by their bytes or by their storage. Chapter: spec/dependencies.md."""
from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from impl.dependencies.hazards import hazards

Item = TypeVar("Item")
Mine = TypeVar("Mine")


class Touch(NamedTuple):
    """Bytes `start` to `stop` of a storage, read at a version or written as a new one."""

    storage: int
    version: int
    start: int
    stop: int

    def overlaps(self, other: Touch) -> bool:
        """Whether the two have a byte in common (r[dependencies.ranges.disjoint])."""
        # r[impl dependencies.ranges.disjoint]
        return self.start < other.stop and other.start < self.stop


class Past:
    """Accesses of one storage, found by their bytes.

    Most storages are read and written as a whole: while all accesses are to the same bytes they
    stand in a list. Others are sorted by start, those of like size together. So the many writes of
    single rows are not all looked at for each of them.
    """

    __slots__ = ("alike", "count", "rows")

    def __init__(self) -> None:
        self.alike: list[tuple[int, Touch]] = []
        self.count = 0
        self.rows: dict[int, list[tuple[int, int, int, Touch]]] = {}  # start, age, kernel, touch

    def add(self, kernel: int, touch: Touch) -> None:
        """Note an access, the latest so far."""
        if not self.rows:
            if not self.alike or self.alike[0][1][2:] == touch[2:]:
                self.alike.append((kernel, touch))
                return
            for one in self.alike:
                self._insert(*one)
            self.alike = []
        self._insert(kernel, touch)

    def _insert(self, kernel: int, touch: Touch) -> None:
        rows = self.rows.setdefault((touch.stop - touch.start).bit_length(), [])
        insort(rows, (touch.start, self.count, kernel, touch))
        self.count += 1

    def meeting(self, touch: Touch) -> Sequence[tuple[int, Touch]]:
        """The kernels and accesses that have a byte in common with this one, oldest first."""
        if not self.rows:
            return self.alike if self.alike and self.alike[0][1].overlaps(touch) else ()
        found = []
        for bits, rows in self.rows.items():
            near = rows[self._first(rows, touch.start - (1 << bits)):
                        self._first(rows, touch.stop)]
            found += [row for row in near if row[3].overlaps(touch)]
        return [(kernel, past) for _, _, kernel, past in sorted(found, key=lambda row: row[1])]

    def forget(self, touch: Touch, but: int = -1) -> None:
        """Drop what lies within these bytes, except the accesses of one kernel."""
        if self.alike:
            old = self.alike[0][1]
            if touch.start <= old.start < touch.stop >= old.stop:
                self.alike = [one for one in self.alike if one[0] == but]
            return
        for rows in self.rows.values():
            here = slice(self._first(rows, touch.start), self._first(rows, touch.stop))
            rows[here] = [row for row in rows[here] if row[3].stop > touch.stop or row[2] == but]

    @staticmethod
    def _first(rows: list[tuple[int, int, int, Touch]], start: int) -> int:
        return bisect_left(rows, start, key=lambda row: row[0])


class _Accessed(Generic[Item]):
    """Earlier accesses of one storage, by kernel: of many, only those of a few are asked for."""

    __slots__ = ("latest", "newest", "by_kernel")

    def __init__(self) -> None:
        self.latest = self.newest = -1  # the highest number of a kernel, and the last that came
        self.by_kernel: dict[int, list[Item]] = {}

    def add(self, kernel: int, item: Item) -> None:
        """Note an access, the newest so far."""
        self.newest = kernel
        self.latest = max(self.latest, kernel)
        self.by_kernel.setdefault(kernel, []).append(item)


class History(Generic[Item]):
    """Accesses so far, by storage and kernel: all that touch a storage are taken to meet.

    An access is given as a storage with whatever is to be known of it.
    """

    def __init__(self) -> None:
        self.read: defaultdict[int, _Accessed[Item]] = defaultdict(_Accessed)
        self.written: defaultdict[int, _Accessed[Item]] = defaultdict(_Accessed)

    def note(self, kernel: int, reads: Iterable[tuple[int, Item]],
             writes: Iterable[tuple[int, Item]]) -> None:
        """Add what a kernel reads and writes."""
        for past, accesses in ((self.read, reads), (self.written, writes)):
            for storage, item in accesses:
                past[storage].add(kernel, item)

    def latest(self, reads: Iterable[int], writes: Iterable[int]) -> int:
        """The highest number of a kernel that these accesses have to wait for; -1 for none."""
        latest = -1
        for _, earlier, _ in hazards(reads, writes, self._latest_read, self._latest_written):
            latest = max(latest, earlier)
        return latest

    def _latest_read(self, storage: int) -> tuple[int, ...]:
        return (self.read[storage].latest,) if storage in self.read else ()

    def _latest_written(self, storage: int) -> tuple[int, ...]:
        return (self.written[storage].latest,) if storage in self.written else ()

    def with_kernel(self, kernel: int, reads: Iterable[tuple[int, Mine]],
                    writes: Iterable[tuple[int, Mine]]) -> list[tuple[Item, Mine]]:
        """The accesses of one kernel that these have to wait for, each with which of these."""
        return [(earlier, mine[1]) for _, earlier, mine in hazards(
            reads, writes, lambda mine: self._of(self.read, kernel, mine[0]),
            lambda mine: self._of(self.written, kernel, mine[0]))]

    def readers(self, kernel: int, storage: int) -> Sequence[Item]:
        """The reads of a storage by one kernel."""
        return self._of(self.read, kernel, storage)

    @staticmethod
    def _of(past: dict[int, _Accessed[Item]], kernel: int, storage: int) -> Sequence[Item]:
        return past[storage].by_kernel.get(kernel, ()) if storage in past else ()

    def last_reader(self, storage: int) -> int:
        """The kernel that was the last to come and read a storage; -1 for none."""
        return self.read[storage].newest if storage in self.read else -1
