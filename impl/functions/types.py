"""The types of C: how they are called in texts, how wide they are. Chapter: spec/functions.md.

A *kind* is a short name: `f32` is a float, `f32x16` a vector of 16. The truth of a comparison of
vectors is a *mask*: integers as wide as what was compared, 0 or -1.
"""
from __future__ import annotations

from impl.dtypes import DType, dtypes

SHORT = {"bool": "u8", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16",
         "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64", "index": "i64",
         "float16": "f32", "bfloat16": "f32", "float32": "f32", "float64": "f64"}
TYPES = {"u8": "unsigned char", "i8": "signed char", "i16": "short", "u16": "unsigned short",
         "i32": "int", "u32": "unsigned int", "i64": "long", "u64": "unsigned long",
         "f32": "float", "f64": "double"}
#: Not every compiler has a type for halves.
STORAGE = {dtypes.float16: "unsigned short", dtypes.bfloat16: "unsigned short"}
SIZES = {"u8": 1, "i8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
         "f32": 4, "f64": 8}
#: How functions begin that kernels call; see `words`.
INLINE = "@inline "


def kind_of(dtype: DType, count: int) -> str:
    """The kind of a vector with values of a dtype; that of bools depends on where they are from."""
    return f"{SHORT[dtype.name]}x{count}"


def type_and_lanes(kind: str) -> tuple[str, int]:
    """`f32x16` is ("f32", 16), and `f32` is ("f32", 0)."""
    short, _, count = kind.partition("x")
    return short, int(count or 0)


def type_name(kind: str) -> str:
    """How C calls a kind: float, f32x16."""
    return kind if "x" in kind else TYPES[kind]


def bits(kind: str) -> int:
    """The width of one element."""
    return 8 * SIZES[type_and_lanes(kind)[0]]


def _same_width(letter: str, kind: str) -> str:
    short, count = type_and_lanes(kind)
    name = f"{letter}{8 * SIZES[short]}"
    return f"{name}x{count}" if count else name


def mask_of(kind: str) -> str:
    """What comparing two vectors gives; for numbers, signed integers of the same width."""
    return _same_width("i", kind)


def unsigned(kind: str) -> str:
    """Unsigned integers of the same width."""
    return _same_width("u", kind)


def fill(text: str, kind: str) -> str:
    """A template for a kind: $K the kind, $J its integers, $F and $I their types, $U unsigned."""
    whole, (element, lanes) = mask_of(kind), type_and_lanes(kind)
    return (text.replace("$K", kind).replace("$J", whole).replace("$F", type_name(kind))
            .replace("$I", type_name(whole)).replace("$U", type_name(unsigned(kind)))
            .replace("$E", TYPES[element]).replace("$N", str(lanes)))


def whole_limits(source: str, target: str) -> tuple[str, str]:
    """The least and the greatest float of one type that an integer type holds, as C writes it."""
    width, digits = bits(target), 24 if source == "f32" else 53
    least, width = (0.0, width) if target[0] == "u" else (-2.0 ** (width - 1), width - 1)
    most = float((1 << width) - (1 << max(width - digits, 0)))
    suffix = "f" if source == "f32" else ""
    return f"{least.hex()}{suffix}", f"{most.hex()}{suffix}"
