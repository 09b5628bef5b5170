"""Memory that the host cannot see: parts of a driver's buffers. Chapter: spec/device.md."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from impl.device import DeviceBackend, GlobalCounters, Memory
from impl.errors import DeviceError
from impl.host import np


class DeviceMemory(Memory):
    """Bytes of a device that the host cannot see: `nbytes` of `buffer` from byte `start`."""

    __slots__ = ("buffer",)
    buffer: Any

    def __init__(self, device: DeviceBackend, buffer: Any, start: int, nbytes: int,
                 owner: Any = None) -> None:
        super().__init__(device, np.empty(0, np.uint8), start, nbytes, owner, start)
        self.buffer = buffer

    @property
    def array(self) -> np.ndarray:
        """The host cannot see them."""
        raise DeviceError("memory", f"the bytes lie on {self.device.name}",
                          "copy them with copy_out")

    def _inside(self, start: int, nbytes: int) -> Memory:
        return DeviceMemory(self.device, self.buffer, start, nbytes, self)


class Pooled(DeviceMemory):
    """Memory that goes back to the device's pool when nothing refers to it."""

    __slots__ = ()

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, grown: Callable[[int], None] = GlobalCounters.grown) -> None:
        grown(-self.nbytes)
        self.device.pool.give(self.buffer)  # type: ignore[attr-defined]
