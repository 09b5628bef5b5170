"""When to ask memory for what is needed next. Chapter: spec/choosing.md."""
from __future__ import annotations

from impl import symbolic
from impl.choosing.planner import Planner
from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import LANES, accessed, next_loads, own_block_loops, stage_of
from impl.steps.memory import Next

#: Of the second cache, so many rows take no more than all: the one at hand, the next, and others.
_ROWS = 4
#: Rows that lie so many bytes apart are streams of their own to a processor.
_APART = 1 << 10
#: Narrower elements than of so many bytes are made wider before they are multiplied.
_WORD = 4


def look_ahead(planner: Planner) -> None:
    """Let a stage that reads a row again, from a cache, ask memory for the next one; or a stage
    that copies a part of an operand, after which the processor multiplies for a long time; or one
    that adds some rows of memory after the other to its results, or reads some side by side.
    """
    # r[impl choosing.memory.ahead+2]
    ahead, alone = next_loads(planner.known), planner.known.mask(own_block_loops(planner.known))
    before: set[tuple[object, int]] = set()
    for store in planner.known.ast.src:
        loads = [load for load in stage_of(store).loads if load in ahead]
        again = [load for load in loads if (accessed(load), ahead[load]) in before
                 or _is_copied(planner, store, load) or planner.known.free[load] & alone
                 or _is_beside_others(planner, store, load)]
        loops = [r for r in stage_of(store).ranges if r not in planner.known.info.prefix
                 and r.arg[1] in (RangeKind.LOOP, RangeKind.REDUCE)]
        if store.arg is None and loops and any(_is_far(planner, load, ahead[load])
                                               for load in again):
            loop = max(loops, key=planner.extent)
            planner.take(Next(planner.known.position[loop]))
            return
        before |= {(accessed(load), ahead[load]) for load in loads}


def _is_copied(planner: Planner, store: UOp, load: UOp) -> bool:
    """Whether a stage copies what it loads to a LOCAL, in the order in which it lies there."""
    place, value = (planner.growth[index.src[1]] or {} for index in (store.src[0], load.src[0]))
    along = any(step == 1 == value.get(loop) and loop.arg[1] in LANES
                for loop, step in place.items())
    return store.src[1] is load and store.src[0].src[0].op is Ops.LOCAL and along


def _is_beside_others(planner: Planner, store: UOp, load: UOp) -> bool:
    """Whether rows that lie apart are read side by side, and each element once. Of narrow elements
    a processor reads fewer lines in its time, and follows the rows less far ahead.
    """
    known, grows = planner.known, planner.growth[load.src[0].src[1]] or {}
    every = known.mask({*known.info.prefix, *stage_of(store).ranges})
    return load.dtype.itemsize < _WORD and not every & ~known.free[load] & ~known.lanes and any(
        step * load.dtype.itemsize >= _APART and loop.arg[1] in LANES
        for loop, step in grows.items())


def _is_far(planner: Planner, load: UOp, step: int) -> bool:
    """Whether rows are too many to stay in the second cache, and short enough that some do."""
    width, cache = load.dtype.itemsize, planner.limits.second_cache
    least, most = symbolic.bounds(load.src[0].src[1])
    return step * width * _ROWS <= cache < (most - least + 1) * width
