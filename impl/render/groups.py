"""Where the lanes of a work-group wait for each other. Chapter: spec/render.md.

The lanes of a group run an iteration of the prefix together: they share the loops of kind LANE. One
must not read what another one has not stored yet, nor store where another one still reads. So a
barrier stands before whatever needs what was stored, or stores where something was read, since the
last barrier. What is not shared by lanes and stores is done by one of them.
"""
from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from impl import symbolic
from impl.dtypes import dtypes
from impl.ir import Ops, RangeKind, UOp
from impl.kernel import buffer_key, growth
from impl.render.lower import Block, Define, Item, Loop, Lowered, Wait, Write

Key = tuple[Ops, int]


# --8<-- [start:waits]
@dataclass
class _Open:
    """Buffers that some lanes may have stored or read since all of them waited."""

    stored: set[Key] = field(default_factory=set)
    loaded: set[Key] = field(default_factory=set)

    def conflicts(self, other: _Open) -> bool:
        """Whether what comes next has to wait."""
        # r[impl render.wait.needed]
        return bool(self.stored & (other.loaded | other.stored) or self.loaded & other.stored)

    def add(self, other: _Open) -> None:
        """This was done, too."""
        self.stored |= other.stored
        self.loaded |= other.loaded

    def copy(self) -> _Open:
        return _Open(set(self.stored), set(self.loaded))


def place_waits(low: Lowered, kept: frozenset[UOp] = frozenset()) -> frozenset[UOp]:
    """Put barriers between the stages of a kernel whose lanes share loops of the stages.

    Without such loops, or if the prefix is shared, every lane keeps to itself. `kept` are LOCALs
    that each lane has for itself anyway. The answer are those that the lanes of a group share.
    """
    info = low.known.info
    lanes = [r for r in low.known.ranges if r.arg[1] is RangeKind.LANE]
    if info.lanes == 1 or any(loop.arg[1] is RangeKind.LANE for loop in info.prefix) or not lanes:
        return frozenset()
    private = {buffer_key(buffer) for buffer in kept}
    _Walk(low, private).block(low.root, _Open())
    return frozenset(node for node in low.known.order if node.op is Ops.LOCAL and node not in kept)


class _Walk:
    """Goes through the blocks that all lanes run, in the order in which they do."""

    def __init__(self, low: Lowered, private: Collection[Key]) -> None:
        self.low, self.private = low, frozenset(private)

    def block(self, block: Block, before: _Open) -> _Open:
        """Put barriers into a block and those in it; the answer is what is open after it."""
        now = before
        items: list[Item] = []
        for item in block.items:
            inner = item.block if isinstance(item, Loop) else None
            if inner is not None and self._run_by_all(inner):
                now = self._repeated(inner, now)
                items.append(item)
                continue
            does = _touched(item)
            does = _Open(does.stored - self.private, does.loaded - self.private)
            if now.conflicts(does):
                items.append(Wait())  # r[impl render.wait.order]
                now = _Open()
            now.add(does)
            items.append(item if not _stores(item) or _has_lanes(item) else _alone(item))
        block.items = items
        return now

    def _run_by_all(self, block: Block) -> bool:
        """Whether all lanes run a loop as it stands, and it has stages in it."""
        loop = block.loop
        return loop is not None and (loop in self.low.known.info.prefix
                                     or loop.arg[1] is RangeKind.BLOCK)

    def _repeated(self, block: Block, before: _Open) -> _Open:
        """What an iteration leaves open is open when the next one begins."""
        assert block.loop is not None
        if block.loop.arg[1] is RangeKind.BLOCK:
            items = block.items
            after = self.block(block, before.copy())
            self._undo(block, items)
            before.add(after)
        return self.block(block, before)

    def _undo(self, block: Block, items: list[Item]) -> None:
        """The items as they were; those of loops inside, too."""
        block.items = items
        stack = [item.block for item in items if isinstance(item, Loop)]
        while stack:
            inner = stack.pop()
            inner.items = [item for item in inner.items if not isinstance(item, Wait)]
            inner.items = [item.block.items[0] if isinstance(item, Loop) and item.block.alone
                           else item for item in inner.items]
            stack += [item.block for item in inner.items if isinstance(item, Loop)]
# --8<-- [end:waits]


def _alone(item: Item) -> Item:
    """One lane does it."""
    # r[impl render.wait.alone]
    return Loop(Block(None, None, items=[item], alone=True))


def _walk(item: Item) -> list[Item]:
    """An item and those in its loops."""
    found, stack = [], [item]
    while stack:
        found.append(stack.pop())
        last = found[-1]
        if isinstance(last, Loop):
            stack += last.block.items
    return found


def _touched(item: Item) -> _Open:
    """The buffers that an item reads and stores."""
    found = _Open()
    for each in _walk(item):
        if isinstance(each, Write):
            found.stored.add(buffer_key(each.store.src[0].src[0]))
        elif isinstance(each, Define) and each.node.op is Ops.LOAD:
            found.loaded.add(buffer_key(each.node.src[0].src[0]))
    return found


def _stores(item: Item) -> bool:
    """Whether anything is stored in it."""
    return any(isinstance(each, Write) for each in _walk(item))


def _has_lanes(item: Item) -> bool:
    """Whether lanes share a loop in it."""
    return any(isinstance(each, Loop) and each.block.loop is not None
               and each.block.loop.arg[1] is RangeKind.LANE for each in _walk(item))


# --8<-- [start:private]
#: A lane keeps at most so many elements of a LOCAL in registers.
_MOST_KEPT = 128
#: The loops that lanes share around an access: their extents, and how the index grows with them.
_Pattern = tuple[tuple[int, int], ...]


def keep_private(ast: UOp) -> tuple[UOp, frozenset[UOp]]:
    """Make LOCALs of which each lane touches a part of its own as small as that part.

    The answer is the kernel, and the LOCALs that are a lane's own now. So the sums of a register
    tile are registers, although they pass from one stage to another.
    """
    # r[impl render.wait.private]
    if ast.arg.lanes == 1 or any(r.arg[1] is RangeKind.LANE for r in ast.arg.prefix):
        return ast, frozenset()
    found: dict[UOp, dict[UOp, tuple[_Pattern, UOp]] | None] = {}
    for store in ast.src:
        lanes = [r for r in store.src[2:] if r.arg[1] is RangeKind.LANE]
        order = store.toposort()
        grows = growth(order, lanes)
        for node in order:
            if node.op is Ops.INDEX and node.src[0].op is Ops.LOCAL:
                taken = _pattern(node, lanes, grows[node.src[1]], ast.arg.lanes)
                known = found.setdefault(node.src[0], {})
                if taken is None or known is None or known.get(node, taken)[0] != taken[0]:
                    found[node.src[0]] = None
                else:
                    known[node] = taken
    places: dict[UOp, UOp] = {}
    kept: list[UOp] = []
    for buffer, accesses in found.items():
        own = _own_part(accesses) if accesses else None
        if accesses and own is not None:
            kept.append(buffer.replace(arg=(buffer.arg[0], own[1])))
            for node, (_, rest) in accesses.items():
                index = symbolic.add(rest, -own[0])
                places[node] = node.replace(src=(kept[-1], index, node.src[2]))
    return (ast.substitute(places) if places else ast), frozenset(kept)


def _pattern(node: UOp, lanes: list[UOp], grows: dict[UOp, int] | None,
             count: int) -> tuple[_Pattern, UOp] | None:
    """How an access grows with the loops that lanes share, and its index without them.

    None if an iteration is not always the same lane's.
    """
    if grows is None or any(r.src[0].op is not Ops.CONST for r in lanes) \
            or math.prod(r.src[0].arg for r in lanes) != count:
        return None
    pattern = tuple((r.src[0].arg, grows.get(r, 0)) for r in lanes)
    nothing = UOp.const(dtypes.index, 0)
    return pattern, symbolic.rebuild(node.src[1], dict.fromkeys(lanes, nothing))


def _own_part(accesses: dict[UOp, tuple[_Pattern, UOp]]) -> tuple[int, int] | None:
    """The first place of the part that a lane touches, and its size; None if parts overlap."""
    patterns = {pattern for pattern, _ in accesses.values()}
    limits = [symbolic.bounds(rest) for _, rest in accesses.values()]
    least, most = min(low for low, _ in limits), max(high for _, high in limits)
    size = most - least + 1
    if len(patterns) > 1 or size > _MOST_KEPT:
        return None
    room = size
    for extent, step in sorted(next(iter(patterns)), key=lambda each: each[1]):
        if extent > 1:
            if step < room:
                return None
            room = step * extent
    return least, size
# --8<-- [end:private]
