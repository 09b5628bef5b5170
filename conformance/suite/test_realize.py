"""What runs when values are asked for.  Chapter: spec/realize.md."""

from __future__ import annotations

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.protocol import Program, Statement
from conformance.runner.subject import Failure, NotClaimed, Subject
from conformance.suite import after, verifies


def _table(*later: Statement) -> Program:
    """z, a table of all products of two realized rows, is realized; then these statements."""
    draft = Draft()
    for number, shape in enumerate(([6, 1], [1, 6])):
        array = programs.pattern("float32", (6,), number)
        draft.add("input", dtype="float32", shape=shape, data=protocol.encode(array))
    draft.append({"do": "realize", "names": ["t0", "t1"]})
    return protocol.program([*draft.statements, {"do": "matmul", "to": "z", "from": ["t0", "t1"]},
                             {"do": "realize", "names": ["z"]}, *later])


@verifies("realize.value.once", observe="schedule")
@after("effects.value.eager")
def test_what_is_in_memory_is_not_computed_again(subject: Subject) -> None:
    """Who asks for z again runs nothing; who asks for something of z reads that and no row."""
    observe: Statement = {"do": "observe", "names": ["z"]}
    following: list[Statement] = [{"do": "neg", "to": "w", "from": ["z"]},
                                  {"do": "realize", "names": ["w", "z"]},
                                  {"do": "observe", "names": ["w", "z"]}]
    if not subject.supports(_table(*following)):
        raise NotClaimed("it uses what is not declared")
    first = subject.documents(_table(observe))
    subject.met(sum(len(each["kernels"]) for each in first), "no kernel made the table")
    for later, kernels in (([{"do": "realize", "names": ["z"]}, observe], 0), (following, 1)):
        program = _table(*later)
        subject.check_values(program)
        documents = subject.documents(program)[len(first):]
        ran = [kernel for document in documents for kernel in document["kernels"]]
        read = {each["buffer"] for kernel in ran for each in kernel["reads"]}
        if len(ran) > kernels or len(read) > kernels:
            raise Failure(f"{len(ran)} kernels more read {len(read)} buffers: what was in memory "
                          "was computed again", program)
