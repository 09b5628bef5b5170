"""Layers. Each is a plain object with parameters as attributes, called with a tensor.

Layers are user code: they use the public methods of `Tensor` only. Parameters are those tensors
that `requires_grad`; `nn.state` finds them, `nn.optim` changes them.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

from impl.errors import ShapeError
from impl.nn import lr_scheduler, optim, state
from impl.nn.names import Layer, missing, sizes
from impl.tensor import Tensor

__all__ = ["BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d",
           "ConvTranspose2d", "Dropout", "Embedding", "GroupNorm", "InstanceNorm", "LSTMCell",
           "LayerNorm", "LayerNorm2d", "Linear", "RMSNorm", "lr_scheduler", "optim", "state"]


def __getattr__(name: str) -> NoReturn:
    raise missing(name, __all__)  # r[impl errors.name.missing]


def _uniform(shape: Sequence[int], inputs: int) -> Tensor:
    """Weights of a layer in which so many inputs go into one output."""
    bound = 1 / math.sqrt(max(inputs, 1))
    return Tensor.uniform(*shape, low=-bound, high=bound, requires_grad=True)


def _stored(value: float, *shape: int) -> Tensor:
    """A tensor with memory of its own, for state that changes."""
    return Tensor.empty(*shape).assign(value).requires_grad_(False)


class Linear(Layer):
    """y = x @ weight.T + bias; weight: (out_features, in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        sizes(self, in_features=in_features, out_features=out_features)
        self.weight = _uniform((out_features, in_features), in_features)
        self.bias = _uniform((out_features,), in_features) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight, self.bias)


class Conv2d(Layer):
    """Convolution over (batch, in_channels, height, width)."""

    axes = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int],
                 stride: int | Sequence[int] = 1, padding: int | Sequence[int] | str = 0,
                 dilation: int | Sequence[int] = 1, groups: int = 1, bias: bool = True) -> None:
        kernel = (kernel_size,) * self.axes if isinstance(kernel_size, int) else tuple(kernel_size)
        sizes(self, groups, in_channels=in_channels, out_channels=out_channels)
        self.stride, self.dilation, self.groups = stride, dilation, groups
        self.padding = self._same(kernel, dilation) if isinstance(padding, str) else padding
        inputs = in_channels // groups * math.prod(kernel)
        self.weight = _uniform((out_channels, in_channels // groups, *kernel), inputs)
        self.bias = _uniform((out_channels,), inputs) if bias else None

    def _same(self, kernel: tuple[int, ...], dilation: int | Sequence[int]) -> tuple[int, ...]:
        """Padding that keeps the size, for stride 1: (before, after) of each axis, last first."""
        gaps = (dilation,) * len(kernel) if isinstance(dilation, int) else tuple(dilation)
        total = [gap * (size - 1) for gap, size in zip(gaps, kernel, strict=True)]
        return tuple(part for one in reversed(total) for part in (one // 2, one - one // 2))

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation,
                        self.padding)


class Conv1d(Conv2d):
    """Convolution over (batch, in_channels, length)."""

    axes = 1


class ConvTranspose2d(Layer):
    """The adjoint of a convolution; weight: (in_channels, out_channels / groups, *kernel)."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int],
                 stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0,
                 output_padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1,
                 groups: int = 1, bias: bool = True) -> None:
        kernel = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.dilation, self.groups = dilation, groups
        sizes(self, groups, in_channels=in_channels, out_channels=out_channels)
        inputs = out_channels // groups * math.prod(kernel)
        self.weight = _uniform((in_channels, out_channels // groups, *kernel), inputs)
        self.bias = _uniform((out_channels,), inputs) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv_transpose2d(self.weight, self.bias, self.groups, self.stride, self.dilation,
                                  self.padding, self.output_padding)


class BatchNorm(Layer):
    """Normalises each channel (axis 1) over all other axes.

    While training with the statistics of the batch, which also move the running statistics;
    otherwise with the running statistics.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True,
                 track_running_stats: bool = True, momentum: float = 0.1) -> None:
        sizes(self, num_features=num_features)
        if not isinstance(momentum, (int, float)):
            raise ShapeError("nn.BatchNorm", f"momentum={momentum!r} is not possible",
                             "give a number: the mean of all batches is not kept")
        self.eps, self.momentum, self.track_running_stats = eps, momentum, track_running_stats
        self.weight = Tensor.ones(num_features, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_features, requires_grad=True) if affine else None
        if track_running_stats:
            self.running_mean = _stored(0, num_features)
            self.running_var = _stored(1, num_features)

    def __call__(self, x: Tensor) -> Tensor:
        if not Tensor.training and self.track_running_stats:
            mean, variance = self.running_mean, self.running_var
        else:
            axes = tuple(axis for axis in range(x.ndim) if axis != 1)
            variance, mean = x.var_mean(axes, correction=0)
            if self.track_running_stats:
                self._follow(mean.detach(), variance.detach(), x.numel() // x.shape[1])
        return x.batchnorm(self.weight, self.bias, mean, (variance + self.eps).rsqrt())

    def _follow(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Move the running statistics toward those of a batch of `count` values."""
        unbiased = variance * (count / max(1, count - 1))
        self.running_mean.assign(self.running_mean.lerp(mean, self.momentum))
        self.running_var.assign(self.running_var.lerp(unbiased, self.momentum))


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm


class LayerNorm(Layer):
    """Normalises over the last axes, of the given shape."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True) -> None:
        self.shape = (normalized_shape,) if isinstance(normalized_shape, int) \
            else tuple(normalized_shape)
        self.eps = eps
        self.weight = Tensor.ones(self.shape, requires_grad=True) if elementwise_affine else None
        self.bias = Tensor.zeros(self.shape, requires_grad=True) \
            if elementwise_affine and bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.layer_norm(self.shape, self.weight, self.bias, self.eps)


class LayerNorm2d(LayerNorm):
    """Normalises each place of (batch, channels, height, width) over its channels."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm(Layer):
    """x / sqrt(mean(x * x) + eps) over the last axis, times weight."""

    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
        sizes(self, dim=dim)
        self.eps = eps
        self.weight = Tensor.ones(dim, requires_grad=True) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        if self.weight is not None and x.shape[-1:] != self.weight.shape:
            raise ShapeError("nn.RMSNorm", f"the last axis of shape {x.shape} is not of size "
                             f"{self.weight.shape[0]}", "give the layer the size of the last axis")
        normal = x.rms_norm(-1, self.eps)
        return normal if self.weight is None else normal * self.weight


class GroupNorm(Layer):
    """Normalises groups of channels (axis 1) together with all axes after it."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5,
                 affine: bool = True) -> None:
        sizes(self, num_groups, num_channels=num_channels)
        self.num_groups, self.eps = num_groups, eps
        self.weight = Tensor.ones(num_channels, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_channels, requires_grad=True) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm(GroupNorm):
    """Normalises each channel of each sample."""

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(num_features, num_features, eps, affine)


class Embedding(Layer):
    """A row of `weight` for each number; a number out of range gives zeros."""

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        sizes(self, num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.weight = Tensor.randn(num_embeddings, embedding_dim, requires_grad=True)

    def __call__(self, index: Tensor) -> Tensor:
        return self.weight.embedding(index)


class Dropout(Layer):
    """Zeros with probability p while training."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        return x.dropout(self.p)


class LSTMCell(Layer):
    """One step of an LSTM: (x, (h, c)) -> (h, c)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        sizes(self, input_size=input_size, hidden_size=hidden_size)
        self.weight_ih = _uniform((4 * hidden_size, input_size), hidden_size)
        self.weight_hh = _uniform((4 * hidden_size, hidden_size), hidden_size)
        self.bias_ih = _uniform((4 * hidden_size,), hidden_size) if bias else None
        self.bias_hh = _uniform((4 * hidden_size,), hidden_size) if bias else None

    def __call__(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
                 ) -> tuple[Tensor, Tensor]:
        hidden = self.weight_hh.shape[1]
        before, cell = state if state is not None else (Tensor.zeros(x.shape[0], hidden),) * 2
        gates = x.linear(self.weight_ih, self.bias_ih) + before.linear(self.weight_hh, self.bias_hh)
        entry, forget, new, output = gates.chunk(4, dim=1)
        cell = forget.sigmoid() * cell + entry.sigmoid() * new.tanh()
        return output.sigmoid() * cell.tanh(), cell
