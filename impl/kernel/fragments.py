"""Which elements of a small matrix the lanes of a warp hold. Chapter: spec/kernel.md.

A *unit* multiplies matrices of fixed sizes that lie in the registers of a warp. Each lane has a
*fragment* of each: some elements, by its number. A lane's number is written in digits, and so is
the number of an element in its fragment; the row and the column of an element are sums over both.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from impl import settings
from impl.dtypes import DType, dtypes
from impl.ir import UOp

#: Lanes of a warp, of every unit.
WARP = 32
#: A digit of a number: how many values it has, and what one adds to the row and to the column.
Digit = tuple[int, int, int]


@dataclass(frozen=True)
class Fragment:
    """The part of a matrix in one lane: `lanes` are the digits of the lane's number, the greatest
    first, and `elements` those of an element in its fragment.
    """

    lanes: tuple[Digit, ...]
    elements: tuple[Digit, ...] = ()

    def places(self) -> Iterator[tuple[int, int]]:
        """The row and column of each element: those of the first lane, of the second, and so on."""
        digits = (*self.lanes, *self.elements)
        for values in itertools.product(*(range(size) for size, _, _ in digits)):
            yield (sum(v * row for v, (_, row, _) in zip(values, digits, strict=True)),
                   sum(v * column for v, (_, _, column) in zip(values, digits, strict=True)))

    @property
    def size(self) -> int:
        """How many elements a lane has."""
        return math.prod(size for size, _, _ in self.elements)


@dataclass(frozen=True)
class Unit:
    """sum[rows, columns] + first[rows, depth] @ second[depth, columns], in float32.

    `dtype` is the type of the operands. `word` elements of a fragment are one register.
    """

    name: str
    dtype: DType
    rows: int
    columns: int
    depth: int
    first: Fragment
    second: Fragment
    sum: Fragment
    word: int = 1
    exact: bool = True  # whether it multiplies the numbers that it is given, and no rounded ones

    @property
    def lanes(self) -> tuple[int, ...]:
        """How many values each digit of a lane's number has."""
        return tuple(size for size, _, _ in self.sum.lanes)


_PAIR = 2, 0, 1
_EIGHT = (8, 1, 0), (4, 0, 2)                   # lane / 4 is the row, 2 * (lane % 4) the column
_TURNED = (8, 0, 1), (4, 2, 0)
_SUM = Fragment(_EIGHT, ((2, 8, 0), _PAIR))
_QUADS = (2, 4, 0), (2, 0, 4), (4, 1, 0), (2, 0, 2)
_SIMD = Fragment(_QUADS, (_PAIR,))
_LONG = (Fragment(_EIGHT, ((2, 0, 8), (2, 8, 0), _PAIR)),
         Fragment(_TURNED, ((2, 8, 0), (2, 1, 0))), _SUM)
_SHORT = (Fragment(_EIGHT, ((2, 8, 0), _PAIR)), Fragment(_TURNED, ((2, 1, 0),)), _SUM)
_WHOLE = (Fragment(((8, 1, 0), (4, 0, 1)), ((2, 0, 4), (2, 8, 0))),
          Fragment(((8, 0, 1), (4, 1, 0)), ((2, 4, 0),)), _SUM)
#: Step TC names a unit by its place here.
UNITS = (
    Unit("m16n8k16_float16", dtypes.float16, 16, 8, 16, *_LONG, word=2),
    Unit("m16n8k16_bfloat16", dtypes.bfloat16, 16, 8, 16, *_LONG, word=2),
    Unit("m16n8k8_float16", dtypes.float16, 16, 8, 8, *_SHORT, word=2),
    Unit("m16n8k8_tf32", dtypes.float32, 16, 8, 8, *_WHOLE, exact=False),
    Unit("simdgroup_float16", dtypes.float16, 8, 8, 8, _SIMD, _SIMD, _SIMD),
    Unit("simdgroup_float32", dtypes.float32, 8, 8, 8, _SIMD, _SIMD, _SIMD),
)
UNIT_OF = {unit.name: unit for unit in UNITS}


def units_of_nvidia(capability: int) -> tuple[str, ...]:
    """The units of a GPU of NVIDIA: `capability` is 80 for sm_80.

    TF32 has the range of float32 and 10 bits of its mantissa: it is used only if that is allowed.
    """
    # r[impl groups.matrices.exact, cuda.text.legal]
    if not settings.get("TENSOR_CORES") or capability < 75:
        return ()
    if capability < 80:
        return ("m16n8k8_float16",)
    more = ("m16n8k8_tf32",) if settings.get("ALLOW_TF32") else ()
    return ("m16n8k16_float16", "m16n8k16_bfloat16", *more)


def units_of_metal() -> tuple[str, ...]:
    """The units of a GPU under Metal; bfloat16 becomes float32 first, which is exact."""
    return ("simdgroup_float16", "simdgroup_float32") if settings.get("TENSOR_CORES") else ()


def loops_of(node: UOp) -> tuple[tuple[UOp, ...], ...]:
    """The loops of an MMA: over lanes, and over the elements of its three fragments."""
    unit, rest, found = UNIT_OF[node.arg], node.src[3:], []
    for digits in (unit.lanes, *(each.elements for each in (unit.first, unit.second, unit.sum))):
        found.append(rest[:len(digits)])
        rest = rest[len(digits):]
    return tuple(found)
