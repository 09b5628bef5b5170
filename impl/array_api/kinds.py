"""Dtypes, what they hold, how they combine, and what there is."""
from __future__ import annotations

import math
from typing import Any

from impl.array_api.arrays import Array, another, array_of
from impl.complex import Complex
from impl.dtypes import DType, FloatInfo, IntegerInfo, dtypes, least_upper_dtype, real_dtype
from impl.dtypes import finfo as _finfo
from impl.dtypes import iinfo as _iinfo
from impl.tensor import Tensor

bool = dtypes.bool  # noqa: A001  # the standard's name
int8, int16, int32, int64 = dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64
uint8, uint16, uint32, uint64 = dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64
float32, float64 = dtypes.float32, dtypes.float64
complex64, complex128 = dtypes.complex64, dtypes.complex128
e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

_SIGNED, _UNSIGNED = (int8, int16, int32, int64), (uint8, uint16, uint32, uint64)
_KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (bool,), "signed integer": _SIGNED, "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED, "real floating": (float32, float64),
    "complex floating": (complex64, complex128),
    "numeric": _SIGNED + _UNSIGNED + (float32, float64, complex64, complex128)}


def _dtype(value: Any) -> DType:
    found: DType = value.dtype if isinstance(value, (Tensor, Complex)) else value
    return found


def astype(x: Array, dtype: DType, /, *, copy: Any = True, device: Any = None) -> Array:
    """The elements in another dtype."""
    found = array_of(x).cast(dtype)
    found = found if device is None else found.to(device)
    return another(found) if copy and found is x else found


def finfo(type: DType | Array, /) -> FloatInfo:  # noqa: A002
    """What a float dtype holds."""
    return _finfo(_dtype(type))


def iinfo(type: DType | Array, /) -> IntegerInfo:  # noqa: A002
    """What an integer dtype holds."""
    return _iinfo(_dtype(type))


def isdtype(dtype: DType, kind: Any) -> Any:
    """Whether a dtype is of a kind, or of one of several."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in _KINDS:
        raise ValueError(f"isdtype: there is no kind {kind!r}: use one of {', '.join(_KINDS)}")
    return dtype in _KINDS[kind]


def _wider(a: DType, b: DType) -> DType:
    """The least dtype above two."""
    if "c" not in (a.kind, b.kind):
        return least_upper_dtype(a, b)
    return complex128 if float64 in (real_dtype(a), real_dtype(b)) else complex64


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of a result; numbers take that of what stands beside them."""
    known = [_dtype(one) for one in arrays_and_dtypes
             if not isinstance(one, (int, float, complex))]
    if not known:
        raise ValueError("result_type: give at least one array or dtype")
    found = known[0]
    for one in known[1:]:
        found = _wider(found, one)
    numbers = [one for one in arrays_and_dtypes if isinstance(one, (int, float, complex))]
    if found.kind != "c" and any(isinstance(one, complex) for one in numbers):
        return complex128 if found is float64 else complex64
    if found.kind not in "fc" and any(isinstance(one, float) for one in numbers):
        return dtypes.default_float
    return found



def can_cast(from_: DType | Array, to: DType, /) -> Any:
    """Whether promotion leads from one dtype to another."""
    source = _dtype(from_)
    kinds = {one.kind.replace("u", "i").replace("c", "f") for one in (source, to)}
    return source is to or len(kinds) == 1 and _wider(source, to) is to


class Info:
    """What there is: devices, dtypes, capabilities."""

    def capabilities(self) -> dict[str, Any]:
        """Arrays may be indexed by masks, and have results whose size depends on values."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> str:
        """The device of arrays for which none was named."""
        return str(Tensor.runtime.default_device)

    def devices(self) -> list[str]:
        """The devices that may be named here."""
        return [self.default_device()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """The dtypes of what is made of Python numbers, and of places."""
        return {"real floating": float32, "complex floating": complex64,
                "integral": int32, "indexing": int32}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes of some kinds, by name."""
        kinds = ("bool", "numeric") if kind is None else \
            kind if isinstance(kind, tuple) else (kind,)
        return {one.name: one for name in kinds for one in _KINDS[name]}
