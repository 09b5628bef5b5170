"""Memory of an OpenCL device, and what is kept of it. Chapter: spec/opencl.md."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from impl.device import DeviceBackend, GlobalCounters, Memory
from impl.device.pool import Pool
from impl.errors import DeviceError

_NOTHING = np.empty(0, np.uint8)


# --8<-- [start:memory]
class DeviceMemory(Memory):
    """Bytes of a device that the host cannot see: `nbytes` of `buffer` from byte `start`."""

    __slots__ = ("buffer",)
    buffer: Any

    def __init__(self, device: DeviceBackend, buffer: Any, start: int, nbytes: int,
                 owner: Any = None) -> None:
        super().__init__(device, _NOTHING, start, nbytes, owner, start)
        self.buffer = buffer

    @property
    def array(self) -> np.ndarray:
        """The host cannot see them."""
        raise DeviceError("memory", f"the bytes lie on {self.device.name}",
                          "copy them with copy_out")

    def _inside(self, start: int, nbytes: int) -> Memory:
        return DeviceMemory(self.device, self.buffer, start, nbytes, self)


class Pooled(DeviceMemory):
    """Memory that goes back to the pool when nothing refers to it."""

    __slots__ = ()

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, grown: Callable[[int], None] = GlobalCounters.grown) -> None:
        grown(-self.nbytes)
        self.device.pool.give(self.buffer)  # type: ignore[attr-defined]
# --8<-- [end:memory]


# --8<-- [start:pool]
class Buffers(Pool[Any]):
    """Buffers of one device."""

    def __init__(self, cl: Any, context: Any, queue: Any, limit: int) -> None:
        super().__init__(256, limit)
        self.cl, self.context, self.queue = cl, context, queue

    def make(self, size: int) -> Any:
        """A new buffer. Drivers may put off the allocation, and fail where nobody expects it."""
        buffer = self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, size)
        self.cl.enqueue_migrate_mem_objects(
            self.queue, [buffer], self.cl.mem_migration_flags.CONTENT_UNDEFINED)
        return buffer

    def size_of(self, block: Any) -> int:
        """How many bytes a buffer has."""
        return int(block.size)
# --8<-- [end:pool]
