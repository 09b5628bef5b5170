"""The CUDA device: kernels compiled by NVRTC, run through the driver. Chapter: spec/cuda.md.

Everything goes to one stream of each GPU, so that work is done in the order in which it was asked
for, and nobody waits before a value is read.
"""
from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from impl import settings
from impl.cuda.compiler import OPTIONS, image, version
from impl.cuda.driver import OUT_OF_MEMORY, Context, DriverError, bindings, problem
from impl.cuda.graph import CUDATable, Packed
from impl.cuda.memory import Blocks, Owned, Staging
from impl.device import Device, DeviceBackend, GlobalCounters, Launch, Memory, Program, Table
from impl.dtypes import DType
from impl.errors import DeviceError
from impl.ir import UOp

#: An event without a time, a stream that waits for no other one.
_NO_TIME, _NON_BLOCKING = 2, 1


# --8<-- [start:program]
class CUDAProgram(Program):
    """A kernel as a function of the GPU. `key` names its text."""

    device: CUDA
    function: Any = None
    module: Any = None
    key: str = ""

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Ask the GPU to run it, after everything that it was asked before."""
        groups, lanes, shared = self.shape(values)
        packed = Packed([(self, memories, values)])
        context = self.device.context
        driver = context.enter()
        context.launched.append(self.name)
        error = driver.cuLaunchKernel(self.function, *groups, *lanes, shared, self.device.stream,
                                      0, packed.extra(0))[0]
        if error:  # r[impl cuda.error.clear]
            raise context.failure(f"launch of {self.name}", error)

    def node(self, values: Sequence[int], extra: int) -> Any:
        """A launch as a node of a graph; `extra` is where its arguments are described."""
        made = bindings().CUDA_KERNEL_NODE_PARAMS()
        made.func, made.extra = self.function, extra
        (made.gridDimX, made.gridDimY, made.gridDimZ), lanes, shared = self.shape(values)
        made.blockDimX, made.blockDimY, made.blockDimZ = lanes
        made.sharedMemBytes = shared
        return made
# --8<-- [end:program]


# --8<-- [start:device]
class CUDA(DeviceBackend):
    """One GPU of NVIDIA."""

    kind = "CUDA"
    host_memory = False
    maximum_arguments = 448  # of 8 bytes; all parameters of a kernel have 4096, variables included

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.alignment = 256  # cuMemAlloc's
        self.context = Context(name, int(name.partition(":")[2] or 0))
        major, minor = map(self.context.attribute, ("COMPUTE_CAPABILITY_MAJOR",
                                                    "COMPUTE_CAPABILITY_MINOR"))
        self.architecture = 10 * major + minor
        self.stream = self.context.call("cuStreamCreate", _NON_BLOCKING)
        self.blocks = Blocks(self.context, self.synchronize)
        self.staging = Staging(self.context, self.stream)
        #: What nobody refers to any more, destroyed when the GPU is waited for next.
        self.done_with: deque[tuple[str, Any]] = deque()
        self.meeting = self.context.call("cuEventCreate", _NO_TIME)
        self.peers: dict[str, bool] = {}

    def plan_key(self) -> tuple[Any, ...]:
        """To what all devices have, the compiler and the architecture."""
        return (*super().plan_key(), version(), self.architecture)

    # --8<-- [start:memory]
    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory of the GPU.

        Raises:
            DeviceError: there is not enough.
        """
        try:
            address = self.blocks.take(nbytes)
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                              "use smaller tensors or free some") from None
        GlobalCounters.grown(nbytes)
        return Owned(self, np.empty(0, np.uint8), 0, nbytes, None, address)

    def copy_in(self, memory: Memory, values: np.ndarray) -> None:
        """Fill the start of a block with a NumPy array's bytes."""
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self.staging.send(memory.address, flat)
        GlobalCounters.copied(flat.nbytes)

    def copy_out(self, memory: Memory, dtype: DType, count: int, offset: int = 0) -> np.ndarray:
        """A new NumPy array with `count` elements from byte `offset`."""
        found = np.empty(count, dtype.numpy)
        self.staging.fetch(memory.address + offset, found.view(np.uint8))
        self._waited()
        GlobalCounters.copied(found.nbytes)
        return found
    # --8<-- [end:memory]

    # --8<-- [start:copy]
    def copy(self, target: Memory, source: Memory, nbytes: int | None = None) -> None:
        """Copy bytes to this GPU: from itself, from another GPU, or from the host."""
        size = min(target.nbytes, source.nbytes) if nbytes is None else nbytes
        other, call = source.device, self.context.call
        if other is self:
            call("cuMemcpyDtoDAsync", target.address, source.address, size, self.stream)
        elif isinstance(other, CUDA):  # r[impl cuda.copy.peer]
            other.context.call("cuEventRecord", other.meeting, other.stream)
            call("cuStreamWaitEvent", self.stream, other.meeting, 0)
            call("cuMemcpyPeerAsync", target.address, self.context.handle, source.address,
                 other.context.handle, size, self.stream)
            call("cuEventRecord", self.meeting, self.stream)
            # The source may be freed and overwritten as soon as its device goes on.
            other.context.call("cuStreamWaitEvent", other.stream, self.meeting, 0)
        else:
            other.synchronize()
            self.staging.send(target.address, source.array[:size])
        GlobalCounters.copied(size)
    # --8<-- [end:copy]

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

    # --8<-- [start:timing]
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
    # --8<-- [end:timing]

    def table(self, launches: Sequence[Launch]) -> Table:
        """Launches to be replayed as one graph."""
        return CUDATable(self, launches)
# --8<-- [end:device]


Device.register(CUDA, problem)
