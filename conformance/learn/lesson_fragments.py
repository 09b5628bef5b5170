"""The lesson on matrices of a warp: which lane holds which element, and how all multiply at once.

The reader's functions get small warps of one to eight lanes, then the units of real processors.

    kernel.mma.value: element 1 of lane 0 is at row 0, column 1, and you say row 1, column 0

        lanes: 2 values, each adds (1, 0)
        elements: 2 values, each adds (0, 1)
"""
from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from conformance.learn.lesson import Counterexample, Lesson, is_whole, raised

VALUE = "kernel.mma.value"
#: How many values a digit has, and what one adds to the row and to the column.
Digit = tuple[int, int, int]
Registers = list[list[float]]


class Part(NamedTuple):
    """How a matrix is spread: the digits of a lane's number and of an element's, greatest first."""

    lanes: tuple[Digit, ...]
    elements: tuple[Digit, ...] = ()

    def __str__(self) -> str:
        def words(digits: Sequence[Digit]) -> str:
            return "; ".join(f"{size} values, each adds ({row}, {column})"
                             for size, row, column in digits) or "none, one element"
        return f"lanes: {words(self.lanes)}\nelements: {words(self.elements)}"

    def table(self) -> list[list[tuple[int, int]]]:
        """By definition: for each lane the places of its elements."""
        def numbers(digits: Sequence[Digit]) -> Iterator[tuple[int, int]]:
            for values in itertools.product(*(range(size) for size, _, _ in digits)):
                yield (sum(v * row for v, (_, row, _) in zip(values, digits, strict=True)),
                       sum(v * column for v, (_, _, column) in zip(values, digits, strict=True)))
        return [[(row + more, column + right) for more, right in numbers(self.elements)]
                for row, column in numbers(self.lanes)]


_EIGHT, _TURNED = ((8, 1, 0), (4, 0, 2)), ((8, 0, 1), (4, 2, 0))
_SUM = Part(_EIGHT, ((2, 8, 0), (2, 0, 1)))
_QUADS = Part(((2, 4, 0), (2, 0, 4), (4, 1, 0), (2, 0, 2)), ((2, 0, 1),))
#: The units of real processors: how the first and the second operand and the sum are spread.
UNITS = {
    "8 x 8 of a GPU by Apple": (_QUADS, _QUADS, _QUADS),
    "16 x 8 x 8 of a GPU by NVIDIA": (Part(_EIGHT, ((2, 8, 0), (2, 0, 1))),
                                      Part(_TURNED, ((2, 1, 0),)), _SUM),
    "16 x 8 x 16 of a GPU by NVIDIA": (Part(_EIGHT, ((2, 0, 8), (2, 8, 0), (2, 0, 1))),
                                       Part(_TURNED, ((2, 8, 0), (2, 1, 0))), _SUM)}
_ROWS, _COLUMNS = ((2, 1, 0), (2, 0, 1)), ((2, 0, 1), (2, 1, 0))
PARTS = (
    Part(((1, 0, 0),)), Part(((2, 1, 0),)), Part(((2, 0, 1),)), Part(_ROWS), Part(_COLUMNS),
    Part(((2, 1, 0),), ((2, 0, 1),)), Part(((2, 0, 2),), ((2, 0, 1),)),
    Part(((3, 1, 0),), ((2, 0, 1),)), Part(((2, 1, 0), (2, 0, 2)), ((2, 2, 0), (2, 0, 1))),
    Part(((2, 0, 1), (4, 1, 0)), ((3, 0, 2),)), _QUADS, *UNITS[
        "16 x 8 x 16 of a GPU by NVIDIA"])
#: Small units: one lane, two, four; then the real ones.
SMALL = {
    "1 x 1 x 1": (Part(((1, 0, 0),)),) * 3,
    "1 x 1 x 2, one lane": (Part(((1, 0, 0),), ((2, 0, 1),)), Part(((1, 0, 0),), ((2, 1, 0),)),
                            Part(((1, 0, 0),))),
    "2 x 2 x 2": (Part(_ROWS), Part(_ROWS), Part(_ROWS)),
    "2 x 2 x 2, turned": (Part(_ROWS), Part(_COLUMNS), Part(_ROWS)),
    "2 x 2 x 2, the sum turned": (Part(_ROWS), Part(_ROWS), Part(_COLUMNS)),
    "2 x 2 x 2, each otherwise": (Part(((2, 1, 0),), ((2, 0, 1),)),
                                  Part(((2, 0, 1),), ((2, 1, 0),)),
                                  Part(((2, 1, 0),), ((2, 0, 1),))),
    "2 x 3 x 2, each otherwise": (Part(((2, 0, 1),), ((2, 1, 0),)),
                                  Part(((2, 1, 0),), ((3, 0, 1),)),
                                  Part(((2, 1, 0),), ((3, 0, 1),)))}


def shape(part: Part) -> tuple[int, int]:
    places = list(itertools.chain.from_iterable(part.table()))
    return 1 + max(row for row, _ in places), 1 + max(column for _, column in places)


def spread(matrix: Sequence[Sequence[float]], part: Part) -> Registers:
    """What each lane holds of a matrix."""
    return [[matrix[row][column] for row, column in lane] for lane in part.table()]


def _drawn(part: Part, chooser: random.Random) -> list[list[float]]:
    rows, columns = shape(part)
    return [[float(chooser.randrange(-3, 4)) for _ in range(columns)] for _ in range(rows)]


# What is said ------------------------------------------------------------------------------


def fragments(module: ModuleType) -> Iterator[Counterexample]:
    """The first matrix about which the reader's functions are wrong."""
    for part in PARTS:
        found = _placed(module, part)
        if found is not None:
            yield found
            return
    chooser = random.Random(1)
    for name, parts in (*SMALL.items(), *UNITS.items()):
        found = _multiplied(module, name, parts, chooser)
        if found is not None:
            yield found
            return


def _placed(module: ModuleType, part: Part) -> Counterexample | None:
    shown = str(part)
    try:
        answer = module.places(part.lanes, part.elements)
        if not isinstance(answer, list) or not all(map(_is_pair, answer)):
            return Counterexample("raised", f"places answers {answer!r:.60}, and not a list of "
                                  "pairs (row, column)", shown)
        table = part.table()
        if len(answer) != len(table) * len(table[0]):
            return Counterexample(VALUE, f"your list has {len(answer)} places; {len(table)} lanes "
                                  f"have {len(table[0])} each", shown)
        for number, (lane, element) in enumerate(itertools.product(
                range(len(table)), range(len(table[0])))):
            row, column = table[lane][element]
            which = f"element {element} of lane {lane} is at row {row}, column {column}"
            if tuple(answer[number]) != (row, column):
                return Counterexample(VALUE, f"{which}, and you say row {answer[number][0]}, "
                                      f"column {answer[number][1]}", shown)
            owner = module.owner(part.lanes, part.elements, row, column)
            if not _is_pair(owner):
                return Counterexample("raised", f"owner answers {owner!r:.60}, and not a pair "
                                      "(lane, element)", shown)
            if tuple(owner) != (lane, element):
                return Counterexample(VALUE, f"{which}, and you say that its owner is lane "
                                      f"{owner[0]}, with its element {owner[1]}", shown)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, shown)
    return None


def _is_pair(value: object) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_whole, value))


def _multiplied(module: ModuleType, name: str, parts: tuple[Part, ...],
                chooser: random.Random) -> Counterexample | None:
    first, second, total = (_drawn(part, chooser) for part in parts)
    right = [[total[i][j] + sum(first[i][k] * second[k][j] for k in range(len(second)))
              for j in range(len(total[0]))] for i in range(len(total))]
    given = [spread(matrix, part) for matrix, part in zip((first, second, total), parts,
                                                          strict=True)]
    shown = f"a unit of {name}\n" + "\n".join(
        f"{word}: {matrix}; lanes {part.lanes}, elements {part.elements}" for word, matrix, part in
        zip(("first", "second", "sum before"), (first, second, total), parts, strict=True)
        if len(matrix) * len(matrix[0]) < 10)
    wanted = spread(right, parts[2])
    try:
        answer = module.multiply(*[[list(lane) for lane in each] for each in given],
                                 *[tuple(part) for part in parts])
        if not isinstance(answer, list) or [len(lane) for lane in answer] != list(
                map(len, wanted)):
            return Counterexample("raised", f"multiply answers {answer!r:.60}, and not "
                                  f"{len(wanted)} lists of {len(wanted[0])} numbers", shown)
        for lane, (mine, theirs) in enumerate(zip(answer, wanted, strict=True)):
            for element, (one, other) in enumerate(zip(mine, theirs, strict=True)):
                if one != other:
                    return Counterexample(VALUE, f"element {element} of lane {lane} of the sum is "
                                          f"{one:g}, and should be {other:g}", shown)
    except Exception as error:  # any: it is the reader's own code
        return raised(error, shown)
    return None


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the runtime ask the reader where the elements of a fragment are."""
    known: Any = module
    seen: dict[Any, list[tuple[int, int]]] = {}

    def places(fragment: Any) -> Iterator[tuple[int, int]]:
        if fragment not in seen:
            found = [(row, column) for row, column in known.places(
                fragment.lanes, fragment.elements)]
            for number, (row, column) in enumerate(found):
                lane, element = known.owner(fragment.lanes, fragment.elements, row, column)
                if lane * fragment.size + element != number:
                    raise ValueError(f"your places and your owner differ about row {row}, column "
                                     f"{column}")
            seen[fragment] = found
        return iter(seen[fragment])

    known.Fragment.places = places


def score(module: ModuleType) -> Iterator[str]:
    """What the lanes load for a product: one lane for each result, and a warp with a unit."""
    known: Any = module
    yield f"{'':<34}{'products':>9}{'loads':>7}{'without':>9}{'at least':>10}"
    for name, (first, second, total) in UNITS.items():
        rows, depth = shape(first)
        columns = shape(total)[1]
        loads = sum(len(set(known.places(*part))) for part in (first, second))
        products = rows * columns * depth
        yield (f"{name:<34}{products:>9}{loads:>7}{2 * products:>9}"
               f"{rows * depth + depth * columns:>10}")


FRAGMENTS = Lesson(
    number=18, functions=("places", "owner", "multiply"),
    names="""\
A number is written in digits, the greatest first. A digit is
    (size, row, column)      it has `size` values; each adds so much to the row and the column
`lanes` are the digits of a lane's number, `elements` those of the number of an element in its lane.
Registers are a list for each lane, with its elements.""",
    heads='''\
def places(lanes, elements):
    """(row, column) of each element, as a list: those of lane 0 first, then those of lane 1."""
    raise NotImplementedError


def owner(lanes, elements, row, column):
    """Which lane holds the element at a row and a column, and as which of its: (lane, element)."""
    raise NotImplementedError


def multiply(first, second, total, first_part, second_part, total_part):
    """total + first @ second, in registers like those of `total`.

    The first three are registers; a part is (lanes, elements), and says how a matrix is spread.
    """
    raise NotImplementedError
''',
    rules=(VALUE,),
    hints=(
        "itertools.product(range(2), range(3)) counts in digits of 2 and 3 values, the greatest "
        "first. Let it count in all digits, those of lanes before those of elements.",
        "The row is the sum over all digits of its value times what one adds to the row. The "
        "column, too.",
        "owner: the place of (row, column) in the list of `places` is one number. How many "
        "elements has a lane? divmod.",
        "multiply: make three matrices (dicts from (row, column) will do), multiply them as you "
        "always do, and read the result at the places of the sum."),
    counterexamples=fragments, module="kernel.fragments", chapters=("groups", "kernel"),
    install=install, score=score)
