"""A schedule is a document.  Chapter: spec/schedule.md."""

from __future__ import annotations

from math import prod
from random import Random

import numpy as np

from conformance import oracle, protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.oracle import checker
from conformance.protocol import Document, Program, Statement, shapes
from conformance.runner.subject import Failure, NotClaimed, Subject, same_values
from conformance.suite import after, verifies
from conformance.suite.test_fusion import apart


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
    for document in documents:
        given = [each["id"] for each in document["buffers"] if each["kind"] == "input"]
        if set(given) & set(document["outputs"]):
            raise Failure("an input that nobody asked for is listed as an output", program)
    for wanted in (("float32", 4), ("bool", 6), ("float32", 144)):
        if wanted not in made:
            raise Failure(f"no output of {wanted[1]} bytes of {wanted[0]} is listed", program)


@verifies("schedule.document.complete", observe="schedule")
@after("effects.value.eager", "schedule.document.schema")
def test_what_a_value_is_made_of_is_read_and_the_value_is_written(subject: Subject) -> None:
    """All 24 bytes of both inputs, whatever lies between; and every byte of what is made."""
    met = 0
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
        if len(documents) != 1:  # what lies between is asked for, and is read again
            continue
        met += 1
        touched = {field: _bytes(documents, field) for field in ("reads", "writes")}
        given = [size for kind, size in touched["reads"] if kind not in ("temporary", "output")]
        made = [size for kind, size in touched["writes"] if kind == "output"]
        if sorted(given) != [24, 24] or made != [24]:
            raise Failure(f"of inputs, {given} bytes are read, of the output {made} written: "
                          "24 of each of two, and 24", program)
    subject.met(met, "no program was one schedule")


@verifies("schedule.document.complete", observe="schedule")
@after("effects.value.eager", "schedule.document.schema")
def test_what_is_moved_is_read_from_its_first_byte_to_its_last(subject: Subject) -> None:
    """The elements that reach the result stand somewhere: what is said to be read has them all."""
    met, shape = 0, (2, 3, 4)
    steps: list[Statement] = [
        *({"do": "flip", "axes": axes} for axes in ([0], [1], [2], [0, 2], [0, 1, 2])),
        {"do": "permute", "order": [2, 0, 1]}, {"do": "stride", "steps": [1, 2, 3]},
        {"do": "pad", "widths": [[1, 0], [0, 1], [0, 0]]},
        {"do": "shrink", "bounds": [[0, 2], [1, 3], [0, 3]]},
        {"do": "shrink", "bounds": [[1, 2], [0, 3], [1, 4]]}]
    chains = [[one] for one in steps] + [[one, other] for one in steps[-2:] for other in steps[:5]]
    for chain in chains:
        draft = Draft()
        name = source = draft.add("input", dtype="float32", shape=list(shape), data=protocol.encode(
            np.arange(1, 25, dtype=np.float32).reshape(shape)))
        draft.append({"do": "realize", "names": [source]})
        for step in chain:
            name = draft.add(step["do"], name, **{key: value for key, value in step.items()
                                                  if key != "do"})
        made = draft.add("neg", name)
        draft.append({"do": "drop", "names": [each for each in draft.kinds
                                              if each not in (source, made)]})
        draft.append({"do": "observe", "names": [made]})
        program = protocol.program(draft.statements)
        if not subject.supports(program):
            subject.skipped += 1
            continue
        [expected] = oracle.run(program)
        numbers = np.abs(expected.value[expected.value != 0])
        wanted = int(numbers.min() - 1) * 4, int(numbers.max()) * 4
        read = [(access["start"], access["stop"]) for document in subject.documents(program)
                for kernel in document["kernels"] for access in kernel["reads"]
                if any(each["id"] == access["buffer"] and each["kind"] in ("input", "state")
                       for each in document["buffers"])]
        if not read:
            continue  # it was asked for in another way
        met += 1
        found = min(start for start, _ in read), max(stop for _, stop in read)
        if found[0] > wanted[0] or found[1] < wanted[1]:
            raise Failure(f"bytes {found[0]} to {found[1]} of the input are said to be read, and "
                          f"the result has those from {wanted[0]} to {wanted[1]}", program)
    subject.met(met, "no program read its input")


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


@verifies("schedule.document.buffers", observe="schedule")
@after("effects.value.eager", "schedule.document.schema")
def test_buffers_are_of_their_kind_and_as_large_as_their_elements(subject: Subject) -> None:
    """What is asked for and what is overwritten are values of the program, by dtype and size."""
    kernels = 0

    def check(program: Program) -> None:
        nonlocal kernels
        documents = subject.documents(program)
        kernels += sum(len(document["kernels"]) for document in documents)
        values, wrong = _values(program), []
        for document in documents:
            wrong += [str(finding) for finding in checker.check(document)
                      if finding.rule == "schedule.document.buffers"]
            wrong += [f"no value of the program has the dtype of the temporary {each}"
                      for each in document["buffers"] if each["kind"] == "temporary"
                      and each["dtype"] not in _between({dtype for dtype, _ in values})]
            wrong += [f"no value of the program is what buffer {each} is"
                      for each in document["buffers"] if each["kind"] in ("output", "state")
                      and (each["dtype"], prod(each["shape"])) not in values]
        if wrong:
            raise Failure("; ".join(wrong), program)

    subject.for_programs(check)
    subject.met(kernels, "no program made a kernel")


def _values(program: Program) -> set[tuple[str, int]]:
    """The dtype and the number of elements of each value that a program makes."""
    made, kinds = set(), shapes.Kinds()
    for statement in protocol.walk(program["statements"]):
        if statement["do"] not in protocol.REPETITIONS:
            shapes.step(statement, kinds)
            made |= {(kind.dtype, prod(kind.shape)) for kind in kinds.values()}
    return made


def _between(dtypes: set[str]) -> set[str]:
    """The dtypes of what may lie between: those of values, indices, answers, and sums of halves."""
    return {*dtypes, "bool", "int32", "int64", "float32", "float64"}


@verifies("schedule.document.buffers", observe="schedule")
@after("effects.value.eager", "schedule.document.schema")
def test_a_buffer_has_the_dtype_of_its_value(subject: Subject) -> None:
    """Values of each dtype and of different sizes: read, overwritten, asked for."""
    draft = Draft()
    dtypes = [each for each in protocol.DTYPES if each in subject.info.dtypes and each != "bool"]
    given = {(dtype, 5 + 2 * number) for number, dtype in enumerate(dtypes)}
    names = {size: draft.add("input", dtype=dtype, shape=[size], data=protocol.encode(
        programs.pattern(dtype, (size,), 1))) for dtype, size in sorted(given)}
    draft.append({"do": "realize", "names": list(names.values())})
    changed = names[max(names)]
    summed = draft.add("add", changed, changed)
    draft.append({"do": "assign", "target": changed, "from": [summed]})
    asked = [draft.add("add", draft.add("pad", name, widths=[[0, 1]]),
                       draft.add("pad", name, widths=[[1, 0]]))
             for size, name in names.items() if name != changed]
    draft.append({"do": "drop", "names": [summed]})
    draft.append({"do": "realize", "names": [*asked, changed]})
    draft.append({"do": "observe", "names": [*asked, changed]})
    program = protocol.program(draft.statements)
    if not subject.supports(program):
        raise NotClaimed("it uses what is not declared")
    documents = [each for each in subject.documents(program) if each["kernels"]]
    subject.met(len(documents), "no program made a kernel")
    seen: dict[str, set[tuple[str, int]]] = {"read": set(), "made": set()}
    for document in documents:
        for each in document["buffers"]:
            what = (each["dtype"], prod(each["shape"]))
            seen["read"] |= {what} if each["kind"] in ("input", "state") else set()
            seen["made"] |= {what} if each["kind"] in ("output", "state") else set()
    largest = max(given, key=lambda each: each[1])
    results = {(dtype, size + 1) for dtype, size in given - {largest}} | {largest}
    for does, wanted in (("read", given), ("made", results)):
        if wanted - seen[does]:
            raise Failure(f"no buffer that is {does} has this dtype and number of elements: "
                          f"{sorted(wanted - seen[does])}", program)


@verifies("schedule.document.flow+2", observe="schedule")
@after("effects.value.eager", "schedule.document.schema", "schedule.document.buffers")
def test_what_a_value_depends_on_flows_into_it(subject: Subject) -> None:
    """Inputs and results of different sizes, so that each is known by its size."""
    whole = 0
    for seed in range(12):
        program, needs = _flowing(seed)
        if not subject.supports(program):
            raise NotClaimed("it uses what is not declared")
        documents = [each for each in subject.documents(program) if each["kernels"]]
        if len(documents) != 1:
            continue  # what flows from one schedule to the next, no document says
        whole += 1
        for size, wanted in needs.items():
            read, kinds = _sources(documents[0], size)
            if not wanted <= read or kinds <= {"copy"}:
                raise Failure(f"the result of {size} elements is computed from inputs of "
                              f"{sorted(wanted)}; the document says, from {sorted(read)} by "
                              f"{sorted(kinds)}", program)
    subject.met(whole, "no program was one schedule")


def _flowing(seed: int) -> tuple[Program, dict[int, set[int]]]:
    """Sums of inputs, and results of these; for each result the inputs that it depends on."""
    random, draft = Random(seed), Draft()
    sizes, results = (6, 10, 15, 21), (2, 3, 4)
    inputs = {size: draft.add("input", dtype="float32", shape=[size], data=protocol.encode(
        programs.pattern("float32", (size,), 2))) for size in sizes}
    draft.append({"do": "realize", "names": list(inputs.values())})
    pool = [(draft.add("sum", name, axes=[0], keepdims=True), {size})
            for size, name in inputs.items()]
    needs, asked = dict[int, set[int]](), list[str]()
    for turn in range(6):
        (one, first), (other, second), (third, more) = random.sample(pool, 3)
        reached = first | second
        do = random.choice(("add", "mul", "maximum", "where"))
        if do == "where":
            made = draft.add("where", draft.add("less", one, other), one, third)
            reached = reached | more
        else:
            made = draft.add(do, one, other)
        pool.append((draft.add("contiguous", made) if random.random() < 0.5 else made, reached))
        if turn >= 3:
            needs[results[turn - 3]] = reached
            wide = draft.add("expand", pool[-1][0], shape=[results[turn - 3]])
            asked.append(draft.add("contiguous", wide))
    draft.append({"do": "drop", "names": [
        name for name in draft.kinds if name not in (*asked, *inputs.values())]})
    draft.append({"do": "realize", "names": asked})
    draft.append({"do": "observe", "names": asked})
    return protocol.program(draft.statements), needs


def _sources(document: Document, size: int) -> tuple[set[int], set[str]]:
    """The sizes of the inputs that an output of this size is computed from, and by what."""
    buffers = {each["id"]: each for each in document["buffers"]}
    todo = [number for number in document["outputs"] if prod(buffers[number]["shape"]) == size]
    seen, kinds = set(todo), set[str]()
    for buffer in todo:  # grows
        for kernel in document["kernels"]:
            if any(access["buffer"] == buffer for access in kernel["writes"]):
                kinds.add(kernel["kind"])
                more = {access["buffer"] for access in kernel["reads"]} - seen
                seen |= more
                todo += sorted(more)
    return {prod(buffers[number]["shape"]) for number in seen
            if buffers[number]["kind"] == "input"}, kinds


@verifies("schedule.document.agrees+2", observe="schedule")
@after("effects.value.eager", "schedule.document.schema")
def test_what_is_said_twice_agrees(subject: Subject) -> None:
    kernels = 0

    def agrees(program: Program) -> None:
        nonlocal kernels
        documents = subject.documents(program)
        kernels += sum(len(document["kernels"]) for document in documents)
        wrong = [str(finding) for document in documents for finding in checker.check(document)
                 if finding.rule == "schedule.document.agrees"]
        if wrong:
            raise Failure("; ".join(wrong), program)

    subject.for_programs(agrees)
    subject.met(kernels, "no program made a kernel")


@verifies("schedule.document.flow+2", observe="schedule")
@after("effects.value.eager", "schedule.document.schema")
def test_no_single_computation_is_a_copy(subject: Subject) -> None:
    """One value computed from another in memory: sums, products, functions, running ones."""
    kernels = 0
    computed: list[Statement] = [
        *({"do": do, "axes": [0], "keepdims": False} for do in protocol.REDUCTIONS),
        {"do": "cumsum", "axis": 0}, {"do": "softmax", "axis": 0}, {"do": "neg"}, {"do": "exp"},
        {"do": "cast", "dtype": "int32"}, {"do": "gather", "from": ["t0", "rows"]},
        {"do": "matmul", "from": ["table", "table"]}, {"do": "maximum", "from": ["t0", "t1"]}]
    given: list[Statement] = [
        {"do": "input", "to": "rows", "dtype": "int32", "shape": [3],
         "data": protocol.encode(np.array([4, 0, 2], np.int32))},
        {"do": "input", "to": "table", "dtype": "float32", "shape": [2, 2],
         "data": protocol.encode(programs.pattern("float32", (2, 2), 2))},
        {"do": "realize", "names": ["rows", "table"]}]
    for each in computed:
        program = _made(*given, {"from": ["t0"], **each, "to": "z"},
                        {"do": "realize", "names": ["z"]}, {"do": "observe", "names": ["z"]})
        if not subject.supports(program):
            subject.skipped += 1
            continue
        kinds = [kernel["kind"] for document in subject.documents(program)
                 for kernel in document["kernels"]]
        kernels += len(kinds)
        if kinds and set(kinds) <= {"copy"}:
            raise Failure(f"{each['do']} is said to be done by copies alone", program)
    subject.met(kernels, "no program made a kernel")


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


@verifies("schedule.document.buffers", observe="schedule")
@after("effects.value.eager", "schedule.document.schema")
def test_what_lies_between_is_no_result_and_has_its_dtype(subject: Subject) -> None:
    """Values of several dtypes, nearly each with a size of its own, of which the last is kept."""
    whole = 0
    for dtype, other in (("float32", "float64"), ("int32", "float16")):
        draft = Draft()
        x = draft.add("input", dtype=dtype, shape=[5, 7],
                      data=protocol.encode(programs.pattern(dtype, (5, 7), 3)))
        draft.append({"do": "realize", "names": [x]})
        first = draft.add("cumsum", x, axis=0)
        second = draft.add("cumsum", draft.add("shrink", first, bounds=[[1, 5], [0, 6]]), axis=1)
        third = draft.add("cumsum", draft.add("pad", draft.add("cast", second, dtype=other),
                                              widths=[[1, 0], [0, 3]]), axis=0)
        answer = draft.add("contiguous", draft.add(
            "less", third, draft.add("flip", third, axes=[0])))
        turned = draft.add("cast", draft.add("flip", answer, axes=[1]), dtype="int8")
        last = draft.add("cumsum", draft.add("pad", turned, widths=[[0, 3], [1, 0]]), axis=1)
        draft.append({"do": "drop", "names": [
            name for name in draft.kinds if name not in (x, last)]})
        draft.append({"do": "observe", "names": [last]})
        program = protocol.program(draft.statements)
        if not subject.supports(program):
            subject.skipped += 1
            continue
        for options in ({}, apart(subject)):
            documents = [each for each in subject.documents(program, **options)
                         if each["kernels"]]
            if len(documents) != 1:
                continue  # what lies between was asked for, or who knows
            whole += 1
            wrong = _unlike(documents[0], _values(program), ("int8", 80))
            if wrong:
                raise Failure(wrong, program)
    if subject.examples:
        subject.met(whole, "no program was one schedule")


def _unlike(document: Document, values: set[tuple[str, int]], kept: tuple[str, int]) -> str:
    """Which buffer is no value of a program, or a result of which nothing was asked.

    A running sum may lie in a wider dtype of its sort until it is rounded; and there may be answers
    to questions about a value, such as whether it is NaN.
    """
    for each in document["buffers"]:
        count, dtype = prod(each["shape"]), np.dtype(each["dtype"])
        dtypes = [np.dtype(other) for other, size in values if size == count]
        if each["kind"] == "temporary" and dtypes and not any(
                dtype.kind == "b" or dtype.kind == other.kind and dtype.itemsize >= other.itemsize
                for other in dtypes):
            return f"values of {count} elements are of {sorted(map(str, dtypes))}, not as {each} is"
        if each["kind"] == "output" and (each["dtype"], count) != kept:
            return f"{each} is said to be a result; what is kept has {kept[1]} of {kept[0]}"
    return ""
