"""Lanes that a stage does not need become loops again there. Chapter: spec/kernel.md.

Lanes that are cut off the prefix sink into every stage. A product needs them, as a register tile;
an elementwise stage only gets longer by them: its text, and the time to compile it.
"""
from __future__ import annotations

import math
from dataclasses import dataclass

from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import LANES, Analysis, stage_of
from impl.kernel.planner import Planner
from impl.kernel.steps import Rewriter, Step, StepError, with_stores

#: A stage that reduces nothing keeps at most this many values side by side.
_MOST_SIDE_BY_SIDE = 4
#: In a kernel with more stages each gets one vector: all of them together make the text.
_MOST_WIDE_STAGES = 8


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


def roll_lanes(planner: Planner) -> None:
    """Roll up lanes of elementwise stages until few values stand side by side."""
    while (lane := _too_many(planner)) is not None:
        planner.take(Roll(planner.known.position[lane]), "the stage needs no tile")


def has_many_stages(known: Analysis) -> bool:
    """Whether a kernel has so many stages that each is to be short."""
    return len(known.ast.src) > _MOST_WIDE_STAGES


def _is_turned(planner: Planner, store: UOp, lane: UOp) -> bool:
    """Whether a stage reads along a lane of a square tile, and stores along the other."""
    grows = planner.growth[store.src[0].src[1]] or {}
    square = any(step == 1 and other.arg[1] in LANES
                 and planner.extent(other) == planner.extent(lane) for other, step in grows.items())
    return square and any((planner.growth[n.src[0].src[1]] or {}).get(lane) == 1
                          for n in store.src[1].toposort() if n.op is Ops.LOAD)


def _too_many(planner: Planner) -> UOp | None:
    """A lane to roll up: not the vector, in a stage with too many values side by side."""
    known = planner.known
    for store in known.ast.src:
        lanes = [loop for loop in store.src[2:] if loop.arg[1] in LANES]
        grows = planner.growth[store.src[0].src[1]] or {}
        vectors = [lane for lane in lanes if grows.get(lane) == 1]
        side_by_side = math.prod(planner.extent(lane) for lane in lanes if lane not in vectors)
        # r[impl kernel.text.stages]
        most = 1 if has_many_stages(known) else _MOST_SIDE_BY_SIDE
        if vectors and side_by_side > most:
            for lane in lanes:
                if lane not in vectors and store in rollable(known, lane) \
                        and not _is_turned(planner, store, lane):
                    return lane
    return None
