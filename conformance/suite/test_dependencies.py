"""Kernels that touch the same bytes run in the order that the values need.  Chapter:
spec/dependencies.md."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.oracle import checker
from conformance.protocol import Program, Statement
from conformance.runner.subject import Failure, Subject
from conformance.suite import after, verifies
from conformance.suite.test_fusion import apart


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


#: Writes of eight elements, and of four of them, that nobody reads before the next one.
WRITES: dict[str, tuple[int, Statement]] = {
    "whole": (8, {"do": "assign"}),
    "turned": (8, {"do": "store", "view": [{"do": "flip", "axes": [0]}]}),
    "the middle": (4, {"do": "store", "view": [{"do": "shrink", "bounds": [[2, 6]]}]}),
    "the end": (4, {"do": "store", "view": [{"do": "shrink", "bounds": [[4, 8]]}]})}


@verifies("dependencies.waw.order", observe="schedule")
@after("effects.value.eager")
def test_writers_of_each_kind_run_one_after_the_other(subject: Subject) -> None:
    """Two and three in a row; the value of the first takes longer, or that of the last."""
    hazards = 0
    subject.require_stated("dependencies")

    def check(program: Program) -> None:
        nonlocal hazards
        documents = subject.documents(program)
        hazards += sum(map(len, map(checker.hazards, documents)))
        wrong = [str(finding) for document in documents for finding in checker.check(document)
                 if finding.rule == "dependencies.waw.order"]
        if wrong:
            raise Failure("; ".join(wrong), program)
        for seed in range(3) if "order" in subject.info.observes else ():
            subject.check_values(program, order_seed=seed)

    for names in (*product(WRITES, repeat=2), ("whole", "the end", "whole"),
                  ("the middle", "whole", "the end"), ("turned", "the end", "the middle")):
        for late in (0, len(names) - 1):
            program = _written(names, late)
            if subject.supports(program):
                subject.check_smallest(program, check)
    subject.met(hazards, "no program made a hazard")


def _written(names: Sequence[str], late: int) -> Program:
    """Writes to one value, of which one has to be computed first."""
    draft = Draft()
    target = draft.add("input", dtype="int32", shape=[8],
                       data=protocol.encode(programs.pattern("int32", (8,), 0)))
    made = []
    for number, name in enumerate(names):
        size, _ = WRITES[name]
        value = draft.add("input", dtype="int32", shape=[size], data=protocol.encode(
            programs.pattern("int32", (size,), number + 1)))
        for _ in range(3 if number == late else 0):
            value = draft.add("cumsum", draft.add("flip", value, axes=[0]), axis=0)
        made.append(value)
    draft.append({"do": "realize", "names": [target, *(
        each for number, each in enumerate(made) if number != late)]})
    for value, name in zip(made, names, strict=True):
        draft.append({**WRITES[name][1], "target": target, "from": [value]})
    draft.append({"do": "observe", "names": [target]})
    return protocol.program(draft.statements)


@verifies("dependencies.ranges.disjoint", observe="schedule")
@after("effects.value.eager")
def test_accesses_to_disjoint_bytes_do_not_wait_for_each_other(subject: Subject) -> None:
    _no_findings(subject, "dependencies.ranges.disjoint", "RAW")


#: Elements of sixteen: neighbours, a part with a gap, and one within another.
PARTS = ((0, 4), (4, 8), (9, 16), (5, 7))


@verifies("dependencies.ranges.disjoint", observe="schedule")
@after("effects.value.eager")
def test_neighbours_that_share_no_byte_do_not_wait(subject: Subject) -> None:
    """The lower or the upper one first; each of the two writes, or one of them reads."""
    subject.require_stated("dependencies")
    touched = 0

    def check(program: Program) -> None:
        nonlocal touched
        documents = subject.check_values(program, "schedule").schedule
        touched += sum(len(document["kernels"]) > 1 for document in documents)
        wrong = [str(finding) for document in documents if document["kernels"]  # else it is silent
                 for finding in checker.check(document)]
        if wrong:
            raise Failure("; ".join(wrong), program)

    for first, second in permutations(PARTS, 2):
        for one, other in (("write", "write"), ("read", "write"), ("write", "read")):
            program = _of_parts((*first, one), (*second, other))
            if subject.supports(program):
                subject.check_smallest(program, check)
            else:
                subject.skipped += 1
    if subject.examples:
        subject.met(touched, "no two parts of a value were touched by two kernels")


@verifies("dependencies.waw.order", observe="schedule")
@after("effects.value.eager")
def test_who_was_overwritten_in_part_is_still_waited_for(subject: Subject) -> None:
    """The second of four writes is half overwritten by the third; the last touches its rest.  And
    parts that end at one element and begin at several, of which not all are overwritten."""
    subject.require_stated("dependencies")
    hazards = 0

    def check(program: Program) -> None:
        nonlocal hazards
        documents = [document for options in ({}, apart(subject)) for document in
                     subject.check_values(program, "schedule", **options).schedule]
        for document in documents:
            hazards += len([*checker.hazards(document)])
            if document["kernels"] and (wrong := checker.check(document)):
                raise Failure("; ".join(map(str, wrong)), program)

    for last in ("write", "read"):
        asked = [_of_parts((*first, "write"), (2, 8, "write"), (0, 4, "write"), (5, 7, last))
                 for first in ((8, 12), (9, 16), (12, 13))]
        asked += [_of_parts((12, 16, kind), (4, 16, kind), (4, 8, last), (0, 16, "read"))
                  for kind in ("write", "read")]
        asked.append(_of_parts((4, 16, "write"), (12, 16, "write"), (4, 8, last)))
        for program in asked:
            if subject.supports(program):
                subject.check_smallest(program, check)
            else:
                subject.skipped += 1
    if subject.examples:
        subject.met(hazards, "no kernel touched what another one wrote")


def _of_parts(*touches: tuple[int, int, str]) -> Program:
    """A value of sixteen elements of which parts are written, or read, one after the other."""
    statements: list[Statement] = [
        {"do": "input", "to": "state", "dtype": "int32", "shape": [16], "data": "01000000" * 16}]
    for number, (start, stop, kind) in enumerate(touches):
        part = {"do": "shrink", "bounds": [[start, stop]]}
        if kind == "write":
            statements += [{"do": "constant", "to": f"v{number}", "dtype": "int32",
                            "shape": [stop - start], "value": number + 2},
                           {"do": "store", "target": "state", "from": [f"v{number}"],
                            "view": [part]}]
        else:
            statements += [{**part, "to": f"p{number}", "from": ["state"]},
                           {"do": "neg", "to": f"v{number}", "from": [f"p{number}"]}]
    names = [f"v{number}" for number, (_, _, kind) in enumerate(touches) if kind == "read"]
    return protocol.program([*statements, {"do": "observe", "names": ["state", *names]}])

