"""How a kernel takes fragments of matrices and multiplies them. Chapter: spec/render.md.

An MMA and its two operands become calls of small functions. What these are, a language says; here
is which registers they get: one for each `word` elements of a fragment, in the order of the unit.
"""
from __future__ import annotations

from impl.dtypes import dtypes
from impl.ir import Ops, UOp
from impl.kernel.analysis import growth
from impl.kernel.fragments import UNIT_OF, loops_of
from impl.lowering.lower import Lowered
from impl.render.dialect import Dialect, Taken
from impl.render.values import Values


class Fragments(Values):
    """Prints fragments and products."""

    def __init__(self, low: Lowered, dialect: Dialect, kept: frozenset[UOp]) -> None:
        super().__init__(low, dialect, kept)
        #: The registers of each operand, by the values of the lanes that it has besides its own.
        self.fragments: dict[UOp, tuple[tuple[UOp, ...], dict[tuple[int, ...], list[str]]]] = {}

    def _write_tiles(self, store: UOp) -> None:
        """A stage that a unit of the processor computes, with one call."""
        # r[impl lowering.tiles.whole]
        stage = self.low.tiles[store]
        product = stage.product
        indices = (store.src[0], product.first.index, product.second.index)
        places = [f"{self.names[index.src[0]]} + {self._text(place, (), [()])[0]}"
                  for index, place in zip(indices, stage.places, strict=True)]
        steps = (stage.rows, product.first.outer, product.second.inner, product.second.outer)
        self._line(self.dialect.tiles(product.first.index.dtype, places, steps, product.sizes))

    def _is_fragment(self, load: UOp) -> bool:
        """Whether a load is an operand of an MMA."""
        user = self.low.single.get(load)
        return user is not None and user.op is Ops.MMA and load in user.src[:2]

    def _take_fragment(self, load: UOp) -> None:
        """The registers of an operand, for each of its tiles."""
        # r[impl render.mma.registers]
        user = self.low.single[load]
        assert self.groups is not None
        unit, (lanes, *elements) = UNIT_OF[user.arg], loops_of(user)
        side = user.src.index(load)
        access, own = self.low.access[load.src[0]], elements[side]
        grows = growth(access.base.toposort(), lanes)[access.base] or {}
        taken = Taken(unit, (unit.first, unit.second)[side], self.names[load.src[0].src[0]],
                      tuple(grows.get(r, 0) for r in lanes),
                      tuple(access.steps.get(r, 0) for r in own))
        tiles = tuple(r for r in self.low.lanes(load) if r not in own)
        lead = self.groups.lead(taken)
        if lead:
            name = self._fresh("r", 1)[0]
            self._line(self.dialect.constant("long", name, lead))
            lead = f" + {name}"
        found = {}
        base = self._text(access.base, (), [()])[0]
        for values in self._combinations(tiles):
            start = sum(v * access.steps.get(r, 0) for v, r in zip(values, tiles, strict=True))
            found[values] = self._fresh("f", taken.words)
            place = f"{base} + {start}{lead}" if start else base + lead
            for line in self.groups.take(taken, found[values], place):
                self._line(line)
        self.fragments[load] = tiles, found

    def _multiply_fragments(self, node: UOp) -> None:
        """Sums with a product added, a call for each of the tiles."""
        assert self.groups is not None
        unit, (_, _, _, elements) = UNIT_OF[node.arg], loops_of(node)
        wide = self._wide(node)
        at = self._combinations(wide)
        before = node.src[2]
        if before.op is Ops.MMA and self.low.users[before] == 1:
            names = self.texts[before]  # nobody else needs what they were
        else:
            names = self._fresh("s", len(at))
            for name, text in zip(names, self._text(before, wide, at), strict=True):
                self._line(self.dialect.changing(self.dialect.type_of(dtypes.float32), name, text))
        tiles = tuple(r for r in wide if r not in elements)
        named = {tuple(values[wide.index(r)] for r in (*tiles, *elements)): name
                 for values, name in zip(at, names, strict=True)}
        for values in self._combinations(tiles):
            sums = [named[(*values, *of)] for of in self._combinations(elements)]
            factors = [found[tuple(values[tiles.index(r)] for r in own)]
                       for own, found in (self.fragments[f] for f in node.src[:2])]
            self._line(self.groups.multiply(unit, sums, *factors))
        self.texts[node] = names
