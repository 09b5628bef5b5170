"""Functions of complex numbers, as formulas of their real and imaginary parts.

Each takes two real tensors x and y, and returns the two parts of the result. Branches are cut
where C and NumPy cut them: `log`, `sqrt` and powers along the negative real axis, where the sign of
a zero says which side is meant. Inverse functions are Kahan's (1987). Infinities and NaN give what
the Array API standard asks for, which is what C gives.
"""
from __future__ import annotations

import math
from typing import Any

from impl.tensor import Tensor

Parts = tuple[Tensor, Tensor]


def magnitude(x: Tensor, y: Tensor) -> Tensor:
    """The absolute value, also where a square is too large or too small for the dtype; with
    gradient 0 where it is 0.
    """
    away = (x != 0) | (y != 0)
    found = away.where(x, 1.0).hypot(away.where(y, 1.0))
    return away.where(found, 0.0)


def angle(x: Tensor, y: Tensor) -> Tensor:
    """The angle, from -pi to pi."""
    return y.atan2(x)


def product(x: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """(x + yi) * (a + bi)"""
    return x * a - y * b, x * b + y * a


def quotient(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Parts:
    """(x + yi) / (a + bi)"""
    # Smith (1962): no square is taken, which could be too large or too small.
    turned = a.abs() < b.abs()
    most, less = turned.where(b, a), turned.where(a, b)
    nothing = most == 0
    ratio = less / nothing.where(1.0, most)
    whole = nothing.where(0.0, most + less * ratio)
    return (turned.where(x * ratio + y, x + y * ratio) / whole,
            turned.where(y * ratio - x, y - x * ratio) / whole)


def exp(x: Tensor, y: Tensor) -> Parts:
    """e to this power; of a real number it is real, also where it is infinite."""
    size, endless = x.exp(), x.isinf() & ~y.isfinite()
    return endless.where(size, size * y.cos()), \
        ((y == 0) | endless & (x < 0)).where((y == 0).where(y, 0.0), size * y.sin())


def expm1(x: Tensor, y: Tensor) -> Parts:
    """exp - 1, with all digits near 0."""
    half, less = (y * 0.5).sin(), x.expm1()
    endless = x.isinf() & ~y.isfinite()
    nothing = (x == 0) & (y == 0)
    return (endless | nothing).where(nothing.where(0.0, less), less * y.cos() - half * half * 2), \
        exp(x, y)[1]


def _log_size(x: Tensor, y: Tensor) -> Tensor:
    """The logarithm of the absolute value, with all digits near 1."""
    size = magnitude(x, y)
    near = (size > 0.5) & (size < 2)
    high, low = x.abs().maximum(y.abs()), x.abs().minimum(y.abs())
    high, low = near.where(high, 1.0), near.where(low, 0.0)
    exact = ((high - 1) * (high + 1) + low * low).log1p() * 0.5
    return near.where(exact, near.where(1.0, size).log())


def log(x: Tensor, y: Tensor) -> Parts:
    """The natural logarithm, whose imaginary part is from -pi to pi."""
    return _log_size(x, y), angle(x, y)


def log2(x: Tensor, y: Tensor) -> Parts:
    """The logarithm of base 2."""
    real, imag = log(x, y)
    return real * (1 / math.log(2)), imag * (1 / math.log(2))


def log10(x: Tensor, y: Tensor) -> Parts:
    """The logarithm of base 10."""
    real, imag = log(x, y)
    return real * (1 / math.log(10)), imag * (1 / math.log(10))


def log1p(x: Tensor, y: Tensor) -> Parts:
    """log(1 + z), with all digits near 0."""
    small = (x.abs() < 0.5) & (y.abs() < 0.5)
    inner, side = small.where(x, 0.0), small.where(y, 0.0)
    exact = (inner * (inner + 2) + side * side).log1p() * 0.5
    return small.where(exact, _log_size(x + 1, y)), y.atan2(x + 1)


def sqrt(x: Tensor, y: Tensor) -> Parts:
    """The root whose real part is not negative."""
    quarter = magnitude(x * 0.25, y * 0.25) * 0.5 + x.abs() * 0.125  # no sum overflows
    nothing = quarter == 0
    root = nothing.where(0.0, nothing.where(1.0, quarter).sqrt() * 2)
    other = y / (nothing.where(0.5, root) * 2)
    right, endless = x >= 0, y.isinf()
    real = endless.where(math.inf, (right | nothing).where(root, other.abs()))
    return real, (endless | nothing).where(y, right.where(other, root.copysign(y)))


def square(x: Tensor, y: Tensor) -> Parts:
    """z * z"""
    return (x - y) * (x + y), x * y * 2


def sign(x: Tensor, y: Tensor) -> Parts:
    """The number of absolute value 1 in this direction, 0 of 0."""
    size = magnitude(x, y)
    nothing = size == 0
    size = nothing.where(1.0, size)
    return nothing.where(0.0, x) / size, nothing.where(0.0, y) / size


def sin(x: Tensor, y: Tensor) -> Parts:
    """The sine."""
    return _turned(sinh, x, y)


def cos(x: Tensor, y: Tensor) -> Parts:
    """The cosine."""
    return cosh(-y, x)


def sinh(x: Tensor, y: Tensor) -> Parts:
    """The hyperbolic sine."""
    high = x.sinh()
    whole = (x == 0) | x.isinf() & ~y.isfinite()  # where a product would be NaN
    return whole.where(high, high * y.cos()), (y == 0).where(y, x.cosh() * y.sin())


def cosh(x: Tensor, y: Tensor) -> Parts:
    """The hyperbolic cosine."""
    high = x.cosh()
    endless = x.isinf() & ~y.isfinite()
    nothing = (x == 0) & ~y.isfinite() | (y == 0) & ~x.isfinite()
    return endless.where(high, high * y.cos()), nothing.where(0.0, x.sinh() * y.sin())


def tanh(x: Tensor, y: Tensor) -> Parts:
    """The hyperbolic tangent."""
    far = x.abs() > 20  # the rest is below all digits of a float64
    inner = far.where(0.0, x)
    slope, sine = y.tan(), inner.sinh()
    more, root = slope * slope + 1, (sine * sine + 1).sqrt()
    below = more * sine * sine + 1
    rest = (far.where(x.abs(), 0.0) * -2).exp() * y.sin() * y.cos() * 4
    endless = x.isinf()
    real = far.where(x.sign() + endless.where(0.0, y * 0), more * root * sine / below)
    imag = far.where(endless.where(y.zeros_like().copysign(y), rest), slope / below)
    return (x == 0).where(x, real), (y == 0).where(y, imag)


def tan(x: Tensor, y: Tensor) -> Parts:
    """The tangent."""
    return _turned(tanh, x, y)


def _turned(function: Any, x: Tensor, y: Tensor) -> Parts:
    """-i * function(i * z), which is the same function of angles in place of hyperbolas."""
    real, imag = function(-y, x)
    return imag, -real


def asin(x: Tensor, y: Tensor) -> Parts:
    """The angle of this sine."""
    (a, b), (c, d) = sqrt(1 - x, -y), sqrt(x + 1, y)
    endless = x.isinf() | y.isinf()
    real = endless.where(x.atan2(y.abs()), x.atan2(a * c - b * d))
    return (x == 0).where(x, real), endless.where(_infinite(y), (a * d - b * c).asinh())


def acos(x: Tensor, y: Tensor) -> Parts:
    """The angle of this cosine."""
    (a, b), (c, d) = sqrt(1 - x, -y), sqrt(x + 1, y)
    endless, unknown = x.isinf() | y.isinf(), (x == 0) & y.isnan()
    real = endless.where(y.abs().atan2(x), a.atan2(c) * 2)
    return unknown.where(math.pi / 2, real), endless.where(_infinite(-y), (c * b - d * a).asinh())


def atan(x: Tensor, y: Tensor) -> Parts:
    """The angle of this tangent."""
    return _turned(atanh, x, y)


def asinh(x: Tensor, y: Tensor) -> Parts:
    """The inverse of `sinh`."""
    return _turned(asin, x, y)


def acosh(x: Tensor, y: Tensor) -> Parts:
    """The inverse of `cosh`."""
    (a, b), (c, d) = sqrt(x - 1, y), sqrt(x + 1, y)
    endless, unknown = x.isinf() | y.isinf(), (x == 0) & y.isnan()
    imag = endless.where(y.atan2(x), b.atan2(c) * 2)
    return endless.where(math.inf, (a * c + b * d).asinh()), unknown.where(math.pi / 2, imag)


def _infinite(sign: Tensor) -> Tensor:
    """Infinity with the sign of a number."""
    return sign.full_like(math.inf).copysign(sign)


def atanh(x: Tensor, y: Tensor) -> Parts:
    """The inverse of `tanh`."""
    size = x.abs()
    real = (size * 4 / ((1 - size) * (1 - size) + y * y)).log1p() * 0.25
    imag = (y * 2).atan2((1 - size) * (size + 1) - y * y) * 0.5
    endless = x.isinf() | y.isinf()
    quarter = y.isnan().where(y, math.pi / 2).copysign(y)
    return ((x == 0) | endless).where(0.0, real).copysign(x), endless.where(quarter, imag)


def complex_power(x: Tensor, y: Tensor, a: Any, b: Any) -> Parts:
    """exp((a + bi) * log(x + yi)); 0 to a power whose real part is positive is 0, and to 0 it is 1.
    """
    nothing = (x == 0) & (y == 0)
    real, imag = exp(*product(*log(nothing.where(1.0, x), y), a, b))
    none = (real * 0 + a == 0) & (real * 0 + b == 0)
    at_zero = none.where(1.0, (real * 0 + a > 0).where(0.0, math.nan))
    return nothing.where(at_zero, real), nothing.where((at_zero == at_zero).where(0.0, math.nan),
                                                       imag)


#: Those of one number, under the names that tensors have for them.
OF_ONE = {function.__name__: function for function in (
    acos, acosh, asin, asinh, atan, atanh, cos, cosh, exp, expm1, log, log10, log1p, log2, sign,
    sin, sinh, sqrt, square, tan, tanh)} | {
    "arccos": acos, "arccosh": acosh, "arcsin": asin, "arcsinh": asinh, "arctan": atan,
    "arctanh": atanh, "sgn": sign}
