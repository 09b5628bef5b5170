"""Prints a lowered kernel in a dialect. Chapter: spec/render.md."""
from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from impl import symbolic
from impl.dtypes import DType, Scalar, dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp, identity
from impl.kernel.analysis import PRODUCTS, Way, exchanged
from impl.kernel.fragments import Unit
from impl.kernel.private import keep_private
from impl.render.groups import place_waits
from impl.render.lower import (
    Access,
    Begin,
    Block,
    Define,
    Fetch,
    Finish,
    Leave,
    Loop,
    Lowered,
    Step,
    Wait,
    Write,
    lower,
)
from impl.render.matrices import Matrices, Taken
from impl.render.phases import cut_phases
from impl.render.types import HALF
from impl.render.vectors import Operand
from impl.render.wide import wide_accesses


# --8<-- [start:source]
@dataclass(frozen=True)
class Source:
    """A kernel's text: `body` is the function without its name, `definitions` what it needs."""

    name: str
    body: str
    definitions: tuple[str, ...]
    signature: str
    threads: int = 1              # how many chunks run at the same time, or lanes in all groups
    lanes: int = 1                # lanes of a group
    parameters: tuple[int, ...] = ()  # the argument of each pointer, where they are parameters
    phases: tuple[bool, ...] = ()  # one after another; True: all chunks, False: one call
    scratch: int = 0              # bytes that the chunks of one run share

    @property
    def prelude(self) -> str:
        """The definitions that the body refers to, each after those that it needs."""
        return "".join(definition + "\n" for definition in self.definitions)

    @property
    def text(self) -> str:
        """The complete text of a compilation unit with this kernel alone."""
        return f"{self.prelude}\n{self.signature.format(name=self.name)} {self.body}"
# --8<-- [end:source]


# --8<-- [start:dialect]
class Dialect(Protocol):
    """How a language writes a kernel. One class per language; the printer does the rest."""

    name: str
    widest_inline: int    # longest expression that gets no variable of its own

    @property
    def groups(self) -> GroupDialect | None:
        """What it has for devices with work-groups, if it is for them."""

    @property
    def signature(self) -> str:
        """The head of a kernel, with {name}."""

    @property
    def threaded(self) -> str:
        """The head of a kernel that threads run."""

    def begin(self) -> None:
        """Forget the declarations that the last kernel needed."""

    def definitions(self) -> tuple[str, ...]:
        """The declarations that the printed kernel needs, in an order that depends on it alone."""

    def type_of(self, dtype: DType) -> str:
        """The type of a variable with a value of this dtype."""

    def vector_type(self, kind: str) -> str:
        """The type of a variable that holds a vector of a kind."""

    def vector_operation(self, node: UOp, count: int, given: Sequence[Operand], plain: bool,
                         narrow: bool) -> Operand:
        """An operation on vectors and numbers; `narrow`: indices have 32 bits at most."""

    def vector_combine(self, op: Ops, dtype: DType, count: int,
                       given: Sequence[Operand]) -> Operand:
        """One step of a reduction, in the accumulator's precision."""

    def vector_fused(self, dtype: DType, count: int, given: Sequence[Operand]) -> Operand:
        """first * second + third on vectors; the product may stay unrounded."""

    def vector_start(self, dtype: DType, count: int, number: str) -> Operand:
        """The first value of an accumulator."""

    def vector_cast(self, operand: Operand, dtype: DType, kind: str) -> str:
        """A value as an accumulator of a kind holds it."""

    def vector_finish(self, dtype: DType, count: int, operand: Operand) -> Operand:
        """Accumulators rounded to the dtype of their reduction."""

    def vector_fold(self, op: Ops, dtype: DType, operand: Operand) -> str:
        """All elements of a vector combined, in the accumulator's precision."""

    def vector_places(self, count: int) -> Operand:
        """0, 1, 2, ..."""

    def vector_steps(self, count: int, step: int) -> Operand:
        """0, step, 2 * step, ..."""

    def element(self, dtype: DType, operand: Operand, place: int) -> str:
        """One element of a vector, as a number."""

    def literal(self, value: Scalar, dtype: DType) -> str:
        """A number."""

    def operation(self, node: UOp, given: Sequence[str], plain: bool) -> str:
        """An operation on values; `plain`: no operand is negative and no divisor is 0."""

    def combine(self, op: Ops, dtype: DType, first: str, second: str) -> str:
        """One step of a reduction, in the accumulator's precision."""

    def fused(self, dtype: DType, first: str, second: str, third: str) -> str:
        """first * second + third; the product may stay unrounded."""

    def dot(self, first: str, second: str, third: str) -> str:
        """Products of four bytes added to a sum."""

    def vector_dot(self, count: int, given: Sequence[Operand]) -> Operand:
        """The same on vectors: the factors and the sum."""

    def finish(self, dtype: DType, value: str) -> str:
        """An accumulator rounded to the dtype of its reduction."""

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """Declare a pointer argument."""

    def variable(self, name: str, position: int) -> str:
        """Declare a run-time integer; `position` counts pointers and variables together."""

    def local(self, name: str, dtype: DType, size: int, total: int) -> str:
        """Declare a stage buffer; `total` are the bytes of all of them."""

    def own_scratch(self, total: int) -> int:
        """So many bytes of scratch memory each thread needs for `total` bytes of stage buffers."""

    def shared(self, name: str, dtype: DType, offset: int) -> str:
        """Declare a stage buffer that all threads see, at a byte of the scratch memory."""

    def share(self, name: str, extent: str, threads: int) -> list[str]:
        """The lines that open a loop over this thread's part of the iterations."""

    def phase(self, number: int, over: bool, last: str = "") -> str:
        """Open what is done in one phase only; or, if `over`, do the last and leave it."""

    def load(self, pointer: str, index: str, dtype: DType) -> str:
        """The value in memory."""

    def vector_load(self, pointer: str, index: str, dtype: DType, count: int) -> Operand:
        """Neighbouring values in memory."""

    def vector_masked(self, pointer: str, index: str, dtype: DType, count: int,
                      mask: Operand) -> Operand:
        """Those where a mask is true, and zero elsewhere."""

    def vector_turned(self, name: str, pointer: str, indices: Sequence[str], dtype: DType,
                      conditions: Sequence[str]) -> tuple[list[str], list[Operand]]:
        """Neighbouring values at as many places, transposed: the lines that load them to an
        array of that name, and its vectors. Where a condition is false, zero is in their place.
        """

    def vector_gather(self, pointer: str, index: Operand, dtype: DType, count: int,
                      mask: Operand | None) -> Operand:
        """Values at a vector of places."""

    def store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """A statement that writes a value to memory."""

    def vector_gated(self, condition: str, found: Operand, dtype: DType,
                     nothing: str) -> Operand:
        """A load, or a number if a condition is false for all elements."""

    def vector_store(self, pointer: str, index: str, dtype: DType, count: int, value: Operand,
                     mask: Operand | None, stream: bool) -> str:
        """A statement that writes neighbouring values; `stream`: past the caches."""

    def vector_store_turned(self, name: str, pointer: str, indices: Sequence[str], dtype: DType,
                            values: Sequence[Operand], stream: bool) -> list[str]:
        """The lines that write a square of values, transposed in an array of that name, to
        neighbouring elements at as many places.
        """

    def vector_scatter(self, pointer: str, index: str, step: Operand | int, dtype: DType,
                       count: int, value: Operand, mask: Operand | None) -> str:
        """A statement that writes values to index + step * place, or index + step."""

    def fetch(self, pointer: str, index: str) -> str:
        """A statement that asks for memory that will be written, or nothing."""

    def fence(self) -> str:
        """A statement after which what was stored past the caches is in memory."""

    def loop(self, name: str, extent: str) -> list[str]:
        """The lines that open a loop."""
# --8<-- [end:dialect]


# --8<-- [start:groups]
class GroupDialect(Protocol):
    """How a language for work-groups writes what only they have."""

    parameters: list[int]  # the arguments that the pointers of the signature stand for
    lanes: int             # of a group, once a kernel is begun
    index: str             # the type of its indices

    def ids(self, variables: int) -> str:
        """Declare `group`, `lane`, and among all groups `thread` of `threads`, if there are any.

        `variables` are the run-time integers, which come before the phase.
        """

    def storage_of(self, dtype: DType) -> str:
        """The type of an element in memory."""

    def group_local(self, name: str, dtype: DType, size: int) -> str:
        """Declare a stage buffer that the lanes of a group share."""

    def of_prefix(self, name: str, place: Launched) -> list[str]:
        """The lines that open a loop of the prefix, of which this group or lane has one iteration.
        """

    def of_lanes(self, name: str, place: Launched, threads: bool) -> list[str]:
        """The lines that open a loop of a stage whose iterations lanes share: those of a group,
        or, if `threads`, those of all groups.
        """

    widest: int            # elements that one access can move

    def aligned(self, pointer: str) -> str:
        """Declare what tells whether wide accesses by way of a pointer are aligned, if they must
        be.
        """

    def wide_load(self, name: str, pointer: str, index: str, dtype: DType, count: int,
                  local: bool, condition: str) -> list[str]:
        """Declare neighbouring elements; zeros unless a condition holds, if there is one."""

    def wide_element(self, name: str, place: int, dtype: DType, copied: bool) -> str:
        """One of them, as the type that is computed with."""

    def wide_store(self, pointer: str, index: str, dtype: DType, values: Sequence[str],
                   local: bool, copied: bool) -> str:
        """A statement that writes neighbouring elements."""

    def unroll(self) -> str:
        """A line before a loop that is to be written out, all of it."""

    def of_warp(self, name: str, extent: str) -> list[str]:
        """The lines that open a loop of which each lane of a warp has one iteration."""

    def exchange(self, value: str, dtype: DType, distance: int) -> str:
        """The value of a variable in the lane of the warp whose number differs in one bit."""

    def first(self, width: int) -> str:
        """What stands before a statement that the first of `width` lanes runs."""

    def alone(self) -> str:
        """Open what one lane of a group does."""

    def wait(self) -> str:
        """A statement at which the lanes of a group wait for each other."""

    def lead(self, taken: Taken) -> str:
        """What to add to the place of a lane's first element, if somebody else's is wanted."""

    def take(self, taken: Taken, names: Sequence[str], place: str) -> list[str]:
        """The lines that declare the registers of a fragment, whose first element lies there."""

    def multiply(self, unit: Unit, sums: Sequence[str], first: Sequence[str],
                 second: Sequence[str]) -> str:
        """A statement that adds a product of two fragments to the sums of a lane."""
# --8<-- [end:groups]


@dataclass(frozen=True)
class Launched:
    """Where a loop stands among those that are counted together: their extents, and its place."""

    extents: tuple[str, ...]
    place: int
    lanes: int                    # of a group
    first: str = ""               # the name of the outermost of them
    shared: tuple[str, ...] = ()  # of the prefix: the extents of the loops that lanes share,
    whole: tuple[str, ...] = ()   # and of the others


Texts = list[str]
_Text = TypeVar("_Text", str, Operand)
#: Bytes of a line of memory.
_LINE = 64
#: Indices below this in size have 32 bits.
_NARROW = 1 << 31
#: Lanes count their iterations in steps of at most so many.
_MOST_STEP = 1 << 24


def identifier(name: str) -> str:
    """A name that every C-like language accepts."""
    # r[impl render.name.plain]
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain and not plain[0].isdigit() else f"k_{plain}"


def _room(buffer: UOp) -> int:
    """The bytes of a stage buffer, such that the next one begins at a cache line."""
    return int(-(-buffer.arg[1] * buffer.dtype.itemsize // 64) * 64)


def render(ast: UOp, dialect: Dialect) -> Source:
    """The text of a kernel. Equal kernels give equal text.

    Raises:
        GraphError: the graph is no kernel.
    """
    # r[impl render.text.deterministic]
    kept: frozenset[UOp] = frozenset()
    if dialect.groups is not None:
        ast, kept = keep_private(ast)
    return _Printer(lower(ast, dialect.groups is None), dialect, kept).run()


class _Printer:
    """Names values in order of appearance and writes one line for each."""

    def __init__(self, low: Lowered, dialect: Dialect, kept: frozenset[UOp]) -> None:
        self.low, self.known, self.dialect = low, low.known, dialect
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[UOp, str] = {}     # loops, pointers, variables
        self.texts: dict[UOp, Texts] = {}   # numbers: one text for each combination of lanes
        self.wholes: dict[UOp, list[Operand]] = {}  # the same for vectors
        self.factors: dict[UOp, tuple[UOp, UOp]] = {}
        self.sums: dict[UOp, list[Operand]] = {}
        self.numbers = itertools.count()    # of values
        self.loops = itertools.count()
        self.places: dict[tuple[tuple[UOp, ...], tuple[UOp, ...]], list[int]] = {}
        self.phases = cut_phases(low)
        self.groups = dialect.groups
        self.shared: frozenset[UOp] = place_waits(low, kept) if self.groups else frozenset()
        self.launched: dict[UOp, Launched] = {}
        self.matrices = Matrices(self)
        self.warps = {loop for node in self.known.order for loop in exchanged(node)}
        self.warp = 1  # how many lanes run an iteration of the stage, to exchange values
        self.unrolled = self._loops_over(kept)
        most = self.groups.widest if self.groups else 1
        private = {n for n in self.known.order if n.op is Ops.LOCAL and n not in self.shared} \
            if not self.phases or self.known.info.prefix else ()
        self.wide = wide_accesses(low, most, private) if most > 1 else {}
        self.scratch = 0

    def _loops_over(self, kept: frozenset[UOp]) -> set[UOp]:
        """The loops that choose an element of an array in registers, which have no addresses."""
        found: set[UOp] = set()
        for node in self.known.order:
            if node.op is Ops.INDEX and node.src[0] in kept:
                found.update(loop for loop in self.known.loops(self.known.free[node.src[1]])
                             if loop.arg[1] in (RangeKind.LOOP, RangeKind.REDUCE))
        return found

    # --8<-- [start:run]
    def run(self) -> Source:
        """Print the whole kernel."""
        self.dialect.begin()
        if self.groups is not None:  # r[impl render.group.size]
            self.groups.lanes = self.known.info.lanes
            self.groups.index = "int" if self._is_small() else "long"
        self._declare()
        stack = [iter(self.low.root.items)]  # r[impl render.depth.unlimited]
        while stack:
            item = next(stack[-1], None)
            if item is None:
                stack.pop()
                if stack:
                    self.indent -= 1
                    self._line("}")
            elif isinstance(item, Loop):
                self._open(item.block)
                stack.append(iter(item.block.items))
            else:
                self._item(item)
        if self._fence():
            self._line(self._fence())
        body = "{\n" + "\n".join(self.lines) + "\n}\n"
        return Source(identifier(self.known.info.name), body, self.dialect.definitions(),
                      self.dialect.threaded if self.phases else self.dialect.signature,
                      self.known.info.threads, self.known.info.lanes,
                      tuple(self.groups.parameters) if self.groups else (),
                      self.phases, self.scratch)
    # --8<-- [end:run]

    def _is_small(self) -> bool:
        """Whether indices, loops and the numbers of lanes have 32 bits, whatever variables are."""
        # r[impl render.index.narrow]
        known = self.known
        indices = [n for n in (*known.order, *self.low.inputs) if n.dtype is dtypes.index]
        shared = [[r for r in store.src[2:] if r.arg[1] in (RangeKind.LANE, RangeKind.THREAD)]
                  for store in known.ast.src]
        counts = [math.prod(max(symbolic.bounds(loop.src[0])[1], 1) for loop in loops)
                  for loops in (known.info.prefix, *shared)]
        return all(map(_is_narrow, indices)) and max(counts) < _NARROW - _MOST_STEP

    def _fence(self) -> str:
        """What went past the caches is in memory before anybody is told that it is."""
        past = any(store.arg is Way.PAST for store in self.known.ast.src)
        return self.dialect.fence() if past else ""

    def _line(self, text: str) -> None:
        if text:
            self.lines.append("  " * self.indent + text)

    def _item(self, item: Define | Begin | Step | Finish | Write | Fetch | Loop | Leave | Wait
              ) -> None:
        if isinstance(item, Define):
            self._define(item.node)
        elif isinstance(item, Begin):
            for node in item.nodes:
                self._begin(node)
        elif isinstance(item, Step):
            for node in item.nodes:
                self._step(node)
        elif isinstance(item, Finish):
            for node in item.nodes:
                self._finish(node)
        elif isinstance(item, Write):
            self._write(item.store)
        elif isinstance(item, Fetch):
            self._fetch(item.store)
        elif isinstance(item, Leave):
            self._line(self.dialect.phase(item.phase, True, self._fence()))
        elif isinstance(item, Wait):
            assert self.groups is not None
            self._line(self.groups.wait())

    def _declare(self) -> None:
        """Pointers, variables and stage buffers, at the top of the function."""
        if self.groups:
            self._line(self.groups.ids(len(self.known.info.variables)))
        params = sorted((n for n in self.known.order if n.op is Ops.PARAM),
                        key=lambda n: (n.arg, n.dtype.rank))
        seen: set[int] = set()
        for param in params:
            name = f"p{param.arg}" + (f"_{param.dtype.name}" if param.arg in seen else "")
            seen.add(param.arg)
            self.names[param] = name
            written = (Ops.PARAM, param.arg) in self.known.stored
            self._line(self.dialect.argument(name, param, written))
            if self.groups and any(index.src[0] is param for index in self.wide):
                self._line(self.groups.aligned(name))
        # r[impl render.argument.order]
        for place, variable in enumerate(self.known.info.variables):
            self.names[variable] = f"n{place}"
            self._line(self.dialect.variable(f"n{place}", self.known.params + place))
        buffers = [n for n in self.known.order if n.op is Ops.LOCAL]
        shared = self.phases and not self.known.info.prefix
        total = sum(map(_room, buffers))
        own = 0 if shared else self.dialect.own_scratch(total)
        if own:
            self.phases = self.phases or (True,)  # one thread has one phase
            self.scratch = own * self.known.info.threads
        for place, buffer in enumerate(buffers):
            self.names[buffer] = f"m{place}"
            if shared:  # r[impl render.phase.scratch]
                self._line(self.dialect.shared(f"m{place}", buffer.dtype, self.scratch))
                self.scratch += _room(buffer)
            elif self.groups and buffer in self.shared:
                self._line(self.groups.group_local(f"m{place}", buffer.dtype, buffer.arg[1]))
            else:
                self._line(self.dialect.local(f"m{place}", buffer.dtype, buffer.arg[1], total))

    def _open(self, block: Block) -> None:
        loop = block.loop
        if loop is None:
            self._line(self.groups.alone() if self.groups and block.alone else
                       self.dialect.phase(block.phase, False))
            self.indent += 1
            return
        name = f"i{next(self.loops)}"
        self.names[loop] = name
        if self.groups and loop in self.unrolled:
            self._line(self.groups.unroll())
        for line in self._opening(block, loop, name):
            self._line(line)
        self.indent += 1

    # --8<-- [start:opening]
    def _opening(self, block: Block, loop: UOp, name: str) -> list[str]:
        """The lines that open a loop: a loop indeed, or what this lane has of its iterations."""
        kind, prefix = loop.arg[1], self.known.info.prefix
        if self.groups is None:
            if kind is RangeKind.THREAD:
                return self.dialect.share(name, self._extent(loop), self.known.info.threads)
            return self.dialect.loop(name, self._extent(loop))
        if loop in prefix:
            if loop is prefix[0]:
                self._launch(prefix)
            return self.groups.of_prefix(name, self.launched[loop])
        if kind is not RangeKind.LANE and kind is not RangeKind.THREAD:
            return self.dialect.loop(name, self._extent(loop))
        if loop in self.warps:
            return self.groups.of_warp(name, self._extent(loop))
        around = block.parent.loop if block.parent is not None else None
        if around is None or around.arg[1] is not kind:  # stages may count them in other orders
            together = [each for each in _counted_together(block) if each not in self.warps]
            extents = tuple(self._extent(each) for each in together)
            self.warp = self._warp_of(block, math.prod(map(int, extents))) \
                if all(map(str.isdecimal, extents)) else 1
            if self.warp > 1:  # each warp has an iteration
                extents = (*extents, str(self.warp))
            for place, each in enumerate(together):
                self.launched[each] = Launched(extents, place, self.known.info.lanes, name)
        return self.groups.of_lanes(name, self.launched[loop], kind is RangeKind.THREAD)

    def _warp_of(self, block: Block, iterations: int) -> int:
        """How many lanes run an iteration of a stage together, because they exchange values."""
        stack = [store.src[1] for store in self.known.ast.src if block.loop in store.src[2:]] \
            if self.warps else []
        while stack:
            node = stack.pop()
            for loop in exchanged(node):
                width = int(self._extent(loop))
                if iterations * width == self.known.info.lanes:
                    return width
            if node.op not in (Ops.LOAD, Ops.REDUCE):
                stack.extend(node.src)
        return 1

    def _launch(self, prefix: tuple[UOp, ...]) -> None:
        """The loops of the prefix are counted by the group; those that lanes share, by the lane."""
        lanes = self.known.info.lanes
        shared = [loop for loop in prefix if loop.arg[1] is RangeKind.LANE]
        whole = [loop for loop in prefix if loop not in shared]
        of_lanes, of_groups = tuple(map(self._extent, shared)), tuple(map(self._extent, whole))
        for loops, extents, index in ((whole, of_groups, "group"), (shared, of_lanes, "item")):
            for place, loop in enumerate(loops):
                self.launched[loop] = Launched(extents, place, lanes, index, of_lanes, of_groups)

    def _extent(self, loop: UOp) -> str:
        return self._text(loop.src[0], (), [()])[0]
    # --8<-- [end:opening]

    # --8<-- [start:lanes]
    def _wide(self, node: UOp) -> tuple[UOp, ...]:
        """The lanes of a value that are written out, one variable each."""
        vector = self.low.vector.get(node)
        return tuple(lane for lane in self.low.lanes(node) if lane is not vector)

    def _combinations(self, lanes: tuple[UOp, ...]) -> list[tuple[int, ...]]:
        return list(itertools.product(*(range(lane.src[0].arg) for lane in lanes)))

    def _text(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]]) -> Texts:
        """A number's text for each combination `at` of the lanes `wide`."""
        count = len(at)
        if node.op is Ops.CONST:
            return [self.dialect.literal(node.arg, node.dtype)] * count
        if node.op is Ops.RANGE and node.arg[1] in (RangeKind.UPCAST, RangeKind.UNROLL):
            place = wide.index(node)
            return [str(values[place]) for values in at]
        if node in self.names:
            return [self.names[node]] * count
        own = self.low.vector.get(node)
        if own is not None:  # one of the lanes that are written out is a vector in this value
            place = wide.index(own)
            return [self.dialect.element(node.dtype, operand, values[place]) for operand, values
                    in zip(self._spread(self.wholes[node], node, wide, at), at, strict=True)]
        return self._spread(self.texts[node], node, wide, at)

    def _spread(self, found: list[_Text], node: UOp, wide: tuple[UOp, ...],
                at: list[tuple[int, ...]]) -> list[_Text]:
        """What is known of a value, each where its combination of lanes occurs in `at`."""
        own = self._wide(node)
        if own and own != wide:
            return [found[i] for i in self._project(own, wide, at)]
        return found * len(at) if not own and len(at) > 1 else found

    def _operands(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                  vector: UOp) -> list[Operand]:
        """Like `_text`, but a vector where the value depends on the lane `vector`."""
        if node is vector:
            return [self.dialect.vector_places(_extent(vector))] * len(at)
        if self.low.vector.get(node) is not vector:
            return [(text, "") for text in self._text(node, wide, at)]
        return self._spread(self.wholes[node], node, wide, at)

    def _project(self, own: tuple[UOp, ...], wide: tuple[UOp, ...],
                 at: list[tuple[int, ...]]) -> list[int]:
        """For each combination of `wide`, the number of the combination of `own` in it."""
        key = (own, wide)  # in their order: a reduction's own lanes come last
        found = self.places.get(key)
        if found is None or len(found) != len(at):
            where = [wide.index(lane) for lane in own]
            sizes = [lane.src[0].arg for lane in own]
            found = []
            for values in at:
                place = 0
                for position, size in zip(where, sizes, strict=True):
                    place = place * size + values[position]
                found.append(place)
            self.places[key] = found
        return found
    # --8<-- [end:lanes]

    # --8<-- [start:define]
    def _define(self, node: UOp) -> None:
        """A variable (one for each combination of lanes) with the value; or remember its text."""
        wide = self._wide(node)
        at = self._combinations(wide)
        vector = self.low.vector.get(node)
        if node.op is Ops.LOAD and self.matrices.is_fragment(node):
            self.matrices.take(node)
        elif node.op is Ops.LOAD:
            self._load(node, wide, at, vector)
        elif node.op is Ops.MMA:
            self.matrices.multiply(node)
        elif node.op is Ops.REDUCE:
            self._reduce_lanes(node, wide, at, vector)
        elif self._is_fused_product(node):
            self.factors[node] = (node.src[0], node.src[1])
        elif vector is not None:
            self._keep(node, self._whole_operation(node, wide, at, vector))
        else:
            plain = node.op in (Ops.FLOORDIV, Ops.FLOORMOD) and _plain(node)
            given = [self._text(source, wide, at) for source in node.src]
            texts = [self.dialect.operation(node, operands, plain)
                     for operands in zip(*given, strict=True)]
            self._keep(node, [(text, "") for text in texts])

    def _whole_operation(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                         vector: UOp) -> list[Operand]:
        """The operation on whole vectors."""
        plain = node.op in (Ops.FLOORDIV, Ops.FLOORMOD) and _plain(node)
        narrow = all(_is_narrow(part) for part in (node, *node.src)
                     if part.dtype is dtypes.index)
        given = [self._operands(source, wide, at, vector) for source in node.src]
        return [self.dialect.vector_operation(node, _extent(vector), operands, plain, narrow)
                for operands in zip(*given, strict=True)]

    def _keep(self, node: UOp, found: list[Operand]) -> None:
        """Remember texts that are short and used once; else declare variables."""
        if node in self.low.inline and len(found[0][0]) <= self.dialect.widest_inline:
            self._remember(node, found)
            return
        self.low.inline.discard(node)
        self._assign(node, node.dtype, found)

    def _assign(self, node: UOp, dtype: DType, found: list[Operand]) -> None:
        """Declare variables with these values, and remember their names."""
        self._declared(node, found, self.dialect.type_of(dtype))

    def _declared(self, node: UOp, found: list[Operand], number: str) -> None:
        """The same, `number` being the type of those that are no vectors."""
        names = self._fresh("v", len(found))
        for name, (text, kind) in zip(names, found, strict=True):
            type_name = self.dialect.vector_type(kind) if kind else number
            self._line(f"const {type_name} {name} = {text};")
        self._remember(node, [(name, kind) for name, (_, kind) in zip(names, found, strict=True)])

    def _remember(self, node: UOp, found: list[Operand]) -> None:
        """These texts are the value from now on."""
        if self.low.vector.get(node) is None:
            self.texts[node] = [text for text, _ in found]
        else:
            self.wholes[node] = found

    def _fresh(self, letter: str, count: int) -> Texts:
        number = next(self.numbers)
        if count == 1:
            return [f"{letter}{number}"]
        return [f"{letter}{number}_{i}" for i in range(count)]
    # --8<-- [end:define]

    def _is_fused_product(self, node: UOp) -> bool:
        """Whether the product goes into nothing but one sum: it is multiplied and added at once."""
        low = self.low
        if node.op not in PRODUCTS or node not in low.inline:
            return False  # r[impl render.reduce.contract]
        user = low.single[node]
        return (user.op is Ops.REDUCE and user.arg is Ops.ADD and bool(user.src[1:])
                and (node.op is Ops.DOT or node.dtype in (dtypes.float32, dtypes.float64))
                and any(loop.arg[1] not in (RangeKind.UPCAST, RangeKind.UNROLL)
                        for loop in user.src[1:]))

    # --8<-- [start:memory]
    def _addresses(self, access: Access, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                   vector: UOp | None) -> list[Operand]:
        """The address for each combination, and its kind if it differs along the vector lane."""
        steps = [(wide.index(lane), step) for lane, step in access.steps.items()
                 if lane is not vector]
        bases = [(text, "") for text in self._text(access.base, wide, at)] if vector is None \
            else self._operands(access.base, wide, at, vector)
        found = []
        for (base, kind), values in zip(bases, at, strict=True):
            offset = sum(step * values[place] for place, step in steps)
            found.append((f"{base} + {offset}" if offset else base, kind))
        return found

    def _load(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
              vector: UOp | None) -> None:
        index = node.src[0]
        valid = index.src[2]
        addresses = self._addresses(self.low.access[index], wide, at, vector)
        if vector is not None and (across := self._across(index, wide, vector)) is not None:
            self._load_turned(node, wide, [text for text, _ in addresses], vector, across)
            return
        if vector is not None:
            guards: list[Operand | None] = [None] * len(at)
            if valid is not TRUE:
                guards = [*self._operands(valid, wide, at, vector)]
            self._assign(node, node.dtype, [
                self._whole_load(node, address, guard, vector)
                for address, guard in zip(addresses, guards, strict=True)])
            return
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        if index in self.wide:
            self._load_wide(node, wide, at, addresses)
            return
        texts, copied = [], self._is_copied(node)
        conditions = self._text(valid, wide, at) if valid is not TRUE else [""] * len(at)
        for (address, _), condition in zip(addresses, conditions, strict=True):
            text = f"{pointer}[{address}]" if copied else self.dialect.load(pointer, address, dtype)
            if condition:  # r[impl kernel.load.gated]
                text = f"({condition} ? {text} : {0 if copied else self._nothing(dtype)})"
            texts.append((text, ""))
        self._read(node, texts)

    def _is_copied(self, value: UOp) -> bool:
        """Whether a number of a half type is loaded and stored again, and nothing else."""
        # r[impl render.half.copied]
        user = self.low.single.get(value)
        return (self.groups is not None and value.op is Ops.LOAD and value.dtype in HALF
                and self.low.users[value] == 1 and user is not None and user.op is Ops.STORE)

    def _across(self, index: UOp, wide: tuple[UOp, ...], vector: UOp) -> UOp | None:
        """The lane along which memory is contiguous, where the vector lane is another one and both
        have as many elements: a square that can be transposed.
        """
        access = self.low.access[index]
        if access.steps.get(vector, 0) in (0, 1) or self.low.vector.get(access.base) is not None:
            return None
        decides = self.known.free[index.src[2]]  # which lines are valid may differ, not what of one
        return next((lane for lane in wide if access.steps.get(lane) == 1
                     and _extent(lane) == _extent(vector)
                     and not decides >> self.known.position[lane] & 1), None)

    def _load_turned(self, node: UOp, wide: tuple[UOp, ...], addresses: Texts, vector: UOp,
                     across: UOp) -> None:
        """Load squares along the lane that is contiguous, and transpose them."""
        # r[impl render.vector.turned]
        index, place, at = node.src[0], wide.index(across), self._combinations(wide)
        step, count = self.low.access[index].steps[vector], _extent(vector)
        number = {values: i for i, values in enumerate(at)}
        found: list[Operand] = [("", "")] * len(at)
        valid = index.src[2]
        guards = self._operands(valid, wide, at, vector) if valid is not TRUE else []
        for values in (each for each in at if each[place] == 0):
            first = addresses[number[values]]
            conditions = self._conditions(guards[number[values]], count) if guards else ()
            lines, turned = self.dialect.vector_turned(
                self._fresh("q", 1)[0], self.names[index.src[0]],
                [f"{first} + {step * line}" for line in range(count)], index.src[0].dtype,
                conditions)
            for line in lines:
                self._line(line)
            for element, operand in enumerate(turned):
                found[number[(*values[:place], element, *values[place + 1:])]] = operand
        self._assign(node, node.dtype, found)

    def _conditions(self, guard: Operand, count: int) -> Texts:
        """The elements of a guard, a mask or one number for all."""
        text, kind = guard
        if not kind:
            return [text] * count
        name = self._fresh("g", 1)[0]
        self._line(f"const {self.dialect.vector_type(kind)} {name} = {text};")
        return [self.dialect.element(dtypes.bool, (name, kind), place) for place in range(count)]

    def _pieces(self, index: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]]
                ) -> list[list[int]]:
        """The combinations whose elements lie side by side, as numbers of `at`."""
        lane, count = self.wide[index]
        place = wide.index(lane)
        found: dict[tuple[int, ...], list[int]] = {}
        for number, values in enumerate(at):
            key = (*values[:place], values[place] // count, *values[place + 1:])
            found.setdefault(key, []).append(number)
        return list(found.values())

    def _load_wide(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                   addresses: list[Operand]) -> None:
        """Load pieces, and then take their elements."""
        index, groups = node.src[0], self.groups
        assert groups is not None
        buffer, valid, copied = index.src[0], index.src[2], self._is_copied(node)
        conditions = self._text(valid, wide, at) if valid is not TRUE else [""] * len(at)
        texts: list[Operand] = [("", "")] * len(at)
        for piece in self._pieces(index, wide, at):
            name = self._fresh("w", 1)[0]
            for line in groups.wide_load(name, self.names[buffer], addresses[piece[0]][0],
                                         buffer.dtype, len(piece), buffer in self.shared,
                                         conditions[piece[0]]):
                self._line(line)
            for place, number in enumerate(piece):
                texts[number] = groups.wide_element(name, place, buffer.dtype, copied), ""
        self._read(node, texts)

    def _read(self, node: UOp, texts: list[Operand]) -> None:
        """Name what was loaded; a number that is only copied keeps the type it has in memory."""
        if self.groups is not None and self._is_copied(node):
            self._declared(node, texts, self.groups.storage_of(node.dtype))
        else:
            self._assign(node, node.dtype, texts)

    def _write_wide(self, store: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                    addresses: list[Operand]) -> None:
        """Store pieces."""
        index, groups = store.src[0], self.groups
        assert groups is not None
        buffer, valid = index.src[0], index.src[2]
        conditions = self._text(valid, wide, at) if valid is not TRUE else [""] * len(at)
        values = self._text(store.src[1], wide, at)
        for piece in self._pieces(index, wide, at):
            guard = f"if ({conditions[piece[0]]}) " if conditions[piece[0]] else ""
            self._line(self._first(store) + guard + groups.wide_store(
                self.names[buffer], addresses[piece[0]][0], buffer.dtype,
                [values[number] for number in piece], buffer in self.shared,
                self._is_copied(store.src[1])))

    def _nothing(self, dtype: DType) -> str:
        return self.dialect.literal(
            dtype.numpy.type(0).item() if dtype.kind != "f" else 0.0, dtype)

    def _whole_load(self, node: UOp, address: Operand, guard: Operand | None,
                    vector: UOp) -> Operand:
        """A load along the vector lane: of neighbours, or of elements that lie anywhere."""
        index, count, dialect = node.src[0], _extent(vector), self.dialect
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        step = self.low.access[index].steps.get(vector, 0)
        (text, kind), uniform = address, guard is not None and not guard[1]
        if kind and step:
            places = dialect.vector_steps(count, step)
            text = f"({text} + {dialect.vector_cast(places, dtypes.index, kind)})"
        mask = guard if not uniform else None
        if step == 1 and not kind:
            found = dialect.vector_load(pointer, text, dtype, count) if mask is None else \
                dialect.vector_masked(pointer, text, dtype, count, mask)
        elif kind:
            found = dialect.vector_gather(pointer, (text, kind), dtype, count, mask)
        else:
            found = dialect.vector_gather(f"({pointer} + {text})",
                                          dialect.vector_steps(count, step), dtype, count, mask)
        if guard is None or not uniform:
            return found
        return dialect.vector_gated(guard[0], found, dtype, self._nothing(dtype))

    def _write(self, store: UOp) -> None:
        index, value = store.src[0], store.src[1]
        lanes, vector = self.low.lanes(store), self.low.vector.get(store)
        wide = tuple(lane for lane in lanes if lane is not vector)
        at = self._combinations(wide)
        addresses = self._addresses(self.low.access[index], wide, at, vector)
        if vector is not None:
            self._write_whole(store, addresses, wide, at, vector)
            return
        if index in self.wide:
            self._write_wide(store, wide, at, addresses)
            return
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        conditions = self._text(index.src[2], wide, at)
        values = self._text(value, wide, at)
        for (address, _), text, condition in zip(addresses, values, conditions, strict=True):
            # r[impl kernel.store.gated]
            guard = f"if ({condition}) " if index.src[2] is not TRUE else ""
            line = f"{pointer}[{address}] = {text};" if self._is_copied(value) \
                else self.dialect.store(pointer, address, dtype, text)
            self._line(self._first(store) + guard + line)

    def _fetch(self, store: UOp) -> None:
        """Ask for each line of memory that a store will write in one iteration of its loops."""
        # r[impl render.fetch.before]
        index, vector = store.src[0], self.low.vector.get(store)
        base = self.low.access[index].base
        if index.src[0].op is not Ops.PARAM or self.low.vector.get(base) is not None:
            return
        lanes = tuple(lane for lane in self.low.lanes(store) if lane is not vector)
        at, steps = self._combinations(lanes), self.low.access[index].steps
        bases = self._text(base, lanes, at)
        line = max(_LINE // index.src[0].dtype.itemsize, 1)
        last = steps.get(vector, 0) * (_extent(vector) - 1) if vector is not None else 0
        within = [*range(0, last, line), last]
        places: dict[str, set[int]] = {}
        for text, values in zip(bases, at, strict=True):
            first = sum(steps.get(lane, 0) * each for lane, each in zip(lanes, values, strict=True))
            places.setdefault(text, set()).update(first + each for each in within)
        for text, found in places.items():
            for place in _apart(sorted(found), line):
                self._line(self.dialect.fetch(self.names[index.src[0]], f"{text} + {place}"))

    def _first(self, store: UOp) -> str:
        """What lets the first lane of a warp store alone, where all of them run an iteration."""
        # r[impl render.wait.alone]
        lanes = [loop for loop in store.src[2:] if loop.arg[1] is RangeKind.LANE]
        return self.groups.first(self.warp) if self.groups and lanes and self.warp > 1 else ""

    def _write_whole(self, store: UOp, addresses: list[Operand], wide: tuple[UOp, ...],
                     at: list[tuple[int, ...]], vector: UOp) -> None:
        """A store along the vector lane."""
        index, count, dialect = store.src[0], _extent(vector), self.dialect
        pointer, dtype = self.names[index.src[0]], index.src[0].dtype
        step = self.low.access[index].steps.get(vector, 0)
        guards: list[Operand] = [("", "")] * len(at)
        if index.src[2] is not TRUE:
            guards = self._operands(index.src[2], wide, at, vector)
        values = self._operands(store.src[1], wide, at, vector)
        across = self._across(index, wide, vector) if index.src[2] is TRUE else None
        if across is not None:
            self._write_turned(store, [text for text, _ in addresses], values, wide, across)
            return
        for (address, kind), value, guard in zip(addresses, values, guards, strict=True):
            mask = guard if guard[1] else None
            if step == 1 and not kind:
                line = dialect.vector_store(pointer, address, dtype, count, value, mask,
                                            store.arg is Way.PAST)
            elif kind:
                places = dialect.vector_steps(count, step) if step else None
                where = f"({address} + {dialect.vector_cast(places, dtypes.index, kind)})" \
                    if places is not None else address
                line = dialect.vector_scatter(pointer, "0", (where, kind), dtype, count, value,
                                              mask)
            else:
                line = dialect.vector_scatter(pointer, address, step, dtype, count, value, mask)
            # r[impl kernel.store.gated]
            self._line((f"if ({guard[0]}) " if guard[0] and mask is None else "") + line)
    def _write_turned(self, store: UOp, addresses: Texts, values: list[Operand],
                      wide: tuple[UOp, ...], across: UOp) -> None:
        """Transpose squares, and store them along the lane that is contiguous."""
        # r[impl render.vector.turned]
        index, place, vector = store.src[0], wide.index(across), self.low.vector[store]
        step, count = self.low.access[index].steps[vector], _extent(vector)
        squares: dict[tuple[int, ...], list[int]] = {}
        for number, combination in enumerate(self._combinations(wide)):
            rest = combination[:place] + combination[place + 1:]
            squares.setdefault(rest, []).append(number)
        for numbers in squares.values():
            indices = [f"{addresses[numbers[0]]} + {step * line}" for line in range(count)]
            for line in self.dialect.vector_store_turned(
                    self._fresh("q", 1)[0], self.names[index.src[0]], indices, index.src[0].dtype,
                    [values[number] for number in numbers], store.arg is Way.PAST):
                self._line(line)
    # --8<-- [end:memory]

    # --8<-- [start:reduce]
    def _begin(self, node: UOp) -> None:
        """Accumulators, one for each combination of the reduction's own lanes."""
        dtype, vector = _accumulator(node.dtype), self.low.vector.get(node)
        names = self._fresh("a", len(self._combinations(self._wide(node))))
        start = self.dialect.literal(identity(node.arg, node.dtype), dtype)
        kind = ""
        if vector is not None:
            start, kind = self.dialect.vector_start(dtype, _extent(vector), start)
        type_name = self.dialect.vector_type(kind) if kind else self.dialect.type_of(dtype)
        self.sums[node] = [(name, kind) for name in names]
        for name in names:
            self._line(f"{type_name} {name} = {start};")

    def _step(self, node: UOp) -> None:
        """Take in the elements of one iteration, in increasing order of the reduced lanes."""
        value = node.src[0]
        dtype, vector = _accumulator(node.dtype), self.low.vector.get(node)
        kept = self._wide(node)
        inner = tuple(r for r in node.src[1:]
                      if r.arg[1] in (RangeKind.UPCAST, RangeKind.UNROLL))
        wide = kept + inner
        inside = self._combinations(inner)
        at = [a + b for a in self._combinations(kept) for b in inside]
        sums = [operand for operand in self.sums[node] for _ in inside]
        parts = self.factors.get(value, (value,))
        if vector is None:
            given = [self._text(part, wide, at) for part in parts]
            for (name, _), *texts in zip(sums, *given, strict=True):
                text = self.dialect.combine(node.arg, dtype, texts[0], name) \
                    if len(texts) == 1 else self.dialect.dot(texts[0], texts[1], name) \
                    if value.op is Ops.DOT else self.dialect.fused(dtype, texts[0], texts[1], name)
                self._line(f"{name} = {text};")
            return
        wholes = [self._operands(part, wide, at, vector) for part in parts]
        lines: dict[str, list[str]] = {}
        for target, *operands in zip(sums, *wholes, strict=True):
            found = self._whole_step(node.arg, dtype, _extent(vector), operands, target)
            # What shares a number stands together: no tile leaves registers for all of them.
            number = next((text for text, kind in operands if not kind), "") if not inner else ""
            lines.setdefault(number, []).append(
                f"{target[0]} = {self.dialect.vector_cast(found, dtype, target[1])};")
        for line in itertools.chain.from_iterable(lines.values()):
            self._line(line)

    def _whole_step(self, op: Ops, dtype: DType, count: int, operands: Sequence[Operand],
                    target: Operand) -> Operand:
        """One combination of vectors, or a product added at once."""
        if len(operands) == 2 and dtype is dtypes.int32:
            return self.dialect.vector_dot(count, (*operands, target))
        if len(operands) == 2:
            return self.dialect.vector_fused(dtype, count, (*operands, target))
        return self.dialect.vector_combine(op, dtype, count, (*operands, target))

    def _finish(self, node: UOp) -> None:
        """The accumulators become the values, rounded if they were wider."""
        dtype, vector = node.dtype, self.low.vector.get(node)
        for loop in exchanged(node):
            self._exchange(node, int(self._extent(loop)))
        if _accumulator(dtype) is dtype:
            self._remember(node, self.sums[node])
        elif vector is None:
            self._assign(node, dtype, [(self.dialect.finish(dtype, name), "")
                                       for name, _ in self.sums[node]])
        else:
            self._assign(node, dtype, [self.dialect.vector_finish(dtype, _extent(vector), operand)
                                       for operand in self.sums[node]])

    def _exchange(self, node: UOp, width: int) -> None:
        """Each lane of a warp combines what it has with what another lane has, more and more."""
        # r[impl render.exchange.order]
        assert self.groups is not None
        dtype, distance = _accumulator(node.dtype), width // 2
        while distance:
            for name, _ in self.sums[node]:
                other = self._fresh("t", 1)[0]  # a macro may name it twice
                self._line(f"const {self.dialect.type_of(dtype)} {other} = "
                           f"{self.groups.exchange(name, dtype, distance)};")
                self._line(f"{name} = {self.dialect.combine(node.arg, dtype, name, other)};")
            distance //= 2

    def _reduce_lanes(self, node: UOp, wide: tuple[UOp, ...], at: list[tuple[int, ...]],
                      vector: UOp | None) -> None:
        """A reduction over lanes alone: a tree of operations, no loop."""
        dtype, inner = _accumulator(node.dtype), node.src[1:]
        # A vector lane that is reduced comes last: vectors are combined, then their elements.
        folded = self.low.vector.get(node.src[0])
        if folded not in inner:
            folded = None
        rest = tuple(lane for lane in inner if lane is not folded)
        lanes = wide + rest
        inside = self._combinations(rest)
        both = [a + b for a in at for b in inside]
        along = vector if folded is None else folded
        elements = self._operands(node.src[0], lanes, both, along) if along is not None \
            else [(text, "") for text in self._text(node.src[0], lanes, both)]
        found = []
        for start in range(0, len(elements), len(inside)):
            parts = elements[start:start + len(inside)]
            while len(parts) > 1:
                half = len(parts) // 2
                rest_of = parts[2 * half:]
                parts = [self._pair(node.arg, dtype, pair, along)
                         for pair in zip(parts[:half], parts[half:2 * half], strict=True)] + rest_of
            found.append(self._folded(node, parts[0], folded, vector))
        self._assign(node, node.dtype, found)

    def _folded(self, node: UOp, operand: Operand, folded: UOp | None,
                vector: UOp | None) -> Operand:
        """One result: a vector's elements combined if that is asked for, and rounded."""
        if folded is not None:
            text = self.dialect.vector_fold(node.arg, _accumulator(node.dtype), operand)
            return self.dialect.finish(node.dtype, text), ""
        if vector is not None:
            return self.dialect.vector_finish(node.dtype, _extent(vector), operand)
        return self.dialect.finish(node.dtype, operand[0]), ""

    def _pair(self, op: Ops, dtype: DType, pair: tuple[Operand, Operand],
              along: UOp | None) -> Operand:
        """Combine two partial results in a variable."""
        name = self._fresh("t", 1)[0]
        if along is None:
            text, kind = self.dialect.combine(op, dtype, pair[0][0], pair[1][0]), ""
        else:
            text, kind = self.dialect.vector_combine(op, dtype, _extent(along), pair)
        type_name = self.dialect.vector_type(kind) if kind else self.dialect.type_of(dtype)
        self._line(f"const {type_name} {name} = {text};")
        return name, kind
    # --8<-- [end:reduce]


def _counted_together(block: Block) -> list[UOp]:
    """The loop of a block and those of its kind right inside of it: lanes count them as one."""
    assert block.loop is not None
    found, kind = [block.loop], block.loop.arg[1]
    inner: Block | None = block
    while inner is not None:
        inner = next((item.block for item in inner.items if isinstance(item, Loop)
                      and item.block.loop is not None and item.block.loop.arg[1] is kind), None)
        if inner is not None and inner.loop is not None:
            found.append(inner.loop)
    return found


def _extent(vector: UOp) -> int:
    """The number of elements of a vector lane."""
    size: int = vector.src[0].arg
    return size


def _apart(places: Sequence[int], line: int) -> list[int]:
    """Of some places in order, so many that none is a line away from those before it, or the last
    of a row: memory need not begin where a line does.
    """
    found: list[int] = []
    for place, after in itertools.zip_longest(places, places[1:]):
        ends = after is None or after - place > line
        if not found or place - found[-1] >= line or ends and place != found[-1]:
            found.append(place)
    return found


def _is_narrow(node: UOp) -> bool:
    """Whether an index has 32 bits at most, whatever the loops and variables are."""
    least, most = symbolic.bounds(node)
    return -_NARROW <= least and most < _NARROW


def _plain(node: UOp) -> bool:
    """Whether a quotient or remainder is C's: nothing negative, no zero divisor."""
    return symbolic.bounds(node.src[0])[0] >= 0 and symbolic.bounds(node.src[1])[0] > 0


def _accumulator(dtype: DType) -> DType:
    """Half types are accumulated in float32 and rounded once."""
    # r[impl kernel.reduce.half]
    return dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else dtype
