"""The lesson on schedules: what can be read off one that is plain data, before anything has run.

The reader's functions get documents of three or four kernels, drawn at random and from the smallest
up; some are wrong on purpose. In the runtime they look at every document that is made.

    schedule.document.flow: kernel 1 reads a version of buffer 1 that is not there, and you do not
    say so

        order: 1, 0
        kernel 0: reads version 0 of buffer 0; writes version 1 of buffer 1
        kernel 1: reads version 1 of buffer 1; writes version 1 of buffer 3
"""
from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from conformance.learn.lesson import Counterexample, Lesson, first_of_each, is_whole, raised

COMPLETE, BUFFERS, FLOW = ("schedule.document.complete", "schedule.document.buffers",
                           "schedule.document.flow")
Document = dict[str, Any]
#: Of a kernel: the buffers that it reads and those that it writes.
Touched = tuple[Sequence[int], Sequence[int]]
KINDS = ("input", "temporary", "temporary", "output")
SIZES = (24, 64, 8, 24)
EMPTY = ("temporary", "output")  # nothing was in them before


def built(kernels: Sequence[Touched], order: Sequence[int] | None = None) -> Document:
    """A document of kernels that each read the version that is there, in the order of number."""
    versions = dict.fromkeys(range(len(KINDS)), 0)
    rows = []
    for number, (reads, writes) in enumerate(kernels):
        read = [_touch(buffer, versions[buffer]) for buffer in reads]
        for buffer in writes:
            versions[buffer] += 1
        rows.append({"id": number, "reads": read,
                     "writes": [_touch(buffer, versions[buffer]) for buffer in writes]})
    buffers = [{"id": number, "kind": kind, "bytes": size}
               for number, (kind, size) in enumerate(zip(KINDS, SIZES, strict=True))]
    return {"buffers": buffers, "kernels": rows,
            "order": list(range(len(rows)) if order is None else order)}


def _touch(buffer: int, version: int) -> dict[str, int]:
    return {"buffer": buffer, "version": version, "start": 0, "stop": SIZES[buffer]}


def documents() -> Iterator[Document]:
    """From the smallest up: right ones, and ones in whose order something comes too early."""
    yield built([((0,), (3,))])
    yield built([((0,), (1,)), ((1,), (3,))])
    yield built([((0,), (1,)), ((1,), (3,))], (1, 0))
    yield built([((0,), (1,)), ((1,), (1,)), ((1,), (3,))])
    yield built([((0,), (1,)), ((1,), (3,)), ((0,), (1,))], (0, 2, 1))
    yield built([((0,), (1,)), ((0,), (2,)), ((1, 2), (3,))])
    yield built([((0,), (1,)), ((1,), (2,)), ((2,), (3,)), ((0,), (1,)), ((1,), (3,))])
    branches = [((0,), (1,)), ((0,), (2,)), ((1,), (3,)), ((2,), (3,))]
    yield built(branches)
    yield built(branches, (0, 2, 1, 3))
    halves = built([((0,), (1,)), ((0,), (1,)), ((1,), (3,))])
    for kernel, start in ((0, 0), (1, 32)):
        halves["kernels"][kernel]["writes"][0].update(start=start, stop=start + 32)
    yield halves
    early = copy.deepcopy(halves)  # it means the first half alone, and the second comes after it
    early["kernels"][2]["reads"][0].update(version=1, stop=32)
    yield {**early, "order": [0, 1, 2]}
    yield built([((1,), (3,))])  # nobody has put anything into the temporary
    chooser = random.Random(0)
    for _ in range(120):
        kernels: list[Touched] = []
        for _ in range(chooser.choice((3, 4))):
            filled = sorted({0}.union(*(writes for _, writes in kernels)) - {3})
            reads = chooser.sample(filled, min(chooser.choice((1, 1, 2)), len(filled)))
            kernels.append((reads, [chooser.choice((1, 2, 3))]))
        order = list(range(len(kernels)))
        if chooser.random() < 0.5:
            chooser.shuffle(order)
        written = [each for number in order for each in kernels[number][1]]
        places = [[at for at in order if buffer in kernels[at][1]] for buffer in set(written)]
        if all(each == sorted(each) for each in places):  # versions are written as they count
            yield built(kernels, order)


# By definition -----------------------------------------------------------------------------


def all_bytes(document: Document) -> int:
    return sum(each["stop"] - each["start"] for kernel in document["kernels"]
               for each in (*kernel["reads"], *kernel["writes"]))


def alive(document: Document, position: int) -> list[int]:
    """The temporaries that were touched up to a position, and will be from there on."""
    touched = [{each["buffer"] for side in ("reads", "writes")
                for each in document["kernels"][number][side]} for number in document["order"]]
    before = set[int]().union(*touched[:position + 1])
    later = set[int]().union(*touched[position:])
    return sorted(buffer for buffer in before & later
                  if document["buffers"][buffer]["kind"] == "temporary")


def most(document: Document) -> int:
    sizes = {each["id"]: each["bytes"] for each in document["buffers"]}
    return max((sum(sizes[buffer] for buffer in alive(document, position))
                for position in range(len(document["order"]))), default=0)


def too_early(document: Document) -> list[tuple[int, int]]:
    """Kernels that read a version which is not there yet, or not any more; and of which buffer."""
    holds: dict[tuple[int, int], int] = {}
    written: set[tuple[int, int]] = set()
    found = set()
    for number in document["order"]:
        kernel = document["kernels"][number]
        for each in kernel["reads"]:
            buffer, version = each["buffer"], each["version"]
            later = any(holds.get((buffer, byte), 0) > version
                        for byte in range(each["start"], each["stop"]))
            empty = not version and document["buffers"][buffer]["kind"] in EMPTY
            if later or empty or version and (buffer, version) not in written:
                found.add((number, buffer))
        for each in kernel["writes"]:
            written.add((each["buffer"], each["version"]))
            holds.update({(each["buffer"], byte): each["version"]
                          for byte in range(each["start"], each["stop"])})
    return sorted(found)


# What is said ------------------------------------------------------------------------------


def picture(document: Document) -> str:
    lines = ["order: " + ", ".join(map(str, document["order"]))]
    for kernel in document["kernels"]:
        parts = [f"{verb} version {each['version']} of buffer {each['buffer']}"
                 + (f", bytes {each['start']} to {each['stop']}"
                    if each["stop"] - each["start"] != SIZES[each["buffer"]] else "")
                 for verb, side in (("reads", "reads"), ("writes", "writes"))
                 for each in kernel[side]]
        lines.append(f"kernel {kernel['id']}: {'; '.join(parts)}")
    return "\n".join([*lines, "", *(f"buffer {each['id']}: {each['kind']}, {each['bytes']} bytes"
                                    for each in document["buffers"])])


def schedules(module: ModuleType) -> Iterator[Counterexample]:
    """The first document that breaks each rule of the lesson on schedules."""
    return first_of_each(_judged(module, document) for document in documents())


def _judged(module: ModuleType, document: Document) -> Iterator[Counterexample]:
    shown = picture(document)
    try:
        moved, peak, found = (function(copy.deepcopy(document)) for function in (
            module.moved, module.peak, module.early))
    except Exception as error:  # any: it is the reader's own code
        yield raised(error, shown)
        return
    wrong = [name for name, value in (("moved", moved), ("peak", peak)) if not is_whole(value)]
    if wrong or not isinstance(found, list):
        yield Counterexample("raised", f"{wrong[0]} answers no whole number" if wrong else
                             f"early answers {found!r:.60}, and not a list", shown)
        return
    unlike = [each for each in found if not isinstance(each, tuple) or len(each) != 2]
    if unlike:
        yield Counterexample("raised", f"in the list of early stands {unlike[0]!r:.40}, and not a "
                             "pair (kernel, buffer)", shown)
        return
    if moved != all_bytes(document):
        yield Counterexample(COMPLETE, f"you say that {moved} bytes are moved; it is "
                             f"{all_bytes(document)}", shown)
    if not too_early(document) and peak != most(document):
        yield Counterexample(BUFFERS, f"you say that {peak} bytes are alive at most; it is "
                             f"{most(document)}", shown)
    right = too_early(document)
    for kernel, buffer in right:
        if (kernel, buffer) not in found:
            yield Counterexample(FLOW, f"kernel {kernel} reads a version of buffer {buffer} that "
                                 "is not there, and you do not say so", shown)
    for each in found:
        if each not in right:
            yield Counterexample(FLOW, f"you name {each!r:.40}; what is read there is right", shown)


# In the runtime ----------------------------------------------------------------------------


def install(module: ModuleType) -> None:
    """Let the reader look at every document that the runtime makes."""
    known: Any = module
    ours = known.document

    def document(*given: Any) -> Document:
        made: Document = ours(*given)
        early, moved = known.early(copy.deepcopy(made)), known.moved(made)
        if early:
            raise ValueError(f"your `early` says that {early} are read too early; the order is "
                             f"{made['order']}")
        if moved != sum(kernel["bytes"] for kernel in made["kernels"]):
            raise ValueError(f"your `moved` says {moved} bytes for {made['kernels']}")
        return made

    known.document = document


def score(module: ModuleType) -> Iterator[str]:
    """What fusion is worth, in the reader's numbers."""
    from impl import Context, Tensor

    known: Any = module
    yield f"{'':<22}{'kernels':>8}{'bytes moved':>13}{'peak':>9}"
    for fuse in (0, 1):
        with Context(DEVICE="REFERENCE", FUSE=fuse):
            x = Tensor.zeros(64, 512).contiguous().realize()
            made = Tensor.schedule_document(x.softmax(1))
        yield (f"{f'softmax, FUSE={fuse}':<22}{len(made['kernels']):>8}{known.moved(made):>13}"
               f"{known.peak(made):>9}")


SCHEDULE = Lesson(
    number=0, functions=("moved", "peak", "early"),
    names="""\
A schedule document is a dict:
    document["buffers"]   a list of {"id": 0, "kind": "temporary", "bytes": 64}, by id; kinds are
                          "input", "state", "output" and "temporary"
    document["kernels"]   a list of {"id": 0, "reads": [touch, ...], "writes": [touch, ...]}, by id
    document["order"]     the ids of the kernels as they run
A touch is {"buffer": 0, "version": 1, "start": 0, "stop": 64}: bytes `start` to `stop` of a buffer.
Version 0 is what was there before: something in an input or a state, nothing in a temporary or an
output. Each write makes the next version, and they are written in that order. A write of some bytes
leaves the others as they were. All reads of a kernel come before its writes.""",
    heads='''\
def moved(document):
    """The bytes that all kernels read and write, together."""
    raise NotImplementedError


def peak(document):
    """The most bytes of temporaries that are alive at one position of the order.

    A temporary is alive from the first kernel in the order that touches it to the last.
    """
    raise NotImplementedError


def early(document):
    """A list of pairs (kernel, buffer): who reads a version that is not there.

    Either nobody has written it yet (nobody ever writes version 0 of a temporary), or some of the
    bytes that are read were overwritten by a later version.
    """
    raise NotImplementedError
''',
    rules=(COMPLETE, BUFFERS, FLOW),
    hints=(
        "moved: two loops, over the kernels and over what each reads and writes. A touch has "
        "stop - start bytes.",
        "peak: for each position of the order, which temporaries were touched up to here, and are "
        "touched from here on? Add up their bytes.",
        "The order is not the numbers of the kernels: position 0 is document['order'][0].",
        "early: go through the kernels in their order, with a set of what has been written. A "
        "version that is not in it is read too early. What is in it from the beginning? Version 0 "
        "of each input and state.",
        "A read can also come too late: a later version of the same bytes has been written. "
        "Of other bytes it does no harm.",
        "A kernel that reads version 1 of a buffer and writes version 2 is right: it reads before "
        "it writes."),
    counterexamples=schedules, module="schedule.document", chapters=("schedule",),
    install=install, score=score)
