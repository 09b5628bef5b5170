"""Mistakes of several devices: copies that alias, come too early, or are not waited for.

Each is made for copies that name a device, and for nothing else: checks on one device find none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.generators import multi_programs
from conformance.oracle import checker
from conformance.protocol import Document, Observation, Options, Program, Statement, Value
from conformance.protocol.shapes import Kinds
from conformance.saboteurs import AdapterSaboteur
from conformance.saboteurs.values import Rewriting, spoiled

# Values ------------------------------------------------------------------------------------


class CopyIsAnAlias(Rewriting):
    rule = "effects.variable.isolated"
    description = "a copy on another device changes when its source is written"

    def __init__(self) -> None:
        self.copies: dict[str, str] = {}

    def program(self, program: Program, options: Options) -> Program:
        self.copies = {}
        return super().program(program, options)

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if "device" in statement:
            self.copies[statement["to"]] = statement["from"][0]
        changed = [statement]
        for copy, source in self.copies.items():
            if statement.get("target") == source and {copy, source} <= set(kinds):
                changed += [{"do": "copy", "to": "seen", "from": [source],
                             "device": kinds[copy].device},
                            {"do": "assign", "target": copy, "from": ["seen"]},
                            {"do": "drop", "names": ["seen"]}]
        return changed


class CopyRunsTooEarly(AdapterSaboteur):
    rule = "device.several.equal"
    description = "a copy runs before the last writer of its source"

    def program(self, program: Program, options: Options) -> Program:
        statements = list(program["statements"])
        for index, statement in enumerate(statements):
            place = _writer_of(statements, index) if "device" in statement else None
            if place is not None:
                statements.insert(place, statements.pop(index))
        return {**program, "statements": statements}


def _writer_of(statements: list[Statement], index: int) -> int | None:
    """Where the last write to the source of a copy stands, if the copy might stand before it."""
    name, source = statements[index]["to"], statements[index]["from"][0]
    for place in reversed(range(index)):
        other = statements[place]
        used = {*other.get("from", ()), *other.get("names", ()), other.get("target")}
        if name in used or other.get("to") in (name, source) or "statements" in other:
            return None
        if other.get("target") == source:
            return place
    return None


class CopyForgetsTheSignOfZero(AdapterSaboteur):
    rule = "device.copy.exact"
    description = "a copy to another device makes 0 of -0"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        if not multi_programs.transfers(program):
            return seen
        return replace(seen, values=[_without_sign(value) for value in seen.values])


def _without_sign(value: Value) -> Value:
    array = value.array()
    return Value.of(value.name, np.where(array == 0, np.zeros_like(array), array))


class CopiesDependOnTheOrder(AdapterSaboteur):
    rule = "ordering.any-legal.equal"
    description = "what a copy brings depends on the order in which kernels run"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        late = options.get("order_seed") and multi_programs.transfers(program)
        return spoiled(seen) if late else seen


class CopyIsOfTheSecondCall(AdapterSaboteur):
    rule = "replay.devices.each"
    description = "a replay finds what the call that was captured copied"

    def program(self, program: Program, options: Options) -> Program:
        changed: list[Statement] = []
        for each in program["statements"]:
            if each["do"] != "repeat":
                changed.append(each)
                continue
            kept = [inner for inner in each["statements"] if "device" not in inner]
            changed += [{**each, "count": min(2, each["count"])},
                        {**each, "count": max(0, each["count"] - 2), "statements": kept}]
        return {**program, "statements": changed}


# Documents ---------------------------------------------------------------------------------


class CopiesDoNotWait(AdapterSaboteur):
    rule = "dependencies.raw.order"
    description = "no copy to another device waits for the writer of its source"

    def document(self, document: Document) -> None:
        copies = checker.joins(document)
        document["dependencies"] = [each for each in document["dependencies"]
                                    if each["kind"] != "RAW" or each["after"] not in copies]


class WritersDoNotWaitForCopies(AdapterSaboteur):
    rule = "dependencies.war.order"
    description = "nobody who overwrites the source of a copy to another device waits for it"

    def document(self, document: Document) -> None:
        copies = checker.joins(document)
        document["dependencies"] = [each for each in document["dependencies"]
                                    if each["kind"] != "WAR" or each["before"] not in copies]


class KernelReadsTheOtherDevice(AdapterSaboteur):
    rule = "schedule.document.devices+2"
    description = "a kernel reads the source of a copy, on the other device, and not the copy"

    def document(self, document: Document) -> None:
        kernels = {each["id"]: each for each in document["kernels"]}
        for number in checker.joins(document):
            source, copy = kernels[number]["reads"][0], kernels[number]["writes"][0]
            for kernel in document["kernels"]:
                if kernel["kind"] == "kernel":
                    kernel["reads"] = [source if each["buffer"] == copy["buffer"] else each
                                       for each in kernel["reads"]]


class OneArenaForAll(AdapterSaboteur):
    rule = "memory.alignment.arena"
    description = "temporaries of every device lie in the arena of the first one"

    def document(self, document: Document) -> None:
        for place in document["memory"]["placements"]:
            place["arena"] = document["memory"]["arenas"][0]["id"]
