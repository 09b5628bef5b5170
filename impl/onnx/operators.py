"""The table of operators: ONNX's name and version, and a function of tensors.

A function says by its annotations what it is given: a `Tensor`, or a `Host`, an array whose numbers
have to be known before a kernel can be made (a shape, axes), or a `Value`, which is what there is.
Its keyword arguments are the attributes of the node, with ONNX's names and defaults.
"""
from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any

from impl.dtypes import DType, dtypes
from impl.errors import ArgumentError, TensorScheduleError
from impl.host import np
from impl.tensor import Tensor

#: Numbers that are known.
Host = np.ndarray
#: What a node is given: a tensor, or numbers that are known; a list of them is a sequence.
Value = Any
#: Arrays of at most so many numbers are known; larger ones are tensors.
LITTLE = 1 << 12
#: Keyword arguments of functions that are no attributes, but said by who runs the node: how many
#: results are wanted, and the element types of inputs and results, by ONNX's numbers.
_TOLD = frozenset({"results", "types"})


class ModelError(TensorScheduleError, ValueError):
    """A model of ONNX cannot be read, or has what cannot be computed here."""


@dataclass(frozen=True)
class Operator:
    """One row of the table.

    `since` is the first version of the operator set in which it means this. `inputs` says of each
    input what it has to be, a `Tensor`, a `Host` or a `Value`; the last one of all that follow.
    `attributes` are the keyword arguments, and `told` those that are no attributes of the node.
    """

    name: str
    domain: str
    since: int
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    attributes: frozenset[str]
    told: frozenset[str]

    def kind(self, place: int) -> Any:
        """What the input at a place has to be: `Tensor`, `Host` or `Value`."""
        return self.inputs[min(place, len(self.inputs) - 1)] if self.inputs else Value


_TABLE: dict[tuple[str, str], list[Operator]] = {}


def operator(name: str, since: int = 1, domain: str = "") -> Callable[[Any], Any]:
    """Write a function into the table, for versions from `since` on.

    Its positional parameters are the inputs, annotated `Tensor`, `Host` or `Any`, or one of them
    `| None` where an input can be left out. Its keyword-only parameters are the attributes.

    Raises:
        ArgumentError: the annotations do not say what the inputs are.
    """
    def write(function: Any) -> Any:
        inputs, attributes = _parameters(function, f"onnx.operator({name!r})")
        row = Operator(name, domain, since, function, inputs,
                       frozenset(attributes - _TOLD), frozenset(attributes & _TOLD))
        rows = _TABLE.setdefault((domain, name), [])
        rows.append(row)
        rows.sort(key=lambda each: each.since)
        return function
    return write


def _parameters(function: Any, called: str) -> tuple[tuple[Any, ...], set[str]]:
    """What the inputs have to be, and the names of keyword arguments."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, SyntaxError, TypeError) as error:
        raise ArgumentError(called, f"the annotations of {function!r:.80} cannot be read ({error})",
                            "use names of its module, or classes in place of texts") from None
    inputs: list[Any] = []
    attributes: set[str] = set()
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.KEYWORD_ONLY:
            attributes.add(each.name)
            continue
        hint = hints.get(each.name)
        kinds = [one for one in typing.get_args(hint) or (hint,) if one is not NoneType]
        if each.kind is each.VAR_KEYWORD or len(kinds) != 1 or not any(
                kinds[0] is one for one in (Tensor, Host, Value)):
            raise ArgumentError(
                called, f"the parameter `{each}` is neither a tensor nor known numbers",
                "annotate an input Tensor, impl.onnx.Host, or typing.Any for what takes both; "
                "attributes stand behind a *, each with its name")
        inputs.append(kinds[0])
    return tuple(inputs), attributes


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
