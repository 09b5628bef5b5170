"""The step HIDE: what a mask hides whole is not computed.

Chapter: spec/blocking.md. A causal mask takes -inf for the score of a key behind the query.
Whatever the product of the two is, nobody reads it.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.dtypes import dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp
from impl.kernel.analysis import Analysis, accessed, stage_of
from impl.steps.declaration import Declaration
from impl.steps.step import Step, StepError, with_stores

_COMPARISONS = {Ops.CMPLE: 0, Ops.CMPLT: 1}
_MOST = 1 << 31


@dataclass(frozen=True)
class Hide(Step):
    """Store no tile of `columns` elements of a LOCAL that is hidden from `rows` rows.

    Legal for the loop of a stage that stores a row, if whoever reads an element of it forgets it,
    and takes it for no address, unless its index is at most (or below) some number of the row,
    which is read from nothing that the kernel stores.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="tiles of `columns` elements of a row that a mask hides from `rows` rows are "
             "not stored",
        why="a mask hides tiles of the product whole",
        loops=(RangeKind.LOOP,),
        only="each reader of an element of the row forgets it unless its index is at most a "
             "number of the row")

    columns: int
    rows: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Nobody sees what is not stored."""
        # r[impl blocking.hide.read+2]
        found = [store for store in known.ast.src if store.src[2:] == (loop,)
                 and store.src[0].src[0].op is Ops.LOCAL and store.src[0].src[1:] == (loop, TRUE)]
        last = _last_seen(known, found[0]) if len(found) == 1 else None
        if last is None or min(self.columns, self.rows) < 1:
            raise StepError(self.name, "no mask hides what is stored along it",
                            "name the loop of a row of a LOCAL that is read under a mask alone")
        first = symbolic.mul(symbolic.floordiv(loop, self.columns), self.columns)
        most = symbolic.add(symbolic.mul(symbolic.floordiv(last, self.rows), self.rows),
                            self.rows - 1)
        place = found[0].src[0]
        gated = place.replace(src=(*place.src[:2], symbolic.less_equal(first, most)))
        return with_stores(known, [store.replace(src=(gated, *store.src[1:]))
                                   if store is found[0] else store for store in known.ast.src],
                           self.name)


def _last_seen(known: Analysis, store: UOp) -> UOp | None:
    """The greatest place of a row that is not forgotten, if there is one number for all readers."""
    key = accessed(store)
    seen: set[UOp] = set()
    for other in known.ast.src:
        if other is not store and accessed(other) == key:
            return None
        loads = [n for n in stage_of(other).loads if accessed(n) == key]
        limits = _limits(other, loads) if loads else set[UOp]()
        if limits is None:
            return None
        seen |= limits
    if len(seen) != 1:
        return None
    only = seen.pop()
    known.extend(only)
    # A stage between the two might store what the number is read from.
    stored = known.reads_stored(only.toposort())
    return None if stored or known.free[only] & ~known.prefix else only


def _limits(store: UOp, loads: list[UOp]) -> set[UOp] | None:
    """Up to where a stage looks at what it loads; None if it may look at all of it."""
    places = {load.src[0].src[1] for load in loads}
    bare, found = set[UOp](loads), set[UOp]()  # what shows a loaded element as it is
    for node in stage_of(store).order:
        shown = [source for source in node.src if source in bare]
        if node.op is Ops.WHERE and shown == [node.src[1]]:
            limit = _limit(node.src[0], places)
            if limit is not None:
                found.add(limit)
                continue
        if shown:
            bare.add(node)
    # What was never stored is no address, whoever looks at what is read there.
    seen = store.src[1] in bare or any(node.op is Ops.INDEX for node in bare)
    return None if seen or any(load.src[0].src[2] is not TRUE for load in loads) else found


def _limit(condition: UOp, places: set[UOp]) -> UOp | None:
    """What a condition compares the only place with: that is at most so much."""
    if condition.op not in _COMPARISONS or len(places) != 1:
        return None
    place, limit = (side.src[0] if side.op is Ops.CAST else side for side in condition.src)
    exact = all(side.dtype in (dtypes.int32, dtypes.int64, dtypes.index)
                for side in condition.src) and place in places and limit.dtype is dtypes.index \
        and all(-_MOST <= bound < _MOST for side in (place, limit)
                for bound in symbolic.bounds(side))
    return symbolic.add(limit, -_COMPARISONS[condition.op]) if exact else None


__all__ = ["Hide"]
