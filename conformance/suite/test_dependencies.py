"""Kernels that touch the same bytes run in the order that the values need.  Chapter:
spec/dependencies.md."""

from __future__ import annotations

from conformance.oracle import checker
from conformance.protocol import Program
from conformance.runner.subject import Failure, Subject
from conformance.suite import after, verifies


def _no_findings(subject: Subject, rule: str, kind: str) -> None:
    """No document breaks the rule; and there were hazards of the kind that it could break."""
    hazards = 0
    subject.require_stated("dependencies")

    def check(program: Program) -> None:
        nonlocal hazards
        documents = subject.documents(program)
        hazards += sum(hazard.kind == kind for document in documents
                       for hazard in checker.hazards(document))
        wrong = [str(finding) for document in documents for finding in checker.check(document)
                 if finding.rule == rule]
        if wrong:
            raise Failure("; ".join(wrong), program)

    subject.for_programs(check)
    # A rule that nothing tries has not been verified.
    subject.met(hazards, f"no program made a {kind} hazard")


@verifies("dependencies.raw.order", observe="schedule")
@after("effects.value.eager")
def test_a_reader_runs_after_the_writer_of_what_it_reads(subject: Subject) -> None:
    _no_findings(subject, "dependencies.raw.order", "RAW")


@verifies("dependencies.war.order", observe="schedule")
@after("effects.value.eager")
def test_a_writer_runs_after_the_readers_of_what_it_overwrites(subject: Subject) -> None:
    _no_findings(subject, "dependencies.war.order", "WAR")


@verifies("dependencies.waw.order", observe="schedule")
@after("effects.value.eager")
def test_writers_run_in_the_order_of_their_versions(subject: Subject) -> None:
    _no_findings(subject, "dependencies.waw.order", "WAW")


@verifies("dependencies.ranges.disjoint", observe="schedule")
@after("effects.value.eager")
def test_accesses_to_disjoint_bytes_do_not_wait_for_each_other(subject: Subject) -> None:
    _no_findings(subject, "dependencies.ranges.disjoint", "RAW")
