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

from impl.device import Launch, Memory, Table
from impl.host import np

if TYPE_CHECKING:
    from impl.cuda import CUDADevice

_WORD = (1 << 64) - 1
#: CU_LAUNCH_PARAM_BUFFERPOINTER, CU_LAUNCH_PARAM_BUFFER_SIZE
POINTER, SIZE = 1, 2


class Packed:
    """The parameters of launches as the driver wants them: words of 8 bytes, one after another."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self.count = len(rows)
        self.first = [0, *np.cumsum([len(row) for row in rows]).tolist()]
        self.words = np.array([word & _WORD for row in rows for word in row] or [0], np.uint64)
        self.sizes = np.array([8 * len(row) for row in rows], np.uint64)
        start, sizes = self.words.ctypes.data, self.sizes.ctypes.data
        self.extras = np.array([(POINTER, start + 8 * self.first[place], SIZE, sizes + 8 * place,
                                 0) for place in range(self.count)], np.uint64)

    def extra(self, place: int) -> int:
        """The address of what describes the parameters of one launch."""
        return int(self.extras.ctypes.data) + self.extras.strides[0] * place

    def change(self, place: int, words: Sequence[int]) -> None:
        """Other parameters for one launch."""
        self.words[self.first[place]:self.first[place + 1]] = [word & _WORD for word in words]


class CUDATable(Table):
    """Launches that the GPU runs one after another on one request."""

    def __init__(self, device: CUDADevice, launches: Sequence[Launch]) -> None:
        super().__init__(launches)
        self.device = device
        self.scratch = [program.scratch() for program, _, _ in self.launches]  # type: ignore
        rows = [self._parts(launch) for launch in range(len(self.launches))]
        self.first = [0, *np.cumsum([len(parts) for parts in rows]).tolist()]
        self.packed = Packed([words for parts in rows for words in parts])
        self.executable: Any = None
        self.nodes: list[Any] = []
        self.idle: set[int] = set()         # nodes that have nothing to do
        self.changed: dict[int, None] = {}  # launches

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
        # r[impl cuda.table.replayed]
        if not self.launches:
            return
        context = self.device.context
        with self.device.lock:
            if self.executable is None:
                self._instantiate()
            for launch in self.changed:  # r[impl cuda.table.replayed]
                self._update(launch)
            self.changed = {}
            context.launched.extend(program.name for program, _, _ in self.launches[-8:])
            context.call("cuGraphLaunch", self.executable, self.device.stream)

    def _parts(self, launch: int) -> list[list[int]]:
        program, memories, values = self.launches[launch]
        found: list[list[int]] = program.parts(  # type: ignore[attr-defined]
            memories, values, self.scratch[launch])
        return found

    def _nodes(self, launch: int) -> list[tuple[int, Any, bool]]:
        """Each node of a launch: its number, what the driver has to know, whether it does work."""
        program, _, values = self.launches[launch]
        found, first = [], self.first[launch]
        shapes = program.shape.launches(values)  # type: ignore[attr-defined]
        for number, (groups, lanes) in enumerate(shapes, first):
            node = program.node(groups, lanes,  # type: ignore[attr-defined]
                                self.packed.extra(number))
            found.append((number, node, groups > 0))
        return found

    def _instantiate(self) -> None:
        """Make the graph: each kernel comes after the one before it."""
        call = self.device.context.call
        for launch in self.changed:
            self._write(launch)
        graph = call("cuGraphCreate", 0)
        self.nodes, self.changed, self.idle = [], {}, set()
        idle = []
        for launch in range(len(self.launches)):
            for number, node, busy in self._nodes(launch):
                before = self.nodes[-1:]
                self.nodes.append(call("cuGraphAddKernelNode", graph, before, len(before), node))
                idle += [] if busy else [number]
        self.executable = call("cuGraphInstantiate", graph, 0)
        kept = weakref.finalize(self, _let_go, self.device.done_with, self.executable, graph)
        kept.atexit = False  # the driver goes first
        for number in idle:
            self._rest(number, True)

    def _update(self, launch: int) -> None:
        """Give the nodes of a launch what they have from now on."""
        call = self.device.context.call
        self._write(launch)
        for number, node, busy in self._nodes(launch):
            call("cuGraphExecKernelNodeSetParams", self.executable, self.nodes[number], node)
            if busy is (number in self.idle):
                self._rest(number, not busy)

    def _write(self, launch: int) -> None:
        for phase, words in enumerate(self._parts(launch)):
            self.packed.change(self.first[launch] + phase, words)

    def _rest(self, number: int, idle: bool) -> None:
        """A launch of no groups is no launch; its node is switched off."""
        # r[impl cuda.table.replayed]
        self.device.context.call("cuGraphNodeSetEnabled", self.executable, self.nodes[number],
                                 int(not idle))
        (self.idle.add if idle else self.idle.discard)(number)


def _let_go(done_with: deque[tuple[str, Any]], executable: Any, graph: Any) -> None:
    """A table is gone: what it had of the driver is destroyed when the GPU is waited for next."""
    done_with.append(("cuGraphExecDestroy", executable))
    done_with.append(("cuGraphDestroy", graph))
