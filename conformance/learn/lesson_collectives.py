"""The lesson on several devices: rounds of moves, and what is said of them.

The reader's `all_reduce` answers who sends which part to whom. The moves are played with names in
the place of numbers, so that one sees what was added to what.

    collectives.reduce.equal: device 0 ends with 0 in part 0, and 1 is missing

        2 devices, each with a value in 2 parts
        round 1: 0 -> 1 part 0 added
        device 0 ends with: 0 | 0
        device 1 ends with: 1+0 | 1
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import (
    Counterexample,
    Lesson,
    first_of_each,
    is_whole,
    published,
    raised,
)

#: A sum as it was made: the number of a device, or the two sums that were added.
Sum = Any
EQUAL, BEFORE = "collectives.reduce.equal", "collectives.round.before"
BYTES, TIME = "collectives.bytes.theory", "collectives.algorithm.named"
MOST = 9


class PartMove(NamedTuple):
    """Part `part` of what `sender` has, added to that of `receiver`, or put in its place."""

    sender: int
    receiver: int
    part: int
    add: bool


def collectives(module: ModuleType) -> Iterator[Counterexample]:
    """The smallest number of devices for which each rule of the lesson is broken."""
    return first_of_each((_judged(module, count) for count in range(1, MOST)),
                         {"raised", EQUAL, BEFORE})


def _judged(module: ModuleType, count: int) -> Iterator[Counterexample]:
    described = f"{count} devices, each with a value in {count} parts"
    try:
        answer = module.all_reduce(count)
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, described)
        return
    wrong = _unlike(answer, count)
    if wrong:
        yield Counterexample("raised", wrong, described)
        return
    rounds = [[PartMove(*move) for move in moves] for moves in answer]
    for number, moves in enumerate(rounds, 1):
        written = Counter((m.receiver, m.part) for m in moves)
        place, often = max(written.items(), key=lambda each: each[1], default=((0, 0), 0))
        if often > 1:
            yield Counterexample(BEFORE, f"in round {number} {often} moves write part {place[1]} "
                                 f"of device {place[0]}: which is there afterwards?",
                                 f"{described}\n{told(rounds)}")
            return
    ended = played(rounds, count)
    picture = f"{described}\n{told(rounds)}\n" + "\n".join(
        f"device {device} ends with: {' | '.join(map(shown, values))}"
        for device, values in enumerate(ended))
    message = _sums(ended, count)
    if message:
        yield Counterexample(EQUAL, message, picture)
        return
    least = 2 * (count - 1)
    most, device = max((sum(m.sender == d for r in rounds for m in r), -d) for d in range(count))
    if most > least:
        yield Counterexample(BYTES, f"device {-device} sends {most} parts; {least} would do",
                             picture)
    elif turns(rounds, count) > least:
        yield Counterexample(TIME, f"it takes {turns(rounds, count)} turns, in each of which a "
                             f"device sends and receives one part; {least} would do, if every "
                             "device does so in each turn", picture)


def _unlike(answer: Any, count: int) -> str:
    """What keeps an answer from being rounds of moves, or ""."""
    if not isinstance(answer, list) or not all(isinstance(moves, list) for moves in answer):
        return f"all_reduce answers {answer!r:.60}, and not a list of lists of moves"
    for move in (move for moves in answer for move in moves):
        if not (isinstance(move, tuple) and len(move) == 4 and all(map(is_whole, move[:3]))
                and isinstance(move[3], bool)):
            return f"{move!r:.60} is no move: (sender, receiver, part, add)"
        if not all(0 <= number < count for number in move[:3]):
            return f"{move!r} names a device or a part that is not from 0 to {count - 1}"
        if move[0] == move[1]:
            return f"{move!r}: device {move[0]} sends something to itself"
    return ""


def played(rounds: Sequence[Sequence[PartMove]], count: int) -> list[list[Sum]]:
    """What each device has in each part after all rounds."""
    held: list[list[Sum]] = [[device] * count for device in range(count)]
    for moves in rounds:
        before = [list(values) for values in held]
        for move in moves:
            given, own = before[move.sender][move.part], before[move.receiver][move.part]
            held[move.receiver][move.part] = (own, given) if move.add else given
    return held


def leaves(value: Sum) -> list[int]:
    """Whose numbers are in a sum, each as often as it was added."""
    return [value] if is_whole(value) else [*leaves(value[0]), *leaves(value[1])]


def alike(value: Sum) -> Any:
    """A sum, without saying which of two was on the left: a + b is b + a to the last bit."""
    return value if is_whole(value) else frozenset(map(alike, value))


def shown(value: Sum) -> str:
    """A sum as one writes it."""
    if is_whole(value):
        return str(value)
    left, right = (shown(each) if is_whole(each) else f"({shown(each)})" for each in value)
    return f"{left}+{right}"


def _sums(ended: Sequence[Sequence[Sum]], count: int) -> str:
    """What is wrong with the values in the end, or ""."""
    for device, values in enumerate(ended):
        for part, value in enumerate(values):
            found = Counter(leaves(value))
            wrong = [f"{d} is missing" for d in range(count) if not found[d]]
            wrong += [f"{d} is in it {found[d]} times" for d in range(count) if found[d] > 1]
            if wrong:
                return f"device {device} ends with {shown(value)} in part {part}, and {wrong[0]}"
    for device, values in enumerate(ended):
        for part, value in enumerate(values):
            if alike(value) != alike(ended[0][part]):
                return (f"part {part} is {shown(ended[0][part])} on device 0 and {shown(value)} "
                        f"on device {device}: floats that are added in another order have other "
                        "bits")
    return ""


def told(rounds: Sequence[Sequence[PartMove]]) -> str:
    """The first rounds, a line for each."""
    lines = [f"round {number}: " + ", ".join(
        f"{m.sender} -> {m.receiver} part {m.part}{' added' if m.add else ''}" for m in moves)
        for number, moves in enumerate(rounds[:8], 1)]
    return "\n".join([*lines, *["..."] * (len(rounds) > 8)]) or "no rounds"


def turns(rounds: Sequence[Sequence[PartMove]], count: int) -> int:
    """How long it takes, if a device sends one part at a time and receives one at a time."""
    return sum(max((sum(getattr(m, side) == device for m in moves) for device in range(count)
                    for side in ("sender", "receiver")), default=0) for moves in rounds)


def install(module: ModuleType) -> None:
    """Let the runtime run the reader's rounds where it is to go round a ring."""
    def reduce(size: int, count: int) -> Any:
        cut = module.parts(size, count)
        return [module._own(size, count), *[
            [module.Move(sender, receiver, *cut[part], add)
             for sender, receiver, part, add in moves] for moves in module.all_reduce(count)]]

    module.ALGORITHMS["all-reduce"]["ring"] = reduce


def score(module: ModuleType) -> Iterator[str]:
    """Times of the reader's rounds and of the implementation's algorithms, as it predicts them."""
    ours = published(module).ALGORITHMS["all-reduce"]
    names = ("ring", "all-to-all", "tree", "naive")
    yield f"{'microseconds':<28}{'yours':>9}" + "".join(f"{name:>12}" for name in names)
    for count, size in ((4, 1), (4, 1 << 20), (8, 1), (8, 1 << 20)):
        mine = module.ALGORITHMS["all-reduce"]["ring"](size, count)
        times = [module.predicted(each, 4) * 1e6
                 for each in (mine, *(ours[name](size, count) for name in names))]
        what = f"{count} devices, {size} float{'s' * (size > 1)}"
        yield f"{what:<28}{times[0]:>9.0f}" + "".join(f"{time:>12.0f}" for time in times[1:])


COLLECTIVES = Lesson(
    functions=("all_reduce",),
    names="""\
Each of `count` devices has a value of the same shape, cut into `count` parts, 0 to count - 1.
A move is (sender, receiver, part, add): that part of what the sender has is sent to the receiver.
With add=True it is added to what the receiver has there, else it takes its place.
A round is a list of moves. All moves of a round read what was there before the round.""",
    heads='''\
def all_reduce(count: int) -> list[list[tuple[int, int, int, bool]]]:
    """The rounds after which each device has the sum of all values, in every part."""
    raise NotImplementedError
''',
    rules=(EQUAL, BEFORE, BYTES, TIME),
    hints=(
        "Begin with right and slow: all send all their parts to device 0, one device in each "
        "round, and it sends the sums to all. Only the rules on bytes and time stay red.",
        "Why is that slow? Device 0 does all the work. There are as many parts as devices, so each "
        "device can be the one that finishes one part.",
        "So there are two halves. First each part is added up, and is whole on one device. Then "
        "each device's whole part has to come to all others.",
        "In the first half each device should send one part and receive one part in every round. "
        "Let the devices stand in a ring, and let everybody send to the next one.",
        "Part p begins its way at device p, goes from neighbour to neighbour, and each adds its "
        "own. After count - 1 rounds it is whole. Which device has it then? In round t, which part "
        "does device i send?",
        "In the second half the whole parts go round in the same way, and nothing is added.",
        "A wrong part in one round gives sums in which somebody is missing, or twice. Draw three "
        "devices and three parts, and the table after each round."),
    counterexamples=collectives, number=21, module="collectives.steps", chapters=("collectives",),
    install=install, score=score)
