"""Running a plan kernel by kernel: at once, or as its caller likes. Chapter: spec/realize.md."""
from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from impl.collectives import Stretch
from impl.device import Device, GlobalCounters, Memory, Program
from impl.effects import Buffer
from impl.ir import UOp
from impl.ranges import Task
from impl.realize.beside import note_span, stretch, stretches
from impl.realize.environment import Mode, in_force
from impl.realize.finite import Watch
from impl.realize.prepared import Known, LaunchedCall, Prepared, in_common, start
from impl.realize.run import Run, commit, ensure_memory, part_from_others, poison, programs_of
from impl.realize.session import session


def execute(run: Run, mode: Mode) -> None:
    """Run the kernels of a run in order, and commit it; print and poison if that is asked for."""
    try:
        run.place_temporaries()
        turns = _InTurn(run, mode)
        prepared, given = Prepared((), turns), [*map(run.buffers.__getitem__, run.plan.touched)]
        # r[impl realize.failure.left+2]: a run that does not fit changes nothing
        if turns.written:
            prepared.run_alone(given, turns)
        else:
            prepared.run(given, None, turns)
    finally:
        run.give_back()


class _InTurn(LaunchedCall):
    """The kernels of a run, each when its turn has come.

    Where devices of a mesh compute beside what they send, the kernels of a stretch are one turn.
    """

    unused = None

    def __init__(self, run: Run, mode: Mode) -> None:
        self.of, self.mode = run, mode
        self.written = [run.buffers[number] for number in run.plan.written]
        self.programs = run.plan.programs or programs_of(run.plan, run.effects.nodes)
        self.watched = mode.watched or session.spans is not None
        self.beside: Stretch | None = None  # what runs now in the lanes of a mesh

    def run(self, memories: Sequence[Memory]) -> None:
        """Run all kernels."""
        run, plan = self.of, self.of.plan
        there = dict(zip(plan.touched, memories, strict=True))
        found = stretches(plan, self.programs, run.values) \
            if plan.under_way and not self.mode.watched else []
        for mesh, numbers in found or [(None, plan.order)]:
            if mesh is None:
                self._each(plan.launches[run.begun:run.begun + len(numbers)], there)
                continue
            given = [[there[a] for a in plan.kernels[n].arguments] for n in numbers]
            self.beside = stretch(run, mesh, numbers, given)
            run.begun += len(numbers)
            self.beside.run(session.spans)
            self.beside = None

    def _each(self, launches: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]],
              there: dict[int, Memory]) -> None:
        """Run kernels one by one."""
        run, programs, values = self.of, self.programs, self.of.values
        watched, checked, memory_of = self.watched, self.mode.checked, there.__getitem__
        watch = Watch(run, self.mode.numbers) if self.mode.numbers else None
        for number, arguments, slots in launches:
            run.begun += 1
            program = programs[number]
            given = list(map(memory_of, arguments))
            if watch is not None:
                watch.begin(number, given)
            if watched:
                before = GlobalCounters.operations, GlobalCounters.bytes, time.perf_counter()
            if program is not None:
                start(program, None, given, [values[slot] for slot in slots] if slots else (),
                      checked)
            else:
                ends = [run.buffers[argument] for argument in arguments]
                start(None, run.plan.kernels[number].task, given, (), False,
                      [b.nbytes for b in ends], ends[-1].dtype)
            if watched:
                _report(run, number, *before)
            if watch is not None:
                watch.end()

    def failed(self) -> Known:
        """Of all that runs now; before that of the first kernel for which there is no memory."""
        run, plan = self.of, self.of.plan
        numbers = plan.order[:run.begun][-1:]
        if self.beside is not None:
            entries, begun = self.beside.entries, self.beside.begun
            failed = entries[begun:begun + 1] if begun >= 0 else entries
            numbers = [entry.kernel for entry in failed]
        if not run.begun:
            lacking = next((n for n in plan.touched if run.buffers[n].memory is None), -1)
            numbers = [n for n in plan.order if lacking in plan.kernels[n].arguments][:1]
        origins = run.origins()
        return in_common([(origins[number], plan.kernels[number].ast) for number in numbers])

    def commit(self, filled: list[Buffer]) -> None:
        """Let nodes, tensors and a capture under way know where the values are."""
        commit(self.of)

    def overwritten(self) -> Iterable[Buffer]:
        """What the kernels that have begun write in place."""
        return self.of.touched()


def _report(run: Run, number: int, operations: int, moved: int, start: float) -> None:
    """Have printed, and poison, what is asked for after a kernel, given counts and time before."""
    mode, kernel = in_force(), run.plan.kernels[number]
    note_span(run.plan, number, start)
    Device[kernel.device].synchronize()  # else it is the launch that is timed
    seconds = time.perf_counter() - start
    if mode.debug >= 2:
        session.printer().print_kernel(
            run.plan, number, run.effects.nodes, programs_of(run.plan)[number], seconds,
            GlobalCounters.operations - operations, GlobalCounters.bytes - moved, mode.debug)
    if mode.poison:
        _poison_dead(run, run.begun - 1)


def _poison_dead(run: Run, position: int) -> None:
    """Fill what died at this position, so that a later read of it shows."""
    for planned in run.plan.memories.values():
        for span in planned.lifetimes:
            if span.last == position and run.buffers[span.storage].nbytes:
                poison(ensure_memory(run.buffers[span.storage]))


@dataclass
class ExecItem:
    """One kernel, ready to run: its graph, its buffers, and what a person wants to know of it.

    `run()` runs it; items must be run in the order of their list. `writes` are the buffers that
    hold something else afterwards, `origin` is the user's line. `bound` is the plan that it is
    from, with its buffers, and `number` its kernel there.
    """

    ast: UOp
    bufs: list[Buffer]
    metadata: dict[str, Any]
    values: list[int] = field(default_factory=list)
    program: Program | None = None
    done: bool = False
    task: Task | None = None  # what is done in place of a program
    writes: list[Buffer] = field(default_factory=list)
    origin: Any = None
    bound: Run | None = field(default=None, repr=False)
    number: int = 0

    def run(self) -> float:
        """Run the kernel; the time in seconds. If that fails, what it and the kernels after it
        would have written cannot be read any more.
        """
        begun, item = time.perf_counter(), _Alone(self)
        Prepared((), item).run_alone((), item)
        return time.perf_counter() - begun


class _Alone(LaunchedCall):
    """A kernel that runs when its caller says so."""

    unused = None

    def __init__(self, item: ExecItem) -> None:
        self.item, self.written = item, item.writes

    def touched(self) -> Iterable[Buffer]:
        """What it works on: it looks for their memory itself."""
        return self.item.bufs

    def run(self, memories: Sequence[Memory]) -> None:
        """Run it."""
        item = self.item
        part_from_others(item.writes)
        start(item.program, item.task, [ensure_memory(buffer) for buffer in item.bufs], item.values,
              in_force().checked, [buffer.nbytes for buffer in item.bufs], item.bufs[-1].dtype)
        if item.program is not None:
            item.program.device.synchronize()  # else it is the launch that is timed
        item.done = True

    def failed(self) -> Known:
        """What the item says."""
        return self.item.origin, self.item.ast

    def overwritten(self) -> Iterable[Buffer]:
        """All that will not be written any more."""
        return session.given_up(self.item)


def items_of(run: Run, ordered: bool = True) -> list[ExecItem]:
    """The kernels of a run, each with its buffers, in the plan's order or that of their numbers."""
    # r[impl realize.failure.left+2]
    plan, origins, found = run.plan, run.origins(), list[ExecItem]()
    programs = programs_of(plan, run.effects.nodes)
    for number in plan.order if ordered else range(len(plan.kernels)):
        kernel = plan.kernels[number]
        found.append(ExecItem(
            kernel.ast, [run.buffers[s] for s in kernel.arguments], {"kernel": number},
            [run.values[slot] for slot in kernel.slots], programs[number], task=kernel.task,
            writes=[run.buffers[touch.storage] for touch in kernel.writes],
            origin=origins[number], bound=run, number=number))
    return found
