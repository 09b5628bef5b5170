"""Sums of products: matrix products, einsum, convolution; and pooling. Chapter: spec/tensor.md."""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from string import ascii_letters
from typing import Any, Self

from impl.dtypes import as_dtype, dtypes, promoted, sum_accumulator
from impl.errors import ArgumentError, ShapeError
from impl.gradient import nodes
from impl.gradient.nodes import cast, shape_of
from impl.gradient.windows import add_windows
from impl.ir import Ops, Shape, UOp
from impl.symbolic import common_size
from impl.tensor.broadcasting import broadcast_shape
from impl.tensor.indexing import Indexing
from impl.tensor.movement import pad_with


def sum_of_products(a: UOp, b: UOp, axes: Sequence[int]) -> UOp:
    """The sum of a * b along axes, which stay with size 1; halves are multiplied in float32."""
    dtype = a.dtype
    wide = sum_accumulator(dtype)
    shape = tuple(common_size(x, y)
                  for x, y in zip(shape_of(a), shape_of(b), strict=True))
    # r[impl tensor.matmul.half]
    product = nodes.mul(nodes.expand(cast(a, wide), shape), nodes.expand(cast(b, wide), shape))
    return cast(nodes.reduce(Ops.ADD, product, axes), dtype)


def pair(value: Any, count: int, operation: str, what: str,
         least: int = 1) -> tuple[int, ...]:
    """One number for each spatial axis.

    Raises:
        ShapeError: there are not as many as axes, or one is no whole number from `least` on.
    """
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    numbers = numbers * count if len(numbers) == 1 else numbers
    if len(numbers) != count:
        raise ShapeError(operation, f"{what} {numbers} does not fit {count} axes",
                         "give one number, or one for each axis after the first two")
    if not all(isinstance(one, int) and one >= least for one in numbers):
        # r[impl tensor.arguments.refused+2]
        raise ShapeError(operation, f"{what} {value!r} is not possible",
                         f"use whole numbers from {least} on")
    return numbers


class Products(Indexing):
    """Matrix products, convolutions and pooling."""

    __slots__ = ()

    def matmul(self, other: Any, dtype: Any = None) -> Self:
        """The matrix product of the last two axes; the axes before them broadcast.

        A one-dimensional operand is a row on the left and a column on the right.

        Raises:
            ShapeError: the inner sizes differ (r[tensor.arguments.refused]).
        """
        a, b = self.uop, self._require(other)
        common = promoted(a.dtype, b.dtype) if dtype is None else as_dtype(dtype)
        a, b = cast(a, common), cast(b, common)
        left, right = shape_of(a), shape_of(b)
        if not left or not right or left[-1] != right[-2 if len(right) > 1 else 0]:
            # r[impl tensor.arguments.refused+2]
            raise ShapeError("matmul", f"shapes {left} and {right} do not fit",
                             "the last size of the left must be the last but one of the right")
        rows = left[-2:-1]  # empty for a vector
        columns = right[-1:] if len(right) > 1 else ()
        batch = broadcast_shape(left[:-2], right[:-2], "matmul")
        inner = left[-1]
        a = nodes.reshape(a, (1,) * (len(batch) - len(left[:-2])) + left[:-2]
                          + (*(rows or (1,)), inner, 1))
        b = nodes.reshape(b, (1,) * (len(batch) - len(right[:-2])) + right[:-2]
                          + (1, inner, *(columns or (1,))))
        total = sum_of_products(a, b, (len(batch) + 1,))  # r[impl tensor.matmul.value]
        return self._wrap(nodes.reshape(total, batch + rows + columns))

    def dot(self, other: Any, dtype: Any = None) -> Self:
        """matmul"""
        return self.matmul(other, dtype)

    def mm(self, other: Any) -> Self:
        """matmul"""
        return self.matmul(other)

    def bmm(self, other: Any) -> Self:
        """matmul"""
        return self.matmul(other)

    def outer(self, other: Self) -> Self:
        """All products of an element of this vector and one of the other."""
        return self.reshape(-1, 1) * other.reshape(1, -1)

    def __matmul__(self, other: Any) -> Self:
        return self.matmul(other)

    def __rmatmul__(self, other: Any) -> Self:
        return self.__class__(other, self.device).matmul(self)

    def __imatmul__(self, other: Any) -> Self:
        return self.assign(self.matmul(other))

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """x @ weight.T + bias, for a weight of shape (outputs, inputs).

        Raises:
            ShapeError: the last size of x is not the weight's.
        """
        x, w = self.uop, self._require(weight)
        common = promoted(x.dtype, w.dtype)
        shape, sizes = self.shape, shape_of(w)
        if not shape or len(sizes) != 2 or shape[-1] != sizes[1]:
            raise ShapeError("linear", f"x of shape {shape} does not fit a weight of shape "
                             f"{w.shape}", "the weight has two axes, (outputs, inputs); the last "
                             "sizes must be equal")
        outputs, inputs = sizes
        x = nodes.reshape(cast(x, common), (*shape[:-1], 1, inputs))
        w = nodes.reshape(cast(w, common), (1,) * len(shape[:-1]) + (outputs, inputs))
        total = nodes.reshape(sum_of_products(x, w, (len(shape),)), (*shape[:-1], outputs))
        if bias is None:
            return self._wrap(total)
        added = cast(self._require(bias), common)
        return self._wrap(nodes.add(total, nodes.broadcast(added, (*shape[:-1], outputs))))

    @classmethod
    def einsum(cls, formula: Any, *operands: Any) -> Self:
        """A sum of products in index notation: `Tensor.einsum("ij,jk->ik", a, b)`, or with numbers
        for letters, `Tensor.einsum(a, [0, 1], b, [1, 2], [0, 2])`.

        Raises:
            ArgumentError: neither a text nor numbers for the axes of each operand are given.
            ShapeError: the formula does not fit the operands, or a letter has two sizes.
        """
        if not isinstance(formula, str):
            formula, operands = _of_lists((formula, *operands))
        tensors = list(operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple))
                       else operands)
        inputs, output = _parse(formula.replace(" ", ""), [len(t.shape) for t in tensors])
        for place, letters in enumerate(inputs):
            inputs[place], tensors[place] = _on_diagonals(letters, tensors[place])
        sizes: dict[str, int] = {}
        for letters, tensor in zip(inputs, tensors, strict=True):
            for letter, size in zip(letters, tensor.shape, strict=True):
                known = sizes.setdefault(letter, size)
                if known not in (size, 1) and size != 1:
                    raise ShapeError("einsum", f"{letter!r} is {known} and {size} in {formula!r}",
                                     "use another letter")
                sizes[letter] = max(known, size)
        common = tensors[0].dtype
        for tensor in tensors:
            common = promoted(common, tensor.dtype)
        wide = sum_accumulator(common)
        made: tuple[str, UOp] = "", tensors[0].uop
        for place, (letters, tensor) in enumerate(zip(inputs, tensors, strict=True)):
            # r[impl tensor.einsum.pairs]
            later = {*output, *"".join(inputs[place + 1:])}
            one = _summed([(letters, cast(tensors[0]._require(tensor), wide))],
                          later | set(made[0]))
            made = _summed([made, one], later) if place else one
        letters, total = made
        order = tuple(letters.index(letter) for letter in output)
        return tensors[0]._wrap(cast(nodes.permute(total, order), common))

    # Convolution

    def conv2d(self, weight: Self, bias: Self | None = None, groups: int = 1,
               stride: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1,
               padding: int | Sequence[int] | str = 0) -> Self:
        """Convolution (without flipping the kernel) over all axes after the first two.

        Args:
            weight: (output channels, input channels / groups, *kernel).
            padding: one number, one for each axis, or (before, after) of each axis, last first;
                or "same", so that the result is as large as the input, or "valid", which is 0.

        Raises:
            ShapeError: ranks, channels or groups do not fit, or the kernel is larger than the
                padded input.
        """
        w = self._require(weight)
        kernel = shape_of(w)[2:]
        count = len(kernel)
        if count and len(self.shape) == count + 1:
            return self.unsqueeze(0).conv2d(weight, bias, groups, stride, dilation,
                                            padding).squeeze(0)
        pair(groups, 1, "conv2d", "groups")
        if isinstance(padding, str):
            padding = _named_padding(padding, kernel, stride, dilation)
        channels, outputs = self.shape[1] if len(self.shape) > 1 else 0, shape_of(w)[0]
        if len(self.shape) != count + 2 or channels != shape_of(w)[1] * groups or outputs % groups:
            raise ShapeError("conv2d", f"input {self.shape}, weight {w.shape} and {groups} groups "
                             "do not fit", "input: (batch, channels, ...), weight: (outputs, "
                             "channels / groups, ...)")
        common = promoted(self.dtype, w.dtype)
        windows, places = self._all_windows(
            cast(self.uop, common), pair(kernel, count, "conv2d", "kernel"),
            pair(stride, count, "conv2d", "stride"), pair(dilation, count, "conv2d", "dilation"),
            _pads(padding, count, "conv2d"), 0)
        batch = self.shape[0]
        between = tuple(size for both in zip(places, kernel, strict=True) for size in both)
        x = nodes.reshape(windows, (batch, groups, 1, channels // groups, *between))
        spread_kernel = tuple(size for one in kernel for size in (1, one))
        w = nodes.reshape(cast(w, common),
                          (1, groups, outputs // groups, channels // groups, *spread_kernel))
        summed = (3, *range(5, 4 + 2 * count, 2))
        result = nodes.reshape(sum_of_products(x, w, summed), (batch, outputs, *places))
        if bias is not None:
            ones = (1, outputs) + (1,) * count
            added = nodes.reshape(cast(self._require(bias), common), ones)
            result = nodes.add(result, nodes.expand(added, shape_of(result)))
        return self._wrap(result)

    def _all_windows(self, x: UOp, kernel: Shape, stride: Shape, dilation: Shape,
                     pads: tuple[tuple[int, int], ...], value: float) -> tuple[UOp, Shape]:
        """Windows over the axes after the first two: (n, c, places, taps, places, taps, ...)."""
        x = pad_with(x, ((0, 0), (0, 0), *pads), value)
        places = []
        for number, size in enumerate(shape_of(x)[2:]):
            reach = (kernel[number] - 1) * dilation[number] + 1
            if reach > size:
                raise ShapeError("conv", f"a kernel of {kernel} with dilation {dilation} does not "
                                 f"fit input {self.shape} with padding {pads}",
                                 "use a smaller kernel or more padding")
            places.append((size - reach) // stride[number] + 1)
        for number in reversed(range(len(kernel))):
            x = nodes.unfold(x, 2 + number, places[number], kernel[number], stride[number],
                             dilation[number])
        return x, tuple(places)

    def conv1d(self, weight: Self, bias: Self | None = None, groups: int = 1, stride: int = 1,
               dilation: int = 1, padding: int | Sequence[int] | str = 0) -> Self:
        """Convolution over one axis (see `conv2d`)."""
        return self.conv2d(weight, bias, groups, stride, dilation, padding)

    def conv3d(self, weight: Self, bias: Self | None = None, groups: int = 1,
               stride: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1,
               padding: int | Sequence[int] | str = 0) -> Self:
        """Convolution over three axes (see `conv2d`)."""
        return self.conv2d(weight, bias, groups, stride, dilation, padding)

    def conv_transpose2d(self, weight: Self, bias: Self | None = None, groups: int = 1,
                         stride: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1,
                         padding: int | Sequence[int] = 0,
                         output_padding: int | Sequence[int] = 0) -> Self:
        """The adjoint of `conv2d` with respect to its input.

        Args:
            weight: (input channels, output channels / groups, *kernel).
        """
        w = self._require(weight)
        channels, outputs, kernel = shape_of(w)[0], shape_of(w)[1], shape_of(w)[2:]
        count, name = len(kernel), "conv_transpose2d"
        if count and len(self.shape) == count + 1:
            return self.unsqueeze(0).conv_transpose2d(weight, bias, groups, stride, dilation,
                                                      padding, output_padding).squeeze(0)
        pair(groups, 1, name, "groups")
        if len(self.shape) != count + 2 or self.shape[1] != channels or channels % groups:
            raise ShapeError("conv_transpose2d", f"input {self.shape} does not fit a weight of "
                             f"shape {w.shape}", "weight: (input channels, outputs / groups, ...)")
        steps = pair(stride, count, name, "stride")
        gaps = pair(dilation, count, name, "dilation")
        cut = pair(padding, count, name, "padding", 0)
        more = pair(output_padding, count, name, "output_padding", 0)
        batch, places = self.shape[0], self.shape[2:]
        common = promoted(self.dtype, w.dtype)
        per_group = channels // groups
        # (n, groups, inputs, outputs, places, taps, ...), summed over the inputs
        x = nodes.reshape(cast(self.uop, common), (batch, groups, per_group, 1, *(
            size for place in places for size in (place, 1))))
        w = nodes.reshape(cast(w, common), (1, groups, per_group, outputs, *(
            size for one in kernel for size in (1, one))))
        taps = nodes.reshape(sum_of_products(x, w, (2,)), (batch, groups * outputs, *(
            size for both in zip(places, kernel, strict=True) for size in both)))
        for axis in range(count):
            reach = (places[axis] - 1) * steps[axis] + (kernel[axis] - 1) * gaps[axis] + 1
            taps = add_windows(taps, 2 + axis, reach, steps[axis], gaps[axis])
        result = self._wrap(taps).pad([None, None, *((-one, extra - one) for one, extra in
                                                     zip(cut, more, strict=True))])
        if bias is None:
            return result
        return result + bias.reshape((1, -1) + (1,) * count)

    def conv_transpose1d(self, weight: Self, bias: Self | None = None, groups: int = 1,
                         stride: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1,
                         padding: int | Sequence[int] = 0,
                         output_padding: int | Sequence[int] = 0) -> Self:
        """The adjoint of `conv1d` with respect to its input."""
        return self.conv_transpose2d(weight, bias, groups, stride, dilation, padding,
                                     output_padding)

    def conv_transpose3d(self, weight: Self, bias: Self | None = None, groups: int = 1,
                         stride: int | Sequence[int] = 1, dilation: int | Sequence[int] = 1,
                         padding: int | Sequence[int] = 0,
                         output_padding: int | Sequence[int] = 0) -> Self:
        """The adjoint of `conv3d` with respect to its input."""
        return self.conv_transpose2d(weight, bias, groups, stride, dilation, padding,
                                     output_padding)

    # Pooling

    def max_pool2d(self, kernel_size: int | Sequence[int] = 2,
                   stride: int | Sequence[int] | None = None, dilation: int | Sequence[int] = 1,
                   padding: int | Sequence[int] = 0, ceil_mode: bool = False,
                   return_indices: bool = False) -> Any:
        """The greatest element of each window over the axes after the first two.

        Args:
            ceil_mode: a last window that reaches out of the padding counts, too.
            return_indices: also where each one stands in the flattened axes, as int32.
        """
        windows, places, taps = self._pool(kernel_size, stride, dilation, padding, self.dtype.min,
                                           "pool", ceil_mode)
        shape = self.shape[:2] + places
        if not return_indices:
            return self._wrap(nodes.reshape(nodes.reduce(Ops.MAXIMUM, windows, taps), shape))
        number = nodes.reshape(nodes.iota(math.prod(self.shape[2:])), (1, 1, *self.shape[2:]))
        named = self._wrap(number)._pool(kernel_size, stride, dilation, padding, 0, "pool",
                                         ceil_mode)[0]
        order = (0, 1, *(axis - 1 for axis in taps), *taps)
        seen, where = (self._wrap(nodes.reshape(nodes.permute(one, order), (
            *shape_of(one)[:2], *places, -1 if not one.shape else math.prod(
                shape_of(one)[axis] for axis in taps)))) for one in (windows, named))
        best = seen.argmax(-1, keepdim=True)
        flat = where.expand(seen.shape).gather(-1, best)
        return seen.gather(-1, best).squeeze(-1), flat.squeeze(-1)

    def avg_pool2d(self, kernel_size: int | Sequence[int] = 2,
                   stride: int | Sequence[int] | None = None, dilation: int | Sequence[int] = 1,
                   padding: int | Sequence[int] = 0, count_include_pad: bool = True,
                   ceil_mode: bool = False, divisor_override: int | None = None) -> Self:
        """The mean of each window over the axes after the first two.

        What a window has beyond the padding (`ceil_mode`) does not count. The mean of whole numbers
        is one, too: the quotient, rounded toward zero.
        """
        if self.dtype.kind != "f":
            mean = self.cast(dtypes.float64).avg_pool2d(  # r[impl tensor.spatial.value]
                kernel_size, stride, dilation, padding, count_include_pad, ceil_mode,
                divisor_override)
            return mean.trunc().cast(self.dtype)
        windows, places, taps = self._pool(kernel_size, stride, dilation, padding, 0, "pool",
                                           ceil_mode)
        total = nodes.reduce(Ops.ADD, windows, taps)
        number = nodes.scalar(total.dtype, divisor_override or math.prod(
            shape_of(windows)[axis] for axis in taps))
        pads = _pads(padding, len(self.shape) - 2, "pool")
        outside = not count_include_pad and any(map(any, pads))
        if divisor_override is None and (outside or ceil_mode):
            ones = self._wrap(nodes.full_like(self.uop, 1))
            if count_include_pad:
                ones = self._wrap(pad_with(ones.uop, ((0, 0), (0, 0), *pads), 1))
            inside = ones._pool(kernel_size, stride, dilation, 0 if count_include_pad else padding,
                                0, "pool", places)[0]
            number = nodes.reduce(Ops.ADD, inside, taps)
        return self._wrap(nodes.reshape(nodes.div(total, number), self.shape[:2] + places))

    def _pool(self, kernel_size: Any, stride: Any, dilation: Any, padding: Any, value: float,
              operation: str, ceil_mode: Any = False) -> tuple[UOp, Shape, tuple[int, ...]]:
        """Windows, the number of places on each axis, and the axes of the taps.

        `ceil_mode` may be the number of places itself.
        """
        count = len(self.shape) - 2
        if count < 1:
            raise ShapeError(operation, f"shape {self.shape} has no axes to pool",
                             "give (batch, channels, ...)")
        kernel = pair(kernel_size, count, operation, "window")
        steps = kernel if stride is None or stride == [] or stride == () \
            else pair(stride, count, operation, "stride")
        gaps, pads = pair(dilation, count, operation, "dilation"), _pads(padding, count, operation)
        for one, gap, around in zip(kernel, gaps, pads, strict=True):
            # r[impl tensor.arguments.refused+2]
            if operation == "pool" and 2 * max(around) > (one - 1) * gap + 1:
                raise ShapeError("pool", f"padding {padding!r} is more than half of a window of "
                                 f"{kernel}", "use less padding or a larger window")
        if ceil_mode:
            pads = tuple(
                (before, after + _beyond(size, one, step, gap, (before, after), wanted))
                for size, one, step, gap, (before, after), wanted in
                zip(self.shape[2:], kernel, steps, gaps, pads, ceil_mode
                    if isinstance(ceil_mode, tuple) else (None,) * count, strict=True))
        windows, places = self._all_windows(self.uop, kernel, steps, gaps, pads, value)
        return windows, places, tuple(range(3, 3 + 2 * count, 2))


def _beyond(size: int, kernel: int, step: int, gap: int, pads: tuple[int, int],
            places: int | None) -> int:
    """How much more padding the last window needs that begins before the padding behind."""
    reach, whole = (kernel - 1) * gap + 1, size + sum(pads)
    if places is None:
        places = -(-(whole - reach) // step) + 1
        places -= (places - 1) * step >= size + pads[0]
    return max((places - 1) * step + reach - whole, 0)


def _pads(padding: int | Sequence[int], count: int,
          operation: str) -> tuple[tuple[int, int], ...]:
    """(before, after) for each spatial axis, in the order of the axes."""
    if isinstance(padding, (tuple, list)) and count and len(padding) == 2 * count:
        given = pair(padding, 2 * count, operation, "padding", 0)
        return tuple((given[i], given[i + 1]) for i in range(0, 2 * count, 2))[::-1]
    return tuple((one, one) for one in pair(padding, count, operation, "padding", 0))


def _named_padding(name: str, kernel: Shape, stride: Any, dilation: Any) -> tuple[int, ...]:
    """(before, after) of each axis, last first, for "same" and "valid".

    Raises:
        ShapeError: the name is another one, or "same" meets a stride.
    """
    count = len(kernel)
    if name not in ("same", "valid") or name == "same" and any(
            one != 1 for one in pair(stride, count, "conv", "stride")):
        raise ShapeError("conv", f"padding {name!r} with stride {stride!r} is not possible",
                         'use "same" with a stride of 1, "valid", or numbers')
    if name == "valid":
        return (0,) * (2 * count)
    more = [(k - 1) * gap for k, gap in zip(kernel, pair(dilation, count, "conv", "dilation"),
                                            strict=True)]
    return tuple(part for one in reversed(more) for part in (one // 2, one - one // 2))


def _summed(parts: Sequence[tuple[str, UOp]], wanted: Iterable[str]) -> tuple[str, UOp]:
    """The product of parts, whose axes have letters; those that are not wanted are added up."""
    sizes: dict[str, Any] = {}
    for letters, node in parts:
        for letter, size in zip(letters, shape_of(node), strict=True):
            sizes[letter] = common_size(sizes.get(letter, 1), size)
    kept = [letter for letter in sizes if letter in wanted]
    every = [*kept, *(letter for letter in sizes if letter not in wanted)]
    product: UOp | None = None
    for letters, node in parts:
        own = dict(zip(letters, shape_of(node), strict=True))
        node = nodes.permute(node, tuple(sorted(range(len(letters)),
                                                key=lambda i: every.index(letters[i]))))
        node = nodes.reshape(node, tuple(own.get(letter, 1) for letter in every))
        node = nodes.expand(node, tuple(sizes[letter] for letter in every))
        product = node if product is None else nodes.mul(product, node)
    assert product is not None
    if len(kept) < len(every):
        product = nodes.reduce(Ops.ADD, product, range(len(kept), len(every)))
    return "".join(kept), nodes.reshape(product, tuple(sizes[letter] for letter in kept))


def _of_lists(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The formula and the operands of `einsum(a, [0, 1], b, [1, 2], [0, 2])`."""
    def word(numbers: Any) -> str:
        return "".join("..." if each is ... else ascii_letters[each] for each in numbers)
    count = len(given) // 2 * 2
    try:
        formula = ",".join(map(word, given[1:count:2]))
        formula += "".join(f"->{word(each)}" for each in given[count:])
    except (TypeError, IndexError) as error:
        # r[impl errors.argument.refused]
        raise ArgumentError("einsum", "the axes of an operand are no list of numbers from 0 to 51",
                            'write "ij,jk->ik", a, b or a, [0, 1], b, [1, 2], [0, 2]') from error
    return formula, given[:count:2]


def _on_diagonals(letters: str, tensor: Any) -> tuple[str, Any]:
    """An operand of which each letter names one axis: of `ii` the diagonal, as `i`."""
    # r[impl tensor.einsum.diagonal]
    for letter in [each for each in dict.fromkeys(letters) if letters.count(each) > 1]:
        while letters.count(letter) > 1:
            first, second = letters.index(letter), letters.rindex(letter)
            if tensor.shape[first] != tensor.shape[second]:
                raise ShapeError("einsum", f"{letter!r} is {tensor.shape[first]} and "
                                 f"{tensor.shape[second]} in {letters!r}", "use another letter")
            tensor = tensor.diagonal(0, first, second)
            letters = "".join(each for place, each in enumerate(letters)
                              if place not in (first, second)) + letter
    return letters, tensor


def _parse(formula: str, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; `...` becomes capital letters' own names."""
    left, arrow, output = formula.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise ShapeError("einsum", f"{formula!r} names {len(inputs)} operands, {len(ranks)} are "
                         "given", "write one group of letters for each operand")
    most = max([rank - len(letters.replace("...", "")) for letters, rank
                in zip(inputs, ranks, strict=True) if "..." in letters], default=0)
    spare = [chr(0x3B1 + i) for i in range(most)]  # Greek letters stand for the axes of `...`
    full = []
    for letters, rank in zip(inputs, ranks, strict=True):
        hidden = rank - len(letters.replace("...", ""))
        full.append(letters.replace("...", "".join(spare[most - hidden:]) if hidden > 0 else ""))
        if len(full[-1]) != rank:
            raise ShapeError("einsum", f"{letters!r} does not name {rank} axes",
                             "write a letter for each axis, or ... for several")
    if not arrow:
        every = "".join(full)
        output = ("..." if most else "") + "".join(
            sorted(letter for letter in set(every) - set(spare) if every.count(letter) == 1))
    output = output.replace("...", "".join(spare))
    unknown = set(output) - set("".join(full))
    if unknown or len(set(output)) != len(output):
        raise ShapeError("einsum", f"the result {output!r} does not fit {left!r}",
                         "name letters of the operands, each once")
    return full, output
