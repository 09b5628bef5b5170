"""Activations as layers: each is the method of tensors that has its name."""
from __future__ import annotations

from typing import Any

from impl.nn.methods import Method
from impl.nn.module import Module, Parameter
from impl.tensor import Tensor

__all__ = ["CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
           "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6",
           "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink",
           "Softsign", "Tanh", "Tanhshrink", "Threshold"]


class _Plain(Method):
    """An activation without settings; `inplace` gives the input the value of the output."""

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


class ReLU(_Plain):
    """max(x, 0)."""

    method = "relu"


class ReLU6(_Plain):
    """x between 0 and 6."""

    method = "relu6"


class SELU(_Plain):
    """The scaled ELU, which keeps mean 0 and variance 1."""

    method = "selu"


class SiLU(_Plain):
    """x * sigmoid(x)."""

    method = "silu"


class Mish(_Plain):
    """x * tanh(softplus(x))."""

    method = "mish"


class Hardswish(_Plain):
    """x * relu6(x + 3) / 6."""

    method = "hardswish"


class Hardsigmoid(_Plain):
    """relu6(x + 3) / 6."""

    method = "hardsigmoid"


class Sigmoid(Method):
    """1 / (1 + exp(-x))."""

    method = "sigmoid"


class Tanh(Method):
    """The hyperbolic tangent."""

    method = "tanh"


class LogSigmoid(Method):
    """log(sigmoid(x))."""

    method = "logsigmoid"


class Softsign(Method):
    """x / (1 + |x|)."""

    method = "softsign"


class Tanhshrink(Method):
    """x - tanh(x)."""

    method = "tanhshrink"


class ELU(Method):
    """x, or alpha * (exp(x) - 1) where it is negative."""

    method = "elu"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha, self.inplace = alpha, inplace


class CELU(ELU):
    """x, or alpha * (exp(x / alpha) - 1) where it is negative."""

    method = "celu"


class GELU(Method):
    """x times the probability that a normal number is smaller; approximate="tanh" is faster."""

    method = "gelu"

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate


class GLU(Method):
    """The first half of an axis times the sigmoid of the second."""

    method = "glu"

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim


class LeakyReLU(Method):
    """x, or a part of it where it is negative."""

    method = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope, self.inplace = negative_slope, inplace


class Hardtanh(Method):
    """x between two numbers."""

    method = "hardtanh"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0,
                 inplace: bool = False) -> None:
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace


class Hardshrink(Method):
    """x, and 0 within `lambd` of 0."""

    method = "hardshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd


class Softshrink(Hardshrink):
    """x moved toward 0 by `lambd`."""

    method = "softshrink"


class Softplus(Method):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold."""

    method = "softplus"

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold


class Threshold(Method):
    """x where it is above a threshold, and a value elsewhere."""

    method = "threshold"

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self.threshold, self.value, self.inplace = threshold, value, inplace


class RReLU(Method):
    """leaky_relu with a slope by chance while training, and the mean slope otherwise."""

    method = "rrelu"

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Any:
        return self.written(input, input.rrelu(self.lower, self.upper, self.training))


class PReLU(Module):
    """leaky_relu whose slopes, one or one for each channel (axis 1), are learned."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.weight = Parameter(Tensor.full((num_parameters,), init))

    def forward(self, input: Tensor) -> Tensor:
        return input.prelu(self.weight)


class Softmax(Method):
    """Probabilities along an axis. `dim` should be said: 1, or 0 for 0, 1 or 3 axes."""

    method = "softmax"

    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    def settings(self, axes: int = 2) -> dict[str, int]:
        """Which axis it is."""
        return {"dim": self.dim if self.dim is not None else int(axes not in (0, 1, 3))}

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = getattr(input, self.method)(**self.settings(input.ndim))
        return result


class Softmin(Softmax):
    """softmax(-x)."""

    method = "softmin"


class LogSoftmax(Softmax):
    """log(softmax(x))."""

    method = "log_softmax"


class Softmax2d(Module):
    """Probabilities of the channels at each place of a picture."""

    def forward(self, input: Tensor) -> Tensor:
        return input.softmax(-3)
