"""Mistakes of schedulers: writes in place, versions, plans, keys, documents, replays."""

from __future__ import annotations

from itertools import count

import numpy as np

from conformance.oracle import checker
from conformance.protocol import (
    FLOATS,
    Adapter,
    Document,
    Observation,
    Options,
    Program,
    Statement,
    shapes,
)
from conformance.protocol.shapes import Kind, Kinds
from conformance.saboteurs import AdapterSaboteur
from conformance.saboteurs.documents import key_of
from conformance.saboteurs.statements import Instead, Step
from conformance.saboteurs.values import (
    ArgumentsAreFrozen,
    AssignIsNotReplayed,
    ReaderSeesLaterWrite,
    ReplayedOutputsShareMemory,
    Rewriting,
    ViewsAreAliases,
    chain,
    full,
    spoiled,
)

# Functions ---------------------------------------------------------------------------------


class RootForgetsTheSignOfZero(Instead):
    rule = "tensor.unary.limits"
    description = "the root of -0 is 0"
    do = "sqrt"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("constant", [], full(kind, 0)), ("add", ["0", "a"], {}), ("sqrt", ["b"], {})]


class ExponentialOverflowsEarly(Instead):
    rule = "tensor.unary.finite"
    description = "exp(x) is computed as exp(x + 1/2) exp(-1/2)"
    do = "exp"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("constant", [], full(kind, 0.5)), ("add", ["0", "a"], {}), ("exp", ["b"], {}),
                ("constant", [], full(kind, float(np.exp(-0.5)))), ("mul", ["c", "d"], {})]


class RunningSumFromTheEnd(Instead):
    rule = "tensor.running.value"
    description = "a running sum is the whole sum without those of the rest"
    do = "cumsum"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype not in FLOATS or 0 in kind.shape:
            return []
        axes = {"axes": [statement["axis"]]}
        return [("flip", ["0"], axes), ("cumsum", ["a"], {"axis": statement["axis"]}),
                ("flip", ["b"], axes), ("sub", ["c", "0"], {}),
                ("sum", ["0"], {**axes, "keepdims": True}),
                ("expand", ["e"], {"shape": list(kind.shape)}), ("sub", ["f", "d"], {})]


class ProductOfHalvesStopsCounting(Rewriting):
    rule = "tensor.matmul.half"
    description = "a product of halves is accumulated in halves, and stops at 2048"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != "matmul" or kinds[statement["from"][0]].dtype != "float16":
            return [statement]
        return chain(statement, ("matmul", ["0", "1"], {}),
                     ("constant", [], full(shapes.result(statement, kinds), 2048)),
                     ("minimum", ["a", "b"], {}))


# Writes ------------------------------------------------------------------------------------


class NothingClears(Rewriting):
    rule = "effects.view-write.empty"
    description = "a write to no elements writes to the first one"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != "store" or 0 not in kinds[statement["from"][0]].shape:
            return [statement]
        target = kinds[statement["target"]]
        bounds = [[0, 1] for _ in target.shape]
        return [{"do": "constant", "to": "zero", "dtype": target.dtype,
                 "shape": [1] * len(bounds), "value": 0},
                {**statement, "from": ["zero"], "view": [{"do": "shrink", "bounds": bounds}]}]


class WaitingReadersAreLate(ReaderSeesLaterWrite):
    rule = "effects.war.rescue"
    description = "who waits for a value gets the one that was written over it"


class CopiesAreAliases(ViewsAreAliases):
    """What was copied changes with its source."""

    rule = ""

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] in ("copy", "flip"):
            self.views[statement["to"]] = statement["from"][0]
        return super().rewrite(statement, kinds)


class HeldMemoryIsReused(CopiesAreAliases):
    rule = "effects.version.held"
    description = "a value that is held changes when what it was copied from is written"


class HistoryIsLost(CopiesAreAliases):
    rule = "placement.held.kept"
    description = "a write in place changes what was kept of the value"


class FlipsInPlace(AdapterSaboteur):
    rule = "placement.in-place.safe"
    description = "a value that moves within itself overwrites what it still has to read"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        moved = {each["to"]: each["from"][0] for each in program["statements"]
                 if each["do"] in ("flip", "permute")}
        within = any(each["do"] == "assign" and moved.get(each["from"][0]) == each["target"]
                     for each in program["statements"])
        return spoiled(seen) if within else seen


class TargetsShareMemory(Rewriting):
    rule = "placement.version.one-successor"
    description = "two that were given one value are one buffer from then on"

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def program(self, program: Program, options: Options) -> Program:
        self.given = {}
        return super().program(program, options)

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] == "assign":
            self.given[statement["target"]] = statement["from"][0]
        if statement["do"] != "store" or statement["target"] not in self.given:
            return [statement]
        value = self.given[statement["target"]]
        return [{**statement, "target": each} for each, other in self.given.items()
                if other == value]


class SwapsOneAfterTheOther(ReaderSeesLaterWrite):
    rule = "placement.cycle.copied"
    description = "of two values that change places, the second gets the first one's new value"


# Plans and keys ----------------------------------------------------------------------------


class OfThisProcess(AdapterSaboteur):
    """Something comes from a counter that no two processes share."""

    numbers = count(1)

    def __init__(self) -> None:
        self.number = 0

    def wrap(self, adapter: Adapter) -> Adapter:
        other = type(self)()
        other.number = next(self.numbers)
        return AdapterSaboteur.wrap(other, adapter)


class PlacesDependOnTheProcess(OfThisProcess):
    rule = "memory.search.deterministic"
    description = "temporaries begin where the address of an object says"

    def document(self, document: Document) -> None:
        shift = self.number * document["memory"]["alignment"]
        for place in document["memory"]["placements"]:
            place["offset"] += shift


class KeysDependOnTheProcess(OfThisProcess):
    rule = "caching.key.stable"
    description = "a key is a hash that is seeded anew in each process"

    def document(self, document: Document) -> None:
        document["cache"]["key"] += str(self.number)


class PlaceIsForgotten(AdapterSaboteur):
    rule = "caching.key.place+2"
    description = "the key knows what is written, and not where"

    def document(self, document: Document) -> None:
        document["cache"]["key"] = key_of([document["buffers"], [
            (each["name"], each["reads"]) for each in document["kernels"]]])


class HeldIsForgotten(AdapterSaboteur):
    rule = "caching.key.held"
    description = "the key does not know which values live on"

    def document(self, document: Document) -> None:
        document["cache"]["key"] = key_of([each["name"] for each in document["kernels"]])


# Documents ---------------------------------------------------------------------------------


class NoOutputs(AdapterSaboteur):
    rule = "schedule.document.outputs"
    description = "values that are asked for are not among the outputs"

    def document(self, document: Document) -> None:
        document["outputs"] = []


class SecondReadIsForgotten(AdapterSaboteur):
    rule = "schedule.document.complete"
    description = "of what a kernel reads the document lists the first only"

    def document(self, document: Document) -> None:
        for kernel in document["kernels"]:
            kernel["reads"] = kernel["reads"][:1]


class AskingRuns(AdapterSaboteur):
    rule = "schedule.document.nothing-runs"
    description = "the kernels of a document have run twice"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        return spoiled(seen) if seen.schedule else seen


class KernelsWaitForEachOther(AdapterSaboteur):
    rule = "fusion.group.acyclic"
    description = "who is waited for waits as well"

    def document(self, document: Document) -> None:
        document["dependencies"] += [{**each, "before": each["after"], "after": each["before"]}
                                     for each in document["dependencies"]]


class CopiesDoMore(AdapterSaboteur):
    rule = "fusion.cut.device+2"
    description = "a copy to another device reads a second value"

    def document(self, document: Document) -> None:
        for number in checker.joins(document):
            kernel = next(each for each in document["kernels"] if each["id"] == number)
            kernel["reads"] = [*kernel["reads"], kernel["reads"][0]]


class ComputesAgain(AdapterSaboteur):
    rule = "realize.value.once"
    description = "whoever asks for a value has it computed"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        asked = [name for each in program["statements"] if each["do"] == "realize"
                 for name in each["names"]]
        again = len(asked) - len(set(asked))
        seen.schedule += seen.schedule[:1] * again
        return seen


# Replays -----------------------------------------------------------------------------------


class EffectsAreOfTheFirstCalls(AssignIsNotReplayed):
    rule = "replay.effects.all"
    description = "what is not returned changes only while the function is captured"


class InBodies(AdapterSaboteur):
    """Changes what is repeated, knowing what stands before it."""

    def program(self, program: Program, options: Options) -> Program:
        changed: list[Statement] = []
        for each in program["statements"]:
            changed += self.repeated(each, changed) if each["do"] == "repeat" else [each]
        return {**program, "statements": changed}

    def repeated(self, statement: Statement, before: list[Statement]) -> list[Statement]:
        """What stands in the place of a `repeat` after these statements."""
        raise NotImplementedError


class StatesDoNotPart(InBodies):
    rule = "replay.state.parted"
    description = "a state that was given another one's value is that one in a replay"

    def repeated(self, statement: Statement, before: list[Statement]) -> list[Statement]:
        given = {each["from"][0]: each["target"] for each in before if each["do"] == "assign"}
        follow = [{"do": "assign", "target": given[each["target"]], "from": each["from"]}
                  for each in statement["statements"]
                  if each["do"] == "assign" and each["target"] in given]
        return [{**statement, "statements": [*statement["statements"], *follow]}]


class KnownValuesAreNotRecorded(InBodies):
    rule = "replay.capture.whole"
    description = "what was computed before the capture is not computed in it"

    def repeated(self, statement: Statement, before: list[Statement]) -> list[Statement]:
        known = {(each["do"], *each["from"]): each["to"] for each in before
                 if "to" in each and "from" in each}
        body = [{"do": "copy", "to": each["to"],
                 "from": [known[each["do"], *each["from"]]]}
                if "to" in each and (each["do"], *each["from"]) in known else each
                for each in statement["statements"]]
        return [{**statement, "statements": body}]


class PendingIsRepeated(InBodies):
    rule = "replay.pending.before"
    description = "what was pending when a capture began happens at every call"

    def repeated(self, statement: Statement, before: list[Statement]) -> list[Statement]:
        pending: list[Statement] = []
        while before and before[-1]["do"] not in ("realize", "input"):
            pending.insert(0, before.pop())
        return [{**statement, "statements": [*pending, *statement["statements"]]}]


class ReadersWaitTooLong(InBodies):
    rule = "replay.readers.kept"
    description = "who read a state before the calls gets what they made of it"

    def repeated(self, statement: Statement, before: list[Statement]) -> list[Statement]:
        late = before.pop() if "to" in before[-1] and "from" in before[-1] else None
        return [statement, *([late] if late else [])]


class ResultsAreViews(AdapterSaboteur):
    rule = "replay.output.own+2"
    description = "a write to a result of a call reaches what it was made of"

    def program(self, program: Program, options: Options) -> Program:
        made = {each["to"]: each["from"][0] for outer in program["statements"]
                for each in outer.get("statements", ()) if each["do"] in ("copy", "reshape")}
        changed: list[Statement] = []
        for each in program["statements"]:
            changed.append(each)
            if each["do"] == "assign" and each["target"] in made:
                changed.append({**each, "target": made[each["target"]]})
        return {**program, "statements": changed}


class ResultsTakeEachOthersMemory(ReplayedOutputsShareMemory):
    rule = "replay.output.fresh"
    description = "each replay puts its result where the one before put its own"


class StateAsArgumentIsFrozen(ArgumentsAreFrozen):
    rule = "replay.guard.state"
    description = "an argument that is also the state is taken for another tensor"


