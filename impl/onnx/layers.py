"""Convolutions, pooling and normalisation."""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from impl.dtypes import dtypes
from impl.errors import ShapeError
from impl.host import np
from impl.onnx.operators import Host, ints, operator
from impl.tensor import Tensor

_Widths = list[tuple[int, int]]


def widths_of(sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int],
              dilations: Sequence[int], pads: Sequence[int] | None, auto_pad: str) -> _Widths:
    """How many elements go before and after each axis."""
    rank = len(sizes)
    if auto_pad in ("NOTSET", "VALID", ""):
        given = pads if pads and auto_pad != "VALID" else [0] * 2 * rank
        return [(given[axis], given[axis + rank]) for axis in range(rank)]
    found = []
    for size, taps, step, apart in zip(sizes, kernel, strides, dilations, strict=True):
        more = max((-(-size // step) - 1) * step + (taps - 1) * apart + 1 - size, 0)
        less, rest = more // 2, more - more // 2
        found.append((less, rest) if auto_pad == "SAME_UPPER" else (rest, less))
    return found


def _filled(given: Sequence[int] | None, rank: int) -> list[int]:
    return list(given) if given else [1] * rank


@operator("Conv")
def convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
                dilations: list[int] | None = None, group: int = 1,
                kernel_shape: list[int] | None = None, pads: list[int] | None = None,
                strides: list[int] | None = None) -> Tensor:
    rank = x.ndim - 2
    dilations, strides = _filled(dilations, rank), _filled(strides, rank)
    widths = widths_of(x.shape[2:], weight.shape[2:], strides, dilations, pads, auto_pad)
    return _convolved(x, weight, bias, group, strides, dilations, widths)


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None, group: int, strides: list[int],
               dilations: list[int], widths: _Widths) -> Tensor:
    padding: Any = [one for one, _ in widths]
    if any(one != two for one, two in widths):
        x, padding = x.pad([(0, 0), (0, 0), *widths]), [0] * len(widths)
    if len(widths) not in (1, 2, 3):
        raise ShapeError("Conv", f"an input of shape {x.shape} has {len(widths)} axes of places",
                         "use one to three")
    if len(widths) == 1:
        return x.conv1d(weight, bias, group, strides[0], dilations[0], padding[0])
    along = x.conv2d if len(widths) == 2 else x.conv3d
    return along(weight, bias, group, strides, dilations, padding)


@operator("ConvTranspose")
def convolution_back(x: Tensor, weight: Tensor, bias: Tensor | None = None, *,
                     auto_pad: str = "NOTSET", dilations: list[int] | None = None, group: int = 1,
                     kernel_shape: list[int] | None = None,
                     output_padding: list[int] | None = None,
                     output_shape: list[int] | None = None, pads: list[int] | None = None,
                     strides: list[int] | None = None) -> Tensor:
    rank = x.ndim - 2
    dilations, strides = _filled(dilations, rank), _filled(strides, rank)
    more = output_padding or [0] * rank
    whole = [step * (size - 1) + (taps - 1) * apart + 1 for step, size, taps, apart
             in zip(strides, x.shape[2:], weight.shape[2:], dilations, strict=True)]
    if output_shape is None and auto_pad.startswith("SAME"):
        output_shape = [size * step for size, step in zip(x.shape[2:], strides, strict=True)]
    if output_shape is not None:
        wanted = output_shape[-rank:]
        cut = [max(one + extra - two, 0) for one, extra, two
               in zip(whole, more, wanted, strict=True)]
        small = [one // 2 for one in cut]
        first = [one - two for one, two in zip(cut, small, strict=True)] \
            if auto_pad == "SAME_LOWER" else small
        pads = [*first, *(one - two for one, two in zip(cut, first, strict=True))]
        more = [max(two - one + gone, 0) for one, two, gone
                in zip(whole, wanted, cut, strict=True)]
    widths = widths_of(x.shape[2:], weight.shape[2:], strides, dilations, pads, "NOTSET")
    # Whole, and then cut: what is cut off need not be the same at both ends.
    if rank == 1:
        found = x.unsqueeze(2).conv_transpose2d(weight.unsqueeze(2), None, group,
                                                [1, *strides], [1, *dilations]).squeeze(2)
    else:
        along = x.conv_transpose2d if rank == 2 else x.conv_transpose3d
        found = along(weight, None, group, strides, dilations)
    found = found.pad([(0, 0), (0, 0), *((-one, extra - two) for (one, two), extra
                                         in zip(widths, more, strict=True))])
    return found if bias is None else found + bias.reshape(-1, *(1,) * rank)


# Pooling


class _Windows:
    """The windows of a pooling: how an input is padded, and cut into windows."""

    def __init__(self, x: Tensor, kernel: list[int], strides: list[int] | None,
                 dilations: list[int] | None, pads: list[int] | None, auto_pad: str,
                 ceil_mode: int) -> None:
        self.rank = rank = x.ndim - 2
        self.kernel = kernel
        self.strides, self.dilations = _filled(strides, rank), _filled(dilations, rank)
        self.widths = widths_of(x.shape[2:], kernel, self.strides, self.dilations, pads, auto_pad)
        #: What windows that begin inside need behind the end.
        self.more = [0] * rank
        for axis, (before, after) in enumerate(self.widths):
            whole = before + x.shape[axis + 2] + after
            rest = whole - (kernel[axis] - 1) * self.dilations[axis] - 1
            step = self.strides[axis]
            if ceil_mode and rest % step and -(-rest // step) * step < \
                    x.shape[axis + 2] + before:
                self.more[axis] = step - rest % step

    def padded(self, x: Tensor, value: Any) -> Tensor:
        """The input with its padding."""
        return x.pad([(0, 0), (0, 0), *((one, two + extra) for (one, two), extra
                                        in zip(self.widths, self.more, strict=True))], value=value)

    def cut(self, x: Tensor) -> Tensor:
        """(batch, depth, places, elements of a window), of an input with its padding."""
        for axis in range(self.rank):
            width = (self.kernel[axis] - 1) * self.dilations[axis] + 1
            x = x.unfold(axis + 2, width, self.strides[axis])
            if self.dilations[axis] > 1:
                x = x[..., ::self.dilations[axis]]
        return x.reshape(*x.shape[:self.rank + 2], math.prod(self.kernel))


@operator("MaxPool")
def max_pool(x: Tensor, *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
             dilations: list[int] | None = None, pads: list[int] | None = None,
             storage_order: int = 0, strides: list[int] | None = None, results: int = 1) -> Any:
    windows = _Windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    cut = windows.cut(windows.padded(x, x.dtype.min))
    found = cut.amax(-1)
    if results == 1:
        return found
    whole = math.prod(x.shape[2:])
    order = np.arange(whole, dtype=np.int64).reshape(
        x.shape[2:], order="F" if storage_order else "C")
    first = Tensor(order, device=x.device).reshape(1, 1, *x.shape[2:])
    places = windows.cut(windows.padded(first, whole))
    place = (cut == found.unsqueeze(-1)).where(places, whole).amin(-1)
    start = Tensor.arange(x.shape[0] * x.shape[1], dtype=dtypes.int64, device=x.device) * whole
    return found, place + start.reshape(*x.shape[:2], *(1,) * windows.rank)


@operator("AveragePool")
def average_pool(x: Tensor, *, kernel_shape: list[int], auto_pad: str = "NOTSET",
                 ceil_mode: int = 0, count_include_pad: int = 0,
                 dilations: list[int] | None = None, pads: list[int] | None = None,
                 strides: list[int] | None = None) -> Tensor:
    windows = _Windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    found = windows.cut(windows.padded(x, 0)).sum(-1, dtype=x.dtype)
    if not any(windows.more) and (count_include_pad or not any(map(any, windows.widths))):
        return found / math.prod(kernel_shape)
    ones = Tensor.ones(1, 1, *x.shape[2:], dtype=x.dtype, device=x.device)
    if count_include_pad:
        ones = ones.pad([(0, 0), (0, 0), *windows.widths], value=1)
        counted = ones.pad([(0, 0), (0, 0), *((0, extra) for extra in windows.more)])
    else:
        counted = windows.padded(ones, 0)
    return found / windows.cut(counted).sum(-1)


@operator("LpPool")
def norm_pool(x: Tensor, *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
              dilations: list[int] | None = None, p: int = 2, pads: list[int] | None = None,
              strides: list[int] | None = None) -> Tensor:
    windows = _Windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    return (windows.cut(windows.padded(x.abs() ** p, 0)).sum(-1)) ** (1 / p)


@operator("MaxUnpool")
def max_unpool(x: Tensor, places: Tensor, wanted: Host | None = None, *, kernel_shape: list[int],
               pads: list[int] | None = None, strides: list[int] | None = None) -> Tensor:
    rank = x.ndim - 2
    steps, edges = _filled(strides, rank), pads or [0] * 2 * rank
    sizes = [*x.shape[:2], *((x.shape[axis + 2] - 1) * steps[axis] + kernel_shape[axis]
                             - edges[axis] - edges[axis + rank] for axis in range(rank))]
    count = math.prod(sizes)
    empty = Tensor.zeros(count, dtype=x.dtype, device=x.device)
    found = empty.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(*sizes)
    if wanted is None:
        return found
    return found.pad([(0, two - one) for one, two in zip(sizes, ints(wanted), strict=True)])


def _all_places(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def mean_of_all(x: Tensor) -> Tensor:
    return x.mean(_all_places(x), True)


@operator("GlobalMaxPool")
def greatest_of_all(x: Tensor) -> Tensor:
    return x.amax(_all_places(x), True)


@operator("GlobalLpPool")
def norm_of_all(x: Tensor, *, p: int = 2) -> Tensor:
    return (x.abs() ** p).sum(_all_places(x), True) ** (1 / p)


# Normalisation


def _each(parameter: Tensor, x: Tensor) -> Tensor:
    """A number for each channel, beside a whole input."""
    return parameter.reshape(1, -1, *(1,) * (x.ndim - 2))


@operator("BatchNormalization", 7)
def batch_normalization(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *,
                        epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
                        spatial: int = 1, results: int = 1) -> Any:
    if not training_mode:
        root = (variance.cast(dtypes.float32) + epsilon).sqrt()
        found = (x - _each(mean, x)) / _each(root, x) * _each(scale, x) + _each(bias, x)
        return found.cast(x.dtype)
    axes = (0, *_all_places(x))
    own_mean, own_variance = x.mean(axes), x.var(axes, correction=0)
    found = (x - _each(own_mean, x)) / (_each(own_variance, x) + epsilon).sqrt() \
        * _each(scale, x) + _each(bias, x)
    return (found, mean * momentum + own_mean * (1 - momentum),
            variance * momentum + own_variance * (1 - momentum))[:results]


@operator("BatchNormalization", 1)
def batch_normalization_1(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
                          *, epsilon: float = 1e-5, momentum: float = 0.9, is_test: int = 0,
                          spatial: int = 1, results: int = 1) -> Any:
    return batch_normalization(x, scale, bias, mean, variance, epsilon=epsilon)


@operator("InstanceNormalization")
def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *,
                           epsilon: float = 1e-5) -> Tensor:
    axes = _all_places(x)
    found = (x - x.mean(axes, True)) / (x.var(axes, True, 0) + epsilon).sqrt()
    return found * _each(scale, x) + _each(bias, x)


@operator("LayerNormalization")
def layer_normalization(x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1,
                        epsilon: float = 1e-5, stash_type: int = 1, results: int = 1) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.cast(dtypes.float32) if x.dtype.itemsize < 4 else x
    mean = wide.mean(axes, True)
    factor = ((wide - mean).square().mean(axes, True) + epsilon).rsqrt()
    found = ((wide - mean) * factor).cast(x.dtype) * scale
    return (found if bias is None else found + bias, mean, factor)[:results]


@operator("RMSNormalization")
def root_normalization(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5,
                       stash_type: int = 1) -> Tensor:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.cast(dtypes.float32) if x.dtype.itemsize < 4 else x
    return (wide * (wide.square().mean(axes, True) + epsilon).rsqrt()).cast(x.dtype) * scale


@operator("LRN")
def local_normalization(x: Tensor, *, size: int, alpha: float = 0.0001, beta: float = 0.75,
                        bias: float = 1.0) -> Tensor:
    before = (size - 1) // 2
    squares = x.square().pad([(0, 0), (before, size - 1 - before), *((0, 0),) * (x.ndim - 2)])
    total = squares.unfold(1, size, 1).sum(-1)
    return x / (total * (alpha / size) + bias) ** beta


# Places that are learned


@operator("DeformConv")
def deformed_convolution(x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None = None,
                         mask: Tensor | None = None, *, dilations: list[int] | None = None,
                         group: int = 1, kernel_shape: list[int] | None = None,
                         offset_group: int = 1, pads: list[int] | None = None,
                         strides: list[int] | None = None) -> Tensor:
    """A convolution whose taps are moved: each is read between four pixels."""
    dilations, strides = _filled(dilations, 2), _filled(strides, 2)
    edges, (rows, columns) = pads or [0] * 4, weight.shape[2:]
    batch, depth, taps = x.shape[0], x.shape[1], rows * columns
    high, wide = offset.shape[2:]
    moved = offset.reshape(batch, offset_group, taps, 2, high, wide)
    steps = [np.arange(n) * step - edge for n, step, edge
             in zip((high, wide), strides, edges, strict=False)]
    taps_at = [np.arange(n) * apart for n, apart in zip((rows, columns), dilations, strict=True)]
    tall = (taps_at[0][:, None, None, None] + steps[0][:, None]) + np.zeros((columns, 1, wide))
    flat = (taps_at[1][:, None, None] + steps[1]) + np.zeros((rows, 1, high, 1))
    down, along = (Tensor(one.reshape(taps, high, wide).astype(np.float32), device=x.device)
                   + moved[:, :, :, place] for place, one in enumerate((tall, flat)))
    values = x.reshape(batch, offset_group, depth // offset_group, -1)
    read = _between(values, down, along, x.shape[2], x.shape[3])
    if mask is not None:
        read = read * mask.reshape(batch, offset_group, 1, taps, high, wide)
    read = read.reshape(batch, group, depth // group * taps, high * wide)
    flat_weight = weight.reshape(group, weight.shape[0] // group, -1)
    found = (flat_weight @ read).reshape(batch, weight.shape[0], high, wide)
    return found if bias is None else found + bias.reshape(-1, 1, 1)


def _between(values: Tensor, down: Tensor, along: Tensor, height: int, width: int) -> Tensor:
    """What lies at places between pixels: (batch, groups, depth, *places)."""
    depth, form = values.shape[2], down.shape
    found: Tensor | None = None
    corner = down.floor(), along.floor()
    for up, left in itertools.product((0, 1), (0, 1)):
        row, column = corner[0] + up, corner[1] + left
        share = (1 - (down - row).abs()) * (1 - (along - column).abs())
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        place = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
        index = place.cast(dtypes.int64).reshape(*form[:2], 1, -1).expand(-1, -1, depth, -1)
        part = values.gather(3, index).reshape(*form[:2], depth, *form[2:]) \
            * inside.where(share, 0).unsqueeze(2)
        found = part if found is None else found + part
    assert found is not None
    return found
