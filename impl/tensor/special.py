"""Functions that are made of others: inverses of angles, gamma and error functions, remainders.

Each is a formula of elementwise operations, so that it runs on every device and has a gradient.
Chapter: spec/tensor.md.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from impl.dtypes import dtypes, finfo
from impl.errors import DTypeError
from impl.gradient import nodes
from impl.gradient.nodes import binary, cast, scale, unary, where
from impl.ir import Ops, UOp
from impl.tensor.elementwise import (
    Elementwise,
    absolute,
    compare,
    exp_less_one,
    infinite,
    log_one_more,
    number,
    remainder,
)

SIGNED = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}


def sign_bit(x: UOp) -> UOp:
    """Whether a number is negative, -0.0 and a negative NaN included."""
    if x.dtype.kind == "f":
        x = UOp(Ops.BITCAST, SIGNED[x.dtype.itemsize], (x,))
    return compare(Ops.CMPLT, x, number(x, 0))


def size_of(x: UOp) -> UOp:
    """|x|, whose slope at 0 is 1: a formula that gives x its sign again has the right one."""
    return where(compare(Ops.CMPLT, x, number(x, 0)), nodes.neg(x), x)


def signed_as(size: UOp, x: UOp) -> UOp:
    """An odd function of x, from its value at |x|; it grows as x does at 0."""
    negative = where(compare(Ops.CMPLT, x, number(x, 0)), nodes.neg(size), size)
    return where(compare(Ops.CMPEQ, x, number(x, 0)), x, negative)


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """The first coefficient times the highest power, and so on."""
    total = number(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = nodes.add(nodes.mul(total, x), number(x, coefficient))
    return total


# Angles

#: atan(r) / r and asin(r) / r by the square of r, up to tan(pi/8) and 1/2: polynomials that agree
#: with them at Chebyshev's nodes, with an error below 1e-9, and below 2e-18 for float64.
_TANGENT = (-0.06026305228, 0.1056982881, -0.1423953267, 0.1999818304, -0.3333330689, 1.0)
_TANGENT_64 = (
    -0.01780539720541944523, 0.03796525745386593624, -0.05035102456601551843,
    0.0584687829733087252, -0.06662951813629190088, 0.07692045330902224952, -0.09090896809064027076,
    0.1111111074491965824, -0.1428571427925024494, 0.1999999999994089146, -0.3333333333333312116,
    1.0)
_SINE = (0.03767713834, 0.01429525604, 0.03185718889, 0.0445087095, 0.07500571381, 0.1666665764,
         1.0)
_SINE_64 = (
    0.03257934796692841998, -0.02093065831518244967, 0.02166805886905635856,
    0.003718057748325053914, 0.01077867512099599249, 0.01139885040844075583,
    0.01398088299217100972, 0.0173516006253434348, 0.02237221610607214638, 0.03038194264232718612,
    0.04464285717686321931, 0.07499999999966610596, 0.1666666666666679547, 1.0)


def _odd(x: UOp, square: UOp, short: Sequence[float], long: Sequence[float]) -> UOp:
    """x times a polynomial of its square, with the digits that the dtype has."""
    # r[impl tensor.special.digits]
    return nodes.mul(x, polynomial(square, long if x.dtype is dtypes.float64 else short))


def _angle_below_one(short: UOp, long: UOp) -> UOp:
    """The angle whose tangent is short / long, from 0 to 1, by what is left of it below tan(pi/8).
    One division, of the two or of their difference by their sum.
    """
    half = compare(Ops.CMPLT, scale(long, math.tan(math.pi / 8)), short)
    rest = nodes.div(where(half, nodes.sub(short, long), short),
                     where(half, nodes.add(short, long), long))
    angle = _odd(rest, nodes.mul(rest, rest), _TANGENT, _TANGENT_64)
    return nodes.add(where(half, number(short, math.pi / 4), number(short, 0)), angle)


def arctangent(x: UOp) -> UOp:
    """The angle whose tangent is x."""
    size, one = size_of(x), number(x, 1)
    steep = compare(Ops.CMPLT, one, size)
    angle = _angle_below_one(where(steep, one, size), where(steep, size, one))
    return signed_as(where(steep, nodes.sub(number(x, math.pi / 2), angle), angle), x)


def _arcsine_of_half(size: UOp) -> tuple[UOp, UOp]:
    """Whether size is over 1/2; and the angle whose sine is size, or, where size is over 1/2, half
    the angle whose cosine is size.
    """
    large, one = compare(Ops.CMPLT, number(size, 0.5), size), number(size, 1)
    square = where(large, scale(nodes.sub(one, size), 0.5), nodes.mul(size, size))
    root = unary(Ops.SQRT, where(large, square, one))
    return large, _odd(where(large, root, size), square, _SINE, _SINE_64)


def arcsine(x: UOp) -> UOp:
    """The angle whose sine is x."""
    large, angle = _arcsine_of_half(size_of(x))
    return signed_as(where(large, nodes.sub(number(x, math.pi / 2), scale(angle, 2)), angle), x)


def arccosine(x: UOp) -> UOp:
    """The angle whose cosine is x: no digits are lost at either end."""
    large, angle = _arcsine_of_half(size_of(x))
    negative = compare(Ops.CMPLT, x, number(x, 0))
    near = scale(angle, 2)  # 0 or pi
    turned = where(negative, nodes.sub(number(x, math.pi), near), near)
    signed = where(negative, nodes.neg(angle), angle)
    return where(large, turned, nodes.sub(number(x, math.pi / 2), signed))


def angle_of(y: UOp, x: UOp) -> UOp:
    """The angle of the point (x, y), from -pi to pi."""
    up, across = (where(sign_bit(one), nodes.neg(one), one) for one in (y, x))
    steep, one = compare(Ops.CMPLT, across, up), number(x, 1)
    short, long = where(steep, across, up), where(steep, up, across)
    # The sum of two large numbers may be infinite.
    huge = compare(Ops.CMPLT, number(x, finfo(x.dtype).max / 4), long)
    short, long = (where(huge, scale(each, 0.25), each) for each in (short, long))
    both = binary(Ops.AND, infinite(x), infinite(y))
    fixed = binary(Ops.OR, both, compare(Ops.CMPEQ, long, number(x, 0)))
    angle = _angle_below_one(where(both, one, short), where(fixed, one, long))
    angle = where(steep, nodes.sub(number(x, math.pi / 2), angle), angle)
    angle = where(sign_bit(x), nodes.sub(number(x, math.pi), angle), angle)
    angle = where(sign_bit(y), nodes.neg(angle), angle)
    known = binary(Ops.AND, compare(Ops.CMPEQ, x, x), compare(Ops.CMPEQ, y, y))
    return where(known, angle, nodes.add(x, y))


# Inverses of hyperbolic functions

def _log_of_twice(x: UOp) -> UOp:
    """log(2x)"""
    return nodes.add(unary(Ops.LOG, x), number(x, math.log(2)))


def _of_large(x: UOp, formula: Any) -> UOp:
    """A formula that squares x, or log(2x) where x is too large for that."""
    large = compare(Ops.CMPLT, number(x, 1e4 if x.dtype.itemsize == 4 else 1e8), x)
    return where(large, _log_of_twice(where(large, x, number(x, 1))),
                 formula(where(large, number(x, 1), x)))


def area_sine(x: UOp) -> UOp:
    """The number whose hyperbolic sine is x."""
    def formula(size: UOp) -> UOp:
        square = nodes.mul(size, size)
        root = nodes.add(unary(Ops.SQRT, nodes.add(square, number(x, 1))), number(x, 1))
        return log_one_more(nodes.add(size, nodes.div(square, root)))
    return signed_as(_of_large(size_of(x), formula), x)


def area_cosine(x: UOp) -> UOp:
    """The number from 0 on whose hyperbolic cosine is x."""
    def formula(size: UOp) -> UOp:
        more = nodes.sub(size, number(x, 1))
        root = nodes.mul(unary(Ops.SQRT, more), unary(Ops.SQRT, nodes.add(more, number(x, 2))))
        return log_one_more(nodes.add(more, root))
    return _of_large(x, formula)


def area_tangent(x: UOp) -> UOp:
    """The number whose hyperbolic tangent is x."""
    both = nodes.sub(log_one_more(x), log_one_more(nodes.neg(x)))
    return where(compare(Ops.CMPEQ, x, number(x, 0)), x, scale(both, 0.5))


# Error and gamma functions

#: Giles (2010): the inverse of erf as polynomials of w = -log(1 - x * x), below and from 5 on.
_NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
         -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
_FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)


def error_inverse(x: UOp) -> UOp:
    """The number whose error function is x."""
    one = number(x, 1)
    inside = compare(Ops.CMPLT, absolute(x), one)
    within = where(inside, x, number(x, 0))
    product = nodes.mul(nodes.sub(one, within), nodes.add(one, within))
    w = nodes.neg(unary(Ops.LOG, product))
    near = compare(Ops.CMPLT, w, number(x, 5))
    root = unary(Ops.SQRT, where(near, one, w))
    factor = where(near, polynomial(nodes.sub(where(near, w, one), number(x, 2.5)), _NEAR),
                   polynomial(nodes.sub(root, number(x, 3)), _FAR))
    result = nodes.mul(factor, within)
    for _ in range(2 if x.dtype is dtypes.float64 else 0):  # Newton's steps
        slope = scale(unary(Ops.EXP, nodes.neg(nodes.mul(result, result))), 2 / math.pi ** 0.5)
        miss = nodes.sub(unary(Ops.ERF, result), within)
        result = nodes.sub(result, nodes.div(miss, slope))
    edge = where(compare(Ops.CMPEQ, absolute(x), one), nodes.mul(x, number(x, math.inf)),
                 number(x, math.nan))
    return where(inside, result, nodes.detach(edge))


#: Lanczos' approximation of the gamma function, with g = 7.
_LANCZOS = (676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
            12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
            1.5056327351493116e-7)


def _log_sine_of_turns(x: UOp) -> UOp:
    """log(pi / |sin(pi x)|), exact where x is whole."""
    near = nodes.sub(x, unary(Ops.FLOOR, nodes.add(x, number(x, 0.5))))
    sine = absolute(unary(Ops.SIN, scale(near, math.pi)))
    return nodes.sub(number(x, math.log(math.pi)), unary(Ops.LOG, sine))


def log_gamma(x: UOp) -> UOp:
    """log(|gamma(x)|)"""
    low, one = compare(Ops.CMPLT, x, number(x, 0.5)), number(x, 1)
    endless = infinite(x)
    z = nodes.sub(where(low, nodes.sub(one, x), x), one)
    z = where(endless, one, z)
    total = number(x, 0.99999999999980993)
    for place, coefficient in enumerate(_LANCZOS):
        total = nodes.add(nodes.div(number(x, coefficient),
                                    nodes.add(z, number(x, place + 1))), total)
    shifted = nodes.add(z, number(x, 7.5))
    power = nodes.mul(nodes.add(z, number(x, 0.5)), nodes.sub(unary(Ops.LOG, shifted), one))
    # shifted is z + 1/2 and 7 more
    value = nodes.add(nodes.add(power, unary(Ops.LOG, total)),
                      number(x, 0.5 * math.log(2 * math.pi) - 7))
    reflected = nodes.sub(_log_sine_of_turns(where(low, x, number(x, 0.25))), value)
    return where(endless, number(x, math.inf), where(low, reflected, value))


def digamma(x: UOp) -> UOp:
    """The slope of log(gamma(x)): its series for large numbers, less the steps up to one."""
    low = compare(Ops.CMPLT, x, number(x, 0.5))
    one = number(x, 1)
    z = where(low, nodes.sub(one, x), x)
    steps = 10
    less: UOp = number(x, 0)
    for step in range(steps):
        less = nodes.add(nodes.div(one, nodes.add(z, number(x, step))), less)
    large = nodes.add(z, number(x, steps))
    square = unary(Ops.RECIPROCAL, nodes.mul(large, large))
    series = nodes.mul(square, polynomial(square, (
        1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)))
    value = nodes.sub(nodes.sub(nodes.sub(unary(Ops.LOG, large), nodes.div(
        number(x, 0.5), large)), series), less)
    near = where(low, nodes.sub(x, unary(Ops.FLOOR, nodes.add(x, number(x, 0.5)))), number(x, 0.25))
    angle = scale(near, math.pi)
    turn = nodes.div(scale(unary(Ops.COS, angle), math.pi), unary(Ops.SIN, angle))
    whole = binary(Ops.AND, low, compare(Ops.CMPEQ, near, number(x, 0)))
    pole = where(compare(Ops.CMPEQ, x, number(x, 0)),
                 nodes.neg(nodes.div(one, where(whole, x, one))), number(x, math.nan))
    return where(whole, pole, where(low, nodes.sub(value, turn), value))


#: Chebyshev's coefficients of log(erfc) + z * z - log(t), t = 2 / (2 + z) (Press and others, 2007).
_ERFC = (-1.3026537197817094, 6.4196979235649026e-1, 1.9476473204185836e-2, -9.561514786808631e-3,
         -9.46595344482036e-4, 3.66839497852761e-4, 4.2523324806907e-5, -2.0278578112534e-5,
         -1.624290004647e-6, 1.303655835580e-6, 1.5626441722e-8, -8.5238095915e-8, 6.529054439e-9,
         5.059343495e-9, -9.91364156e-10, -2.27365122e-10, 9.6467911e-11, 2.394038e-12,
         -6.886027e-12, 8.94487e-13, 3.13092e-13, -1.12708e-13, 3.81e-16, 7.106e-15, -1.523e-15,
         -9.4e-17, 1.21e-16, -2.8e-17)


def error_complement(x: UOp, scaled: bool = False) -> UOp:
    """1 - erf(x), with all its digits where it is small; times exp(x * x) if it is scaled."""
    size = size_of(x)
    bounded = where(infinite(x), number(x, 1e6 if scaled else 40), size)
    t = nodes.div(number(x, 2), nodes.add(bounded, number(x, 2)))
    place = nodes.sub(scale(t, 4), number(x, 2))
    last: UOp = number(x, 0)
    before: UOp = number(x, 0)
    terms = _ERFC if x.dtype is dtypes.float64 else _ERFC[:14]
    for coefficient in terms[:0:-1]:
        step = nodes.add(nodes.sub(nodes.mul(place, last), before), number(x, coefficient))
        before, last = last, step
    exponent = nodes.sub(scale(nodes.add(nodes.mul(place, last), number(x, _ERFC[0])), 0.5), before)
    square = nodes.mul(bounded, bounded)
    grown = unary(Ops.EXP, exponent if scaled else nodes.sub(exponent, square))
    value = nodes.mul(t, grown)
    if scaled:
        below = compare(Ops.CMPLT, x, number(x, 0))
        whole = unary(Ops.EXP, where(below, nodes.mul(x, x), number(x, 0)))
        return where(below, nodes.sub(scale(whole, 2), value), value)
    return where(compare(Ops.CMPLT, x, number(x, 0)), nodes.sub(number(x, 2), value), value)


class Special(Elementwise):
    """Functions that are formulas of the operations of `Elementwise`."""

    __slots__ = ()

    # Angles

    def atan(self) -> Self:
        """The angle whose tangent is x, in radians."""
        return self._widened("atan", arctangent)

    def asin(self) -> Self:
        """The angle whose sine is x; NaN beyond -1 and 1."""
        return self._widened("asin", arcsine)

    def acos(self) -> Self:
        """The angle whose cosine is x; NaN beyond -1 and 1."""
        return self._widened("acos", arccosine)

    def atan2(self, other: Any) -> Self:
        """The angle of the point (other, self), from -pi to pi."""
        return self._of_floats(other, "atan2", angle_of)

    def asinh(self) -> Self:
        """The number whose hyperbolic sine is x."""
        return self._widened("asinh", area_sine)

    def acosh(self) -> Self:
        """The number from 0 on whose hyperbolic cosine is x; NaN below 1."""
        return self._widened("acosh", area_cosine)

    def atanh(self) -> Self:
        """The number whose hyperbolic tangent is x; NaN beyond -1 and 1."""
        return self._widened("atanh", area_tangent)

    def deg2rad(self) -> Self:
        """Degrees as radians."""
        return self._wrap(scale(self._float("deg2rad"), math.pi / 180))

    def rad2deg(self) -> Self:
        """Radians as degrees."""
        return self._wrap(scale(self._float("rad2deg"), 180 / math.pi))

    def sinc(self) -> Self:
        """sin(pi x) / (pi x), and 1 at 0."""
        def build(x: UOp) -> UOp:
            none = compare(Ops.CMPEQ, x, number(x, 0))
            # Numbers of this size are whole, and pi times them may be infinite.
            whole = compare(Ops.CMPLE, number(x, 2.0 ** 53), absolute(x))
            angle = scale(where(binary(Ops.OR, none, whole), number(x, 1), x), math.pi)
            found = nodes.div(unary(Ops.SIN, angle), angle)
            return where(none, number(x, 1), where(whole, number(x, 0), found))
        return self._widened("sinc", build)

    # Error and gamma functions, logarithms

    def erfc(self) -> Self:
        """1 - erf(x), with all its digits where it is small."""
        return self._widened("erfc", error_complement)

    def erfinv(self) -> Self:
        """The number whose error function is x."""
        return self._widened("erfinv", error_inverse)

    def lgamma(self) -> Self:
        """log(|gamma(x)|)"""
        return self._widened("lgamma", log_gamma)

    def digamma(self) -> Self:
        """The slope of lgamma."""
        return self._widened("digamma", digamma)

    def logit(self, eps: float | None = None) -> Self:
        """log(x / (1 - x)), the inverse of sigmoid; x is moved into [eps, 1 - eps] if it is given.
        """
        x = self if eps is None else \
            (self < eps).where(eps, (self > 1 - eps).where(1 - eps, self))  # eps may be over 1/2
        return x._widened("logit", lambda p: nodes.sub(unary(Ops.LOG, p),
                                                       log_one_more(nodes.neg(p))))

    def xlogy(self, other: Any) -> Self:
        """x * log(other), and 0 where x is 0 and other is no NaN."""
        def build(x: UOp, y: UOp) -> UOp:
            known = binary(Ops.OR, compare(Ops.CMPLE, y, number(x, 0)), infinite(y))
            none = binary(Ops.AND, compare(Ops.CMPEQ, x, number(x, 0)), known)
            return where(none, number(x, 0),
                         nodes.mul(x, unary(Ops.LOG, where(none, number(x, 1), y))))
        return self._of_floats(other, "xlogy", build)

    def logaddexp(self, other: Any) -> Self:
        """log(exp(x) + exp(other)), computed without overflow."""
        def build(x: UOp, y: UOp) -> UOp:
            top, low = binary(Ops.MAXIMUM, x, y), binary(Ops.MINIMUM, x, y)
            even = compare(Ops.CMPEQ, x, y)  # two infinities, too, whose difference is NaN
            gap = where(even, number(x, 0), nodes.sub(low, top))
            return nodes.add(top, where(infinite(top), number(x, 0),
                                        log_one_more(unary(Ops.EXP, gap))))
        return self._of_floats(other, "logaddexp", build)

    def logaddexp2(self, other: Any) -> Self:
        """log2(2**x + 2**other), computed without overflow."""
        two = math.log(2)
        return (self * two).logaddexp(other * two) / two

    # Remainders and signs

    def _of_floats(self, other: Any, name: str, build: Any) -> Self:
        """A function of two floats; integers become the default float."""
        b = self._met(other, name)
        if b is None:
            return NotImplemented
        x, y = self._pair(b, name)
        if x.dtype.kind != "f":
            x, y = cast(x, dtypes.default_float), cast(y, dtypes.default_float)
        shape = x.shape or y.shape or ()
        x, y = (node if node.shape == shape else nodes.full(node, shape) for node in (x, y))
        return self._wrap(build(x, y))

    def fmod(self, other: Any) -> Self:
        """The remainder of a division that is rounded toward zero: it has the sign of self."""
        b = self._met(other, "fmod")
        if b is None:
            return NotImplemented
        x, y = self._pair(b, "fmod")
        if x.dtype.kind != "f":
            quotient = self._truncated(other)
            x, y = cast(x, quotient.dtype), cast(y, quotient.dtype)  # bools are numbers here
            rest = nodes.sub(x, nodes.mul(quotient.uop, y))
            nothing = compare(Ops.CMPEQ, y, UOp.const(y.dtype, 0))  # r[impl dtypes.division.floor]
            return self._wrap(where(nothing, UOp.const(x.dtype, 0), rest))
        return self._wrap(remainder(x, y))

    def frac(self) -> Self:
        """x - trunc(x)"""
        return self - self.trunc()

    def signbit(self) -> Self:
        """Whether the sign is minus, of -0.0 too."""
        if self.dtype.kind in "bu":
            return self._wrap(nodes.full(UOp.const(dtypes.bool, False), self.shape))
        return self._wrap(sign_bit(self.uop))

    def copysign(self, other: Any) -> Self:
        """The size of self with the sign of other, of -0.0 too."""
        def build(x: UOp, y: UOp) -> UOp:
            return where(sign_bit(y), nodes.neg(absolute(x)), absolute(x))
        return self._of_floats(other, "copysign", build)

    def heaviside(self, values: Any) -> Self:
        """0 below 0, 1 above, and `values` at 0."""
        step = (self > 0).cast(self.dtype)
        return self.eq(0).where(values, self.isnan().where(self, step))

    def hypot(self, other: Any) -> Self:
        """sqrt(x * x + other * other), also where a square is too large for the dtype."""
        def build(x: UOp, y: UOp) -> UOp:
            a, b = absolute(x), absolute(y)
            less = compare(Ops.CMPLT, a, b)
            top, low = where(less, b, a), where(less, a, b)
            plain = binary(Ops.OR, compare(Ops.CMPEQ, top, number(x, 0)), infinite(top))
            ratio = nodes.div(low, where(plain, number(x, 1), top))
            long = nodes.mul(top, unary(Ops.SQRT, nodes.add(nodes.mul(ratio, ratio),
                                                           number(x, 1))))
            unknown = compare(Ops.CMPNE, nodes.add(a, b), nodes.add(a, b))
            endless = binary(Ops.OR, infinite(x), infinite(y))
            return where(endless, number(x, math.inf),
                         where(unknown, number(x, math.nan), where(plain, top, long)))
        return self._of_floats(other, "hypot", build)

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None,
                   neginf: float | None = None) -> Self:
        """Numbers in place of NaN and of infinities: the greatest and the least by default."""
        if self.dtype.kind != "f":
            return self._another()
        most = finfo(self.dtype).max
        x = self.isnan().where(nan, self)
        x = self.eq(math.inf).where(most if posinf is None else posinf, x)
        return self.eq(-math.inf).where(-most if neginf is None else neginf, x)

    def isclose(self, other: Any, rtol: float = 1e-05, atol: float = 1e-08,
                equal_nan: bool = False) -> Self:
        """Whether |self - other| <= atol + rtol * |other|; an infinity is close to itself."""
        theirs = other if isinstance(other, Elementwise) else self.__class__(other, self.device)
        if self.dtype.kind == "b" and theirs.dtype.kind == "b":
            return self == theirs
        near = (self - theirs).abs() <= theirs.abs() * rtol + atol
        near = near & theirs.isfinite() | (self == theirs)
        return near | self.isnan() & theirs.isnan() if equal_nan else near

    def allclose(self, other: Any, rtol: float = 1e-05, atol: float = 1e-08,
                 equal_nan: bool = False) -> bool:
        """Whether all elements are close (see `isclose`); computes them."""
        near = self.isclose(other, rtol, atol, equal_nan)
        return bool(near.numpy().all())

    def equal(self, other: Any) -> bool:
        """Whether shape and elements are the same; computes them."""
        return self.shape == other.shape and bool((self == other).numpy().all())

    def isposinf(self) -> Self:
        """Whether an element is infinity."""
        return self.eq(math.inf)

    def isneginf(self) -> Self:
        """Whether an element is minus infinity."""
        return self.eq(-math.inf)

    def fmax(self, other: Any) -> Self:
        """The larger element; of a NaN and a number, the number."""
        theirs = self._tensor(other)
        return ((self >= theirs) | theirs.isnan()).where(self, theirs)

    def fmin(self, other: Any) -> Self:
        """The smaller element; of a NaN and a number, the number."""
        theirs = self._tensor(other)
        return ((self <= theirs) | theirs.isnan()).where(self, theirs)

    def _tensor(self, other: Any) -> Any:
        """Another operand as a tensor, in the dtype in which it meets this one."""
        node = self._met(other, "operand")
        if node is None:
            raise DTypeError("operand", f"{type(other).__name__} is no tensor", "use Tensor(...)")
        return other if isinstance(other, Elementwise) else self._wrap(node)

    def float_power(self, other: Any) -> Self:
        """self to the power of other, in float64."""
        theirs = other.cast(dtypes.float64) if isinstance(other, Elementwise) else float(other)
        return self.cast(dtypes.float64).pow(theirs)

    def ldexp(self, other: Any) -> Self:
        """self * 2**other"""
        exponent = self._tensor(other)
        return self * 2.0 ** (exponent if exponent.is_floating_point()
                              else exponent.cast(dtypes.default_float))

    def addcmul(self, tensor1: Any, tensor2: Any, value: float = 1) -> Self:
        """self + value * tensor1 * tensor2"""
        return self + value * tensor1 * tensor2

    def addcdiv(self, tensor1: Any, tensor2: Any, value: float = 1) -> Self:
        """self + value * tensor1 / tensor2"""
        return self + value * tensor1 / tensor2

    # Activations

    def selu(self, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Self:
        """gamma * elu(x, alpha) (Klambauer and others, 2017)"""
        return self.elu(alpha) * gamma

    def celu(self, alpha: float = 1.0) -> Self:
        """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))"""
        def build(x: UOp) -> UOp:
            positive = compare(Ops.CMPLT, number(x, 0), x)
            low = where(positive, number(x, 0), x)
            return where(positive, x, scale(exp_less_one(scale(low, 1 / alpha)), alpha))
        return self._widened("celu", build)

    def prelu(self, weight: Any) -> Self:
        """x where it is positive, else x * weight; one weight, or one for each channel (axis 1)."""
        if isinstance(weight, Elementwise) and weight.numel() != 1 and len(self.shape) > 1:
            per_channel = (weight.numel(),) + (1,) * (len(self.shape) - 2)
            weight = weight._wrap(nodes.reshape(weight.uop, per_channel))
        elif isinstance(weight, Elementwise) and weight.numel() == 1:
            weight = weight._wrap(nodes.reshape(weight.uop, ()))
        return (self > 0).where(self, self * weight)

    def threshold(self, threshold: float, value: float) -> Self:
        """x where it is above the threshold, else `value`"""
        return (self > threshold).where(self, value)

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """x, but 0 from -lambd to lambd"""
        return (self.abs() <= lambd).where(0, self)

    def softshrink(self, lambd: float = 0.5) -> Self:
        """x moved toward 0 by lambd, 0 between"""
        return (self.abs() <= lambd).where(0, self - self.sign() * lambd)

    def tanhshrink(self) -> Self:
        """x - tanh(x)"""
        return self - self.tanh()

    # Whole numbers, and functions of physics

    def gcd(self, other: Any) -> Self:
        """The greatest common divisor of whole numbers, by Euclid's steps."""
        b = self._met(other, "gcd")
        if b is None:
            return NotImplemented
        x, y = (absolute(one) for one in self._pair(b, "gcd"))
        if x.dtype.kind not in "iu":
            raise DTypeError("gcd", f"{x.dtype.name} is no integer dtype", "convert it")
        x, y = self._spread_pair(x, y)
        for _ in range(int(8 * x.dtype.itemsize * 1.45) + 1):  # numbers of Fibonacci take longest
            none = compare(Ops.CMPEQ, y, number(y, 0))
            x, y = where(none, x, y), where(none, y, binary(Ops.FLOORMOD, x, y))
        return self._wrap(x)

    def _spread_pair(self, x: UOp, y: UOp) -> tuple[UOp, UOp]:
        """Two operands that met, each in the whole shape."""
        shape = nodes.shape_of(x) or nodes.shape_of(y)
        x = x if nodes.shape_of(x) == shape else nodes.full(x, shape)
        return x, y if nodes.shape_of(y) == shape else nodes.full(y, shape)

    def lcm(self, other: Any) -> Self:
        """The least common multiple of whole numbers."""
        return (self // self.gcd(other) * other).abs()

    def i0(self) -> Self:
        """The modified Bessel function of order 0."""
        return self._bessel("i0", 0, False)

    def i0e(self) -> Self:
        """i0 divided by exp(|x|)."""
        return self._bessel("i0e", 0, True)

    def i1(self) -> Self:
        """The modified Bessel function of order 1, the slope of i0."""
        return self._bessel("i1", 1, False)

    def i1e(self) -> Self:
        """i1 divided by exp(|x|)."""
        return self._bessel("i1e", 1, True)

    def _bessel(self, name: str, order: int, scaled: bool) -> Self:
        """Its power series up to 8, Hankel's expansion above."""
        def build(x: UOp) -> UOp:
            size = size_of(x)
            near = compare(Ops.CMPLT, size, number(x, 9))
            low, high = where(near, size, number(x, 1)), where(near, number(x, 9), size)
            terms = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(30, -1, -1)]
            half = scale(low, 0.5)
            series = polynomial(nodes.mul(half, half), terms)
            series = nodes.mul(series, half) if order else series
            grown = unary(Ops.EXP, nodes.neg(low)) if scaled else number(x, 1)
            inverse, factors, factor = unary(Ops.RECIPROCAL, high), [1.0], 1.0
            for k in range(1, 14):
                factor *= -(4 * order * order - (2 * k - 1) ** 2) / (k * 8)
                factors.append(factor)
            tail = nodes.div(polynomial(inverse, factors[::-1]),
                             unary(Ops.SQRT, scale(high, 2 * math.pi)))
            tail = tail if scaled else nodes.mul(tail, unary(Ops.EXP, high))
            found = where(near, nodes.mul(series, grown), tail)
            return nodes.mul(found, where(compare(Ops.CMPLT, x, number(x, 0)), number(x, -1),
                                          number(x, 1))) if order else found
        return self._widened(name, build)

    def entr(self) -> Self:
        """-x * log(x), 0 at 0, and minus infinity below."""
        return (self < 0).where(-math.inf, -self.xlogy(self))

    def xlog1py(self, other: Any) -> Self:
        """x * log(1 + other), and 0 where x is 0 and other is no NaN."""
        theirs = self._tensor(other)
        none = self.eq(0) & theirs.isnan().logical_not()
        return none.where(0, self * none.where(0, theirs).log1p())

    def ndtr(self) -> Self:
        """The part of a normal distribution that lies below x."""
        return (self * -math.sqrt(0.5)).erfc() * 0.5

    def ndtri(self) -> Self:
        """The number below which a part x of a normal distribution lies."""
        return (self * 2 - 1).erfinv() * math.sqrt(2)

    def log_ndtr(self) -> Self:
        """log(ndtr(x)), also where ndtr is too small for the dtype."""
        x = self._wrap(self._float("log_ndtr"))
        low = (x < -1).where(x, -1)
        tail = (low * -math.sqrt(0.5)).erfcx().log() - low.square() / 2 - math.log(2)
        return (x < -1).where(tail, (x < -1).where(0, x).ndtr().log())

    def erfcx(self) -> Self:
        """exp(x * x) * erfc(x), without overflow for great x."""
        return self._widened("erfcx", lambda x: error_complement(x, True))

    def polygamma(self, n: int = 0) -> Self:
        """The n-th derivative of digamma.

        `Tensor.polygamma(n, x)`, as PyTorch has it, is understood, too.
        """
        if not isinstance(n, int) or n < 0:
            raise DTypeError("polygamma", f"order {n!r} is no whole number", "use 0, 1, 2, ...")
        if n == 0:
            return self.digamma()
        sign = (-1.0) ** (n + 1) * math.factorial(n)
        return self._hurwitz(n + 1) * sign

    def zeta(self, other: Any) -> Self:
        """Hurwitz' zeta function of a whole number and others: the sum of (other + k) ** -x."""
        power = self.item()
        return self._tensor(other)._hurwitz(power)

    def _hurwitz(self, power: float) -> Self:
        """The sum of (x + k) ** -power: twelve terms, and the formula of Euler and Maclaurin."""
        def build(x: UOp) -> UOp:
            def raised(y: UOp, exponent: float) -> UOp:
                if exponent == int(exponent):
                    result = y
                    for _ in range(int(exponent) - 1):
                        result = nodes.mul(result, y)
                    return unary(Ops.RECIPROCAL, result)
                return binary(Ops.POW, y, number(x, -exponent))
            total = raised(x, power)
            for k in range(1, 12):
                total = nodes.add(total, raised(nodes.add(x, number(x, k)), power))
            far = nodes.add(x, number(x, 12))
            tail = raised(far, power)
            total = nodes.add(total, scale(tail, 0.5))
            total = nodes.add(total, scale(nodes.mul(tail, far), 1 / (power - 1)))
            square = unary(Ops.RECIPROCAL, nodes.mul(far, far))
            term = nodes.mul(tail, unary(Ops.RECIPROCAL, far))
            rising = power
            for k, bernoulli in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600), 1):
                total = nodes.add(total, scale(term, bernoulli * rising))
                term = nodes.mul(term, square)
                rising *= (power + 2 * k - 1) * (power + 2 * k)
            return total
        return self._widened("polygamma", build)

    def mvlgamma(self, p: int) -> Self:
        """The logarithm of the gamma function of p variables."""
        start = p * (p - 1) / 4 * math.log(math.pi)
        total = self.lgamma()
        for k in range(1, p):
            total = total + (self - k / 2).lgamma()
        return total + start

    def frexp(self) -> tuple[Self, Self]:
        """Numbers from 1/2 to 1, and the powers of two with which they give the elements."""
        x = self._float("frexp")
        wide = cast(x, dtypes.float32) if x.dtype.itemsize <= 2 else x
        whole, places, bias = (dtypes.int64, 52, 1022) if wide.dtype.itemsize == 8 \
            else (dtypes.int32, 23, 126)
        tiny = compare(Ops.CMPLT, absolute(wide), number(wide, 2.0 ** (1 - bias)))
        large = where(tiny, scale(wide, 2.0 ** (places + 2)), wide)
        bits = UOp(Ops.BITCAST, whole, (large,))
        mask = (1 << (8 * whole.itemsize - 1 - places)) - 1
        power = binary(Ops.AND, binary(Ops.SHR, bits, number(bits, places)), number(bits, mask))
        kept = binary(Ops.AND, bits, number(bits, -1 - (mask << places)))
        part = UOp(Ops.BITCAST, wide.dtype, (binary(Ops.OR, kept, number(bits, bias << places)),))
        plain = binary(Ops.OR, infinite(wide), binary(
            Ops.OR, compare(Ops.CMPNE, wide, wide), compare(Ops.CMPEQ, wide, number(wide, 0))))
        power = nodes.sub(power, where(tiny, number(bits, bias + places + 2), number(bits, bias)))
        power = nodes.neg(cast(where(plain, number(bits, 0), power), dtypes.int32))
        # Both are constants to the gradient, which is the power of two that x was divided by.
        slope = nodes.mul(nodes.sub(wide, nodes.detach(wide)),
                          unary(Ops.EXP2, cast(power, wide.dtype)))
        found = where(plain, wide, nodes.add(part, slope))
        return self._wrap(cast(found, x.dtype)), self._wrap(nodes.neg(power))
