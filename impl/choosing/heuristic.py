"""Which steps suit a kernel, by rule and with a reason for each. Chapter: spec/choosing.md.

Reductions decide. A sum of products gets a register tile, so that what is loaded is used several
times; any other reduction gets several accumulators. One loop becomes a vector: the one along
which memory is contiguous. `plain` does the same for what has no reduction.
"""
from __future__ import annotations

import math
from collections.abc import Callable

from impl.choosing.ahead import look_ahead
from impl.choosing.chain import chain
from impl.choosing.plain import cut_blocks, merge_loops, merge_short, vectorize
from impl.choosing.planner import LONG, Planner, Reasoned, cut_vector, power
from impl.choosing.products import copy_gathered, cut_divided, plan_product
from impl.choosing.roll import roll_lanes
from impl.choosing.rows import plan_rows
from impl.choosing.short import plan_short
from impl.choosing.threads import Choice, part_of_loop, part_of_reduction
from impl.choosing.windows import plan_windows
from impl.ir import DEAR, Ops, RangeKind, UOp
from impl.kernel.analysis import LANES, DeviceLimits, stage_of
from impl.steps.loops import Cut, Own, Swap
from impl.steps.memory import Fetch
from impl.steps.split import Split
from impl.steps.step import StepError
from impl.steps.upcast import Upcast

#: Register tiles are cut to these sizes: the first that divides the extent, else the first.
_TILES = (8, 6, 5, 4, 7, 3, 2)
#: A reduction that computes more values side by side already is not tiled again.
_MOST_TILED = 8
#: A kernel with more nodes is not tiled for a transposition: its text would get long.
_TRANSPOSE_NODES = 60
#: Rows of a transposition are read on for so many tiles at least, or not.
_READ_ON = 4
#: A loop is not cut into fewer wide parts: others may want to work on some of them.
_LEAST_PARTS = 8
#: Squares of fewer lanes are not transposed.
_LEAST_SQUARE = 8
#: With so many elements of memory for each result, memory is what a kernel waits for.
_STREAMS = 3
#: A sum of so few products waits less for the loads that rows share.
_SHORT = 8
#: So many iterations are written out at most.
_MOST_WRITTEN = 4
#: A reduction with fewer elements is left as it is.
_LEAST_WORK = 64


def hand_steps(ast: UOp, limits: DeviceLimits) -> Reasoned:
    """Steps for a kernel, in the order in which they apply, each with its reason."""
    return hand_plan(ast, limits)[1]


def hand_plan(ast: UOp, limits: DeviceLimits) -> tuple[UOp, Reasoned]:
    """The kernel after the steps that rules choose, and the steps."""
    planner = HandPlanner(ast, limits)
    planner.run()
    return planner.known.ast, planner.steps


class HandPlanner(Planner):
    """Chooses steps by rules: the reduction with the most work first."""

    def run(self) -> None:
        """Choose all steps; the reduction with the most work first, as loops are shared."""
        cut_divided(self)
        cut_blocks(self)
        merge_loops(self)
        self._share(lambda: part_of_reduction(self.known, self.limits))
        plan_short(self)
        self._order_loops()
        self._transpose()
        while (node := self._next()) is not None:
            self.cut.update(loop.arg[0] for loop in node.src[1:])
            self._reduction(node)
            self._write_out({loop.arg[0] for loop in node.src[1:]})
            self.cut |= self.made  # what this reduction cut, others leave alone
        while copy_gathered(self):
            pass
        self._turn()
        chain(self)
        merge_short(self)
        vectorize(self)
        roll_lanes(self)
        look_ahead(self)
        self._share(lambda: part_of_loop(self.known, self.nanoseconds, self.threads(),
                                         self.limits))

    def _share(self, choose: Callable[[], Choice]) -> None:
        """Give parts of the kernel to threads, where they pay."""
        while (choice := choose()) is not None:
            self.take(*choice)

    def _next(self) -> UOp | None:
        """The reduction with the most work among those not looked at yet."""
        found = [n for n in self.known.order if n.op is Ops.REDUCE and self.work(n) >= _LEAST_WORK
                 and not any(loop.arg[0] in self.cut for loop in n.src[1:])]
        return max(found, key=self.work, default=None)

    def _lanes_of(self, node: UOp) -> int:
        """How many values a reduction computes side by side already."""
        total = 1
        for lane in self.known.loops(self.known.free[node] & self.known.lanes):
            total *= self.extent(lane)
        return total

    def _if_legal(self, plan: Callable[[HandPlanner, UOp], bool], node: UOp) -> bool:
        """Take the steps of a plan; none of them if one turns out not to be legal."""
        # r[impl choosing.product.refused]
        known, steps, cut, made = self.known, [*self.steps], {*self.cut}, {*self.made}
        try:
            return plan(self, node)
        except StepError:
            self._look(known)
            self.steps[:], self.cut, self.made = steps, cut, made
            return False

    def _reduction(self, node: UOp) -> None:
        """Steps for one reduction: which loop is the vector, and which share what is loaded."""
        if plan_rows(self, node) or self._if_legal(plan_product, node):
            return
        node = self.again(node)  # what was no product may have taken a step before that was seen
        if plan_windows(self, node):
            return
        loads = self.loads(node)
        width = self.limits.elements(node.dtype.itemsize)
        outputs = [loop for loop in self.known.loops(self.known.free[node] & ~self.known.lanes)
                   if loop.arg[1] in (RangeKind.GLOBAL, RangeKind.LOOP)
                   and loop.arg[0] not in self.cut and self.extent(loop) > 1]
        along = [loop for loop in outputs if self.extent(loop) >= min(width, 8)
                 and self.use(loads, loop).vector]
        across = [loop for loop in node.src[1:] if self.extent(loop) >= width
                  and loop.arg[1] is RangeKind.REDUCE
                  and self.use(loads, loop).vector]
        product = node.arg is Ops.ADD and len(loads) > 1
        shared = [loop for loop in outputs if product and self.use(loads, loop).constant
                  and not self._multiplies_tiles(node, loop)]
        tiled = self._lanes_of(node)
        if along and tiled <= _MOST_TILED:
            vector = max(along, key=lambda loop: (self.extent(loop) >= width, along.index(loop)))
            rows = [loop for loop in shared if loop is not vector][-1:] if tiled == 1 else []
            self._columns(vector, rows, width, tiled, self._tile_rows(node, vector, rows))
            self._hide_latency(self.again(node), width)
        elif across and tiled <= _MOST_TILED:
            self._rows(across[-1], shared[-2:] if tiled == 1 else shared[-1:], width, tiled)
        elif (stepped := self._stepped(node, outputs, loads)) is not None and tiled == 1:
            self._windows(node, stepped, width)
            self._hide_latency(self.again(node), width)
        elif self.few_apart(node.src[-1], loads, width // 2) and tiled == 1:
            self._rows(node.src[-1], shared[-2:], width, tiled)
        elif (mixed := self._mostly_along(outputs, loads, width)) is not None and tiled == 1:
            self._columns(mixed, [], width, tiled, 1)
            self._hide_latency(self.again(node), width)
        elif (mixed := self._mostly_across(node, loads)) is not None and tiled == 1:
            self._rows(mixed, [], power(min(width, self.extent(mixed))), tiled)

    def _mostly_along(self, outputs: list[UOp], loads: list[UOp], width: int) -> UOp | None:
        """An output loop along which most of what is read is contiguous, and the rest gathered."""
        # r[impl choosing.reduction.mostly]
        uses = [(loop, self.use(loads, loop)) for loop in outputs if self.extent(loop) >= width]
        return next((loop for loop, use in uses if use.contiguous > use.scattered), None)

    def _mostly_across(self, node: UOp, loads: list[UOp]) -> UOp | None:
        """The same of a loop of the reduction: half of what is read may be gathered."""
        # r[impl choosing.reduction.mostly]
        uses = [(loop, self.use(loads, loop)) for loop in node.src[1:]
                if loop.arg[1] is RangeKind.REDUCE and self.extent(loop) >= _LEAST_SQUARE]
        return next((loop for loop, use in uses[::-1]
                     if use.contiguous and use.contiguous >= use.scattered), None)

    def _write_out(self, numbers: set[int]) -> None:
        """Write out short loops of a sum by which bits are shifted, as those over the parts of a
        byte: a shift by a number that the compiler knows is one instruction, or none.
        """
        # r[impl choosing.product.shifts]
        for number in sorted(numbers & self.numbered.keys()):
            loop, known = self.numbered[number], self.known
            bit = 1 << known.position[loop]
            if loop.arg[1] is RangeKind.REDUCE and 1 < self.extent(loop) <= _MOST_WRITTEN \
                    and any(n.op in (Ops.SHL, Ops.SHR) and known.free[n.src[1]] & bit
                            for n in known.order):
                self.take_if_legal(Split(known.position[loop], self.extent(loop), 0),
                                   "shifts by numbers that are known")

    def _windows(self, node: UOp, loop: UOp, width: int) -> None:
        """Results of short windows become a vector, whose elements are read some way apart."""
        # r[impl choosing.window.apart]
        number, extent = loop.arg[0], self.extent(loop)
        reason, dear = "vector along the results of windows", any(
            n.op in DEAR for n in node.src[0].toposort())
        if width // 2 < extent < width and (dear or 4 * extent >= 3 * width):
            self.settle({number: width})
            cut_vector(self, number, width)
            return
        amounts = {number: power(min(width, extent))}
        self.settle(amounts)
        before, rest = set(self.known.ranges), extent % amounts[number]
        self.upcast(number, amounts, reason)
        if dear or 2 * rest >= width:
            self.whole_rest(before, rest, amounts[number])

    def _stepped(self, node: UOp, outputs: list[UOp], loads: list[UOp]) -> UOp | None:
        """A loop along which results lie side by side, and what they are made from a few elements
        apart: as in a pool.
        """
        store = next(store for store in self.known.ast.src if node in stage_of(store).order)
        grows = self.growth[store.src[0].src[1]] or {}
        for loop in outputs:
            steps = [(self.growth[load.src[0].src[1]] or {loop: 99}).get(loop, 0) for load in loads]
            if grows.get(loop) == 1 and self.extent(loop) >= 4 and loads \
                    and all(0 <= step <= 4 for step in steps):
                return loop
        return None

    def _multiplies_tiles(self, node: UOp, loop: UOp) -> bool:
        """Whether lanes of this loop would be lanes of another reduction that is a tile already."""
        # r[impl choosing.product.tile]
        bit = 1 << self.known.position[loop]
        return any(n is not node and n.op is Ops.REDUCE and self.known.free[n] & bit
                   and self._lanes_of(n) > 1 for n in self.known.order)

    def _tile_rows(self, node: UOp, vector: UOp, rows: list[UOp]) -> int:
        """How many rows a tile may have. Where each result comes with memory of its own besides,
        a row is a few streams, and a processor follows few: the shorter the sum, the fewer rows.
        """
        # r[impl choosing.product.streams]
        loads, many = self.loads(node), self.limits.vector_registers >= 32
        places = [store.src[0] for store in self.known.ast.src]
        places += [n.src[0] for n in self.known.order if n.op is Ops.LOAD and n not in loads]
        grown = [self.growth[place.src[1]] or {} for place in places]
        streams = sum(grows.get(vector) == 1 and any(loop in grows for loop in rows)
                      for grows in grown)
        most = 8 if many else 4
        if streams < _STREAMS:
            return most
        length = math.prod(self.extent(loop) for loop in node.src[1:])
        return min(most, 2 if length <= _SHORT else 4)

    def _columns(self, vector: UOp, rows: list[UOp], width: int, tiled: int, most: int) -> None:
        """One output loop becomes a vector; neighbouring rows share what is loaded."""
        many = self.limits.vector_registers >= 32
        amounts = {vector.arg[0]: power(min(width, self.extent(vector)))}
        amounts |= {loop.arg[0]: self._tile(loop, most) for loop in rows}
        self.settle(amounts)
        left = self.upcast(vector.arg[0], amounts, "vector along the contiguous output loop")
        if left is not None:
            # Alone it waits for memory: the more neighbours it reads at once, the better.
            vectors = (2,) if rows or tiled > 1 else (16, 8, 4) if many else (4,)
            fits = [n for n in vectors if self.extent(left) % n == 0
                    and (n <= 4 or self.extent(left) >= _LEAST_PARTS * n)]
            again = {left.arg[0]: fits[0] if fits else 1}
            self.upcast(left.arg[0], again, "more vectors share what is loaded")
        for loop in rows:
            self.upcast(loop.arg[0], amounts, "register tile: rows share what is loaded")

    def _hide_latency(self, node: UOp, width: int) -> None:
        """A long sum of few vectors would wait for each addition: it has several accumulators."""
        # r[impl choosing.reduction.long]
        loops = [loop for loop in node.src[1:] if loop.arg[1] is RangeKind.REDUCE]
        loop = max(loops, key=self.extent, default=node)
        if loops and self.extent(loop) >= LONG and self._lanes_of(node) <= 2 * width:
            self._split(loop, 4, "several accumulators hide the latency of one")

    def _rows(self, loop: UOp, tile: list[UOp], width: int, tiled: int) -> None:
        """The reduction becomes a vector of partial results; a tile of outputs shares loads."""
        most = 8 if len(tile) * tiled == 1 else 4
        amounts = {r.arg[0]: self._tile(r, most) for r in tile}
        self.settle(amounts)
        for r in tile:
            self.upcast(r.arg[0], amounts, "register tile: outputs share what is loaded")
        before, rest = set(self.known.ranges), self.extent(loop) % width
        left = self._split(loop, width, "vector of partial results along the contiguous loop")
        self.whole_rest(before, rest, width)
        alone = tiled * max(amounts.values(), default=1) == 1
        if left in self.known.position and self.extent(left) >= 8 and alone:
            self._split(left, 4, "several accumulators hide the latency of one")

    def _tile(self, loop: UOp, most: int) -> int:
        """How many iterations of an output loop to hold in registers."""
        extent = self.extent(loop)
        for size in _TILES:
            if size <= most and extent % size == 0:
                return size if size >= 4 or extent < 8 or not self.may_own(loop) else most
        return min(most, extent)

    def _split(self, loop: UOp, amount: int, reason: str) -> UOp | None:
        return self._take(Split(self.known.position[loop], amount), reason)

    def _order_loops(self) -> None:
        """Make the loop along which a stage stores contiguously its innermost one."""
        if any(n.op is Ops.REDUCE for n in self.known.order):
            return
        for store in self.known.ast.src:
            own = [r for r in store.src[2:] if r.arg[1] not in LANES]
            loops = own or list(self.known.info.prefix)
            grows = self.growth[store.src[0].src[1]]
            if len(loops) < 2 or grows is None or grows.get(loops[-1]) == 1:
                continue
            better = [r for r in loops if grows.get(r) == 1 and self.extent(r) >= 8
                      and r.arg[1] is loops[-1].arg[1]]
            if better:
                self._take(Swap(self.known.position[better[0]], self.known.position[loops[-1]]),
                           "contiguous stores innermost")
                return

    def _transpose(self) -> None:
        """Where a stage reads along one loop and stores along another, cut a square tile.

        Then every line of memory that is touched is used whole while it is in the cache.
        """
        # r[impl choosing.plain.lanes]
        bound = any(n.op is Ops.REDUCE or n.op is Ops.RANGE and n.arg[1] is RangeKind.BLOCK
                    for n in self.known.order)
        if bound or len(self.known.order) > _TRANSPOSE_NODES or len(self.known.ast.src) > 1:
            return
        store = self.known.ast.src[0]
        grows = self.growth[store.src[0].src[1]] or {}
        loads = [self.growth[n.src[0].src[1]] or {} for n in self.known.order
                 if n.op is Ops.LOAD]
        across = [r for r in self.known.ranges if self.extent(r) >= 8 and grows.get(r, 0) != 1
                  and any(load.get(r) == 1 for load in loads)]
        along = [r for r in self.known.ranges if self.extent(r) >= 8 and grows.get(r) == 1
                 and any(load.get(r, 0) > 1 for load in loads)]
        if not across or not along:
            return
        width = min(self.limits.elements(store.src[0].dtype.itemsize), 16)
        square = power(min(width, self.extent(along[0]), self.extent(across[0])))
        amounts = {along[0].arg[0]: square, across[0].arg[0]: square}
        self.settle(amounts)
        stored = self.upcast(along[0].arg[0], amounts, "tile of a transposition: stores along it")
        read = self.upcast(across[0].arg[0], amounts, "tile of a transposition: reads along it")
        if stored is not None and read is not None:
            size = store.src[0].dtype.itemsize * square * self.extent(along[0])
            self._read_on(stored, read, size)
            whole = store.src[0].dtype.itemsize * math.prod(map(self.extent, grows))
            if whole > self.limits.second_cache:  # r[impl choosing.plain.fetch]
                lane = next(r for r in self.known.ranges if r.arg[1] in LANES)
                self.take_if_legal(Fetch(self.known.position[lane]))

    def _read_on(self, stored: UOp, read: UOp, size: int) -> None:
        """Read a tile's rows on for a while before other rows: memory likes long lines.

        What is stored meanwhile, `size` bytes for each tile, has to stay in a cache.
        """
        # r[impl choosing.plain.lanes]
        amount = max((n for n in range(_READ_ON, self.extent(read) + 1)
                      if self.extent(read) % n == 0 and n * size <= self.limits.second_cache // 4),
                     default=0)
        prefix = self.known.info.prefix
        own = read in prefix and stored not in prefix
        if not amount or own and read is not prefix[-1]:
            return
        if amount < self.extent(read):
            read = self.take(Cut(self.known.position[read], amount),
                             "rows are read on for a while")[-1]
        if own:
            self.take(Own(self.known.position[read]), "other rows are around it")
            read = self.numbered[read.arg[0]]
        self.take(Swap(self.known.position[read], self.known.position[stored]),
                  "rows are read on before others")

    def _turn(self) -> None:
        """Where a stage, a copy for a product say, would gather along its vector: read squares."""
        # r[impl choosing.plain.lanes]
        while (found := self._gathered()) is not None:
            self.take(Upcast(self.known.position[found[0]], found[1]),
                      "a square of the operand is transposed, and nothing gathered")

    def _gathered(self) -> tuple[UOp, int] | None:
        """A loop of a stage along which a load is contiguous that is not along the stage's vector;
        and the size of that vector.
        """
        for store in self.known.ast.src:
            grows = self.growth[store.src[0].src[1]] or {}
            sizes = [self.extent(r) for r in store.src[2:] if r.arg[1] in LANES
                     and grows.get(r) == 1 and self.extent(r) >= _LEAST_SQUARE]
            values = store.src[1].toposort()
            if len(sizes) != 1 or any(n.op is Ops.REDUCE for n in values):
                continue
            loads = [n.src[0] for n in values if n.op is Ops.LOAD]
            for loop in store.src[2:]:
                bit = 1 << self.known.position[loop]
                if loop.arg[1] is RangeKind.LOOP and self.extent(loop) >= sizes[0] \
                        and any((self.growth[place.src[1]] or {}).get(loop) == 1
                                and not self.known.free[place.src[2]] & bit for place in loads):
                    return loop, sizes[0]
        return None
