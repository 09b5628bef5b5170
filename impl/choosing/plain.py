"""Loops without reductions: one loop of many, vectors along it, stores past the caches.

Chapter: spec/choosing.md.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from impl.choosing.planner import Planner
from impl.choosing.roll import has_many_stages
from impl.dtypes import dtypes, sum_accumulator
from impl.ir import ELEMENTWISE, TRANSCENDENTAL, Ops, RangeKind, UOp
from impl.kernel.analysis import LANES, Analysis, loop_size
from impl.steps.loops import Cut, Merge
from impl.steps.memory import Stream
from impl.steps.padding import PadTo
from impl.steps.step import Step, StepError

#: Operations that are many instructions each.
_DEAR = TRANSCENDENTAL | {Ops.POW, Ops.FLOORDIV, Ops.FLOORMOD}
_DEAR_COUNT = 16
#: A loop with fewer iterations is not made a vector.
LEAST_VECTOR = 4
#: Blocks of fewer elements are no vectors, and of fewer blocks the last one is a large part.
_LEAST_BLOCK, _LEAST_BLOCKS = 8, 4
#: So much of a loop may be added, that it is whole vectors.
_MOST_ADDED = 1 / 3


def merge_loops(planner: Planner) -> None:
    """Make one loop of neighbours where every access allows it: the longer, the better."""
    while (step := _merging(planner)) is not None:
        planner.take(step)
        planner.refused.clear()
    planner.made.clear()  # what is merged may still be cut


def _merging(planner: Planner) -> Step | None:
    known = planner.known
    reduces = any(node.op is Ops.REDUCE for node in known.order)
    lists: list[Sequence[UOp]] = [node.src[1:] for node in known.order if node.op is Ops.REDUCE
                                  and _reads_alike(planner, node)]
    if not reduces:
        lists += [known.info.prefix, *(store.src[2:] for store in known.ast.src)]
    for loops in lists:
        for outer, inner in zip(loops, loops[1:], strict=False):
            step = Merge(known.position[outer], known.position[inner])
            if step.name not in planner.refused:
                if _merges(step, known):
                    return step
                planner.refused.add(step.name)
    return None


def cut_blocks(planner: Planner) -> None:
    """Cut a loop without reductions that memory sees in blocks, as sums over blocks that are added
    to each of their elements: an element is then found without a division.
    """
    # r[impl choosing.plain.blocks]
    refused: set[UOp] = set()
    while (found := _block(planner, refused)) is not None:
        loop, size = found
        refused.add(loop)
        number, before = loop.arg[0], set(planner.known.ranges)
        if planner.extent(loop) % size:
            if not planner.take_if_legal(PadTo(planner.known.position[loop], size),
                                         "the last block is stored in part"):
                continue
            number = next(each.arg[0] for each in planner.known.ranges if each not in before)
        planner.take_if_legal(Cut(planner.position(number), size), "memory sees two loops in one")
    planner.made.clear()  # what is cut may still be a vector


def _block(planner: Planner, refused: set[UOp]) -> tuple[UOp, int] | None:
    """A loop that all stages share and that is divided in an index, and by which number."""
    known = planner.known
    if any(node.op is Ops.REDUCE for node in known.order):
        return None
    for node in known.order:
        if node.op is Ops.FLOORDIV and node.src[1].op is Ops.CONST:
            loop, size = node.src[0], int(node.src[1].arg)
            if loop in known.info.prefix and loop not in refused and size >= _LEAST_BLOCK \
                    and planner.extent(loop) >= _LEAST_BLOCKS * size:
                return loop, size
    return None


def merge_short(planner: Planner) -> None:
    """Make one loop of a stage's last two where the inner one is too short for a vector, or is no
    whole number of vectors, and what is stored lies side by side over both: as pixels that were
    windows do, and images of 7 x 7.
    """
    # r[impl choosing.window.apart, choosing.plain.lanes]
    for place in range(len(planner.known.ast.src)):
        known, store = planner.known, planner.known.ast.src[place]
        own = tuple(loop for loop in store.src[2:] if loop.arg[1] not in LANES)
        if len(own) < 2 and len(known.ast.src) == 1:
            own = known.info.prefix
        if len(own) < 2 or any(node.op is Ops.REDUCE for node in store.toposort()):
            continue
        (outer, inner), grows = own[-2:], planner.growth[store.src[0].src[1]] or {}
        step, size = Merge(known.position[outer], known.position[inner]), planner.extent(inner)
        width = planner.limits.elements(store.src[0].dtype.itemsize)
        if grows.get(inner) == 1 and grows.get(outer) == size and (
                1 < size < LEAST_VECTOR or size % width and _merges(step, known)):
            before = set(planner.made)
            planner.take_if_legal(step, "too short for a vector alone")
            planner.made &= before  # what is merged may still be cut


def _reads_alike(planner: Planner, node: UOp) -> bool:
    """Whether all that a reduction reads lies alike along its loops, as in no sum over windows."""
    grows = [planner.growth[load.src[0].src[1]] or {} for load in planner.loads(node)]
    steps = [[grow.get(loop, 0) for loop in node.src[1:]] for grow in grows]
    return bool(steps) and all(step == steps[0] for step in steps)


def _merges(step: Merge, known: Analysis) -> bool:
    """Whether the loops can be merged and every index stays as simple as it is."""
    try:
        changed = Analysis(step.apply(known), known)
    except StepError:
        return False
    divisions = [sum(n.op in (Ops.FLOORDIV, Ops.FLOORMOD) for n in each.order)
                 for each in (known, changed)]
    return divisions[1] <= divisions[0]


def vectorize(planner: Planner) -> None:
    """Make vectors of the loops along which the stages store contiguously."""
    seen: set[int] = set()
    while (loop := _along(planner, seen)) is not None:
        number = loop.arg[0]
        seen.add(number)
        stores = _stores_along(planner.known, loop)
        width = planner.limits.vector_bytes // _widest(planner.known, loop)
        amounts = {number: _power(min(width, planner.extent(loop)))}
        number = _whole(planner, loop, amounts)
        seen.add(number)
        planner.settle(amounts)
        known = planner.known
        loop = planner.numbered.get(number)
        if loop is not None and amounts[number] >= LEAST_VECTOR:
            cheap = _cost(known, loop)
            large = _bytes(planner, stores) > planner.limits.third_cache
            before, rest = set(known.ranges), planner.extent(loop) % amounts[number]
            left = planner.upcast(number, amounts, "vector along the contiguous loop")
            planner.whole_rest(before, rest, amounts[number])
            again = 4 if cheap <= 8 else 2 if cheap <= 20 else 1
            if has_many_stages(known):  # r[impl choosing.plain.lanes]
                again = 1
            if left is not None:
                seen.add(left.arg[0])
                if again > 1 and planner.extent(left) % again == 0:
                    left = planner.upcast(left.arg[0], {left.arg[0]: again}, "several vectors")
            if left is not None:
                seen.add(left.arg[0])
                if large:
                    _stream(planner, left)


def _whole(planner: Planner, loop: UOp, amounts: dict[int, int]) -> int:
    """Let a loop that all stages share be whole vectors, if it would be cut into other ones, and
    few elements are added; its number.
    """
    # r[impl choosing.plain.whole]
    number, extent = loop.arg[0], planner.extent(loop)
    if extent % amounts[number] == 0 or planner.may_own(loop) \
            or loop not in planner.known.info.prefix:
        return number
    width = next((each for each in (amounts[number], amounts[number] // 2)
                  if -extent % each <= _MOST_ADDED * extent), 0)
    before = set(planner.known.ranges)
    if width < LEAST_VECTOR or extent % width and not planner.take_if_legal(
            PadTo(planner.known.position[loop], width), "the last vector is stored in part"):
        return number
    number = next((each.arg[0] for each in planner.known.ranges if each not in before), number)
    amounts.clear()
    amounts[number] = width
    return number


def _along(planner: Planner, seen: set[int]) -> UOp | None:
    """A loop that is worth a vector."""
    known = planner.known
    for store in known.ast.src:
        own = [loop for loop in store.src[2:] if loop.arg[1] not in LANES]
        for loop in (own or list(known.info.prefix))[-1:]:
            if loop.arg[0] in seen or loop.arg[0] in planner.made \
                    or loop.arg[1] is RangeKind.BLOCK or planner.extent(loop) < LEAST_VECTOR:
                continue
            if _is_plain(planner, loop):
                return loop
    return None


def _is_plain(planner: Planner, loop: UOp) -> bool:
    """Whether all that is computed along a loop is elementwise and stored contiguously."""
    known = planner.known
    bit = known.mask((loop,))
    scattered = contiguous = 0
    for store in _stores_along(known, loop):
        if planner.step(store.src[0].src[1], loop) != 1 and not _passes_one(known, store):
            return False
    for node in known.order:
        if not known.free[node] & bit:
            continue
        if node.op is Ops.REDUCE or node.op is Ops.RANGE and node.arg[1] in LANES:
            return False
        if node.op is Ops.LOAD and node.src[0].src[0].op is not Ops.LOCAL:
            step = planner.step(node.src[0].src[1], loop)
            scattered += step not in (-1, 0, 1)
            contiguous += step in (-1, 1)
    lanes = known.lanes and any(_has_vector(planner, store, loop)
                                for store in _stores_along(known, loop))
    return not lanes and scattered <= 2 + contiguous


def _passes_one(known: Analysis, store: UOp) -> bool:
    """Whether a stage passes one element on in each iteration of the prefix: its lanes will lie
    side by side.
    """
    return store.src[0].src[0].op is Ops.LOCAL and not known.free[store.src[0].src[1]]


def _has_vector(planner: Planner, store: UOp, loop: UOp) -> bool:
    """Whether another lane of what is stored is, or may become, a vector."""
    known = planner.known
    lanes = known.loops((known.free[store.src[1]] | known.free[store.src[0]]
                         | known.mask(store.src[2:])) & known.lanes)
    for node in store.toposort():
        if node.op is Ops.INDEX and known.free[node] >> known.position[loop] & 1:
            grows = planner.growth[node.src[1]] or {}
            if any(grows.get(lane) == 1 for lane in lanes):
                return True
    return False


def _stores_along(known: Analysis, loop: UOp) -> list[UOp]:
    """The stores in the loop; all of them, if it is one of the prefix."""
    return [store for store in known.ast.src
            if loop in known.info.prefix or loop in store.src[2:]]


def _widest(known: Analysis, loop: UOp) -> int:
    """The bytes of the widest elements that are computed along a loop."""
    bit = known.mask((loop,))
    sizes = [sum_accumulator(node.dtype).itemsize
             for node in known.order if known.free[node] & bit or node.op is Ops.STORE
             if node.dtype is not dtypes.index and node.op not in (Ops.INDEX, Ops.SINK)
             and (node.dtype is not dtypes.bool or node.op is Ops.LOAD)]
    return max(sizes, default=4)


def _cost(known: Analysis, loop: UOp) -> int:
    """About how many instructions one iteration of the loop has."""
    bit = known.mask((loop,))
    return sum(_DEAR_COUNT if node.op in _DEAR else 1 for node in known.order
               if known.free[node] & bit and node.op in ELEMENTWISE | {Ops.LOAD}
               and node.dtype is not dtypes.index)


def _bytes(planner: Planner, stores: Iterable[UOp]) -> int:
    """How much memory outside of the kernel is written by the largest of some stores."""
    known, most = planner.known, 0
    for store in stores:
        if store.src[0].src[0].op is Ops.PARAM:
            loops = (*known.info.prefix, *store.src[2:])
            size = store.src[0].dtype.itemsize
            for loop in loops:
                size *= loop_size(loop)
            most = max(most, size)
    return most


def _stream(planner: Planner, loop: UOp) -> None:
    planner.take_if_legal(Stream(planner.known.position[loop]))


def _power(value: int) -> int:
    """The greatest power of two that is at most `value`."""
    return 1 << (value.bit_length() - 1)
