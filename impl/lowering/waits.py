"""Where the lanes of a work-group wait for each other. Chapter: spec/lowering.md.

The lanes of a group run an iteration of the prefix together: they share the loops of kind LANE. One
must not read what another one has not stored yet, nor store where another one still reads. So a
barrier stands before whatever needs what was stored, or stores where something was read, since the
last barrier. What is not shared by lanes and stores is done by one of them.
"""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from impl.dependencies import must_wait
from impl.ir import Ops, RangeKind, UOp
from impl.kernel import Early, accessed, buffer_key
from impl.kernel.analysis import Key
from impl.lowering.blocks import Block, Bundle, Define, Item, Loop, Wait, Write
from impl.lowering.lower import Lowered


@dataclass(frozen=True)
class _Open:
    """Buffers that some lanes may have stored or read since all of them waited."""

    stored: frozenset[Key] = frozenset()
    loaded: frozenset[Key] = frozenset()

    def conflicts(self, other: _Open) -> bool:
        """Whether what comes next has to wait."""
        # r[impl lowering.wait.lanes]
        return must_wait(other.loaded, other.stored, self.loaded, self.stored)

    def __or__(self, other: _Open) -> _Open:
        """Both were done."""
        return _Open(self.stored | other.stored, self.loaded | other.loaded)


class _Course(NamedTuple):
    """How lanes get through a block, from what was open before it."""

    waits: tuple[bool, ...]          # whether they wait before an item
    entered: dict[Block, _Open]      # with what they come to each loop that all of them run
    after: _Open


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
    _Walk(low, private).place(low.root, _Open())
    return frozenset(node for node in low.known.order if node.op is Ops.LOCAL and node not in kept)


class _Walk:
    """Goes through the blocks that all lanes run, in the order in which they do."""

    def __init__(self, low: Lowered, private: Collection[Key]) -> None:
        self.low, self.private = low, frozenset(private)
        self.courses: dict[tuple[Block, _Open], _Course] = {}

    def place(self, block: Block, before: _Open) -> None:
        """Put barriers into a block and those in it."""
        course, early = self.course(block, before), _made_early(block)
        # r[impl lowering.wait.lanes]
        items: list[Item] = [] if early is None else [Wait(early.iterations - 1)]
        for item, waits in zip(block.items, course.waits, strict=True):
            if waits:
                items.append(Wait())  # r[impl lowering.wait.lanes]
            inner = self._run_by_all(item)
            if inner is not None:
                self.place(inner, course.entered[inner])
            alone = inner is None and self._shared(item).stored and not _has_lanes(item)
            items.append(_alone(item) if alone else item)
        block.items = self._bundled(items)

    def course(self, block: Block, before: _Open) -> _Course:
        """How lanes get through a block.

        It is kept: a nest of loops, each entered twice, would be gone through once more for each of
        its combinations.
        """
        # r[impl lowering.length.linear]
        found = self.courses.get((block, before))
        if found is None:
            found = self.courses[block, before] = self._course(block, before)
        return found

    def _course(self, block: Block, now: _Open) -> _Course:
        early, waits, entered = _made_early(block), list[bool](), dict[Block, _Open]()
        if early is not None:
            now = _Open()  # all have waited for the copies
        for item in block.items:
            inner = self._run_by_all(item)
            if inner is not None:
                entered[inner] = self._entered(inner, now)
                now = self.course(inner, entered[inner]).after
                waits.append(False)
                continue
            does, ahead = self._shared(item), _early(item) is not None
            if ahead and early is not None:  # nobody reads that copy before its iteration's wait
                does = _Open(frozenset(), does.loaded)
            waits.append((replace(now, stored=frozenset()) if ahead else now).conflicts(does))
            now = does if waits[-1] else now | does
        return _Course(tuple(waits), entered, now)

    def _entered(self, block: Block, before: _Open) -> _Open:
        """What an iteration leaves open is open when the next one begins.

        With more open at its beginning it waits elsewhere, and may leave more open at its end.
        """
        if block.loop is None or block.loop.arg[1] is not RangeKind.BLOCK:
            return before
        entered = before
        while (grown := entered | self.course(block, entered).after) != entered:
            entered = grown  # r[impl lowering.wait.lanes]
        return entered

    def _run_by_all(self, item: Item) -> Block | None:
        """The block of a loop that all lanes run as it stands, with stages in it."""
        if not isinstance(item, Loop):
            return None
        loop = item.block.loop
        together = loop is not None and (loop.arg[1] is RangeKind.BLOCK
                                         or loop in self.low.known.info.prefix)
        return item.block if together else None

    def _shared(self, item: Item) -> _Open:
        """What an item touches of the buffers that lanes share."""
        found = _touched(item)
        return _Open(found.stored - self.private, found.loaded - self.private)

    def _bundled(self, items: list[Item]) -> list[Item]:
        """Copies that are made early, one after the other, are one bundle."""
        # r[impl lowering.wait.lanes]
        ahead = [place for place, item in enumerate(items) if _early(item) is not None
                 and self._run_by_all(item) is None]
        return [*items[:ahead[-1] + 1], Bundle(), *items[ahead[-1] + 1:]] if ahead else items


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


def _alone(item: Item) -> Item:
    """One lane does it."""
    # r[impl lowering.wait.lanes]
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
    parts = _walk(item)
    return _Open(
        frozenset(accessed(each.store) for each in parts if isinstance(each, Write)),
        frozenset(accessed(each.node) for each in parts
                  if isinstance(each, Define) and each.node.op is Ops.LOAD))


def _has_lanes(item: Item) -> bool:
    """Whether lanes share a loop in it."""
    return any(isinstance(each, Loop) and each.block.loop is not None
               and each.block.loop.arg[1] is RangeKind.LANE for each in _walk(item))
