"""Numbers, lists and arrays of others, as what a tensor is made of. Chapter: spec/tensor.md."""
from __future__ import annotations

from typing import Any

from impl.dtypes import FLOAT8, INT4, DType, Scalar, as_dtype, dtypes, to_bits, wrap
from impl.errors import ComplexError, DTypeError, ShapeError
from impl.host import np
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


def refuse_outside(name: str, least: Any, greatest: Any, dtype: DType | None) -> None:
    """Raise DTypeError if whole numbers between two do not fit the dtype that is asked for.

    Negative ones wrap in an unsigned dtype that holds what they are the negative of.
    """
    if dtype is None or dtype.kind not in "iu":
        return
    lowest = dtype.min if dtype.kind == "i" else -dtype.max
    for one in (greatest, least):
        if not lowest <= one <= dtype.max:  # r[impl dtypes.number.fits]
            raise DTypeError(name, f"{one} does not fit {dtype.name}", "give a wider dtype, or "
                             f".cast(dtypes.{dtype.name}) of one, which keeps the low bits")


def of_others(data: Any, dtype: DType | None) -> tuple[Any, DType | None]:
    """Another library's tensor without its gradient, in the memory of the host.

    What NumPy has not, a bfloat16 or a float of 8 bits, as float32, and an integer of 4 in 8 bits,
    beside the dtype that it is to have.
    """
    for step in ("detach", "cpu"):
        data = getattr(data, step)() if hasattr(data, step) else data
    known = is_short(getattr(data, "dtype", None))
    if known is None:
        return data, dtype
    wide = data.float() if hasattr(data, "float") else data.astype(known.host)
    return np.asarray(wide), dtype or known


def is_short(dtype: Any) -> DType | None:
    """Another library's dtype that NumPy has not, as ours."""
    found = getattr(dtypes, str(dtype).rpartition(".")[2], None) if dtype is not None else None
    return found if found in _NOT_OF_NUMPY else None


#: What NumPy has not.
_NOT_OF_NUMPY = (dtypes.bfloat16, *FLOAT8, *INT4)


def as_array(data: Any, dtype: DType | None) -> np.ndarray:
    """The data as an array of a supported dtype."""
    if isinstance(data, (list, tuple)):
        array = _array_of_lists(data)
        if array.dtype.kind == "O" or array.dtype.kind == "f" and (
                np.abs(array) >= float(1 << 63)).any():
            _refuse_beyond(numbers := _flat(data)[1])  # of which NumPy makes objects, or floats
            if all(isinstance(one, int) for one in numbers):
                refuse_outside("Tensor", min(numbers), max(numbers), dtype)
        if array.dtype.kind in "iu" and array.size:
            ends = array.min().item(), array.max().item()
            refuse_outside("Tensor", *ends, dtype)
            array = array.astype(_smallest_int(*ends).numpy) if dtype is None else array
    else:
        array = np.asarray(data)
    if array.dtype.kind == "c":
        raise _complex()
    if array.dtype.kind not in "biuf":
        for one in array.flat:
            as_size(one)  # which refuses a variable without a value
        raise _no_numbers(type(data).__name__, array.dtype)
    if dtype is None:
        as_dtype(array.dtype)
    return array


def _array_of_lists(data: Any) -> np.ndarray:
    refuse_tensors(data)
    try:
        return np.array(data)
    except ValueError as error:
        raise _ragged(error) from None


class Listed:
    """The numbers of nested lists, where NumPy cannot be imported. It finds its array in them."""

    __slots__ = ("dtype", "shape", "numbers")

    def __init__(self, data: Any, dtype: DType | None) -> None:
        self.shape, found = _flat(data)
        for one in found:
            if not isinstance(one, (bool, int, float)):
                _refuse_entry(one)
        _refuse_beyond(found)
        if any(isinstance(one, float) for one in found):  # as NumPy does, before any cast
            found = [float(one) for one in found]
        elif found:
            refuse_outside("Tensor", min(found), max(found), dtype)
        self.dtype = _dtype_of_numbers(found) if dtype is None else dtype
        self.numbers = [wrap(one, self.dtype) for one in found]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """What is copied to a device."""
        array = np.array(self.numbers, self.dtype.host)
        coded = self.dtype.host is not self.dtype.numpy
        return (to_bits(array, self.dtype) if coded else array).reshape(self.shape)


def _flat(data: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of nested lists, and what is in them."""
    level, shape = [data], list[int]()
    while level and all(isinstance(one, (list, tuple, range)) for one in level):
        sizes = {len(one) for one in level}
        if len(sizes) > 1:
            raise _ragged(f"lengths {sorted(sizes)}")
        shape += sizes
        level = [item for one in level for item in one]
    if any(isinstance(one, (list, tuple, range)) for one in level):
        raise _ragged("numbers beside lists")
    return tuple(shape), level


def _dtype_of_numbers(numbers: list[Any]) -> DType:
    if not numbers or any(isinstance(one, float) for one in numbers):
        return dtypes.default_float
    if all(isinstance(one, bool) for one in numbers):
        return dtypes.bool
    return _smallest_int(min(numbers), max(numbers))


def _refuse_beyond(numbers: list[Any]) -> None:
    """Raise DTypeError if whole numbers fit no type of 64 bits, or not the same one."""
    whole = [one for one in numbers if isinstance(one, int)]
    least, greatest = min(whole, default=0), max(whole, default=0)
    if greatest >= 1 << 64 or least < -1 << 63 or (
            greatest >= 1 << 63 and least < 0 and len(whole) == len(numbers)):
        told = greatest if greatest >= 1 << 63 else least
        raise DTypeError(  # r[impl host.numpy.without]
            "Tensor", f"a whole number of {told.bit_length()} bits"
            f"{' beside one below 0' if least < 0 < told else ''} fits no type of 64 bits",
            "write it as a float: float(number)")


def _refuse_entry(one: Any) -> None:
    """Raise the error about what is no number."""
    if isinstance(one, complex):
        raise _complex()
    as_size(one)  # which refuses a variable without a value
    raise _no_numbers("list", type(one).__name__)


def _ragged(why: Any) -> ShapeError:
    return ShapeError("Tensor", f"the nested lists are ragged ({why})",
                      "make all lists of one level equally long")


def _complex() -> ComplexError:
    return ComplexError("Tensor", "complex numbers are a pair of real tensors",
                        "make it of both parts: torch.complex(real, imag)")


def _no_numbers(kind: str, dtype: Any) -> DTypeError:
    return DTypeError("Tensor", f"data of type {kind} and dtype {dtype} are no numbers",
                      "give numbers, nested lists or a NumPy array")


def refuse_tensors(data: Any) -> None:
    """Raise DTypeError if nested lists hold tensors."""
    if _holds_tensors(data):
        raise DTypeError("Tensor", "the list holds tensors", "join them: Tensor.stack(*tensors)")


def _holds_tensors(data: Any) -> bool:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(getattr(data, "uop", None), UOp)
