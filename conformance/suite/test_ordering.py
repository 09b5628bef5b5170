"""One legal order, always the same; every other legal order gives the same values.  Chapter:
spec/ordering.md."""

from __future__ import annotations

import json

from conformance import protocol
from conformance.generators import packing_programs, programs
from conformance.generators.programs import Draft
from conformance.oracle import checker
from conformance.protocol import Document, Program
from conformance.runner.subject import Failure, NotClaimed, Subject, same_values
from conformance.suite import after, verifies
from conformance.suite.test_fusion import apart
from conformance.suite.test_memory import with_temporaries


@verifies("ordering.legal.permutation", observe="schedule")
@after("effects.value.eager")
def test_the_order_is_a_permutation_of_the_kernels(subject: Subject) -> None:
    kernels = 0

    def check(program: Program) -> None:
        nonlocal kernels
        for document in subject.documents(program):
            kernels += len(document["kernels"])
            wrong = [str(finding) for finding in checker.check(document)
                     if finding.rule.startswith("ordering.")]
            if wrong:
                raise Failure("; ".join(wrong), program)

    subject.for_programs(check)
    subject.met(kernels, "no program made a kernel")


@verifies("ordering.any-legal.equal", observe="order")
@after("effects.value.eager", "dependencies.raw.order", "dependencies.war.order",
       "dependencies.waw.order")
def test_every_legal_order_gives_the_same_values(subject: Subject) -> None:
    reordered = 0

    def same(program: Program) -> None:
        nonlocal reordered
        usual = subject.check_values(program, "order", "schedule")
        _check_orders(program, usual.schedule, usual.order)
        for document, order in zip(usual.schedule, usual.order, strict=False):
            if list(document["order"]) != order:
                raise Failure(f"the document says that the kernels run in the order "
                              f"{document['order']}, and they ran in the order {order}", program)
        for seed in range(3):
            seen = subject.check_values(program, "order", "schedule", order_seed=seed)
            _check_orders(program, seen.schedule, seen.order)
            reordered += sum(list(document["order"]) != order
                             for document, order in zip(usual.schedule, seen.order, strict=False))
            different = same_values(usual, seen)
            if different:
                raise Failure(f"{different} depend on the order {seen.order}", program)

    subject.for_programs(same, rule="ordering.any-legal.equal")
    twice = programs.witnesses()["second-run-keeps-the-first"]  # two schedules, and they are alike
    if subject.supports(twice):
        subject.check_smallest(twice, same)
    subject.met(reordered, "no order differed from the usual one")


@verifies("ordering.any-legal.equal", observe="order")
@after("effects.value.eager")
def test_values_that_come_and_go_in_any_order(subject: Subject) -> None:
    """Chains that need memory by turns, and do not depend on each other: no order is the one for
    which memory was planned."""
    draft, ends, reordered = Draft(), list[str](), 0
    for number in range(5):
        array = programs.pattern("float32", (6, 6), number)
        value = draft.add("input", dtype="float32", shape=[6, 6], data=protocol.encode(array))
        for turn in range(3):
            value = draft.add("cumsum", value, axis=turn % 2)
            value = draft.add("contiguous", draft.add("permute", value, order=[1, 0]))
            value = draft.add("max", draft.add("minimum", value, draft.constant(
                draft.kinds[value], 50)), axes=[turn % 2], keepdims=True)
            value = draft.add("expand", value, shape=[6, 6])
        ends.append(draft.add("contiguous", value))
    draft.append({"do": "drop", "names": [each for each in draft.kinds if each not in ends]})
    draft.append({"do": "observe", "names": ends})
    program = protocol.program(draft.statements)
    if not subject.supports(program):
        raise NotClaimed("it uses what is not declared")
    usual = subject.check_values(program, "order", "schedule")
    subject.met(sum(len(each["kernels"]) for each in usual.schedule), "it made no kernel")
    for seed in range(6):
        seen = subject.check_values(program, "order", "schedule", order_seed=seed)
        reordered += seen.order != usual.order
        again = subject.check_values(program, "order", "schedule")
        for document, order in zip(again.schedule, again.order, strict=False):
            if findings := checker.check(document):
                raise Failure(f"after a run in another order: {findings[0]}", program)
            if list(document["order"]) != order:
                raise Failure(f"after a run in another order, the document says that the kernels "
                              f"run in the order {document['order']}, and they ran in the order "
                              f"{order}", program)
    subject.met(reordered, "no order differed from the usual one")


def _check_orders(program: Program, documents: list[Document], orders: list[list[int]]) -> None:
    if len(documents) != len(orders):
        raise Failure(f"{len(orders)} orders were reported for {len(documents)} schedules",
                      program)
    for document, order in zip(documents, orders, strict=False):
        wrong = checker.check_order(document, order)
        if wrong:
            raise Failure("; ".join(map(str, wrong)), program)


@verifies("ordering.deterministic.same", observe="schedule")
@after("effects.value.eager")
def test_two_processes_make_the_same_schedule(subject: Subject) -> None:
    """Two fresh processes, whose hashes of strings differ, where there is such a thing."""
    chosen = [each for each in programs.witnesses().values() if subject.supports(each)]
    chosen += [each for number in range(6)
               if subject.supports(each := programs.random_program(number))]
    seen = []
    for hash_seed in ("1", "2"):
        other = subject.elsewhere(PYTHONHASHSEED=hash_seed)
        try:
            documents = [other.documents(program) for program in chosen]
        finally:
            other.close()
        subject.examples += other.examples
        seen.append(list(map(_stable, documents)))
        kernels = sum(len(document["kernels"]) for each in documents for document in each)
        subject.met(kernels, "no program made a kernel")
    for program, one, two in zip(chosen, *seen, strict=False):
        if one != two:
            raise Failure("two processes made different schedules", program)


def _stable(documents: list[Document]) -> str:
    """The documents as text, without whether a cache was hit."""
    return json.dumps([{key: field for key, field in document.items() if key != "cache"}
                       | {"key": document.get("cache", {}).get("key")}
                       for document in documents], sort_keys=True)


@verifies("ordering.peak.claimed", observe="schedule")
@after("ordering.legal.permutation")
def test_a_frugal_order_has_no_higher_peak_than_that_of_the_numbers(subject: Subject) -> None:
    subject.require_frugal("order")
    alive = 0

    def check(program: Program) -> None:
        nonlocal alive
        for document in subject.documents(program, **apart(subject)):
            alive += peak(document, document["order"])
            numbers = sorted(document["order"])
            if not checker.check_order(document, numbers):
                _no_higher(document, numbers, program)

    subject.for_programs(lambda program: check(with_temporaries(program)))
    for program in map(packing_programs.graph, packing_programs.GRAPHS):
        if subject.supports(program):
            check(program)
    subject.met(alive, "no schedule had a temporary")


@verifies("ordering.chains.claimed", observe="schedule")
@after("ordering.legal.permutation")
def test_a_frugal_order_runs_one_chain_after_the_other(subject: Subject) -> None:
    """Chains whose temporaries grow or shrink, written one by one and all together."""
    subject.require_frugal("order")
    alive = 0
    for number, sizes in enumerate(((8, 4), (1, 7), (6, 3, 1), (1, 2, 5), (5,), (9, 2, 1, 1))):
        for together in (True, False):
            program = packing_programs.chains(3 + number % 3, sizes, together)
            if not subject.supports(program):
                subject.skipped += 1
                continue
            for document in subject.documents(program, **apart(subject)):
                alive += peak(document, document["order"])
                _no_higher(document, chain_by_chain(document), program)
    if subject.examples:
        subject.met(alive, "no schedule had a temporary")


def _no_higher(document: Document, other: list[int], program: Program) -> None:
    mine, least = peak(document, document["order"]), peak(document, other)
    if mine > least:
        raise Failure(f"{mine} bytes of temporaries are alive at once in the order "
                      f"{document['order']}, and {least} in the order {other}", program)


def peak(document: Document, order: list[int]) -> int:
    """The most bytes of temporaries that are alive at once, if the kernels run in this order."""
    handed_over = {**document.get("memory", {"alignment": 1}), "placements": []}
    return checker.lower_bounds({**document, "order": order, "memory": handed_over})[0]


def chain_by_chain(document: Document) -> list[int]:
    """The kernels in the order of their numbers, but each behind all of the chains before its own.

    A chain is named by the first of its kernels.
    """
    chain = {kernel: kernel for kernel in document["order"]}
    for kernel in document["order"]:
        before = [chain[each["before"]] for each in document["dependencies"]
                  if each["after"] == kernel]
        chain[kernel] = min([kernel, *before])
    place = {kernel: position for position, kernel in enumerate(document["order"])}
    return sorted(document["order"], key=lambda kernel: (chain[kernel], place[kernel]))
