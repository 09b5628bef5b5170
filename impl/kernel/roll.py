"""Lanes that a stage does not need become loops again there. Chapter: spec/kernel.md.

Lanes that are cut off the prefix sink into every stage. A product needs them, as a register tile;
an elementwise stage only gets longer by them: its text, and the time to compile it.
"""
from __future__ import annotations

from dataclasses import dataclass

from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import LANES, Analysis, stage_of
from impl.kernel.steps import Rewriter, Step, StepError, with_stores


@dataclass(frozen=True)
class Roll(Step):
    """Make a lane a loop in the stages that reduce nothing along it.

    Legal for a lane that some stage has and reduces nothing along. A unit for matrices needs the
    lanes of its fragments.
    """

    def apply(self, known: Analysis) -> UOp:
        """Any order of output iterations is legal."""
        # r[impl kernel.step.equal+2]
        lane = self._loop(known, (RangeKind.UPCAST,))
        found = rollable(known, lane)
        if not found:
            raise StepError(self.name, "every stage with this lane reduces along it",
                            "name a lane of a stage that does not")
        loop = new_range(self.size_of(lane), RangeKind.LOOP)
        rewriter = Rewriter(known, {lane: loop}, {lane: ()})
        stores = []
        for store in known.ast.src:
            if store in found:
                done = rewriter.store(store, False)
                loops = list(done.src[2:])
                place = next((i for i, each in enumerate(loops)
                              if each.arg[1] in (RangeKind.LOOP, *LANES)), len(loops))
                store = done.replace(src=(*done.src[:2], *loops[:place], loop, *loops[place:]))
            stores.append(store)
        return with_stores(known, stores, self.name)


def rollable(known: Analysis, lane: UOp) -> list[UOp]:
    """The stores in the lane with nothing that is reduced along it, nor computed by a unit."""
    bit = known.mask((lane,))
    return [store for store in known.ast.src if lane in store.src[2:] and not any(
        known.free[node] & bit if node.op is Ops.REDUCE else lane in node.src
        for node in stage_of(store).reductions)]
