"""The step TC: a product is computed by units for small matrices. Chapter: spec/groups.md.

GPUs have units that multiply two small matrices which the lanes of a warp hold in registers.
`TC` cuts a block of outputs into such matrices. The lanes of a group copy a part of both operands
to local memory, take their fragments from there, and have the unit add the product to fragments of
the sums, part after part. When all parts are done they store the sums as the kernel says.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from impl import symbolic
from impl.blocking.pack import local_place
from impl.dtypes import DType, dtypes
from impl.groups.lanes import MOST_LANES
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, DeviceLimits, growth
from impl.kernel.fragments import UNIT_OF, UNITS, WARP, Fragment, Unit
from impl.steps.declaration import Declaration, Trace
from impl.steps.step import Step, StepError, with_stores

#: Bytes that a unit reads of a row of local memory at once.
_ROW_BYTES = 16


@dataclass(frozen=True)
class Nest:
    """A block of outputs of a product: the loops of the stage, and what is summed over `loop`."""

    store: UOp
    sum: UOp
    loop: UOp
    row: UOp
    column: UOp
    first: UOp   # the operand that does not depend on the column
    second: UOp  # the one that does not depend on the row


def find_nest(known: Analysis, loop: UOp, unit: Unit) -> Nest | str:
    """The product that is summed over a loop; or why a unit cannot compute it."""
    found = [n for n in known.order if n.op is Ops.REDUCE]
    if len(known.ast.src) != 1 or len(found) != 1 or found[0].src[1:] != (loop,) \
            or found[0].arg is not Ops.ADD or found[0].dtype is not dtypes.float32:
        return "it is not the only loop of the only reduction, a sum in float32"
    store, value, inside = known.ast.src[0], found[0].src[0], TRUE
    if value.op is Ops.WHERE and value.src[2].op is Ops.CONST and value.src[2].arg == 0:
        inside, value = value.src[:2]  # PADTO says where there is nothing to be added
    if value.op is not Ops.MUL or known.free.get(inside, 0) & ~known.mask((loop,)):
        return "it is no sum of products"
    one, two = (_operand(factor, unit, inside) for factor in value.src)
    if one is None or two is None:
        return f"the operands are not of type {unit.dtype.name}"
    own = known.mask(store.src[2:])
    free = [known.free[factor] & own for factor in value.src]
    loops = [known.loops(mask) for mask in free]
    if len(store.src) != 4 or any(r.arg[1] is not RangeKind.LOOP for r in store.src[2:]) \
            or len(loops[0]) != 1 or len(loops[1]) != 1 or free[0] == free[1]:
        return "the stage has not one loop of rows and one of columns"
    if any(known.reads_stored(factor.toposort()) for factor in value.src):
        return "the kernel stores what an operand is read from"
    (row,), (column,) = loops
    grows = growth(known.order, known.ranges)[store.src[0].src[1]] or {}
    if grows.get(row) == 1 and grows.get(column) != 1:  # results lie side by side along columns
        return Nest(store, found[0], loop, column, row, two, one)
    return Nest(store, found[0], loop, row, column, one, two)


def _operand(factor: UOp, unit: Unit, inside: UOp) -> UOp | None:
    """A factor in the type of the unit, zero where nothing is to be added; None if it is wider."""
    if unit.dtype is not dtypes.float32:
        if factor.op is not Ops.CAST or factor.src[0].dtype is not unit.dtype:
            return None
        factor = factor.src[0]
    if inside is TRUE or factor.op is Ops.LOAD and set(symbolic.conjuncts(inside)) <= set(
            symbolic.conjuncts(factor.src[0].src[2])):  # it is zero there already
        return factor
    return UOp(Ops.WHERE, unit.dtype, (inside, factor, UOp.const(unit.dtype, 0.0)))


@dataclass(frozen=True)
class TC(Step):
    """Compute a block of outputs with `UNITS[unit]`, `deep` elements of the sum at a time.

    The lanes of a group are `down` times `across` warps, each with a part of the block. Legal for
    the loop of the only reduction of a kernel with one stage: a sum in float32 of products of the
    unit's type, with one loop of rows and one of columns in the stage (see INNER). Their extents
    are multiples of what the warps compute at a time, that of the sum is one of `deep`, and `deep`
    one of the unit's depth; PADTO makes them so.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="`unit` computes a product, `deep` elements of the sum at a time, in `down` times "
             "`across` warps",
        why="a unit multiplies small matrices at once",
        loops=(RangeKind.REDUCE,),
        only="the only loop of the only sum, of products of the unit's type; nothing is left "
             "over",
        not_after=(Trace.LANES, Trace.THREADS),
        instead="UPCAST both loops of the output, and GROUP or UNROLL the sum")

    unit: int
    deep: int
    down: int
    across: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """The same products, added in another order."""
        # r[impl steps.value.equal, groups.matrices.refused]
        if not 0 <= self.unit < len(UNITS):
            raise StepError(self.name, f"there are {len(UNITS)} units", "name one of them")
        unit = UNITS[self.unit]
        nest = find_nest(known, loop, unit)
        if isinstance(nest, str):
            raise StepError(self.name, nest, "leave the product to the other steps")
        self._fits(nest, unit)
        block = _Block(self, known, nest, unit)
        done = with_stores(known, block.stages(), self.name)
        return done.replace(arg=replace(done.arg, lanes=self.down * self.across * WARP))

    def _fits(self, nest: Nest, unit: Unit) -> None:
        """Raise if something would be left over."""
        if min(self.down, self.across) < 1 or self.down * self.across * WARP > MOST_LANES:
            raise StepError(self.name, f"{self.down} x {self.across} warps", "use fewer")
        for loop, least in ((nest.row, self.down * unit.rows),
                            (nest.column, self.across * unit.columns),
                            (nest.loop, max(self.deep, 1))):
            if not self.size_of(loop):
                raise StepError(self.name, "a loop has no iterations", "there is nothing to do")
            if self.size_of(loop) % least:
                raise StepError(self.name, f"{self.size_of(loop)} iterations are no multiple of "
                                f"{least}", "extend the loop by PADTO, or use other numbers")
        if self.deep < 1 or self.deep % unit.depth:
            raise StepError(self.name, f"{self.deep} is no multiple of {unit.depth}",
                            "use one")


class _Tile:
    """A copy of a part of an operand in local memory, `outer` rows or columns of it.

    What lies side by side in memory does so here, too. Lines are a little longer than they need
    to be: so the lines that a warp reads at once lie in different banks.
    """

    def __init__(self, known: Analysis, number: int, operand: UOp, loops: tuple[UOp, UOp],
                 deep: int) -> None:
        self.operand, self.loops, self.deep = operand, loops, deep
        self.outer = loops[0].src[0].arg
        grown = [growth(known.order, known.ranges)[n.src[0].src[1]] or {}
                 for n in operand.toposort() if n.op is Ops.LOAD and n in known.free]
        self.turned = any(grows.get(loops[0]) == 1 for grows in grown)
        self.line = (self.outer if self.turned else deep) + _padding(operand.dtype, self.turned)
        lines = deep if self.turned else self.outer
        self.local = UOp(Ops.LOCAL, operand.dtype, (), (number, lines * self.line))

    def at(self, outer: symbolic.Index, deep: symbolic.Index) -> UOp:
        """The place of an element."""
        line, within = (deep, outer) if self.turned else (outer, deep)
        place = symbolic.add(symbolic.mul(line, self.line), within)
        return UOp(Ops.INDEX, self.local.dtype, (self.local, place, TRUE))

    def load(self, outer: symbolic.Index, deep: symbolic.Index) -> UOp:
        """An element."""
        return UOp(Ops.LOAD, self.local.dtype, (self.at(outer, deep),))

    def copy(self, first: symbolic.Index, around: tuple[UOp, ...]) -> UOp:
        """The stage that fills it, from element `first` of the sum on."""
        sizes = (self.deep, self.outer) if self.turned else (self.outer, self.deep)
        count = self._neighbours(self.loops[0 if self.turned else 1], sizes[1])
        line, piece = new_range(sizes[0], RangeKind.LOOP), _loop(sizes[1] // count, RangeKind.LOOP)
        lane = _loop(count, RangeKind.UPCAST)
        within = symbolic.add(symbolic.mul(piece, count), lane)
        outer, deep = (within, line) if self.turned else (line, within)
        value = symbolic.rebuild(self.operand, {self.loops[0]: outer,
                                                self.loops[1]: symbolic.add(first, deep)})
        loops = [r for r in (line, piece, lane) if r.op is Ops.RANGE]
        return UOp(Ops.STORE, value.dtype, (self.at(outer, deep), value, *around, *loops))

    def _neighbours(self, loop: UOp, size: int) -> int:
        """How many neighbours a lane copies: as many as one access moves, if all that is read
        begins at a multiple of them and is valid together.
        """
        count, order = _ROW_BYTES // self.operand.dtype.itemsize, self.operand.toposort()
        divisor: dict[UOp, int] = {}
        grows = growth(order, [n for n in order if n.op is Ops.RANGE], ({}, divisor))
        for index in (n for n in order if n.op is Ops.INDEX and loop in n.toposort()):
            steps = grows[index.src[1]] or {}
            if steps.get(loop) != 1 or loop in index.src[2].toposort() \
                    or divisor[index.src[1]] % count \
                    or any(step % count for r, step in steps.items() if r is not loop):
                return 1
        return 1 if size % count else count


def _padding(dtype: DType, turned: bool) -> int:
    """How many elements a line is longer than it needs to be.

    Halves are read in eight lines of 16 bytes. Floats are read in eight lines of four elements, or,
    where they are turned, in four of eight.
    """
    # r[impl groups.memory.lanes]
    pad = _ROW_BYTES // dtype.itemsize
    return 2 * pad if dtype is dtypes.float32 and turned else pad


class _Block:
    """The stages of a block: set the sums to zero, copy, add products, and store what comes out."""

    def __init__(self, step: TC, known: Analysis, nest: Nest, unit: Unit) -> None:
        self.step, self.known, self.nest, self.unit = step, known, nest, unit
        rows, columns = (loop.src[0].arg for loop in (nest.row, nest.column))
        self.warps = [_loop(n, RangeKind.LANE) for n in (step.down, step.across)]
        self.tiles = [_loop(rows // (step.down * unit.rows), RangeKind.UPCAST),
                      _loop(columns // (step.across * unit.columns), RangeKind.UPCAST)]
        self.lanes = [new_range(size, RangeKind.LANE) for size in unit.lanes]
        self.elements = [[new_range(size, kind) for size, _, _ in fragment.elements]
                         for fragment, kind in ((unit.first, RangeKind.UNROLL),
                                                (unit.second, RangeKind.UNROLL),
                                                (unit.sum, RangeKind.UPCAST))]
        self.own = [r for r in (*self.warps, *self.lanes, *self.tiles, *self.elements[2])
                    if r.op is Ops.RANGE]

    def stages(self) -> list[UOp]:
        """All of them, in order."""
        nest, deep = self.nest, self.step.deep
        count = nest.loop.src[0].arg // deep
        part = _loop(count, RangeKind.BLOCK)
        around = (part,) if count > 1 else ()
        tiles = [_Tile(self.known, 1 + side, operand, (loop, nest.loop), deep)
                 for side, (operand, loop) in enumerate(((nest.first, nest.row),
                                                         (nest.second, nest.column)))]
        sums = self._sums()
        so_far = UOp(Ops.LOAD, dtypes.float32, (sums,))
        value = so_far
        for start in range(0, deep, self.unit.depth):
            value = self._product(tiles, start, value)
        zero = UOp.const(dtypes.float32, 0.0)
        row, column = self._place(self.unit.sum, 2, (0, 1))
        done = {nest.row: row, nest.column: column, nest.sum: so_far}
        place, result = (symbolic.rebuild(node, done) for node in nest.store.src[:2])
        return [UOp(Ops.STORE, dtypes.float32, (sums, zero, *self.own)),
                *(tile.copy(symbolic.mul(part, deep), around) for tile in tiles),
                UOp(Ops.STORE, dtypes.float32, (sums, value, *around, *self.own)),
                nest.store.replace(src=(place, result, *self.own))]

    def _sums(self) -> UOp:
        """The place of a sum. Each lane has its own ones side by side: they become registers."""
        sizes = [loop.src[0].arg for loop in self.own]
        local = UOp(Ops.LOCAL, dtypes.float32, (), (0, math.prod(sizes)))
        return local_place(local, self.own, sizes)

    def _product(self, tiles: Sequence[_Tile], start: int, value: UOp) -> UOp:
        """The product of the parts that begin at an element of the sum, added to a value."""
        row, deep = self._place(self.unit.first, 0, (0, None))
        first = tiles[0].load(row, symbolic.add(deep, start))
        deep, column = self._place(self.unit.second, 1, (None, 1))
        second = tiles[1].load(column, symbolic.add(deep, start))
        loops = (*self.lanes, *(r for part in self.elements for r in part))
        return UOp(Ops.MMA, dtypes.float32, (first, second, value, *loops), self.unit.name)

    def _place(self, fragment: Fragment, number: int,
               sides: tuple[int | None, int | None]) -> tuple[UOp, UOp]:
        """The row and the column of an element in the block; None: of the unit's own matrix."""
        loops = (*self.lanes, *self.elements[number])
        digits = (*fragment.lanes, *fragment.elements)
        found = []
        for axis, side in enumerate(sides):
            terms = [symbolic.mul(loop, digit[1 + axis])
                     for loop, digit in zip(loops, digits, strict=True) if digit[1 + axis]]
            if side is not None:
                size, tile = (self.unit.rows, self.unit.columns)[side], self.tiles[side]
                several = tile.src[0].arg if tile.op is Ops.RANGE else 1
                terms += [symbolic.mul(tile, size),
                          symbolic.mul(self.warps[side], size * several)]
            found.append(symbolic.total(terms))
        return found[0], found[1]


def _loop(size: int, kind: RangeKind) -> UOp:
    """A loop, or nothing but 0 if it has one iteration."""
    return new_range(size, kind) if size > 1 else UOp.const(dtypes.index, 0)


def refuse_units(asked: Iterable[tuple[Step, str]], limits: DeviceLimits) -> None:
    """Raise if a step needs a unit that the device does not have."""
    # r[impl searching.asked.steps+2]
    for step, _ in asked:
        if isinstance(step, TC) and UNITS[step.unit:step.unit + 1] \
                and UNITS[step.unit].name not in limits.units:
            raise StepError(step.name, f"{limits.name} has no unit {UNITS[step.unit].name}",
                            "use one of " + ", ".join(f"{UNITS.index(UNIT_OF[name])} ({name})"
                                                      for name in limits.units)
                            if limits.units else "leave the product to the other steps")


__all__ = ["TC", "Nest", "find_nest", "refuse_units"]
