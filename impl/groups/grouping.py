"""Which steps suit a kernel on a device with work-groups. Chapter: spec/groups.md.

An iteration of the prefix goes to one lane, if it is short; else to a group, whose lanes share its
reductions and stages. What has no prefix is shared by the lanes of one group if it is little work,
and by those of all groups if it is much.
"""
from __future__ import annotations

import math

from impl import symbolic
from impl.blocking.chunk import Chunk
from impl.choosing.plain import merge_loops
from impl.choosing.planner import Reasoned
from impl.groups.lanes import Grid, Local, Warp
from impl.groups.pipeline import COPIES, early_copies
from impl.groups.planner import GroupPlanner
from impl.groups.spread import Spread
from impl.groups.units import plan_units
from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import LANES, WIDE_BYTES, DeviceLimits
from impl.kernel.private import exceeds
from impl.steps.loops import Cut
from impl.steps.padding import PadTo
from impl.steps.split import Split
from impl.steps.step import Step, StepError
from impl.steps.upcast import Upcast

#: LOCALs of an iteration with more bytes are shared by the lanes of a group.
_PRIVATE_BYTES = 256
#: An iteration with fewer elements to reduce, or to store, is left to one lane.
_WORTH_A_GROUP = 32
#: Iterations of the prefix that keep a device busy, one in a lane.
_BUSY = 4096
#: Work that one group does faster by itself than it can tell others of it.
_LITTLE = 8192
#: Lanes of all groups that share what has no prefix.
_ITEMS = 16384
#: A group that shares an iteration has at most so many times the lanes of a warp.
_WARPS = 8
#: Of a loop of a stage that is longer than there are lanes, a lane has at most so many iterations.
_ROUNDS = 32
#: A kernel whose product has fewer elements gets no register tile.
_WORTH_A_TILE = 1 << 14


def lane_steps(ast: UOp, limits: DeviceLimits) -> Reasoned:
    """Steps for a kernel on a device with work-groups, each with its reason."""
    planner = LanePlanner(ast, limits)
    planner.run()
    return planner.steps


class LanePlanner(GroupPlanner):
    """Decides what a lane does, what a group does, and what all groups do."""

    def run(self) -> None:
        """Choose all steps."""
        if self.limits.units and plan_units(self):
            return
        if self.in_step and self._tiled():
            return
        merge_loops(self)
        if self.known.info.prefix and self._few():
            self._items()
        elif self.known.info.prefix or self._work() <= _LITTLE or not self._grid():
            self._group()

    def _few(self) -> bool:
        """Whether one lane should run whole iterations of the prefix."""
        known = self.known
        private = sum(n.arg[1] * n.dtype.itemsize for n in known.order if n.op is Ops.LOCAL)
        if private > _PRIVATE_BYTES:
            return False
        iterations = math.prod(map(self._most, known.info.prefix))
        inner = self._inner()
        if inner < _WORTH_A_GROUP or self._work() <= _BUSY:
            return True
        along = [n for n in known.order if n.op is Ops.REDUCE and self._shared(n)
                 and any(self.use(self.loads(n), loop).contiguous for loop in n.src[1:])]
        reused = any(len(self.loads(n)) > 1 and n.arg is Ops.ADD for n in along)
        if not along:  # neighbouring lanes then read neighbouring columns
            return iterations >= _BUSY // 8
        return iterations >= _BUSY and reused

    def _most(self, loop: UOp) -> int:
        """The number of iterations; the greatest, if it is known at run time only."""
        return max(symbolic.bounds(loop.src[0])[1], 1)

    def _inner(self) -> int:
        """How many elements the longest stage or reduction of an iteration has."""
        nests = [store.src[2:] for store in self.known.ast.src]
        nests += [n.src[1:] for n in self.known.order if n.op is Ops.REDUCE and self._shared(n)]
        return max((math.prod(self._most(r) for r in nest if r.arg[1] not in LANES)
                    for nest in nests), default=1)

    def _wide(self) -> None:
        """Each lane takes neighbouring elements, as many as one access moves: all of a kernel as
        many, so that what a lane stores is what it reads later.
        """
        # r[impl groups.memory.lanes]
        known = self.known
        if not self.in_step:
            return
        reduced = [(loop, n) for n in known.order if n.op is Ops.REDUCE and self._shared(n)
                   for loop in n.src[1:]]
        stored = [(store.src[2:][-1], store) for store in known.ast.src if store.src[2:]]
        loops = {loop: node for loop, node in (*reduced, *stored)
                 if self.extent(loop) >= 2 * self.limits.lockstep}
        least = min((n.dtype.itemsize for n in known.order if n.op is Ops.PARAM), default=4)
        count = next((n for n in (8, 4, 2) if n * least <= WIDE_BYTES and all(
            self.extent(loop) % n == 0 and self.extent(loop) >= n * self.limits.lockstep
            for loop in loops)), 1)
        if count == 1 or not all(self._neighbours(node, loop) for loop, node in loops.items()):
            return
        for number in [loop.arg[0] for loop in loops]:
            kind = self.numbered[number].arg[1]
            step = Split(self.position(number), count, 0) if kind is RangeKind.REDUCE else \
                Upcast(self.position(number), count)
            self.take_if_legal(step, f"{count} neighbours in one access")
        self.made.clear()  # lanes share what is left of these loops

    def _neighbours(self, node: UOp, loop: UOp) -> bool:
        """Whether a stage or a reduction reads and stores neighbours along a loop."""
        if node.op is Ops.REDUCE:
            loads = self.loads(node)
        else:
            loads = [n for n in node.src[1].toposort(lambda u: u.op is not Ops.REDUCE)
                     if n.op is Ops.LOAD]
            if (self.growth[node.src[0].src[1]] or {}).get(loop, 0) != 1:
                return False
        use = self.use(loads, loop)
        return use.scattered == 0 and (use.contiguous > 0 or node.op is Ops.STORE)

    def _work(self) -> int:
        """How many elements the kernel combines and stores, all in all."""
        known = self.known
        masks = [known.mask(s.src[2:]) | known.prefix for s in known.ast.src]
        masks += [known.free[n.src[0]] | known.free[n] for n in known.order if n.op is Ops.REDUCE]
        return sum(math.prod(map(self._most, known.loops(mask))) for mask in masks)

    def _shared(self, node: UOp) -> bool:
        """Whether a reduction has one value for an iteration of the prefix."""
        return not self.known.free[node] & ~self.known.prefix

    def _tiled(self) -> bool:
        """A product gets a block of outputs a group: its lanes copy a part of both operands to
        local memory, and compute a tile in registers each, part after part.
        """
        found, before, steps = self.product(), self.known, len(self.steps)
        if found is None:
            return False
        row, column, loop = found
        numbers = [row.arg[0], column.arg[0]]
        least = min(self.extent(row), self.extent(column))
        tile = 64 if least >= 64 and self.work(self.sum_over(loop)) >= 1 << 24 else 32
        chunk = next((n for n in (16, 8, 4) if self.extent(loop) % n == 0), 0)
        why = f"a group computes {tile} x {tile} outputs of a product"
        try:
            for number in reversed(numbers):  # the last one is the outermost in the stage
                self.block(number, tile, why)
            own = [r.arg[0] for r in self.known.ast.src[0].src[2:]]
            for number in own:
                self.take(Upcast(self.position(number), 4), "each lane computes 4 x 4 of them")
            made = self.take(Chunk(self.position(loop.arg[0]), chunk), "part after part of the sum")
            inner = next(r for r in made if r.arg[1] is RangeKind.REDUCE)
            for factor in (0, 1):
                self.take(Spread(self.position(inner.arg[0]), factor),
                          "lanes share what they read in local memory")
        except StepError:
            self.undo(before, steps)
            return False
        lanes = (tile // 4) ** 2
        self.share_out(lambda axis: Local(axis, lanes), "the lanes of a group share it",
                       self.take_if_legal)
        if exceeds(self.known.ast, self.limits.local_memory):
            self.undo(before, steps)
            return False
        if self.limits.asynchronous:  # r[impl groups.units.chosen]
            any(self.take_if_fits(*early_copies(self.known, copies)) for copies in COPIES)
        return True

    def _items(self) -> None:
        """Each lane runs iterations of the prefix by itself."""
        self._tiles()
        self._wide_prefix()
        lanes = self.limits.lanes
        for number in [loop.arg[0] for loop in self.known.info.prefix[::-1]]:
            self.take(Local(self.position(number), lanes),
                      "short iterations: each lane runs some by itself")

    def _wide_prefix(self) -> None:
        """Where there are more iterations than lanes, a lane takes neighbouring ones."""
        known = self.known
        if not self.in_step or not known.info.prefix or any(
                n.op is Ops.REDUCE for n in known.order) or any(s.src[2:] for s in known.ast.src):
            return
        loop = known.info.prefix[-1]
        least = min((n.dtype.itemsize for n in known.order if n.op is Ops.PARAM), default=4)
        count = next((n for n in (8, 4, 2) if n * least <= WIDE_BYTES
                      and self.extent(loop) % n == 0), 1)
        iterations = math.prod(map(self._most, known.info.prefix))
        if count > 1 and iterations >= count * _ITEMS and all(
                self._neighbours(store, loop) for store in known.ast.src):
            self.take_if_legal(Upcast(self.position(loop.arg[0]), count),
                        f"{count} neighbours in one access")

    def _tiles(self) -> None:
        """A lane computes some neighbouring rows and columns of a product: what it loads serves
        several of them.
        """
        for node in self.known.order:
            if node.op is Ops.REDUCE and node.arg is Ops.ADD and self.work(node) >= _WORTH_A_TILE:
                loads = self.loads(node)
                uses = [(loop, self.use(loads, loop)) for loop in self.known.info.prefix]
                for loop, use in uses:
                    if len(loads) > 1 and use.constant and use.contiguous + use.scattered:
                        self._widen(loop)
                return

    def _widen(self, loop: UOp) -> None:
        """Some neighbouring iterations are run side by side."""
        extent = self.extent(loop)
        amount = next((n for n in (4, 2) if extent % n == 0 and extent >= 4 * n), 0)
        if amount:
            self.take_if_fits(Upcast(self.position(loop.arg[0]), amount),
                      "register tile: outputs share what is loaded")

    def _group(self) -> None:
        """The lanes of a group share reductions and stages."""
        self._wide()
        lanes, inner = min(self.limits.lanes, _WARPS * max(self.limits.lockstep, 4)), self._inner()
        while lanes > max(self.limits.lockstep, 2) and lanes > inner:  # a lane has one, or more
            lanes //= 2
        while (loop := self._reduction_loop(lanes)) is not None:
            if not self.take_if_fits(self._together(loop, lanes),
                             f"{lanes} lanes of a group reduce a part each"):
                self.cut.add(loop.arg[0])
            self.cut |= self.made  # the parts of a reduction are not cut again
        for number in self._long_loops(lanes) if self.in_step else ():
            self._rounds(number, lanes)
        self.share_out(lambda axis: Local(axis, lanes), "the lanes of a group share a stage")

    def _long_loops(self, lanes: int) -> list[int]:
        """The innermost loops of stages of which each lane has a few iterations."""
        last = [[r for r in store.src[2:] if r.arg[1] is RangeKind.LOOP][-1:]
                for store in self.known.ast.src]
        found = dict.fromkeys(loop for loops in last for loop in loops)
        return [loop.arg[0] for loop in found if lanes < self.extent(loop) <= _ROUNDS * lanes]

    def _rounds(self, number: int, lanes: int) -> None:
        """Share a long loop so that it is known which lane has an element: it keeps it."""
        before, count, why = self.known, len(self.steps), "each lane has an element of each round"
        try:
            if self.extent(self.numbered[number]) % lanes:
                number = self.take(PadTo(self.position(number), lanes), why)[0].arg[0]
            made = sorted(r.arg[0] for r in self.take(Cut(self.position(number), lanes), why))
            self.take(Local(self.position(made[1]), lanes), why)
            self.alone.add(made[0])
        except StepError:
            self.undo(before, count)

    def _together(self, loop: UOp, lanes: int) -> Step:
        """Share a reduction among lanes: warp by warp where these can exchange values."""
        place, width = self.known.position[loop], self.limits.lockstep
        whole = self.limits.exchange and lanes % width == 0
        return Warp(place, lanes, width) if whole else Local(place, lanes)

    def _reduction_loop(self, least: int) -> UOp | None:
        """The loop of a reduction that lanes should share: it is long, and contiguous."""
        for node in self.known.order:
            if node.op is Ops.REDUCE and self._shared(node):
                loops = [r for r in node.src[1:] if r.arg[1] is RangeKind.REDUCE
                         and self.extent(r) >= least and r.arg[0] not in self.cut]
                loads = self.loads(node)
                if loops:
                    return max(loops, key=lambda r: (self.use(loads, r).contiguous,
                                                     self.extent(r)))
        return None

    def _grid(self) -> bool:
        """The lanes of all groups share reductions and stages, unless a reduction would be
        repeated by each of them.
        """
        items, found = _ITEMS, len(self.steps)
        before = self.known
        while (loop := self._reduction_loop(items)) is not None:
            if not self.take_if_fits(Grid(self.known.position[loop], items),
                             f"{items} lanes of all groups reduce a part each"):
                self.cut.add(loop.arg[0])
            self.cut |= self.made
        repeated = [n for n in self.known.order if n.op is Ops.REDUCE and not self.known.free[n]
                    and self.work(n) > _WORTH_A_GROUP * 8]
        if not repeated:
            self.share_out(lambda axis: Grid(axis, items), "the lanes of all groups share a stage")
            if self.known.info.threads > 1:
                return True
        self.undo(before, found)
        self.cut.clear()
        return False
