"""Memory is shared only by what is never alive together.  Chapter: spec/memory.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from conformance.generators import packing_programs, programs, table_programs
from conformance.oracle import checker
from conformance.protocol import Program
from conformance.runner.subject import PROFILES, Failure, Subject, same_values
from conformance.suite import after, verifies
from conformance.suite.test_fusion import apart, unfused

WITHOUT_PLANNER = {"NO_MEMORY_PLANNER": 1}
#: Rows and columns of a table that nobody makes one kernel of because it is small.
LARGE = 130
#: Of so many temporaries a plan that claims to be the least has to be it.
FEW = 40


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


@verifies("memory.reuse.disjoint+2")
@after("effects.value.eager")
def test_what_does_not_fit_in_place_is_read_before_it_is_overwritten(subject: Subject) -> None:
    """Tables of one size: each made of the one before in one way, and of others in many."""
    count = PROFILES[subject.profile].examples
    ways, seeds = range(len(table_programs.WAYS)), range(subject.seed * count,
                                                         (subject.seed + 1) * count)
    alone, usual = apart(subject), dict[str, Any]()
    asked = [(table_programs.chain(way, 7 if way % 2 else 24), alone) for way in ways]
    asked += [(table_programs.between_sums(way, LARGE, other), usual)
              for way in table_programs.LINES for other in (False, True)]
    asked += [(table_programs.random_program(seed, 5 + seed % 3), alone if seed % 2 else usual)
              for seed in seeds]
    for program, options in asked:
        if not subject.supports(program):
            subject.skipped += 1
            continue

        def check(each: Program, options: Mapping[str, Any] = options) -> None:
            subject.check_values(each, **options)

        subject.check_smallest(program, check)


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


@verifies("memory.reuse.disjoint+2", observe="memory")
@after("effects.value.eager")
def test_temporaries_that_fill_memory_without_a_gap(subject: Subject) -> None:
    """What one of them loses to another is seen in the values, and in the document."""
    met = 0
    for seed in subject.part(range(24)):
        program = packing_programs.packed(packing_programs.boxes(seed))
        if not subject.supports(program):
            subject.skipped += 1
            continue
        for document in subject.check_values(program, "memory", "schedule",
                                             **apart(subject)).schedule:
            met += meetings(document)
            if wrong := [str(finding) for finding in checker.check_memory(document)]:
                raise Failure("; ".join(wrong[:4]), program)
    if subject.examples:
        subject.met(met, "no two temporaries were ever alive together")


@verifies("memory.plan.claimed", observe="memory")
@after("memory.reuse.disjoint")
def test_a_frugal_plan_needs_no_more_than_is_necessary(subject: Subject) -> None:
    """Of temporaries that fill a rectangle, if none of them lies where a simple method puts it."""
    chosen = [packing_programs.boxes(seed) for seed in subject.part(packing_programs.HARD,
                                                                    at_least=8)]
    _wastes_nothing(subject, [(packing_programs.packed(each), packing_programs.least(each))
                              for each in chosen])


@verifies("memory.plan.claimed", observe="memory")
@after("memory.reuse.disjoint")
def test_a_frugal_plan_of_temporaries_with_holes_between_them(subject: Subject) -> None:
    """The most that is alive at one time is not always enough, and what is, is needed."""
    chosen = map(packing_programs.boxes_with_holes, packing_programs.WITH_HOLES)
    _wastes_nothing(subject, [(packing_programs.packed(each, padded=True), enough)
                              for each, enough in chosen])


def _wastes_nothing(subject: Subject, asked: Sequence[tuple[Program, int]]) -> None:
    """A frugal plan needs no more than is enough for each of these programs."""
    subject.require_frugal("memory")
    met = 0
    for program, enough in asked:
        if not subject.supports(program):
            subject.skipped += 1
            continue
        for document in subject.check_values(program, "memory", "schedule",
                                             **apart(subject)).schedule:
            if wasted := wasteful(document, enough):
                raise Failure(wasted, program)
            met += meetings(document)
    if subject.examples:
        subject.met(met, "no two temporaries were ever alive together")


def wasteful(document: Mapping[str, Any], enough: int) -> str:
    """What is wrong with a plan for few temporaries, of which it is known how much they need."""
    memory = document.get("memory", {"placements": (), "planned": 0})
    if len(memory["placements"]) > FEW or memory["planned"] <= enough:
        return ""
    return (f"{memory['planned']} bytes are planned for {len(memory['placements'])} temporaries, "
            f"where {enough} are enough")
