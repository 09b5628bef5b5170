"""What a language has to say for a kernel to be printed in it. Chapter: spec/render.md."""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from impl.dtypes import DType, Scalar
from impl.ir import Ops, UOp
from impl.kernel.fragments import Fragment, Unit
from impl.rewrite import PatternMatcher

#: A text, and the kind of vector that it is; "" if it is one number for all elements.
Operand = tuple[str, str]


class Statements(Protocol):
    """How a language writes statements. The printer says which, and never how."""

    def constant(self, kind: str, name: str, value: str) -> str:
        """Declare a variable of a type, which keeps its first value."""

    def changing(self, kind: str, name: str, value: str) -> str:
        """Declare a variable that changes."""

    def assign(self, target: str, value: str) -> str:
        """Give a variable, or an element of an array, another value."""

    def when(self, condition: str, statement: str) -> str:
        """A statement that happens if a condition is true, if there is one."""

    def choice(self, condition: str, one: str, other: str) -> str:
        """One of two numbers. Either may be computed in vain, but is not trusted to be valid."""

    def opened(self, condition: str = "") -> str:
        """Open a block, entered if a condition is true, if there is one."""

    def counted(self, name: str, first: str, last: str, step: str = "") -> str:
        """Open a loop that counts from one number to before another one, in steps of 1 or more."""

    def closed(self) -> str:
        """The end of a block, or of a loop."""


class Dialect(Statements, Protocol):
    """How a language writes a kernel. One class per language; the printer does the rest."""

    name: str
    widest_inline: int    # longest expression that gets no variable of its own
    counter: str          # what the names of loops begin with
    lacks: frozenset[DType]  # types of which a kernel is refused
    rules: PatternMatcher    # what else it lacks, made of what it has

    @property
    def groups(self) -> GroupDialect | None:
        """What it has for devices with work-groups, if it is for them."""

    def signature(self, phased: bool) -> str:
        """The head of a kernel, with {name}; `phased`: of one that threads run in phases."""

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

    def vector_within(self, op: Ops, count: int, bits: int, bound: str, turned: bool) -> Operand:
        """How 0, 1, 2, ... compare with a number, or the number with them; elements have `bits`."""

    def vector_short(self, operand: Operand, count: int) -> Operand:
        """The lowest 32 bits of indices."""

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

    def tiles(self, dtype: DType, places: Sequence[str], steps: Sequence[int],
              sizes: Sequence[int]) -> str:
        """A statement that stores the product of two matrices of a type. `places` are those of
        the product and of both operands; `steps` between the rows of the product, the rows of the
        first operand, the rows and the columns of the second one; `sizes` of the product, and of
        what is summed.
        """

    def finish(self, dtype: DType, value: str) -> str:
        """An accumulator rounded to the dtype of its reduction."""

    def argument(self, name: str, param: UOp, written: bool) -> str:
        """Declare a pointer argument."""

    def text_argument(self, name: str, param: UOp, written: bool) -> str:
        """Declare a pointer argument of a text of the user."""

    def text_body(self, text: str, name: str) -> str:
        """A text of the user, whose lines a compiler calls those of `name`."""

    def variable(self, name: str, position: int, dtype: DType) -> str:
        """Declare a run-time integer, as of its dtype or a longer one where the language makes them
        equal; `position` counts pointers and variables together.
        """

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
                      mask: Operand | None, few: bool = False) -> Operand:
        """Values at a vector of places: of the first `count` in memory alone, if they are `few`."""

    def vector_stepped(self, pointer: str, step: int, dtype: DType, count: int,
                       mask: Operand | None) -> Operand | None:
        """Values that lie `step` apart, zero where a mask is false; None where gathering them is
        as good.
        """

    def vector_spread(self, pointer: str, dtype: DType, count: int, mask: Operand) -> Operand:
        """One value wherever a mask is true, zero elsewhere."""

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

    def fetch(self, pointer: str, index: str, written: bool) -> str:
        """A statement that asks for memory that will be read or written, or nothing."""

    def skip(self, condition: str) -> str:
        """A statement that goes on with the next iteration unless a condition is true."""

    def fence(self) -> str:
        """A statement after which what was stored past the caches is in memory."""

    def loop(self, name: str, extent: str) -> list[str]:
        """The lines that open a loop."""

    def repeated(self) -> str:
        """A line before a loop of which four turns are to be written out; empty for none."""


@dataclass(frozen=True)
class Taken:
    """How the place of a fragment's elements in local memory grows: by these steps with each digit
    of the lane's number, and with each digit of an element's number.
    """

    unit: Unit
    fragment: Fragment
    pointer: str
    lanes: tuple[int, ...]
    elements: tuple[int, ...]

    @property
    def words(self) -> int:
        """How many registers it takes."""
        return self.fragment.size // self.unit.word

    def offsets(self) -> list[int]:
        """Where the elements of a lane lie, from the first of them on."""
        sizes = [range(size) for size, _, _ in self.fragment.elements]
        return [sum(v * step for v, step in zip(values, self.elements, strict=True))
                for values in itertools.product(*sizes)]


class GroupDialect(Protocol):
    """How a language for work-groups writes what only they have."""

    parameters: list[int]  # the arguments that the pointers of the signature stand for
    lanes: int             # of a group, once a kernel is begun

    def indices(self, small: bool, wraps: bool) -> None:
        """Choose the type of indices; `small`: 32 bits hold them, and the numbers of lanes.

        `wraps`: 32 bits are enough, if sums and products wrap around.
        """

    def ids(self, variables: int) -> str:
        """Declare `group`, `lane`, and among all groups `thread` of `threads`, if there are any.

        `variables` are the run-time integers, which come before the phase.
        """

    def storage_of(self, dtype: DType) -> str:
        """The type of a variable with an element as it lies in memory."""

    def copied_load(self, pointer: str, index: str, dtype: DType) -> str:
        """An element as it lies in memory."""

    def copied_store(self, pointer: str, index: str, dtype: DType, value: str) -> str:
        """A statement that writes an element that is as it lies in memory."""

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
        """Whether a lane is the first of `width` lanes."""

    def alone(self) -> str:
        """Open what one lane of a group does."""

    def wait(self) -> str:
        """A statement at which the lanes of a group wait for each other."""

    ahead: tuple[int, ...]  # bytes of a copy to local memory that goes on while lanes compute

    def copy_ahead(self, to: tuple[str, str], source: tuple[str, str], dtype: DType, count: int,
                   condition: str) -> str:
        """Begin such a copy of neighbours, from one pointer and index to another; of zeros, unless
        a condition holds, if there is one.
        """

    def bundle(self) -> str:
        """The copies begun since the last time are waited for together; nothing, if there are none.
        """

    def arrive(self, open: int) -> str:
        """Wait for all bundles of this lane but the last `open`."""

    def lead(self, taken: Taken) -> str:
        """What to add to the place of a lane's first element, if somebody else's is wanted."""

    def take(self, taken: Taken, names: Sequence[str], place: str) -> list[str]:
        """The lines that declare the registers of a fragment, whose first element lies there."""

    def multiply(self, unit: Unit, sums: Sequence[str], first: Sequence[str],
                 second: Sequence[str]) -> str:
        """A statement that adds a product of two fragments to the sums of a lane."""


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
