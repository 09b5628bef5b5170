"""Devices of a mesh that compute while they send each other something. Chapter:
spec/collectives.md.

Each device has two lanes, one for computing and one for copying. A lane is a thread that does what
it is given, in order. A transfer waits on each device for what was computed there before it, then
for the other devices of its group; what waits for the transfer waits on its own device until the
whole group is done.
"""
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

from impl.collectives.device import Exchange, MeshDevice, MeshProgram, MeshTable, exchanges_of
from impl.collectives.running import Phase
from impl.device import Memory, Table
from impl.dtypes import DType
from impl.kernel import Estimate
from impl.multi import PER_BYTE, PER_OPERATION, Transfer

#: Seconds for a lane to be woken and waited for, about.
HANDOVER = 50e-6


class Span(NamedTuple):
    """Something that a device did: in which lane, from when to when, in seconds."""

    kernel: int
    device: str
    lane: str
    start: float
    stop: float


class _Lanes:
    """The threads, by name. A forked child has none of them, and starts its own."""

    def __init__(self) -> None:
        self.given: dict[str, SimpleQueue[Callable[[], object]]] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.given.clear)

    def put(self, name: str, work: Callable[[], object]) -> None:
        """Have a lane do something after all that it was given before."""
        queue = self.given.get(name)
        if queue is None:
            queue = self.given[name] = SimpleQueue()
            threading.Thread(target=_serve, args=(queue,), name=name, daemon=True).start()
        queue.put(work)


def _serve(queue: SimpleQueue[Callable[[], object]]) -> None:
    while True:
        queue.get()()


_lanes = _Lanes()


@dataclass
class Computed:
    """A kernel of a stretch: its number in the plan, and the transfers that it waits for, by their
    place in the stretch.
    """

    kernel: int
    program: MeshProgram
    memories: list[Memory]
    values: list[int]
    waits: frozenset[int] = frozenset()


@dataclass
class Sent:
    """A transfer between the devices of a mesh, or several of a kind: of the memories each source
    has its target behind it. `nbytes` are those of each.
    """

    kernel: int
    transfer: Transfer
    memories: list[Memory]
    nbytes: list[int]
    dtype: DType
    waits: frozenset[int] = frozenset()  # earlier transfers; in a lane they are done before it
    #: For each group its members and what they do, until a memory changes.
    phases: list[tuple[list[int], list[Phase]]] = field(default_factory=list)

    @property
    def exchanges(self) -> list[Exchange]:
        """What is sent."""
        return exchanges_of(self.transfer, self.memories, self.nbytes, self.dtype)


Entry = Computed | Sent


class _Part:
    """Kernels that run on one device at one go, once some transfers are done."""

    def __init__(self, entries: Sequence[int], waits: frozenset[int], table: MeshTable) -> None:
        self.entries, self.waits, self.table = entries, waits, table


class Stretch:
    """Kernels and transfers of a mesh that run in its lanes, and nothing else in between.

    `entries` are in the order of the plan. Each computing lane runs the kernels in this order, each
    copying lane the transfers; a kernel waits for its `waits`, a transfer for all kernels before
    it. `begun` is the kernel that failed, by its place; negative where that is not known.
    """

    begun = -1

    def __init__(self, device: MeshDevice, entries: Sequence[Entry]) -> None:
        self.device, self.entries = device, entries
        self.count = len(device.members)
        self.place: dict[int, tuple[_Part, int]] = {}
        #: In order: kernels, a transfer by its place, or several that are sent together.
        self.course: list[_Part | int | list[int]] = list(
            self._parts() if device.is_whole else self._turns())
        #: What sends several together, by the first of them, until a memory changes.
        self.together: dict[int, Callable[[], None]] = {}

    def _parts(self) -> Iterator[_Part | int]:
        """Kernels are taken together up to the next transfer, or the next one that waits."""
        together, waits = list[int](), frozenset[int]()
        for place, entry in enumerate(self.entries):
            if isinstance(entry, Sent) or entry.waits and together:
                if together:
                    yield self._part(together, waits)
                together, waits = [], frozenset()
            if isinstance(entry, Sent):
                yield place
            else:
                waits |= entry.waits
                together.append(place)
        if together:
            yield self._part(together, waits)

    def _turns(self) -> Iterator[_Part | list[int]]:
        """Kernels up to the first that waits for a transfer; then all transfers before that one."""
        together, waiting = list[int](), list[int]()
        for place, entry in enumerate(self.entries):
            if not entry.waits.isdisjoint(waiting):
                if together:
                    yield self._part(together, frozenset())
                yield waiting
                together, waiting = [], []
            (waiting if isinstance(entry, Sent) else together).append(place)
        if together:
            yield self._part(together, frozenset())
        if waiting:
            yield waiting

    def _part(self, places: Sequence[int], waits: frozenset[int]) -> _Part:
        mine = [entry for entry in map(self.entries.__getitem__, places)
                if isinstance(entry, Computed)]
        part = _Part(places, waits, MeshTable(
            self.device, [(one.program, one.memories, one.values) for one in mine], self.count))
        self.place.update({place: (part, i) for i, place in enumerate(places)})
        return part

    # What a replay changes, as in a Table. `launch` is the place of an entry.

    def set_memory(self, launch: int, argument: int, memory: Memory) -> None:
        """Give one entry another memory for one argument."""
        entry = self.entries[launch]
        if isinstance(entry, Sent):
            entry.memories[argument] = memory
            self._renew(entry)
            return
        part, place = self.place[launch]
        part.table.set_memory(place, argument, memory)

    def forget(self, launch: int, argument: int) -> None:
        """Let go of a memory; the entry gets another one before the next run."""
        entry = self.entries[launch]
        if isinstance(entry, Sent):
            entry.memories[argument] = None  # type: ignore[call-overload]
            self._renew(entry)
            return
        part, place = self.place[launch]
        part.table.forget(place, argument)

    def set_value(self, launch: int, variable: int, value: int) -> None:
        """Give one kernel another value of one variable."""
        part, place = self.place[launch]
        part.table.set_value(place, variable, value)

    def set_size(self, launch: int, nbytes: list[int]) -> None:
        """Give one transfer other sizes."""
        entry = self.entries[launch]
        assert isinstance(entry, Sent)
        if entry.nbytes != nbytes:
            self._renew(entry)  # first: an interrupt may come in between
            entry.nbytes = nbytes  # r[impl realize.failure.next+2]

    def _renew(self, entry: Sent) -> None:
        """What was prepared for a transfer is of no use any more."""
        entry.phases = []
        self.together.clear()

    # Running

    def run(self, spans: list[Span] | None = None) -> None:  # r[impl collectives.lanes.equal]
        """Run all of it; what each device did, and when, is added to `spans`.

        Raises:
            Exception: what the first lane that failed has raised, once no lane does anything.
        """
        self.begun = -1
        if self.device.is_whole:
            course = _Course(self, spans)
            for part in self.course:
                if isinstance(part, _Part):
                    course.compute(part)
                elif isinstance(part, int):
                    course.send(part, self._phases(part))
            course.finish()
        else:
            for part in self.course:
                self._take_turn(part, spans)
        for part in self.course:
            if isinstance(part, _Part):
                part.table.note()

    def _take_turn(self, part: _Part | int | list[int], spans: list[Span] | None) -> None:
        """Run kernels, or send what was to be sent meanwhile, all together."""
        # r[impl collectives.span.named]
        start, name = time.perf_counter(), self.device.names[0]
        if isinstance(part, _Part):
            part.table.replay()
            places, lane = list(part.entries), "compute"
        else:
            places, lane = [part] if isinstance(part, int) else part, "copy"
            send = self.together.get(places[0])
            if send is None:
                sent = [entry for entry in map(self.entries.__getitem__, places)
                        if isinstance(entry, Sent)]
                send = self.together[places[0]] = self.device.together(
                    [each for one in sent for each in one.exchanges])
            send()
        if spans is not None:
            stop = time.perf_counter()
            # Of kernels that are launched together the first has the time.
            spans += [Span(self.entries[place].kernel, name, lane,
                           start if lane == "copy" or place == places[0] else stop, stop)
                      for place in places]

    def _phases(self, place: int) -> list[tuple[list[int], list[Phase]]]:
        entry = self.entries[place]
        assert isinstance(entry, Sent)
        if not entry.phases:
            entry.phases = list(self.device.exchanges(entry.exchanges))
        return entry.phases


def pays(costs: Iterable[Estimate], transfers: int) -> bool:
    """Whether lanes save more than their threads cost: long kernels, and a second core."""
    seconds = sum(max(c.operations * PER_OPERATION, c.bytes * PER_BYTE) for c in costs)
    return (os.cpu_count() or 1) > 1 and seconds > 4 * HANDOVER * (transfers + 1)


class _Course:
    """One run of a stretch: what each lane is given, and what they tell each other."""

    def __init__(self, stretch: Stretch, spans: list[Span] | None) -> None:
        self.stretch, self.spans = stretch, spans
        self.names = stretch.device.names
        self.steps: dict[str, list[Callable[[], object]]] = {}
        self.done: dict[int, list[threading.Event]] = {}
        self.barriers: list[threading.Barrier] = []
        self.computed: list[threading.Event] = []
        self.error: BaseException | None = None  # of the lane that failed first

    def compute(self, part: _Part) -> None:
        """Kernels, after the transfers that they wait for."""
        for number, name in enumerate(self.names):
            steps = self.steps.setdefault(f"{name} compute", [])
            steps += [self.done[place][number].wait for place in sorted(part.waits)]
            table = part.table.tables[number]
            if self.spans is None:
                steps.append(partial(self._replayed, part, table))
                continue
            for place, (program, memories, values) in zip(part.entries, table.launches,
                                                          strict=True):
                steps.append(self._timed(place, number, "compute",
                                         partial(program.run, memories, values)))

    def _replayed(self, part: _Part, table: Table) -> None:
        """Run the kernels of one device."""
        try:
            table.replay()
        except BaseException:
            self.stretch.begun = part.entries[table.begun] if table.begun >= 0 else -1
            raise

    def send(self, place: int, groups: Sequence[tuple[list[int], list[Phase]]]) -> None:
        """A transfer, after all that was computed before it on the devices of its group."""
        done = self.done[place] = [threading.Event() for _ in self.names]
        for members, phases in groups:
            together = threading.Barrier(len(members))
            self.barriers.append(together)
            for rank, number in enumerate(members):
                name, computed = self.names[number], threading.Event()
                self.computed.append(computed)
                self.steps.setdefault(f"{name} compute", []).append(computed.set)
                steps = self.steps.setdefault(f"{name} copy", [])
                # r[impl collectives.lanes.wait]: the first meeting is for what the others computed
                work: list[Callable[[], object]] = [together.wait]
                for phase in phases:
                    work += [*phase[rank], together.wait]
                steps += [computed.wait, self._timed(place, number, "copy", work), done[number].set]

    def _timed(self, place: int, number: int, lane: str,
               work: Callable[[], object] | list[Callable[[], object]]) -> Callable[[], object]:
        """Something to do, noted with its times if that is asked for."""
        each = work if isinstance(work, list) else [work]

        def run() -> None:
            start = time.perf_counter()
            for one in each:
                one()
            if self.spans is not None:
                self.spans.append(Span(self.stretch.entries[place].kernel, self.names[number],
                                       lane, start, time.perf_counter()))
        return run

    def finish(self) -> None:
        """Let all lanes begin, and wait until none has anything left to do."""
        ended: SimpleQueue[None] = SimpleQueue()
        for name, steps in self.steps.items():
            _lanes.put(name, partial(self._all, steps, ended))
        left = len(self.steps)
        interrupted: BaseException | None = None
        while left:
            try:
                ended.get()
                left -= 1
            except BaseException as error:  # memory may go only when nobody touches it
                interrupted = error
                self._fail(error)
        # r[impl collectives.lanes.error+2]
        if interrupted is not None or self.error is not None:
            raise interrupted or self.error  # type: ignore[misc]

    def _all(self, steps: Sequence[Callable[[], object]], ended: SimpleQueue[None]) -> None:
        """What a lane does, unless another one has failed."""
        for step in steps:
            if self.error is not None:
                break
            try:
                step()
            except BaseException as error:  # raised where the run was asked for
                self._fail(error)
        ended.put(None)

    def _fail(self, error: BaseException) -> None:
        """Let nobody wait for what will not come."""
        if self.error is None:
            self.error = error
        for barrier in self.barriers:
            barrier.abort()
        for events in self.done.values():
            for event in events:
                event.set()
        for event in self.computed:
            event.set()
