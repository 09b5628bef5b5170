"""Methods named after a dtype, which convert to it. Chapter: spec/tensor.md.

They stand apart because a class that defines `float` cannot name the built-in `float` any more.
"""
from __future__ import annotations

from typing import Any, Self

from impl.dtypes import dtypes
from impl.tensor.statistics import Statistics


class Conversion(Statistics):
    """`t.float()` and the like."""

    __slots__ = ()

    def type(self, dtype: Any) -> Self:
        """The elements converted to another dtype."""
        return self.cast(dtype)

    def half(self) -> Self:
        """As float16."""
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """As bfloat16."""
        return self.cast(dtypes.bfloat16)

    def float(self) -> Self:
        """As float32."""
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        """As float64."""
        return self.cast(dtypes.float64)

    def cfloat(self) -> Any:
        """As complex64: a pair of real tensors."""
        return self.cast(dtypes.complex64)

    def cdouble(self) -> Any:
        """As complex128: a pair of real tensors."""
        return self.cast(dtypes.complex128)

    def int(self) -> Self:
        """As int32."""
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """As int64."""
        return self.cast(dtypes.int64)

    def bool(self) -> Self:
        """As bool: whether an element is not zero."""
        return self.cast(dtypes.bool)
