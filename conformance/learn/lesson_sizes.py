"""The lesson on symbolic sizes: sizes that are known at run time only, as sums of products.

The reader multiplies such sizes, says how large one can be, and whether a question about two has
one answer for all values. All values of all variables are tried here, so intervals are short.

    symbolic.size.watched: n < 3 is not always True: with n = 3 it is False

        n from 1 to 3
        decided(n, "<", 3) answers True
"""
from __future__ import annotations

import importlib
import operator
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from types import ModuleType
from typing import Any

from conformance.learn.lesson import Counterexample, Lesson, first_of_each, is_whole, raised

ARITHMETIC, COMPARED = "symbolic.size.arithmetic", "symbolic.size.compared"
GREATEST, SMALL = "symbolic.size.greatest", "memory.size.greatest"
WATCHED, GENERAL = "symbolic.size.watched", "symbolic.size.general"

#: How often each product of variables is in the sum; () is the number without any.
Size = Mapping[tuple[str, ...], int]
Intervals = Mapping[str, tuple[int, int]]
SIGNS: Mapping[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq}

ONE, N, M = (), ("n",), ("m",)
#: From the smallest up.
SIZES: tuple[Size, ...] = (
    {}, {ONE: 1}, {ONE: 3}, {N: 1}, {M: 1}, {N: 2}, {N: -1}, {N: 1, ONE: 1}, {N: 1, ONE: -1},
    {M: 1, N: 1}, {N: 1, M: -1}, {N: -2, ONE: 8}, {("m", "n"): 1}, {("n", "n"): 1},
    {M: 2, N: 1, ONE: 1}, {("m", "n"): 1, N: 1}, {("n", "n"): 1, N: -1},
    {("m", "m", "n"): 1, M: -3, ONE: 2})
SPANS: tuple[Intervals, ...] = (
    {"n": (1, 3), "m": (1, 2)}, {"n": (0, 2), "m": (2, 2)}, {"n": (2, 5), "m": (0, 6)},
    {"n": (-2, 1), "m": (-3, -1)})


def text(size: Size) -> str:
    """A size as one writes it."""
    found = ""
    for factors, times in size.items():
        name = "*".join(factors)
        number = str(abs(times)) if abs(times) != 1 or not name else ""
        sign = (" - " if found else "-") if times < 0 else " + " if found else ""
        found += sign + "*".join(filter(None, (number, name)))
    return found or "0"


def value(size: Size, values: Mapping[str, int]) -> int:
    """The number that a size is."""
    total = 0
    for factors, times in size.items():
        for name in factors:
            times *= values[name]
        total += times
    return total


def all_values(names: set[str], intervals: Intervals) -> Iterator[dict[str, int]]:
    """Each choice of values for some variables."""
    ordered = sorted(names)
    for found in product(*(range(intervals[name][0], intervals[name][1] + 1)
                           for name in ordered)):
        yield dict(zip(ordered, found, strict=True))


def names_in(*sizes: Size) -> set[str]:
    return {name for size in sizes for factors in size for name in factors}


def span(size: Size, intervals: Intervals) -> tuple[int, int]:
    """From where to where the terms go, each by itself."""
    low = high = 0
    for factors, times in size.items():
        corners = {times}
        for name in factors:
            corners = {found * end for found in corners for end in intervals[name]}
        low, high = low + min(corners), high + max(corners)
    return low, high


def less(one: Size, other: Size) -> Size:
    """The difference of two sizes."""
    found = Counter(one)
    found.subtract(other)
    return {factors: times for factors, times in found.items() if times}


# What is said of the reader's functions ----------------------------------------------------


def sizes(module: ModuleType) -> Iterator[Counterexample]:
    """The smallest sizes about which each rule is broken."""
    yield from first_of_each(_multiplied(module, one, other) for one, other in _pairs(20))
    yield from first_of_each(_most(module, size, intervals) for intervals in SPANS
                             for size in SIZES)
    yield from first_of_each(_decided(module, one, sign, other, intervals) for intervals in SPANS
                             for one, other in _pairs(15) for sign in SIGNS)


def _pairs(most: int) -> Iterator[tuple[Size, Size]]:
    """From the smallest up, as far as the sum of their places is below a number."""
    places = sorted(product(range(len(SIZES)), repeat=2), key=sum)
    return ((SIZES[one], SIZES[other]) for one, other in places if one + other < most)


def _multiplied(module: ModuleType, one: Size, other: Size) -> Iterator[Counterexample]:
    shown = f"multiplied({dict(one)}, {dict(other)})"
    try:
        found = module.multiplied(dict(one), dict(other))
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    shown += f"\nanswers {found!r:.90}"
    if not isinstance(found, dict) or not all(
            isinstance(factors, tuple) and is_whole(times) for factors, times in found.items()):
        yield Counterexample("raised", "that is no size: a dict from tuples of names to whole "
                             "numbers", shown)
        return
    if not names_in(found) <= names_in(one, other):
        yield Counterexample(ARITHMETIC, f"the product of {text(one)} and {text(other)} has other "
                             "variables than they have", shown)
        return
    for values in all_values(names_in(one, other), {"n": (-1, 3), "m": (-2, 2)}):
        right = value(one, values) * value(other, values)
        if value(found, values) != right:
            said = ", ".join(f"{name} = {number}" for name, number in values.items())
            yield Counterexample(ARITHMETIC, f"({text(one)}) * ({text(other)}) is {right}"
                                 f"{' with ' if said else ''}{said}, and yours is "
                                 f"{value(found, values)}", shown)
            return
    for factors, times in found.items():
        if list(factors) != sorted(factors):
            yield Counterexample(COMPARED, f"{'*'.join(factors)} and {'*'.join(sorted(factors))} "
                                 "are one size, and have two names: sort the factors", shown)
            return
        if not times:
            yield Counterexample(COMPARED, f"0*{'*'.join(factors) or '1'} is nothing, and makes "
                                 "two names for one size: leave it out", shown)
            return


def _most(module: ModuleType, size: Size, intervals: Intervals) -> Iterator[Counterexample]:
    shown = f"{_told(intervals, size)}\nmost({text(size)})"
    try:
        found = module.most(dict(size), dict(intervals))
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    shown += f" answers {found!r:.60}"
    if not is_whole(found):
        yield Counterexample("raised", "that is no whole number", shown)
        return
    best = max(all_values(names_in(size), intervals), key=lambda values: value(size, values))
    if found < value(size, best):
        where = "".join(f"{name} = {number}, " for name, number in best.items())
        yield Counterexample(GREATEST, f"{where and 'with ' + where}{text(size)} is "
                             f"{value(size, best)}: your memory is too small", shown)
    elif found > span(size, intervals)[1]:
        yield Counterexample(SMALL, f"the terms of {text(size)} add up to "
                             f"{span(size, intervals)[1]} at most; you keep memory for {found}",
                             shown)


def _decided(module: ModuleType, one: Size, sign: str, other: Size,
             intervals: Intervals) -> Iterator[Counterexample]:
    asked = f"{text(one)} {sign} {text(other)}"
    shown = f"{_told(intervals, one, other)}\ndecided({text(one)}, \"{sign}\", {text(other)})"
    try:
        found = module.decided(dict(one), sign, dict(other), dict(intervals))
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    shown += f" answers {found!r:.60}"
    if found is not None and not isinstance(found, bool):
        yield Counterexample("raised", "the answer is True, False, or None if it depends", shown)
        return
    compare = SIGNS[sign]
    if found is not None:
        for values in all_values(names_in(one, other), intervals):
            if compare(value(one, values), value(other, values)) != found:
                said = ", ".join(f"{name} = {number}" for name, number in values.items())
                yield Counterexample(WATCHED, f"{asked} is not always {found}: "
                                     f"{'with ' if said else ''}{said}{' it' if said else 'it'} is "
                                     f"{not found}", shown)
                return
    elif surely(one, sign, other, intervals) is not None:
        low, high = span(less(one, other), intervals)
        goes = f"from {low} to {high}" if low < high else f"always {low}"
        yield Counterexample(GENERAL, f"{asked} is {surely(one, sign, other, intervals)} for all "
                             f"values, since their difference is {goes}: a recording for each "
                             "answer is one too many", shown)


def surely(one: Size, sign: str, other: Size, intervals: Intervals) -> bool | None:
    """The answer that the span of the difference gives."""
    low, high = span(less(one, other), intervals)
    if sign == "==":
        return True if low == high == 0 else False if low > 0 or high < 0 else None
    ends = SIGNS[sign](low, 0), SIGNS[sign](high, 0)
    return ends[0] if ends[0] == ends[1] else None


def _told(intervals: Intervals, *sizes: Size) -> str:
    return ", ".join(f"{name} from {intervals[name][0]} to {intervals[name][1]}"
                     for name in sorted(names_in(*sizes))) or "no variables"


# In the runtime ----------------------------------------------------------------------------


class _Names:
    """Names for what the runtime multiplies: a variable, or a quotient that cannot be taken apart.
    """

    def __init__(self, known: Any) -> None:
        self.known = known
        self.atoms: dict[str, Any] = {}
        self.of: dict[Any, str] = {}

    def size(self, node: Any) -> dict[tuple[str, ...], int]:
        """A node as the reader sees it."""
        terms, constant = self.known.terms_of(node)
        found = {tuple(sorted(map(self._name, self.known._factors(atom)))): times
                 for atom, times in terms.items()}
        return {**found, ONE: constant} if constant else found

    def _name(self, atom: Any) -> str:
        if atom not in self.of:
            name = self.known.text(atom)
            while name in self.atoms:
                name += "'"
            self.atoms[name], self.of[atom] = atom, name
        return self.of[atom]

    def node(self, size: Size) -> Any:
        """What the reader answers, as a node."""
        found: Any = {}
        for factors, times in size.items():
            if factors:
                atom = self.known._multiplied([self.atoms[name] for name in factors])
                self.known.accumulate(found, atom, times)
        ordered = dict(sorted(found.items(), key=self.known._order))
        return self.known.sum_of(ordered, size.get(ONE, 0))

    @property
    def intervals(self) -> dict[str, tuple[int, int]]:
        return {name: self.known.bounds(atom) for name, atom in self.atoms.items()}


def install(module: ModuleType) -> None:
    """Let the runtime multiply sizes, bound them and answer questions as the reader does."""
    known: Any = module
    extent_of = known.extent_of
    signs = {known.equal: "==", known.less_than: "<", known.less_equal: "<="}

    def multiplied(left: Any, right: Any) -> Any:
        names = _Names(known)
        return names.node(known.multiplied(names.size(left), names.size(right)))

    def bounded(expression: Any) -> Any:
        found = extent_of(expression)
        if not isinstance(found, known.Size):
            return found
        names = _Names(known)
        size = names.size(expression)
        return known.Extent(max(0, known.most(size, names.intervals)), expression)

    def compared(size: Any, other: Any, result: bool, on_nodes: Any, exchanged: bool) -> bool:
        if known._watch.guards is not None and isinstance(result, bool):
            pair = [size.expression, known.node_of(other)][::-1 if exchanged else 1]
            names = _Names(known)
            one, two = map(names.size, pair)
            answer = known.decided(one, signs[on_nodes], two, names.intervals)
            if answer is None:
                known._watch.note(on_nodes(*pair), result)
            elif answer is not result:
                raise ValueError(f"decided({text(one)}, \"{signs[on_nodes]}\", {text(two)}) "
                                 f"answers {answer}, and it is {result}")
        return result

    known.product, known.extent_of = multiplied, bounded
    known.Size._compared = compared


def drawn(count: int) -> list[tuple[Size, str, Size]]:
    """Questions about sizes."""
    chooser = random.Random(20)
    return [(chooser.choice(SIZES), chooser.choice([*SIGNS]), chooser.choice(SIZES))
            for _ in range(count)]


def score(module: ModuleType) -> Iterator[str]:
    """Plans for a text that grows, and questions that a recording depends on."""
    from impl import Context, Tensor
    from impl.schedule import schedule_cache
    from impl.symbolic import Variable

    known: Any = module
    plans = []
    with Context(DEVICE="REFERENCE"):
        for sized in (True, False):
            keys, at = Tensor.zeros(16, 4).contiguous().realize(), Variable("at", 0, 15)
            schedule_cache.clear()
            for place in range(12):
                where = at.bind(place) if sized else place
                new = Tensor([[place / 10.0] * 4]).realize()
                keys[where:where + 1] = new
                seen = keys[:where + 1]
                ((new @ seen.T).softmax() @ seen).realize()
            plans.append(schedule_cache.misses)
    schedule_cache.clear()
    yield (f"12 tokens: plans made with your sizes {plans[0]}, with ints {plans[1]}, at least 1")
    asked = drawn(200)
    intervals = SPANS[2]
    noted = [sum(known.decided(dict(one), sign, dict(other), dict(intervals)) is None
                 for one, sign, other in asked),
             sum(_noted(*each, intervals) for each in asked),
             sum(len({SIGNS[sign](value(one, each), value(other, each))
                      for each in all_values(names_in(one, other), intervals)}) == 2
                 for one, sign, other in asked)]
    yield (f"{len(asked)} questions: noted by you {noted[0]}, by ours {noted[1]}, "
           f"at least {noted[2]}")


def _noted(one: Size, sign: str, other: Size, intervals: Intervals) -> bool:
    """Whether a recording of ours depends on a question."""
    known: Any = importlib.import_module("impl.symbolic.size")  # these parts are never the reader's
    names = _Names(known)
    names.atoms = {name: known.Variable(name, *interval).uop
                   for name, interval in intervals.items()}
    asked = {"<": known.less_than, "<=": known.less_equal, "==": known.equal}[sign]
    return bool(asked(names.node(one), names.node(other)).op is not known._CONST)


GROWTH = Lesson(
    number=20, functions=("multiplied", "most", "decided"),
    names="""\
A size is a sum of products of variables, as a dict. Each product is a tuple of names, sorted, with
the number in front of it; () is the number without a variable. No number in the dict is 0.
    2*m*n*n + 3*n - 1 is {("m", "n", "n"): 2, ("n",): 3, (): -1}; the size 0 is {}
`intervals` says of each variable the least and the greatest value: {"n": (1, 512)}.""",
    heads='''\
def multiplied(one, other):
    """The product of two sizes, as a size."""
    raise NotImplementedError


def most(size, intervals):
    """A number that the size never exceeds.

    It may be the sum of what each term is at most, and no more. Where a variable comes several
    times in a term, as in n*n, each may stand at another of its ends.
    """
    raise NotImplementedError


def decided(one, sign, other, intervals):
    """Whether one < other, one <= other or one == other (`sign` is "<", "<=" or "==").

    True or False if it is so for all values of the variables; None if it depends on them, or if
    the terms of their difference do not tell.
    """
    raise NotImplementedError
''',
    rules=(ARITHMETIC, COMPARED, GREATEST, SMALL, WATCHED, GENERAL),
    hints=(
        "multiplied: each term of the one with each term of the other. Two products may have the "
        "same variables: add their numbers up.",
        'Names: ("n", "m") and ("m", "n") are the same product, so sort them. And a term whose '
        "number has become 0 is no term.",
        "most: the greatest value of a sum is the sum of the greatest values of its terms. That of "
        "-2*n is reached where n is least.",
        "A product of variables is greatest at one of its corners: each variable at one of its "
        "ends. Both ends may be negative.",
        "decided: do not compare the greatest of one side with the least of the other; n + 1 and n "
        "have values in common and are never equal. What is one - other?",
        "The difference goes from a least to a greatest number. The least is -most of the size "
        'turned round. For "<": always if the greatest is below 0, never if the least is not.'),
    counterexamples=sizes, module="symbolic.size", chapters=("symbolic", "memory"),
    install=install, score=score)
