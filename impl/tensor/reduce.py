"""Many elements to one: sums, extremes, statistics, running sums. Chapter: spec/tensor.md."""
from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, Self

from impl.dtypes import DType, as_dtype, dtypes, sum_accumulator, sum_result
from impl.errors import ShapeError
from impl.gradient import nodes
from impl.gradient.nodes import binary, cast, unary, where
from impl.ir import Ops, UOp
from impl.symbolic import is_symbolic
from impl.tensor.arrangement import Arrangement
from impl.tensor.elementwise import compare
from impl.tensor.movement import whole
from impl.tensor.names import either, written_for_torch
from impl.tensor.sorting import first_origin, sort_origin


def root_of_squares(total: UOp) -> UOp:
    """The square root of a sum of squares: where it is 0, all of them are, and so is its slope."""
    none = compare(Ops.CMPEQ, total, UOp.const(total.dtype, 0))
    # r[impl gradient.root.zero]
    positive = where(none, UOp.const(total.dtype, 1), total)
    return where(none, UOp.const(total.dtype, 0), unary(Ops.SQRT, positive))


#: Running sums of more elements are made in blocks of so many.
_CHAIN, _BLOCK = 1024, 32


def running_sums(x: UOp, axis: int) -> UOp:
    """Running sums of a float node. Of a long axis those of blocks, and of the sums of blocks.

    A chain of a million additions would lose three more digits.
    """
    shape = nodes.shape_of(x)
    if is_symbolic(shape[axis]) or shape[axis] <= _CHAIN or 0 in shape:
        return nodes.scan(Ops.ADD, x, axis)
    dtype, x = x.dtype, cast(x, sum_accumulator(x.dtype))
    levels, size, front, back = [], shape[axis], shape[:axis], shape[axis + 1:]
    while size > _BLOCK:  # r[impl tensor.running.exact]
        count = -(-size // _BLOCK)
        x = nodes.pad(x, _beside(axis, len(shape), 0, count * _BLOCK - size))
        x = nodes.scan(Ops.ADD, nodes.reshape(x, (*front, count, _BLOCK, *back)), axis + 1)
        levels.append((x, size))
        ends = nodes.shrink(x, tuple((n - 1, n) if place == axis + 1 else (0, n)
                                     for place, n in enumerate(nodes.shape_of(x))))
        x, size = nodes.reshape(ends, (*front, count, *back)), count
    x = nodes.scan(Ops.ADD, x, axis)
    for blocks, size in reversed(levels):
        count = nodes.shape_of(blocks)[axis]
        before = nodes.pad(nodes.shrink(x, _cut(x, axis, count - 1)),
                           _beside(axis, len(shape), 1, 0))
        before = nodes.reshape(before, (*front, count, 1, *back))
        whole = nodes.add(blocks, nodes.expand(before, nodes.shape_of(blocks)))
        x = nodes.reshape(whole, (*front, count * _BLOCK, *back))
        x = nodes.shrink(x, _cut(x, axis, size))
    return cast(x, dtype)


def _beside(axis: int, rank: int, before: int, after: int) -> tuple[tuple[int, int], ...]:
    """Widths of padding along one axis."""
    return tuple((before, after) if place == axis else (0, 0) for place in range(rank))


def _cut(x: UOp, axis: int, size: int) -> tuple[tuple[int, int], ...]:
    """The first elements of one axis, and all of the others."""
    return tuple((0, size if place == axis else n) for place, n in enumerate(nodes.shape_of(x)))


class Ordered(NamedTuple):
    """Elements in an order, and where each came from, as int32."""

    values: Any
    indices: Any


class Reduce(Arrangement):
    """Methods that combine elements along axes. `axis=None` means all axes."""

    __slots__ = ()

    def _squeezed(self, node: UOp, axes: tuple[int, ...], keepdim: bool) -> UOp:
        """A reduced node without the reduced axes, unless they are kept."""
        if keepdim:
            return node
        return nodes.reshape(node, tuple(size for axis, size in enumerate(self.shape)
                                         if axis not in axes))

    def _reduce(self, op: Ops, x: UOp, axis: Any, keepdim: bool, name: str) -> Self:
        axes = self._axes(axis, name)
        return self._wrap(self._squeezed(nodes.reduce(op, x, axes), axes, keepdim))

    def sum(self, axis: Any = None, keepdim: bool = False, dtype: Any = None,
            dim: Any = None) -> Self:
        """The sum along axes. Bools and small integers become 32 bits wide, unless `dtype` says
        otherwise; halves are added up in float32 and rounded once."""
        wanted = as_dtype(dtype) if dtype is not None else sum_result(self.dtype)
        # r[impl tensor.sum.dtype]
        return self._reduce(Ops.ADD, cast(self.uop, wanted), either(axis, dim), keepdim, "sum")

    def prod(self, axis: Any = None, keepdim: bool = False, dtype: Any = None,
             dim: Any = None) -> Self:
        """The product along axes, in the dtypes of `sum`."""
        wanted = as_dtype(dtype) if dtype is not None else sum_result(self.dtype)
        return self._reduce(Ops.MUL, cast(self.uop, wanted), either(axis, dim), keepdim, "prod")

    def max(self, axis: Any = None, keepdim: bool = False, dim: Any = None) -> Any:
        """The greatest element along axes; NaN if there is one. Of two tensors: maximum.

        Along one axis, in a file that says `import impl.torch as torch`: with its places.
        """
        if isinstance(axis, Reduce):
            return self.maximum(axis)
        found = self._extreme(Ops.MAXIMUM, either(axis, dim), keepdim, "max")
        if isinstance(either(axis, dim), int) and written_for_torch(sys._getframe(2)):
            # r[impl tensor.extreme.places]
            return self._with_places(found, self.argmax(either(axis, dim), keepdim))
        return found

    def min(self, axis: Any = None, keepdim: bool = False, dim: Any = None) -> Any:
        """The least element along axes; NaN if there is one. Of two tensors: minimum.

        Along one axis, in a file that says `import impl.torch as torch`: with its places.
        """
        if isinstance(axis, Reduce):
            return self.minimum(axis)
        found = self._extreme(Ops.MINIMUM, either(axis, dim), keepdim, "min")
        if isinstance(either(axis, dim), int) and written_for_torch(sys._getframe(2)):
            return self._with_places(found, self.argmin(either(axis, dim), keepdim))
        return found

    def _with_places(self, values: Self, places: Self) -> Any:
        """What PyTorch gives: `x.max(1).indices`, `values, places = x.max(1)`."""
        return Ordered(values, places.cast(dtypes.int64))

    def amax(self, axis: Any = None, keepdim: bool = False, dim: Any = None) -> Self:
        """max"""
        found: Self = self.max(axis, keepdim, dim)
        return found

    def amin(self, axis: Any = None, keepdim: bool = False, dim: Any = None) -> Self:
        """min"""
        found: Self = self.min(axis, keepdim, dim)
        return found

    def _extreme(self, op: Ops, axis: Any, keepdim: bool, name: str) -> Self:
        self._refuse_empty(self._axes(axis, name), name)
        return self._reduce(op, self.uop, axis, keepdim, name)

    def _refuse_empty(self, axes: tuple[int, ...], name: str) -> None:
        if any(self.shape[axis] == 0 for axis in axes):  # r[impl tensor.arguments.refused+2]
            raise ShapeError(name, f"axis of size 0 in shape {self.shape}: no element to choose",
                             "check .numel() first")

    def all(self, axis: Any = None, keepdim: bool = False, dim: Any = None) -> Self:
        """Whether all elements along axes are other than zero."""
        truth = cast(self.uop, dtypes.bool)
        return self._reduce(Ops.MINIMUM, truth, either(axis, dim), keepdim, "all")

    def any(self, axis: Any = None, keepdim: bool = False, dim: Any = None) -> Self:
        """Whether any element along axes is other than zero."""
        truth = cast(self.uop, dtypes.bool)
        return self._reduce(Ops.MAXIMUM, truth, either(axis, dim), keepdim, "any")

    def count_nonzero(self, axis: Any = None, dim: Any = None) -> Self:
        """How many elements along axes are other than zero."""
        return self.cast(dtypes.bool).sum(either(axis, dim))

    # Statistics

    def _mean_node(self, x: UOp, axes: tuple[int, ...]) -> UOp:
        """The mean of a float node, with the axes kept."""
        count = math.prod(self.shape[axis] for axis in axes)
        wide = sum_accumulator(x.dtype)
        total = nodes.reduce(Ops.ADD, cast(x, wide), axes)
        return cast(nodes.div(total, nodes.scalar(wide, count)), x.dtype)

    def mean(self, axis: Any = None, keepdim: bool = False, dim: Any = None,
             dtype: Any = None) -> Self:
        """The mean along axes, of integers as the default float; NaN of no elements."""
        if dtype is not None:
            return self.cast(dtype).mean(axis, keepdim, dim)
        axes = self._axes(either(axis, dim), "mean")
        node = self._mean_node(self._float("mean"), axes)
        return self._wrap(self._squeezed(node, axes, keepdim))

    def _var_nodes(self, axes: tuple[int, ...], correction: float,
                   name: str) -> tuple[UOp, UOp]:
        """Variance and mean, with the axes kept, in the accumulator's dtype."""
        x = self._float(name)
        wide = cast(x, sum_accumulator(x.dtype))
        mean = self._mean_node(wide, axes)
        deviation = nodes.sub(wide, nodes.expand(mean, self.shape))
        total = nodes.reduce(Ops.ADD, nodes.mul(deviation, deviation), axes)
        count = math.prod(self.shape[axis] for axis in axes)
        divisor = UOp.const(wide.dtype, max(0.0, count - correction)) \
            if not is_symbolic(count) else binary(
                Ops.MAXIMUM, nodes.sub(nodes.scalar(wide.dtype, count),
                                       UOp.const(wide.dtype, correction)),
                UOp.const(wide.dtype, 0))
        return nodes.div(total, divisor), mean

    def var(self, axis: Any = None, keepdim: bool = False, correction: float | None = 1,
            dim: Any = None) -> Self:
        """The variance along axes: squared deviations divided by (count - correction)."""
        correction = 1 if correction is None else correction
        if isinstance(axis, bool):  # PyTorch's first argument may be `unbiased`
            axis, correction = None, int(axis)
        axes = self._axes(either(axis, dim), "var")
        variance, _ = self._var_nodes(axes, correction, "var")
        return self._wrap(self._squeezed(cast(variance, self._result_float()), axes, keepdim))

    def std(self, axis: Any = None, keepdim: bool = False, correction: float | None = 1,
            dim: Any = None) -> Self:
        """The square root of the variance. Where that is 0 its gradient is 0."""
        correction = 1 if correction is None else correction
        if isinstance(axis, bool):  # PyTorch's first argument may be `unbiased`
            axis, correction = None, int(axis)
        axes = self._axes(either(axis, dim), "std")
        root = root_of_squares(self._var_nodes(axes, correction, "std")[0])
        return self._wrap(self._squeezed(cast(root, self._result_float()), axes, keepdim))

    def var_mean(self, axis: Any = None, keepdim: bool = False, correction: float | None = 1,
                 dim: Any = None) -> tuple[Self, Self]:
        """Variance and mean, which share their work."""
        correction = 1 if correction is None else correction
        if isinstance(axis, bool):  # PyTorch's first argument may be `unbiased`
            axis, correction = None, int(axis)
        axes = self._axes(either(axis, dim), "var_mean")
        variance, mean = (self._squeezed(cast(node, self._result_float()), axes, keepdim)
                          for node in self._var_nodes(axes, correction, "var_mean"))
        return self._wrap(variance), self._wrap(mean)

    def std_mean(self, axis: Any = None, keepdim: bool = False, correction: float | None = 1,
                 dim: Any = None) -> tuple[Self, Self]:
        """Standard deviation and mean, which share their work."""
        if isinstance(axis, bool):
            axis, correction = None, int(axis)
        variance, mean = self.var_mean(axis, keepdim, correction, dim)
        return self._wrap(root_of_squares(variance.uop)), mean

    def _result_float(self) -> DType:
        return self.dtype if self.dtype.kind == "f" else dtypes.default_float

    def norm(self, p: Any = 2, axis: Any = None, keepdim: bool = False,
             dim: Any = None) -> Self:
        """The p-norm along axes, computed in float32 for halves. At 0 its gradient is 0."""
        axis = either(axis, dim)
        result = self._result_float()
        if p == "nuc" or p == "fro" and isinstance(axis, (tuple, list)):
            named: Any = self.matrix_norm  # type: ignore[attr-defined]  # of Linalg
            found: Self = named(p, (-2, -1) if axis is None else axis, keepdim)
            return found
        p = 2 if p in ("fro", None) else p
        if p in (math.inf, -math.inf):
            size = self.abs()
            return size.max(axis, keepdim) if p > 0 else size.min(axis, keepdim)
        if p == 0:  # the limit: how many are not zero
            return self.ne(0).cast(result).sum(axis, keepdim)
        wide = self.cast(sum_accumulator(result))  # r[impl tensor.norm.half]
        if p == 2:
            total = wide.square().sum(axis, keepdim)
            return self._wrap(cast(root_of_squares(total.uop), result))
        return wide.abs().pow(p).sum(axis, keepdim).pow(1 / p).cast(result)

    def argmax(self, axis: int | None = None, keepdim: bool = False,
               dim: int | None = None) -> Self:
        """Where the greatest element stands, as int32: the first, or the first NaN."""
        return self._place(Ops.MAXIMUM, either(axis, dim), keepdim, "argmax")

    def argmin(self, axis: int | None = None, keepdim: bool = False,
               dim: int | None = None) -> Self:
        """Where the least element stands, as int32: the first, or the first NaN."""
        return self._place(Ops.MINIMUM, either(axis, dim), keepdim, "argmin")

    def _place(self, op: Ops, axis: int | None, keepdim: bool, name: str) -> Self:
        if axis is None or not self.shape and self._axes(axis, name) == ():
            flat = self.flatten()._place(op, 0, False, name)
            return flat.reshape((1,) * len(self.shape)) if keepdim else flat
        axis = self._axis(axis, name)
        self._refuse_empty((axis,), name)
        x, size = nodes.detach(self.uop), self.shape[axis]
        best = nodes.expand(nodes.reduce(op, x, (axis,)), self.shape)
        chosen = compare(Ops.CMPEQ, x, best)
        if x.dtype.kind == "f":  # where the best is NaN, it equals nothing
            chosen = binary(Ops.OR, chosen, compare(Ops.CMPNE, x, x))
        place = nodes.expand(nodes.iota_along(size, axis, len(self.shape)), self.shape)
        # r[impl tensor.argmax.first+2]
        first = where(chosen, place, nodes.scalar(place.dtype, size))
        node = nodes.reduce(Ops.MINIMUM, first, (axis,))
        return self._wrap(self._squeezed(node, (axis,), keepdim))

    # Running

    def cumsum(self, axis: int = 0, dim: int | None = None, dtype: Any = None) -> Self:
        """Running sums along an axis, in the dtypes of `sum`, or in `dtype`."""
        wanted = sum_result(self.dtype) if dtype is None else as_dtype(dtype)
        return self._running(Ops.ADD, either(axis, dim), wanted, "cumsum")

    def cumprod(self, axis: int = 0, dim: int | None = None, dtype: Any = None) -> Self:
        """Running products along an axis, in the dtypes of `sum`, or in `dtype`."""
        wanted = sum_result(self.dtype) if dtype is None else as_dtype(dtype)
        return self._running(Ops.MUL, either(axis, dim), wanted, "cumprod")

    def cummax(self, axis: int = 0, dim: int | None = None) -> Any:
        """The greatest element so far along an axis; for `import impl.torch as torch` as `max`."""
        found = self._running(Ops.MAXIMUM, either(axis, dim), self.dtype, "cummax")
        return self._places_so_far(found, either(axis, dim)) \
            if written_for_torch(sys._getframe(2)) else found

    def cummin(self, axis: int = 0, dim: int | None = None) -> Any:
        """The least element so far along an axis; for `import impl.torch as torch` as `max`."""
        found = self._running(Ops.MINIMUM, either(axis, dim), self.dtype, "cummin")
        return self._places_so_far(found, either(axis, dim)) \
            if written_for_torch(sys._getframe(2)) else found

    def _places_so_far(self, found: Self, axis: int) -> Any:
        """Running extremes, and where the last element stands that is the extreme so far."""
        if not self.shape:
            return Ordered(found, self._wrap(UOp.const(dtypes.int64, 0)))
        here = self.eq(found) | self.ne(self)
        place = self._wrap(nodes.expand(nodes.iota_along(
            self.shape[axis], self._axis(axis, "cummax"), len(self.shape)), self.shape))
        so_far = here.where(place, 0)._running(Ops.MAXIMUM, axis, place.dtype, "cummax")
        return self._with_places(found, so_far)

    def _running(self, op: Ops, axis: int, dtype: DType, name: str) -> Self:
        axis = self._axis_or_none(axis, name)
        if not self.shape:
            return self._wrap(cast(self.uop, dtype))
        x = cast(self.uop, dtype)
        # r[impl tensor.running.value, tensor.linear.work+2]
        return self._wrap(running_sums(x, axis) if op is Ops.ADD and dtype.kind == "f"
                          else nodes.scan(op, x, axis))

    def _axis_or_none(self, axis: int, name: str) -> int:
        """The axis from the front; a single number counts as an axis of one element."""
        return self._axis(axis, name, extra=0 if self.shape else 1)

    # Order

    def sort(self, dim: int = -1, descending: bool = False) -> Ordered:
        """The elements of an axis in order, and where each came from, as int32.

        Equal elements keep their order, and NaN counts as greater than every number.
        """
        axis = self._axis_or_none(dim, "sort")
        if not self.shape:
            values, places = self.reshape(1).sort()
            return Ordered(values.reshape(()), places.reshape(()))
        values = self.movedim(axis, -1)
        if self.numel() == 0:
            places = self._wrap(nodes.full(UOp.const(dtypes.int32, 0), self.shape))
            return Ordered(self._another(), places)
        return self._picked(values, sort_origin(values.uop, descending), axis)

    def _picked(self, values: Self, origin: UOp, axis: int) -> Ordered:
        """The elements of the last axis that come from some places, and these."""
        picked = nodes.gather_along(values.uop, origin, len(self.shape) - 1)
        return Ordered(self._wrap(picked).movedim(-1, axis),
                       self._wrap(origin).movedim(-1, axis))

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """Where the elements of an axis in order come from, as int32."""
        places: Self = self.sort(dim, descending).indices
        return places

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True,  # noqa: A002
             ) -> Ordered:
        """The k greatest (least) elements of an axis in order, and where they come from."""
        if not self.shape and self._axes(dim, "topk") == ():
            values, places = self.reshape(1).topk(k)
            return Ordered(values.reshape(()), places.reshape(()))
        axis = self._axis(dim, "topk")
        k = whole(k, "topk", "number of elements")
        if not 0 <= k <= self.shape[axis]:
            raise ShapeError("topk", f"{k} of {self.shape[axis]} elements",
                             f"use at most the size of axis {axis}")
        moved = self.movedim(axis, -1)
        first = None if is_symbolic(k) else first_origin(moved.uop, k, largest)
        if first is not None:
            return self._picked(moved, first, axis)
        values, places = self.sort(axis, descending=largest)
        return Ordered(values.narrow(axis, 0, k), places.narrow(axis, 0, k))

    # Softmax

    def _shifted(self, axis: int, name: str) -> tuple[UOp, UOp]:
        """x - max(x) along an axis, and the maximum: exponentials of it do not overflow."""
        x = self._float(name)
        x = cast(x, sum_accumulator(x.dtype))
        top = nodes.detach(nodes.reduce(Ops.MAXIMUM, x, (axis,)))
        return nodes.sub(x, nodes.expand(top, self.shape)), top

    def softmax(self, axis: int = -1, dtype: Any = None, dim: int | None = None) -> Self:
        """exp(x) / sum(exp(x)) along an axis, computed without overflow."""
        if dtype is not None:
            return self.cast(dtype).softmax(either(axis, dim))
        axis = self._axis_or_none(either(axis, dim), "softmax")
        if self.numel() == 0 or not self.shape:  # r[impl tensor.softmax.empty]
            return self.cast(self._result_float()) * 0 + 1
        grown = unary(Ops.EXP, self._shifted(axis, "softmax")[0])
        total = nodes.reduce(Ops.ADD, grown, (axis,))
        # r[impl tensor.softmax.once]
        part = nodes.expand(unary(Ops.RECIPROCAL, total), self.shape)
        return self._wrap(cast(nodes.mul(grown, part), self._result_float()))

    def softmin(self, axis: int = -1, dtype: Any = None, dim: int | None = None) -> Self:
        """softmax of -x along an axis"""
        return (-self).softmax(either(axis, dim), dtype)

    def log_softmax(self, axis: int = -1, dtype: Any = None, dim: int | None = None) -> Self:
        """log(softmax(x)), computed without overflow."""
        if dtype is not None:
            return self.cast(dtype).log_softmax(either(axis, dim))
        axis = self._axis_or_none(either(axis, dim), "log_softmax")
        if self.numel() == 0 or not self.shape:
            return self.cast(self._result_float()) * 0
        shifted, _ = self._shifted(axis, "log_softmax")
        total = nodes.reduce(Ops.ADD, unary(Ops.EXP, shifted), (axis,))
        return self._wrap(cast(nodes.sub(shifted, nodes.expand(unary(Ops.LOG, total), self.shape)),
                               self._result_float()))

    def logsumexp(self, axis: Any = None, keepdim: bool = False, dim: Any = None) -> Self:
        """log(sum(exp(x))) along axes, computed without overflow."""
        axes = self._axes(either(axis, dim), "logsumexp")
        x = self._float("logsumexp")
        x = cast(x, sum_accumulator(x.dtype))
        top = nodes.detach(nodes.reduce(Ops.MAXIMUM, x, axes))
        # Infinity minus infinity would be NaN.
        finite = compare(Ops.CMPLT, where(compare(Ops.CMPLT, top, UOp.const(top.dtype, 0)),
                                          nodes.neg(top), top), UOp.const(top.dtype, math.inf))
        top = where(finite, top, UOp.const(top.dtype, 0))
        total = nodes.reduce(
            Ops.ADD, unary(Ops.EXP, nodes.sub(x, nodes.expand(top, self.shape))), axes)
        node = cast(nodes.add(unary(Ops.LOG, total), top), self._result_float())
        return self._wrap(self._squeezed(node, axes, keepdim))
