"""The lesson on movement lets right indices pass, and no wrong one."""
from __future__ import annotations

import importlib
from collections.abc import Callable
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import learn
from conformance.learn import lesson_ranges
from conformance.learn.lesson import Undecided
from conformance.learn.lesson_ranges import Position, movement
from conformance.learn.lessons import LESSONS
from impl.dtypes import dtypes
from impl.effects import new_buffer_node
from impl.ir import Ops, UOp
from impl.places import Place
from impl.symbolic import evaluate

published: Any = importlib.import_module("impl.ranges.indices")
solution: Any = importlib.import_module("conformance.learn.solutions.ranges")
Source = Callable[..., Any]


def module_of(source: Source) -> Any:
    return SimpleNamespace(source=source)


def right(movement: str, argument: Any, shape: Any, index: Any) -> Any:
    if movement == "shrink":
        return tuple(i + start for i, (start, _) in zip(index, argument, strict=True)), True
    if movement == "flip":
        return tuple(shape[k] - 1 - i if k in argument else i for k, i in enumerate(index)), True
    if movement == "permute":
        return tuple(index[argument.index(axis)] for axis in range(len(shape))), True
    if movement == "expand":
        return tuple(i if size == new else 0
                     for i, size, new in zip(index, shape, argument, strict=True)), True
    if movement == "pad":
        return padded(argument, shape, index)
    return in_runs(argument, shape, index), True


def padded(amounts: Any, shape: Any, index: Any) -> Any:
    inside, moved = True, []
    for i, (before, _), size in zip(index, amounts, shape, strict=True):
        moved.append(i - before)
        inside = inside & (moved[-1] >= 0) & (size > moved[-1])
    return tuple(moved), inside


def in_runs(outer: Any, inner: Any, index: Any) -> Any:
    """By strides: where an axis of the result begins and ends within one of the source."""
    return tuple(place(axis, outer, inner, index) if size != 1 else 0
                 for axis, size in enumerate(inner))


def place(axis: int, outer: Any, inner: Any, index: Any) -> Any:
    ends = {prod(outer[k:]) for k in range(len(outer) + 1)} & {
        prod(inner[k:]) for k in range(len(inner) + 1)}
    unit = prod(inner[axis + 1:])
    low = max(end for end in ends if end <= unit)
    high = min(end for end in ends if end >= unit * inner[axis])
    parts = [(index[k], prod(outer[k + 1:]) // low) for k, size in enumerate(outer)
             if size != 1 and low * size <= prod(outer[k:]) <= high]
    if len(parts) == 1 and unit == low and high == unit * inner[axis]:
        return parts[0][0]
    flat = parts[0][0] * parts[0][1]
    for i, step in parts[1:]:
        flat = flat + i * step
    return flat // (unit // low) % inner[axis]


def by_growing(movement: str, argument: Any, shape: Any, index: Any) -> Any:
    """A run grows on the side whose product is smaller; what is read in it is taken apart by
    strides.
    """
    if movement != "reshape":
        return right(movement, argument, shape, index)
    found: list[Any] = [0] * len(shape)
    theirs = [axis for axis, size in enumerate(shape) if size != 1]
    mine = [axis for axis, size in enumerate(argument) if size != 1]
    while theirs:
        run, flat = [theirs.pop(0)], index[mine[0]]
        a, b = shape[run[0]], argument[mine.pop(0)]
        while a != b:
            if a < b:
                run.append(theirs.pop(0))
                a *= shape[run[-1]]
            else:
                flat = flat * argument[mine[0]] + index[mine[0]]
                b *= argument[mine.pop(0)]
        for axis in run:
            outermost, a = axis == run[0], a // shape[axis]
            at = flat if a == 1 else flat // a
            found[axis] = at if outermost else at % shape[axis]
    return tuple(found), True


def by_the_source(movement: str, argument: Any, shape: Any, index: Any) -> Any:
    """Axis by axis of the source; conditions only where something was added."""
    if movement == "permute":
        return tuple(index[list(argument).index(axis)] for axis in range(len(shape))), True
    if movement == "flip":
        found = list(index)
        for axis in argument:
            found[axis] = (shape[axis] - 1) - found[axis]
        return tuple(found), True
    if movement == "pad":
        asked = [(index[k] - before >= 0) for k, (before, _) in enumerate(argument) if before]
        asked += [(index[k] < size + argument[k][0]) for k, size in enumerate(shape)
                  if argument[k][1]]
        inside = asked[0] if asked else True
        for each in asked[1:]:
            inside = inside & each
        return tuple(i - before for i, (before, _) in zip(index, argument, strict=True)), inside
    return right(movement, argument, shape, index)


def but(name: str, answer: Source) -> Source:
    return lambda movement, *given: (answer if movement == name else right)(movement, *given)


def guarded(movement: str, argument: Any, shape: Any, index: Any) -> Any:
    if index[0] - argument[0][0] < 0:
        return index, False
    return right(movement, argument, shape, index)


def flattened(movement: str, outer: Any, inner: Any, index: Any) -> Any:
    flat: Any = 0
    for i, size in zip(index, outer, strict=True):
        flat = flat * size + i
    found: list[Any] = []
    for size in inner[::-1]:
        found.append(flat % size)
        flat = flat // size
    return tuple(found[::-1]), True


def columns(movement: str, outer: Any, inner: Any, index: Any) -> Any:
    return flattened(movement, outer[::-1], inner[::-1], index[::-1])[0][::-1], True


WRONG: list[tuple[Source, str]] = [
    (but("shrink", lambda m, a, s, i: (i, True)),
     "ranges.index.exact: element (0) of the result is element (1) of the source, and you say (0)"),
    (but("shrink", lambda m, a, s, i: (tuple(k - b for k, (b, _) in zip(i, a, strict=True)), True)),
     "ranges.access.inside: element (0) of the result is element (1) of the source, and you read "
     "at (-1), outside"),
    (but("flip", lambda m, a, s, i: (tuple(s[k] - x if k in a else x for k, x in enumerate(i)),
                                     True)), "ranges.access.inside: "),
    (but("flip", lambda m, a, s, i: (tuple(s[k] - 1 - x for k, x in enumerate(i)), True)),
     "ranges.index.exact: "),
    (but("permute", lambda m, a, s, i: (tuple(i[k] for k in a), True)), "permute (1, 2, 0)"),
    (but("expand", lambda m, a, s, i: (i, True)), "ranges.access.inside: element (1) of the "
                                                  "result is element (0)"),
    (but("expand", lambda m, a, s, i: (tuple(0 for _ in s), True)), "ranges.index.exact: "),
    (but("pad", lambda m, a, s, i: (padded(a, s, i)[0], True)),
     "ranges.outside.zero: element (0) of the result is one of the zeros around"),
    (but("pad", lambda m, a, s, i: (padded(a, s, i)[0], padded(a, s, i)[0][0] >= 0)),
     "ranges.outside.zero: element (2) of the result"),
    (but("pad", lambda m, a, s, i: (i, padded(a, s, i)[1])), "ranges.index.exact: "),
    (but("pad", lambda m, a, s, i: (padded(a, s, i)[0], padded(a, s, i)[0][0] > 0)),
     "you say that there is none: "),
    (but("pad", guarded), "asks whether (i0 - 0) < 0; while a kernel is made nobody knows"),
    (but("reshape", columns), "ranges.index.exact: element (1) of the result is element (0, 1) of "
                              "the source, and you say (1, 0)"),
    (but("reshape", flattened), "ranges.reshape.local: axis 0 of the source is axis 0"),
    (lambda m, a, s, i: i, "raised: source answers (i0), and not (index, condition)"),
    (lambda m, a, s, i: (list(i), True), "raised: the index that source answers is a list; make a"),
    (lambda m, a, s, i: None, "raised: source answers None, and not (index, condition)"),
    (lambda m, a, s, i: ((*i, 0), True), "ranges.index.exact: your index has 2 numbers"),
    (lambda m, a, s, i: (tuple(x / 1 for x in i), True), "raised: your code raised TypeError"),
    (lambda m, a, s, i: (tuple(0.5 for x in i), True), "raised: 0.5 in your index is no number"),
    (lambda m, a, s, i: (i, "yes"), "raised: your condition is 'yes'"),
]


@pytest.mark.parametrize(("source", "said"), WRONG, ids=[said[:50] for _, said in WRONG])
def test_a_wrong_index_is_shown_the_smallest_counterexample(source: Source, said: str) -> None:
    found = "\n".join(map(str, movement(module_of(source))))
    assert said in found and "    a source of shape " in found


def node_of(movement: str, argument: Any, shape: Any) -> UOp:
    known = new_buffer_node(Place("REFERENCE"), dtypes.int32, shape)
    return UOp(Ops[movement.upper()], dtypes.int32, (known,), argument)


def ours(movement: str, argument: Any, shape: Any, index: Any) -> Any:
    """As nodes of the graph; the numbers are put in afterwards."""
    node = node_of(movement, argument, shape)
    loops = published.output_ranges(node.shape)
    found, inside = published.source_index(node, loops)
    numbers = {loop: each.value for loop, each in zip(loops, index, strict=True)}
    plain = dict(zip(loops, index, strict=True))
    return (tuple(plain[each] if each in plain and each.op is Ops.RANGE else
                  evaluate(each, numbers) for each in found), bool(evaluate(inside, numbers)))


@pytest.mark.parametrize("source", [right, ours, solution.source, by_growing, by_the_source])
def test_a_right_one_is_shown_none(source: Source) -> None:
    assert list(map(str, movement(module_of(source)))) == []


@pytest.mark.parametrize("asked", [
    lambda i: bool(i), lambda i: i == 0, lambda i: i != 0, lambda i: bool((i < 1) & (0 <= i))])
def test_no_if_asks_about_a_position(asked: Callable[[Position], object]) -> None:
    with pytest.raises(Undecided, match="while a kernel is"):
        asked(Position(0, "i0"))


def test_the_runtime_asks_the_reader() -> None:
    asked: list[str] = []

    def watched(movement: str, *given: Any) -> Any:
        asked.append(movement)
        return right(movement, *given)

    module: Any = lesson_ranges.published(published)
    module.source = watched
    lesson_ranges.install(module)
    for problem in lesson_ranges.problems():
        node = node_of(*problem)
        index = published.output_ranges(node.shape)
        assert module.source_index(node, index) == published.source_index(node, index)
    assert sorted(set(asked)) == ["expand", "flip", "pad", "permute", "reshape", "shrink"]


def test_the_page_shows_the_score_that_is_printed() -> None:
    page = (learn.ROOT / "docs" / "course" / "ranges.md").read_text(encoding="utf-8")
    assert all(line in page for line in lesson_ranges.score(published))
    assert len(LESSONS["ranges"].hints) == 7 and "the next of seven hints" in page


def test_a_file_takes_the_place_of_the_indices(tmp_path: Path,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "my_ranges.py"
    assert learn.main(["start", "ranges", "--mine", str(mine)]) == 0
    assert "def source(movement" in mine.read_text(encoding="utf-8")
    assert "all 4 rules of this lesson are red" in capsys.readouterr().out
    assert learn.Overlay("ranges", mine).find_spec("impl.ranges.indices") is not None
