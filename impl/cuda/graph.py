"""Replay as one launch of a CUDA graph. Chapter: spec/cuda.md.

A graph holds its kernels with their arguments. Launching it costs the host as much as launching
one kernel, and the GPU starts the next kernel sooner than a host could ask for it. What changes
between two replays is changed in place, kernel by kernel.
"""
from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from impl.device import Launch, Memory, Table

if TYPE_CHECKING:
    from impl.cuda import CUDA, CUDAProgram


# --8<-- [start:packed]
class Packed:
    """The arguments of launches as the driver wants them: addresses, then values, 8 bytes each."""

    def __init__(self, launches: Sequence[tuple[Any, Sequence[Memory], Sequence[int]]]) -> None:
        counts = [program.arguments + len(program.variables) for program, _, _ in launches]
        self.first = [0, *np.cumsum(counts).tolist()]
        self.words = np.array([word & (1 << 64) - 1 for launch in launches
                               for word in words_of(*launch)] or [0], np.uint64)
        self.sizes = np.array([8 * count for count in counts], np.uint64)
        start, sizes = self.words.ctypes.data, self.sizes.ctypes.data
        rows = [(1, start + 8 * self.first[place], 2, sizes + 8 * place, 0)
                for place in range(len(counts))]
        self.extras = np.array(rows, np.uint64)  # CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE

    def extra(self, place: int) -> int:
        """The address of what describes the arguments of one launch."""
        return int(self.extras.ctypes.data) + self.extras.strides[0] * place


def words_of(program: Any, memories: Sequence[Memory], values: Sequence[int]) -> list[int]:
    """Addresses and values of one launch, in the order of the kernel's parameters."""
    return [*(memory.address for memory in memories[:program.arguments]), *values]
# --8<-- [end:packed]


# --8<-- [start:table]
class CUDATable(Table):
    """Launches that the GPU runs one after another on one request."""

    def __init__(self, device: CUDA, launches: Sequence[Launch]) -> None:
        super().__init__(launches)
        self.device = device
        self.packed = Packed(self.launches)
        self.executable: Any = None
        self.nodes: list[Any] = []
        self.changed: dict[int, None] = {}

    def set_memory(self, launch: int, argument: int, memory: Memory) -> None:
        """Give one launch another memory for one argument."""
        super().set_memory(launch, argument, memory)
        if argument < self.launches[launch][0].arguments:
            self.packed.words[self.packed.first[launch] + argument] = memory.address
            self.changed[launch] = None

    def set_value(self, launch: int, variable: int, value: int) -> None:
        """Give one launch another value of one variable."""
        super().set_value(launch, variable, value)
        place = self.packed.first[launch] + self.launches[launch][0].arguments + variable
        self.packed.words[place] = value & (1 << 64) - 1
        self.changed[launch] = None

    def replay(self) -> None:
        """Run all launches in order."""
        # r[impl cuda.table.graph]
        if not self.launches:
            return
        with self.device.lock:
            if self.executable is None:
                self._instantiate()
            call = self.device.context.call
            for launch in self.changed:  # r[impl cuda.table.update]
                call("cuGraphExecKernelNodeSetParams", self.executable, self.nodes[launch],
                     self._node(launch))
            self.changed = {}
            for program, _, _ in self.launches[-8:]:
                self.device.context.launched.append(program.name)
            call("cuGraphLaunch", self.executable, self.device.stream)

    def _node(self, launch: int) -> Any:
        """What the driver has to know of one launch."""
        program, _, values = self.launches[launch]
        return program.node(values, self.packed.extra(launch))  # type: ignore[attr-defined]

    def _instantiate(self) -> None:
        """Make the graph: each kernel comes after the one before it."""
        call = self.device.context.call
        graph = call("cuGraphCreate", 0)
        self.nodes = []
        for launch in range(len(self.launches)):
            before = self.nodes[-1:]
            self.nodes.append(call("cuGraphAddKernelNode", graph, before, len(before),
                                   self._node(launch)))
        self.executable = call("cuGraphInstantiate", graph, 0)
        self.changed = {}
        kept = weakref.finalize(self, _let_go, self.device.done_with, self.executable, graph)
        kept.atexit = False  # the driver goes first
# --8<-- [end:table]


def _let_go(done_with: deque[tuple[str, Any]], executable: Any, graph: Any) -> None:
    """A table is gone: what it had of the driver is destroyed when the GPU is waited for next."""
    done_with.append(("cuGraphExecDestroy", executable))
    done_with.append(("cuGraphDestroy", graph))
