"""Stages: loop nests, what they read and where they write. Chapter: spec/ranges.md."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from impl import symbolic
from impl.dtypes import DType
from impl.ir import TRUE, Ops, Shape, UOp, toposort
from impl.loops import LoopInfo
from impl.multi import Transfer
from impl.places import Place
from impl.ranges.indices import ZERO, Index, flatten, source_index
from impl.symbolic import extent


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
    numbers: tuple[int, ...] | None = None  # of the reads, where not all were needed in the end

    @cached_property
    def order(self) -> list[UOp]:
        """The nodes of the value and of where it is stored, sources first, without `loops`."""
        roots: tuple[UOp, ...] = (self.value, self.write.flat)
        more = self.in_order
        if more is not None:
            roots += (more.value, more.before.flat, more.before.valid, more.target.flat,
                      more.target.valid, more.key)
        return toposort(roots, seen=set(self.loops))

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


@dataclass(frozen=True, eq=False)
class OwnKernel:
    """A kernel that the user has written, in place of a loop nest.

    `values` are the values behind the PARAMs of its SINK; `more` what it stores besides the value
    of its stage, each with the value that stood there before, if one did.
    """

    ast: UOp
    values: tuple[int, ...]
    more: tuple[tuple[Access, int | None], ...]


@dataclass(frozen=True)
class LoopTask:
    """A LOOP in a schedule, and what it works on.

    `on` are its sources: in a stage the values by their numbers, in a kernel the places of its
    arguments, where the result is the last and -1 is what has no elements.
    """

    info: LoopInfo
    on: tuple[int, ...]

    def __str__(self) -> str:
        return str(self.info)


#: What the runtime does itself, where no program does it: it copies to a place, sends between the
#: devices of a mesh, or runs a loop.
Task = Place | Transfer | LoopTask


@dataclass(frozen=True, eq=False, init=False)
class Stage:
    """One loop nest that stores one value: a form, and the values behind its slots."""

    number: int
    node: UOp
    form: Form
    slots: tuple[int, ...]
    write: Access
    reason: str = ""
    task: Task | None = None       # what is done in place of the nest
    overwrites: int | None = None  # the value whose memory it would like to write into
    whole: bool = True             # it writes every element of that memory
    given: OwnKernel | None = None     # of a kernel of the user: what it is
    reads: list[Access] = field(init=False)   # what it loads
    writes: list[Access] = field(init=False)  # what it stores: one value, or what a kernel of
                                              # the user stores
    loops: list[UOp] = field(init=False)      # the output ranges, outermost first
    alone: bool = field(init=False)           # whether it is a kernel of its own

    def __init__(self, number: int, node: UOp, form: Form, slots: tuple[int, ...], write: Access,
                 reason: str = "", task: Task | None = None, overwrites: int | None = None,
                 whole: bool = True, given: OwnKernel | None = None) -> None:
        # In one step: what is frozen gets its fields one by one otherwise, each by a call.
        self.__dict__.update(
            number=number, node=node, form=form, slots=slots, write=write, reason=reason,
            task=task, overwrites=overwrites, whole=whole, given=given, loops=form.loops,
            alone=task is not None or form.in_order is not None or given is not None,
            reads=[Access(slots[slot], pattern) for slot, pattern in form.reads],
            writes=[write] if given is None else [write, *[access for access, _ in given.more]])

    def read(self, number: int) -> Access:
        """The read that is the argument of an INDEX."""
        numbers = self.form.numbers
        return self.reads[number if numbers is None else numbers.index(number)]

    @property
    def replaced(self) -> list[tuple[int, int]]:
        """The values that it stores into the memory of others, each with that other one."""
        more = self.given.more if self.given is not None else ()
        pairs = [(self.write.value, self.overwrites), *((a.value, old) for a, old in more)]
        return [(new, old) for new, old in pairs if old is not None]


def without_dead_reads(form: Form) -> Form:
    """The same, without the reads and loops that a simplification made idle."""
    # r[impl ranges.stage.lean]
    nodes = set(form.order)
    numbers = tuple(sorted(n.arg for n in nodes if n.op is Ops.INDEX))
    if len(numbers) == len(form.reads):
        return form
    return replace(form, reads=[form.reads[number] for number in numbers], numbers=numbers,
                   reduced=[loop for loop in form.reduced if loop in nodes])


def load(dtype: DType, slot: int, pattern: Pattern, number: int = 0) -> UOp:
    """The `number`-th read of a nest, of the value behind a slot."""
    pointer = UOp(Ops.PARAM, dtype, (), slot)
    place = UOp(Ops.INDEX, dtype, (pointer, pattern.flat, pattern.valid), number)
    return UOp(Ops.LOAD, dtype, (place,))


def cast(value: UOp, dtype: DType) -> UOp:
    """A conversion, unless the value has that type already."""
    return value if value.dtype is dtype else UOp(Ops.CAST, dtype, (value,))


def write_pattern(view: UOp, base: UOp, index: Index) -> Pattern:
    """Where a view write puts the element `index` of the view, as an index into its base."""
    while view is not base:
        index, _ = source_index(view, index)  # r[impl effects.view-write.region]
        view = view.src[0]
    assert base.shape is not None
    return Pattern(base.shape, index)


@dataclass
class Value:
    """Something that has storage: a leaf, or a node that was given a stage."""

    number: int
    node: UOp
    device: Place
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
