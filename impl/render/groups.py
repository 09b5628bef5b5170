"""Where the lanes of a work-group wait for each other. Chapter: spec/render.md.

The lanes of a group run an iteration of the prefix together: they share the loops of kind LANE. One
must not read what another one has not stored yet, nor store where another one still reads. So a
barrier stands before whatever needs what was stored, or stores where something was read, since the
last barrier. What is not shared by lanes and stores is done by one of them.
"""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from impl.ir import Ops, RangeKind, UOp
from impl.kernel import Early, accessed, buffer_key
from impl.kernel.analysis import Key
from impl.render.lower import Block, Bundle, Define, Item, Loop, Lowered, Wait, Write


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
        now, early = before, _made_early(block)
        items: list[Item] = []
        if early is not None:  # r[impl render.wait.early]
            items.append(Wait(early.iterations - 1))
            now = _Open()
        for item in block.items:
            inner = item.block if isinstance(item, Loop) else None
            if inner is not None and self._run_by_all(inner):
                now = self._repeated(inner, now)
                items.append(item)
                continue
            does = _touched(item)
            does = _Open(does.stored - self.private, does.loaded - self.private)
            alone = does.stored and not _has_lanes(item)
            ahead = _early(item) is not None
            if ahead and early is not None:
                does.stored.clear()  # nobody reads that copy before the wait of its iteration
            if now.loaded & does.stored if ahead else now.conflicts(does):
                items.append(Wait())  # r[impl render.wait.order]
                now = _Open()
            now.add(does)
            items.append(_alone(item) if alone else item)
        block.items = self._bundled(items)
        return now

    def _run_by_all(self, block: Block) -> bool:
        """Whether all lanes run a loop as it stands, and it has stages in it."""
        loop = block.loop
        return loop is not None and (loop in self.low.known.info.prefix
                                     or loop.arg[1] is RangeKind.BLOCK)

    def _bundled(self, items: list[Item]) -> list[Item]:
        """Copies that are made early, one after the other, are one bundle."""
        # r[impl render.wait.early]
        ahead = [place for place, item in enumerate(items) if _early(item) is not None
                 and not (isinstance(item, Loop) and self._run_by_all(item.block))]
        return [*items[:ahead[-1] + 1], Bundle(), *items[ahead[-1] + 1:]] if ahead else items

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
            inner.items = [item for item in inner.items if not isinstance(item, Wait | Bundle)]
            inner.items = [item.block.items[0] if isinstance(item, Loop) and item.block.alone
                           else item for item in inner.items]
            stack += [item.block for item in inner.items if isinstance(item, Loop)]
# --8<-- [end:waits]


# --8<-- [start:early]
def _early(item: Item) -> Early | None:
    """How early an item makes copies, if it does."""
    found = (each.store.arg for each in _walk(item) if isinstance(each, Write))
    return next((arg for arg in found if isinstance(arg, Early)), None)


def _made_early(block: Block) -> Early | None:
    """How early copies are made in a loop that needs them, too."""
    if block.loop is None or block.loop.arg[1] is not RangeKind.BLOCK:
        return None
    early, read = list[Write](), set[Key]()
    for item in block.items:
        read |= _touched(item).loaded
        early += [each for each in _walk(item) if isinstance(each, Write)
                  and isinstance(each.store.arg, Early)]
    found = [each.store for each in early if accessed(each.store) in read]
    return next((store.arg for store in found), None)
# --8<-- [end:early]


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
            found.stored.add(accessed(each.store))
        elif isinstance(each, Define) and each.node.op is Ops.LOAD:
            found.loaded.add(accessed(each.node))
    return found


def _has_lanes(item: Item) -> bool:
    """Whether lanes share a loop in it."""
    return any(isinstance(each, Loop) and each.block.loop is not None
               and each.block.loop.arg[1] is RangeKind.LANE for each in _walk(item))
