"""Memory of the CPU device: blocks that are kept, and huge pages. Chapter: spec/cpu.md."""
from __future__ import annotations

import mmap
from typing import Any, ClassVar

from impl.cpu.machine import memory_bytes
from impl.device import Counters, DeviceBackend, GlobalCounters, Memory, pool
from impl.host import np

#: A block, an array of bytes, and its address, which NumPy is slow to tell.
Block = tuple[Any, int]
#: Blocks from this size on are pages of the system; smaller ones come from the heap.
_LARGE = 1 << 20
_HUGE_PAGE = 2 << 20
_LEAST_KEPT = 1 << 30
#: Blocks up to this size are kept aside.
_SMALL = 4096


def kept_at_most() -> int:
    """How many bytes of freed blocks are kept: an eighth of the memory, and at least 1 GiB, or a
    quarter if that is less.
    """
    memory = memory_bytes()
    return max(memory // 8, min(_LEAST_KEPT, memory // 4 or _LEAST_KEPT))


class HostPool(pool.Pool[Block]):
    """Blocks of the host: of the heap, or pages of the system.

    Small ones are kept aside, some of each size: a short kernel takes no longer than sorting them.
    A list hands out a block, and takes one, in one step, so no lock is needed.
    """

    #: How many of each size. Blocks come back when the names of this module are gone.
    most: ClassVar[int] = 64

    def __init__(self, alignment: int, limit: int | None = None) -> None:
        super().__init__(alignment, kept_at_most() if limit is None else limit)
        self.small: dict[int, list[Block]] = {}  # by the size of the blocks
        self.asked: dict[int, list[Block]] = {}  # the same lists, by the bytes that were asked for

    def take(self, nbytes: int) -> Block:
        """A block of at least that many bytes: a kept one, or a new one."""
        try:
            return self.asked[nbytes].pop()  # r[impl cpu.memory.kept]
        except LookupError:
            found = super().take(nbytes)
        if nbytes <= _SMALL:
            self.asked[nbytes] = self.small.setdefault(len(found[0]), [])
        return found

    def give(self, block: Block) -> None:
        """Keep a block."""
        blocks = self.small.get(len(block[0]))
        if blocks is None or len(blocks) >= self.most:  # r[impl cpu.memory.size+2]
            super().give(block)
        else:
            blocks.append(block)

    def clear(self) -> bool:
        """Give all kept blocks back; whether there were any."""
        any_small = any(self.small.values())
        for blocks in self.small.values():
            blocks.clear()
        return super().clear() or any_small

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


class HostMemory(Memory):
    """Memory that goes back to the pool when nothing refers to it."""

    __slots__ = ("kept",)

    def __init__(self, device: DeviceBackend, kept: Block, nbytes: int) -> None:
        self.device, self.kept, self.nbytes = device, kept, nbytes
        self.block, self.address = kept
        self.start, self.owner = 0, None

    # At the end of the interpreter the names of a module are gone before its objects are.
    def __del__(self, counters: Counters = GlobalCounters) -> None:
        counters.allocated -= self.nbytes
        pool: HostPool = self.device.pool  # type: ignore[attr-defined]
        pool.give(self.kept)


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
    pages.madvise(mmap.MADV_HUGEPAGE)  # r[impl cpu.memory.kept]
    start = -block.__array_interface__["data"][0] % _HUGE_PAGE
    return block[start:start + size]


#: Shared pages, which are what Python maps by default, are never huge ones.
_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} \
    if hasattr(mmap, "MAP_PRIVATE") else {}
