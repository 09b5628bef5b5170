"""The tensors of a model by name, and files of them."""
from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from impl.dtypes import DType, dtypes, from_bfloat16
from impl.errors import DTypeError, ShapeError
from impl.nn.names import missing, publish
from impl.tensor import Tensor

__all__ = ["get_parameters", "get_state_dict", "load_state_dict", "safe_load", "safe_save"]
publish("state", __all__)


def __getattr__(name: str) -> NoReturn:
    raise missing(name, (), "nn.state")  # r[impl errors.name.missing]


def get_state_dict(model: Any, prefix: str = "") -> dict[str, Tensor]:
    """All tensors of a model, found through attributes, lists and dicts: name -> tensor.

    Names are paths, as in PyTorch: "layers.0.weight".
    """
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [(prefix, model)]
    while stack:
        name, value = stack.pop()
        if isinstance(value, Tensor):
            found[name.strip(".")] = value
        elif not isinstance(value, (str, bytes, int, float, type(None))) and id(value) not in seen:
            seen.add(id(value))
            inner = [(f"{name}.{key}", one) for key, one in _parts(value)]
            stack.extend(reversed(inner))
    return found


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    return vars(value).items() if hasattr(value, "__dict__") and not callable(
        getattr(value, "__code__", None)) else ()


def get_parameters(model: Any) -> list[Tensor]:
    """All tensors of a model, each once."""
    return list({id(tensor): tensor for tensor in get_state_dict(model).values()}.values())


def load_state_dict(model: Any, state: Mapping[str, Any], strict: bool = True) -> None:
    """Assign saved tensors to a model's, by name, converted to their dtypes and devices.

    Tensors and arrays of other libraries will do. A tensor that a model has under two names may
    be saved under one of them; the counters of PyTorch's batch norms are passed over.

    Raises:
        ShapeError: a name is missing or left over (if `strict`), or a shape differs.
        DTypeError: `state` is no dict of tensors.
    """
    if isinstance(state, Mapping):
        state = {name: _own(value) for name, value in state.items()}
    _refuse_others("load_state_dict", state, "give the model first, then what safe_load returns")
    own = get_state_dict(model)
    saved = {id(own[name]) for name in own.keys() & state.keys()}
    missing = sorted(name for name in own.keys() - state.keys() if id(own[name]) not in saved)
    extra = sorted(name for name in state.keys() - own.keys()
                   if name.rpartition(".")[2] != "num_batches_tracked")
    if strict and (missing or extra):
        raise ShapeError("load_state_dict", f"names differ: missing {missing}, left over {extra}",
                         "load a file saved from the same model, or use strict=False")
    changed = []
    for name, tensor in own.items():
        if name in state:
            given = state[name]
            if given.shape != tensor.shape:
                raise ShapeError("load_state_dict", f"{name} has shape {tensor.shape}, the saved "
                                 f"one {given.shape}", "load a file saved from the same model")
            changed.append(tensor.assign(given.to(tensor.device).cast(tensor.dtype)))
    if changed:
        Tensor.realize(*changed)


def _own(value: Any) -> Any:
    """What another library's tensor, or an array, is here; anything else as it is."""
    return Tensor(value) if not isinstance(value, Tensor) and hasattr(value, "__array__") \
        else value


def _refuse_others(operation: str, given: Any, remedy: str) -> None:
    """Raise if it is no dict of tensors: a model, or a dict of arrays."""
    if not isinstance(given, Mapping):
        raise DTypeError(operation, f"{type(given).__name__} is no dict of tensors", remedy)
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise DTypeError(operation, f"{name} is a {type(value).__name__}, not a tensor",
                             "make it one: Tensor(value)")


# The safetensors format: the length of a header, the header as JSON, then all bytes.

_NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool, "I8": dtypes.int8, "U8": dtypes.uint8, "I16": dtypes.int16,
    "U16": dtypes.uint16, "I32": dtypes.int32, "U32": dtypes.uint32, "I64": dtypes.int64,
    "U64": dtypes.uint64, "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32,
    "F64": dtypes.float64,
}


def safe_save(tensors: Mapping[str, Tensor], path: str | os.PathLike[str]) -> None:
    """Write tensors to a safetensors file.

    Raises:
        DTypeError: it is no dict of tensors.
    """
    _refuse_others("safe_save", tensors, "give nn.state.get_state_dict(model)")
    names = {dtype: name for name, dtype in _NAMES.items()}
    header: dict[str, Any] = {}
    parts, offset = [], 0
    for name, tensor in tensors.items():
        bits = tensor.bitcast(dtypes.uint16) if tensor.dtype is dtypes.bfloat16 else tensor
        parts.append(np.ascontiguousarray(bits.numpy()).tobytes())
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(parts[-1])]}
        offset += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(parts)


def safe_load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file.

    Raises:
        DTypeError: it is another kind of file, or cut short.
    """
    with open(path, "rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _read_all(content)
        # What is elsewhere in the place of a header may be anything, also JSON of another form.
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # r[impl errors.type.builtin+2]
            raise DTypeError("safe_load", f"{os.fspath(path)} is no safetensors file, or cut "
                             f"short ({error})", "give a file of nn.state.safe_save") from None


def _read_all(content: mmap.mmap) -> dict[str, Tensor]:
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    return {name: _read(content, 8 + length, entry) for name, entry in header.items()}


def _read(content: mmap.mmap, start: int, entry: dict[str, Any]) -> Tensor:
    dtype = _NAMES[entry["dtype"]]
    first, last = entry["data_offsets"]
    array = np.frombuffer(content[start + first:start + last], dtype.numpy)
    shaped = array.reshape(entry["shape"])
    if dtype is dtypes.bfloat16:
        return Tensor(from_bfloat16(shaped), dtype=dtype)
    return Tensor(shaped)
