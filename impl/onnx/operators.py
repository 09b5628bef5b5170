"""The table of operators: ONNX's name and version, and a function of tensors.

A function says by its annotations what it is given: a `Tensor`, or a `Host`, an array whose numbers
have to be known before a kernel can be made (a shape, axes). Its keyword arguments are the
attributes of the node, with ONNX's names and defaults.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from impl.dtypes import DType, dtypes
from impl.errors import TensorScheduleError
from impl.tensor import Tensor

#: Numbers that are known.
Host = np.ndarray
#: What a node is given: a tensor, or numbers that are known; a list of them is a sequence.
Value = Any
#: Keyword arguments of functions that are no attributes, but said by who runs the node: how many
#: results are wanted, and the element types of inputs and results, by ONNX's numbers.
_TOLD = frozenset({"results", "types"})


class ModelError(TensorScheduleError, ValueError):
    """A model of ONNX cannot be read, or has what cannot be computed here."""


@dataclass(frozen=True)
class Operator:
    """One row of the table.

    `since` is the first version of the operator set in which it means this. `host` says for each
    input whether its numbers have to be known, the last one for all that follow, and
    `any_value` that it takes what it gets.
    """

    name: str
    domain: str
    since: int
    function: Callable[..., Any]
    host: tuple[str, ...]
    attributes: frozenset[str]
    told: frozenset[str]

    def kind(self, place: int) -> str:
        """What the input at a place has to be: "Tensor", "Host" or "Value"."""
        return self.host[min(place, len(self.host) - 1)] if self.host else "Value"


_TABLE: dict[tuple[str, str], list[Operator]] = {}


def operator(name: str, since: int = 1, domain: str = "") -> Callable[[Any], Any]:
    """Write a function into the table, for versions from `since` on."""
    def write(function: Any) -> Any:
        kinds, attributes = [], set()
        for each in inspect.signature(function).parameters.values():
            if each.kind is each.KEYWORD_ONLY:
                attributes.add(each.name)
            else:
                kinds.append(str(each.annotation).partition(" ")[0])
        row = Operator(name, domain, since, function, tuple(kinds),
                       frozenset(attributes - _TOLD), frozenset(attributes & _TOLD))
        rows = _TABLE.setdefault((domain, name), [])
        rows.append(row)
        rows.sort(key=lambda each: each.since)
        return function
    return write


def find_row(domain: str, name: str, version: int) -> Operator | None:
    """What an operator means in a version of its set; None if that is not in the table."""
    rows = [row for row in _TABLE.get((domain, name), ()) if row.since <= version]
    return rows[-1] if rows else None


def names() -> list[str]:
    """The operators of the table."""
    return sorted({name for _, name in _TABLE})


#: Element types by ONNX's numbers. Those below have no dtype of their own: their values are held
#: in one in which each of them is exact.
DTYPES: dict[int, DType] = {
    1: dtypes.float32, 2: dtypes.uint8, 3: dtypes.int8, 4: dtypes.uint16, 5: dtypes.int16,
    6: dtypes.int32, 7: dtypes.int64, 9: dtypes.bool, 10: dtypes.float16, 11: dtypes.float64,
    12: dtypes.uint32, 13: dtypes.uint64, 16: dtypes.bfloat16}
#: float8 (e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, e8m0), uint4, int4, float4 (e2m1), uint2, int2.
HELD: dict[int, DType] = {
    17: dtypes.float16, 18: dtypes.float16, 19: dtypes.float16, 20: dtypes.float32,
    24: dtypes.float32, 21: dtypes.uint8, 22: dtypes.int8, 23: dtypes.float16, 25: dtypes.uint8,
    26: dtypes.int8}
_MISSING = {8: "texts", 14: "complex64", 15: "complex128"}


def dtype_of(number: int) -> DType:
    """The dtype in which values of an element type are held.

    Raises:
        ModelError: there is none.
    """
    found = DTYPES.get(number) or HELD.get(number)
    if found is None:
        raise ModelError("onnx", f"element type {_MISSING.get(number, number)} has no dtype here",
                         "convert this part of the model to numbers")
    return found


def held(array: np.ndarray) -> np.ndarray:
    """An array in a dtype of NumPy's: of a narrow type, in the one that holds it."""
    if array.dtype.kind in "biuf" and array.dtype.name in ("bool",) or array.dtype.isbuiltin == 1:
        return array
    name = array.dtype.name
    if name == "bfloat16":
        return array
    if name.startswith(("int", "uint")):
        return array.astype(np.uint8 if name[0] == "u" else np.int8)
    wide = name in ("float8_e8m0fnu", "float8_e5m2fnuz")
    return array.astype(np.float32 if wide else np.float16)


def tensor_of(value: Value, device: Any = None) -> Tensor:
    """What a node is given, as a tensor: one number is a constant of the kernels that use it."""
    if isinstance(value, Tensor):
        return value
    array = held(np.asarray(value))
    if array.size == 1 and array.dtype.kind in "biuf":
        dtype = dtypes.bool if array.dtype.kind == "b" else getattr(dtypes, array.dtype.name)
        return Tensor.full(array.shape, array.item(), dtype=dtype, device=device)
    return Tensor(array, device=device)


def host_array(value: Value) -> np.ndarray:
    """What a node is given, as numbers: a tensor is computed."""
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def ints(value: Value) -> list[int]:
    """Numbers that are known, as a list."""
    return [int(each) for each in host_array(value).reshape(-1).tolist()]
