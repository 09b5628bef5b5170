"""Files of `torch.save`, read without running anything that is in them.

Such a file is a zip: a pickle that says which tensors there are, and the bytes of each storage.
A pickle is a program for a small machine with a stack. The machine here knows the instructions that
build numbers, texts, lists and dicts, and the two functions that build tensors; it calls no other.
"""
from __future__ import annotations

import io
import math
import os
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from impl.dtypes import FLOAT8, DType, dtypes, from_bits
from impl.errors import DTypeError
from impl.host import np
from impl.nn.files import open_file, zip_of
from impl.nn.pickling import STORAGES
from impl.tensor import Tensor

#: The dtypes of storages, by the names of their classes.
_STORAGES = {name: dtype for dtype, name in STORAGES.items()}
#: The dtypes of PyTorch that have no class of storages.
_OTHERS = (*FLOAT8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
#: A storage that is bytes, whose dtype its tensor says.
_BYTES = "bytes"
_MARK = object()
#: What the parts that read a file raise at bytes that make no sense.
_DAMAGED = (zipfile.BadZipFile, ValueError, LookupError, TypeError, EOFError, AttributeError,
            RuntimeError, OverflowError, struct.error, zlib.error, NotImplementedError)
#: Tensors may be so many times larger together than the file: views of one storage.
_SHARED = 8


def _refuse(problem: str) -> DTypeError:
    return DTypeError("torch_load", problem,
                      "save a dict of tensors, torch.save(model.state_dict(), path), or use "
                      "safetensors")


def torch_load(path: str | os.PathLike[str]) -> Any:
    """What `torch.save` wrote: dicts, lists, numbers, texts, and tensors.

    Nothing in the file is run, and no memory is taken for what it only claims to have.

    Raises:
        DTypeError: it is no such file, is damaged, or has objects of other kinds.
    """
    with open_file("torch_load", path) as file:
        try:
            with zip_of(file) as archive:
                return _Reader(archive, Path(path).stat().st_size).load()
        except DTypeError:
            raise
        except (*_DAMAGED, OSError) as wrong:
            raise _refuse(f"{os.fspath(path)} is damaged or no file of torch.save "
                          f"({wrong})") from None


class _Reader:
    """One file: its entries, its storages, and the machine of its pickle."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self.archive, self.size, self.taken = archive, size, 0
        names = [name for name in archive.namelist() if name.endswith("data.pkl")]
        if len(names) != 1:
            raise _refuse("there is no data.pkl in the file")
        self.folder = names[0].removesuffix("data.pkl")
        self.storages: dict[str, np.ndarray] = {}
        self.tensors: dict[Any, Tensor] = {}
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def entry(self, name: str) -> bytes:
        """The bytes of an entry, which the file really has."""
        info = self.archive.getinfo(self.folder + name)
        if info.compress_type != zipfile.ZIP_STORED or \
                info.header_offset + info.file_size > self.size:
            raise _refuse(f"the entry {name} is packed, or longer than the file")
        return self.archive.read(info)

    # The machine

    def load(self) -> Any:
        """The object that the pickle builds."""
        names = self.archive.namelist()
        if f"{self.folder}byteorder" in names and self.entry("byteorder") != b"little":
            raise _refuse("the bytes of its numbers are in the other order")
        for code, argument, _ in pickletools.genops(io.BytesIO(self.entry("data.pkl"))):
            if code.name == "STOP":
                return self.stack.pop()
            self._run(code.name, argument)
        raise _refuse("its pickle has no end")

    def _run(self, name: str, argument: Any) -> None:
        """One instruction."""
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _LITERALS:
            self.stack.append(argument)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            words = [argument] if argument is not None else self._two()
            self.stack.append(_known(" ".join(words)))
        elif name in _ACTIONS:
            _ACTIONS[name](self)
        elif name not in ("PROTO", "FRAME"):
            raise _refuse(f"its pickle has the instruction {name}")

    def _marked(self) -> list[Any]:
        """What was put upon the stack since the last mark."""
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise _refuse("its pickle lacks a mark")
        found = self.stack[place + 1:]
        del self.stack[place:]
        return found

    def _tuple(self, count: int) -> None:
        found = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(found)

    def _append(self, several: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise _refuse("its pickle appends to what is no list")
        self.stack[-1].extend(several)

    def _items(self, several: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or not all(
                isinstance(key, (str, int, float, type(None))) for key in several[::2]):
            raise _refuse("its pickle has a dict with keys of another kind")
        self.stack[-1].update(zip(several[::2], several[1::2], strict=True))

    def _two(self) -> list[Any]:
        value = self.stack.pop()
        return [self.stack.pop(), value]

    def _build(self) -> None:
        """What PyTorch notes beside a dict of tensors is passed over."""
        self.stack.pop()
        if type(self.stack[-1]) is not dict:
            raise _refuse("it has objects of other kinds than tensors")

    def _reduce(self) -> None:
        """A call of one of the functions that are known."""
        given = self.stack.pop()
        called = self.stack.pop()
        if called == "dict" and given == ():
            self.stack.append({})
        elif called == "size":
            self.stack.append(tuple(given[0]))
        elif called == "parameter":
            self.stack.append(given[0])
        elif called == "tensor":
            self.stack.append(self._tensor(*given[:4]))
        elif called == "tensor of bytes":
            (kind, name, count), dtype = given[0], given[6]
            if kind != _BYTES or not isinstance(dtype, DType):
                raise _refuse("a tensor has a type that is not read")
            self.stack.append(self._tensor((dtype, name, count), *given[1:4]))
        else:
            raise _refuse("its pickle calls what is no function")

    def _persistent(self) -> None:
        """A storage: its kind, its name, and how many elements it says it has."""
        kind, storage, name, _, count = self.stack.pop()
        if kind != "storage" or not isinstance(storage, DType) and storage != _BYTES \
                or not isinstance(name, str):
            raise _refuse("it refers to something else than a storage")
        if name not in self.storages:
            self.storages[name] = np.frombuffer(self.entry(f"data/{name}"), np.uint8)
        self.stack.append((storage, name, count))

    # Tensors

    def _tensor(self, storage: Any, offset: int, size: Any, stride: Any) -> Tensor:
        """A view of a storage, in memory of its own."""
        dtype, name, _ = storage
        if not isinstance(dtype, DType):
            raise _refuse("a tensor has a type that is not read")
        numbers = (offset, *size, *stride)
        if len(size) != len(stride) or not all(type(one) is int and one >= 0 for one in numbers):
            raise _refuse("a tensor has no possible shape")
        key = (dtype.name, name, offset, tuple(size), tuple(stride))
        if key not in self.tensors:
            self.tensors[key] = self._view(
                dtype, self.storages[name], offset, tuple(size), tuple(stride))
        return self.tensors[key]

    def _view(self, dtype: DType, data: np.ndarray, offset: int, size: tuple[int, ...],
              stride: tuple[int, ...]) -> Tensor:
        width, count = dtype.itemsize, math.prod(size)
        last = offset + sum((one - 1) * step for one, step in zip(size, stride, strict=True))
        self.taken += count * width
        if count and (last + 1) * width > data.size or self.taken > _SHARED * self.size:
            raise _refuse(f"a tensor of shape {size} is larger than what is in the file")
        kind = np.dtype(f"u{width}")
        whole = data[:data.size // width * width].view(kind)
        part = np.lib.stride_tricks.as_strided(
            whole[offset:], size, [step * width for step in stride]) if count \
            else np.zeros(size, kind)
        return _made(np.ascontiguousarray(part).reshape(size), dtype)


def _made(bits: np.ndarray, dtype: DType) -> Tensor:
    """A tensor of these bits."""
    if not dtype.plain:
        return Tensor(from_bits(bits, dtype), dtype=dtype)
    return Tensor(bits != 0 if dtype is dtypes.bool else bits.view(dtype.numpy))


def _known(name: str) -> Any:
    """What stands for a class or function that a pickle names."""
    module, _, member = name.partition(" ")
    if module == "torch" and member in _STORAGES:
        return _STORAGES[member]
    known: dict[str, Any] = {"collections OrderedDict": "dict", "torch Size": "size",
             "torch._utils _rebuild_tensor_v2": "tensor",
             "torch._utils _rebuild_tensor_v3": "tensor of bytes",
             "torch.storage UntypedStorage": _BYTES,
             **{f"torch {dtype.name}": dtype for dtype in _OTHERS},
             "torch._utils _rebuild_parameter": "parameter"}
    if name not in known:
        raise _refuse(f"it has an object of {name.replace(' ', '.')[:80]}")
    return known[name]


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": lambda: None,
    "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "MARK": lambda: _MARK}
_LITERALS = frozenset({
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BININT", "BININT1", "BININT2",
    "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT", "BINBYTES", "SHORT_BINBYTES"})
_ACTIONS: dict[str, Callable[[_Reader], None]] = {
    "TUPLE": lambda reader: reader.stack.append(tuple(reader._marked())),
    "TUPLE1": lambda reader: reader._tuple(1), "TUPLE2": lambda reader: reader._tuple(2),
    "TUPLE3": lambda reader: reader._tuple(3),
    "LIST": lambda reader: reader.stack.append(reader._marked()),
    "APPEND": lambda reader: reader._append([reader.stack.pop()]),
    "APPENDS": lambda reader: reader._append(reader._marked()),
    "SETITEM": lambda reader: reader._items(reader._two()),
    "SETITEMS": lambda reader: reader._items(reader._marked()),
    "BUILD": _Reader._build, "REDUCE": _Reader._reduce, "BINPERSID": _Reader._persistent}
