"""Runs a command of the suite with kernels that watch their own memory and arithmetic.

    python -m conformance sanitize steps --count 500
    python -m conformance sanitize fuzz --count 500 --settings NO_MEMORY_PLANNER=1
    python -m conformance sanitize all --report report.json --resume

GCC's address sanitizer sees a read or write outside of an array, its sanitizer of undefined
behaviour a misaligned vector, a shift that is too wide, and the like. The kernels are built with
them, and Python starts with their library loaded. The device's memory gets fences: each block is
by itself, and what lies around it must not be touched.
"""
from __future__ import annotations

import ctypes
import functools
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from conformance.runner.interruption import status_of

#: No recovery: what is found ends the process, and the parent says so.
FLAGS = ("-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all",
         "-fno-omit-frame-pointer", "-g1")
#: Bytes before and behind each block of memory that nobody may touch.
FENCE = 4096
#: Bytes of a stack: what a kernel keeps for itself stands there, in arrays with fences.
_STACK = 256 << 20


def library() -> str:
    """The path of the library that has to be loaded first; empty if there is none here."""
    try:
        found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True,
                               text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return os.path.realpath(found) if Path(found).is_absolute() and Path(found).exists() else ""


def environment() -> dict[str, str]:
    """The environment of a process whose kernels are watched."""
    return {**os.environ, "LD_PRELOAD": library(), "CACHELEVEL": "0",
            "CC": " ".join(("env", "-u", "LD_PRELOAD", "gcc", *FLAGS)),
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:exitcode=86",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


def main(arguments: Sequence[str]) -> int:
    """Run a command of the suite; its status, or 1 with a line if there are no sanitizers."""
    if not library():
        print("gcc has no address sanitizer here; install libasan (it comes with gcc)")
        return 1
    most = resource.getrlimit(resource.RLIMIT_STACK)[1]
    deep = _STACK if most == resource.RLIM_INFINITY else min(_STACK, most)
    resource.setrlimit(resource.RLIMIT_STACK, (deep, most))
    if arguments[:1] == ["all"]:
        from conformance.kernels import sanitized_programs
        return sanitized_programs.main(arguments[1:])
    return status_of(subprocess.Popen([sys.executable, "-m", "conformance", *arguments],
                                      env=environment()))


@functools.lru_cache(maxsize=1)
def poisoning() -> tuple[Any, Any] | None:
    """The functions that forbid and allow memory; None where nobody watches."""
    loaded = ctypes.CDLL(None)
    if not hasattr(loaded, "__asan_poison_memory_region"):
        return None
    functions = loaded.__asan_poison_memory_region, loaded.__asan_unpoison_memory_region
    for function in functions:
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t), None
    return functions


def guard() -> bool:
    """Put fences around the memory of the CPU device, if this process is watched.

    The buffers of a kernel's stages stand on the stack, and not side by side in one block.
    """
    if poisoning() is None or "impl" not in sys.modules:
        return False
    cpu: Any = import_module("impl.cpu")
    cpu.CPU.allocate = _allocate
    renderer: Any = import_module("impl.dialects")
    renderer.C.own_scratch = lambda dialect, total: 0
    return True


def _allocate(device: Any, nbytes: int) -> Any:
    """What stands in the place of the device's `allocate`: a block of its own, with fences."""
    from impl.device import Memory
    block = _Fenced(nbytes)
    return Memory(device, block.bytes, block.start, nbytes, block)


class _Fenced:
    """Bytes between fences, which are taken away with the block."""

    def __init__(self, nbytes: int) -> None:
        found = poisoning()
        assert found is not None
        poison, self.allow = found
        self.bytes = np.empty(nbytes + 2 * FENCE + 64, np.uint8)
        self.address = self.bytes.ctypes.data
        self.start = FENCE + -(self.address + FENCE) % 64
        poison(self.address, self.start)
        behind = self.start + nbytes
        poison(self.address + behind, self.bytes.nbytes - behind)

    def __del__(self) -> None:
        self.allow(self.address, self.bytes.nbytes)
