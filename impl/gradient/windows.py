"""How the elements of windows are added up where the windows were taken. Chapter: spec/gradient.md.

Needs: taps, `count` windows of `size` elements on two neighbouring axes.
Guarantees: each element of the result is the sum of the taps that were taken from its place.
"""
from __future__ import annotations

import math
from typing import NamedTuple

from impl.gradient import nodes
from impl.gradient.custom import ruled, with_gradient
from impl.gradient.nodes import shape_of
from impl.ir import Ops, Shape, UOp
from impl.symbolic import is_symbolic


class Taps(NamedTuple):
    """A sum of products: `signal` has a number for each window, `kernel` one for each of its taps.

    `axis` is that of the windows in both, the next one is that of the taps; `summed` are the axes
    over which the products are added.
    """

    signal: UOp
    kernel: UOp
    axis: int
    summed: tuple[int, ...]


def add_windows(taps: UOp, axis: int, length: int, step: int, dilation: int) -> UOp:
    """The sum of `taps[i, k]` over i * step + k * dilation, for each place of `length`.

    `axis` is that of i, the windows, and the next one is that of k. Where the taps are sums of
    products, as those of a convolution are, the same is a sum over windows of the signal: it is
    computed as fast as a convolution (r[gradient.window.sum+4]). Its gradient is that of the taps.
    """
    if shape_of(taps)[axis] == 1 and dilation == 1:
        return _one_window(taps, axis, length)
    above: list[tuple[UOp, int, int]] = []
    node, place = taps, axis
    while (below := _axis_below(node, place)) is not None:
        above.append((node, place, below))
        node, place = node.src[0], below
    found = _find_taps(node, place)
    if is_symbolic(length) or step > 1 < dilation or is_symbolic(math.prod(shape_of(taps))):
        return UOp(Ops.FOLD, taps.dtype, (taps,), (axis, length, step, dilation))
    if found is None and dilation == 1 and shape_of(taps)[axis + 1] <= _MOST_SHIFTS * step:
        return _sum_of_shifts(taps, axis, length, step)
    if found is None:
        return UOp(Ops.FOLD, taps.dtype, (taps,), (axis, length, step, dilation))
    result = _sum_over_windows(found, length, step, dilation)  # r[impl gradient.window.sum+4]
    for each, own, below in reversed(above):
        if each.op is not Ops.CONTIGUOUS or step == 1:  # with steps, something is stored already
            result = _done_again(each, own, below, result)
    return _as_taps(taps, result, axis, step, dilation)


def _one_window(taps: UOp, axis: int, length: int) -> UOp:
    """Of one window no two taps have one place."""
    sizes = shape_of(taps)  # r[impl gradient.window.sum+4]
    row = nodes.reshape(taps, (*sizes[:axis], *sizes[axis + 1:]))
    return nodes.pad(row, tuple((0, length - sizes[axis + 1] if each == axis else 0)
                                for each in range(len(sizes) - 1)))


def _as_taps(taps: UOp, total: UOp, axis: int, step: int, dilation: int) -> UOp:
    """The sum of taps, whose gradient is one of windows of what they were added to, and not of the
    windows that the signal was cut into.
    """
    count, size = shape_of(taps)[axis:axis + 2]  # r[impl gradient.window.sum+4]
    return with_gradient(total, ruled((taps,), lambda gradient, inputs: (
        nodes.unfold(gradient, axis, count, size, step, dilation),)))


#: A window that is added up in so many parts, each without overlaps.
_MOST_SHIFTS = 3


def _sum_of_shifts(taps: UOp, axis: int, length: int, step: int) -> UOp:
    """The first `step` taps of all windows lie side by side, and so do the next ones, shifted."""
    sizes = shape_of(taps)
    count, size = sizes[axis:axis + 2]
    total: UOp | None = None
    for start in range(0, size, step):
        stop = min(start + step, size)
        part = nodes.shrink(taps, tuple((start, stop) if each == axis + 1 else (0, extent)
                                        for each, extent in enumerate(sizes)))
        part = nodes.pad(part, tuple((0, step - stop + start) if each == axis + 1 else (0, 0)
                                     for each in range(len(sizes))))
        row = nodes.reshape(part, (*sizes[:axis], count * step, *sizes[axis + 2:]))
        more = max(0, start + count * step - length)  # the padding of the last window
        row = nodes.shrink(row, tuple((0, extent - more) if each == axis else (0, extent)
                                      for each, extent in enumerate(shape_of(row))))
        around = (start, length - start - count * step + more)
        row = nodes.pad(row, tuple(around if each == axis else (0, 0)
                                   for each in range(len(sizes) - 1)))
        total = row if total is None else nodes.add(total, row)
    assert total is not None
    return total


def _axis_below(node: UOp, axis: int) -> int | None:
    """Where an axis and the next one are in the source; None if it is not the same with them."""
    op = node.op
    if not node.src or node.realized is not None or any(map(is_symbolic, shape_of(node))):
        return None
    inner = shape_of(node.src[0])
    if op is Ops.SHRINK or op is Ops.PAD:
        whole = [(0, size) if op is Ops.SHRINK else (0, 0) for size in inner[axis:axis + 2]]
        return axis if list(node.arg[axis:axis + 2]) == whole else None
    if op in (Ops.CONTIGUOUS, Ops.DETACH) \
            or op is Ops.CAST and node.dtype.kind == "f" == node.src[0].dtype.kind:
        return axis
    if op is Ops.PERMUTE:
        return node.arg[axis] if node.arg[axis] + 1 == node.arg[axis + 1] else None
    if op is Ops.RESHAPE and not any(map(is_symbolic, inner)):
        return _aligned(shape_of(node), axis, inner, 2)
    return None


def _aligned(sizes: Shape, axis: int, inner: Shape, count: int) -> int | None:
    """Which axis of another shape an axis is, with those after it: so many, and in order."""
    before = math.prod(sizes[:axis])
    return next((place for place in reversed(range(len(inner) - count + 1))
                 if inner[place:place + count] == sizes[axis:axis + count]
                 and math.prod(inner[:place]) == before), None)


def _done_again(node: UOp, axis: int, below: int, result: UOp) -> UOp:
    """What a node did to taps, done to their sums: the windows are its `axis`, and `below` in its
    source.
    """
    length, sizes = shape_of(result)[below], shape_of(node)
    if node.op is Ops.DETACH:
        return result
    if node.op in (Ops.CAST, Ops.CONTIGUOUS):
        return nodes.cast(result, node.dtype) if node.op is Ops.CAST \
            else UOp(Ops.CONTIGUOUS, result.dtype, (result,))
    if node.op is Ops.PERMUTE:
        return nodes.permute(result, tuple(each - (each > below) for each in node.arg
                                           if each != below + 1))
    if node.op is Ops.RESHAPE:
        return nodes.reshape(result, (*sizes[:axis], length, *sizes[axis + 2:]))
    bounds = (0, length) if node.op is Ops.SHRINK else (0, 0)
    return nodes.move(result, node.op, (*node.arg[:axis], bounds, *node.arg[axis + 2:]))


def _find_taps(total: UOp, axis: int) -> Taps | None:
    """The product that taps are sums of, if one factor has no taps and the other no windows."""
    product, summed = total, ()
    if total.op is Ops.REDUCE and total.arg[0] is Ops.ADD and total.realized is None:
        product, summed = total.src[0], total.arg[1]
    sizes = shape_of(product)
    if product.op is not Ops.MUL or product.realized is not None or 0 in sizes \
            or any(map(is_symbolic, sizes)) or axis in summed or axis + 1 in summed:
        return None
    count, size = sizes[axis:axis + 2]
    factors = [each.src[0] if each.op is Ops.EXPAND else each for each in product.src]
    for signal, kernel in (factors, factors[::-1]):
        if shape_of(signal)[axis:axis + 2] == (count, 1) \
                and shape_of(kernel)[axis:axis + 2] == (1, size):
            return Taps(signal, kernel, axis, summed)
    return None


def _sum_over_windows(taps: Taps, length: int, step: int, dilation: int) -> UOp:
    """Place p = Q * step + r is the sum of signal[Q - q] * kernel[q * step + r] over q.

    The phases r are the first axis of the product: results of one phase lie side by side.
    """
    signal, kernel, axis, summed = taps
    count, size = shape_of(signal)[axis], shape_of(kernel)[axis + 1]
    number, places = -(-size // step), -(-length // step)  # taps of a phase, places of a phase
    before, after = shape_of(signal)[:axis], shape_of(signal)[axis + 2:]
    windows = _windows(signal, axis, ((number - 1) * dilation, places - count), number, dilation)
    signal = nodes.reshape(windows, (1, *before, places, number, *after))
    kernel = _phases(kernel, axis, number, step)
    shape = tuple(map(max, shape_of(signal), shape_of(kernel)))
    product = nodes.mul(nodes.expand(signal, shape), nodes.expand(kernel, shape))
    total = nodes.reduce(Ops.ADD, product, sorted((*(each + 1 for each in summed), axis + 2)))
    sizes = (*shape_of(total)[1:axis + 2], *shape_of(total)[axis + 3:])
    if step > 1:
        total = UOp(Ops.CONTIGUOUS, total.dtype, (nodes.reshape(total, (step, *sizes)),))
        total = nodes.permute(total, (*range(1, axis + 2), 0, *range(axis + 2, len(sizes) + 1)))
    whole = (*sizes[:axis], places * step, *sizes[axis + 1:])
    bounds = tuple((0, length if each == axis else size) for each, size in enumerate(whole))
    return nodes.shrink(nodes.reshape(total, whole), bounds)


def _windows(signal: UOp, axis: int, around: tuple[int, int], number: int, dilation: int) -> UOp:
    """Windows of so many elements over a padded axis, with an axis of size 1 after them.

    They are taken before the axes were shaped otherwise: so a place in memory stays a sum of loops.
    """
    sizes, place = shape_of(signal), axis
    while signal.op is Ops.RESHAPE and signal.realized is None:
        inner = shape_of(signal.src[0])
        below = None if any(map(is_symbolic, inner)) else _aligned(sizes, place, inner, 1)
        if below is None:
            break
        signal, sizes, place = signal.src[0], inner, below
    zeros = [(0, 0)] * len(sizes)
    zeros[place] = around
    padded = nodes.pad(signal, tuple(zeros))
    return nodes.unfold(padded, place, sum(around) + sizes[place] - (number - 1) * dilation,
                        number, 1, dilation)


def _phases(kernel: UOp, axis: int, number: int, step: int) -> UOp:
    """The taps of each phase, the last one first: (phase, ..., 1, tap, ...)."""
    sizes = shape_of(kernel)
    before, after = sizes[:axis], sizes[axis + 2:]
    zeros = [(0, 0)] * len(sizes)
    zeros[axis + 1] = (0, number * step - sizes[axis + 1])
    kernel = nodes.reshape(nodes.pad(kernel, tuple(zeros)), (*before, 1, number, step, *after))
    kernel = nodes.flip(kernel, (axis + 1,))
    others = (each for each in range(len(sizes) + 1) if each != axis + 2)
    return nodes.permute(kernel, (axis + 2, *others))
