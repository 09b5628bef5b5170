"""What a program puts to the test: which hazards it has, and what its schedules say was done.

A count of programs says little about a fuzzer; these names say what the programs were about. The
first group is seen in the program itself, whoever executes it, the second in schedule documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from conformance.protocol import REPETITIONS, Document, Program, Statement, walk

#: Movements after which a value of a target is not read where it is written.
ELSEWHERE = ("flip", "permute", "shrink", "stride", "pad", "gather", "cumsum")
#: Hazards of programs, and what they mean.
HAZARDS = {
    "reader waits": "something computed from a variable, not yet in memory, outlives a write to it",
    "reader observed": "such a reader is observed after the write",
    "reader dropped": "such a reader is dropped before anybody asks for it",
    "write from own value": "the value written was computed from the target",
    "write from moved value": "the same, with elements in other places: shifts, flips, sums",
    "swap": "two writes, each of what the target of the other, or its other half, was before",
    "writers in a row": "a second write while the first is still pending",
    "realized in groups": "several variables are realized together",
    "pending write dropped": "a variable is dropped with a write to it pending",
    "view shrink": "a write to a part", "view flip": "a write through a reversed view",
    "view permute": "a write through a transposed view",
    "view reshape": "a write through a reshaped view", "view stride": "a write to every n-th",
    "view whole": "a write to all elements", "assign": "a variable gets another value",
    "bits": "bits are read as another dtype", "capture": "a function is captured and replayed",
    "capture with state": "the function writes to a variable that it does not make",
    "capture with many outputs": "the function makes several variables that live on",
    "capture watched": "values of every call are held and compared after the last call"}
#: What the documents of a schedule tell.
EVENTS = ("several kernels", "several stages in a kernel", "several outputs of a kernel",
          "in-place write", "bounce or copy", "RAW", "WAR", "WAW", "memory reused",
          "temporary", "plan found in the cache")


@dataclass
class _Watch:
    """What is pending at a point of a program."""

    #: For each variable that is not in memory, the variables whose memory it waits to read.
    waits: dict[str, set[str]] = field(default_factory=dict)
    #: Variables of which some value was computed with its elements in other places.
    moved: dict[str, set[str]] = field(default_factory=dict)
    written: dict[str, set[str]] = field(default_factory=dict)  # pending: target -> sources
    late: set[str] = field(default_factory=set)  # readers of what was overwritten since


def hazards(program: Program) -> set[str]:
    """The names in `HAZARDS` of what a program does."""
    watch = _Watch()
    return {name for statement in program["statements"] for name in _step(statement, watch)}


def _step(statement: Statement, watch: _Watch) -> Iterator[str]:
    do = statement["do"]
    if do in ("assign", "store"):
        yield from _written(statement, watch)
    elif do in ("realize", "observe", "shards"):
        if do == "realize" and len(statement["names"]) > 1:
            yield "realized in groups"
        for name in statement["names"]:
            if name in watch.late:
                yield "reader observed"
            _in_memory(name, watch)
    elif do == "drop":
        for name in statement["names"]:
            if name in watch.late:
                yield "reader dropped"
            if name in watch.written:
                yield "pending write dropped"
            _in_memory(name, watch)
    elif do in REPETITIONS:
        yield from _captured(statement)
        for each in statement["statements"]:
            yield from _step(each, watch)
    else:
        _computed(statement, watch)
        if do == "bitcast":
            yield "bits"


def _in_memory(name: str, watch: _Watch) -> None:
    for known in (watch.waits, watch.moved, watch.written):
        known.pop(name, None)
    watch.late.discard(name)


def _computed(statement: Statement, watch: _Watch) -> None:
    name, sources = statement["to"], statement.get("from", ())
    _in_memory(name, watch)
    watch.waits[name] = {origin for each in sources
                         for origin in (each, *watch.waits.get(each, ()))}
    watch.moved[name] = {origin for each in sources for origin in watch.moved.get(each, ())}
    if statement["do"] in ELSEWHERE:
        watch.moved[name] |= watch.waits[name]


def _written(statement: Statement, watch: _Watch) -> Iterator[str]:
    target, value = statement["target"], statement["from"][0]
    reads = {value, *watch.waits.get(value, ())}
    steps = [step["do"] for step in statement.get("view", ())]
    yield from (f"view {step}" for step in steps)
    if not steps:
        yield "view whole" if statement["do"] == "store" else "assign"
    if target in reads:
        yield "write from own value"
        if target in watch.moved.get(value, ()):
            yield "write from moved value"
    halves = value in watch.late and target in reads  # read before the last write to the target
    if halves or any(target in watch.written.get(other, ()) for other in reads - {target}):
        yield "swap"
    if target in watch.written:
        yield "writers in a row"
    late = {name for name, origins in watch.waits.items() if target in origins and name != target}
    if late:
        yield "reader waits"
    watch.late |= late
    watch.written[target] = watch.written.get(target, set()) | reads


def _captured(statement: Statement) -> Iterator[str]:
    body = statement["statements"]
    made = {each["to"] for each in body if "to" in each}
    yield "capture"
    if any(each["do"] in ("assign", "store") and each["target"] not in made for each in body):
        yield "capture with state"
    if len(made) > 1:
        yield "capture with many outputs"
    if any(each["do"] == "observe" for each in body):
        yield "capture watched"


def events(documents: Sequence[Document]) -> set[str]:
    """The names in `EVENTS` of what the schedules of a program did."""
    return {name for document in documents for name in _events(document)}


def _events(document: Document) -> Iterator[str]:
    kernels, states = document["kernels"], set()
    for buffer in document["buffers"]:
        if buffer["kind"] == "state":
            states.add(buffer["id"])
        if buffer["kind"] == "temporary":
            yield "temporary"
    if len(kernels) > 1:
        yield "several kernels"
    for kernel in kernels:
        if kernel.get("stages", 1) > 1:
            yield "several stages in a kernel"
        if len(kernel["writes"]) > 1:
            yield "several outputs of a kernel"
        if any(write["buffer"] in states for write in kernel["writes"]):
            yield "in-place write"
    yield from (each["kind"] for each in document.get("dependencies", ()))
    if any(note.startswith("copy") for note in document.get("notes", ())):
        yield "bounce or copy"
    memory = document.get("memory", {})
    if memory.get("planned", 0) < memory.get("unplanned", 0):
        yield "memory reused"
    if document.get("cache", {}).get("hit"):
        yield "plan found in the cache"


def statements(program: Program) -> Iterable[str]:
    """The kind of every statement, those inside repetitions included."""
    return (statement["do"] for statement in walk(program["statements"]))
