"""Programs of the CPU device, and tables of their launches. Chapter: spec/cpu.md."""
from __future__ import annotations

import copy
import ctypes
import operator
import struct
from collections.abc import Sequence
from typing import Any

from impl.choosing import duration
from impl.cpu.disassembly import machine_code
from impl.cpu.objects import check_launched, launcher
from impl.device import DeviceBackend, Launch, Memory, Table
from impl.device.kept import KeptProgram
from impl.host import np
from impl.ir import UOp
from impl.render import SourceText

#: Words of a launch as C sees it.
_WORDS = 8


class CPUProgram(KeptProgram):
    """A kernel as a C function `void kernel(void **arguments)`, or one that has phases.

    `key` names the text of the function. `shape` are the words of its launches after function and
    arguments: chunks, threads, phases, bytes of scratch memory for all and for each thread, and the
    nanoseconds that one thread would need.
    """

    function: int = 0
    shape: tuple[int, ...] = (1, 1, 0, 0, 0, 0)
    library: ctypes.CDLL | None = None  # of a program that was tried
    _call: Any = None
    _packed: Any = None

    def set_shape(self, source: SourceText, threads: int) -> None:
        """Take over what the text says of chunks and phases; so many threads may share them."""
        if source.phases:
            kinds = sum(shared << place for place, shared in enumerate(source.phases))
            self.shape = (source.threads, min(source.threads, threads),
                          kinds | 1 << len(source.phases), source.scratch, source.own,
                          duration(self.ast) if source.threads > 1 else 0)

    def sharing(self, count: int) -> CPUProgram:
        """The program with its share of the threads; its chunks, and so its values, are the same.
        """
        chunks, threads, *others = self.shape
        if threads == 1:
            return self
        # r[impl collectives.lanes.cores]
        found = copy.copy(self)
        found.shape = (chunks, max(1, threads // count), *others)
        return found

    def machine_code(self) -> str:
        """The instructions of the function, where objdump is installed."""
        return machine_code(self.function)  # r[impl inspect.machine.loaded]

    def facts(self) -> dict[str, Any]:
        """What is kept of a program besides its object."""
        return {**super().facts(), "shape": self.shape}

    @classmethod
    def of_facts(cls, device: DeviceBackend, ast: UOp, facts: dict[str, Any]) -> CPUProgram:
        """The program of which these facts were kept; its function is not loaded."""
        found = super().of_facts(device, ast, facts)
        found.shape = tuple(map(int, facts["shape"]))
        return found

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Call the function with the memories' addresses and the addresses of the values."""
        if self.shape[2]:
            arranged = Arranged([(self, memories, values)])  # alive until the run is over
            check_launched(launcher(arranged.address, 1)())
            return
        if self._call is None:
            self._packed = struct.Struct(f"{self.arguments + len(self.variables)}P").pack
            self._call = _PROTOTYPE(self.function)
        if len(memories) > self.arguments:
            memories = memories[:self.arguments]
        if not values:
            self._call(self._packed(*map(_address, memories)))
            return
        numbers = (ctypes.c_int64 * len(values))(*values)
        start = ctypes.addressof(numbers)
        self._call(self._packed(*map(_address, memories),
                                *range(start, start + 8 * len(values), 8)))


_address = operator.attrgetter("address")
#: A kernel reads its table of arguments only, and `bytes` are the quickest way to make one.
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class Arranged:
    """Launches as C sees them: function and arguments in turn, and the values in one array."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        pointers = sum(p.arguments + len(p.variables) for p, _, _ in launches)
        self.words = np.zeros(_WORDS * len(launches) + pointers, np.uint64)
        self.values = np.array([v for _, _, values in launches for v in values], np.int64)
        self.address = self.words.ctypes.data
        self.first: list[int] = []       # where the arguments of each launch begin
        self.first_value: list[int] = []
        place, value, base = _WORDS * len(launches), 0, self.values.ctypes.data
        words: list[int] = []
        rest: list[int] = []
        for program, memories, values in launches:
            assert isinstance(program, CPUProgram)
            words += (program.function, self.address + 8 * place, *program.shape)
            self.first.append(place)
            self.first_value.append(value)
            rest += [memory.address for memory in memories[:program.arguments]]
            rest += [base + 8 * (value + i) for i in range(len(values))]
            place += program.arguments + len(values)
            value += len(values)
        self.words[:] = words + rest


class CPUTable(Table):
    """Launches that C runs in one call: a few nanoseconds for each."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        super().__init__(launches)
        self.arranged = Arranged(self.launches)
        self.launch = launcher(self.arranged.address, len(launches)) if launches else int
        self.first = self.arranged.first
        self.words = memoryview(self.arranged.words)  # type: ignore[arg-type]  # quicker to set

    def set_memory(self, launch: int, argument: int, memory: Memory) -> None:
        """Give one launch another memory for one argument."""
        program, memories, _ = self.launches[launch]
        memories[argument] = memory
        if argument < program.arguments:
            self.words[self.first[launch] + argument] = memory.address

    def set_value(self, launch: int, variable: int, value: int) -> None:
        """Give one launch another value of one variable."""
        super().set_value(launch, variable, value)
        self.arranged.values[self.arranged.first_value[launch] + variable] = value

    def repeated(self, count: int) -> CPURepeated:
        """The launches so many times, each time on other memories."""
        return CPURepeated(self.launches, count)

    def replay(self) -> None:
        """Run all launches in order."""
        # r[impl cpu.table.call]
        failed = self.launch()
        if failed:
            check_launched(failed)


class CPURepeated:
    """The launches of a table several times in a row, which C runs in one call."""

    def __init__(self, launches: Sequence[Launch], count: int) -> None:
        arranged = self.arranged = Arranged([*launches] * count)
        self.arguments = [program.arguments for program, _, _ in launches]
        # A row of words for each time: of the arguments of all its launches.
        self.rows = arranged.words[_WORDS * len(launches) * count:].reshape(count, -1)
        begin = arranged.first[0]
        self.first = [first - begin for first in arranged.first[:len(launches)]]

    def set_addresses(self, launch: int, argument: int, addresses: np.ndarray | int) -> None:
        """Where an argument lies in each of the times, or in all of them."""
        if argument < self.arguments[launch]:
            column = self.rows[:, self.first[launch] + argument]
            if isinstance(addresses, np.ndarray):
                column[:len(addresses)] = addresses
            else:
                column[:] = addresses

    def run(self, times: int) -> None:
        """Run the first so many times, in order. Nothing is counted."""
        # r[impl cpu.table.call]
        check_launched(launcher(self.arranged.address, len(self.first) * times)())
