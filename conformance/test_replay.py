"""What is captured once and replayed does what running it afresh would do.  Chapter:
spec/replay.md."""

from __future__ import annotations

from conformance import programs
from conformance.protocol import Program, Statement
from conformance.runner import after
from conformance.subject import Subject
from conformance.trace import verifies


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


@verifies("replay.outputs.distinct", observe="replay")
@after("effects.value.eager")
def test_outputs_that_are_held_keep_their_values(subject: Subject) -> None:
    """In this tier the values observed in a `repeat` are read after its last iteration."""
    subject.for_programs(lambda program: _check(subject, program),
                         rule="replay.outputs.distinct", share=0.1)


def _check(subject: Subject, program: Program) -> None:
    subject.check_values(program, "replay")
