"""Movement operations become loop ranges and index expressions. Chapter: spec/ranges.md.

A stage is one loop nest: ranges, one value per iteration, and the place where it is stored. This
module walks from the value down to what is in memory, carrying the index at which each node is
needed. A movement operation changes the index and vanishes; a reduction opens new ranges.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from impl import symbolic
from impl.dtypes import DType, dtypes
from impl.effects import constant_of, leaf_of, way
from impl.errors import GraphError
from impl.ir import ELEMENTWISE, IN_ORDER, TRUE, Ops, RangeKind, Shape, UOp, new_range, toposort
from impl.symbolic import extent

Index = tuple[UOp, ...]
ZERO = UOp.const(dtypes.index, 0)


# --8<-- [start:stage]
class Pattern:
    """How a loop nest walks over a value: its shape, and the index in each dimension.

    `flat` is the position of the element in row-major order. Patterns are not changed once made.
    """

    __slots__ = ("shape", "index", "valid", "flat", "_ranges", "_bounds")

    def __init__(self, shape: Shape, index: Index, valid: UOp = TRUE) -> None:
        self.shape, self.index, self.valid = shape, index, valid
        self.flat = flatten(index, shape)
        self._ranges: list[UOp] | None = None
        self._bounds: tuple[int, int] | None = None

    @property
    def ranges(self) -> list[UOp]:
        """The loops that the index depends on."""
        if self._ranges is None:
            simple = all(i.op is Ops.RANGE or i.op is Ops.CONST for i in self.index)
            nodes: Sequence[UOp] = self.index if simple else toposort(self.index)
            self._ranges = [u for u in nodes if u.op is Ops.RANGE]
        return self._ranges

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and greatest element that it can touch, clipped to the value."""
        if self._bounds is None:
            low, high = symbolic.bounds(self.flat)
            self._bounds = max(0, low), min(
                high, symbolic.plain(math.prod(self.shape)) - 1)
        return self._bounds


@dataclass(eq=False, slots=True)
class Access:
    """A read or write of a value: its number, and how the loops walk over it.

    It is not changed once made.
    """

    value: int
    pattern: Pattern

    @property
    def shape(self) -> Shape:
        """The shape in which the value is seen."""
        return self.pattern.shape

    @property
    def index(self) -> Index:
        """One expression per dimension."""
        return self.pattern.index

    @property
    def valid(self) -> UOp:
        """When there is such an element."""
        return self.pattern.valid


@dataclass(frozen=True, eq=False)
class InOrder:
    """What is stored one element after the other, each with what was stored before.

    For the iterations of `loops`, the first of them in order: the element at `target` becomes
    the one at `before`, combined with `value` by `op` (or, without one, just `value`). Where there
    is none `before` it is `value`. With a `table` of some size, what stands before is not in the
    result but in the row `key` of that table, if there is one.
    """

    op: Ops | None
    loops: list[UOp]
    value: UOp
    before: Pattern
    target: Pattern
    table: int = 0
    key: UOp = ZERO


@dataclass(frozen=True, eq=False)
class Form:
    """A loop nest without the names of its values: what equal stages have in common.

    `loops` are the output ranges, outermost first (size-1 axes have none); `value` is a kernel
    expression whose loads are `INDEX(PARAM(slot), flat index, valid)`, with the place in `reads`
    as argument; there stand the patterns of the loads, each with its slot. `write` is how the
    result is stored, `reduced` the loops of reductions. Loops are numbered from 0 in every nest,
    so that equal indices are one node.
    """

    loops: list[UOp]
    value: UOp
    write: Pattern
    reads: list[tuple[int, Pattern]]
    reduced: list[UOp] = field(default_factory=list)
    operations: int = 0
    in_order: InOrder | None = None

    @cached_property
    def order(self) -> list[UOp]:
        """The nodes of the value and of where it is stored, sources first; nothing of loops."""
        roots: tuple[UOp, ...] = (self.value, self.write.flat)
        more = self.in_order
        if more is not None:
            roots += (more.value, more.before.flat, more.before.valid, more.target.flat,
                      more.target.valid, more.key)
        return toposort(roots, lambda u: u not in self.loops)

    @property
    def independent(self) -> list[UOp]:
        """The outermost loops whose iterations need nothing of each other."""
        if self.in_order is None:
            return list(self.loops)
        first = self.in_order.loops[:1]
        return self.loops[:self.loops.index(first[0])] if first and first[0] in self.loops else []

    @cached_property
    def iterations(self) -> int:
        """How often the body runs, reductions included."""
        return math.prod(extent(r) for r in (*self.loops, *self.reduced))


@dataclass
class Stage:
    """One loop nest that stores one value: a form, and the values behind its slots."""

    number: int
    node: UOp
    form: Form
    slots: tuple[int, ...]
    write: Access
    reason: str = ""
    copy: bool = False
    overwrites: int | None = None  # the value whose memory it would like to write into
    whole: bool = True             # it writes every element of that memory
    reads: list[Access] = field(init=False)

    def __post_init__(self) -> None:
        self.reads = [Access(self.slots[slot], pattern) for slot, pattern in self.form.reads]

    @property
    def alone(self) -> bool:
        """Whether the stage is a kernel of its own."""
        return self.copy or self.form.in_order is not None

    @property
    def loops(self) -> list[UOp]:
        """The output ranges, outermost first."""
        return self.form.loops
# --8<-- [end:stage]


def output_ranges(shape: Shape) -> Index:
    """One loop variable per axis; an axis of size 1 needs none."""
    return tuple(new_range(size, RangeKind.LOOP, axis) if size != 1 else ZERO
                 for axis, size in enumerate(shape))


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
        while left != right and (i < len(outer) or j < len(inner)):
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
    for axis, size in reversed(list(enumerate(inner))):
        if axis == 0 and any(symbolic.is_symbolic(one) for one in (*outer, *inner)):
            result.append(flat)  # it is below the size, though no bounds say so
            break
        result.append(symbolic.mod(flat, size) if size != 1 else ZERO)
        flat = symbolic.floordiv(flat, size) if size != 1 else flat
    return result[::-1]
# --8<-- [end:reshape]


def flatten(index: Index, shape: Shape) -> UOp:
    """The position of an element in row-major order."""
    weights, stride = [], 1
    for position, size in zip(reversed(index), reversed(shape), strict=True):
        if position is not ZERO:
            weights.append((position, stride))
        stride *= size
    return symbolic.weighted_sum(weights)


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
# --8<-- [end:movement]


class _Region:
    """All nodes that are needed at one index, and under one condition."""

    __slots__ = ("index", "valid", "done", "loops", "scalar")

    def __init__(self, index: Index, valid: UOp) -> None:
        self.index, self.valid = index, valid
        self.done: dict[UOp, UOp] = {}                # tensor node -> kernel node
        self.loops: dict[UOp, tuple[UOp, ...]] = {}   # the loops that a reduction opened
        self.scalar: _Region | None = None            # the same condition, and no index


Place = tuple[UOp, _Region]  # a node, and the index at which it is needed


class Tracer:
    """Turns the expression under one stage into a kernel expression.

    `storage_of` tells which value holds a node, or None if the node is to be computed here. Equal
    nodes needed at equal indices become one kernel node. The loops of reductions are numbered from
    `first_loop`.
    """

    def __init__(self, storage_of: Callable[[UOp], tuple[int, Shape] | None],
                 first_loop: int = 1 << 10) -> None:
        self.storage_of = storage_of
        self.slots: dict[int, int] = {}  # value -> its slot
        self.reads: list[tuple[int, Pattern]] = []
        self.loads: dict[tuple[Any, ...], UOp] = {}
        self.first_loop, self.reduced = first_loop, list[UOp]()
        self.regions: dict[tuple[Index, UOp], _Region] = {}
        self.operations = 0

    # --8<-- [start:trace]
    def trace(self, root: UOp, index: Index, inside: bool = True) -> UOp:
        """The kernel expression for `root` at `index`; no recursion.

        With `inside`, the root itself is computed even if it has a storage of its own.
        """
        start = self._region(index, TRUE)
        # A node waits on the stack, with what it needs, until that is done.
        stack: list[tuple[UOp, _Region, list[Place]]] = []  # r[impl ranges.trace.depth]
        self._open(root, start, inside, stack)
        while stack:
            node, region, needs = stack[-1]
            if node.op is Ops.GATHER:
                needs = self._gather_needs(node, region)  # more, once the index is known
            ready = True
            for need, where in needs:
                if need not in where.done:  # r[impl ranges.value.shared]
                    ready = self._open(need, where, False, stack) and ready
            if ready and not (node.op is Ops.GATHER and len(needs) == 1):
                stack.pop()
                if node not in region.done:
                    sources = [where.done[need] for need, where in needs]
                    region.done[node] = self._build(node, region, sources)
        return start.done[root]

    def _open(self, node: UOp, region: _Region, inside: bool,
              stack: list[tuple[UOp, _Region, list[Place]]]) -> bool:
        """Load the node, if it is stored; else put it on the stack. Whether it is done."""
        storage = None if inside else self.storage_of(node)
        if storage is None:
            stack.append((node, region, self._needs(node, region)))
            return False
        region.done[node] = self._load(node, region, *storage)
        return True
    # --8<-- [end:trace]

    def _region(self, index: Index, valid: UOp) -> _Region:
        key = index, valid
        region = self.regions.get(key)
        if region is None:
            region = self.regions[key] = _Region(index, valid)
        return region

    def _scalar(self, region: _Region) -> _Region:
        """Where a source of shape () is needed."""
        if not region.index:  # a region that held itself would outlive the plan
            return region
        if region.scalar is None:
            region.scalar = self._region((), region.valid)
        return region.scalar

    def _load(self, node: UOp, region: _Region, value: int, shape: Shape) -> UOp:
        if 0 in shape:
            return UOp.const(node.dtype, 0)  # no iteration gets here: there is nothing to read
        key = value, shape, region.index, region.valid
        known = self.loads.get(key)
        if known is None:
            slot = self.slots.setdefault(value, len(self.slots))
            # r[impl ranges.access.inside]
            pattern = Pattern(shape, region.index, region.valid)
            known = self.loads[key] = load(node.dtype, slot, pattern, len(self.reads))
            self.reads.append((slot, pattern))
        return known

    def _needs(self, node: UOp, region: _Region) -> list[Place]:
        """The sources of a node, each with the index at which it is needed."""
        op = node.op
        if op in ELEMENTWISE:
            return [(s, region if s.shape else self._scalar(region)) for s in node.src]
        if op is Ops.RESHAPE or Ops.EXPAND <= op <= Ops.UNFOLD:
            moved, inside = source_index(node, region.index)
            return self._elsewhere(node, region, moved, inside)
        if op is Ops.REDUCE:
            return [(node.src[0], self._region(self._reduce_index(node, region), region.valid))]
        if op is Ops.FOLD:
            moved, inside = self._fold_index(node, region)
            return self._elsewhere(node, region, moved, inside)
        if op in (Ops.CONTIGUOUS, Ops.COPY):
            return [(node.src[0], region)]
        return []

    def _elsewhere(self, node: UOp, region: _Region, moved: Index, inside: UOp) -> list[Place]:
        """The source, at another index and under a further condition."""
        valid = region.valid if inside is TRUE else symbolic.logical_and(region.valid, inside)
        return [(node.src[0], self._region(moved, valid))]

    def _gather_needs(self, node: UOp, region: _Region) -> list[Place]:
        """The index first; when it is known, the element that it selects."""
        assert node.src[1].shape is not None and node.src[0].shape is not None
        rank, index = len(node.src[1].shape), region.index
        selector = node.src[1], self._region(index[:rank], region.valid)
        if selector[0] not in selector[1].done:
            return [selector]
        picked = cast(selector[1].done[selector[0]], dtypes.index)
        inside = symbolic.logical_and(region.valid, _picks(node, picked))
        return [selector, (node.src[0], self._region((picked, *index[rank:]), inside))]

    # --8<-- [start:reduce]
    def _reduce_index(self, node: UOp, region: _Region) -> Index:
        """The index of a reduction's source: its reduced axes get ranges of their own."""
        axes, shape = node.arg[1], node.src[0].shape
        assert shape is not None
        if node not in region.loops:  # r[impl ranges.reduce.own]
            region.loops[node] = tuple(self._loop(shape[a]) for a in axes if shape[a] != 1)
        loops = iter(region.loops[node])
        return tuple((next(loops) if size != 1 else ZERO) if axis in axes else region.index[axis]
                     for axis, size in enumerate(shape))

    def _loop(self, size: int) -> UOp:
        """A new loop of a reduction."""
        number = self.first_loop + len(self.reduced)
        self.reduced.append(new_range(size, RangeKind.REDUCE, number))
        return self.reduced[-1]
    # --8<-- [end:reduce]

    def _fold_index(self, node: UOp, region: _Region) -> tuple[Index, UOp]:
        """Where the windows that cover one element are, and whether the tap hits one."""
        index, (axis, _, step, dilation) = region.index, node.arg
        assert node.src[0].shape is not None
        count, taps = node.src[0].shape[axis:axis + 2]
        if node not in region.loops:
            region.loops[node] = () if taps == 1 else (self._loop(taps),)
        tap = region.loops[node][0] if taps != 1 else ZERO
        offset = symbolic.sub(index[axis], symbolic.mul(tap, dilation))
        window = symbolic.floordiv(offset, step)
        inside = symbolic.logical_and(symbolic.less_equal(0, offset),
                                      symbolic.less_than(window, count))
        if step != 1:
            hit = symbolic.equal(symbolic.mod(offset, step), 0)
            inside = symbolic.logical_and(inside, hit)
        return index[:axis] + (window, tap) + index[axis + 1:], inside

    def _build(self, node: UOp, region: _Region, sources: list[UOp]) -> UOp:
        """The kernel node for a tensor node whose sources are done."""
        op = node.op
        if op in ELEMENTWISE:
            if op is Ops.DETACH:
                return sources[0]
            self.operations += 1
            return UOp(op, node.dtype, tuple(sources))
        if op is Ops.CONST:
            return node
        if op is Ops.PAD:  # r[impl ranges.pad.zero]
            return _where(source_index(node, region.index)[1], sources[0], node.dtype)
        if op is Ops.REDUCE:
            return self._reduce(node.arg[0], sources[0], region.loops[node])
        if op is Ops.FOLD:  # r[impl ranges.fold.sum]
            value = _where(self._fold_index(node, region)[1], sources[0], node.dtype)
            return self._reduce(Ops.ADD, value, region.loops[node])
        if op is Ops.IOTA:
            return cast(region.index[0], node.dtype)
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


def load(dtype: DType, slot: int, pattern: Pattern, number: int = 0) -> UOp:
    """The `number`-th read of a nest, of the value behind a slot."""
    pointer = UOp(Ops.PARAM, dtype, (), slot)
    place = UOp(Ops.INDEX, dtype, (pointer, pattern.flat, pattern.valid), number)
    return UOp(Ops.LOAD, dtype, (place,))


def cast(value: UOp, dtype: DType) -> UOp:
    """A conversion, unless the value has that type already."""
    return value if value.dtype is dtype else UOp(Ops.CAST, dtype, (value,))


def _where(condition: UOp, value: UOp, dtype: DType) -> UOp:
    if condition is TRUE:
        return value
    return UOp(Ops.WHERE, dtype, (condition, value, UOp.const(dtype, 0)))


# --8<-- [start:write]
def write_pattern(view: UOp, base: UOp, index: Index) -> Pattern:
    """Where a view write puts the element `index` of the view, as an index into its base."""
    while view is not base:
        index, _ = source_index(view, index)  # r[impl effects.view-write.region]
        view = view.src[0]
    assert base.shape is not None
    return Pattern(base.shape, index)
# --8<-- [end:write]


def _way_to_base(write: UOp) -> tuple[Any, ...]:
    """What says where a write goes: every step from its view down to its base.

    A view that is stored too, because it was asked for, is no end of the way.
    """
    rows = [(step.op, step.arg, step.src[0].shape) for step in way(write)]
    return write.src[1].src[0].shape, *rows



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
        """The shape; of sizes that depend on variables the planner sees Extents."""
        assert self.node.shape is not None
        return self.node.shape

    @property
    def nbytes(self) -> int:
        """Size in bytes; of the whole buffer for a leaf."""
        if self.leaf:
            return int(self.node.arg[0].nbytes)
        return symbolic.plain(math.prod(self.shape)) * self.node.dtype.itemsize
# --8<-- [end:values]


class StageGraph:
    """All values with storage, and the stages that compute them, in a legal order."""

    def __init__(self, cuts: dict[UOp, str], alias: dict[UOp, UOp], default_device: str) -> None:
        self.cuts, self.alias, self.default_device = cuts, alias, default_device
        self.values: list[Value] = []
        self.stages: list[Stage] = []
        self.number_of: dict[object, int] = {}
        self.forms: dict[tuple[Any, ...], tuple[Form, tuple[int, ...]]] = {}
        self.loaded: dict[UOp, tuple[int, Shape] | None] = {}  # what `read_from` has answered
        self.copied = {self._itself(node.src[0]) for node in cuts if node.op is Ops.COPY}
        self.homeless: set[int] = set()  # values made of no memory: any device will do

    # --8<-- [start:build]
    def build(self) -> StageGraph:
        """Make the stage of every value, sources first (r[ranges.stage.one-value])."""
        # r[impl ranges.stage.one-value, effects.version.single-writer]
        for node, reason in self.cuts.items():
            if node in self.number_of:
                continue  # a copy that somebody needed before
            if 0 in (node.shape or ()):
                # r[impl ranges.stage.empty]
                self._new_value(node, node, False, self._home(node, ()))  # nothing to compute
            elif node.op is Ops.AFTER:
                self._write_stage(node, reason)
            else:
                self._value_stage(node, reason)
        return self
    # --8<-- [end:build]

    def read_from(self, node: UOp) -> tuple[int, Shape] | None:
        """What a loop nest loads for a node. A reshape of a stored value is computed instead, by
        its index: so all stages see a value in one shape, and find the loops that they share.

        A constant is computed too, unless it is copied: equal ones on other devices are the
        same node, and cannot read it there.
        """
        if node not in self.loaded:
            # Asked first: where a number was realized before, what it is made of may have a stage
            # that comes later.
            is_number = node not in self.copied and constant_of(node) is not None
            self.loaded[node] = None if is_number or node in self.alias else self.stored(node)
        return self.loaded[node]

    def stored(self, node: UOp) -> tuple[int, Shape] | None:
        """The number of the value that holds a node, and the shape in which the node sees it."""
        shape, node = node.shape, self._itself(node)
        leaf = leaf_of(node)
        if leaf is None and node not in self.cuts:
            return None
        assert shape is not None
        if leaf is None:
            return self.number_of[node], shape
        buffer = leaf.arg[0]
        if buffer not in self.number_of:
            self._new_value(buffer, buffer.leaf((math.prod(leaf.arg[2]),)), True)
        return self.number_of[buffer], shape

    def _itself(self, node: UOp) -> UOp:
        """The node that is stored, where one is a reshape of it."""
        while node in self.alias:
            node = self.alias[node]
        return node

    def _new_value(self, key: object, node: UOp, leaf: bool, device: str | None = None) -> Value:
        where = node.arg[0].device if leaf else device or self.default_device
        value = Value(len(self.values), node, where, leaf)
        self.values.append(value)
        self.number_of[key] = value.number
        if not leaf and device is None:
            self.homeless.add(value.number)
        return value

    def _value_stage(self, node: UOp, reason: str) -> None:
        form, slots = self._form(node, node, self._value_form)
        device = self._home(node, slots)
        if node.op is not Ops.COPY:
            slots = self._brought(slots, device)
        value = self._new_value(node, node, False, device)
        self.stages.append(Stage(len(self.stages), node, form, slots,
                                 Access(value.number, form.write), reason, node.op is Ops.COPY))

    def _write_stage(self, node: UOp, reason: str) -> None:
        """The stage of an AFTER: it computes the region and writes it into the base's memory."""
        base, (view, given) = node.src[0], node.src[1].src
        form, slots = self._form(node, given, self._write_form)
        overwrites = self._memory_of(base)
        device = self._home(given, slots)
        if overwrites is not None and overwrites not in self.homeless:
            device = self.values[overwrites].device
        elif overwrites is not None:
            overwrites, = self._brought((overwrites,), device)
        slots = self._brought(slots, device)
        value = self._new_value(node, node, False, device)
        self.stages.append(Stage(len(self.stages), node, form, slots,
                                 Access(value.number, form.write), reason, False, overwrites,
                                 view is base))

    # --8<-- [start:form]
    def _form(self, node: UOp, root: UOp, make: Callable[[UOp, Tracer], Form],
              ) -> tuple[Form, tuple[int, ...]]:
        """The loop nest of a node, and the values that it loads, by slot; `root` is computed.

        A network repeats its layers: a nest of a form that was met before is not traced again.
        """
        key, values = self._describe(root, root is node)
        if root is not node:
            key += _way_to_base(node)  # r[impl ranges.form.place]
        known = self.forms.get(key)  # r[impl ranges.form.shared]
        if known is None:
            tracer = Tracer(self.read_from)
            form = make(node, tracer)
            place = {value: i for i, value in enumerate(values)}
            known = self.forms[key] = form, tuple(place[value] for value in tracer.slots)
        form, picked = known
        return form, tuple(values[i] for i in picked)

    def _describe(self, root: UOp, inside: bool) -> tuple[tuple[Any, ...], list[int]]:
        """What a nest depends on, with its values by order of appearance; and those values."""
        place: dict[UOp, int] = {}
        values: dict[int, int] = {}
        rows: list[Any] = []
        stack = [(root, inside)]
        while stack:
            node, forced = stack.pop()
            if node in place:
                rows.append(place[node])
                continue
            place[node] = len(place)
            stored = None if forced else self.read_from(node)
            if stored is not None:
                rows.append((values.setdefault(stored[0], len(values)), stored[1], node.dtype))
            elif node.op is Ops.CONST:
                rows.append((Ops.CONST, node))
            elif node.op is Ops.BIND:
                rows.append((Ops.BIND, node.src[0]))
            else:
                rows.append((node.op, node.dtype, node.arg, node.shape))
                stack.extend((source, False) for source in node.src)
        return tuple(rows), list(values)
    # --8<-- [end:form]

    def _value_form(self, node: UOp, tracer: Tracer) -> Form:
        assert node.shape is not None
        index = output_ranges(node.shape)
        if node.op in IN_ORDER:
            return _form_in_order(node, tracer, index)
        expression = tracer.trace(node, index)
        return Form(_loops(index), expression, Pattern(node.shape, index), tracer.reads,
                    tracer.reduced, tracer.operations)

    def _write_form(self, node: UOp, tracer: Tracer) -> Form:
        base, (view, given) = node.src[0], node.src[1].src
        assert view.shape is not None
        index = output_ranges(view.shape)
        expression = tracer.trace(given, index, inside=False)
        return Form(_loops(index), expression, write_pattern(view, base, index), tracer.reads,
                    tracer.reduced, tracer.operations)

    # --8<-- [start:home]
    def _home(self, node: UOp, slots: Sequence[int]) -> str | None:
        """The device of what a node is made of, though nothing of it may be read: the sum over no
        elements. None if it is made of no memory.
        """
        # r[impl realize.device.named]
        if node.op is Ops.COPY:
            return str(node.arg)
        found = next((slot for slot in slots if slot not in self.homeless), None)
        stack, seen = list(node.src if found is None else ()), set(node.src)
        while stack:
            source = stack.pop()
            if source.op is Ops.COPY:
                return str(source.arg)
            place = self.read_from(source)
            if place is not None and place[0] not in self.homeless:
                found = place[0]
                break
            more = [each for each in source.src if place is None and each not in seen]
            seen.update(more)
            stack += more
        return None if found is None else self.values[found].device

    def _brought(self, slots: Sequence[int], device: str | None) -> tuple[int, ...]:
        """What a stage on a device loads: of what was computed elsewhere, a copy.

        That was made of no memory, so that whoever asked for it did not say where it should lie.
        """
        # r[impl schedule.document.devices]
        found = []
        for slot in slots:
            value = self.values[slot]
            if slot in self.homeless and value.device != (device or self.default_device):
                copy = UOp(Ops.COPY, value.node.dtype, (value.node,), device)
                if copy not in self.number_of:
                    self._value_stage(copy, "what reads it is on another device")
                slot = self.number_of[copy]
            found.append(slot)
        return tuple(found)
    # --8<-- [end:home]

    def _memory_of(self, base: UOp) -> int | None:
        """The value whose memory an assign may write into; None if there is no such memory."""
        while self.stored(base) is None:
            if base.op is not Ops.AFTER:
                return None
            base = base.src[0]
        place = self.stored(base)
        assert place is not None
        return place[0]


# --8<-- [start:in_order]
def _form_in_order(node: UOp, tracer: Tracer, index: Index) -> Form:
    """A SCAN stores each element beside the one before it; a SCATTER fills its result with the
    base and then changes the rows that the index names.
    """
    shape = node.shape
    assert shape is not None
    value, write = tracer.trace(node.src[0], index, inside=False), Pattern(shape, index)
    make = _scan if node.op is Ops.SCAN else _scatter
    more = make(node, tracer, value, write)
    return Form(_loops(index), value, write, tracer.reads, tracer.reduced, tracer.operations + 1,
                more)


def _scan(node: UOp, tracer: Tracer, value: UOp, write: Pattern) -> InOrder | None:
    op, axis, *table = node.arg
    index = write.index
    if table:
        row = cast(tracer.trace(node.src[1], index, inside=False), dtypes.index)
        inside = symbolic.logical_and(symbolic.less_equal(0, row),
                                      symbolic.less_than(row, table[0]))
        place = Pattern((table[0],), (row,), inside)
        return InOrder(op, _loops(index[axis:]), value, place, write, table[0], row)
    if index[axis] is ZERO:
        return None
    one_less = (*index[:axis], symbolic.sub(index[axis], 1), *index[axis + 1:])
    before = Pattern(write.shape, one_less, symbolic.less_equal(1, index[axis]))
    return InOrder(op, _loops(index[axis:]), value, before, write)


def _scatter(node: UOp, tracer: Tracer, value: UOp, write: Pattern) -> InOrder:
    base, places, values = node.src
    assert values.shape is not None
    index = tuple(new_range(size, RangeKind.LOOP, len(write.shape) + axis) if size != 1 else ZERO
                  for axis, size in enumerate(values.shape))
    picked = cast(tracer.trace(places, index[:1], inside=False), dtypes.index)
    given = tracer.trace(values, index, inside=False)
    # r[impl ranges.scatter.outside]
    target = Pattern(write.shape, (picked, *index[1:]), _picks(node, picked))
    return InOrder(node.arg, _loops(index), given, target, target)
# --8<-- [end:in_order]


def _loops(index: Index) -> list[UOp]:
    return [i for i in index if i.op is Ops.RANGE]


__all__ = ["Access", "Form", "Index", "Pattern", "Stage", "StageGraph", "Tracer", "Value", "cast",
           "flatten", "load", "output_ranges", "reshape_index", "source_index", "write_pattern"]
