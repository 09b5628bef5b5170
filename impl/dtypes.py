"""Element types, their limits and how they promote. Chapter: spec/dtypes.md."""
from __future__ import annotations

import functools
import math
import struct
from typing import Any

from impl.errors import ComplexError, DTypeError, LibraryMissingError, nearest
from impl.host import np

Scalar = bool | int | float


class DType:
    """One element type. There is one object per type, so identity is equality.

    `kind` is 'b' (bool), 'i' (signed), 'u' (unsigned), 'f' (floating) or 'c' (complex: a pair of
    real tensors, and in no node). `itemsize` is in bytes.
    """

    __slots__ = ("name", "kind", "itemsize", "rank", "numpy")

    numpy: Any  # NumPy's dtype of such elements, found when it is first asked for

    def __init__(self, name: str, kind: str, itemsize: int, rank: int) -> None:
        self.name, self.kind, self.itemsize, self.rank = name, kind, itemsize, rank

    def __getattr__(self, name: str) -> Any:
        if name != "numpy":
            raise AttributeError(f"a DType has no {name}")
        self.numpy = np.dtype(_ON_HOST.get(self.name, self.name))
        return self.numpy

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return _by_name, (self.name,)

    @property
    def min(self) -> Scalar:
        """The least value; minus infinity for floating types."""
        if self.kind == "f":
            return -math.inf
        if self.kind == "i":
            return -(1 << (8 * self.itemsize - 1))
        return False if self.kind == "b" else 0

    @property
    def max(self) -> Scalar:
        """The greatest value; infinity for floating types."""
        if self.kind == "f":
            return math.inf
        if self.kind == "b":
            return True
        return (1 << (8 * self.itemsize - (1 if self.kind == "i" else 0))) - 1


#: NumPy has no bfloat16: on the host its bits are kept in a uint16.
_ON_HOST = {"bfloat16": "uint16", "index": "int64"}


def _by_name(name: str) -> DType:
    found: DType = getattr(dtypes, name)
    return found


class _Defaults(type):
    """The class of `dtypes`, of which two attributes can be set."""

    #: Those in force. A captured function looks whether it is the same pair.
    defaults: tuple[DType, DType]
    _pairs: dict[tuple[DType, DType], tuple[DType, DType]] = {}

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
    # Pairs of real tensors have them, and no node.
    complex64 = DType("complex64", "c", 8, 13)
    complex128 = DType("complex128", "c", 16, 14)
    #: Index arithmetic inside kernels: 64 bits, so that no shape overflows it.
    index = DType("index", "i", 8, 7)

    half, float, double = float16, float32, float64
    char, uchar, short, ushort = int8, uint8, int16, uint16
    int, uint, long, ulong = int32, uint32, int64, uint64
    cfloat, cdouble = complex64, complex128
    default_float, default_int = float32, int32
    defaults = _Defaults._pairs[float32, int32] = float32, int32


#: Every type that a tensor can have, in order of promotion rank.
ALL: tuple[DType, ...] = tuple(sorted(
    {d for d in vars(dtypes).values()
     if isinstance(d, DType) and d is not dtypes.index and d.kind != "c"},
    key=lambda d: d.rank))
#: Stored in 16 bits, and accumulated in float32.
HALF = (dtypes.float16, dtypes.bfloat16)


# Each type points to the next wider types. The promotion of two types is the least type that both
# reach. It is JAX's lattice, without its weak types: no two integers ever promote to a float.
_WIDER: dict[DType, tuple[DType, ...]] = {
    dtypes.bool: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,), dtypes.int16: (dtypes.int32,), dtypes.int32: (dtypes.int64,),
    dtypes.uint8: (dtypes.int16, dtypes.uint16), dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.int64: HALF,
    dtypes.uint64: HALF,
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


_REACHES = {d: _reachable(d) for d in ALL}


def least_upper_dtype(*given: DType) -> DType:
    """The least type to which all the given types convert without an upward surprise.

    r[dtypes.promote.least]: the least common element of the lattice.
    """
    if len(given) == 1 or all(d is given[0] for d in given):
        return given[0]
    common = frozenset.intersection(*(_REACHES[d] for d in given))
    # uint64 with a signed integer has no integer above both: the default float is meant.
    least = min(common, key=lambda d: d.rank)  # r[impl dtypes.promote.least]
    if least in HALF and not any(d.kind == "f" for d in given):
        return dtypes.default_float
    return least


@functools.cache
def promoted(a: DType, b: DType) -> DType:
    """`least_upper_dtype` of two, remembered."""
    return least_upper_dtype(a, b)


def sum_accumulator(dtype: DType) -> DType:
    """The type in which a sum or product of `dtype` is accumulated: half types use float32."""
    return dtypes.float32 if dtype in HALF else dtype


def sum_result(dtype: DType) -> DType:
    """The type of `Tensor.sum`: small integers and bool widen, as in PyTorch and tinygrad."""
    if dtype.kind == "f":
        return dtype
    if dtype.kind == "u":
        return least_upper_dtype(dtype, dtypes.uint32)
    return least_upper_dtype(dtype, dtypes.int32)


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
        return _from_numpy()[np.dtype(value)]
    # ValueError: of a tensor, which has a `dtype`. Without NumPy there are no names of it
    except (KeyError, TypeError, ValueError, LibraryMissingError):
        if complex_dtype(value) is not None:  # r[impl dtypes.complex.pairs]
            raise ComplexError("dtype", f"{value!r} is that of a pair of real tensors",
                               "make it of both parts: torch.complex(real, imag)") from None
        names = [d.name for d in ALL]
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


def wrap(value: Scalar, dtype: DType) -> Scalar:
    """Convert a Python number to one that `dtype` can hold, as a cast at run time would."""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind == "f":
        return _round_float(value if value.__class__ is float else _as_float(value, dtype), dtype)
    bits = 8 * dtype.itemsize
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


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 to nearest-even bfloat16; the bits come back as uint16, same shape."""
    bits = np.asarray(values, np.float32, order="C").view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """The float32 values of bfloat16 bits held as uint16, same shape."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
