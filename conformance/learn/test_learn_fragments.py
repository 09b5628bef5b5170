"""The lesson on matrices of a warp lets right functions pass, and no wrong one."""
from __future__ import annotations

import importlib
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance import learn
from conformance.learn import lesson_fragments
from conformance.learn.lesson import published
from conformance.learn.lesson_fragments import UNITS, VALUE, fragments
from conformance.learn.lessons import LESSONS

solution: Any = importlib.import_module("conformance.learn.solutions.fragments")
NAMES = ("places", "owner", "multiply")


def said_of(parts: dict[str, Any]) -> str:
    module: Any = SimpleNamespace(
        **{name: parts.get(name, getattr(solution, name)) for name in NAMES})
    return "\n".join(map(str, fragments(module)))


# Right, in other ways than the solution ----------------------------------------------------


def by_division(lanes: Any, elements: Any) -> Any:
    """The digits are taken off a number from the end."""
    digits = [*lanes, *elements]
    found = []
    for number in range(math.prod(size for size, _, _ in digits)):
        row = column = 0
        for size, more, right in reversed(digits):
            number, value = divmod(number, size)
            row, column = row + value * more, column + value * right
        found.append((row, column))
    return found


def by_doubling(lanes: Any, elements: Any) -> Any:
    """The list grows digit by digit."""
    found = [(0, 0)]
    for size, more, right in (*lanes, *elements):
        found = [(row + value * more, column + value * right)
                 for row, column in found for value in range(size)]
    return found


def by_trying(lanes: Any, elements: Any, row: int, column: int) -> Any:
    size = math.prod(each[0] for each in elements)
    for number, place in enumerate(by_division(lanes, elements)):
        if place == (row, column):
            return number // size, number % size
    raise ValueError("nobody has it")


def with_arrays(first: Any, second: Any, total: Any, *parts: Any) -> Any:
    """NumPy's matrices."""
    made = []
    for registers, part in zip((first, second, total), parts, strict=True):
        rows, columns = np.array(by_division(*part)).T
        matrix = np.zeros((rows.max() + 1, columns.max() + 1))
        matrix[rows, columns] = np.array(registers).ravel()
        made.append(matrix)
    rows, columns = np.array(by_division(*parts[2])).T
    result = (made[2] + made[0] @ made[1])[rows, columns]
    return result.reshape(len(total), -1).tolist()


@pytest.mark.parametrize("parts", [
    {}, {"places": by_division}, {"places": by_doubling}, {"owner": by_trying},
    {"multiply": with_arrays}])
def test_a_right_one_is_shown_none(parts: dict[str, Any]) -> None:
    assert said_of(parts) == ""


# Wrong, as one writes them -----------------------------------------------------------------


def least_first(lanes: Any, elements: Any) -> Any:
    return by_division(lanes[::-1], elements[::-1])


def elements_first(lanes: Any, elements: Any) -> Any:
    return by_division(elements, lanes)


def exchanged(lanes: Any, elements: Any) -> Any:
    return [(column, row) for row, column in by_division(lanes, elements)]


def each_adds_one(lanes: Any, elements: Any) -> Any:
    return by_division([(size, min(row, 1), min(column, 1)) for size, row, column in lanes],
                       elements)


def lanes_only(lanes: Any, elements: Any) -> Any:
    return by_division(lanes, ())


def first_digit(lanes: Any, elements: Any) -> Any:
    return by_division(lanes[:1], elements[:1])


def flat(lanes: Any, elements: Any, row: int, column: int) -> Any:
    return solution.places(lanes, elements).index((row, column))


def turned(lanes: Any, elements: Any, row: int, column: int) -> Any:
    lane, element = solution.owner(lanes, elements, row, column)
    return element, lane


def by_lanes(lanes: Any, elements: Any, row: int, column: int) -> Any:
    """Divides by the number of lanes."""
    return divmod(solution.places(lanes, elements).index((row, column)),
                  math.prod(each[0] for each in lanes))


def one_by_one(first: Any, second: Any, total: Any, *parts: Any) -> Any:
    """Each lane multiplies what it has."""
    return [[sums + sum(a * b for a, b in zip(one, two, strict=False)) for sums in three]
            for one, two, three in zip(first, second, total, strict=True)]


def without_before(first: Any, second: Any, total: Any, *parts: Any) -> Any:
    return solution.multiply(first, second, [[0.0 for _ in lane] for lane in total], *parts)


def by_the_first(first: Any, second: Any, total: Any, one: Any, two: Any, three: Any) -> Any:
    """The second operand is taken for one that is spread like the first."""
    return solution.multiply(first, second, total, one, one, three)


def as_a_matrix(first: Any, second: Any, total: Any, *parts: Any) -> Any:
    return [number for lane in solution.multiply(first, second, total, *parts) for number in lane]


def read_as_the_first(first: Any, second: Any, total: Any, one: Any, two: Any, three: Any) -> Any:
    """The result at the places of the first operand."""
    made = solution.multiply(first, second, total, one, two, three)
    found = dict(zip(solution.places(*three), [n for lane in made for n in lane], strict=True))
    numbers = iter([found.get(place, 0.0) for place in solution.places(*one)])
    return [[next(numbers) for _ in lane] for lane in total]


def owned_by_the_first(first: Any, second: Any, total: Any, one: Any, two: Any,
                       three: Any) -> Any:
    """Each result goes to the lane that would hold it in the first operand."""
    made = solution.multiply(first, second, total, one, two, three)
    found = dict(zip(solution.places(*three), [n for lane in made for n in lane], strict=True))
    answer = [list(lane) for lane in total]
    for (row, column), number in found.items():
        lane, element = solution.owner(*one, row, column)
        answer[lane][element] = number
    return answer


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"places": least_first}, f"{VALUE}: element 0 of lane 1 is at row 0, column 1, and you say "
     "row 1, column 0"),
    ({"places": elements_first}, f"{VALUE}: element 1 of lane 0 is at row 0, column 1, and you "
     "say row 1, column 0"),
    ({"places": exchanged}, f"{VALUE}: element 0 of lane 1 is at row 1, column 0, and you say "),
    ({"places": each_adds_one}, f"{VALUE}: element 0 of lane 1 is at row 0, column 2, and you "),
    ({"places": lanes_only}, f"{VALUE}: your list has 2 places; 2 lanes have 2 each"),
    ({"places": first_digit}, f"{VALUE}: your list has 2 places; 4 lanes have 1 each"),
    ({"places": lambda lanes, elements: (each for each in by_division(lanes, elements))},
     "and not a list of pairs (row, column)"),
    ({"owner": flat}, "raised: owner answers 0, and not a pair (lane, element)"),
    ({"owner": turned}, f"{VALUE}: element 0 of lane 1 is at row 1, column 0, and you say that "
     "its owner is lane 0, with its element 1"),
    ({"owner": by_lanes}, f"{VALUE}: element 0 of lane 1 is at row 1, column 0, and you say that "),
    ({"multiply": one_by_one}, f"{VALUE}: element 0 of lane "),
    ({"multiply": without_before}, f"{VALUE}: element 0 of lane 0 of the sum is "),
    ({"multiply": by_the_first},
     "raised: your code raised KeyError: (1, 0)\n\n    a unit of 1 x 1 x 2"),
    ({"multiply": as_a_matrix}, "raised: your code raised TypeError"),
    ({"multiply": read_as_the_first}, f"{VALUE}: element "),
    ({"multiply": owned_by_the_first}, f"{VALUE}: element 0 of lane 1 of the sum is "),
    ({"multiply": lambda first, second, total, *parts: None}, "raised: multiply answers None"),
]


@pytest.mark.parametrize(("parts", "said"), WRONG)
def test_a_wrong_one_is_shown_the_smallest_counterexample(parts: dict[str, Any],
                                                          said: str) -> None:
    assert said in said_of(parts)


def test_the_units_of_the_lesson_are_those_of_the_runtime() -> None:
    known: Any = importlib.import_module("impl.kernel.fragments")
    spread = {tuple((part.lanes, part.elements) for part in (unit.first, unit.second, unit.sum))
              for unit in known.UNITS}
    assert {tuple(map(tuple, parts)) for parts in UNITS.values()} <= spread


def test_the_runtime_asks_where_elements_are() -> None:
    module = published(importlib.import_module("impl.kernel.fragments"))
    known: Any = module
    ours = [list(getattr(unit, which).places()) for unit in known.UNITS
            for which in ("first", "second", "sum")]
    asked: list[Any] = []

    def places(lanes: Any, elements: Any) -> Any:
        asked.append(lanes)
        return by_doubling(lanes, elements)

    vars(module).update(places=places, owner=solution.owner)
    lesson_fragments.install(module)
    assert ours == [list(getattr(unit, which).places()) for unit in known.UNITS
                    for which in ("first", "second", "sum")]
    assert len(asked) == len({each for unit in known.UNITS
                              for each in (unit.first, unit.second, unit.sum)})
    vars(module).update(owner=turned)
    with pytest.raises(ValueError, match="your places and your owner differ"):
        lesson_fragments.install(module)
        list(known.UNITS[0].sum.places())


def test_the_page_shows_what_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "fragments.md").read_text(encoding="utf-8")
    for parts in (WRONG[1][0], WRONG[9][0]):
        assert "\n".join(map(str.rstrip, said_of(parts).strip().splitlines())) in page
    assert "\n".join(lesson_fragments.score(solution)) in page
    assert len(LESSONS["fragments"].hints) == 4 and "the next of four hints" in page
