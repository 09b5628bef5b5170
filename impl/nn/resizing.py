"""Padding, resizing and patches of pictures as layers, and distances of vectors."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from impl.nn.convolution import each_axis
from impl.nn.methods import Method
from impl.nn.module import Module
from impl.tensor import Tensor

__all__ = ["ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d",
           "ConstantPad2d", "ConstantPad3d", "CosineSimilarity", "Fold", "PairwiseDistance",
           "PixelShuffle", "PixelUnshuffle", "ReflectionPad1d", "ReflectionPad2d",
           "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "Unfold",
           "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d",
           "ZeroPad3d"]

_Sizes = int | Sequence[int]


class _Pad(Module):
    """More elements before and after: one number, or two for each axis, the last axis first."""

    axes: ClassVar[int]
    mode: ClassVar[str] = "constant"

    def __init__(self, padding: _Sizes) -> None:
        self.padding = each_axis(padding, 2 * self.axes)

    def forward(self, input: Tensor) -> Tensor:
        return input.pad(self.padding, self.mode)


class ConstantPad1d(_Pad):
    """A number before and after (..., length)."""

    axes = 1

    def __init__(self, padding: _Sizes, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return input.pad(self.padding, "constant", self.value)


class ConstantPad2d(ConstantPad1d):
    """A number around (..., height, width)."""

    axes = 2


class ConstantPad3d(ConstantPad1d):
    """A number around (..., depth, height, width)."""

    axes = 3


class ZeroPad1d(_Pad):
    """Zeros around (..., length)."""

    axes = 1


class ZeroPad2d(ZeroPad1d):
    """Zeros around (..., height, width)."""

    axes = 2


class ZeroPad3d(ZeroPad1d):
    """Zeros around (..., depth, height, width)."""

    axes = 3


class ReflectionPad1d(_Pad):
    """The picture mirrored at its edges around (..., length)."""

    axes = 1
    mode = "reflect"


class ReflectionPad2d(ReflectionPad1d):
    """The picture mirrored at its edges around (..., height, width)."""

    axes = 2


class ReflectionPad3d(ReflectionPad1d):
    """The picture mirrored at its edges around (..., depth, height, width)."""

    axes = 3


class ReplicationPad1d(_Pad):
    """The edge repeated around (..., length)."""

    axes = 1
    mode = "replicate"


class ReplicationPad2d(ReplicationPad1d):
    """The edge repeated around (..., height, width)."""

    axes = 2


class ReplicationPad3d(ReplicationPad1d):
    """The edge repeated around (..., depth, height, width)."""

    axes = 3


class CircularPad1d(_Pad):
    """The other end around (..., length)."""

    axes = 1
    mode = "circular"


class CircularPad2d(CircularPad1d):
    """The other end around (..., height, width)."""

    axes = 2


class CircularPad3d(CircularPad1d):
    """The other end around (..., depth, height, width)."""

    axes = 3


class Upsample(Method):
    """The last axes with other sizes, or with sizes times a factor; `interpolate` has the modes."""

    method = "interpolate"

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                 align_corners: bool | None = None,
                 recompute_scale_factor: bool | None = None) -> None:
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor


class UpsamplingNearest2d(Upsample):
    """Upsample with mode "nearest"."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Upsample with mode "bilinear", corners upon corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Method):
    """(..., c * r * r, h, w) as (..., c, h * r, w * r)."""

    method = "pixel_shuffle"

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = upscale_factor


class PixelUnshuffle(Method):
    """(..., c, h * r, w * r) as (..., c * r * r, h, w)."""

    method = "pixel_unshuffle"

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = downscale_factor


class ChannelShuffle(Method):
    """Channels (axis 1) of all groups in turn."""

    method = "channel_shuffle"

    def __init__(self, groups: int) -> None:
        self.groups = groups


class Unfold(Method):
    """Patches of (batch, channels, height, width) as columns."""

    method = "unfold"

    def __init__(self, kernel_size: _Sizes, dilation: _Sizes = 1, padding: _Sizes = 0,
                 stride: _Sizes = 1) -> None:
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride


class Fold(Unfold):
    """The sum of columns that are patches, as pictures."""

    method = "fold"

    def __init__(self, output_size: _Sizes, kernel_size: _Sizes, dilation: _Sizes = 1,
                 padding: _Sizes = 0, stride: _Sizes = 1) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size


class CosineSimilarity(Method):
    """The cosine of the angle between vectors along an axis."""

    method = "cosine_similarity"

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim, self.eps = dim, eps


class PairwiseDistance(Method):
    """The p-norm of differences along the last axis."""

    method = "pairwise_distance"

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.p, self.eps, self.keepdim = p, eps, keepdim
