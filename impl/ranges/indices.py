"""Indices of tensors, and what movement operations do to them. Chapter: spec/ranges.md."""
from __future__ import annotations

from impl import symbolic
from impl.dtypes import dtypes
from impl.ir import TRUE, Ops, RangeKind, Shape, UOp, new_range

Index = tuple[UOp, ...]
ZERO = UOp.const(dtypes.index, 0)


def output_ranges(shape: Shape) -> Index:
    """One loop variable per axis; an axis of size 1 needs none."""
    return tuple(new_range(size, RangeKind.LOOP, axis) if size != 1 else ZERO
                 for axis, size in enumerate(shape))


def loops_within(index: Index) -> list[UOp]:
    """The loop variables of an index, in its order."""
    return [i for i in index if i.op is Ops.RANGE]


def reshape_index(index: Index, outer: Shape, inner: Shape) -> Index:
    """The index into `inner` of the element that `outer` calls `index`.

    The two shapes are cut into the shortest runs with equal products, so that a reshape which
    splits or merges some axes leaves the index of all others as it is.
    """
    if 0 in outer:
        return (ZERO,) * len(inner)  # no element, so any index will do
    result: list[UOp] = []
    i = j = 0
    while i < len(outer) or j < len(inner):
        first_i, first_j = i, j
        left = right = 1
        if i < len(outer):
            left, i = left * outer[i], i + 1
        if j < len(inner):
            right, j = right * inner[j], j + 1
        while left != right and (i < len(outer) or j < len(inner)):
            if (left < right and i < len(outer)) or j >= len(inner):
                left, i = left * outer[i], i + 1
            else:
                right, j = right * inner[j], j + 1
        result += _regroup(index[first_i:i], outer[first_i:i], inner[first_j:j])
    return tuple(result)


def _regroup(index: Index, outer: Shape, inner: Shape) -> list[UOp]:
    """Flatten one run of axes and split it again."""
    if outer == inner:  # r[impl ranges.reshape.local+4]
        return list(index)
    flat = flatten(index, outer)
    result: list[UOp] = []
    for axis, size in reversed(list(enumerate(inner))):
        if axis == 0 and any(symbolic.is_symbolic(one) for one in (*outer, *inner)):
            result.append(flat)  # it is below the size, though no bounds say so
            break
        result.append(symbolic.mod(flat, size) if size != 1 else ZERO)
        flat = symbolic.floordiv(flat, size) if size != 1 else flat
    return result[::-1]


def flatten(index: Index, shape: Shape) -> UOp:
    """The position of an element in row-major order."""
    weights, stride = [], 1
    for position, size in zip(reversed(index), reversed(shape), strict=True):
        if position is not ZERO:
            weights.append((position, stride))
        stride *= size
    if len(weights) == 1 and weights[0][0].op is Ops.RANGE and weights[0][1] == 1:
        return weights[0][0]
    return symbolic.weighted_sum(weights)


def source_index(node: UOp, index: Index) -> tuple[Index, UOp]:
    """Where a movement operation reads its source for the element `index` of its result.

    Returns the index into the source, and the condition under which there is such an element
    (only PAD makes one).
    """
    op, arg, source = node.op, node.arg, node.src[0].shape  # r[impl ranges.index.exact+2]
    assert source is not None and node.shape is not None
    if op is Ops.RESHAPE:
        return reshape_index(index, node.shape, source), TRUE
    if op is Ops.EXPAND:
        # An axis that keeps its size for all values of the variables keeps its index.
        return tuple(i if size == new and size != 1 else ZERO for i, size, new in zip(
            index, source, node.shape, strict=True)), TRUE
    if op is Ops.PERMUTE:
        moved = [ZERO] * len(arg)
        for axis, old in enumerate(arg):
            moved[old] = index[axis]
        return tuple(moved), TRUE
    if op is Ops.SHRINK:
        return tuple(symbolic.add(i, start) for i, (start, _) in zip(index, arg, strict=True)), TRUE
    if op is Ops.FLIP:
        return tuple(symbolic.sub(source[axis] - 1, i) if axis in arg else i
                     for axis, i in enumerate(index)), TRUE
    if op is Ops.UNFOLD:
        axis, _, _, step, dilation = arg
        at = symbolic.add(symbolic.mul(index[axis], step), symbolic.mul(index[axis + 1], dilation))
        return index[:axis] + (at,) + index[axis + 2:], TRUE
    return _pad_index(arg, source, index)


def _pad_index(amounts: tuple[tuple[int, int], ...], source: Shape,
               index: Index) -> tuple[Index, UOp]:
    valid, moved = TRUE, []
    for i, (before, after), size in zip(index, amounts, source, strict=True):
        at = symbolic.sub(i, before) if before else i
        if before:
            valid = symbolic.logical_and(valid, symbolic.less_equal(0, at))
        if after:
            valid = symbolic.logical_and(valid, symbolic.less_than(at, size))
        moved.append(at)
    return tuple(moved), valid
