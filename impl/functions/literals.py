"""Numbers in C. Chapter: spec/functions.md."""
from __future__ import annotations

import math

from impl.dtypes import DType, Scalar, dtypes
from impl.functions.types import SHORT
from impl.functions.words import C_WORDS, Words


def literal(value: Scalar, dtype: DType, words: Words = C_WORDS) -> str:
    """A number that the compiler reads back exactly."""
    # r[impl functions.literal.exact]
    if dtype.kind != "f":
        return _whole(int(value), dtype)
    suffix, kind = ("", "f64") if dtype is dtypes.float64 else ("f", "f32")
    number = float(value)
    if math.isnan(number):
        return words[f"nan_{kind}"]
    if math.isinf(number):
        text = ("-" if number < 0 else "") + words[f"inf_{kind}"]
    elif number == int(number) and abs(number) < 1e6:
        text = f"{number:.1f}{suffix}"
    else:
        text = number.hex() + suffix
    # What is negative may follow another minus sign, and two of them are a decrement.
    return f"({text})" if math.copysign(1, number) < 0 else text


def _whole(value: int, dtype: DType) -> str:
    if value == -(1 << 63):
        return "(-9223372036854775807L - 1)"
    if value == -(1 << 31):
        return "(-2147483647 - 1)"
    suffix = {"u32": "u", "u64": "ul"}.get(SHORT[dtype.name], "")
    if dtype.itemsize == 8 and dtype.kind == "i" and abs(value) >= 1 << 31:
        suffix = "L"
    return f"({value}{suffix})" if value < 0 else f"{value}{suffix}"
