"""Casts, to narrow element types too: float8, float4, integers of 4 and of 2 bits.

Tensors have no such dtypes. A value of one is held in a wider dtype, in which it is exact; what a
cast does is to round to the nearest value that the narrow type has.
"""
from __future__ import annotations

from typing import NamedTuple

from impl.dtypes import dtypes
from impl.onnx.operators import dtype_of
from impl.tensor import Tensor


class _Form(NamedTuple):
    """Binary digits behind the point, the least exponent of a normal number, the greatest value,
    and whether there are infinities, a minus zero and NaN.
    """

    digits: int
    least: int
    most: float
    infinite: bool
    signed_zero: bool = True
    nan: bool = True


FLOATS = {17: _Form(3, -6, 448.0, False), 18: _Form(3, -7, 240.0, False, False),
           19: _Form(2, -14, 57344.0, True), 20: _Form(2, -15, 57344.0, False, False),
           23: _Form(1, 0, 6.0, False, nan=False)}
#: Bits of an integer, and whether it has a sign.
INTEGERS = {21: (4, False), 22: (4, True), 25: (2, False), 26: (2, True)}
_E8M0 = 24


def narrowed(x: Tensor, number: int, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """Values as those of an element type, by ONNX's number."""
    dtype = dtype_of(number)
    if number in INTEGERS:
        bits, signed = INTEGERS[number]
        whole = x.cast(dtypes.int32) & (2 ** bits - 1)
        if signed:
            whole = (whole >= 2 ** (bits - 1)).where(whole - 2 ** bits, whole)
        return whole.cast(dtype)
    if number == _E8M0:
        return _powers(x.cast(dtypes.float32), saturate, round_mode)
    if number in FLOATS:
        return rounded(x.cast(dtypes.float32), FLOATS[number], saturate).cast(dtype)
    return x.cast(dtype)


def rounded(x: Tensor, form: _Form, saturate: bool) -> Tensor:
    """The nearest numbers of a form, those with an even last digit where two are as near."""
    exponent = (x.abs().bitcast(dtypes.int32) >> 23) - 127
    step = _power_of_two(exponent.maximum(form.least) - form.digits)
    near = (x / step).round() * step
    beyond = near.abs() > form.most
    if saturate:
        near = beyond.where(near.sign() * form.most, near)
    elif form.infinite:
        near = beyond.where(near.sign() * float("inf"), near)
    else:
        near = beyond.where(float("nan"), near)
    if not form.signed_zero:
        near = near + 0.0
        if not saturate:
            near = x.isinf().where(float("nan"), near)
    return x.isnan().where(float("nan") if form.nan else 0.0, near)


def _power_of_two(exponent: Tensor) -> Tensor:
    return ((exponent.clamp(-126, 127) + 127) << 23).bitcast(dtypes.float32)


def _powers(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """The type that has powers of two alone, from 2**-127 to 2**127, and NaN."""
    size = x.abs()
    bits = size.bitcast(dtypes.int32)
    exponent, rest = bits >> 23, bits & 0x7fffff
    if round_mode == "nearest":
        exponent = exponent + ((rest > 0x400000) | ((rest == 0x400000) & (exponent > 0)))
    elif round_mode == "up":
        exponent = exponent + (rest > 0)
    most = 254
    beyond = exponent > most
    low = Tensor.full((), 2.0 ** -127, dtype=dtypes.float32, device=x.device)
    value = (exponent == 0).where(low, ((exponent.clamp(1, most)) << 23).bitcast(dtypes.float32))
    if not saturate:
        value = beyond.where(float("nan"), value)
    return x.isnan().where(float("nan"), value)
