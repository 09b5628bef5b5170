"""The lesson on orders: of all orders in which kernels may run, one that needs little memory.

The reader's functions get a few kernels, who waits for whom, and which temporaries each touches.

    ordering.peak.not-worse: your order 0, 1, 2, 3 needs 256 bytes at its peak; the order 0, 2, 1, 3
    needs 192

        position        0    1    2    3
        kernel          0    1    2    3
        A, 64 bytes     x    x    .    .
"""
from __future__ import annotations

import random
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

LEGAL, SAME, PEAK = ("ordering.legal.permutation", "ordering.deterministic.same",
                     "ordering.peak.not-worse")
Pair = tuple[int, int]


class Problem(NamedTuple):
    """So many kernels, by number; who waits for whom, and what each touches of some temporaries."""

    kernels: int
    pairs: frozenset[Pair]
    nbytes: dict[int, int]
    touched: tuple[tuple[int, ...], ...]


def made(touched: Sequence[Sequence[int]], pairs: Sequence[Pair],
         sizes: Sequence[int] = ()) -> Problem:
    names = sorted({each for one in touched for each in one})
    nbytes = {name: 64 * (sizes[name] if sizes else 1) for name in names}
    return Problem(len(touched), frozenset(pairs), nbytes, tuple(map(tuple, touched)))


def branches(count: int, length: int, turned: bool = False) -> Problem:
    """Chains that end in one kernel each, which all wait for; made level by level, or from the
    end."""
    touched: list[list[int]] = []
    pairs = []
    for step in range(length):
        for branch in range(count):
            name = branch * (length + 1) + step
            touched.append([name, name + 1] if step else [name])
            if step:
                pairs.append(((step - 1) * count + branch, step * count + branch))
    names = {each for one in touched for each in one}
    sizes = [3 if each % (length + 1) == 1 else 1 for each in range(max(names) + 1)]
    found = made(touched, pairs, sizes)
    if not turned:
        return found
    last = found.kernels - 1
    return Problem(found.kernels, frozenset((last - two, last - one) for one, two in pairs),
                   found.nbytes, found.touched[::-1])


def problems() -> Iterator[Problem]:
    """From the smallest up."""
    yield made([], [])
    yield made([[]], [])
    yield made([[0], [0]], [(0, 1)])
    yield made([[0], [0]], [(1, 0)])
    yield made([[0], [1], [0], [1]], [(0, 2), (1, 3)])
    yield made([[1], [0], [2], [0, 1, 2]], [(1, 3), (0, 3), (2, 3)], (1, 2, 1))
    yield made([[0], [1], [2], [0], [1], [2]], [(0, 3), (1, 4), (2, 5)])
    yield made([[0], [0, 1], [0, 2], [1, 2]], [(0, 1), (0, 2), (1, 3), (2, 3)], (1, 2, 3))
    yield made([[0], [0], [1], [1]], [(3, 1), (1, 0), (0, 2)])
    yield branches(2, 3)
    yield branches(3, 3, turned=True)
    chooser = random.Random(0)
    for count in (4, 4, 5, 6, 7, 9):
        for _ in range(40):
            yield drawn(chooser, count)
    yield drawn(chooser, 60)


def drawn(chooser: random.Random, count: int) -> Problem:
    """Kernels in any order of their numbers; a temporary has a writer and some readers."""
    names = list(range(count))
    if chooser.random() < 0.4:
        chooser.shuffle(names)
    touched: list[list[int]] = [[] for _ in range(count)]
    pairs = set()
    nbytes = {}
    for number in range(count):
        nbytes[number] = 64 * chooser.choice((1, 1, 2, 4))
        touched[names[number]].append(number)
        later = range(number + 1, min(count, number + 6))
        for other in chooser.sample(later, min(len(later), chooser.choice((0, 1, 1, 2)))):
            touched[names[other]].append(number)
            pairs.add((names[number], names[other]))
    return Problem(count, frozenset(pairs), nbytes, tuple(map(tuple, touched)))


# By definition -----------------------------------------------------------------------------


def alive(order: Sequence[int], problem: Problem) -> list[list[int]]:
    """The temporaries that are alive at each position."""
    found = []
    for position in range(len(order)):
        before = {each for kernel in order[:position + 1] for each in problem.touched[kernel]}
        later = {each for kernel in order[position:] for each in problem.touched[kernel]}
        found.append(sorted(before & later))
    return found


def most(order: Sequence[int], problem: Problem) -> int:
    """The most bytes that are alive at one position."""
    return max((sum(problem.nbytes[each] for each in here) for here in alive(order, problem)),
               default=0)


def is_legal(order: Sequence[int], problem: Problem) -> bool:
    place = {kernel: position for position, kernel in enumerate(order)}
    return all(place[before] < place[after] for before, after in problem.pairs)


def candidates(problem: Problem) -> Iterator[list[int]]:
    """Orders that one has to be as good as: as made, from the front, from the back."""
    numbers = list(range(problem.kernels))
    if is_legal(numbers, problem):
        yield numbers
    yield sparing(problem)
    turned = problem._replace(pairs=frozenset((after, before) for before, after in problem.pairs))
    yield sparing(turned)[::-1]


def sparing(problem: Problem) -> list[int]:
    """Of the kernels that may run, always the one after which least is alive."""
    order: list[int] = []
    left = set(range(problem.kernels))
    readers = {each: sum(each in one for one in problem.touched) for each in problem.nbytes}
    started: set[int] = set()
    while left:
        waiting = {after for before, after in problem.pairs if before in left}

        def growth(kernel: int) -> int:
            mine = problem.touched[kernel]
            return sum(problem.nbytes[each] for each in mine if each not in started) - sum(
                problem.nbytes[each] for each in mine if readers[each] == 1)

        kernel = min(left - waiting, key=lambda each: (growth(each), each))
        order.append(kernel)
        left.remove(kernel)
        started.update(problem.touched[kernel])
        for each in problem.touched[kernel]:
            readers[each] -= 1
    return order


# What is said ------------------------------------------------------------------------------


def named(order: Sequence[int]) -> str:
    return ", ".join(map(str, order)) or "of nothing"


def letter(temporary: int) -> str:
    return chr(ord("A") + temporary) if temporary < 26 else f"T{temporary}"


def picture(problem: Problem, order: Sequence[int] | None = None) -> str:
    """Who waits for whom; and, of an order, which temporaries are alive at each position."""
    if problem.kernels > 12:
        return f"{problem.kernels} kernels, {len(problem.nbytes)} temporaries"
    waits = [f"{after} waits for {named(sorted(b for b, a in problem.pairs if a == after))}"
             for after in sorted({after for _, after in problem.pairs})]
    lines = ["; ".join(waits) or "nobody waits for anybody", ""]
    if order is None:
        lines += [f"kernel {kernel} touches {', '.join(map(letter, sorted(each))) or 'nothing'}"
                  for kernel, each in enumerate(problem.touched)]
        return "\n".join(lines)
    here = alive(order, problem)
    lines.append(f"{'kernel':<15}" + "".join(f"{kernel:>5}" for kernel in order))
    for each, size in sorted(problem.nbytes.items()):
        cells = "".join(f"{'x' if each in one else '.':>5}" for one in here)
        lines.append(f"{f'{letter(each)}, {size} bytes':<15}{cells}")
    sums = [sum(problem.nbytes[each] for each in one) for one in here]
    return "\n".join([*lines, f"{'alive':<15}" + "".join(f"{each:>5}" for each in sums)])


def orders(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on orders."""
    return first_of_each((_judged(module, problem) for problem in problems()), {"raised", LEGAL})


def _given(problem: Problem, turned: bool = False) -> tuple[Any, ...]:
    """What a function of the reader's gets: its own copies, listed in one of two ways."""
    way = -1 if turned else 1
    return (problem.kernels, [*sorted(problem.pairs)[::way]],
            dict([*problem.nbytes.items()][::way]), [[*each][::way] for each in problem.touched])


def _judged(module: ModuleType, problem: Problem) -> Iterator[Counterexample]:
    plain = picture(problem)
    numbers = list(range(problem.kernels))
    try:
        for order in (numbers, numbers[::2] + numbers[1::2]):
            peak = module.peak(list(order), *_given(problem)[2:])
            if not is_whole(peak):
                yield Counterexample("raised", f"peak answers {peak!r:.60}, and no whole number",
                                     plain)
                return
            if peak != most(order, problem):
                yield Counterexample(PEAK, f"you say that the order {named(order)} needs {peak} "
                                     f"bytes at its peak; it needs {most(order, problem)}",
                                     picture(problem, order))
                return
        mine = module.order(*_given(problem))
        again = module.order(*_given(problem, turned=True))
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, plain)
        return
    wrong = _illegal(mine, problem)
    if wrong:
        yield Counterexample(*wrong, plain)
        return
    if list(again) != list(mine):
        yield Counterexample(SAME, f"you answer {named(mine)}, and {named(again)} if the same is "
                             "listed in another way", plain)
    best = min(candidates(problem), key=lambda each: most(each, problem))
    if most(mine, problem) > most(best, problem):
        made = ", as they were made," if best == numbers else ""
        yield Counterexample(PEAK, f"your order {named(mine)} needs {most(mine, problem)} bytes at "
                             f"its peak; the order {named(best)}{made} needs "
                             f"{most(best, problem)}", picture(problem, mine))


def _illegal(order: Any, problem: Problem) -> tuple[str, str] | None:
    """What keeps an answer from being a legal order."""
    if not isinstance(order, list) or not all(map(is_whole, order)):
        return "raised", f"order answers {order!r:.60}, and not a list of numbers of kernels"
    for kernel in range(problem.kernels):
        if order.count(kernel) != 1:
            return LEGAL, f"kernel {kernel} is in your order {order.count(kernel)} times"
    if len(order) > problem.kernels:
        return LEGAL, f"your order {named(order)} has a kernel that there is not"
    for before, after in sorted(problem.pairs):
        if order.index(before) > order.index(after):
            return LEGAL, f"in your order {named(order)} kernel {after} runs before kernel {before}"
    return None


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the runtime run its kernels in the reader's order."""
    known: Any = module

    def least_peak(count: int, pairs: set[Pair], uses: Any) -> list[int]:
        known._greedy_order(known._Graph(count, pairs), uses)  # refuses a circle
        answer = known.order(count, sorted(pairs), dict(uses.nbytes), [*map(list, uses.touched)])
        return list(answer)

    known.least_peak = least_peak


def score(module: ModuleType) -> Iterator[str]:
    """Peaks of larger problems: as made, the reader's, ours, and a bound."""
    known: Any = module
    ours: Any = published(module)
    chooser = random.Random(7)
    made_of = {"20 branches": branches(20, 4), "the same, from the end": branches(20, 4, True),
               "100 kernels": drawn(chooser, 100), "200 kernels": drawn(chooser, 200)}
    yield f"{'peak, in bytes':<24}{'as made':>9}{'yours':>8}{'ours':>8}{'at least':>10}"
    for name, problem in made_of.items():
        numbers = list(range(problem.kernels))
        uses = ours.Uses(problem.nbytes, [list(each) for each in problem.touched])
        found = [most(numbers, problem) if is_legal(numbers, problem) else 0,
                 most(known.order(*_given(problem)), problem),
                 most(ours.least_peak(problem.kernels, set(problem.pairs), uses), problem)]
        least = max(sum(problem.nbytes[each] for each in set(one)) for one in problem.touched)
        yield (f"{name:<24}{found[0] or 'no order':>9}{found[1]:>8}{found[2]:>8}{least:>10}")


ORDER = Lesson(
    number=12, functions=("peak", "order"),
    names="""\
Kernels are numbers from 0 to count - 1.
    pairs         a list of (before, after): kernel `after` waits for kernel `before`
    nbytes        {temporary: bytes}
    touched[k]    a list of the temporaries that kernel k reads or writes
A temporary is alive from the first kernel in the order that touches it to the last one, both
included.""",
    heads='''\
def peak(order, nbytes, touched):
    """The most bytes of temporaries that are alive at one position of the order."""
    raise NotImplementedError


def order(count, pairs, nbytes, touched):
    """The kernels, each once and after all that it waits for, as a list.

    Its peak is not above that of the numbers as they are, if those are a legal order. And it does
    not depend on how the pairs are listed.
    """
    raise NotImplementedError
''',
    rules=(LEGAL, SAME, PEAK),
    hints=(
        "peak: for each position, which temporaries were touched up to here, and are touched from "
        "here on? Add up their bytes; the largest sum counts.",
        "order, any legal one: as long as kernels are left, take one that waits for none of them. "
        "Take the one with the lowest number: then the answer does not depend on how things are "
        "listed.",
        "Now a better one. For each kernel that may run, count: the bytes of what it is the first "
        "to touch, less those of what it is the last to touch. Take the one with the lowest count.",
        "Whoever looks one step ahead may be wrong. Compute the peak of your order, and that of "
        "range(count), if that is legal. Answer the better one.",
        "A third candidate: turn all pairs round, find an order in the same way, and answer it "
        "from its end to its beginning. What is hard from the front is often easy from the back."),
    counterexamples=orders, module="ordering", chapters=("ordering",), install=install,
    score=score)
