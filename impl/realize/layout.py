"""Kernels laid out to be launched again and again: in tables, with places for what changes.
Chapter: spec/realize.md.
"""
from __future__ import annotations

from collections.abc import Sequence

from impl.collectives import Stretch
from impl.device import Device, Table
from impl.effects import Buffer
from impl.ir import UOp
from impl.places import Place
from impl.realize.beside import stretch, stretches
from impl.realize.launching import ExecItem, items_of
from impl.realize.prepared import Known, Position, Segment, Segments, TaskSegment
from impl.realize.run import Run, ensure_memory, programs_of

#: A kernel or task where it was laid: segment, launch in it, the item, and the binds of its values.
Laid = tuple[Table | Stretch | TaskSegment, int, ExecItem, Sequence[UOp]]


class CallLayout:
    """Kernels in tables, tasks, and stretches in the lanes of a mesh, in the order of a call.

    A table is of one device; between two stand copies and loops. `changing` are the
    buffers in whose places each call puts memory, by their numbers.
    """

    def __init__(self, changing: Sequence[Buffer]) -> None:
        self.number = {buffer: number for number, buffer in enumerate(changing)}
        self.places: list[list[Position]] = [[] for _ in changing]
        self.segments: list[Segment] = []
        self.known: dict[Segment, list[Known]] = {}
        self.laid: list[Laid] = []
        self._together: list[tuple[ExecItem, Sequence[UOp]]] = []  # the table that is not full yet

    def add_run(self, run: Run) -> None:
        """Lay out all kernels of a run, those that pay in the lanes of a mesh."""
        plan, items, begun = run.plan, items_of(run), 0
        found = stretches(plan, programs_of(plan), run.values)
        for mesh, numbers in found or [(None, plan.order)]:
            mine = [(item, [run.canonical.variables[slot] for slot in plan.kernels[number].slots])
                    for item, number in zip(items[begun:], numbers, strict=False)]
            begun += len(numbers)
            if mesh is not None:
                self._add_stretch(run, mesh, numbers, mine)
                continue
            for item, binds in mine:
                self.add(item, binds)

    def add(self, item: ExecItem, binds: Sequence[UOp] = ()) -> None:
        """Lay out one kernel, or what is done in place of one."""
        if item.program is not None:
            if self._together and self._together[0][0].bufs[0].device != item.bufs[0].device:
                self._close()  # r[impl replay.devices.each]
            self._together.append((item, binds))
            return
        self._close()
        assert item.task is not None
        segment = TaskSegment(item.task, [ensure_memory(b) for b in item.bufs],
                           [b.nbytes for b in item.bufs], item.bufs[-1].dtype)
        self._lay(segment, [(item, binds)])

    def _add_stretch(self, run: Run, mesh: Place, numbers: Sequence[int],
                     items: Sequence[tuple[ExecItem, Sequence[UOp]]]) -> None:
        self._close()
        self._lay(stretch(run, mesh, numbers, [[ensure_memory(b) for b in item.bufs]
                                               for item, _ in items]), items)

    def _close(self) -> None:
        """Make a table of the kernels so far."""
        together, self._together = self._together, []
        if together:
            device = Device[together[0][0].bufs[0].device]
            self._lay(device.table([(item.program, [ensure_memory(b) for b in item.bufs],
                                     item.values) for item, _ in together
                                    if item.program is not None]), together)

    def _lay(self, segment: Table | Stretch | TaskSegment,
             items: Sequence[tuple[ExecItem, Sequence[UOp]]]) -> None:
        """Note where the buffers stand that change."""
        self.segments.append(segment)
        self.known[segment] = [(item.origin, item.ast) for item, _ in items]
        for launch, (item, binds) in enumerate(items):
            self.laid.append((segment, launch, item, binds))
            for argument, buffer in enumerate(item.bufs):
                if buffer in self.number:
                    self.places[self.number[buffer]].append((segment, launch, argument))

    def finished(self) -> Segments:
        """All of it."""
        self._close()
        return Segments(self.segments, self.places, self.known)
