"""Mistakes of meshes: values that lie elsewhere, in other parts, or not alike on all devices."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from conformance.oracle import laying
from conformance.protocol import (
    Document,
    Laid,
    Observation,
    Options,
    Program,
    Statement,
    Value,
    walk,
)
from conformance.protocol.shapes import Kinds, Mesh, parts
from conformance.saboteurs import AdapterSaboteur
from conformance.saboteurs.values import Rewriting


class SumOfOnePart(Rewriting):
    rule = "multi.value.equal"
    description = "a sum along an axis that is cut in two leaves out the last part"

    def __init__(self) -> None:
        self.cut: dict[str, int] = {}

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] == "shard" and statement["cut"]:
            self.cut[statement["to"]] = next(iter(statement["cut"].values()))
        source = statement.get("from", [""])[0]
        axis = self.cut.get(source)
        if statement["do"] != "sum" or axis is None or axis not in statement["axes"]:
            return [statement]
        shape = kinds[source].shape
        bounds = [[0, size - (place == axis and size > 1)] for place, size in enumerate(shape)]
        name = f"{statement['to']}_part"
        return [{"do": "shrink", "to": name, "from": [source], "bounds": bounds},
                {**statement, "from": [name]}]


class LosesTheSignOfZero(AdapterSaboteur):
    rule = "statements.shard.bits"
    description = "what is sent to a mesh has no -0"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        if not any(each["do"] == "shard" for each in walk(program["statements"])):
            return seen
        return replace(seen, values=[_plus(value) for value in seen.values])


def _plus(value: Value) -> Value:
    array = value.array()
    return Value.of(value.name, np.where(array == 0, np.zeros_like(array), array))


class _Changing(AdapterSaboteur):
    """Answers something else about how values lie."""

    def changed(self, laid: Laid, want: Any) -> Laid:
        raise NotImplementedError

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        wanted = laying.laid(program)
        return replace(seen, laid=[self.changed(laid, want)
                                   for laid, want in zip(seen.laid, wanted, strict=True)])


def _as_copies(laid: Laid, want: Any) -> Laid:
    value = Value.of(laid.name, want.expected.value)
    return replace(laid, cut={}, shards=[value] * len(laid.devices))


class EverythingIsCopied(_Changing):
    rule = "multi.shard.asked+2"
    description = "whatever was asked for, every device has all of a value"

    def changed(self, laid: Laid, want: Any) -> Laid:
        return _as_copies(laid, want)


class WritesCopy(_Changing):
    rule = "multi.write.kept"
    description = "what was written to is copied to all devices"

    def changed(self, laid: Laid, want: Any) -> Laid:
        return _as_copies(laid, want) if want.written else laid


class FirstPartIsSmaller(_Changing):
    rule = "multi.shard.parts+2"
    description = "where an axis is not divisible, the first device has less and not the last"

    def changed(self, laid: Laid, want: Any) -> Laid:
        value, mesh = want.expected.value, Mesh(laid.devices, laid.axes)
        flipped = [tuple(slice(size - each.stop, size - each.start)
                         for each, size in zip(part, value.shape, strict=True))
                   for part in reversed(parts(mesh, laid.cut, value.shape))]
        if len(laid.cut) != 1 or len(mesh.axes) != 1:
            return laid
        return replace(laid, shards=[Value.of(laid.name, value[part]) for part in flipped])


class ForgetsAName(AdapterSaboteur):
    rule = "statements.shards.order"
    description = "what devices have is reported in the opposite order"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        return replace(seen, laid=seen.laid[::-1])


class DevicesAreSwapped(_Changing):
    rule = "multi.shards.held+2"
    description = "the first device and the last have each other's part"

    def changed(self, laid: Laid, want: Any) -> Laid:
        return replace(laid, shards=[laid.shards[-1], *laid.shards[1:-1], laid.shards[0]]
                       if len(laid.shards) > 1 else laid.shards)


class EachAddsInItsOrder(_Changing):
    rule = "collectives.reduce.equal+2"
    description = "the last device has another rounding of the same sum"

    def changed(self, laid: Laid, want: Any) -> Laid:
        last = laid.shards[-1].array()
        if laid.cut or last.dtype.kind != "f" or len(laid.shards) < 2:
            return laid
        moved = np.nextafter(last, np.asarray(np.inf, last.dtype))
        return replace(laid, shards=[*laid.shards[:-1], Value.of(laid.name, moved)])


class NobodyWaitsForTransfers(AdapterSaboteur):
    rule = "collectives.transfer.untouched+2"
    description = "a transfer is under way until the end of its schedule, whoever needs its value"
    base = "conformance.adapters.impl_adapter:Adapter"

    def document(self, document: Document) -> None:
        for kernel in document["kernels"]:
            if "until" in kernel:
                kernel["until"] = len(document["order"]) - 1


class _Rounds(AdapterSaboteur):
    """Spoils the rounds of transfers."""

    base = "conformance.adapters.impl_adapter:Adapter"

    def document(self, document: Document) -> None:
        for kernel in document["kernels"]:
            rounds = kernel.get("collective", {}).get("rounds")
            if rounds:
                self.spoil(rounds)

    def spoil(self, rounds: list[Any]) -> None:
        raise NotImplementedError


class ReceivesLate(_Rounds):
    rule = "collectives.rounds.matched+2"
    description = "all send in the last round, and receive in one of its own after it"

    def spoil(self, rounds: list[Any]) -> None:
        last = rounds[-1]
        rounds[-1:] = [{**last, "receives": []}, {**last, "sends": []}]


class AddsAPartTwice(_Rounds):
    rule = "collectives.rounds.complete+2"
    description = "a round in which parts are combined is run twice"

    def spoil(self, rounds: list[Any]) -> None:
        for place, each in enumerate(rounds):
            if any(move[-1] == "combine" for move in each["receives"]):
                rounds.insert(place, each)
                return


class ProcessesSendInAnOrderOfTheirOwn(AdapterSaboteur):
    rule = "collectives.order.same"
    description = "every second process has its transfers in the opposite order"
    base = "conformance.adapters.impl_adapter:Adapter"

    numbers = count()

    def __init__(self) -> None:
        self.number = 0

    def wrap(self, adapter: Any) -> Any:
        other = type(self)()
        other.number = next(self.numbers)
        return AdapterSaboteur.wrap(other, adapter)

    def document(self, document: Document) -> None:
        if self.number % 2:
            document["order"] = document["order"][::-1]


class AnyBlockOfDevices(AdapterSaboteur):
    rule = "multi.mesh.devices+2"
    description = "a mesh with a device twice, or with too few, is one all the same"

    def program(self, program: Program, options: Options) -> Program:
        return {**program, "statements": [
            {**each, "devices": [0], "axes": [[each["axes"][0][0], 1]]}
            if each["do"] == "shard" else each for each in program["statements"]]}


class AnyAxisOfTheMesh(AdapterSaboteur):
    rule = "multi.mesh.axis+2"
    description = "a cut along an axis that the mesh does not have is passed over"

    def program(self, program: Program, options: Options) -> Program:
        return {**program, "statements": [
            {**each, "cut": {}} if each["do"] == "shard" else each
            for each in program["statements"]]}
