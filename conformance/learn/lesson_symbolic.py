"""The lesson on bounds: two intervals, an operation, and what is said of the answer.

The reader's `interval` gets the least and the greatest value of two whole numbers. Its answer has
to contain all that can come of them; where an index has to be simplified, nothing but that.

    symbolic.bounds.sound: 2 * -1 is -2, and you say 0 to 2

        left from -1 to 2, right from -1 to 1
        all that left * right can be: -2 -1 0 1 2
        you answer: 0 to 2
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import ModuleType
from typing import Any

from conformance.learn.lesson import Counterexample, Lesson, is_whole, published, raised
from conformance.learn.limits import limited

Bounds = tuple[int, int]
Rule = Callable[[Any, list[Bounds]], Bounds]
#: What the reader is asked about, by the names that the nodes of an index have.
OPERATIONS = {"ADD": "+", "SUB": "-", "MUL": "*", "FLOORDIV": "//", "FLOORMOD": "mod",
              "MAXIMUM": "max", "MINIMUM": "min"}
VALUES: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
    "max": max, "min": min}
SOUND, TIGHT = "symbolic.bounds.sound", "symbolic.division.simple"
FAR = 10 ** 12  # nobody counts so far
SHORT = 1.0  # seconds of computing for an answer that is made of the ends alone


def intervals(most: int) -> list[Bounds]:
    """All intervals of small numbers, the shortest first."""
    return sorted(((low, high) for low in range(-most, most + 1) for high in range(low, most + 1)),
                  key=lambda each: (each[1] - each[0], abs(each[0])))


def possible(operation: str, left: Bounds, right: Bounds) -> list[int]:
    """By definition: all that can come of it, in order."""
    return sorted({VALUES[operation](a, b) for a in range(left[0], left[1] + 1)
                   for b in range(right[0], right[1] + 1)})


def has_to_be_tight(operation: str, right: Bounds) -> bool:
    """Indices are divided by positive numbers that are known; there nothing may be lost."""
    return operation not in ("//", "mod") or right[0] == right[1] > 0


def bounds(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on bounds."""
    met: set[str] = set()
    pairs = sorted(product(intervals(3), repeat=2),
                   key=lambda pair: sum(high - low for low, high in pair))
    problems = [(operation, left, right) for left, right in pairs for operation in VALUES]
    for problem in problems:
        found = _judged(module, *problem)
        if found is not None and found.rule not in met:
            met.add(found.rule)
            yield found
        if "raised" in met:
            return
    if not met:
        yield from _far(module)


def _judged(module: ModuleType, operation: str, left: Bounds,
            right: Bounds) -> Counterexample | None:
    every = possible(operation, left, right)
    described = (f"left from {left[0]} to {left[1]}, right from {right[0]} to {right[1]}\n"
                 f"all that left {operation} right can be: {' '.join(map(str, every))}")
    try:
        answer = module.interval(operation, left, right)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, described)
    if not (isinstance(answer, tuple) and len(answer) == 2 and all(map(is_whole, answer))):
        return Counterexample("raised", f"interval answers {answer!r}, and not a pair of whole "
                              "numbers, (least, greatest)", described)
    low, high = answer
    described += f"\nyou answer: {low} to {high}"
    for a, b in product(range(left[0], left[1] + 1), range(right[0], right[1] + 1)):
        value = VALUES[operation](a, b)
        if not low <= value <= high:
            return Counterexample(SOUND, f"{a} {operation} {b} is {value}, and you say {low} to "
                                  f"{high}", described)
    if has_to_be_tight(operation, right) and (low, high) != (every[0], every[-1]):
        return Counterexample(TIGHT, f"you say {low} to {high}, and {every[0]} to {every[-1]} is "
                              "true as well", described)
    return None


def _far(module: ModuleType) -> Iterator[Counterexample]:
    """Intervals that nobody can walk through: an index of a large tensor."""
    for operation, right, wanted in (("+", (5, 5), (5, FAR + 5)), ("mod", (7, 7), (0, 6)),
                                     ("*", (-2, 3), (-2 * FAR, 3 * FAR))):
        described = (f"left from 0 to {FAR}, right from {right[0]} to {right[1]}\n"
                     "who tries all numbers between is never done: the ends have to be enough")
        try:
            with limited(SHORT):
                answer = module.interval(operation, (0, FAR), right)
        except Exception as error:  # any: it is the reader's own code
            yield raised(error, described)
            return
        if answer != wanted:
            yield Counterexample(SOUND, f"of left {operation} right you say {answer}; it is "
                                 f"{wanted}", described)
            return


def install(module: ModuleType) -> None:
    """Let the index arithmetic of the runtime ask the reader."""
    def rule(operation: str) -> Rule:
        return lambda node, given: module.interval(operation, *given)

    table: dict[Any, Rule] = module.__dict__["_BOUND_RULES"]
    table.update({op: rule(OPERATIONS[op.name]) for op in table if op.name in OPERATIONS})


def widths(interval: Callable[[str, Bounds, Bounds], Bounds], operation: str) -> tuple[int, int]:
    """How wide its answers are in all, and how wide they have to be, where both sides vary."""
    given = least = 0
    for left, right in product(intervals(4), repeat=2):
        low, high = interval(operation, left, right)
        every = possible(operation, left, right)
        given, least = given + high - low, least + every[-1] - every[0]
    return given, least


def score(module: ModuleType) -> Iterator[str]:
    """Divisions by what varies, where an answer may be too wide: the sums of all widths."""
    rules = {OPERATIONS[op.name]: rule for op, rule in ours(module).items()
             if op.name in OPERATIONS}
    yield f"{'':<10}{'yours':>8}{'ours':>8}{'least':>8}"
    for operation in ("//", "mod"):
        mine, least = widths(module.interval, operation)

        def without(operation: str, left: Bounds, right: Bounds) -> Bounds:
            return rules[operation](None, [left, right])

        theirs, _ = widths(without, operation)
        yield f"{operation:<10}{mine:>8}{theirs:>8}{least:>8}"


def ours(module: ModuleType) -> dict[Any, Rule]:
    """The rules of the implementation, as they are without the reader's."""
    found: dict[Any, Rule] = published(module).__dict__["_BOUND_RULES"]
    return found


SYMBOLIC = Lesson(
    functions=("interval",),
    names="""\
An interval is a pair: the least and the greatest value that a whole number can have. `operation`
is one of
    "+"  "-"  "*"  "//"  "mod"  "max"  "min"
with // and mod as in Python: rounded down, and with the sign of the divisor. Divided by 0 both
are 0. Intervals may be as long as a large tensor: nobody can walk through them.""",
    heads='''\
Bounds = tuple[int, int]


def interval(operation: str, left: Bounds, right: Bounds) -> Bounds:
    """The least and the greatest value that `left operation right` can have."""
    raise NotImplementedError
''',
    rules=(SOUND, "symbolic.sum.canonical", TIGHT, "symbolic.comparison.implied"),
    hints=(
        "Begin with +. It grows with both sides: the least comes of the two least, the greatest of "
        "the two greatest.",
        "-right is from -right[1] to -right[0]. So a difference is a sum.",
        "* grows or falls in each side, depending on the sign of the other one. So its least and "
        "its greatest are at corners: try all four, and take min and max.",
        "// by a positive number grows. By an interval without 0 its extremes are at the corners, "
        "too. If 0 is among the divisors, nothing is farther from 0 than what is divided by 1 "
        "or -1.",
        "mod 5 is from 0 to 4; but if left is from 6 to 8, it is from 1 to 3: all have the "
        "same quotient.",
        "A remainder has the sign of its divisor: from right[0] + 1 at the least, if that is "
        "negative, to right[1] - 1, if that is positive. And 0 is always possible."),
    counterexamples=bounds, number=6, module="symbolic.bounds", chapters=("symbolic",),
    install=install, score=score)
