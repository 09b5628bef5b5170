"""Pictures and other grids: pooling, resizing, sampling, patches. Chapter: spec/tensor.md.

What depends on sizes alone is worked out with NumPy when the expression is written: which elements
a place looks at, and with which weight.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from impl.dtypes import dtypes, sum_accumulator
from impl.errors import ShapeError
from impl.gradient import nodes
from impl.host import np
from impl.ir import Ops, UOp
from impl.tensor.matrices import Matrices
from impl.tensor.products import pair


def _source(out: int, size: int, scale: float | None, aligned: bool, half: bool = True,
            ) -> np.ndarray:
    """Where each of `out` places stands among `size` elements, in elements."""
    place = np.arange(out, dtype=np.float64)
    if aligned:
        return place * ((size - 1) / (out - 1) if out > 1 else 0.0)
    step = 1 / scale if scale else size / out
    return (place + 0.5) * step - 0.5 if half else place * step


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' (1981) kernel of the slope a."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(0.0, 1 - np.abs(x))


#: Each of so few elements that a place looks at is gathered by itself.
_FEW_TAPS = 4


@functools.lru_cache(maxsize=64)
def _weights(mode: str, out: int, size: int, scale: float | None, aligned: bool,
             smooth: bool) -> np.ndarray:
    """How much each of `size` elements counts in each of `out` places: (out, size), to be read."""
    rows = np.zeros((out, size))
    if mode in ("nearest", "nearest-exact"):
        place = _source(out, size, scale, False, False)
        if mode == "nearest-exact":
            place = place + 0.5 * (1 / scale if scale else size / out)
        rows[np.arange(out), np.clip(np.floor(place + 1e-9), 0, size - 1).astype(int)] = 1
        return rows
    if mode == "area":
        for row in range(out):
            first, last = row * size // out, -(-(row + 1) * size // out)
            rows[row, first:last] = 1 / (last - first)
        return rows
    cubic = mode == "bicubic"
    place = _source(out, size, scale, aligned)
    if smooth:
        step = 1 / scale if scale else size / out
        if aligned:
            step = (size - 1) / (out - 1) if out > 1 else 0.0
        return _smooth_weights(out, size, step, cubic)
    if not cubic:
        place = np.maximum(place, 0)
    start = np.floor(place).astype(int)
    for tap in range(-1, 3) if cubic else range(2):
        weight = _cubic(place - start - tap, -0.75) if cubic else _triangle(place - start - tap)
        np.add.at(rows, (np.arange(out), np.clip(start + tap, 0, size - 1)), weight)
    return rows


def _smooth_weights(out: int, size: int, step: float, cubic: bool) -> np.ndarray:
    """The weights of a kernel that is as wide as what a place stands for (antialiasing)."""
    wide = max(step, 1.0)
    reach = (2 if cubic else 1) * wide
    centre = (np.arange(out) + 0.5) * step
    element = np.arange(size)
    first = np.maximum((centre - reach + 0.5).astype(int), 0)[:, None]
    last = np.minimum((centre + reach + 0.5).astype(int), size)[:, None]
    distance = (element + 0.5 - centre[:, None]) / wide
    found = _cubic(distance, -0.5) if cubic else _triangle(distance)
    found = np.where((element >= first) & (element < last), found, 0)
    return np.asarray(found / found.sum(1, keepdims=True))


_AXES = {"nearest": 0, "nearest-exact": 0, "area": 0, "linear": 1, "bilinear": 2, "bicubic": 2,
         "trilinear": 3}


class Spatial(Matrices):
    """Methods over the axes after the first two: (batch, channels, ...)."""

    __slots__ = ()

    # Resizing

    def interpolate(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                    align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
                    antialias: bool = False) -> Self:
        """The axes after the first two resized, to sizes or by factors; PyTorch's formulas.

        Args:
            mode: "nearest", "nearest-exact", "area", "linear" (one axis), "bilinear" and "bicubic"
                (two), "trilinear" (three); "linear" is understood for two and three axes, too.
            align_corners: the first and last elements keep their places; else the edges of the
                outer elements do.
            antialias: a smaller picture is made of all elements that a place stands for.

        Raises:
            ShapeError: the mode does not fit the axes, or not one of size and factor is given.
        """
        count = len(self.shape) - 2
        wanted = _AXES.get(mode, -1)
        if count < 1 or wanted not in (0, 1, count) or wanted == 1 and mode != "linear":
            raise ShapeError("interpolate", f"mode {mode!r} does not fit shape {self.shape}",
                             f"give (batch, channels, ...), and one of {', '.join(_AXES)}")
        if (size is None) is (scale_factor is None):
            raise ShapeError("interpolate", f"size is {size!r}, scale_factor {scale_factor!r}",
                             "give one of them")
        own = self.shape[2:]
        factors: tuple[Any, ...] = (None,) * count
        if size is None:
            factors = tuple(scale_factor) if isinstance(scale_factor, (tuple, list)) \
                else (scale_factor,) * count
            sizes = tuple(int(math.floor(a * f)) for a, f in zip(own, factors, strict=True))
            factors = (None,) * count if recompute_scale_factor else factors
        else:
            sizes = pair(size, count, "interpolate", "size")
        if min((*sizes, *own), default=1) < 1:  # r[impl tensor.arguments.refused+2]
            raise ShapeError("interpolate", f"shape {self.shape} cannot become {sizes}",
                             "use sizes from 1 on")
        result = self
        for place, (to, factor) in enumerate(zip(sizes, factors, strict=True)):
            # r[impl tensor.spatial.value]
            rows = _weights("bicubic" if mode == "bicubic" else mode, to, own[place], factor,
                            bool(align_corners), antialias and mode in ("bilinear", "bicubic"))
            result = result._weighted(2 + place, rows, mode.startswith("nearest"))
        return result

    def _weighted(self, axis: int, rows: np.ndarray, single: bool) -> Self:
        """Sums of the elements along an axis, by the weights of each place: (places, size).

        Each place looks at few elements: they are gathered rather than multiplied by zeros.
        """
        if rows.shape[0] == rows.shape[1] and (rows == np.eye(len(rows))).all():
            return self
        if single:
            return self.index_select(axis, rows.argmax(1).tolist())
        taps = int((rows != 0).sum(1).max())
        order = np.argsort(rows == 0, 1, kind="stable")[:, :taps]
        weights = np.take_along_axis(rows, order, 1)
        wide, behind = self.cast(sum_accumulator(self._result_float())), len(self.shape) - axis - 1
        if taps > _FEW_TAPS:  # a sum that is a loop, of one gather
            weights = weights.reshape(*weights.shape, *[1] * behind)
            found = wide.index_select(axis, order.reshape(-1).tolist())
            parts = found.reshape(*found.shape[:axis], *order.shape, *found.shape[axis + 1:])
            total = (parts * self.__class__(weights, self.device, wide.dtype)).sum(axis + 1)
        else:
            columns = [self.__class__(column.reshape(-1, *[1] * behind), self.device, wide.dtype)
                       for column in weights.T]
            total, *others = [wide.index_select(axis, places.tolist()) * column
                              for places, column in zip(order.T, columns, strict=True)]
            for other in others:
                total = total + other
        return total.round().clip(self.dtype.min, self.dtype.max).cast(self.dtype) \
            if self.dtype.kind in "iu" else total.cast(self.dtype)

    def upsample(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                 align_corners: bool | None = None) -> Self:
        """interpolate"""
        return self.interpolate(size, scale_factor, mode, align_corners)

    def upsample_nearest(self, size: Any = None, scale_factor: Any = None) -> Self:
        """interpolate with mode "nearest" """
        return self.interpolate(size, scale_factor)

    def upsample_bilinear(self, size: Any = None, scale_factor: Any = None) -> Self:
        """interpolate with mode "bilinear" and the corners aligned"""
        return self.interpolate(size, scale_factor, "bilinear", True)

    # Sampling

    def grid_sample(self, grid: Self, mode: str = "bilinear", padding_mode: str = "zeros",
                    align_corners: bool | None = False) -> Self:
        """The elements at places of a grid: (batch, ..., axes), from -1 to 1, the last axis first.

        Args:
            mode: "bilinear" (in three axes: trilinear), "nearest" or "bicubic".
            padding_mode: what is outside: "zeros", "border" or "reflection".

        Raises:
            ShapeError: a mode is unknown, or the shapes do not fit.
        """
        count = len(self.shape) - 2
        if count not in (2, 3) or len(grid.shape) != count + 2 or grid.shape[-1] != count \
                or grid.shape[0] != self.shape[0]:
            raise ShapeError("grid_sample", f"a grid of shape {grid.shape} for {self.shape}",
                             "give (batch, ..., axes) for (batch, channels, ...)")
        if mode not in ("bilinear", "nearest", "bicubic") or padding_mode not in (
                "zeros", "border", "reflection") or mode == "bicubic" and count != 2:
            raise ShapeError("grid_sample", f"modes {mode!r} and {padding_mode!r} are not known",
                             "use bilinear, nearest or bicubic; zeros, border or reflection")
        places = []
        for axis in range(count):
            size, along = self.shape[2 + axis], grid[..., count - 1 - axis]
            at = (along + 1) * ((size - 1) / 2) if align_corners else \
                ((along + 1) * size - 1) / 2
            places.append(at if mode == "bicubic" else
                          _kept_inside(at, size, padding_mode, bool(align_corners)))
        if mode == "nearest":
            return self._at([place.round() for place in places], None, padding_mode,
                            bool(align_corners))
        lows = [place.floor() for place in places]
        taps = range(-1, 3) if mode == "bicubic" else range(2)
        total = None
        for corner in np.ndindex(*(len(taps),) * count):
            offsets = [taps[one] for one in corner]
            weight = functools.reduce(lambda a, b: a * b, [
                (_cubic_weight if mode == "bicubic" else _linear_weight)(place - low - offset)
                for place, low, offset in zip(places, lows, offsets, strict=True)])
            part = self._at([low + offset for low, offset in zip(lows, offsets, strict=True)],
                            weight, padding_mode, bool(align_corners))
            total = part if total is None else total + part
        assert total is not None
        return total

    def _at(self, places: list[Any], weight: Any, padding_mode: str, aligned: bool) -> Self:
        """The elements at whole places, 0 outside, times a weight for all channels."""
        flat, inside = None, None
        for size, place in zip(self.shape[2:], places, strict=True):
            if padding_mode != "zeros":
                place = _kept_inside(place, size, padding_mode, aligned)
            here = (place >= 0) & (place <= size - 1)
            number = place.clip(0, size - 1).cast(dtypes.int32)
            flat = number if flat is None else flat * size + number
            inside = here if inside is None else inside & here
        assert flat is not None
        batch, channels = self.shape[:2]
        where = flat.reshape(batch, 1, -1).expand(batch, channels, flat.numel() // max(batch, 1))
        found = self.reshape(batch, channels, -1).gather(2, where)
        found = found.reshape(batch, channels, *flat.shape[1:])
        factor = inside.unsqueeze(1).cast(self.dtype)  # type: ignore[union-attr]
        return found * (factor if weight is None else factor * weight.unsqueeze(1))

    @classmethod
    def affine_grid(cls, theta: Self, size: Sequence[int], align_corners: bool | None = False,
                    ) -> Self:
        """The grid for `grid_sample` of a shape, turned by a (batch, axes, axes + 1) matrix."""
        axes = []
        for length in reversed(size[2:]):
            line = np.linspace(-1, 1, length) if align_corners else \
                (np.arange(length) * 2 + 1) / length - 1
            axes.append(np.zeros(1) if align_corners and length == 1 else line)
        places = np.meshgrid(*axes[::-1], indexing="ij")[::-1]
        base = np.stack([*places, np.ones(tuple(size[2:]))], -1).reshape(-1, len(axes) + 1)
        made = cls(base, theta.device, theta.dtype) @ theta.transpose(1, 2)
        return made.reshape(theta.shape[0], *size[2:], len(axes))

    # Patches

    def unfold(self, dim: Any = None, size: Any = None, step: Any = None, dilation: Any = 1,
               padding: Any = 0, stride: Any = 1, kernel_size: Any = None) -> Self:
        """Windows along an axis, `unfold(axis, size, step)`; or, with a `kernel_size`, PyTorch's
        function: the patches of (batch, channels, rows, columns) as columns of a matrix.
        """
        step = 1 if step is None and isinstance(dim, int) and isinstance(size, int) else step
        if kernel_size is None and isinstance(dim, int) and isinstance(size, int) and step != 0:
            return super().unfold(dim, size, step, dilation)
        if kernel_size is None and size is not None:
            # PyTorch's order: window, dilation, padding, stride
            return self.unfold(None, dilation=size, padding=0 if step is None else step,
                               stride=dilation, kernel_size=dim)
        kernel = dim if kernel_size is None else kernel_size
        single = len(self.shape) == 3
        x = self.unsqueeze(0) if single else self
        # r[impl tensor.spatial.value]
        windows, places, _ = x._pool(kernel, stride, dilation, padding, 0, "unfold")
        taps = pair(kernel, 2, "unfold", "window")
        node = nodes.permute(windows, (0, 1, 3, 5, 2, 4))
        shape = (x.shape[0], x.shape[1] * math.prod(taps), math.prod(places))
        result = self._wrap(nodes.reshape(node, shape))
        return result.squeeze(0) if single else result

    def fold(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
             stride: Any = 1) -> Self:
        """The sum of patches that are columns of a matrix, each at its place: undoes `unfold`."""
        single = len(self.shape) == 2
        x = self.unsqueeze(0) if single else self
        kernel, gaps = pair(kernel_size, 2, "fold", "window"), pair(dilation, 2, "fold", "dilation")
        steps, cut = pair(stride, 2, "fold", "stride"), pair(padding, 2, "fold", "padding", 0)
        sizes = pair(output_size, 2, "fold", "size")
        places = tuple((n + 2 * c - (k - 1) * g - 1) // s + 1 for n, c, k, g, s in
                       zip(sizes, cut, kernel, gaps, steps, strict=True))
        channels = x.shape[1] // math.prod(kernel) if len(x.shape) == 3 else 0
        if len(x.shape) != 3 or x.shape[1:] != (channels * math.prod(kernel), math.prod(places)):
            raise ShapeError("fold", f"shape {self.shape} is not that of patches of {kernel} at "
                             f"{places} places", "give (batch, channels * window, places)")
        node = nodes.reshape(x.uop, (x.shape[0], channels, *kernel, *places))
        node = nodes.permute(node, (0, 1, 4, 2, 5, 3))
        for axis in range(2):
            reach = (places[axis] - 1) * steps[axis] + (kernel[axis] - 1) * gaps[axis] + 1
            node = UOp(Ops.FOLD, x.dtype, (node,), (2 + axis, reach, steps[axis], gaps[axis]))
        reached = nodes.shape_of(node)[2:]
        result = self._wrap(node).pad([None, None, *(
            (-c, n + c - own) for c, n, own in zip(cut, sizes, reached, strict=True))])
        return result.squeeze(0) if single else result

    def pixel_shuffle(self, upscale_factor: int) -> Self:
        """(..., c * r * r, rows, columns) as (..., c, rows * r, columns * r)."""
        r = upscale_factor
        *front, channels, rows, columns = self.shape
        split = self.reshape(*front, channels // (r * r), r, r, rows, columns)
        k = len(front)
        order = (*range(k), k, k + 3, k + 1, k + 4, k + 2)
        return split.permute(order).reshape(*front, channels // (r * r), rows * r, columns * r)

    def pixel_unshuffle(self, downscale_factor: int) -> Self:
        """(..., c, rows * r, columns * r) as (..., c * r * r, rows, columns)."""
        r = downscale_factor
        *front, channels, rows, columns = self.shape
        split = self.reshape(*front, channels, rows // r, r, columns // r, r)
        k = len(front)
        order = (*range(k), k, k + 2, k + 4, k + 1, k + 3)
        return split.permute(order).reshape(*front, channels * r * r, rows // r, columns // r)

    def channel_shuffle(self, groups: int) -> Self:
        """The channels (axis 1) of groups, taken in turns."""
        count = self.shape[1] // groups
        split = self.reshape(self.shape[0], groups, count, *self.shape[2:])
        return split.transpose(1, 2).reshape(self.shape)

    # Pooling

    def _pooled(self, axes: int) -> tuple[Self, bool]:
        """The tensor with a batch axis, and whether it had none."""
        return (self.unsqueeze(0), True) if len(self.shape) == axes + 1 else (self, False)

    def max_pool1d(self, kernel_size: Any, stride: Any = None, padding: Any = 0,
                   dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
        """max_pool2d over one axis"""
        return self._max_pool(1, kernel_size, stride, dilation, padding, ceil_mode, return_indices)

    def max_pool3d(self, kernel_size: Any, stride: Any = None, padding: Any = 0,
                   dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
        """max_pool2d over three axes"""
        return self._max_pool(3, kernel_size, stride, dilation, padding, ceil_mode, return_indices)

    def _max_pool(self, axes: int, kernel: Any, stride: Any, dilation: Any, padding: Any,
                  ceil_mode: bool, return_indices: bool) -> Any:
        x, single = self._pooled(axes)
        found = x.max_pool2d(kernel, stride, dilation, padding, ceil_mode, return_indices)
        if not single:
            return found
        return tuple(one.squeeze(0) for one in found) if return_indices else found.squeeze(0)

    def avg_pool1d(self, kernel_size: Any, stride: Any = None, padding: Any = 0,
                   ceil_mode: bool = False, count_include_pad: bool = True) -> Self:
        """avg_pool2d over one axis"""
        x, single = self._pooled(1)
        found = x.avg_pool2d(kernel_size, stride, 1, padding, count_include_pad, ceil_mode)
        return found.squeeze(0) if single else found

    def avg_pool3d(self, kernel_size: Any, stride: Any = None, padding: Any = 0,
                   ceil_mode: bool = False, count_include_pad: bool = True,
                   divisor_override: int | None = None) -> Self:
        """avg_pool2d over three axes"""
        x, single = self._pooled(3)
        found = x.avg_pool2d(kernel_size, stride, 1, padding, count_include_pad, ceil_mode,
                             divisor_override)
        return found.squeeze(0) if single else found

    def _adaptive(self, axes: int, output_size: Any, build: Callable[..., Any]) -> Any:
        """Each place of the result made of the elements that it stands for."""
        x, single = self._pooled(axes)
        given = tuple(output_size) if isinstance(output_size, (tuple, list)) \
            else (output_size,) * axes
        sizes = tuple(own if one is None else one
                      for one, own in zip(given, x.shape[-axes:], strict=True))
        found = build(x, pair(sizes, axes, "adaptive_pool", "size", 0))
        if not single:
            return found
        return tuple(one.squeeze(0) for one in found) if isinstance(found, tuple) \
            else found.squeeze(0)

    def _even_windows(self, sizes: tuple[int, ...]) -> tuple[Self, tuple[int, ...]] | None:
        """The last axes as so many equal windows each, and the axes along these; None if windows
        are not equal.
        """
        own = self.shape[2:]
        if not all(to and n and n % to == 0 for to, n in zip(sizes, own, strict=True)):
            return None
        parts = [part for to, n in zip(sizes, own, strict=True) for part in (to, n // to)]
        return self.reshape(*self.shape[:2], *parts), tuple(range(3, 3 + len(parts), 2))

    def _adaptive_average(self, axes: int, output_size: Any) -> Self:
        def build(x: Self, sizes: tuple[int, ...]) -> Self:
            if x.dtype.kind == "f" and (even := x._even_windows(sizes)) is not None:
                return even[0].mean(even[1])
            for place, to in enumerate(sizes):
                rows = _weights("area", to, x.shape[2 + place], None, False, False)
                x = x._weighted(2 + place, rows, False) if to else x.narrow(2 + place, 0, 0)
            return x
        found: Self = self._adaptive(axes, output_size, build)
        return found

    def adaptive_avg_pool1d(self, output_size: Any) -> Self:
        """The means of windows, as many as asked for, over one axis."""
        return self._adaptive_average(1, output_size)

    def adaptive_avg_pool2d(self, output_size: Any) -> Self:
        """The means of windows, as many as asked for along each of two axes."""
        return self._adaptive_average(2, output_size)

    def adaptive_avg_pool3d(self, output_size: Any) -> Self:
        """The means of windows, as many as asked for along each of three axes."""
        return self._adaptive_average(3, output_size)

    def _adaptive_greatest(self, axes: int, output_size: Any, return_indices: bool) -> Any:
        def build(x: Self, sizes: tuple[int, ...]) -> Any:
            if not return_indices and (even := x._even_windows(sizes)) is not None:
                return even[0].max(even[1])
            own = x.shape[2:]
            bounds = [[(i * n // to, -(-(i + 1) * n // to)) for i in range(to)]
                      for n, to in zip(own, sizes, strict=True)]
            reach = [max((b - a for a, b in each), default=1) for each in bounds]
            # The places of a window that are outside of it show one that is inside once more.
            taps = [np.array([[min(a + t, b - 1) for t in range(k)] for a, b in each]).reshape(
                len(each), k) for each, k in zip(bounds, reach, strict=True)]
            flat = np.zeros((1, 1), np.int64)
            for n, each in zip(own, taps, strict=True):
                flat = (flat[:, None, :, None] * n + each[None, :, None, :]).reshape(
                    flat.shape[0] * each.shape[0], flat.shape[1] * each.shape[1])
            seen = x.flatten(2).index_select(2, flat.reshape(-1).tolist())
            seen = seen.reshape(*x.shape[:2], *flat.shape)
            best = seen.max(-1).reshape(*x.shape[:2], *sizes)
            if not return_indices:
                return best
            table = self.__class__(flat.astype(np.int32), self.device).expand(seen.shape)
            where = table.gather(-1, seen.argmax(-1, keepdim=True))
            return best, where.reshape(*x.shape[:2], *sizes)
        return self._adaptive(axes, output_size, build)

    def adaptive_max_pool1d(self, output_size: Any, return_indices: bool = False) -> Any:
        """The greatest elements of windows, as many as asked for, over one axis."""
        return self._adaptive_greatest(1, output_size, return_indices)

    def adaptive_max_pool2d(self, output_size: Any, return_indices: bool = False) -> Any:
        """The greatest elements of windows, as many as asked for along each of two axes."""
        return self._adaptive_greatest(2, output_size, return_indices)

    def adaptive_max_pool3d(self, output_size: Any, return_indices: bool = False) -> Any:
        """The greatest elements of windows, as many as asked for along each of three axes."""
        return self._adaptive_greatest(3, output_size, return_indices)

    def lp_pool1d(self, norm_type: float, kernel_size: int, stride: Any = None,
                  ceil_mode: bool = False) -> Self:
        """The p-norm of each window over one axis."""
        return self._lp_pool(1, norm_type, kernel_size, stride, ceil_mode)

    def lp_pool2d(self, norm_type: float, kernel_size: Any, stride: Any = None,
                  ceil_mode: bool = False) -> Self:
        """The p-norm of each window over two axes."""
        return self._lp_pool(2, norm_type, kernel_size, stride, ceil_mode)

    def lp_pool3d(self, norm_type: float, kernel_size: Any, stride: Any = None,
                  ceil_mode: bool = False) -> Self:
        """The p-norm of each window over three axes."""
        return self._lp_pool(3, norm_type, kernel_size, stride, ceil_mode)

    def _lp_pool(self, axes: int, p: float, kernel_size: Any, stride: Any, ceil: bool) -> Self:
        x, single = self._pooled(axes)
        taps = math.prod(pair(kernel_size, axes, "lp_pool", "window"))
        mean = (x ** p).avg_pool2d(kernel_size, stride, ceil_mode=ceil)
        total = mean.sign() * mean.abs().relu() * taps
        none = total.eq(0)
        found = none.where(0, none.where(1, total) ** (1 / p))
        return found.squeeze(0) if single else found

    def max_unpool2d(self, indices: Self, kernel_size: Any, stride: Any = None, padding: Any = 0,
                     output_size: Any = None) -> Self:
        """The elements at the places that `max_pool2d` gave for them, 0 elsewhere."""
        axes = max(len(self.shape) - 2, 1)
        return self._max_unpool(axes, indices, kernel_size, stride, padding, output_size)

    def max_unpool1d(self, indices: Self, kernel_size: Any, stride: Any = None, padding: Any = 0,
                     output_size: Any = None) -> Self:
        """max_unpool2d over one axis"""
        return self._max_unpool(1, indices, kernel_size, stride, padding, output_size)

    def max_unpool3d(self, indices: Self, kernel_size: Any, stride: Any = None, padding: Any = 0,
                     output_size: Any = None) -> Self:
        """max_unpool2d over three axes"""
        return self._max_unpool(3, indices, kernel_size, stride, padding, output_size)

    def _max_unpool(self, axes: int, indices: Self, kernel_size: Any, stride: Any, padding: Any,
                    output_size: Any) -> Self:
        kernel = pair(kernel_size, axes, "max_unpool", "window")
        steps = kernel if stride is None else pair(stride, axes, "max_unpool", "stride")
        cut = pair(padding, axes, "max_unpool", "padding", 0)
        own = self.shape[-axes:]
        sizes = tuple(output_size)[-axes:] if output_size is not None else tuple(
            (n - 1) * s - 2 * c + k for n, s, c, k in zip(own, steps, cut, kernel, strict=True))
        front = self.shape[:-axes]
        flat = (*front, math.prod(own))
        nothing = self._wrap(nodes.full(UOp.const(self.dtype, 0), (*front, math.prod(sizes))))
        spread = nothing.scatter(-1, indices.reshape(flat), self.reshape(flat))
        return spread.reshape(*front, *sizes)

    def local_response_norm(self, size: int, alpha: float = 1e-4, beta: float = 0.75,
                            k: float = 1.0) -> Self:
        """Divided by a power of the mean square of `size` neighbouring channels (axis 1)."""
        if 0 in self.shape:
            return self
        square = self.square().unsqueeze(1)
        pads: list[Any] = [None] * len(square.shape)
        pads[2] = (size // 2, (size - 1) // 2)
        near = square.pad(pads).squeeze(1).unfold(1, size, 1).mean(-1)
        return self / (near * alpha + k) ** beta


def _kept_inside(place: Any, size: int, padding_mode: str, aligned: bool) -> Any:
    """A place that is outside, moved as the mode says; zeros are left where they are."""
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if aligned else (-0.5, size)
        if span <= 0:
            return place * 0
        away = (place - low).abs()
        turns = (away / span).floor()
        rest = away - turns * span
        odd = (turns - (turns / 2).floor() * 2).ne(0)
        place = odd.where(span - rest, rest) + low
    return place.clip(0, size - 1)


def _linear_weight(distance: Any) -> Any:
    return 1 - distance.abs()


def _cubic_weight(distance: Any) -> Any:
    """Keys' (1981) kernel of the slope -0.75."""
    a, x = -0.75, distance.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return (x <= 1).where(near, (x < 2).where(far, 0))
