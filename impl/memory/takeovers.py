"""Where a temporary takes over the memory of another one, and where that does not pay.

Needs: the kernels with what they touch, their order, and where each value lives.
Guarantees: a temporary lies where another one was only if no iteration still reads what it
overwrites; its versions follow those of the other one. What was given is as it was.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from impl.dependencies import (
    Accesses,
    Lives,
    Touch,
    alive_bytes,
    same_element,
    same_iteration,
    touched_storages,
)
from impl.dtypes import DType
from impl.fusion import Group, Member
from impl.memory.spans import aligned
from impl.placement import Placement
from impl.places import Place
from impl.symbolic import plain


@dataclass(frozen=True)
class Temporary:
    """The facts in which two temporaries agree if one takes over the memory of the other.

    `nbytes` may be symbolic: then it has to agree for all values of the variables.
    """

    nbytes: int
    dtype: DType
    device: Place


@dataclass(frozen=True)
class Takeovers:
    """Where values live after some temporaries have taken over the memory of others.

    `storage[value]` is the number of its storage. `moved[new]` is the old one and by how much the
    versions of the new one are shifted.
    """

    storage: list[int]
    accesses: Accesses
    moved: dict[int, tuple[int, int]] = field(default_factory=dict)


def find_takeovers(groups: Sequence[Group], order: Sequence[int], placement: Placement,
                   temporaries: dict[int, Temporary], accesses: Accesses) -> Takeovers:
    """Let temporaries take over the memory of others.

    It saves memory at the one position at which both are alive. So it is done where more is alive
    than the peak would be if it were done everywhere; elsewhere it only ties a compiler's hands.
    """
    touched = touched_storages(accesses)
    nbytes = {n: aligned(plain(one.nbytes)) for n, one in temporaries.items()}
    lives = Lives(order, touched)
    alive = alive_bytes(lives.of(nbytes), len(order))
    least = list(alive)
    everywhere = _Taker(groups, placement, temporaries, lives)
    for new in everywhere.run(order, touched, range(len(order))):
        least[lives.first[new]] -= nbytes[new]
    # r[impl memory.take-over.peak]
    lowest = max(least, default=0)
    positions = {position for position, now in enumerate(alive) if now > lowest}
    taker = _Taker(groups, placement, temporaries, lives)
    moved = taker.run(order, touched, positions) if positions else {}
    return Takeovers(taker.storage, _moved(accesses, moved), moved)


def _moved(accesses: Accesses, moved: dict[int, tuple[int, int]]) -> Accesses:
    """What kernels touch, after storages have moved."""
    def after(touches: list[Touch]) -> list[Touch]:
        return [t._replace(storage=moved[t.storage][0], version=t.version + moved[t.storage][1])
                if t.storage in moved else t for t in touches]

    return [(after(reads), after(writes)) for reads, writes in accesses] if moved else accesses


class _Taker:
    """Finds for what is made at a position the memory of something that dies there."""

    def __init__(self, groups: Sequence[Group], placement: Placement,
                 temporaries: dict[int, Temporary], lives: Lives) -> None:
        self.groups, self.temporaries = groups, temporaries
        self.born, self.last = lives.first, dict(lives.last)
        self.storage = list(placement.storage)
        self.filled: defaultdict[int, list[int]] = defaultdict(list)  # storage: what fills it
        self.newest: defaultdict[int, int] = defaultdict(int)         # storage: its last version
        for value, storage in enumerate(self.storage):
            self.filled[storage].append(value)
            self.newest[storage] = max(self.newest[storage], placement.version[value])
        self.moved: dict[int, tuple[int, int]] = {}

    def run(self, order: Sequence[int], touched: Sequence[Sequence[int]],
            positions: Collection[int]) -> dict[int, tuple[int, int]]:
        """Which temporary gets the memory of which other one, at some positions of the order.

        The versions of the new one follow those of the old one. `touched` are the storages that
        each kernel touches.
        """
        for position, number in enumerate(order):
            if position not in positions:
                continue
            mine = {self.moved[s][0] if s in self.moved else s for s in touched[number]}
            # r[impl memory.take-over.legal]
            dying = sorted(s for s in mine if s in self.temporaries
                           and self.last[s] == position > self.born[s])
            for member in self.groups[number].members if dying else ():
                new = member.stage.write.value
                if new not in self.temporaries or self.born.get(new) != position:
                    continue
                old = next((s for s in dying if self.temporaries[s] == self.temporaries[new]
                            and self._may_lie_there(self.groups[number], member, s)), None)
                if old is not None:
                    dying.remove(old)  # r[impl memory.take-over.legal]
                    self._take(new, old)
        return self.moved

    def _take(self, new: int, old: int) -> None:
        """Put a temporary where another one was."""
        shift = self.newest[old]
        for value in self.filled[new]:
            self.storage[value] = old
        self.newest[old] += self.newest[new]
        self.filled[old] += self.filled[new]
        self.moved[new], self.last[old] = (old, shift), self.last[new]

    def _may_lie_there(self, group: Group, writer: Member, old: int) -> bool:
        """Whether all that a kernel reads of `old` is read before the writer's stage writes there.

        A stage before the writer's may read any element that belongs to its own iteration of the
        prefix; the writer's stage itself only the element that it writes; later stages none.
        """
        write = writer.stage.write
        if not writer.stage.whole or self.storage[write.value] != write.value:
            return False
        # One reads again what it has stored; the other has two arguments, also where what it copies
        # was computed on the device that it goes to. r[impl realize.device.named]
        if writer.stage.alone:
            return False
        written = False
        for member in group.members:
            written |= member is writer
            for read in member.stage.reads:
                if self.storage[read.value] != old:
                    continue
                if member is writer:  # r[impl memory.take-over.legal]
                    if not same_element(read, write):
                        return False
                elif written or not same_iteration(
                        read, member.prefix, write, writer.prefix):
                    return False
            if self.storage[member.stage.write.value] == old:
                return False
        return True
