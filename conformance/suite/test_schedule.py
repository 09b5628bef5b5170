"""A schedule is a document.  Chapter: spec/schedule.md."""

from __future__ import annotations

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.oracle import checker
from conformance.protocol import Document, Program, Statement
from conformance.runner.subject import Failure, NotClaimed, Subject, same_values
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


def _made(*statements: Statement) -> Program:
    """Two inputs of 24 bytes, realized; then these statements."""
    draft = Draft()
    for number in range(2):
        array = programs.pattern("float32", (6,), number)
        draft.add("input", dtype="float32", shape=[6], data=protocol.encode(array))
    draft.append({"do": "realize", "names": ["t0", "t1"]})
    return protocol.program([*draft.statements, *statements])


@verifies("schedule.document.outputs", observe="schedule")
@after("effects.value.eager", "schedule.document.schema")
def test_what_is_asked_for_is_among_the_outputs(subject: Subject) -> None:
    """Three values whose sizes differ from each other and from those of the inputs."""
    program = _made({"do": "add", "to": "both", "from": ["t0", "t1"]},
                    {"do": "sum", "to": "total", "from": ["both"], "axes": [0],
                     "keepdims": False},
                    {"do": "less", "to": "order", "from": ["t0", "t1"]},
                    {"do": "reshape", "to": "column", "from": ["t0"], "shape": [6, 1]},
                    {"do": "reshape", "to": "row", "from": ["t1"], "shape": [1, 6]},
                    {"do": "matmul", "to": "table", "from": ["column", "row"]},
                    {"do": "realize", "names": ["total", "order", "table"]},
                    {"do": "observe", "names": ["total", "order", "table"]})
    if not subject.supports(program):
        raise NotClaimed("it uses what is not declared")
    documents = subject.documents(program)
    subject.met(sum(len(each["kernels"]) for each in documents), "no program made a kernel")
    made = {(each["dtype"], each["bytes"]) for document in documents
            for each in document["buffers"] if each["id"] in document["outputs"]}
    for wanted in (("float32", 4), ("bool", 6), ("float32", 144)):
        if wanted not in made:
            raise Failure(f"no output of {wanted[1]} bytes of {wanted[0]} is listed", program)


@verifies("schedule.document.complete", observe="schedule")
@after("effects.value.eager", "schedule.document.schema")
def test_what_a_value_is_made_of_is_read_and_the_value_is_written(subject: Subject) -> None:
    """All 24 bytes of both inputs, whatever lies between; and every byte of what is made."""
    for between in ((), ("contiguous",), ("copy", "neg")):
        statements: list[Statement] = [{"do": "mul", "to": "v", "from": ["t0", "t0"]}]
        statements += [{"do": do, "to": "v", "from": ["v"]} for do in between]
        statements += [{"do": "sub", "to": "z", "from": ["v", "t1"]},
                       {"do": "drop", "names": ["v"]}, {"do": "realize", "names": ["z"]},
                       {"do": "observe", "names": ["z"]}]
        program = _made(*statements)
        if not subject.supports(program):
            subject.skipped += 1
            continue
        documents = [each for each in subject.documents(program) if each["kernels"]]
        touched = {field: _bytes(documents, field) for field in ("reads", "writes")}
        given = [size for kind, size in touched["reads"] if kind not in ("temporary", "output")]
        made = [size for kind, size in touched["writes"] if kind == "output"]
        if sorted(given) != [24, 24] or made != [24]:
            raise Failure(f"of inputs, {given} bytes are read, of the output {made} written: "
                          "24 of each of two, and 24", program)


def _bytes(documents: list[Document], field: str) -> list[tuple[str, int]]:
    """The kind of each buffer that kernels read or write, and how far they reach into it."""
    found: list[tuple[str, int]] = []
    for document in documents:
        kinds = {each["id"]: each["kind"] for each in document["buffers"]}
        reached: dict[int, int] = {}
        for kernel in document["kernels"]:
            for access in kernel[field]:
                number = access["buffer"]
                reached[number] = max(reached.get(number, 0), access["stop"] - access["start"])
        found += [(kinds[number], size) for number, size in reached.items()]
    return found


@verifies("schedule.document.nothing-runs", observe="schedule")
@after("effects.value.eager")
def test_who_asks_for_documents_gets_the_same_values(subject: Subject) -> None:
    kernels = 0

    def same(program: Program) -> None:
        nonlocal kernels
        plain, asked = subject.check_values(program), subject.check_values(program, "schedule")
        kernels += sum(len(document["kernels"]) for document in asked.schedule)
        different = same_values(plain, asked)
        if different:
            raise Failure(f"{different} differ when a document is asked for", program)

    subject.for_programs(same, rule="effects.value.eager", share=0.5)
    subject.met(kernels, "no program made a kernel")
