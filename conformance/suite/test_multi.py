"""Several devices: copies between them change no value, and schedules say who waits for them.

The tier `multi`.  Its rules stand in the chapters device, effects, schedule, dependencies,
ordering, memory and replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from conformance import protocol
from conformance.generators import multi_programs, programs
from conformance.generators.programs import Draft
from conformance.oracle import checker
from conformance.protocol import Document, Program, Statement
from conformance.protocol.shapes import Kind
from conformance.runner.subject import Failure, NotClaimed, Refused, Subject, same_values
from conformance.suite import after, verifies
from conformance.suite.test_fusion import apart
from conformance.suite.test_memory import with_temporaries


def _for_placed(subject: Subject, check: Callable[[Program], None], *, rule: str = "",
                share: float = 1.0,
                change: Callable[[Program], Program] = lambda program: program) -> None:
    """Apply a check to programs that were changed, and then spread over the devices.

    They are the witnesses of a rule (all without one) and generated ones, as in `for_programs`.
    """
    subject.require("multi")
    chosen: list[Program] = []
    subject.for_programs(chosen.append, rule=rule, share=share)
    copies = 0
    for number, program in enumerate(chosen):
        spread = multi_programs.placed(change(program), number, len(subject.info.devices))
        if subject.supports(spread):
            copies += multi_programs.transfers(spread)
            try:
                subject.check_smallest(spread, check)
            except Refused:
                continue
    if not copies:
        raise NotClaimed("no program with a copy uses only what is declared")


# Values ------------------------------------------------------------------------------------


@verifies("device.several.equal", observe="multi")
@after("effects.value.eager")
def test_programs_on_several_devices_have_the_values_of_one(subject: Subject) -> None:
    def check(program: Program) -> None:
        subject.check_values(program)

    subject.require("multi")
    check(_written_and_copied())
    _for_placed(subject, check)


def _written_and_copied() -> Program:
    """A copy of what was written just before: one that runs earlier has the old elements."""
    draft = Draft()
    source = _input(draft, np.arange(6, dtype=np.float32))
    value = draft.constant(Kind("float32", (2,)), -1)
    draft.append({"do": "store", "target": source, "from": [value],
                  "view": [{"do": "shrink", "bounds": [[1, 3]]}]})
    draft.append({"do": "observe", "names": [draft.add("copy", source, device=1)]})
    return protocol.program(draft.statements)


@verifies("device.copy.exact", observe="multi")
def test_what_is_copied_there_and_back_has_the_same_bits(subject: Subject) -> None:
    subject.require("multi")
    for dtype, shape in product(subject.info.dtypes, ((7,), (3, 5), (0,), ())):
        draft = Draft()
        array = programs.pattern(dtype, shape, 3)
        if dtype in protocol.FLOATS and array.size:
            array.reshape(-1)[-1] = -0.0
        there = draft.add("copy", _input(draft, array), device=1)
        back = draft.add("copy", draft.add("copy", there, device=1), device=0)
        draft.append({"do": "observe", "names": [there, back]})

        def same(program: Program, data: str = protocol.encode(array)) -> None:
            if any(value.data != data for value in subject.check_values(program).values):
                raise Failure("a copy has other bits than its source", program)

        subject.check_smallest(protocol.program(draft.statements), same)


def _input(draft: Draft, array: protocol.Array) -> str:
    return draft.add("input", dtype=array.dtype.name, shape=list(array.shape),
                     data=protocol.encode(array))


def _written() -> Iterator[Program]:
    """A copy on the other device, and then a write to its source, to it, or to both of them.

    In each a copy comes back that was made before the writes, and one that was made after.
    """
    ways: list[Statement] = [
        {"do": "assign"}, {"do": "store", "view": []},
        {"do": "store", "view": [{"do": "shrink", "bounds": [[1, 3]]}]},
        {"do": "store", "view": [{"do": "flip", "axes": [0]}]}]
    for way, (of_source, of_copy), early in product(
            ways, ((True, False), (False, True), (True, True)), (True, False)):
        draft = Draft()
        source = _input(draft, np.arange(1, 5, dtype=np.float32))
        kept = draft.add("neg", source)
        there = draft.add("copy", source, device=1)
        before = draft.add("copy", there, device=0)
        if early:
            draft.append({"do": "realize", "names": [source, there]})
        for target, is_written in ((source, of_source), (there, of_copy)):
            if is_written:
                _write(draft, way, target)
        after_write = draft.add("copy", source, device=1)
        both = draft.add("add", there, after_write)
        draft.append({"do": "observe", "names": [both, before, kept, there, source]})
        yield protocol.program(draft.statements)


def _write(draft: Draft, way: Statement, target: str) -> None:
    """Write the sum of a variable, or of a region of it, with itself to it."""
    value = target
    for step in way.get("view", ()):
        value = draft.add(step["do"], value, **{key: field for key, field in step.items()
                                                if key != "do"})
    draft.append({**way, "target": target, "from": [draft.add("add", value, value)]})


@verifies("device.several.equal", observe="multi")
def test_a_copy_of_which_nothing_is_read_is_in_nobodys_way(subject: Subject) -> None:
    subject.require("multi")
    for devices in ((1,), (1, 0), (0, 1)):
        draft = Draft()
        copied = draft.add("neg", _input(draft, np.ones(5, np.float32)))
        for device in devices:
            copied = draft.add("copy", copied, device=device)
        nothing = draft.add("shrink", copied, bounds=[[2, 2]])
        draft.append({"do": "drop", "names": [copied]})
        draft.append({"do": "observe", "names": [nothing]})
        subject.check_whole(protocol.program(draft.statements))


@verifies("effects.variable.isolated", observe="multi")
def test_a_copy_on_another_device_is_a_value_of_its_own(subject: Subject) -> None:
    """A write to its source does not reach it, and a write to it does not reach its source."""
    subject.require("multi")
    for program in _written():
        subject.check_whole(program)


# Schedules ---------------------------------------------------------------------------------


def _no_findings(subject: Subject, rule: str, met: Callable[[Document], int], what: str) -> None:
    """No document breaks the rule, and there was something in them that could have."""
    subject.require("multi", "schedule")
    found = 0

    def check(program: Program) -> None:
        nonlocal found
        documents = subject.documents(program)
        found += sum(map(met, documents))
        wrong = [str(finding) for document in documents for finding in checker.check(document)
                 if finding.rule == rule]
        if wrong:
            raise Failure("; ".join(wrong), program)

    for program in (_equal_constants(), _of_nothing(), *_written()):
        if subject.supports(program):
            subject.check_smallest(program, check)
    _for_placed(subject, check, share=0.5)
    subject.met(found, f"no program made {what}")


@verifies("schedule.document.devices+2", observe="multi")
@after("effects.value.eager", "schedule.document.schema")
def test_only_copies_join_two_devices(subject: Subject) -> None:
    _no_findings(subject, "schedule.document.devices",
                 lambda document: len(checker.joins(document)) * (_used(document) > 1),
                 "kernels of two devices and a copy between them")


@verifies("schedule.document.buffers", observe="multi")
@after("effects.value.eager", "schedule.document.schema")
def test_results_lie_on_the_devices_of_the_program(subject: Subject) -> None:
    subject.require("multi", "schedule")
    draft = Draft()
    source = _input(draft, np.arange(5, dtype=np.float32))
    draft.append({"do": "realize", "names": [source]})
    there = draft.add("neg", draft.add("copy", source, device=1))
    here = draft.add("pad", source, widths=[[1, 1]])
    draft.append({"do": "realize", "names": [there, here]})
    draft.append({"do": "observe", "names": [there, here]})
    program = protocol.program(draft.statements)
    if not subject.supports(program):
        raise NotClaimed("it uses what is not declared")
    documents = [each for each in subject.documents(program) if each["kernels"]]
    results = {buffer["bytes"]: buffer["device"]
               for document in documents for buffer in document["buffers"]
               if buffer["id"] in document["outputs"]}
    subject.met(len(results) == 2, "not both results are outputs of a schedule")
    if results[20] == results[28]:
        raise Failure(f"values of two devices are said to lie on {results[20]}", program)


def _independent() -> Program:
    """Chains through two devices that wait for each other only at their ends."""
    draft = Draft()
    sources = [_input(draft, np.arange(number, number + 4, dtype=np.float32)) for number in (1, 3)]
    draft.append({"do": "realize", "names": sources})
    there = [draft.add("copy", draft.add("neg", source), device=1) for source in sources]
    back = [draft.add("copy", draft.add("contiguous", draft.add("abs", each)), device=0)
            for each in there]
    both = draft.add("add", *back)
    for source in sources:
        draft.append({"do": "assign", "target": source, "from": [both]})
    names = [both, *sources, *there]
    draft.append({"do": "realize", "names": names})
    draft.append({"do": "observe", "names": names})
    return protocol.program(draft.statements)


def _equal_constants() -> Program:
    """A constant that is copied and kept, and on the other device the same for a position."""
    draft = Draft()
    rows = draft.add("copy", _input(draft, np.ones((1, 2), np.float32)), device=1)
    zero = draft.add("constant", dtype="int32", shape=[1, 1], value=0)
    position = draft.add("copy", zero, device=1)
    names = [zero, draft.add("gather", rows, position)]
    draft.append({"do": "realize", "names": names})
    draft.append({"do": "observe", "names": names})
    return protocol.program(draft.statements)


def _of_nothing() -> Program:
    """Sums over no elements, on the other device: nothing that lies there is read for them."""
    draft = Draft()
    nothing, some = (draft.add("copy", _input(draft, np.ones((2, width), np.float32)), device=1)
                     for width in (0, 1))
    total = draft.add("sum", nothing, axes=[1], keepdims=True)
    names = [total, draft.add("add", total, some)]
    draft.append({"do": "realize", "names": names})
    draft.append({"do": "observe", "names": names})
    return protocol.program(draft.statements)


def _used(document: Document) -> int:
    """How many devices have a kernel in a document."""
    return len({each["device"] for each in document["kernels"] if each["kind"] == "kernel"})


def _at_copies(kind: str, end: str) -> Callable[[Document], int]:
    """How many hazards of a kind a document has with such a copy `before` or `after`."""
    def count(document: Document) -> int:
        copies = set(checker.joins(document))
        return sum(hazard.kind == kind and getattr(hazard, end) in copies
                   for hazard in checker.hazards(document))
    return count


@verifies("dependencies.raw.order", observe="multi")
@after("effects.value.eager", "schedule.document.schema")
def test_a_copy_runs_after_the_writer_of_its_source(subject: Subject) -> None:
    subject.require_stated("dependencies")
    _no_findings(subject, "dependencies.raw.order", _at_copies("RAW", "after"),
                 "a copy of what was written")


@verifies("dependencies.war.order", observe="multi")
@after("effects.value.eager", "schedule.document.schema")
def test_a_writer_runs_after_the_copies_of_what_it_overwrites(subject: Subject) -> None:
    subject.require_stated("dependencies")
    _no_findings(subject, "dependencies.war.order", _at_copies("WAR", "before"),
                 "a write to the source of a copy")


@verifies("ordering.any-legal.equal", observe="multi")
@after("effects.value.eager", "dependencies.raw.order", "dependencies.war.order",
       "dependencies.waw.order")
def test_every_legal_order_of_copies_gives_the_same_values(subject: Subject) -> None:
    subject.require("multi", "schedule", "order")
    reordered = 0

    def same(program: Program) -> None:
        nonlocal reordered
        usual = subject.check_values(program, "schedule")
        for seed in (1, 2):
            seen = subject.check_values(program, "order", "schedule", order_seed=seed)
            for document, order in zip(seen.schedule, seen.order, strict=True):
                wrong = checker.check_order(document, order)
                if wrong:
                    raise Failure("; ".join(map(str, wrong)), program)
            reordered += sum(bool(checker.joins(document)) and list(document["order"]) != order
                             for document, order in zip(usual.schedule, seen.order, strict=False))
            different = same_values(usual, seen)
            if different:
                raise Failure(f"{different} depend on the order {seen.order}", program)

    if subject.supports(_independent()):
        subject.check_smallest(_independent(), same)
    _for_placed(subject, same, share=0.5)
    subject.met(reordered, "no order with a copy differed from the usual one")


@verifies("memory.alignment.arena", observe="multi")
@after("effects.value.eager", "schedule.document.schema")
def test_temporaries_lie_in_an_arena_of_their_device(subject: Subject) -> None:
    subject.require("multi", "memory")
    arenas = 0

    def check(program: Program) -> None:
        nonlocal arenas
        for document in subject.documents(program, **apart(subject)):
            places = document.get("memory", {"placements": ()})["placements"]
            where = {each["id"]: each["device"] for each in document["buffers"]}
            arenas += len({where[each["buffer"]] for each in places}) > 1
            wrong = [str(finding) for finding in checker.check_memory(document)
                     if finding.rule.startswith("memory.")]
            if wrong:
                raise Failure("; ".join(wrong), program)

    _for_placed(subject, check, share=0.5, change=with_temporaries)
    subject.met(arenas, "no two devices had temporaries in one schedule")


# Replay ------------------------------------------------------------------------------------


@verifies("replay.devices.each", observe="multi")
@after("effects.value.eager", "replay.state.eager")
def test_copies_are_replayed(subject: Subject) -> None:
    """Each call copies what its own call made: states that advance, and values handed out."""
    subject.require("multi", "replay")
    devices = len(subject.info.devices)
    for program in (_nothing_returned(), *multi_programs.advancing(devices)):
        if subject.supports(program):
            subject.check_smallest(program, lambda each: _replayed(subject, each))
    _for_placed(subject, lambda each: _replayed(subject, each), rule="effects.value.eager",
                share=0.5, change=programs.repeated)


def _replayed(subject: Subject, program: Program) -> None:
    subject.check_values(program, "replay")


def _nothing_returned() -> Program:
    """A replay returns a tensor without elements: it lies where it lay, and is written there."""
    draft = Draft()
    source = _input(draft, np.ones(3, np.float32))
    body: list[Statement] = [
        {"do": "copy", "to": "there", "from": [source], "device": 1},
        {"do": "shrink", "to": "part", "from": ["there"], "bounds": [[1, 1]]},
        {"do": "sub", "to": "nothing", "from": ["part", "part"]}]
    return protocol.program([
        *draft.statements, {"do": "repeat", "count": 5, "statements": body},
        {"do": "assign", "target": "nothing", "from": ["part"]},
        {"do": "add", "to": "both", "from": ["nothing", "part"]},
        {"do": "shrink", "to": "none", "from": ["there"], "bounds": [[2, 2]]},
        {"do": "assign", "target": "nothing", "from": ["none"]},
        {"do": "observe", "names": ["both", "nothing"]}])


@verifies("fusion.cut.device+2", observe="multi")
@after("effects.value.eager", "schedule.document.schema")
def test_a_copy_to_another_device_does_nothing_else(subject: Subject) -> None:
    """It reads one value and writes as many bytes of another one."""
    subject.require("multi", "schedule")
    copies = 0

    def plain(program: Program) -> None:
        nonlocal copies
        for document in subject.documents(program):
            kernels = {each["id"]: each for each in document["kernels"]}
            for number in checker.joins(document):
                sizes = [[each["stop"] - each["start"] for each in kernels[number][field]]
                         for field in ("reads", "writes")]
                copies += 1
                if len(sizes[0]) != 1 or sizes[0] != sizes[1]:
                    raise Failure(f"copy {number} reads {sizes[0]} and writes {sizes[1]} bytes",
                                  program)

    _for_placed(subject, plain, share=0.5)
    subject.met(copies, "no schedule had a copy to another device")
