"""Convolutions and their adjoints over one, two and three axes."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from impl.errors import ShapeError
from impl.nn.linear import uniform_weights
from impl.nn.module import Module, refuse_values, sizes
from impl.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate",
          "circular": "circular"}


def each_axis(value: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """A number for each axis, of which one is for all."""
    return (value,) * axes if isinstance(value, int) else tuple(value)


class Conv2d(Module):
    """Convolution over (batch, in_channels, height, width); the batch may be left out.

    `padding` is a number for each axis, "same" (the size is kept) or "valid" (none);
    `padding_mode` says what stands there: "zeros", "reflect", "replicate" or "circular".
    """

    axes = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int],
                 stride: int | Sequence[int] = 1, padding: int | Sequence[int] | str = 0,
                 dilation: int | Sequence[int] = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros") -> None:
        sizes(self, groups, in_channels=in_channels, out_channels=out_channels)
        if padding_mode not in _MODES:
            raise ShapeError(f"nn.{type(self).__name__}", f"padding_mode={padding_mode!r} is "
                             "not known", f"use one of {', '.join(_MODES)}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            # r[impl errors.argument.refused]
            raise ShapeError(f"nn.{type(self).__name__}", f"padding={padding!r} is not known",
                             'use "same", "valid", or numbers')
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = each_axis(kernel_size, self.axes)
        self.stride, self.dilation, self.groups = stride, dilation, groups
        self.padding, self.padding_mode = padding, padding_mode
        inputs = in_channels // groups * math.prod(self.kernel_size)
        self.weight = uniform_weights((out_channels, in_channels // groups, *self.kernel_size),
                                      inputs)
        self.bias = uniform_weights((out_channels,), inputs) if bias else None

    def _widths(self) -> list[int]:
        """Padding (before, after) of each axis, last first."""
        if self.padding == "same":
            gaps = each_axis(self.dilation, self.axes)
            total = [gap * (size - 1) for gap, size in zip(gaps, self.kernel_size, strict=True)]
            return [part for one in reversed(total) for part in (one // 2, one - one // 2)]
        if isinstance(self.padding, str):
            return [0] * (2 * self.axes)
        return [one for width in reversed(each_axis(self.padding, self.axes))
                for one in (width, width)]

    def forward(self, x: Tensor) -> Tensor:
        refuse_values(self, x)
        rows = x if x.ndim > self.axes + 1 else x.unsqueeze(0)
        widths: Any = self._widths()
        if self.padding_mode != "zeros":
            rows, widths = rows.pad(widths, _MODES[self.padding_mode]), 0
        result = rows.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation,
                             widths)
        return result if rows.ndim == x.ndim else result.squeeze(0)


class Conv1d(Conv2d):
    """Convolution over (batch, in_channels, length)."""

    axes = 1


class Conv3d(Conv2d):
    """Convolution over (batch, in_channels, depth, height, width)."""

    axes = 3


class ConvTranspose2d(Module):
    """The adjoint of a convolution; weight: (in_channels, out_channels / groups, *kernel)."""

    axes = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int],
                 stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0,
                 output_padding: int | Sequence[int] = 0, groups: int = 1, bias: bool = True,
                 dilation: int | Sequence[int] = 1, padding_mode: str = "zeros") -> None:
        if padding_mode != "zeros":  # r[impl errors.argument.refused]
            raise ShapeError(f"nn.{type(self).__name__}", f"padding_mode={padding_mode!r} is "
                             "not known", "use zeros: here padding cuts off")
        self.kernel_size = each_axis(kernel_size, self.axes)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.dilation, self.groups = dilation, groups
        sizes(self, groups, in_channels=in_channels, out_channels=out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        inputs = out_channels // groups * math.prod(self.kernel_size)
        self.weight = uniform_weights((in_channels, out_channels // groups, *self.kernel_size),
                                      inputs)
        self.bias = uniform_weights((out_channels,), inputs) if bias else None

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        more = self.output_padding if output_size is None else self._missing(x, output_size)
        rows = x if x.ndim > self.axes + 1 else x.unsqueeze(0)
        turned = getattr(rows, f"conv_transpose{self.axes}d")
        result: Tensor = turned(self.weight, self.bias, self.groups, self.stride, self.dilation,
                                self.padding, more)
        return result if rows.ndim == x.ndim else result.squeeze(0)

    def _missing(self, x: Tensor, wanted: Sequence[int]) -> tuple[int, ...]:
        """The output padding for sizes of the result."""
        each = [each_axis(one, self.axes) for one in (self.stride, self.padding, self.dilation)]
        least = [(size - 1) * step - 2 * pad + gap * (kernel - 1) + 1 for size, kernel, step, pad,
                 gap in zip(x.shape[-self.axes:], self.kernel_size, *each, strict=True)]
        more = tuple(one - size for one, size in zip(tuple(wanted)[-self.axes:], least,
                                                     strict=True))
        if not all(0 <= one < step for one, step in zip(more, each[0], strict=True)):
            raise ShapeError(f"nn.{type(self).__name__}", f"output_size={tuple(wanted)} is not "
                             "possible", f"the least is {tuple(least)}, and less than a stride "
                             "may be added")
        return more


class ConvTranspose1d(ConvTranspose2d):
    """The adjoint of a convolution over (batch, in_channels, length)."""

    axes = 1


class ConvTranspose3d(ConvTranspose2d):
    """The adjoint of a convolution over (batch, in_channels, depth, height, width)."""

    axes = 3
