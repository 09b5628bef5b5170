"""The lesson on orders lets right orders pass, and no wrong one."""
from __future__ import annotations

import importlib
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_order
from conformance.learn.lesson import published
from conformance.learn.lesson_order import LEGAL, PEAK, SAME, most, orders, problems
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.order")


def module_of(**parts: Any) -> Any:
    return SimpleNamespace(peak=parts.get("peak", solution.peak),
                           order=parts.get("order", solution.order))


# Right, in other ways than the solution ----------------------------------------------------


def by_balance(order: Any, nbytes: Any, touched: Any) -> int:
    """What comes to life and what dies, added up."""
    left: Any = {}
    for kernel in order:
        for each in set(touched[kernel]):
            left[each] = left.get(each, 0) + 1
    alive = high = 0
    seen: set[int] = set()
    for kernel in order:
        alive += sum(nbytes[each] for each in set(touched[kernel]) - seen)
        seen.update(touched[kernel])
        high = max(high, alive)
        for each in set(touched[kernel]):
            left[each] -= 1
            alive -= 0 if left[each] else nbytes[each]
    return high


def by_definition(order: Any, nbytes: Any, touched: Any) -> int:
    def touches(some: Any) -> Any:
        return {each for kernel in some for each in touched[kernel]}
    return max((sum(nbytes[each] for each in touches(order[:at + 1]) & touches(order[at:]))
                for at in range(len(order))), default=0)


def improved(count: Any, pairs: Any, nbytes: Any, touched: Any) -> Any:
    """The solution, then neighbours swapped for as long as that helps."""
    found = solution.order(count, pairs, nbytes, touched)
    best = solution.peak(found, nbytes, touched)
    known = set(pairs)
    for place in range(count - 1):
        one, two = found[place:place + 2]
        if (one, two) not in known and count < 12:
            other = [*found[:place], two, one, *found[place + 2:]]
            if solution.peak(other, nbytes, touched) < best:
                found, best = other, solution.peak(other, nbytes, touched)
    return found


def all_of_few(count: Any, pairs: Any, nbytes: Any, touched: Any) -> Any:
    """All orders, as long as there are few kernels."""
    if count > 5:
        return solution.order(count, pairs, nbytes, touched)
    legal = (list(each) for each in itertools.permutations(range(count))
             if all(each.index(one) < each.index(two) for one, two in pairs))
    return min(legal, key=lambda each: solution.peak(each, nbytes, touched))


@pytest.mark.parametrize("parts", [
    {}, {"peak": by_balance}, {"peak": by_definition}, {"order": improved}, {"order": all_of_few}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert list(map(str, orders(module_of(**parts)))) == []


# Wrong, as one writes them -----------------------------------------------------------------


def any_legal(count: Any, pairs: Any, *more: Any) -> Any:
    left, found = set(range(count)), []
    while left:
        found.append(min(left - {after for before, after in pairs if before in left}))
        left.remove(found[-1])
    return found


def depth_first(count: Any, pairs: Any, *more: Any) -> Any:
    """As the pairs are listed: legal, and another order for another list."""
    found: Any = []

    def visit(kernel: int) -> None:
        if kernel not in found:
            for before, after in pairs:
                if after == kernel:
                    visit(before)
            found.append(kernel)
    for _, after in pairs:
        visit(after)
    for kernel in range(count):
        visit(kernel)
    return found


def one_pass(count: Any, pairs: Any, *more: Any) -> Any:
    """Behind the last one that it waits for, as far as that is known."""
    found: Any = []
    for kernel in range(count):
        places = [found.index(before) + 1 for before, after in pairs
                  if after == kernel and before in found]
        found.insert(max(places, default=0), kernel)
    return found


def twice(count: Any, pairs: Any, *more: Any) -> Any:
    """A kernel is ready once for each that it waits for."""
    found = [k for k in range(count) if not any(after == k for _, after in pairs)]
    for kernel in found:
        found += [after for before, after in sorted(pairs) if before == kernel and
                  len(found) < 3 * count]
    return found


def from_the_front(count: Any, pairs: Any, nbytes: Any, touched: Any) -> Any:
    return solution.sparing(count, pairs, nbytes, touched)


def smallest_first(count: Any, pairs: Any, nbytes: Any, touched: Any) -> Any:
    left, found = set(range(count)), []
    while left:
        free = left - {after for before, after in pairs if before in left}
        found.append(min(free, key=lambda k: (sum(nbytes[t] for t in touched[k]), k)))
        left.remove(found[-1])
    return found


def ends_early(order: Any, nbytes: Any, touched: Any) -> int:
    """A temporary is gone while its last kernel runs."""
    alive = [0] * len(order)
    for each, size in nbytes.items():
        places = [at for at, kernel in enumerate(order) if each in touched[kernel]]
        for at in range(places[0], places[-1]):
            alive[at] += size
    return max(alive, default=0)


def all_together(order: Any, nbytes: Any, touched: Any) -> int:
    return sum(nbytes.values())


def neediest(order: Any, nbytes: Any, touched: Any) -> int:
    return max((sum(nbytes[t] for t in set(touched[k])) for k in order), default=0)


def by_number(order: Any, nbytes: Any, touched: Any) -> int:
    return int(solution.peak(sorted(order), nbytes, touched))


def from_the_back(count: Any, pairs: Any, nbytes: Any, touched: Any) -> Any:
    turned = [(after, before) for before, after in pairs]
    return solution.sparing(count, turned, nbytes, touched)[::-1]


def begins_late(order: Any, nbytes: Any, touched: Any) -> int:
    """A temporary is not there yet while its first kernel runs."""
    alive = [0] * len(order)
    for each, size in nbytes.items():
        places = [at for at, kernel in enumerate(order) if each in touched[kernel]]
        for at in range(places[0] + 1, places[-1] + 1):
            alive[at] += size
    return max(alive, default=0)


def for_ever(order: Any, nbytes: Any, touched: Any) -> int:
    """Nothing ever dies."""
    return sum(nbytes[each] for each in {each for kernel in order for each in touched[kernel]})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"order": from_the_back}, f"{PEAK}: your order "),
    ({"order": lambda count, pairs, nbytes, touched: max(
        (from_the_front(count, pairs, nbytes, touched),
         from_the_back(count, pairs, nbytes, touched)),
        key=lambda each: solution.peak(each, nbytes, touched))}, f"{PEAK}: your order "),
    ({"peak": begins_late}, f"{PEAK}: you say that the order "),
    ({"peak": for_ever}, f"{PEAK}: you say that the order "),
    ({"peak": lambda order, nbytes, touched: len(nbytes)}, f"{PEAK}: you say that the order "),
    ({"peak": lambda order, nbytes, touched: max(nbytes.values(), default=0)},
     f"{PEAK}: you say that the order "),
    ({"peak": lambda order, nbytes, touched: None}, "raised: peak answers None"),
    ({"order": lambda count, *more: list(range(count))},
     f"{LEGAL}: in your order 0, 1 kernel 0 runs before kernel 1"),
    ({"order": any_legal}, f"{PEAK}: your order 0, 1, 2, 3 needs "),
    ({"order": depth_first}, f"{SAME}: you answer "),
    ({"order": one_pass}, f"{LEGAL}: in your order "),
    ({"order": twice}, f"{LEGAL}: kernel 3 is in your order "),
    ({"order": from_the_front}, f"{PEAK}: your order "),
    ({"order": smallest_first}, f"{PEAK}: your order "),
    ({"order": lambda count, *more: None}, "raised: order answers None, and not a list"),
    ({"order": lambda count, *more: list(range(count - 1))},
     f"{LEGAL}: kernel 0 is in your order 0 times"),
    ({"peak": ends_early}, f"{PEAK}: you say that the order 0, "),
    ({"peak": all_together}, f"{PEAK}: you say that the order "),
    ({"peak": neediest}, f"{PEAK}: you say that the order 0, 1, 2, 3 needs 64 bytes"),
    ({"peak": by_number}, f"{PEAK}: you say that the order "),
    ({"peak": lambda order, nbytes, touched: max(nbytes[t] for k in order for t in touched[k])},
     "raised: your code raised ValueError: max() "),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in "\n".join(map(str, orders(module_of(**parts))))


def test_the_runtime_runs_kernels_in_the_readers_order() -> None:
    module = published(importlib.import_module("impl.ordering"))
    known = vars(module)
    known.update(order=solution.order)
    ours = known["least_peak"]
    lesson_order.install(module)
    for problem in itertools.islice(problems(), 60):
        uses = known["Uses"](problem.nbytes, problem.touched)
        assert known["linearize"](problem.kernels, (), known["Uses"]({}, uses.touched)) == \
            list(range(problem.kernels))
        mine, theirs = (each(problem.kernels, set(problem.pairs), uses)
                        for each in (known["least_peak"], ours))
        assert most(mine, problem) <= most(theirs, problem)
    with pytest.raises(Exception, match="wait for each other"):
        known["least_peak"](2, {(0, 1), (1, 0)}, known["Uses"]({}, [[], []]))


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "order.md").read_text(encoding="utf-8")
    for parts in ({"order": any_legal}, {"order": depth_first}):
        said = str(next(iter(orders(module_of(**parts)))))
        assert "\n".join(map(str.rstrip, said.strip().splitlines())) in page
    module = published(importlib.import_module("impl.ordering"))
    vars(module).update(order=solution.order)
    lines = list(lesson_order.score(module))
    assert all(line in page for line in lines[:2])
    assert len(LESSONS["order"].hints) == 5 and "the next of five hints" in page
