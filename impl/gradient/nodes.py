"""Making tensor-level nodes, simplified where they are made. Chapter: spec/gradient.md.

Every function takes and returns nodes. It makes no node where an operand has the same value:
`add(x, -0.0)` is `x`, and so is `reshape(x, x.shape)`. All of it is exact, bit for bit: `x + 0.0`
stays, because it turns -0.0 into 0.0, and `x * 0.0` stays, because of NaN. No function looks past
its operand (two reshapes are not joined): somebody may want the gradient of what lies between.

A number has the shape `()`. Elementwise operations take it as it is next to any shape, so that no
node is spent on spreading it. A tensor full of one number is EXPAND(RESHAPE(CONST)); elementwise
operations see through that.
"""
from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence

from impl.dtypes import DType, Scalar, dtypes, sum_accumulator
from impl.errors import ShapeError
from impl.ir import COMPARISONS, MOVEMENT, Ops, Shape, UOp, in_memory
from impl.places import Place, home
from impl.rewrite.folding import NEUTRAL, fold
from impl.rewrite.patterns import COMMUTATIVE
from impl.symbolic import greatest, identical, is_number, is_symbolic, node_of, present

# Looking up a member of an enumeration costs more than a global name; this code is hot.
_CONST, _RESHAPE, _EXPAND, _CAST = Ops.CONST, Ops.RESHAPE, Ops.EXPAND, Ops.CAST
_BUFFER = Ops.BUFFER


def shape_of(node: UOp) -> Shape:
    """The shape of a tensor-level node."""
    shape = node.shape
    assert shape is not None, f"{node} has no shape"
    return shape


def constant(node: UOp) -> UOp | None:
    """The CONST of which the node is made up, if it is one number everywhere."""
    if node.op is _CONST:
        return node
    if node.op is _EXPAND:
        node = node.src[0]
    if node.op is _RESHAPE and node.src[0].op is _CONST:
        return node.src[0]
    return None


def scalar(dtype: DType, value: Scalar) -> UOp:
    """A number of the given type; of a symbolic size the node that has its value in each call."""
    if is_symbolic(value):
        return cast(node_of(value), dtype)
    return UOp.const(dtype, value)


def full(number: UOp, shape: Shape) -> UOp:
    """A node of this shape that has the value of a `()`-shaped node everywhere."""
    if not shape:
        return number
    ones = (1,) * len(shape)
    node = UOp(_RESHAPE, number.dtype, (number,), ones)
    return node if identical(shape, ones) else UOp(_EXPAND, number.dtype, (node,), shape)


def full_like(node: UOp, value: Scalar) -> UOp:
    """One number in the shape and dtype of another node."""
    return full(UOp.const(node.dtype, value), shape_of(node))


def binary(op: Ops, a: UOp, b: UOp) -> UOp:
    """A binary elementwise operation on two nodes of one dtype, of one shape or shape `()`."""
    # What is in memory is no number that is known, and most often both are there.
    number_a = constant(a) if a.op is not _BUFFER else None
    number_b = constant(b) if b.op is not _BUFFER else None
    if number_a is not None or number_b is not None:
        shape = a.shape or b.shape or ()
        folded = _fold(op, a, b, number_a, number_b)
        if folded is not None:  # r[impl gradient.nodes.exact]
            return folded if folded.shape == shape else full(folded, shape)
        if number_b is not None and a.shape == shape:
            b = number_b
        elif number_a is not None and b.shape == shape:
            a = number_a
    return UOp(op, dtypes.bool if op in COMPARISONS else a.dtype, (a, b))


def _fold(op: Ops, a: UOp, b: UOp, number_a: UOp | None, number_b: UOp | None) -> UOp | None:
    """One of the operands, or a number, if the operation has its value: algebra says which."""
    changes_nothing = NEUTRAL.get(op)
    if changes_nothing is not None:
        if number_b is not None and changes_nothing(number_b.arg):
            return a
        if number_a is not None and op in COMMUTATIVE and changes_nothing(number_a.arg):
            return b
    return None if number_a is None or number_b is None else fold(op, number_a, number_b)


def unary(op: Ops, x: UOp) -> UOp:
    """A unary elementwise operation."""
    return UOp(op, x.dtype, (x,))


def add(a: UOp, b: UOp) -> UOp:
    """a + b"""
    return binary(Ops.ADD, a, b)


def sub(a: UOp, b: UOp) -> UOp:
    """a - b"""
    return binary(Ops.SUB, a, b)


def mul(a: UOp, b: UOp) -> UOp:
    """a * b"""
    return binary(Ops.MUL, a, b)


def div(a: UOp, b: UOp) -> UOp:
    """a / b for floats"""
    return binary(Ops.DIV, a, b)


def neg(x: UOp) -> UOp:
    """-x, which changes the sign of zero too."""
    if x.op is _CONST:
        return UOp.const(x.dtype, -x.arg)
    return UOp(Ops.NEG, x.dtype, (x,))


def scale(x: UOp, factor: float) -> UOp:
    """x times a number."""
    return binary(Ops.MUL, x, UOp.const(x.dtype, factor))


def where(condition: UOp, a: UOp, b: UOp) -> UOp:
    """a where the condition holds, b elsewhere."""
    shape = condition.shape or a.shape or b.shape or ()
    number = constant(condition)
    if number is not None or a is b:
        chosen = a if a is b or (number is not None and number.arg) else b
        if chosen.shape == shape:
            return chosen
        return full(chosen, shape) if chosen.shape == () else chosen
    number_a, number_b = constant(a), constant(b)
    if condition.shape == shape:
        a = a if number_a is None else number_a
        b = b if number_b is None else number_b
    elif number_a is not None and b.shape == shape:
        a = number_a
    elif number_b is not None and a.shape == shape:
        b = number_b
    return UOp(Ops.WHERE, a.dtype, (condition, a, b))


def cast(x: UOp, dtype: DType) -> UOp:
    """x converted to a dtype."""
    if x.dtype is dtype:
        return x
    number = constant(x)
    if number is not None:
        return full(UOp.const(dtype, number.arg), shape_of(x))
    # r[impl dtypes.cast.integer]
    # r[impl dtypes.cast.float]
    return UOp(_CAST, dtype, (x,))


def detach(x: UOp) -> UOp:
    """x, through which no gradient flows."""
    if x.op is _CONST or x.dtype.kind != "f" or x.op is Ops.DETACH and x.tag is None:
        return x
    # r[impl gradient.detach.stops+2]
    return UOp(Ops.DETACH, x.dtype, (x,))


def without_gradient(x: UOp) -> UOp:
    """x, through which no gradient flows; what has memory of its own has it still."""
    if x.op in (Ops.CONTIGUOUS, Ops.COPY):
        return x.replace(src=(detach(x.src[0]), *x.src[1:]))
    return detach(x)


# r[impl tensor.movement.elements]: a movement node names elements, and computes nothing.
def reshape(x: UOp, shape: Shape) -> UOp:
    """The same elements in another shape."""
    if identical(x.shape, shape):
        return x
    if x.op is _EXPAND:
        number = constant(x)
        if number is not None:
            return full(number, shape)
    return UOp(_RESHAPE, x.dtype, (x,), shape)


def expand(x: UOp, shape: Shape) -> UOp:
    """Axes of size 1 repeated to the sizes of `shape`, of the same rank."""
    if identical(x.shape, shape):
        return x
    if present[0]:  # an axis that does not grow keeps its own size: r[symbolic.size.general]
        shape = tuple(old if not is_number(old, 1) and old == new else new
                      for old, new in zip(shape_of(x), shape, strict=True))
        if identical(x.shape, shape):
            return x
    for size in shape:  # whoever expands further up: memory beyond x would be read
        if size < 0 and not is_symbolic(size):  # r[impl tensor.arguments.refused+2]
            raise ShapeError("expand", f"{shape} has a negative size", "use sizes from 0 on")
    return UOp(_EXPAND, x.dtype, (x,), shape)


def permute(x: UOp, order: tuple[int, ...]) -> UOp:
    """Axes in another order."""
    if order == tuple(range(len(order))):
        return x
    return UOp(Ops.PERMUTE, x.dtype, (x,), order)


def pad(x: UOp, widths: tuple[tuple[int, int], ...]) -> UOp:
    """Zeros before and after, for each axis; a node of its own, so that nothing moves into it."""
    # r[impl tensor.pad.zeros]
    if all(is_number(before, 0) and is_number(after, 0) for before, after in widths):
        return x
    return UOp(Ops.PAD, x.dtype, (x,), widths)


def shrink(x: UOp, bounds: tuple[tuple[int, int], ...]) -> UOp:
    """The part from start to stop, for each axis."""
    if all(is_number(start, 0) and identical((stop,), (size,))
           for (start, stop), size in zip(bounds, shape_of(x), strict=True)):
        return x
    return UOp(Ops.SHRINK, x.dtype, (x,), bounds)


def flip(x: UOp, axes: tuple[int, ...]) -> UOp:
    """The given axes reversed; axes in increasing order."""
    return UOp(Ops.FLIP, x.dtype, (x,), axes) if axes else x


def unfold(x: UOp, axis: int, count: int, size: int, step: int, dilation: int = 1) -> UOp:
    """Sliding windows: the axis becomes two, `count` windows of `size` elements."""
    return UOp(Ops.UNFOLD, x.dtype, (x,), (axis, count, size, step, dilation))


_MOVES: dict[Ops, Callable[[UOp, tuple], UOp]] = {
    Ops.RESHAPE: reshape, Ops.EXPAND: expand, Ops.PERMUTE: permute, Ops.PAD: pad,
    Ops.SHRINK: shrink, Ops.FLIP: flip, Ops.UNFOLD: lambda x, arg: unfold(x, *arg),
}


def move(x: UOp, op: Ops, arg: tuple) -> UOp:
    """The movement operation `op` with its argument."""
    return _MOVES[op](x, arg)


def broadcast(x: UOp, shape: Shape) -> UOp:
    """x spread to a shape as NumPy does it: missing axes in front, axes of size 1 repeated."""
    own = shape_of(x)
    if identical(own, shape):
        return x
    if not own:
        return full(x, shape)
    if len(own) != len(shape):
        x = reshape(x, (1,) * (len(shape) - len(own)) + own)
    return expand(x, shape)


def reduce(op: Ops, x: UOp, axes: Sequence[int]) -> UOp:
    """The axes combined by ADD, MUL, MAXIMUM or MINIMUM; they stay, with size 1.

    Sums and products of half-width floats are accumulated in float32.
    """
    shape = shape_of(x)
    kept = tuple(axis for axis in axes if not is_number(shape[axis], 1))
    if not kept:
        return x
    if any(is_number(size, 0) for size in shape):  # r[impl tensor.reduce.empty]
        rest = tuple(1 if axis in kept else size for axis, size in enumerate(shape))
        identity = UOp.const(x.dtype, _IDENTITY[op](x.dtype))
        return full(identity, rest) if x.dtype.kind != "f" or constant(x) is not None \
            else add(_of_nothing(x, kept), full(identity, rest))
    number = constant(x)
    count = math.prod(shape[axis] for axis in kept)
    if number is not None and not is_symbolic(count):
        rest = tuple(1 if axis in kept else size for axis, size in enumerate(shape))
        return full(UOp.const(x.dtype, _repeated(op, number.arg, count)), rest)
    wide = sum_accumulator(x.dtype)
    if wide is x.dtype or op not in (Ops.ADD, Ops.MUL):
        return UOp(Ops.REDUCE, x.dtype, (x,), (op, kept))  # r[impl tensor.reduce.axes]
    total = UOp(Ops.REDUCE, wide, (cast(x, wide),), (op, kept))  # r[impl dtypes.half.accumulate]
    return cast(total, x.dtype)


def _of_nothing(x: UOp, axes: tuple[int, ...]) -> UOp:
    """Zeros with size 1 on these axes, made of no elements of x: a gradient finds the way to x."""
    sizes = shape_of(x)
    cut = tuple((0, 1) if axis in axes and not is_number(size, 0) else (0, size)
                for axis, size in enumerate(sizes))
    # r[impl gradient.empty.reached]
    return pad(shrink(x, cut), tuple((0, 1) if axis in axes and is_number(size, 0) else (0, 0)
                                     for axis, size in enumerate(sizes)))


def scan(op: Ops, x: UOp, axis: int) -> UOp:
    """Each element combined with all before it along an axis, by ADD, MUL, MAXIMUM or MINIMUM.

    Sums and products of half-width floats are accumulated in float32.
    """
    if is_number(shape_of(x)[axis], 1) or any(is_number(size, 0) for size in shape_of(x)):
        return x
    wide = sum_accumulator(x.dtype) if op in (Ops.ADD, Ops.MUL) else x.dtype
    return cast(UOp(Ops.SCAN, wide, (cast(x, wide),), (op, axis)), x.dtype)


def scan_by_key(op: Ops, x: UOp, key: UOp, count: int, axis: int) -> UOp:
    """Each element combined with all before it that have its key, a number below `count`; 0 for
    an element with another key.
    """
    if any(is_number(size, 0) for size in shape_of(x)):
        return x
    return UOp(Ops.SCAN, x.dtype, (x, key), (op, axis, count))


def scatter(op: Ops | None, base: UOp, index: UOp, values: UOp) -> UOp:
    """`base` with row index[j] combined with values[j], or replaced by it, for every j in order.

    `index` has one axis, `values` that one and the axes of a row. An index that names no row is
    passed over. Half-width floats are accumulated in float32.
    """
    if any(is_number(size, 0) for size in (*shape_of(base), *shape_of(values))):
        return base
    wide = sum_accumulator(base.dtype) if op in (Ops.ADD, Ops.MUL) else base.dtype
    parts = cast(base, wide), index, cast(values, wide)
    return cast(UOp(Ops.SCATTER, wide, parts, op), base.dtype)


def flat_place(place: UOp, axis: int, shape: Shape) -> UOp:
    """Where each element of a flattened tensor of this shape is that `place` names along an axis.

    Its other axes are those of `place`. A place out of range becomes -1, which names no element.
    """
    own, wide = shape_of(place), dtypes.int32
    if greatest(math.prod(shape)) > wide.max or place.dtype.itemsize == 8 or (
            place.dtype is dtypes.uint32):
        wide = dtypes.int64
    place = cast(place, wide)
    inside = UOp(Ops.AND, dtypes.bool, (
        UOp(Ops.CMPLE, dtypes.bool, (UOp.const(wide, 0), place)),
        UOp(Ops.CMPLT, dtypes.bool, (place, scalar(wide, shape[axis])))))
    total, stride = mul(place, scalar(wide, math.prod(shape[axis + 1:]))), 1
    for other in range(len(shape) - 1, -1, -1):
        if other != axis:
            along = cast(iota_along(own[other], other, len(own)), wide)
            total = add(total, mul(expand(along, own), scalar(wide, stride)))
        stride *= shape[other]
    return where(inside, total, UOp.const(wide, -1))


def gather_along(x: UOp, place: UOp, axis: int) -> UOp:
    """out[i][j] = x[place[i][j]][j] for axis 0, and alike for the others; 0 out of range."""
    flat = reshape(x, (math.prod(shape_of(x)),))
    return UOp(Ops.GATHER, x.dtype, (flat, flat_place(place, axis, shape_of(x))))


def scatter_along(op: Ops | None, base: UOp, place: UOp, values: UOp, axis: int) -> UOp:
    """out[place[i][j]][j] combined with values[i][j] for axis 0, and alike for the others."""
    shape, count = shape_of(base), math.prod(shape_of(place))
    flat = reshape(flat_place(place, axis, shape), (count,))
    found = scatter(op, reshape(base, (math.prod(shape),)), flat, reshape(values, (count,)))
    return reshape(found, shape)


def flipped_scan(op: Ops, x: UOp, axis: int) -> UOp:
    """Each element combined with all behind it along an axis."""
    return flip(scan(op, flip(x, (axis,)), axis), (axis,))


def _repeated(op: Ops, number: Scalar, count: int) -> Scalar:
    """A number combined with itself, `count` times in all."""
    if op is Ops.ADD:
        return number * count
    if op is not Ops.MUL:
        return number
    if not isinstance(number, float):
        return pow(int(number), count, 1 << 64)
    try:
        return number ** count
    except OverflowError:
        return math.inf if number > 0 or count % 2 == 0 else -math.inf


_IDENTITY: dict[Ops, Callable[[DType], Scalar]] = {
    Ops.ADD: lambda dtype: 0, Ops.MUL: lambda dtype: 1,
    Ops.MAXIMUM: lambda dtype: dtype.min, Ops.MINIMUM: lambda dtype: dtype.max,
}


def total(x: UOp) -> UOp:
    """The sum of all elements, of shape `()`."""
    shape = shape_of(x)
    return reshape(reduce(Ops.ADD, x, range(len(shape))), ()) if shape else x


def iota(count: int) -> UOp:
    """0, 1, ..., count-1 as int32, or int64 if it has to be."""
    dtype = dtypes.int32 if greatest(count) <= dtypes.int32.max else dtypes.int64
    return UOp(Ops.IOTA, dtype, (), count)


def iota_along(count: int, axis: int, rank: int) -> UOp:
    """0, 1, ..., count-1 along one of `rank` axes, the others of size 1."""
    return reshape(iota(count), tuple(count if a == axis else 1 for a in range(rank)))




def device_of(node: UOp) -> Place | None:
    """The place where a node's value is computed; None if it is made of no memory."""
    return home((node,), _stored)


def _stored(node: UOp) -> Place | None:
    leaf = in_memory(node)
    return None if leaf is None else leaf.arg[0].device


def expression_of(node: UOp) -> UOp:
    """The expression whose value a leaf holds, if a tensor still keeps it, or the leaf can tell it;
    else the node.
    """
    if node.late is None:
        return kept_expression(node)
    told = _told.get(node)  # one walk comes here more than once
    if told is None:  # r[impl replay.gradient.eager, gradient.realized.keeps+2]
        told = _told[node] = node.late[0](*node.late[2:])
    return told


#: The expressions that leaves told, as long as a walk holds them.
_told: weakref.WeakValueDictionary[UOp, UOp] = weakref.WeakValueDictionary()


def kept_expression(node: UOp) -> UOp:
    """The expression whose value a leaf holds, if a tensor keeps it; else the node."""
    if node.op is Ops.BUFFER and node.arg[1] == node.arg[0].version:
        for reference in node.arg[0].nodes:
            computed: UOp | None = reference()
            if computed is not None and computed.realized is node \
                    and identical(shape_of(computed), shape_of(node)):
                value = shown_value(computed)
                if value is computed or in_memory(value) is not node:
                    return computed  # r[impl gradient.realized.keeps+2]
    return node


def named_value(node: UOp) -> UOp:
    """The value to which a node only gives another name: a variable, or a gradient of its own."""
    while _is_name(node):
        node = node.src[0]
    return node


def shown_value(node: UOp) -> UOp:
    """The value of which a node is a view, or another name."""
    while node.op is Ops.DETACH or node.op in MOVEMENT:
        node = node.src[0]
    return node


def _is_name(node: UOp) -> bool:
    return node.op is Ops.DETACH or node.op is Ops.RESHAPE and node.tag is not None
