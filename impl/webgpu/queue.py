"""Launches on a WebGPU device: gathered, and submitted together. Chapter: spec/webgpu.md."""
from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from impl.device import Memory
from impl.device.pool import Pool
from impl.device.remote import DeviceMemory
from impl.dialects.wgsl import BOUND, ROW
from impl.errors import DeviceError

if TYPE_CHECKING:
    from impl.webgpu import WebGPUDevice

#: Launches that are submitted together, at most, and the bytes in which each is told about itself.
_GATHERED, _TOLD = 64, 1024


class Launches:
    """The launches that no queue has yet, and what each of them is told."""

    def __init__(self, device: WebGPUDevice) -> None:
        self.device, self.told = device, bytearray(_GATHERED * _TOLD)
        usage = device.gpu.BufferUsage
        self.buffer = device.driver.create_buffer(
            size=len(self.told), usage=usage.UNIFORM | usage.COPY_DST | usage.COPY_SRC)
        self.zeros = device.driver.create_buffer(size=256, usage=usage.STORAGE)
        self.waiting: list[tuple[Any, Any, int]] = []

    def add(self, name: str, pipeline: tuple[Any, Any], memories: Sequence[Memory],
            scratch: Memory | None, which: tuple[int, int], values: Sequence[int]) -> None:
        """Add a dispatch; `which` are its phase and the number of its groups.

        Raises:
            DeviceError: an argument is too large, or begins inside of a word.
        """
        phase, groups = which
        bound, begins = list[dict[str, Any]](), list[int]()
        for memory in (*memories, *(() if scratch is None else (scratch,))):
            entry, rest = self._bound(name, memory)
            bound.append({"binding": len(bound) + BOUND, "resource": entry})
            begins.append(rest)
        words = [phase, groups, *begins[:len(memories)], *values]
        if len(words) * 4 > _TOLD:
            raise DeviceError(name, f"{len(values)} values of variables", "cut the kernel")
        start = len(self.waiting) * _TOLD
        struct.pack_into(f"{len(words)}i", self.told, start, *words)
        bound += [{"binding": 0, "resource": {"buffer": self.buffer, "offset": start,
                                              "size": -(-len(words) // 4) * 16}},
                  {"binding": 1, "resource": {"buffer": self.zeros, "offset": 0, "size": 4}}]
        group = self.device.driver.create_bind_group(layout=pipeline[1], entries=bound)
        self.waiting.append((pipeline[0], group, groups))
        if len(self.waiting) == _GATHERED:
            self.submit()

    def _bound(self, name: str, memory: Memory) -> tuple[dict[str, Any], int]:
        """What is bound for an argument, and where in it that begins: a binding cannot begin
        anywhere.
        """
        # r[impl webgpu.argument.offset+2]
        assert isinstance(memory, DeviceMemory)
        start = memory.start // self.device.alignment * self.device.alignment
        rest = memory.start - start
        size = max(-(-(rest + memory.nbytes) // 4) * 4, 4)
        most = self.device.most["max-storage-buffer-binding-size"]
        if size > most:  # r[impl webgpu.error.told]
            raise DeviceError(name, f"an argument of {memory.nbytes} bytes, where "
                              f"{self.device.name} binds at most {most}",
                              "use smaller tensors, or another DEVICE")
        return {"buffer": memory.buffer, "offset": start, "size": size}, rest

    def submit(self) -> None:
        """Give what waits to the queue; it runs in the order in which it was asked for."""
        # r[impl webgpu.launch.all]
        if not self.waiting:
            return
        driver, waiting = self.device.driver, self.waiting
        self.waiting = []
        driver.queue.write_buffer(self.buffer, 0, self.told, 0, len(waiting) * _TOLD)
        encoder = driver.create_command_encoder()
        work = encoder.begin_compute_pass()
        for pipeline, group, groups in waiting:
            work.set_pipeline(pipeline)
            work.set_bind_group(0, group)
            # r[impl webgpu.launch.all]
            work.dispatch_workgroups(min(groups, ROW), -(-groups // ROW))
        work.end()
        driver.queue.submit([encoder.finish()])


class WebGPUBuffers(Pool[Any]):
    """Buffers of one device."""

    def __init__(self, device: WebGPUDevice, limit: int) -> None:
        super().__init__(device.alignment, limit)
        self.device = device

    def make(self, size: int) -> Any:
        """A new buffer."""
        usage = self.device.gpu.BufferUsage
        return self.device.driver.create_buffer(
            size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST)

    def size_of(self, block: Any) -> int:
        """How many bytes a buffer has."""
        return int(block.size)
