"""Reductions with several accumulators, or written out. Chapter: spec/steps.md."""
from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from impl import symbolic
from impl.ir import RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, stage_of
from impl.steps.rewriting import Reducer
from impl.steps.step import STEPS, Step, StepError, with_stores


@dataclass(frozen=True)
class Split(Step):
    """Give a reduction `amount` accumulators, combined at the end; `grouped` 0: only unroll it.

    Legal for a reduction's loop with a fixed extent of at least `amount`. Grouping combines the
    elements of a float sum in another order, which r[conventions.reassociation.reduction] allows.
    A rest is reduced apart and combined last.
    """

    amount: int
    grouped: int = 1

    @property
    def name(self) -> str:
        """GROUP if partial results stand side by side, UNROLL if not."""
        return f"{'GROUP' if self.grouped else 'UNROLL'}({self.axis},{self.amount})"

    def apply(self, known: Analysis) -> UOp:
        """Every element is combined once."""
        # r[impl steps.value.equal]
        loop = self._loop(known, (RangeKind.REDUCE,))
        size = self.size_of(loop)
        if not 1 < self.amount <= size:
            raise StepError(self.name, f"the loop has {size} iterations", "ask for 2 to that many")
        whole, rest = divmod(size, self.amount)
        inner = new_range(self.amount, RangeKind.UNROLL)
        outer = (new_range(whole, RangeKind.REDUCE),) if whole > 1 else ()
        place = symbolic.add(symbolic.mul(outer[0], self.amount), inner) if outer else inner
        rewriter = Reducer(known, loop, place, outer, inner, bool(self.grouped))
        if rest:
            left = new_range(rest, RangeKind.REDUCE)
            rewriter.rest = (symbolic.add(left, whole * self.amount), left)
        stores = [rewriter.value(store) if loop in stage_of(store).ranges else store
                  for store in known.ast.src]
        return with_stores(known, stores, self.name)
del STEPS["SPLIT"]  # it is written as one of two steps
STEPS["GROUP"], STEPS["UNROLL"] = partial(Split, grouped=1), partial(Split, grouped=0)
