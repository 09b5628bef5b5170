"""Where elements stand: reshaping, reordering, padding, joining. Chapter: spec/tensor.md."""
from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self

from impl.dtypes import DType, Scalar, dtypes, promoted
from impl.errors import AxisError, DTypeError, ShapeError
from impl.gradient import nodes
from impl.host import np
from impl.ir import Ops, Shape, UOp
from impl.multi import Mesh, rolled
from impl.symbolic import Variable, as_size, is_number, is_symbolic, present
from impl.tensor.broadcasting import broadcast_shape
from impl.tensor.special import Special
from impl.tensor.views import Path


def flat_arguments(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """`f(2, 3)` and `f((2, 3))` mean the same; a bound variable is a size."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = tuple(given[0])
    return tuple(as_size(one) for one in given) if present[0] or _has_variable(given) else given


def _is_dtype(given: tuple[Any, ...]) -> bool:
    """Whether one dtype is given, where sizes may be: PyTorch's `view` has both meanings."""
    return len(given) == 1 and (isinstance(given[0], (DType, str)))


def _has_variable(given: tuple[Any, ...]) -> bool:
    return any(isinstance(one, (UOp, Variable)) for one in given)


def whole(value: Any, operation: str, what: str, least: int = 0) -> int:
    """A size, count or step; a bound variable stays one.

    Raises:
        ShapeError: it is no whole number, or less than `least` (r[tensor.arguments.refused]).
    """
    size = as_size(value)
    if is_symbolic(size):
        return size
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < least:
        # r[impl tensor.arguments.refused+2]
        raise ShapeError(operation, f"{what} {value!r} is not possible",
                         f"use a whole number from {least} on")
    return int(size)


def strided(x: UOp, axis: int, step: int) -> UOp:
    """Every `step`-th element along an axis, starting with the first."""
    shape = nodes.shape_of(x)
    count = -(-shape[axis] // step)
    windows = nodes.unfold(x, axis, count, 1, step)
    return nodes.reshape(windows, shape[:axis] + (count,) + shape[axis + 1:])


def pad_with(x: UOp, widths: tuple[tuple[int, int], ...], value: Scalar) -> UOp:
    """Padding with a number other than zero."""
    padded = nodes.pad(x, widths)
    if padded is x or (value == 0 and math.copysign(1, value) > 0):
        return padded
    inside = nodes.full(UOp.const(dtypes.bool, True), nodes.shape_of(x))
    return nodes.where(nodes.pad(inside, widths), padded, UOp.const(x.dtype, value))


class Movement(Special):
    """Methods that move, repeat and join elements without changing them."""

    __slots__ = ()

    def _viewed(self, node: UOp, path: Path) -> Self:
        """The tensor of a view, which remembers where it was taken from."""
        result = self._wrap(node)
        step = ((weakref.ref(self), path),)
        # r[impl tensor.assign.value+2]
        result._ancestors = step + tuple((tensor, before + path)
                                         for tensor, before in self._ancestors)
        return result

    def _moved(self, op: Ops, arg: tuple) -> Self:
        """One movement operation, as a view."""
        node = nodes.move(self.uop, op, arg)
        return self._viewed(node, () if node is self.uop else ((op, arg),))

    # Shape

    def reshape(self, *shape: Any) -> Self:
        """The elements in row-major order in another shape; one size may be -1.

        Raises:
            ShapeError: the new shape has another number of elements (r[tensor.arguments.refused]).
        """
        wanted = flat_arguments(shape)
        wanted = tuple(self.shape[axis] if size is None else size
                       for axis, size in enumerate(wanted))
        return self._moved(Ops.RESHAPE, self._inferred(wanted, self.numel(), "reshape"))

    def _inferred(self, wanted: Shape, count: int, operation: str) -> Shape:
        """The shape with its -1 replaced."""
        for size in wanted:
            if not hasattr(size, "__index__"):  # r[impl tensor.arguments.refused+2]
                raise ShapeError(operation, f"{wanted} is no shape", "give whole numbers; one of "
                                 "them may be -1")
        known = math.prod(size for size in wanted if size != -1)
        if wanted.count(-1) == 1 and known and count % known == 0:
            wanted = tuple(count // known if size == -1 else size for size in wanted)
        if -1 in wanted or any(size < 0 for size in wanted) or math.prod(wanted) != count:
            raise ShapeError(  # r[impl tensor.arguments.refused+2]
                operation, f"{self.shape} has {count} elements, {wanted} does not",
                "give sizes whose product is the same; one of them may be -1")
        return wanted

    def view(self, *shape: Any) -> Self:
        """reshape; or bitcast, given a dtype"""
        return self.bitcast(shape[0]) if _is_dtype(shape) else self.reshape(*shape)

    def reshape_as(self, other: Self) -> Self:
        """reshape to the shape of another tensor"""
        return self.reshape(other.shape)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes from `start_dim` to `end_dim`, both included, joined to one."""
        if not self.shape:
            return self.reshape(1)
        first, last = self._axis(start_dim, "flatten"), self._axis(end_dim, "flatten")
        if first > last:
            raise ShapeError("flatten", f"axis {start_dim} stands after axis {end_dim}",
                             "give the axes in order")
        joined = math.prod(self.shape[first:last + 1])
        return self.reshape(self.shape[:first] + (joined,) + self.shape[last + 1:])

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """One axis split into several, with the given sizes; one may be -1."""
        axis = self._axis(dim, "unflatten")
        parts = self._inferred(tuple(sizes), self.shape[axis], "unflatten")
        return self.reshape(self.shape[:axis] + parts + self.shape[axis + 1:])

    def squeeze(self, dim: Any = None) -> Self:
        """Without the axes of size 1, or without the given ones if they have size 1."""
        axes = self._axes(dim, "squeeze")
        return self.reshape(tuple(size for axis, size in enumerate(self.shape)
                                  if size != 1 or axis not in axes))

    def unsqueeze(self, dim: int) -> Self:
        """With a new axis of size 1 at this place."""
        axis = self._axis(dim, "unsqueeze", extra=1)
        return self.reshape(self.shape[:axis] + (1,) + self.shape[axis:])

    def expand(self, *shape: Any) -> Self:
        """Axes of size 1 repeated, and new axes in front; -1 keeps a size.

        Raises:
            ShapeError: an axis of another size than 1 would change (r[tensor.arguments.refused]).
        """
        wanted = flat_arguments(shape)
        front = len(wanted) - len(self.shape)
        if front < 0:
            raise ShapeError("expand", f"{self.shape} has more axes than {wanted}",
                             "give a size for every axis")
        own = (1,) * front + self.shape
        wanted = tuple(old if new in (-1, None) else new
                       for new, old in zip(wanted, own, strict=True))
        for old, new in zip(own, wanted, strict=True):
            whole(new, "expand", "size")
            if old not in (new, 1):  # r[impl tensor.arguments.refused+2]
                raise ShapeError("expand", f"{self.shape} does not expand to {wanted}: only axes "
                                 "of size 1 grow", "use .repeat to repeat longer axes")
        node = nodes.broadcast(self.uop, wanted)
        return self._viewed(node, ((Ops.RESHAPE, own), (Ops.EXPAND, wanted)))

    def broadcast_to(self, *shape: Any) -> Self:
        """expand"""
        return self.expand(*shape)

    def expand_as(self, other: Self) -> Self:
        """expand to the shape of another tensor"""
        return self.expand(other.shape)

    # Order

    def permute(self, *order: Any) -> Self:
        """The axes in the given order, each named once."""
        given = flat_arguments(order)
        axes = tuple(self._axis(axis, "permute") for axis in given)
        if sorted(axes) != list(range(len(self.shape))):
            raise ShapeError("permute", f"{given} is no order of the axes of {self.shape}",
                             "name each axis once")
        return self._moved(Ops.PERMUTE, axes)

    def transpose(self, dim0: int | None = None, dim1: int | None = None) -> Self:
        """Two axes exchanged: the first two unless both are named.

        Raises:
            AxisError: one axis is named, and the tensor has several (r[tensor.arguments.refused]).
        """
        if dim0 is None or dim1 is None:
            dim0, dim1 = self._one_axis(dim0 if dim1 is None else dim1)
        if not self.shape and self._axes((dim0,), "transpose") == () == self._axes(
                (dim1,), "transpose"):
            return self._another()
        first, second = self._axis(dim0, "transpose"), self._axis(dim1, "transpose")
        order = list(range(len(self.shape)))
        order[first], order[second] = order[second], order[first]
        return self._moved(Ops.PERMUTE, tuple(order))

    def _one_axis(self, named: int | None) -> tuple[int, int]:
        """The axes that `transpose()` exchanges, and `transpose(0)` of a line."""
        if named is None:
            return 1, 0
        if len(self.shape) > 1:  # r[impl tensor.arguments.refused+2]
            raise AxisError("transpose", f"one axis, {named}, of shape {self.shape}",
                            "name the two to exchange, or use x.permute(...)")
        return named, named

    @property
    def T(self) -> Self:  # noqa: N802
        """The axes in reverse order."""
        return self._moved(Ops.PERMUTE, tuple(range(len(self.shape)))[::-1])

    @property
    def mT(self) -> Self:  # noqa: N802
        """The last two axes exchanged."""
        return self.transpose(-1, -2)

    def movedim(self, source: Any, destination: Any) -> Self:
        """Axes moved to other places, one or several, the others in their order."""
        starts = [self._axis(axis, "movedim") for axis in _listed(source)]
        stops = [self._axis(axis, "movedim") for axis in _listed(destination)]
        if not len(starts) == len(stops) == len(set(starts)) == len(set(stops)):
            raise AxisError("movedim", f"axes {source!r} do not fit places {destination!r}",
                            "name as many places as axes, and each once")
        order = [axis for axis in range(len(self.shape)) if axis not in starts]
        for stop, start in sorted(zip(stops, starts, strict=True)):
            order.insert(stop, start)
        return self._moved(Ops.PERMUTE, tuple(order))

    def flip(self, *axes: Any) -> Self:
        """The given axes reversed; all of them if none is given, as by `np.flip`."""
        given = flat_arguments(axes) if axes and axes[0] is not None else None
        return self._moved(Ops.FLIP, self._axes(given, "flip"))

    def roll(self, shifts: Any, dims: Any = None) -> Self:
        """Elements moved along axes, those pushed out coming in on the other side."""
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)._another()
        moves, axes = _listed(shifts), _listed(dims)
        if 1 in (len(moves), len(axes)):  # as in NumPy: one shift for all, or all on one axis
            moves, axes = moves * len(axes), axes * len(moves)
        if len(moves) != len(axes) or not all(isinstance(one, int) for one in moves):
            # r[impl tensor.arguments.refused+2]
            raise ShapeError("roll", f"shifts {shifts!r} do not fit axes {dims!r}",
                             "give one whole number for each axis")
        result = self._another()
        for shift, dim in zip(moves, axes, strict=True):
            axis = self._axis(dim, "roll")
            size = self.shape[axis]
            shift = shift % size if size else 0
            if shift and isinstance(self.device, Mesh) and not is_symbolic(size):
                result = self._wrap(rolled(result.uop, axis, shift))
            elif shift:
                parts = result.split([size - shift, shift], axis)
                result = parts[1].cat(parts[0], dim=axis)
        return result

    # Parts

    def shrink(self, bounds: Sequence[Any]) -> Self:
        """For each axis the part from start to stop; None keeps all of it."""
        if len(bounds) != len(self.shape):
            raise ShapeError("shrink", f"{len(bounds)} bounds for shape {self.shape}",
                             "give (start, stop) or None for each axis")
        arg = tuple((0, size) if bound is None else (as_size(bound[0]), as_size(bound[1]))
                    for bound, size in zip(bounds, self.shape, strict=True))
        for (start, stop), size in zip(arg, self.shape, strict=True):
            if not 0 <= start <= stop <= size:
                raise ShapeError("shrink", f"bounds {arg} do not lie within shape {self.shape}",
                                 "use 0 <= start <= stop <= size")
        return self._moved(Ops.SHRINK, arg)

    def narrow(self, dim: int, start: int, length: int) -> Self:
        """`length` elements from `start` on along an axis; a negative start counts from behind."""
        axis = self._axis(dim, "narrow")
        if isinstance(start, Movement):  # a number that is computed
            start = int(start.item())
        if isinstance(start, int) and start < 0:
            start += self.shape[axis]
        return self.shrink([(start, start + length) if a == axis else None
                            for a in range(len(self.shape))])

    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Parts along an axis: of this size (the last may be smaller), or of these sizes."""
        axis = self._axis(dim, "split")
        size = self.shape[axis]
        if isinstance(split_size, (tuple, list)):
            sizes = [whole(one, "split", "size") for one in split_size]
        else:
            each = whole(split_size, "split", "size", 1)
            sizes = [min(each, size - start) for start in range(0, size, each)]
        if sum(sizes) != size and size:
            raise ShapeError("split", f"sizes {sizes} do not add up to {size}",
                             f"make them add up to axis {axis} of {self.shape}")
        starts = [sum(sizes[:place]) for place in range(len(sizes))]
        return tuple(self.narrow(axis, start, length)
                     for start, length in zip(starts, sizes, strict=True)) or (self,)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """At most `chunks` parts along an axis, of equal size except the last."""
        if not isinstance(chunks, int) or chunks < 1:  # r[impl tensor.arguments.refused+2]
            raise ShapeError("chunk", f"{chunks!r} is no number of parts", "give 1 or more")
        size = self.shape[self._axis(dim, "chunk")]
        return self.split(max(1, -(-size // chunks)), dim)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """One tensor for each place along an axis, without that axis."""
        axis = self._axis(dim, "unbind")
        rest = self.shape[:axis] + self.shape[axis + 1:]
        return tuple(self.narrow(axis, place, 1).reshape(rest)
                     for place in range(self.shape[axis]))

    def unfold(self, dim: int, size: int, step: int = 1, dilation: int = 1) -> Self:
        """Windows of `size` elements along an axis, each `step` after the one before.

        The axis becomes the number of windows; their elements are a new last axis.
        """
        if not self.shape and self._axes(dim, "unfold") == ():
            return self.reshape(1).unfold(0, size, step, dilation).squeeze(0)
        axis = self._axis(dim, "unfold")
        count = self._windows(axis, size, step, dilation, "unfold")
        node = nodes.unfold(self.uop, axis, count, size, step, dilation)
        rank = len(self.shape)
        order = [a for a in range(rank + 1) if a != axis + 1] + [axis + 1]
        return self._wrap(nodes.permute(node, tuple(order)))

    def _windows(self, axis: int, size: int, step: int, dilation: int, operation: str) -> int:
        reach = (size - 1) * dilation + 1
        if size < 1 or step < 1 or dilation < 1 or reach > self.shape[axis]:
            raise ShapeError(operation, f"windows of {size} elements with dilation {dilation} do "
                             f"not fit axis {axis} of shape {self.shape}", "make them smaller")
        return (self.shape[axis] - reach) // step + 1

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The elements [i, i + offset] along two axes, as the last axis of the result.

        Raises:
            AxisError: there are not two such axes.
        """
        rows, columns = self._axis(dim1, "diagonal"), self._axis(dim2, "diagonal")
        if rows == columns:
            raise AxisError("diagonal", f"axes {dim1} and {dim2} are the same", "name two axes")
        matrix = self.movedim((rows, columns), (-2, -1))
        *around, height, width = matrix.shape
        down, right = max(-offset, 0), max(offset, 0)
        size = max(min(height - down, width - right), 0)
        square = matrix.narrow(-2, min(down, height), size).narrow(-1, min(right, width), size)
        line = square.reshape(*around, size * size)  # in which it is every size + 1st element
        return line[..., ::size + 1]  # type: ignore[index]  # of Indexing

    # More

    def pad(self, padding: Sequence[Any], mode: str = "constant", value: Scalar = 0) -> Self:
        """More elements before and after.

        `padding` has one (before, after) or None for each axis, or it is a flat list in PyTorch's
        order: before and after of the last axis, then of the one before it. Negative numbers cut
        off. Modes: "constant" with `value`, "reflect", "replicate", "circular".
        """
        if not isinstance(padding, (tuple, list)):  # r[impl tensor.arguments.refused+2]
            raise ShapeError("pad", f"{padding!r:.60} does not fit shape {self.shape}",
                             "give two numbers for each axis, the last axis first")
        widths = self._widths([_sized(one) for one in padding])
        if mode != "constant":
            return self._pad_from_within(widths, mode)
        kept = tuple((0 if before >= 0 else -before, size if after >= 0 else size + after)
                     for (before, after), size in zip(widths, self.shape, strict=True))
        if any(start > stop for start, stop in kept):  # r[impl tensor.arguments.refused+2]
            raise ShapeError("pad", f"{widths} cuts off more than shape {self.shape} has",
                             "cut off less: the result must not have a negative size")
        grown = tuple((before if before >= 0 else 0, after if after >= 0 else 0)
                      for before, after in widths)
        # r[impl effects.view-write.copies+3]
        return self._wrap(pad_with(nodes.shrink(self.uop, kept), grown, value))

    def _widths(self, padding: Sequence[Any]) -> tuple[tuple[int, int], ...]:
        rank = len(self.shape)
        if all(isinstance(one, int) for one in padding):
            if len(padding) % 2 or len(padding) > 2 * rank:
                raise ShapeError("pad", f"{tuple(padding)} does not fit shape {self.shape}",
                                 "give two numbers for each axis, the last axis first")
            pairs = [(padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
            return ((0, 0),) * (rank - len(pairs)) + tuple(pairs[::-1])
        if len(padding) != rank or not all(one is None or _is_pair(one) for one in padding):
            # r[impl tensor.arguments.refused+2]
            raise ShapeError("pad", f"{tuple(padding)} does not fit shape {self.shape}",
                             "give (before, after) or None for each axis")
        return tuple((0, 0) if one is None else (one[0], one[1]) for one in padding)

    def _pad_from_within(self, widths: tuple[tuple[int, int], ...], mode: str) -> Self:
        """Padding whose values come from the tensor itself, axis after axis."""
        # A reflection, or an edge, may show what is cut off on the other side.
        late = mode in ("reflect", "replicate")
        result = self if late else self._cut(widths)
        for axis, (before, after) in enumerate(widths):
            before, after, size = max(0, before), max(0, after), result.shape[axis]
            if not (before or after):
                continue
            if mode == "circular" and max(before, after) <= size:
                left, right = result.narrow(axis, size - before, before), \
                    result.narrow(axis, 0, after)
            elif mode == "reflect" and max(before, after) < size:
                left = result.narrow(axis, 1, before).flip(axis)
                right = result.narrow(axis, size - 1 - after, after).flip(axis)
            elif mode == "replicate" and size:
                edge = list(result.shape)
                edge[axis] = before
                left = result.narrow(axis, 0, 1).expand(edge)
                edge[axis] = after
                right = result.narrow(axis, size - 1, 1).expand(edge)
            else:
                raise ShapeError("pad", f"mode {mode!r} cannot add {(before, after)} to axis "
                                 f"{axis} of shape {self.shape}",
                                 "use constant, reflect, replicate or circular, and smaller widths")
            result = left.cat(result, right, dim=axis)
        return (result._cut(widths) if late else result)._another()

    def _cut(self, widths: tuple[tuple[int, int], ...]) -> Self:
        """What negative widths of padding leave."""
        return self.shrink([(max(0, -before), size - max(0, -after))  # r[impl tensor.pad.negative]
                            for (before, after), size in zip(widths, self.shape, strict=True)])

    def repeat(self, *repeats: Any) -> Self:
        """The tensor repeated along each axis, as tiles; more numbers than axes add axes."""
        counts = tuple(whole(one, "repeat", "count") for one in flat_arguments(repeats))
        front = len(counts) - len(self.shape)
        if front < 0:
            raise ShapeError("repeat", f"{counts} has too few numbers for shape {self.shape}",
                             "give one for each axis")
        shape = (1,) * front + self.shape
        between = tuple(size for own in shape for size in (1, own))
        grown = tuple(size for count, own in zip(counts, shape, strict=True)
                      for size in (count, own))
        joined = tuple(count * own for count, own in zip(counts, shape, strict=True))
        node = nodes.expand(nodes.reshape(self.uop, between), grown)
        return self._wrap(nodes.reshape(node, joined))

    def repeat_interleave(self, repeats: Any, dim: int | None = None,
                          output_size: int | None = None) -> Self:
        """Each element (along an axis) repeated in place, as often as a number says, or a list.

        `output_size` is how long that is, and need not be said.
        """
        if dim is None:
            return self.flatten().repeat_interleave(repeats, 0)
        axis = self._axis(dim, "repeat_interleave")
        if isinstance(repeats, (Movement, list, tuple)):
            if isinstance(repeats, Movement):
                repeats = repeats.known("repeat_interleave", "a list of numbers").tolist()
            often = list(repeats) if isinstance(repeats, (list, tuple)) else [repeats]
            often = often * self.shape[axis] if len(often) == 1 else often
            places = [place for place, count in enumerate(often) for _ in range(count)]
            if len(often) != self.shape[axis]:  # r[impl tensor.arguments.refused+2]
                raise ShapeError("repeat_interleave", f"{len(often)} numbers for axis {axis} of "
                                 f"shape {self.shape}", "give one for each place")
            chosen: Callable[..., Self] = self.index_select  # type: ignore[attr-defined]
            return chosen(axis, places) if places else self.narrow(axis, 0, 0)
        repeats = whole(repeats, "repeat_interleave", "count")
        front, rest = self.shape[:axis + 1], self.shape[axis + 1:]
        node = nodes.expand(nodes.reshape(self.uop, front + (1,) + rest), front + (repeats,) + rest)
        return self._wrap(nodes.reshape(node, front[:-1] + (front[-1] * repeats,) + rest))

    def cat(*given: Any, dim: int = 0) -> Any:
        """This tensor and the others, one after the other along an axis.

        `Tensor.cat(a, b, dim=1)`, `Tensor.cat([a, b], dim=1)` and `Tensor.cat([a, b], 1)` do the
        same.

        Raises:
            ShapeError: another axis differs in size, or there is no tensor (both
                r[tensor.arguments.refused]).
            DTypeError: something else than a tensor is given.
        """
        tensors, dim = _tensors(given, dim, "cat")
        if any(len(one.shape) != 1 for one in tensors):  # as PyTorch takes what was [] once
            tensors = [one for one in tensors if one.shape != (0,)]
        self = tensors[0]
        axis = self._axis(dim, "cat")
        common = self.dtype
        for tensor in tensors:
            common = promoted(common, tensor.dtype)
            other = tensor.shape[:axis] + self.shape[axis:axis + 1] + tensor.shape[axis + 1:]
            if other != self.shape:  # r[impl tensor.arguments.refused+2]
                raise ShapeError("cat", f"shapes {self.shape} and {tensor.shape} differ beside "
                                 f"axis {axis}", "make the other axes equal")
        parts = [nodes.cast(self._require(tensor), common) for tensor in tensors]
        return self._wrap(joined(parts, axis))

    def _require(self, tensor: Any) -> UOp:
        node = self._operand(tensor)
        if node is None:
            raise DTypeError("operand", f"{type(tensor).__name__} is no tensor", "use Tensor(...)")
        return node

    def stack(*given: Any, dim: int = 0) -> Any:
        """This tensor and the others, of one shape, along a new axis.

        Raises:
            ShapeError: the shapes differ, or there is no tensor.
            DTypeError: something else than a tensor is given.
        """
        tensors, dim = _tensors(given, dim, "stack")
        self = tensors[0]
        for tensor in tensors:
            if tensor.shape != self.shape:
                raise ShapeError("stack", f"shapes {self.shape} and {tensor.shape} differ",
                                 "make them equal, or use .cat")
        first, *rest = [tensor.unsqueeze(dim) for tensor in tensors]
        axis = self._axis(dim, "stack", extra=1)
        return first.cat(*rest, dim=axis) if rest else first

    def meshgrid(*given: Any, indexing: str = "ij") -> tuple[Any, ...]:
        """Coordinates of a grid made by these vectors: the first goes along axis 0 ("ij"), or along
        axis 1 ("xy").
        """
        tensors, _ = _tensors(given, 0, "meshgrid")
        if indexing not in ("ij", "xy"):
            raise ShapeError("meshgrid", f"indexing {indexing!r} is unknown", "use 'ij' or 'xy'")
        if indexing == "xy" and len(tensors) > 1:
            grids = tensors[0].__class__.meshgrid(*tensors)
            return tuple(grid.transpose(0, 1) for grid in grids)
        shape = tuple(tensor.numel() for tensor in tensors)
        return tuple(tensor.reshape(tuple(size if a == axis else 1
                                          for a, size in enumerate(shape))).expand(shape)
                     for axis, tensor in enumerate(tensors))

    def triu(self, diagonal: int = 0) -> Self:
        """The part on and above a diagonal of the last two axes, zero below."""
        return self._triangle(diagonal, upper=True)

    def tril(self, diagonal: int = 0) -> Self:
        """The part on and below a diagonal of the last two axes, zero above."""
        return self._triangle(diagonal, upper=False)

    def _triangle(self, diagonal: int, upper: bool) -> Self:
        if len(self.shape) < 2:
            raise ShapeError("triangle", f"{self.shape} is no matrix", "give two axes or more")
        if isinstance(diagonal, float):  # r[impl tensor.arguments.refused+2]
            raise ShapeError("triangle", f"diagonal {diagonal} is not possible",
                             "use a whole number")
        rows, columns = self.shape[-2:]
        inside = nodes.broadcast(triangle(rows, columns, diagonal, upper), self.shape)
        return self._wrap(nodes.where(inside, self.uop, UOp.const(self.dtype, 0)))


def _listed(given: Any) -> tuple[Any, ...]:
    """One or several, as several."""
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def _sized(width: Any) -> Any:
    """A width of padding, or a pair of them, with bound variables as sizes."""
    if isinstance(width, (tuple, list)):
        return tuple(as_size(one) for one in width)
    return as_size(width)


def _is_pair(width: Any) -> bool:
    """Whether it says how many elements stand before and how many after."""
    return isinstance(width, tuple) and len(width) == 2 and all(
        is_symbolic(one) or isinstance(one, (int, np.integer)) for one in width)


def _tensors(given: Sequence[Any], dim: int, operation: str) -> tuple[list[Any], int]:
    """The tensors of a call: one after the other, or in lists; at least one. And the axis.

    PyTorch and NumPy write `cat((a, b), 1)`.
    """
    if len(given) == 2 and isinstance(given[0], (list, tuple)) and isinstance(given[1], int):
        given, dim = given[:1], given[1]
    found = [part for one in given for part in (one if isinstance(one, (list, tuple)) else (one,))]
    if not found:  # r[impl tensor.arguments.refused+2]
        raise ShapeError(operation, "no tensors are given", "give at least one")
    for one in found:
        if not isinstance(one, Movement):
            raise DTypeError(operation, f"{type(one).__name__} is no tensor", "use Tensor(...)")
    return found, dim


def triangle(rows: int, columns: int, diagonal: int, upper: bool) -> UOp:
    """Which elements of a matrix stand on or above (below) a diagonal."""
    row = nodes.broadcast(nodes.iota_along(rows, 0, 2), (rows, columns))
    column = nodes.broadcast(nodes.iota_along(columns, 1, 2), (rows, columns))
    shifted = nodes.add(row, UOp.const(row.dtype, diagonal))
    order = (shifted, column) if upper else (column, shifted)
    return UOp(Ops.CMPLE, dtypes.bool, order)


def joined(parts: list[UOp], axis: int) -> UOp:
    """Nodes of one dtype one after the other along an axis.

    Each is padded to the whole length. `where` chooses between them rather than a sum, so that
    NaN, infinity and -0.0 pass unchanged. Halves are joined first: the choices stay shallow.
    """
    while len(parts) > 1:
        pairs = [two(parts[i], parts[i + 1], axis) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(pairs) * 2:]
    return parts[0]


def two(first: UOp, second: UOp, axis: int) -> UOp:
    """Two nodes one after the other along an axis."""
    one, other = nodes.shape_of(first), nodes.shape_of(second)
    if is_number(one[axis], 0) or is_number(other[axis], 0):
        return second if is_number(one[axis], 0) else first
    length = one[axis] + other[axis]
    none = ((0, 0),) * len(one)
    left = nodes.pad(first, none[:axis] + ((0, other[axis]),) + none[axis + 1:])
    right = nodes.pad(second, none[:axis] + ((one[axis], 0),) + none[axis + 1:])
    place = nodes.iota_along(length, axis, len(one))
    before = UOp(Ops.CMPLT, dtypes.bool, (place, nodes.scalar(place.dtype, one[axis])))
    return nodes.where(nodes.expand(before, nodes.shape_of(left)), left, right)


def spread(shapes: Sequence[Shape], operation: str) -> Shape:
    """The shape to which all the shapes broadcast."""
    result: Shape = ()
    for shape in shapes:
        result = broadcast_shape(result, shape, operation)
    return result
