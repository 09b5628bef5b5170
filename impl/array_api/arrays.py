"""The array object: a tensor with the attributes of the standard."""
from __future__ import annotations

import math
from typing import Any, Self

from impl.complex import Complex
from impl.dtypes import DType, complex_dtype, dtypes
from impl.errors import ArgumentError
from impl.host import np
from impl.tensor import Tensor


class Array(Tensor):
    """A tensor whose `size` is a number, and that knows its namespace."""

    __slots__ = ()

    @property
    def size(self) -> int:  # type: ignore[override]
        """The number of elements."""
        return math.prod(self.shape)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Self:
        """The array on another device."""
        if stream is not None:
            raise ArgumentError("to_device", f"stream is {stream!r:.60}", "leave it out")
        return self.to(device)

    def __getitem__(self, index: Any) -> Self:
        if isinstance(index, Tensor) and not index.shape and index.dtype is dtypes.bool:
            return self.unsqueeze(0)[:int(bool(index))]
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, Tensor) and not index.shape and index.dtype is dtypes.bool:
            if isinstance(value, Tensor) and len(value.shape) > len(self.shape):
                if 0 in value.shape:
                    return  # for each place where the mask holds a value: there is none
                value = value.reshape(self.shape)
            self.assign(index.where(value, self).cast(self.dtype))
        else:
            super().__setitem__(index, value)

    def __floordiv__(self, other: Any) -> Self:
        return _whole(super().__floordiv__(other), self, other)

    def __rfloordiv__(self, other: Any) -> Self:
        return _whole(super().__rfloordiv__(other), other, self)

    def __mod__(self, other: Any) -> Self:
        return _rest(super().__mod__(other), other)

    def __rmod__(self, other: Any) -> Self:
        return _rest(super().__rmod__(other), self)

    def __complex__(self) -> complex:
        return complex(self.item())


def _whole(quotient: Any, x: Any, y: Any) -> Any:
    """A quotient rounded down; with an infinity what x / y gives, as the standard has it."""
    if not isinstance(quotient, Tensor) or quotient.dtype.kind != "f":
        return quotient
    endless = _is_infinite(x) | _is_infinite(y)
    return endless.where(x / y, quotient)


def _is_infinite(value: Any) -> Any:
    return value.isinf() if isinstance(value, Tensor) else math.isinf(value)


def _rest(remainder: Any, divisor: Any) -> Any:
    """A remainder; of 0 it has the sign of the divisor, as the standard has it."""
    if not isinstance(remainder, Tensor) or remainder.dtype.kind != "f":
        return remainder
    return (remainder == 0).where((remainder * 0).copysign(divisor), remainder)


def array_of(x: Any) -> Any:
    """A tensor, as an array; complex numbers, with arrays as their parts."""
    if isinstance(x, Array):
        return x
    if isinstance(x, Complex):
        return x if isinstance(x.real, Array) else Complex(Array(x.real), Array(x.imag))
    return Array(x)


def asarray(obj: Any, /, *, dtype: DType | None = None, device: Any = None,
            copy: bool | None = None) -> Array:
    """An array of a number, nested lists, a buffer or another array.

    An array is a value, so nobody sees whether it was copied.
    """
    if isinstance(obj, (Tensor, Complex)):
        found = array_of(obj)
        found = found if dtype is None else found.cast(dtype)
        found = found if device is None else found.to(device)
        return another(found) if copy else found
    if copy is False and not isinstance(obj, (bool, int, float, complex, list, tuple)):
        raise ValueError("asarray: the elements have to be copied: leave out copy=False")
    if isinstance(obj, (bool, int, float)):  # which have a place of their own
        return Array(np.asarray(obj, None if dtype is None else dtype.numpy)
                     if dtype is not None or not isinstance(obj, float)
                     else np.float32(obj), device, dtype or _kind_of(obj))
    if isinstance(obj, (list, tuple)):
        obj = _lists(obj)
        if dtype is None and _is_complex(obj):
            dtype = dtypes.complex64
    if complex_dtype(dtype) is not None and isinstance(obj, (list, tuple)):
        obj = np.asarray(obj, np.complex128)
    return Array(obj, device, dtype)


def another(x: Any) -> Any:
    """Another variable with the same value."""
    return Complex(Array(x.real), Array(x.imag)) if isinstance(x, Complex) else Array(x)


def _is_complex(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return any(map(_is_complex, values))
    return isinstance(values, (complex, np.complexfloating))


def _kind_of(number: bool | int | float) -> Any:
    return "bool" if isinstance(number, bool) else "float32" if isinstance(number, float) else \
        "int32" if -2 ** 31 <= number < 2 ** 31 else "int64"


def _lists(values: Any) -> Any:
    """Nested lists, in which arrays of one number may stand."""
    if isinstance(values, (list, tuple)):
        return [_lists(one) for one in values]
    return values.item() if isinstance(values, (Tensor, Complex)) else values


def from_dlpack(x: object, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """The values of another library's array: `Tensor.from_dlpack`."""
    if not isinstance(x, (Tensor, Complex)):
        return array_of(Array.from_dlpack(x, device, copy))
    found = another(array_of(x)) if copy else array_of(x)
    return found if device is None else found.to(device)
