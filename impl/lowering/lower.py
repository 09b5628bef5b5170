"""From a kernel's graph to nested loops: every value gets a place. Chapter: spec/lowering.md.

`lower` builds a tree of blocks. Each value stands in the block of the innermost loop that it
depends on, once, before the loops that use it. Nothing here depends on a language.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, field

from impl import symbolic
from impl.dtypes import dtypes
from impl.errors import GraphError
from impl.ir import TRUE, Ops, UOp
from impl.kernel import (
    LANES,
    Analysis,
    Growth,
    Way,
    accessed,
    buffer_key,
    growth,
    shared_loops,
    verify_kernel,
)
from impl.kernel.tiles import TileProduct, tiles_of
from impl.lowering.blocks import (
    Accumulate,
    Begin,
    Block,
    Define,
    Finish,
    Loop,
    Prefetch,
    Skip,
    Write,
)
from impl.lowering.checks import check_lowered
from impl.settings import get

#: What a loop whose extent is known at run time only is reckoned with.
_UNKNOWN_EXTENT = 64
_LEAVES = frozenset((Ops.CONST, Ops.PARAM, Ops.LOCAL, Ops.DEFINE_VAR, Ops.RANGE))


@dataclass(frozen=True)
class Address:
    """An INDEX, taken apart: base + sum of step * lane; steps None if lanes are part of base."""

    base: UOp
    steps: Growth


@dataclass(frozen=True)
class TileStage:
    """What a unit for matrices computes: where the product and its operands begin, and how far the
    rows of the product are apart.
    """

    product: TileProduct
    places: tuple[UOp, UOp, UOp]
    rows: int


class Lowered:
    """A kernel as nested blocks, with what a printer needs to know about each value."""

    def __init__(self, ast: UOp, vectors: bool = True) -> None:
        self.known = verify_kernel(ast)
        self.root = Block(None, None)
        self.access: dict[UOp, Address] = {}
        self.tiles: dict[UOp, TileStage] = {}  # stages that a unit for matrices computes
        self.inputs: dict[UOp, tuple[UOp, ...]] = {}
        self.users: dict[UOp, int] = {}
        self.single: dict[UOp, UOp] = {}  # value -> the only value that uses it
        self.inline: set[UOp] = set()
        self.vector: dict[UOp, UOp] = {}  # value -> the lane that is a vector in it
        self.depth: dict[UOp, int] = {}   # reductions on the way down to memory
        self.number = {node: i for i, node in enumerate(self.known.order)}
        if vectors:
            _find_tiles(self)
        _prepare(self)
        if vectors:
            _choose_vectors(self)
        _Placement(self).run()
        if get("SPEC"):
            check_lowered(self)

    def lanes(self, node: UOp) -> tuple[UOp, ...]:
        """The lanes of a value, in the kernel's order."""
        return self.known.loops(self.lane_mask(node))

    def lane_mask(self, node: UOp) -> int:
        """The same as a bit mask."""
        if node.op is Ops.STORE:
            return self.known.mask(node.src[2:]) & self.known.lanes
        return self.known.free[node] & self.known.lanes


def lower(ast: UOp, vectors: bool = True) -> Lowered:
    """Place every value of a kernel; without `vectors`, every lane of a value is a number.

    Raises:
        GraphError: the graph is no kernel (see `kernel.verify`).
    """
    # r[impl lowering.lower.language]
    return Lowered(ast, vectors)


def _find_tiles(low: Lowered) -> None:
    """The stages that a unit for matrices computes as a whole, and where their matrices begin."""
    # r[impl lowering.tiles.whole]
    for store in low.known.ast.src:
        found = tiles_of(store) if store.arg is Way.TILES else None
        if found is not None:
            product, rows = found
            start = dict.fromkeys(product.loops, UOp.const(dtypes.index, 0))
            first, second, third = (_rebuilt(index.src[1], start) for index in (
                store.src[0], product.first.index, product.second.index))
            for place in (first, second, third):
                low.known.extend(place)
            low.tiles[store] = TileStage(product, (first, second, third), rows)


def _rebuilt(address: UOp, replaced: dict[UOp, UOp]) -> UOp:
    """An address with loops replaced, which no number that it reads depends on.

    Where those numbers are read stays as it is: each place in memory was looked at once.
    """
    # r[impl lowering.address.read]
    read = {node: node for node in address.toposort(lambda u: u.op is not Ops.LOAD)
            if node.op is Ops.LOAD}
    return symbolic.rebuild(address, replaced | read)


def _prepare(low: Lowered) -> None:
    """What each value is computed from, once its indices are taken apart; and who uses it."""
    known = low.known
    lanes = known.loops(known.lanes)
    grows = growth(known.order, lanes) if lanes else {}
    nothing = UOp.const(dtypes.index, 0)
    for node in known.order:
        if node.op is Ops.INDEX:
            steps = grows.get(node.src[1]) or {}
            # lanes only add a constant to an address
            base = _rebuilt(node.src[1], dict.fromkeys(steps, nothing)) if steps else node.src[1]
            known.extend(base)
            low.access[node] = Address(base, steps)
    # How often a loop runs may be computed too: r[impl lowering.loop.extent]
    extents = [loop.src[0] for loop in known.ranges if loop.src[0].op is not Ops.CONST]
    for node in extents:
        low.users[node] = low.users.get(node, 0) + 1
        known.extend(node)
    for node in known.order:
        if node.op is Ops.SINK:
            _count(low, (*node.src, *extents))


def _count(low: Lowered, stores: tuple[UOp, ...]) -> None:
    """Find the inputs of every value below, and count the users of each."""
    stack = list(stores)
    while stack:
        node = stack.pop()
        if node in low.inputs:
            continue
        low.inputs[node] = inputs = _inputs(low, node)
        for source in inputs:
            low.users[source] = low.users.get(source, 0) + 1
            low.single[source] = node
            stack.append(source)


def _inputs(low: Lowered, node: UOp) -> tuple[UOp, ...]:
    """The values that have to be there before this one."""
    if node.op in _LEAVES:
        return ()
    if node.op is Ops.LOAD:
        return low.access[node.src[0]].base, node.src[0].src[2]
    if node in low.tiles:
        return low.tiles[node].places
    if node.op is Ops.STORE:
        return low.access[node.src[0]].base, node.src[0].src[2], node.src[1]
    if node.op is Ops.REDUCE:
        return node.src[:1]
    return node.src[:3] if node.op is Ops.MMA else node.src


def _choose_vectors(low: Lowered) -> None:
    """Decide which lanes become vector elements: at most one in every value.

    A lane is worth a vector if memory is contiguous along it, by the number of such accesses. One
    along which results are stored is worth half as much again. Where there is none at all, a lane
    is along which what is loaded lies a few elements apart.
    """
    known, score, apart = low.known, dict[UOp, int](), dict[UOp, int]()
    often = _how_often(known)
    stored: set[UOp] = set()
    for node in low.inputs:
        if node.op in (Ops.LOAD, Ops.STORE):
            for lane, step in low.access[node.src[0]].steps.items():
                found = score if step == 1 else apart
                if step == 1 or node.op is Ops.LOAD and 1 < step <= _size(lane) // 2:
                    found[lane] = found.get(lane, 0) + often[node] * _size(lane)
                    if node.op is Ops.STORE:
                        stored.add(lane)
    score = score or apart
    points = {lane: score[lane] * (3 if lane in stored else 2) for lane in known.ranges
              if lane in score and _power_of_two(lane)}
    taken = _worth_most(points, _rivals(low, points))
    for node in low.inputs:
        for lane in known.loops(low.lane_mask(node) & known.mask(taken)):
            low.vector[node] = lane


def _rivals(low: Lowered, points: dict[UOp, int]) -> dict[UOp, list[UOp]]:
    """For each lane, those that some value has too: one of them at most is a vector."""
    known = low.known
    masks: dict[int, None] = {}
    for node in low.inputs:
        mask = low.lane_mask(node)
        if node.op is Ops.REDUCE:  # those that it has, and those that it removes
            mask |= low.lane_mask(node.src[0])
        masks[mask] = None
    found = {}
    for lane in points:
        bit, together = 1 << known.position[lane], 0
        for mask in masks:
            together |= mask if mask & bit else 0
        found[lane] = [each for each in known.loops(together & ~bit) if each in points]
    return found


def _worth_most(points: dict[UOp, int], rivals: dict[UOp, list[UOp]]) -> tuple[UOp, ...]:
    """Lanes none of which is a rival of another, the best bargains first.

    A lane costs what its rivals are worth together.
    """
    # r[impl lowering.vector.choice]
    left, taken = dict(points), []
    while left:
        price = {lane: sum(left.get(each, 0) for each in rivals[lane]) for lane in left}
        best = next(iter(left))
        for lane in left:
            if left[lane] * max(price[best], 1) > left[best] * max(price[lane], 1):
                best = lane
        taken.append(best)
        for lane in (best, *rivals[best]):
            left.pop(lane, None)
    return tuple(taken)


def _how_often(known: Analysis) -> dict[UOp, int]:
    """For each node how often it is computed, lanes apart: once for all loops that do not matter.

    Of the loops around its use, the innermost ones that it does not depend on are left out.
    """
    prefix = tuple(loop for loop in known.info.prefix if loop.arg[1] not in LANES)
    around: dict[UOp, tuple[UOp, ...]] = {}
    often: dict[UOp, int] = {}
    for node in reversed(known.order):
        inside = around.get(node, prefix)
        if node.op is Ops.STORE:
            inside = (*prefix, *(loop for loop in node.src[2:] if loop.arg[1] not in LANES))
            often[node] = _iterations(inside)
        elif node.op is Ops.REDUCE:
            inside = (*inside, *(loop for loop in node.src[1:] if loop.arg[1] not in LANES))
        for source in node.src:
            loops, free = inside, known.free[source]
            while len(loops) > len(prefix) and not free >> known.position[loops[-1]] & 1:
                loops = loops[:-1]
            count = _iterations(loops)
            if count > often.get(source, 0):
                around[source], often[source] = loops, count
    return often


def _iterations(loops: tuple[UOp, ...]) -> int:
    """How often something inside these loops happens."""
    sizes = [loop.src[0] for loop in loops]
    return math.prod(s.arg if s.op is Ops.CONST else _UNKNOWN_EXTENT for s in sizes)


def _size(lane: UOp) -> int:
    return int(lane.src[0].arg) if lane.src[0].op is Ops.CONST else 0


def _power_of_two(lane: UOp) -> bool:
    return _size(lane) in (2, 4, 8, 16, 32, 64)


@dataclass(eq=False)
class _Group:
    """Neighbouring stores that share one loop nest."""

    stores: list[UOp]
    epoch: dict[UOp, int] = field(default_factory=dict)
    order: list[UOp] = field(default_factory=list)
    pinned: dict[UOp, int] = field(default_factory=dict)  # BLOCK loops that a value stays in

    @property
    def shared(self) -> tuple[UOp, ...]:
        """The BLOCK loops around the stores."""
        return shared_loops(self.stores[0])


class _Placement:
    """Walks over the stores in order and puts what they need where it belongs."""

    def __init__(self, low: Lowered) -> None:
        self.low, self.known = low, low.known
        self.written: dict[tuple[Ops, int], int] = {}  # buffer -> number of its last store
        self.stores = 0
        self.changed = self._changed()
        self.groups = self._group()
        self.epoch: dict[UOp, int] = {}
        self.pinned: dict[UOp, int] = {}

    def run(self) -> None:
        """Place everything."""
        block = self.low.root
        everywhere = frozenset(n for n in self.low.inputs if n.op is Ops.REDUCE)
        block.scope = everywhere
        for loop in self.known.info.prefix:
            block = self._open(block, loop, block)
            block.scope = everywhere
        shared = [block]  # the blocks of the BLOCK loops that are open, inside the prefix
        for group in self.groups:
            self._share(shared, group.shared)
            self._place_group(group, shared[-1])
        self._share(shared, ())
        _attach(block, self.low.root)

    def _share(self, shared: list[Block], loops: tuple[UOp, ...]) -> None:
        """Close BLOCK loops that the next stage is not in, and open those that it is in."""
        # r[impl kernel.block.loops]
        same = 0
        while same < min(len(loops), len(shared) - 1) and shared[same + 1].loop is loops[same]:
            same += 1
        while len(shared) > same + 1:
            _attach(shared.pop(), shared[-1])
        for loop in loops[same:]:
            shared.append(self._open(shared[-1], loop, shared[0]))
            shared[-1].scope = shared[0].scope

    def _changed(self) -> dict[tuple[Ops, int], int]:
        """For each buffer, the BLOCK loops in which it is stored anew."""
        found: dict[tuple[Ops, int], int] = {}
        for store in self.known.ast.src:
            key = accessed(store)
            found[key] = found.get(key, 0) | self.known.mask(shared_loops(store))
        return found

    def _group(self) -> list[_Group]:
        """Stores with the same loops, none of which reads what another one wrote, share a nest."""
        groups: list[_Group] = []
        for store in self.known.ast.src:
            last = groups[-1] if groups else None
            if last is None or not self._joins(last, store):
                groups.append(_Group([store]))
            else:
                last.stores.append(store)
        self.first_epoch: dict[UOp, int] = {}
        self.first_pinned: dict[UOp, int] = {}
        for group in groups:
            self._epochs(group)
            for node in group.order:
                self.first_epoch.setdefault(node, group.epoch[node])
                self.first_pinned.setdefault(node, group.pinned[node])
            for store in group.stores:
                self.stores += 1
                self.written[accessed(store)] = self.stores
        return groups

    def _joins(self, group: _Group, store: UOp) -> bool:
        if group.stores[0].src[2:] != store.src[2:]:
            return False
        if store in self.low.tiles or group.stores[0] in self.low.tiles:
            return False
        indices = {s.src[0] for s in (*group.stores, store)}
        stored = {buffer_key(index.src[0]) for index in indices}
        if len(stored) != len(indices):
            return False
        loaded = self._loads([*group.stores, store])
        return not any(buffer_key(index.src[0]) in stored for index in loaded)

    def _loads(self, roots: list[UOp]) -> set[UOp]:
        seen: set[UOp] = set()
        stack = list(roots)
        found: set[UOp] = set()
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack.extend(self.low.inputs[node])
                if node.op is Ops.LOAD:
                    found.add(node.src[0])
        return found

    def _epochs(self, group: _Group) -> None:
        """The epoch of a value: the stores to memory it reads that have happened before.

        A value may be placed earlier than its user, but not before its epoch.
        """
        stack: list[tuple[UOp, bool]] = [(store, False) for store in group.stores[::-1]]
        around = self.known.mask(group.shared)
        while stack:
            node, done = stack.pop()
            if done:
                epoch, depth, pinned = 0, 0, 0
                for source in self.low.inputs[node]:
                    epoch = max(epoch, group.epoch[source])
                    depth = max(depth, self.low.depth[source])
                    pinned |= group.pinned[source]
                if node.op is Ops.LOAD:
                    key = accessed(node)
                    epoch = max(epoch, self.written.get(key, 0))
                    pinned |= self.changed.get(key, 0) & around
                group.epoch[node], group.pinned[node] = epoch, pinned
                self.low.depth[node] = depth + (node.op is Ops.REDUCE)
                group.order.append(node)
            elif node not in group.epoch:
                group.epoch[node] = -1
                stack.append((node, True))
                stack.extend((s, False) for s in self.low.inputs[node][::-1])

    def _place_group(self, group: _Group, base: Block) -> None:
        self.epoch, self.pinned = group.epoch, group.pinned
        own = group.stores[0].src[2 + len(group.shared):]
        if group.stores[0] in self.low.tiles:
            own = own[:-2]  # the unit runs these
        loops = [r for r in own if not self._is_lane(r)]
        reductions = frozenset(n for n in group.order if n.op is Ops.REDUCE)
        block = base
        for loop in loops:
            block = self._open(block, loop, base)
            block.scope = reductions
        for condition in self._gates(group) if loops and reductions else ():
            self.low.users[condition] += 1
            self._demand([(condition, block)])
            block.items.append(Skip(condition))
        for store in group.stores:
            if store.arg is Way.AHEAD:  # r[impl lowering.fetch.before+3]
                self._demand([(self.low.access[store.src[0]].base, block)])
                block.items.append(Prefetch(store))
        for store in group.stores:  # r[impl kernel.order.stores]
            self._demand([(source, block) for source in self.low.inputs[store]])
            self._mark_inline(store, block)
            block.items.append(Write(store))
        _attach(block, base)

    def _gates(self, group: _Group) -> list[UOp]:
        """Conditions without which none of the stores happens, whatever the lane is."""
        # r[impl lowering.gate.skipped+2]
        first, *others = ([part for part in symbolic.conjuncts(store.src[0].src[2])
                           if part is not TRUE and not self.low.lane_mask(part)]
                          for store in group.stores)
        return [part for part in first if all(part in each for each in others)]

    def _is_lane(self, loop: UOp) -> bool:
        return bool(self.known.lanes >> self.known.position[loop] & 1)

    def _open(self, parent: Block, loop: UOp, outside: Block) -> Block:
        """A new block for a loop, not attached yet: what it needs is placed before it."""
        self._demand([(loop.src[0], outside)])
        own = 1 << self.known.position[loop]
        return Block(parent, loop, own, parent.around | own)

    def _level(self, node: UOp, block: Block) -> Block:
        """The outermost block around (or at) this one that has all loops of the value."""
        free = (self.known.free[node] | self._pins(node)) & ~self.known.lanes
        if free & ~block.around:
            loops = [loop.arg for loop in self.known.loops(free & ~block.around)]
            raise GraphError("lower", f"{node!r} is used outside its loops {loops}",
                             "add the loops to the store or the reduction")
        while block.parent is not None and not block.own & free:
            block = block.parent  # r[impl lowering.place.body+2]
        return block

    def _demand(self, wanted: list[tuple[UOp, Block]]) -> None:
        """Place values and everything they need, sources first, without recursion."""
        stack: list[tuple[UOp, Block, _Opened | bool]] = [(n, b, False) for n, b in wanted[::-1]]
        while stack:
            node, block, state = stack.pop()
            if isinstance(state, _Opened):
                self._close(state)
            elif state:
                block.items.append(Define(node))
                self._mark_inline(node, block)
                block.ready[node] = self._epoch_of(node)
            elif node.op not in _LEAVES:
                target = self._level(node, block)
                if target.ready.get(node, -1) >= self._epoch_of(node):
                    continue  # r[impl lowering.place.body+2]
                loops = self._loops_of(node)
                if loops:
                    self._open_reduction(node, target, loops, stack)
                else:
                    stack.append((node, target, True))
                    stack.extend((s, target, False) for s in self.low.inputs[node][::-1])

    def _loops_of(self, node: UOp) -> tuple[UOp, ...]:
        """The loops (not lanes) of a reduction; none for other values."""
        if node.op is not Ops.REDUCE:
            return ()
        return tuple(loop for loop in node.src[1:] if not self._is_lane(loop))

    def _open_reduction(self, node: UOp, target: Block, loops: tuple[UOp, ...],
                        stack: list[tuple[UOp, Block, _Opened | bool]]) -> None:
        """Open the loops of a reduction, and of all that can share them: one read, many results."""
        # r[impl lowering.reduce.merge+2]
        members = tuple(sorted(
            (other for other in target.scope if self._shares(other, node, target)),
            key=lambda n: self.low.number[n]))
        block = target
        for loop in loops:
            own = 1 << self.known.position[loop]
            block = Block(block, loop, own, block.around | own)
        block.scope = frozenset(n for n in self._below(members) if n.op is Ops.REDUCE)
        for inner in _chain(block, target):
            inner.scope = block.scope
        stack.append((node, target, _Opened(members, target, block)))
        values = [source for member in members for source in self.low.inputs[member]]
        stack.extend((value, block, False) for value in values[::-1])
        stack.extend((loop.src[0], target, False) for loop in loops)

    def _shares(self, other: UOp, node: UOp, target: Block) -> bool:
        if other is node:
            return True
        known, low = self.known, self.low
        return (other.src[1:] == node.src[1:] and low.depth[other] == low.depth[node]
                and (known.free[other] ^ known.free[node]) & ~known.lanes == 0
                and self._epoch_of(other) == self._epoch_of(node)
                and self._pins(other) == self._pins(node)
                and target.ready.get(other, -1) < self._epoch_of(other))

    def _epoch_of(self, node: UOp) -> int:
        found = self.epoch.get(node)
        return self.first_epoch.get(node, 0) if found is None else found

    def _pins(self, node: UOp) -> int:
        """The BLOCK loops that a value stays in: what it reads is stored anew in each iteration."""
        found = self.pinned.get(node)
        return self.first_pinned.get(node, 0) if found is None else found

    def _below(self, roots: tuple[UOp, ...]) -> list[UOp]:
        seen: set[UOp] = set()
        stack = [s for root in roots for s in self.low.inputs[root]]
        found = []
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                found.append(node)
                stack.extend(self.low.inputs[node])
        return found

    def _close(self, opened: _Opened) -> None:
        """All that the body needs is placed: attach the loops."""
        target, block, members = opened.target, opened.block, opened.members
        for member in members:
            self._mark_inline(member, block)
        block.items.append(Accumulate(members))
        target.items.append(Begin(members))
        _attach(block, target)
        target.items.append(Finish(members))
        for member in members:
            target.ready[member] = self._epoch_of(member)

    def _mark_inline(self, user: UOp, block: Block) -> None:
        """Sources that only this value uses, in the same block, need no variable of their own."""
        low = self.low
        mask = low.lane_mask(user)
        if user.op is Ops.REDUCE:
            mask |= low.lane_mask(user.src[0])
        for source in low.inputs[user]:
            if user.op is Ops.REDUCE and low.vector.get(source) in user.src[1:]:
                continue  # its elements are taken one by one
            if low.users[source] == 1 and source.op not in (Ops.LOAD, Ops.REDUCE) \
                    and source in block.ready and low.lane_mask(source) == mask:
                low.inline.add(source)


@dataclass(frozen=True, eq=False)
class _Opened:
    """A reduction whose body is being placed."""

    members: tuple[UOp, ...]
    target: Block
    block: Block


def _attach(inner: Block, outer: Block) -> None:
    """Append finished blocks to their parents, from `inner` up to `outer`."""
    for block in _chain(inner, outer):
        if block.parent is not None:
            block.parent.items.append(Loop(block))


def _chain(inner: Block, outer: Block) -> list[Block]:
    """The blocks from `inner` outwards, without `outer`."""
    found = []
    block: Block | None = inner
    while block is not None and block is not outer:
        found.append(block)
        block = block.parent
    return found


__all__ = ["Accumulate", "Address", "Analysis", "Begin", "Block", "Define", "Finish", "Loop",
           "Lowered", "Prefetch", "Skip", "Write", "lower"]
