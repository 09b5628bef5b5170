"""Values of a lowered kernel and their texts. Chapter: spec/render.md."""
from __future__ import annotations

import itertools
from typing import TypeVar

from impl.dtypes import HALF, DType
from impl.ir import Ops, RangeKind, UOp
from impl.kernel import Analysis, next_loads
from impl.kernel.analysis import Way, exchanged, stage_of
from impl.lowering.chosen import chosen_bits
from impl.lowering.lower import Lowered
from impl.lowering.phases import cut_phases
from impl.lowering.waits import place_waits
from impl.lowering.wide import wide_accesses
from impl.lowering.wrapped import wrapped_addresses
from impl.render.dialect import Dialect, Launched, Operand, Texts

_Text = TypeVar("_Text", str, Operand)


class Values:
    """The names of values, and their texts: one for each combination of lanes."""

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
        self.warps = {loop for node in self.known.order for loop in exchanged(node)}
        self.chosen, self.wrapped = chosen_bits(self.known), wrapped_addresses(low)
        self.short: dict[UOp, bool] = {}
        self.warp = 1  # how many lanes run an iteration of the stage, to exchange values
        self.unrolled = self._loops_over(kept)
        most = self.groups.widest if self.groups else 1
        private = {n for n in self.known.order if n.op is Ops.LOCAL and n not in self.shared} \
            if not self.phases or self.known.info.prefix else ()
        self.wide = wide_accesses(low, most, private) if most > 1 else {}
        self.ahead = _asked_ahead(self.known)
        self.scratch = self.own = 0

    def _loops_over(self, kept: frozenset[UOp]) -> set[UOp]:
        """The loops that choose an element of an array in registers, which have no addresses."""
        found: set[UOp] = set()
        for node in self.known.order:
            if node.op is Ops.INDEX and node.src[0] in kept:
                found.update(loop for loop in self.known.loops(self.known.free[node.src[1]])
                             if loop.arg[1] in (RangeKind.LOOP, RangeKind.REDUCE))
        return found

    def _line(self, text: str) -> None:
        if text:
            self.lines.append("  " * self.indent + text)

    def _extent(self, loop: UOp) -> str:
        return self._text(loop.src[0], (), [()])[0]

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
            return [self.dialect.literal(values[place], node.dtype) for values in at]
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
            return [self.dialect.vector_places(width_of(vector))] * len(at)
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

    def _keep(self, node: UOp, found: list[Operand]) -> None:
        """Remember texts that are short and used once, and names; else declare variables."""
        if node in self.low.inline and len(found[0][0]) <= self.dialect.widest_inline \
                or node.op is Ops.CAST and all(text.isidentifier() for text, _ in found):
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
            self._line(self.dialect.constant(type_name, name, text))
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

    def _is_copied(self, value: UOp) -> bool:
        """Whether a number of a half type is loaded and stored again, and nothing else."""
        # r[impl render.half.copied+2]
        user = self.low.single.get(value)
        return (self.groups is not None and value.op is Ops.LOAD and value.dtype in HALF
                and self.low.users[value] == 1 and user is not None and user.op is Ops.STORE)


def _asked_ahead(known: Analysis) -> dict[UOp, int]:
    """The loads whose places in the next iteration are asked for, and how far away these are."""
    stores = [store for store in known.ast.src if store.arg is Way.NEXT]
    loads = {load for store in stores for load in stage_of(store).loads}
    return {load: step for load, step in next_loads(known).items() if load in loads} \
        if stores else {}


def width_of(vector: UOp) -> int:
    """The number of elements of a vector lane."""
    size: int = vector.src[0].arg
    return size
