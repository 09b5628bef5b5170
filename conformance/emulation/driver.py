"""A mock of the CUDA driver: unmodified cuda-bindings run on it without a GPU.

    from conformance.emulation import driver

    with driver.installed() as mock:           # before anything asks for libcuda.so.1
        ...                                     # a program that uses cuda.bindings
        mock.set_memory(0, 1 << 20)             # and what only a mock can do
        mock.fail("cuLaunchKernel", 719)

NVRTC stays the real one: it checks each source and makes the image. What it compiled is recorded,
and when the driver is given that image, it runs the source under the emulator. Images are known
by their checksum in EMULATION_FOLDER, so that a program that keeps images on disk finds them again.

Streams do their work when somebody waits for them, and not before. With `set_order("reversed")`
lanes, streams and independent nodes of a graph run the other way round.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.emulation import building
from conformance.emulation.errors import Unavailable
from conformance.emulation.running import Order, order_number

#: Set to 1 in a process that runs under AddressSanitizer (see `environment`).
SANITIZED = "EMULATION_SANITIZED"


class Mock:
    """The mock driver of this process, seen from behind."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        self.library.emulation_driver_message.restype = ctypes.c_char_p
        self.library.emulation_driver_calls.restype = ctypes.c_uint64
        self.library.emulation_driver_used.restype = ctypes.c_size_t

    def know(self, image: bytes, source: str) -> None:
        """Run `source` when the driver is given `image`, a cubin or text that ends with a zero."""
        compiled = building.library(source, "cuda", SANITIZED in os.environ)
        self.library.emulation_driver_know(bytes(image), str(compiled).encode())

    def set_memory(self, device: int, size: int) -> None:
        """Let a device have `size` bytes."""
        self.library.emulation_driver_memory(device, ctypes.c_size_t(size))

    def set_order(self, order: Order) -> None:
        """How lanes take turns: "forward", "reversed" or a seed."""
        self.library.emulation_driver_order(ctypes.c_long(order_number(order)))

    def set_lazy(self, lazy: bool) -> None:
        """Whether work waits until somebody waits for it."""
        self.library.emulation_driver_lazy(int(lazy))

    def fail(self, function: str, error: int, skip: int = 0) -> None:
        """Let a function of the driver return `error` once, after `skip` calls that pass.

        Functions are named as they are exported: `cuMemAlloc_v2`.
        """
        self.library.emulation_driver_fail(function.encode(), skip, error)

    def used(self, device: int = 0) -> int:
        """Bytes that are allocated on a device."""
        return int(self.library.emulation_driver_used(device))

    def calls(self, function: str) -> int:
        """How often a function was called."""
        return int(self.library.emulation_driver_calls(function.encode()))

    def message(self) -> str:
        """What went wrong last: the kernel, the line, the address."""
        return bytes(self.library.emulation_driver_message()).decode()


@functools.cache
def load() -> Mock:
    """The mock, as this process's libcuda.so.1: whoever asks for that name gets it."""
    os.environ.setdefault("EMULATION_FOLDER", str(building.folder()))
    os.environ.setdefault("NCCL", "0")  # a real one would look for real GPUs
    return Mock(building.driver(SANITIZED in os.environ))


@contextlib.contextmanager
def installed() -> Iterator[Mock]:
    """Load the mock and record what NVRTC compiles."""
    mock = load()
    with recording(mock):
        yield mock


@contextlib.contextmanager
def recording(mock: Mock) -> Iterator[None]:
    """Make known to the mock each image that cuda-bindings' NVRTC hands out."""
    try:
        nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
    except ImportError as error:
        raise Unavailable("cuda-bindings is not installed: pip install cuda-bindings") from error
    kept = {name: getattr(nvrtc, name) for name in
            ("nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetCUBIN", "nvrtcGetPTX")}
    recorder = _Recorder(mock, kept)
    for name in kept:
        setattr(nvrtc, name, getattr(recorder, name))
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(nvrtc, name, function)


class _Recorder:
    """NVRTC's functions, with an eye on which source became which image."""

    def __init__(self, mock: Mock, real: dict[str, Any]) -> None:
        self.mock = mock
        self.real = real
        self.sources: dict[int, str] = {}

    def nvrtcCreateProgram(self, source: bytes, *rest: Any) -> Any:
        answer = self.real["nvrtcCreateProgram"](source, *rest)
        self.sources[int(answer[1])] = bytes(source).rstrip(b"\0").decode()
        return answer

    def nvrtcCompileProgram(self, program: Any, count: int, options: list[bytes]) -> Any:
        defined = [option[2:].decode().replace("=", " ", 1) for option in options or ()
                   if option.startswith(b"-D")]
        head = "".join(f"#define {each}\n" for each in defined)
        if head:
            source = self.sources[int(program)]
            self.sources[int(program)] = f'{head}#line 1 "kernel.cu"\n{source}'
        return self.real["nvrtcCompileProgram"](program, count, options)

    def nvrtcGetCUBIN(self, program: Any, image: bytes) -> Any:
        return self._record("nvrtcGetCUBIN", program, image)

    def nvrtcGetPTX(self, program: Any, image: bytes) -> Any:
        return self._record("nvrtcGetPTX", program, image)

    def _record(self, name: str, program: Any, image: bytes) -> Any:
        answer = self.real[name](program, image)
        if int(answer[0]) == 0:
            self.mock.know(image, self.sources[int(program)])
        return answer


def environment(sanitize: bool = False) -> dict[str, str]:
    """The environment of a process that finds the mock where it looks for libcuda.so.1.

    With `sanitize` it runs under AddressSanitizer, the driver and all kernels with it: memory that
    is read or written beyond its ends stops the process with a report.
    """
    found = os.environ | {"EMULATION_FOLDER": str(building.folder())}
    paths = [str(building.driver(sanitize).parent), found.get("LD_LIBRARY_PATH", "")]
    if sanitize:
        paths += _compiler_folders()
        found |= {SANITIZED: "1", "LD_PRELOAD": _sanitizer_library(),
                  "ASAN_OPTIONS": "detect_leaks=0:exitcode=99:detect_stack_use_after_return=0"}
    found["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    return found


def _compiler_folders() -> list[str]:
    """Where NVRTC keeps a library that it opens late; under the sanitizer it has to be told."""
    package = importlib.util.find_spec("nvidia")
    roots = package.submodule_search_locations if package else None
    return sorted({str(path.parent) for root in roots or ()
                   for path in Path(root).glob("*/lib/libnvrtc-builtins.so*")})


def _sanitizer_library() -> str:
    asked = [building.compiler(), "-print-file-name=libasan.so"]
    name = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return str(Path(name).resolve())
