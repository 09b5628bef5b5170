"""What the machine can do at most: operations a second, and bytes a second.

The probes are a few lines of C, compiled with the machine's compiler and run by as many threads as
the workloads. Without a compiler NumPy is measured instead, which is a little less than the limit.
The best of several tries counts: a limit is what was possible.
"""
from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bench.workloads import Work

PROBES = """
#include <stddef.h>
#if defined(__AVX512F__)
#define WIDTH 16
#define CHAINS 16
#elif defined(__AVX__)
#define WIDTH 8
#define CHAINS 12
#else
#define WIDTH 4
#define CHAINS 12
#endif
typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4 * WIDTH)));

/* Chains of multiply-add, all in registers: with sixteen of these there is no room for more than
   twelve. Operations are 2 * CHAINS * WIDTH * count. */
float peak(long count) {
  vector a[CHAINS], m = {0}, b = {0};
  m += 0.999f; b += 0.001f;
  for (int i = 0; i < CHAINS; i++) a[i] = b * (float)i;
  for (long n = 0; n < count; n++) {
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++) a[i] = a[i] * m + b;
  }
  for (int i = 1; i < CHAINS; i++) a[0] += a[i];
  return a[0][0];
}

float read(const vector *x, size_t count) {
  vector a = {0}, b = {0}, c = {0}, d = {0};
  for (size_t i = 0; i + 4 <= count; i += 4) {
    a += x[i]; b += x[i + 1]; c += x[i + 2]; d += x[i + 3];
  }
  a += b + c + d;
  return a[0];
}

/* The same from eight places at once, which keeps more of memory busy. */
float read_apart(const vector *x, size_t count) {
  vector a[8] = {0};
  size_t part = count / 8;
  for (size_t i = 0; i < part; i++) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) a[k] += x[i + k * part];
  }
  for (int k = 1; k < 8; k++) a[0] += a[k];
  return a[0][0];
}

void copy(vector *restrict to, const vector *restrict from, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] = from[i];
}

/* Past the cache: the place that is written is not read first. */
void stream(vector *restrict to, const vector *restrict from, size_t count) {
#if defined(__AVX512F__)
  for (size_t i = 0; i < count; i++)
    __asm__ volatile("vmovntps %1, %0" : "=m"(to[i]) : "v"(from[i]));
#elif defined(__AVX__)
  for (size_t i = 0; i < count; i++)
    __asm__ volatile("vmovntps %1, %0" : "=m"(to[i]) : "x"(from[i]));
#else
  copy(to, from, count);
#endif
}

long width(void) { return WIDTH; }
long chains(void) { return CHAINS; }
"""

FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-tree-loop-distribute-patterns",
         "-mprefer-vector-width=512", "-shared", "-fPIC", "-w")
MIB = 1 << 20
TRIES = 7


@dataclass(frozen=True)
class Speeds:
    """Bytes a second over so many bytes of memory in all; a copy moves what it reads and writes."""

    footprint: int
    copy: float
    read: float


@dataclass(frozen=True)
class Limits:
    """`peak` is operations a second; `speeds` have the smallest footprint first."""

    threads: int
    peak: float
    speeds: tuple[Speeds, ...]
    probe: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(said: dict[str, Any]) -> Limits:
        return Limits(said["threads"], said["peak"],
                      tuple(Speeds(**one) for one in said["speeds"]), said["probe"])

    def around(self, footprint: int) -> Speeds:
        """The speeds of memory of that size: those of the next greater one that was measured."""
        return next((one for one in self.speeds if footprint <= one.footprint), self.speeds[-1])

    def seconds(self, work: Work) -> float:
        """The least time for a workload: its operations at peak, or its bytes, if that is more.

        Each byte written goes at the speed of a copy together with one that is read; bytes that
        are read besides go at the speed of reading.
        """
        speeds = self.around(work.read + work.written)
        copied = min(work.read, work.written)
        moved = (2 * copied + work.written - copied) / speeds.copy
        return max(work.operations / self.peak, moved + (work.read - copied) / speeds.read)


def possible(result: dict[str, Any], threads: int) -> Limits:
    """The best of what the parts of a run have measured: a neighbour may have slowed one down.

    What fewer threads have computed, these can, too.
    """
    found = [Limits.from_json(one["limits"]) for one in result["runs"]]
    own = [one for one in found if one.threads == threads]
    speeds = tuple(Speeds(same[0].footprint, max(one.copy for one in same),
                          max(one.read for one in same))
                   for same in zip(*(one.speeds for one in own), strict=True))
    peak = max(one.peak for one in found if one.threads <= threads)
    return Limits(threads, peak, speeds, own[0].probe)


def measure(threads: int) -> Limits:
    """The limits for so many threads; takes a second or two."""
    sizes = [threads * cache_bytes(2, 1 * MIB) // 2, threads * 6 * MIB, 128 * MIB]
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        probes: Probes = CompiledProbes(library) if library else NumpyProbes()
        with ThreadPoolExecutor(threads) as pool:
            run = Pinned(pool, threads)
            return Limits(threads, probes.peak(run),
                          tuple(probes.speeds(run, size) for size in sizes), probes.name)


def cache_bytes(level: int, otherwise: int) -> int:
    """The size of one core's data cache of a level, as Linux tells."""
    for place in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind = (place / "type").read_text().strip()
            if kind != "Instruction" and int((place / "level").read_text()) == level:
                return int((place / "size").read_text().strip().removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    return otherwise


def build(folder: Path) -> ctypes.CDLL | None:
    """The probes, compiled; None without a compiler that takes them."""
    words = os.environ.get("CC", "").split()
    found = [words] if words else [[name] for name in ("cc", "gcc", "clang") if shutil.which(name)]
    (folder / "probes.c").write_text(PROBES)
    for command in found:
        for flags in (FLAGS, tuple(f for f in FLAGS if not f.startswith(("-mprefer", "-fno")))):
            target = folder / "probes.so"
            said = subprocess.run([*command, *flags, "-o", str(target), str(folder / "probes.c")],
                                  capture_output=True, check=False)
            if said.returncode == 0:
                return ctypes.CDLL(str(target))
    return None


class Pinned:
    """Runs a piece of work in each thread at once, each on a core of its own."""

    def __init__(self, pool: ThreadPoolExecutor, threads: int) -> None:
        self.pool, self.threads = pool, threads
        self.cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def fastest(self, works: Sequence[Callable[[], Any]]) -> float:
        """The least time of several tries for all of them together."""
        def one(number: int) -> None:
            if self.cores:
                os.sched_setaffinity(0, {self.cores[number % len(self.cores)]})
            works[number]()

        def once() -> float:
            start = time.perf_counter()
            list(self.pool.map(one, range(self.threads)))
            return time.perf_counter() - start
        once()
        return min(once() for _ in range(TRIES))


class Probes:
    """What is measured, by someone."""

    name = ""

    def peak(self, run: Pinned) -> float:
        """Operations a second."""
        raise NotImplementedError

    def speeds(self, run: Pinned, footprint: int) -> Speeds:
        """Bytes a second over memory of this size, divided among the threads."""
        raise NotImplementedError


class CompiledProbes(Probes):
    name = "C"

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.peak.argtypes = [ctypes.c_long]
        for name in ("copy", "stream"):
            getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        for name in ("read", "read_apart"):
            getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.width = int(library.width())

    def peak(self, run: Pinned) -> float:
        count = 2_000_000
        seconds = run.fastest([lambda: self.library.peak(count)] * run.threads)
        return run.threads * count * 2 * self.library.chains() * self.width / seconds

    def speeds(self, run: Pinned, footprint: int) -> Speeds:
        own = footprint // 2 // run.threads // 4096 * 4096
        arrays = [(aligned(own), aligned(own)) for _ in range(run.threads)]
        repeats, count = max(1, 256 * MIB // footprint), own // (4 * self.width)

        def work(function: Any, *given: Any) -> Callable[[], None]:
            def call() -> None:
                for _ in range(repeats):
                    function(*given)
            return call
        moved = repeats * 2 * own * run.threads
        copying = min(run.fastest([work(function, to.ctypes.data, source.ctypes.data, count)
                                   for to, source in arrays])
                      for function in (self.library.copy, self.library.stream))
        both = [aligned(2 * own) for _ in range(run.threads)]
        reading = min(run.fastest([work(function, one.ctypes.data, 2 * count) for one in both])
                      for function in (self.library.read, self.library.read_apart))
        return Speeds(footprint, moved / copying, moved / reading)


class NumpyProbes(Probes):
    name = "NumPy"

    def peak(self, run: Pinned) -> float:
        size = 1024
        x, y = np.ones((size, size), np.float32), np.ones((size, size), np.float32)
        return run.threads * 2 * size**3 / run.fastest([lambda: x @ y] * run.threads)

    def speeds(self, run: Pinned, footprint: int) -> Speeds:
        own = footprint // 2 // run.threads // 4096 * 4096
        arrays = [(aligned(own), aligned(own)) for _ in range(run.threads)]
        moved = 2 * own * run.threads
        copying = run.fastest([lambda to=to, source=source: np.copyto(to, source)  # type: ignore
                               for to, source in arrays])
        both = [aligned(2 * own) for _ in range(run.threads)]
        reading = run.fastest([lambda one=one: one.sum() for one in both])  # type: ignore
        return Speeds(footprint, moved / copying, moved / reading)


def aligned(size: int) -> np.ndarray:
    """Zeros in memory that begins at a page, and that the system has given already."""
    raw = np.empty(size + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    found = raw[start:start + size].view(np.float32)
    found[:] = 0
    return found
