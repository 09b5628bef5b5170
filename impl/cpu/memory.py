"""Memory of the CPU device: blocks that are kept, and huge pages. Chapter: spec/cpu.md."""
from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import numpy as np

from impl.device import GlobalCounters, Memory, pool

#: A block, and its address, which NumPy is slow to tell.
Block = tuple[np.ndarray, int]
#: Blocks from this size on are pages of the system; smaller ones come from the heap.
_LARGE = 1 << 20
_HUGE_PAGE = 2 << 20
_LEAST_KEPT = 1 << 30


def kept_at_most() -> int:
    """How many bytes of freed blocks are kept: an eighth of the memory, and at least 1 GiB."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        memory = 0
    return max(memory // 8, _LEAST_KEPT)


# --8<-- [start:pool]
class Pool(pool.Pool[Block]):
    """Blocks of the host: of the heap, or pages of the system."""

    def __init__(self, alignment: int, limit: int | None = None) -> None:
        super().__init__(alignment, kept_at_most() if limit is None else limit)

    def make(self, size: int) -> Block:
        """A new block.

        Raises:
            MemoryError, OSError, OverflowError, ValueError: there is not enough memory.
        """
        block = fresh(size, self.alignment)
        return block, block.__array_interface__["data"][0]

    def size_of(self, block: Block) -> int:
        """How many bytes a block has."""
        return len(block[0])
# --8<-- [end:pool]


class Pooled(Memory):
    """Memory that goes back to the pool when nothing refers to it."""

    __slots__ = ()

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, grown: Callable[[int], None] = GlobalCounters.grown) -> None:
        grown(-self.nbytes)
        self.device.pool.give((self.block, self.address))  # type: ignore[attr-defined]


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
