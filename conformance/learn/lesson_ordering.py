"""The lesson on ordering: kernels that touch memory, and what is said of who waits for whom.

A kernel reads some bytes and writes others. The reader's `find` says which kernel has to wait for
which. Then every order that respects its answer has to give every kernel what it gets in the order
of the program; where it does not, one such order is shown.

    dependencies.war.order: kernel 1 does not wait for kernel 0, which reads what it writes

        kernel 0: reads version 0 of A, bytes 0 to 8
        kernel 1: writes version 1 of A, bytes 0 to 8
        you find: nothing
        in the order 1, 0, kernel 0 reads what kernel 1 has written
"""
from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import Counterexample, Lesson, first_of_each, raised


class Range(NamedTuple):
    """Bytes of a storage, read at a version or written as a new one."""

    storage: int
    version: int
    start: int
    stop: int


class Kernel(NamedTuple):
    """What a kernel reads and writes."""

    reads: tuple[Range, ...]
    writes: tuple[Range, ...]


Problem = Sequence[Kernel]  # in the order of the program
Pair = tuple[int, int]
KINDS = {"RAW": (1, 0), "WAR": (0, 1), "WAW": (1, 1)}  # what of the first, what of the second
SAID = {"RAW": "writes what it reads", "WAR": "reads what it writes",
        "WAW": "writes the same bytes before"}
NOBODY = -1  # who wrote what was there before


# Problems ----------------------------------------------------------------------------------

_Part = tuple[int, int, int]  # storage, start, stop
_LEFT, _RIGHT, _WHOLE = (0, 0, 4), (0, 4, 8), (0, 0, 8)
_KERNELS: tuple[tuple[tuple[_Part, ...], tuple[_Part, ...]], ...] = (
    ((_WHOLE,), ()), ((), (_WHOLE,)), ((_LEFT,), ()), ((), (_LEFT,)), ((_RIGHT,), ()),
    ((), (_RIGHT,)), ((_WHOLE,), (_WHOLE,)), ((_LEFT,), (_RIGHT,)))


def versioned(parts: Sequence[tuple[Sequence[_Part], Sequence[_Part]]]) -> Problem:
    """Kernels in the order of the program: each write makes the next version of its storage."""
    latest: dict[int, int] = {}
    kernels = []
    for reads, writes in parts:
        seen = tuple(Range(s, latest.get(s, 0), start, stop) for s, start, stop in reads)
        made = []
        for storage, start, stop in writes:
            latest[storage] = latest.get(storage, 0) + 1
            made.append(Range(storage, latest[storage], start, stop))
        kernels.append(Kernel(seen, tuple(made)))
    return kernels


def problems() -> Iterator[Problem]:
    """Small problems from the smallest up: all of up to three kernels, then some larger ones."""
    for count in (1, 2, 3):
        yield from map(versioned, product(_KERNELS, repeat=count))
    # A kernel meets each of the others in two places.
    yield versioned([((), (_WHOLE,)), ((_LEFT, _RIGHT), ()), ((), (_WHOLE,))])
    chooser = random.Random(0)
    for count in (4, 5, 6, 7):
        for _ in range(60):
            yield drawn(chooser, count, 2)


def drawn(chooser: random.Random, count: int, storages: int) -> Problem:
    """Kernels that touch random parts of some storages of 16 bytes."""
    def some(share: float) -> list[_Part]:
        chosen = [storage for storage in range(storages) if chooser.random() < share]
        parts = []
        for storage in chosen:
            start, stop = sorted(chooser.sample(range(0, 17, 2), 2))
            parts.append((storage, start, stop))
        return parts

    return versioned([(some(0.5), some(0.35)) for _ in range(count)])


# The judge ---------------------------------------------------------------------------------

def meet(one: Range, other: Range) -> bool:
    return one.storage == other.storage and max(one.start, other.start) < min(one.stop, other.stop)


def hazards(problem: Problem) -> dict[str, set[Pair]]:
    """By definition: the pairs that touch a common byte, of which one writes."""
    return {kind: {(before, after) for after in range(len(problem)) for before in range(after)
                   if any(meet(one, other) for one in problem[before][first]
                          for other in problem[after][second])}
            for kind, (first, second) in KINDS.items()}


def implied(pairs: set[Pair], count: int) -> set[Pair]:
    """All pairs that follow from some, which all go forward."""
    reached: list[set[int]] = [set() for _ in range(count)]
    for after in range(count):
        for before in range(after):
            if (before, after) in pairs:
                reached[after] |= {before} | reached[before]
    return {(before, after) for after in range(count) for before in reached[after]}


def fewest(problem: Problem) -> int:
    """How many pairs are enough to imply all others."""
    count = len(problem)
    needed = implied(set().union(*hazards(problem).values()), count)
    return sum(not any((before, between) in needed and (between, after) in needed
                       for between in range(before + 1, after)) for before, after in needed)


def order_with(late: int, early: int, pairs: set[Pair], count: int) -> list[int]:
    """An order that respects some pairs and runs `early` before `late`, its forerunner."""
    needed = implied(pairs, count)
    first = [number for number in range(count) if (number, early) in needed] + [early]
    return first + [number for number in range(count) if number not in first]


Seen = dict[tuple[int, int, int], int]  # kernel, storage, byte: who wrote what it reads


def views(problem: Problem, order: Sequence[int]) -> tuple[Seen, dict[Pair, int]]:
    """Who wrote what each kernel reads, and who wrote what is left in the end."""
    memory: dict[Pair, int] = {}
    seen: Seen = {}
    for number in order:
        for each in problem[number].reads:
            for byte in range(each.start, each.stop):
                place = each.storage, byte
                seen[number, *place] = memory.get(place, NOBODY)
        for each in problem[number].writes:
            memory.update({(each.storage, byte): number
                           for byte in range(each.start, each.stop)})
    return seen, memory


def corrupted(problem: Problem, order: Sequence[int]) -> str:
    """The first thing that differs from the order of the program, or ""."""
    right, end = views(problem, range(len(problem)))
    found, left = views(problem, order)

    def writer(number: int) -> str:
        return "what was there before" if number == NOBODY else f"what kernel {number} has written"

    for kernel, storage, byte in sorted(right):
        at = kernel, storage, byte
        if found[at] != right[at]:
            return f"kernel {kernel} reads {writer(found[at])}, not {writer(right[at])}"
    for storage, byte in sorted(end):
        if left[storage, byte] != end[storage, byte]:
            return (f"byte {byte} of {chr(65 + storage)} is left with "
                    f"{writer(left[storage, byte])}, not {writer(end[storage, byte])}")
    return ""


# What is said ------------------------------------------------------------------------------

def picture(problem: Problem, found: Sequence[Any] | None = None) -> str:
    """What each kernel touches, and what was found, if that can be shown."""
    lines = []
    for number, kernel in enumerate(problem):
        said = [f"{verb} version {each.version} of {chr(65 + each.storage)}, bytes {each.start} "
                f"to {each.stop}" for verb, ranges in zip(("reads", "writes"), kernel, strict=True)
                for each in ranges]
        lines.append(f"kernel {number}: {'; '.join(said) or 'touches nothing'}")
    if found is None:
        return "\n".join(lines)
    pairs = [f"{each.kind} {each.before} -> {each.after}" for each in found]
    return "\n".join([*lines, f"you find: {', '.join(pairs) or 'nothing'}"])


def ordering(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on ordering."""
    return first_of_each(_judged(module, problem, number)
                         for number, problem in enumerate(problems()))


def _judged(module: ModuleType, problem: Problem, number: int) -> Iterator[Counterexample]:
    accesses = [tuple([module.Touch(*each) for each in ranges] for ranges in kernel)
                for kernel in problem]
    turned = list(range(len(problem)))
    random.Random(number).shuffle(turned)  # kernel k of the program is number turned[k]
    renamed: list[Any] = [None] * len(problem)
    for place, name in enumerate(turned):
        renamed[name] = accesses[place]
    try:
        found = module.find(accesses)
        unlike = wrong_answer(found, len(problem))
        again = module.find(renamed, turned) if not unlike else []
        unlike = unlike or wrong_answer(again, len(problem))
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, picture(problem))
        return
    if unlike:
        yield Counterexample("raised", unlike, picture(problem))
        return
    wrong = list(_too_many(problem, found)) or list(_too_few(problem, found))
    yield from wrong
    back = {name: place for place, name in enumerate(turned)}
    pairs = {(back[each.before], back[each.after]) for each in again}
    if not wrong and pairs != {(each.before, each.after) for each in found}:
        yield Counterexample("ordering.any-legal.equal", f"with other numbers, in the order "
                             f"{turned}, you find the pairs {sorted(pairs)} of places in it",
                             picture(problem, found))


def wrong_answer(found: Any, count: int) -> str:
    """What keeps an answer from being one at all, or ""."""
    if not isinstance(found, list):
        return f"find answers a {type(found).__name__}, and not a list of Dependency"
    for each in found:
        if not all(hasattr(each, name) for name in (
                "before", "after", "kind", "storage", "version")):
            return f"find answers {each!r}, which is no Dependency"
        if each.kind not in KINDS or not {each.before, each.after} <= set(range(count)):
            return f"there is no such thing as {each!r}"
    listed = Counter((each.before, each.after, each.kind, each.storage) for each in found)
    twice = [f"{kind} {before} -> {after}" for (before, after, kind, _), count in listed.items()
             if count > 1]
    return f"you list {twice[0]} more than once" if twice else ""


def _too_many(problem: Problem, found: Sequence[Any]) -> Iterator[Counterexample]:
    """Dependencies that there are not."""
    known = hazards(problem)
    for each in found:
        pair, shown = (each.before, each.after), picture(problem, found)
        if each.before >= each.after:
            whom = "itself" if each.before == each.after else f"kernel {each.before}, a later one"
            yield Counterexample(f"dependencies.{each.kind.lower()}.order",
                                 f"kernel {each.after} waits for {whom}", shown)
        elif not any(pair in pairs for pairs in known.values()):
            yield Counterexample("dependencies.ranges.disjoint", f"kernel {each.after} waits for "
                                 f"kernel {each.before}, and they may run in any order", shown)
        elif pair not in known[each.kind]:
            yield Counterexample(f"dependencies.{each.kind.lower()}.order", f"kernel {each.after} "
                                 f"waits for kernel {each.before}, but not by {each.kind}", shown)
        elif not any((each.storage, each.version) == (touch.storage, touch.version)
                     for touch in problem[each.after][KINDS[each.kind][1]]):
            does = "reads" if each.kind == "RAW" else "writes"
            yield Counterexample(f"dependencies.{each.kind.lower()}.order", (
                f"{each.kind} {each.before} -> {each.after} names version {each.version} of "
                f"{chr(65 + each.storage)}; name what kernel {each.after} {does}"), shown)


def _too_few(problem: Problem, found: Sequence[Any]) -> Iterator[Counterexample]:
    """Hazards that do not follow from what was found."""
    pairs = {(each.before, each.after) for each in found}
    known = implied(pairs, len(problem))
    for kind, needed in hazards(problem).items():
        for before, after in sorted(needed - known)[:1]:
            order = order_with(before, after, pairs, len(problem))
            effect = corrupted(problem, order)
            shown = picture(problem, found)
            if effect:
                shown += f"\nin the order {', '.join(map(str, order))}, {effect}"
            yield Counterexample(f"dependencies.{kind.lower()}.order", f"kernel {after} does not "
                                 f"wait for kernel {before}, which {SAID[kind]}", shown)


def score(module: ModuleType) -> Iterator[str]:
    """How many pairs wait, in the reader's answer and in ours."""
    spec = importlib.util.spec_from_file_location("the_other_dependencies", module.__file__)
    assert spec is not None and spec.loader is not None
    ours = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ours)
    del sys.modules[spec.name]
    yield f"{'':<22}{'kernels':>8}{'pairs':>7}{'ours':>6}{'all':>8}{'at least':>10}"
    for name, problem in _scored().items():
        counts = []
        for each in (module, ours):
            accesses = [tuple([each.Touch(*one) for one in ranges] for ranges in kernel)
                        for kernel in problem]
            counts.append(len({(d.before, d.after) for d in each.find(accesses)}))
        most = len(set().union(*hazards(problem).values()))
        yield (f"{name:<22}{len(problem):>8}{counts[0]:>7}{counts[1]:>6}{most:>8}"
               f"{fewest(problem):>10}")


def _scored() -> dict[str, Problem]:
    """What the score is taken on."""
    whole, halves = (0, 0, 16), ((0, 0, 8), (0, 8, 16))
    return {
        "a counter": versioned([((whole,), (whole,))] * 60),
        "writes and readers": versioned([((), (whole,)), *[((whole,), ())] * 5] * 10),
        "two halves": versioned([((half,), (half,)) for half in halves] * 30),
        "rows of a table": versioned([((), ((0, row, row + 1),)) for row in range(16)] * 3
                                     + [((whole,), ())]),
        "anything": drawn(random.Random(1), 60, 3),
    }


ORDERING = Lesson(
    functions=("find",),
    names="""\
What a kernel touches is a Touch: bytes `start` to `stop` of a storage, read at a version or
written as a new one:
    touch.storage, touch.version, touch.start, touch.stop
    touch.overlaps(other)     whether the bytes meet; the storages are for you to compare
accesses[k] are two lists of kernel k: what it reads, and what it writes. A dependency is
    Dependency(before, after, kind, storage, version)
with two numbers of kernels, "RAW", "WAR" or "WAW", and the storage and version of the later
touch. No pair, kind and storage is listed twice. With `order`, kernels run in that order.""",
    rules=("dependencies.raw.order", "dependencies.war.order", "dependencies.waw.order",
           "dependencies.ranges.disjoint", "ordering.legal.permutation",
           "ordering.any-legal.equal"),
    hints=(
        "Two loops: for each kernel, for each one before it. That is slow and right.",
        "RAW: something that the earlier one writes meets something that the later one reads. "
        "WAR: the other way round. WAW: two writes meet. Two reads never count.",
        "Touches meet if they are of one storage and their bytes overlap. The version does not "
        "matter: an older version of other bytes may still be there.",
        "A kernel may read and write the same bytes. It does not wait for itself.",
        "With `order`, go through the kernels as it says. A dependency still has the numbers that "
        "the kernels have in `accesses`.",
        "To list fewer: keep the reads and writes of the past. When a kernel overwrites all bytes "
        "of one of them, forget it: whoever comes later waits for this kernel, and it waits for "
        "them.",
        "Forget only what is covered wholly. Of a write of 16 bytes, 8 may be left."),
    counterexamples=ordering, number=11, module="dependencies",
    chapters=("dependencies", "ordering"), score=score)
