"""The lesson on several processes: programs of ranks, who waits for whom, and who is at fault.

What each process of a job comes to is written down as a list: with whom, and what. The reader plays
such lists, says who is about to do something else than most, and who is to blame when all wait.

    distributed.late.named: rank 1 hangs, and rank 0 waits for it; you blame [0], and it is [1]

        rank 0: | sum with 0, 1
        rank 1: | hangs
"""
from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from conformance.learn.lesson import Counterexample, Lesson, first_of_each, is_whole, raised

OTHER, LATE, END = ("distributed.other.named", "distributed.late.named", "distributed.end.named")

Event = tuple[tuple[int, ...], str]
Programs = list[list[Event]]



def hand_made() -> list[Programs]:
    """From the smallest up."""
    both, hang = (0, 1), ((), "hangs")
    three, a, b, c = (0, 1, 2), (0, 1), (1, 2), (0, 2)
    return [
        [[], []], [[(both, "sum")], [(both, "sum")]], [[(both, "sum")], []], [[], [(both, "sum")]],
        [[(both, "sum")], [hang]], [[hang], [hang]],
        [[(both, "sum")], [(both, "max")]],
        [[(both, "sum"), (both, "max")], [(both, "sum"), (both, "max")]],
        [[(both, "sum"), (both, "max")], [(both, "max"), (both, "sum")]],
        [[(both, "sum"), (both, "sum")], [(both, "sum")]],
        [[(both, "sum"), (both, "sum")], [(both, "sum"), hang]],
        [[(three, "sum")], [(three, "sum")], [(three, "sum")]],
        [[(a, "x"), (c, "z")], [(a, "x"), (b, "y")], [(b, "y"), (c, "z")]],
        [[(c, "z"), (a, "x")], [(a, "x"), (b, "y")], [(b, "y"), (c, "z")]],
        [[(a, "x"), (three, "sum")], [(three, "sum"), (a, "x")], [(three, "sum")]],
        [[(a, "x")], [(b, "y"), (a, "x")], []],
        [[(a, "x")], [(b, "y"), (a, "x")], [hang, (b, "y")]],
        [[(three, "sum"), (a, "x")], [(three, "sum"), (a, "x")], [(three, "sum")]],
        [[(a, "x")], [(a, "x"), (b, "y")], [(b, "y"), (three, "sum")]]]


def drawn(count: int) -> Iterator[Programs]:
    """Jobs of three and four ranks: right ones, of which one rank does something in another order,
    ends early or hangs."""
    chooser = random.Random(22)
    for _ in range(count):
        ranks = chooser.choice((3, 4))
        events: list[Event] = []
        for _ in range(chooser.randrange(3, 8)):
            group = tuple(sorted(chooser.sample(range(ranks), chooser.randrange(2, ranks + 1))))
            events.append((group, chooser.choice(("sum", "max", "gather"))))
        programs: Programs = [[each for each in events if rank in each[0]]
                              for rank in range(ranks)]
        kind, mine = chooser.randrange(4), programs[chooser.randrange(ranks)]
        place = chooser.randrange(len(mine) + 1)
        if kind == 1:
            del mine[place:]
        elif kind == 2:
            mine.insert(place, ((), "hangs"))
        elif kind == 3:
            chooser.shuffle(mine)
        yield programs


# What is so --------------------------------------------------------------------------------


def ended(programs: Programs) -> list[int]:
    """How far each rank comes."""
    places = [0] * len(programs)
    while True:
        now = [program[place] if place < len(program) else None
               for program, place in zip(programs, places, strict=True)]
        ready = next((each[0] for each in now if each is not None and each[0]
                      and all(now[rank] == each for rank in each[0])), None)
        if ready is None:
            return places
        for rank in ready:
            places[rank] += 1


def absent(programs: Programs, places: Sequence[int], rank: int) -> list[int]:
    """For whom a rank waits."""
    if places[rank] == len(programs[rank]):
        return []
    group = programs[rank][places[rank]][0]
    return [other for other in group if places[other] == len(programs[other])
            or programs[other][places[other]][0] != group]


def gone(programs: Programs, places: Sequence[int]) -> list[int]:
    """For whom somebody waits, and who will wait for nobody any more."""
    wanted = {other for rank in range(len(programs)) for other in absent(programs, places, rank)}
    return sorted(rank for rank in wanted if places[rank] == len(programs[rank])
                  or not programs[rank][places[rank]][0])


def told(programs: Programs, places: Sequence[int] | None = None) -> str:
    """A line for each rank, with its place."""
    lines = []
    for rank, program in enumerate(programs):
        parts = [f"{what} with {', '.join(map(str, group))}" if group else what
                 for group, what in program]
        if places is not None:
            parts.insert(places[rank], "|")
        lines.append(f"rank {rank}: " + "; ".join(parts))
    return "\n".join(line.replace("; |;", " |").replace("; |", " |").replace("|;", "|")
                     for line in lines)


# What is said of the reader's functions ----------------------------------------------------


def ranks(module: ModuleType) -> Iterator[Counterexample]:
    """The smallest jobs about which each rule is broken."""
    for judged in PARTS.values():
        yield from judged(module)


def _jobs() -> list[Programs]:
    return [*hand_made(), *drawn(120)]


def _played(module: ModuleType, programs: Programs) -> Iterator[Counterexample]:
    shown = told(programs)
    try:
        found = module.play([list(each) for each in programs])
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    if not isinstance(found, list) or len(found) != len(programs) or not all(map(is_whole, found)):
        yield Counterexample("raised", f"play answers {found!r:.60}, and not a list of "
                             f"{len(programs)} numbers", shown)
        return
    right = ended(programs)
    for rank, (mine, place) in enumerate(zip(found, right, strict=True)):
        if mine == place:
            continue
        if place == len(programs[rank]):
            yield Counterexample(LATE, f"rank {rank} comes to its end, and you say that it stays "
                                 f"at {mine}", f"{shown}\nyou answer {found}")
            return
        group, what = programs[rank][place]
        nows = [programs[other][right[other]] if right[other] < len(programs[other]) else None
                for other in group]
        same = all(now is not None and now[0] == group for now in nows)
        why = "it does so for ever" if not group else "others are about to do something else " \
            "there" if same else f"rank {absent(programs, right, rank)[0]} does not come"
        yield Counterexample(OTHER if same and group else END if any(
            now is None for now in nows) else LATE,
            f"rank {rank} comes to its event {place} ({what}) and no further, since {why}; you "
            f"say {mine}", f"{shown}\nyou answer {found}")
        return


def _differing(module: ModuleType, whats: Sequence[str], place: int) -> Iterator[Counterexample]:
    shown = "\n".join(f"rank {rank}: {what}" for rank, what in enumerate(whats))
    try:
        found = module.differing(list(whats), place)
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    if not isinstance(found, list) or not all(map(is_whole, found)):
        yield Counterexample("raised", f"differing answers {found!r:.60}, and not a list of "
                             "numbers", shown)
        return
    most = max(whats, key=whats.count)
    if 2 * whats.count(most) <= len(whats):
        most = whats[place]
        why = f"no text is that of more than half; rank {place} asks, and names those that " \
            "differ from itself"
    else:
        why = f"most are about to do {most}"
    right = [rank for rank, what in enumerate(whats) if what != most]
    if sorted(found) != right:
        yield Counterexample(OTHER, f"you name {found}, and it is {right}: {why}", shown)


def _notes() -> Iterator[tuple[list[str], int]]:
    for whats in (["sum", "sum"], ["sum", "max"], ["sum", "sum", "max"], ["max", "sum", "sum"],
                  ["sum", "max", "sum"], ["sum"] * 3, ["sum", "max", "sum", "max"],
                  ["max", "max", "sum", "sum"], ["a", "b", "b", "b", "c"],
                  ["c", "b", "a", "b", "b"], ["a", "b", "c"], ["a", "a", "b", "c"],
                  ["a", "a", "b", "b", "c"]):
        for place in range(len(whats)):
            yield whats, place


def _blamed(module: ModuleType, programs: Programs) -> Iterator[Counterexample]:
    places = ended(programs)
    shown = told(programs, places)
    try:
        found = module.blamed([list(each) for each in programs], list(places))
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    if not isinstance(found, list) or not all(is_whole(each) and 0 <= each < len(programs)
                                              for each in found):
        yield Counterexample("raised", f"blamed answers {found!r:.60}, and not a list of ranks",
                             shown)
        return
    waits = {rank: absent(programs, places, rank) for rank in range(len(programs))}
    guilty = gone(programs, places)
    if guilty:
        if sorted(found) != guilty:
            who = guilty[0]
            over = places[who] == len(programs[who])
            yield Counterexample(END if over else LATE, f"rank {who} "
                                 f"{'has ended its program' if over else 'hangs'}, and rank "
                                 f"{next(r for r in waits if who in waits[r])} waits for it; you "
                                 f"blame {found}, and it is {guilty}", shown)
    elif not any(waits.values()):
        if found:
            yield Counterexample(LATE, f"nobody waits for anybody; you blame {found}", shown)
    elif len(found) < 2 or len(set(found)) < len(found) or not all(
            after in waits[rank] for rank, after in zip(found, [*found[1:], found[0]],
                                                        strict=True)):
        yield Counterexample(LATE, "all that are missing wait themselves: there is a circle, and "
                             f"{found} is none: each has to wait for the next, and the last for "
                             "the first", f"{shown}\n" + "\n".join(
                                 f"rank {rank} waits for {others}"
                                 for rank, others in waits.items() if others))


def _without_quarrels() -> Iterator[Programs]:
    """Jobs in whose end no group is together and about to do several things."""
    for programs in _jobs():
        places = ended(programs)
        if all(absent(programs, places, rank) or place == len(programs[rank])
               or not programs[rank][place][0] for rank, place in enumerate(places)):
            yield programs


PARTS: dict[str, Any] = {
    "play": lambda module: first_of_each(_played(module, each) for each in _jobs()),
    "differing": lambda module: first_of_each(_differing(module, *each) for each in _notes()),
    "blamed": lambda module: first_of_each(_blamed(module, each) for each in _without_quarrels())}


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let a process name whom the reader names."""
    known: Any = module

    def strangers(digests: list[bytes], place: int) -> list[int]:
        return sorted(known.differing(digests, place))

    known.strangers = strangers


def score(module: ModuleType) -> Iterator[str]:
    """Of drawn jobs that do not end, how many ranks are blamed."""
    known: Any = module
    hanging = [each for each in _without_quarrels()
               if any(absent(each, ended(each), rank) for rank in range(len(each)))]
    waiting = mine = 0
    for programs in hanging:
        places = known.play(programs)
        waiting += sum(bool(absent(programs, places, rank)) for rank in range(len(programs)))
        mine += len(known.blamed(programs, places))
    yield (f"{len(hanging)} jobs that hang: {waiting} ranks wait, you blame {mine}, at least "
           f"{sum(len(gone(each, ended(each))) or 2 for each in hanging)}")


RANKS = Lesson(
    number=22, functions=("play", "differing", "blamed"),
    names="""\
programs[rank] is the list of what a rank comes to, in order. Each event is
    (group, what)      all ranks of `group`, a tuple with the rank itself in it, come to it together
    ((), "hangs")      what never ends, and with nobody
Ranks leave an event when all of its group have come to it, and are about to do the same: the same
group and the same text. Groups that have nothing to do with each other do not wait.
A rank waits for those of its group that have not come: they stand at an event of another group,
hang, or have ended. Who stands at an event of the same group has come, whatever the text is.""",
    heads='''\
def play(programs):
    """How many events each rank leaves behind: a list of numbers."""
    raise NotImplementedError


def differing(whats, place):
    """Whom to name: the places whose text is not that of most, as a list.

    Most are more than half. If no text is that of more than half, nobody knows who is wrong: then
    those that differ from the text at `place`, which is the one that asks.
    """
    raise NotImplementedError


def blamed(programs, positions):
    """Who is at fault that not all have ended, as a list of ranks. `positions` is as play says it.

    Those for whom somebody waits, and who wait for nobody: they have ended, or hang. If there are
    none such, a circle of ranks that wait, each for the next one, and the last for the first. If
    nobody waits, [].
    """
    raise NotImplementedError
''',
    rules=(OTHER, LATE, END),
    hints=(
        "play: keep a position for each rank. Look for a group of which all members stand at the "
        "very same event; let all of them go on; begin anew. Stop when there is none.",
        "In which order you look at groups makes no difference to the end. Try to see why.",
        "differing: max(whats, key=whats.count) is what most say. Is it really more than half?",
        "blamed: for each rank, the members of its group that are not at an event of that group. "
        "A rank that hangs, or has ended, waits for nobody.",
        "A circle: begin with a rank that waits, and go on to one for which it waits, and so on. "
        "You come to a rank that you have met; the circle begins there, not where you began."),
    counterexamples=ranks, module="distributed.engine", chapters=("distributed",),
    install=install, score=score)
