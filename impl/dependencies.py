"""RAW, WAR and WAW: what must happen before what. Chapter: spec/dependencies.md.

First, for stages: `place_writes` decides which assign may overwrite memory in place, and which
needs a temporary or memory of its own because somebody still has to read what was there. Then, for
kernels: `find` lists every dependence, on versions and byte ranges of storages.
"""
from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from impl.dtypes import DType
from impl.errors import GraphError
from impl.fusion import Group, Member
from impl.ir import Ops, Shape, UOp
from impl.ranges import Access, Form, Index, Pattern, Stage, StageGraph, Value, load, output_ranges
from impl.symbolic import extent

# ---------------------------------------------------------------- stages

@dataclass
class Placement:
    """Where every value lives, and the stages in an order that respects all hazards.

    `storage[value]` and `version[value]`; `copies` tells for what reason values were moved.
    """

    stages: list[Stage]
    storage: list[int]
    version: list[int]
    copies: list[str] = field(default_factory=list)


class _Placer:
    """Starts from 'every assign is in place' and gives way where that breaks a hazard."""

    def __init__(self, graph: StageGraph, held: set[int]) -> None:
        self.graph, self.values, self.held = graph, graph.values, held
        self.stages = list(graph.stages)
        self.taken: set[int] = set()  # values that some assign overwrites in place
        self.notes: list[str] = []

    # --8<-- [start:place]
    def run(self) -> Placement:
        """Find an order; as long as there is none, take the hazard away by a copy."""
        for stage in list(self.stages):
            if stage.overwrites is not None:
                self._choose(stage)
        while True:
            order, stuck = self._sort()
            if not stuck:
                return self._placement(order)
            self._resolve(stuck)
    # --8<-- [end:place]

    def _choose(self, stage: Stage) -> None:
        """In place unless the old version is held, or the stage would read what it has written."""
        assert stage.overwrites is not None
        if stage.overwrites in self.held:  # r[impl dependencies.held.kept]
            self._move(stage, "the old version stays observable")
        elif stage.overwrites in self.taken:  # r[impl dependencies.version.one-successor]
            self._move(stage, "the old version has another successor")
        elif self._reads_own_target(stage):  # r[impl dependencies.in-place.safe]
            if stage.whole:
                self._move(stage, "it reads elements that it has overwritten")
            else:
                self._bounce(stage, "it reads elements that it has overwritten")
        if stage.overwrites is not None:
            self.taken.add(stage.overwrites)

    def _reads_own_target(self, stage: Stage) -> bool:
        """Whether some iteration may read an element that another one writes."""
        return any(read.value == stage.overwrites and not _same_element(read, stage.write)
                   and not _disjoint(read, stage.write) for read in stage.reads)

    def _move(self, stage: Stage, why: str) -> None:
        """Give the new version memory of its own; the rest of the old one is copied there."""
        self.notes.append(f"copy: assign of {stage.node.shape} is not in place: {why}")
        if stage.whole:
            stage.overwrites = None
            return
        assert stage.overwrites is not None
        old = self.values[stage.overwrites]
        copied = self._copy_stage(old, stage)
        stage.overwrites = copied.write.value

    def _copy_stage(self, old: Value, stage: Stage) -> Stage:
        shape = stage.write.shape
        value = self._new_value(old.node, old.device, shape)
        index = output_ranges(shape)
        form = _copy_form(old.node.dtype, shape, index, Pattern(shape, index))
        copy = Stage(len(self.stages), value.node, form, (old.number,),
                     Access(value.number, form.write), "assign: the old version is kept")
        self.stages.append(copy)
        return copy

    def _bounce(self, stage: Stage, why: str) -> None:
        """Compute what is to be written into a temporary first."""
        self.notes.append(f"copy: the value of a view write goes through a temporary: {why}")
        shape = tuple(extent(loop) for loop in stage.loops)
        value = self._new_value(stage.node, self.values[stage.write.value].device, shape)
        target = Pattern(shape, tuple(stage.loops))
        self.stages.append(replace(
            stage, number=len(self.stages), node=value.node, form=replace(stage.form, write=target),
            write=Access(value.number, target), overwrites=None, whole=True,
            reason="assign: read before it is overwritten"))
        index = output_ranges(shape)
        renamed = dict(zip(stage.loops, index, strict=True))
        write = Pattern(stage.write.shape, tuple(i.substitute(renamed) for i in stage.write.index))
        form = _copy_form(stage.node.dtype, shape, index, write)
        stage.form, stage.slots = form, (value.number,)
        stage.reads = [Access(value.number, form.reads[0][1])]
        stage.write = Access(stage.write.value, write)

    def _new_value(self, node: UOp, device: str, shape: tuple[int, ...]) -> Value:
        stand_in = UOp(Ops.EXPAND, node.dtype, (node,), shape, len(self.values))
        value = Value(len(self.values), stand_in, device)
        self.values.append(value)
        return value

    # --8<-- [start:edges]
    def _edges(self) -> list[set[int]]:
        """For every stage the stages that must come before it."""
        producer = {s.write.value: s.number for s in self.stages}
        readers: dict[int, list[int]] = {}
        for stage in self.stages:
            for access in stage.reads:
                readers.setdefault(access.value, []).append(stage.number)
        before: list[set[int]] = [set() for _ in self.stages]
        for stage in self.stages:
            mine = before[stage.number]
            mine.update(producer[a.value] for a in stage.reads if a.value in producer)
            if stage.overwrites is not None:
                if stage.overwrites in producer:  # r[impl dependencies.waw.order]
                    mine.add(producer[stage.overwrites])
                # r[impl dependencies.war.order]
                mine.update(readers.get(stage.overwrites, ()))
                mine.discard(stage.number)
        return before
    # --8<-- [end:edges]

    def _sort(self) -> tuple[list[Stage], list[Stage]]:
        """The stages in order of number as far as the hazards allow, and those left over."""
        before = self._edges()
        after: list[list[int]] = [[] for _ in self.stages]
        for number, mine in enumerate(before):
            for other in sorted(mine):
                after[other].append(number)
        missing = [len(mine) for mine in before]
        ready = [number for number, count in enumerate(missing) if count == 0]
        heapq.heapify(ready)
        order: list[Stage] = []
        while ready:
            number = heapq.heappop(ready)
            order.append(self.stages[number])
            for other in after[number]:
                missing[other] -= 1
                if missing[other] == 0:
                    heapq.heappush(ready, other)
        done = {s.number for s in order}
        return order, [s for s in self.stages if s.number not in done]

    # --8<-- [start:resolve]
    def _resolve(self, stuck: list[Stage]) -> None:
        """Take one hazard out of a cycle.

        A stuck view write that reads a version about to be overwritten reads it into a temporary;
        where that has been done, the version is overwritten elsewhere.
        """
        # r[impl dependencies.cycle.copied]
        targets = {s.overwrites for s in stuck if s.overwrites is not None}
        for stage in stuck:
            early = any(a.value in targets and a.value != stage.overwrites
                        for a in stage.reads)
            if stage.overwrites is not None and early:
                return self._bounce(stage, "a later version is written before it is read")
        read = {a.value for s in stuck for a in s.reads}
        for stage in stuck:
            if stage.overwrites in read:
                return self._move(stage, "a reader of the old version comes later")
        names = ", ".join(str(s.number) for s in stuck)
        raise GraphError("dependencies", f"stages {names} wait for each other",
                         "report this: a cycle without a write cannot arise")
    # --8<-- [end:resolve]

    def _placement(self, order: list[Stage]) -> Placement:
        storage = list(range(len(self.values)))
        version = [0 if v.leaf else 1 for v in self.values]
        for stage in order:
            if stage.overwrites is not None:
                value, old = stage.write.value, stage.overwrites
                storage[value], version[value] = storage[old], version[old] + 1
        return Placement(order, storage, version, self.notes)


def _copy_form(dtype: DType, shape: Shape, index: Index, write: Pattern) -> Form:
    """A nest that stores a value as it is."""
    read = Pattern(shape, index)
    loops = [i for i in index if i.op is Ops.RANGE]
    return Form(loops, load(dtype, 0, read), write, [(0, read)])


def _same_element(read: Access, write: Access) -> bool:
    """Whether both are at one place in memory, whatever the shapes in which it is seen."""
    return read.pattern.flat is write.pattern.flat


def _disjoint(first: Access, second: Access) -> bool:
    """Whether the flat index ranges do not meet."""
    low_1, high_1 = first.pattern.bounds
    low_2, high_2 = second.pattern.bounds
    return high_1 < low_2 or high_2 < low_1


def place_writes(graph: StageGraph, held: set[int]) -> Placement:
    """Decide where every version lives (r[dependencies.war.order], r[dependencies.in-place.safe]).

    `held` are the values that somebody can observe after the schedule.
    """
    return _Placer(graph, held).run()


# ---------------------------------------------------------------- kernels

class Touch(NamedTuple):
    """Bytes `start` to `stop` of a storage, read at a version or written as a new one."""

    storage: int
    version: int
    start: int
    stop: int

    def overlaps(self, other: Touch) -> bool:
        """Whether the two have a byte in common."""
        return self.start < other.stop and other.start < self.stop


Accesses = list[tuple[list[Touch], list[Touch]]]  # of each kernel, what it reads and writes


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


def touches(group: Group, placement: Placement, values: Sequence[Value],
            private: set[int]) -> tuple[list[Touch], list[Touch]]:
    """What a kernel reads and writes, without what is private to it."""
    reads: dict[Touch, None] = {}
    writes: dict[Touch, None] = {}
    for member in group.members:
        for access in member.stage.reads:
            reads[_touch(access, placement, values)] = None
        writes[_touch(member.stage.write, placement, values)] = None
    fed = {(t.storage, t.version) for t in writes}
    return ([t for t in sorted(reads)
             if t.storage not in private and (t.storage, t.version) not in fed],
            [t for t in writes if t.storage not in private])


def _touch(access: Access, placement: Placement, values: Sequence[Value]) -> Touch:
    low, high = access.pattern.bounds
    size = values[access.value].node.dtype.itemsize
    start, stop = (low * size, (high + 1) * size) if low <= high else (0, 0)
    return Touch(placement.storage[access.value], placement.version[access.value], start, stop)


class _Past:
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


# --8<-- [start:find]
def find(accesses: Accesses, order: Sequence[int] | None = None) -> list[Dependency]:
    """All dependences between kernels; they are numbered in a legal order, or one is given.

    RAW: a read after the writes of what it reads. WAR: a write after the reads of what it
    replaces. WAW: a write after the writes it replaces. Bytes that do not meet do not count.
    """
    found: dict[tuple[int, int, str, int], Dependency] = {}
    writers: defaultdict[int, _Past] = defaultdict(_Past)
    readers: defaultdict[int, _Past] = defaultdict(_Past)

    def note(kind: str, earlier: _Past, kernel: int, touch: Touch) -> None:
        storage = touch.storage
        for other, _ in earlier.meeting(touch):  # r[impl dependencies.ranges.disjoint]
            key = (other, kernel, kind, storage)
            if other != kernel and key not in found:
                found[key] = Dependency(other, kernel, kind, storage, touch.version)

    for kernel in range(len(accesses)) if order is None else order:
        reads, writes = accesses[kernel]
        for read in reads:  # r[impl dependencies.raw.order]
            if read.storage in writers:
                note("RAW", writers[read.storage], kernel, read)
        for write in writes:  # r[impl dependencies.war.order, dependencies.waw.order]
            note("WAR", readers[write.storage], kernel, write)
            note("WAW", writers[write.storage], kernel, write)
        for read in reads:
            readers[read.storage].add(kernel, read)
        for write in writes:
            writers[write.storage].forget(write)
            writers[write.storage].add(kernel, write)
            readers[write.storage].forget(write, but=kernel)
    return list(found.values())
# --8<-- [end:find]


# ---------------------------------------------------------------- memory taken over

@dataclass(frozen=True)
class Temporary:
    """What has to agree before one temporary may lie where another one was.

    `nbytes` may be symbolic: then it has to agree for all values of the variables.
    """

    nbytes: int
    dtype: DType
    device: str


# --8<-- [start:take_over]
def take_over(groups: Sequence[Group], order: Sequence[int], touched: Sequence[Sequence[int]],
              temporaries: dict[int, Temporary], placement: Placement,
              steps: Collection[int] | None = None) -> dict[int, tuple[int, int]]:
    """Which temporary gets the memory of another one that dies in the step that makes it.

    With `steps`, only in these.

    `touched` are the storages that each kernel touches. The placement is changed: the versions of
    the new temporary follow those of the old one. Returns for each new one the old one, and by how
    much its versions are shifted.
    """
    first, last = spans(order, touched)
    filled: defaultdict[int, list[int]] = defaultdict(list)  # storage: the values that fill it
    newest: defaultdict[int, int] = defaultdict(int)          # storage: its last version
    for value, storage in enumerate(placement.storage):
        filled[storage].append(value)
        newest[storage] = max(newest[storage], placement.version[value])
    moved: dict[int, tuple[int, int]] = {}
    for step, number in enumerate(order):
        if steps is not None and step not in steps:
            continue
        mine = {moved[s][0] if s in moved else s for s in touched[number]}
        # r[impl dependencies.take-over.dead]
        dying = sorted(s for s in mine if s in temporaries and last[s] == step > first[s])
        for member in groups[number].members if dying else ():
            new = member.stage.write.value
            if new not in temporaries or first.get(new) != step:
                continue
            old = next((s for s in dying if temporaries[s] == temporaries[new]
                        and _may_lie_there(groups[number], member, s, placement)), None)
            if old is not None:
                dying.remove(old)  # r[impl dependencies.take-over.one]
                shift = newest[old]
                for value in filled[new]:
                    placement.storage[value] = old
                    placement.version[value] += shift
                newest[old] += newest[new]
                filled[old] += filled[new]
                moved[new], last[old] = (old, shift), last[new]
    return moved
# --8<-- [end:take_over]


def spans(order: Sequence[int], touched: Sequence[Sequence[int]],
          ) -> tuple[dict[int, int], dict[int, int]]:
    """The first and the last step at which each storage is touched."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, number in enumerate(order):
        for storage in touched[number]:
            first.setdefault(storage, step)
            last[storage] = step
    return first, last


# --8<-- [start:may_lie_there]
def _may_lie_there(group: Group, writer: Member, old: int, placement: Placement) -> bool:
    """Whether all that a kernel reads of `old` is read before the writer's stage writes there.

    A stage before the writer's may read any element that belongs to its own iteration of the
    prefix; the writer's stage itself only the element that it writes; later stages none.
    """
    write = writer.stage.write
    if not writer.stage.whole or placement.storage[write.value] != write.value:
        return False
    # One reads again what it has stored; the other has two arguments, also where what it copies
    # was computed on the device that it goes to. r[impl realize.device.named]
    if writer.stage.form.in_order is not None or writer.stage.copy:
        return False
    written = False
    for member in group.members:
        written |= member is writer
        for read in member.stage.reads:
            if placement.storage[read.value] != old:
                continue
            if member is writer:  # r[impl dependencies.take-over.safe]
                if not _same_element(read, write):
                    return False
            elif written or not _same_iteration(read, member, write, writer):
                return False
        if placement.storage[member.stage.write.value] == old:
            return False
    return True
# --8<-- [end:may_lie_there]


def _same_iteration(read: Access, reader: Member, write: Access, writer: Member) -> bool:
    """Whether an iteration of the prefix reads no element that another one writes."""
    return read.shape == write.shape and all(
        any(read.index[axis] is mine and write.index[axis] is theirs
            for axis in range(len(read.shape)))
        for mine, theirs in zip(reader.prefix, writer.prefix, strict=True))
