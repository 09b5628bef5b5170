"""From tensor nodes to the expression of a stage. Chapter: spec/ranges.md.

A walk from the value down to what is in memory, carrying the index at which each node is needed.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from impl import symbolic
from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.ir import ELEMENTWISE, TRUE, Ops, RangeKind, Shape, UOp, new_range
from impl.ranges.indices import (
    ZERO,
    Index,
    source_index,
)
from impl.ranges.stages import Pattern, cast, load
from impl.rewrite import simplifier


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
    `first_loop`. `patterns` and `reshaped` are those of all stages: loops have the same names in
    each, so that what was found for one of them is known for the others.
    """

    def __init__(self, storage_of: Callable[[UOp], tuple[int, Shape] | None],
                 patterns: dict[tuple[Any, ...], Pattern] | None = None,
                 reshaped: dict[tuple[Any, ...], tuple[Index, UOp]] | None = None,
                 first_loop: int = 1 << 10) -> None:
        self.storage_of = storage_of
        self.patterns = {} if patterns is None else patterns
        self.reshaped = {} if reshaped is None else reshaped
        self.slots: dict[int, int] = {}  # value -> its slot
        self.reads: list[tuple[int, Pattern]] = []
        self.loads: dict[tuple[Any, ...], UOp] = {}
        self.first_loop, self.reduced = first_loop, list[UOp]()
        self.regions: dict[tuple[Index, UOp], _Region] = {}
        self.operations = 0
        self.simple = simplifier()

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
                if need not in where.done:  # r[impl ranges.stage.lean]
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
            pattern = self.pattern(shape, region.index, region.valid)
            known = self.loads[key] = load(node.dtype, slot, pattern, len(self.reads))
            self.reads.append((slot, pattern))
        return known

    def pattern(self, shape: Shape, index: Index, valid: UOp = TRUE) -> Pattern:
        """How a nest walks over a value; one object for all nests that do it alike."""
        key = shape, index, valid
        known = self.patterns.get(key)
        if known is None:
            known = self.patterns[key] = Pattern(shape, index, valid)
        return known

    def _needs(self, node: UOp, region: _Region) -> list[Place]:
        """The sources of a node, each with the index at which it is needed."""
        op = node.op
        if op in ELEMENTWISE:
            return [(s, region if s.shape else self._scalar(region)) for s in node.src]
        if op is Ops.RESHAPE or Ops.EXPAND <= op <= Ops.UNFOLD:
            moved, inside = self._source_index(node, region.index)
            if op is Ops.RESHAPE and region.valid is not TRUE:
                moved = tuple(_read_inside(at, region.valid) for at in moved)
            return self._elsewhere(node, region, moved, inside)
        if op is Ops.REDUCE:
            return [(node.src[0], self._region(self._reduce_index(node, region), region.valid))]
        if op is Ops.FOLD:
            moved, inside = self._fold_index(node, region)
            return self._elsewhere(node, region, moved, inside)
        if op is Ops.COPY and not isinstance(node.arg, str):
            return [(node.src[0], self._region(self._transfer_index(node, region), region.valid))]
        if op in (Ops.CONTIGUOUS, Ops.COPY):
            return [(node.src[0], region)]
        return []

    def _source_index(self, node: UOp, index: Index) -> tuple[Index, UOp]:
        """`source_index`; of a reshape it is found once for all nests that have the same one."""
        if node.op is not Ops.RESHAPE:
            return source_index(node, index)
        key = index, node.shape, node.src[0].shape
        known = self.reshaped.get(key)
        if known is None:
            known = self.reshaped[key] = source_index(node, index)
        return known

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
        picked = self.as_index(selector[1].done[selector[0]])
        inside = symbolic.logical_and(region.valid, names_row(node, picked))
        return [selector, (node.src[0], self._region((picked, *index[rank:]), inside))]

    def _reduce_index(self, node: UOp, region: _Region) -> Index:
        """The index of a reduction's source: its reduced axes get ranges of their own."""
        axes, shape = node.arg[1], node.src[0].shape
        assert shape is not None
        if node not in region.loops:  # r[impl ranges.reduce.own+2]
            region.loops[node] = tuple(self.loop(shape[a]) for a in axes if shape[a] != 1)
        loops = iter(region.loops[node])
        return tuple((next(loops) if size != 1 else ZERO) if axis in axes else region.index[axis]
                     for axis, size in enumerate(shape))

    def loop(self, size: int) -> UOp:
        """A new loop of a reduction."""
        number = self.first_loop + len(self.reduced)
        self.reduced.append(new_range(size, RangeKind.REDUCE, number))
        return self.reduced[-1]

    def _transfer_index(self, node: UOp, region: _Region) -> Index:
        """The index of what a device sends or receives: the elements that it touches, all told.

        The devices carry a transfer out themselves. Its nest only says which memory it touches.
        """
        given, made = len(node.src[0].shape or ()), len(node.shape or ())
        if given < made:
            return region.index[1:]
        if given == made:
            return region.index
        if node not in region.loops:
            assert node.src[0].shape is not None
            region.loops[node] = (self.loop(node.src[0].shape[0]),)
        return region.loops[node] + region.index

    def _fold_index(self, node: UOp, region: _Region) -> tuple[Index, UOp]:
        """Where the windows that cover one element are, and whether the tap hits one."""
        index, (axis, _, step, dilation) = region.index, node.arg
        assert node.src[0].shape is not None
        count, taps = node.src[0].shape[axis:axis + 2]
        if node not in region.loops:
            region.loops[node] = () if taps == 1 else (self.loop(taps),)
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
            self.simple.line = node.origin
            # r[impl ranges.stage.lean]
            made = self.simple.made(UOp(op, node.dtype, tuple(sources)))
            self.operations += made.op is not Ops.CONST and made not in sources
            return made
        if op is Ops.CONST:
            return node
        if op is Ops.PAD:  # r[impl ranges.outside.zero]
            return self._where(source_index(node, region.index)[1], sources[0])
        if op is Ops.REDUCE:
            return self._reduce(node.arg[0], sources[0], region.loops[node])
        if op is Ops.COPY and node in region.loops:
            return self._reduce(node.arg.op or Ops.ADD, sources[0], region.loops[node])
        if op is Ops.FOLD:  # r[impl ranges.order.combined+2]
            value = self._where(self._fold_index(node, region)[1], sources[0])
            return self._reduce(Ops.ADD, value, region.loops[node])
        if op is Ops.IOTA:
            return self.simple.made(cast(region.index[0], node.dtype))
        if op is Ops.BIND:
            return node.src[0]
        if op is Ops.GATHER:  # r[impl ranges.outside.zero]
            return self._where(names_row(node, self.as_index(sources[0])), sources[1])
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

    def as_index(self, value: UOp) -> UOp:
        """A value that chooses a row."""
        return self.simple.made(cast(value, dtypes.index))

    def _where(self, condition: UOp, value: UOp) -> UOp:
        """The value, and 0 where a condition does not hold."""
        if condition is TRUE:
            return value
        zero = UOp.const(value.dtype, 0)
        return self.simple.made(UOp(Ops.WHERE, value.dtype, (condition, value, zero)))


def names_row(node: UOp, picked: UOp) -> UOp:
    """Whether a GATHER's index names a row; where it does not, the value is 0."""
    assert node.src[0].shape is not None
    return symbolic.logical_and(symbolic.less_equal(0, picked),
                                symbolic.less_than(picked, node.src[0].shape[0]))


def _read_inside(at: UOp, valid: UOp) -> UOp:
    """A place that is read under a condition: what it would be elsewhere does not matter."""
    # r[impl ranges.access.inside]
    divided = any(part.op in (Ops.FLOORDIV, Ops.FLOORMOD) for part in at.toposort())
    return symbolic.assuming(at, valid) if divided else at
