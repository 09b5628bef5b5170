"""Movements of several axes, movements of movements, and writes through them.

Chapter: spec/statements.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice, permutations, product
from math import prod

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft, movement
from conformance.protocol import Statement, shapes
from conformance.protocol.shapes import ProgramError
from conformance.runner.subject import Subject
from conformance.suite import verifies
from conformance.suite.test_statements import given, shown

#: Two axes to five, some of them of size 1, no other two of one size.
SHAPES = ((4, 5), (3, 4, 5), (2, 3, 4, 5), (2, 1, 4, 1, 3))
#: Movements whose results are woven into one value: one kernel has them all, if it likes.
TOGETHER = 16


def numbered(draft: Draft, shape: Sequence[int]) -> str:
    """An input whose elements all differ."""
    return given(draft, np.arange(1, prod(shape) + 1).reshape(shape), "int32")


def moved(draft: Draft, name: str, *steps: Statement) -> str:
    for step in steps:
        name = draft.add(step["do"], name, **{key: value for key, value in step.items()
                                              if key != "do"})
    return name


def _woven(draft: Draft, names: Sequence[str]) -> None:
    """A number for each element of several values, to which no two elements can change places."""
    length = max(prod(draft.kinds[name].shape) for name in names)
    total = ""
    for number, name in enumerate(names):
        size = prod(draft.kinds[name].shape)
        flat = draft.add("reshape", name, shape=[size])
        if size < length:
            flat = draft.add("pad", flat, widths=[[0, length - size]])
        factor = draft.constant(draft.kinds[flat], 2 * number * number + 3)
        term = draft.add("mul", flat, factor)
        total = draft.add("add", total, term) if total else term


def _each(subject: Subject, shape: Sequence[int], chains: Iterable[Sequence[Statement]]) -> None:
    """The values of these chains of movements of one input, a few at a time."""
    rest = iter(chains)
    while some := list(islice(rest, TOGETHER)):
        draft = Draft()
        source = numbered(draft, shape)
        names = [moved(draft, source, *chain) for chain in some]
        _woven(draft, names)
        draft.append({"do": "observe", "names": [names[0], list(draft.kinds)[-1]]})
        subject.check_declared(protocol.program(draft.statements))


def _sets(rank: int) -> Iterator[tuple[int, ...]]:
    """Sets of two axes and more."""
    return (axes for count in range(2, rank + 1) for axes in combinations(range(rank), count))


def of_several_axes(do: str, shape: tuple[int, ...]) -> Iterator[Statement]:
    """Movements of one sort, each of two axes of a shape or of more."""
    rank = len(shape)
    if do == "permute":
        step = 1 if rank < 5 else 7  # a seventh of the 120 orders of five axes
        for order in islice(permutations(range(rank)), 1, None, step):
            yield {"do": do, "order": list(order)}
        return
    for turn, axes in enumerate(_sets(rank)):
        if do == "flip":
            yield {"do": do, "axes": list(axes)}
        elif do == "pad":
            yield {"do": do, "widths": [[(axis + turn) % 3, 1 + axis % 2] if axis in axes
                                        else [0, 0] for axis in range(rank)]}
        elif do == "stride":
            yield {"do": do, "steps": [2 + (axis + turn) % 2 if axis in axes else 1
                                       for axis in range(rank)]}
        elif do == "shrink":
            yield {"do": do, "bounds": [_bounds(size, axis + turn) if axis in axes else [0, size]
                                        for axis, size in enumerate(shape)]}
        elif do == "expand":
            yield {"do": do, "shape": [2 + axis if size == 1 and axis in axes else size
                                       for axis, size in enumerate(shape)]}


def _bounds(size: int, turn: int) -> list[int]:
    return [[1, size], [1, max(size - 1, 1 + (size > 1))], [size // 2, size]][turn % 3] \
        if size > 1 else [0, 1]


@verifies("statements.movement.axes")
def test_movements_of_several_axes(subject: Subject) -> None:
    for do, shape in product(("shrink", "stride", "pad", "flip", "permute"), SHAPES):
        _each(subject, shape, ([step] for step in of_several_axes(do, shape)))
    for shape in ((1, 3, 1), (1, 1, 2), (2, 1, 1, 3), (1, 2, 1, 3, 1)):
        _each(subject, shape, ([step] for step in of_several_axes("expand", shape)))


@verifies("statements.movement.chain")
def test_movements_of_movements(subject: Subject) -> None:
    """Each sort after each other sort, and every third chain with one more."""
    for shape in ((3, 4, 5), (2, 1, 4, 3)):
        _each(subject, shape, _chains(shape, protocol.MOVEMENT))
    shape = (2, 3, 4)
    _each(subject, shape, (
        [{"do": "permute", "order": list(order)}, {"do": "reshape", "shape": first},
         {"do": "reshape", "shape": second}]
        for order, (first, second) in product(islice(permutations(range(3)), 1, None), (
            ([6, 4], [3, 8]), ([24], [4, 3, 2]), ([2, 12], [2, 1, 12])))))


@verifies("statements.movement.chain")
def test_many_movements_of_one_value(subject: Subject) -> None:
    """Up to twelve, one after the other, of each sort in turn; each length is looked at."""
    for turn, shape in enumerate(((3, 4), (2, 3, 4))):
        draft = Draft()
        names, now = [numbered(draft, shape)], shape
        for number in range(12):
            do = protocol.MOVEMENT[(5 * number + turn) % len(protocol.MOVEMENT)]
            step = movement(do, now, 7 * number + 3 + turn)
            if step and 6 <= prod(shapes.moved(step, now)) <= 200:
                names.append(moved(draft, names[-1], step))
                now = shapes.moved(step, now)
        draft.append({"do": "observe", "names": names[4:]})
        subject.check_declared(protocol.program(draft.statements))


def _chains(shape: tuple[int, ...], sorts: Sequence[str], least: int = 2,
            ) -> Iterator[list[Statement]]:
    for number, names in enumerate(product(sorts, repeat=2)):
        chain: list[Statement] = []
        now = shape
        wanted = [*names, *([sorts[number % len(sorts)]] if number % 3 == 0 else [])]
        for position, do in enumerate(wanted):
            several = [each for each in of_several_axes(do, now) if _moves(each, now)]
            step = several[(number + position) % len(several)] if several else \
                movement(do, now, 3 * number + position)
            if step and _moves(step, now):
                chain.append(step)
                now = shapes.moved(step, now)
        if len(chain) >= least:
            yield chain


def _moves(step: Statement, shape: tuple[int, ...]) -> bool:
    try:
        return 0 < prod(shapes.moved(step, shape)) <= 400
    except (ProgramError, ValueError, IndexError):
        return False


@verifies("statements.store.view")
def test_writes_through_movements_of_movements(subject: Subject) -> None:
    """Into values that are in memory and into others; the region of several chains in turn."""
    for shape in ((4, 4), (3, 4, 5), (2, 1, 4, 3)):
        chains = [[step] for do in ("shrink", "stride", "flip", "permute")
                  for step in islice(of_several_axes(do, shape), 3)]
        chains += [chain for chain in _chains(shape, protocol.VIEW_STEPS)
                   if "reshape" not in (step["do"] for step in chain)]
        chains += [[{"do": "permute", "order": list(order)}, step]
                   for order in islice(permutations(range(len(shape))), 1, 6)
                   for step in islice(of_several_axes("shrink", tuple(
                       shape[axis] for axis in order)), 2)]
        if shape == (4, 4):  # where a region keeps its shape when the two are exchanged
            turned: Statement = {"do": "permute", "order": [1, 0]}
            part: Statement = {"do": "shrink", "bounds": [[0, 2], [2, 4]]}
            chains += [[turned, part], [{"do": "flip", "axes": [0]}, turned, part],
                       [turned, {"do": "flip", "axes": [1]}, part]]
        for start in range(0, len(chains), TOGETHER):
            _written(subject, shape, chains[start:start + TOGETHER], bool(start // TOGETHER % 2))


@verifies("statements.store.view")
def test_writes_through_reshapes_of_movements(subject: Subject) -> None:
    """Regions that no strides describe: what was moved is reshaped, and moved again."""
    for shape in ((4, 4), (3, 4, 5)):
        chains = [chain for chain in _chains(shape, protocol.VIEW_STEPS)
                  if "reshape" in (step["do"] for step in chain)]
        _written(subject, shape, chains, in_memory=len(shape) == 3)


def _written(subject: Subject, shape: tuple[int, ...], chains: Sequence[Sequence[Statement]],
             in_memory: bool) -> None:
    draft = Draft()
    targets = []
    for chain in chains:
        region = shapes.view_shape(shape, list(chain))
        value = given(draft, -np.arange(1, prod(region) + 1).reshape(region), "int32")
        target = draft.add("copy", numbered(draft, shape))
        if in_memory:
            draft.append({"do": "realize", "names": [target]})
        draft.append({"do": "store", "target": target, "view": list(chain), "from": [value]})
        targets.append(target)
    draft.append({"do": "observe", "names": targets})
    subject.check_declared(protocol.program(draft.statements))


@verifies("statements.store.view")
def test_writes_through_many_movements(subject: Subject) -> None:
    """Regions of four steps to nine."""
    for turn, shape in enumerate(((4, 6), (3, 4, 5))):
        chains: list[list[Statement]] = []
        chain: list[Statement] = []
        for number in range(14):
            do = protocol.VIEW_STEPS[(3 * number + turn) % len(protocol.VIEW_STEPS)]
            now = shapes.view_shape(shape, chain)
            step = movement(do, now, 5 * number + 2)
            if step and prod(shapes.moved(step, now)) >= 3:
                chain = [*chain, step]
                chains += [chain] * (4 <= len(chain) <= 9)
        _written(subject, shape, chains, in_memory=bool(turn))


@verifies("statements.store.view")
def test_a_part_is_written_over_another_that_it_overlaps(subject: Subject) -> None:
    """By one element and by more, up and down; what was read is dropped before it is asked for."""
    for size, in_memory in ((7, True), (6, False)):
        with shown(subject) as draft:
            for width, to in ((4, 3), (4, 2), (5, 1), (2, 1), (3, 2)):
                for source, place in ((0, to), (to, 0)):
                    if max(source, place) + width > size:
                        continue
                    state = numbered(draft, (size,))
                    if in_memory:
                        draft.append({"do": "realize", "names": [state]})
                    part = draft.add("shrink", state, bounds=[[source, source + width]])
                    draft.append({"do": "store", "target": state, "from": [part], "view": [
                        {"do": "shrink", "bounds": [[place, place + width]]}]})
                    draft.append({"do": "drop", "names": [part]})


@verifies("statements.store.view")
def test_a_part_is_computed_of_two_of_which_one_overlaps_it(subject: Subject) -> None:
    """The first one or the second, from above and from below, turned round; the other is apart."""
    apart, region = [8, 14], [1, 7]
    for overlapping in ([0, 6], [2, 8], [1, 7]):
        for turned in (False, True):
            with shown(subject) as draft:
                for swapped in (False, True):
                    state = numbered(draft, (16,))
                    draft.append({"do": "realize", "names": [state]})
                    far, near = (draft.add("shrink", state, bounds=[each])
                                 for each in (apart, overlapping))
                    near = draft.add("flip", near, axes=[0]) if turned else near
                    made = draft.add("sub", *((near, far) if swapped else (far, near)))
                    draft.append({"do": "store", "target": state, "from": [made],
                                  "view": [{"do": "shrink", "bounds": [region]}]})
                    draft.append({"do": "drop", "names": [far, near, made]})


@verifies("statements.store.view")
def test_readers_through_movements_keep_what_was_there(subject: Subject) -> None:
    """A reader of each chain waits, and with it a second one that was made of a hidden one."""
    shape = (3, 4)
    chains: list[list[Statement]] = [
        [{"do": "reshape", "shape": [4, 3]}, {"do": "flip", "axes": [0]}],
        [{"do": "reshape", "shape": [2, 6]}, {"do": "reshape", "shape": [6, 2]},
         {"do": "flip", "axes": [1]}],
        [{"do": "permute", "order": [1, 0]}, {"do": "shrink", "bounds": [[1, 4], [0, 2]]},
         {"do": "stride", "steps": [2, 1]}],
        [{"do": "flip", "axes": [0, 1]}, {"do": "reshape", "shape": [12]},
         {"do": "shrink", "bounds": [[2, 9]]}, {"do": "stride", "steps": [3]}],
        [{"do": "pad", "widths": [[1, 0], [0, 2]]}],
        [{"do": "shrink", "bounds": [[1, 2], [0, 4]]}, {"do": "expand", "shape": [3, 4]}],
        [{"do": "stride", "steps": [2, 3]}, {"do": "pad", "widths": [[0, 1], [1, 0]]}]]
    writes: list[list[Statement]] = [
        [], [{"do": "shrink", "bounds": [[0, 2], [1, 4]]}],
        [{"do": "reshape", "shape": [12]}, {"do": "flip", "axes": [0]},
         {"do": "shrink", "bounds": [[3, 10]]}]]
    for write in writes:
        for chain in chains:
            with shown(subject) as draft:
                state = numbered(draft, shape)
                draft.append({"do": "realize", "names": [state]})
                names = [state]
                for step in chain:
                    names.append(moved(draft, names[-1], step))
                moved(draft, state, *chain)  # a second reader of the same
                draft.append({"do": "drop", "names": names[1:-1]})
                region = shapes.view_shape(shape, write)
                value = given(draft, -np.arange(prod(region)).reshape(region), "int32")
                draft.append({"do": "store", "target": state, "view": write, "from": [value]})


@verifies("statements.assign.whole")
def test_what_was_moved_several_times_is_assigned(subject: Subject) -> None:
    """The target has elements of its own: what it was moved from is written to, and kept."""
    flip: Statement = {"do": "flip", "axes": [0]}
    turn: Statement = {"do": "permute", "order": [1, 0]}
    ends: Statement = {"do": "flip", "axes": [0, 1]}
    for chain in ([turn, flip], [flip, turn], [ends, turn, flip], [turn, ends, turn, flip]):
        with shown(subject) as draft:
            x, y = numbered(draft, (4, 4)), given(draft, np.zeros((4, 4)), "int32")
            draft.append({"do": "realize", "names": [x, y]})
            draft.append({"do": "assign", "target": y, "from": [moved(draft, x, *chain)]})
            draft.append({"do": "store", "target": x, "from": [given(draft, [[-1, -2]], "int32")],
                          "view": [{"do": "shrink", "bounds": [[1, 2], [1, 3]]}]})
            draft.append({"do": "store", "target": y, "from": [given(draft, [[-3]], "int32")],
                          "view": [{"do": "shrink", "bounds": [[0, 1], [3, 4]]}]})


@verifies("statements.movement.axes")
def test_movements_by_each_number(subject: Subject) -> None:
    """Bounds, steps, widths and lengths from one to some hundred."""
    few = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 18, 19, 24, 31, 32, 33, 47, 63, 64, 65, 95)
    for shape in ((100,), (3, 100), (2, 100, 2)):
        axis = min(1, len(shape) - 1)

        def along(value: object, other: object, axis: int = axis, rank: int = len(shape),
                  ) -> list[object]:
            return [value if each == axis else other for each in range(rank)]

        whole = [[0, size] for size in shape]
        steps: list[Statement] = [
            {"do": "shrink", "bounds": [[n, n + 5] if each == axis else pair
                                        for each, pair in enumerate(whole)]} for n in few]
        steps += [{"do": "stride", "steps": along(n, 1)} for n in (*few, 99, 100)]
        steps += [{"do": "pad", "widths": along([n, 1], [0, 0])} for n in few[::2]]
        steps += [{"do": "pad", "widths": along([2, n], [0, 0])} for n in few[1::2]]
        cut: list[list[Statement]] = [
            [{"do": "shrink", "bounds": [[0, n + 1] if each == axis else pair
                                         for each, pair in enumerate(whole)]},
             {"do": "flip", "axes": [axis]}] for n in few]
        chains = [*([step] for step in steps), *cut]
        _each(subject, shape, subject.part(chains, at_least=TOGETHER))


@verifies("statements.movement.chain")
def test_movements_that_come_back_to_the_shape_but_not_to_the_value(subject: Subject) -> None:
    """What looks like nothing by its shape: turned, moved along, and turned again otherwise."""
    for shape in ((3, 3, 3), (4, 4), (2, 2, 2, 2)):
        rank, size = len(shape), shape[0]
        whole = [[0, size]] * rank
        turns: list[list[Statement]] = [
            [{"do": "permute", "order": list(order)}] for order in permutations(range(rank))][1:]
        turns += [[{"do": "flip", "axes": list(axes)}] for count in range(1, rank + 1)
                  for axes in combinations(range(rank), count)]
        moves: list[list[Statement]] = [
            [{"do": "pad", "widths": [[1, 2], *[[0, 0]] * (rank - 1)]},
             {"do": "shrink", "bounds": [[first, first + size], *whole[1:]]}]
            for first in (0, 1, 2, 3)]
        moves += [[{"do": "shrink", "bounds": [*whole[1:], [first, first + size - 1]]},
                   {"do": "pad", "widths": [*[[0, 0]] * (rank - 1), [last, 1 - last]]}]
                  for first in (0, 1) for last in (0, 1)]
        moves += [[{"do": "shrink", "bounds": [[first, first + 1], *whole[1:]]},
                   {"do": "expand", "shape": list(shape)}] for first in range(size)]
        moves += [[{"do": "stride", "steps": [2] * rank},
                   {"do": "pad", "widths": [[0, size - -(-size // 2)]] * rank}]]
        flat: list[Statement] = [{"do": "reshape", "shape": [size, size ** (rank - 1)]}]
        back: list[Statement] = [{"do": "reshape", "shape": list(shape)}]
        every = {2: 1, 3: 2, 4: 11}[rank]
        chains = [[*one, *other] for one, other in product(turns, turns)][::every]
        chains += [[*one, *other] for one in turns[::2] for other in moves]
        chains += moves
        chains += [[*flat, {"do": "flip", "axes": [axis]}, *back, *turn]
                   for axis in (0, 1) for turn in turns[::3]]
        if rank == 2:
            chains += [[{"do": "reshape", "shape": [2, 8]}, {"do": "flip", "axes": [axis]},
                        {"do": "reshape", "shape": [8, 2]}, *back] for axis in (0, 1)]
        _each(subject, shape, subject.part(chains, at_least=TOGETHER))


@verifies("statements.movement.chain")
def test_each_window_of_what_was_moved(subject: Subject) -> None:
    """Within what was there before, at its edges and beside it: two movements may be one, or none.
    """
    size = 5
    firsts: list[Statement] = [{"do": "pad", "widths": [list(pair)]}
                               for pair in product(range(3), repeat=2) if any(pair)]
    firsts += [{"do": "flip", "axes": [0]}, *({"do": "stride", "steps": [by]} for by in (2, 3)),
               *({"do": "shrink", "bounds": [each]} for each in ([1, 5], [0, 4], [2, 5]))]
    chains: list[list[Statement]] = []
    for first in firsts:
        ends = range(shapes.moved(first, (size,))[0] + 1)
        chains += [[first, {"do": "shrink", "bounds": [list(window)]}]
                   for window in combinations(ends, 2)]
    _each(subject, (size,), subject.part(chains, at_least=4 * TOGETHER))
    pairs = ([2, 1], [0, 2], [1, 0])
    chains = [[{"do": "pad", "widths": [one, other]},
               {"do": "shrink", "bounds": [[one[0] + first, one[0] + first + 2],
                                           [other[0] + second, other[0] + second + 2]]}]
              for one, other in product(pairs, repeat=2)
              for first, second in product((-1, 0, 1), repeat=2)
              if one[0] + first >= 0 and other[0] + second >= 0]
    _each(subject, (3, 3), subject.part(chains, at_least=2 * TOGETHER))


@verifies("statements.movement.chain")
def test_windows_of_one_value_in_one_place(subject: Subject) -> None:
    """Parts that are padded to where they were, or moved all alike: each ends somewhere else."""
    for moved_by in (0, 1, 2):
        draft = Draft()
        x = numbered(draft, (8,))
        names = []
        for start, stop in ((0, 8 - moved_by), (0, 3), (2, 6), (5, 8 - moved_by), (1, 2), (3, 3)):
            part = draft.add("shrink", x, bounds=[[start, stop]])
            widths = [[start + moved_by, 8 - moved_by - stop]]
            names.append(draft.add("pad", part, widths=widths))
        names.append(draft.add("pad", draft.add("shrink", x, bounds=[[0, 8 - moved_by]]),
                               widths=[[moved_by, 0]]))
        _woven(draft, names)
        draft.append({"do": "observe", "names": [names[0], list(draft.kinds)[-1]]})
        subject.check_declared(protocol.program(draft.statements))
    draft = Draft()
    x, names = numbered(draft, (4, 5)), []
    for rows, columns in (((0, 4), (0, 5)), ((1, 3), (0, 5)), ((0, 4), (2, 4)), ((1, 4), (1, 4))):
        part = draft.add("shrink", x, bounds=[list(rows), list(columns)])
        names.append(draft.add("pad", part, widths=[[rows[0], 4 - rows[1]],
                                                    [columns[0], 5 - columns[1]]]))
    _woven(draft, names)
    draft.append({"do": "observe", "names": [list(draft.kinds)[-1]]})
    subject.check_declared(protocol.program(draft.statements))
