"""Functions of many elements: sums, order, places, sets, shapes, products."""
from __future__ import annotations

from typing import Any, NamedTuple

from impl.array_api.arrays import Array, array_of, asarray
from impl.array_api.kinds import result_type
from impl.dtypes import DType, dtypes
from impl.errors import AxisError, ShapeError
from impl.host import np

__all__ = [
    "all", "any", "argmax", "argmin", "argsort", "broadcast_arrays", "broadcast_to", "concat",
    "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "expand_dims", "flip", "matmul",
    "matrix_transpose", "max", "mean", "min", "moveaxis", "nonzero", "permute_dims", "prod",
    "repeat", "reshape", "roll", "searchsorted", "sort", "squeeze", "stack", "std", "sum", "take",
    "take_along_axis", "tensordot", "tile", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unstack", "var", "vecdot", "where"]


class UniqueAll(NamedTuple):
    """The different elements, where each was first, where each element is among them, how many."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The different elements, and how many there are of each."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The different elements, and where each element is among them."""

    values: Array
    inverse_indices: Array


# Sums and extremes

def sum(x: Array, /, *, axis: Any = None, dtype: DType | None = None,  # noqa: A001
        keepdims: bool = False) -> Array:
    """Sums along axes."""
    return array_of(x).sum(axis, keepdims, dtype)


def prod(x: Array, /, *, axis: Any = None, dtype: DType | None = None,
         keepdims: bool = False) -> Array:
    """Products along axes."""
    return array_of(x).prod(axis, keepdims, dtype)


def mean(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Means along axes."""
    return array_of(x).mean(axis, keepdims)


def var(x: Array, /, *, axis: Any = None, correction: float = 0.0,
        keepdims: bool = False) -> Array:
    """Variances along axes."""
    return array_of(x).var(axis, keepdims, correction)


def std(x: Array, /, *, axis: Any = None, correction: float = 0.0,
        keepdims: bool = False) -> Array:
    """Deviations along axes."""
    return array_of(x).std(axis, keepdims, correction)


def max(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:  # noqa: A001
    """The greatest elements along axes."""
    return array_of(x).max(axis, keepdims)


def min(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:  # noqa: A001
    """The least elements along axes."""
    return array_of(x).min(axis, keepdims)


def all(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:  # noqa: A001
    """Whether all elements along axes hold."""
    return array_of(x).all(axis, keepdims)


def any(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:  # noqa: A001
    """Whether any element along axes holds."""
    return array_of(x).any(axis, keepdims)


def count_nonzero(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """How many elements along axes are not zero."""
    return array_of(x).cast(dtypes.bool).sum(axis, keepdims)


def cumulative_sum(x: Array, /, *, axis: int | None = None, dtype: DType | None = None,
                   include_initial: bool = False) -> Array:
    """Running sums along an axis; with the 0 that they start from, if that is asked for."""
    return _running("cumsum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(x: Array, /, *, axis: int | None = None, dtype: DType | None = None,
                    include_initial: bool = False) -> Array:
    """Running products along an axis; with the 1 that they start from, if that is asked for."""
    return _running("cumprod", x, axis, dtype, 1 if include_initial else None)


def _running(name: str, x: Array, axis: int | None, dtype: DType | None, start: Any) -> Array:
    x = array_of(x)
    if axis is None:
        if len(x.shape) != 1:
            raise AxisError(name, f"shape {x.shape} has not one axis", "name the axis")
        axis = 0
    found: Array = getattr(x, name)(axis, dtype=dtype)
    if start is None:
        return found
    shape = list(found.shape)
    shape[axis] = 1
    first: Any = Array.full(tuple(shape), start, dtype=found.dtype, device=found.device)
    joined: Array = first.cat(found, dim=axis)
    return joined


def diff(x: Array, /, *, axis: int = -1, n: int = 1, prepend: Array | None = None,
         append: Array | None = None) -> Array:
    """Differences of neighbours along an axis."""
    return array_of(x).diff(n, axis, prepend, append)


# Order and places

def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements of an axis in order."""
    found: Array = array_of(x).sort(axis, descending).values
    return found


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False,
            stable: bool = True) -> Array:
    """Where the elements of an axis in order come from."""
    return array_of(x).argsort(axis, descending)


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the greatest element is."""
    return array_of(x).argmax(axis, keepdims)


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the least element is."""
    return array_of(x).argmin(axis, keepdims)


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """The places of elements that are not zero, a vector for each axis."""
    x = array_of(x)
    if not x.shape:
        raise AxisError("nonzero", "a number has no places", "use x.reshape(1)")
    found: tuple[Array, ...] = x.nonzero(as_tuple=True)
    return found


def searchsorted(x1: Array, x2: Array, /, *, side: str = "left",
                 sorter: Array | None = None) -> Array:
    """Where values would be put into a sorted vector."""
    line = array_of(x1)
    common = result_type(x1, x2)
    line = line if sorter is None else take(line, sorter, axis=0)
    return line.cast(common).searchsorted(array_of(x2).cast(common), side=side)


def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """x1 where a condition holds, x2 elsewhere."""
    return array_of(condition).where(x1, x2)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """The places that a vector names along an axis."""
    x = array_of(x)
    if axis is None:
        axis = 0
    axis = x._axis(axis, "take")
    found: Array = x[(slice(None),) * axis + (array_of(indices),)]
    return found


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """The elements that places along an axis name."""
    size = array_of(x).shape[axis]
    places = array_of(indices)
    return array_of(x).take_along_dim((places < 0).where(places + size, places), axis)


def _distinct(x: Array) -> tuple[Array, Array, Array, Array]:
    """What `unique_all` gives; NaN differs from NaN."""
    x = array_of(x)
    array = x.known("unique", "x.sort()[0], whose size is known")
    values, first, inverse, counts = np.unique(array, return_index=True, return_inverse=True,
                                               return_counts=True, equal_nan=False)
    places = (np.asarray(one, np.int32) for one in (first, inverse.reshape(x.shape), counts))
    device = x.device if isinstance(x.device, str) else None
    found, (where_first, back, often) = Array(values, device, x.dtype), (
        Array(one, device) for one in places)
    return found, where_first, back, often


def unique_all(x: Array, /) -> UniqueAll:
    """The different elements, and where and how often they are."""
    return UniqueAll(*_distinct(x))


def unique_counts(x: Array, /) -> UniqueCounts:
    """The different elements, and how often they are there."""
    values, _, _, counts = _distinct(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The different elements, and where each element is among them."""
    values, _, inverse, _ = _distinct(x)
    return UniqueInverse(values, inverse)


def unique_values(x: Array, /) -> Array:
    """The different elements."""
    return _distinct(x)[0]


# Shapes

def broadcast_arrays(*arrays: Array) -> list[Array]:
    """Arrays spread to the shape that they have in common."""
    found: tuple[Array, ...] = Array.broadcast_tensors([array_of(one) for one in arrays])
    return list(found)


def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
    """An array spread to a shape."""
    return array_of(x).expand(tuple(shape))


def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Arrays one after the other along an axis; flattened, if that is None."""
    given = [array_of(one) for one in arrays]
    if axis is None:
        given, axis = [one.flatten() for one in given], 0
    common = result_type(*given)
    found: Array = given[0].cast(common).cat(*[one.cast(common) for one in given[1:]], dim=axis)
    return found


def expand_dims(x: Array, /, axis: int = 0) -> Array:
    """A new axis of size 1."""
    return array_of(x).unsqueeze(axis)


def flip(x: Array, /, *, axis: Any = None) -> Array:
    """Axes reversed, all of them unless some are named."""
    x = array_of(x)
    axes = tuple(range(len(x.shape))) if axis is None else \
        axis if isinstance(axis, tuple) else (axis,)
    return x.flip(axes) if axes else x._another()


def matrix_transpose(x: Array, /) -> Array:
    """The last two axes exchanged."""
    return array_of(x).mT


def moveaxis(x: Array, source: Any, destination: Any, /) -> Array:
    """Axes moved to other places."""
    return array_of(x).movedim(source, destination)


def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    """The axes in another order."""
    return array_of(x).permute(tuple(axes)) if axes else array_of(x)._another()


def repeat(x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element repeated, as often as a number or each of several says."""
    x = array_of(x)
    if isinstance(repeats, Array):
        repeats = repeats.tolist()
    if axis is None:
        x, axis = x.flatten(), 0
    return x.repeat_interleave(repeats, axis)


def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """The elements in another shape."""
    found = array_of(x).reshape(tuple(shape))
    return Array(found) if copy else found


def roll(x: Array, /, shift: Any, *, axis: Any = None) -> Array:
    """The elements of axes moved on, the last ones to the front."""
    x = array_of(x)
    if axis is None:
        return x.flatten().roll(shift, 0).reshape(x.shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    for one, place in zip(shifts, axes, strict=True):
        x = x.roll(one, place)
    return x


def squeeze(x: Array, /, axis: Any) -> Array:
    """Axes of size 1 taken away."""
    x = array_of(x)
    axes = sorted(x._axis(one, "squeeze") for one in (
        axis if isinstance(axis, tuple) else (axis,)))
    wrong = [one for one in axes if x.shape[one] != 1]
    if wrong:
        raise ValueError(f"squeeze: axis {wrong[0]} of shape {x.shape} is not of size 1")
    return x.reshape(tuple(size for place, size in enumerate(x.shape) if place not in axes))


def stack(arrays: Any, /, *, axis: int = 0) -> Array:
    """Arrays along a new axis."""
    given = [array_of(one) for one in arrays]
    common = result_type(*given)
    found: Array = given[0].cast(common).stack(*[one.cast(common) for one in given[1:]], dim=axis)
    return found


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
    """The array repeated along its axes."""
    return array_of(x).tile(*repetitions) if repetitions else array_of(x)._another()


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The places of an axis, one after the other."""
    return tuple(array_of(x).unbind(axis))


# Products

def matmul(x1: Array, x2: Array, /) -> Array:
    """Matrix products."""
    return array_of(x1) @ array_of(x2)


def tensordot(x1: Array, x2: Array, /, *, axes: Any = 2) -> Array:
    """Sums of products over pairs of axes."""
    common = result_type(x1, x2)
    return array_of(x1).cast(common).tensordot(array_of(x2).cast(common), axes)


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Sums of products along an axis, counted from the end."""
    first, second = array_of(x1), asarray(x2)
    if first.shape[axis] != second.shape[axis]:
        raise ShapeError("vecdot", f"axis {axis} of shapes {first.shape} and {second.shape}",
                         "make the sizes equal: this axis does not broadcast")
    return first.vecdot(second, axis)
