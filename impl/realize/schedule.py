"""Schedules that the caller runs, and schedules as documents. Chapter: spec/realize.md."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from impl import settings
from impl.device import Device, Program
from impl.effects import Holder, lock
from impl.ir import UOp
from impl.realize.journey import language_rewrites, rewrite_rows, step_rows
from impl.realize.launching import ExecItem, items_of
from impl.realize.planning import (
    Request,
    add_compiled,
    add_names,
    add_rounds,
    described,
    hold,
    planned,
    planned_run,
    step_reasons,
    values_of,
)
from impl.realize.run import commit, programs_of
from impl.realize.session import session
from impl.rewrite import rewrites
from impl.schedule import Plan, PlannedKernel, collector_at_rest, decisions, label


def schedule(holders: Sequence[Holder]) -> list[ExecItem]:
    """The kernels that compute the values, to be run by the caller in order (`run_schedule`).

    The tensors hold their buffers from now on. What the caller does not run is run before the next
    value is read or realized, so that nothing can see an empty buffer.
    """
    session.refuse_capture("schedules kernels that a replay would not know of",
                           "use .realize(), or schedule outside the function")
    with lock:
        nodes = values_of(holders)
        run = planned_run(nodes)
        items: list[ExecItem] = []
        if run is not None:
            run.place_temporaries(own_arena=True)
            items = items_of(run)
            decided = decisions(run.plan, run.effects.nodes)
            for item in items:
                number = item.metadata["kernel"]
                item.metadata["label"] = label(run.plan, number, run.effects.nodes)
                item.metadata["decisions"] = [line for concerned, line in decided
                                              if number in concerned]
            commit(run)
            run.drop_graph()
            session.scheduled.extend(items)
        hold(holders, nodes)
        return items


def run_schedule(items: Sequence[ExecItem]) -> None:
    """Run scheduled kernels in order, each once."""
    with lock:
        known = {id(item) for item in session.scheduled}
        waiting = [item for item in items if not item.done and id(item) not in known]
        session.scheduled += waiting  # until they have run, as nobody may see that they have not
        for item in items:
            if not item.done:
                item.run()
        session.scheduled[:] = [item for item in session.scheduled if not item.done]


def schedule_document(holders: Sequence[Holder], programs: bool = False,
                      steps: bool = False, rounds: bool = False,
                      named: bool = False, machine: bool = False) -> dict[str, Any]:
    """The schedule of these values by themselves, as plain data. Of it nothing runs; kernels that
    an earlier `schedule()` left pending run before.

    `realize` may run the plan of a family in its place, which has variables where numbers stand
    here, and no more kernels.

    With `programs`, the kernels are compiled and the document has their source, steps and cost.
    With `steps` it has the steps that they would get.
    With `rounds` each collective says what every device sends and receives in it.
    With `named` buffers have the names of the user's variables.
    With `machine` and `programs` it has the machine code of kernels, where their device knows it.
    With both TRACK_MATCH_STATS=2 and `programs` it has what rules and steps did, one by one.
    """
    return _described(holders, programs, steps, rounds, named, machine)[0]


def schedule_with_kernels(holders: Sequence[Holder]) -> tuple[dict[str, Any], dict[int, UOp]]:
    """`schedule_document` with programs, and the kernels as they were planned, by their ids: for
    who prints them in languages of devices that are not here.
    """
    rows, plan = _described(holders, programs=True)
    return rows, {row["id"]: plan.kernels[row["id"]].ast for row in rows["kernels"]
                  if plan.kernels[row["id"]].task is None}


def _described(holders: Sequence[Holder], programs: bool = False, steps: bool = False,
               rounds: bool = False, named: bool = False,
               machine: bool = False) -> tuple[dict[str, Any], Plan]:
    """The document of some values, and their plan."""
    follow = programs and settings.get("TRACK_MATCH_STATS") >= 2
    with lock, collector_at_rest():
        session.run_scheduled()
        nodes = values_of(holders)
        first = len(rewrites)
        with settings.Context(**({"SCACHE": 0} if follow else {})):  # every rewrite happens again
            # r[impl schedule.document.nothing-runs]
            request = planned(Request(nodes, document=True))
        made, rows = rewrites[first:], described(request)
        if named:
            add_names(request, rows)
        if rounds:
            add_rounds(request.plan, rows)
        if programs:
            programs_of(request.plan, request.program.nodes)
            add_compiled(request.plan, request.canonical.values, rows["kernels"])
        elif steps:
            _add_steps(request.plan, rows["kernels"])
        if machine and programs:
            for row, _, program in _compiled(request, rows["kernels"]):
                row["machine"] = program.machine_code()
        if follow:
            for row, kernel, program in _compiled(request, rows["kernels"]):
                row["journey"] = step_rows(kernel, program.steps, program.reasons)
                made += language_rewrites(kernel, program.steps)
            rows["rewrites"] = rewrite_rows(made)
        return rows, request.plan


KernelRow = dict[str, Any]


def _compiled(request: Request, rows: Sequence[KernelRow],
              ) -> Iterator[tuple[KernelRow, PlannedKernel, Program]]:
    """The rows of the kernels that have a program, each with both."""
    plan = request.plan
    for row, program in zip(rows, programs_of(plan, request.program.nodes), strict=True):
        if program is not None:
            yield row, plan.kernels[row["id"]], program


def _add_steps(plan: Plan, rows: Sequence[KernelRow]) -> None:
    """Say of each kernel which steps it would get."""
    for row in rows:
        kernel = plan.kernels[row["id"]]
        if kernel.task is None:
            info = Device[kernel.device].optimized(kernel.ast, False).arg
            row.update(step_reasons(info.steps, info.reasons))

