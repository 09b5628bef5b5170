"""A schedule is a document.  Chapter: spec/schedule.md."""

from __future__ import annotations

from conformance import protocol
from conformance.oracle import checker
from conformance.protocol import Program
from conformance.runner.subject import Failure, Subject
from conformance.suite import after, verifies


@verifies("schedule.document.schema", observe="schedule")
@after("effects.value.eager")
def test_documents_follow_the_schema_and_speak_of_what_is_in_them(subject: Subject) -> None:
    kernels = 0

    def check(program: Program) -> None:
        nonlocal kernels
        try:
            documents = subject.documents(program)
        except protocol.ProtocolError as error:
            raise Failure(str(error), program) from error
        kernels += sum(len(document["kernels"]) for document in documents)
        wrong = [str(finding) for document in documents for finding in checker.check(document)
                 if finding.rule == "schedule.document.schema"]
        if wrong:
            raise Failure("; ".join(wrong), program)

    subject.for_programs(check)
    subject.met(kernels, "no program made a kernel")
