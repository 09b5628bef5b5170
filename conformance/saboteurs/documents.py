"""Mistakes in what a schedule says: dependencies, orders, places, keys."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import count
from typing import Any

from conformance.protocol import Document, Observation, Options, Program
from conformance.saboteurs import AdapterSaboteur


def _without(document: Document, kind: str) -> None:
    document["dependencies"] = [each for each in document["dependencies"]
                                if each["kind"] != kind]


class ReadersDoNotWait(AdapterSaboteur):
    rule = "dependencies.raw.order"
    description = "read-after-write dependencies are left out"

    def document(self, document: Document) -> None:
        _without(document, "RAW")


class WritersDoNotWaitForReaders(AdapterSaboteur):
    rule = "dependencies.war.order"
    description = "write-after-read dependencies are left out"

    def document(self, document: Document) -> None:
        _without(document, "WAR")


class WritersDoNotWaitForWriters(AdapterSaboteur):
    rule = "dependencies.waw.order"
    description = "write-after-write dependencies, and what implies them, are left out"

    def document(self, document: Document) -> None:
        # The readers between two writers order them too, so these have to go as well.
        document["dependencies"] = []


class EverythingWaits(AdapterSaboteur):
    rule = "dependencies.ranges.disjoint"
    description = "each kernel waits for the one before it, whatever they touch"

    def document(self, document: Document) -> None:
        order = document["order"]
        for before, after in zip(order, order[1:], strict=False):
            for buffer in document["buffers"]:
                document["dependencies"].append({"before": before, "after": after, "kind": "RAW",
                                                 "buffer": buffer["id"], "version": 1})


class KindsAreMistaken(AdapterSaboteur):
    rule = "dependencies.ranges.disjoint"
    description = "each dependency is said to be one between two writers"

    def document(self, document: Document) -> None:
        for each in document["dependencies"]:
            each["kind"] = "WAW"


class OneDeviceForAll(AdapterSaboteur):
    rule = "schedule.document.buffers"
    description = "everything is said to lie on one device"

    def document(self, document: Document) -> None:
        for each in (*document["buffers"], *document["kernels"],
                     *document.get("memory", {}).get("arenas", ())):
            if "device" in each:
                each["device"] = "CPU"


class OneWriterForAll(AdapterSaboteur):
    rule = "effects.version.single-writer"
    description = "a write does not make a new version"

    def document(self, document: Document) -> None:
        for kernel in document["kernels"]:
            for access in kernel["writes"]:
                access["version"] = 1


class KernelIsForgotten(AdapterSaboteur):
    rule = "ordering.legal.permutation"
    description = "the order leaves out the last kernel"

    def document(self, document: Document) -> None:
        document["order"] = document["order"][:-1]


class OrderDependsOnTheProcess(AdapterSaboteur):
    rule = "ordering.deterministic.same"
    description = "names come from a counter that no two processes share"

    numbers = count()

    def __init__(self) -> None:
        self.prefix = ""

    def wrap(self, adapter: Any) -> Any:
        other = type(self)()
        other.prefix = f"process{next(self.numbers)}_"
        return AdapterSaboteur.wrap(other, adapter)

    def document(self, document: Document) -> None:
        for kernel in document["kernels"]:
            kernel["name"] = self.prefix + kernel.get("name", "")


class NoReasonGiven(AdapterSaboteur):
    rule = "fusion.boundary.reason"
    description = "boundaries are listed without their reasons"

    def document(self, document: Document) -> None:
        for each in document.get("boundaries", ()):
            each["reason"] = ""


class ReasonIsALetter(AdapterSaboteur):
    rule = "fusion.boundary.reason"
    description = "each boundary has the reason x"

    def document(self, document: Document) -> None:
        for each in document.get("boundaries", ()):
            each["reason"] = "x"


class EverythingIsBytes(AdapterSaboteur):
    rule = "schedule.document.buffers"
    description = "each buffer is said to be one of bytes"

    def document(self, document: Document) -> None:
        for each in document["buffers"]:
            each.update(dtype="uint8", shape=[each["bytes"]])


class TenTimesAsLarge(AdapterSaboteur):
    rule = "schedule.document.buffers"
    description = "buffers are said to have ten times as many elements and bytes"

    def document(self, document: Document) -> None:
        for each in document["buffers"]:
            each.update(shape=[10, *each["shape"]], bytes=10 * each["bytes"])


class SignsAreForgotten(AdapterSaboteur):
    rule = "schedule.document.buffers"
    description = "numbers with a sign are said to have none"

    def document(self, document: Document) -> None:
        for each in document["buffers"]:
            each["dtype"] = each["dtype"].replace("uint", "int").replace("int", "uint")


class EverythingIsAState(AdapterSaboteur):
    rule = "schedule.document.buffers"
    description = "what is only read is said to be overwritten"

    def document(self, document: Document) -> None:
        for each in document["buffers"]:
            each["kind"] = "state" if each["kind"] == "input" else each["kind"]


class EverythingIsACopy(AdapterSaboteur):
    rule = "schedule.document.flow+2"
    description = "each kernel is said to be a copy"

    def document(self, document: Document) -> None:
        for each in document["kernels"]:
            each["kind"] = "copy"


class AnotherInputIsRead(AdapterSaboteur):
    rule = "schedule.document.flow+2"
    description = "a kernel is said to read one input for another"

    def document(self, document: Document) -> None:
        inputs = [each for each in document["buffers"] if each["kind"] == "input"]
        if len(inputs) < 2:
            return
        one, other = inputs[:2]
        for kernel in document["kernels"]:
            for read in kernel["reads"]:
                if read["buffer"] == other["id"]:
                    read.update(buffer=one["id"], start=0, stop=min(read["stop"], one["bytes"]))


class UnknownBuffer(AdapterSaboteur):
    rule = "schedule.document.schema"
    description = "a kernel reads a buffer that is not listed"

    def document(self, document: Document) -> None:
        for kernel in document["kernels"][:1]:
            kernel["reads"].append({"buffer": 12345, "version": 0, "start": 0, "stop": 1})


# Memory ------------------------------------------------------------------------------------


class EverythingAtOffsetZero(AdapterSaboteur):
    rule = "memory.reuse.disjoint+2"
    description = "temporaries that are alive together get the same memory"

    def document(self, document: Document) -> None:
        for place in document["memory"]["placements"]:
            place["offset"] = 0


class FreedOneStepEarly(AdapterSaboteur):
    rule = "memory.lifetime.covers+2"
    description = "a temporary's memory is given away one step before its last reader"

    def document(self, document: Document) -> None:
        for place in document["memory"]["placements"]:
            place["last"] -= 1


class MisalignedPlaces(AdapterSaboteur):
    rule = "memory.alignment.arena"
    description = "places start one byte too late"

    def document(self, document: Document) -> None:
        for place in document["memory"]["placements"]:
            place["offset"] += 1


class BoastfulLowerBound(AdapterSaboteur):
    rule = "memory.planned.bounds"
    description = "the lower bound is not the one that the lifetimes have"

    def document(self, document: Document) -> None:
        memory = document["memory"]
        if memory["placements"]:
            memory["lower_bound"] = 0


# Caching -----------------------------------------------------------------------------------


def key_of(what: Any) -> str:
    return sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


class AliasesAreForgotten(AdapterSaboteur):
    rule = "caching.key.alias"
    description = "x + x and x + y have the same key"

    def document(self, document: Document) -> None:
        document["cache"]["key"] = key_of([len(kernel["writes"])
                                            for kernel in document["kernels"]])


class DtypeIsForgotten(AdapterSaboteur):
    rule = "caching.key.program"
    description = "the key knows sizes and names, but no dtypes"

    def document(self, document: Document) -> None:
        sizes = [buffer["bytes"] for buffer in document["buffers"]]
        names = [kernel["reads"] for kernel in document["kernels"]]
        document["cache"]["key"] = key_of([sizes, names])


class AlwaysAHit(AdapterSaboteur):
    rule = "caching.hit.said"
    description = "each plan is said to come from the cache"

    def document(self, document: Document) -> None:
        document["cache"]["hit"] = True


class NamesInTheKey(AdapterSaboteur):
    rule = "caching.key.renaming"
    description = "the key contains what the user called the variables"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        for document in seen.schedule:
            document["cache"]["key"] = key_of(program)
        return seen


class SettingsAreForgotten(AdapterSaboteur):
    rule = "caching.key.settings"
    description = "a plan made under other settings is returned"

    def __init__(self) -> None:
        self.plans: dict[str, list[Document]] = {}

    def wrap(self, adapter: Any) -> Any:
        plans = self.plans

        class Forgetful(type(super().wrap(adapter))):  # type: ignore[misc]
            def reset(self) -> None:
                plans.clear()
                super().reset()

        return Forgetful(adapter, self)

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        if seen.schedule:
            seen.schedule = self.plans.setdefault(key_of(program), seen.schedule)
        return seen


class StagesAreOne(AdapterSaboteur):
    rule = "schedule.document.agrees+2"
    description = "every kernel is said to have one stage, and to be fused for a reason"

    def document(self, document: Document) -> None:
        for kernel in document["kernels"]:
            kernel["stages"] = 1
        document["fusions"] = [{"kernel": kernel["id"], "reason": "their loops are the same"}
                               for kernel in document["kernels"]]


class TwiceAsMuchIsSaved(AdapterSaboteur):
    rule = "schedule.document.agrees+2"
    description = "the memory that a plan saves is said to be twice as much"

    def document(self, document: Document) -> None:
        if "memory" in document:
            document["memory"]["unplanned"] += 1 + document["memory"]["unplanned"]
