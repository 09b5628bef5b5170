"""Mistakes in derivatives.  They are made around the oracle: the demo computes none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.protocol import Observation, Options, Program, Statement, Value, calls
from conformance.protocol.shapes import Kind, Kinds
from conformance.saboteurs import AdapterSaboteur
from conformance.saboteurs.statements import AnswersAnyway, ExpandPads, Instead, Step
from conformance.saboteurs.values import Rewriting

ORACLE = "conformance.oracle:OracleAdapter"


class GradientsAreTurned(AdapterSaboteur):
    rule = "gradient.value.derivative"
    description = "a derivative has the wrong sign"
    base = ORACLE

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        names = {each["to"] for each in program["statements"] if each["do"] == "gradient"}
        return replace(seen, values=[Value.of(value.name, -value.array())
                                     if value.name in names else value for value in seen.values])


class OneUseCounts(Rewriting):
    rule = "gradient.walk.sum"
    description = "of two uses of an input in one operation the first counts"
    base = ORACLE

    def __init__(self) -> None:
        self.inputs: dict[str, Statement] = {}

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] == "input":
            self.inputs[statement["to"]] = statement
        first, *rest = statement.get("from", [""])
        if first in rest and first in self.inputs:
            other = {**self.inputs[first], "to": "unrelated"}
            return [other, {**statement, "from": [first, "unrelated"]}]
        return [statement]


class RepetitionsAreNotAdded(ExpandPads):
    rule = "gradient.broadcast.sum"
    description = "of the places where an element is repeated the first counts"
    base = ORACLE


class ProductsByLogarithms(Instead):
    rule = "gradient.product.zero"
    description = "a product is differentiated as the exponential of a sum of logarithms"
    base = ORACLE
    do = "prod"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        axes = {"axes": statement["axes"], "keepdims": statement["keepdims"]}
        return [("abs", ["0"], {}), ("log", ["a"], {}), ("sum", ["b"], axes), ("exp", ["c"], {})]


class RealizedIsDetached(AdapterSaboteur):
    rule = "gradient.realized.keeps+2"
    description = "no derivative goes through what was realized"
    base = ORACLE

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        if not any(each["do"] == "realize" for each in program["statements"]):
            return seen
        return replace(seen, values=[Value.of(value.name, np.zeros_like(value.array()))
                                     for value in seen.values])


class CallsReturnConstants(AdapterSaboteur):
    rule = "replay.gradient.eager"
    description = "no derivative goes through what a captured function returned"
    base = ORACLE

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        names = {each["to"] for each in program["statements"] if each["do"] == "gradient"}
        if not any(each["do"] == "calls" for each in program["statements"]):
            return seen
        return replace(seen, values=[Value.of(value.name, np.zeros_like(value.array()))
                                     if value.name in names else value for value in seen.values])


class NothingHasNoDerivative(Instead):
    rule = "gradient.empty.reached"
    description = "the derivative of a sum of nothing is not found"
    base = ORACLE
    do = "sum"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if 0 in kind.shape:
            raise ValueError("the result does not depend on the target")
        return []


class SeveralNumbersAreAdded(AnswersAnyway):
    rule = "gradient.seed.scalar"
    description = "what has several numbers is added up first"
    base = ORACLE
    do = ("gradient",)


class GradientsOfTheFirstCall(AdapterSaboteur):
    rule = "replay.call.any"
    description = "a gradient in a body is at each call that of the first one"
    base = ORACLE

    def program(self, program: Program, options: Options) -> Program:
        statements = list[Statement]()
        for statement in program["statements"]:
            body = statement.get("statements", ())
            if not any(each["do"] == "gradient" for each in body):
                statements.append(statement)
                continue
            first, *others = calls(statement)
            statements += first
            for other in others:
                statements += [{"do": "copy", "to": each["to"], "from": [each["to"]]}
                               if each["do"] == "gradient" else each for each in other]
        return {**program, "statements": statements}
