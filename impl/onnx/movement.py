"""Operators that move elements: shapes, pieces, places, and what tells of shapes."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from impl.dtypes import dtypes
from impl.errors import ShapeError
from impl.host import np
from impl.onnx.operators import (
    LITTLE,
    Host,
    Value,
    dtype_of,
    host_array,
    ints,
    operator,
    tensor_of,
)
from impl.tensor import Tensor


def positive(axis: int, rank: int) -> int:
    """An axis, counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise ShapeError("axis", f"{axis} is no axis of {rank}", "repair the model")
    return axis % rank if rank else 0


# Shapes


@operator("Shape")
def shape(x: Value, *, start: int = 0, end: int | None = None) -> np.ndarray:
    return np.array(x.shape[start:end], np.int64)


@operator("Size")
def size(x: Value) -> np.ndarray:
    return np.array(math.prod(x.shape), np.int64)


@operator("Reshape", 5)
def reshape(x: Tensor, wanted: Host, *, allowzero: int = 0) -> Tensor:
    sizes = ints(wanted)
    if not allowzero:
        sizes = [x.shape[place] if one == 0 else one for place, one in enumerate(sizes)]
    if -1 in sizes and 0 in x.shape:  # nothing says how many there are
        known = math.prod(one for one in sizes if one != -1)
        sizes = [x.numel() // max(known, 1) if one == -1 else one for one in sizes]
    return x.reshape(*sizes)


@operator("Reshape", 1)
def reshape_1(x: Tensor, *, shape: list[int]) -> Tensor:
    return reshape(x, np.array(shape))


@operator("Flatten")
def flat_matrix(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Transpose")
def transpose(x: Tensor, *, perm: list[int] | None = None) -> Tensor:
    return x.permute(*(range(x.ndim)[::-1] if perm is None else perm)) if x.ndim else x


@operator("Squeeze", 13)
def squeeze(x: Tensor, axes: Host | None = None) -> Tensor:
    gone = {place for place, one in enumerate(x.shape) if one == 1} if axes is None \
        else {positive(axis, x.ndim) for axis in ints(axes)}
    if any(x.shape[axis] != 1 for axis in gone):
        raise ShapeError("Squeeze", f"axes {sorted(gone)} of shape {x.shape} are not all 1",
                         "repair the model")
    return x.reshape(*(one for place, one in enumerate(x.shape) if place not in gone))


@operator("Squeeze", 1)
def squeeze_1(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    return squeeze(x, None if axes is None else np.array(axes))


@operator("Unsqueeze", 13)
def unsqueeze(x: Tensor, axes: Host) -> Tensor:
    rank = x.ndim + axes.size
    new = {positive(axis, rank) for axis in ints(axes)}
    rest = iter(x.shape)
    return x.reshape(*(1 if place in new else next(rest) for place in range(rank)))


@operator("Unsqueeze", 1)
def unsqueeze_1(x: Tensor, *, axes: list[int]) -> Tensor:
    return unsqueeze(x, np.array(axes))


@operator("Expand")
def expand(x: Tensor, wanted: Host) -> Tensor:
    return x.expand(*np.broadcast_shapes(tuple(x.shape), tuple(ints(wanted))))


@operator("Tile", 6)
def tile(x: Tensor, repeats: Host) -> Tensor:
    return x.repeat(*ints(repeats)) if x.ndim else x


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    batch, depth, height, width = x.shape
    rest = depth // blocksize ** 2
    if mode == "DCR":
        parts = x.reshape(batch, blocksize, blocksize, rest, height, width)
        parts = parts.permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(batch, rest, blocksize, blocksize, height, width)
        parts = parts.permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(batch, rest, height * blocksize, width * blocksize)


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    batch, depth, height, width = x.shape
    parts = x.reshape(batch, depth, height // blocksize, blocksize, width // blocksize, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.permute(*order).reshape(
        batch, depth * blocksize ** 2, height // blocksize, width // blocksize)


@operator("Col2Im")
def column_to_image(x: Tensor, image: Host, block: Host, *, dilations: list[int] | None = None,
                    pads: list[int] | None = None, strides: list[int] | None = None) -> Tensor:
    """Each block is added where it lies."""
    sizes, blocks = ints(image), ints(block)
    rank = len(sizes)
    dilations, strides = dilations or [1] * rank, strides or [1] * rank
    pads = pads or [0] * 2 * rank
    whole = [one + pads[axis] + pads[axis + rank] for axis, one in enumerate(sizes)]
    counts = [(whole[axis] - dilations[axis] * (blocks[axis] - 1) - 1) // strides[axis] + 1
              for axis in range(rank)]
    places = np.zeros([*blocks, *counts], np.int64)
    for axis in range(rank):
        along = np.arange(blocks[axis])[:, None] * dilations[axis] \
            + np.arange(counts[axis]) * strides[axis]
        form = [1] * (2 * rank)
        form[axis], form[axis + rank] = along.shape
        places = places * whole[axis] + along.reshape(form)
    batch, depth = x.shape[0], x.shape[1] // math.prod(blocks)
    values = x.reshape(batch, depth, -1)
    index = Tensor(places.reshape(-1), device=x.device).reshape(1, 1, -1).expand(*values.shape)
    found = values.zeros_like().reshape(-1)[:1].reshape(1, 1, 1).expand(
        batch, depth, math.prod(whole)).scatter_add(2, index, values).reshape(batch, depth, *whole)
    return found[(slice(None), slice(None), *(
        slice(pads[axis], pads[axis] + one) for axis, one in enumerate(sizes)))]


# Pieces


@operator("Concat")
def concat(*given: Tensor, axis: int = 1) -> Tensor:
    # Before version 4 an axis need not be given.
    return given[0].cat(*given[1:], dim=axis) if len(given) > 1 else given[0]


def _in_pieces(x: Tensor, axis: int, sizes: Sequence[int] | None, count: int) -> Any:
    if sizes is None:
        width = -(-x.shape[axis] // count)
        whole = x.shape[axis]
        sizes = [min(width, max(whole - width * place, 0)) for place in range(count)]
    return tuple(x.split(list(sizes), axis))


@operator("Split", 13)
def split(x: Tensor, sizes: Host | None = None, *, axis: int = 0, num_outputs: int | None = None,
          results: int = 1) -> Any:
    return _in_pieces(x, axis, None if sizes is None else ints(sizes), num_outputs or results)


@operator("Split", 1)
def split_1(x: Tensor, *, axis: int = 0, split: list[int] | None = None, results: int = 1) -> Any:
    return _in_pieces(x, axis, split, results)


@operator("Slice", 10)
def slice_of(x: Tensor, starts: Host, ends: Host, axes: Host | None = None,
             steps: Host | None = None) -> Tensor:
    chosen: list[Any] = [slice(None)] * x.ndim
    along = ints(axes) if axes is not None else list(range(starts.size))
    by = ints(steps) if steps is not None else [1] * starts.size
    for axis, start, end, step in zip(along, ints(starts), ints(ends), by, strict=True):
        whole = x.shape[axis]
        # An end before the first element cannot be written as a negative number of Python's.
        stop: int | None = None if step < 0 and end < -whole else end
        chosen[axis] = slice(start, stop, step)
    return x[tuple(chosen)] if chosen else x


@operator("Slice", 1)
def slice_1(x: Tensor, *, starts: list[int], ends: list[int],
            axes: list[int] | None = None) -> Tensor:
    return slice_of(x, np.array(starts), np.array(ends), None if axes is None else np.array(axes))


_MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@operator("Pad", 11)
def pad(x: Tensor, pads: Host, value: Host | None = None, axes: Host | None = None, *,
        mode: str = "constant") -> Tensor:
    along = range(x.ndim) if axes is None else [axis % x.ndim for axis in ints(axes)]
    before_after = ints(pads)
    widths = [(0, 0)] * x.ndim
    for place, axis in enumerate(along):
        widths[axis] = before_after[place], before_after[place + len(along)]
    if mode == "constant":
        return x.pad(widths, value=0 if value is None else value.item())
    cut = x.pad([(min(one, 0), min(two, 0)) for one, two in widths])
    for axis, (one, two) in enumerate(widths):
        cut = _from_within(cut, axis, max(one, 0), max(two, 0), mode)
    return cut


def _from_within(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """More elements along one axis, which are some of its own."""
    if not before and not after:
        return x
    whole = x.shape[axis]
    places = np.arange(-before, whole + after)
    if mode == "edge":
        places = places.clip(0, whole - 1)
    elif mode == "wrap":
        places %= whole
    else:
        places %= max(2 * (whole - 1), 1)
        places = np.minimum(places, 2 * (whole - 1) - places)
    return x.index_select(axis, Tensor(places.astype(np.int32), device=x.device))


@operator("Pad", 2)
def pad_2(x: Tensor, *, pads: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    return pad(x, np.array(pads), np.array(value), mode=mode)


@operator("Pad", 1)
def pad_1(x: Tensor, *, paddings: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    return pad(x, np.array(paddings), np.array(value), mode=mode)


@operator("Trilu")
def half(x: Tensor, k: Host | None = None, *, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else int(k)
    return x.triu(diagonal) if upper else x.tril(diagonal)


@operator("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1,
                     time_axis: int = 0) -> Tensor:
    turned = x.permute(*((0, 1) if time_axis == 0 else (1, 0)), *range(2, x.ndim))
    time = Tensor.arange(turned.shape[0], device=x.device).reshape(-1, 1)
    size = lengths.cast(dtypes.int32).reshape(1, -1)
    places = (time < size).where(size - 1 - time, time)
    places = places.reshape(*places.shape, *(1,) * (x.ndim - 2)).expand(*turned.shape)
    found = turned.gather(0, places)
    return found.permute(*((0, 1) if time_axis == 0 else (1, 0)), *range(2, x.ndim))


# Places


def _within(index: Tensor, size: int) -> Tensor:
    """Places, those that count from the end counted from the front."""
    return (index < 0).where(index + size, index)


@operator("Gather")
def gather(x: Tensor, index: Value, *, axis: int = 0) -> Tensor:
    axis = positive(axis, x.ndim)
    if isinstance(index, np.ndarray) and index.size == 1:
        place = int(index.item())
        one = x.narrow(axis, positive(place, x.shape[axis]), 1)
        return one.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1:])
    places = _within(tensor_of(index, x.device), x.shape[axis])
    found = x.index_select(axis, places.reshape(-1))
    return found.reshape(*x.shape[:axis], *places.shape, *x.shape[axis + 1:])


@operator("GatherElements")
def gather_elements(x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    axis = positive(axis, x.ndim)
    return x.gather(axis, _within(index, x.shape[axis]))


def _flat(index: Tensor, sizes: Sequence[int]) -> Tensor:
    """One number for each row of places: where that is in a tensor of these sizes."""
    found = index[..., 0].zeros_like()
    for place, one in enumerate(sizes):
        found = found * one + _within(index[..., place], one)
    return found


@operator("GatherND")
def gather_nd(x: Tensor, index: Tensor, *, batch_dims: int = 0) -> Tensor:
    depth = index.shape[-1]
    heads, sizes = x.shape[:batch_dims], x.shape[batch_dims:batch_dims + depth]
    rest = x.shape[batch_dims + depth:]
    batch = math.prod(heads)
    flat = _flat(index, sizes).reshape(batch, -1)
    flat = flat + Tensor.arange(batch, dtype=flat.dtype, device=x.device).reshape(-1, 1) * \
        math.prod(sizes)
    found = x.reshape(batch * math.prod(sizes), *rest).index_select(0, flat.reshape(-1))
    return found.reshape(*heads, *index.shape[batch_dims:-1], *rest)


_REDUCED = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements")
def scatter_elements(x: Tensor, index: Tensor, updates: Tensor, *, axis: int = 0,
                     reduction: str = "none") -> Tensor:
    axis = positive(axis, x.ndim)
    places = _within(index, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCED[reduction])


operator("Scatter")(scatter_elements)


@operator("ScatterND")
def scatter_nd(x: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = index.shape[-1]
    sizes, rest = x.shape[:depth], x.shape[depth:]
    flat = _flat(index, sizes).reshape(-1, 1).expand(-1, math.prod(rest))
    rows = x.reshape(math.prod(sizes), math.prod(rest))
    values = updates.reshape(*flat.shape)
    return scatter_elements(rows, flat, values, reduction=reduction).reshape(*x.shape)


@operator("TensorScatter")
def tensor_scatter(past: Tensor, update: Tensor, written: Tensor | None = None, *, axis: int = -2,
                   mode: str = "linear") -> Tensor:
    """A cache, with new rows behind those of each example that were written before."""
    axis = positive(axis, past.ndim)
    whole, count = past.shape[axis], update.shape[axis]
    form = [1] * past.ndim
    form[axis] = count
    places = Tensor.arange(count, dtype=dtypes.int64, device=past.device).reshape(*form)
    if written is not None:
        places = places + written.reshape(-1, *(1,) * (past.ndim - 1))
    if mode == "circular":
        places = places % whole
    return past.scatter(axis, places.expand(*update.shape), update)


@operator("OneHot")
def one_hot(index: Tensor, depth: Host, values: Tensor, *, axis: int = -1) -> Tensor:
    count = int(host_array(depth).item())
    axis = axis % (index.ndim + 1)
    form = [1] * (index.ndim + 1)
    form[axis] = count
    places = Tensor.arange(count, device=index.device).reshape(*form)
    wanted = _within(index.cast(dtypes.int64), count).unsqueeze(axis)
    return (wanted == places).where(values[1], values[0])


@operator("Compress")
def compress(x: Tensor, condition: Host, *, axis: int | None = None) -> Tensor:
    if axis is None:
        x, axis = x.reshape(-1), 0
    places = np.flatnonzero(condition)
    return x.index_select(axis, Tensor(places.astype(np.int32), device=x.device))


@operator("NonZero")
def nonzero(x: Tensor) -> Tensor:
    return x.nonzero().cast(dtypes.int64).transpose(0, 1)


@operator("Unique")
def unique(x: Host, *, axis: int | None = None, sorted: int = 1, results: int = 1) -> Any:
    """How many there are depends on values: they are found on the host."""
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values = np.take(values, order, axis=axis or 0)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    found = (values, *(each.astype(np.int64) for each in (first, inverse, counts)))
    return tuple(map(tensor_of, found))[:results]


# Values that are known


@operator("ConstantOfShape")
def constant_of_shape(wanted: Host, *, value: Any = None) -> Value:
    sizes, fill = ints(wanted), np.zeros(1, np.float32) if value is None else host_array(value)
    if math.prod(sizes) <= LITTLE:
        return np.full(sizes, fill.reshape(-1)[0], fill.dtype)
    return tensor_of(fill.reshape((1,) * len(sizes))).expand(*sizes)


@operator("Range")
def range_of(start: Host, limit: Host, delta: Host) -> Value:
    first, stop, step = (host_array(each).reshape(()) for each in (start, limit, delta))
    count = max(math.ceil((float(stop) - float(first)) / float(step)), 0)
    if count <= LITTLE:
        return (first + np.arange(count).astype(first.dtype) * step).astype(first.dtype)
    places = Tensor.arange(count, dtype=dtypes.int64)
    return places.cast(tensor_of(first).dtype) * step.item() + first.item()


@operator("EyeLike")
def eye_like(x: Tensor, *, dtype: int = 0, k: int = 0) -> Tensor:
    rows, columns = x.shape
    down, along = (Tensor.arange(one, device=x.device) for one in (rows, columns))
    found = (down.reshape(-1, 1) + k) == along
    return found.cast(dtype_of(dtype) if dtype else x.dtype)
