"""Devices: memory, programs, launches and what is counted. Chapter: spec/device.md.

A backend derives from `DeviceBackend` and registers itself under a name. Everything above talks to
a device through this class alone.
"""
from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from impl import settings
from impl.dtypes import DType
from impl.errors import CompileError, DeviceError, VariableError, name_missing
from impl.host import np
from impl.ir import Ops, UOp, free_after_fork
from impl.kernel import Analysis, DeviceLimits, Estimate, Work
from impl.memory import ALIGNMENT
from impl.multi import meshes
from impl.places import Place, device_kind, introduce, spelled

#: What tinygrad calls some counts.
_OF_TINYGRAD = {"kernel_count": "kernels", "global_ops": "operations", "global_mem": "bytes",
                "mem_used": "allocated"}


class Counters:
    """Exact counts of what all devices did since the last `reset()`."""

    __slots__ = ("kernels", "operations", "bytes", "copies", "copied_bytes", "compiled",
                 "cache_hits", "disk_hits", "plan_hits", "plan_misses", "fresh", "allocated",
                 "peak")
    kernels: int        # launches of programs
    operations: int     # arithmetic operations in them
    bytes: int          # distinct bytes that they touched
    copies: int         # copies from, to and between devices
    copied_bytes: int
    compiled: int       # kernels that a compiler had to translate
    cache_hits: int     # kernels found compiled, in memory or on disk
    disk_hits: int      # those of them that were found on disk
    plan_hits: int      # schedules whose plan was found
    plan_misses: int    # schedules that were planned
    fresh: int          # bytes that had to be taken from the system
    allocated: int      # bytes in use now; not reset
    peak: int           # most bytes in use at once since the reset

    def __init__(self) -> None:
        self.allocated = 0
        self.reset()

    def reset(self) -> None:
        """Set all counts to zero, and the peak to what is in use."""
        self.kernels = self.operations = self.bytes = self.copies = self.copied_bytes = 0
        self.compiled = self.cache_hits = self.disk_hits = self.plan_hits = self.plan_misses = 0
        self.fresh, self.peak = 0, self.allocated

    def __getattr__(self, name: str) -> int:
        """A count under tinygrad's name.

        Raises:
            NameMissingError: nothing of this name is counted.
        """
        if name in _OF_TINYGRAD:
            counted: int = getattr(self, _OF_TINYGRAD[name])
            return counted
        raise name_missing("GlobalCounters", name, self.__slots__)  # r[impl errors.name.missing]

    def launched(self, cost: Estimate, times: int = 1) -> None:
        """Count one kernel that ran; devices of a mesh may combine at the same time."""
        with _counting:
            self.kernels += times
            self.operations += cost.operations * times
            self.bytes += cost.bytes * times

    def copied(self, size: int) -> None:
        """Count one copy; devices of a mesh copy at the same time."""
        with _counting:
            self.copies += 1
            self.copied_bytes += size

    def grown(self, size: int) -> None:
        """Count memory taken (or given back, if negative)."""
        self.allocated += size
        if self.allocated > self.peak:
            self.peak = self.allocated


_counting = free_after_fork(threading.RLock())
GlobalCounters = Counters()


class Memory:
    """A block of a device's memory: `nbytes` bytes of `block` from `start`, at `address`.

    `part` gives a block inside this one that shares its bytes and keeps it alive.
    """

    __slots__ = ("device", "nbytes", "block", "start", "address", "owner", "__weakref__")

    def __init__(self, device: DeviceBackend, block: np.ndarray, start: int, nbytes: int,
                 owner: Any = None, address: int | None = None) -> None:
        self.device, self.owner, self.nbytes = device, owner, nbytes
        self.block, self.start = block, start
        # NumPy is slow to tell.
        self.address: int = block.__array_interface__["data"][0] + start if address is None \
            else address

    @property
    def members(self) -> list[Memory]:
        """The blocks that it is made of: itself, or on a mesh one of each device."""
        return [self]

    @property
    def array(self) -> np.ndarray:
        """Its bytes, where the host can see them."""
        return self.block[self.start:self.start + self.nbytes]

    def view(self, dtype: DType, count: int | None = None, offset: int = 0) -> np.ndarray:
        """The elements from byte `offset` as a one-dimensional NumPy array without a copy."""
        stop = self.nbytes if count is None else offset + count * dtype.itemsize
        usable = offset + (stop - offset) // dtype.itemsize * dtype.itemsize
        return self.array[offset:usable].view(dtype.numpy)

    def part(self, offset: int, nbytes: int) -> Memory:
        """The `nbytes` from byte `offset`, sharing this memory.

        Raises:
            DeviceError: the part does not lie inside.
        """
        # r[impl device.memory.blocks]
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise DeviceError("memory", f"bytes {offset} to {offset + nbytes} of a block of "
                              f"{self.nbytes}", "ask for a part inside the block")
        return self._inside(self.start + offset, nbytes)

    def _inside(self, start: int, nbytes: int) -> Memory:
        """Some bytes of the block; where memory is not the host's, of another kind."""
        return Memory(self.device, self.block, start, nbytes, self,
                      self.address + start - self.start)


class Program:
    """One compiled kernel. Call it with memories for PARAM 0, 1, ... and values of variables."""

    def __init__(self, device: DeviceBackend, ast: UOp, optimized: UOp | None = None,
                 arguments: int | None = None) -> None:
        self.device, self.ast, self._optimized = device, ast, optimized
        self.name: str = ast.arg.name
        self.arguments = Analysis(ast).params if arguments is None else arguments
        self.variables: tuple[UOp, ...] = ast.arg.variables
        self.source: str | None = None
        self._cost: Estimate | None = None  # where no variable decides it
        self._work: Work | None = None

    @property
    def optimized(self) -> UOp:
        """The kernel after the optimisation steps."""
        return self._optimized or self.ast

    @property
    def steps(self) -> tuple[str, ...]:
        """The optimisation steps that were applied, in order."""
        steps: tuple[str, ...] = self.optimized.arg.steps
        return steps

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each of the steps was applied."""
        reasons: tuple[str, ...] = self.optimized.arg.reasons
        return reasons

    def machine_code(self) -> str:
        """What the processor runs, as text, or why that cannot be shown; empty if the device does
        not know.
        """
        return ""

    def cost(self, values: Sequence[int] = ()) -> Estimate:
        """Operations and bytes of one run with these values of the variables."""
        if self._cost is None:
            self._work = self._work or Work(self.ast)
            found = self._work.estimate(dict(zip(self.variables, values, strict=True)))
            if self.variables:
                return found
            self._cost = found
        return self._cost

    def check(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Raise DeviceError or VariableError unless the arguments fit."""
        if len(memories) < self.arguments:  # r[impl device.launch.refused+2]
            raise DeviceError(self.name, f"{len(memories)} memories for {self.arguments} arguments",
                              "give one memory for every argument")
        if len(values) != len(self.variables):
            raise VariableError(self.name, f"{len(values)} values for {len(self.variables)} "
                                "variables", "bind every variable once")
        for variable, value in zip(self.variables, values, strict=True):
            name, least, most = variable.arg
            if not least <= value <= most:  # r[impl device.launch.refused+2]
                raise VariableError(name, f"{value} is not from {least} to {most}",
                                    "bind a value inside the variable's bounds")

    def __call__(self, memories: Sequence[Memory], values: Sequence[int] = ()) -> None:
        """Run once."""
        if values or self.variables or len(memories) < self.arguments:
            self.check(memories, values)
        self.run(memories, values)
        cost, counters = self._cost or self.cost(values), GlobalCounters
        counters.kernels += 1  # r[impl device.counters.exact]
        counters.operations += cost.operations
        counters.bytes += cost.bytes

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Run without checks or counting; each backend has its own."""
        raise NotImplementedError

    def sharing(self, count: int) -> Program:
        """The program, for one of so many devices that run it at the same time."""
        return self


Launch = tuple[Program, Sequence[Memory], Sequence[int]]


class Table:
    """Launches that are replayed together, in order. A backend may replay them in one call.

    `begun` is the launch that was started last; negative where the backend does not tell.
    """

    begun = -1

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = [(program, list(memories), list(values))
                         for program, memories, values in launches]
        for program, memories, values in self.launches:
            program.check(memories, values)
        self._counts: tuple[int, int, int] | None = None  # of a run, where they are known

    def set_memory(self, launch: int, argument: int, memory: Memory) -> None:
        """Give one launch another memory for one argument."""
        self.launches[launch][1][argument] = memory

    def forget(self, launch: int, argument: int) -> None:
        """Let go of the memory of an argument; it gets another one before the next run."""
        self.launches[launch][1][argument] = None  # type: ignore[call-overload]

    def set_value(self, launch: int, variable: int, value: int) -> None:
        """Give one launch another value of one variable."""
        program, memories, values = self.launches[launch]
        program.check(memories, [*values[:variable], value, *values[variable + 1:]])
        values[variable] = value
        self._counts = None

    def run(self) -> None:
        """Run all launches in order, and count them."""
        # r[impl device.table.equal+2]
        self.replay()
        self.note()

    def repeated(self, count: int) -> Along | None:
        """The launches so many times, each time on other memories; None where a backend has no
        quicker way for that than to set them and run, time after time.
        """
        return None

    def note(self, times: int = 1) -> None:
        """Count all launches, so many times."""
        kernels, operations, size = self._counts or self._counted()
        counters = GlobalCounters
        counters.kernels += kernels * times
        counters.operations += operations * times
        counters.bytes += size * times

    def _counted(self) -> tuple[int, int, int]:
        """How many kernels, operations and bytes one run has."""
        costs = [program.cost(values) for program, _, values in self.launches]
        self._counts = (len(costs), sum(cost.operations for cost in costs),
                        sum(cost.bytes for cost in costs))
        return self._counts

    def replay(self) -> None:
        """Run all launches in order; each backend may have a faster way."""
        for number, (program, memories, values) in enumerate(self.launches):
            self.begun = number
            program.run(memories, values)


class Along(Protocol):
    """The launches of a table, several times in a row."""

    def set_addresses(self, launch: int, argument: int, addresses: np.ndarray | int) -> None:
        """Where an argument lies in each of the times, or in all of them."""

    def run(self, times: int) -> None:
        """Run the first so many times, in order. Nothing is counted."""


def kept_bytes(total: int) -> int:
    """How many bytes of freed memory are kept for the next who asks, of a device's `total`."""
    # r[impl device.memory.kept+3]
    return total // 4


class DeviceBackend:
    """One device. Override `load` (and, where memory is not the host's, the copies)."""

    kind = ""                 # "CPU" in "CPU:1"
    maximum_arguments = 1 << 16
    local_bytes = 256 << 10   # for what passes between the stages of one iteration of the prefix
    host_memory = True        # whether `Memory.array` may be read and written directly
    shared_memory = True      # host memory: whether kernels of other devices can be given it
    concurrent = True         # of a mesh: whether its devices may run in lanes
    buckets = True            # of a mesh: whether a plan says which sums go together

    def __init__(self, name: str) -> None:
        self.name = name
        self.alignment = ALIGNMENT
        self.lock = free_after_fork(threading.RLock())
        self.programs: dict[tuple[UOp, tuple[Any, ...]], Program] = {}

    @property
    def limits(self) -> DeviceLimits:
        """What the optimisation steps may use."""
        return DeviceLimits(name=self.kind)

    def plan_key(self) -> tuple[Any, ...]:
        """Everything about this device that can change a plan or a kernel."""
        # r[impl caching.key.circumstances]
        return (self.kind, self.alignment, self.maximum_arguments, self.limits)

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory, aligned to `alignment`; it is freed when nothing refers to it.

        Raises:
            DeviceError: there is not enough memory.
        """
        try:
            block = np.empty(nbytes + self.alignment, np.uint8)
        except (MemoryError, ValueError):  # r[impl device.memory.blocks]
            raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                              "use smaller tensors or free some") from None
        start = -block.ctypes.data % self.alignment  # r[impl device.memory.blocks]
        GlobalCounters.grown(nbytes)
        return _Owned(self, block, start, nbytes, block)

    def copy_in(self, memory: Memory, values: np.ndarray) -> None:
        """Fill the start of a block with a NumPy array's bytes."""
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self.put(memory, flat)
        GlobalCounters.copied(flat.nbytes)

    def copy_out(self, memory: Memory, dtype: DType, count: int, offset: int = 0) -> np.ndarray:
        """A new NumPy array with `count` elements from byte `offset`."""
        GlobalCounters.copied(count * dtype.itemsize)
        return self.get(memory, offset, count * dtype.itemsize).view(dtype.numpy)

    def copy(self, target: Memory, source: Memory, nbytes: int | None = None) -> None:
        """Copy bytes between two blocks; the source may be another device's."""
        # r[impl device.copy.exact]
        size = min(target.nbytes, source.nbytes) if nbytes is None else nbytes
        if source.device.host_memory:
            source.device.synchronize()
            self.put(target, source.array[:size])
        else:
            self.put(target, source.device.get(source, 0, size))
        GlobalCounters.copied(size)

    def put(self, memory: Memory, flat: np.ndarray) -> None:
        """Write bytes of the host to the start of a block; override where memory is not its."""
        memory.array[:flat.nbytes] = flat

    def get(self, memory: Memory, offset: int, nbytes: int) -> np.ndarray:
        """A new array with bytes of a block, once all that was launched is done."""
        self.synchronize()
        return memory.array[offset:offset + nbytes].copy()

    def compile(self, asts: Sequence[UOp]) -> list[Program]:
        """Programs for kernels, in the same order.

        Raises:
            CompileError: no compiler, or it refused a kernel; a text for another kind of device.
            DeviceError: a kernel has more arguments than the device takes.
        """
        # r[impl device.compile.once]
        with self.lock:
            key = settings.plan_key()
            missing = list(dict.fromkeys(a for a in asts if (a, key) not in self.programs))
            for ast in missing:  # r[impl custom.text.refused]
                value = ast.src[0].src[1]
                if value.op is Ops.TEXT and value.arg.device != self.kind:
                    raise CompileError(ast.arg.name, f"a text for {value.arg.device}, and this is "
                                       f"{self.kind}", "compile it for the device of its language")
            if missing:
                for ast, program in zip(missing, self.load(missing), strict=True):
                    # r[impl device.launch.refused+2]
                    if program.arguments > self.maximum_arguments:
                        raise DeviceError(
                            program.name, f"{program.arguments} arguments; {self.name} takes "
                            f"{self.maximum_arguments}", "cut the kernel")
                    self.programs[ast, key] = program
            GlobalCounters.cache_hits += len(asts) - len(missing)
            return [self.programs[ast, key] for ast in asts]

    def load(self, asts: Sequence[UOp]) -> list[Program]:
        """Make programs; every backend has its own way."""
        raise NotImplementedError

    def source(self, ast: UOp) -> str | None:
        """The text that `load` would make of a kernel now; None if the device has no texts."""
        return None

    def optimized(self, ast: UOp, search: bool = True) -> UOp:
        """The kernel that `load` would compile; nothing runs for that if `search` is false."""
        return ast

    def table(self, launches: Sequence[Launch]) -> Table:
        """Launches to be replayed together."""
        return Table(launches)

    def synchronize(self) -> None:
        """Wait until everything launched is done."""

    def seconds(self, work: Callable[[], None]) -> float:
        """How long the device works on what `work` launches; by its own clock, if it has one."""
        self.synchronize()
        start = time.perf_counter()
        work()
        self.synchronize()
        return time.perf_counter() - start


class _Owned(Memory):
    """Memory that is counted until nothing refers to it."""

    __slots__ = ()

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, grown: Callable[[int], None] = GlobalCounters.grown) -> None:
        grown(-self.nbytes)


#: Devices by the names that other libraries have for them.
_ELSEWHERE = {"GPU": ["CUDA", "OPENCL", "METAL", "WEBGPU"], "MPS": ["METAL"], "NV": ["CUDA"],
              "CL": ["OPENCL"], "CLANG": ["CPU"], "PYTHON": ["REFERENCE"], "NUMPY": ["REFERENCE"]}


class Registry:
    """All devices by name. `Device["CPU"]`, `Device["CPU:1"]`, `Device.DEFAULT`."""

    def __init__(self) -> None:
        self._kinds: dict[str, tuple[type[DeviceBackend], Callable[[], str]]] = {}
        self.opened: dict[str, DeviceBackend] = {}
        #: Opens a mesh; set by the chapter distributed.
        self.of_mesh: Callable[[Any], DeviceBackend] = DeviceBackend
        self.lock = free_after_fork(threading.RLock())
        self.announced = False

    def register(self, backend: type[DeviceBackend], problem: Callable[[], str]) -> None:
        """Make a kind of device known; `problem()` says why it cannot be used, or is empty."""
        self._kinds[backend.kind] = (backend, problem)

    @property
    def kinds(self) -> dict[str, tuple[type[DeviceBackend], Callable[[], str]]]:
        """Each kind of device, and what says why it cannot be used."""
        if introduce:
            for each in introduce:
                each()
            introduce.clear()
        return self._kinds

    def canonical(self, name: str) -> Place:
        """The one spelling of a device's name: "cpu:0" is "CPU".

        Raises:
            DeviceError: there is no such device.
        """
        if name in meshes:
            return meshes[name]
        # What stands behind an @ is the process of a job; each has such a device itself.
        kind, _, number = name.upper().partition("@")[0].partition(":")
        if kind not in self.kinds or (":" in name and not number.isdecimal()):
            names = sorted(self.kinds)  # r[impl device.name.resolved+2]
            near = settings.meant(_ELSEWHERE.get(kind) or [
                each for each in names if settings.one_edit_apart(kind, each)])
            raise DeviceError("device", f"{name!r} is not a device", f"{near}use one of "
                              # r[impl device.name.resolved+2]
                              f"{', '.join(names)}, or NAME:NUMBER")
        return Place(spelled(f"{kind}:{number}" if number else kind))

    def usable(self, name: str) -> Place:
        """The one spelling of a device's name, if there is what the device needs.

        Raises:
            DeviceError: there is no such device, or not on this machine.
        """
        if name in meshes:
            for device in meshes[name].devices:
                self.usable(device)
            return meshes[name]
        full = self.canonical(name)  # r[impl device.name.resolved+2]
        if full not in self.opened and (reason := self.kinds[device_kind(full)][1]()):
            if device_kind(full) == "CPU":  # r[impl device.default.host]
                self._announce(reason)
                return Place(full.replace("CPU", "REFERENCE"))
            # r[impl device.name.resolved+2]
            raise DeviceError("device", f"{full} cannot be used: {reason}",
                              "use CPU or REFERENCE, or install what is missing")
        return full

    def __getitem__(self, name: str) -> DeviceBackend:
        """The device of that name, opened at the first use."""
        found = self.opened.get(name)
        if found is not None:
            return found
        full = self.usable(name)
        with self.lock:
            if full not in self.opened:
                made = self.of_mesh if full in meshes else self.kinds[device_kind(full)][0]
                self.opened[full] = made(full)
            return self.opened[full]

    @property
    def DEFAULT(self) -> Place:  # noqa: N802  (the field writes Device.DEFAULT)
        """The setting DEVICE; else CPU if it can compile; else REFERENCE, said once on stderr."""
        chosen = settings.get("DEVICE")
        if chosen in meshes:
            raise DeviceError("DEVICE", f"{chosen} is a mesh",
                              "name one device, and lay tensors on the mesh with .shard")
        if chosen:
            return self.canonical(chosen)
        problem = self.kinds["CPU"][1]() if "CPU" in self.kinds else "it is not installed"
        if not problem:
            return _CPU
        self._announce(problem)
        return _REFERENCE

    def _announce(self, problem: str) -> None:
        """Say once why kernels are interpreted."""
        if not self.announced:  # r[impl device.default.line]
            self.announced = True
            print(f"tensor-schedule: using the REFERENCE device, which is slow: {problem}",
                  file=sys.stderr)


_CPU, _REFERENCE = Place("CPU"), Place("REFERENCE")
Device = Registry()
