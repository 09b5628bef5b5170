"""Search for offsets under a given height, where a greedy plan misses the bound.

Time is cut into sections: positions at which a life begins. Within a section everything alive lies
side by side. The search fills the arena from below. Its state is one number for each temporary
that is not placed yet: its `low`, the least offset that it can still have. The floor of a section
is the least low of what is alive there. A valley is a run of sections with one floor and higher
walls on both sides; at its left end, either a temporary that begins there comes next, or the floor
stays open there and rises. The same holds at its right end. These few options are the branches.

What cuts branches off: the sum of what still has to lie in a section above any low in it; states
that are known to fail; and the independence of parts of time that nothing open connects. No clock
decides anything: the same problem has the same answer in every process.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

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
    alive in some section.
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
        self.bytes: Numbers = np.where(self.covers, self.sizes, 0)
        self.meets: Truths = ((self.first <= self.last[:, None])
                              & (self.first[:, None] <= self.last))

    def preferences(self) -> list[list[int]]:
        """Several orders in which to try what fits: the rank of each temporary."""
        meetings = self.meets.sum(axis=1)
        keys = ((-meetings, -self.sizes), (-self.sizes, -self.width), (-self.width, -self.sizes),
                (-self.sizes * self.width * self.width, -self.sizes))
        return [np.lexsort((second, first)).argsort().tolist() for first, second in keys]


def _sections(spans: Sequence[Lifetime]) -> Numbers:
    """The positions at which a life begins and, before the next one begins, another ends.

    What is alive at any other position is also alive, all of it, at one of these.
    """
    positions = np.unique(np.array([span.first for span in spans], np.int64))
    ends = np.searchsorted(positions, [span.last for span in spans], side="right") - 1
    return positions[np.unique(ends)]


def _price(count: int, sections: int) -> int:
    """The cells of a node: about the numbers that it looks at."""
    return count * sections + 2000


class Option(NamedTuple):
    """A branch: place one at this level, or (GAP) let the floor of the section rise to it."""

    one: int
    section: int
    level: int


@dataclass
class Frame:
    """A state of the search with the branches that are still to be tried, the next one last."""

    lows: Numbers
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
    weights: list[float]          # for each section, how often it was too full
    failed: set[bytes]
    frames: list[Frame] = field(default_factory=list)

    def run(self, nodes: int) -> tuple[str, int, dict[int, int]]:
        """"found", "impossible" or "unknown" after so many nodes; nodes used; offsets."""
        lows = np.zeros(self.problem.count, np.int64)
        used = 1
        frame = self._expand(lows)
        if frame is None:
            return "impossible", used, {}
        self.frames = [frame]
        while self.frames:
            frame = self.frames[-1]
            if not frame.options:
                self._give_up(frame)
                continue
            if used >= nodes:
                return "unknown", used, {}
            used += 1
            frame.taken = frame.options.pop()
            lows = self._after(frame.lows, frame.taken)
            if (lows == PLACED).all():
                return "found", used, self._offsets()
            child = self._expand(lows)
            if child is not None:
                self.frames.append(child)
        return "impossible", used, {}

    def _offsets(self) -> dict[int, int]:
        return {f.taken.one: f.taken.level for f in self.frames if f.taken.one != GAP}

    def _give_up(self, frame: Frame) -> None:
        """Leave a state whose branches have all failed, and all in which it is no better.

        What failed is the frame's part, with these lows or higher ones. A decision above that
        changed none of these lows has nothing to do with it.
        """
        lows = frame.lows[frame.part]
        self.failed.add(frame.key)
        self.frames.pop()
        while self.frames and np.array_equal(self.frames[-1].lows[frame.part], lows):
            self.frames.pop()

    def _after(self, lows: Numbers, option: Option) -> Numbers:
        """The lows after a branch is taken."""
        problem = self.problem
        if option.one == GAP:
            return np.where(problem.covers[option.section] & (lows != PLACED),
                            np.maximum(lows, option.level), lows)
        top = option.level + problem.sizes[option.one]
        after = np.where(problem.meets[option.one] & (lows != PLACED), np.maximum(lows, top), lows)
        after[option.one] = PLACED
        return after

    def _expand(self, lows: Numbers) -> Frame | None:
        """The frame of a state; None if some section is seen to be too full."""
        problem = self.problem
        open_ones = np.flatnonzero(lows != PLACED)
        by_low = open_ones[np.argsort(-lows[open_ones], kind="stable")]
        # The height that a section needs if all that cannot lie below some low lies above it.
        needed = problem.bytes[:, by_low].cumsum(axis=1)
        totals = needed[:, -1].copy()
        needed += lows[by_low]
        full = np.flatnonzero(needed.max(axis=1) > self.height)
        if len(full):
            for section in full.tolist():
                self.weights[section] += 1 / len(full)
            return None
        order = by_low[::-1]
        floors = lows[order[problem.covers[:, order].argmax(axis=1)]]
        floors[totals == 0] = NEVER
        links = np.cumsum(np.bincount(problem.first[open_ones], minlength=problem.sections)
                          - np.bincount(problem.last[open_ones], minlength=problem.sections))
        return self._branch(State(lows, open_ones, floors.tolist(), totals, links.tolist()))

    def _branch(self, state: State) -> Frame:
        """The frame that decides about one end of one valley: where there are fewest options."""
        begins, ends = self._at_floor(state)
        best: tuple[tuple[float, int], Corner] | None = None
        for left, right in _valleys(state):
            level = state.floors[left]
            for section, ones in ((left, begins[left]), (right, ends[right])):
                slack = self.height - level - int(state.totals[section])
                # Where few bytes may be lost, a gap is less than an option.
                count = len(ones) + min(1.0, 20 * slack / self.height)
                sure = len(ones) + (slack > 0) == 1
                score = (0.0 if sure else count / self.weights[section], level)
                if best is None or score < best[0]:
                    best = score, Corner(section, left, right, level, slack, ones)
        assert best is not None  # the lowest floor lies in a valley
        return self._frame(state, best[1])

    def _at_floor(self, state: State) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Who lies on the floor of its first section, and of its last; one of each kind."""
        begins: dict[int, list[int]] = {}
        ends: dict[int, list[int]] = {}
        problem, floors = self.problem, state.floors
        ones = state.open_ones
        for target, places in ((begins, problem.first), (ends, problem.last)):
            for one, place, low in zip(ones.tolist(), places[ones].tolist(),
                                       state.lows[ones].tolist(), strict=True):
                if low == floors[place]:
                    target.setdefault(place, []).append(one)
        return begins, ends

    def _frame(self, state: State, corner: Corner) -> Frame:
        """The frame that decides what lies in a corner."""
        problem, rank = self.problem, self.rank
        start, stop = _connected(state.links, corner.left, corner.right)
        part = state.open_ones[(problem.first[state.open_ones] >= start)
                               & (problem.last[state.open_ones] <= stop)]
        frame = Frame(state.lows, [], part, part.tobytes() + state.lows[part].tobytes())
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
        problem, lows = self.problem, state.lows
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


class Corner(NamedTuple):
    """One end of a valley."""

    section: int
    left: int         # first and last section of the valley
    right: int
    level: int
    slack: int        # how many bytes may be lost in this section
    ones: list[int]   # what begins (or ends) here and fits on the floor


@dataclass
class State:
    """What is worked out from the lows."""

    lows: Numbers
    open_ones: Numbers
    floors: list[int]     # of each section; NEVER where nothing is open
    totals: Numbers       # of each section: the bytes that are still to be placed
    links: list[int]      # how many of the open ones connect a section with the next


def _valleys(state: State) -> list[tuple[int, int]]:
    """First and last section of each valley."""
    floors, links = state.floors, state.links
    found = []
    left, count = 0, len(floors)
    while left < count:
        right = left
        while links[right] and floors[right + 1] == floors[left]:
            right += 1
        wall_left = left == 0 or not links[left - 1] or floors[left - 1] > floors[left]
        wall_right = not links[right] or floors[right + 1] > floors[left]
        if floors[left] != NEVER and wall_left and wall_right:
            found.append((left, right))
        left = right + 1
    return found


def _connected(links: Sequence[int], left: int, right: int) -> tuple[int, int]:
    """The sections from the first to the last that open ones connect with these."""
    while left and links[left - 1]:
        left -= 1
    while links[right]:
        right += 1
    return left, right


def pack(problem: Problem, height: int, budget: int) -> tuple[str, int, dict[int, int]]:
    """"found", "impossible" or "unknown"; the cells used; and what was found: number to offset.

    The walk begins anew, with other preferences and more nodes, and remembers which sections were
    too full: these are decided first.
    """
    price = _price(problem.count, problem.sections)
    orders = problem.preferences()
    weights = [1.0] * problem.sections
    failed: set[bytes] = set()
    spent = walks = 0
    while spent + problem.count * price <= budget:  # r[impl memory.search.deterministic]
        nodes = min(problem.count + 100 * (1 + walks), (budget - spent) // price)
        attempt = Attempt(problem, height, orders[walks % len(orders)], weights, failed)
        verdict, used, offsets = attempt.run(nodes)
        spent += used * price
        if verdict != "unknown":
            return verdict, spent, offsets
        weights = [1 + weight / 2 for weight in weights]
        walks += 1
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
    if len(solid) * _price(len(solid), len(_sections(solid))) > budget // 2:
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
