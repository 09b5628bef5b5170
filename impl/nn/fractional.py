"""Pooling with windows at places that chance chooses (Graham, 2014), as functions and layers."""
from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from impl.dtypes import dtypes
from impl.errors import ArgumentError, ShapeError
from impl.nn.module import Module
from impl.tensor import Tensor

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d", "fractional_max_pool2d",
           "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
           "fractional_max_pool3d_with_indices"]

_Sizes = int | Sequence[int]


def _starts(size: int, window: int, out: int, chance: Tensor) -> Tensor:
    """Where windows begin along an axis: (batch, channels, out). The last one ends at the end."""
    last = size - window
    if out == 1:
        return (chance * 0 + last).cast(dtypes.int32).unsqueeze(-1)
    step = last / (out - 1)
    places = chance.unsqueeze(-1) + Tensor.arange(out - 1).cast(chance.dtype)
    begun = (places * step).floor() - (chance * step).floor().unsqueeze(-1)
    return begun.pad((0, 1), value=last).cast(dtypes.int32)


def _pooled(axes: int, input: Tensor, kernel_size: _Sizes, output_size: Any, output_ratio: Any,
            samples: Tensor | None) -> tuple[Tensor, Tensor]:
    """The greatest elements of the windows, and their places."""
    name = f"fractional_max_pool{axes}d"
    if (output_size is None) is (output_ratio is None):  # r[impl errors.argument.refused]
        raise ArgumentError(name, f"output_size is {output_size}, output_ratio {output_ratio}",
                            "give one of them")
    single = input.ndim == axes + 1
    x = input.unsqueeze(0) if single else input
    own = x.shape[2:]
    if len(own) != axes:
        raise ShapeError(name, f"shape {input.shape} is not that of {axes} axes with channels",
                         "give (batch, channels, ...)")
    window = (kernel_size,) * axes if isinstance(kernel_size, int) else tuple(kernel_size)
    if output_size is None:
        parts = (output_ratio,) * axes if isinstance(output_ratio, float) else tuple(output_ratio)
        sizes = tuple(int(a * part) for a, part in zip(own, parts, strict=True))
    else:
        sizes = (output_size,) * axes if isinstance(output_size, int) else tuple(output_size)
    for size, taps, out in zip(own, window, sizes, strict=True):
        if not 0 < out <= size - taps + 1:
            raise ShapeError(name, f"{out} windows of {taps} do not fit in an axis of {size}",
                             f"use 1 to {size - taps + 1} windows")
    chance = Tensor.rand(*x.shape[:2], axes, device=x.device) if samples is None else samples
    # PyTorch's order of the two axes of a picture is the other way round.
    order = (1, 0) if axes == 2 else tuple(range(axes))
    flat = functools.reduce(lambda before, axis: _further(
        before, _starts(own[axis], window[axis], sizes[axis], chance[..., order[axis]]),
        own[axis], window[axis]), range(axes), None)
    assert flat is not None
    # (batch, channels, out, window, out, window, ...) with the windows last
    ways = [*range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2)]
    where = flat.permute(0, 1, *ways).reshape(*x.shape[:2], math.prod(sizes), -1)
    seen = x.reshape(*x.shape[:2], -1).gather(2, where.reshape(*x.shape[:2], -1))
    seen = seen.reshape(where.shape)
    best = where.gather(3, seen.argmax(-1, keepdim=True)).squeeze(-1)
    shape = (*x.shape[:2], *sizes)
    values, places = seen.max(-1).reshape(shape), best.reshape(shape)
    return (values[0], places[0]) if single else (values, places)


def _further(before: Tensor | None, starts: Tensor, size: int, window: int) -> Tensor:
    """Flat places of one more axis: two more axes, those of windows and of what is in one."""
    along = starts.unsqueeze(-1) + Tensor.arange(window).cast(dtypes.int32)
    if before is None:
        return along
    ahead = (1,) * (before.ndim - 2)
    return before.unsqueeze(-1).unsqueeze(-1) * size + along.reshape(
        *along.shape[:2], *ahead, *along.shape[2:])


def fractional_max_pool2d(input: Tensor, kernel_size: _Sizes, output_size: Any = None,
                          output_ratio: Any = None, return_indices: bool = False,
                          _random_samples: Tensor | None = None) -> Any:
    """The greatest element of each of so many windows of (..., height, width)."""
    found = _pooled(2, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


def fractional_max_pool3d(input: Tensor, kernel_size: _Sizes, output_size: Any = None,
                          output_ratio: Any = None, return_indices: bool = False,
                          _random_samples: Tensor | None = None) -> Any:
    """The greatest element of each of so many windows of (..., depth, height, width)."""
    found = _pooled(3, input, kernel_size, output_size, output_ratio, _random_samples)
    return found if return_indices else found[0]


fractional_max_pool2d_with_indices = functools.partial(fractional_max_pool2d, return_indices=True)
fractional_max_pool3d_with_indices = functools.partial(fractional_max_pool3d, return_indices=True)


class FractionalMaxPool2d(Module):
    """The greatest element of each of so many windows, whose places are drawn at each call."""

    function = staticmethod(fractional_max_pool2d)

    def __init__(self, kernel_size: _Sizes, output_size: Any = None, output_ratio: Any = None,
                 return_indices: bool = False, _random_samples: Tensor | None = None) -> None:
        if (output_size is None) is (output_ratio is None):  # r[impl errors.argument.refused]
            raise ArgumentError(f"nn.{type(self).__name__}", f"output_size is {output_size}, "
                                f"output_ratio {output_ratio}", "give one of them")
        self.kernel_size, self.output_size = kernel_size, output_size
        self.output_ratio, self.return_indices = output_ratio, return_indices
        self._random_samples = _random_samples

    def forward(self, input: Tensor) -> Any:
        return self.function(input, self.kernel_size, self.output_size, self.output_ratio,
                             self.return_indices, self._random_samples)


class FractionalMaxPool3d(FractionalMaxPool2d):
    """The same for (..., depth, height, width)."""

    function = staticmethod(fractional_max_pool3d)
