"""The numbers in a model's file, and in files beside it: nothing that they claim is believed.

A tensor of a file says its sizes and its type; the bytes say how many there are. What does not fit
is refused before memory is taken for it.
"""
from __future__ import annotations

import math
import os
from types import ModuleType
from typing import Any

from impl.errors import ArgumentError
from impl.host import np
from impl.onnx.operators import (
    DTYPES,
    HELD,
    LITTLE,
    ModelError,
    Value,
    dtype_of,
    tensor_of,
)

#: How wide narrow types are in a file, in bits; all others are as wide as their dtype.
_BITS = {17: 8, 18: 8, 19: 8, 20: 8, 24: 8, 21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
#: The numbers of types whose values are in `int32_data`, and so on.
_FIELDS = {1: "float_data", 11: "double_data", 7: "int64_data", 12: "uint64_data",
           13: "uint64_data"}
_EXTERNAL = 1
_MOST_AXES = 64


def package() -> ModuleType:
    """The package that reads the format.

    Raises:
        ArgumentError: it is not installed.
    """
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError:
        raise ArgumentError("onnx.load", "the package `onnx`, which reads the format, is missing",
                            "pip install onnx") from None
    return onnx


class Weights:
    """The initialisers of a graph by name, each read when it is first asked for."""

    def __init__(self, protos: Any, folder: str | None, device: str | None) -> None:
        self.folder, self.device = folder, device
        self.protos = {proto.name: proto for proto in protos}
        self.made: dict[str, Value] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.protos or name in self.made

    def __getitem__(self, name: str) -> Value:
        """Numbers that are known if they are few, and else a tensor."""
        found = self.made.get(name)
        if found is None:
            array = array_of_proto(self.protos[name], self.folder)
            found = array if array.size <= LITTLE else tensor_of(array, self.device)
            self.made[name] = found
            del self.protos[name]
        return found

    def is_little(self, name: str) -> bool:
        """Whether its numbers are few, by what it says."""
        made = self.made.get(name)
        if made is not None:
            return isinstance(made, np.ndarray)
        return math.prod(self.protos[name].dims) <= LITTLE


def array_of_proto(proto: Any, folder: str | None) -> np.ndarray:
    """The numbers of a `TensorProto`.

    Raises:
        ModelError: sizes, type and bytes do not fit each other.
    """
    called = proto.name or "a constant"
    sizes = list(proto.dims)
    if len(sizes) > _MOST_AXES or any(one < 0 for one in sizes):
        raise _damaged(called, f"has the sizes {sizes[:8]}")
    kind = proto.data_type
    dtype_of(kind)
    wanted = math.prod(sizes)
    bits = _BITS.get(kind) or 8 * dtype_of(kind).itemsize
    if proto.data_location == _EXTERNAL:
        return _from_file(proto, folder, called, wanted * bits // 8)
    if proto.HasField("raw_data"):
        found, needed = len(proto.raw_data), -(-wanted * bits // 8)
        if found != needed:
            raise _damaged(called, f"has {found} bytes where sizes {sizes} have {needed}")
    else:
        values = len(getattr(proto, _FIELDS.get(kind, "int32_data")))
        per = 8 // bits if bits < 8 else 1
        if values != -(-wanted // per):
            raise _damaged(called, f"has {values} numbers where sizes {sizes} have {wanted}")
    array: np.ndarray = package().numpy_helper.to_array(proto)
    return array


def _damaged(name: str, problem: str) -> ModelError:
    return ModelError("onnx.load", f"the tensor {name!r} {problem}",
                      "the file is damaged: export the model again")


def _from_file(proto: Any, folder: str | None, name: str, nbytes: int) -> np.ndarray:
    """What lies in a file beside the model: its pages are read when they are used."""
    said = {each.key: each.value for each in proto.external_data}
    location = said.get("location", "")
    if folder is None:
        raise ModelError("onnx.load", f"the tensor {name!r} is in the file {location!r}",
                         "give the path of the model, so that the files beside it are found")
    path = os.path.realpath(os.path.join(folder, location))
    if os.path.isabs(location) or os.path.commonpath([path, os.path.realpath(folder)]) \
            != os.path.realpath(folder):
        raise _damaged(name, f"is said to be in {location!r}, outside of the model's folder")
    try:
        offset, length = int(said.get("offset", 0)), int(said.get("length", nbytes))
    except ValueError:
        raise _damaged(name, f"has the place {said!r:.80}") from None
    if not os.path.isfile(path) or offset < 0 or length != nbytes \
            or offset + length > os.path.getsize(path):
        raise _damaged(name, f"is said to be {nbytes} bytes at {offset} of {location!r}")
    if proto.data_type in HELD or proto.data_type not in DTYPES or not nbytes:
        filled = type(proto)()
        filled.CopyFrom(proto)
        filled.ClearField("external_data")
        filled.ClearField("data_location")
        with open(path, "rb") as file:
            file.seek(offset)
            filled.raw_data = file.read(length)
        return np.asarray(package().numpy_helper.to_array(filled))
    if proto.data_type == 16:
        import ml_dtypes

        kind: Any = ml_dtypes.bfloat16
    else:
        kind = dtype_of(proto.data_type).numpy
    return np.memmap(path, kind, "r", offset, tuple(proto.dims))
