"""Stretches of a plan in which devices compute beside what they send. Chapter: spec/realize.md."""
from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from impl import settings
from impl.collectives import Computed, Sent, Span, Stretch, pays
from impl.collectives.device import MeshDevice, MeshProgram
from impl.device import Device, Memory, Program
from impl.places import Place
from impl.realize.run import Run, programs_of
from impl.realize.session import session
from impl.schedule import Plan


def stretches(plan: Plan, programs: Sequence[Program | None],
              values: Sequence[int]) -> list[tuple[Place | None, list[int]]]:
    """The kernels of a plan in order, in runs that are in the lanes of one mesh, or in none.

    Empty where nothing is gained by lanes, or where they are not wanted.
    """
    level = settings.get("OVERLAP") if plan.under_way else 0
    if not level:
        return []
    meshes = [Device[kernel.device] for kernel in plan.kernels if kernel.transfer is not None]
    if any(isinstance(mesh, MeshDevice) and not mesh.is_whole for mesh in meshes):
        return plan.stretches  # r[impl distributed.together.once+4]
    costs = [program.cost([values[slot] for slot in plan.kernels[number].slots])
             for number, program in enumerate(programs) if program is not None]
    # r[impl collectives.lanes.pay]
    return plan.stretches if level == 2 or pays(costs, len(plan.under_way)) else []


def stretch(run: Run, mesh: Place, numbers: Sequence[int],
            memories: Sequence[list[Memory]]) -> Stretch:
    """Some kernels of a run in the lanes of a mesh, each with its memories."""
    plan, programs, device = run.plan, programs_of(run.plan), Device[mesh]
    assert isinstance(device, MeshDevice)
    place = {number: i for i, number in enumerate(numbers)}
    entries: list[Computed | Sent] = []
    for number, mine in zip(numbers, memories, strict=True):
        kernel, program = plan.kernels[number], programs[number]
        waits = frozenset(place[t] for t in plan.awaited.get(number, ()) if t in place)
        if kernel.transfer is not None:
            ends = [run.buffers[argument] for argument in kernel.arguments]
            entries.append(Sent(number, kernel.transfer, mine, [b.nbytes for b in ends],
                                ends[-1].dtype, waits))
            continue
        assert isinstance(program, MeshProgram)
        values = [run.values[slot] for slot in kernel.slots]
        entries.append(Computed(number, program, mine, values, waits))
    return Stretch(device, entries)


@contextmanager
def measured() -> Iterator[list[Span]]:
    """What devices do in this block, each kernel and transfer by itself, and when.

    What is not in a lane of a mesh is in the lane "compute", or "copy", of its device. Kernels of
    captured functions that are replayed are not measured, nor are items that the caller runs.
    """
    before, session.spans = session.spans, []
    try:
        yield session.spans
    finally:
        session.spans = before


def note_span(plan: Plan, number: int, start: float) -> None:
    """Note a kernel that ran by itself, if somebody measures."""
    if session.spans is not None:
        kernel = plan.kernels[number]
        device = Device[kernel.device]
        lane = "compute" if kernel.task is None or kernel.loop is not None else "copy"
        device.synchronize()
        # r[impl collectives.span.named]
        names = device.names if isinstance(device, MeshDevice) else [str(kernel.device)]
        session.spans += [Span(number, name, lane, start, time.perf_counter()) for name in names]
