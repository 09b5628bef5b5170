"""Element types, their limits and how they promote. Chapter: spec/dtypes.md."""
from __future__ import annotations

import functools
import math
import struct
from typing import Any, NamedTuple

from impl.errors import ComplexError, DTypeError, LibraryMissingError, nearest
from impl.host import np

Scalar = bool | int | float


class DType:
    """One element type. There is one object per type, so identity is equality.

    `kind` is 'b' (bool), 'i' (signed), 'u' (unsigned), 'f' (floating) or 'c' (complex: a pair of
    real tensors, and in no node). `itemsize` is in bytes; `bits` are those that count. `numpy` is
    what holds an element on the host, and `host` what a user sees there, which takes a cast where
    the type is not `plain`.
    """

    __slots__ = ("name", "kind", "itemsize", "rank", "numpy", "host", "bits", "plain")

    numpy: Any  # NumPy's dtype of what holds an element, found when it is first asked for
    host: Any

    def __init__(self, name: str, kind: str, itemsize: int, rank: float, bits: int = 0) -> None:
        self.name, self.kind, self.itemsize, self.rank = name, kind, itemsize, rank
        self.bits = bits or 8 * itemsize
        self.plain = not bits and (kind != "f" or name not in _ON_HOST)

    def __getattr__(self, name: str) -> Any:
        if name not in ("numpy", "host"):
            raise AttributeError(f"a DType has no {name}")
        self.numpy = np.dtype(_ON_HOST.get(self.name, self.name))
        self.host = self.numpy if self.plain or self.kind != "f" else np.dtype("float32")
        return getattr(self, name)

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return _by_name, (self.name,)

    @property
    def is_floating_point(self) -> bool:
        """Whether it is a floating type."""
        return self.kind == "f"

    @property
    def is_complex(self) -> bool:
        """Whether it stands for complex numbers."""
        return self.kind == "c"

    @property
    def is_signed(self) -> bool:
        """Whether it has numbers below 0."""
        return self.kind in "ifc"

    @property
    def min(self) -> Scalar:
        """The least value; minus infinity for floating types that have it."""
        if self.kind == "f":
            return -self.max
        if self.kind == "i":
            return -(1 << (self.bits - 1))
        return False if self.kind == "b" else 0

    @property
    def max(self) -> Scalar:
        """The greatest value; infinity for floating types that have it."""
        if self.kind == "f":
            return 448.0 if self is dtypes.float8_e4m3fn else math.inf
        if self.kind == "b":
            return True
        return (1 << (self.bits - (1 if self.kind == "i" else 0))) - 1


#: NumPy has no bfloat16: on the host its bits are kept in a uint16. So are others that it lacks.
_ON_HOST = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8",
            "int4": "int8", "uint4": "uint8", "index": "int64"}


def _by_name(name: str) -> DType:
    found: DType = getattr(dtypes, name)
    return found


class _Defaults(type):
    """The class of `dtypes`, of which two attributes can be set."""

    #: Those in force. A captured function looks whether it is the same pair.
    defaults: tuple[DType, DType]
    _pairs: dict[tuple[DType, DType], tuple[DType, DType]] = {}

    # As tinygrad asks.

    def is_float(cls, dtype: Any) -> bool:
        """Whether a dtype is floating."""
        return as_dtype(dtype).kind == "f"

    def is_int(cls, dtype: Any) -> bool:
        """Whether it is of integers, signed or not."""
        return as_dtype(dtype).kind in "iu"

    def is_unsigned(cls, dtype: Any) -> bool:
        """Whether it is of integers from 0 on."""
        return as_dtype(dtype).kind == "u"

    def is_bool(cls, dtype: Any) -> bool:
        """Whether it is of truth values."""
        return as_dtype(dtype).kind == "b"

    def __setattr__(cls, name: str, value: Any) -> None:
        """Choose the dtype of numbers where none is said.

        Raises:
            DTypeError: it is of another kind, or another attribute is set.
        """
        kind = {"default_float": "f", "default_int": "i"}.get(name)
        if kind is None:
            raise DTypeError("dtypes", f"{name} cannot be set", "set default_float or default_int")
        wanted = as_dtype(value)
        if wanted.kind != kind:
            raise DTypeError("dtypes", f"{name} cannot be {wanted.name}",
                             "take a floating dtype" if kind == "f" else "take a signed integer")
        type.__setattr__(cls, name, wanted)
        pair = dtypes.default_float, dtypes.default_int
        type.__setattr__(cls, "defaults", _Defaults._pairs.setdefault(pair, pair))
        promoted.cache_clear()  # r[impl dtypes.default.set]


class dtypes(metaclass=_Defaults):  # noqa: N801  (the field writes dtypes.float32)
    """The element types, as attributes, and the two that are taken where none is said."""

    bool = DType("bool", "b", 1, 0)
    int8 = DType("int8", "i", 1, 1)
    uint8 = DType("uint8", "u", 1, 2)
    int16 = DType("int16", "i", 2, 3)
    uint16 = DType("uint16", "u", 2, 4)
    int32 = DType("int32", "i", 4, 5)
    uint32 = DType("uint32", "u", 4, 6)
    int64 = DType("int64", "i", 8, 7)
    uint64 = DType("uint64", "u", 8, 8)
    float16 = DType("float16", "f", 2, 9)
    bfloat16 = DType("bfloat16", "f", 2, 10)
    float32 = DType("float32", "f", 4, 11)
    float64 = DType("float64", "f", 8, 12)
    # In no kernel: there they are bits and a float32, or an integer of 8 bits.
    float8_e4m3fn = DType("float8_e4m3fn", "f", 1, 8.2)
    float8_e5m2 = DType("float8_e5m2", "f", 1, 8.4)
    int4 = DType("int4", "i", 1, 0.2, bits=4)
    uint4 = DType("uint4", "u", 1, 0.4, bits=4)
    # Pairs of real tensors have them, and no node.
    complex64 = DType("complex64", "c", 8, 13)
    complex128 = DType("complex128", "c", 16, 14)
    #: Index arithmetic inside kernels: 64 bits, so that no shape overflows it.
    index = DType("index", "i", 8, 7)

    half, float, double = float16, float32, float64
    char, uchar, short, ushort = int8, uint8, int16, uint16
    int, uint, long, ulong = int32, uint32, int64, uint64
    cfloat, cdouble = complex64, complex128
    fp8e4m3, fp8e5m2 = float8_e4m3fn, float8_e5m2
    default_float, default_int = float32, int32
    defaults = _Defaults._pairs[float32, int32] = float32, int32


#: Floats of 8 bits and integers of 4, which tensors have and kernels do not.
FLOAT8 = (dtypes.float8_e4m3fn, dtypes.float8_e5m2)
INT4 = (dtypes.int4, dtypes.uint4)
NARROW = frozenset((*FLOAT8, *INT4))
#: Every type that a tensor can have, in order of promotion rank; and those of kernels.
EVERY: tuple[DType, ...] = tuple(sorted(
    {d for d in vars(dtypes).values()
     if isinstance(d, DType) and d is not dtypes.index and d.kind != "c"},
    key=lambda d: d.rank))
ALL: tuple[DType, ...] = tuple(d for d in EVERY if d not in NARROW)
#: Bits of the significand: all whole numbers of that many bits are numbers of the type.
SIGNIFICANDS = {dtypes.float8_e4m3fn: 4, dtypes.float8_e5m2: 3, dtypes.float16: 11,
                dtypes.bfloat16: 8, dtypes.float32: 24, dtypes.float64: 53}
#: Stored in 16 bits, and accumulated in float32.
HALF = (dtypes.float16, dtypes.bfloat16)
#: All of 16 bits and fewer, in which no formula is computed step by step.
SHORT_FLOATS = (*HALF, *FLOAT8)


# Each type points to the next wider types. The promotion of two types is the least type that both
# reach. It is JAX's lattice, without its weak types: no two integers ever promote to a float.
_WIDER: dict[DType, tuple[DType, ...]] = {
    dtypes.bool: INT4, dtypes.int4: (dtypes.int8,), dtypes.uint4: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,), dtypes.int16: (dtypes.int32,), dtypes.int32: (dtypes.int64,),
    dtypes.uint8: (dtypes.int16, dtypes.uint16), dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.int64: FLOAT8,
    dtypes.uint64: FLOAT8,
    dtypes.float8_e4m3fn: HALF, dtypes.float8_e5m2: HALF,
    dtypes.float16: (dtypes.float32,), dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,), dtypes.float64: (),
}


def _reachable(dtype: DType) -> frozenset[DType]:
    found, todo = {dtype}, [dtype]
    while todo:
        for wider in _WIDER[todo.pop()]:
            if wider not in found:
                found.add(wider)
                todo.append(wider)
    return frozenset(found)


_REACHES = {d: _reachable(d) for d in EVERY}


def least_upper_dtype(*given: DType) -> DType:
    """The least type to which all the given types convert without an upward surprise.

    r[dtypes.promote.least]: the least common element of the lattice.
    """
    if len(given) == 1 or all(d is given[0] for d in given):
        return given[0]
    common = frozenset.intersection(*(_REACHES[d] for d in given))
    # uint64 with a signed integer has no integer above both: the default float is meant.
    least = min(common, key=lambda d: d.rank)  # r[impl dtypes.promote.least]
    if least.kind == "f" and not any(d.kind == "f" for d in given):
        return dtypes.default_float
    return least


@functools.cache
def promoted(a: DType, b: DType) -> DType:
    """`least_upper_dtype` of two, remembered."""
    return least_upper_dtype(a, b)


def sum_accumulator(dtype: DType) -> DType:
    """The type in which a sum or product of `dtype` is accumulated: short floats use float32."""
    return dtypes.float32 if dtype in SHORT_FLOATS else dtype


def sum_result(dtype: DType) -> DType:
    """The type of `Tensor.sum`: small integers and bool widen, to 32 bits or the default's."""
    if dtype.kind == "f":
        return dtype
    wide = dtypes.default_int.itemsize > 4  # r[impl dtypes.default.set]
    if dtype.kind == "u":
        return least_upper_dtype(dtype, dtypes.uint64 if wide else dtypes.uint32)
    return least_upper_dtype(dtype, dtypes.int64 if wide else dtypes.int32)


@functools.cache
def _from_numpy() -> dict[Any, DType]:
    """The types by those of NumPy."""
    return {d.numpy: d for d in ALL if d is not dtypes.bfloat16}


def as_dtype(value: Any) -> DType:
    """Turn a DType, its name, a NumPy dtype or a Python type into a DType.

    Raises:
        DTypeError: there is no such type.
        ComplexError: it is complex, which no node is.
    """
    if isinstance(value, DType) and value.kind != "c":
        return value
    if isinstance(value, type) and value in (bool, int, float):  # np.dtype("int64") == int
        return {bool: dtypes.bool, int: dtypes.default_int, float: dtypes.default_float}[value]
    named = getattr(dtypes, value, None) if isinstance(value, str) else None
    if isinstance(named, DType) and named.kind != "c":
        return named
    try:
        found = np.dtype(value)
        other = getattr(dtypes, found.name, None) if found.kind not in "biufcMmOSU" else None
        return other if other in EVERY else _from_numpy()[found]  # one of the package ml_dtypes
    # ValueError: of a tensor, which has a `dtype`. Without NumPy there are no names of it
    except (KeyError, TypeError, ValueError, LibraryMissingError):
        if complex_dtype(value) is not None:  # r[impl dtypes.complex.pairs]
            raise ComplexError("dtype", f"{value!r} is that of a pair of real tensors",
                               "make it of both parts: torch.complex(real, imag)") from None
        names = [d.name for d in EVERY]
        near = nearest(value, names) if isinstance(value, str) else ""
        raise DTypeError("dtype", f"{value!r} is not an element type",
                         f"{f'did you mean {near}? Else ' if near else ''}use one of "
                         f"{', '.join(names)}") from None


def complex_dtype(value: Any) -> DType | None:
    """The complex type that is named by a DType, its name, a NumPy dtype or `complex`, if it is."""
    if value is complex:
        return dtypes.complex128 if dtypes.default_float is dtypes.float64 else dtypes.complex64
    if isinstance(value, (str, np.dtype)) or isinstance(value, type) \
            and issubclass(value, np.complexfloating):
        named = getattr(dtypes, str(value) if isinstance(value, (str, np.dtype))
                        else value.__name__, None)
        value = named
    return value if isinstance(value, DType) and value.kind == "c" else None


def real_dtype(dtype: DType) -> DType:
    """The type of both parts of a complex one; of real numbers their own."""
    return {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}.get(dtype, dtype)


class FloatInfo(NamedTuple):
    """What a float holds; those of a complex type are those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType
    smallest_subnormal: float
    resolution: float

    @property
    def tiny(self) -> float:
        """The least normal number, as others call it."""
        return self.smallest_normal


class IntegerInfo(NamedTuple):
    """What an integer holds."""

    bits: int
    max: int
    min: int
    dtype: DType


#: The powers of two of the least and of the greatest normal numbers.
_POWERS = {dtypes.float8_e4m3fn: (-6, 8), dtypes.float8_e5m2: (-14, 15),
           dtypes.float16: (-14, 15), dtypes.bfloat16: (-126, 127), dtypes.float32: (-126, 127),
           dtypes.float64: (-1022, 1023)}


def finfo(dtype: Any = None) -> FloatInfo:
    """What a float dtype holds, by default the one in force.

    Raises:
        DTypeError: it is none.
    """
    named = dtypes.default_float if dtype is None else \
        complex_dtype(dtype) or as_dtype(getattr(dtype, "dtype", dtype))
    known = real_dtype(named)
    if known.kind != "f":
        raise DTypeError("finfo", f"{named!r} is no float dtype", "use iinfo")
    digits, (least, most) = SIGNIFICANDS[known], _POWERS[known]
    eps = 2.0 ** (1 - digits)
    greatest = known.max if known.max < math.inf else (2 - eps) * 2.0 ** most
    # r[impl dtypes.limits.told]
    return FloatInfo(8 * known.itemsize, eps, greatest, -greatest, 2.0 ** least, known,
                     2.0 ** (least - digits + 1),
                     10.0 ** -math.floor((digits - 1) * math.log10(2)))


def iinfo(dtype: Any) -> IntegerInfo:
    """What an integer dtype holds.

    Raises:
        DTypeError: it is none.
    """
    known = as_dtype(getattr(dtype, "dtype", dtype))
    if known.kind not in "iu":
        raise DTypeError("iinfo", f"{known!r} is no integer dtype", "use finfo")
    # r[impl dtypes.limits.told]
    return IntegerInfo(known.bits, int(known.max), int(known.min), known)


def wrap(value: Scalar, dtype: DType) -> Scalar:
    """Convert a Python number to one that `dtype` can hold, as a cast at run time would."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind == "f":
        return _round_float(value if value.__class__ is float else _as_float(value, dtype), dtype)
    bits = dtype.bits
    if isinstance(value, float):  # r[impl dtypes.cast.nearest]
        return 0 if math.isnan(value) else dtype.min if value <= dtype.min else \
            dtype.max if value >= dtype.max + 1 else int(value)
    whole = int(value) & ((1 << bits) - 1)  # r[impl dtypes.wraparound.integer]
    return whole - (1 << bits) if dtype.kind == "i" and whole >> (bits - 1) else whole


def _as_float(value: Scalar, dtype: DType) -> float:
    """A number as a float64 that rounds to `dtype` as the number itself does.

    A whole number of more than 53 digits keeps a mark of those that are cut off: without it what
    lies just above the middle of two float32 would be rounded to the middle, and then down.
    """
    try:
        extra = abs(value).bit_length() - 53 if isinstance(value, int) else 0
        if extra <= 0 or dtype is dtypes.float64:
            return float(value)
        magnitude = abs(int(value))
        kept = magnitude >> extra | (magnitude & ((1 << extra) - 1) != 0)
        return float(kept << extra if value > 0 else -(kept << extra))
    except OverflowError:  # an integer beyond all floats is rounded as the greatest are
        return math.inf if value > 0 else -math.inf


_SINGLE, _HALF = struct.Struct("f"), struct.Struct("e")
_WORD, _SIGNED = struct.Struct("I"), struct.Struct("i")


def _round_float(value: float, dtype: DType) -> float:
    if dtype is dtypes.float64:
        return value
    form = _HALF if dtype is dtypes.float16 else _SINGLE
    try:
        rounded: float = form.unpack(form.pack(value))[0]  # to the nearest, of two the even one
    except OverflowError:  # it is beyond the greatest, and nearer to what would be the next one
        rounded = math.copysign(math.inf, value)
    if dtype in FORMATS:
        return float8_value(float8_code(rounded, dtype), dtype)
    return _upper_half(rounded) if dtype is dtypes.bfloat16 else rounded


def float_bits(value: float) -> int:
    """The bits of a number as a float32, read as an int32."""
    found: int = _SIGNED.unpack(_SINGLE.pack(_round_float(float(value), dtypes.float32)))[0]
    return found


def _upper_half(value: float) -> float:
    """A float32, rounded to what its first 16 bits say, as `to_bfloat16` does."""
    if math.isnan(value):
        return value
    bits: int = _WORD.unpack(_SINGLE.pack(value))[0]
    kept = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    found: float = _SINGLE.unpack(_WORD.pack(kept))[0]
    return found


def float8_code(value: float, dtype: DType) -> int:
    """The bits of a float32 that is rounded to a float of 8 bits, as `to_bits` finds them."""
    digits, bias, most, nan = FORMATS[dtype]
    code = most + 1
    if math.isfinite(value):  # `round` takes the even one of two
        power = max(math.frexp(value)[1] - 1, bias - 126) if value else bias - 126
        code = (power - bias + 126 << digits) + round(abs(value) / 2.0 ** (power - digits))
    if code > most:
        code = nan if math.isnan(value) or dtype is dtypes.float8_e4m3fn else most
    return code | (0x80 if math.copysign(1.0, value) < 0 else 0)


def float8_value(code: int, dtype: DType) -> float:
    """The number that the bits of a float of 8 bits stand for."""
    digits, bias, most, _ = FORMATS[dtype]
    size, power = code & 0x7F, (code & 0x7F) >> digits
    whole = (size & (1 << digits) - 1) + (1 << digits if power else 0)
    value = whole * 2.0 ** (max(power, 1) + bias - 127 - digits)
    if size >= most and dtype is dtypes.float8_e5m2:
        value = math.inf if size == most else math.nan
    elif size > most:
        value = math.nan
    return -value if code > 127 else value


def to_bits(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Round float32 to nearest, ties to even; the bits come back as `dtype.numpy`, same shape."""
    return to_bfloat16(values) if dtype is dtypes.bfloat16 else _to_float8(values, dtype)


def from_bits(bits: np.ndarray, dtype: DType) -> np.ndarray:
    """The float32 values of bits of a dtype that NumPy has not, same shape."""
    return from_bfloat16(bits) if dtype is dtypes.bfloat16 else _float8_table(dtype)[bits]


class Float8(NamedTuple):
    """How a float of 8 bits differs from a float32: what is added to exponents, and the ends."""

    digits: int  # behind the point
    bias: int    # of float32, less its own
    most: int    # the bits of the greatest number that is no NaN
    nan: int


#: r[impl dtypes.narrow.rounded]
FORMATS = {dtypes.float8_e4m3fn: Float8(3, 120, 0x7E, 0x7F),
           dtypes.float8_e5m2: Float8(2, 112, 0x7C, 0x7E)}


def _to_float8(values: np.ndarray, dtype: DType) -> np.ndarray:
    digits, bias, most, nan = FORMATS[dtype]
    bits = np.require(values, np.float32, "C").view(np.uint32)
    size, drop = bits & 0x7FFFFFFF, 23 - digits
    even = (size >> drop) & 1
    code = ((size + ((1 << drop - 1) - 1) + even) >> drop).astype(np.int64) - (bias << digits)
    # A sum with this number is rounded to the least step of the type.
    step = np.float32(2.0 ** (bias - 127 - digits + 24))
    least = (size.view(np.float32) + step).view(np.uint32) - step.view(np.uint32)
    code = np.where(size < (bias + 1) << 23, least, code)
    code = np.where(code > most, nan if dtype is dtypes.float8_e4m3fn else most, code)
    code = np.where(size > 0x7F800000, nan, code)
    return (code | bits >> 24 & 0x80).astype(np.uint8)


@functools.cache
def _float8_table(dtype: DType) -> np.ndarray:
    """The value of each of 256 codes."""
    return np.array([float8_value(code, dtype) for code in range(256)], np.float32)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 to nearest-even bfloat16; the bits come back as uint16, same shape."""
    bits = np.asarray(values, np.float32, order="C").view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """The float32 values of bfloat16 bits held as uint16, same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
