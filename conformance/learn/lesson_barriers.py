"""The lesson on barriers: where the lanes of a work-group wait for each other.

The reader's functions get a few stages, which all lanes share, and loops around them. What they say
is run on lanes that are as far apart as the barriers allow.

    lowering.wait.lanes: no barrier stands between a store of A in stage 0 and a load of it in
    stage 1

        stage 0: stores A
        stage 1: loads A
"""
from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from conformance.learn.lesson import Counterexample, Lesson, raised, times

WAIT = "lowering.wait.lanes"
LANES = 4


@dataclass(frozen=True)
class Touched:
    """What lanes store and load, by name."""

    stored: frozenset[Any] = frozenset()
    loaded: frozenset[Any] = frozenset()

    def __or__(self, other: Touched) -> Touched:
        """Both."""
        return Touched(self.stored | other.stored, self.loaded | other.loaded)


@dataclass(frozen=True)
class Again:
    """A loop that all lanes run: its items, again and again."""

    items: tuple[Touched | Again, ...]


Item = Touched | Again
#: As the items: whether lanes wait before a stage, a list for a loop.
Answer = list[Any]


def stage(stored: str = "", loaded: str = "") -> Touched:
    return Touched(frozenset(stored), frozenset(loaded))


def problems() -> Iterator[tuple[Item, ...]]:
    """From the smallest up: straight ones, loops, loops in loops."""
    kinds = [stage("A"), stage("", "A"), stage("B", "A"), stage("", "AB")]
    for count in range(4):
        yield from itertools.product(kinds, repeat=count)
    yield (Again((stage("A"),)),)
    yield (Again((stage("A"), stage("", "A"))),)
    yield (Again((stage("", "A"), stage("B"))), stage("A"))
    yield (stage("A"), Again((stage("", "A"),)))
    yield (Again((stage("", "A"),)), stage("A"))
    yield (stage("A"), Again((stage("B", "A"),)))
    yield (Again((stage("A"), stage("B", "A"), stage("", "B"))),)
    yield (Again((Again((stage("A"),)), stage("", "A"))),)
    yield (Again((stage("", "A"), Again((stage("B"), stage("", "B"))), stage("A"))),)
    yield (Again((stage("", "AB"), stage("C", "A"), stage("B"), stage("A"), stage("", "BC"))),)
    chooser = random.Random(1)
    for _ in range(120):
        yield tuple(_drawn(chooser, 2) for _ in range(chooser.randrange(1, 4)))


def _drawn(chooser: random.Random, depth: int) -> Item:
    if depth and chooser.random() < 0.4:
        return Again(tuple(_drawn(chooser, depth - 1) for _ in range(chooser.randrange(1, 6))))
    stored = chooser.choice(["", *"ABC"])
    others = [each for each in "ABC" if each != stored]
    return stage(stored, "".join(chooser.sample(others, chooser.randrange(3))))


# What is right -----------------------------------------------------------------------------


def placed(items: Sequence[Item], now: Touched) -> tuple[Answer, Touched]:
    """Barriers by definition, and what is open at the end."""
    answer: Answer = []
    for item in items:
        if isinstance(item, Again):
            while True:
                inner, after = placed(item.items, now)
                if after | now == now:
                    break
                now |= after
            answer.append(inner)
            now = after
            continue
        answer.append(_clash(now, item) is not None)
        now = item if answer[-1] else now | item
    return answer, now


def _clash(before: Touched, after: Touched) -> tuple[str, str, Any] | None:
    """What was done, what is done now, and with what, if lanes have to wait between."""
    for done, does, common in (("store", "load", before.stored & after.loaded),
                               ("load", "store", before.loaded & after.stored),
                               ("store", "store", before.stored & after.stored)):
        if common:
            return done, does, min(common)
    return None


#: What a lane comes by: the number of a stage, what it touches, and whether lanes wait before it.
Step = tuple[int, Touched, bool]


def _passed(items: Sequence[Item], answer: Answer, first: int = 0) -> Iterator[Step]:
    """What a lane comes by, with three turns of each loop; stages are numbered as they stand."""
    for item, waits in zip(items, answer, strict=True):
        if isinstance(item, Again):
            for _ in range(3):
                yield from _passed(item.items, waits, first)
            first += _count(item.items)
        else:
            yield first, item, waits
            first += 1


def _count(items: Sequence[Item]) -> int:
    return sum(_count(item.items) if isinstance(item, Again) else 1 for item in items)


def _race(steps: Sequence[Step]) -> tuple[int, int, tuple[str, str, Any]] | None:
    """The first two accesses that nothing keeps apart: their stages, and what they do."""
    here: list[tuple[int, Touched]] = []
    for number, does, waits in steps:
        here = [] if waits else here
        for before, done in here:
            clash = _clash(done, does)
            if clash is not None:
                return before, number, clash
        here.append((number, does))
    return None


def _emulated(steps: Sequence[Step], order: Sequence[int]) -> dict[tuple[int, int, Any], int]:
    """What each lane loads, (lane, turn, name) for all, where each lane runs on to the next barrier
    before another one begins.

    A lane stores its own element of a buffer, and loads that of the lane at the other end.
    """
    memory: dict[tuple[Any, int], int] = {}
    seen = {}
    parts: list[list[tuple[int, Touched]]] = [[]]
    for turn, (_, does, waits) in enumerate(steps):
        if waits:
            parts.append([])
        parts[-1].append((turn, does))
    for part in parts:
        for lane, (turn, does) in itertools.product(order, part):
            for name in does.loaded:
                seen[lane, turn, name] = memory.get((name, LANES - 1 - lane), 0)
            memory.update(((name, lane), 100 * (turn + 1) + lane) for name in does.stored)
    return seen


def _seen(steps: Sequence[Step]) -> str:
    """What a lane loads that it should not, or nothing if no lane loads what is wrong."""
    apart = _emulated([(number, does, True) for number, does, _ in steps], range(LANES))
    for order in (range(LANES), range(LANES)[::-1]):
        mine = _emulated(steps, order)
        for (lane, turn, name), value in sorted(mine.items(), key=lambda each: each[0][1:]):
            right = apart[lane, turn, name]
            if value != right:
                return (f"\n\nfour lanes, lane {order[0]} first: in stage {steps[turn][0]} lane "
                        f"{lane} loads {value} from {name}[{LANES - 1 - lane}], and should load "
                        f"{right}")
    return ""


# What is said ------------------------------------------------------------------------------


def shown(items: Sequence[Item], answer: Answer | None = None) -> str:
    """The stages with what they touch, and the barriers if they are known."""
    lines: list[str] = []

    def add(items: Sequence[Item], answer: Answer | None, indent: str, first: int) -> None:
        for place, item in enumerate(items):
            waits = answer[place] if answer is not None else None
            if isinstance(item, Again):
                lines.append(f"{indent}again and again:")
                add(item.items, waits, indent + "    ", first)
                first += _count(item.items)
                continue
            if waits:
                lines.append(f"{indent}barrier")
            parts = [f"{word} {', '.join(sorted(names))}" for word, names in (
                ("loads", item.loaded), ("stores", item.stored)) if names]
            lines.append(f"{indent}stage {first}: {', '.join(parts) or 'nothing shared'}")
            first += 1

    add(items, answer, "", 0)
    return "\n".join(lines) or "no stages"


def lesson_barriers(module: ModuleType) -> Iterator[Counterexample]:
    """The first kernel about which the reader's functions are wrong."""
    for before, after in itertools.product(
            (stage(), *map(stage, "AB"), stage("", "A"), stage("B", "A"), stage("C", "AB")),
            repeat=2):
        found = _asked(module, before, after)
        if found is not None:
            yield found
            return
    for items in problems():
        found = _judged(module, items)
        if found is not None:
            yield found
            return


def _asked(module: ModuleType, before: Touched, after: Touched) -> Counterexample | None:
    picture = f"open:  {shown([before])[9:]}\nstage: {shown([after])[9:]}"
    try:
        answer = module.must_wait(before, after)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, picture)
    if not isinstance(answer, bool):
        return Counterexample("raised", f"must_wait answers {answer!r:.40}, and not True or False",
                              picture)
    clash = _clash(before, after)
    if answer == (clash is not None):
        return None
    why = "nothing of it is in the way of another" if clash is None else (
        f"a {clash[1]} of {clash[2]} comes after a {clash[0]} of it")
    return Counterexample(WAIT, f"you say {answer}, though {why}", picture)


def _judged(module: ModuleType, items: tuple[Item, ...]) -> Counterexample | None:
    try:
        answer = module.barriers(items)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, shown(items))
    if not _fits(items, answer):
        return Counterexample("raised", f"barriers answers {answer!r:.60}; it should be a list, "
                              "with True or False for each stage, and a list for each loop",
                              shown(items))
    steps, picture = list(_passed(items, answer)), shown(items, answer)
    race = _race(steps)
    if race is not None:
        before, number, (done, does, name) = race
        later = ", in a later turn of the loop" if number <= before else ""
        return Counterexample(WAIT, f"no barrier stands between a {done} of {name} in stage "
                              f"{before} and a {does} of it in stage {number}{later}",
                              picture + _seen(steps))
    waits, ours = (sum(waits for *_, waits in each) for each in (
        steps, _passed(items, placed(items, Touched())[0])))
    if waits > ours:
        return Counterexample(WAIT, f"lanes wait {times(waits)}, and {times(ours)} would do"
                              + (" (loops have three turns here)" if len(steps) > _count(items)
                                 else ""), picture)
    return None


def _fits(items: Sequence[Item], answer: Any) -> bool:
    return isinstance(answer, list) and len(answer) == len(items) and all(
        _fits(item.items, each) if isinstance(item, Again) else isinstance(each, bool)
        for item, each in zip(items, answer, strict=True))


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the runtime place barriers as the reader does; copies ahead of time keep ours."""
    known: Any = module
    ours = known._Walk.place

    def place(walk: Any, block: Any, before: Any) -> None:
        if vars(walk).get("early") or any(known._early(item) is not None for item in block.items):
            walk.early = True  # in the loops inside as well
            ours(walk, block, before)
            return

        def items_of(block: Any) -> Iterator[Item]:
            for item in block.items:
                inner = walk._run_by_all(item)
                if inner is None:
                    found = walk._shared(item)
                    yield Touched(found.stored, found.loaded)
                elif comes_round(inner):
                    yield Again(tuple(items_of(inner)))
                else:  # a loop over what each group does once
                    yield from items_of(inner)

        def put(block: Any, answers: Iterator[Any]) -> None:
            items: list[Any] = []
            for item in block.items:
                inner = walk._run_by_all(item)
                if inner is not None:
                    put(inner, iter(next(answers)) if comes_round(inner) else answers)
                else:
                    if next(answers):
                        items.append(known.Wait())
                    if walk._shared(item).stored and not known._has_lanes(item):
                        item = known._alone(item)
                items.append(item)
            block.items = items

        put(block, iter(known.barriers(tuple(items_of(block)))))

    def comes_round(inner: Any) -> bool:
        return bool(inner.loop.arg[1] is known.RangeKind.BLOCK)

    known._Walk.place = place


def score(module: ModuleType) -> Iterator[str]:
    """How often lanes wait in kernels that are drawn, with the reader's barriers and ours."""
    known: Any = module
    every = mine = ours = 0
    for items in problems():
        steps = list(_passed(items, known.barriers(items)))
        every += len(steps)
        mine += sum(waits for *_, waits in steps)
        ours += sum(waits for *_, waits in _passed(items, placed(items, Touched())[0]))
    yield f"{every} stages are run: lanes wait {mine} times with your barriers, {ours} with ours"


BARRIERS = Lesson(
    number=17, functions=("must_wait", "barriers"),
    names="""\
What lanes store and load of memory that all of them see, by name:
    Touched(stored, loaded)      two frozensets; a | b is both of them
A stage is a Touched: each lane does its share of it. A loop that all lanes run is
    Again(items)                 its items, a tuple of stages and loops, run again and again,
                                 at least once""",
    heads='''\
from conformance.learn.lesson_barriers import Again, Touched


def must_wait(open, stage):
    """Whether lanes have to wait before a stage, if `open` was done since they last waited."""
    raise NotImplementedError


def barriers(items):
    """A list with an entry for each item: whether lanes wait before a stage; for a loop, a list.

    Lanes wait wherever one could be in the way of another, and no more often than needed: that is
    counted with three turns of each loop.
    """
    raise NotImplementedError
''',
    rules=(WAIT,),
    hints=(
        "must_wait: three of the four pairs of load and store are in each other's way. Two loads "
        "are not.",
        "barriers without loops: go through the stages with what is open. After a barrier nothing "
        "is open but what the stage does itself.",
        "A loop: what is open at the end of a turn is open at the beginning of the next one. "
        "Write a function that is given what is open before, and answers what is open after.",
        "With more open at its beginning a turn waits elsewhere, and may leave more open. Go "
        "through the loop until nothing is added."),
    counterexamples=lesson_barriers, module="lowering.waits", chapters=("lowering", "opencl"),
    install=install, score=score)
