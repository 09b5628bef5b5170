"""Memory is shared only by what is never alive together.  Chapter: spec/memory.md."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from conformance.generators import programs
from conformance.oracle import checker
from conformance.protocol import Program
from conformance.runner.subject import Failure, Subject, same_values
from conformance.suite import after, verifies
from conformance.suite.test_fusion import apart, unfused

WITHOUT_PLANNER = {"NO_MEMORY_PLANNER": 1}


def with_temporaries(program: Program) -> Program:
    """The program unfused, with nothing alive at its end but the last variable."""
    *statements, last = unfused(program)["statements"]
    if last["do"] != "observe":
        return program
    *hidden, kept = last["names"]
    drop = [{"do": "drop", "names": hidden}] if hidden else []
    return {**program, "statements": [*statements, *drop, {"do": "observe", "names": [kept]}]}


def meetings(document: dict[str, Any]) -> int:
    """How many pairs of temporaries are alive at one position."""
    spans = [(each["first"], each["last"])
             for each in document.get("memory", {}).get("placements", ())]
    return sum(one[0] <= other[1] and other[0] <= one[1] for one, other in combinations(spans, 2))


def _no_findings(subject: Subject, rule: str) -> None:
    """No memory plan breaks the rule; and there were temporaries that could be in the way."""
    met = 0

    def check(program: Program) -> None:
        nonlocal met
        for document in subject.documents(with_temporaries(program), **apart(subject)):
            met += meetings(document)
            wrong = [str(finding) for finding in checker.check_memory(document)
                     if finding.rule == rule]
            if wrong:
                raise Failure("; ".join(wrong), program)

    subject.for_programs(check, rule="memory.reuse.disjoint", share=2.0)
    subject.met(met, "no two temporaries were ever alive together")


@verifies("memory.reuse.disjoint+2", observe="memory")
def test_what_is_alive_together_shares_no_byte(subject: Subject) -> None:
    _no_findings(subject, "memory.reuse.disjoint")


@verifies("memory.lifetime.covers+2", observe="memory")
def test_a_buffer_has_memory_from_its_first_use_to_its_last(subject: Subject) -> None:
    _no_findings(subject, "memory.lifetime.covers")


@verifies("memory.alignment.arena", observe="memory")
def test_places_are_aligned_and_inside_their_arena(subject: Subject) -> None:
    _no_findings(subject, "memory.alignment.arena")


@verifies("memory.planned.bounds", observe="memory")
def test_planned_memory_lies_between_its_bounds(subject: Subject) -> None:
    _no_findings(subject, "memory.planned.bounds")


@verifies("memory.off.equal")
@after("effects.value.eager")
def test_values_are_the_same_without_a_plan(subject: Subject) -> None:
    subject.require(setting="NO_MEMORY_PLANNER")

    def same(program: Program) -> None:
        for variant in (program, with_temporaries(program)):
            planned = subject.check_values(variant, **apart(subject))
            unplanned = subject.check_values(variant, **apart(subject, **WITHOUT_PLANNER))
            different = same_values(planned, unplanned)
            if different:
                raise Failure(f"{different} differ without the memory planner", variant)

    subject.for_programs(same, rule="memory.off.equal")


@verifies("memory.poison.unseen")
@after("effects.value.eager")
def test_nothing_reads_memory_that_was_freed(subject: Subject) -> None:
    subject.require("memory")  # who says nothing of memory may not know how to poison it

    def same(program: Program) -> None:
        subject.check_values(program, poison=True)
        subject.check_values(with_temporaries(program), poison=True, **apart(subject))

    subject.for_programs(same, rule="memory.reuse.disjoint", share=0.5)


@verifies("memory.search.deterministic", observe="memory")
@after("effects.value.eager")
def test_two_processes_make_the_same_plan(subject: Subject) -> None:
    """Processes whose hashes of strings differ, where there is such a thing."""
    chosen = [with_temporaries(each) for number in range(6)
              if subject.supports(each := programs.random_program(number, 14))]
    plans: list[list[Any]] = []
    placed = 0
    for hash_seed in ("1", "2"):
        other = subject.elsewhere(PYTHONHASHSEED=hash_seed)
        try:
            documents = [other.documents(program, **apart(subject)) for program in chosen]
        finally:
            other.close()
        subject.examples += other.examples
        plans.append([[document.get("memory") for document in each] for each in documents])
        placed += sum(len(document.get("memory", {}).get("placements", ()))
                      for each in documents for document in each)
    for program, one, two in zip(chosen, *plans, strict=True):
        if one != two:
            raise Failure("two processes placed its temporaries differently", program)
    subject.met(placed, "no schedule had a temporary")
