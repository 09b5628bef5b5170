"""What is known of the processor. Chapter: spec/cpu.md."""
from __future__ import annotations

import functools
import os
import platform
from pathlib import Path


@functools.lru_cache(maxsize=1)
def processor() -> str:
    """What identifies the processor for -march=native: its model and its flags."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
        wanted = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU")
        kept = [line for line in lines.splitlines() if line.startswith(wanted)]
        return platform.machine() + "\n" + "\n".join(kept)
    except OSError:
        return " ".join((platform.machine(), platform.processor(), platform.platform()))


@functools.lru_cache(maxsize=1)
def vector_bytes() -> int:
    """The width of a vector register."""
    found = processor().split()
    if "avx512f" in found:
        return 64
    return 32 if "avx2" in found else 16


@functools.lru_cache(maxsize=4)
def cache_bytes(place: int) -> int:
    """The size of a cache of the first processor: 0 the first for data, 2, 3; or 0."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{place}/size").read_text("ascii")
        return int(text.strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 0


@functools.lru_cache(maxsize=1)
def processors() -> int:
    """How many processors this process may use, looked up once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
