"""Search for offsets under a given height, where a greedy plan misses the bound.

Time is cut into sections: positions at which a life begins. Within a section everything alive lies
side by side. The search fills the arena from below. Its state is one number for each temporary
that is not placed yet: its `low`, the least offset that it can still have. The floor of a section
is the least low of what is alive there. A valley is a run of sections with one floor and higher
walls on both sides; at its left end, either a temporary that begins there comes next, or the floor
stays open there and rises. The same holds at its right end. These few options are the branches.

What cuts branches off: the sum of what still has to lie in a section above any low in it; states
that are known to fail; and the independence of parts of time that nothing open connects. A walk
is short, and the next one begins anew with another preference: that undoes what patience does not.
No clock decides anything: the same problem has the same answer in every process.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import gcd
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from impl.dependencies import most_alive
from impl.host import has_numpy, np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from impl.memory.spans import Lifetime

Numbers: TypeAlias = "NDArray[np.int64]"
Truths: TypeAlias = "NDArray[np.bool_]"

PLACED = -1       # the low of what has its offset
NEVER = 1 << 62   # more than any offset
GAP = -1          # in the place of a temporary: nothing comes next here


class Problem:
    """Temporaries over sections; they are known by their numbers in `spans`.

    `covers[section, one]`: whether one is alive there. `meets[one, other]`: whether both are
    alive in some section. `members[section]`: who is alive there, and then the number of nobody.
    """

    def __init__(self, spans: Sequence[Lifetime]) -> None:
        self.count = len(spans)
        self.sizes = np.array([span.nbytes for span in spans], np.int64)
        positions = _sections(spans)
        self.sections = len(positions)
        self.first = np.searchsorted(positions, [span.first for span in spans])
        self.last = np.searchsorted(positions, [span.last for span in spans], side="right") - 1
        self.width = self.last - self.first + 1
        span = np.arange(self.sections)[:, None]
        self.covers: Truths = (self.first <= span) & (span <= self.last)
        self.deepest = int(self.covers.sum(axis=1).max())
        nobody_last = np.argsort(~self.covers, axis=1, kind="stable")[:, :self.deepest]
        alive = np.take_along_axis(self.covers, nobody_last, axis=1)
        self.members: Numbers = np.where(alive, nobody_last, self.count)
        self.bytes: Numbers = np.append(self.sizes, 0)[self.members]
        self.meets: Truths = ((self.first <= self.last[:, None])
                              & (self.first[:, None] <= self.last))
        self.beside = [np.flatnonzero(row) for row in self.meets]

    def preferences(self) -> Iterator[list[int]]:
        """Orders in which to try what fits, without end: the rank of each temporary.

        After four plain ones each is that of size by meetings, as chance changes it: by a factor
        from a quarter to four. The chance is the same in every process.
        """
        meetings = self.meets.sum(axis=1)
        keys = ((-meetings, -self.sizes), (-self.sizes, -self.width), (-self.width, -self.sizes),
                (-self.sizes * self.width * self.width, -self.sizes))
        yield from (np.lexsort((second, first)).argsort().tolist() for first, second in keys)
        chance = Random(0)
        while True:
            changed = [-weight * 4 ** (2 * chance.random() - 1)
                       for weight in (self.sizes * meetings).tolist()]
            yield np.argsort(changed, kind="stable").argsort().tolist()


def _sections(spans: Sequence[Lifetime]) -> Numbers:
    """The positions at which a life begins and, before the next one begins, another ends.

    What is alive at any other position is also alive, all of it, at one of these.
    """
    positions = np.unique(np.array([span.first for span in spans], np.int64))
    ends = np.searchsorted(positions, [span.last for span in spans], side="right") - 1
    return positions[np.unique(ends)]


def _price(sections: int, deepest: int) -> int:
    """The cells of a node: the numbers that it looks at, and as many for its calls."""
    return sections * deepest + 8000


class Option(NamedTuple):
    """A branch: place one at this level, or (GAP) let the floor of the section rise to it."""

    one: int
    section: int
    level: int


class State(NamedTuple):
    """The lows, and what is worked out from them."""

    lows: Numbers         # of each temporary; of nobody, as if placed
    floors: Numbers       # of each section; NEVER where nothing is open
    totals: Numbers       # of each section: the bytes that are still to be placed
    links: Numbers        # how many of the open ones connect a section with the next


class Corner(NamedTuple):
    """One end of a valley."""

    section: int
    left: int         # first and last section of the valley
    right: int
    level: int
    slack: int        # how many bytes may be lost in this section
    ones: list[int]   # what begins (or ends) here and fits on the floor


@dataclass
class Frame:
    """A state of the search with the branches that are still to be tried, the next one last."""

    state: State
    options: list[Option]
    part: Numbers                 # who is connected with the decision, by number
    key: bytes
    taken: Option = Option(GAP, 0, 0)


@dataclass
class Attempt:
    """One walk through the tree of states, for a height and an order of preference."""

    problem: Problem
    height: int
    rank: Sequence[int]
    weights: NDArray[np.float64]  # for each section, how often it was too full
    failed: set[bytes]
    frames: list[Frame] = field(default_factory=list)

    def run(self, nodes: int) -> tuple[str, int, dict[int, int]]:
        """"found", "impossible" or "unknown" after so many nodes; nodes used; offsets."""
        state = self._start()
        used = 1
        if state is None:
            return "impossible", used, {}
        self.frames = [self._branch(state)]
        while self.frames:
            frame = self.frames[-1]
            if not frame.options:
                self._give_up(frame)
                continue
            if used >= nodes:
                return "unknown", used, {}
            used += 1
            frame.taken = frame.options.pop()
            after = self._after(frame.state, frame.taken)
            if after is None:
                continue
            if (after.lows == PLACED).all():
                return "found", used, self._offsets()
            self.frames.append(self._branch(after))
        return "impossible", used, {}

    def _offsets(self) -> dict[int, int]:
        return {f.taken.one: f.taken.level for f in self.frames if f.taken.one != GAP}

    def _give_up(self, frame: Frame) -> None:
        """Leave a state whose branches have all failed, and all in which it is no better.

        What failed is the frame's part, with these lows or higher ones. A decision above that
        changed none of these lows has nothing to do with it.
        """
        lows = frame.state.lows[frame.part]
        self.failed.add(frame.key)
        self.frames.pop()
        while self.frames and np.array_equal(self.frames[-1].state.lows[frame.part], lows):
            self.frames.pop()

    def _start(self) -> State | None:
        """The state in which nothing is placed; None if some section is too full."""
        problem = self.problem
        lows = np.zeros(problem.count + 1, np.int64)
        lows[-1] = PLACED
        changes = (np.bincount(problem.first, minlength=problem.sections)
                   - np.bincount(problem.last, minlength=problem.sections))
        state = State(lows, np.zeros(problem.sections, np.int64),
                      np.zeros(problem.sections, np.int64), changes.cumsum())
        return self._measured(state, 0, problem.sections)

    def _after(self, state: State, option: Option) -> State | None:
        """The state after a branch is taken; None if some section is seen to be too full."""
        problem = self.problem
        lows, links = state.lows.copy(), state.links
        one, level = option.one, option.level
        beside = problem.members[option.section] if one == GAP else problem.beside[one]
        if one != GAP:
            lows[one] = PLACED
            level += int(problem.sizes[one])
            links = links.copy()
            links[problem.first[one]:problem.last[one]] -= 1
        before = lows[beside]
        risen = beside[(before != PLACED) & (before < level)]
        lows[risen] = level
        touched = risen if one == GAP else np.append(risen, one)
        after = State(lows, state.floors.copy(), state.totals.copy(), links)
        return self._measured(after, int(problem.first[touched].min()),
                              int(problem.last[touched].max()) + 1)

    def _measured(self, state: State, start: int, stop: int) -> State | None:
        """The state, with floors and totals of these sections; None if one is too full."""
        problem = self.problem
        lows = state.lows[problem.members[start:stop]]
        open_here = lows != PLACED
        nbytes = np.where(open_here, problem.bytes[start:stop], 0)
        state.totals[start:stop] = nbytes.sum(axis=1)
        state.floors[start:stop] = np.where(open_here, lows, NEVER).min(axis=1)
        # The height that a section needs if all that cannot lie below some low lies above it.
        order = np.argsort(-lows, axis=1)
        needed = np.take_along_axis(nbytes, order, axis=1).cumsum(axis=1)
        needed += np.take_along_axis(lows, order, axis=1)
        full = start + np.flatnonzero(needed.max(axis=1) > self.height)
        if len(full):
            self.weights[full] += 1 / len(full)
            return None
        return state

    def _branch(self, state: State) -> Frame:
        """The frame that decides about one end of one valley: where there are fewest options."""
        problem, floors = self.problem, state.floors
        open_ones = np.flatnonzero(state.lows != PLACED)
        lows, first, last = state.lows[open_ones], problem.first[open_ones], problem.last[open_ones]
        on_floor = lows == floors[first], lows == floors[last]
        lefts, rights = _valleys(floors, state.links)
        sections = np.stack((lefts, rights), axis=1).ravel()
        numbers = np.stack([np.bincount(place[lies], minlength=problem.sections)[ends]
                            for place, lies, ends in ((first, on_floor[0], lefts),
                                                      (last, on_floor[1], rights))], axis=1).ravel()
        levels = floors[sections]
        slacks = self.height - levels - state.totals[sections]
        # Where few bytes may be lost, a gap is less than an option.
        counts = numbers + np.minimum(1.0, 20 * slacks / self.height)
        sure = numbers + (slacks > 0) == 1
        scores = np.where(sure, 0.0, counts / self.weights[sections])
        best = int(np.lexsort((levels, scores))[0])
        place, lies = (last, on_floor[1]) if best % 2 else (first, on_floor[0])
        section = int(sections[best])
        return self._frame(state, open_ones, Corner(
            section, int(lefts[best // 2]), int(rights[best // 2]), int(levels[best]),
            int(slacks[best]), open_ones[lies & (place == section)].tolist()))

    def _frame(self, state: State, open_ones: Numbers, corner: Corner) -> Frame:
        """The frame that decides what lies in a corner."""
        problem, rank = self.problem, self.rank
        start, stop = _connected(state.links, corner.left, corner.right)
        part = open_ones[(problem.first[open_ones] >= start) & (problem.last[open_ones] <= stop)]
        key = blake2b(part.tobytes() + state.lows[part].tobytes(), digest_size=16).digest()
        frame = Frame(state, [], part, key)
        if frame.key in self.failed:
            return frame
        worst_first = sorted(corner.ones, key=lambda one: -rank[one])
        kinds = {(int(problem.first[one]), int(problem.last[one]), int(problem.sizes[one])): one
                 for one in worst_first}  # one of each kind: they can change places
        frame.options = [Option(one, corner.section, corner.level)
                         for one in sorted(kinds.values(), key=lambda one: -rank[one])]
        if (corner.left, corner.right) == (start, stop):
            whole = [option for option in frame.options
                     if problem.width[option.one] == stop - start + 1]
            if whole:  # nothing can be lost: the rest of this part may as well lie above it
                frame.options = whole[-1:]
                return frame
        if corner.slack > 0:
            risen = self._risen(state, corner)
            if risen - corner.level <= corner.slack:
                frame.options.insert(0, Option(GAP, corner.section, risen))
        return frame

    def _risen(self, state: State, corner: Corner) -> int:
        """The next level at which something can lie in the corner, if nothing lies at its level.

        Its low is higher already, or it will lie on something that does not cover the section.
        """
        problem, lows = self.problem, state.lows[:-1]
        covers = problem.covers[corner.section]
        higher = lows[covers & (lows > corner.level)]
        risen = int(higher.min()) if len(higher) else NEVER
        beside = (lows != PLACED) & ~covers
        for one in corner.ones:
            below = problem.meets[one] & beside
            tops = lows[below] + problem.sizes[below]
            if len(tops):
                risen = min(risen, int(tops.min()))
        return risen


def _valleys(floors: Numbers, links: Numbers) -> tuple[Numbers, Numbers]:
    """The first sections of all valleys, and the last ones."""
    joined = (links[:-1] > 0) & (floors[:-1] == floors[1:])
    higher = (links[:-1] == 0) | (floors[:-1] > floors[1:])   # a wall left of the second
    lower = (links[:-1] == 0) | (floors[1:] > floors[:-1])    # a wall right of the first
    lefts = np.flatnonzero(np.append(True, ~joined))
    rights = np.flatnonzero(np.append(~joined, True))
    walls = np.append(True, higher)[lefts] & np.append(lower, True)[rights]
    found = walls & (floors[lefts] != NEVER)
    return lefts[found], rights[found]


def _connected(links: Numbers, left: int, right: int) -> tuple[int, int]:
    """The sections from the first to the last that open ones connect with these."""
    ends = np.flatnonzero(links == 0)
    before, last = np.searchsorted(ends, (left, right))
    return (int(ends[before - 1]) + 1 if before else 0), int(ends[last])


def pack(problem: Problem, height: int, budget: int) -> tuple[str, int, dict[int, int]]:
    """"found", "impossible" or "unknown"; the cells used; and what was found: number to offset.

    The walk begins anew, with other preferences and more nodes, and remembers which sections were
    too full: these are decided first.
    """
    price = _price(problem.sections, problem.deepest)
    weights = np.ones(problem.sections)
    failed: set[bytes] = set()
    spent = 0
    for walks, rank in enumerate(problem.preferences()):
        if spent + problem.count * price > budget:  # r[impl memory.search.deterministic]
            break
        nodes = min(problem.count + 100 + 30 * walks, (budget - spent) // price)
        attempt = Attempt(problem, height, rank, weights, failed)
        verdict, used, offsets = attempt.run(nodes)
        spent += used * price
        if verdict != "unknown":
            return verdict, spent, offsets
        weights = 1 + weights / 2
    return "unknown", spent, {}


def improve(spans: Sequence[Lifetime], offsets: dict[int, int], enough: int,
            budget: int) -> tuple[dict[int, int], int]:
    """Offsets that need less than the given ones, or else these; at best no more than `enough`.
    And how many cells were looked at.

    Without NumPy there is no search. Half of the budget is for `enough` itself. Then the heights
    between are halved, each with half of what is left, until one is known to be the least.
    """
    solid = [span for span in spans if span.nbytes]
    if not has_numpy():  # r[impl host.numpy.without]
        return offsets, 0
    deepest = most_alive((span.first, span.last, 1) for span in solid)
    if len(solid) * _price(len(_sections(solid)), deepest) > budget // 2:
        return offsets, 0  # not enough for a single walk
    problem = Problem(solid)
    step = gcd(*(span.nbytes for span in solid))  # every height of a tight plan is a multiple
    goal = least = -(-enough // step) * step
    top = max(offsets[span.storage] + span.nbytes for span in solid)
    left = budget
    while least < top:
        verdict, spent, found = pack(problem, goal, left // 2)
        if not spent:
            break
        left -= spent
        if verdict == "found":  # r[impl memory.search.not-worse]
            offsets = dict.fromkeys(offsets, 0) | {
                solid[one].storage: low for one, low in found.items()}
            top = max(low + solid[one].nbytes for one, low in found.items())
        else:
            least = goal + step
        goal = least + (top - least) // step // 2 * step
    return offsets, budget - left
