"""Files of tensors by name: safetensors, whole or in parts, and always complete.

Nothing is written where something stands: a file is written beside it, and takes its name when all
of it is on the disk. So whoever is stopped while he saves leaves what was saved before.

Tensors on a mesh are saved in parts, a file for each device. Then the file with the name has no
tensors: its metadata say which parts there are, and where in a tensor each of their pieces belongs.
"""
from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import re
import secrets
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from impl import settings
from impl.dtypes import INT4, DType, as_dtype, dtypes
from impl.errors import (
    DistributedError,
    DTypeError,
    FileMissingError,
    FileRefusedError,
    nearest,
)
from impl.host import np
from impl.tensor import Tensor

#: The dtypes of the format.
_NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool, "I8": dtypes.int8, "U8": dtypes.uint8, "I16": dtypes.int16,
    "U16": dtypes.uint16, "I32": dtypes.int32, "U32": dtypes.uint32, "I64": dtypes.int64,
    "U64": dtypes.uint64, "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32,
    "F64": dtypes.float64, "F8_E4M3": dtypes.float8_e4m3fn, "F8_E5M2": dtypes.float8_e5m2,
}
_DTYPES = {dtype: name for name, dtype in _NAMES.items()}
#: What the metadata of a file say whose tensors are in parts.
_PARTS = "tensor-schedule/parts/1"
#: Bytes a second that every disk writes: saving may take so much longer than other collectives.
_SLOW_DISK = 10_000_000

Header = dict[str, Any]
#: Where a piece begins and ends along each axis.
Bounds = tuple[tuple[int, int], ...]


def refuse_others(operation: str, given: Any, remedy: str) -> None:
    """Raise if it is no dict of tensors: a model, or a dict of arrays."""
    if not isinstance(given, Mapping):
        raise DTypeError(operation, f"{type(given).__name__} is no dict of tensors", remedy)
    for name, value in given.items():
        if getattr(value, "dtype", None) in INT4:
            raise DTypeError(operation, f"the format has no {value.dtype.name}: {name}",
                             "give its bytes, .bitcast(dtypes.uint8), or .cast(dtypes.int8)")
        if not isinstance(value, Tensor):
            raise DTypeError(operation, f"{name} is a {type(value).__name__}, not a tensor",
                             "make it one: Tensor(value)")


def open_file(operation: str, path: str | os.PathLike[str], mode: str = "rb") -> IO[bytes]:
    """A file that is open.

    Raises:
        FileMissingError: there is none of this name, or no folder in which it could be.
        FileRefusedError: it is a folder, or may not be read or written.
    """
    place = Path(path)
    try:
        return cast("IO[bytes]", open(place, mode))
    except FileNotFoundError:
        if not place.parent.is_dir():
            raise FileMissingError(operation, f"there is no folder {place.parent}",
                                   f"check the path, from {Path.cwd()}, or make the folder with "
                                   "os.makedirs") from None
        near = nearest(place.name, [one.name for one in place.parent.iterdir()])
        raise FileMissingError(operation, f"there is no file {place}", f"did you mean {near}?"
                               if near else f"check the path, from {Path.cwd()}") from None
    except OSError as error:
        raise FileRefusedError(operation, f"{place}: {error.strerror}",
                               "give the path of a file that may be "
                               + ("read" if mode == "rb" else "written")) from None


class _Bounded:
    """A file of which no more is asked for than it has: whoever reads takes memory first."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.size = file, os.fstat(file.fileno()).st_size

    def read(self, count: int = -1) -> bytes:
        left = max(self.size - self.file.tell(), 0)
        return self.file.read(left if count is None or count < 0 else min(count, left))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def zip_of(file: IO[bytes]) -> zipfile.ZipFile:
    """A zip, whose sizes are not believed."""
    return zipfile.ZipFile(cast("IO[bytes]", _Bounded(file)))


# ---------------------------------------------------------------- saving

def safe_save(tensors: Mapping[str, Tensor], path: str | os.PathLike[str],
              metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a safetensors file; those on a mesh in parts, a file for each device.

    `metadata` are texts about them, which `safe_metadata` reads.

    What was saved under this name stays until all is written. Tensors on a mesh of several
    processes are saved by all of them: each writes its part.

    Raises:
        DTypeError: it is no dict of tensors.
        DistributedError: another process could not write its part, or has not come.
    """
    refuse_others("safe_save", tensors, "give nn.state.get_state_dict(model)")
    if "__metadata__" in tensors:  # r[impl errors.type.builtin+2]
        raise DTypeError("safe_save", "the format keeps the name __metadata__ for itself",
                         "give the tensor another name")
    target = Path(path)
    if any(tensor.sharding is not None for tensor in tensors.values()):
        _save_parts(tensors, target, metadata or {})
    else:
        _replace(target, {name: _array(tensor) for name, tensor in tensors.items()},
                 {name: _DTYPES[tensor.dtype] for name, tensor in tensors.items()}, metadata)


def bits_as_stored(tensor: Tensor) -> Tensor:
    """The same bits in a dtype that NumPy has."""
    return tensor if tensor.dtype.plain else tensor.bitcast(as_dtype(tensor.dtype.numpy))


def _array(tensor: Tensor) -> np.ndarray:
    return bits_as_stored(tensor).numpy()


def _write(path: Path, arrays: Mapping[str, np.ndarray], kinds: Mapping[str, str],
           metadata: Mapping[str, str] | None = None) -> None:
    """Write a file; it is on the disk when this returns."""
    header: Header = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, array in arrays.items():
        header[name] = {"dtype": kinds[name], "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open_file("safe_save", path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data if array.size else b"")
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, arrays: Mapping[str, np.ndarray], kinds: Mapping[str, str],
             metadata: Mapping[str, str] | None = None) -> None:
    """Write a file beside the one with this name, and let it take the name at once."""
    replace(path, lambda beside: _write(beside, arrays, kinds, metadata))


def replace(path: Path, write: Callable[[Path], None]) -> None:
    """Have a file written beside the one with this name, and let it take the name at once."""
    # r[impl distributed.save.complete]
    from impl import distributed
    beside = path.with_name(f"{path.name}.{distributed.rank()}.part")
    try:
        write(beside)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    with contextlib.suppress(OSError):  # no folder can be opened on some systems
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class _Parts:
    """Which device writes which piece of which tensor: the same in every process."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        meshes = [tensor.sharding.mesh for tensor in tensors.values() if tensor.sharding]
        self.devices = list(dict.fromkeys(name for mesh in meshes for name in mesh.devices))
        self.tensors: dict[str, Header] = {
            name: {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape),
                   "pieces": self._pieces(number, tensor)}
            for number, (name, tensor) in enumerate(tensors.items())}

    def _pieces(self, number: int, tensor: Tensor) -> list[tuple[int, list[int]]]:
        """The number of the device that writes each piece, and where the piece begins.

        What several have is written by one of them, of each tensor by the next.
        """
        if tensor.sharding is None:
            return [(number % len(self.devices), [0] * len(tensor.shape))]
        holders: dict[Bounds, list[str]] = {}
        bounds = tensor.sharding.parts(tensor.shape)
        for device, part in zip(tensor.sharding.mesh.devices, bounds, strict=True):
            if all(start < stop for start, stop in part):
                holders.setdefault(part, []).append(device)
        return [(self.devices.index(those[number % len(those)]), [start for start, _ in part])
                for part, those in holders.items()]

    def of(self, device: int, own: Mapping[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """What a device writes, of the pieces that this process has: name -> device -> array."""
        return {name: own[name][self.devices[device]] for name, entry in self.tensors.items()
                if any(number == device for number, _ in entry["pieces"])}


def _own(tensor: Tensor, devices: Sequence[str]) -> dict[str, np.ndarray]:
    """The pieces of a tensor that this process has, by device."""
    if tensor.sharding is None:
        return dict.fromkeys(devices, _array(tensor))
    return {shard.device: shard.data for shard in bits_as_stored(tensor).addressable_shards}


def _save_parts(tensors: Mapping[str, Tensor], path: Path, about: Mapping[str, str]) -> None:
    from impl import distributed
    parts = _Parts(tensors)
    text, count = json.dumps(parts.tensors), len(parts.devices)
    own = {name: _own(tensor, parts.devices) for name, tensor in tensors.items()}
    mine = [number for number, device in enumerate(parts.devices)
            if device.endswith(f"@{distributed.rank()}")]
    if not distributed.rank() and not mine:  # all devices are this process's
        mine = list(range(count))
    # Nobody waits for ever, and the largest part may take its time.
    nbytes = sum(math.prod(entry["shape"]) * _NAMES[entry["dtype"]].itemsize
                 for entry in parts.tensors.values())
    purpose = f"safe_save of {path} ({zlib.crc32(text.encode()):08x})"
    with settings.Context(DISTRIBUTED_SECONDS=min(
            86400, settings.get("DISTRIBUTED_SECONDS") + nbytes // _SLOW_DISK)):
        number = distributed.all_gather(purpose, secrets.token_hex(4).encode())[0].decode()
        names = [f"{path.stem}.{number}.{i + 1}-of-{count}{path.suffix}" for i in range(count)]
        kinds = {name: entry["dtype"] for name, entry in parts.tensors.items()}

        def written() -> None:
            for i in mine:
                _write(path.with_name(names[i]), parts.of(i, own), kinds)

        _all_did(purpose, written)
        metadata = {"format": _PARTS, "parts": json.dumps(names), "tensors": text,
                    "metadata": json.dumps(dict(about))}
        _all_did(purpose,
                 lambda: _commit(path, metadata, names) if not distributed.rank() else None)


def _all_did(purpose: str, work: Callable[[], None]) -> None:
    """Do something in every process; raise in all if one of them could not.

    Raises:
        OSError: this process could not.
        DistributedError: another one could not.
    """
    from impl import distributed
    failed = None
    try:
        work()
    except OSError as error:
        failed = error
    # r[impl distributed.save.complete]: nobody goes on before all have written
    said = distributed.all_gather(purpose, str(failed or "").encode())
    if failed is not None:
        raise failed
    for rank, text in enumerate(said):
        if text:
            raise DistributedError("safe_save", f"rank {rank} could not write: {text.decode()}",
                                   "look at its disk; what was saved before is still there")


def _commit(path: Path, metadata: Mapping[str, str], names: Sequence[str]) -> None:
    """Let the parts be those of the name, and remove all others."""
    _replace(path, {}, {}, metadata)
    parts = re.compile(re.escape(path.stem) + r"\.[0-9a-f]{8}\.\d+-of-\d+"
                       + re.escape(path.suffix))
    for each in path.parent.iterdir():
        if parts.fullmatch(each.name) and each.name not in names:
            each.unlink(missing_ok=True)


# ---------------------------------------------------------------- loading

def safe_load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, or of its parts: each whole, on the default device.

    Where that computes in the memory of the host, a tensor lies in the file: its bytes are read
    when they are used, and those of a slice alone if nothing else is. Nothing is written to the
    file by it, and whoever saves under the same name with `safe_save` makes another file.

    Raises:
        DTypeError: it is another kind of file, or cut short, or a part is missing.
    """
    source = Path(path)
    try:
        header, content = _opened(source)
        metadata = header.pop("__metadata__", None) or {}
        if metadata.get("format") == _PARTS:
            parts = [_opened(source.with_name(name)) for name in json.loads(metadata["parts"])]
            return {name: _joined(name, entry, parts)
                    for name, entry in json.loads(metadata["tensors"]).items()}
        return {name: _tensor(_read(content, entry), entry) for name, entry in header.items()}
    # What is elsewhere in the place of a header may be anything, also JSON of another form.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # r[impl errors.type.builtin+2]
        raise DTypeError("safe_load", f"{os.fspath(path)} is no safetensors file, or cut "
                         f"short ({error})", "give a file of nn.state.safe_save") from None


def safe_metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The texts that were saved with the tensors of a file which `safe_load` reads."""
    header, _ = _opened(Path(path))
    found: dict[str, str] = header.get("__metadata__") or {}
    if found.get("format") == _PARTS:
        found = json.loads(found.get("metadata", "{}"))
    return found


def mapped_bytes(file: IO[bytes]) -> np.ndarray:
    """The bytes of a file where they lie: each is read when it is looked at, and none written.

    Raises:
        ValueError: the file is empty.
    """
    return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def lying(array: np.ndarray) -> Tensor:
    """A tensor in the memory of an array, where the default device can read it there.

    Windows lets nobody replace a file that somebody has mapped, so there it is copied.
    """
    leaf = None if os.name == "nt" else Tensor.runtime.adopt(
        array, Tensor.runtime.default_device)
    return Tensor(array) if leaf is None else Tensor(leaf)


def _opened(path: Path) -> tuple[Header, np.ndarray]:
    """The header of a file, and its content behind it."""
    with open_file("safe_load", path) as file:
        content = mapped_bytes(file)
    length = int.from_bytes(content[:8].tobytes(), "little")
    if length > len(content) - 8:
        raise ValueError(f"its header has {length} bytes, the file {len(content)}")
    header: Header = json.loads(content[8:8 + length].tobytes().decode())  # UTF-8, and no other
    return header, content[8 + length:]


def _read(content: np.ndarray, entry: Header) -> np.ndarray:
    """The elements of an entry, in the file.

    Raises:
        ValueError: the entry claims what is not there, or something else than it shows.
    """
    if entry["dtype"] not in _NAMES:
        raise ValueError(f"elements of type {entry['dtype']!r:.40} are not read")
    (first, last), shape, dtype = entry["data_offsets"], entry["shape"], _NAMES[entry["dtype"]]
    if not all(type(each) is int and each >= 0 for each in (first, last, *shape)):
        raise ValueError(f"shape {shape} at {first} to {last}")
    if not first <= last <= len(content) or last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"bytes {first} to {last} of {len(content)} for shape {shape}")
    return content[first:last].view(dtype.numpy).reshape(shape)


def _joined(name: str, entry: Header, parts: Sequence[tuple[Header, np.ndarray]]) -> Tensor:
    """A tensor from the pieces that several files have of it."""
    pieces = [(begin, _read(parts[number][1], parts[number][0][name]))
              for number, begin in entry["pieces"]]
    filled = sum(piece.size for _, piece in pieces)
    if filled != math.prod(entry["shape"]):  # before memory is taken for it
        raise ValueError(f"the parts have {filled} elements of {name}, shape {entry['shape']}")
    whole = np.empty(entry["shape"], _NAMES[entry["dtype"]].numpy)
    for begin, piece in pieces:
        # r[impl distributed.save.equal+2]
        whole[tuple(slice(start, start + size) for start, size
                    in zip(begin, piece.shape, strict=True))] = piece
    return _tensor(whole, entry)


def _tensor(array: np.ndarray, entry: Header) -> Tensor:
    dtype = _NAMES[entry["dtype"]]
    if not dtype.plain:
        return of_bits(array, dtype)
    # A byte that stands for a truth value is 0 or 1 in memory.
    return Tensor(array.view(np.uint8) != 0) if entry["dtype"] == "BOOL" else lying(array)


def of_bits(bits: np.ndarray, dtype: DType) -> Tensor:
    """Numbers in a dtype that NumPy has not, by their bits."""
    return lying(bits).bitcast(dtype)
