"""A batch norm that is not trained any more as part of the layer before it."""
from __future__ import annotations

import copy
from typing import Any

from impl.nn.module import Module, Parameter
from impl.tensor import Tensor

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval",
           "fuse_linear_bn_weights"]


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor,
                         bn_eps: float, bn_w: Tensor | None, bn_b: Tensor | None,
                         transpose: bool = False) -> tuple[Tensor, Tensor]:
    """The weight and the bias of a convolution that is normalised."""
    factor = (bn_rv + bn_eps).rsqrt()
    factor = factor if bn_w is None else factor * bn_w
    axis = 1 if transpose else 0  # that of the channels that come out
    wide = factor.reshape(*(-1 if place == axis else 1 for place in range(conv_w.ndim)))
    bias = ((0 if conv_b is None else conv_b) - bn_rm) * factor
    return (Parameter((conv_w * wide).cast(conv_w.dtype)),
            Parameter(bias if bn_b is None else bias + bn_b))


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor,
                           bn_rv: Tensor, bn_eps: float, bn_w: Tensor,
                           bn_b: Tensor) -> tuple[Tensor, Tensor]:
    """The weight and the bias of a linear layer that is normalised."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Module:
    """A convolution that gives what a norm behind it gives with its running statistics."""
    fused: Any = copy.deepcopy(conv)
    norm: Any = bn
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight,
        norm.bias, transpose)
    made: Module = fused
    return made


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Module:
    """The same for a linear layer."""
    return fuse_conv_bn_eval(linear, bn)
