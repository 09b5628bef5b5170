"""OpenCL devices: kernels for work-groups, through pyopencl. Chapter: spec/opencl.md.

With PoCL, which comes as a Python package, the processor is such a device, so the path of kernels
for GPUs runs everywhere. `OPENCL:1` is the second device of the machine; where there is only one,
it is a second device on it, with memory and programs of its own.
"""
from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from impl import settings
from impl.caching.disk import store
from impl.device import Device, GlobalCounters, Launch, Memory, Table, kept_bytes
from impl.device.kept import entry
from impl.device.remote import DeviceMemory, Pooled
from impl.device.workgroups import GroupDevice, GroupProgram
from impl.dialects import OpenCL
from impl.errors import CompileError, DeviceError
from impl.host import np
from impl.kernel import DeviceLimits
from impl.opencl.memory import OpenCLBuffers
from impl.opencl.table import OpenCLTable
from impl.places import device_number
from impl.render import SourceText, names_of, symbol, unit_text

#: Divisions and roots of floats are rounded correctly; nothing is contracted, see the header.
FLAGS = ("-cl-std=CL1.2", "-cl-fp32-correctly-rounded-divide-sqrt", "-w")
_FORMAT = "tensor-schedule-opencl/1"


@functools.lru_cache(maxsize=1)
def _found() -> tuple[tuple[Any, ...], str]:
    """The devices of this machine, and why there is none."""
    # r[impl opencl.error.told+2]
    try:
        import pyopencl
    except ImportError:
        return (), 'the package pyopencl is not installed (pip install -e ".[opencl]")'
    try:
        devices = [d for platform in pyopencl.get_platforms() for d in platform.get_devices()]
    except pyopencl.Error as error:
        return (), f"OpenCL finds no platform: {error}"
    problems = [_building_problem(pyopencl, each) for each in devices]
    able = tuple(each for each, problem in zip(devices, problems, strict=True) if not problem)
    return able, "" if able else next(iter(problems), "OpenCL finds no device")


def _building_problem(cl: Any, device: Any) -> str:
    """Why a device compiles nothing; empty if it does. An old PoCL lists a processor that came
    after it, and then its compiler does not know it.
    """
    # r[impl opencl.error.told+2]
    try:
        _built(cl, cl.Program(cl.Context([device]), "__kernel void empty() {}"))
        return ""
    except cl.Error as error:
        said = [line.strip() for line in str(error).splitlines()]
        return (f"{device.platform.name} {device.driver_version} compiles nothing for "
                f"{device.name}: {next((line for line in said if 'error:' in line), said[0])} "
                "(install a newer driver)")


def _built(cl: Any, unit: Any, flags: Sequence[str] = FLAGS) -> Any:
    """A unit, compiled. What a driver tells of a compilation that worked is not passed on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        return unit.build(list(flags))


def opencl_problem() -> str:
    """Why there is no OpenCL device; empty if there is one."""
    return _found()[1]


class OpenCLProgram(GroupProgram):
    """A kernel for work-groups."""

    device: OpenCLDevice
    unit: Any = None  # what holds it, compiled

    def kernel(self) -> Any:
        """A kernel of its own: it holds the arguments of its next launch."""
        return self.device.cl.Kernel(self.unit, symbol(self.key))

    def parts(self, memories: Sequence[Memory], values: Sequence[int],
              scratch: Memory | None) -> list[list[Any]]:
        """The arguments of each of its launches: where memories begin, values, phase, scratch."""
        given: list[Any] = []
        for position in self.text.parameters:
            memory = memories[position]
            assert isinstance(memory, DeviceMemory)
            given += [memory.buffer, np.int64(memory.start)]
        given += [np.int64(value) for value in values]
        if scratch is None:
            return [given]
        assert isinstance(scratch, DeviceMemory)
        return [[*given, np.int32(phase), scratch.buffer]
                for phase in range(len(self.text.phases))]

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Launch it; it runs after all that was launched before."""
        with self.device.lock:
            scratch = self.scratch()
            parts = self.parts(memories, values, scratch)
            for given, (groups, lanes) in zip(parts, self.shape.launches(values), strict=True):
                if groups:
                    self.function.set_args(*given)
                    self.device.enqueue(self.name, self.function, groups, lanes)


class OpenCLDevice(GroupDevice):
    """One OpenCL device: a context, a queue whose commands run in order, and memory."""

    program = OpenCLProgram
    kind = "OPENCL"
    host_memory = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        import pyopencl
        self.cl = pyopencl
        devices = _found()[0]
        number = device_number(name)
        self.cl_device = devices[number % len(devices)]
        self.context = pyopencl.Context([self.cl_device])
        self.queue = pyopencl.CommandQueue(
            self.context, properties=pyopencl.command_queue_properties.PROFILING_ENABLE)
        self.maximum_arguments = max((self.cl_device.max_parameter_size - 64) // 16, 1)
        self.double = bool(self.cl_device.double_fp_config)
        # Partial results of reductions need some of it, too.
        self.local_bytes = min(self.local_bytes, self.cl_device.local_mem_size // 2)
        self.lanes = min(256, self.cl_device.max_work_group_size)
        self.pool = OpenCLBuffers(pyopencl, self.context, self.queue,
                                  kept_bytes(self.cl_device.global_mem_size))
        self.functions: dict[str, Any] = {}
        self.timed: list[Any] | None = None  # the events of launches, while somebody asks

    @property
    def limits(self) -> DeviceLimits:
        """What the device says of itself."""
        said = self.cl_device
        # A processor runs lanes in a loop: its vectors are what runs in step, and they are short.
        lockstep = 4 if said.type & self.cl.device_type.CPU else 32
        return DeviceLimits(name="OPENCL", lanes=self.lanes, lockstep=lockstep,
                            local_memory=said.local_mem_size)

    def plan_key(self) -> tuple[Any, ...]:
        """To what all devices have, which device and driver it is."""
        return (*super().plan_key(), self._identity())

    @functools.cache  # noqa: B019  (devices live as long as the process)
    def _identity(self) -> str:
        said = self.cl_device
        return "\n".join([_FORMAT, *FLAGS, said.name, said.version, said.driver_version,
                          said.platform.name, said.platform.version, said.extensions])

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory; what was freed before is used again.

        Raises:
            DeviceError: there is not enough memory.
        """
        try:
            buffer = self.pool.take(nbytes)
        except (self.cl.Error, OverflowError):
            raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                              "use smaller tensors or free some") from None
        GlobalCounters.grown(nbytes)
        return Pooled(self, buffer, 0, nbytes)

    def put(self, memory: Memory, flat: np.ndarray) -> None:
        """Write bytes of the host to the start of a block."""
        assert isinstance(memory, DeviceMemory)
        if flat.nbytes:
            self.cl.enqueue_copy(self.queue, memory.buffer, np.ascontiguousarray(flat),
                                 dst_offset=memory.start, is_blocking=True)

    def get(self, memory: Memory, offset: int, nbytes: int) -> np.ndarray:
        """A new array with bytes of a block, once all that was launched is done."""
        assert isinstance(memory, DeviceMemory)
        found = np.empty(nbytes, np.uint8)
        if nbytes:
            self.cl.enqueue_copy(self.queue, found, memory.buffer,
                                 src_offset=memory.start + offset, is_blocking=True)
        return found

    def copy(self, target: Memory, source: Memory, nbytes: int | None = None) -> None:
        """Copy bytes between two blocks; on one device they never leave it."""
        if source.device is not self:
            super().copy(target, source, nbytes)
            return
        assert isinstance(target, DeviceMemory) and isinstance(source, DeviceMemory)
        size = min(target.nbytes, source.nbytes) if nbytes is None else nbytes
        if size:
            self.cl.enqueue_copy(self.queue, target.buffer, source.buffer, byte_count=size,
                                 src_offset=source.start, dst_offset=target.start)
        GlobalCounters.copied(size)

    def synchronize(self) -> None:
        """Wait until everything launched is done."""
        self.queue.finish()

    def table(self, launches: Sequence[Launch]) -> Table:
        """Launches whose arguments are set once."""
        return OpenCLTable(self, launches)

    def enqueue(self, name: str, kernel: Any, groups: int, lanes: int) -> None:
        """Launch a kernel with the arguments that were set.

        Raises:
            DeviceError: the driver refused it; the device can be used as before.
        """
        try:
            event = self.cl.enqueue_nd_range_kernel(
                self.queue, kernel, (groups * lanes,), (lanes,))
        except self.cl.Error as error:  # r[impl opencl.error.told+2]
            raise DeviceError(name, f"{self.name} refused {groups} groups of {lanes} "
                              f"lanes: {error}", "set NOOPT=1, or use smaller tensors") from None
        if self.timed is not None:
            self.timed.append(event)

    def seconds(self, work: Callable[[], None]) -> float:
        """How long the device works on what `work` launches, by its own clock."""
        # r[impl opencl.time.event]
        self.timed = events = list[Any]()
        try:
            work()
        finally:
            self.timed = None
        self.queue.finish()
        return (events[-1].profile.end - events[0].profile.start) * 1e-9 if events else 0.0

    def dialect(self) -> OpenCL:
        """OpenCL C."""
        return OpenCL(self.double)

    def environment(self) -> Sequence[str]:
        """Driver, device and flags."""
        # r[impl opencl.cache.key]
        return (self._identity(), f"double={self.double}")

    def link(self, program: GroupProgram) -> None:
        """Give a program what holds it, and a kernel."""
        assert isinstance(program, OpenCLProgram)
        program.unit = self.functions[program.key]
        program.function = program.kernel()

    def attempt(self, program: GroupProgram) -> None:
        """Compile a program by itself, and keep nothing of it."""
        assert isinstance(program, OpenCLProgram)
        program.unit = self._compiled({program.key: program.text})
        program.function = program.kernel()

    def forget(self, program: GroupProgram) -> None:
        """Let go of a program that was tried."""
        assert isinstance(program, OpenCLProgram)
        program.unit = program.function = None

    def _compiled(self, sources: dict[str, SourceText]) -> Any:
        """A unit, compiled.

        Raises:
            CompileError: the driver refused the text.
        """
        try:
            return _built(self.cl, self.cl.Program(self.context, unit_text(sources.items())))
        except self.cl.Error as error:
            said = f"{self.name} refused {names_of(sources.values())}: {error}"
            raise CompileError("compile", said,
                               "set NOOPT=1 to avoid an optimisation, or another DEVICE") from None

    def build(self, sources: dict[str, SourceText]) -> None:
        """Compile a unit, and keep what the driver made of it."""
        made = self._compiled(sources)
        GlobalCounters.compiled += len(sources)
        self.functions.update(dict.fromkeys(sources, made))
        if not settings.get("CACHELEVEL"):
            return  # to ask for what the driver made may take it as long as to make it
        name = store().put_object(made.get_info(self.cl.program_info.BINARIES)[0], "clbin")
        for key in sources:
            store().put("opencl", key, json.dumps({"object": name}).encode())

    def find(self, key: str) -> bool:
        """Load a kernel's unit from disk."""
        name = entry(store(), "opencl", key).get("object", "")
        path = store().find_object(name) if name else None
        try:
            if path is None:
                return False
            made = _built(self.cl, self.cl.Program(
                self.context, [self.cl_device], [path.read_bytes()]), ())
            self.cl.Kernel(made, symbol(key))
        except (OSError, self.cl.Error):
            return False
        self.functions[key] = made
        return True


Device.register(OpenCLDevice, opencl_problem)
