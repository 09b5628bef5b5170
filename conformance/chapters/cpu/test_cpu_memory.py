"""Blocks of memory: kept, near sizes, bounded, huge pages. Chapter: spec/cpu.md."""
from __future__ import annotations

import random
import sys
import threading
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, GlobalCounters, Tensor
from impl.cpu import machine
from impl.cpu.memory import HostPool, kept_at_most
from impl.device import Device
from impl.device import pool as device_pool
from impl.device.pool import rounded

pytestmark = pytest.mark.device("CPU")
MEBIBYTE = 1 << 20


@verifies("cpu.memory.kept")
def test_a_loop_takes_no_fresh_memory() -> None:
    with Context(DEVICE="CPU"):
        x = Tensor(np.ones(3 * MEBIBYTE, np.float32)).realize()
        ((x + 1) * 2).relu().realize()
        GlobalCounters.reset()
        for _ in range(5):
            ((x + 1) * 2).relu().realize()
    assert GlobalCounters.fresh == 0


@verifies("cpu.memory.size+2")
def test_a_block_is_little_larger_than_asked() -> None:
    for nbytes in [*range(1, 3000), 10**6, 10**7 + 1, 2**30 - 1, 2**30, 2**30 + 1]:
        size = rounded(nbytes, 64)
        assert size % 64 == 0 and nbytes <= size
        assert size < nbytes + 64 or size <= nbytes * 9 / 8
        assert rounded(size, 64) == size


@verifies("cpu.memory.size+2")
def test_blocks_of_a_pool() -> None:
    """Against a plain account of what is out and what was given back."""
    draw, pool = random.Random(5), HostPool(64, 40 * MEBIBYTE)
    out: list[tuple[np.ndarray, int, int]] = []
    near = 0
    for _ in range(3000):
        if out and draw.random() < 0.5:
            block, address, _ = out.pop(draw.randrange(len(out)))
            pool.give((block, address))
        else:
            nbytes = draw.choice((5000, 50_000, MEBIBYTE, 3 * MEBIBYTE)) + draw.randrange(500_000)
            before, held = GlobalCounters.fresh, pool.held
            block, address = pool.take(nbytes)
            assert block.ctypes.data == address and address % 64 == 0
            assert nbytes <= len(block) <= max(1.5 * nbytes, nbytes + 64)
            assert held - pool.held == (0 if GlobalCounters.fresh > before else len(block))
            near += held != pool.held and len(block) > rounded(nbytes, 64)
            out.append((block, address, nbytes))
        assert pool.held == sum(len(b) for blocks in pool.blocks.values() for b, _ in blocks)
        assert pool.held <= pool.limit
        places = sorted((address, len(block)) for block, address, _ in out)
        assert all(a + size <= b for (a, size), (b, _) in zip(places, places[1:], strict=False))
    assert near > 5


@verifies("cpu.memory.size+2")
def test_what_is_too_much_is_freed() -> None:
    """By a pool whose blocks have to be freed, and may be at any moment."""
    class Counting(device_pool.Pool[int]):
        freed: ClassVar[list[int]] = []

        def make(self, size: int) -> int:
            return size

        def size_of(self, block: int) -> int:
            return block

        def free(self, blocks: list[int]) -> None:
            assert not self.lock.locked()
            self.freed.extend(blocks)

    pool = Counting(64, 1000)
    for block in (640, 320, 704):
        pool.give(block)
    assert pool.freed == [640, 320] and pool.held == 704
    pool.clear()
    assert pool.freed == [640, 320, 704]


@verifies("cpu.memory.size+2")
@verifies("cpu.memory.kept")
def test_small_blocks_of_a_pool() -> None:
    """They are used again, never by two at once, and only so many are kept."""
    draw, pool = random.Random(7), HostPool(64, 1 << 20)
    out: list[tuple[np.ndarray, int]] = []
    for _ in range(3000):
        if out and draw.random() < 0.5:
            pool.give(out.pop(draw.randrange(len(out))))
        else:
            nbytes = draw.randrange(4200)
            block, address = pool.take(nbytes)
            assert block.ctypes.data == address and address % 64 == 0
            assert nbytes <= len(block) <= max(1.5 * nbytes, nbytes + 64)
            out.append((block, address))
        places = sorted((address, len(block)) for block, address in out)
        assert all(a + size <= b for (a, size), (b, _) in zip(places, places[1:], strict=False))
    many = [pool.take(100) for _ in range(200)]
    GlobalCounters.reset()
    for pair in many:
        pool.give(pair)
    again = {pool.take(120)[1] for _ in range(150)}  # of the same size when rounded
    assert GlobalCounters.fresh == 0 and again <= {address for _, address in many}
    for pair in [pool.take(100) for _ in range(2000)]:
        pool.give(pair)
    assert sum(len(blocks) for blocks in pool.small.values()) <= 64 * len(pool.small)
    assert pool.clear() and not any(pool.small.values()) and not pool.clear()


@verifies("cpu.memory.size+2")
def test_what_was_not_used_for_longest_goes_first() -> None:
    pool = HostPool(64, 10 * MEBIBYTE)
    sizes = [n * MEBIBYTE for n in (2, 3, 4)]
    for block, address in [pool.take(size) for size in sizes]:
        pool.give((block, address))
    pool.give(pool.take(sizes[0]))  # used again
    pool.give(pool.take(4 * MEBIBYTE + 512 * 1024 + 1))
    assert sizes[0] in pool.blocks and sizes[1] not in pool.blocks and pool.held <= pool.limit
    pool.clear()
    assert (pool.blocks, pool.held) == ({}, 0)


@verifies("cpu.memory.size+2")
def test_a_block_that_is_freed_while_the_pool_is_in_use_is_kept() -> None:
    """The garbage collector may free one at any moment, in any thread."""
    pool = HostPool(64)
    block, address = pool.take(MEBIBYTE)
    with pool.lock:
        pool.give((block, address))
        assert pool.held == 0
    assert pool.take(MEBIBYTE)[1] == address
    errors = []

    def use(seed: int) -> None:
        draw, mine = random.Random(seed), [pool.take(5000 + seed) for _ in range(3)]
        for _ in range(2000):
            block, address = mine.pop(draw.randrange(3))
            block[:8] = seed
            if (block[:8] != seed).any():
                errors.append(seed)
            pool.give((block, address))
            mine.append(pool.take(5000 + seed))

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@verifies("cpu.memory.kept")
@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="asks Linux")
def test_large_blocks_lie_as_huge_pages_do() -> None:
    assert sys.platform == "linux"
    pool = HostPool(64)
    block, address = pool.take(64 * MEBIBYTE)
    assert address % (2 * MEBIBYTE) == 0
    text, found = Path("/proc/self/smaps").read_text(), False
    for part in text.split("VmFlags:")[:-1]:
        head = [line for line in part.splitlines() if "-" in line.split(" ")[0]]
        start, stop = (int(word, 16) for word in head[-1].split()[0].split("-"))
        if start <= address < stop:
            found = True
            flags = text[text.index(head[-1]):].split("VmFlags:")[1].splitlines()[0].split()
            assert "hg" in flags and "sh" not in flags, flags  # huge pages wanted, and private
    assert found
    assert Device["CPU"].allocate(64 * MEBIBYTE).address % (2 * MEBIBYTE) == 0


@verifies("cpu.memory.size+2")
@pytest.mark.parametrize(("memory", "kept"), [
    (64 << 30, 8 << 30), (4 << 30, 1 << 30), (512 * MEBIBYTE, 128 * MEBIBYTE), (0, 1 << 30)])
def test_less_is_kept_where_there_is_little(
        memory: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("impl.cpu.memory.memory_bytes", lambda: memory)
    assert kept_at_most() == HostPool(64).limit == kept


@verifies("cpu.memory.size+2")
def test_a_control_group_has_less_than_the_machine(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(machine, "_CONTROL_GROUPS", [str(tmp_path / "none"), "/nowhere"])
    whole = machine.memory_bytes()
    (tmp_path / "some").write_text(f"{300 * MEBIBYTE}\n")
    monkeypatch.setattr(machine, "_CONTROL_GROUPS", [str(tmp_path / "some")])
    assert machine.memory_bytes() == 300 * MEBIBYTE < whole
