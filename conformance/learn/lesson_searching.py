"""The lesson on searching: kernels are measured fairly, and the fastest few go on.

The reader's functions get machines that do other work now and then, and small worlds of kernels of
which the time of each is known.

    searching.trial.harmless: A takes 10 and B 9, and you say 10 and 27

        sample        1      2      3      4
        runner        A      A      B      B
        seconds      10     10     27     27
"""
from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import Counterexample, Lesson, raised

EVERY, HARMLESS, LIMITS = ("searching.trial.every", "searching.trial.harmless",
                           "searching.trial.limits")
#: What takes so much longer than the best may be given up; what is chosen takes at most so much.
SLOW, GAIN = 1.5, 0.98
_BUSY = 3  # other work makes everything so much slower
_MOST_CALLS = 100_000


# Machines ----------------------------------------------------------------------------------


@dataclass
class Machine:
    """What takes how long on it, and during which samples it has other work to do."""

    seconds: dict[str, float]
    busy: range = range(0)
    log: list[tuple[str, float]] = field(default_factory=list)

    def sample(self, runner: str) -> float:
        """Run it once."""
        if len(self.log) > _MOST_CALLS:
            raise TimeoutError(f"it was not done after {_MOST_CALLS} samples")
        slower = _BUSY if len(self.log) in self.busy else 1
        self.log.append((runner, self.seconds[runner] * slower))
        return self.log[-1][1]

    def picture(self) -> str:
        """What was sampled, and what the clock said; not all, if it is long."""
        log = self.log[:16]
        rows = (("sample", range(1, len(log) + 1)), ("runner", [name for name, _ in log]),
                ("seconds", [f"{taken:g}" for _, taken in log]))
        lines = [f"{word:<8}" + "".join(f"{cell:>7}" for cell in cells) for word, cells in rows]
        if self.busy:
            lines.append(f"busy with other work: samples {self.busy.start + 1} to "
                         f"{self.busy.stop}")
        return "\n".join(lines)


def _races() -> Iterator[tuple[Machine, int]]:
    """Machines, and how many rounds are asked for: quiet ones, then such as are busy for a round.

    What is sampled in turns is disturbed once at most. What is sampled in a row may always be.
    """
    yield Machine({}), 2
    yield Machine({"A": 10}), 3
    yield Machine({"A": 10, "B": 9}), 2
    yield Machine({"A": 10, "B": 90, "C": 12}), 4
    for seconds in ({"A": 10, "B": 9}, {"A": 10, "B": 12, "C": 9}, {"A": 8, "B": 11, "C": 9,
                                                                    "D": 40}):
        rounds = len(seconds)
        for first in range(rounds * rounds):
            yield Machine(dict(seconds), range(first, first + rounds)), rounds


def _raced(module: ModuleType) -> Iterator[Counterexample]:
    for machine, rounds in _races():
        found = _race(module, machine, rounds)
        if found is not None:
            yield found
            return


def _race(module: ModuleType, machine: Machine, rounds: int) -> Counterexample | None:
    runners, right = list(machine.seconds), machine.seconds
    shown = f"least([{', '.join(runners)}], sample, {rounds})"
    try:
        answer = module.least(list(runners), machine.sample, rounds)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, shown)
    shown += f"\n{machine.picture()}" if machine.log else ""
    if not isinstance(answer, list) or len(answer) != len(runners) \
            or not all(isinstance(each, (int, float)) for each in answer):
        return Counterexample("raised", f"least answers {answer!r:.60}, and not a list of "
                              f"{len(runners)} times", shown)
    best = min(right.values(), default=0)
    near = [name for name in runners if right[name] < SLOW * best]
    said = dict(zip(runners, answer, strict=True))
    if any(said[name] != right[name] for name in near):
        return Counterexample(
            HARMLESS, f"{_listed([f'{name} takes {right[name]:g}' for name in near])}, and you "
            f"say {_listed([f'{said[name]:g}' for name in near])}", shown)
    for name in runners:
        count = sum(name == each for each, _ in machine.log)
        if count > rounds or name in near and count < rounds:
            return Counterexample(HARMLESS, f"{name} was sampled {count} times, and {rounds} "
                                  "samples of it are wanted", shown)
        if said[name] < right[name]:
            return Counterexample(HARMLESS, f"{name} takes {right[name]:g}, and you say "
                                  f"{said[name]:g}", shown)
    return None


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), *words[-1:]] if len(words) > 1 else words)


def _finals() -> Iterator[tuple[Machine, int]]:
    """The first one is the list of the rules."""
    for seconds in ({"rules": 10.0}, {"rules": 10.0, "A": 9.0}, {"rules": 10.0, "A": 11.0},
                    {"rules": 100.0, "A": 99.0}, {"rules": 100.0, "A": 97.0},
                    {"rules": 10.0, "A": 9.0, "B": 8.0}, {"rules": 10.0, "A": 8.0, "B": 9.0},
                    {"rules": 10.0, "A": 10.0, "B": 30.0}):
        yield Machine(seconds), 2
    for seconds in ({"rules": 10.0, "A": 9.0}, {"rules": 9.0, "A": 10.0},
                    {"rules": 10.0, "A": 11.0, "B": 9.0}):
        rounds = len(seconds)
        for first in range(rounds * rounds):
            yield Machine(dict(seconds), range(first, first + rounds)), rounds


def _settled(module: ModuleType) -> Iterator[Counterexample]:
    for machine, rounds in _finals():
        found = _final(module, machine, rounds)
        if found is not None:
            yield found
            return


def _final(module: ModuleType, machine: Machine, rounds: int) -> Counterexample | None:
    right = machine.seconds
    start, *others = right
    shown = f"chosen({start}, [{', '.join(others)}], sample, {rounds})"
    try:
        answer = module.chosen(start, list(others), machine.sample, rounds)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, shown)
    shown += f"\n{machine.picture()}" if machine.log else ""
    if not isinstance(answer, str) or answer not in right:
        return Counterexample("raised", f"chosen answers {answer!r:.60}, and that is none of the "
                              "candidates", shown)
    best = min(right, key=lambda name: (right[name], name != start))
    wanted = best if right[best] <= GAIN * right[start] else start
    times = _listed([f"{name} takes {seconds:g}" for name, seconds in right.items()])
    if answer != wanted:
        why = "" if best == wanted else (f": {best} is less than "
                                         f"{round(100 - 100 * GAIN)} in 100 faster")
        return Counterexample(HARMLESS, f"{times}. You choose {answer}, and {wanted} is to be "
                              f"chosen{why}", shown)
    return None


# Worlds of kernels -------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A list of steps, and the kernel that it makes."""

    steps: tuple[str, ...]
    kernel: str


class World(NamedTuple):
    """The time of each kernel; a kernel is named by its steps, sorted.

    `width` is how many go on, and after `budget` trials time is up.
    """

    seconds: dict[str, float]
    width: int
    starts: tuple[str, ...] = ("",)
    budget: float = math.inf

    def more(self, one: Candidate) -> list[Candidate]:
        """All that is legal with one more step."""
        letters = sorted({letter for kernel in self.seconds for letter in kernel})
        made = [Candidate((*one.steps, letter), "".join(sorted(one.kernel + letter)))
                for letter in letters]
        return [each for each in made if each.kernel in self.seconds]

    def __str__(self) -> str:
        lines = [f"{named(kernel):<10}{seconds:g} s" for kernel, seconds in self.seconds.items()]
        about = (f"it begins with {_listed(list(map(named, self.starts)))}; the best "
                 f"{self.width} go on")
        if self.budget < math.inf:
            about += f"; after {self.budget:g} trials time is up"
        return "\n".join([*lines[:14], *(["..."] if len(lines) > 14 else []), about])


def named(kernel: str) -> str:
    """The steps of a kernel as one reads them."""
    return " ".join(kernel) or "no steps"


def worlds() -> Iterator[World]:
    """From the smallest up."""
    yield World({"": 8}, 1)
    yield World({"": math.inf}, 1)
    yield World({"": 8, "A": 7}, 1)
    yield World({"": 8, "A": 9}, 1)
    yield World({"": 8, "A": 9}, 2)
    yield World({"": 8, "A": 7}, 2, ("A", ""))
    yield World({"": 8, "A": 7}, 1, budget=1)
    yield World({"": 8, "A": math.inf}, 2)
    yield World({"": 8, "A": 7, "AA": 6}, 1)
    yield World({"": 8, "A": 7, "AA": 6}, 1, budget=2)
    yield World({"": 8, "A": 7, "B": 6, "AB": 5}, 2)
    yield World({"": 8, "A": 7, "B": 6, "AA": 1, "BB": 5}, 1)
    yield World({"": 8, "A": 9, "AA": 3}, 2)
    yield World({"": 8, "A": 9, "AA": 10, "AAA": 11, "AAAA": 1}, 4)
    yield World({"": 8, "A": 7, "AA": 9, "AAA": 6, "AAAA": 5}, 3)
    chooser = random.Random(3)
    for _ in range(80):
        kernels = ["".join(each) for length in range(5)
                   for each in itertools.combinations_with_replacement("ABC", length)]
        kept = [""] + [each for each in kernels[1:] if chooser.random() < 0.8]
        times = chooser.sample(range(10, 10 + 4 * len(kept)), len(kept))
        yield World(dict(zip(kept, map(float, times), strict=True)), chooser.randrange(1, 4))


class Right(NamedTuple):
    """What a search has to try and to answer, and why it ends."""

    tried: list[str]
    beam: list[str]
    ended: str
    parent: dict[str, str]


def right(world: World) -> Right:
    """By definition."""
    tried, parent = list(dict.fromkeys(world.starts)), dict[str, str]()

    def best() -> list[str]:
        running = [kernel for kernel in tried if world.seconds[kernel] < math.inf]
        return sorted(running, key=world.seconds.__getitem__)[:world.width]

    idle = 0
    while True:
        beam = best()
        if idle == 2:
            return Right(tried, beam, "idle", parent)
        if len(tried) >= world.budget:
            return Right(tried, beam, "over", parent)
        for one in beam:
            for longer in world.more(Candidate(tuple(one), one)):
                if longer.kernel not in parent and longer.kernel not in world.starts:
                    parent[longer.kernel] = one
        new = [kernel for kernel in parent if kernel not in tried]
        if not new:
            return Right(tried, beam, "all", parent)
        tried += new
        idle = 0 if best()[:1] != beam[:1] else idle + 1


@dataclass
class Trials:
    """What is tried in a world, in which order."""

    world: World
    log: list[Candidate] = field(default_factory=list)
    late: Candidate | None = None

    def over(self) -> bool:
        return len(self.log) >= self.world.budget

    def times(self, candidates: Sequence[Candidate]) -> list[float]:
        """Compile and measure."""
        given = list(candidates)
        if given and self.log and self.over() and self.late is None:
            self.late = given[0]
        self.log += given
        if len(self.log) > _MOST_CALLS:
            raise TimeoutError(f"it was not done after {_MOST_CALLS} trials")
        return [self.world.seconds[each.kernel] for each in given]


def _searched(module: ModuleType) -> Iterator[Counterexample]:
    for world in worlds():
        found = _search(module, world)
        if found is not None:
            yield found
            return


def _search(module: ModuleType, world: World) -> Counterexample | None:
    trials, shown = Trials(world), str(world)
    starts = [Candidate(tuple(each), each) for each in world.starts]
    try:
        answer = module.search(starts, world.more, trials.times, world.width, trials.over)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, shown)
    if not isinstance(answer, list) or not all(isinstance(each, Candidate) for each in answer):
        return Counterexample("raised", f"search answers {answer!r:.60}, and not a list of "
                              "candidates", shown)
    wrong = _mistaken(trials, right(world))
    if wrong is not None:
        return Counterexample(*wrong, shown)
    beam = right(world).beam
    if [each.kernel for each in answer] != beam:
        return Counterexample(
            HARMLESS, f"you answer {_row([each.kernel for each in answer])}; the best "
            f"{world.width} of what was tried, the fastest first, is {_row(beam)}", shown)
    return None


def _row(kernels: Sequence[str]) -> str:
    return f"[{', '.join(map(named, kernels))}]"


def _mistaken(trials: Trials, wanted: Right) -> tuple[str, str] | None:
    """What is wrong with what was tried."""
    seen: dict[str, Candidate] = {}
    for each in trials.log:
        before = seen.setdefault(each.kernel, each)
        if before is not each:
            return LIMITS, (f"the kernel of {named(''.join(each.steps))} is tried a second time; "
                            f"it was tried as {named(''.join(before.steps))}")
    if trials.late is not None:
        return LIMITS, f"time was up, and you try {named(trials.late.kernel)}"
    for kernel in seen:
        if kernel not in wanted.tried:
            why = ("two generations had found nothing faster" if wanted.ended == "idle" else
                   f"it is none of the best {trials.world.width} with one more step")
            return LIMITS, f"you try {named(kernel)}, though {why}"
    for kernel in wanted.tried:
        if kernel not in seen:
            one = wanted.parent.get(kernel)
            why = "it is one to begin with" if one is None else (
                f"it is {named(one)} with one more step, and that was one of the best "
                f"{trials.world.width}")
            return EVERY, f"you never try {named(kernel)}: {why}"
    return None


def searching(module: ModuleType) -> Iterator[Counterexample]:
    """The first race, the first choice and the first world about which the reader is wrong."""
    found = list(_raced(module))
    if not found:  # the rest asks what a race says
        found = [*_settled(module), *_searched(module)]
    yield from found


# In the runtime ----------------------------------------------------------------------------


@dataclass(eq=False)
class Shown:
    """A candidate of the runtime, as the reader sees it."""

    steps: tuple[str, ...]
    kernel: str
    own: Any


def install(module: ModuleType) -> None:
    """Let the runtime search as the reader does."""
    known: Any = module

    def shown(one: Any) -> Shown:
        return Shown(tuple(step.name for step in one.steps),
                     known.kernel_name(one.ast, named=False), one)

    def race(search: Any, runners: Any, others: Any) -> None:
        for each in runners:
            if search._sampled(each) == math.inf:  # caches and pages get warm
                search._drop([each])
        running = [each for each in runners if each.program is not None]
        for each, seconds in zip(running, known.least(running, search._sampled, known._SAMPLES),
                                 strict=True):
            each.seconds = seconds

    def grown(search: Any, start: Any, beam: list[Any]) -> list[Any]:
        tried = list(beam)

        def more(one: Shown) -> list[Shown]:
            search.seen = set()  # the reader looks whether it was tried
            return list(map(shown, search._next([one.own])))

        def times(candidates: Sequence[Shown]) -> list[float]:
            new = [each.own for each in candidates if each.own not in tried]
            tried.extend(new)
            search._measured(new, tried[:1])
            return [each.own.seconds for each in candidates]

        found = [each.own for each in known.search(
            list(map(shown, beam)), more, times, search.width, search._is_over)]
        search._drop([each for each in tried if each not in found and each is not start])
        return found

    def last(search: Any, start: Any, beam: list[Any]) -> Any:
        others = [each for each in beam[:3] if each is not start]
        for each in (start, *others):
            each.seconds = math.inf

        def sample(each: Any) -> float:
            seconds: float = search.trial.sample(each.program)
            each.seconds = min(each.seconds, seconds)
            return seconds

        best = known.chosen(start, others, sample, known._LAST_SAMPLES)
        search._drop([*beam, start])
        return known.Found(tuple(step.name for step in best.steps), best.seconds, start.seconds,
                           search.tried)

    known._Search._race, known._Search._grown, known._Search._last = race, grown, last


# The score ---------------------------------------------------------------------------------


def product_cost(steps: str) -> float:
    """What a product costs per result, counted: sums, loads, spilled registers, turns of the loop.

    R and C make two rows and two columns of one, U runs two turns as one, and V makes vectors of
    four columns. There are eight registers.
    """
    count = {letter: steps.count(letter) for letter in "CRUV"}
    rows, columns, turns = 2 ** count["R"], 2 ** count["C"], 2 ** count["U"]
    each = columns // 4 if count["V"] else columns
    spilled = 2 * max(0, rows * each + each + 1 - 8)
    return (rows * each + rows + each + spilled + 3 / turns) / (rows * columns)


def products() -> dict[str, float]:
    """All kernels that up to eleven of these steps make of a product; V needs four columns."""
    names = ["C" * c + "R" * r + "U" * u + "V" * v for c, r, u, v in itertools.product(
        range(5), range(4), range(4), range(2)) if c > 1 or not v]
    return {name: product_cost(name) for name in names}


def _race_cost(least: Callable[..., Any]) -> float:
    chooser = random.Random(0)
    machine = Machine({str(number): 10.0 * 1.2 ** chooser.randrange(12) for number in range(32)})
    least(list(machine.seconds), machine.sample, 4)
    return sum(seconds for _, seconds in machine.log)


def score(module: ModuleType) -> Iterator[str]:
    """What is found with how many trials, and how long a race takes."""
    known: Any = module
    seconds = products()
    best = min(seconds.values())
    yield f"{'':<24}{'found':>7}{'tried':>7}{'at least':>10}{'of':>6}"
    for width in (1, 2, 4, 8):
        world = World(seconds, width)
        trials = Trials(world)
        found = known.search([Candidate((), "")], world.more, trials.times, width, trials.over)
        yield (f"{f'the best {width} go on':<24}{seconds[found[0].kernel]:>7.3f}"
               f"{len(trials.log):>7}{best:>10.3f}{len(seconds):>6}")
    slowest = _race_cost(lambda runners, sample, rounds: [
        sample(each) for _ in range(rounds) for each in runners])
    yield (f"a race of 32 takes {_race_cost(known.least):.0f} s with you; without giving up "
           f"{slowest:.0f}, at least {_twice(slowest):.0f}")


def _twice(everything: float) -> float:
    """Two samples of each, of four."""
    return everything / 2


SEARCHING = Lesson(
    number=16, functions=("least", "chosen", "search"),
    names="""\
A runner is what can be run: sample(runner) runs it once and says how many seconds it took. Other
work of the machine can only make that more.
A candidate is a list of steps:
    candidate.steps       their names
    candidate.kernel      the name of the kernel that comes out: two lists may make the same one
It may be a key of a dict, and stand in a set.""",
    heads='''\
def least(runners, sample, rounds):
    """The least of `rounds` samples of each runner, as a list. There may be no runner at all.

    Whatever is 1.5 times as slow as the best after two samples may be given up: its least so far
    is the answer then.
    """
    raise NotImplementedError


def chosen(start, others, sample, rounds):
    """The fastest of all, measured side by side; `start`, unless it takes at most 0.98 of that."""
    raise NotImplementedError


def search(starts, more, times, width, over):
    """The `width` fastest candidates that are found, as a list, the fastest first.

    more(candidate) are all legal candidates with one more step. times(candidates) compiles and
    measures them, and answers a list of seconds; math.inf is what cannot run, which is no answer
    and does not go on. over() says whether time is up: no call of times() begins then, but that of
    `starts`. A generation may be one call, or a call for each candidate.
    """
    raise NotImplementedError
''',
    rules=(EVERY, HARMLESS, LIMITS),
    hints=(
        "least: two loops. Which of them is the outer one? Look at what happens if the machine "
        "is busy for a while.",
        "chosen: you have `least`. The fastest one wins only if its time is at most 0.98 times "
        "that of the start, measured now.",
        "search, first without an end: measure the starts; then again and again all lists with "
        "one more step of the best `width`, and keep the best `width` of old and new together.",
        "A set of names of kernels says what was tried. Look into it before you measure, and do "
        "not forget the starts.",
        "It ends when nothing new is left, when over() says so before a generation begins, and "
        "after two generations, one after the other, whose best is no faster than before."),
    counterexamples=searching, module="searching.beam", chapters=("searching",),
    install=install, score=score)
