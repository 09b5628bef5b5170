"""Layers that give values a mean of 0 and a variance of 1, and dropout."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from impl.errors import ArgumentError, ShapeError
from impl.nn.module import Module, sizes
from impl.tensor import Tensor

__all__ = ["AlphaDropout", "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
           "Dropout", "Dropout1d", "Dropout2d", "Dropout3d",
           "FeatureAlphaDropout", "GroupNorm", "InstanceNorm", "InstanceNorm1d",
           "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "LayerNorm2d", "LocalResponseNorm",
           "RMSNorm", "SyncBatchNorm"]


def _stored(value: float, *shape: int) -> Tensor:
    """A tensor with memory of its own, for state that changes."""
    return Tensor.empty(*shape).assign(value).requires_grad_(False)


class BatchNorm(Module):
    """Normalises each channel (axis 1) over all other axes.

    While training with the statistics of the batch, which also move the running statistics;
    otherwise with the running statistics. With `momentum=None` those are the mean of all batches.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    #: How many axes the input may have; nothing for any number from 2 on.
    ranks: tuple[int, ...] = ()

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True,
                 track_running_stats: bool = True, momentum: float | None = 0.1,
                 bias: bool = True) -> None:
        sizes(self, num_features=num_features)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.track_running_stats = track_running_stats
        self.weight = Tensor.ones(num_features, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_features, requires_grad=True) if affine and bias else None
        if track_running_stats:
            self.register_buffer("running_mean", _stored(0, num_features))
            self.register_buffer("running_var", _stored(1, num_features))
            if momentum is None:
                self.register_buffer("num_batches_tracked", _stored(0))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or self.ranks and x.ndim not in self.ranks:
            # r[impl errors.argument.refused]
            wanted = " or ".join(map(str, self.ranks)) or "2 or more"
            raise ShapeError(f"nn.{type(self).__name__}", f"an input of shape {x.shape}",
                             f"give (batch, channels, ...), {wanted} axes; nn.BatchNorm takes any")
        if not self.training and self.track_running_stats:
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
        part: float | Tensor | None = self.momentum
        if part is None:
            self.num_batches_tracked.assign(self.num_batches_tracked + 1)
            part = 1 / self.num_batches_tracked
        self.running_mean.assign(self.running_mean.lerp(mean, part))
        self.running_var.assign(self.running_var.lerp(unbiased, part))


class BatchNorm2d(BatchNorm):
    """BatchNorm with the arguments in PyTorch's order, for (batch, channels, height, width)."""

    ranks: tuple[int, ...] = (4,)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True,
                 bias: bool = True) -> None:
        super().__init__(num_features, eps, affine, track_running_stats, momentum, bias)


class BatchNorm1d(BatchNorm2d):
    """BatchNorm for (batch, channels) and (batch, channels, length)."""

    ranks: tuple[int, ...] = (2, 3)


class BatchNorm3d(BatchNorm2d):
    """BatchNorm for (batch, channels, depth, height, width)."""

    ranks: tuple[int, ...] = (5,)


class SyncBatchNorm(BatchNorm2d):
    """BatchNorm: on a mesh, too, the batch is the whole one."""

    ranks: tuple[int, ...] = ()

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True,
                 process_group: Any = None) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module itself, whose layers are already such ones."""
        return module


class LayerNorm(Module):
    """Normalises over the last axes, of the given shape."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True) -> None:
        self.shape = (normalized_shape,) if isinstance(normalized_shape, int) \
            else tuple(normalized_shape)
        self.eps = eps
        self.weight = Tensor.ones(self.shape, requires_grad=True) if elementwise_affine else None
        self.bias = Tensor.zeros(self.shape, requires_grad=True) \
            if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return x.layer_norm(self.shape, self.weight, self.bias, self.eps)


class LayerNorm2d(LayerNorm):
    """Normalises each place of (batch, channels, height, width) over its channels."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm(Module):
    """x / sqrt(mean(x * x) + eps) over the last axes, times weight.

    `eps=None` is the distance from 1 to the next float32, as in PyTorch.
    """

    def __init__(self, dim: int | Sequence[int] | None = None, eps: float | None = 1e-6,
                 elementwise_affine: bool = True, *,
                 normalized_shape: int | Sequence[int] | None = None) -> None:
        dim = normalized_shape if dim is None else dim
        if dim is None:  # r[impl errors.argument.refused]
            raise ArgumentError("nn.RMSNorm", "there is no shape",
                                "give the sizes of the last axes")
        self.shape = (dim,) if isinstance(dim, int) else tuple(dim)
        sizes(self, **{"dim": dim} if isinstance(dim, int) else {})
        self.eps = 2.0 ** -23 if eps is None else eps
        self.weight = Tensor.ones(self.shape, requires_grad=True) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-len(self.shape):] != self.shape:
            raise ShapeError("nn.RMSNorm", f"the last axis of shape {x.shape} is not of size "
                             f"{', '.join(map(str, self.shape))}",
                             "give the layer the size of the last axis")
        normal = x.rms_norm(tuple(range(-len(self.shape), 0)), self.eps)
        return normal if self.weight is None else normal * self.weight


class GroupNorm(Module):
    """Normalises groups of channels (axis 1) together with all axes after it."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5,
                 affine: bool = True, bias: bool = True) -> None:
        sizes(self, num_groups, num_channels=num_channels)
        self.num_groups, self.eps = num_groups, eps
        self.weight = Tensor.ones(num_channels, requires_grad=True) if affine else None
        self.bias = Tensor.zeros(num_channels, requires_grad=True) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm(GroupNorm):
    """Normalises each channel of each sample."""

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(num_features, num_features, eps, affine)


class InstanceNorm2d(BatchNorm2d):
    """Normalises each channel of each sample, with PyTorch's arguments; the batch may be left out.

    Only with `track_running_stats` are there running statistics, and then they are used when not
    training.
    """

    axes = 2
    ranks: tuple[int, ...] = ()

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1,
                 affine: bool = False, track_running_stats: bool = False,
                 bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias)

    def forward(self, x: Tensor) -> Tensor:
        rows = x if x.ndim > self.axes + 1 else x.unsqueeze(0)
        if not self.training and self.track_running_stats:
            return super().forward(rows).reshape(x.shape)
        if self.track_running_stats:
            variance, mean = rows.detach().var_mean(tuple(range(2, rows.ndim)), correction=0)
            self._follow(mean.mean(0), variance.mean(0), math.prod(rows.shape[2:]))
        return rows.group_norm(self.num_features, self.weight, self.bias,
                               self.eps).reshape(x.shape)


class InstanceNorm1d(InstanceNorm2d):
    """InstanceNorm for (batch, channels, length)."""

    axes = 1


class InstanceNorm3d(InstanceNorm2d):
    """InstanceNorm for (batch, channels, depth, height, width)."""

    axes = 3


class LocalResponseNorm(Module):
    """x divided by a power of the squares of the channels beside it."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        return x.local_response_norm(self.size, self.alpha, self.beta, self.k)


class Dropout(Module):
    """Zeros with probability p while training; the other elements are divided by 1 - p."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p, self.inplace = p, inplace

    def forward(self, x: Tensor) -> Tensor:
        result = self._dropped(x)
        return x.assign(result) if self.inplace else result

    def _dropped(self, x: Tensor) -> Tensor:
        return x.dropout(self.p, self.training)


class Dropout1d(Dropout):
    """Zeros whole channels: (batch, channels, length), the batch may be left out."""

    axes = 1

    def _dropped(self, x: Tensor) -> Tensor:
        rows = x if x.ndim > self.axes + 1 else x.unsqueeze(0)
        return rows.dropout1d(self.p, self.training).reshape(x.shape)


class Dropout2d(Dropout1d):
    """Zeros whole channels: (batch, channels, height, width)."""

    axes = 2


class Dropout3d(Dropout1d):
    """Zeros whole channels: (batch, channels, depth, height, width)."""

    axes = 3


class AlphaDropout(Dropout):
    """Dropout to the least value of SELU, which keeps mean 0 and variance 1 while training."""

    #: Minus the least value of SELU.
    _least = 1.7580993408473766

    def _kept(self, x: Tensor) -> Tensor:
        """1 where an element is kept, by chance."""
        return x.ones_like().dropout(self.p, True).ne(0)

    def _dropped(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return x * 0
        scale = ((1 - self.p) * (1 + self.p * self._least ** 2)) ** -0.5
        return self._kept(x).where(x, -self._least) * scale + scale * self.p * self._least


class FeatureAlphaDropout(AlphaDropout):
    """AlphaDropout of whole channels."""

    def _kept(self, x: Tensor) -> Tensor:
        return super()._kept(x[(slice(None), slice(None)) + (slice(0, 1),) * (x.ndim - 2)])
