"""The gradients of convolutions, as functions of that of the output."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from impl.nn.functional import conv2d
from impl.tensor import Tensor

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input",
           "conv3d_weight"]


def conv2d_input(input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1,
                 padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """That of the input, which has this shape."""
    like = Tensor.empty(*input_size, dtype=weight.dtype, device=weight.device)
    made = conv2d(like, weight, None, stride, padding, dilation, groups)
    return made.gradient(like, gradient=grad_output)[0]


def conv2d_weight(input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1,
                  padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Tensor:
    """That of the weight, which has this shape."""
    like = Tensor.empty(*weight_size, dtype=input.dtype, device=input.device)
    made = conv2d(input, like, None, stride, padding, dilation, groups)
    return made.gradient(like, gradient=grad_output)[0]


conv1d_input = conv3d_input = conv2d_input
conv1d_weight = conv3d_weight = conv2d_weight
