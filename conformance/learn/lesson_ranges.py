"""The lesson on movement: which element of its source does an element of a view read?

The reader's `source` is asked with positions that count how they were made. In the judge they
stand for numbers; in the runtime for loop variables, about which nobody can ask an `if`.

    ranges.index.exact: element (0, 1) of the result is element (1, 0) of the source, and you say
    (0, 1)

        a source of shape (2, 3), permute (1, 0): a result of shape (3, 2)
        i0 = 0, i1 = 1
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from conformance.learn.lesson import (
    Counterexample,
    Lesson,
    Undecided,
    first_of_each,
    is_whole,
    published,
    raised,
)

EXACT, LOCAL = "ranges.index.exact", "ranges.reshape.local"
INSIDE, OUTSIDE = "ranges.access.inside", "ranges.outside.zero"


class Condition:
    """What a comparison of positions gives: `&` joins two of them, and no `if` may ask one."""

    def __init__(self, truth: bool, text: str) -> None:
        self.truth, self.text = truth, text

    def __and__(self, other: Condition | bool) -> Condition:
        truth, text = _condition(other)
        return Condition(self.truth and truth, f"{self.text} and {text}")

    __rand__ = __and__

    def __bool__(self) -> bool:
        raise Undecided(f"an `if` (or `and`, `or`, `not`) asks whether {self.text}; while a kernel "
                        "is made nobody knows. Give the condition back, and join two with &")


class Position:
    """A number of an index, and the text of how it was made."""

    def __init__(self, value: int, text: str, divisions: int = 0) -> None:
        self.value, self.text, self.divisions = value, text, divisions

    def _with(self, symbol: str, other: Position | int, answer: Callable[[int, int], int],
              turned: bool = False) -> Position:
        if not isinstance(other, Position) and not is_whole(other):
            raise TypeError(f"{self.text} {symbol} {other!r}: the other side is no whole number")
        there = other if isinstance(other, Position) else Position(int(other), str(other))
        left, right = (there, self) if turned else (self, there)
        divisions = left.divisions + right.divisions + (symbol in ("//", "mod"))
        return Position(answer(left.value, right.value), f"({left.text} {symbol} {right.text})",
                        divisions)

    def __add__(self, other: Position | int) -> Position:
        return self._with("+", other, lambda a, b: a + b)

    def __radd__(self, other: int) -> Position:
        return self._with("+", other, lambda a, b: a + b, turned=True)

    def __sub__(self, other: Position | int) -> Position:
        return self._with("-", other, lambda a, b: a - b)

    def __rsub__(self, other: int) -> Position:
        return self._with("-", other, lambda a, b: a - b, turned=True)

    def __mul__(self, other: Position | int) -> Position:
        return self._with("*", other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> Position:
        return self._with("//", other, lambda a, b: a // b)

    def __mod__(self, other: int) -> Position:
        return self._with("mod", other, lambda a, b: a % b)

    def _compared(self, symbol: str, other: Position | int, truth: bool) -> Condition:
        return Condition(truth, f"{self.text} {symbol} {_text(other)}")

    def __lt__(self, other: Position | int) -> Condition:
        return self._compared("<", other, self.value < _value(other))

    def __le__(self, other: Position | int) -> Condition:
        return self._compared("<=", other, self.value <= _value(other))

    def __gt__(self, other: Position | int) -> Condition:
        return self._compared(">", other, self.value > _value(other))

    def __ge__(self, other: Position | int) -> Condition:
        return self._compared(">=", other, self.value >= _value(other))

    def __eq__(self, other: object) -> Any:
        raise Undecided(f"== asks about {self.text}, which is not known while a kernel is made; "
                        "no movement needs it")

    __ne__ = __eq__
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise Undecided(f"an `if` asks about {self.text}, which is not known while a kernel is "
                        "made")


def _value(number: Position | int) -> int:
    return number.value if isinstance(number, Position) else number


def _text(number: Position | int) -> str:
    return number.text if isinstance(number, Position) else str(number)


def _condition(given: Condition | bool) -> tuple[bool, str]:
    if isinstance(given, Condition):
        return given.truth, given.text
    return bool(given), str(given)


# The problems ------------------------------------------------------------------------------


class Problem(NamedTuple):
    """A movement of an array of some shape, by NumPy's definition of it."""

    movement: str
    argument: tuple[Any, ...]
    shape: tuple[int, ...]

    def moved(self) -> np.ndarray[Any, Any]:
        """The result, whose elements are the places in the source; -1 where there is none."""
        numbers = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        if self.movement == "permute":
            return numbers.transpose(self.argument)
        if self.movement == "flip":
            return np.flip(numbers, self.argument)
        if self.movement == "shrink":
            return numbers[tuple(slice(*each) for each in self.argument)]
        if self.movement == "expand":
            return np.broadcast_to(numbers, self.argument)
        if self.movement == "pad":
            return np.pad(numbers, self.argument, constant_values=-1)
        return numbers.reshape(self.argument)

    def __str__(self) -> str:
        return (f"a source of shape {self.shape}, {self.movement} {self.argument}: a result of "
                f"shape {self.moved().shape}")


PROBLEMS = tuple(Problem(*each) for each in (
    ("shrink", ((0, 2),), (3,)), ("shrink", ((1, 3),), (3,)), ("shrink", ((1, 2), (0, 3)), (2, 3)),
    ("shrink", ((1, 3), (2, 4), (0, 1)), (3, 4, 2)),
    ("flip", (0,), (3,)), ("flip", (1,), (2, 3)), ("flip", (), (2, 3)), ("flip", (0, 2), (2, 3, 4)),
    ("permute", (0,), (3,)), ("permute", (1, 0), (2, 3)), ("permute", (1, 2, 0), (2, 3, 4)),
    ("permute", (2, 0, 1, 3), (2, 3, 4, 5)),
    ("expand", (3,), (1,)), ("expand", (3, 2), (1, 2)), ("expand", (3, 2), (3, 1)),
    ("expand", (1, 3), (1, 3)), ("expand", (2, 4, 3), (2, 1, 3)),
    ("pad", ((0, 0),), (2,)), ("pad", ((1, 0),), (2,)), ("pad", ((0, 1),), (2,)),
    ("pad", ((2, 1),), (2,)), ("pad", ((1, 1), (0, 2)), (2, 3)),
    ("reshape", (4,), (4,)), ("reshape", (6,), (2, 3)), ("reshape", (2, 3), (6,)),
    ("reshape", (3, 2), (2, 3)), ("reshape", (1, 3), (3,)), ("reshape", (3,), (1, 3)),
    ("reshape", (), (1, 1)), ("reshape", (1, 1), ()),
    ("reshape", (2, 12), (2, 3, 4)), ("reshape", (2, 3, 4), (2, 12)),
    ("reshape", (2, 1, 3, 4), (2, 3, 4)), ("reshape", (4, 6, 5), (6, 4, 5)),
    ("reshape", (2, 2, 3, 5), (4, 3, 5)), ("reshape", (2, 6, 2, 5), (2, 2, 3, 10))))


def problems() -> tuple[Problem, ...]:
    """Every movement, from the smallest problem up."""
    return PROBLEMS


def untouched(problem: Problem) -> list[tuple[int, int]]:
    """Axes of the result and of the source that a reshape leaves as they are.

    What stands before them has the same number of elements on both sides, and they are as long.
    """
    outer, inner = problem.argument, problem.shape
    return [(i, j) for i, j in product(range(len(outer)), range(len(inner)))
            if outer[i] == inner[j] > 1
            and np.prod(outer[:i], dtype=int) == np.prod(inner[:j], dtype=int)]


# What is said of an answer -----------------------------------------------------------------


def movement(module: ModuleType) -> Iterator[Counterexample]:
    """The first problem that breaks each rule of the lesson on movement."""
    return first_of_each(_judged(module, problem) for problem in problems())


def _judged(module: ModuleType, problem: Problem) -> Iterator[Counterexample]:
    result = problem.moved()
    for element in np.ndindex(result.shape):
        index = tuple(Position(value, f"i{axis}") for axis, value in enumerate(element))
        described = "\n".join([str(problem), ", ".join(
            f"{each.text} = {each.value}" for each in index) or "the one element there is"])
        try:
            answer = module.source(problem.movement, problem.argument, problem.shape, index)
        except Exception as error:  # any: it is the reader's own code
            yield raised(error, described)
            return
        found = _unlike(answer, problem) or _wrong(answer, problem, element, int(result[element]))
        if found:
            yield Counterexample(*found, described)
            return
    if problem.movement == "reshape":
        yield from _divided(problem, answer[0])


def _unlike(answer: Any, problem: Problem) -> tuple[str, str] | None:
    """What keeps an answer from being an index and a condition at all."""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], list):
        return "raised", "the index that source answers is a list; make a tuple of it"
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], tuple):
        return "raised", f"source answers {_shown(answer)}, and not (index, condition)"
    index, inside = answer
    wrong = [each for each in index if not isinstance(each, Position) and not is_whole(each)]
    if wrong:
        return "raised", f"{_shown(wrong[0])} in your index is no number"
    if not isinstance(inside, (bool, Condition)):
        return "raised", f"your condition is {_shown(inside)}, and not a comparison nor True"
    if len(index) != len(problem.shape):
        return EXACT, (f"your index has {len(index)} numbers, and the source has "
                       f"{len(problem.shape)} axes")
    return None


def _shown(answer: object) -> str:
    if isinstance(answer, tuple):
        return "(" + ", ".join(map(_shown, answer)) + ")"
    return answer.text if isinstance(answer, (Position, Condition)) else repr(answer)


def _wrong(answer: tuple[Any, Any], problem: Problem, element: Sequence[int],
           place: int) -> tuple[str, str] | None:
    """What an answer gets wrong about one element; `place` is -1 where the result has a zero."""
    told = tuple(map(_value, answer[0]))
    truth, text = _condition(answer[1])
    which = f"element {_numbers(element)} of the result"
    if place < 0:
        return (OUTSIDE, f"{which} is one of the zeros around, and you say that it is element "
                         f"{_numbers(told)} of the source: {text}") if truth else None
    right = tuple(map(int, np.unravel_index(place, problem.shape))) if problem.shape else ()
    if not truth:
        return EXACT, (f"{which} is element {_numbers(right)} of the source, and you say that "
                       f"there is none: {text}")
    if told == right:
        return None
    if not all(0 <= at < size for at, size in zip(told, problem.shape, strict=True)):
        return INSIDE, (f"{which} is element {_numbers(right)} of the source, and you read at "
                        f"{_numbers(told)}, outside of it")
    return EXACT, (f"{which} is element {_numbers(right)} of the source, and you say "
                   f"{_numbers(told)}")


def _numbers(index: Sequence[int]) -> str:
    return "(" + ", ".join(str(int(each)) for each in index) + ")"


def _divided(problem: Problem, index: Sequence[Position | int]) -> Iterator[Counterexample]:
    """An axis that a reshape does not touch needs no arithmetic."""
    for outer, inner in untouched(problem):
        if _text(index[inner]) != f"i{outer}":
            yield Counterexample(LOCAL, f"axis {inner} of the source is axis {outer} of the "
                                 f"result, so it is i{outer}, and you say {_text(index[inner])}",
                                 str(problem))
            return


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the runtime ask the reader where a view reads: every view but windows, and sizes that
    are numbers."""
    ours: Any = module.__dict__["source_index"]
    reshape: Any = module.__dict__["reshape_index"]
    known: Any = module
    loop: Any = loop_position(module)

    def asked(movement: str, argument: tuple[Any, ...], shape: tuple[int, ...],
              index: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        found, inside = module.source(movement, argument, shape, tuple(map(loop, index)))
        node = getattr(inside, "node", inside)
        return (tuple(each.node if isinstance(each, loop) else known.UOp.const(
            known.dtypes.index, each) for each in found), known.TRUE if node is True else node)

    def reshape_index(index: tuple[Any, ...], outer: tuple[Any, ...],
                      inner: tuple[Any, ...]) -> tuple[Any, ...]:
        if not all(is_whole(size) and size for size in (*outer, *inner)):
            return tuple(reshape(index, outer, inner))
        return asked("reshape", outer, inner, index)[0]

    def source_index(node: Any, index: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        shape, result = node.src[0].shape, node.shape
        numbers = [*shape, *result]
        for each in node.arg:
            numbers += each if isinstance(each, tuple) else (each,)
        if (node.op.name == "UNFOLD" or not all(map(is_whole, numbers))
                or 0 in (*shape, *result)):
            found: tuple[tuple[Any, ...], Any] = ours(node, index)
            return found
        return asked(node.op.name.lower(), node.arg, shape, index)

    module.__dict__.update(source_index=source_index, reshape_index=reshape_index)


def loop_position(module: ModuleType) -> type:
    """The class of positions in the runtime: each makes a node of the index arithmetic."""
    symbolic = module.__dict__["symbolic"]

    class Holds:
        def __init__(self, node: Any) -> None:
            self.node = node

        def __and__(self, other: Any) -> Holds:
            return Holds(symbolic.logical_and(self.node, getattr(other, "node", other)))

        __rand__ = __and__

        def __bool__(self) -> bool:
            raise Undecided("an `if` asks about a condition of a kernel")

    def joined(function: Callable[[Any, Any], Any], turned: bool = False,
               made: Callable[[Any], Any] | None = None) -> Callable[[Any, Any], Any]:
        def method(self: Any, other: Any) -> Any:
            there = getattr(other, "node", other)
            pair = (there, self.node) if turned else (self.node, there)
            return (made or Loop)(function(*pair))
        return method

    class Loop:
        def __init__(self, node: Any) -> None:
            self.node = node

        __add__ = joined(symbolic.add)
        __radd__ = joined(symbolic.add, turned=True)
        __sub__ = joined(symbolic.sub)
        __rsub__ = joined(symbolic.sub, turned=True)
        __mul__ = __rmul__ = joined(symbolic.mul)
        __floordiv__ = joined(symbolic.floordiv)
        __mod__ = joined(symbolic.mod)
        __lt__ = joined(symbolic.less_than, made=Holds)
        __le__ = joined(symbolic.less_equal, made=Holds)
        __gt__ = joined(symbolic.less_than, turned=True, made=Holds)
        __ge__ = joined(symbolic.less_equal, turned=True, made=Holds)

        def __bool__(self) -> bool:
            raise Undecided("an `if` asks about a loop variable of a kernel")

    return Loop


SCORED = (((2, 12, 5), (2, 3, 4, 5)), ((4, 6), (6, 4)), ((8, 3, 2, 7), (8, 6, 7)),
          ((24,), (2, 3, 4)), ((2, 3, 4), (24,)), ((1, 6, 1, 4), (2, 3, 4)))


def operations(module: ModuleType) -> int:
    """Operations in the indices of the reshapes that are scored, loops of the runtime in them."""
    known: Any = module
    counted = 0
    for result, shape in SCORED:
        index = known.output_ranges(result)
        roots = [each for each in known.reshape_index(index, result, shape)]
        seen = {node for root in roots for node in root.toposort()}
        counted += sum(bool(node.src) and node.op.name != "RANGE" for node in seen)
    return counted


def score(module: ModuleType) -> Iterator[str]:
    """Operations that are left of six reshapes, when the index arithmetic has simplified them."""
    yield (f"operations in six reshapes: yours {operations(module)}, "
           f"ours {operations(published(module))}")


RANGES = Lesson(
    functions=("source",),
    names="""\
`movement` and `argument` are one of
    "permute" axes           axis k of the result is axis axes[k] of the source
    "shrink"  (start, stop)  for each axis; what is between them is left
    "flip"    axes           these axes run backwards
    "expand"  sizes          axes of size 1 are repeated; all others keep their size
    "pad"     (before, after) for each axis; so many zeros are added
    "reshape" sizes          the same elements, in row-major order
`shape` is that of the source: whole numbers, none of them 0. The numbers of `index` are positions:
you can add, subtract and multiply them, take // and % by a whole number, and compare them, which
gives a condition. `&` joins two conditions. No `if` may ask about a position or a condition: while
a kernel is made nobody knows which element it is.""",
    heads='''\
def source(movement, argument, shape, index):
    """Where the element `index` of the result is read in the source, as a tuple of positions or
    whole numbers; and a condition, or True: whether there is such an element."""
    raise NotImplementedError
''',
    rules=(EXACT, INSIDE, OUTSIDE, LOCAL),
    hints=(
        "Ask: I want element i of the result; where is it in the source? A shrink from 2 on: its "
        "element 0 is element 2. So you add.",
        "The last element of an axis of size n has number n - 1. Flipped, element 0 is that one.",
        "permute is the one that everybody gets wrong once. index[k] belongs to axis axes[k] of "
        "the source: make a list of the length of the source, and put it there.",
        "expand: an axis of size 1 has one element only, number 0. An axis that keeps its size "
        "keeps its position, also if that size is 1.",
        "pad: subtract `before`. The condition joins, for each axis, 0 <= position and position < "
        "size. Where an axis has nothing before, it needs no first half; is there none at all, it "
        "is True.",
        "reshape: make one number of the index (row-major: weight of an axis is the product of all "
        "sizes behind it), then take it apart from the last axis on with % and //.",
        "The first axis of the source needs no %: nothing is left above it. Axes of size 1 need "
        "nothing at all, so put them aside. And go along both shapes from the left: where the "
        "products of the sizes agree, both have an axis boundary, and each run between two "
        "boundaries can be done by itself."),
    counterexamples=movement, number=5, module="ranges.indices", chapters=("ranges",),
    install=install, score=score)
