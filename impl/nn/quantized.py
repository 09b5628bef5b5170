"""Weights that stay packed: blocks of a few bits, as files of GGUF have them.

A block has some numbers of few bits, and what they are scaled by. It stays in its bytes: the kernel
that needs the weights reads those, and makes numbers of them as it goes. So a network of four bits
a weight takes an eighth of the memory that float32 takes, and a token reads an eighth as much.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from impl.dtypes import DType, dtypes
from impl.errors import ArgumentError
from impl.nn.module import Module
from impl.tensor import Tensor

__all__ = ["HALVES", "KINDS", "Kind", "Quantized", "QuantizedEmbedding", "QuantizedLinear"]


class Kind(NamedTuple):
    """How numbers are packed: in a block there are `size` of them, in `nbytes` bytes.

    `numbers` makes (..., and any axes with `size` elements) of (..., block), where a block is so
    many bytes, or the elements of another dtype that have as many.
    """

    name: str
    size: int
    nbytes: int
    numbers: Callable[[Tensor], Tensor]
    dtype: DType = dtypes.uint8


@dataclass(frozen=True, eq=False)
class Quantized:
    """A tensor that is packed: `packed` is (..., blocks, block), `kind` says how."""

    packed: Tensor
    kind: Kind

    def __post_init__(self) -> None:
        length = self.kind.nbytes // self.kind.dtype.itemsize
        if self.packed.dtype is not self.kind.dtype or self.packed.shape[-1] != length:
            raise ArgumentError("Quantized", f"{self.packed.dtype} of shape {self.packed.shape} "
                                f"for {self.kind.name}", f"give {self.kind.dtype.name} in blocks "
                                f"of {length}: (..., blocks, {length})")

    @property
    def shape(self) -> tuple[int, ...]:
        """That of its numbers."""
        *rows, blocks, _ = self.packed.shape
        return *rows, blocks * self.kind.size

    def numbers(self) -> Tensor:
        """Its numbers, as an expression of the bytes: who uses them makes them."""
        return self.kind.numbers(self.packed).reshape(*self.shape)

    def linear(self, x: Tensor) -> Tensor:
        """x @ numbers.T, for a matrix; x: (..., columns)."""
        if any(size != 1 for size in x.shape[:-1]):
            return x @ self.numbers().T
        # One row reads each weight once: so the numbers are added up block by block, as they lie.
        weights = self.kind.numbers(self.packed)
        products = x.reshape(1, *weights.shape[1:]) * weights
        return products.sum(tuple(range(1, products.ndim))).reshape(*x.shape[:-1], -1)

    def rows(self, index: Tensor) -> Tensor:
        """The rows with these numbers, of which only the bytes are read."""
        found = self.kind.numbers(self.packed[index])
        return found.reshape(*index.shape, *self.shape[1:])


class QuantizedLinear(Module):
    """y = x @ weight.T, where the weight is packed. It does not learn; x has a gradient."""

    packed: Tensor

    def __init__(self, weight: Quantized) -> None:
        self.out_features, self.in_features = weight.shape
        self.kind = weight.kind
        self.register_buffer("packed", weight.packed)

    @property
    def weight(self) -> Quantized:
        """What it multiplies by."""
        return Quantized(self.packed, self.kind)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight.linear(x)


class QuantizedEmbedding(Module):
    """The rows of a packed table. It does not learn."""

    packed: Tensor

    def __init__(self, weight: Quantized) -> None:
        self.num_embeddings, self.embedding_dim = weight.shape
        self.kind = weight.kind
        self.register_buffer("packed", weight.packed)

    @property
    def weight(self) -> Quantized:
        """The table."""
        return Quantized(self.packed, self.kind)

    def forward(self, input: Tensor) -> Tensor:
        return self.weight.rows(input)


# ---------------------------------------------------------------- parts of a block

def _bits(packed: Tensor, width: int, *counts: int) -> Tensor:
    """Numbers of `width` bits: (..., n) of bytes to (..., *counts, n), the lowest bits first.

    They are uint32: processors shift vectors of these, and none of bytes.
    """
    counts = counts or (8 // width,)
    shifts = Tensor.arange(math.prod(counts), dtype=dtypes.uint32, device=packed.device) * width
    parts = packed.reshape(*packed.shape[:-1], *[1] * len(counts), packed.shape[-1])
    return (parts.cast(dtypes.uint32) >> shifts.reshape(*counts, 1)) & (2 ** width - 1)


def _cut(packed: Tensor, *axes: int) -> Tensor:
    """The last axis as several."""
    return packed.reshape(*packed.shape[:-1], *axes)


def _word(blocks: Tensor, start: int, count: int) -> Tensor:
    """The whole number that so many bytes of each block are."""
    dtype = dtypes.uint16 if count == 2 else dtypes.uint32
    found = blocks[..., start].cast(dtype)
    for place in range(1, count):
        found = found | (blocks[..., start + place].cast(dtype) << 8 * place)
    return found


def _half(blocks: Tensor, start: int, axes: int) -> Tensor:
    """The float16 at a place of each block, with so many axes behind it."""
    found = _word(blocks, start, 2).bitcast(dtypes.float16).float()
    return found.reshape(*found.shape, *[1] * axes)


def _signed(packed: Tensor) -> Tensor:
    return packed.bitcast(dtypes.int8).float()


# ---------------------------------------------------------------- blocks of 32

def _q4_0(blocks: Tensor) -> Tensor:
    return (_bits(blocks[..., 2:], 4).float() - 8) * _half(blocks, 0, 2)


def _q4_1(blocks: Tensor) -> Tensor:
    return _bits(blocks[..., 4:], 4).float() * _half(blocks, 0, 2) + _half(blocks, 2, 2)


def _fifth(blocks: Tensor, start: int) -> Tensor:
    """Numbers of five bits, whose fifth bits lie in four bytes before the others."""
    places = Tensor.arange(32, dtype=dtypes.uint32, device=blocks.device)
    upper = (_word(blocks, start, 4).unsqueeze(-1) >> places) & 1
    return (_bits(blocks[..., start + 4:], 4) | (_cut(upper, 2, 16) << 4)).float()


def _q5_0(blocks: Tensor) -> Tensor:
    return (_fifth(blocks, 2) - 16) * _half(blocks, 0, 2)


def _q5_1(blocks: Tensor) -> Tensor:
    return _fifth(blocks, 4) * _half(blocks, 0, 2) + _half(blocks, 2, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _signed(blocks[..., 2:]) * _half(blocks, 0, 1)


# ---------------------------------------------------------------- blocks of 256

# Where parts of a block are looked at together they have the same axes, none of them merged: so a
# kernel reads whole vectors, and no place is a quotient.

def _q2_k(blocks: Tensor) -> Tensor:
    """For each sixteen numbers a scale and a least value of four bits."""
    number = _cut(_bits(_cut(blocks[..., 16:80], 2, 32), 2), 2, 16).float()
    small = _cut(blocks[..., :16], 2, 4, 2, 1)
    return number * ((small & 15).float() * _half(blocks, 80, 4)) \
        - (small >> 4).float() * _half(blocks, 82, 4)


def _q3_k(blocks: Tensor) -> Tensor:
    """For each sixteen a scale of six bits; the third bits of the numbers lie before the others."""
    lower = _bits(_cut(blocks[..., 32:96], 2, 32), 2, 2, 2)
    upper = _bits(blocks[..., :32], 1, 2, 2, 2)
    number = _cut((lower | (upper << 2)).float() - 4, 2, 16)
    low = _cut(_bits(blocks[..., 96:104], 4), 2, 2, 2)
    high = _cut(_bits(blocks[..., 104:108], 2, 2, 2), 2, 2)
    scale = (low | (high << 4)).float() - 32
    return number * (scale.unsqueeze(-1) * _half(blocks, 108, 5))


def _scaled(blocks: Tensor, number: Tensor) -> Tensor:
    """(..., 2, 2, 2, 32) of numbers: eight parts, each with a scale and a least value of six bits.

    Of the second four parts their lower bits lie in the last four of the twelve bytes, and the
    upper two where the first four parts have none.
    """
    half = Tensor.arange(2, dtype=dtypes.uint32, device=blocks.device).reshape(2, 1)

    def six(low: Tensor, high: Tensor) -> Tensor:
        """What (..., 2, 4) of bytes, and (..., 4) with upper bits, make."""
        upper = (high.cast(dtypes.uint32).unsqueeze(-2) >> 6 << 4) * half
        return _cut((low & (63 - 48 * half) | upper).float(), 2, 2, 1)
    scale = six(_cut(blocks[..., 4:20], 2, 8)[..., :4].cast(dtypes.uint32), blocks[..., 4:8])
    least = six(_cut(blocks[..., 8:16], 2, 4).cast(dtypes.uint32) >> 4 * half, blocks[..., 8:12])
    return number.float() * (scale * _half(blocks, 0, 4)) - least * _half(blocks, 2, 4)


def _q4_k(blocks: Tensor) -> Tensor:
    return _scaled(blocks, _bits(_cut(blocks[..., 16:], 2, 2, 32), 4))


def _q5_k(blocks: Tensor) -> Tensor:
    lower = _bits(_cut(blocks[..., 48:], 2, 2, 32), 4)
    return _scaled(blocks, lower | (_bits(blocks[..., 16:48], 1, 2, 2, 2) << 4))


def _q6_k(blocks: Tensor) -> Tensor:
    """Numbers of four lower and two upper bits, and a scale for each sixteen."""
    lower = _cut(_bits(_cut(blocks[..., :128], 2, 64), 4), 2, 32)
    upper = _bits(_cut(blocks[..., 128:192], 2, 32), 2, 2, 2)
    number = _cut((lower | (upper << 4)).float() - 32, 2, 16)
    scale = _cut(_signed(blocks[..., 192:208]), 2, 2, 2, 2, 1)
    return number * (scale * _half(blocks, 208, 5))


def _q8_k(blocks: Tensor) -> Tensor:
    scale = _word(blocks, 0, 4).bitcast(dtypes.float32).unsqueeze(-1)
    return _signed(blocks[..., 4:260]) * scale


# ---------------------------------------------------------------- other numbers than whole ones

#: What four bits stand for, in steps of unequal length.
_UNEVEN = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
#: The same for floats of four bits, doubled.
_FLOAT4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _found(numbers: Sequence[int], packed: Tensor) -> Tensor:
    """What four bits stand for by a table."""
    return Tensor(list(numbers), dtype=dtypes.float32, device=packed.device)[_bits(packed, 4)]


def _iq4_nl(blocks: Tensor) -> Tensor:
    return _found(_UNEVEN, blocks[..., 2:]) * _half(blocks, 0, 2)


def _iq4_xs(blocks: Tensor) -> Tensor:
    """For each 32 a scale of six bits, of which the upper two lie before the others."""
    low = _bits(blocks[..., 4:8].unsqueeze(-1), 4).flatten(-3)
    high = _bits(blocks[..., 2:4].unsqueeze(-1), 2).flatten(-3)
    scale = _cut((low | (high << 4)).float() - 32, 8, 1, 1)
    return _found(_UNEVEN, _cut(blocks[..., 8:], 8, 16)) * (scale * _half(blocks, 0, 3))


def _mxfp4(blocks: Tensor) -> Tensor:
    """Floats of four bits with a power of two, of which half is meant: the table is doubled."""
    power = blocks[..., 0].cast(dtypes.uint32)
    bits = (power < 2).where(power * 0x200000 + 0x200000, (power.maximum(1) - 1) << 23)
    scale = bits.bitcast(dtypes.float32)
    return _found(_FLOAT4, blocks[..., 1:]) * scale.reshape(*scale.shape, 1, 1)


def _thirds(packed: Tensor, count: int) -> Tensor:
    """Numbers of three values, several in a byte, as (..., count, n): the first one highest."""
    powers = Tensor([3 ** place for place in range(count)], dtype=dtypes.uint8,
                    device=packed.device).reshape(-1, 1)
    digits = (packed.unsqueeze(-2) * powers).cast(dtypes.uint16)
    return ((digits * 3) >> 8).float().flatten(-2)


def _tq1_0(blocks: Tensor) -> Tensor:
    parts = ((0, 32, 5), (32, 48, 5), (48, 52, 4))
    digits = [_thirds(blocks[..., start:stop], count) for start, stop, count in parts]
    return (Tensor.cat(*digits, dim=-1) - 1) * _half(blocks, 52, 1)


def _tq2_0(blocks: Tensor) -> Tensor:
    return (_bits(_cut(blocks[..., :64], 2, 32), 2).float() - 1) * _half(blocks, 64, 3)


#: By the code that files of GGUF have for it.
KINDS: dict[int, Kind] = {code: Kind(name, size, nbytes, numbers)
                          for code, name, size, nbytes, numbers in (
    (2, "Q4_0", 32, 18, _q4_0), (3, "Q4_1", 32, 20, _q4_1), (6, "Q5_0", 32, 22, _q5_0),
    (7, "Q5_1", 32, 24, _q5_1), (8, "Q8_0", 32, 34, _q8_0), (10, "Q2_K", 256, 84, _q2_k),
    (11, "Q3_K", 256, 110, _q3_k), (12, "Q4_K", 256, 144, _q4_k), (13, "Q5_K", 256, 176, _q5_k),
    (14, "Q6_K", 256, 210, _q6_k), (15, "Q8_K", 256, 292, _q8_k),
    (20, "IQ4_NL", 32, 18, _iq4_nl), (23, "IQ4_XS", 256, 136, _iq4_xs),
    (34, "TQ1_0", 256, 54, _tq1_0), (35, "TQ2_0", 256, 66, _tq2_0),
    (39, "MXFP4", 32, 17, _mxfp4))}
#: Numbers of half the bytes, each a block of its own.
HALVES: dict[DType, Kind] = {dtype: Kind(name, 1, 2, Tensor.float, dtype) for dtype, name in (
    (dtypes.float16, "F16"), (dtypes.bfloat16, "BF16"))}
