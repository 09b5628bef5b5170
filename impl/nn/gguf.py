"""Files of the format GGUF, in which language models are given away, most of them quantised.

Tensors lie in the file, as those of `safe_load`. A quantised one stays in its bytes. What stands
for its elements is an expression of them: the kernel that uses the weights makes numbers of them.
"""
from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from impl.dtypes import DType, dtypes
from impl.errors import DTypeError
from impl.host import np
from impl.nn.files import lying, mapped_bytes, of_bits, open_file
from impl.nn.quantized import KINDS, Quantized
from impl.tensor import Tensor

__all__ = ["gguf_load", "gguf_metadata", "gguf_packed"]

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
    """The tensors of a GGUF file by name, plain or quantised: of the latter all kinds in which
    models are usually given away.

    What is quantised is an expression of its bytes. Who keeps such a tensor and realizes it keeps
    its numbers, which are some times larger; a layer keeps what `gguf_packed` gives.

    Raises:
        DTypeError: it is another kind of file, damaged, or has tensors of another kind.
    """
    return {name: each if isinstance(each, Tensor) else each.numbers()
            for name, each in gguf_packed(path).items()}


def gguf_packed(path: str | os.PathLike[str]) -> dict[str, Tensor | Quantized]:
    """The same, but what is quantised stays packed: see `impl.nn.quantized`.

    Raises:
        DTypeError: of what `gguf_load` says.
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
            return wanted(_Reader(mapped_bytes(file)))
        except DTypeError:
            raise
        except (ValueError, struct.error, OverflowError, LookupError) as error:
            raise _refuse(f"{os.fspath(path)} is damaged or no GGUF file ({error})") from None


def _refuse(problem: str) -> DTypeError:
    return DTypeError("gguf_load", problem, "give a whole file of GGUF, version 2 or 3")


class _Reader:
    """The header of a file, read from its beginning; no number in it is trusted."""

    def __init__(self, content: np.ndarray) -> None:
        self.content, self.place = content, 4
        if content[:4].tobytes() != b"GGUF":
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
        found = struct.unpack_from(f"<{form}", self.content.data, self.place)
        self.place += struct.calcsize(f"<{form}")
        return found

    def _text(self) -> str:
        length, = self._numbers("Q")
        if length > len(self.content) - self.place:
            raise _refuse(f"a text of {length} bytes is longer than the file")
        text = self.content[self.place:self.place + length].tobytes().decode()
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

    def tensor(self, name: str, entry: _Entry) -> Tensor | Quantized:
        """A tensor, whose bytes the file really has."""
        count, kind = math.prod(entry.shape), KINDS.get(entry.kind)
        size, each = (kind.size, kind.nbytes) if kind else (1, 0)
        if entry.kind in _PLAIN:
            each = _PLAIN[entry.kind].itemsize
        if not each:
            raise _refuse(f"{name} is of kind {entry.kind}, which is not read: only plain numbers, "
                          + ", ".join(one.name for one in KINDS.values()))
        first, nbytes = self.start + entry.offset, count // size * each
        if count % size or first + nbytes > len(self.content):
            raise _refuse(f"{name} of shape {entry.shape} takes {nbytes} bytes from {first}, and "
                          f"the file has {len(self.content)}")
        data = self.content[first:first + nbytes]
        if kind is not None:
            *rows, columns = entry.shape
            if columns % size:
                raise _refuse(f"{name} of shape {entry.shape} has no whole blocks of {size}")
            return Quantized(lying(data.reshape(*rows, columns // size, each)), kind)
        dtype = _PLAIN[entry.kind]
        if dtype is dtypes.bfloat16:
            return of_bits(data.view(np.uint16).reshape(entry.shape), dtype)
        return lying(data.view(dtype.numpy).reshape(entry.shape))
