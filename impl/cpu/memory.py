"""Memory of the CPU device: blocks that are kept, and huge pages. Chapter: spec/cpu.md."""
from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from impl.device import GlobalCounters, Memory
from impl.ir import free_after_fork

#: A block, and its address, which NumPy is slow to tell.
Block = tuple[np.ndarray, int]
#: Blocks from this size on are pages of the system; smaller ones come from the heap.
_LARGE = 1 << 20
_HUGE_PAGE = 2 << 20
_LEAST_KEPT = 1 << 30
#: A block of the next sizes serves too, as far as this many steps of an eighth.
_NEAR = 2


# --8<-- [start:size]
def rounded(nbytes: int, alignment: int) -> int:
    """The size of a block for that many bytes: one of eight between a power of two and the next."""
    # r[impl cpu.memory.near]
    least = max(nbytes, alignment, 1)
    step = max(1 << (least.bit_length() - 4), alignment)
    return -(-least // step) * step
# --8<-- [end:size]


def kept_at_most() -> int:
    """How many bytes of freed blocks are kept: an eighth of the memory, and at least 1 GiB."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        memory = 0
    return max(memory // 8, _LEAST_KEPT)


# --8<-- [start:pool]
class Pool:
    """Freed blocks by size, to be used again: fresh pages cost more than most kernels.

    `blocks` has the size that was used last at its end. `held` are the bytes in all of them.
    """

    def __init__(self, alignment: int, limit: int | None = None) -> None:
        self.alignment, self.held = alignment, 0
        self.limit = kept_at_most() if limit is None else limit
        self.blocks: dict[int, list[Block]] = {}
        self.returned: deque[Block] = deque()
        self.lock = free_after_fork(threading.Lock())

    def take(self, nbytes: int) -> Block:
        """A block of at least that many bytes.

        Raises:
            MemoryError, OSError, OverflowError, ValueError: there is not enough memory.
        """
        size = near = rounded(nbytes, self.alignment)
        with self.lock:
            self._sort()
            found = self._kept(size)  # r[impl cpu.memory.reuse]
            for _ in range(_NEAR if found is None and size >= _LARGE else 0):
                near = rounded(near + 1, self.alignment)
                found = found or self._kept(near)
        if found is not None:
            return found
        try:
            block = fresh(size, self.alignment)
        except (MemoryError, OSError):
            self.clear()  # perhaps it is in blocks of other sizes
            block = fresh(size, self.alignment)
        GlobalCounters.fresh += size
        return block, block.__array_interface__["data"][0]

    def give(self, block: np.ndarray, address: int) -> None:
        """Keep a block. It may be freed at any moment, also while this thread has the lock."""
        self.returned.append((block, address))
        if self.lock.acquire(blocking=False):
            try:
                self._sort()
            finally:
                self.lock.release()

    def clear(self) -> None:
        """Give all kept blocks back to the system."""
        with self.lock:
            self._sort()
            self.blocks, self.held = {}, 0

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

    def _sort(self) -> None:
        """Put what came back to its size; if it is too much, the size that was used first goes."""
        # r[impl cpu.memory.bounded]
        while self.returned:
            block = self.returned.popleft()
            size = len(block[0])
            blocks = self.blocks.pop(size, None) or []
            blocks.append(block)
            self.blocks[size] = blocks
            self.held += size
        while self.held > self.limit:
            self._kept(next(iter(self.blocks)))
# --8<-- [end:pool]


class Pooled(Memory):
    """Memory that goes back to the pool when nothing refers to it."""

    __slots__ = ()

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, grown: Callable[[int], None] = GlobalCounters.grown) -> None:
        grown(-self.nbytes)
        self.device.pool.give(self.block, self.address)  # type: ignore[attr-defined]


# --8<-- [start:fresh]
def fresh(size: int, alignment: int) -> np.ndarray:
    """New memory: pages of the system for large blocks, else the heap.

    Huge pages start at multiples of their size; a mapping does not, so it is one longer.
    """
    if size < _LARGE:
        block = np.empty(size + alignment, np.uint8)
        start = -block.__array_interface__["data"][0] % alignment
        return block[start:start + size]
    huge = hasattr(mmap, "MADV_HUGEPAGE") and size >= _HUGE_PAGE
    pages = mmap.mmap(-1, size + (_HUGE_PAGE if huge else 0), **_PRIVATE)
    block = np.frombuffer(pages, np.uint8)
    if not huge:
        return block
    pages.madvise(mmap.MADV_HUGEPAGE)  # r[impl cpu.memory.huge]
    start = -block.__array_interface__["data"][0] % _HUGE_PAGE
    return block[start:start + size]


#: Shared pages, which are what Python maps by default, are never huge ones.
_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} \
    if hasattr(mmap, "MAP_PRIVATE") else {}
# --8<-- [end:fresh]
