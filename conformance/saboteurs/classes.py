"""Mistakes that show on several axes, at some sizes, for some numbers, or after another program."""

from __future__ import annotations

import json
from typing import Any

from conformance import protocol
from conformance.protocol import Options, Program, Statement
from conformance.protocol.shapes import Kind, Kinds
from conformance.saboteurs import AdapterSaboteur
from conformance.saboteurs.statements import Instead, Step
from conformance.saboteurs.values import Rewriting, full


class SecondPadIsTurned(Instead):
    rule = "statements.movement.axes"
    description = "a pad of several axes exchanges the two sides of the last one"
    do = "pad"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        widths = [list(each) for each in statement["widths"]]
        padded = [axis for axis, each in enumerate(widths) if any(each)]
        if len(padded) < 2:
            return []
        widths[padded[-1]].reverse()
        return [("pad", ["0"], {"widths": widths})]


class ReshapedBeforeItIsTurned(Rewriting):
    rule = "statements.movement.chain"
    description = "two reshapes of a permuted value are made one, of the value before that"

    def __init__(self) -> None:
        self.made: dict[str, Statement] = {}

    def program(self, program: Program, options: Options) -> Program:
        self.made = {}
        return super().program(program, options)

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if "to" in statement:
            self.made[statement["to"]] = statement
        if statement["do"] != "reshape":
            return [statement]
        first = self.made.get(statement["from"][0], {})
        turned = self.made.get(first.get("from", [""])[0], {})
        if first.get("do") != "reshape" or turned.get("do") != "permute" \
                or turned["from"][0] not in kinds:
            return [statement]
        return [{**statement, "from": turned["from"]}]


class LastStepOfThreeIsForgotten(Rewriting):
    rule = "statements.store.view"
    description = "a write through three movements does not flip in the last one"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        view = statement.get("view", ())
        if len(view) < 2 or view[-1]["do"] != "flip":
            return [statement]
        return [{**statement, "view": [*view[:-1], {**view[-1], "axes": []}]}]


class LastOfManyIsForgotten(Instead):
    rule = "statements.size.any"
    description = "a maximum along more than 256 elements leaves out what is left over of fours"
    do = "max"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        axes = statement["axes"]
        if len(axes) != 1 or kind.shape[axes[0]] <= 256:
            return []
        bounds = [[0, size // 4 * 4 if axis == axes[0] else size]
                  for axis, size in enumerate(kind.shape)]
        return [("shrink", ["0"], {"bounds": bounds}),
                ("max", ["a"], {"axes": axes, "keepdims": statement["keepdims"]})]


class DifferencesOfWhatIsGatheredAreTurned(Rewriting):
    rule = "statements.kind.any"
    description = "a difference of bytes that were gathered is taken the other way round"

    def __init__(self) -> None:
        self.gathered: set[str] = set()

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        name, sources = statement.get("to", ""), statement.get("from", [])
        self.gathered.discard(name)
        if statement["do"] == "gather":
            self.gathered.add(name)
        if statement["do"] == "sub" and kinds[sources[0]].dtype == "int8" \
                and self.gathered & {*sources}:
            return [{**statement, "from": sources[::-1]}]
        return [statement]


class NothingIsBelowTheLeastNumber(Instead):
    rule = "statements.reduction.each"
    description = "a maximum begins with the least finite double"
    do = "max"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype != "float64" or not statement["axes"]:
            return []
        return [("constant", [], full(kind, -1.7976931348623157e308)), ("maximum", ["0", "a"], {}),
                ("max", ["b"], {"axes": statement["axes"], "keepdims": statement["keepdims"]})]


class TanhIsADifference(Instead):
    rule = "statements.function.digits"
    description = "tanh is made of exponentials, and has no digits near zero"
    do = "tanh"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype == "float16":
            return []
        limit = full(kind, 15)
        return [("constant", [], limit), ("minimum", ["0", "a"], {}), ("add", ["b", "b"], {}),
                ("exp", ["c"], {}), ("constant", [], full(kind, 1)), ("sub", ["d", "e"], {}),
                ("add", ["d", "e"], {}), ("div", ["f", "g"], {})]


class ConstantsAreFoldedInDoubles(Rewriting):
    rule = "statements.constant.computed"
    description = "a product of two constants is computed in double and rounded once at its end"

    def __init__(self) -> None:
        self.known: dict[str, float] = {}

    def program(self, program: Program, options: Options) -> Program:
        self.known = {}
        return super().program(program, options)

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        name = statement.get("to", "")
        value = statement.get("value")
        sources = statement.get("from", ())
        if statement["do"] == "constant" and isinstance(value, (int, float)):
            self.known[name] = float(value)
        elif statement["do"] == "mul" and all(each in self.known for each in sources) \
                and kinds[sources[0]].dtype in protocol.FLOATS:
            self.known[name] = self.known[sources[0]] * self.known[sources[1]]
            return [{"do": "constant", "to": name, **full(kinds[sources[0]], self.known[name])}]
        else:
            self.known.pop(name, None)
        return [statement]


class LeastByWayOfDoubles(Instead):
    rule = "statements.integers.digits"
    description = "the least of large integers is found among doubles"
    do = "min"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype != "int64":
            return []
        return [("cast", ["0"], {"dtype": "float64"}),
                ("min", ["a"], {"axes": statement["axes"], "keepdims": statement["keepdims"]}),
                ("cast", ["b"], {"dtype": "int64"})]


class PlanOfAnother(AdapterSaboteur):
    """Keeps plans by a key that leaves something out; `told` is what is left of a statement."""

    def __init__(self) -> None:
        self.plans: dict[str, Program] = {}

    def told(self, statement: Statement) -> dict[str, Any]:
        return {key: value for key, value in statement.items() if key != "data"}

    def program(self, program: Program, options: Options) -> Program:
        key = json.dumps([self.told(each) for each in program["statements"]], sort_keys=True)
        plan = self.plans.setdefault(key, program)
        data = [each.get("data") for each in program["statements"]]
        return {**plan, "statements": [
            {**each, **({} if given is None else {"data": given})}
            for each, given in zip(plan["statements"], data, strict=True)]}


class WhereHasNoOrder(PlanOfAnother):
    rule = "caching.program.own"
    description = "the operands of `where` have no order in the key of a plan"

    def told(self, statement: Statement) -> dict[str, Any]:
        known = super().told(statement)
        return {**known, "from": sorted(known["from"])} if known["do"] == "where" else known


class DigitsAreCut(PlanOfAnother):
    rule = "caching.program.own"
    description = "the key of a plan has six digits of a constant"

    def told(self, statement: Statement) -> dict[str, Any]:
        known, value = super().told(statement), statement.get("value")
        return {**known, "value": f"{value:.6g}"} if isinstance(value, float) else known


class NamesAreCut(PlanOfAnother):
    rule = "caching.program.own"
    description = "the key of a plan has the first 64 letters of a name"

    def told(self, statement: Statement) -> dict[str, Any]:
        return {key: value[:64] if key in ("to", "target") else
                [name[:64] for name in value] if key in ("from", "names") else value
                for key, value in super().told(statement).items()}


class ExchangedArgumentsAreNot(AdapterSaboteur):
    rule = "replay.call.any"
    description = "a later call with the same tensors in other places is the second call again"

    def program(self, program: Program, options: Options) -> Program:
        return {**program, "statements": [
            {**each, "given": [*each["given"][:2], *(
                each["given"][1] if sorted(map(str, given.values())) ==
                sorted(map(str, each["given"][1].values())) else given
                for given in each["given"][2:])]}
            if each["do"] == "calls" else each for each in program["statements"]]}


class SeventhCallDoesNothing(AdapterSaboteur):
    rule = "replay.call.any"
    description = "a captured function runs six times, and not again"

    def program(self, program: Program, options: Options) -> Program:
        return {**program, "statements": [
            {**each, "count": min(6, each["count"])} if each["do"] == "repeat" else each
            for each in program["statements"]]}
