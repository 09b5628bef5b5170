"""First values of parameters, under the names of `torch.nn.init`: each changes a tensor."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NoReturn

from impl.errors import ShapeError
from impl.host import np
from impl.nn.names import missing, publish
from impl.tensor import Tensor

__all__ = ["calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_",
           "normal_", "ones_", "orthogonal_", "sparse_", "trunc_normal_", "uniform_",
           "xavier_normal_", "xavier_uniform_", "zeros_"]
publish("init", __all__)


def __getattr__(name: str) -> NoReturn:
    raise missing(name, (), "nn.init")  # r[impl errors.name.missing]


def _drawn(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that may be given `generator=`, whose random numbers it then takes."""
    @functools.wraps(function)
    def call(*given: Any, generator: Any = None, **named: Any) -> Tensor:
        with generator or nullcontext():
            return function(*given, **named)
    return call


def _set(tensor: Tensor, value: Tensor) -> Tensor:
    return tensor.assign(value.shard_like(tensor).cast(tensor.dtype))


@_drawn
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Numbers from a to b, all as likely."""
    return _set(tensor, Tensor.uniform(*tensor.shape, low=a, high=b))


@_drawn
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal numbers."""
    return _set(tensor, Tensor.normal(*tensor.shape, mean=mean, std=std))


@_drawn
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0,
                  b: float = 2.0) -> Tensor:
    """Normal numbers of which those outside a to b are drawn again."""
    low, high = (math.erf((end - mean) / std / math.sqrt(2)) for end in (a, b))
    chance = Tensor.uniform(*tensor.shape, low=low, high=high)
    return _set(tensor, (chance.erfinv() * (std * math.sqrt(2)) + mean).clamp(a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere."""
    return tensor.assign(val)


def ones_(tensor: Tensor) -> Tensor:
    """1 everywhere."""
    return constant_(tensor, 1)


def zeros_(tensor: Tensor) -> Tensor:
    """0 everywhere."""
    return constant_(tensor, 0)


def eye_(tensor: Tensor) -> Tensor:
    """1 on the diagonal, 0 elsewhere."""
    _axes(tensor, "eye_", 2, 2)
    return _set(tensor, Tensor.eye(tensor.shape[0], tensor.shape[1]))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A kernel of a convolution that hands its channels on as they are."""
    _axes(tensor, "dirac_", 3, 5)
    value = np.zeros(tensor.shape, np.float32)
    rows, columns, *window = tensor.shape
    for group in range(groups):
        for place in range(min(rows // groups, columns)):
            value[(group * (rows // groups) + place, place, *(size // 2 for size in window))] = 1
    return _set(tensor, Tensor(value))


@_drawn
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Normal numbers, of which a part of each column is 0."""
    _axes(tensor, "sparse_", 2, 2)
    zeros = math.ceil(sparsity * tensor.shape[0])
    kept = Tensor.rand(*tensor.shape).argsort(0).argsort(0) >= zeros
    return _set(tensor, kept.where(Tensor.normal(*tensor.shape, std=std), 0))


@_drawn
def orthogonal_(tensor: Tensor, gain: float = 1) -> Tensor:
    """Rows, or columns if there are fewer, that are orthonormal (Saxe et al., 2013)."""
    _axes(tensor, "orthogonal_", 2, None)
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    drawn = Tensor.randn(max(rows, columns), min(rows, columns)).numpy()
    basis, upper = np.linalg.qr(drawn)
    basis = basis * np.sign(np.diagonal(upper))
    value = basis if rows >= columns else basis.T
    return _set(tensor, Tensor(np.ascontiguousarray(gain * value)).reshape(tensor.shape))


@_drawn
def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio's uniform numbers."""
    bound = gain * math.sqrt(6 / sum(_fans(tensor, "xavier_uniform_")))
    return uniform_(tensor, -bound, bound)


@_drawn
def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio's normal numbers."""
    return normal_(tensor, 0, gain * math.sqrt(2 / sum(_fans(tensor, "xavier_normal_"))))


@_drawn
def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in",
                     nonlinearity: str = "leaky_relu") -> Tensor:
    """He's uniform numbers."""
    bound = math.sqrt(3) * _he(tensor, "kaiming_uniform_", a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


@_drawn
def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in",
                    nonlinearity: str = "leaky_relu") -> Tensor:
    """He's normal numbers."""
    return normal_(tensor, 0, _he(tensor, "kaiming_normal_", a, mode, nonlinearity))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much an activation takes from the deviation of its input.

    Raises:
        ShapeError: it is none that is known.
    """
    slope = 0.01 if param is None else param
    gains = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75,
             "leaky_relu": math.sqrt(2 / (1 + slope ** 2)),
             **{f"conv{kind}{axes}d": 1.0 for axes in (1, 2, 3) for kind in ("", "_transpose")}}
    if nonlinearity not in gains:
        raise ShapeError("nn.init.calculate_gain", f"{nonlinearity!r} is not known",
                         f"use one of {', '.join(gains)}")
    return gains[nonlinearity]


def _he(tensor: Tensor, operation: str, a: float, mode: str, nonlinearity: str) -> float:
    """The deviation of He's numbers."""
    if mode not in ("fan_in", "fan_out"):
        raise ShapeError(f"nn.init.{operation}", f"mode={mode!r} is not known",
                         'use "fan_in" or "fan_out"')
    fan = _fans(tensor, operation)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def _fans(tensor: Tensor, operation: str) -> tuple[int, int]:
    """How many inputs an output has, and how many outputs an input."""
    _axes(tensor, operation, 2, None)
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def _axes(tensor: Tensor, operation: str, least: int, most: int | None) -> None:
    """Refuse a tensor of too few or too many axes."""
    if tensor.ndim < least or (most is not None and tensor.ndim > most):
        raise ShapeError(f"nn.init.{operation}", f"a tensor of shape {tensor.shape} has "
                         f"{tensor.ndim} axes", f"give one of {least}" if least == most else
                         f"give one of at least {least}")
