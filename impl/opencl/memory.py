"""Buffers of an OpenCL device, and what is kept of them. Chapter: spec/opencl.md."""
from __future__ import annotations

from typing import Any

from impl.device.pool import Pool


class OpenCLBuffers(Pool[Any]):
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
