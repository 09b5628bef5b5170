"""Memory that nobody refers to, kept for whoever asks next. Chapter: spec/device.md.

Fresh memory costs more than most kernels: pages to touch on the host, a call of the driver on a
GPU. All work of a device is done in the order in which it was asked for, so a block may be used
again while the last launch that touches it has not run yet.
"""
from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from impl.device import GlobalCounters
from impl.ir import free_after_fork

Block = TypeVar("Block")
#: Where no block of this size or a larger one is left, one of the next sizes serves too.
_LARGE, _NEAR = 1 << 20, 2


def rounded(nbytes: int, alignment: int) -> int:
    """The size of a block for that many bytes: one of eight between a power of two and the next."""
    # r[impl cpu.memory.size+2]
    least = max(nbytes, alignment, 1)
    step = max(1 << (least.bit_length() - 4), alignment)
    return -(-least // step) * step


class Pool(Generic[Block]):
    """Freed blocks by size; at most `limit` bytes of them.

    A device says how to `make` a block, and how to `free` some. `blocks` has the size that was used
    last at its end. `held` are the bytes in all of them.
    """

    #: Whether `free` may be called at any moment, also by the garbage collector.
    at_once = True

    def __init__(self, alignment: int, limit: int) -> None:
        self.alignment, self.limit, self.held = alignment, limit, 0
        self.blocks: dict[int, list[Block]] = {}
        self.returned: deque[Block] = deque()
        self.lock = free_after_fork(threading.Lock())

    def make(self, size: int) -> Block:
        """A new block; raises something if there is not enough memory."""
        raise NotImplementedError

    def size_of(self, block: Block) -> int:
        """How many bytes a block has."""
        raise NotImplementedError

    def free(self, blocks: list[Block]) -> None:
        """Give blocks back; here it is enough that nobody refers to them."""

    def take(self, nbytes: int) -> Block:
        """A block of at least that many bytes: a kept one, or a new one.

        Raises:
            Exception: what `make` raises, also when all that was kept is given back.
        """
        size = near = rounded(nbytes, self.alignment)
        with self.lock:
            beyond = self._sort()
            # r[impl cpu.memory.kept, opencl.memory.reuse, cuda.memory.kept+2]
            found = self._kept(size)
            for _ in range(_NEAR if found is None and size >= _LARGE else 0):
                near = rounded(near + 1, self.alignment)
                found = found or self._kept(near)
        if beyond:
            self.free(beyond)
        if found is not None:
            return found
        try:
            made = self.make(size)
        except Exception:
            if not self.clear():  # perhaps it is in blocks of other sizes
                raise
            made = self.make(size)  # r[impl cuda.memory.kept+2]
        GlobalCounters.fresh += size
        return made

    def give(self, block: Block) -> None:
        """Keep a block. It may be freed at any moment, also while this thread has the lock."""
        self.returned.append(block)
        if self.at_once and self.lock.acquire(blocking=False):
            try:
                beyond = self._sort()
            finally:
                self.lock.release()
            if beyond:
                self.free(beyond)

    def clear(self) -> bool:
        """Give all kept blocks back; whether there were any.

        What comes back meanwhile is kept: it may be needed by what was launched meanwhile.
        """
        with self.lock:
            gone = self._sort()
            gone += [block for blocks in self.blocks.values() for block in blocks]
            self.blocks, self.held = {}, 0
        self.free(gone)
        return bool(gone)

    def _kept(self, size: int) -> Block | None:
        """Take one of the blocks of a size."""
        blocks = self.blocks.pop(size, None)
        if blocks is None:
            return None
        found = blocks.pop()
        self.held -= size
        if blocks:
            self.blocks[size] = blocks
        return found

    def _sort(self) -> list[Block]:
        """Put what came back to its size; if it is too much, the size that was used first goes."""
        # r[impl cpu.memory.size+2]
        while self.returned:
            block = self.returned.popleft()
            size = self.size_of(block)
            blocks = self.blocks.pop(size, None) or []
            blocks.append(block)
            self.blocks[size] = blocks
            self.held += size
        beyond = []
        while self.held > self.limit:
            gone = self._kept(next(iter(self.blocks)))
            if gone is not None:
                beyond.append(gone)
        return beyond
