"""Launches: in this process, or in one of its own under AddressSanitizer."""
from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.emulation import building
from conformance.emulation.errors import EmulationError, MemoryOverrun, OrderDependence

Argument = np.ndarray | np.generic | int | float | bytes
Size = int | Sequence[int]
Order = str | int
LETTERS = {("i", 1): "b", ("u", 1): "B", ("i", 2): "h", ("u", 2): "H", ("i", 4): "i", ("u", 4): "I",
           ("i", 8): "q", ("u", 8): "Q", ("f", 4): "f", ("f", 8): "d"}


class _Parameter(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("alignment", ctypes.c_uint), ("kind", ctypes.c_char),
                ("slot", ctypes.c_int)]


class _Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("count", ctypes.c_int),
                ("parameters", ctypes.POINTER(_Parameter))]


class _Source(ctypes.Structure):
    _fields_ = [("kernels", ctypes.POINTER(_Kernel)), ("count", ctypes.c_int),
                ("shared_begin", ctypes.c_void_p), ("shared_end", ctypes.c_void_p)]


class _Launch(ctypes.Structure):
    _fields_ = [("source", ctypes.POINTER(_Source)), ("kernel", ctypes.POINTER(_Kernel)),
                ("arguments", ctypes.POINTER(ctypes.c_void_p)), ("groups", ctypes.c_uint * 3),
                ("lanes", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint),
                ("order", ctypes.c_long)]


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter. Kind: p pointer, i signed, u unsigned, f floating, s other bytes."""

    kind: str
    size: int
    slot: int


class Module:
    """A compiled source. `kernels` maps each kernel's name to its parameters."""

    def __init__(self, path: Path, sanitized: Path | None = None) -> None:
        self.path = path
        self.sanitized = sanitized
        self._library = ctypes.CDLL(str(path))
        self._source = _Source.in_dll(self._library, "emulation_source")
        rows = [self._source.kernels[at] for at in range(self._source.count)]
        self._numbers = {row.name.decode(): at for at, row in enumerate(rows)}
        self.kernels = {row.name.decode(): _parameters(row) for row in rows}

    def launch(self, kernel: str, grid: Size, block: Size, shared_bytes: int = 0,
               arguments: Sequence[Argument] = (), order: Order = "forward") -> None:
        """Run a grid of `grid` groups of `block` lanes; arrays are written where they lie.

        `order` is how the lanes of a group, and the groups, take turns: "forward", "reversed", or
        a whole number from 0 on that shuffles them. Arguments are contiguous arrays for pointers
        and plain numbers for values; of a Metal kernel, argument n is `[[buffer(n)]]`. Raises
        `EmulationError`, or `MemoryOverrun` if the module was compiled with `sanitize`.
        """
        number = self._number(kernel)
        slots = _slots(kernel, self.kernels[kernel], arguments)
        numbers = [number, *_three(grid), *_three(block), shared_bytes, order_number(order)]
        if self.sanitized is None:
            self._launch_here(numbers, slots)
        else:
            _launch_apart(self.sanitized, numbers, slots)

    def launch_in_orders(self, kernel: str, grid: Size, block: Size, shared_bytes: int = 0,
                         arguments: Sequence[Argument] = (), seeds: Sequence[int] = (1,)) -> None:
        """Launch forward, reversed and shuffled; `OrderDependence` if that changes any array."""
        orders: list[Order] = ["forward", "reversed", *seeds]
        results = []
        for order in orders:
            own = {id(each): each.copy() for each in arguments if isinstance(each, np.ndarray)}
            copies = [own.get(id(each), each) for each in arguments]
            self.launch(kernel, grid, block, shared_bytes, copies, order)
            results.append(copies)
        for order, copies in zip(orders, results, strict=True):
            for at, (first, other) in enumerate(zip(results[0], copies, strict=True)):
                if isinstance(first, np.ndarray) and isinstance(other, np.ndarray):
                    _compare(f"kernel {kernel}: argument {at}", first, other, order)
        for into, result in zip(arguments, results[0], strict=True):
            if isinstance(into, np.ndarray) and isinstance(result, np.ndarray):
                np.copyto(into, result)

    def _number(self, kernel: str) -> int:
        if kernel not in self._numbers:
            raise EmulationError(f"no kernel {kernel!r}; there is {', '.join(self._numbers)}")
        return self._numbers[kernel]

    def _launch_here(self, numbers: Sequence[int], slots: Sequence[_Slot]) -> None:
        pointers = [ctypes.c_void_p(slot.address) for slot in slots]
        values = [ctypes.addressof(pointer) if slot.is_buffer else slot.address
                  for slot, pointer in zip(slots, pointers, strict=True)]
        launch = _Launch(
            ctypes.pointer(self._source), ctypes.pointer(self._source.kernels[numbers[0]]),
            (ctypes.c_void_p * max(len(values), 1))(*values), (ctypes.c_uint * 3)(*numbers[1:4]),
            (ctypes.c_uint * 3)(*numbers[4:7]), numbers[7], numbers[8])
        room = ctypes.c_size_t(2048)
        message = ctypes.create_string_buffer(room.value)
        if self._library.emulation_run(ctypes.byref(launch), message, room):
            raise EmulationError(message.value.decode())


@dataclass(frozen=True)
class _Slot:
    """An argument: its bytes as an array, and whether the kernel takes a pointer to them."""

    data: np.ndarray
    is_buffer: bool

    @property
    def address(self) -> int:
        return self.data.ctypes.data


def _parameters(row: _Kernel) -> list[Parameter]:
    rows = [row.parameters[at] for at in range(row.count)]
    return [Parameter(each.kind.decode(), each.size, each.slot) for each in rows]


def _three(size: Size) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    x, y, z = (*sizes, 1, 1, 1)[:3]
    if len(sizes) > 3 or min(x, y, z) < 0:
        raise ValueError(f"size {size}: one to three numbers, none of them negative")
    return x, y, z


def order_number(order: Order) -> int:
    """An order as the emulator takes it."""
    if isinstance(order, int) and order >= 0:
        return order
    if order in ("forward", "reversed"):
        return -1 if order == "forward" else -2
    raise ValueError(f"order {order!r}: 'forward', 'reversed' or a whole number from 0 on")


def _slots(kernel: str, parameters: Sequence[Parameter],
           arguments: Sequence[Argument]) -> list[_Slot]:
    taken = {each.slot: each for each in parameters if each.slot >= 0}
    if len(arguments) != max(taken, default=-1) + 1:
        raise EmulationError(f"kernel {kernel} takes {max(taken, default=-1) + 1} arguments, "
                             f"and {len(arguments)} were given")
    return [_slot(f"kernel {kernel}: argument {at}", taken.get(at), value)
            for at, value in enumerate(arguments)]


def _slot(about: str, parameter: Parameter | None, value: Argument) -> _Slot:
    if isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            raise EmulationError(f"{about} is an array with gaps; give a contiguous one")
        flat = value if value.flags.writeable else value.copy()
        return _Slot(flat, parameter is None or parameter.kind == "p")
    if parameter is None or parameter.kind == "p":
        raise EmulationError(f"{about} is a pointer, and {value!r} is no array")
    return _Slot(np.frombuffer(bytearray(_packed(about, parameter, value)), np.uint8), False)


def _packed(about: str, parameter: Parameter, value: Argument) -> bytes:
    """The bytes of a value that a kernel takes as such."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bytes) and len(plain) == parameter.size:
        return plain
    letter = LETTERS.get((parameter.kind, parameter.size))
    try:
        assert letter is not None
        return struct.pack("=" + letter, plain)
    except (AssertionError, struct.error) as error:
        raise EmulationError(f"{about} is {plain!r}; the kernel takes {parameter.size} bytes of "
                             f"kind {parameter.kind!r}") from error


def _compare(about: str, first: np.ndarray, other: np.ndarray, order: Order) -> None:
    one, two = (each.reshape(-1).view(np.uint8) for each in (first, other))
    different = np.flatnonzero(one != two)
    if len(different):
        at = int(different[0]) // first.itemsize
        raise OrderDependence(
            f"{about} depends on the order of the lanes: element {at} is "
            f"{first.reshape(-1)[at]} forward and {other.reshape(-1)[at]} with {order!r}; "
            "a barrier is missing, or lanes write to the same place")


# Under AddressSanitizer


def _launch_apart(library: Path, numbers: Sequence[int], slots: Sequence[_Slot]) -> None:
    with tempfile.TemporaryDirectory(dir=building.folder()) as scratch:
        job, result = Path(scratch) / "job", Path(scratch) / "result"
        heads = [number for slot in slots for number in (int(slot.is_buffer), slot.data.nbytes)]
        words = np.array([*numbers, len(slots), *heads], np.int64)
        job.write_bytes(b"".join([words.tobytes(), *(slot.data.tobytes() for slot in slots)]))
        done = subprocess.run([building.runner(), library, job, result], capture_output=True,
                              text=True, env=_sanitizer_environment())
        _check(done)
        _read_back(result.read_bytes(), slots)


def _sanitizer_environment() -> dict[str, str]:
    options = "detect_leaks=0:exitcode=99:detect_stack_use_after_return=0"
    return os.environ | {"ASAN_OPTIONS": options}


def _check(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode == 0:
        return
    if "AddressSanitizer" in done.stderr:
        raise MemoryOverrun(_summary(done.stderr))
    said = re.search(r"^emulation: (.*)", done.stderr, re.M)
    raise EmulationError(said[1] if said else f"the runner ended with {done.returncode}: "
                                              f"{done.stderr.strip()}")


def _summary(report: str) -> str:
    """What was touched, where in the source, and beside what it lies, from a long report."""
    kind = re.search(r"AddressSanitizer: (\S+)", report)
    access = re.search(r"^(READ|WRITE) of size (\d+)", report, re.M)
    place = re.search(r"(kernel\.(?:cu|metal):\d+)", report)
    beside = re.search(r"^\S+ is located (.*)$", report, re.M)
    return " ".join([
        kind[1] if kind else "overrun",
        f"at {place[1]}:" if place else "at an unknown line:",
        f"{access[1].lower()} of {access[2]} bytes" if access else "an access",
        beside[1] if beside else ""]).strip()


def _read_back(data: bytes, slots: Sequence[_Slot]) -> None:
    start = 0
    for slot in slots:
        end = start + slot.data.nbytes
        if slot.is_buffer and slot.data.size:
            flat = np.frombuffer(data[start:end], slot.data.dtype)
            np.copyto(slot.data, flat.reshape(slot.data.shape))
        start = end
