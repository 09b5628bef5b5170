"""Schedules that the caller runs, and schedules as documents. Chapter: spec/realize.md."""
from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from impl import settings
from impl.device import Device, Program
from impl.effects import Buffer, Holder, collect, lock
from impl.ir import UOp
from impl.places import Destination
from impl.realize.environment import in_force
from impl.realize.journey import language_rewrites, rewrite_rows, step_rows
from impl.realize.planning import (
    add_rounds,
    checked_plan,
    hold,
    in_pieces,
    planned_run,
    values_of,
    waiting_values,
)
from impl.realize.run import Run, commit, copy_across, ensure_memory, programs_of
from impl.realize.session import session
from impl.rewrite import rewrites
from impl.schedule import collector_at_rest, decisions, document, label


@dataclass
class ExecItem:
    """One kernel, ready to run: its graph, its buffers, and what a person wants to know of it.

    `run()` runs it; items must be run in the order of their list. `writes` are the buffers that
    hold something else afterwards.
    """

    ast: UOp
    bufs: list[Buffer]
    metadata: dict[str, Any]
    values: list[int] = field(default_factory=list)
    program: Program | None = None
    done: bool = False
    copy: Destination | None = None  # of a copy: where it goes
    writes: list[Buffer] = field(default_factory=list)

    def run(self) -> float:
        """Run the kernel; the time in seconds. If that fails, what it and the kernels after it
        would have written cannot be read any more.
        """
        try:
            return self._run()
        except BaseException:
            session.give_up(self)
            raise

    def _run(self) -> float:
        start = time.perf_counter()
        memories = [ensure_memory(buffer) for buffer in self.bufs]
        if self.program is None:
            assert self.copy is not None
            copy_across(self.copy, memories, [b.nbytes for b in self.bufs], self.bufs[1].dtype)
        else:
            self.program(memories, self.values)
            self.program.device.synchronize()  # else it is the launch that is timed
        self.done = True
        return time.perf_counter() - start


def items_of(run: Run, ordered: bool = True) -> list[ExecItem]:
    """The kernels of a run, each with its buffers, in the plan's order or that of their numbers."""
    # r[impl realize.failure.left]
    plan, programs = run.plan, programs_of(run.plan, run.effects.nodes)
    found = []
    for number in plan.order if ordered else range(len(plan.kernels)):
        kernel = plan.kernels[number]
        found.append(ExecItem(
            kernel.ast, [run.buffers[s] for s in kernel.arguments], {"kernel": number},
            [run.values[slot] for slot in kernel.slots], programs[number], copy=kernel.copy,
            writes=[run.buffers[touch.storage] for touch in kernel.writes]))
    return found


def schedule(holders: Sequence[Holder]) -> list[ExecItem]:
    """The kernels that compute the values, to be run by the caller in order (`run_schedule`).

    The tensors hold their buffers from now on. What the caller does not run is run before the next
    value is read or realized, so that nothing can see an empty buffer.
    """
    session.refuse_capture("schedules kernels that a replay would not know of",
                           "use .realize(), or schedule outside the function")
    with lock:
        nodes = values_of(holders)
        run = planned_run(nodes, own_arena=True)
        items: list[ExecItem] = []
        if run is not None:
            items = items_of(run)
            decided = decisions(run.plan, run.effects.nodes)
            for item in items:
                number = item.metadata["kernel"]
                item.metadata["label"] = label(run.plan, number, run.effects.nodes)
                item.metadata["decisions"] = [line for concerned, line in decided
                                              if number in concerned]
            commit(run)
            session.scheduled.extend(items)
        hold(holders, nodes)
        return items


def run_schedule(items: Sequence[ExecItem]) -> None:
    """Run scheduled kernels in order, each once."""
    with lock:
        for item in items:
            if not item.done:
                item.run()


def schedule_document(holders: Sequence[Holder], programs: bool = False,
                      steps: bool = False, rounds: bool = False) -> dict[str, Any]:
    """The schedule that `realize` would run, as plain data; nothing runs.

    With `programs`, the kernels are compiled and the document has their source, steps and cost.
    With `steps` it has the steps that they would get.
    With `rounds` each collective says what every device sends and receives in it.
    With both TRACK_MATCH_STATS=2 and `programs` it has what rules and steps did, one by one.
    """
    follow = programs and settings.get("TRACK_MATCH_STATS") >= 2
    with lock, collector_at_rest():
        session.run_scheduled()
        waiting = waiting_values(values_of(holders))
        effects = in_pieces(collect(waiting))
        first = len(rewrites)
        with settings.Context(**({"SCACHE": 0} if follow else {})):  # every rewrite happens again
            plan, canonical, hit = checked_plan(effects, in_force())
        made = rewrites[first:]
        rows = document(plan, hit, effects.nodes)  # r[impl schedule.document.nothing-runs]
        rows["notes"] += effects.notes
        if rounds:
            add_rounds(plan, rows)
        if programs:
            for row, program in zip(rows["kernels"], programs_of(plan, effects.nodes),
                                    strict=True):
                if program is not None:
                    values = [canonical.values[v] for v in plan.kernels[row["id"]].slots]
                    cost = program.cost(values)
                    row.update(source=program.source or "", operations=cost.operations,
                               bytes=cost.bytes, **_step_rows(program.steps, program.reasons))
                    if follow:
                        row["journey"] = step_rows(plan.kernels[row["id"]], program.steps,
                                                   program.reasons)
                        made += language_rewrites(plan.kernels[row["id"]], program.steps)
            if follow:
                rows["rewrites"] = rewrite_rows(made)
        elif steps:
            for row in rows["kernels"]:
                kernel = plan.kernels[row["id"]]
                if not kernel.copy:
                    info = Device[kernel.device].optimized(kernel.ast, False).arg
                    row.update(_step_rows(info.steps, info.reasons))
        return rows


def _step_rows(steps: Sequence[str], reasons: Sequence[str]) -> dict[str, list[str]]:
    """The steps that were applied to a kernel, and the reason for each."""
    return {"optimizations": list(steps), "because": list(reasons)}
