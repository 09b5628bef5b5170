"""Replay on an OpenCL device: kernels that hold their arguments. Chapter: spec/opencl.md."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from impl.device import Launch, Memory, Table

if TYPE_CHECKING:
    from impl.opencl import OpenCLDevice


class OpenCLTable(Table):
    """Launches whose arguments are set once: a replay only asks for the kernels, one by one.

    Each launch has kernels of its own, one for each phase. What it is given changes in place; a
    launch that was asked for before keeps what it had.
    """

    def __init__(self, device: OpenCLDevice, launches: Sequence[Launch]) -> None:
        super().__init__(launches)
        self.device = device
        self.scratch = [program.scratch() for program, _, _ in self.launches]  # type: ignore
        self.kernels = [[program.kernel() for _ in program.text.phases or (True,)]  # type: ignore
                        for program, _, _ in self.launches]
        self.calls: list[list[tuple[Any, int, int]]] = [[] for _ in self.launches]
        self.changed = dict.fromkeys(range(len(self.launches)))

    def set_memory(self, launch: int, argument: int, memory: Memory) -> None:
        """Give one launch another memory for one argument."""
        super().set_memory(launch, argument, memory)
        self.changed[launch] = None

    def set_value(self, launch: int, variable: int, value: int) -> None:
        """Give one launch another value of one variable."""
        super().set_value(launch, variable, value)
        self.changed[launch] = None

    def replay(self) -> None:
        """Run all launches in order."""
        # r[impl opencl.table.prepared]
        with self.device.lock:
            for launch in self.changed:
                self._prepare(launch)
            self.changed = {}
            for (program, _, _), calls in zip(self.launches, self.calls, strict=True):
                for kernel, groups, lanes in calls:
                    self.device.enqueue(program.name, kernel, groups, lanes)

    def _prepare(self, launch: int) -> None:
        """Set the arguments of a launch; one of no groups is no launch."""
        program, memories, values = self.launches[launch]
        parts = program.parts(memories, values, self.scratch[launch])  # type: ignore[attr-defined]
        shapes = program.shape.launches(values)  # type: ignore[attr-defined]
        self.calls[launch] = []
        for kernel, given, (groups, lanes) in zip(self.kernels[launch], parts, shapes, strict=True):
            kernel.set_args(*given)
            if groups:
                self.calls[launch].append((kernel, groups, lanes))
