"""The lesson on versions: which write may lie where the old value lies.

The reader's functions get a few stages in the order of the program. Each makes a value, and may
wish to overwrite an old one.

    placement.held.kept: stage 0 is in place, and x0 can still be seen after the run

        stage 0: x1 = f(x0), over x0
        still seen: x0
"""
from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import Counterexample, Lesson, first_of_each, is_whole, raised

SAFE, HELD, ONE = ("placement.in-place.safe", "placement.held.kept",
                   "placement.version.one-successor")
CYCLE, NOTED = "placement.cycle.copied", "placement.copies.noted"
Edge = tuple[int, int]


class Stage(NamedTuple):
    """A loop nest that makes one value.

    `crossed` are those that it reads at other elements than the one which it writes; `overwrites`
    is the value whose memory it would like to have, or None. One that is not `whole` writes some
    elements of it only; the others stay.
    """

    number: int
    reads: tuple[str, ...]
    writes: str
    overwrites: str | None = None
    crossed: frozenset[str] = frozenset()
    whole: bool = True

    def __str__(self) -> str:
        given = ", ".join(f"{each} turned" if each in self.crossed else each for each in self.reads)
        over = "" if self.overwrites is None else \
            f", over {'' if self.whole else 'a part of '}{self.overwrites}"
        return f"stage {self.number}: {self.writes} = f({given}){over}"


class Problem(NamedTuple):
    """Stages in the order of the program, and the values that can be seen after the run."""

    stages: tuple[Stage, ...]
    held: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [str(each) for each in self.stages]
        return "\n".join([*lines, *([f"still seen: {', '.join(self.held)}"] if self.held else [])])


def written(*rows: str, held: str = "") -> Problem:
    """Stages from a short form: `x1 = x0 y0* > x0`; * is read turned, >> is a write of a part."""
    stages = []
    for number, row in enumerate(rows):
        left, _, right = row.partition(" = ")
        given, mark, old = right.partition(" > ") if " > " in right else right.partition(" >> ")
        reads = given.split()
        stages.append(Stage(number, tuple(each.rstrip("*") for each in reads), left,
                            old.strip() or None,
                            frozenset(each.rstrip("*") for each in reads if each.endswith("*")),
                            mark != " >> "))
    return Problem(tuple(stages), tuple(held.split()))


def problems() -> Iterator[Problem]:
    """From the smallest up."""
    yield written("t = x0")
    yield written("x1 = x0 > x0")
    yield written("x1 = x0* > x0")
    yield written("x1 = y0* > x0")
    yield written("x1 = x0 > x0", held="x0")
    yield written("x1 = x0 > x0", held="x1")
    yield written("x1 = y0 >> x0")
    yield written("x1 = x0* >> x0")
    yield written("x1 = y0 > x0", "t = x0")
    yield written("x1 = x0 > x0", "t = x0*")
    yield written("x1 = y0 > x0", "t = x0 x1")
    yield written("x1 = y0 >> x0", "x2 = y0 >> x0")
    yield written("x1 = x0 > x0", "x2 = x0 > x0", held="x1 x2")
    yield written("x1 = x0 > x0", "x2 = x1 > x1", "t = x1")
    yield written("x1 = y0* > x0", "y1 = x0* > y0")
    yield written("x1 = y0 > x0", "y1 = x0 > y0")
    yield written("t = x0", "x1 = y0 > x0", "y1 = t > y0")
    yield written("x1 = y0 >> x0", "y1 = z0 >> y0", "z1 = x0 >> z0")
    yield written("x1 = y0 > x0", "x2 = x1 x0 > x1")
    yield written("x1 = y0 > x0", "x2 = x1 > x1", "t = x0 x2")
    chooser = random.Random(0)
    for _ in range(120):
        yield drawn(chooser)


def drawn(chooser: random.Random) -> Problem:
    """Three to five stages over three memories."""
    latest = {"x": 0, "y": 0, "z": 0}
    stages = []
    for number in range(chooser.choice((3, 3, 4, 5))):
        values = [f"{name}{at}" for name, last in latest.items() for at in range(last + 1)]
        reads = tuple(dict.fromkeys(chooser.choices(values, k=chooser.choice((1, 1, 2)))))
        crossed = frozenset(each for each in reads if chooser.random() < 0.3)
        if chooser.random() < 0.25:
            stages.append(Stage(number, reads, f"t{number}", None, crossed))
            continue
        name = chooser.choice("xyz")
        old = f"{name}{latest[name]}"
        latest[name] += 1
        stages.append(Stage(number, reads, f"{name}{latest[name]}", old, crossed,
                            chooser.random() < 0.6))
    seen = [f"{name}{version}" for name, last in latest.items() for version in range(last)
            if chooser.random() < 0.15]
    return Problem(tuple(stages), tuple(seen))


# By definition -----------------------------------------------------------------------------


def must(stages: Sequence[Stage], chosen: Sequence[int]) -> set[Edge]:
    """Which stage has to run before which, if the chosen ones are in place."""
    maker = {each.writes: each.number for each in stages}
    found = set()
    readers: dict[str, set[int]] = {}
    for each in stages:
        needed = set(each.reads)
        if each.number not in chosen and each.overwrites is not None and not each.whole:
            needed.add(each.overwrites)  # the rest is copied
        if each.number in chosen and each.overwrites is not None:
            found |= {(maker[each.overwrites], each.number)} if each.overwrites in maker else set()
        for value in needed:
            readers.setdefault(value, set()).add(each.number)
            if value in maker:
                found.add((maker[value], each.number))
    for each in stages:
        if each.number in chosen and each.overwrites is not None:
            found |= {(reader, each.number) for reader in readers.get(each.overwrites, ())
                      if reader != each.number}
    return found


def has_order(stages: Sequence[Stage], chosen: Sequence[int]) -> bool:
    edges, left = must(stages, chosen), {each.number for each in stages}
    while left:
        ready = {each for each in left if not any(b == each and a in left for a, b in edges)}
        if not ready:
            return False
        left -= ready
    return True


def forbidden(stage: Stage, held: Sequence[str]) -> str:
    """The rule by which a stage can never be in place, or ""."""
    if stage.overwrites in held:
        return HELD
    return SAFE if stage.overwrites in stage.crossed else ""


def wrong_choice(problem: Problem, chosen: Sequence[int]) -> tuple[str, str] | None:
    """The first rule that a choice breaks, and how."""
    for stage in problem.stages:
        if stage.number not in chosen:
            continue
        old = stage.overwrites
        rule = forbidden(stage, problem.held)
        if rule == HELD:
            return HELD, (f"stage {stage.number} is in place, and {old} can still be seen after "
                          "the run")
        if rule == SAFE:
            return SAFE, (f"stage {stage.number} is in place, and reads elements of {old} that "
                          "another of its iterations has overwritten")
        other = next((each.number for each in problem.stages if each.number in chosen
                      and each.number < stage.number and each.overwrites == old), None)
        if other is not None:
            return ONE, f"stages {other} and {stage.number} are both in place, over {old}"
    if not has_order(problem.stages, chosen):
        return CYCLE, (f"with {_named(chosen)} in place, stages wait for each other in a circle: "
                       + "; ".join(_circle(problem.stages, chosen)))
    for stage in problem.stages:
        if stage.overwrites is not None and stage.number not in chosen:
            more = [*chosen, stage.number]
            if _is_free(problem, more):
                return NOTED, (f"stage {stage.number} has memory of its own, and no hazard forces "
                               f"that: {_named(more)} could be in place")
    return None


def _is_free(problem: Problem, chosen: Sequence[int]) -> bool:
    """Whether a choice breaks none of the first four rules."""
    mine = [each for each in problem.stages if each.number in chosen]
    old = [each.overwrites for each in mine]
    return (len(set(old)) == len(old) and not any(forbidden(e, problem.held) for e in mine)
            and has_order(problem.stages, chosen))


def _circle(stages: Sequence[Stage], chosen: Sequence[int]) -> list[str]:
    """What waits for what, along one circle."""
    after: dict[int, list[int]] = {}
    for one, two in sorted(must(stages, chosen)):
        after.setdefault(one, []).append(two)
    for length in range(1, len(stages) + 1):
        for walk in itertools.permutations([each.number for each in stages], length):
            turned = (*walk[1:], walk[0])
            if all(two in after.get(one, ()) for one, two in zip(walk, turned, strict=True)):
                return [f"{two} after {one}" for one, two in zip(walk, turned, strict=True)]
    return []


def _named(chosen: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(chosen))) or "nothing"


# What is said ------------------------------------------------------------------------------


def versions(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on versions."""
    return first_of_each(_judged(module, problem) for problem in problems())


def _judged(module: ModuleType, problem: Problem) -> Iterator[Counterexample]:
    shown, stages = str(problem), list(problem.stages)
    wishes = [each.number for each in stages if each.overwrites is not None]
    try:
        for chosen in ([], wishes, wishes[:1]):
            order = module.order(list(stages), list(chosen))
            found = _wrong_order(problem, chosen, order)
            if found:
                yield Counterexample(*found, shown)
                return
        answer = module.place(list(stages), list(problem.held))
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    if not isinstance(answer, list) or not all(map(is_whole, answer)) or not set(answer) <= set(
            wishes) or len(set(answer)) < len(answer):
        yield Counterexample("raised", f"place answers {answer!r:.60}, and not a list of stages "
                             "that overwrite something, each once", shown)
        return
    wrong = wrong_choice(problem, answer)
    if wrong:
        yield Counterexample(*wrong, shown)


def _wrong_order(problem: Problem, chosen: Sequence[int], order: Any) -> tuple[str, str] | None:
    """What is wrong with the order in which stages run for a choice."""
    legal = has_order(problem.stages, chosen)
    if order is None:
        return (CYCLE, f"you say that there is no order with {_named(chosen)} in place; there is "
                "one") if legal else None
    if not isinstance(order, list) or sorted(order) != [each.number for each in problem.stages]:
        return "raised", f"order answers {order!r:.60}, and not a list of all stages, nor None"
    for one, two in sorted(must(problem.stages, chosen)):
        if order.index(one) > order.index(two):
            return CYCLE, (f"with {_named(chosen)} in place, stage {one} has to run before stage "
                           f"{two}, and your order is {', '.join(map(str, order))}")
    return None


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the reader decide which writes of the runtime are in place."""
    known: Any = module
    base: Any = known._Placer

    class Placer(base):
        def run(self) -> Any:
            if any(each.given is not None or each.task is not None for each in self.stages):
                return super().run()
            stages = [self._told(each) for each in self.stages]
            held = [f"v{value}" for value in self.held]
            chosen = known.place(list(stages), held)
            for told, stage in zip(stages, list(self.stages), strict=True):
                if stage.overwrites is not None and told.number not in chosen:
                    self._move(stage, self._reason(told, held, stages, chosen))
            order, stuck = self._sort()
            if stuck:
                raise ValueError(f"with your choice {_named(chosen)} the stages "
                                 f"{[each.number for each in stuck]} wait for each other")
            return self._placement(order)

        def _told(self, stage: Any) -> Stage:
            crossed = frozenset(f"v{read.value}" for read in stage.reads
                                if not known.same_element(read, stage.write)
                                and not known.apart(read, stage.write))
            old = None if stage.overwrites is None else f"v{stage.overwrites}"
            return Stage(stage.number, tuple(dict.fromkeys(f"v{a.value}" for a in stage.reads)),
                         f"v{stage.write.value}", old, crossed, bool(stage.whole))

        def _reason(self, stage: Stage, held: Sequence[str], stages: Sequence[Stage],
                    chosen: Sequence[int]) -> str:
            rule = forbidden(stage, held)
            if rule == HELD:
                return "the old version stays observable"
            if rule == SAFE:
                return "it reads elements that it has overwritten"
            taken = {each.overwrites for each in stages if each.number in chosen}
            return "the old version has another successor" if stage.overwrites in taken else \
                "a reader of the old version comes later"

    known._Placer = Placer


def score(module: ModuleType) -> Iterator[str]:
    """Copies in some programs: the reader's, ours, and the fewest that there can be."""
    known: Any = module
    chooser = random.Random(5)
    made = [drawn(chooser) for _ in range(100)]
    counts = [0, 0, 0]
    for problem in made:
        wishes = [each.number for each in problem.stages if each.overwrites is not None]
        counts[0] += len(wishes)
        counts[1] += len(wishes) - len(known.place(list(problem.stages), list(problem.held)))
        counts[2] += next(size for size in range(len(wishes) + 1)
                          if any(_is_free(problem, [w for w in wishes if w not in left])
                                 for left in itertools.combinations(wishes, size)))
    yield (f"in 100 programs with {counts[0]} writes, {counts[1]} are not in place; "
           f"{counts[2]} is the least")


PLACEMENT = Lesson(
    number=10, functions=("order", "place"),
    names="""\
Stages come in the order of the program. Each makes one value:
    stage.number       0, 1, 2, ...
    stage.writes       the name of the value
    stage.reads        the names of the values that it reads
    stage.crossed      those of them that it reads at other elements than the one it writes
    stage.overwrites   the value in whose memory it would like to write, or None
    stage.whole        False: it writes some elements only, and the others stay as they were
A value that no stage writes was there before. A stage that is not in place writes to new memory;
if it is not whole, the old value is copied there first, so the stage reads it, too.""",
    heads='''\
def order(stages, chosen):
    """The numbers of the stages, in an order in which they may run if the chosen ones are in place.

    A value is read after it was made, and before another one overwrites it. None if there is no
    such order.
    """
    raise NotImplementedError


def place(stages, held):
    """The numbers of stages that write in place, as a list: as many as you can.

    `held` are the values that can still be seen after the run.
    """
    raise NotImplementedError
''',
    rules=(SAFE, HELD, ONE, CYCLE, NOTED),
    hints=(
        "order: collect pairs (before, after). Whoever reads a value runs after its maker. Whoever "
        "overwrites it in place runs after its maker and after all other readers.",
        "Not in place and not whole: the stage reads the old value too, even if it is not among "
        "stage.reads.",
        "Then take stages that wait for nobody, one after the other. If some are left and all of "
        "them wait, there is no order.",
        "place: never in place is a stage whose old value is held, or is in stage.crossed.",
        "Begin with nothing in place; that is always right. Then try each stage: if its old value "
        "was not taken by another one, and there is an order with it, it stays in place.",
        "Why is nothing lost by trying one after the other? What cannot be added now cannot be "
        "added later either: more stages in place means more pairs."),
    counterexamples=versions, module="placement", chapters=("placement",), install=install,
    score=score)
