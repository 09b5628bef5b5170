"""The Python Array API standard, 2024.12, on lazy tensors: `import impl.array_api as xp`.

The functions have the names, parameters and meanings of the standard, and are the methods of
`Tensor`. Arrays are `Array`: tensors whose `size` is a number, as the standard has it. Complex
numbers are `impl.complex.Complex`.
"""
from __future__ import annotations

from impl.array_api import elements, fft, linalg, many
from impl.array_api.arrays import Array, asarray, from_dlpack
from impl.array_api.creation import (
    arange,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from impl.array_api.elements import *  # noqa: F403
from impl.array_api.kinds import (
    Info,
    astype,
    bool,
    can_cast,
    complex64,
    complex128,
    e,
    finfo,
    float32,
    float64,
    iinfo,
    inf,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    nan,
    newaxis,
    pi,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from impl.array_api.many import *  # noqa: F403


def __array_namespace_info__() -> Info:  # noqa: N807
    """What there is: devices, dtypes, capabilities."""
    return Info()


__array_api_version__ = "2024.12"
__all__ = [
    "Array", "__array_api_version__", "__array_namespace_info__", "arange",
    "asarray", "astype", "bool", "can_cast", "complex64",
    "complex128", "e", "empty", "empty_like", "eye", "fft", "finfo", "float32",
    "float64", "from_dlpack", "full", "full_like", "iinfo", "inf", "int8", "int16", "int32",
    "int64", "isdtype", "linalg", "linspace", "meshgrid", "nan", "newaxis", "ones", "ones_like",
    "pi", "result_type", "tril", "triu", "uint8", "uint16", "uint32", "uint64", "zeros",
    "zeros_like", *elements.__all__, *many.__all__]
