"""Collectives of GPUs of NVIDIA as calls of NCCL. Chapter: spec/collectives.md.

A call goes to the stream of each GPU, behind the kernels before it, and nobody waits for it. The
library is that of the wheel `nvidia-nccl-cu13`, or one that the system finds.
"""
from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from impl import settings
from impl.cuda import CUDADevice
from impl.device import DeviceBackend, GlobalCounters, Memory
from impl.dtypes import DType, dtypes
from impl.errors import DeviceError
from impl.ir import Ops
from impl.multi import Transfer

#: NCCL's numbers of element types, and of operations. Its maximum does not say what becomes of NaN.
_TYPES = {dtypes.int32: 2, dtypes.uint32: 3, dtypes.int64: 4, dtypes.uint64: 5, dtypes.float32: 7,
          dtypes.float64: 8}
_SUMS = {Ops.ADD: 0, Ops.MUL: 1}
_BYTES = 1  # the type of what is only moved
_UNDER_WAY = 7  # what is no error


class UniqueId(ctypes.Structure):
    """What makes communicators one clique: given out by one of them, and known to all."""

    _fields_ = [("internal", ctypes.c_byte * 128)]


_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
#: The functions that are called, and what they are given. Each answers a number; 0 is success.
_FUNCTIONS: dict[str, list[Any]] = {
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(_POINTER), _INT, UniqueId, _INT],
    "ncclCommAbort": [_POINTER],
    "ncclCommGetAsyncError": [_POINTER, ctypes.POINTER(_INT)],
    "ncclGroupStart": [], "ncclGroupEnd": [],
    "ncclAllReduce": [_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
    "ncclReduceScatter": [_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
    "ncclAllGather": [_POINTER, _POINTER, _SIZE, _INT, _POINTER, _POINTER],
    "ncclSend": [_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
    "ncclRecv": [_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
}


class Library:
    """NCCL, opened from a file."""

    def __init__(self, path: str) -> None:
        self.functions = ctypes.CDLL(path)
        for name, arguments in _FUNCTIONS.items():
            function = getattr(self.functions, name)
            function.argtypes, function.restype = arguments, _INT
        self.functions.ncclGetErrorString.argtypes = [_INT]
        self.functions.ncclGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            DeviceError: it was refused.
        """
        code = getattr(self.functions, name)(*arguments)
        if code:  # r[impl collectives.nccl.calls+2]
            raise self.failure(name, code)

    def failure(self, name: str, code: int) -> DeviceError:
        """What an error of NCCL says."""
        text = self.functions.ncclGetErrorString(code).decode(errors="replace")
        return DeviceError("NCCL", f"{name}: {text} (error {code})",
                           "NCCL_DEBUG=WARN says more; NCCL=0 does without it")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Calls of several communicators, or of several partners, which wait for each other."""
        self.call("ncclGroupStart")
        try:
            yield
        finally:  # an open group would swallow all calls after it
            self.call("ncclGroupEnd")


@functools.cache
def library() -> Library | None:
    """The library; None where there is none."""
    package = importlib.util.find_spec("nvidia")
    folders = package.submodule_search_locations if package else None
    found = [str(path) for folder in folders or ()
             for path in sorted(Path(folder).glob("**/libnccl.so.2"))]
    for path in (*found, "libnccl.so.2"):
        try:
            return Library(path)
        except (OSError, AttributeError):
            continue
    return None


def usable(devices: Sequence[DeviceBackend]) -> Library | None:
    """The library, if collectives between these devices are calls of it."""
    every = all(isinstance(device, CUDADevice) for device in devices)
    return library() if every and settings.get("NCCL") else None


class Clique:
    """The communicators of devices that this process has, of a group of `count`, by rank."""

    def __init__(self, found: Library, devices: Mapping[int, CUDADevice], count: int,
                 unique: UniqueId) -> None:
        self.library, self.devices, self.count = found, dict(devices), count
        self.communicators = {rank: ctypes.c_void_p() for rank in devices}
        with found.together():  # one process may have several of them
            for rank, device in self.devices.items():
                device.context.enter()
                found.call("ncclCommInitRank", ctypes.byref(self.communicators[rank]), count,
                           unique, rank)

    @staticmethod
    def can(transfer: Transfer, dtype: DType) -> bool:
        """Whether NCCL has the collective, and combines as we do."""
        return transfer.op is None or transfer.op in _SUMS and dtype in _TYPES

    def exchange(self, transfer: Transfer, targets: Mapping[int, Memory],
                 sources: Mapping[int, Memory], nbytes: int, dtype: DType) -> None:
        """Ask all GPUs for a collective; `nbytes` are those of a piece, as in a mesh's `exchange`.
        """
        # r[impl collectives.nccl.calls+2]
        self._check()
        with self.library.together():
            for rank, device in self.devices.items():
                device.context.enter()  # a call is for the current GPU
                call = functools.partial(self._call, device, self.communicators[rank])
                self._ask(call, transfer, rank, targets[rank].address, sources[rank].address,
                          nbytes, dtype)
                GlobalCounters.copied(nbytes)

    def _call(self, device: CUDADevice, communicator: ctypes.c_void_p, name: str,
              *arguments: int) -> None:
        self.library.call(name, *arguments, communicator, int(device.stream))

    def _ask(self, call: Callable[..., None], transfer: Transfer, rank: int, target: int,
             source: int, nbytes: int, dtype: DType) -> None:
        kind, count = transfer.kind, self.count
        if kind == "all-gather":
            call("ncclAllGather", source, target, nbytes, _BYTES)
        elif kind in ("all-reduce", "reduce-scatter"):
            assert transfer.op is not None
            name = "ncclAllReduce" if kind == "all-reduce" else "ncclReduceScatter"
            call(name, source, target, nbytes // dtype.itemsize, _TYPES[dtype],
                 _SUMS[transfer.op])
        elif kind == "all-to-all":
            part = nbytes // count
            for other in range(count):
                call("ncclSend", source + other * part, part, _BYTES, other)
                call("ncclRecv", target + other * part, part, _BYTES, other)
        else:
            call("ncclSend", source, nbytes, _BYTES, (rank + transfer.shift) % count)
            call("ncclRecv", target, nbytes, _BYTES, (rank - transfer.shift) % count)

    def _check(self) -> None:
        """Whether something that was asked for before has failed; then nobody waits for it.

        Raises:
            DeviceError: it has.
        """
        for communicator in self.communicators.values():
            state = ctypes.c_int()
            self.library.call("ncclCommGetAsyncError", communicator, ctypes.byref(state))
            if state.value not in (0, _UNDER_WAY):
                self.abort()
                raise self.library.failure("ncclCommGetAsyncError", state.value)

    def abort(self) -> None:
        """Give up what is under way: whoever waits for it goes on."""
        for communicator in self.communicators.values():
            self.library.call("ncclCommAbort", communicator)


def new_clique(found: Library, devices: Sequence[DeviceBackend]) -> Clique:
    """The clique of devices that are all this process's."""
    unique = UniqueId()
    found.call("ncclGetUniqueId", ctypes.byref(unique))
    mine = {rank: device for rank, device in enumerate(devices) if isinstance(device, CUDADevice)}
    return Clique(found, mine, len(mine), unique)
