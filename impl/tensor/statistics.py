"""Order, counts and choices: medians, quantiles, histograms, and results whose size depends on
values.

Chapter: spec/tensor.md.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple, Self

from impl.dtypes import dtypes
from impl.errors import DTypeError, ShapeError, ValueOutsideError
from impl.gradient import nodes
from impl.gradient.custom import ruled, with_gradient
from impl.gradient.nodes import cast, where
from impl.host import np
from impl.ir import Ops, UOp
from impl.symbolic import is_symbolic
from impl.tensor.elementwise import compare
from impl.tensor.movement import spread, whole
from impl.tensor.names import either
from impl.tensor.reduce import Ordered
from impl.tensor.spatial import Spatial


class Counted(NamedTuple):
    """Counts, and the edges of the bins that they are of."""

    hist: Any
    bin_edges: Any


def _parts(q: Any, name: str) -> Any:
    """Parts of a whole that are known, each from 0 to 1."""
    numbers = (q,) if isinstance(q, Real) else q if isinstance(q, (list, tuple)) else np.ravel(q)
    outside = [one for one in numbers if isinstance(one, Real) and not 0 <= float(one) <= 1]
    if outside:  # r[impl tensor.arguments.refused+2]
        raise ValueOutsideError(name, f"q is {outside[0]}", "give parts from 0 to 1")
    return q


class Statistics(Spatial):
    """Medians, quantiles, modes, histograms, and sums that leave out NaN."""

    __slots__ = ()

    # Order

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> Ordered:
        """The k-th smallest element of an axis, counted from 1, and its place."""
        axis = self._axis_or_none(dim, "kthvalue")
        if not 1 <= k <= (self.shape[axis] if self.shape else 1):
            raise ShapeError("kthvalue", f"element {k} of {self.shape[axis]}",
                             f"use 1 to the size of axis {axis}")
        values, places = self.sort(dim)
        if not self.shape:
            return Ordered(values, places)
        pair = (one.narrow(axis, k - 1, 1) for one in (values, places))
        return Ordered(*(one if keepdim else one.squeeze(axis) for one in pair))

    def median(self, axis: int | None = None, keepdim: bool = False,
               dim: int | None = None) -> Any:
        """The lower middle element; along an axis with its place. NaN if there is one."""
        return self._middle(either(axis, dim), keepdim, True)

    def nanmedian(self, axis: int | None = None, keepdim: bool = False,
                  dim: int | None = None) -> Any:
        """The lower middle of the elements that are numbers; along an axis with its place."""
        return self._middle(either(axis, dim), keepdim, False)

    def _middle(self, axis: int | None, keepdim: bool, with_nan: bool) -> Any:
        if axis is None:
            return self.flatten()._middle(0, False, with_nan).values
        if not self.shape:
            return Ordered(self._another(), self._wrap(UOp.const(dtypes.int32, 0)))
        axis = self._axis(axis, "median")
        self._refuse_empty((axis,), "median")
        values, places = self.sort(axis)  # NaN comes last
        numbers = values.isnan().logical_not().sum(axis, keepdim=True)
        middle = (numbers - 1).maximum(0) // 2  # r[impl tensor.statistics.value+2]
        if with_nan:
            middle = (numbers < self.shape[axis]).where(
                numbers.minimum(self.shape[axis] - 1), middle)
        pair = (one.gather(axis, middle) for one in (values, places))
        return Ordered(*(one if keepdim else one.squeeze(axis) for one in pair))

    def quantile(self, q: Any, axis: int | None = None, keepdim: bool = False,
                 interpolation: str = "linear", dim: int | None = None) -> Self:
        """The values below which parts `q` of the elements lie; NaN if there is one.

        Several parts are a new first axis. Between two elements: linear, lower, higher, nearest,
        midpoint.

        Raises:
            ValueOutsideError: a part that is known is not from 0 to 1
                (r[tensor.arguments.refused]).
        """
        return self._quantile(q, either(axis, dim), keepdim, interpolation, False)

    def nanquantile(self, q: Any, axis: int | None = None, keepdim: bool = False,
                    interpolation: str = "linear", dim: int | None = None) -> Self:
        """quantile of the elements that are numbers"""
        return self._quantile(q, either(axis, dim), keepdim, interpolation, True)

    def _quantile(self, q: Any, axis: int | None, keepdim: bool, between: str,
                  skip: bool) -> Self:
        name = "nanquantile" if skip else "quantile"
        kinds = ("linear", "lower", "higher", "nearest", "midpoint")
        if between not in kinds:
            raise ShapeError(name, f"interpolation {between!r} is unknown",
                             f"use one of {', '.join(kinds)}")
        if axis is None:
            found = self.flatten()._quantile(q, 0, False, between, skip)
            return found.reshape(found.shape + (1,) * len(self.shape)) if keepdim else found
        if not self.shape and self._axes(axis, "quantile") == ():
            return self.reshape(1)._quantile(q, 0, False, between, skip)
        x = self.cast(self._result_float())
        axis = x._axis(axis, name)
        parts = q if isinstance(q, Spatial) else self.__class__(_parts(q, name), self.device)
        rows = x.movedim(axis, -1).sort(-1)[0].unsqueeze(0)
        numbers = rows.isnan().logical_not().sum(-1, keepdim=True)
        wide = parts.reshape((-1,) + (1,) * (len(rows.shape) - 1)).cast(x.dtype)
        place = wide * (numbers - 1).maximum(0).cast(x.dtype)
        below, above = place.floor(), place.ceil()
        if between in ("lower", "higher", "nearest"):
            below = {"lower": below, "higher": above, "nearest": place.round()}[between]
            above = below
        shape = (below.shape[0], *rows.shape[1:-1], 1)
        every = rows.expand(shape[:-1] + rows.shape[-1:])
        low, high = (every.gather(-1, one.cast(dtypes.int32).expand(shape))
                     for one in (below, above))
        weight = 0.5 * above.ne(below) if between == "midpoint" else place - below
        found = (low == high).where(low, low.lerp(high, weight))
        if not skip:
            found = (numbers < self.shape[axis]).where(math.nan, found)
        found = found.movedim(-1, axis + 1) if keepdim else found.squeeze(-1)
        return found if parts.shape else found.squeeze(0)

    def mode(self, dim: int = -1, keepdim: bool = False) -> Ordered:
        """The element of an axis that is there most often, the least of several; and a place of it.
        """
        if not self.shape and self._axes(dim, "mode") == ():
            return Ordered(self._another(), self._wrap(UOp.const(dtypes.int32, 0)))
        axis = self._axis(dim, "mode")
        self._refuse_empty((axis,), "mode")
        values, places = (one.movedim(axis, -1) for one in self.sort(axis))
        # In order equal ones are a run, of which the last has the highest number: its length.
        begins = (values[..., 1:] != values[..., :-1]).pad((1, 0), value=True)
        number = self._wrap(nodes.broadcast(nodes.iota(values.shape[-1]), values.shape))
        length = number - begins.where(number, 0).cummax(-1)
        last = length.argmax(-1, keepdim=True)
        pair = (values.gather(-1, last), places.gather(-1, last))
        return Ordered(*(one.movedim(-1, axis) if keepdim else one.squeeze(-1) for one in pair))

    def msort(self) -> Self:
        """The elements of the first axis in order."""
        return self.sort(0)[0]

    def aminmax(self, dim: int | None = None, keepdim: bool = False) -> tuple[Self, Self]:
        """The least and the greatest element along an axis, or of all."""
        return self.min(dim, keepdim), self.max(dim, keepdim)

    # Sums

    def nansum(self, axis: Any = None, keepdim: bool = False, dtype: Any = None,
               dim: Any = None) -> Self:
        """The sum of the elements that are numbers."""
        return self.isnan().where(0, self).sum(either(axis, dim), keepdim, dtype)

    def nanmean(self, axis: Any = None, keepdim: bool = False, dim: Any = None) -> Self:
        """The mean of the elements that are numbers; NaN if there are none."""
        axis = either(axis, dim)
        count = self.isnan().logical_not().sum(axis, keepdim)
        return self.nansum(axis, keepdim) / count.cast(self._result_float())

    def logcumsumexp(self, axis: int = 0, dim: int | None = None) -> Self:
        """log(cumsum(exp(x))) along an axis, computed without overflow.

        Each element is summed with those before it in its block; then the sum of the blocks before
        it is added. So nothing is lost, however far below the maximum.
        """
        axis = self._axis_or_none(either(axis, dim), "logcumsumexp")
        x = self.cast(self._result_float())
        if not self.shape or self.numel() == 0:
            return x._another()
        return x.movedim(axis, -1)._log_running().movedim(-1, axis)

    def _log_running(self) -> Self:
        """`logcumsumexp` along the last axis, with a gradient that knows of no blocks: those may be
        infinite where the result is not.
        """
        def pull(gradient: UOp, inputs: Sequence[UOp]) -> tuple[UOp]:
            x = self._wrap(inputs[0])
            return x._log_slopes(x._log_running(), self._wrap(gradient)).uop,
        return self._wrap(with_gradient(self._log_sums().uop, ruled((self.uop,), pull)))

    def _log_slopes(self, result: Self, gradient: Self) -> Self:
        """The sums over i >= j of gradient[i] * exp(x[j] - result[i]), for each j; no power is
        above 1, since results never fall. What comes from behind a block passes its last result.
        """
        size = self.shape[-1]
        if is_symbolic(size) or size <= _BLOCK:
            seen = self._wrap(nodes.broadcast(_up_to(size), (*self.shape, size)))
            powers = seen.where(self.unsqueeze(-2) - result.unsqueeze(-1), -math.inf).exp()
            return (powers * gradient.unsqueeze(-1)).sum(-2)
        more = (0, -size % _BLOCK)
        x, y, seed = (each.pad(more, value=value).unflatten(-1, (-1, _BLOCK))
                      for each, value in ((self, -math.inf), (result, math.inf), (gradient, 0)))
        ends = y[..., :-1, -1]
        behind = ((ends.unsqueeze(-1) - y[..., 1:, :]).exp() * seed[..., 1:, :]).sum(-1)
        powers = (x[..., :-1, :] - ends.unsqueeze(-1)).exp()
        passed = powers * ends._log_slopes(ends, behind).unsqueeze(-1)
        passed = powers.eq(0).where(0, passed).pad((0, 0, 0, 1))
        return (x._log_slopes(y, seed) + passed).flatten(-2)[..., :size]

    def _log_sums(self) -> Self:
        """`logcumsumexp` along the last axis, of floats."""
        size = self.shape[-1]
        if is_symbolic(size) or size <= _BLOCK:
            seen = self._wrap(nodes.broadcast(_up_to(size), (*self.shape, size)))
            return seen.where(self.unsqueeze(-2), -math.inf).logsumexp(-1)
        whole = self.pad((0, -size % _BLOCK), value=-math.inf).contiguous()
        inner = whole.unflatten(-1, (-1, _BLOCK))._log_sums().contiguous()
        before = inner[..., :-1, -1]._log_sums().pad((1, 0), value=-math.inf)
        return inner.logaddexp(before.unsqueeze(-1)).flatten(-2)[..., :size]

    def diff(self, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None,
             dim: int | None = None) -> Self:
        """The difference of each element of an axis and the one before it, `n` times.

        What is prepended and appended takes part; numbers are spread.
        """
        axis, result = self._axis(either(axis, dim), "diff"), self
        shape = (*self.shape[:axis], 1, *self.shape[axis + 1:])
        ends = [None if one is None else one if one.shape else one.expand(shape) for one in
                (None if one is None else self._tensor(one) for one in (prepend, append))]
        given = [one for one in (ends[0], self, ends[1]) if one is not None]
        result = given[0].cat(*given[1:], dim=axis) if len(given) > 1 else self
        for _ in range(min(whole(n, "diff", "count"), result.shape[axis])):
            size = result.shape[axis]
            length = max(size - 1, 0)
            later, before = (result.narrow(axis, min(start, size), length) for start in (1, 0))
            result = later ^ before if self.dtype.kind == "b" else later - before
        return result

    # Counts

    def bincount(self, weights: Self | None = None, minlength: int = 0) -> Self:
        """How often each number from 0 on is there, or the sum of its weights.

        The greatest one, which gives the size, is computed.
        """
        if self.dtype.kind not in "iu" or len(self.shape) != 1:
            raise DTypeError("bincount", f"{self.dtype.name} {self.shape} is no vector of whole "
                             "numbers", "use .flatten() and an integer dtype")
        numbers = self.known("bincount", "x.one_hot(count).sum(0)")
        if numbers.size and numbers.min() < 0:
            raise ShapeError("bincount", f"{numbers.min()} is negative", "use numbers from 0 on")
        count = max(int(numbers.max()) + 1 if numbers.size else 0, minlength)
        ones = self._wrap(nodes.full(UOp.const(dtypes.int32, 1), self.shape)) \
            if weights is None else weights
        if weights is not None and weights.dtype.kind != "f":
            ones = weights.cast(dtypes.float64)
        nothing = self._wrap(nodes.full(UOp.const(ones.dtype, 0), (count,)))
        return nothing.scatter_add(0, self, ones)

    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:  # noqa: A002
        """How many elements lie in each of some equal parts of an interval; of all if it is empty.

        Outside of the interval nothing is counted; the end belongs to the last part.
        """
        x = self.flatten()
        low, high = (x.min(), x.max()) if min == max else (
            self._wrap(UOp.const(self.dtype, one)) for one in (min, max))
        flat = low == high
        low, high = flat.where(low - 1, low), flat.where(high + 1, high)
        place = ((x - low) * bins / (high - low)).floor().minimum(bins - 1).cast(dtypes.int32)
        inside = (x >= low) & (x <= high)
        nothing = self._wrap(nodes.full(UOp.const(self._result_float(), 0), (bins,)))
        counted = inside.where(place, bins)  # which is no part
        return nothing.scatter_add(0, counted, nothing._full_of(1, x.shape))

    def _full_of(self, value: float, shape: Any) -> Self:
        return self._wrap(nodes.full(UOp.const(self.dtype, value), shape))

    def histogram(self, bins: Any = 10, range: Any = None,  # noqa: A002
                  density: bool = False, weight: Self | None = None) -> Counted:
        """How many elements lie in each of some parts, or the sum of their weights; and the ends
        of these parts.
        """
        x = self.cast(self._result_float())
        if isinstance(bins, Spatial):
            edges: Any = bins
        else:
            low, high = (x.min(), x.max()) if range is None else (
                x._wrap(UOp.const(x.dtype, one)) for one in range)
            flat = low == high
            low, high = flat.where(low - 0.5, low), flat.where(high + 0.5, high)
            numbers = x._wrap(cast(nodes.iota(bins + 1), x.dtype))
            # The last end is the greatest element, which would lie outside of one rounded down.
            edges = numbers.eq(bins).where(high, low.lerp(high, numbers / bins))
        parts = edges.shape[0] - 1
        flat_x = x.flatten()
        place = edges.searchsorted(flat_x, right=True) - 1
        place = (flat_x == edges[-1]).where(parts - 1, place)
        nothing = x._wrap(nodes.full(UOp.const(x.dtype, 0), (parts,)))
        outside = (place < 0) | (place >= parts)
        each = x._full_of(1, flat_x.shape) if weight is None else weight.flatten().cast(x.dtype)
        counts = nothing.scatter_add(0, outside.where(parts, place), each)
        if density:
            counts = counts / counts.sum() / (edges[1:] - edges[:-1])
        return Counted(counts, edges)

    # Places in order

    def searchsorted(self, values: Any, right: bool = False, side: str | None = None,
                     sorter: Any = None) -> Self:
        """Where values would be put into this sorted last axis, as int32: before equals, or after.

        A `sorter` says in which order the axis has to be read to be sorted.
        """
        if sorter is not None:
            return self.gather(-1, sorter).searchsorted(values, right, side)
        theirs = self._tensor(values)
        after = right if side is None else side == "right"

        def is_before(x: Self, many: Self) -> Self:  # NaN is greater than every number
            before = x <= many if after else x < many
            return before | (many.isnan() if after else many.isnan() & x.isnan().logical_not())
        length: Any = self.shape[-1]
        together = len(self.shape) == 1 or self.shape[:-1] == theirs.shape[:-1]
        if type(length) is int and length > _MOST_COUNTED and together:
            return self._halved(theirs, is_before)
        x, many = self.unsqueeze(-2), theirs.unsqueeze(-1)
        if len(self.shape) == 1:
            x = self.reshape((1,) * len(theirs.shape) + self.shape)
        return is_before(x, many).sum(-1).cast(dtypes.int32)

    def _halved(self, many: Self, is_before: Callable[[Self, Self], Self]) -> Self:
        """How many elements of this last axis are before each of many, which is asked of one of
        them for each bit of their number.
        """
        # r[impl tensor.searchsorted.halved+2]
        length: int = self.shape[-1]
        place = many._full_of(0, many.shape).cast(dtypes.int32)
        for bit in reversed(range(length.bit_length())):
            further = place + (1 << bit)
            at = further.minimum(length) - 1
            element = self.gather(-1, at) if len(self.shape) > 1 else \
                self.gather(0, at.flatten()).reshape(at.shape)
            place = ((further <= length) & is_before(element, many)).where(further, place)
        return place

    def bucketize(self, boundaries: Any, right: bool = False) -> Self:
        """In which of the parts between sorted boundaries each element lies, as int32."""
        edges: Any = self._tensor(boundaries)
        found: Self = edges.searchsorted(self, right)
        return found

    # Results whose size depends on values

    def nonzero(self, as_tuple: bool = False, size: int | None = None, fill_value: int = 0) -> Any:
        """The places of the elements that are not zero: (count, axes), or one vector for each axis.

        How many there are is computed, unless `size` says how many are wanted: the first ones, and
        `fill_value` where there are fewer.
        """
        truth = self.cast(dtypes.bool)
        if size is None:
            array = truth.known("nonzero", "x.nonzero(size=count)")
            found = np.nonzero(array) if self.shape else \
                np.nonzero(array.reshape(1)) if as_tuple else ()
            places = tuple(self.__class__(one.astype(np.int32), self.device) for one in found)
        else:
            # r[impl tensor.size.values+3]
            places = truth._first_places(whole(size, "nonzero", "size"), fill_value)
        if as_tuple:
            return places
        if not places:
            count = int(bool(self.item())) if size is None else size
            return self._wrap(nodes.full(UOp.const(dtypes.int32, 0), (count, 0)))
        return places[0].stack(*places[1:], dim=1)

    def _first_places(self, size: int, fill: int) -> tuple[Self, ...]:
        """The places of the first elements that hold, one vector for each axis."""
        flat = self.flatten()
        count, total = flat.shape[0], flat.sum()
        rank = flat.cast(dtypes.int32).cumsum(0) - 1
        line = self._wrap(nodes.iota(count))
        nothing = self._wrap(nodes.full(UOp.const(dtypes.int32, 0), (size,)))
        place = nothing.scatter(0, flat.where(rank, size), line.cast(dtypes.int32))
        there = self._wrap(nodes.iota(size)) < total
        places, step = list[Self](), count
        for own in self.shape:
            step //= max(own, 1)
            places.append(there.where(place // max(step, 1) % max(own, 1), fill))
        return tuple(places)

    def argwhere(self) -> Self:
        """The places of the elements that are not zero: (count, axes)."""
        found: Self = self.nonzero()
        return found

    def unique(self, sorted: bool = True, return_inverse: bool = False,  # noqa: A002
               return_counts: bool = False, dim: int | None = None) -> Any:
        """The different elements in order; also where each element stands there, and how often.

        They are computed, since how many there are depends on them.
        """
        array = self.known("unique", "x.sort()[0], whose size is known")
        found, inverse, counts = np.unique(array, return_inverse=True, return_counts=True, axis=dim)
        inverse = inverse.reshape(self.shape if dim is None else -1).astype(np.int32)
        return self._distinct(found, inverse, counts, return_inverse, return_counts)

    def unique_consecutive(self, return_inverse: bool = False, return_counts: bool = False,
                           dim: int | None = None) -> Any:
        """Of equal neighbours the first one; also where each element stands there, and how many.

        With `dim` the neighbours are the slices of an axis.
        """
        if dim is not None:
            return self._unique_slices(self._axis(dim, "unique_consecutive"), return_inverse,
                                       return_counts)
        array = self.known("unique_consecutive", "x[1:] != x[:-1]").reshape(-1)
        first = np.ones(array.shape, np.bool_)
        first[1:] = array[1:] != array[:-1]
        starts = np.flatnonzero(first)
        counts = np.diff(np.append(starts, array.size))
        inverse = (np.cumsum(first) - 1).reshape(self.shape).astype(np.int32)
        return self._distinct(array[first], inverse, counts, return_inverse, return_counts)

    def _unique_slices(self, axis: int, return_inverse: bool, return_counts: bool) -> Any:
        array = np.moveaxis(self.known("unique_consecutive", "x[1:] != x[:-1]"), axis, 0)
        size = len(array)
        rows = array.reshape(size, array.size // max(size, 1))
        first = np.ones(size, np.bool_)
        first[1:] = (rows[1:] != rows[:-1]).any(1)
        counts = np.diff(np.append(np.flatnonzero(first), size))
        inverse = (np.cumsum(first) - 1).astype(np.int32)
        found = np.moveaxis(array[first], 0, axis)
        return self._distinct(found, inverse, counts, return_inverse, return_counts)

    def _distinct(self, found: np.ndarray, inverse: np.ndarray, counts: np.ndarray,
                  return_inverse: bool, return_counts: bool) -> Any:
        chosen = [self.__class__(found, self.device, self.dtype)]
        if return_inverse:
            chosen.append(self.__class__(inverse, self.device))
        if return_counts:
            chosen.append(self.__class__(counts.astype(np.int32), self.device))
        return chosen[0] if len(chosen) == 1 else tuple(chosen)

    def isin(self, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Self:
        """Whether each element is among others."""
        others = self._tensor(test_elements).flatten()
        if not others.shape[0]:
            found = self._wrap(nodes.full(UOp.const(dtypes.bool, False), self.shape))
        elif others.shape[0] <= _SHORT:
            found = (self.unsqueeze(-1) == others).any(-1)
        else:
            line = others.sort()[0]
            place = line.searchsorted(self).minimum(line.shape[0] - 1)
            found = line[place] == self
        return found.logical_not() if invert else found

    def nonzero_static(self, size: int, fill_value: int = -1) -> Self:
        """The places of the first `size` elements that are not zero."""
        found: Self = self.nonzero(size=size, fill_value=fill_value)
        return found

    def unravel_index(self, shape: Any) -> tuple[Self, ...]:
        """Places in a flattened tensor as places on each axis of its shape."""
        found, rest = list[Self](), self
        for size in reversed(shape if isinstance(shape, (tuple, list)) else (shape,)):
            found.append(rest % size)
            rest = rest // size
        return tuple(found[::-1])

    # Choosing and writing along an axis

    def put(self, index: Self, source: Any, accumulate: bool = False) -> Self:
        """A copy in which elements of the flattened tensor are replaced, or added to."""
        flat = self.flatten()
        places = flat._line_of_places(index)
        values = self._tensor(source).flatten().cast(self.dtype)
        found = flat.index_add(0, places, values) if accumulate \
            else flat.index_copy(0, places, values)
        return found.reshape(self.shape)

    def index_reduce(self, dim: int, index: Any, source: Self, reduce: str,
                     include_self: bool = True) -> Self:
        """Slices combined with those of `source` for their places: prod, mean, amax, amin."""
        axis = self._axis_or_none(dim, "index_reduce")
        if not self.shape:
            return self.reshape(1).index_reduce(0, index, source.reshape(-1), reduce,
                                                include_self).reshape(())
        shape = [1] * len(self.shape)
        shape[axis] = -1
        places = self._line_of_places(index, axis).reshape(shape).expand(source.shape)
        return self.scatter_reduce(axis, places, source, reduce, include_self)

    def renorm(self, p: float, dim: int, maxnorm: float) -> Self:
        """The slices of an axis, of which those with a greater p-norm are made as small as that."""
        axis = self._axis(dim, "renorm")
        others = tuple(one for one in range(len(self.shape)) if one != axis)
        size = self.norm(p, others, keepdim=True)
        return self * (size > maxnorm).where(maxnorm / (size + 1e-7), 1)

    def take_along_dim(self, indices: Self, dim: int | None = None) -> Self:
        """gather, in which the other axes broadcast; without `dim`, of the flattened tensor."""
        if dim is None:
            return self.flatten().gather(0, indices.flatten())
        axis = self._axis(dim, "take_along_dim")
        shape = spread([self.shape[:axis] + (1,) + self.shape[axis + 1:],
                        indices.shape[:axis] + (1,) + indices.shape[axis + 1:]], "take_along_dim")
        mine, theirs = list(shape), list(shape)
        mine[axis], theirs[axis] = self.shape[axis], indices.shape[axis]
        return self.expand(mine).gather(axis, indices.expand(theirs))

    def _rows(self, dim: int, index: Any, name: str) -> tuple[Self, Self]:
        """The tensor with an axis in front, and an index of it as a vector."""
        axis = self._axis_or_none(dim, name)
        moved = self.movedim(axis, 0) if self.shape else self.reshape(1)
        return moved, moved._line_of_places(index)

    def _line_of_places(self, index: Any, axis: int = 0) -> Self:
        """Places along an axis, in a line; numbers that are known now are in range."""
        if not isinstance(index, Statistics):
            index = self._in_range(index, axis)
        elif index.uop.op is Ops.CONST:
            self._in_range(index.uop.arg, axis)
        return self._tensor(index).flatten()

    def index_add(self, dim: int, index: Any, source: Any, alpha: float = 1) -> Self:
        """Slices of `source` added to those that a vector of places names."""
        return self._into_rows(Ops.ADD, dim, index, source * alpha, "index_add")

    def index_copy(self, dim: int, index: Any, source: Any) -> Self:
        """Slices of `source` in place of those that a vector of places names."""
        return self._into_rows(None, dim, index, source, "index_copy")

    def index_fill(self, dim: int, index: Any, value: Any) -> Self:
        """A number in the slices that a vector of places names."""
        moved, places = self._rows(dim, index, "index_fill")
        shape = (places.shape[0], *moved.shape[1:])
        full = self._wrap(nodes.broadcast(self._value_for(value, shape), shape))
        return self._into_rows(None, dim, index, full.movedim(0, self._axis(dim, "index_fill"))
                               if self.shape else full, "index_fill")

    def _into_rows(self, op: Ops | None, dim: int, index: Any, source: Any, name: str) -> Self:
        moved, places = self._rows(dim, index, name)
        axis = self._axis_or_none(dim, name)
        theirs = source.movedim(axis, 0) if self.shape else source.reshape(-1)
        if theirs.shape != (places.shape[0], *moved.shape[1:]):
            raise ShapeError(name, f"a source of shape {source.shape} and {places.shape[0]} places "
                             f"on axis {dim} of {self.shape}", "give a slice for each place")
        size = moved.shape[0]
        wrapped = (places < 0).where(places + size, places)
        node = nodes.scatter(op, moved.uop, wrapped.uop, cast(theirs.uop, self.dtype))
        result = self._wrap(node)
        return result.movedim(0, axis) if self.shape else result.reshape(())

    def index_put(self, indices: Any, values: Any, accumulate: bool = False) -> Self:
        """A copy in which the elements that index tensors name are replaced, or added to."""
        index = tuple(indices)
        if not accumulate:
            result = self._another()
            result[index] = values
            return result
        count = self.numel()
        number = self._wrap(nodes.iota(count)).reshape(self.shape) + 1
        places = number[index]
        places = places.eq(0).where(count, places - 1)  # what is out of range is still so
        theirs = self._wrap(nodes.broadcast(self._tensor(values).uop, places.shape))
        flat = self.flatten().index_add(0, places.flatten(), theirs.flatten())
        return flat.reshape(self.shape)

    def masked_scatter(self, mask: Self, source: Self) -> Self:
        """A copy in which the elements where a mask holds are those of `source`, in order."""
        shape = spread([self.shape, mask.shape], "masked_scatter")
        wide = mask.expand(shape)
        rank = wide.flatten().cast(dtypes.int32).cumsum(0) - 1
        taken = source.flatten()[rank.maximum(0)].reshape(shape)
        return wide.where(taken.cast(self.dtype), self.expand(shape))

    def scatter_reduce(self, dim: int, index: Self, src: Self, reduce: str,
                       include_self: bool = True) -> Self:
        """scatter, in which all values for one place are combined: sum, prod, mean, amax, amin."""
        if reduce not in _COMBINED:
            raise ShapeError("scatter_reduce", f"reduce {reduce!r} is unknown",
                             f"use one of {', '.join(_COMBINED)}")
        op = _COMBINED[reduce]
        if not self.shape and self._axes(dim, "scatter_reduce") == ():
            return self.reshape(1).scatter_reduce(0, index.reshape(-1), src.reshape(-1), reduce,
                                                  include_self).reshape(())
        axis, x, place = self._along(dim, index, "scatter_reduce")
        values = self._sources(src, index.shape)
        ones = nodes.full(UOp.const(dtypes.int32, 1), index.shape)
        none = nodes.full(UOp.const(dtypes.int32, 0), self.shape)
        count = self._wrap(nodes.scatter_along(Ops.ADD, none, place, ones, axis))
        start = x
        if not include_self:
            start = where(compare(Ops.CMPLT, UOp.const(dtypes.int32, 0), count.uop),
                          UOp.const(x.dtype, nodes._IDENTITY[op](x.dtype)), x)
        result = self._wrap(nodes.scatter_along(op, start, place, values, axis))
        if reduce != "mean":
            return result
        divisor = (count + int(include_self)).maximum(1)
        rounding = "floor" if self.dtype.kind in "iu" else None
        return result.div(divisor, rounding_mode=rounding).cast(self.dtype)


_COMBINED = {"sum": Ops.ADD, "prod": Ops.MUL, "mean": Ops.ADD, "amax": Ops.MAXIMUM,
             "amin": Ops.MINIMUM}
#: Axes of up to so many elements are compared, every element with every other one.
_SHORT = 1024
#: Of so many elements each is summed with those before it.
_BLOCK = 16
#: Of so many sorted elements all are compared with each value; of more, one for each bit.
_MOST_COUNTED = 64


def _up_to(size: int) -> UOp:
    """Which elements of a line each one sees: itself, and those before it."""
    row = nodes.expand(nodes.iota_along(size, 0, 2), (size, size))
    column = nodes.expand(nodes.iota_along(size, 1, 2), (size, size))
    return UOp(Ops.CMPLE, dtypes.bool, (column, row))

