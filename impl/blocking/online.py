"""The step ONLINE: a softmax that weights a sum, a block of elements at a time.

Chapter: spec/blocking.md. Attention weights values by the softmax of a row of scores. Row by row,
all scores of a row have to be kept. But a sum of weighted values can be made block by block, if
what was summed before is scaled whenever a block adds to the weights, or has a greater maximum.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.blocking.pack import local_place
from impl.dtypes import dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, Key, accessed, shared_loops
from impl.steps.declaration import Amount, Declaration
from impl.steps.step import Step, StepError, with_stores

_FLOAT = dtypes.float32


@dataclass(frozen=True)
class Weighted:
    """sum over `loop` of softmax(score) * value, and the stages that compute the scores."""

    store: UOp       # the stage that stores it
    sum: UOp         # the REDUCE in there
    value: UOp       # the factor that is no weight
    score: UOp       # an expression of `loop`
    rows: tuple[UOp, ...]


class _Stages:
    """The stages of a kernel by what they store, each in a LOCAL of its own."""

    def __init__(self, known: Analysis) -> None:
        self.by_key: dict[Key, UOp] = {}
        self.used: list[UOp] = []
        for store in known.ast.src[:-1]:
            place, key = store.src[0], accessed(store)
            own = store.src[2:]
            if place.src[0].op is Ops.LOCAL and place.src[2] is TRUE and key not in self.by_key \
                    and (own == (place.src[1],) or own == () and place.src[0].arg[1] == 1):
                self.by_key[key] = store

    def of(self, load: UOp) -> UOp | None:
        """The stage that stores what is loaded, if it is known."""
        return self.by_key.get(accessed(load)) if load.op is Ops.LOAD else None

    def value(self, load: UOp, loop: UOp | None) -> UOp | None:
        """What was stored: the element that belongs to an iteration, or the only one."""
        store = self.of(load)
        own = store.src[2:] if store is not None else ()
        if store is None or load.src[0].src[2] is not TRUE or bool(own) is (loop is None) \
                or own and load.src[0].src[1] is not loop:
            return None
        self.used.append(store)
        return _at(store.src[1], own[0], loop) if loop is not None else store.src[1]


def _at(value: UOp, own: UOp, loop: UOp) -> UOp:
    """An expression of one loop as one of another."""
    return symbolic.rebuild(value, {own: loop})


def find_weighted(known: Analysis, loop: UOp) -> Weighted | str:
    """The sum over a loop whose weights are a softmax; or why it is none."""
    store, stages = known.ast.src[-1], _Stages(known)
    sums = [n for n in known.order if n.op is Ops.REDUCE and loop in n.src[1:]]
    if len(sums) != 1 or sums[0].src[1:] != (loop,) or sums[0].arg is not Ops.ADD \
            or sums[0].dtype is not _FLOAT or sums[0].src[0].op is not Ops.MUL \
            or sums[0] not in store.src[1].toposort():
        return "it is not the loop of one sum of products in float32, in the last stage"
    if known.free[sums[0]] & ~(known.prefix | known.mask(store.src[2:])):
        return "another reduction of the stage is around the sum"
    weight, value = sums[0].src[0].src
    if stages.of(weight) is None:
        weight, value = value, weight
    score = _score(stages, weight, loop)
    if score is None:
        return "the weights are no softmax in float32"
    rows = _rows(stages, score, loop)
    other = [*value.toposort(), *store.src[0].toposort(),
             *store.src[1].toposort(lambda u: u is not sums[0])]
    if rows is None or {*rows, *stages.used, store} != {*known.ast.src} or known.reads_stored(
            n for n in other if n is not sums[0]) or any(map(shared_loops, known.ast.src)):
        return "another stage needs what the softmax is computed from"
    return Weighted(store, sums[0], value, score, rows)


def _score(stages: _Stages, weight: UOp, loop: UOp) -> UOp | None:
    """What the softmax is taken of, as an expression of the loop."""
    found = stages.value(weight, loop)
    if found is None or found.op not in (Ops.DIV, Ops.MUL):
        return None
    shifted, total = stages.value(found.src[0], loop), stages.value(found.src[1], None)
    if found.op is Ops.MUL and total is not None:  # by the reciprocal, as `softmax` does
        total = total.src[0] if total.op is Ops.RECIPROCAL else None
    if shifted is None or total is None or shifted.op is not Ops.EXP \
            or shifted.src[0].op is not Ops.SUB or not _over(total, Ops.ADD, found.src[0], loop):
        return None
    score, top = shifted.src[0].src
    most = stages.value(top, None)
    return score if most is not None and score.dtype is _FLOAT \
        and _over(most, Ops.MAXIMUM, score, loop) else None


def _over(node: UOp, op: Ops, element: UOp, loop: UOp) -> bool:
    """Whether a node combines an expression of a loop over all its iterations."""
    return node.op is Ops.REDUCE and node.arg is op and len(node.src) == 2 \
        and node.src[1].src == loop.src and _at(node.src[0], node.src[1], loop) is element


def _rows(stages: _Stages, score: UOp, loop: UOp) -> tuple[UOp, ...] | None:
    """The stages of rows that the score is computed from, each after those that it needs."""
    found: set[UOp] = set()
    stack = [(score, loop)]
    while stack:
        value, own = stack.pop()
        for load in value.toposort():
            store = stages.of(load)
            if store is None:
                continue
            if len(store.src) != 3 or load.src[0].src[1:] != (own, TRUE):
                return None
            if store not in found:
                found.add(store)
                stack.append((store.src[1], store.src[2]))
    return tuple(store for store in stages.by_key.values() if store in found)


@dataclass(frozen=True)
class Online(Step):
    """Weight a sum by a softmax block by block: `amount` elements of a row at a time are kept.

    A BLOCK loop keeps the maximum so far, the sum of the exponentials, and the weighted sum of the
    elements so far, whose weights add up to 1. Legal for the loop of the weighted sum, the last
    stage of a kernel of a softmax in float32 that nobody else needs, of a multiple of `amount`
    elements.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="a sum weighted by a softmax keeps n elements of a row at a time",
        why="no score is ever in the memory of the device",
        loops=(RangeKind.REDUCE,),
        amount=Amount(divides=True, below=True, least=1),
        only="the weights of the last stage's sum are a softmax in float32 that nobody else "
             "needs",
        asked=True)

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """exp(a) exp(b) is exp(a + b), and (a / b) (b / c) is a / c, but for rounding."""
        # r[impl blocking.online.legal]
        found = find_weighted(known, loop)
        if isinstance(found, str):
            raise StepError(self.name, found, "leave the row whole")
        sizes = [self.size_of(r) for r in found.store.src[2:]]
        blocks = _Blocks(known.free_local(), found, loop, self.amount, sizes)
        return with_stores(known, blocks.stages(), self.name)


class _Blocks:
    """The stages of a softmax that runs over blocks."""

    def __init__(self, number: int, found: Weighted, loop: UOp, amount: int,
                 sizes: list[int]) -> None:
        self.found, self.loop, self.amount = found, loop, amount
        self.block = new_range(loop.src[0].arg // amount, RangeKind.BLOCK)
        self.rows: dict[Key, UOp] = {}
        for row in found.rows:
            self.rows[accessed(row)] = UOp(
                Ops.LOCAL, row.src[1].dtype, (), (number + len(self.rows), amount))
        number += len(self.rows)
        most, totals, powers, weights, scale, done = (
            UOp(Ops.LOCAL, _FLOAT, (), (number + place, size))
            for place, size in enumerate((2, 2, amount, amount, 1, math.prod(sizes))))
        # Two places of a maximum and of a total take turns: that before is needed with that after.
        turns = [symbolic.mod(symbolic.add(self.block, n), 2) for n in (0, 1)]
        self.before, self.after = (_index(most, turn) for turn in turns)
        self.total_before, self.total = (_index(totals, turn) for turn in turns)
        self.starts = _index(most, 0), _index(totals, 0)
        self.last = _index(totals, self.block.src[0].arg % 2)
        self.powers, self.weights, self.scale = powers, weights, _index(scale, 0)
        self.done = local_place(done, list(found.store.src[2:]), sizes)

    def _moved(self, value: UOp, own: UOp, inner: UOp) -> UOp:
        """An expression of the whole row as one of the block at hand."""
        place = symbolic.add(symbolic.mul(self.block, self.amount), inner)
        moved = {own: place}
        for node in value.toposort():
            if node.op is Ops.LOAD and (row := self.rows.get(accessed(node))):
                moved[node] = _load(_index(row, inner))
        return symbolic.rebuild(value, moved)

    def _row(self, store: UOp) -> UOp:
        """A stage of the row, for a block of it."""
        inner = new_range(self.amount, RangeKind.LOOP)
        row = self.rows[accessed(store)]
        value = self._moved(store.src[1], store.src[2], inner)
        return UOp(Ops.STORE, value.dtype, (_index(row, inner), value, self.block, inner))

    def stages(self) -> list[UOp]:
        """All of them, in order: at the end of a block, `done` is what the row would have been."""
        # r[impl blocking.online.equal]
        store = self.found.store
        own = store.src[2:]
        result = UOp(Ops.WHERE, _FLOAT, (_is(self.last, 0.0), UOp.const(_FLOAT, math.nan),
                                         _load(self.done)))
        return [*(_store(place, UOp.const(_FLOAT, value)) for place, value in zip(
                    self.starts, (-math.inf, 0.0), strict=True)),
                _store(self.done, UOp.const(_FLOAT, 0.0), *own),
                *(self._row(row) for row in self.found.rows),
                *self._weighted(),
                _store(self.done, self._more(), self.block, *own),
                store.replace(src=(store.src[0], store.src[1].substitute({self.found.sum: result}),
                                   *own))]

    def _weighted(self) -> list[UOp]:
        """The stages that give weights to the elements of a block, and to what was before it."""
        score, loop, element = self.found.score, *self._loops(RangeKind.REDUCE, 2)
        each, other = self._loops(RangeKind.LOOP, 2)
        top = UOp(Ops.REDUCE, _FLOAT, (self._moved(score, self.loop, loop), loop), Ops.MAXIMUM)
        most = UOp(Ops.MAXIMUM, _FLOAT, (_load(self.before), top))
        power = self._shifted(self._moved(score, self.loop, each))
        added = UOp(Ops.REDUCE, _FLOAT, (_load(_index(self.powers, element)), element), Ops.ADD)
        so_far = UOp(Ops.MUL, _FLOAT, (_load(self.total_before), self._shifted(_load(self.before))))
        return [_store(self.after, most, self.block),
                _store(_index(self.powers, each), power, self.block, each),
                _store(self.total, UOp(Ops.ADD, _FLOAT, (so_far, added)), self.block),
                _store(self.scale, self._share(so_far), self.block),
                _store(_index(self.weights, other), self._share(_load(_index(self.powers, other))),
                       self.block, other)]

    def _loops(self, kind: RangeKind, count: int) -> list[UOp]:
        return [new_range(self.amount, kind) for _ in range(count)]

    def _shifted(self, value: UOp) -> UOp:
        """exp(value - maximum); 0, and not NaN, as long as nothing but -inf was seen."""
        least = UOp(Ops.WHERE, _FLOAT, (_is(self.after, -math.inf), UOp.const(_FLOAT, 0.0),
                                        _load(self.after)))
        return UOp(Ops.EXP, _FLOAT, (UOp(Ops.SUB, _FLOAT, (value, least)),))

    def _share(self, value: UOp) -> UOp:
        """value / total; 0 as long as nothing but -inf was seen."""
        total = UOp(Ops.WHERE, _FLOAT, (_is(self.total, 0.0), UOp.const(_FLOAT, 1.0),
                                        _load(self.total)))
        return UOp(Ops.DIV, _FLOAT, (value, total))

    def _more(self) -> UOp:
        """The weighted sum so far, scaled, and what a block adds to it."""
        inner, = self._loops(RangeKind.REDUCE, 1)
        value = self._moved(self.found.value, self.loop, inner)
        product = UOp(Ops.MUL, _FLOAT, (_load(_index(self.weights, inner)), value))
        so_far = UOp(Ops.MUL, _FLOAT, (_load(self.done), _load(self.scale)))
        return UOp(Ops.ADD, _FLOAT, (so_far, UOp(Ops.REDUCE, _FLOAT, (product, inner), Ops.ADD)))


def _index(local: UOp, place: symbolic.Index) -> UOp:
    """An element of a LOCAL."""
    return UOp(Ops.INDEX, local.dtype, (local, symbolic.as_node(place), TRUE))


def _is(place: UOp, value: float) -> UOp:
    """Whether an element is this number."""
    return UOp(Ops.CMPEQ, dtypes.bool, (_load(place), UOp.const(_FLOAT, value)))


def _load(place: UOp) -> UOp:
    return UOp(Ops.LOAD, place.dtype, (place,))


def _store(place: UOp, value: UOp, *loops: UOp) -> UOp:
    return UOp(Ops.STORE, value.dtype, (place, value, *loops))


__all__ = ["Online", "Weighted", "find_weighted"]
