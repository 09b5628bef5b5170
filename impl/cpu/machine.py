"""What is known of the processor. Chapter: spec/cpu.md."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
from collections.abc import Collection
from dataclasses import dataclass
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


@dataclass(frozen=True)
class VectorRegisters:
    """The vector registers of a processor: bytes in each, and how many there are."""

    width: int
    registers: int
    dots: bool  # whether there is an instruction for products of bytes


#: What generated text uses beyond the least that a processor of its kind has.
EXTENSIONS = frozenset(("avx", "avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512vnni",
                        "amxtile", "amxint8", "amxbf16"))
#: How machines are called that have 32 registers of 16 bytes.
_ARM = {"aarch64", "arm64"}


def vectors_of(features: Collection[str]) -> VectorRegisters:
    """The registers of a processor with these features, named without underscores."""
    if "avx512f" in features:
        return VectorRegisters(64, 32, "avx512vnni" in features)
    if "avx2" in features:
        return VectorRegisters(32, 16, False)
    return VectorRegisters(16, 32 if _ARM & set(features) else 16, False)


def unit_types(features: Collection[str]) -> tuple[str, ...]:
    """The types of matrices that a unit of a processor with these features multiplies."""
    if "amxtile" not in features or not _tiles_allowed():
        return ()
    return tuple(name for name, feature in (("int8", "amxint8"), ("bfloat16", "amxbf16"))
                 if feature in features)


@functools.lru_cache(maxsize=1)
def _tiles_allowed() -> bool:
    """Whether the system lets this process use the unit's registers: it has to be asked first."""
    try:
        return platform.machine() == "x86_64" and platform.system() == "Linux" \
            and ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0  # arch_prctl: use tile data
    except (OSError, AttributeError):
        return False


@functools.lru_cache(maxsize=1)
def own_features() -> frozenset[str]:
    """What the processor can do that this runs on."""
    return frozenset(processor().replace("_", "").split())


@functools.lru_cache(maxsize=4)
def cache_bytes(place: int) -> int:
    """The size of a cache of the first processor: 0 the first for data, 2, 3; or 0."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{place}/size").read_text("ascii")
        return int(text.strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 0


#: Where Linux says how much memory the control group of a process may have, in either version.
_CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_bytes() -> int:
    """How much memory this process may have: what the machine has, or its control group less; 0 if
    that is not known.
    """
    found = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _CONTROL_GROUPS:
        with contextlib.suppress(OSError, ValueError):  # "max" is no number
            found.append(int(Path(path).read_text("ascii")))
    return min(found, default=0)


@functools.lru_cache(maxsize=1)
def processors() -> int:
    """How many processors this process may use, looked up once.

    Of those that no process of a job was bound to, each of a machine has its share.
    """
    every = os.cpu_count() or 1
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else every
    if own < every:
        return own
    # r[impl distributed.processors.shared]
    together = next((int(os.environ[name]) for name in _TOGETHER if name in os.environ), 1)
    return max(1, own // together)


#: Where launchers of MPI say how many processes of the job are on this machine.
_TOGETHER = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE")
