"""Where kernels begin and end changes no value, and has a reason.  Chapter: spec/fusion.md."""

from __future__ import annotations

from conformance.generators import programs
from conformance.oracle import checker
from conformance.protocol import EXPRESSIONS, SOURCES, Program
from conformance.runner.subject import Failure, NotClaimed, Subject
from conformance.suite import after, verifies


def unfused(program: Program) -> Program:
    """The program with a boundary after each of its expressions."""
    statements = []
    for statement in programs.without(program, "realize")["statements"]:
        statements.append(statement)
        if statement["do"] in EXPRESSIONS and statement["do"] not in SOURCES:
            name = statement["to"]
            statements.append({"do": "contiguous", "to": name, "from": [name]})
    return {**program, "statements": statements}


def apart(subject: Subject, **settings: int) -> dict[str, dict[str, int]]:
    """Options under which an implementation that can fuses nothing: so there are temporaries."""
    unfused_too = {"FUSE": 0} if "FUSE" in subject.info.settings else {}
    return {"settings": {**unfused_too, **settings}} if unfused_too or settings else {}


@verifies("fusion.value.equal")
@after("effects.value.eager")
def test_fused_programs_and_unfused_ones_are_both_right(subject: Subject) -> None:
    """Both are compared with the oracle: rounding may differ where the policy says so."""
    def both(program: Program) -> None:
        subject.check_values(programs.without(program, "realize"))
        subject.check_values(unfused(program))

    subject.for_programs(both, rule="fusion.value.equal")


@verifies("fusion.value.equal")
@after("effects.value.eager")
def test_no_setting_changes_a_value(subject: Subject) -> None:
    if not subject.info.settings:
        raise NotClaimed("no setting is declared")

    def each(program: Program) -> None:
        for setting in subject.info.settings:
            for value in (0, 1):
                subject.check_values(program, settings={setting: value})

    subject.for_programs(each, rule="fusion.value.equal", share=0.25)


@verifies("fusion.boundary.reason", observe="schedule")
def test_every_boundary_has_a_reason(subject: Subject) -> None:
    boundaries, stated = 0, True

    def reasoned(program: Program) -> None:
        nonlocal boundaries, stated
        documents = [*subject.documents(unfused(program)),
                     *subject.documents(unfused(program), **apart(subject))]
        stated = all("boundaries" in each for each in documents)
        if not stated:
            raise NotClaimed("its documents state no boundaries")
        boundaries += sum(len(each["boundaries"]) for each in documents)
        wrong = [str(finding) for document in documents for finding in checker.check(document)
                 if finding.rule.startswith("fusion.")]
        if wrong:
            raise Failure("; ".join(wrong), program)

    subject.for_programs(reasoned, rule="fusion.value.equal")
    if not stated:
        raise NotClaimed("its documents state no boundaries")
    subject.met(boundaries, "no value passed from a kernel to another")


@verifies("fusion.group.acyclic", observe="schedule")
@after("effects.value.eager")
def test_no_kernels_wait_for_each_other_in_a_circle(subject: Subject) -> None:
    edges = 0
    subject.require_stated("dependencies")

    def free(program: Program) -> None:
        nonlocal edges
        for document in subject.documents(program):
            waiting = {(each["before"], each["after"]) for each in document["dependencies"]}
            edges += len(waiting)
            kernels = {each["id"] for each in document["kernels"]}
            while ready := kernels - {later for earlier, later in waiting if earlier in kernels}:
                kernels -= ready
            if kernels:
                raise Failure(f"kernels {sorted(kernels)} wait for each other", program)

    subject.for_programs(free)
    subject.met(edges, "no kernel waited for another one")
