"""The CUDA driver as we call it: one context for each GPU, errors as exceptions. Chapter: cuda.

The driver is asked once whether it is there. A call that fails says which call, what the driver
says of it, and what to do. Some failures break the context for good: nothing works in it any more,
and whatever lay on the GPU is lost. That is said at once, and again at each later call.
"""
from __future__ import annotations

import functools
import importlib
import os
import platform
from collections import deque
from typing import Any

from impl.errors import DeviceError

OUT_OF_MEMORY = 2
#: Failures after which a context does nothing any more: errors of the hardware, addresses, faults.
FATAL = frozenset({214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721})
#: An error may come from any launch since the last wait; so many of them are named.
_REMEMBERED = 8
#: Where launchers of MPI say which of a machine's processes this is.
_PLACES = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK")


class DriverError(DeviceError):
    """What the driver refused; `code` is its number for that."""

    code = 0


@functools.cache
def bindings(name: str = "driver") -> Any:
    """A module of cuda-bindings: `driver` or `nvrtc`."""
    return importlib.import_module(f"cuda.bindings.{name}")


@functools.cache
def problem() -> str:
    """Why there is no CUDA here, in one line; empty if there is."""
    # r[impl cuda.driver.refused]
    if platform.system() == "Windows":
        return "texts for it count on a long of 64 bits, which Windows does not have"
    try:
        driver, nvrtc = bindings(), bindings("nvrtc")
    except ImportError:
        return 'the package cuda-bindings is not installed (pip install -e ".[cuda]")'
    try:
        error = driver.cuInit(0)[0]
    except Exception:  # whatever the bindings raise where there is no libcuda
        return "no CUDA driver is found (libcuda.so.1 comes with NVIDIA's display driver)"
    if error:
        return f"the CUDA driver does not start: {_said(error)}"
    if not driver.cuDeviceGetCount()[1]:
        return "the CUDA driver knows no GPU"
    try:
        nvrtc.nvrtcVersion()
    except Exception:
        return "no NVRTC is found (pip install nvidia-cuda-nvrtc)"
    return ""


def _said(error: Any) -> str:
    """The name of an error and the driver's words for it."""
    words = bindings().cuGetErrorString(error)[1]
    text = words.decode() if isinstance(words, bytes) else str(words or "")
    return f"{error.name} ({text})" if text else str(error.name)


class DriverContext:
    """The primary context of one GPU: everything that is asked of the GPU is asked here."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number, self.owner = name, number, os.getpid()
        self.lost = ""
        self.launched: deque[str] = deque(maxlen=_REMEMBERED)
        count = _answer("cuDeviceGetCount")
        if number >= count:  # r[impl cuda.driver.refused]
            raise DeviceError("device", f"{name} cannot be used: the driver knows {count} "
                              f"GPU{'s' if count != 1 else ''}", "use one of " + ", ".join(
                                  f"CUDA:{each}" if each else "CUDA" for each in range(count)))
        # r[impl distributed.gpus.own]
        own = next((int(os.environ[each]) for each in _PLACES if each in os.environ), 0)
        self.device = _answer("cuDeviceGet", (number + own) % count)
        self.handle = _answer("cuDevicePrimaryCtxRetain", self.device)

    def enter(self) -> Any:
        """Make this the context of the calling thread; the module of the driver.

        Raises:
            DeviceError: the process was forked, or the context is lost.
        """
        if os.getpid() != self.owner:  # r[impl cuda.driver.refused]
            raise DeviceError(self.name, "this process was forked from one that uses the GPU, and "
                              "CUDA does not work in it", "start processes with "
                              "multiprocessing.get_context('spawn'), or use the GPU after the fork")
        if self.lost:  # r[impl cuda.error.told]
            raise self._is_lost()
        driver = bindings()
        driver.cuCtxSetCurrent(self.handle)
        return driver

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of the driver in this context; what it gives besides its error.

        Raises:
            DeviceError: as `enter` says.
            DriverError: the driver refuses.
        """
        error, *values = getattr(self.enter(), function)(*arguments)
        if error:
            raise self.failure(function, error)
        return values[0] if len(values) == 1 else values

    def failure(self, function: str, error: Any) -> DeviceError:
        """The exception for an error; if it is a fatal one, the context is lost from here on."""
        code = int(error)
        if code in FATAL:
            since = ", ".join(self.launched)
            self.lost = f"{_said(error)} in {function}" + (
                f"; launched since the last wait: {since}" if since else "")
            return self._is_lost(code)
        # r[impl cuda.error.told]
        return _refused(self.name, function, error)

    def _is_lost(self, code: int = 0) -> DeviceError:
        made = DriverError(self.name, f"a kernel broke the GPU's context, and everything on the "
                           f"GPU is lost: {self.lost}", "start a new process; NOOPT=1 or "
                           "DEVICE=CPU tells whether the kernel is wrong")
        made.code = code
        return made

    def attribute(self, name: str) -> int:
        """A property of the GPU, by the end of its name in the driver."""
        kind = getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_answer("cuDeviceGetAttribute", kind, self.device))


_REMEDIES = {
    OUT_OF_MEMORY: "use smaller tensors or free some",
    200: "install the NVRTC of the driver's version, and empty CACHE_FOLDER",
    209: "install the NVRTC of the driver's version, and empty CACHE_FOLDER",
    222: "install the NVRTC of the driver's version, or a newer driver",
    701: "give the kernel fewer lanes or less local memory (NOOPT=1 uses neither)",
}


def _refused(name: str, function: str, error: Any) -> DriverError:
    code = int(error)
    made = DriverError(name, f"{function}: {_said(error)}", _REMEDIES.get(
        code, "see the driver's documentation of this call; DEVICE=CPU does without"))
    made.code = code
    return made


def _answer(function: str, *arguments: Any) -> Any:
    """What a function of the driver gives that needs no context."""
    error, *values = getattr(bindings(), function)(*arguments)
    if error:
        raise _refused("CUDA", function, error)
    return values[0] if len(values) == 1 else values
