"""Operators that make fewer elements of many, or look along an axis."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from impl.dtypes import dtypes
from impl.host import np
from impl.onnx.operators import Host, ints, operator
from impl.tensor import Tensor

_Axes = tuple[int, ...]


def _extreme(x: Tensor, axes: _Axes, greatest: bool) -> Tensor:
    if x.dtype is dtypes.bool:
        return (x.any if greatest else x.all)(axes, True)
    if 0 in x.shape:  # of nothing
        empty = x.dtype.min if greatest else x.dtype.max
        sizes = [1 if place in axes else one for place, one in enumerate(x.shape)]
        return Tensor.full(tuple(sizes), empty, dtype=x.dtype, device=x.device)
    return x.amax(axes, True) if greatest else x.amin(axes, True)


def _log_sum_exp(x: Tensor, axes: _Axes) -> Tensor:
    if 0 in x.shape:
        return x.exp().sum(axes, True).log()
    return x.logsumexp(axes, True)


def _mean(x: Tensor, axes: _Axes) -> Tensor:
    if x.dtype.kind == "f":
        return x.mean(axes, True)
    count = math.prod(x.shape[axis] for axis in axes)
    return x.sum(axes, True, dtype=x.dtype).div(count, rounding_mode="trunc").cast(x.dtype)


def _root(x: Tensor, axes: _Axes) -> Tensor:
    if x.dtype.kind == "f":
        return x.square().sum(axes, True).sqrt()
    return x.cast(dtypes.float64).square().sum(axes, True).sqrt().cast(x.dtype)


def _log_sum(x: Tensor, axes: _Axes) -> Tensor:
    return x.sum(axes, True).log()


_REDUCED: dict[str, Callable[[Tensor, _Axes], Tensor]] = {
    "ReduceSum": lambda x, axes: x.sum(axes, True, dtype=x.dtype),
    "ReduceMean": _mean,
    "ReduceProd": lambda x, axes: x.prod(axes, True, dtype=x.dtype),
    "ReduceMax": lambda x, axes: _extreme(x, axes, True),
    "ReduceMin": lambda x, axes: _extreme(x, axes, False),
    "ReduceL1": lambda x, axes: x.abs().sum(axes, True, dtype=x.dtype),
    "ReduceL2": _root,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, axes: x.square().sum(axes, True, dtype=x.dtype)}
#: The first version in which the axes are an input.
_AXES_ARE_GIVEN = {name: 13 if name == "ReduceSum" else 18 for name in _REDUCED}


def _reduced(x: Tensor, join: Callable[[Tensor, _Axes], Tensor], axes: Sequence[int] | None,
             keepdims: int, nothing: int = 0) -> Tensor:
    along = sorted({axis % x.ndim for axis in axes or ()}) if x.ndim else []
    if not along and not nothing:
        along = list(range(x.ndim))
    found = join(x, tuple(along)) if along or not x.ndim else join(x.unsqueeze(0), (0,)).squeeze(0)
    if nothing and not along and join is _REDUCED["ReduceSum"]:
        found = x
    if keepdims:
        return found
    return found.reshape(*(one for place, one in enumerate(x.shape) if place not in along))


def _with_axes_given(join: Callable[[Tensor, _Axes], Tensor]) -> Callable[..., Tensor]:
    def reduced(x: Tensor, axes: Host | None = None, *, keepdims: int = 1,
                noop_with_empty_axes: int = 0) -> Tensor:
        return _reduced(x, join, None if axes is None else ints(axes), keepdims,
                        noop_with_empty_axes)
    return reduced


def _with_axes_fixed(join: Callable[[Tensor, _Axes], Tensor]) -> Callable[..., Tensor]:
    def reduced(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
        return _reduced(x, join, axes, keepdims)
    return reduced


for _name, _join in _REDUCED.items():
    operator(_name, _AXES_ARE_GIVEN[_name])(_with_axes_given(_join))
    operator(_name, 1)(_with_axes_fixed(_join))


def _place_of(x: Tensor, axis: int, keepdims: int, last: int, greatest: bool) -> Tensor:
    axis %= x.ndim
    x = x.flip(axis) if last else x
    found = (x.argmax if greatest else x.argmin)(axis, keepdim=bool(keepdims))
    return (x.shape[axis] - 1 - found if last else found).cast(dtypes.int64)


@operator("ArgMax")
def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _place_of(x, axis, keepdims, select_last_index, True)


@operator("ArgMin")
def arg_min(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _place_of(x, axis, keepdims, select_last_index, False)


def _running(x: Tensor, axis: int, exclusive: int, reverse: int,
             along: Callable[..., Tensor], first: int) -> Tensor:
    axis %= x.ndim
    x = x.flip(axis) if reverse else x
    if exclusive:
        widths = [(0, 0)] * x.ndim
        widths[axis] = 1, -1
        x = x.pad(widths, value=first)
    found = along(x, axis, dtype=x.dtype)
    return found.flip(axis) if reverse else found


@operator("CumSum")
def running_sum(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(x, int(axis.item()), exclusive, reverse, Tensor.cumsum, 0)


@operator("CumProd")
def running_product(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _running(x, int(axis.item()), exclusive, reverse, Tensor.cumprod, 1)


@operator("TopK", 10)
def top(x: Tensor, k: Host, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    values, places = x.topk(int(k.item()), axis, bool(largest))
    return values, places.cast(dtypes.int64)


@operator("TopK", 1)
def top_1(x: Tensor, *, k: int, axis: int = -1) -> Any:
    return top(x, np.array(k), axis=axis)


# Along an axis


def _on_rows(x: Tensor, axis: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Before version 13 all axes from one on were one."""
    axis = axis % x.ndim
    return function(x.reshape(math.prod(x.shape[:axis]), -1)).reshape(*x.shape)


def _hardmax(x: Tensor, axis: int) -> Tensor:
    axis %= x.ndim
    form = [1] * x.ndim
    form[axis] = x.shape[axis]
    places = Tensor.arange(x.shape[axis], device=x.device).reshape(*form)
    return (x.argmax(axis, keepdim=True) == places).cast(x.dtype)


_ALONG: dict[str, Callable[[Tensor, int], Tensor]] = {
    "Softmax": Tensor.softmax, "LogSoftmax": Tensor.log_softmax, "Hardmax": _hardmax}


def _along_one(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def along(x: Tensor, *, axis: int = -1) -> Tensor:
        return function(x, axis)
    return along


def _along_all(function: Callable[[Tensor, int], Tensor]) -> Callable[..., Tensor]:
    def along(x: Tensor, *, axis: int = 1) -> Tensor:
        return _on_rows(x, axis, functools.partial(_last, function=function))
    return along


def _last(x: Tensor, function: Callable[[Tensor, int], Tensor]) -> Tensor:
    return function(x, -1)


for _name, _function in _ALONG.items():
    operator(_name, 13)(_along_one(_function))
    operator(_name, 1)(_along_all(_function))


@operator("LpNormalization")
def norm_of_one(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    size = x.abs().sum(axis, True) if p == 1 else x.square().sum(axis, True).sqrt()
    return (size == 0).where(0, x / size)
