"""Memory of a GPU: blocks that are kept for the next who asks, and copies. Chapter: spec/cuda.md.

`cuMemAlloc` takes as long as a small kernel, and `cuMemFree` waits for the GPU. So blocks that
nobody refers to any more are kept by size. All work of a device is on one stream, so whoever gets
a block next uses it after whoever had it before, though nobody waits.
"""
from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from impl.cuda.driver import DriverContext
from impl.device import GlobalCounters, Memory
from impl.device.pool import Pool
from impl.errors import DeviceError
from impl.host import np
from impl.ir import free_after_fork

#: The address of a block, and its bytes.
Block = tuple[int, int]
_SMALLEST = 512
#: Two pinned buffers of this size take part in all copies between the host and the GPU.
_STAGING = 4 << 20


class Blocks(Pool[Block]):
    """Blocks of one GPU: address and size."""

    at_once = False  # a destructor must not wait for the GPU

    def __init__(self, context: DriverContext, wait: Callable[[], None], limit: int) -> None:
        super().__init__(_SMALLEST, limit)
        self.context, self.wait = context, wait

    def make(self, size: int) -> Block:
        """A new block.

        Raises:
            DriverError: there is not enough memory.
        """
        return int(self.context.call("cuMemAlloc", size)), size

    def size_of(self, block: Block) -> int:
        """How many bytes a block has."""
        return block[1]

    def free(self, blocks: list[Block]) -> None:
        """Give blocks back to the driver, when the GPU is done with them."""
        if blocks:
            self.wait()
        for address, _ in blocks:
            self.context.call("cuMemFree", address)


class GPUMemory(Memory):
    """A block of a GPU, or a part of one. The host cannot see it."""

    __slots__ = ()

    @property
    def array(self) -> np.ndarray:
        """Not to be had: the bytes lie on the GPU."""
        raise DeviceError("memory", f"its bytes lie on {self.device.name}, where the host cannot "
                          "see them", "copy them with copy_out")

    def _inside(self, start: int, nbytes: int) -> Memory:
        return GPUMemory(self.device, self.block, start, nbytes, self,
                         self.address + start - self.start)


class OwnedGPUMemory(GPUMemory):
    """A block that is kept for others when nothing refers to it."""

    __slots__ = ()

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, grown: Callable[[int], None] = GlobalCounters.grown) -> None:
        grown(-self.nbytes)
        self.device.pool.give(self.owner)  # type: ignore[attr-defined]


class Staging:
    """Two pinned buffers: while the GPU copies the one, the host fills or empties the other."""

    def __init__(self, context: DriverContext, stream: Any) -> None:
        self.context, self.stream = context, stream
        self.lock = free_after_fork(threading.RLock())
        self.buffers: list[tuple[int, np.ndarray, Any]] = []

    def _made(self) -> list[tuple[int, np.ndarray, Any]]:
        """Address, bytes and event of each buffer; made at the first copy."""
        while len(self.buffers) < 2:
            address = int(self.context.call("cuMemHostAlloc", _STAGING, 0))
            seen = np.ctypeslib.as_array((ctypes.c_uint8 * _STAGING).from_address(address))
            event = self.context.call("cuEventCreate", 2)  # without times
            self.buffers.append((address, seen, event))
        return self.buffers

    def send(self, target: int, values: np.ndarray) -> None:
        """Copy bytes to an address of the GPU. They may change as soon as this returns."""
        call = self.context.call
        with self.lock:
            for turn, start in enumerate(range(0, values.nbytes, _STAGING)):
                address, seen, event = self._made()[turn % 2]
                part = values[start:start + _STAGING]
                call("cuEventSynchronize", event)  # r[impl cuda.copy.order]
                seen[:part.nbytes] = part
                call("cuMemcpyHtoDAsync", target + start, address, part.nbytes, self.stream)
                call("cuEventRecord", event, self.stream)

    def fetch(self, source: int, values: np.ndarray) -> None:
        """Copy bytes from an address of the GPU, when all work before is done."""
        call = self.context.call
        waiting: tuple[int, int] | None = None
        with self.lock:
            for turn, start in enumerate(range(0, values.nbytes, _STAGING)):
                address, _, event = self._made()[turn % 2]
                size = min(_STAGING, values.nbytes - start)
                call("cuMemcpyDtoHAsync", address, source + start, size, self.stream)
                call("cuEventRecord", event, self.stream)
                if waiting is not None:
                    self._empty(*waiting, values)
                waiting = turn % 2, start
            if waiting is not None:
                self._empty(*waiting, values)

    def _empty(self, turn: int, start: int, values: np.ndarray) -> None:
        _, seen, event = self.buffers[turn]
        self.context.call("cuEventSynchronize", event)
        part = values[start:start + _STAGING]
        part[:] = seen[:part.nbytes]
