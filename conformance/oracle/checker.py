"""Is a schedule document right?  A checker small enough to be believed.

It shares no code with any scheduler and trusts no conclusion that a document draws: hazards are
derived from what each kernel reads and writes, lifetimes from where in the order that happens,
the lower bound on memory from these.  What it answers is a list of findings, each with the rule
that is broken; no findings, nothing wrong.

    kernel 0 writes a@1 ----RAW----> kernel 1 reads a@1 ----WAR----> kernel 2 writes a@2
                 \\_______________________WAW________________________/
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import Any

from conformance import protocol
from conformance.oracle import rounds
from conformance.protocol import Document

RULES = {"RAW": "dependencies.raw.order", "WAR": "dependencies.war.order",
         "WAW": "dependencies.waw.order"}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and the rule that says so."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


@dataclass(frozen=True)
class Access:
    """A kernel reads or writes the bytes start <= byte < stop of one version of a buffer."""

    kernel: int
    buffer: int
    version: int
    start: int
    stop: int

    def overlaps(self, other: Access) -> bool:
        return (self.buffer == other.buffer
                and max(self.start, other.start) < min(self.stop, other.stop))


#: An access, and whether it is a write.
Marked = tuple[Access, bool]
#: A row of the memory plan: where a buffer lies, from which position to which.
Place = dict[str, Any]


@dataclass(frozen=True)
class Hazard:
    """Kernel `before` has to run before kernel `after`, or a value is lost."""

    kind: str
    before: int
    after: int
    buffer: int

    def __str__(self) -> str:
        return f"{self.kind} on buffer {self.buffer}: kernel {self.before} before {self.after}"


def check(document: Document) -> list[Finding]:
    """Everything that is wrong with a schedule document."""
    try:
        protocol.check("schedule", document)
    except protocol.ProtocolError as error:
        return [Finding("schedule.document.schema", str(error))]
    findings = list(_references(document))
    if findings:
        # Nothing below makes sense for a document that speaks of what is not in it.
        return findings
    return [*check_order(document, document["order"]), *_versions(document),
            *_dependencies(document), *_initialised(document), *_kinds(document),
            *_boundaries(document), *_agreeing(document),
            *_devices(document), *_under_way(document), *check_memory(document),
            *(Finding(*each) for each in rounds.wrong([document]))]


def _agreeing(document: Document) -> Iterator[Finding]:
    """What is said twice: stages and fusions, versions of dependences, unplanned memory."""
    rule = "schedule.document.agrees"
    stages = {each["id"]: each["stages"] for each in document["kernels"] if "stages" in each}
    fused = {each["kernel"] for each in document.get("fusions", ())}
    for kernel, count in stages.items() if "fusions" in document else ():
        if (count > 1) != (kernel in fused):
            yield Finding(rule, f"kernel {kernel} has {count} stages, and there is "
                                f"{'a' if kernel in fused else 'no'} reason that it is fused")
    touched = {(kernel["id"], each["buffer"], each["version"]) for kernel in document["kernels"]
               for each in (*kernel["reads"], *kernel["writes"])}
    for each in document.get("dependencies", ()):
        what = (each.get("buffer"), each.get("version"))
        if None not in what and not {(each["before"], *what), (each["after"], *what)} & touched:
            yield Finding(rule, f"kernel {each['after']} is said to wait for {each['before']} for "
                                f"version {what[1]} of buffer {what[0]}, which neither touches")
    if "memory" in document:
        memory = document["memory"]
        step = max(1, memory["alignment"])
        together = sum(-(-each["bytes"] // step) * step for each in memory["placements"])
        if memory["unplanned"] > together:
            yield Finding(rule, f"{memory['unplanned']} bytes are said to be needed without a "
                                f"plan, but all that is placed has {together}")
        places = {each["buffer"]: each for each in memory["placements"]}
        for place in memory["placements"] if _is_order(document) else ():
            other = places.get(place.get("in_place_of"))
            if other and not (place["arena"] == other["arena"]
                              and _handed_over(document, place, other)):
                yield Finding(rule, f"buffer {place['buffer']} is said to lie in place of "
                                    f"{other['buffer']}, which is not handed over to it")


def check_together(documents: Sequence[Document]) -> list[Finding]:
    """What is wrong between the documents that the processes of one program made of one schedule.

    They wait for each other in their transfers: these have to be the same, in the same order.
    """
    told = [[(kernel["transfer"], kernel["device"]) for number in document["order"]
             for kernel in document["kernels"] if kernel["id"] == number and "transfer" in kernel]
            for document in documents]
    for number, other in enumerate(told[1:], 1):
        for turn, (one, another) in enumerate(zip_longest(told[0], other)):
            if one != another:
                says = [f"{each[0]!r} on {each[1]}" if each else "nothing"
                        for each in (one, another)]
                return [Finding("collectives.order.same", f"transfer {turn} of document 0 is "
                                f"{says[0]}, of document {number} {says[1]}")]
    return [Finding(*each) for each in rounds.wrong(documents)]


def _under_way(document: Document) -> Iterator[Finding]:
    """Nobody touches what a transfer writes, or writes what it reads, while it may be under way.

    Transfers themselves are done one after the other, in their order.
    """
    if not _is_order(document):
        return
    kernels = {each["id"]: each for each in document["kernels"]}
    order = [kernels[number] for number in document["order"]]
    for position, transfer in enumerate(order):
        for other in order[position + 1:transfer.get("until", position) + 1]:
            touched = [(field, each, mine) for field in ("reads", "writes")
                       for each in other[field] for mine in (
                           transfer["writes"] if field == "reads" else
                           transfer["reads"] + transfer["writes"])
                       if "until" not in other and _meet(each, mine)]
            for field, each, _ in touched[:1]:
                yield Finding("collectives.transfer.untouched",
                              f"kernel {other['id']} {field} buffer {each['buffer']} while "
                              f"transfer {transfer['id']} may be under way")


def _meet(one: Place, other: Place) -> bool:
    return bool(one["buffer"] == other["buffer"]
                and max(one["start"], other["start"]) < min(one["stop"], other["stop"]))


def check_order(document: Document, order: Sequence[int]) -> list[Finding]:
    """Whether the kernels may run in this order, whatever dependencies the document lists."""
    ids = sorted(kernel["id"] for kernel in document["kernels"])
    if sorted(order) != ids:
        return [Finding("ordering.legal.permutation",
                        f"the order {list(order)} is no permutation of the kernels {ids}")]
    position = {kernel: place for place, kernel in enumerate(order)}
    return [Finding(RULES[hazard.kind], f"{hazard}, but the order is {list(order)}")
            for hazard in hazards(document) if position[hazard.before] > position[hazard.after]]


def _is_order(document: Document) -> bool:
    return sorted(document["order"]) == sorted(kernel["id"] for kernel in document["kernels"])


def hazards(document: Document) -> list[Hazard]:
    """Every pair of kernels whose order decides a value, derived from reads and writes."""
    reads, writes = by_buffer(document, "reads"), by_buffer(document, "writes")
    found: dict[Hazard, None] = {}
    for buffer, written in writes.items():
        marked = [(each, False) for each in reads[buffer]] + [(each, True) for each in written]
        for (one, one_writes), (other, other_writes) in _overlapping(marked):
            if one.kernel == other.kernel or not (one_writes or other_writes):
                continue
            if one_writes and other_writes:
                first, second = sorted((one, other), key=lambda each: each.version)
                found[Hazard("WAW", first.kernel, second.kernel, buffer)] = None
            else:
                found[_read_hazard(*((other, one) if one_writes else (one, other)))] = None
    return list(found)


def _overlapping(accesses: Iterable[Marked]) -> Iterator[tuple[Marked, Marked]]:
    """The pairs that have a byte in common, found by walking through the bytes once."""
    open_ones: list[Marked] = []
    for each in sorted(accesses, key=lambda marked: marked[0].start):
        access = each[0]
        if access.start < access.stop:
            open_ones = [other for other in open_ones if other[0].stop > access.start]
            yield from ((other, each) for other in open_ones)
            open_ones.append(each)


def _read_hazard(read: Access, write: Access) -> Hazard:
    # A reader of version v sees what the writes up to v left in its bytes.
    if write.version <= read.version:
        return Hazard("RAW", write.kernel, read.kernel, read.buffer)
    return Hazard("WAR", read.kernel, write.kernel, read.buffer)


def by_buffer(document: Document, field: str) -> defaultdict[int, list[Access]]:
    """The reads or the writes of all kernels, by buffer."""
    found: defaultdict[int, list[Access]] = defaultdict(list)
    for kernel in document["kernels"]:
        for each in kernel[field]:
            found[each["buffer"]].append(Access(kernel["id"], each["buffer"], each["version"],
                                                each["start"], each["stop"]))
    return found


# What a document speaks of -----------------------------------------------------------------


def _references(document: Document) -> Iterator[Finding]:
    rule = "schedule.document.schema"
    buffers = {buffer["id"]: buffer for buffer in document["buffers"]}
    kernels = {kernel["id"] for kernel in document["kernels"]}
    if len(buffers) != len(document["buffers"]) or len(kernels) != len(document["kernels"]):
        yield Finding(rule, "two buffers or two kernels have the same id")
    for field in ("reads", "writes"):
        for access in (each for found in by_buffer(document, field).values() for each in found):
            if access.buffer not in buffers:
                yield Finding(rule, f"kernel {access.kernel} {field} an unknown buffer "
                                    f"{access.buffer}")
            elif not access.start <= access.stop <= buffers[access.buffer]["bytes"]:
                yield Finding(rule, f"kernel {access.kernel} {field} bytes {access.start} to "
                                    f"{access.stop} of buffer {access.buffer}, which has "
                                    f"{buffers[access.buffer]['bytes']}")
    for kernel in document["kernels"]:
        if "collective" in kernel and not _are_devices(kernel["collective"]):
            yield Finding(rule, f"kernel {kernel['id']} sends or receives on a device that is not "
                                "one of its own")
    for each in document["dependencies"]:
        if not {each["before"], each["after"]} <= kernels:
            yield Finding(rule, f"the dependency {each} names an unknown kernel")
    for output in document["outputs"]:
        if output not in buffers or buffers[output]["kind"] == "temporary":
            yield Finding(rule, f"the output {output} is no buffer that outlives the schedule")
        elif document["outputs"].count(output) > 1:
            yield Finding(rule, f"the output {output} is listed twice")
    named = [(each, key, each[key]) for field, keys in _NAMES.items()
             for each in _part(document, field) for key in keys if each.get(key) is not None]
    for each, key, number in named:
        if number not in (buffers if key in ("buffer", "in_place_of") else kernels):
            yield Finding(rule, f"{each} names an unknown {key} {number}")


#: What in the parts of a document is the number of a kernel, or of a buffer.
_NAMES = {"dependencies": ("buffer",), "boundaries": ("before", "after", "buffer"),
          "fusions": ("kernel",), "placements": ("buffer", "in_place_of")}


def _part(document: Document, field: str) -> Sequence[dict[str, Any]]:
    whole = document.get("memory", {}) if field == "placements" else document
    found: Sequence[dict[str, Any]] = whole.get(field, ())
    return found


def _are_devices(told: dict[str, Any]) -> bool:
    """Whether a collective speaks of devices that it lists, and lists what its own ones do."""
    moves = [move for each in told.get("rounds", []) for side in ("sends", "receives")
             for move in each[side]]
    numbers = {*told["own"], *(number for group in told["groups"] for number in group),
               *(move[1] for move in moves)}
    return numbers <= set(range(len(told["devices"]))) \
        and {move[0] for move in moves} <= set(told["own"])


def _versions(document: Document) -> Iterator[Finding]:
    """Versions 1, 2, 3, ... of a buffer have one writer each, and only they are read."""
    rule = "effects.version.single-writer"
    reads, writes = by_buffer(document, "reads"), by_buffer(document, "writes")
    for buffer, written in writes.items():
        makers: defaultdict[int, set[int]] = defaultdict(set)
        for write in written:
            makers[write.version].add(write.kernel)
        for version, kernels in makers.items():
            if len(kernels) > 1:
                yield Finding(rule, f"kernels {sorted(kernels)} all make version {version} of "
                                    f"buffer {buffer}")
        if sorted(makers) != list(range(1, len(makers) + 1)):
            yield Finding(rule, f"the versions made of buffer {buffer} are {sorted(makers)}")
    for buffer, found in reads.items():
        made = {write.version for write in writes[buffer]} | {0}
        for read in found:
            if read.version not in made:
                yield Finding(rule, f"kernel {read.kernel} reads version {read.version} of "
                                    f"buffer {buffer}, which nothing makes")


def _dependencies(document: Document) -> Iterator[Finding]:
    """The listed dependencies hold, imply every hazard, and list nothing that is none."""
    if not _is_order(document):
        return  # a finding of its own
    position = {kernel: place for place, kernel in enumerate(document["order"])}
    broken = [each for each in document["dependencies"]
              if position[each["before"]] >= position[each["after"]]]
    for each in broken:
        yield Finding(RULES[each["kind"]], f"{each} is listed, but the order is "
                                           f"{list(document['order'])}")
    found = hazards(document)
    if not broken:
        reached = _reachable(document)
        for hazard in found:
            if not reached[hazard.before] >> position[hazard.after] & 1:
                yield Finding(RULES[hazard.kind], f"{hazard}, but no listed dependency says so")
    real = {(hazard.kind, hazard.before, hazard.after, hazard.buffer) for hazard in found}
    for each in document["dependencies"]:
        if "buffer" in each and (each["kind"], each["before"], each["after"],
                                 each["buffer"]) not in real:
            yield Finding("dependencies.ranges.disjoint",
                          f"{each} is listed, but these kernels touch no byte in common there, "
                          "or not in this way")


def _reachable(document: Document) -> dict[int, int]:
    """For every kernel, the positions that listed dependencies put after it: a bit for each.

    They all point forward in the order, so a walk from its end meets what follows first.
    """
    position = {kernel: place for place, kernel in enumerate(document["order"])}
    after: defaultdict[int, set[int]] = defaultdict(set)
    for each in document["dependencies"]:
        after[each["before"]].add(each["after"])
    reached: dict[int, int] = {}
    for kernel in reversed(document["order"]):
        bits = 0
        for follower in after[kernel]:
            bits |= reached[follower] | 1 << position[follower]
        reached[kernel] = bits
    return reached


def _initialised(document: Document) -> Iterator[Finding]:
    """What is read of a temporary was written: it has no content before the schedule."""
    reads, writes = by_buffer(document, "reads"), by_buffer(document, "writes")
    for buffer in (each["id"] for each in document["buffers"] if each["kind"] == "temporary"):
        for read in reads[buffer]:
            spans = [(write.start, write.stop) for write in writes[buffer]
                     if write.version <= read.version and write.kernel != read.kernel]
            missing = _first_gap(read.start, read.stop, spans)
            if missing is not None:
                yield Finding("dependencies.raw.order",
                              f"kernel {read.kernel} reads byte {missing} of temporary {buffer}, "
                              f"which no write up to version {read.version} makes")


def _kinds(document: Document) -> Iterator[Finding]:
    """A buffer is of its kind, and as large as its elements."""
    rule = "schedule.document.buffers"
    reads, writes = by_buffer(document, "reads"), by_buffer(document, "writes")
    for each in document["buffers"]:
        number, kind, dtype = each["id"], each["kind"], each["dtype"]
        if kind == "input" and writes[number]:
            yield Finding(rule, f"kernel {writes[number][0].kernel} writes the input {number}")
        if kind != "input" and each["bytes"] and not writes[number]:
            yield Finding(rule, f"no kernel writes the {kind} {number}")
        if kind == "output" and any(read.version == 0 for read in reads[number]):
            yield Finding(rule, f"output {number} is read before it is written")
        wanted = prod(each["shape"]) * protocol.itemsize(dtype) if dtype in protocol.DTYPES else \
            each["bytes"]
        if wanted != each["bytes"]:
            yield Finding(rule, f"buffer {number} has {each['bytes']} bytes, its elements have "
                                f"{wanted}: {each['shape']} of {dtype}")


def _first_gap(start: int, stop: int, spans: Sequence[tuple[int, int]]) -> int | None:
    """The first position of start <= position < stop that no span covers."""
    for first, last in sorted(spans):
        if first > start:
            break
        start = max(start, last)
    return start if start < stop else None


def _boundaries(document: Document) -> Iterator[Finding]:
    """A value that crosses memory between two kernels has a reason for it."""
    if "boundaries" not in document:
        return
    temporary = {each["id"] for each in document["buffers"] if each["kind"] == "temporary"}
    reasons = {(each["before"], each["after"], each.get("buffer"))
               for each in document["boundaries"] if len(each["reason"].split()) > 1}
    reads, writes = by_buffer(document, "reads"), by_buffer(document, "writes")
    for buffer in sorted(temporary):
        for read in reads[buffer]:
            made = [w for w in writes[buffer] if w.overlaps(read) and w.version <= read.version]
            # Earlier writes may have been replaced altogether; the last one surely passes bytes on.
            write = max(made, key=lambda each: each.version, default=None)
            if write is None or write.kernel == read.kernel:
                continue
            if not reasons & {(write.kernel, read.kernel, name) for name in (buffer, None)}:
                yield Finding("fusion.boundary.reason",
                              f"buffer {buffer} passes from kernel {write.kernel} to kernel "
                              f"{read.kernel} for no stated reason")


def _devices(document: Document) -> Iterator[Finding]:
    """A kernel touches only what lies on its device; what joins two devices is a copy."""
    where = {each["id"]: each["device"] for each in document["buffers"]}
    for kernel in document["kernels"]:
        for field in ("reads", "writes") if kernel["kind"] == "kernel" else ():
            for buffer in sorted({each["buffer"] for each in kernel[field]}):
                if where[buffer] != kernel["device"]:
                    yield Finding("schedule.document.devices",
                                  f"kernel {kernel['id']} on {kernel['device']} {field} buffer "
                                  f"{buffer}, which lies on {where[buffer]}")


def joins(document: Document) -> list[int]:
    """The copies of a document that touch buffers of two devices, by their ids."""
    where = {each["id"]: each["device"] for each in document["buffers"]}
    return [kernel["id"] for kernel in document["kernels"] if kernel["kind"] == "copy"
            and len({where[each["buffer"]] for each in (*kernel["reads"], *kernel["writes"])}) > 1]


# Memory ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lifetime:
    """The positions in the order from the first to the last use of a temporary, both included."""

    first: int
    last: int


def lifetimes(document: Document) -> dict[int, Lifetime]:
    """When each temporary is in use, by where in the order its kernels stand.

    A transfer that others run beside is under way until a position that it names.
    """
    position = {kernel: place for place, kernel in enumerate(document["order"])}
    until = {kernel["id"]: kernel["until"] for kernel in document["kernels"] if "until" in kernel}
    used_at: defaultdict[int, list[int]] = defaultdict(list)
    for field in ("reads", "writes"):
        for buffer, found in by_buffer(document, field).items():
            used_at[buffer] += [position[access.kernel] for access in found]
            used_at[buffer] += [until[access.kernel] for access in found if access.kernel in until]
    temporary = {each["id"] for each in document["buffers"] if each["kind"] == "temporary"}
    return {buffer: Lifetime(min(used), max(used)) for buffer, used in sorted(used_at.items())
            if buffer in temporary}


def check_memory(document: Document) -> list[Finding]:
    """Everything that is wrong with the memory plan of a document, if it has one."""
    if "memory" not in document or not _is_order(document):
        return []
    return [*_placed(document), *_lifetimes_covered(document), *_aligned(document),
            *_disjoint(document), *_bounds(document)]


def _placed(document: Document) -> Iterator[Finding]:
    """Every temporary in use has one place."""
    places = Counter(each["buffer"] for each in document["memory"]["placements"])
    sizes = {each["id"]: each["bytes"] for each in document["buffers"]}
    needed = [buffer for buffer in lifetimes(document) if sizes[buffer] > 0]
    for buffer in needed:
        if places[buffer] != 1:
            yield Finding("memory.lifetime.covers",
                          f"temporary {buffer} has {places[buffer]} places")
    for each in document["memory"]["placements"]:
        if each["bytes"] < sizes.get(each["buffer"], 0):
            yield Finding("memory.reuse.disjoint",
                          f"buffer {each['buffer']} of {sizes[each['buffer']]} bytes was given "
                          f"{each['bytes']}")


def _lifetimes_covered(document: Document) -> Iterator[Finding]:
    used = lifetimes(document)
    for each in document["memory"]["placements"]:
        life = used.get(each["buffer"])
        if life and (each["first"] > life.first or each["last"] < life.last):
            yield Finding("memory.lifetime.covers",
                          f"buffer {each['buffer']} is used at positions {life.first} to "
                          f"{life.last} but has memory from {each['first']} to {each['last']}")


def _aligned(document: Document) -> Iterator[Finding]:
    memory = document["memory"]
    arenas = {arena["id"]: arena for arena in memory["arenas"]}
    devices = {each["id"]: each["device"] for each in document["buffers"]}
    rule = "memory.alignment.arena"
    for each in memory["placements"]:
        where = f"buffer {each['buffer']} at offset {each['offset']}"
        if each["arena"] not in arenas:
            yield Finding(rule, f"{where} lies in an unknown arena {each['arena']}")
            continue
        arena = arenas[each["arena"]]
        if each["offset"] % memory["alignment"]:
            yield Finding(rule, f"{where} is not aligned to {memory['alignment']}")
        if each["offset"] + each["bytes"] > arena["bytes"]:
            yield Finding(rule, f"{where} ends outside its arena of {arena['bytes']} bytes")
        if arena.get("device", devices.get(each["buffer"])) != devices.get(each["buffer"]):
            yield Finding(rule, f"{where} lies in an arena of another device")


def _disjoint(document: Document) -> Iterator[Finding]:
    """Two temporaries that are alive together share no byte, except handed over in place."""
    for one, other in _together(document["memory"]["placements"]):
        overlap = (one["arena"] == other["arena"]
                   and max(one["offset"], other["offset"])
                   < min(one["offset"] + one["bytes"], other["offset"] + other["bytes"]))
        if overlap and not _handed_over(document, one, other):
            yield Finding("memory.reuse.disjoint",
                          f"buffers {one['buffer']} and {other['buffer']} are alive together and "
                          f"share bytes of arena {one['arena']}")


def _together(placements: Sequence[Place]) -> Iterator[tuple[Place, Place]]:
    """The pairs that have a position in common, found by walking through the order once."""
    alive: list[Place] = []
    for each in sorted(placements, key=lambda place: place["first"]):
        alive = [other for other in alive if other["last"] >= each["first"]]
        if each["first"] <= each["last"]:
            yield from ((other, each) for other in alive)
            alive.append(each)


def _handed_over(document: Document, one: Place, other: Place) -> bool:
    """Whether one placement declares to take the other's place, at the position that permits it."""
    if other.get("in_place_of") == one["buffer"]:
        one, other = other, one
    if one.get("in_place_of") != other["buffer"]:
        return False
    if one["first"] != other["last"] or one["offset"] != other["offset"] \
            or one["first"] >= len(document["order"]):
        return False
    kernels = {kernel["id"]: kernel for kernel in document["kernels"]}
    shared = kernels[document["order"][one["first"]]]
    return (other["buffer"] in {each["buffer"] for each in shared["reads"]}
            and one["buffer"] in {each["buffer"] for each in shared["writes"]})


def _bounds(document: Document) -> Iterator[Finding]:
    """lower bound <= planned <= unplanned, and each is what it says it is."""
    memory, rule = document["memory"], "memory.planned.bounds"
    planned, unplanned = memory["planned"], memory["unplanned"]
    if not memory["lower_bound"] <= planned <= unplanned:
        yield Finding(rule, f"lower bound {memory['lower_bound']}, planned {planned} and "
                            f"unplanned {unplanned} are not in this order")
    apart = sum(each["bytes"] for each in memory["placements"]
                if each.get("in_place_of") is None)
    if unplanned < apart:
        yield Finding(rule, f"{unplanned} bytes are said to be needed without a plan, but what "
                            f"was placed has {apart}")
    arenas = sum(arena["bytes"] for arena in memory["arenas"])
    if planned != arenas:
        yield Finding(rule, f"{planned} bytes are planned, but the arenas have {arenas}")
    least, most = lower_bounds(document)
    if not least <= memory["lower_bound"] <= most:
        yield Finding(rule, f"the lower bound {memory['lower_bound']} is not the {least} to "
                            f"{most} bytes that are alive together")


def lower_bounds(document: Document) -> tuple[int, int]:
    """The most bytes of temporaries alive at one position, counted sparingly and generously.

    Sparingly: as they are, a buffer handed over in place counted once.  Generously: rounded up
    to the alignment, both counted.  Each device has an arena, and so a bound of its own; the
    bound of the schedule is their sum.
    """
    devices = {each["id"]: each["device"] for each in document["buffers"]}
    lives: defaultdict[str, dict[int, Lifetime]] = defaultdict(dict)
    for buffer, life in lifetimes(document).items():
        lives[devices[buffer]][buffer] = life
    bounds = [_bounds_of_one(document, each) for each in lives.values()]
    return sum(least for least, _ in bounds), sum(most for _, most in bounds)


def _bounds_of_one(document: Document, lives: dict[int, Lifetime]) -> tuple[int, int]:
    memory = document["memory"]
    sizes = {each["id"]: each["bytes"] for each in document["buffers"]}
    heirs = {each["buffer"]: each.get("in_place_of") for each in memory["placements"]}
    alignment = memory["alignment"]
    starting: defaultdict[int, set[int]] = defaultdict(set)
    for buffer, life in lives.items():
        starting[life.first].add(buffer)
    alive: set[int] = set()
    least = most = 0
    for position in range(len(document["order"])):
        alive = {buffer for buffer in alive if lives[buffer].last >= position}
        alive |= starting[position]
        replaced = {heirs.get(buffer) for buffer in alive}
        least = max(least, sum(sizes[buffer] for buffer in alive if buffer not in replaced))
        most = max(most, sum(-(-sizes[buffer] // alignment) * alignment for buffer in alive))
    return least, most
