"""The step NEXT: what the next row needs is asked for while this one is computed.

Chapter: spec/kernel.md. A softmax reads a row for its maximum, and then computes exponentials for a
long time: memory stands still meanwhile, and is waited for when the next row begins.
"""
from __future__ import annotations

from dataclasses import dataclass

from impl import symbolic
from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import LANES, Analysis, Way, accessed, growth, stage_of
from impl.kernel.planner import Planner
from impl.kernel.steps import Step, StepError, with_stores

#: Of the second cache, so many rows take no more than all: the one at hand, the next, and others.
_ROWS = 4


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


def look_ahead(planner: Planner) -> None:
    """Let a stage that reads a row again, from a cache, ask memory for the next one; or a stage
    that copies a part of an operand, after which the processor multiplies for a long time.
    """
    # r[impl kernel.rows.next]
    ahead = next_loads(planner.known)
    before: set[tuple[object, int]] = set()
    for store in planner.known.ast.src:
        loads = [load for load in stage_of(store).loads if load in ahead]
        again = [load for load in loads if (accessed(load), ahead[load]) in before
                 or _is_copied(planner, store, load)]
        loops = [r for r in stage_of(store).ranges if r not in planner.known.info.prefix
                 and r.arg[1] in (RangeKind.LOOP, RangeKind.REDUCE)]
        if store.arg is None and loops and any(_is_far(planner, load, ahead[load])
                                               for load in again):
            loop = max(loops, key=planner.extent)
            planner.take(Next(planner.known.position[loop]),
                         "the next row is on its way while this one is computed")
            return
        before |= {(accessed(load), ahead[load]) for load in loads}


def _is_copied(planner: Planner, store: UOp, load: UOp) -> bool:
    """Whether a stage copies what it loads to a LOCAL, in the order in which it lies there."""
    place, value = (planner.growth[index.src[1]] or {} for index in (store.src[0], load.src[0]))
    along = any(step == 1 == value.get(loop) and loop.arg[1] in LANES
                for loop, step in place.items())
    return store.src[1] is load and store.src[0].src[0].op is Ops.LOCAL and along


def _is_far(planner: Planner, load: UOp, step: int) -> bool:
    """Whether rows are too many to stay in the second cache, and short enough that some do."""
    width, cache = load.dtype.itemsize, planner.limits.second_cache
    least, most = symbolic.bounds(load.src[0].src[1])
    return step * width * _ROWS <= cache < (most - least + 1) * width


__all__ = ["Next", "look_ahead", "next_loads"]
