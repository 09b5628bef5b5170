"""What is captured once and replayed does what running it afresh would do.  Chapter:
spec/replay.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.protocol import Program, Statement
from conformance.runner.subject import Refused, Subject
from conformance.suite import after, verifies


def repeated(program: Program, count: int = 5) -> Program:
    """The program with everything but its inputs repeated, the values observed each time."""
    sources: list[Statement] = []
    body: list[Statement] = []
    for statement in programs.without(program, "drop", "repeat")["statements"]:
        (sources if statement["do"] == "input" else body).append(statement)
    names = [statement["to"] for statement in sources]
    realize = [{"do": "realize", "names": names}] if names else []
    return {**program, "statements": [*sources, *realize,
                                      {"do": "repeat", "count": count, "statements": body}]}


@verifies("replay.state.eager", observe="replay")
@after("effects.value.eager")
def test_states_advance_at_every_replay(subject: Subject) -> None:
    subject.for_programs(lambda program: _check(subject, program), rule="replay.state.eager",
                         share=0.1)
    subject.for_programs(lambda program: _check(subject, repeated(program)),
                         rule="effects.value.eager", share=0.5)


@verifies("replay.state.eager", observe="replay")
def test_a_state_that_nobody_returns_advances(subject: Subject) -> None:
    """The body assigns, and hands out nothing; with and without computing it at once."""
    draft = Draft()
    state = draft.add("input", dtype="float32", shape=[2], data="0000803f00000040")
    body: list[Statement] = [{"do": "add", "to": "next", "from": [state, state]},
                             {"do": "assign", "target": state, "from": ["next"]}]
    for last in ([], [{"do": "realize", "names": [state]}]):
        repeat = {"do": "repeat", "count": 5, "statements": [*body, *last]}
        subject.check_whole(protocol.program([*draft.statements, repeat,
                                              {"do": "observe", "names": [state]}]), "replay")


@verifies("replay.outputs.distinct", observe="replay")
@after("effects.value.eager")
def test_outputs_that_are_held_keep_their_values(subject: Subject) -> None:
    """In this tier the values observed in a `repeat` are read after its last iteration."""
    subject.for_programs(lambda program: _check(subject, program),
                         rule="replay.outputs.distinct", share=0.1)


def _check(subject: Subject, program: Program) -> None:
    subject.check_values(program, "replay")


def called(inputs: int, given: Sequence[dict[str, Any]], nested: int,
           body: Sequence[Statement], watched: bool = False) -> Program:
    """Inputs t0, t1, ... and calls of a body: its last result, or with `watched` all of them."""
    draft = Draft()
    for number in range(inputs):
        array = programs.pattern("float32", (2,), number)
        draft.add("input", dtype="float32", shape=[2], data=protocol.encode(array))
    observe = {"do": "observe", "names": [body[-1]["to"]]}
    calls = {"do": "calls", "given": list(given), "nested": nested,
             "statements": [*body, *([observe] if watched else [])]}
    return protocol.program([*draft.statements, calls, *([] if watched else [observe])])


def _right_or_refused(subject: Subject, program: Program) -> None:
    try:
        subject.check_whole(program, "replay")
    except Refused:
        pass


GIVEN: list[dict[str, Any]] = [{"x": name} for name in ("t0", "t0", "t1", "t2", "t1")]
NEGATE: list[Statement] = [{"do": "neg", "to": "out", "from": ["x"]}]


@verifies("replay.outputs.distinct", observe="replay")
def test_results_of_several_calls_are_several_values(subject: Subject) -> None:
    subject.check_whole(called(3, GIVEN, 0, NEGATE, watched=True), "replay")


@verifies("replay.arguments.call", observe="replay")
def test_numbers_among_the_arguments_are_those_of_the_call(subject: Subject) -> None:
    """The same number in each call, and then another one."""
    constant: Statement = {"do": "constant", "to": "c", "dtype": "float32",
                           "shape": [2], "value": {"given": "k"}}
    body: list[Statement] = [constant, {"do": "mul", "to": "out", "from": ["t0", "c"]}]
    for numbers in ([2, 2, 2, 2], [2, 3, 4, 5], [0.5, 0.5, 0.5, 1.5], [1, 1, 1, -1]):
        _right_or_refused(subject, called(1, [{"k": each} for each in numbers], 0, body))


@verifies("replay.arguments.call", observe="replay")
def test_tensors_in_containers_are_those_of_the_call(subject: Subject) -> None:
    for nested in range(4):
        _right_or_refused(subject, called(3, GIVEN, nested, NEGATE))
