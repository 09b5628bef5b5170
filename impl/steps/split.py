"""Reductions with several accumulators, or written out. Chapter: spec/steps.md."""
from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from impl import symbolic
from impl.ir import RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, stage_of
from impl.steps.declaration import Amount, Declaration
from impl.steps.rewriting import Reducer
from impl.steps.step import Step, register_step, with_stores


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
    def kind(self) -> str:
        """GROUP if partial results stand side by side, UNROLL if not."""
        return "GROUP" if self.grouped else "UNROLL"

    @property
    def name(self) -> str:
        """How the step is written: the kind says whether it is grouped."""
        return f"{self.kind}({self.axis},{self.amount})"

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Every element is combined once."""
        # r[impl steps.value.equal]
        size = self.size_of(loop)
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
# It is written as one of two steps.
register_step("GROUP", partial(Split, grouped=1), Declaration(
    does="a reduction gets n accumulators side by side",
    why="several accumulators hide the latency of one",
    loops=(RangeKind.REDUCE,), amount=Amount()))
register_step("UNROLL", partial(Split, grouped=0), Declaration(
    does="n iterations of a reduction are written out",
    why="what is added to a sum is loaded side by side",
    loops=(RangeKind.REDUCE,), amount=Amount()))
