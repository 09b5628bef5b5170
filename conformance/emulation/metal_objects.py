"""A mock of PyObjC's `Metal`: a backend for Metal runs on it, on a machine that is no Mac.

    from conformance.emulation import metal_objects

    with metal_objects.installed() as mock:    # `import Metal` gives the mock from here on
        ...                                     # a program that uses Metal
        mock.memory = 1 << 20                   # and what only a mock can do

Sources are compiled for the emulator; where there is clang, their address spaces are checked too. A
committed command buffer runs when somebody waits for it, or for a later one of its queue, and not
before. A kernel that goes wrong leaves its command buffer with the status of an error.
"""
from __future__ import annotations

import contextlib
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from conformance import emulation
from conformance.emulation import address_spaces
from conformance.emulation.running import Argument, Order

COMMITTED, COMPLETED, FAILED = 2, 4, 5  # of MTLCommandBufferStatus
MOST_LANES, MOST_SHARED, GUARD = 1024, 32 << 10, 256


class MTLSize(NamedTuple):
    """Three sizes of a grid or of a group."""

    width: int
    height: int
    depth: int


class Failure:
    """An NSError: what went wrong, in words."""

    def __init__(self, text: str) -> None:
        self.text = text

    def localizedDescription(self) -> str:
        return self.text

    def code(self) -> int:
        return 1


class Contents:
    """Where a buffer lies, as PyObjC hands it out."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data

    def as_buffer(self, count: int) -> memoryview:
        return memoryview(self.data.data)[:count]


class Buffer:
    """Memory of the device, which the host sees too. It begins as NaN, between guards."""

    def __init__(self, device: Device, size: int) -> None:
        self.device = device
        self.block = np.full(size + 2 * GUARD, 0xFF, np.uint8)
        self.block[:GUARD] = self.block[GUARD + size:] = 0xA5
        self.data = self.block[GUARD:GUARD + size]
        device.used += size

    def intact(self) -> bool:
        """Whether nobody wrote beyond the ends."""
        guards = self.block[:GUARD], self.block[GUARD + self.length():]
        return all(bool((guard == 0xA5).all()) for guard in guards)

    def __del__(self) -> None:
        self.device.used -= self.data.nbytes

    def length(self) -> int:
        return int(self.data.nbytes)

    def contents(self) -> Contents:
        return Contents(self.data)

    def gpuAddress(self) -> int:
        return int(self.data.ctypes.data)


class CompileOptions:
    """What a library is compiled with. The emulator heeds none of it."""

    @classmethod
    def alloc(cls) -> type[CompileOptions]:
        return cls

    @classmethod
    def init(cls) -> CompileOptions:
        return cls()

    new = init

    def setFastMathEnabled_(self, enabled: bool) -> None:
        """Accepted."""

    def setMathMode_(self, mode: int) -> None:
        """Accepted."""

    def setLanguageVersion_(self, version: int) -> None:
        """Accepted."""


class Function(NamedTuple):
    """A kernel of a library, and what it becomes when it is made ready to run."""

    module: emulation.Module
    kernel: str

    def name(self) -> str:
        return self.kernel

    def maxTotalThreadsPerThreadgroup(self) -> int:
        return MOST_LANES

    def threadExecutionWidth(self) -> int:
        return 32

    def staticThreadgroupMemoryLength(self) -> int:
        return 0


class Library(NamedTuple):
    """A compiled source."""

    module: emulation.Module

    def newFunctionWithName_(self, name: str) -> Function | None:
        return Function(self.module, name) if name in self.module.kernels else None

    def functionNames(self) -> list[str]:
        return list(self.module.kernels)


class Encoder:
    """Writes down what a command buffer does."""

    def __init__(self, command: CommandBuffer) -> None:
        self.command = command
        self.function: Function | None = None
        self.arguments: dict[int, Callable[[], Argument]] = {}
        self.buffers: dict[int, Buffer] = {}
        self.shared_bytes = 0
        self.ended = False

    def setComputePipelineState_(self, function: Function) -> None:
        self.function = function

    def setBuffer_offset_atIndex_(self, buffer: Buffer, offset: int, index: int) -> None:
        if not 0 <= offset <= buffer.length():
            raise ValueError(f"offset {offset} of a buffer of {buffer.length()} bytes")
        if buffer.device is not self.command.queue.device:
            raise ValueError("a kernel is given a buffer of another device")
        self.arguments[index] = lambda: buffer.block[GUARD + offset:]
        self.buffers[index] = buffer

    def setBytes_length_atIndex_(self, data: Any, length: int, index: int) -> None:
        kept = np.frombuffer(bytes(memoryview(data).cast("B")[:length]), np.uint8)
        self.arguments[index] = kept.copy

    def setThreadgroupMemoryLength_atIndex_(self, length: int, index: int) -> None:
        if index:
            raise ValueError("one [[threadgroup(0)]] argument is what is emulated")
        self.shared_bytes = length

    def dispatchThreadgroups_threadsPerThreadgroup_(self, groups: Any, lanes: Any) -> None:
        function, taken, shared = self.function, dict(self.arguments), self.shared_bytes
        if function is None:
            raise ValueError("a dispatch needs a pipeline state")
        if shared > MOST_SHARED:
            raise ValueError(f"{shared} bytes of threadgroup memory; there are {MOST_SHARED}")
        device, buffers = self.command.queue.device, list(self.buffers.values())
        sizes = tuple(groups), tuple(lanes)

        def launch() -> None:
            values = [taken[at]() if at in taken else np.empty(0, np.uint8)
                      for at in range(max(taken, default=-1) + 1)]
            function.module.launch(function.kernel, *sizes, shared, values, device.order)
            for each in buffers:
                if not each.intact():
                    raise emulation.EmulationError(f"kernel {function.kernel} wrote beyond a "
                                                   f"buffer of {each.length()} bytes")
        self.command.work.append(launch)

    def dispatchThreads_threadsPerThreadgroup_(self, threads: Any, lanes: Any) -> None:
        pairs = list(zip(tuple(threads), tuple(lanes), strict=True))
        if any(all_ % each for all_, each in pairs):
            raise ValueError(f"{tuple(threads)} lanes in groups of {tuple(lanes)}: groups that are "
                             "not full are not emulated")
        self.dispatchThreadgroups_threadsPerThreadgroup_([a // b for a, b in pairs], lanes)

    def memoryBarrierWithScope_(self, scope: int) -> None:
        """Nothing to do: dispatches run one after the other."""

    def endEncoding(self) -> None:
        self.ended = True

    # What a blit encoder has

    def copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
            self, source: Buffer, start: int, target: Buffer, to: int, size: int) -> None:
        if start + size > source.length() or to + size > target.length():
            raise ValueError(f"a copy of {size} bytes beyond the end of a buffer")

        def copy() -> None:
            target.data[to:to + size] = source.data[start:start + size]
        self.command.work.append(copy)

    def fillBuffer_range_value_(self, buffer: Buffer, place: Any, value: int) -> None:
        start, count = place

        def fill() -> None:
            buffer.data[start:start + count] = value
        self.command.work.append(fill)


class CommandBuffer:
    """Work that is committed as one."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.work: list[Callable[[], None]] = []
        self.encoders: list[Encoder] = []
        self.state = 0
        self.failure: Failure | None = None
        self.times = (0.0, 0.0)

    def computeCommandEncoder(self) -> Encoder:
        if self.encoders and not self.encoders[-1].ended:
            raise ValueError("the encoder before has not ended")
        self.encoders.append(Encoder(self))
        return self.encoders[-1]

    def blitCommandEncoder(self) -> Encoder:
        return self.computeCommandEncoder()

    def computeCommandEncoderWithDispatchType_(self, kind: int) -> Encoder:
        return self.computeCommandEncoder()

    def commit(self) -> None:
        if self.state or not all(each.ended for each in self.encoders):
            raise ValueError("a command buffer is committed once, when its encoders have ended")
        self.state = COMMITTED
        self.queue.committed.append(self)

    def waitUntilCompleted(self) -> None:
        if not self.state:
            raise ValueError("a wait for a command buffer that was not committed")
        while self.state == COMMITTED:
            self.queue.committed.pop(0).run()

    def run(self) -> None:
        """Do the work; what a kernel does wrong is an error of the buffer."""
        start = time.monotonic()
        try:
            for each in self.work:
                each()
            self.state = COMPLETED
        except emulation.EmulationError as error:
            self.state, self.failure = FAILED, Failure(str(error))
        self.times = (start, time.monotonic())

    def status(self) -> int:
        return self.state

    def error(self) -> Failure | None:
        return self.failure

    def GPUStartTime(self) -> float:
        return self.times[0]

    def GPUEndTime(self) -> float:
        return self.times[1]


class Queue:
    """Command buffers, in the order in which they were committed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.committed: list[CommandBuffer] = []

    def commandBuffer(self) -> CommandBuffer:
        return CommandBuffer(self)


class Device:
    """One GPU. `memory` is how many bytes it has, `order` how lanes take turns."""

    def __init__(self) -> None:
        self.memory = 1 << 30
        self.used = 0
        self.order: Order = "forward"

    def name(self) -> str:
        return "Emulated GPU"

    def maxBufferLength(self) -> int:
        return self.memory

    def recommendedMaxWorkingSetSize(self) -> int:
        return self.memory

    def currentAllocatedSize(self) -> int:
        return self.used

    def maxThreadgroupMemoryLength(self) -> int:
        return MOST_SHARED

    def maxThreadsPerThreadgroup(self) -> MTLSize:
        return MTLSize(MOST_LANES, MOST_LANES, MOST_LANES)

    def hasUnifiedMemory(self) -> bool:
        return True

    def supportsFamily_(self, family: int) -> bool:
        return True

    def newCommandQueue(self) -> Queue:
        return Queue(self)

    def newCommandQueueWithMaxCommandBufferCount_(self, count: int) -> Queue:
        return Queue(self)

    def newBufferWithLength_options_(self, size: int, options: int) -> Buffer | None:
        return Buffer(self, size) if 0 < size <= self.memory - self.used else None

    def newBufferWithBytes_length_options_(self, data: Any, size: int,
                                           options: int) -> Buffer | None:
        made = self.newBufferWithLength_options_(size, options)
        if made is not None:
            made.data[:] = np.frombuffer(data, np.uint8, size)
        return made

    def newLibraryWithSource_options_error_(
            self, source: str, options: Any, error: None) -> tuple[Library | None, Failure | None]:
        try:
            if not address_spaces.unavailable():
                address_spaces.check(source)
            return Library(emulation.compile(source, "metal")), None
        except emulation.CompileError as wrong:
            return None, Failure(str(wrong))

    def newComputePipelineStateWithFunction_error_(
            self, function: Function, error: None) -> tuple[Function, None]:
        return function, None


@contextlib.contextmanager
def installed(*others: Device) -> Iterator[Device]:
    """Let `import Metal` give the mock, with further devices. What comes is its default device."""
    device = Device()
    module: Any = types.ModuleType("Metal")
    module.MTLCreateSystemDefaultDevice = lambda: device
    module.MTLCopyAllDevices = lambda: [device, *others]
    module.MTLCompileOptions = CompileOptions
    module.MTLSize = module.MTLSizeMake = MTLSize
    module.MTLResourceStorageModeShared = 0
    module.MTLCommandBufferStatusCompleted = COMPLETED
    module.MTLCommandBufferStatusError = FAILED
    before = sys.modules.get("Metal")
    sys.modules["Metal"] = module
    try:
        yield device
    finally:
        if before is None:
            sys.modules.pop("Metal", None)  # at the end of the interpreter it is gone already
        else:
            sys.modules["Metal"] = before
