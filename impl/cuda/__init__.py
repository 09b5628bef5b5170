"""The CUDA device: kernels compiled by NVRTC, run through the driver. Chapter: spec/cuda.md.

Everything goes to one stream of each GPU, so that work is done in the order in which it was asked
for, and nobody waits before a value is read.
"""
from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from impl.cuda.compiler import Modules, compiler_environment, version
from impl.cuda.driver import OUT_OF_MEMORY, DriverContext, DriverError, bindings, problem
from impl.cuda.graph import POINTER, SIZE, CUDATable
from impl.cuda.memory import Blocks, OwnedGPUMemory, Staging
from impl.device import Device, GlobalCounters, Launch, Memory, Table, kept_bytes
from impl.device.workgroups import GroupDevice, GroupProgram
from impl.dialects import CUDA as Dialect
from impl.dialects.cuda import copies_of_nvidia
from impl.errors import DeviceError
from impl.host import np
from impl.kernel import DeviceLimits
from impl.kernel.fragments import units_of_nvidia
from impl.places import device_number
from impl.render import SourceText

#: An event without a time, a stream that waits for no other one.
_NO_TIME, _NON_BLOCKING = 2, 1
#: Bytes that the lanes of a group share without being asked for more.
_LOCAL = 48 << 10


class CUDAProgram(GroupProgram):
    """A kernel as a function of the GPU. Where it has phases, each of them is a launch."""

    device: CUDADevice
    module: Any = None  # of a program that was tried

    def parts(self, memories: Sequence[Memory], values: Sequence[int],
              scratch: Memory | None) -> list[list[int]]:
        """The parameters of each of its launches: addresses, values, phase and scratch memory."""
        given = [*(memories[place].address for place in self.text.parameters), *values]
        if scratch is None:
            return [given]
        return [[*given, phase, scratch.address] for phase in range(len(self.text.phases))]

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Ask the GPU to run it, after everything that it was asked before."""
        scratch = self.scratch()  # nobody else's before the last phase is launched
        with self.device.lock:
            self.device.context.launched.append(self.name)
            parts = self.parts(memories, values, scratch)
            for words, (groups, lanes) in zip(parts, self.shape.launches(values), strict=True):
                if groups:
                    self._launch(words, groups, lanes)

    def _launch(self, words: Sequence[int], groups: int, lanes: int) -> None:
        context, driver = self.device.context, self.device.context.enter()
        packed = (ctypes.c_uint64 * len(words))(*words)
        size = ctypes.c_size_t(8 * len(words))
        extra = (ctypes.c_void_p * 5)(POINTER, ctypes.addressof(packed), SIZE,
                                      ctypes.addressof(size), 0)
        error = driver.cuLaunchKernel(self.function, groups, 1, 1, lanes, 1, 1, 0,
                                      self.device.stream, 0, ctypes.addressof(extra))[0]
        if error:  # r[impl cuda.error.told]
            raise context.failure(f"launch of {self.name}, {groups} groups of {lanes} lanes",
                                  error)

    def node(self, groups: int, lanes: int, extra: int) -> Any:
        """A launch as a node of a graph; `extra` is where its parameters are described."""
        made = bindings().CUDA_KERNEL_NODE_PARAMS()
        made.func, made.extra, made.gridDimX, made.blockDimX = \
            self.function, extra, max(groups, 1), lanes
        made.gridDimY = made.gridDimZ = made.blockDimY = made.blockDimZ = 1
        return made


class CUDADevice(GroupDevice):
    """One GPU of NVIDIA."""

    program = CUDAProgram
    kind = "CUDA"
    host_memory = False
    maximum_arguments = 448  # of 8 bytes; all parameters of a kernel have 4096, variables included

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.alignment = 256  # cuMemAlloc's
        self.local_bytes = _LOCAL // 2  # partial results of reductions need some of it, too
        self.context = DriverContext(name, device_number(name))
        major, minor = map(self.context.attribute, ("COMPUTE_CAPABILITY_MAJOR",
                                                    "COMPUTE_CAPABILITY_MINOR"))
        self.architecture = 10 * major + minor
        self.stream = self.context.call("cuStreamCreate", _NON_BLOCKING)
        self.pool = Blocks(self.context, self.synchronize, kept_bytes(
            self.context.call("cuDeviceTotalMem", self.context.device)))
        self.staging = Staging(self.context, self.stream)
        #: What nobody refers to any more, destroyed when the GPU is waited for next.
        self.done_with: deque[tuple[str, Any]] = deque()
        self.meeting = self.context.call("cuEventCreate", _NO_TIME)
        self.modules = Modules(self.context, self.architecture)
        self.functions = self.modules.functions

    @property
    def limits(self) -> DeviceLimits:
        """What the GPU has for a group of lanes; of local memory, what needs no asking."""
        return DeviceLimits(name="CUDA", lanes=256, lockstep=32, exchange=True, local_memory=_LOCAL,
                            asynchronous=bool(copies_of_nvidia(self.architecture)),
                            units=units_of_nvidia(self.architecture),
                            third_cache=self.context.attribute("L2_CACHE_SIZE"))

    @property
    def uuid(self) -> bytes:
        """What no other GPU has, of any machine."""
        return bytes(self.context.call("cuDeviceGetUuid", self.context.device).bytes)

    def plan_key(self) -> tuple[Any, ...]:
        """To what all devices have, the compiler and the architecture."""
        return (*super().plan_key(), version(), self.architecture)

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory of the GPU.

        Raises:
            DeviceError: there is not enough.
        """
        try:
            block = self.pool.take(nbytes)
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                              "use smaller tensors or free some") from None
        GlobalCounters.grown(nbytes)
        return OwnedGPUMemory(self, np.empty(0, np.uint8), 0, nbytes, block, block[0])

    def put(self, memory: Memory, flat: np.ndarray) -> None:
        """Write bytes of the host to the start of a block, after all that was launched."""
        self.staging.send(memory.address, flat)

    def get(self, memory: Memory, offset: int, nbytes: int) -> np.ndarray:
        """A new array with bytes of a block, once all that was launched is done."""
        found = np.empty(nbytes, np.uint8)
        self.staging.fetch(memory.address + offset, found)
        self._waited()
        return found

    def copy(self, target: Memory, source: Memory, nbytes: int | None = None) -> None:
        """Copy bytes to this GPU: from itself, from another GPU, or from the host."""
        size = min(target.nbytes, source.nbytes) if nbytes is None else nbytes
        other, call = source.device, self.context.call
        if other is self:
            call("cuMemcpyDtoDAsync", target.address, source.address, size, self.stream)
        elif isinstance(other, CUDADevice):  # r[impl cuda.copy.order]
            other.context.call("cuEventRecord", other.meeting, other.stream)
            call("cuStreamWaitEvent", self.stream, other.meeting, 0)
            call("cuMemcpyPeerAsync", target.address, self.context.handle, source.address,
                 other.context.handle, size, self.stream)
            call("cuEventRecord", self.meeting, self.stream)
            # The source may be freed and overwritten as soon as its device goes on.
            other.context.call("cuStreamWaitEvent", other.stream, self.meeting, 0)
        else:
            super().copy(target, source, nbytes)
            return
        GlobalCounters.copied(size)

    def synchronize(self) -> None:
        """Wait until everything launched is done.

        Raises:
            DeviceError: something of it failed; then everything on the GPU is lost.
        """
        self.context.call("cuStreamSynchronize", self.stream)
        self._waited()

    def _waited(self) -> None:
        """The stream has been waited for."""
        self.context.launched.clear()
        while self.done_with:
            function, handle = self.done_with.popleft()
            self.context.call(function, handle)

    def seconds(self, work: Callable[[], None]) -> float:
        """What the GPU needs for what `work` asks of it, by its own clock."""
        # r[impl cuda.time.events]
        first, last = (self.context.call("cuEventCreate", 0) for _ in range(2))
        try:
            self.context.call("cuEventRecord", first, self.stream)
            work()
            self.context.call("cuEventRecord", last, self.stream)
            self.context.call("cuEventSynchronize", last)
            return float(self.context.call("cuEventElapsedTime", first, last)) / 1e3
        finally:
            for event in (first, last):
                self.context.call("cuEventDestroy", event)

    def dialect(self) -> Dialect:
        """CUDA C++."""
        return Dialect(self.architecture)

    def environment(self) -> Sequence[str]:
        """Compiler, options and architecture."""
        return compiler_environment(self.architecture)

    def find(self, key: str) -> bool:
        """Load a kernel's machine code from disk."""
        return self.modules.find(key)

    def build(self, sources: dict[str, SourceText]) -> None:
        """Compile kernels by NVRTC."""
        self.modules.build(sources)

    def attempt(self, program: GroupProgram) -> None:
        """Compile a program by itself, and keep nothing of it."""
        assert isinstance(program, CUDAProgram)
        program.module, program.function = self.modules.alone(program.key, program.text)

    def forget(self, program: GroupProgram) -> None:
        """Unload a program that was tried."""
        assert isinstance(program, CUDAProgram)
        module, program.module, program.function = program.module, None, None
        if module is not None:
            self.context.call("cuModuleUnload", module)

    def table(self, launches: Sequence[Launch]) -> Table:
        """Launches to be replayed as one graph."""
        return CUDATable(self, launches)


Device.register(CUDADevice, problem)
