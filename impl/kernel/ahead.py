"""The step NEXT: what the next row needs is asked for while this one is computed.

Chapter: spec/kernel.md. A softmax reads a row for its maximum, and then computes exponentials for a
long time: memory stands still meanwhile, and is waited for when the next row begins.
"""
from __future__ import annotations

from dataclasses import dataclass

from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import LANES, Analysis, Way, growth, stage_of
from impl.kernel.steps import Step, StepError, with_stores


@dataclass(frozen=True)
class Next(Step):
    """Ask for what a stage will read in the next iteration of the last loop of the prefix.

    Legal for a loop of a stage, or of a reduction in it, that reads an argument which goes on
    evenly along that loop of the prefix, if no other step has decided where its results go.
    """

    def apply(self, known: Analysis) -> UOp:
        """When memory comes to a cache is no part of a value."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.LOOP, RangeKind.REDUCE))
        ahead = next_loads(known)
        found = [store for store in known.ast.src if store.arg is None
                 and loop in stage_of(store).ranges
                 and any(load in ahead for load in stage_of(store).loads)]
        if not found:
            raise StepError(self.name, "no stage reads along it what goes on in the next iteration",
                            "name a loop of a stage that reads an argument along the prefix")
        return with_stores(known, [store.replace(arg=Way.NEXT) if store in found else store
                                   for store in known.ast.src], self.name)


def next_loads(known: Analysis) -> dict[UOp, int]:
    """Loads of arguments, and by how much their places grow with the last loop of the prefix."""
    rows = [r for r in known.info.prefix if r.arg[1] not in LANES][-1:]
    loads = [n for n in known.order if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.PARAM]
    if not rows or not loads:
        return {}
    grows = growth(known.order, rows)
    steps = {load: (grows[load.src[0].src[1]] or {}).get(rows[0], 0) for load in loads}
    return {load: step for load, step in steps.items() if step > 0}


__all__ = ["Next", "next_loads"]
