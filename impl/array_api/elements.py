"""Functions of each element: the methods, with the standard's names and parameters."""
from __future__ import annotations

from typing import Any

from impl.array_api.arrays import Array, another, array_of, asarray
from impl.complex import Complex
from impl.dtypes import dtypes

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "ceil", "clip", "conj", "copysign", "cos", "cosh", "divide", "equal",
    "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag",
    "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2",
    "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum",
    "minimum", "multiply", "negative", "nextafter", "not_equal", "positive", "pow", "real",
    "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square",
    "subtract", "tan", "tanh", "trunc"]


def _both(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Two operands, the first of them an array."""
    if isinstance(x1, (bool, int, float, complex)) and not isinstance(
            x2, (bool, int, float, complex)):
        second = array_of(x2)
        if isinstance(second, Complex) or isinstance(x1, complex):
            return Complex.of(second.sum() * 0) + x1, second
        return asarray(x1, dtype=second.dtype if not (
            isinstance(x1, float) and second.dtype.kind != "f") else dtypes.default_float,
            device=str(second.device)), second
    return array_of(x1), x2


def abs(x: Array, /) -> Array:  # noqa: A001
    """`Tensor.abs`"""
    return array_of(x).abs()


def acos(x: Array, /) -> Array:
    """`Tensor.acos`"""
    return array_of(x).acos()


def acosh(x: Array, /) -> Array:
    """`Tensor.acosh`"""
    return array_of(x).acosh()


def add(x1: Any, x2: Any, /) -> Array:
    """x1 + x2"""
    first, second = _both(x1, x2)
    found: Array = first + second
    return found


def asin(x: Array, /) -> Array:
    """`Tensor.asin`"""
    return array_of(x).asin()


def asinh(x: Array, /) -> Array:
    """`Tensor.asinh`"""
    return array_of(x).asinh()


def atan(x: Array, /) -> Array:
    """`Tensor.atan`"""
    return array_of(x).atan()


def atan2(x1: Any, x2: Any, /) -> Array:
    """`Tensor.atan2`"""
    first, second = _both(x1, x2)
    found: Array = first.atan2(second)
    return found


def atanh(x: Array, /) -> Array:
    """`Tensor.atanh`"""
    return array_of(x).atanh()


def bitwise_and(x1: Any, x2: Any, /) -> Array:
    """x1 & x2"""
    first, second = _both(x1, x2)
    found: Array = first & second
    return found


def bitwise_invert(x: Array, /) -> Array:
    """`Tensor.bitwise_not`"""
    return array_of(x).bitwise_not()


def bitwise_left_shift(x1: Any, x2: Any, /) -> Array:
    """x1 << x2"""
    first, second = _both(x1, x2)
    found: Array = first << second
    return found


def bitwise_or(x1: Any, x2: Any, /) -> Array:
    """x1 | x2"""
    first, second = _both(x1, x2)
    found: Array = first | second
    return found


def bitwise_right_shift(x1: Any, x2: Any, /) -> Array:
    """x1 >> x2"""
    first, second = _both(x1, x2)
    found: Array = first >> second
    return found


def bitwise_xor(x1: Any, x2: Any, /) -> Array:
    """x1 ^ x2"""
    first, second = _both(x1, x2)
    found: Array = first ^ second
    return found


def ceil(x: Array, /) -> Array:
    """`Tensor.ceil`"""
    return array_of(x).ceil()


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:  # noqa: A002
    """The elements moved into an interval; the dtype stays."""
    x = array_of(x)
    return x._another() if min is None and max is None else x.clip(min, max).cast(x.dtype)


def conj(x: Array, /) -> Array:
    """The conjugates; of real numbers themselves."""
    x = array_of(x)
    return x.conj() if isinstance(x, Complex) else x._another()


def copysign(x1: Any, x2: Any, /) -> Array:
    """`Tensor.copysign`"""
    first, second = _both(x1, x2)
    found: Array = first.copysign(second)
    return found


def cos(x: Array, /) -> Array:
    """`Tensor.cos`"""
    return array_of(x).cos()


def cosh(x: Array, /) -> Array:
    """`Tensor.cosh`"""
    return array_of(x).cosh()


def divide(x1: Any, x2: Any, /) -> Array:
    """x1 / x2"""
    first, second = _both(x1, x2)
    found: Array = first / second
    return found


def equal(x1: Any, x2: Any, /) -> Array:
    """x1 == x2"""
    first, second = _both(x1, x2)
    found: Array = first == second
    return found


def exp(x: Array, /) -> Array:
    """`Tensor.exp`"""
    return array_of(x).exp()


def expm1(x: Array, /) -> Array:
    """`Tensor.expm1`"""
    return array_of(x).expm1()


def floor(x: Array, /) -> Array:
    """`Tensor.floor`"""
    return array_of(x).floor()


def floor_divide(x1: Any, x2: Any, /) -> Array:
    """x1 // x2"""
    first, second = _both(x1, x2)
    found: Array = first // second
    return found


def greater(x1: Any, x2: Any, /) -> Array:
    """x1 > x2"""
    first, second = _both(x1, x2)
    found: Array = first > second
    return found


def greater_equal(x1: Any, x2: Any, /) -> Array:
    """x1 >= x2"""
    first, second = _both(x1, x2)
    found: Array = first >= second
    return found


def hypot(x1: Any, x2: Any, /) -> Array:
    """`Tensor.hypot`"""
    first, second = _both(x1, x2)
    found: Array = first.hypot(second)
    return found


def imag(x: Array, /) -> Array:
    """The imaginary parts; of real numbers zeros."""
    x = array_of(x)
    return another(x.imag) if isinstance(x, Complex) else x.zeros_like()


def isfinite(x: Array, /) -> Array:
    """`Tensor.isfinite`"""
    return array_of(x).isfinite()


def isinf(x: Array, /) -> Array:
    """`Tensor.isinf`"""
    return array_of(x).isinf()


def isnan(x: Array, /) -> Array:
    """`Tensor.isnan`"""
    return array_of(x).isnan()


def less(x1: Any, x2: Any, /) -> Array:
    """x1 < x2"""
    first, second = _both(x1, x2)
    found: Array = first < second
    return found


def less_equal(x1: Any, x2: Any, /) -> Array:
    """x1 <= x2"""
    first, second = _both(x1, x2)
    found: Array = first <= second
    return found


def log(x: Array, /) -> Array:
    """`Tensor.log`"""
    return array_of(x).log()


def log10(x: Array, /) -> Array:
    """`Tensor.log10`"""
    return array_of(x).log10()


def log1p(x: Array, /) -> Array:
    """`Tensor.log1p`"""
    return array_of(x).log1p()


def log2(x: Array, /) -> Array:
    """`Tensor.log2`"""
    return array_of(x).log2()


def logaddexp(x1: Any, x2: Any, /) -> Array:
    """`Tensor.logaddexp`"""
    first, second = _both(x1, x2)
    found: Array = first.logaddexp(second)
    return found


def logical_and(x1: Any, x2: Any, /) -> Array:
    """`Tensor.logical_and`"""
    first, second = _both(x1, x2)
    found: Array = first.logical_and(second)
    return found


def logical_not(x: Array, /) -> Array:
    """`Tensor.logical_not`"""
    return array_of(x).logical_not()


def logical_or(x1: Any, x2: Any, /) -> Array:
    """`Tensor.logical_or`"""
    first, second = _both(x1, x2)
    found: Array = first.logical_or(second)
    return found


def logical_xor(x1: Any, x2: Any, /) -> Array:
    """`Tensor.logical_xor`"""
    first, second = _both(x1, x2)
    found: Array = first.logical_xor(second)
    return found


def maximum(x1: Any, x2: Any, /) -> Array:
    """`Tensor.maximum`"""
    first, second = _both(x1, x2)
    found: Array = first.maximum(second)
    return found


def minimum(x1: Any, x2: Any, /) -> Array:
    """`Tensor.minimum`"""
    first, second = _both(x1, x2)
    found: Array = first.minimum(second)
    return found


def multiply(x1: Any, x2: Any, /) -> Array:
    """x1 * x2"""
    first, second = _both(x1, x2)
    found: Array = first * second
    return found


def negative(x: Array, /) -> Array:
    """`Tensor.neg`"""
    return array_of(x).neg()


def nextafter(x1: Any, x2: Any, /) -> Array:
    """`Tensor.nextafter`"""
    first, second = _both(x1, x2)
    return array_of(first.nextafter(second))


def not_equal(x1: Any, x2: Any, /) -> Array:
    """x1 != x2"""
    first, second = _both(x1, x2)
    found: Array = first != second
    return found


def positive(x: Array, /) -> Array:
    """`Tensor.positive`"""
    return array_of(x).positive()


def pow(x1: Any, x2: Any, /) -> Array:  # noqa: A001
    """x1 ** x2"""
    first, second = _both(x1, x2)
    found: Array = first ** second
    return found


def real(x: Array, /) -> Array:
    """The real parts; of real numbers themselves."""
    x = array_of(x)
    return another(x.real if isinstance(x, Complex) else x)


def reciprocal(x: Array, /) -> Array:
    """`Tensor.reciprocal`"""
    return array_of(x).reciprocal()


def remainder(x1: Any, x2: Any, /) -> Array:
    """x1 % x2"""
    first, second = _both(x1, x2)
    found: Array = first % second
    return found


def round(x: Array, /) -> Array:  # noqa: A001
    """`Tensor.round`"""
    return array_of(x).round()


def sign(x: Array, /) -> Array:
    """`Tensor.sign`"""
    return array_of(x).sign()


def signbit(x: Array, /) -> Array:
    """`Tensor.signbit`"""
    return array_of(x).signbit()


def sin(x: Array, /) -> Array:
    """`Tensor.sin`"""
    return array_of(x).sin()


def sinh(x: Array, /) -> Array:
    """`Tensor.sinh`"""
    return array_of(x).sinh()


def sqrt(x: Array, /) -> Array:
    """`Tensor.sqrt`"""
    return array_of(x).sqrt()


def square(x: Array, /) -> Array:
    """`Tensor.square`"""
    return array_of(x).square()


def subtract(x1: Any, x2: Any, /) -> Array:
    """x1 - x2"""
    first, second = _both(x1, x2)
    found: Array = first - second
    return found


def tan(x: Array, /) -> Array:
    """`Tensor.tan`"""
    return array_of(x).tan()


def tanh(x: Array, /) -> Array:
    """`Tensor.tanh`"""
    return array_of(x).tanh()


def trunc(x: Array, /) -> Array:
    """`Tensor.trunc`"""
    return array_of(x).trunc()
