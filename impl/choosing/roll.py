"""Which lanes become loops again, in stages that do not need them. Chapter: spec/choosing.md."""
from __future__ import annotations

import math

from impl.choosing.planner import Planner
from impl.ir import Ops, UOp
from impl.kernel.analysis import LANES, Analysis
from impl.steps.upcast import Roll, rollable

#: A stage that reduces nothing keeps at most this many values side by side.
_MOST_SIDE_BY_SIDE = 4
#: In a kernel with more stages each gets one vector: all of them together make the text.
_MOST_WIDE_STAGES = 8


def roll_lanes(planner: Planner) -> None:
    """Roll up lanes of elementwise stages until few values stand side by side."""
    while (lane := _too_many(planner)) is not None:
        planner.take(Roll(planner.known.position[lane]))


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
        # r[impl choosing.plain.lanes]
        most = 1 if has_many_stages(known) else _MOST_SIDE_BY_SIDE
        if vectors and side_by_side > most:
            for lane in lanes:
                if lane not in vectors and store in rollable(known, lane) \
                        and not _is_turned(planner, store, lane):
                    return lane
    return None
