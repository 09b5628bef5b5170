"""Files as `torch.save` writes them: a zip with a pickle, and the bytes of each tensor beside it.

The pickle is written by hand. It names two functions of PyTorch, which `torch.load` knows also when
it reads nothing else (`weights_only=True`); PyTorch need not be installed here.
"""
from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any

from impl.dtypes import INT4, DType, dtypes
from impl.errors import DTypeError
from impl.host import np
from impl.nn.files import bits_as_stored
from impl.tensor import Tensor

__all__ = ["STORAGES", "write_torch"]

#: The classes of storages by their dtypes; other dtypes are written in bytes without one.
STORAGES: dict[DType, str] = {
    dtypes.float64: "DoubleStorage", dtypes.float32: "FloatStorage", dtypes.float16: "HalfStorage",
    dtypes.bfloat16: "BFloat16Storage", dtypes.int64: "LongStorage", dtypes.int32: "IntStorage",
    dtypes.int16: "ShortStorage", dtypes.int8: "CharStorage", dtypes.uint8: "ByteStorage",
    dtypes.bool: "BoolStorage"}
#: So deep may dicts and lists lie in each other.
_DEPTH = 100
#: Storages begin at multiples of it, so that others may map them.
_ALIGN = 64


def write_torch(obj: Any, file: IO[bytes]) -> None:
    """Write tensors, numbers, texts, None, and dicts, lists and tuples of them.

    Raises:
        DTypeError: something of another kind is in it.
    """
    pickler = _Pickler()
    pickler.put(obj, "", 0)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _entry(archive, "data.pkl", b"\x80\x02" + b"".join(pickler.parts) + b".")
        _entry(archive, "byteorder", b"little")
        for number, tensor in enumerate(pickler.tensors):
            bits = np.ascontiguousarray(bits_as_stored(tensor).numpy())
            _entry(archive, f"data/{number}", bits.tobytes())
        _entry(archive, "version", b"3\n")


def _entry(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """An entry whose bytes begin at a multiple of `_ALIGN`, by a field that nobody reads."""
    info = zipfile.ZipInfo(f"archive/{name}")
    assert archive.fp is not None
    start = archive.fp.tell() + 30 + len(info.filename) + 4
    fill = -start % _ALIGN
    info.extra = struct.pack("<2sH", b"FB", fill) + b"Z" * fill
    archive.writestr(info, content)


class _Pickler:
    """The instructions of a pickle, and the tensors that it refers to."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.tensors: list[Tensor] = []
        self.numbers: dict[int, int] = {}

    def put(self, obj: Any, path: str, depth: int) -> None:
        """What puts an object upon the stack."""
        if isinstance(obj, np.generic):
            obj = obj.item()
        if isinstance(obj, np.ndarray):
            obj = Tensor(obj)
        if isinstance(obj, Tensor):
            self._tensor(obj)
        elif type(obj) in _PLAIN:
            self.parts.append(_PLAIN[type(obj)](obj))
        elif depth == _DEPTH or not isinstance(obj, (Mapping, list, tuple)):
            raise DTypeError("save", f"{path or 'the object'} is a {type(obj).__name__}"
                             f"{', too deep' if depth == _DEPTH else ''}",
                             "save tensors, numbers and texts: model.state_dict(), not the model")
        else:
            self._container(obj, path, depth)

    def _container(self, obj: Any, path: str, depth: int) -> None:
        opening, closing = (b"}(", b"u") if isinstance(obj, Mapping) else \
            (b"(", b"t") if isinstance(obj, tuple) else (b"](", b"e")
        self.parts.append(opening)
        for key, value in obj.items() if isinstance(obj, Mapping) else enumerate(obj):
            if isinstance(obj, Mapping):
                if type(key) not in _PLAIN:
                    raise DTypeError("save", f"{path or 'the object'} has a key that is no text or "
                                     "number", "give the dict other keys")
                self.parts.append(_PLAIN[type(key)](key))
            self.put(value, f"{path}.{key}" if path else str(key), depth + 1)
        self.parts.append(closing)

    def _tensor(self, tensor: Tensor) -> None:
        if tensor.dtype in INT4:
            raise DTypeError("save", f"the format has no {tensor.dtype.name}",
                             "give its bytes, .bitcast(dtypes.uint8), or .cast(dtypes.int8)")
        number = self.numbers.setdefault(id(tensor), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(tensor)
        plain = STORAGES.get(tensor.dtype)
        count = tensor.numel() if plain else tensor.numel() * tensor.dtype.itemsize
        strides, step = list[int](), 1
        for size in reversed(tensor.shape):
            strides.insert(0, step)
            step *= max(size, 1)
        self.parts += [
            _global("torch._utils", "_rebuild_tensor_v2" if plain else "_rebuild_tensor_v3"), b"((",
            _text("storage"),
            _global("torch", plain) if plain else _global("torch.storage", "UntypedStorage"),
            _text(str(number)), _text("cpu"), _whole(count), b"tQ", _whole(0),
            _sizes(tensor.shape), _sizes(strides), b"\x88" if tensor.requires_grad else b"\x89",
            _global("collections", "OrderedDict"), b")R",
            b"" if plain else _global("torch", tensor.dtype.name), b"tR"]


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _text(value: str) -> bytes:
    content = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(content)) + content


def _whole(value: int) -> bytes:
    if -2 ** 31 <= value < 2 ** 31:
        return b"J" + struct.pack("<i", value)
    content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if len(content) > 255:
        raise DTypeError("save", f"a whole number has {value.bit_length()} bits", "save its text")
    return b"\x8a" + bytes((len(content),)) + content


def _sizes(sizes: Any) -> bytes:
    return b"(" + b"".join(map(_whole, sizes)) + b"t"


_PLAIN: dict[type, Callable[[Any], bytes]] = {
    bool: lambda value: b"\x88" if value else b"\x89", int: _whole, str: _text,
    float: lambda value: b"G" + struct.pack(">d", value), type(None): lambda value: b"N"}
