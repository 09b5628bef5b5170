"""Numbers, lists and arrays of others, as what a tensor is made of. Chapter: spec/tensor.md."""
from __future__ import annotations

from typing import Any

import numpy as np

from impl.dtypes import DType, Scalar, as_dtype, dtypes
from impl.errors import ComplexError, DTypeError, ShapeError
from impl.ir import UOp
from impl.symbolic import as_size


def as_cast(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats as a cast to an integer dtype takes them."""
    if values.dtype.kind != "f" or dtype.kind not in "iu":
        return values
    known = np.nan_to_num(values, posinf=np.inf, neginf=-np.inf).astype(np.float64)
    above = known >= float(dtype.max + 1)
    inside = np.maximum(np.where(above, 0, known), dtype.min).astype(dtype.numpy)
    return np.where(above, np.array(dtype.max, dtype.numpy), inside)


def dtype_of_number(value: Scalar) -> DType:
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, float):
        return dtypes.default_float
    return _smallest_int(value, value)


def _smallest_int(least: Scalar, greatest: Scalar) -> DType:
    """The default integer type if it holds both numbers, else int64.

    Raises:
        DTypeError: int64 is too small.
    """
    for dtype in (dtypes.default_int, dtypes.int64):
        if dtype.min <= least and greatest <= dtype.max:
            return dtype
    raise DTypeError("Tensor", f"{greatest if greatest > 0 else least} does not fit int64",
                     "give dtype=dtypes.uint64, or a float")


def of_others(data: Any, dtype: DType | None) -> tuple[Any, DType | None]:
    """Another library's tensor without its gradient, in the memory of the host.

    A bfloat16, which NumPy has not, as float32, beside the dtype that it is to have.
    """
    for step in ("detach", "cpu"):
        data = getattr(data, step)() if hasattr(data, step) else data
    if not str(getattr(data, "dtype", "")).endswith("bfloat16"):
        return data, dtype
    wide = data.float() if hasattr(data, "float") else data.astype(np.float32)
    return np.asarray(wide), dtype or dtypes.bfloat16


def as_array(data: Any, dtype: DType | None) -> np.ndarray:
    """The data as an array of a supported dtype."""
    if isinstance(data, (list, tuple)):
        array = _array_of_lists(data)
        if dtype is None and array.dtype.kind in "iu" and array.size:
            array = array.astype(_smallest_int(array.min().item(), array.max().item()).numpy)
    else:
        array = np.asarray(data)
    if array.dtype.kind == "c":
        raise ComplexError("Tensor", "complex numbers are a pair of real tensors",
                           "make it of both parts: torch.complex(real, imag)")
    if array.dtype.kind not in "biuf":
        for one in array.flat:
            as_size(one)  # which refuses a variable without a value
        raise DTypeError("Tensor", f"data of type {type(data).__name__} and dtype {array.dtype} "
                         "are no numbers", "give numbers, nested lists or a NumPy array")
    if dtype is None:
        as_dtype(array.dtype)
    return array


def _array_of_lists(data: Any) -> np.ndarray:
    if _holds_tensors(data):
        raise DTypeError("Tensor", "the list holds tensors", "join them: Tensor.stack(*tensors)")
    try:
        return np.array(data)
    except ValueError as error:
        raise ShapeError("Tensor", f"the nested lists are ragged ({error})",
                         "make all lists of one level equally long") from None


def _holds_tensors(data: Any) -> bool:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(getattr(data, "uop", None), UOp)
