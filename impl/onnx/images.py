"""Operators about pictures: other sizes, places between pixels, boxes."""
from __future__ import annotations

import itertools
import math
from typing import Any

from impl.dtypes import dtypes
from impl.host import np
from impl.onnx.operators import Host, ints, operator
from impl.tensor import Tensor

# Other sizes


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    far = np.abs(distance)
    near = (a + 2) * far ** 3 - (a + 3) * far ** 2 + 1
    return np.where(far <= 1, near, np.where(
        far < 2, a * far ** 3 - 5 * a * far ** 2 + 8 * a * far - 4 * a, 0))


def _sources(out: int, size: int, scale: float, mode: str, roi: tuple[float, float]) -> np.ndarray:
    """Where in the input each place of the output lies."""
    place = np.arange(out, dtype=np.float64)
    length = scale * size
    if mode == "align_corners":
        return place * (size - 1) / (length - 1) if length > 1 else place * 0
    if mode == "asymmetric":
        return place / scale
    if mode == "tf_crop_and_resize":
        first, last = roi
        if length <= 1:
            return place * 0 + 0.5 * (first + last) * (size - 1)
        return first * (size - 1) + place * (last - first) * (size - 1) / (length - 1)
    if mode == "pytorch_half_pixel" and length <= 1:
        return place * 0 - 0.5
    source = (place + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        source += size / 2 * (1 - out / length)
    return source


def _nearest(source: np.ndarray, how: str) -> np.ndarray:
    if how == "ceil":
        return np.ceil(source)
    if how == "floor":
        return np.floor(source)
    return np.ceil(source - 0.5) if how == "round_prefer_floor" else np.floor(source + 0.5)


def _taps(source: np.ndarray, size: int, scale: float, mode: str, a: float, antialias: int,
          exclude: int) -> tuple[np.ndarray, np.ndarray]:
    """Which elements each place is made of, and their weights: (places, taps) both."""
    wide = min(scale, 1.0) if antialias else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / wide)
    first = np.floor(source)[:, None] + np.arange(-reach + 1, reach + 1)
    distance = (first - source[:, None]) * wide
    share = np.maximum(1 - np.abs(distance), 0) if mode == "linear" else _cubic(distance, a)
    if exclude:
        share = np.where((first < 0) | (first >= size), 0, share)
    if exclude or antialias:
        share = share / share.sum(1, keepdims=True)
    return first.clip(0, size - 1).astype(np.int32), share


@operator("Resize", 11)
def resize(x: Tensor, roi: Host | None = None, scales: Host | None = None,
           sizes: Host | None = None, *, antialias: int = 0, axes: list[int] | None = None,
           coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
           exclude_outside: int = 0, extrapolation_value: float = 0.0,
           keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
           nearest_mode: str = "round_prefer_floor") -> Tensor:
    """One axis after the other: each place is a sum of elements with weights that are known."""
    along = [axis % x.ndim for axis in (range(x.ndim) if axes is None else axes)]
    by, wanted = _new_sizes(x, along, scales, sizes, keep_aspect_ratio_policy)
    corners = [float(one) for one in roi.tolist()] if roi is not None and roi.size else \
        [0.0] * len(along) + [1.0] * len(along)
    found = x if x.dtype.kind == "f" else x.cast(dtypes.float32)
    outside = []
    for place, axis in enumerate(along):
        size, out, scale = x.shape[axis], wanted[place], by[place]
        how = coordinate_transformation_mode
        source = _sources(out, size, scale, how, (corners[place], corners[place + len(along)]))
        if how == "tf_crop_and_resize":
            outside.append((axis, (source < 0) | (source > size - 1)))
        elif out == size and scale == 1:
            continue
        if mode == "nearest":
            index = _nearest(source, nearest_mode).clip(0, size - 1).astype(np.int32)
            found = found.index_select(axis, Tensor(index, device=x.device))
        else:
            found = _summed(found, axis, *_taps(source, size, scale, mode, cubic_coeff_a,
                                                antialias, exclude_outside))
    for axis, gone in outside:
        form = [1] * x.ndim
        form[axis] = gone.size
        found = Tensor(gone.reshape(form), device=x.device).where(extrapolation_value, found)
    return found if found.dtype is x.dtype else found.round().cast(x.dtype)


def _new_sizes(x: Tensor, along: list[int], scales: Host | None, sizes: Host | None,
               policy: str) -> tuple[list[float], list[int]]:
    if sizes is None or not sizes.size:
        assert scales is not None
        by = [float(one) for one in scales.tolist()]
        return by, [math.floor(x.shape[axis] * one) for axis, one in zip(along, by, strict=True)]
    wanted = ints(sizes)
    by = [one / x.shape[axis] for axis, one in zip(along, wanted, strict=True)]
    if policy != "stretch":
        one = min(by) if policy == "not_larger" else max(by)
        by = [one] * len(by)
        wanted = [math.floor(x.shape[axis] * one + 0.5) for axis in along]
    return by, wanted


def _summed(x: Tensor, axis: int, index: np.ndarray, share: np.ndarray) -> Tensor:
    form = [1] * x.ndim
    form[axis] = len(index)
    found: Tensor | None = None
    for tap in range(index.shape[1]):
        if not share[:, tap].any():
            continue
        weight = Tensor(share[:, tap].astype(x.dtype.numpy).reshape(form), device=x.device)
        part = x.index_select(axis, Tensor(index[:, tap], device=x.device)) * weight
        found = part if found is None else found + part
    assert found is not None
    return found


@operator("Resize", 10)
def resize_10(x: Tensor, scales: Host, *, mode: str = "nearest") -> Tensor:
    return resize(x, None, scales, mode=mode, nearest_mode="floor",
                  coordinate_transformation_mode="asymmetric")


@operator("Upsample", 9)
def upsample(x: Tensor, scales: Host, *, mode: str = "nearest") -> Tensor:
    return resize_10(x, scales, mode=mode)


@operator("Upsample", 7)
def upsample_7(x: Tensor, *, scales: list[float], mode: str = "nearest") -> Tensor:
    return resize_10(x, np.array(scales, np.float32), mode=mode)


@operator("Upsample", 1)
def upsample_1(x: Tensor, *, height_scale: float, width_scale: float,
               mode: str = "nearest") -> Tensor:
    return upsample_7(x, scales=[1, 1, height_scale, width_scale], mode=mode)


# Places between pixels


def _place(at: Tensor, size: int, align: int) -> Tensor:
    """From -1 to 1, to places of pixels."""
    return (at + 1) / 2 * (size - 1) if align else ((at + 1) * size - 1) / 2


def _brought_inside(at: Tensor, size: int, mode: str, align: int) -> Tensor:
    if mode == "reflection":
        low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        width = high - low
        if width <= 0:
            return at.zeros_like()
        away = (at - low).abs()
        turn = away - (away / (2 * width)).floor() * (2 * width)
        at = turn.minimum(2 * width - turn) + low
    return at.clamp(0, size - 1) if mode != "zeros" else at


@operator("GridSample")
def grid_sample(x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear",
                padding_mode: str = "zeros") -> Tensor:
    """Any number of axes: each place is a sum of the pixels beside it."""
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    sizes = x.shape[2:]
    rank = len(sizes)
    form = grid.shape[1:-1]
    taps: list[list[tuple[Tensor, Tensor]]] = []
    for axis, size in enumerate(sizes):
        at = _place(grid[..., rank - 1 - axis], size, align_corners)
        if kind != "cubic":
            at = _brought_inside(at, size, padding_mode, align_corners)
        taps.append(list(_beside(at, kind)))
    values = x.reshape(x.shape[0], x.shape[1], -1)
    found: Tensor | None = None
    for chosen in itertools.product(*taps):
        flat, share = _one_pixel(chosen, sizes, padding_mode, align_corners)
        index = flat.reshape(x.shape[0], 1, -1).expand(-1, x.shape[1], -1)
        part = values.gather(2, index).reshape(x.shape[0], x.shape[1], *form) * share.unsqueeze(1)
        found = part if found is None else found + part
    assert found is not None
    return found.cast(x.dtype)


@operator("AffineGrid")
def affine_grid(theta: Tensor, size: Host, *, align_corners: int = 0) -> Tensor:
    """The grid for GridSample of a shape, turned by a matrix for each picture."""
    return Tensor.affine_grid(theta, ints(size), bool(align_corners))


def _beside(at: Tensor, kind: str) -> Any:
    """Places along one axis, and their shares."""
    if kind == "nearest":
        yield at.round(), at.ones_like()
        return
    first = at.floor()
    for step in range(2) if kind == "linear" else range(-1, 3):
        far = (at - first - step).abs()
        if kind == "linear":
            yield first + step, 1 - far
        else:
            a = -0.75
            near = ((a + 2) * far - (a + 3)) * far * far + 1
            yield first + step, (far <= 1).where(
                near, ((a * far - 5 * a) * far + 8 * a) * far - 4 * a)


def _one_pixel(chosen: Any, sizes: Any, mode: str, align: int) -> tuple[Tensor, Tensor]:
    flat: Any = 0
    share: Any = 1
    for (at, weight), size in zip(chosen, sizes, strict=True):
        inside = _brought_inside(at, size, mode, align)
        if mode == "zeros":
            weight = ((at >= 0) & (at <= size - 1)).where(weight, 0)
            inside = at.clamp(0, size - 1)
        flat = flat * size + inside.round().cast(dtypes.int64)
        share = share * weight
    return flat, share


# Boxes


@operator("NonMaxSuppression")
def non_max_suppression(boxes: Host, scores: Host, most: Host | None = None,
                        overlap: Host | None = None, least: Host | None = None, *,
                        center_point_box: int = 0) -> np.ndarray:
    """How many boxes are left depends on values: they are found on the host."""
    count = int(most.item()) if most is not None and most.size else 0
    limit = float(overlap.item()) if overlap is not None and overlap.size else 0.0
    floor = float(least.item()) if least is not None and least.size else -math.inf
    found: list[tuple[int, int, int]] = []
    for batch, kind in np.ndindex(*scores.shape[:2]):
        corners = _corners(boxes[batch].astype(np.float64), center_point_box)
        order = np.argsort(-scores[batch, kind], kind="stable")
        rest = order[scores[batch, kind][order] > floor]
        for _ in range(min(count, len(rest))):
            if not len(rest):
                break
            best, rest = rest[0], rest[1:]
            found.append((batch, kind, int(best)))
            rest = rest[_shared(corners[best], corners[rest]) <= limit]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes: np.ndarray, center: int) -> np.ndarray:
    if center:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]),
                           np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _shared(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The area that a box shares with others, as a part of the area of both."""
    low, high = np.maximum(one[:2], others[:, :2]), np.minimum(one[2:], others[:, 2:])
    both = np.prod(np.maximum(high - low, 0), 1)
    whole = np.prod(one[2:] - one[:2]) + np.prod(others[:, 2:] - others[:, :2], 1) - both
    return np.where(whole > 0, both / np.where(whole > 0, whole, 1), 0)


@operator("RoiAlign")
def roi_align(x: Tensor, rois: Host, batches: Host, *,
              coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
              output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
              spatial_scale: float = 1.0) -> Tensor:
    """The mean, or the greatest, of samples in each part of a box."""
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    results = []
    for box, batch in zip(rois.tolist(), ints(batches), strict=True):
        left, top, right, bottom = (one * spatial_scale - half for one in box)
        rows, columns = (
            _samples(low, high, out, size, sampling_ratio, not half) for low, high, out, size
            in ((top, bottom, output_height, x.shape[2]),
                (left, right, output_width, x.shape[3])))
        results.append(_in_boxes(x[batch], rows, columns, mode))
    return Tensor.stack(*results) if results else Tensor.zeros(
        0, x.shape[1], output_height, output_width, dtype=x.dtype, device=x.device)


def _samples(low: float, high: float, out: int, size: int, ratio: int,
             at_least_one: bool) -> np.ndarray:
    """The weights of the elements of an axis: (parts, samples of a part, 2 sides, elements)."""
    length = max(high - low, 1.0) if at_least_one else high - low
    count = ratio or max(math.ceil(length / out), 1)
    at = low + (np.arange(out)[:, None] + (np.arange(count) + 0.5) / count) * length / out
    inside = (at >= -1) & (at <= size)
    at = at.clip(0, size - 1)
    first = np.floor(at).astype(int)
    found = np.zeros((out, count, 2, size))
    part, sample = np.indices(at.shape)
    found[part, sample, 0, first] = np.where(inside, 1 - (at - first), 0)
    found[part, sample, 1, np.minimum(first + 1, size - 1)] = np.where(inside, at - first, 0)
    return found


def _in_boxes(x: Tensor, rows: np.ndarray, columns: np.ndarray, mode: str) -> Tensor:
    if mode == "avg":
        down, along = (Tensor(each.sum(2).mean(1).astype(np.float32), device=x.device)
                       .cast(x.dtype) for each in (rows, columns))
        return down @ x @ along.transpose(0, 1)
    down, along = (Tensor(each.reshape(-1, each.shape[-1]).astype(np.float32), device=x.device)
                   .cast(x.dtype) for each in (rows, columns))
    read = down @ x @ along.transpose(0, 1)
    return read.reshape(x.shape[0], len(rows), -1, len(columns),
                        columns.shape[1] * 2).amax((2, 4))
