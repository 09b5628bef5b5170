"""Movement operations become loop ranges and index expressions. Chapter: spec/ranges.md.

A stage is one loop nest: ranges, one value per iteration, and the place where it is stored. This
module walks from the value down to what is in memory, carrying the index at which each node is
needed. A movement operation changes the index and vanishes; a reduction opens new ranges.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from impl import symbolic
from impl.dtypes import DType, dtypes
from impl.effects import leaf_of
from impl.errors import GraphError
from impl.ir import ELEMENTWISE, TRUE, Ops, RangeKind, Shape, UOp, new_range, toposort

Index = tuple[UOp, ...]
ZERO = UOp.const(dtypes.index, 0)


# --8<-- [start:stage]
@dataclass
class Access:
    """A read or write of a value: its number, its shape, and the index in each dimension."""

    value: int
    shape: Shape
    index: Index
    valid: UOp = TRUE

    @cached_property
    def ranges(self) -> list[UOp]:
        """The loops that the index depends on."""
        return [u for u in toposort(self.index) if u.op is Ops.RANGE]


@dataclass
class Stage:
    """One loop nest that stores one value.

    `loops` are the output ranges, outermost first (size-1 axes have none); `value` is a kernel
    expression whose loads are `INDEX(PARAM(storage), valid, *index)`; `write` is where it goes.
    """

    number: int
    node: UOp
    loops: list[UOp]
    value: UOp
    write: Access
    reads: list[Access] = field(default_factory=list)
    reason: str = ""
    operations: int = 0
    copy: bool = False
    overwrites: int | None = None  # the value whose memory it would like to write into
    whole: bool = True             # it writes every element of that memory
# --8<-- [end:stage]


def output_ranges(shape: Shape) -> Index:
    """One loop variable per axis; an axis of size 1 needs none."""
    return tuple(new_range(size, RangeKind.LOOP) if size != 1 else ZERO for size in shape)


# --8<-- [start:reshape]
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
        while left != right:
            if (left < right and i < len(outer)) or j >= len(inner):
                left, i = left * outer[i], i + 1
            else:
                right, j = right * inner[j], j + 1
        result += _regroup(index[first_i:i], outer[first_i:i], inner[first_j:j])
    return tuple(result)


def _regroup(index: Index, outer: Shape, inner: Shape) -> list[UOp]:
    """Flatten one run of axes and split it again."""
    if outer == inner:  # r[impl ranges.reshape.local]
        return list(index)
    flat = flatten(index, outer)
    result: list[UOp] = []
    for size in reversed(inner):
        result.append(symbolic.mod(flat, size) if size != 1 else ZERO)
        flat = symbolic.floordiv(flat, size) if size != 1 else flat
    return result[::-1]
# --8<-- [end:reshape]


def flatten(index: Index, shape: Shape) -> UOp:
    """The position of an element in row-major order."""
    flat, stride = ZERO, 1
    for position, size in zip(reversed(index), reversed(shape), strict=True):
        if position is not ZERO:
            flat = symbolic.add(flat, symbolic.mul(position, stride))
        stride *= size
    return flat


# --8<-- [start:movement]
def source_index(node: UOp, index: Index) -> tuple[Index, UOp]:
    """Where a movement operation reads its source for the element `index` of its result.

    Returns the index into the source, and the condition under which there is such an element
    (only PAD makes one).
    """
    op, arg, source = node.op, node.arg, node.src[0].shape  # r[impl ranges.index.exact]
    assert source is not None and node.shape is not None
    if op is Ops.RESHAPE:
        return reshape_index(index, node.shape, source), TRUE
    if op is Ops.EXPAND:
        return tuple(ZERO if size == 1 else i for i, size in zip(index, source, strict=True)), TRUE
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
# --8<-- [end:movement]


Place = tuple[UOp, Index, UOp]  # a node, the index at which it is needed, and when


class Tracer:
    """Turns the expression under one stage into a kernel expression.

    `storage_of` tells which storage holds a node's value, or None if the node is to be computed
    here. Equal nodes needed at equal indices become one kernel node.
    """

    def __init__(self, storage_of: Callable[[UOp], tuple[int, Shape] | None]) -> None:
        self.storage_of = storage_of
        self.reads: list[Access] = []
        self.done: dict[Place, UOp] = {}
        self.loops_of: dict[Place, tuple[UOp, ...]] = {}
        self.operations = 0

    # --8<-- [start:trace]
    def trace(self, root: UOp, index: Index, inside: bool = True) -> UOp:
        """The kernel expression for `root` at `index`; no recursion.

        With `inside`, the root itself is computed even if it has a storage of its own.
        """
        start: Place = (root, index, TRUE)
        stack: list[tuple[Place, bool]] = [(start, inside)]  # r[impl ranges.trace.depth]
        while stack:
            place, forced = stack[-1]
            if place in self.done:  # r[impl ranges.value.shared]
                stack.pop()
                continue
            storage = None if forced else self.storage_of(place[0])
            if storage is not None:
                self.done[place] = self._load(place, *storage)
                continue
            needs = self._needs(place)
            missing = [need for need in needs if need not in self.done]
            if missing:
                stack.extend((need, False) for need in missing)
            else:
                self.done[place] = self._build(place, [self.done[n] for n in needs])
        return self.done[start]
    # --8<-- [end:trace]

    def _load(self, place: Place, storage: int, shape: Shape) -> UOp:
        node, index, valid = place
        if 0 in shape:
            return UOp.const(node.dtype, 0)  # no iteration gets here: there is nothing to read
        self.reads.append(Access(storage, shape, index, valid))  # r[impl ranges.access.inside]
        return load(node.dtype, storage, shape, index, valid)

    def _needs(self, place: Place) -> list[Place]:
        """The sources of a node, each with the index at which it is needed."""
        node, index, valid = place
        op = node.op
        if op in ELEMENTWISE:
            return [(s, index if s.shape else (), valid) for s in node.src]
        if op is Ops.RESHAPE or Ops.EXPAND <= op <= Ops.UNFOLD:
            moved, inside = source_index(node, index)
            return [(node.src[0], moved, symbolic.logical_and(valid, inside))]
        if op is Ops.REDUCE:
            return [(node.src[0], self._reduce_index(place), valid)]
        if op is Ops.FOLD:
            moved, inside = self._fold_index(place)
            return [(node.src[0], moved, symbolic.logical_and(valid, inside))]
        if op is Ops.GATHER:
            return self._gather_needs(place)
        if op in (Ops.CONTIGUOUS, Ops.COPY):
            return [(node.src[0], index, valid)]
        return []

    def _gather_needs(self, place: Place) -> list[Place]:
        """The index first; when it is known, the element that it selects."""
        node, index, valid = place
        assert node.src[1].shape is not None and node.src[0].shape is not None
        rank = len(node.src[1].shape)
        selector: Place = (node.src[1], index[:rank], valid)
        if selector not in self.done:
            return [selector]
        picked = cast(self.done[selector], dtypes.index)
        inside = symbolic.logical_and(valid, _picks(node, picked))
        return [selector, (node.src[0], (picked, *index[rank:]), inside)]

    # --8<-- [start:reduce]
    def _reduce_index(self, place: Place) -> Index:
        """The index of a reduction's source: its reduced axes get ranges of their own."""
        node, index, _ = place
        axes, shape = node.arg[1], node.src[0].shape
        assert shape is not None
        if place not in self.loops_of:  # r[impl ranges.reduce.own]
            self.loops_of[place] = tuple(new_range(shape[a], RangeKind.REDUCE) for a in axes
                                         if shape[a] != 1)
        loops = iter(self.loops_of[place])
        return tuple((next(loops) if size != 1 else ZERO) if axis in axes else index[axis]
                     for axis, size in enumerate(shape))

    # --8<-- [end:reduce]

    def _fold_index(self, place: Place) -> tuple[Index, UOp]:
        """Where the windows that cover one element are, and whether the tap hits one."""
        node, index, _ = place
        axis, _, step, dilation = node.arg
        assert node.src[0].shape is not None
        count, taps = node.src[0].shape[axis:axis + 2]
        if place not in self.loops_of:
            self.loops_of[place] = (new_range(taps, RangeKind.REDUCE),) if taps != 1 else ()
        tap = self.loops_of[place][0] if taps != 1 else ZERO
        offset = symbolic.sub(index[axis], symbolic.mul(tap, dilation))
        window = symbolic.floordiv(offset, step)
        inside = symbolic.logical_and(symbolic.less_equal(0, offset),
                                      symbolic.less_than(window, count))
        if step != 1:
            hit = symbolic.equal(symbolic.mod(offset, step), 0)
            inside = symbolic.logical_and(inside, hit)
        return index[:axis] + (window, tap) + index[axis + 1:], inside

    def _build(self, place: Place, sources: list[UOp]) -> UOp:
        """The kernel node for a tensor node whose sources are done."""
        node, index, valid = place
        op = node.op
        if op in ELEMENTWISE:
            if op is Ops.DETACH:
                return sources[0]
            self.operations += 1
            return UOp(op, node.dtype, tuple(sources))
        if op is Ops.CONST:
            return node
        if op is Ops.PAD:  # r[impl ranges.pad.zero]
            return _where(source_index(node, index)[1], sources[0], node.dtype)
        if op is Ops.REDUCE:
            return self._reduce(node.arg[0], sources[0], self.loops_of[place])
        if op is Ops.FOLD:  # r[impl ranges.fold.sum]
            value = _where(self._fold_index(place)[1], sources[0], node.dtype)
            return self._reduce(Ops.ADD, value, self.loops_of[place])
        if op is Ops.IOTA:
            return cast(index[0], node.dtype)
        if op is Ops.BIND:
            return node.src[0]
        if op is Ops.GATHER:  # r[impl ranges.gather.outside]
            return _where(_picks(node, cast(sources[0], dtypes.index)), sources[1], node.dtype)
        return self._pass(node, sources)

    def _pass(self, node: UOp, sources: list[UOp]) -> UOp:
        if not sources:
            raise GraphError(node.op.name, f"{node!r} cannot be computed in a kernel",
                             "report this: the graph is malformed")
        return sources[0]

    def _reduce(self, op: Ops, value: UOp, loops: tuple[UOp, ...]) -> UOp:
        if not loops:
            return value
        self.operations += 1
        return UOp(Ops.REDUCE, value.dtype, (value, *loops), op)


def _picks(node: UOp, picked: UOp) -> UOp:
    """Whether a GATHER's index names a row; where it does not, the value is 0."""
    assert node.src[0].shape is not None
    return symbolic.logical_and(symbolic.less_equal(0, picked),
                                symbolic.less_than(picked, node.src[0].shape[0]))


def load(dtype: DType, storage: int, shape: Shape, index: Index, valid: UOp) -> UOp:
    """A read of a storage, its index still one expression per dimension."""
    pointer = UOp(Ops.PARAM, dtype, (), storage)
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (pointer, valid, *index), shape),))


def cast(value: UOp, dtype: DType) -> UOp:
    """A conversion, unless the value has that type already."""
    return value if value.dtype is dtype else UOp(Ops.CAST, dtype, (value,))


def _where(condition: UOp, value: UOp, dtype: DType) -> UOp:
    if condition is TRUE:
        return value
    return UOp(Ops.WHERE, dtype, (condition, value, UOp.const(dtype, 0)))


# --8<-- [start:write]
def write_access(view: UOp, base: UOp, storage: int, index: Index) -> Access:
    """Where a view write puts the element `index` of the view, as an index into its base."""
    while view is not base:
        index, _ = source_index(view, index)  # r[impl effects.view-write.region]
        view = view.src[0]
    assert base.shape is not None
    return Access(storage, base.shape, index)
# --8<-- [end:write]



# --8<-- [start:values]
@dataclass
class Value:
    """Something that has storage: a leaf, or a node that was given a stage."""

    number: int
    node: UOp
    device: str
    leaf: bool = False

    @property
    def shape(self) -> Shape:
        """The shape, never symbolic here."""
        assert self.node.shape is not None
        return self.node.shape

    @property
    def nbytes(self) -> int:
        """Size in bytes; of the whole buffer for a leaf."""
        if self.leaf:
            return int(self.node.arg[0].nbytes)
        return math.prod(self.shape) * self.node.dtype.itemsize
# --8<-- [end:values]


class StageGraph:
    """All values with storage, and the stages that compute them, in a legal order."""

    def __init__(self, cuts: dict[UOp, str], alias: dict[UOp, UOp], default_device: str) -> None:
        self.cuts, self.alias, self.default_device = cuts, alias, default_device
        self.values: list[Value] = []
        self.stages: list[Stage] = []
        self.number_of: dict[object, int] = {}

    # --8<-- [start:build]
    def build(self) -> StageGraph:
        """Make the stage of every value, sources first (r[ranges.stage.one-value])."""
        # r[impl ranges.stage.one-value, effects.version.single-writer]
        for node, reason in self.cuts.items():
            if 0 in (node.shape or ()):
                # r[impl ranges.stage.empty]
                self._new_value(node, node, False)  # nothing to compute
            elif node.op is Ops.AFTER:
                self._write_stage(node, reason)
            else:
                self._value_stage(node, reason)
        return self
    # --8<-- [end:build]

    def read_from(self, node: UOp) -> tuple[int, Shape] | None:
        """What a loop nest loads for a node. A reshape of a stored value is computed instead, by
        its index: so all stages see a value in one shape, and find the loops that they share.
        """
        return None if node in self.alias else self.stored(node)

    def stored(self, node: UOp) -> tuple[int, Shape] | None:
        """The number of the value that holds a node, and the shape in which the node sees it."""
        shape = node.shape
        while node in self.alias:
            node = self.alias[node]
        leaf = leaf_of(node)
        if leaf is None and node not in self.cuts:
            return None
        assert shape is not None
        if leaf is None:
            return self.number_of[node], shape
        buffer = leaf.arg[0]
        if buffer not in self.number_of:
            self._new_value(buffer, buffer.leaf((buffer.size,)), True)
        return self.number_of[buffer], shape

    def _new_value(self, key: object, node: UOp, leaf: bool, device: str | None = None) -> Value:
        where = node.arg[0].device if leaf else device or self.default_device
        value = Value(len(self.values), node, where, leaf)
        self.values.append(value)
        self.number_of[key] = value.number
        return value

    def _value_stage(self, node: UOp, reason: str) -> None:
        assert node.shape is not None
        tracer = Tracer(self.read_from)
        index = output_ranges(node.shape)
        expression = tracer.trace(node, index)
        device = self._device_of_reads(node, tracer)
        value = self._new_value(node, node, False, device)
        write = Access(value.number, node.shape, index)
        self.stages.append(Stage(len(self.stages), node, _loops(index), expression, write,
                                 tracer.reads, reason, tracer.operations, node.op is Ops.COPY))

    def _device_of_reads(self, node: UOp, tracer: Tracer) -> str:
        if node.op is Ops.COPY:
            return str(node.arg)
        for access in tracer.reads:
            return self.values[access.value].device
        return self.default_device

    def _write_stage(self, node: UOp, reason: str) -> None:
        """The stage of an AFTER: it computes the region and writes it into the base's memory."""
        base, (view, given) = node.src[0], node.src[1].src
        assert view.shape is not None
        tracer = Tracer(self.read_from)
        index = output_ranges(view.shape)
        expression = tracer.trace(given, index, inside=False)
        overwrites = self._memory_of(base)
        device = (self.values[overwrites].device if overwrites is not None
                  else self._device_of_reads(given, tracer))
        value = self._new_value(node, node, False, device)
        write = write_access(view, base, value.number, index)
        self.stages.append(Stage(len(self.stages), node, _loops(index), expression, write,
                                 tracer.reads, reason, tracer.operations, False, overwrites,
                                 view is base))

    def _memory_of(self, base: UOp) -> int | None:
        """The value whose memory an assign may write into; None if there is no such memory."""
        while self.stored(base) is None:
            if base.op is not Ops.AFTER:
                return None
            base = base.src[0]
        place = self.stored(base)
        assert place is not None
        return place[0]


def _loops(index: Index) -> list[UOp]:
    return [i for i in index if i.op is Ops.RANGE]


__all__ = ["Access", "Index", "Stage", "StageGraph", "Tracer", "Value", "cast", "flatten", "load",
           "output_ranges", "reshape_index", "source_index", "write_access"]
