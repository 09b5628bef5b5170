"""Pooling as layers: each is the method of tensors that has its name."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from impl.nn.methods import Method
from impl.nn.module import Module
from impl.tensor import Tensor

__all__ = ["AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d",
           "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d",
           "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d",
           "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"]

_Sizes = int | Sequence[int]


class MaxPool1d(Method):
    """The greatest element of each window of (..., length)."""

    method = "max_pool1d"

    def __init__(self, kernel_size: _Sizes, stride: _Sizes | None = None, padding: _Sizes = 0,
                 dilation: _Sizes = 1, return_indices: bool = False,
                 ceil_mode: bool = False) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode


class MaxPool2d(MaxPool1d):
    """The greatest element of each window of (..., height, width)."""

    method = "max_pool2d"


class MaxPool3d(MaxPool1d):
    """The greatest element of each window of (..., depth, height, width)."""

    method = "max_pool3d"


class MaxUnpool1d(Module):
    """Each element at the place that a MaxPool1d with `return_indices=True` told, else 0."""

    method = "max_unpool1d"

    def __init__(self, kernel_size: _Sizes, stride: _Sizes | None = None,
                 padding: _Sizes = 0) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, input: Tensor, indices: Tensor,
                output_size: Sequence[int] | None = None) -> Any:
        return getattr(input, self.method)(indices, self.kernel_size, self.stride, self.padding,
                                           output_size)


class MaxUnpool2d(MaxUnpool1d):
    """Each element at the place that a MaxPool2d told."""

    method = "max_unpool2d"


class MaxUnpool3d(MaxUnpool1d):
    """Each element at the place that a MaxPool3d told."""

    method = "max_unpool3d"


class AvgPool1d(Method):
    """The mean of each window of (..., length)."""

    method = "avg_pool1d"

    def __init__(self, kernel_size: _Sizes, stride: _Sizes | None = None, padding: _Sizes = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad


class AvgPool2d(AvgPool1d):
    """The mean of each window of (..., height, width); `divisor_override` divides the sums."""

    method = "avg_pool2d"

    def __init__(self, kernel_size: _Sizes, stride: _Sizes | None = None, padding: _Sizes = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: int | None = None) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override


class AvgPool3d(AvgPool2d):
    """The mean of each window of (..., depth, height, width)."""

    method = "avg_pool3d"


class LPPool1d(Method):
    """The norm of each window of (..., length), without its absolute values."""

    method = "lp_pool1d"

    def __init__(self, norm_type: float, kernel_size: _Sizes, stride: _Sizes | None = None,
                 ceil_mode: bool = False) -> None:
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode


class LPPool2d(LPPool1d):
    """The norm of each window of (..., height, width)."""

    method = "lp_pool2d"


class LPPool3d(LPPool1d):
    """The norm of each window of (..., depth, height, width)."""

    method = "lp_pool3d"


class AdaptiveAvgPool1d(Method):
    """Means of windows such that the result has a given size; None keeps that of an axis."""

    method = "adaptive_avg_pool1d"

    def __init__(self, output_size: int | None | Sequence[int | None]) -> None:
        self.output_size = output_size


class AdaptiveAvgPool2d(AdaptiveAvgPool1d):
    """Means of windows such that the last two axes have a given size."""

    method = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(AdaptiveAvgPool1d):
    """Means of windows such that the last three axes have a given size."""

    method = "adaptive_avg_pool3d"


class AdaptiveMaxPool1d(Method):
    """Greatest elements of windows such that the result has a given size."""

    method = "adaptive_max_pool1d"

    def __init__(self, output_size: int | None | Sequence[int | None],
                 return_indices: bool = False) -> None:
        self.output_size, self.return_indices = output_size, return_indices


class AdaptiveMaxPool2d(AdaptiveMaxPool1d):
    """Greatest elements of windows such that the last two axes have a given size."""

    method = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(AdaptiveMaxPool1d):
    """Greatest elements of windows such that the last three axes have a given size."""

    method = "adaptive_max_pool3d"
