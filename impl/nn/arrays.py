"""Files of `numpy.save` and `numpy.savez`, read without trusting a size that they name."""
from __future__ import annotations

import ast
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

from impl.errors import DTypeError
from impl.host import np
from impl.nn.files import lying, mapped_bytes, open_file, zip_of
from impl.tensor import Tensor

__all__ = ["numpy_load"]

_MAGIC = b"\x93NUMPY"
#: A header is a dict with three entries: no shape needs more letters.
_MOST = 10_000
#: What Python and zipfile raise at bytes that make no sense.
_DAMAGED = (ValueError, SyntaxError, TypeError, LookupError, EOFError, RecursionError, MemoryError,
            OverflowError, NotImplementedError, RuntimeError, OSError, zipfile.BadZipFile,
            zlib.error)


def numpy_load(path: str | os.PathLike[str]) -> Any:
    """A tensor, or a dict of them.

    Raises:
        DTypeError: it is damaged, or has other things than numbers in it.
    """
    with open_file("load", path) as file:
        try:
            content = mapped_bytes(file)
            if content[:6].tobytes() == _MAGIC:
                return _tensor(_array(content))
            with zip_of(file) as archive:
                return {info.filename.removesuffix(".npy"): Tensor(_array(np.frombuffer(
                    archive.read(info), np.uint8))) for info in archive.infolist()}
        except _DAMAGED as error:
            raise DTypeError("load", f"{os.fspath(path)} is damaged or has other things than "
                             f"arrays of numbers ({error})", "write it with numpy.savez") from None


def is_of_numpy(path: Path, start: bytes) -> bool:
    """Whether it is an array, or a zip of them, as far as one can see."""
    if start[:2] != b"PK":
        return start[:6] == _MAGIC
    try:
        with open_file("load", path) as file, zip_of(file) as archive:
            names = archive.namelist()
            return bool(names) and all(name.endswith(".npy") for name in names)
    except _DAMAGED:
        return False  # the reader of the other kind says what is wrong


def _tensor(array: np.ndarray) -> Tensor:
    return lying(array) if array.dtype.kind in "iuf" and array.flags.c_contiguous \
        else Tensor(array)


def _array(content: np.ndarray) -> np.ndarray:
    """The array that an .npy file has, where its elements lie.

    Raises:
        ValueError: it claims what is not there, or its elements are no numbers.
    """
    if content[:6].tobytes() != _MAGIC:
        raise ValueError("an array does not begin with its magic bytes")
    wide = content[6] > 1
    start = 12 if wide else 10
    length = int.from_bytes(content[8:start].tobytes(), "little")
    if length > min(_MOST, len(content) - start):
        raise ValueError(f"a header of {length} bytes")
    said = ast.literal_eval(content[start:start + length].tobytes().decode().strip())
    if not isinstance(said, dict) or said.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("its header says something else than type, order and shape")
    shape, kind = said["shape"], np.dtype(said["descr"]) if isinstance(said["descr"], str) else None
    if kind is None or kind.kind not in "biufc":
        raise ValueError(f"elements of type {said['descr']!r:.60}")
    if not isinstance(shape, tuple) or not all(type(one) is int and one >= 0 for one in shape) \
            or len(shape) > 32:
        raise ValueError(f"shape {shape!r:.60}")
    data = content[start + length:]
    count = math.prod(shape)
    if count * kind.itemsize > len(data):
        raise ValueError(f"shape {shape} takes {count * kind.itemsize} bytes of {len(data)}")
    if kind.kind == "b":
        array: np.ndarray = data[:count] != 0
    else:
        array = data[:count * kind.itemsize].view(kind)
        array = array.astype(kind.newbyteorder("="), copy=False)
    return array.reshape(shape, order="F" if said["fortran_order"] else "C")
