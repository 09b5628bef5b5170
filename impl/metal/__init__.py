"""The Metal device: kernels compiled by macOS, run through PyObjC. Chapter: spec/metal.md.

It has never run on hardware: it is tested over a mock of PyObjC's Metal, by running its kernels on
an emulator and by a strict check of their address spaces.

The host sees all memory of the GPU. Launches are gathered in a command buffer, which is committed
when there are enough of them or when somebody waits.
"""
from __future__ import annotations

import functools
import importlib
import platform
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from impl.device import Device, DeviceBackend, GlobalCounters, Memory, Program
from impl.dtypes import DType
from impl.errors import CompileError, DeviceError
from impl.ir import UOp

#: Launches in one command buffer, at most: more of them gain nothing.
_GATHERED = 64
#: The values of variables lie behind all arguments.
VALUES = 30


def bindings() -> Any:
    """PyObjC's module for Metal."""
    return importlib.import_module("Metal")


# --8<-- [start:problem]
def problem() -> str:
    """Why there is no Metal here, in one line; empty if there is."""
    # r[impl metal.driver.line]
    try:
        metal = bindings()
    except ImportError:
        if platform.system() != "Darwin":
            return f"Metal is part of macOS, and this is {platform.system()}"
        return "PyObjC is not installed (pip install 'tensor-schedule[metal]')"
    return "" if metal.MTLCreateSystemDefaultDevice() is not None else "macOS knows no GPU"
# --8<-- [end:problem]


# --8<-- [start:memory]
class MetalMemory(Memory):
    """A buffer of Metal, or a part of one. It lives until no command buffer needs it."""

    __slots__ = ("buffer",)
    buffer: Any

    @classmethod
    def of(cls, device: Metal, buffer: Any, nbytes: int) -> MetalMemory:
        """All of a buffer."""
        block = np.frombuffer(buffer.contents().as_buffer(buffer.length()), np.uint8)
        made = cls(device, block, 0, nbytes)
        made.buffer = buffer
        return made

    def part(self, offset: int, nbytes: int) -> Memory:
        """The `nbytes` from byte `offset`, sharing this memory."""
        inside = super().part(offset, nbytes)
        made = MetalMemory(self.device, self.block, inside.start, nbytes, self, inside.address)
        made.buffer = self.buffer
        return made


class Owned(MetalMemory):
    """A whole buffer, counted until nothing refers to it."""

    __slots__ = ()

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, grown: Any = GlobalCounters.grown) -> None:
        grown(-self.nbytes)
# --8<-- [end:memory]


# --8<-- [start:program]
class MetalProgram(Program):
    """A kernel as a compute pipeline."""

    device: Metal
    pipeline: Any = None

    def run(self, memories: Sequence[Memory], values: Sequence[int]) -> None:
        """Add a launch to the command buffer that is being gathered."""
        groups, lanes = self.shape(values)
        encoder = self.device.encoder()
        encoder.setComputePipelineState_(self.pipeline)
        for place, memory in enumerate(memories[:self.arguments]):
            assert isinstance(memory, MetalMemory)
            encoder.setBuffer_offset_atIndex_(memory.buffer, memory.start, place)
        if self.variables:
            packed = struct.pack(f"{len(values)}q", *values)
            encoder.setBytes_length_atIndex_(packed, len(packed), VALUES)
        size = bindings().MTLSizeMake
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(size(*groups), size(*lanes))
        self.device.gathered(self.name)
# --8<-- [end:program]


# --8<-- [start:device]
class Metal(DeviceBackend):
    """One GPU under macOS."""

    kind = "METAL"
    maximum_arguments = VALUES

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.alignment = 256
        metal, number = bindings(), int(name.partition(":")[2] or 0)
        known = [metal.MTLCreateSystemDefaultDevice()]
        known += [each for each in metal.MTLCopyAllDevices() or () if each != known[0]]
        if number >= len(known):
            raise DeviceError("device", f"{name} cannot be used: macOS knows {len(known)} GPU"
                              f"{'s' if len(known) != 1 else ''}", "use METAL")
        self.gpu = known[number]
        self.queue = self.gpu.newCommandQueue()
        self.open: tuple[Any, Any] | None = None  # a command buffer and its encoder
        self.names: list[str] = []                # of the launches in it
        self.committed: list[tuple[Any, list[str]]] = []

    # --8<-- [start:gather]
    def encoder(self) -> Any:
        """What takes the next launch."""
        if self.open is None:
            command = self.queue.commandBuffer()
            self.open = command, command.computeCommandEncoder()
        return self.open[1]

    def gathered(self, name: str) -> None:
        """A launch was added; when there are enough, the GPU gets them."""
        self.names.append(name)
        if len(self.names) >= _GATHERED:
            self._commit()

    def _commit(self) -> None:
        if self.open is not None:
            command, encoder = self.open
            self.open = None
            encoder.endEncoding()
            command.commit()
            self.committed.append((command, self.names))
            self.names = []

    def synchronize(self) -> None:
        """Wait until everything launched is done.

        Raises:
            DeviceError: a kernel failed. The device stays usable.
        """
        with self.lock:
            self._commit()
            waiting, self.committed = self.committed, []
            for command, _ in waiting[-1:]:  # they end in order
                command.waitUntilCompleted()
            failed = bindings().MTLCommandBufferStatusError
            for command, names in waiting:
                if command.status() == failed:  # r[impl metal.error.clear]
                    raise DeviceError(self.name, f"{command.error().localizedDescription()}; in "
                                      f"one of the launches of {', '.join(dict.fromkeys(names))}",
                                      "NOOPT=1 or DEVICE=CPU tells whether the kernel is wrong")
    # --8<-- [end:gather]

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory that the host and the GPU share.

        Raises:
            DeviceError: there is not enough.
        """
        shared = bindings().MTLResourceStorageModeShared
        made = self.gpu.newBufferWithLength_options_(max(nbytes, 1), shared)
        if made is None:
            self.synchronize()  # what command buffers hold is free then
            made = self.gpu.newBufferWithLength_options_(max(nbytes, 1), shared)
        if made is None:  # r[impl metal.memory.exhausted]
            raise DeviceError("allocate", f"{self.name} has no {nbytes} bytes left",
                              "use smaller tensors or free some")
        GlobalCounters.grown(nbytes)
        GlobalCounters.fresh += nbytes
        return Owned.of(self, made, nbytes)

    # --8<-- [start:copies]
    def copy_in(self, memory: Memory, values: np.ndarray) -> None:
        """Fill the start of a block with a NumPy array's bytes."""
        self.synchronize()  # r[impl metal.copy.ordered]: launches before it may need what is there
        super().copy_in(memory, values)

    def copy(self, target: Memory, source: Memory, nbytes: int | None = None) -> None:
        """Copy bytes between two blocks; the source may be another device's."""
        self.synchronize()
        super().copy(target, source, nbytes)
    # --8<-- [end:copies]
# --8<-- [end:device]


Device.register(Metal, problem)
