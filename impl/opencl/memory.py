"""Memory of an OpenCL device, and what is kept of it. Chapter: spec/opencl.md."""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from impl.device import DeviceBackend, GlobalCounters, Memory
from impl.errors import DeviceError
from impl.ir import free_after_fork

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
class Pool:
    """Buffers that nobody uses, by size; at most `limit` bytes of them.

    All commands of a device run in order, so a buffer may be used again while the last command that
    touches it has not run yet.
    """

    def __init__(self, make: Callable[[int], Any], limit: int) -> None:
        self.make, self.limit = make, limit
        self.lock = free_after_fork(threading.Lock())
        self.kept: dict[int, list[Any]] = {}
        self.held = 0
        self.returned: list[Any] = []

    def take(self, nbytes: int) -> Any:
        """A buffer of at least that many bytes: a kept one, or a new one.

        Raises:
            whatever `make` raises, also once all kept buffers are given back.
        """
        # r[impl opencl.memory.reuse]
        size = _rounded(nbytes)
        with self.lock:
            self._sort()
            found = self.kept.get(size)
            if found:
                self.held -= size
                return found.pop()
            try:
                made = self.make(size)
            except Exception:
                if not self.held:
                    raise
                self.kept, self.held = {}, 0
                made = self.make(size)
        GlobalCounters.fresh += size
        return made

    def give(self, buffer: Any) -> None:
        """Keep a buffer. It may be freed at any moment, also while this thread has the lock."""
        self.returned.append(buffer)

    def _sort(self) -> None:
        """Put what came back to its size; if it is too much, it is given back."""
        while self.returned:
            buffer = self.returned.pop()
            if self.held + buffer.size <= self.limit:
                self.kept.setdefault(buffer.size, []).append(buffer)
                self.held += buffer.size


def _rounded(nbytes: int) -> int:
    """Sizes of four steps to a power of two, at least 256 bytes."""
    unit = max(256, 1 << max(nbytes - 1, 1).bit_length() >> 3)
    return -(-max(nbytes, 1) // unit) * unit
# --8<-- [end:pool]
