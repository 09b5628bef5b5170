"""Writes that go into memory which still holds other values.  Chapter: spec/placement.md."""

from __future__ import annotations

from itertools import permutations

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.protocol import Program, Statement
from conformance.runner.subject import Subject
from conformance.suite import after, verifies


def _draft(*shapes: tuple[int, ...]) -> Draft:
    """Realized inputs t0, t1, ... of these shapes."""
    draft = Draft()
    for number, shape in enumerate(shapes):
        draft.add("input", dtype="float32", shape=list(shape),
                  data=protocol.encode(programs.pattern("float32", shape, number)))
    draft.append({"do": "realize", "names": list(draft.kinds)})
    return draft


def _observed(draft: Draft, *names: str) -> Program:
    names = names or tuple(draft.kinds)
    realize: Statement = {"do": "realize", "names": list(names)}
    return protocol.program([*draft.statements, realize, {"do": "observe", "names": list(names)}])


@verifies("placement.in-place.safe")
@after("effects.value.eager")
def test_a_value_that_moves_within_itself(subject: Subject) -> None:
    """x = flip(x), x = transposed(x), x = x + flip(x), ...: no element is lost on the way."""
    moves: list[tuple[str, dict[str, object]]] = [
        ("flip", {"axes": [0]}), ("flip", {"axes": [1]}), ("flip", {"axes": [0, 1]}),
        ("permute", {"order": [1, 0]}), ("cumsum", {"axis": 0}), ("cumsum", {"axis": 1})]
    for (do, fields), plus in ((move, plus) for move in moves for plus in (False, True)):
        draft = _draft((4, 4))
        value = draft.add(do, "t0", **fields)
        if plus:
            value = draft.add("add", "t0", value)
        draft.append({"do": "assign", "target": "t0", "from": [value]})
        subject.check_whole(_observed(draft, "t0"))


@verifies("placement.held.kept")
@after("effects.value.eager")
def test_what_is_held_outlives_every_write(subject: Subject) -> None:
    """A history of a value: each entry stays what it was, whatever is written later."""
    for do, fields in (("copy", {}), ("contiguous", {}), ("reshape", {"shape": [2, 2]}),
                       ("flip", {"axes": [0]})):
        draft = _draft((4,), (4,))
        kept = []
        for _ in range(4):
            kept.append(draft.add(do, "t0", **fields))
            following = draft.add("add", "t0", "t1")
            draft.append({"do": "assign", "target": "t0", "from": [following]})
            draft.append({"do": "drop", "names": [following]})
        subject.check_whole(_observed(draft, "t0", *kept))


@verifies("placement.version.one-successor")
@after("effects.value.eager")
def test_two_that_were_given_one_value_part_again(subject: Subject) -> None:
    for realized in (False, True):
        draft = _draft((4,), (4,), (4,), (2,))
        value = draft.add("add", "t0", "t1")
        for target in ("t0", "t1", "t2"):
            draft.append({"do": "assign", "target": target, "from": [value]})
        if realized:
            draft.append({"do": "realize", "names": ["t0", "t1", "t2"]})
        for start, target in enumerate(("t0", "t1")):
            draft.append({"do": "store", "target": target, "from": ["t3"],
                          "view": [{"do": "shrink", "bounds": [[start, start + 2]]}]})
        subject.check_whole(_observed(draft, "t0", "t1", "t2", value))


@verifies("placement.cycle.copied")
@after("effects.value.eager")
def test_values_change_places(subject: Subject) -> None:
    """Two, and three in each order, as they are and computed from each other."""
    for count in (2, 3):
        for order in permutations(range(count)):
            for way in ((), ("neg",), ("neg", "neg")):
                draft = _draft(*[(3,)] * count)
                new = [f"t{each}" for each in order]
                for do in way or ("copy",):
                    new = [draft.add(do, each) for each in new]
                for target, value in enumerate(new):
                    draft.append({"do": "assign", "target": f"t{target}", "from": [value]})
                draft.append({"do": "drop", "names": [each for each in draft.kinds
                                                      if each not in ("t0", "t1", "t2")]})
                subject.check_whole(_observed(draft))
