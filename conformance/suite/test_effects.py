"""Values are versions: what is written later is not seen earlier.  Chapter: spec/effects.md."""

from __future__ import annotations

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.oracle.checker import check
from conformance.protocol import Observation, Program, Statement, shapes
from conformance.protocol.shapes import Kind
from conformance.runner.explaining import described
from conformance.runner.subject import PROFILES, Failure, NotClaimed, Subject, same_values
from conformance.suite import after, verifies


@verifies("effects.value.eager")
def test_every_value_is_the_one_an_eager_interpreter_shows(subject: Subject) -> None:
    subject.for_programs(lambda program: _check(subject, program))


def _check(subject: Subject, program: Program) -> None:
    subject.check_values(program)


@verifies("effects.value.eager")
def test_laziness_is_not_observable(subject: Subject) -> None:
    """The same values with no `realize` at all, and with one after every statement."""
    def same(program: Program) -> None:
        subject.check_values(programs.without(program, "realize"))
        subject.check_values(_realizing_each(program))

    subject.for_programs(same, rule="effects.value.eager", share=0.5)


def _realizing_each(program: Program) -> Program:
    statements = []
    for statement in program["statements"]:
        statements.append(statement)
        name = statement.get("to", statement.get("target"))
        if name:
            statements.append({"do": "realize", "names": [name]})
    return {**program, "statements": statements}


@verifies("effects.view-write.region")
def test_a_write_through_a_view_changes_exactly_its_region(subject: Subject) -> None:
    for shape in ((6,), (2, 3), (3, 2, 2), (4, 4), (1,), (0,), ()):
        for choice in range(48):
            subject.check_whole(_write(shape, choice, realized=choice % 3 > 0))


def _write(shape: tuple[int, ...], choice: int, realized: bool) -> Program:
    """A tensor, a reader, a write to the region number `choice`, another reader."""
    draft = Draft()
    array = programs.pattern("int32", shape, 4)
    target = draft.add("input", dtype="int32", shape=list(shape), data=protocol.encode(array))
    if realized:
        draft.append({"do": "realize", "names": [target]})
    draft.add("add", target, target)
    view = list(programs.region_view(shape, choice))
    region = Kind("int32", shapes.view_shape(shape, view))
    array = programs.pattern("int32", region.shape, 9) + 100
    value = draft.add("input", dtype="int32", shape=list(region.shape),
                      data=protocol.encode(array))
    draft.append({"do": "store", "target": target, "view": view, "from": [value]})
    draft.add("neg", target)
    draft.append({"do": "observe", "names": list(draft.kinds)})
    return protocol.program(draft.statements)


@verifies("effects.view-write.region")
def test_overlapping_moves_within_one_buffer(subject: Subject) -> None:
    """t[i:i+n] = t[j:j+n], for every pair of overlapping regions, as it is and reversed."""
    size, length = 6, 4
    for start in range(size - length + 1):
        for origin in range(size - length + 1):
            for turned in (False, True):
                draft = Draft()
                array = programs.pattern("float32", (size,), 0)
                target = draft.add("input", dtype="float32", shape=[size],
                                   data=protocol.encode(array))
                draft.append({"do": "realize", "names": [target]})
                value = draft.add("shrink", target, bounds=[[origin, origin + length]])
                if turned:
                    value = draft.add("flip", value, axes=[0])
                region = {"do": "shrink", "bounds": [[start, start + length]]}
                draft.append({"do": "store", "target": target, "view": [region],
                              "from": [value]})
                draft.append({"do": "observe", "names": [target, value]})
                subject.check_whole(protocol.program(draft.statements))


@verifies("effects.view-write.region")
def test_two_regions_change_places(subject: Subject) -> None:
    """t[:n], t[n:] = t[n:], t[:n], with temporaries of several sorts between."""
    for way in ((), ("contiguous",), ("copy",), ("neg", "neg")):
        draft = Draft()
        target = draft.add("input", dtype="float32", shape=[4],
                           data=protocol.encode(programs.pattern("float32", (4,), 0)))
        halves = ([[0, 2]], [[2, 4]])
        kept = [draft.add("shrink", target, bounds=half) for half in halves]
        for do in way:
            kept = [draft.add(do, name) for name in kept]
        for half, value in zip(halves, reversed(kept), strict=True):
            draft.append({"do": "store", "target": target, "from": [value],
                          "view": [{"do": "shrink", "bounds": half}]})
        draft.append({"do": "observe", "names": [target]})
        subject.check_whole(protocol.program(draft.statements))


@verifies("effects.variable.isolated")
def test_a_write_changes_no_other_variable(subject: Subject) -> None:
    subject.for_programs(lambda program: _check(subject, program),
                         rule="effects.variable.isolated", share=0.25)
    for do, fields in (("reshape", {"shape": [4]}), ("permute", {"order": [1, 0]}),
                       ("flip", {"axes": [0]}), ("contiguous", {}), ("copy", {}),
                       ("shrink", {"bounds": [[0, 2], [0, 2]]})):
        for written in (0, 1):
            draft = Draft()
            draft.add("input", dtype="uint8", shape=[2, 2], data="01020304")
            draft.add(do, "t0", **fields)
            zero = draft.constant(draft.kinds[f"t{written}"], 0)
            draft.append({"do": "store", "target": f"t{written}", "view": [], "from": [zero]})
            draft.append({"do": "observe", "names": ["t0", "t1"]})
            subject.check_whole(protocol.program(draft.statements))


@verifies("effects.realize.order-independent+2")
@after("effects.value.eager")
def test_the_order_within_a_realize_does_not_matter(subject: Subject) -> None:
    def same(program: Program) -> None:
        one = subject.check_values(program)
        other = subject.check_values(programs.realizing_reversed(program))
        different = same_values(one, other)
        if different:
            raise Failure(f"{different} depend on the order of names in a realize", program)

    subject.for_programs(same, rule="effects.realize.order-independent", share=0.5)


@verifies("effects.version.single-writer", observe="schedule")
@after("effects.value.eager")
def test_each_version_has_one_writer(subject: Subject) -> None:
    subject.require_stated("versions")
    overwritten = 0

    def single(program: Program) -> None:
        nonlocal overwritten
        documents = subject.documents(program)
        overwritten += sum(write["version"] > 1 for document in documents
                           for kernel in document["kernels"] for write in kernel["writes"])
        wrong = [str(finding) for document in documents for finding in check(document)
                 if finding.rule == "effects.version.single-writer"]
        if wrong:
            raise Failure("; ".join(wrong), program)

    subject.for_programs(single)
    subject.met(overwritten, "no buffer was ever written twice")


@verifies("effects.value.eager")
def test_hypothesis_finds_nothing(subject: Subject) -> None:
    """The same law under hypothesis, which looks for many hazards."""
    try:
        import hypothesis
    except ImportError as reason:
        raise NotClaimed("hypothesis is not installed") from reason
    examples = PROFILES[subject.profile].examples

    @hypothesis.settings(max_examples=10 * examples if subject.deep else examples + 3,
                         deadline=None, derandomize=not subject.deep, database=None,
                         report_multiple_bugs=False,
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(programs.strategy())
    def explore(program: Program) -> None:
        hypothesis.assume(program["statements"] and subject.supports(program))
        kinds = [statement["do"] for statement in program["statements"]]
        for do in set(kinds) & set(protocol.EFFECTS):
            hypothesis.event(do)
        try:
            observation = _obeyed(subject, program)
        except Exception as error:  # the implementation's own too: it is the finding
            raise Failure(described(error), program) from error
        hypothesis.target(sum(len(each["dependencies"]) for each in observation.schedule)
                          or float(kinds.count("store")), label="hazards")

    try:
        explore()
    except Failure as failure:
        if failure.witness:  # hypothesis leaves choices that it could not make smaller
            subject.check_smallest(failure.witness, lambda each: _obey(subject, each))
        raise


def _obey(subject: Subject, program: Program) -> None:
    _obeyed(subject, program)


def _obeyed(subject: Subject, program: Program) -> Observation:
    """What a program shows, if its values are right and the checker finds nothing."""
    tiers = ["schedule"] if "schedule" in subject.info.observes else []
    observation = subject.check_values(program, *tiers)
    wrong = [str(each) for document in observation.schedule for each in check(document)]
    if wrong:
        raise Failure("; ".join(wrong[:4]), program)
    return observation


def _overwritten(*statements: Statement) -> Program:
    """t0 and t1, realized; then these statements."""
    draft = Draft()
    for number in range(2):
        array = programs.pattern("float32", (4,), number)
        draft.add("input", dtype="float32", shape=[4], data=protocol.encode(array))
    draft.append({"do": "realize", "names": ["t0", "t1"]})
    return protocol.program([*draft.statements, *statements])


@verifies("effects.view-write.empty")
def test_a_write_of_nothing_changes_nothing(subject: Subject) -> None:
    for start in range(5):
        for step in ({"do": "flip", "axes": [0]}, {"do": "stride", "steps": [2]}):
            nothing = {"do": "shrink", "bounds": [[start, start]]}
            subject.check_whole(_overwritten(
                {"do": "neg", "to": "before", "from": ["t0"]},
                {"do": "shrink", "to": "none", "from": ["t1"], "bounds": [[2, 2]]},
                {"do": "store", "target": "t0", "view": [nothing, step], "from": ["none"]},
                {"do": "observe", "names": ["t0", "t1", "before"]}))


@verifies("effects.war.rescue")
@after("effects.value.eager")
def test_who_waits_for_memory_that_is_overwritten_gets_the_old_value(subject: Subject) -> None:
    """Only the overwritten value is asked for; its readers of before are looked at afterwards."""
    for do in ("neg", "copy", "abs"):
        for write in ({"do": "assign", "target": "t0", "from": ["t1"]},
                      {"do": "store", "target": "t0", "from": ["t1"],
                       "view": [{"do": "flip", "axes": [0]}]}):
            subject.check_whole(_overwritten(
                {"do": do, "to": "waiting", "from": ["t0"]},
                {"do": "add", "to": "both", "from": ["t0", "waiting"]}, write,
                {"do": "realize", "names": ["t0"]},
                {"do": "observe", "names": ["both", "waiting", "t0"]}))


@verifies("effects.version.held")
@after("effects.value.eager")
def test_a_value_that_is_held_keeps_its_memory(subject: Subject) -> None:
    """Others of its size come and go, each of them computed and dropped."""
    rounds = [statement for _ in range(6) for statement in (
        {"do": "add", "to": "new", "from": ["t0", "t1"]}, {"do": "realize", "names": ["new"]},
        {"do": "assign", "target": "t0", "from": ["new"]}, {"do": "realize", "names": ["t0"]},
        {"do": "drop", "names": ["new"]})]
    for do in ("copy", "contiguous"):
        subject.check_whole(_overwritten(
            {"do": do, "to": "held", "from": ["t0"]}, {"do": "realize", "names": ["held"]},
            *rounds, {"do": "observe", "names": ["held", "t0"]}))
