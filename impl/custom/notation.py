"""How a kernel of one's own is written: memory, numbers, loops. Chapter: spec/custom.md.

What a function writes with these is the graph of a kernel, as the chapter kernel describes it:
`memory[i, j]` is a LOAD, `memory[i, j].store(value)` a STORE, `loop(n)` a RANGE.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from impl import symbolic
from impl.dtypes import DType, dtypes, least_upper_dtype
from impl.errors import ArgumentError, DTypeError, ShapeError
from impl.ir import COMPARISONS, TRUE, KernelInfo, Ops, RangeKind, Shape, UOp, new_range, toposort
from impl.symbolic.terms import terms_of

_index = dtypes.index


class Number:
    """One number inside the loops of a kernel.

    It has the operators of Python, and the functions of a tensor with their names. Whole Python
    numbers, and floats beside a float, take its dtype; loop counters are whole numbers of
    type `dtypes.index`.

    Raises:
        DTypeError: an operation does not exist for the dtype, or two numbers have none in common.
    """

    __slots__ = ("uop",)
    __hash__ = None  # type: ignore[assignment]  # == makes a number

    def __init__(self, uop: UOp) -> None:
        self.uop = uop

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.uop.dtype

    def __bool__(self) -> bool:
        # r[impl custom.arguments.refused]
        raise ArgumentError("custom_kernel", "a number in a kernel is not known while the kernel "
                            "is written", "use .where(a, b) for a choice")

    def _with(self, op: Ops, other: Any, swap: bool = False) -> Number:
        left, right = _common(self, other)
        if swap:
            left, right = right, left
        return Number(_made(op, left, right))

    def _function(self, op: Ops) -> Number:
        if self.dtype.kind != "f":
            raise DTypeError(op.name.lower(), f"{self.dtype.name} has no such function",
                             "use .cast(dtypes.float32) before")
        return Number(UOp(op, self.dtype, (self.uop,)))

    def __add__(self, other: Any) -> Number:
        return self._with(Ops.ADD, other)

    def __radd__(self, other: Any) -> Number:
        return self._with(Ops.ADD, other, True)

    def __sub__(self, other: Any) -> Number:
        return self._with(Ops.SUB, other)

    def __rsub__(self, other: Any) -> Number:
        return self._with(Ops.SUB, other, True)

    def __mul__(self, other: Any) -> Number:
        return self._with(Ops.MUL, other)

    def __rmul__(self, other: Any) -> Number:
        return self._with(Ops.MUL, other, True)

    def __truediv__(self, other: Any) -> Number:
        return self._with(Ops.DIV, other)

    def __rtruediv__(self, other: Any) -> Number:
        return self._with(Ops.DIV, other, True)

    def __floordiv__(self, other: Any) -> Number:
        return self._with(Ops.FLOORDIV, other)

    def __mod__(self, other: Any) -> Number:
        return self._with(Ops.FLOORMOD, other)

    def __and__(self, other: Any) -> Number:
        return self._with(Ops.AND, other)

    def __or__(self, other: Any) -> Number:
        return self._with(Ops.OR, other)

    def __xor__(self, other: Any) -> Number:
        return self._with(Ops.XOR, other)

    def __lt__(self, other: Any) -> Number:
        return self._with(Ops.CMPLT, other)

    def __le__(self, other: Any) -> Number:
        return self._with(Ops.CMPLE, other)

    def __gt__(self, other: Any) -> Number:
        return self._with(Ops.CMPLT, other, True)

    def __ge__(self, other: Any) -> Number:
        return self._with(Ops.CMPLE, other, True)

    def __eq__(self, other: Any) -> Number:  # type: ignore[override]
        return self._with(Ops.CMPEQ, other)

    def __ne__(self, other: Any) -> Number:  # type: ignore[override]
        return self._with(Ops.CMPNE, other)

    def __neg__(self) -> Number:
        return self * -1 if self.dtype is _index else Number(UOp(Ops.NEG, self.dtype, (self.uop,)))

    def maximum(self, other: Any) -> Number:
        """The larger one; NaN wins."""
        return self._with(Ops.MAXIMUM, other)

    def minimum(self, other: Any) -> Number:
        """The smaller one; NaN wins."""
        return self._with(Ops.MINIMUM, other)

    def exp(self) -> Number:
        """e to this power."""
        return self._function(Ops.EXP)

    def exp2(self) -> Number:
        """2 to this power."""
        return self._function(Ops.EXP2)

    def log(self) -> Number:
        """The natural logarithm."""
        return self._function(Ops.LOG)

    def log2(self) -> Number:
        """The logarithm to base 2."""
        return self._function(Ops.LOG2)

    def sqrt(self) -> Number:
        """The square root."""
        return self._function(Ops.SQRT)

    def sin(self) -> Number:
        """The sine."""
        return self._function(Ops.SIN)

    def cos(self) -> Number:
        """The cosine."""
        return self._function(Ops.COS)

    def tanh(self) -> Number:
        """The hyperbolic tangent."""
        return self._function(Ops.TANH)

    def erf(self) -> Number:
        """The error function."""
        return self._function(Ops.ERF)

    def where(self, true: Any, false: Any) -> Number:
        """`true` where this bool holds, else `false`."""
        if self.dtype is not dtypes.bool:
            raise DTypeError("where", f"{self.dtype.name} is no condition", "compare it first")
        if isinstance(true, Number):
            left, right = _common(true, false)
        elif isinstance(false, Number):
            right, left = _common(false, true)
        else:
            left, right = (UOp.const(dtypes.float32, each) for each in (true, false))
        return Number(UOp(Ops.WHERE, left.dtype, (self.uop, left, right)))

    def cast(self, dtype: DType) -> Number:
        """The number in another type."""
        same = dtype is self.dtype
        return self if same else Number(UOp(Ops.CAST, dtype, (self.uop,)))

    def reduce(self, *loops: Number, arg: Ops = Ops.ADD) -> Number:
        """The numbers of all iterations of some loops, combined with ADD, MUL, MAXIMUM or MINIMUM.
        """
        return Number(UOp(Ops.REDUCE, self.dtype, (self.uop, *_ranges(loops)), arg))

    def sum(self, *loops: Number) -> Number:
        """The sum over loops."""
        return self.reduce(*loops)

    def max(self, *loops: Number) -> Number:
        """The maximum over loops."""
        return self.reduce(*loops, arg=Ops.MAXIMUM)


class Element(Number):
    """An element of memory: a number that can be stored, too."""

    __slots__ = ("place",)

    def __init__(self, place: UOp) -> None:
        super().__init__(UOp(Ops.LOAD, place.dtype, (place,)))
        self.place = place

    def store(self, value: Any) -> KernelStore:
        """Put a number here."""
        number = value.cast(self.dtype) if isinstance(value, Number) else \
            Number(UOp.const(self.dtype, value))
        return KernelStore(UOp(Ops.STORE, self.dtype, (self.place, number.uop)))

    set = store


@dataclass(frozen=True)
class KernelStore:
    """An element that is stored, for all iterations of the loops that `end` names."""

    uop: UOp

    def end(self, *loops: Number) -> KernelStore:
        """The loops, outermost first, in which it is stored."""
        return KernelStore(UOp(Ops.STORE, self.uop.dtype, (*self.uop.src[:2], *_ranges(loops))))

    def sink(self, *more: KernelStore, arg: KernelInfo | None = None) -> KernelStores:
        """The kernel that stores this, and then more, in this order."""
        return KernelStores((self, *more), arg)


@dataclass(frozen=True)
class KernelStores:
    """The stores of a kernel, in order, and its name."""

    stores: tuple[KernelStore, ...]
    info: KernelInfo | None = None


class KernelMemory:
    """An argument of a kernel, or memory of one iteration of the loops that its stores share.

    `memory[i, j]` is an element: a number that can be used, and stored. Where there is no element
    at an index, it is 0, and nothing is stored.
    """

    __slots__ = ("pointer", "shape")

    def __init__(self, pointer: UOp, shape: Shape) -> None:
        self.pointer, self.shape = pointer, shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.pointer.dtype

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __iter__(self) -> Any:
        raise ArgumentError("custom_kernel", "memory has no elements while a kernel is written",
                            "use loop(n), and memory[i]")

    def __getitem__(self, index: Any) -> Element:
        return self.at(*(index if isinstance(index, tuple) else (index,)))

    def at(self, *index: Any, where: Number | None = None) -> Element:
        """The element at an index, or where a condition does not hold, none.

        One index for each axis, or one for all elements in row-major order.

        Raises:
            ShapeError: there are more or fewer.
        """
        shape = (self.size,) if len(index) == 1 else self.shape
        if len(index) != len(shape):  # r[impl custom.arguments.refused]
            raise ShapeError("custom_kernel", f"{len(index)} indices for memory of shape "
                             f"{self.shape}", "give one for each axis, or one for all elements")
        valid, places = TRUE if where is None else where.uop, []
        for one, size in zip(index, shape, strict=True):
            place = _as_index(one)
            least, greatest = symbolic.bounds(place)
            if least < 0:  # r[impl custom.access.inside]
                valid = symbolic.logical_and(valid, symbolic.less_equal(0, place))
            if greatest >= size:  # r[impl custom.access.inside]
                valid = symbolic.logical_and(valid, symbolic.less_than(place, size))
            places.append(place)
        strides = [math.prod(shape[axis + 1:]) for axis in range(len(shape))]
        flat = symbolic.total(symbolic.mul(p, s) for p, s in zip(places, strides, strict=True))
        return Element(UOp(Ops.INDEX, self.dtype, (self.pointer, flat, valid)))


def loop(size: int) -> Number:
    """A loop: the number that counts 0, 1, ..., size - 1.

    Raises:
        ArgumentError: the size is no positive whole number.
    """
    if not isinstance(size, int) or size < 1:  # r[impl custom.arguments.refused]
        raise ArgumentError("loop", f"{size!r} is no number of iterations",
                            "give a whole number from 1 up")
    return Number(new_range(size, RangeKind.LOOP))


def local(shape: Shape | int, dtype: DType = dtypes.float32) -> KernelMemory:
    """KernelMemory of one iteration of the loops that all stores of a kernel share."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    # A number that no other one has, until the kernel is complete.
    mark = new_range(1, RangeKind.LOOP).arg[0]
    return KernelMemory(UOp(Ops.LOCAL, dtype, (), (mark, math.prod(sizes))), sizes)


def sink_of(kernel: KernelStores, name: str) -> UOp:
    """The SINK of a kernel: its loops and local memory numbered, those that all stores share in
    front, as its prefix.
    """
    stores = [store.uop for store in kernel.stores]
    shared = _shared([store.src[2:] for store in stores])
    order = toposort(stores)
    reduced = {each for node in order if node.op is Ops.REDUCE for each in node.src[1:]}
    renamed: dict[UOp, UOp] = {}
    loops = [*shared, *(each for store in stores for each in store.src[2:]),
             *(each for each in order if each in reduced)]
    for number, each in enumerate(dict.fromkeys(loops)):
        kind = RangeKind.GLOBAL if each in shared else \
            RangeKind.REDUCE if each in reduced else RangeKind.LOOP
        renamed[each] = new_range(each.src[0], kind, number)
    locals_ = [node for node in order if node.op is Ops.LOCAL]
    for number, node in enumerate(locals_):
        renamed[node] = node.replace(arg=(number, node.arg[1]))
    # A STORE ends its shared loops with the prefix.
    made = [store.replace(src=(*store.src[:2], *store.src[2 + len(shared):])).substitute(renamed)
            for store in stores]
    info = kernel.info or KernelInfo(name)
    prefix = tuple(renamed[each] for each in shared)
    return UOp(Ops.SINK, made[0].dtype, tuple(made), replace(info, prefix=prefix))


def covers(store: UOp, prefix: Sequence[UOp], shape: Shape) -> bool:
    """Whether a STORE, in loops of its own and those of the prefix, stores every element."""
    place, loops = store.src[0], {*prefix, *store.src[2:]}
    terms, constant = terms_of(place.src[1])
    if place.src[2] is not TRUE or constant or not set(terms) <= loops:
        return False
    below = 1
    for each, stride in sorted(terms.items(), key=lambda term: term[1]):
        if stride != below:
            return False
        below *= each.src[0].arg
    return below == math.prod(shape)


def _shared(loops: Sequence[tuple[UOp, ...]]) -> tuple[UOp, ...]:
    """The loops with which all stores begin."""
    count = 0
    while all(len(each) > count and each[count] is loops[0][count] for each in loops):
        count += 1
    return loops[0][:count]


def _ranges(loops: Sequence[Number]) -> list[UOp]:
    found = [each.uop for each in loops]
    if any(each.op is not Ops.RANGE for each in found):  # r[impl custom.arguments.refused]
        raise ArgumentError("custom_kernel", "what is ended or reduced is not a loop",
                            "give what loop(n) returned")
    return found


def _as_index(value: Any) -> UOp:
    """A whole number as an index."""
    if isinstance(value, Number):
        if value.dtype.kind not in "iu":  # r[impl custom.arguments.refused]
            raise DTypeError("custom_kernel", f"{value.dtype.name} is no index", "cast it first")
        return value.cast(_index).uop
    return UOp.const(_index, value)


def _common(one: Any, other: Any) -> tuple[UOp, UOp]:
    """Two numbers in the dtype that they have in common."""
    if not isinstance(other, Number):
        dtype = one.dtype
        if isinstance(other, float) and dtype.kind != "f":
            dtype = dtypes.float32
        return one.cast(dtype).uop, UOp.const(dtype, other)
    if one.dtype is other.dtype:
        return one.uop, other.uop
    if _index in (one.dtype, other.dtype):  # a counter takes the type of what it meets
        dtype = other.dtype if one.dtype is _index else one.dtype
        dtype = _index if dtype.kind in "iu" else dtype
    else:
        dtype = least_upper_dtype(one.dtype, other.dtype)
    return one.cast(dtype).uop, other.cast(dtype).uop


_SIMPLE = {Ops.ADD: symbolic.add, Ops.SUB: symbolic.sub, Ops.MUL: symbolic.mul,
           Ops.CMPLT: symbolic.less_than, Ops.CMPLE: symbolic.less_equal,
           Ops.CMPEQ: symbolic.equal}
_WHOLE = {Ops.FLOORDIV: symbolic.floordiv, Ops.FLOORMOD: symbolic.mod}


def _made(op: Ops, left: UOp, right: UOp) -> UOp:
    """An operation; on counters the simplest form of it."""
    if left.dtype is _index and op is not Ops.DIV:
        if op in _SIMPLE:
            return _SIMPLE[op](left, right)
        if op in _WHOLE and right.op is Ops.CONST and right.arg > 0:
            return _WHOLE[op](left, right.arg)
    if op is Ops.DIV and left.dtype.kind != "f":
        left, right = (UOp(Ops.CAST, dtypes.float32, (each,)) for each in (left, right))
    return UOp(op, dtypes.bool if op in COMPARISONS else left.dtype, (left, right))
