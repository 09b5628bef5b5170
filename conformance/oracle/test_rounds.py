"""Rounds of transfers: right ones, and one mistake at a time."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from conformance.oracle import checker, rounds
from conformance.oracle.test_checker import right
from conformance.protocol import Document

Rounds = list[dict[str, list[list[Any]]]]


def ring(group: list[int], given: str = "value") -> Rounds:
    """An all-reduce of 8 bytes among two: each keeps what it has, adds, and hands on a half."""
    one, two = group
    return [
        _round((one, one, 0, 8, "source", "put"), (two, two, 0, 8, "source", "put")),
        _round((one, two, 0, 4, given, "combine"), (two, one, 4, 8, given, "combine")),
        _round((one, two, 4, 8, given, "put"), (two, one, 0, 4, given, "put"))]


def _round(*moves: tuple[int, int, int, int, str, str]) -> dict[str, list[list[Any]]]:
    return {"sends": [[a, b, start, stop, what] for a, b, start, stop, what, _ in moves],
            "receives": [[b, a, start, stop, how] for a, b, start, stop, _, how in moves]}


def sending(*groups: list[int]) -> Document:
    """The right document, in which kernels are all-reduces among four devices, one after another.

    In each one group takes part.
    """
    document = right()
    for number, group in enumerate(groups, 1):
        document["kernels"][number]["collective"] = {
            "kind": "all-reduce", "devices": list("ABCD"), "own": [0, 1, 2, 3],
            "groups": [group], "bytes": 8, "rounds": ring(group)}
    return document


def found(*documents: Document) -> str:
    return "\n".join(map(str, checker.check(*documents) if len(documents) == 1 else
                         checker.check_together(documents)))


def test_right_rounds_have_no_findings() -> None:
    assert not found(sending([0, 1], [1, 2], [2, 3]))


Spoil = Callable[[Rounds], object]


@pytest.mark.parametrize(("rule", "says", "spoil"), [
    (rounds.MATCHED, "B waits in kernel 1 (all-reduce) for A to take what it sends; and A is at "
     "its end", lambda found: found[2]["receives"].pop()),
    (rounds.MATCHED, "A waits in kernel 1 (all-reduce) for B to send what it receives; and B is "
     "at its end", lambda found: found[2]["sends"].pop()),
    (rounds.MATCHED, "for A", lambda found: found[1]["sends"][1].__setitem__(3, 7)),  # shorter
    (rounds.MATCHED, "and so on in a circle", lambda found: [  # each sends before it receives
        found[1].update(sends=[[0, 1, 0, 4, "value"]], receives=[[1, 0, 4, 8, "put"]]),
        found[2].update(sends=[[1, 0, 4, 8, "value"]], receives=[[0, 1, 0, 4, "put"]]),
        found[1].update(receives=[]), found[2].update(receives=[])]),
    (rounds.COMPLETE, "bytes 0 to 4 of A are made of those of A, and not of those of A and those "
     "of B", lambda found: found.pop()),
    (rounds.COMPLETE, "those of A and those of A and those of B",
     lambda found: found.insert(2, deepcopy(found[1]))),
    (rounds.COMPLETE, "those of B +1 bytes on",
     lambda found: found[0]["sends"][1].__setitem__(slice(2, 4), [1, 9])),
    (rounds.COMPLETE, "those of nobody", lambda found: found[0]["receives"].__delitem__(0)
     or found[0]["sends"].__delitem__(0)),
    ("schedule.document.schema", "not one of its own",
     lambda found: found[1]["sends"][0].__setitem__(0, 4)),
])
def test_a_mistake_is_found(rule: str, says: str, spoil: Spoil) -> None:
    document = sending([0, 1])
    spoil(document["kernels"][1]["collective"]["rounds"])
    assert rule in found(document) and says in found(document)


def apart(document: Document, own: int) -> Document:
    """What a process that has one of the devices lists."""
    mine = deepcopy(document)
    for kernel in mine["kernels"]:
        if "collective" in kernel:
            kernel["collective"]["own"] = [own]
            for each in kernel["collective"]["rounds"]:
                for side, moves in each.items():
                    each[side] = [move for move in moves if move[0] == own]
    return mine


def test_processes_that_wait_for_each_other_are_found() -> None:
    """Three groups of two: each process is in two of them, and begins with another one."""
    mine = [apart(sending([0, 1], [1, 2], [2, 0]), own) for own in range(3)]
    assert not found(*mine)
    assert not found(mine[0])  # of one alone nothing can be said
    for own, document in enumerate(mine):
        document["order"] = [0, *[1 + (own + turn) % 3 for turn in range(3)], 4]
    assert "circle" in found(*mine)
    waits = "A waits in kernel 1 (all-reduce) for B to take what it sends; B waits in kernel 2 " \
        "(all-reduce) for C to take what it sends; C waits in kernel 3 (all-reduce) for A"
    assert f"{rounds.MATCHED}: {waits}" in found(*mine)


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-to-all", "permute"])
def test_what_the_members_have_to_have(kind: str) -> None:
    told = {"kind": kind, "bytes": 8, "shift": 1}
    wanted = {
        "all-gather": [(0, 8, (("A", 0),)), (8, 16, (("B", -8),))],
        "reduce-scatter": [(0, 4, (("A", 4), ("B", 4)))],
        "all-to-all": [(0, 4, (("A", 4),)), (4, 8, (("B", 0),))],
        "permute": [(0, 8, (("A", 0),))]}
    assert list(rounds.wanted(told, ["A", "B"], 1)) == wanted[kind]
