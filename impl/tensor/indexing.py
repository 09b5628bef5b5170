"""Choosing elements: slices, integer tensors, gather and scatter. Chapter: spec/tensor.md."""
from __future__ import annotations

import math
from typing import Any, Self

from impl.dtypes import DType, dtypes
from impl.errors import AxisError, DTypeError, ShapeError
from impl.gradient import nodes
from impl.gradient.nodes import binary, cast, shape_of, where
from impl.host import np
from impl.ir import Ops, Shape, UOp
from impl.symbolic import as_size, identical, is_number, is_symbolic
from impl.tensor.base import TensorBase
from impl.tensor.elementwise import compare
from impl.tensor.movement import spread, whole
from impl.tensor.reduce import Reduce
from impl.tensor.views import Path, follow

_WHOLE = slice(None)


def slice_path(shape: Shape, items: list[Any]) -> Path:
    """The movement operations of a basic index: ints, slices and None, one item for each axis."""
    bounds, flips, steps, kept = [], [], [], []
    axis = 0
    for item in items:
        if item is None:
            kept.append(1)
            continue
        size = shape[axis]
        if isinstance(item, slice):
            low, high, count, step = _places(item, size)
            bounds.append((low, high))
            if step < 0:
                flips.append(axis)
            if abs(step) != 1 and not (is_number(count, 0) or is_number(count, 1)):
                steps.append((axis, count, abs(step)))
            kept.append(count)
        else:
            bounds.append((item, item + 1))
        axis += 1
    path: list[tuple[Ops, tuple]] = []
    if any(not identical(bound, (0, size)) for bound, size in zip(bounds, shape, strict=True)):
        path.append((Ops.SHRINK, tuple(bounds)))
    if flips:
        path.append((Ops.FLIP, tuple(flips)))
    # From the last axis to the first, so that the numbers of the axes before stay right.
    path += [(Ops.UNFOLD, (axis, count, 1, step, 1)) for axis, count, step in reversed(steps)]
    return (*path, (Ops.RESHAPE, tuple(kept)))


def _places(item: slice, size: int) -> tuple[int, int, int, int]:
    """The first place of a slice, the one after the last, how many it takes, and the step."""
    symbolic = [one for one in (item.start, item.stop, item.step, size) if is_symbolic(one)]
    start, stop, step = _indices(item, size) if symbolic else item.indices(size)
    if symbolic and abs(step) == 1:
        low, high = (start, stop) if step > 0 else (stop + 1, start + 1)
        # r[impl tensor.index.elements]: whether it is empty is not asked
        return (low, high, high - low, step) if low <= high else (0, 0, 0, step)
    count = -((start - stop) // step) if symbolic else len(range(start, stop, step))
    if count <= 0:
        return 0, 0, 0, step
    last = start + (count - 1) * step
    low, high = (start, last) if step > 0 else (last, start)
    return low, high + 1, count, step


def _indices(item: slice, size: int) -> tuple[int, int, int]:
    """`slice.indices`, which keeps symbolic sizes symbolic."""
    step = 1 if item.step is None else item.step
    least, most = (0, size) if step > 0 else (-1, size - 1)

    def place(given: int | None, default: int) -> int:
        if given is None:
            return default
        if given < 0:
            given = given + size
        return least if given < least else most if given > most else given

    return place(item.start, least if step > 0 else most), \
        place(item.stop, most if step > 0 else least), step


class Indexing(Reduce):
    """`t[...]`, `t[...] = value`, gather, scatter."""

    __slots__ = ()

    # Reading

    def __getitem__(self, index: Any) -> Self:
        """The chosen elements: ints, slices (steps of any sign), None, ..., integer tensors.

        Raises:
            AxisError: an int is out of range, or there are more items than axes.
            DTypeError: an index tensor is not of an integer dtype.
        """
        if _has_truth(index):
            seen, index = self._beside_truths(index)
            return seen[index]
        items, apart = self._items(index)
        if not any(_is_advanced(item) for item in items):
            path = slice_path(self.shape, items)
            return self._viewed(follow(self.uop, path), path)
        path, axes, indices, place = self._advanced(items, apart)
        node = self._gathered(follow(self.uop, path), axes, indices)
        new_axes = len(spread([shape_of(each) for each in indices], "index"))
        return self._wrap(_placed(node, place, new_axes))

    def _beside_truths(self, index: Any) -> tuple[Any, Any]:
        """The tensor with an axis of size 1 for each True or False in the index, and the index
        that takes it or leaves it: such a mask has no axis of its own.
        """
        items = list(index) if isinstance(index, tuple) else [index]
        seen: Any = self
        for place, item in enumerate(items):
            if not _is_truth(item):
                continue
            dots = next((i for i in range(place) if items[i] is Ellipsis), None)
            axis = sum(map(_axes_taken, items[:place])) if dots is None else \
                len(seen.shape) - sum(map(_axes_taken, items[place + 1:]))
            seen = seen.unsqueeze(axis)
            items[place] = [0] if item else []  # r[impl tensor.index.elements]
        return seen, tuple(items)

    def _items(self, index: Any) -> tuple[list[Any], bool]:
        """One item for each axis, besides None; checked, and with ints counted from the front.

        And whether a `...` that stands for no axis parts two index tensors, as in NumPy.
        """
        items = list(index) if isinstance(index, tuple) else [index]
        items = [self._known_mask(item) for item in items]
        _check_masks(items, self.shape)
        items = [part for item in items for part in _unmasked(item)]
        used = sum(item is not None and item is not Ellipsis for item in items)
        missing = len(self.shape) - used
        if missing < 0:  # r[impl tensor.arguments.refused+2]
            raise AxisError("index", f"{used} indices for a tensor of shape {self.shape}",
                            f"use at most {len(self.shape)}")
        if sum(item is Ellipsis for item in items) > 1:
            raise AxisError("index", "... stands twice", "use it once")
        place = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
        apart = any(map(_is_special, items[:place])) and any(map(_is_special, items[place + 1:]))
        items[place:place + 1] = [_WHOLE] * missing
        axis, checked = 0, []
        for item in items:
            checked.append(item if item is None else self._checked(item, axis))
            axis += item is not None
        return checked, apart

    def _known_mask(self, item: Any) -> Any:
        """A mask tensor as an array: how many elements it chooses depends on its values."""
        if not isinstance(item, TensorBase) or item.dtype is not dtypes.bool:
            return item
        # r[impl tensor.index.elements]
        return item.known("index", "mask.where(t, 0), or t.nonzero(size=count)")

    def _checked(self, item: Any, axis: int) -> Any:
        """An index of one axis as an int from the front, a slice, or a node."""
        size = self.shape[axis]
        if isinstance(item, slice):
            return _checked_slice(item)
        if isinstance(item, TensorBase) and item.uop.op is Ops.CONST and item.dtype.kind in "iu":
            item = item.uop.arg
        item = as_size(item)
        if isinstance(item, (int, np.integer)):
            place = item if is_symbolic(item) else int(item)
            if not -size <= place < size:  # r[impl tensor.arguments.refused+2]
                raise AxisError("index", f"{place} is out of range for axis {axis} of shape "
                                f"{self.shape}", f"use -{size} to {size - 1}" if size else
                                "the axis has no elements")
            return place + size if place < 0 else place
        if isinstance(item, UOp):
            return cast(self._bound(item) if item.shape != () else item, dtypes.int32)
        if isinstance(item, TensorBase):
            return _index_node(self._operand(item, "index"), size)
        if isinstance(item, (list, range, np.ndarray)):
            return self._host_index(item, axis)
        raise AxisError("index", f"{item!r} is no index",
                        "use ints, slices, None, ... or integer tensors")

    def _host_index(self, item: Any, axis: int) -> UOp:
        """Indices whose values are known now, so that they can be checked now."""
        array, size = self._in_range(item, axis), self.shape[axis]
        wrapped = np.where(array < 0, array + size, array)
        kind = np.int32 if size <= dtypes.int32.max else np.int64
        return self.__class__(wrapped.astype(kind), self.device).uop

    def _in_range(self, item: Any, axis: int) -> np.ndarray:
        """Indices whose values are known now as an array, unless one is out of range."""
        array, size = np.asarray(item), self.shape[axis]
        array = array.astype(np.int64) if array.size == 0 else array
        if array.dtype.kind not in "iu":
            raise DTypeError("index", f"indices of dtype {array.dtype}", "use whole numbers")
        if array.size and not -size <= array.min() <= array.max() < size:
            # r[impl tensor.arguments.refused+2]
            raise AxisError("index", f"indices from {array.min()} to {array.max()} are out of "
                            f"range for axis {axis} of shape {self.shape}",
                            f"use -{size} to {size - 1}")
        return array

    def _advanced(self, items: list[Any], apart: bool
                  ) -> tuple[Path, list[int], list[UOp], int]:
        """Split an index: the way to the basic part, then axes of that, their indices, and the
        place of the new axes in the result.
        """
        path = slice_path(self.shape, [_WHOLE if _is_advanced(item) else item for item in items])
        axes, indices, axis = [], [], 0
        for item in items:
            if _is_advanced(item):
                axes.append(axis)
                indices.append(item)
            axis += not isinstance(item, int)
        # As in NumPy, ints count as index tensors here: tensors next to each other put the new
        # axes in their place, tensors apart from each other put them in front.
        special = [i for i, item in enumerate(items) if isinstance(item, (UOp, int))]
        together = not apart and special[-1] - special[0] + 1 == len(special)
        # r[impl tensor.index.elements]
        place = sum(not isinstance(item, int) for item in items[:special[0]]) if together else 0
        return path, axes, indices, place

    def _gathered(self, view: UOp, axes: list[int], indices: list[UOp]) -> UOp:
        """The rows of the joined axes that the indices name; the indices' axes come first."""
        shape = shape_of(view)
        rest = [axis for axis in range(len(shape)) if axis not in axes]
        rows = nodes.permute(view, (*axes, *rest))
        sizes = [shape[axis] for axis in axes]
        rows = nodes.reshape(rows, (math.prod(sizes), *(shape[axis] for axis in rest)))
        index = flat_index(indices, sizes)
        # r[impl tensor.gather.rows]
        # r[impl tensor.gather.outside+2]
        return UOp(Ops.GATHER, rows.dtype, (rows, index))

    # Writing

    def __setitem__(self, index: Any, value: Any) -> None:
        """Give the tensor a new value, in which the chosen region is replaced.

        A number in an index tensor that is out of range writes nothing: it is not looked at. The
        value is converted to the tensor's dtype and spread to the region's shape.

        Raises:
            ShapeError: the value does not spread to the region (r[tensor.assign.shape]).
        """
        if _has_truth(index):
            seen, index = self._beside_truths(index)
            seen[index] = value
            return
        mask = _mask(index)
        if mask is not None and self._set_masked(mask, value):
            return
        items, apart = self._items(index)
        if any(_is_advanced(item) for item in items):
            path, axes, indices, place = self._advanced(items, apart)
            # Where there are slices, too: the rows of a view, which is written through.
            rows = self._viewed(follow(self.uop, path), path)
            rows._set_rows(axes, indices, place, value)
            return
        path = slice_path(self.shape, items)
        view = follow(self.uop, path)
        node = self._value_for(value, shape_of(view))
        # `t[a] += b` has assigned already; Python sets the item once more.
        # r[impl tensor.assign.operator]
        if not (isinstance(value, TensorBase) and value._already_in(self, path)):
            self._viewed(view, path)._store(node)

    def _value_for(self, value: Any, shape: Shape) -> UOp:
        """A value in this tensor's dtype, spread to a shape."""
        node = self._operand(value, "setitem")
        if node is None:
            node = self.__class__(value, self.device).uop
        node = cast(node, self.dtype)  # r[impl tensor.assign.shape+3]
        return self._spread(node, shape, "setitem", "a region")  # r[impl tensor.assign.shape+3]

    def _set_masked(self, mask: Self, value: Any) -> bool:
        """`t[mask] = value`, where the value is spread: no matter how many elements there are."""
        if mask.shape != self.shape[:len(mask.shape)]:
            return False  # which is refused as any mask of another shape
        node = self._operand(value, "setitem")
        if node is None:
            value = self.__class__(value, self.device)
        rest = self.shape[len(mask.shape):]
        own = value.shape if node is None else shape_of(node)
        if len(own) > len(rest) and own[len(own) - len(rest) - 1] != 1:
            return False  # one value for each element that the mask chooses
        region = nodes.reshape(self._value_for(value, (1, *rest)), (*(1,) * len(mask.shape), *rest))
        front = nodes.reshape(mask.uop, mask.shape + (1,) * len(rest))
        self._store(where(nodes.expand(front, self.shape), nodes.expand(region, self.shape),
                          self.uop))
        return True

    def _set_rows(self, axes: list[int], indices: list[UOp], place: int, value: Any) -> None:
        """Rows named by index tensors; of several values for one row the last one stays."""
        rest = [axis for axis in range(len(self.shape)) if axis not in axes]
        order = (*axes, *rest)
        sizes = [self.shape[axis] for axis in axes]
        rows_shape = (math.prod(sizes), *(self.shape[axis] for axis in rest))
        rows = nodes.reshape(nodes.permute(self.uop, order), rows_shape)
        index = flat_index(indices, sizes)
        new_axes = len(shape_of(index))
        placed = list(rows_shape[1:])
        placed[place:place] = shape_of(index)
        node = self._value_for(value, tuple(placed))
        node = nodes.permute(node, (*range(place, place + new_axes), *range(place),
                                    *range(place + new_axes, len(placed))))
        count = math.prod(shape_of(index))
        flat = nodes.reshape(node, (count, *rows_shape[1:]))
        written = nodes.scatter(None, rows, nodes.reshape(index, (count,)), flat)
        back = nodes.reshape(written, tuple(self.shape[axis] for axis in order))
        self._store(nodes.permute(back, tuple(order.index(a) for a in range(len(order)))))

    # By index tensor

    def gather(self, dim: int, index: Self) -> Self:
        """`out[i][j] = self[index[i][j]][j]` for dim 0, and alike for the other axes."""
        if not self.shape and self._axes(dim, "gather") == ():
            return self.reshape(1).gather(0, index.reshape(-1)).reshape(index.shape)
        if isinstance(index, TensorBase) and 0 in index.shape:
            return self.reshape(-1)[:0].reshape(index.shape)  # whose gradient is zeros
        axis, x, place = self._along(dim, index, "gather")
        return self._wrap(nodes.gather_along(x, place, axis))

    def _along(self, dim: int, index: Self, name: str) -> tuple[int, UOp, UOp]:
        axis = self._axis(dim, name)
        if not isinstance(index, TensorBase):
            raise DTypeError(name, f"the index is of type {type(index).__name__}",
                             "use an integer tensor: Tensor(index)")
        if index.dtype.kind not in "iu":
            raise DTypeError(name, f"the index is {index.dtype.name}", "use an integer dtype")
        if len(index.shape) != len(self.shape) or 0 not in index.shape and any(
                a != axis and size > self.shape[a] for a, size in enumerate(index.shape)):
            raise ShapeError(name, f"an index of shape {index.shape} does not fit shape "
                             f"{self.shape}", "beside the axis it must not be larger")
        return axis, self.uop, _index_node(self._operand(index), self.shape[axis])

    def scatter(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """`out[index[i][j]][j] = src[i][j]` for dim 0, and alike; elsewhere this tensor.

        Of several values for one place the last one stays; with reduce="add" or "multiply" all
        are combined with this tensor. A `src` that is a tensor may be larger than the index; what
        lies beyond is not used. An index out of range writes nothing.

        Raises:
            ShapeError: `index` or `src` has another number of axes, or `src` is smaller than
                `index`; or `reduce` is unknown.
        """
        if not self.shape and self._axes(dim, "scatter") == ():
            given = src.reshape(-1) if isinstance(src, Indexing) else src
            flat = self.reshape(1).scatter(0, index.reshape(-1), given, reduce)
            return flat.reshape(())
        axis, x, place = self._along(dim, index, "scatter")
        shape = index.shape
        if reduce not in (None, "add", "multiply"):
            raise ShapeError("scatter", f"reduce {reduce!r} is unknown",
                             "use None, 'add' or 'multiply'")
        values = self._sources(src, shape) if isinstance(src, TensorBase) \
            else self._value_for(src, shape)
        op = {None: None, "add": Ops.ADD, "multiply": Ops.MUL}[reduce]
        return self._wrap(nodes.scatter_along(op, x, place, values, axis))

    def _sources(self, src: Any, shape: Shape) -> UOp:
        """The part of a tensor that an index of this shape scatters, in this tensor's dtype."""
        own = src.shape
        if len(own) != len(shape) or any(a < b for a, b in zip(own, shape, strict=True)):
            # r[impl tensor.arguments.refused+2]
            raise ShapeError("scatter", f"a src of shape {own} does not fit an index of shape "
                             f"{shape}", "give a source for every index: src must not be smaller")
        return nodes.shrink(cast(self._require(src), self.dtype),
                            tuple((0, size) for size in shape))

    def scatter_add(self, dim: int, index: Self, src: Self) -> Self:
        """scatter with reduce="add" """
        return self.scatter(dim, index, src, reduce="add")

    def index_select(self, dim: int, index: Any) -> Self:
        """The places named by a one-dimensional index along an axis."""
        if not self.shape and self._axes(dim, "index_select") == ():
            return self.reshape(1).index_select(0, index).reshape(())
        axis = self._axis(dim, "index_select")
        return self[(_WHOLE,) * axis + (index,)]

    def embedding(self, index: Any) -> Self:
        """Rows of this matrix, one for each number of an index tensor; zeros out of range.

        Raises:
            AxisError: a number that is known, in an array, is out of range.
        """
        node = self._operand(index)
        if not isinstance(index, TensorBase) and node is not None:
            self._in_range(index, 0)
        if node is None or node.dtype.kind not in "iu":
            raise DTypeError("embedding", "the index is no integer tensor", "use an integer dtype")
        return self._wrap(UOp(Ops.GATHER, self.dtype, (self.uop, node)))

    def take(self, index: Any) -> Self:
        """Elements of the flattened tensor."""
        return self.flatten()[index]

    def masked_select(self, mask: Self) -> Self:
        """The elements where a mask holds, in order, as one axis; shapes broadcast.

        How many there are depends on the values of the mask, which are computed here.
        """
        shape = spread([self.shape, mask.shape], "masked_select") or (1,)
        return self.expand(shape)[mask.expand(shape)]

    def one_hot(self, num_classes: int = -1) -> Self:
        """A new last axis that is 1 at the place each element names and 0 elsewhere, int32.

        A number that names no place is all 0: it is not looked at.
        """
        if self.dtype.kind not in "iu":
            raise DTypeError("one_hot", f"classes of dtype {self.dtype.name}", "use integers")
        if num_classes == -1:  # so many as there are, which is computed
            named = self.known("one_hot", "x.one_hot(number of classes)")
            num_classes = int(named.max(initial=-1)) + 1
        count = whole(num_classes, "one_hot", "number of classes")
        wide = (*self.shape, count)
        common = class_dtype(self.dtype)
        mine = nodes.expand(nodes.reshape(cast(self.uop, common), (*self.shape, 1)), wide)
        classes = nodes.expand(nodes.iota_along(count, len(self.shape), len(wide)), wide)
        return self._wrap(cast(compare(Ops.CMPEQ, mine, cast(classes, common)), dtypes.int32))


def class_dtype(dtype: DType) -> DType:
    """In what class numbers of a dtype are compared with the number of classes."""
    # r[impl tensor.one-hot.wide, tensor.loss.value]: a narrow dtype cannot hold every class
    if dtype.itemsize == 8:
        return dtype
    return dtypes.int64 if dtype is dtypes.uint32 else dtypes.int32


def _checked_slice(item: slice) -> slice:
    parts = []
    for part in (as_size(item.start), as_size(item.stop), as_size(item.step)):
        if part is not None and not hasattr(part, "__index__"):
            raise AxisError("slice", f"{part!r} is no whole number", "use ints")
        parts.append(part if part is None or is_symbolic(part) else part.__index__())
    if parts[2] == 0:
        raise AxisError("slice", "the step is 0", "use another step")
    return slice(*parts)


def _is_advanced(item: Any) -> bool:
    return isinstance(item, UOp)


def _mask(index: Any) -> Any:
    """The index, if it is one bool tensor."""
    if isinstance(index, TensorBase) and index.dtype is dtypes.bool:
        return index
    return None


def _check_masks(items: list[Any], shape: Shape) -> None:
    """A mask known now has the shape of the axes that it stands for, or an AxisError is raised."""
    ranks = [_mask_rank(item) for item in items]
    taken = [0 if item is None or item is Ellipsis else rank or 1
             for item, rank in zip(items, ranks, strict=True)]
    axis = 0
    for item, rank, count in zip(items, ranks, taken, strict=True):
        own = shape[axis:axis + rank]
        if rank and np.shape(item) != own:  # r[impl tensor.arguments.refused+2]
            raise AxisError("index", f"a mask of shape {np.shape(item)} for axes of shape {own} "
                            f"of {shape}", "give a mask of the shape of the axes it stands for")
        axis += len(shape) - sum(taken) if item is Ellipsis else count


def _mask_rank(item: Any) -> int:
    """The axes of a mask whose values are known; 0 for any other index."""
    if not isinstance(item, (list, np.ndarray)):
        return 0
    array = np.asarray(item)
    return array.ndim if array.dtype.kind == "b" else 0


def _is_truth(item: Any) -> bool:
    """Whether it is a mask without axes."""
    return item is True or item is False or isinstance(item, (np.bool_, TensorBase, np.ndarray)) \
        and not item.shape and item.dtype.kind == "b"


def _has_truth(index: Any) -> bool:
    return any(map(_is_truth, index)) if index.__class__ is tuple else _is_truth(index)


def _axes_taken(item: Any) -> int:
    """How many axes an index stands for."""
    if item is None or item is Ellipsis or _is_truth(item):
        return 0
    mask = isinstance(item, TensorBase) and item.dtype is dtypes.bool
    return len(item.shape) if mask else _mask_rank(item) or 1


def _is_special(item: Any) -> bool:
    """Whether NumPy counts it among the index arrays, next to which it says where axes go."""
    return item is not None and not isinstance(item, slice)


def _unmasked(item: Any) -> tuple[Any, ...]:
    """A mask, whose values are known, becomes indices."""
    if isinstance(item, (list, np.ndarray)):
        array = np.asarray(item)
        if array.dtype.kind == "b":
            return tuple(np.nonzero(array))
    return (item,)


def _index_node(node: UOp | None, size: int) -> UOp:
    """An index tensor, with negative numbers counted from the end."""
    assert node is not None
    if node.dtype.kind not in "iu":
        raise DTypeError("index", f"an index of dtype {node.dtype.name}", "use an integer dtype")
    if node.dtype.kind == "u":
        return node
    if node.dtype.itemsize < 4:
        node = cast(node, dtypes.int32)
    # r[impl tensor.gather.outside+2]
    negative = compare(Ops.CMPLT, node, UOp.const(node.dtype, 0))
    return where(negative, nodes.add(node, nodes.scalar(node.dtype, size)), node)


def flat_index(indices: list[UOp], sizes: list[int]) -> UOp:
    """Indices of several axes as one index of these axes joined; -1 where one is out of range."""
    if len(indices) == 1:
        return indices[0]
    shape = spread([shape_of(index) for index in indices], "index")
    wide = dtypes.int32 if math.prod(sizes) <= dtypes.int32.max else dtypes.int64
    total: UOp | None = None
    inside: UOp | None = None
    for index, size in zip(indices, sizes, strict=True):
        # It is compared before it loses bits: 2**32 is no place, and 0 is.
        own = index.dtype if index.dtype.itemsize > wide.itemsize else wide
        own = dtypes.int64 if index.dtype is dtypes.uint32 else own
        index = nodes.broadcast(cast(index, own), shape)
        fits = binary(Ops.AND, compare(Ops.CMPLE, UOp.const(own, 0), index),
                      compare(Ops.CMPLT, index, nodes.scalar(own, size)))
        inside = fits if inside is None else binary(Ops.AND, inside, fits)
        index = cast(index, wide)
        total = index if total is None else nodes.add(
            nodes.mul(total, nodes.scalar(wide, size)), index)
    assert total is not None and inside is not None
    return where(inside, total, UOp.const(wide, -1))


def _placed(node: UOp, place: int, count: int) -> UOp:
    """The first `count` axes moved to `place`."""
    rank = len(shape_of(node))
    rest = list(range(count, rank))
    return nodes.permute(node, (*rest[:place], *range(count), *rest[place:]))
