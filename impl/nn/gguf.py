"""Files of the format GGUF, in which language models are given away, most of them quantised.

A quantised tensor stays in its bytes. What stands for its elements is an expression of them: the
kernel that uses the weights makes numbers of them.
"""
from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from impl.dtypes import DType, dtypes, from_bfloat16
from impl.errors import DTypeError
from impl.host import np
from impl.nn.files import open_file
from impl.tensor import Tensor

__all__ = ["gguf_load", "gguf_metadata"]

#: Kinds of numbers in the metadata, by their codes: how `struct` calls them.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}
_TEXT, _ARRAY = 8, 9
#: Codes of tensors that are plain numbers.
_PLAIN: dict[int, DType] = {
    0: dtypes.float32, 1: dtypes.float16, 24: dtypes.int8, 25: dtypes.int16, 26: dtypes.int32,
    27: dtypes.int64, 28: dtypes.float64, 30: dtypes.bfloat16}
_MOST_AXES = 8


class _Entry(NamedTuple):
    """A tensor in the file: its sizes, the code of its kind, and where it is behind the header."""

    shape: tuple[int, ...]
    kind: int
    offset: int


def gguf_load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a GGUF file by name: plain numbers, Q4_0, Q4_1, Q8_0, Q4_K and Q6_K.

    Raises:
        DTypeError: it is another kind of file, damaged, or has tensors of another kind.
    """
    return _read(path, lambda reader: {name: reader.tensor(name, entry)
                                       for name, entry in reader.entries.items()})


def gguf_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The numbers, texts and lists that a GGUF file has beside its tensors.

    Raises:
        DTypeError: it is another kind of file, or damaged.
    """
    return _read(path, lambda reader: reader.metadata)


def _read(path: str | os.PathLike[str], wanted: Callable[[_Reader], Any]) -> Any:
    with open_file("gguf_load", path) as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return wanted(_Reader(content))
        except DTypeError:
            raise
        except (ValueError, struct.error, OverflowError, LookupError) as error:
            raise _refuse(f"{os.fspath(path)} is damaged or no GGUF file ({error})") from None


def _refuse(problem: str) -> DTypeError:
    return DTypeError("gguf_load", problem, "give a whole file of GGUF, version 2 or 3")


class _Reader:
    """The header of a file, read from its beginning; no number in it is trusted."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content, self.place = content, 4
        if content[:4] != b"GGUF":
            raise _refuse("it does not begin with GGUF")
        version, tensors, values = self._numbers("IQQ")
        if version not in (2, 3) or max(tensors, values) > len(content):
            raise _refuse(f"version {version}, {tensors} tensors, {values} values")
        self.metadata = {self._text(): self._value(*self._numbers("I")) for _ in range(values)}
        self.entries = {self._text(): self._entry() for _ in range(tensors)}
        align = self.metadata.get("general.alignment", 32)
        if not isinstance(align, int) or align < 1:
            raise _refuse(f"general.alignment is {align!r:.40}")
        self.start = -(-self.place // align) * align

    def _numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.content, self.place)
        self.place += struct.calcsize(f"<{form}")
        return found

    def _text(self) -> str:
        length, = self._numbers("Q")
        if length > len(self.content) - self.place:
            raise _refuse(f"a text of {length} bytes is longer than the file")
        text = self.content[self.place:self.place + length].decode()
        self.place += length
        return text

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind != _ARRAY:
            return self._numbers(_NUMBERS[kind])[0]
        inner, count = self._numbers("IQ")
        if inner == _ARRAY or count > len(self.content) - self.place:
            raise _refuse(f"a list of {count} values of kind {inner}")
        return [self._text() for _ in range(count)] if inner == _TEXT \
            else list(self._numbers(f"{count}{_NUMBERS[inner]}"))

    def _entry(self) -> _Entry:
        axes, = self._numbers("I")
        if axes > _MOST_AXES:
            raise _refuse(f"a tensor has {axes} axes")
        # The first size is that of the axis whose elements lie side by side.
        shape = self._numbers(f"{axes}Q")[::-1]
        kind, offset = self._numbers("IQ")
        return _Entry(shape, kind, offset)

    def tensor(self, name: str, entry: _Entry) -> Tensor:
        """A tensor, whose bytes the file really has."""
        count = math.prod(entry.shape)
        size, each, unpacked = _PACKED.get(entry.kind, (1, 0, None))
        if entry.kind in _PLAIN:
            each = _PLAIN[entry.kind].itemsize
        if not each:
            raise _refuse(f"{name} is of kind {entry.kind}, which is not read: only plain numbers, "
                          "Q4_0, Q4_1, Q8_0, Q4_K and Q6_K")
        first, nbytes = self.start + entry.offset, count // size * each
        if count % size or first + nbytes > len(self.content):
            raise _refuse(f"{name} of shape {entry.shape} takes {nbytes} bytes from {first}, and "
                          f"the file has {len(self.content)}")
        data = np.frombuffer(self.content[first:first + nbytes], np.uint8)
        if unpacked is not None:
            return unpacked(Tensor(data.reshape(-1, each))).reshape(*entry.shape)
        dtype = _PLAIN[entry.kind]
        if dtype is dtypes.bfloat16:
            return Tensor(from_bfloat16(data.view(np.uint16)).reshape(entry.shape), dtype=dtype)
        return Tensor(data.view(dtype.numpy).reshape(entry.shape))


# ---------------------------------------------------------------- from bytes (blocks, bytes)

def _halves(blocks: Tensor, start: int) -> Tensor:
    """The float16 at a place of each block, as a column of float32."""
    return blocks[:, start:start + 2].contiguous().bitcast(dtypes.float16).float()


def _nibbles(packed: Tensor) -> tuple[Tensor, Tensor]:
    """The low and the high four bits of bytes."""
    return packed & 15, packed >> 4


def _q4_0(blocks: Tensor) -> Tensor:
    low, high = _nibbles(blocks[:, 2:])
    return (low.cat(high, dim=1).float() - 8) * _halves(blocks, 0)


def _q4_1(blocks: Tensor) -> Tensor:
    low, high = _nibbles(blocks[:, 4:])
    return low.cat(high, dim=1).float() * _halves(blocks, 0) + _halves(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].bitcast(dtypes.int8).float() * _halves(blocks, 0)


def _q4_k(blocks: Tensor) -> Tensor:
    """256 numbers: eight parts, each with a scale and a least value of six bits."""
    small = blocks[:, 4:16]
    first, second, last = small[:, :4], small[:, 4:8], small[:, 8:]
    scale = (first & 63).cat((last & 15) | ((first >> 6) << 4), dim=1).float()
    least = (second & 63).cat((last >> 4) | ((second >> 6) << 4), dim=1).float()
    low, high = _nibbles(blocks[:, 16:].reshape(-1, 4, 1, 32))
    number = low.cat(high, dim=2).reshape(-1, 8, 32).float()
    scale, least = scale * _halves(blocks, 0), least * _halves(blocks, 2)
    return number * scale.unsqueeze(2) - least.unsqueeze(2)


def _q6_k(blocks: Tensor) -> Tensor:
    """256 numbers of six bits: four lower and two upper ones, and a scale for each sixteen."""
    low, high = _nibbles(blocks[:, :128].reshape(-1, 2, 1, 64))
    lower = low.cat(high, dim=2).reshape(-1, 2, 4, 32)
    upper = blocks[:, 128:192].reshape(-1, 2, 1, 32)
    pairs = Tensor.cat(*((upper >> shift) & 3 for shift in (0, 2, 4, 6)), dim=2)
    number = (lower | (pairs << 4)).float() - 32
    scale = blocks[:, 192:208].bitcast(dtypes.int8).float() * _halves(blocks, 208)
    return number.reshape(-1, 16, 16) * scale.unsqueeze(2)


#: By the code of a kind: numbers in a block, its bytes, and what makes numbers of blocks.
_PACKED: dict[int, tuple[int, int, Callable[[Tensor], Tensor]]] = {
    2: (32, 18, _q4_0), 3: (32, 20, _q4_1), 8: (32, 34, _q8_0), 12: (256, 144, _q4_k),
    14: (256, 210, _q6_k)}
