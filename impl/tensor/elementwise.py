"""Element by element: operators, functions, comparisons. Chapter: spec/tensor.md."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from impl.dtypes import SHORT_FLOATS, DType, dtypes, finfo, promoted, sum_accumulator
from impl.errors import ArgumentError, DTypeError, ShapeError
from impl.gradient import nodes
from impl.gradient.custom import ruled, with_gradient
from impl.gradient.nodes import binary, cast, scale, unary, where
from impl.host import np
from impl.ir import Ops, UOp
from impl.symbolic import identical, is_symbolic
from impl.tensor.base import TensorBase
from impl.tensor.broadcasting import broadcast_shape, weak_dtype
from impl.tensor.placement import Shards


def number(like: UOp, value: float) -> UOp:
    """A Python number in a node's dtype."""
    return UOp.const(like.dtype, value)


def compare(op: Ops, a: UOp, b: UOp) -> UOp:
    """A comparison."""
    return binary(op, a, b)


def absolute(x: UOp) -> UOp:
    """|x|; of -0.0 it is 0.0, and the gradient at 0 is 0."""
    if x.dtype.kind in "bu":
        return x
    zero = number(x, 0)
    if x.dtype.kind == "i":
        return where(compare(Ops.CMPLT, x, zero), nodes.neg(x), x)
    positive = where(compare(Ops.CMPEQ, x, zero), zero, x)
    return where(compare(Ops.CMPLT, x, zero), nodes.neg(x), positive)


def _folded(x: UOp) -> tuple[UOp, UOp]:
    """Whether x is negative, and exp(-|x|): it overflows nowhere, nor does its slope."""
    negative = compare(Ops.CMPLT, x, number(x, 0))
    return negative, unary(Ops.EXP, where(negative, x, nodes.neg(x)))


def sigmoid(x: UOp) -> UOp:
    """1 / (1 + exp(-x)) for a float node."""
    negative, grown = _folded(x)
    top = where(negative, grown, number(x, 1))
    return nodes.div(top, nodes.add(grown, number(x, 1)))


def softplus(x: UOp) -> UOp:
    """log(1 + exp(x)), whose gradient is right at 0."""
    negative, grown = _folded(x)
    return nodes.add(where(negative, number(x, 0), x), log_one_more(grown))


def log_one_more(x: UOp) -> UOp:
    """log(1 + x), with all digits near 0 too.

    What is lost in rounding 1 + x is known. It adds what it is to the logarithm, divided by 1 + x,
    and nothing to the slope.
    """
    more = nodes.add(x, number(x, 1))
    lost = nodes.sub(x, nodes.sub(more, number(x, 1)))
    none = compare(Ops.CMPEQ, more, number(x, 0))
    added = nodes.detach(nodes.div(lost, where(none, number(x, 1), more)))
    same = compare(Ops.CMPEQ, more, number(x, 1))
    return where(same, x, nodes.add(unary(Ops.LOG, more), added))


def log_one_more_of_any(x: UOp) -> UOp:
    """log(1 + x) where x may be infinite, too."""
    endless = compare(Ops.CMPEQ, x, number(x, math.inf))
    return where(endless, number(x, math.inf), log_one_more(where(endless, number(x, 1), x)))


def _series(x: UOp, square: UOp, first: int, step: int) -> UOp:
    """x / first! + x * square / (first + step)! + ..., with all digits up to |x| = 1."""
    last = 19 if x.dtype is dtypes.float64 else 12
    orders = range(first, last, step)
    total = number(x, 1 / math.factorial(orders[-1]))
    for order in orders[-2::-1]:
        total = nodes.add(nodes.mul(total, square), number(x, 1 / math.factorial(order)))
    return nodes.mul(x, total)


def _with_slope(value: UOp, x: UOp, slope: Callable[[UOp], UOp]) -> UOp:
    """A function of x that is computed as a series, and its slope."""
    # r[impl gradient.nodes.few+2]
    return with_gradient(value, ruled((x,), lambda gradient, inputs: (
        nodes.mul(gradient, slope(inputs[0])),)))


def exp_less_one(x: UOp) -> UOp:
    """exp(x) - 1, with all digits near 0 too."""
    near = compare(Ops.CMPLT, absolute(x), number(x, 0.5))
    small = where(near, x, number(x, 0))
    value = where(near, _series(small, small, 1, 1), nodes.sub(unary(Ops.EXP, x), number(x, 1)))
    return _with_slope(value, x, lambda x: unary(Ops.EXP, x))


def hyperbolic_sine(x: UOp) -> UOp:
    """(exp(x) - exp(-x)) / 2, with all digits near 0 too."""
    near = compare(Ops.CMPLT, absolute(x), number(x, 1))
    small = where(near, x, number(x, 0))
    large = nodes.sub(_half_exp(x), _half_exp(nodes.neg(x)))
    value = where(near, _series(small, nodes.mul(small, small), 1, 2), large)
    return _with_slope(value, x, hyperbolic_cosine)


def hyperbolic_cosine(x: UOp) -> UOp:
    """(exp(x) + exp(-x)) / 2."""
    return nodes.add(_half_exp(x), _half_exp(nodes.neg(x)))


def _half_exp(x: UOp) -> UOp:
    """exp(x) / 2, also where exp(x) is too large for the dtype and its half is not."""
    root = unary(Ops.EXP, scale(x, 0.5))
    return nodes.mul(scale(root, 0.5), root)  # r[impl tensor.unary.finite]


def round_even(x: UOp) -> UOp:
    """The nearest whole number; halves go to the even one."""
    whole = unary(Ops.TRUNC, x)
    rest = absolute(nodes.sub(x, whole))
    half = number(x, 0.5)
    halved = scale(whole, 0.5)
    odd = compare(Ops.CMPNE, halved, unary(Ops.TRUNC, halved))
    tie = binary(Ops.AND, compare(Ops.CMPEQ, rest, half), odd)
    away = binary(Ops.OR, compare(Ops.CMPLT, half, rest), tie)
    sign = where(compare(Ops.CMPLT, x, number(x, 0)), number(x, -1), number(x, 1))
    return where(away, nodes.add(whole, sign), whole)


def opposite(x: UOp, y: UOp) -> UOp:
    """Whether one operand is below zero, and the other is not."""
    return binary(Ops.XOR, compare(Ops.CMPLT, x, number(x, 0)),
                  compare(Ops.CMPLT, y, number(y, 0)))


#: Of each float the integer of its size, how many bits are the lower half of its digits, and how
#: large a quotient may be of which no digit is lost.
_DIGITS = {dtypes.float32: (dtypes.int32, 12, 2.0 ** 22),
           dtypes.float64: (dtypes.int64, 27, 2.0 ** 50)}


def _upper(x: UOp) -> UOp:
    """x with the upper half of its digits: a product of two such numbers is exact."""
    bits, low, _ = _DIGITS[x.dtype]
    kept = binary(Ops.AND, UOp(Ops.BITCAST, bits, (x,)), UOp.const(bits, -1 << low))
    return UOp(Ops.BITCAST, x.dtype, (kept,))


def _less_multiple(x: UOp, y: UOp) -> UOp:
    """x less the greatest multiple of y in it, exactly: both are positive, and fit so often."""
    quotient = unary(Ops.TRUNC, nodes.div(x, y))
    first, high = _upper(quotient), _upper(y)
    rest = x
    for factor in (first, nodes.sub(quotient, first)):
        for part in (high, nodes.sub(y, high)):
            rest = nodes.sub(rest, nodes.mul(factor, part))
    # The quotient was rounded: it may be one too many or too few.
    rest = where(compare(Ops.CMPLT, rest, number(x, 0)), nodes.add(rest, y), rest)
    return where(compare(Ops.CMPLE, y, rest), nodes.sub(rest, y), rest)


def remainder(x: UOp, y: UOp) -> UOp:
    """The remainder of a division that rounds toward zero; it has the sign of x."""
    if x.dtype in SHORT_FLOATS:
        return cast(remainder(*(cast(one, dtypes.float32) for one in (x, y))), x.dtype)
    rest = _rest(x, y)
    return nodes.add(rest, _slope_of_remainder(x, y, rest))


def _rest(x: UOp, y: UOp) -> UOp:
    """The remainder of float32 or float64, without a gradient.

    Multiples of 2**22 times y (2**50 of float64) go first. What has more of them becomes 0.
    """
    fixed, divisor = nodes.detach(x), nodes.detach(y)
    size, step, large = absolute(fixed), absolute(divisor), _DIGITS[x.dtype][2]
    many = scale(step, large)
    rest = where(compare(Ops.CMPLT, size, many), size, _less_multiple(size, many))
    rest = _less_multiple(rest, step)
    beyond = compare(Ops.CMPLE, scale(many, large), size)
    known = binary(Ops.AND, compare(Ops.CMPLT, size, number(x, math.inf)),
                   compare(Ops.CMPLT, number(x, 0), step))
    rest = where(binary(Ops.AND, beyond, known), number(x, 0), rest)
    rest = where(compare(Ops.CMPLT, fixed, number(x, 0)), nodes.neg(rest), rest)
    # r[impl tensor.division.value]
    return where(compare(Ops.CMPLT, size, step), fixed, rest)


def _slope_of_remainder(x: UOp, y: UOp, rest: UOp) -> UOp:
    """0, which grows with x as the remainder does, and shrinks with y as often as y was taken."""
    grown = nodes.sub(x, nodes.detach(x))
    if nodes.constant(y) is not None:
        return grown
    divisor = nodes.detach(y)
    often = round_even(nodes.div(nodes.sub(nodes.detach(x), rest), divisor))
    taken = nodes.mul(often, nodes.sub(y, divisor))
    endless = binary(Ops.OR, infinite(divisor), infinite(often))
    return nodes.sub(grown, where(endless, number(x, 0), taken))


def floor_quotient(x: UOp, y: UOp) -> UOp:
    """x / y of floats, rounded down, as NumPy computes it: from what is left of x."""
    if x.dtype in SHORT_FLOATS:
        return cast(floor_quotient(*(cast(one, dtypes.float32) for one in (x, y))), x.dtype)
    rest = _rest(x, y)  # a number that is rounded down has no slope
    whole = nodes.div(nodes.sub(x, rest), y)
    down = unary(Ops.FLOOR, whole)
    short = compare(Ops.CMPLT, number(x, 0.5), nodes.sub(whole, down))
    nearest = where(short, nodes.add(down, number(x, 1)), down)
    below = binary(Ops.AND, compare(Ops.CMPNE, rest, number(x, 0)), opposite(rest, y))
    # r[impl tensor.division.value]
    quotient = where(below, nodes.sub(nearest, number(x, 1)), nearest)
    ratio = nodes.div(x, y)
    over_zero = compare(Ops.CMPEQ, y, number(y, 0))
    none = compare(Ops.CMPEQ, quotient, number(x, 0))
    signed = where(none, scale(ratio, 0), quotient)
    return where(over_zero, ratio, signed)


def floor_remainder(x: UOp, y: UOp) -> UOp:
    """x - floor(x / y) * y of floats: it has the sign of y."""
    rest = remainder(x, y)
    below = binary(Ops.AND, compare(Ops.CMPNE, rest, number(x, 0)), opposite(rest, y))
    # r[impl tensor.division.value]
    return where(below, nodes.add(rest, y), rest)


def infinite(x: UOp) -> UOp:
    """Whether an element of a float node is infinite."""
    return compare(Ops.CMPEQ, absolute(x), number(x, math.inf))


#: Python is slow to look up the members of an enumeration.
_ADD, _MUL, _AND, _OR = Ops.ADD, Ops.MUL, Ops.AND, Ops.OR


class Elementwise(Shards):
    """Operators and functions that work on each element alone."""

    __slots__ = ()

    # How two operands meet

    def _met(self, other: Any, name: str) -> UOp | None:
        """The other operand; None if Python is to ask it what it makes of a tensor.

        Raises:
            ArgumentError: it is a list, which would put itself together with what a tensor says.
        """
        if isinstance(other, (list, tuple)):  # r[impl tensor.arguments.refused+2]
            raise ArgumentError(name, f"{other!r:.60} is a {type(other).__name__}, and no tensor",
                                f"make it one: Tensor({other!r:.60})")
        return self._operand(other, name)

    def _binary(self, other: Any, op: Ops, name: str, reflected: bool = False) -> Self:
        """self op other, or other op self, in the promoted dtype."""
        if other.__class__ is self.__class__ and other.device is self.device:  # most often
            b: UOp = other.uop
        else:
            met = self._met(other, name)
            if met is None:
                return self.runtime.beside_complex(self, other, name, reflected)
            b = met
        x = self.uop
        if x.dtype is not b.dtype or not identical(x.shape, b.shape):
            x, b = self._pair(b, name)
        return self._wrap(binary(op, b, x) if reflected else binary(op, x, b))

    def _compare(self, other: Any, op: Ops, name: str, swapped: bool = False) -> Self:
        """A comparison. An integer that the dtype cannot hold is above or below every element, or
        between two numbers that are next to each other.
        """
        b = self._met(other, name)
        if b is None:
            return self.runtime.beside_complex(self, other, name, swapped)
        other = other.item() if isinstance(other, np.generic) else other
        # r[impl dtypes.scalar.compare+2]
        if isinstance(other, int) and b.op is Ops.CONST and b.arg != other:
            between = b.dtype.kind == "f" and op not in (Ops.CMPEQ, Ops.CMPNE)
            if not between:
                above = op is Ops.CMPNE or (op is not Ops.CMPEQ and (other > 0) is not swapped)
                return self._wrap(nodes.full(UOp.const(dtypes.bool, above), self.shape))
            # `b` is its neighbour: what is not above the neighbour is below the number.
            op = Ops.CMPLE if (b.arg < other) is not swapped else Ops.CMPLT
        x, y = self._pair(b, name)
        return self._wrap(compare(op, y, x) if swapped else compare(op, x, y))

    def _float(self, name: str) -> UOp:
        """The node as a float; integers and bools become the default float."""
        x = self.uop
        return x if x.dtype.kind == "f" else cast(x, dtypes.default_float)

    def _unary(self, op: Ops, name: str) -> Self:
        return self._wrap(unary(op, self._float(name)))

    # Arithmetic

    def __add__(self, other: Any) -> Self:
        return self._binary(other, _OR if self._both_bool(other) else _ADD, "add")

    def __radd__(self, other: Any) -> Self:
        return self._binary(other, Ops.OR if self._both_bool(other) else Ops.ADD, "add", True)

    def __sub__(self, other: Any) -> Self:
        return self._binary(other, self._no_bool(other, Ops.SUB), "sub")

    def __rsub__(self, other: Any) -> Self:
        return self._binary(other, self._no_bool(other, Ops.SUB), "sub", True)

    def __mul__(self, other: Any) -> Self:
        return self._binary(other, _AND if self._both_bool(other) else _MUL, "mul")

    def __rmul__(self, other: Any) -> Self:
        return self._binary(other, Ops.AND if self._both_bool(other) else Ops.MUL, "mul", True)

    def __truediv__(self, other: Any) -> Self:
        return self._divide(other, "div", False)

    def __rtruediv__(self, other: Any) -> Self:
        return self._divide(other, "div", True)

    def __floordiv__(self, other: Any) -> Self:
        return self._whole(other, Ops.FLOORDIV, "floordiv", False)

    def __rfloordiv__(self, other: Any) -> Self:
        return self._whole(other, Ops.FLOORDIV, "floordiv", True)

    def __mod__(self, other: Any) -> Self:
        return self._whole(other, Ops.FLOORMOD, "mod", False)

    def __rmod__(self, other: Any) -> Self:
        return self._whole(other, Ops.FLOORMOD, "mod", True)

    def __pow__(self, other: Any) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Any) -> Self:
        return self.pow(other, True)

    def __neg__(self) -> Self:
        if self.dtype.kind == "b":
            raise DTypeError("neg", "a bool has no negative", "use ~ for the other truth value")
        return self._wrap(nodes.neg(self.uop))

    def __pos__(self) -> Self:
        return self._another()

    def __abs__(self) -> Self:
        return self.abs()

    def _both_bool(self, other: Any) -> bool:
        """Whether both operands are truth values: + is then "or", and * is "and"."""
        if self.uop.dtype.kind != "b":
            return False
        return isinstance(other, bool) or getattr(other, "dtype", None) in (dtypes.bool, bool)

    def _no_bool(self, other: Any, op: Ops) -> Ops:
        if self.uop.dtype.kind == "b" and self._both_bool(other):
            raise DTypeError("sub", "bools cannot be subtracted",
                             "use ^ for 'one but not both', or convert with .int()")
        return op

    def _divide(self, other: Any, name: str, reflected: bool) -> Self:
        b = self._met(other, name)
        if b is None:
            return self.runtime.beside_complex(self, other, name, reflected)
        x, y = self._pair(b, name)
        if x.dtype.kind != "f":  # r[impl tensor.division.value]
            x, y = cast(x, dtypes.default_float), cast(y, dtypes.default_float)
        return self._wrap(nodes.div(y, x) if reflected else nodes.div(x, y))

    def _whole(self, other: Any, op: Ops, name: str, reflected: bool) -> Self:
        """Division rounded down, or its remainder; of floats too."""
        b = self._met(other, name)
        if b is None:
            return NotImplemented
        x, y = self._pair(b, name)
        if reflected:
            x, y = y, x
        if x.dtype.kind == "b":
            x, y = cast(x, dtypes.int8), cast(y, dtypes.int8)
        if x.dtype.kind != "f":  # r[impl dtypes.division.floor]
            return self._wrap(binary(op, x, y))
        return self._wrap((floor_quotient if op is Ops.FLOORDIV else floor_remainder)(x, y))

    def _truncated(self, other: Any) -> Self:
        """Division rounded toward zero; of integers without a detour through floats."""
        b = self._met(other, "div")
        if b is None:
            return NotImplemented
        x, y = self._pair(b, "div")
        if x.dtype.kind == "f":
            return self._wrap(unary(Ops.TRUNC, nodes.div(x, y)))
        down = self._whole(other, Ops.FLOORDIV, "div", False)
        if x.dtype.kind != "i":
            return down
        inexact = compare(Ops.CMPNE, binary(Ops.FLOORMOD, x, y), number(x, 0))
        negative = binary(Ops.AND, inexact, opposite(x, y))
        # r[impl tensor.division.value]
        return self._wrap(where(negative, nodes.add(down.uop, number(x, 1)), down.uop))

    def __iadd__(self, other: Any) -> Self:
        return self._inplace(self + other)

    def __isub__(self, other: Any) -> Self:
        return self._inplace(self - other)

    def __imul__(self, other: Any) -> Self:
        return self._inplace(self * other)

    def __itruediv__(self, other: Any) -> Self:
        return self._inplace(self / other)

    def __ifloordiv__(self, other: Any) -> Self:
        return self._inplace(self // other)

    def __imod__(self, other: Any) -> Self:
        return self._inplace(self % other)

    def __ipow__(self, other: Any) -> Self:
        return self._inplace(self ** other)

    def __iand__(self, other: Any) -> Self:
        return self._inplace(self & other)

    def __ior__(self, other: Any) -> Self:
        return self._inplace(self | other)

    def __ixor__(self, other: Any) -> Self:
        return self._inplace(self ^ other)

    def _inplace(self, value: Self) -> Self:
        if value is NotImplemented:
            return value
        return self.assign(value)  # r[impl tensor.assign.operator]

    def add(self, other: Any, alpha: Any = 1) -> Self:
        """self + alpha * other"""
        return self + (other if alpha == 1 else other * alpha)

    def sub(self, other: Any, alpha: Any = 1) -> Self:
        """self - alpha * other"""
        return self - (other if alpha == 1 else other * alpha)

    def mul(self, other: Any) -> Self:
        """self * other"""
        return self * other

    def div(self, other: Any, rounding_mode: str | None = None) -> Self:
        """self / other, exactly, or rounded: "floor" or "trunc" (toward zero).

        Raises:
            ShapeError: the rounding mode is unknown.
        """
        if rounding_mode == "floor":
            return self // other
        if rounding_mode == "trunc":
            return self._truncated(other)
        if rounding_mode is not None:
            raise ShapeError("div", f"rounding_mode {rounding_mode!r} is unknown",
                             "use None, 'floor' or 'trunc'")
        return self / other

    def idiv(self, other: Any) -> Self:
        """self // other"""
        return self // other

    def mod(self, other: Any) -> Self:
        """self % other: the remainder, with the sign of the divisor"""
        return self % other

    def neg(self) -> Self:
        """-self"""
        return -self

    def pow(self, other: Any, reflected: bool = False) -> Self:
        """self to the power of other (the other way round if `reflected`).

        Small whole exponents and 0.5 become products and roots. A whole number to a negative
        power raises DTypeError, since no integer is the result.
        """
        if not reflected and isinstance(other, (int, float)) and not isinstance(other, bool):
            special = self._power(other)
            if special is not None:
                return special
        result = self._binary(other, Ops.POW, "pow", reflected)
        if result is not NotImplemented and result.dtype.kind == "b":
            raise DTypeError("pow", "bools have no powers", "convert them first: .int()")
        return result

    def _power(self, exponent: float) -> Self | None:
        """x to the power of a Python number, where simpler operations do it."""
        x = self.uop
        if x.dtype.kind == "f":
            if exponent == 0.5:
                return self._wrap(power_half(x))
            if exponent == -0.5:
                return self._wrap(unary(Ops.RECIPROCAL, power_half(x)))
            if exponent == -1:
                return self._wrap(unary(Ops.RECIPROCAL, x))
        elif isinstance(exponent, int) and exponent < 0:
            raise DTypeError("pow", f"an integer to the power {exponent} is no integer",
                             "convert it first: .float()")
        if isinstance(exponent, float) and x.dtype.kind != "f":
            x = cast(x, dtypes.default_float)  # r[impl dtypes.scalar.weak+2]
        if exponent == 0:
            return self._wrap(nodes.full_like(x, 1))
        if exponent not in (1, 2, 3, 4) or x.dtype.kind == "b":
            return None
        square = nodes.mul(x, x)
        return self._wrap({1: lambda: x, 2: lambda: square, 3: lambda: nodes.mul(square, x),
                           4: lambda: nodes.mul(square, square)}[int(exponent)]())

    def reciprocal(self) -> Self:
        """1 / self"""
        return self._unary(Ops.RECIPROCAL, "reciprocal")

    def square(self) -> Self:
        """self * self"""
        x = self.uop if self.dtype.kind != "b" else cast(self.uop, dtypes.default_int)
        return self._wrap(nodes.mul(x, x))

    # Comparisons

    def __lt__(self, other: Any) -> Self:
        return self._compare(other, Ops.CMPLT, "lt")

    def __gt__(self, other: Any) -> Self:
        return self._compare(other, Ops.CMPLT, "gt", True)

    def __le__(self, other: Any) -> Self:
        return self._compare(other, Ops.CMPLE, "le")

    def __ge__(self, other: Any) -> Self:
        return self._compare(other, Ops.CMPLE, "ge", True)

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return self._compare(other, Ops.CMPEQ, "eq")

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return self._compare(other, Ops.CMPNE, "ne")

    __hash__ = TensorBase.__hash__

    def eq(self, other: Any) -> Self:
        """self == other"""
        return self == other

    def ne(self, other: Any) -> Self:
        """self != other"""
        return self != other

    def lt(self, other: Any) -> Self:
        """self < other"""
        return self < other

    def le(self, other: Any) -> Self:
        """self <= other"""
        return self <= other

    def gt(self, other: Any) -> Self:
        """self > other"""
        return self > other

    def ge(self, other: Any) -> Self:
        """self >= other"""
        return self >= other

    # Bits and truth

    def _bits(self, other: Any, op: Ops, name: str) -> Self:
        self._refuse_float(name, self.uop.dtype)
        b = self._met(other, name)
        if b is None:
            return NotImplemented
        self._refuse_float(name, b.dtype)
        x, y = self._pair(b, name)
        self._refuse_float(name, x.dtype)  # what uint64 and a signed one meet in
        return self._wrap(binary(op, x, y))

    def _refuse_float(self, name: str, dtype: DType) -> None:
        if dtype.kind == "f":  # r[impl tensor.arguments.refused+2]
            raise DTypeError(name, f"a {dtype.name} has no bits to work on",
                             "convert it with .int(), or compare it first")

    def __and__(self, other: Any) -> Self:
        return self._bits(other, Ops.AND, "and")

    def __or__(self, other: Any) -> Self:
        return self._bits(other, Ops.OR, "or")

    def __xor__(self, other: Any) -> Self:
        return self._bits(other, Ops.XOR, "xor")

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Self:
        self._refuse_float("invert", self.dtype)
        ones = True if self.dtype.kind == "b" else -1
        return self._wrap(binary(Ops.XOR, self.uop, number(self.uop, ones)))

    def __lshift__(self, other: Any) -> Self:
        return self._bits(other, Ops.SHL, "lshift")

    def __rshift__(self, other: Any) -> Self:
        return self._bits(other, Ops.SHR, "rshift")

    def bitwise_and(self, other: Any) -> Self:
        """self & other"""
        return self & other

    def bitwise_or(self, other: Any) -> Self:
        """self | other"""
        return self | other

    def bitwise_xor(self, other: Any) -> Self:
        """self ^ other"""
        return self ^ other

    def bitwise_not(self) -> Self:
        """~self"""
        return ~self

    def lshift(self, other: Any) -> Self:
        """self << other; a shift by the width or more gives 0"""
        return self << other

    def rshift(self, other: Any) -> Self:
        """self >> other; arithmetic for signed dtypes"""
        return self >> other

    def logical_not(self) -> Self:
        """Whether an element is zero."""
        return self._wrap(compare(Ops.CMPEQ, self.uop, number(self.uop, 0)))

    def logical_and(self, other: Any) -> Self:
        """Whether neither element is zero."""
        return self.cast(dtypes.bool) & self._truth(other)

    def logical_or(self, other: Any) -> Self:
        """Whether not both elements are zero."""
        return self.cast(dtypes.bool) | self._truth(other)

    def logical_xor(self, other: Any) -> Self:
        """Whether exactly one element is zero."""
        return self.cast(dtypes.bool) ^ self._truth(other)

    def _truth(self, other: Any) -> Any:
        return other.cast(dtypes.bool) if isinstance(other, TensorBase) else bool(other)

    # Choice

    def where(self, a: Any, b: Any) -> Self:
        """`condition.where(a, b)`: a where this bool tensor holds, else b; shapes broadcast.

        PyTorch's order, `a.where(condition, b)`, is understood where `a` is not bool.

        Raises:
            DTypeError: this tensor is not bool (r[tensor.arguments.refused]).
        """
        if self.dtype is not dtypes.bool and getattr(a, "dtype", None) is dtypes.bool:
            order: Self = a.where(self, b)
            return order
        if self.dtype is not dtypes.bool:  # r[impl tensor.arguments.refused+2]
            raise DTypeError("where", f"the condition is {self.dtype.name}, not bool",
                             "compare it first: (t != 0).where(a, b)")
        x, y = self._branches(a, b)
        shape = broadcast_shape(x.shape or (), y.shape or (), "where")
        shape = broadcast_shape(shape, self.shape, "where")
        spread = [node if node.shape == () and shape else nodes.broadcast(node, shape)
                  for node in (self.uop, x, y)]
        return self._wrap(where(*spread))

    def _branches(self, a: Any, b: Any) -> tuple[UOp, UOp]:
        """Two values, one of which may be a Python number that takes the other's dtype."""
        x, y = self._value(a), self._value(b)
        if isinstance(x, UOp) and isinstance(y, UOp):
            common = promoted(x.dtype, y.dtype)
            return cast(x, common), cast(y, common)
        if isinstance(x, UOp):
            dtype = weak_dtype(x.dtype, y)
            return cast(x, promoted(x.dtype, dtype)), UOp.const(dtype, y)
        if isinstance(y, UOp):
            dtype = weak_dtype(y.dtype, x)
            return UOp.const(dtype, x), cast(y, promoted(y.dtype, dtype))
        first, second = self.__class__(x).uop, self.__class__(y).uop
        common = promoted(first.dtype, second.dtype)
        return cast(first, common), cast(second, common)

    def _value(self, value: Any) -> Any:
        """A node, or a Python number as it is."""
        if isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, (TensorBase, UOp)) or is_symbolic(value):
            return self._operand(value, "where")
        return self.__class__(value, self.device).uop

    def masked_fill(self, mask: Self, value: Any) -> Self:
        """`value` where the mask holds, this tensor elsewhere, whose dtype stays."""
        found = mask.where(value, self)
        narrow = self.dtype.kind == "b" or found.dtype.kind != "f"
        return found.cast(self.dtype) if narrow else found

    def maximum(self, other: Any) -> Self:
        """The larger element; NaN if either is NaN. Two tensors share the gradient of a tie."""
        # r[impl tensor.nan.maximum]
        return self._binary(other, Ops.MAXIMUM, "maximum")

    def minimum(self, other: Any) -> Self:
        """The smaller element; NaN if either is NaN. Two tensors share the gradient of a tie."""
        return self._binary(other, Ops.MINIMUM, "minimum")

    def clip(self, min: Any = None, max: Any = None) -> Self:  # noqa: A002
        """The elements moved into the interval from `min` to `max`, each of which may be None.

        An element at an end gets the gradient, as one inside does.
        """
        # r[impl gradient.clip.inclusive]
        result = self._another() if min is None else self._at_most(min, Ops.MAXIMUM)
        return result if max is None else result._at_most(max, Ops.MINIMUM)

    def _at_most(self, end: Any, op: Ops) -> Self:
        """The end or self, which gets the gradient of a tie."""
        met = self._met(end, "clip")
        if met is None:  # r[impl errors.argument.refused]
            raise ArgumentError("clip", f"{end!r:.60} is no end of an interval",
                                "give a number or a tensor")
        x, y = self._pair(met, "clip")
        if nodes.constant(x) is not None or nodes.constant(y) is not None:
            return self._wrap(binary(op, y, x))  # next to a number the second one gets it
        within = compare(Ops.CMPLE, *((y, x) if op is Ops.MAXIMUM else (x, y)))
        return self._wrap(where(binary(Ops.OR, within, compare(Ops.CMPNE, x, x)), x, y))

    def clamp(self, min: Any = None, max: Any = None) -> Self:  # noqa: A002
        """The elements moved into the interval from `min` to `max`, each of which may be None."""
        return self.clip(min, max)

    # Functions

    def exp(self) -> Self:
        """e to the power of self"""
        return self._unary(Ops.EXP, "exp")

    def exp2(self) -> Self:
        """2 to the power of self"""
        return self._unary(Ops.EXP2, "exp2")

    def log(self) -> Self:
        """Natural logarithm."""
        return self._unary(Ops.LOG, "log")

    def expm1(self) -> Self:
        """exp(self) - 1, with all digits near 0 too."""
        return self._widened("expm1", exp_less_one)

    def log1p(self) -> Self:
        """log(1 + self), with all digits near 0 too."""
        return self._widened("log1p", log_one_more_of_any)

    def log2(self) -> Self:
        """Logarithm to the base 2."""
        return self._unary(Ops.LOG2, "log2")

    def log10(self) -> Self:
        """Logarithm to the base 10."""
        return self._wrap(scale(unary(Ops.LOG, self._float("log10")), 1 / math.log(10)))

    def sqrt(self) -> Self:
        """Square root; NaN of negative numbers."""
        return self._unary(Ops.SQRT, "sqrt")

    def rsqrt(self) -> Self:
        """1 / sqrt(self)"""
        return self._wrap(unary(Ops.RECIPROCAL, unary(Ops.SQRT, self._float("rsqrt"))))

    def sin(self) -> Self:
        """Sine of radians."""
        return self._unary(Ops.SIN, "sin")

    def cos(self) -> Self:
        """Cosine of radians."""
        return self._unary(Ops.COS, "cos")

    def tan(self) -> Self:
        """Tangent of radians."""
        x = self._float("tan")
        return self._wrap(nodes.div(unary(Ops.SIN, x), unary(Ops.COS, x)))

    def tanh(self) -> Self:
        """Hyperbolic tangent."""
        return self._unary(Ops.TANH, "tanh")

    def sinh(self) -> Self:
        """Hyperbolic sine."""
        return self._widened("sinh", hyperbolic_sine)

    def cosh(self) -> Self:
        """Hyperbolic cosine."""
        return self._widened("cosh", hyperbolic_cosine)

    def erf(self) -> Self:
        """The error function."""
        return self._unary(Ops.ERF, "erf")

    def abs(self) -> Self:
        """The absolute value. Its gradient at 0 is 0."""
        return self._wrap(absolute(self.uop))

    def sign(self) -> Self:
        """-1, 0 or 1; NaN of NaN."""
        x = nodes.detach(self.uop)
        if x.dtype.kind in "bu":
            return self._wrap(cast(compare(Ops.CMPNE, x, number(x, 0)), x.dtype))
        zero = number(x, 0)
        # x + 0 rather than 0: NaN stays NaN, and -0.0 becomes 0.0.
        positive = where(compare(Ops.CMPLT, zero, x), number(x, 1), nodes.add(x, zero))
        return self._wrap(where(compare(Ops.CMPLT, x, zero), number(x, -1), positive))

    def _rounding(self, round_float: Any) -> Self:
        """Integers are whole already."""
        return self._wrap(round_float(self.uop)) if self.dtype.kind == "f" else self._another()

    def floor(self) -> Self:
        """The greatest whole number that is not greater."""
        return self._rounding(lambda x: unary(Ops.FLOOR, x))

    def ceil(self) -> Self:
        """The least whole number that is not less."""
        return self._rounding(lambda x: nodes.neg(unary(Ops.FLOOR, nodes.neg(x))))

    def trunc(self) -> Self:
        """The whole part: rounded toward zero."""
        return self._rounding(lambda x: unary(Ops.TRUNC, x))

    def round(self, decimals: int = 0) -> Self:
        """The nearest whole number, or that with so many decimals; halves go to the even one."""
        if not decimals or self.dtype.kind != "f":
            return self._rounding(round_even)
        ten = 10.0 ** abs(decimals)
        return (self * ten).round() / ten if decimals > 0 else (self / ten).round() * ten

    def isnan(self) -> Self:
        """Whether an element is not a number."""
        return self._wrap(compare(Ops.CMPNE, self.uop, self.uop))

    def isinf(self) -> Self:
        """Whether an element is infinite."""
        if self.dtype.kind != "f":
            return self._wrap(nodes.full(UOp.const(dtypes.bool, False), self.shape))
        return self._wrap(infinite(self.uop))

    def isfinite(self) -> Self:
        """Whether an element is neither infinite nor NaN."""
        if self.dtype.kind != "f":
            return self._wrap(nodes.full(UOp.const(dtypes.bool, True), self.shape))
        return self._wrap(compare(Ops.CMPLE, absolute(self.uop),
                                  number(self.uop, finfo(self.dtype).max)))

    def lerp(self, end: Any, weight: Any) -> Self:
        """self + (end - self) * weight"""
        return self + (end - self) * weight

    # Activations

    def _widened(self, name: str, build: Any) -> Self:
        """A function of a float node, computed in float32 where the dtype is half as wide."""
        x = self._float(name)
        # r[impl tensor.activation.half, tensor.unary.limits]
        return self._wrap(cast(build(cast(x, sum_accumulator(x.dtype))), x.dtype))

    def relu(self) -> Self:
        """max(x, 0), NaN of NaN; its gradient at 0 is 0."""
        return self._wrap(binary(Ops.MAXIMUM, self.uop, number(self.uop, 0)))

    def relu6(self) -> Self:
        """min(max(x, 0), 6)"""
        return self.maximum(0).minimum(6)

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """x where it is positive, else x * negative_slope"""
        x = self._float("leaky_relu")
        return self._wrap(where(compare(Ops.CMPLT, number(x, 0), x), x, scale(x, negative_slope)))

    def elu(self, alpha: float = 1.0) -> Self:
        """x where it is positive, else alpha * (exp(x) - 1)"""
        return self._widened("elu", lambda x: elu(x, alpha))

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x))"""
        return self._widened("sigmoid", sigmoid)

    def silu(self) -> Self:
        """x * sigmoid(x)"""
        return self._widened("silu", lambda x: nodes.mul(x, sigmoid(x)))

    def swish(self) -> Self:
        """x * sigmoid(x)"""
        return self.silu()

    def softplus(self, beta: float = 1.0, threshold: float = math.inf) -> Self:
        """log(1 + exp(beta * x)) / beta, and x where beta * x is above a threshold."""
        found = self._widened("softplus", lambda x: scale(softplus(scale(x, beta)), 1 / beta))
        return found if threshold == math.inf else (self * beta > threshold).where(self, found)

    def logsigmoid(self) -> Self:
        """log(sigmoid(x))"""
        return self._widened("logsigmoid", lambda x: nodes.neg(softplus(nodes.neg(x))))

    def softsign(self) -> Self:
        """x / (1 + |x|)"""
        x = self._float("softsign")
        return self._wrap(nodes.div(x, nodes.add(absolute(x), number(x, 1))))

    def mish(self) -> Self:
        """x * tanh(softplus(x))"""
        return self._widened("mish", lambda x: nodes.mul(x, unary(Ops.TANH, softplus(x))))

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """The elements moved into the interval from `min_val` to `max_val`."""
        if self.dtype.kind in "iu":
            return self.clip(int(min_val), int(max_val))
        return self.maximum(min_val).minimum(max_val)

    def hardsigmoid(self) -> Self:
        """min(max(x + 3, 0), 6) / 6"""
        return (self + 3).relu6() / 6

    def hardswish(self) -> Self:
        """x * hardsigmoid(x)"""
        return self * self.hardsigmoid()

    def gelu(self, approximate: str = "none") -> Self:
        """x times the normal distribution function of x; "tanh" approximates it."""
        if approximate not in ("none", "tanh"):  # r[impl tensor.arguments.refused+2]
            raise ShapeError("gelu", f"approximate {approximate!r} is unknown",
                             "use 'none' or 'tanh'")
        return self._widened("gelu", gelu_tanh if approximate == "tanh" else gelu)

    def quick_gelu(self) -> Self:
        """x * sigmoid(1.702 x)"""
        return self._widened("quick_gelu", lambda x: nodes.mul(x, sigmoid(scale(x, 1.702))))


def power_half(x: UOp) -> UOp:
    """x to the power of a half: the root, but 0 of -0 and infinity of minus infinity."""
    infinite = compare(Ops.CMPEQ, x, number(x, -math.inf))  # r[impl tensor.unary.limits]
    root = unary(Ops.SQRT, nodes.add(x, number(x, 0)))
    return where(infinite, number(x, math.inf), root)


def elu(x: UOp, alpha: float) -> UOp:
    """x where it is positive, else alpha * (exp(x) - 1)"""
    # The exponential of a large x would be infinite, and its gradient 0 times infinity.
    positive = compare(Ops.CMPLT, number(x, 0), x)
    bounded = where(positive, number(x, 0), x)
    return where(positive, x, scale(exp_less_one(bounded), alpha))


def gelu(x: UOp) -> UOp:
    """x (1 + erf(x / sqrt 2)) / 2"""
    cumulated = nodes.add(unary(Ops.ERF, scale(x, math.sqrt(0.5))), number(x, 1))
    return nodes.mul(scale(x, 0.5), cumulated)


def gelu_tanh(x: UOp) -> UOp:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2"""
    cubic = nodes.add(scale(nodes.mul(x, nodes.mul(x, x)), 0.044715), x)
    cumulated = nodes.add(unary(Ops.TANH, scale(cubic, math.sqrt(2 / math.pi))), number(x, 1))
    return nodes.mul(scale(x, 0.5), cumulated)
