"""What is measured of this machine: once, and then kept on disk. Chapter: spec/cpu.md."""
from __future__ import annotations

import ctypes
import functools
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from impl.caching.disk import Store, machine_store
from impl.cpu.compiler import compile_unit, find_compiler
from impl.cpu.machine import (
    cache_bytes,
    memory_bytes,
    own_features,
    processor,
    processors,
    vectors_of,
)
from impl.cpu.memory import fresh
from impl.cpu.objects import load_trial
from impl.dialects import C
from impl.dtypes import dtypes
from impl.errors import CompileError, user_line
from impl.ir import TRUE, KernelInfo, Ops, RangeKind, UOp, new_range
from impl.kernel import DeviceLimits
from impl.render import key_of, render, symbol
from impl.searching import optimize

#: What is measured is a copy of so many bytes, over and over at other places.
_BLOCK = 1 << 20
#: So many bytes are written before they are read again, the most first.
_SIZES = (64 << 20, 32 << 20, 16 << 20, 8 << 20)
#: Of the memory that there is, a block is so small a part at most.
_PART = 16
#: Stores past the caches are worth it where they are faster by this.
_AHEAD = 1.1
_TRIES = 3
#: How many seconds a compiler may take.
_PATIENCE = 20.0

#: Copies blocks: how many, to which address, from which.
Copy = Callable[[int, int, int], None]


@dataclass(frozen=True)
class Measured:
    """Seconds for so many bytes there and back: stored through the caches, and past them."""

    nbytes: int
    cached: float
    streamed: float


@functools.lru_cache(maxsize=1)
def cached_bytes() -> int:
    """How many bytes the caches keep for this process until they are read again.

    It is measured once on a machine. Where that is not possible it is what the system says.
    """
    # r[impl cpu.calibration.kept]
    told, kept = told_bytes(), machine_store()
    key = f"{processor()}\n{processors()}\n{told}\n{_SIZES[0]}"
    known = _known(kept, key)
    if known is None:
        found = worth_keeping(measured_copies(), told)
        known = _known(kept, key) or found  # of several processes, the first one is believed
        kept.put("calibration", key, json.dumps({"cached_bytes": known}).encode())
    return known


def told_bytes() -> int:
    """What the last cache holds in the words of the system, or what is usual."""
    return cache_bytes(3) or DeviceLimits.third_cache


def _known(kept: Store, key: str) -> int | None:
    try:
        return int(json.loads(kept.get("calibration", key) or b"")["cached_bytes"])
    except (ValueError, KeyError, TypeError):
        return None


def worth_keeping(given: list[Measured], told: int) -> int:
    """How much may be stored through the caches, by what was measured, the most first.

    `told` is what the caches hold in the words of the system.
    """
    # r[impl cpu.calibration.streams]
    if not given:
        return told
    slow = next((each for each in given if each.cached < _AHEAD * each.streamed), None)
    if slow is given[0]:
        return max(told, slow.nbytes)
    return slow.nbytes if slow else given[-1].nbytes // 2


def measured_copies() -> list[Measured]:
    """Both ways for each size, until the caches serve; none without a compiler or memory."""
    memory = memory_bytes()
    sizes = [size for size in _SIZES if not memory or size * _PART <= memory]
    try:
        copies = _copies() if sizes else []
        blocks = [fresh(sizes[0], 64) for _ in range(2)] if copies else []
    except (CompileError, subprocess.TimeoutExpired, MemoryError, OSError, ValueError):
        return []
    for block in blocks:
        block.fill(0)
    found: list[Measured] = []
    for nbytes in sizes if copies else ():
        both = [_seconds(copy, nbytes // _BLOCK, *(each.ctypes.data for each in blocks))
                for copy in copies]
        found.append(Measured(nbytes, *both))
        if both[0] < _AHEAD * both[1]:
            break
    return found


def _seconds(copy: Copy, count: int, left: int, right: int) -> float:
    """The least time for a copy of so many blocks and one back."""
    times = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        copy(count, right, left)
        copy(count, left, right)
        times.append(time.perf_counter() - start)
    return min(times)


def _copies() -> list[Copy]:
    """Kernels that copy a block, through the caches and past them; none if these are the same.

    Raises:
        CompileError: the compiler refuses them.
        subprocess.TimeoutExpired: it takes too long.
    """
    command, vectors = find_compiler(), vectors_of(own_features())
    few = DeviceLimits(vector_bytes=vectors.width, vector_registers=vectors.registers,
                       third_cache=0)
    sources = [render(optimize(_copy(), limits), C())
               for limits in (replace(few, third_cache=_BLOCK), few)]
    pairs = [(key_of(source), source) for source in sources]
    if not command or pairs[0][0] == pairs[1][0]:
        return []
    library = load_trial(compile_unit(command, pairs, user_line(), _PATIENCE))

    def repeated(function: Callable[[object], None]) -> Copy:
        def copy(count: int, target: int, source: int) -> None:
            for place in range(0, count * _BLOCK, _BLOCK):
                function((ctypes.c_void_p * 2)(target + place, source + place))
        return copy
    return [repeated(getattr(library, symbol(key))) for key, _ in pairs]


def _copy() -> UOp:
    """A kernel that copies a block."""
    loop = new_range(_BLOCK // dtypes.float32.itemsize, RangeKind.GLOBAL)
    target, source = (
        UOp(Ops.INDEX, dtypes.float32, (UOp(Ops.PARAM, dtypes.float32, (), place), loop, TRUE))
        for place in range(2))
    value = UOp(Ops.LOAD, dtypes.float32, (source,))
    return UOp(Ops.SINK, dtypes.bool, (UOp(Ops.STORE, dtypes.float32, (target, value)),),
               KernelInfo("copy", (loop,), ()))
