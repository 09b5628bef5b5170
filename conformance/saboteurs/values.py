"""Mistakes in what is computed: writes that come too early, lost NaN, widened integers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance import protocol
from conformance.protocol import Observation, Options, Program, Statement, Value, shapes
from conformance.protocol.shapes import Kind, Kinds
from conformance.saboteurs import AdapterSaboteur


class Rewriting(AdapterSaboteur):
    """Replaces statements, each by a few others that end with a result of the same name."""

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        raise NotImplementedError

    def program(self, program: Program, options: Options) -> Program:
        kinds: Kinds = {}
        changed: list[Statement] = []
        for statement in program["statements"]:
            new = [statement] if "statements" in statement else self.rewrite(statement, kinds)
            for each in new:
                shapes.step(each, kinds)
            changed += new
        return {**program, "statements": changed}


def chain(statement: Statement, *steps: tuple[Any, ...]) -> list[Statement]:
    """Statements (do, sources, fields): "0" and "1" are the first operand and the last, "middle"
    the second, "a" the result of the first of these statements, "b" that of the next."""
    given, made = statement.get("from", [""]), list[Statement]()
    for position, (do, sources, fields) in enumerate(steps):
        operands = {"0": given[0], "1": given[-1], "middle": given[len(given) > 1]}
        names = [operands.get(each, f"{statement['to']}_{each}") for each in sources]
        last = position == len(steps) - 1
        name = statement["to"] if last else f"{statement['to']}_{chr(97 + position)}"
        made.append({"do": do, "to": name, **({"from": names} if names else {}), **fields})
    return made


def full(kind: Kind, value: Any) -> dict[str, Any]:
    return {"dtype": kind.dtype, "shape": list(kind.shape), "value": value}


# Effects -----------------------------------------------------------------------------------


class ReaderSeesLaterWrite(AdapterSaboteur):
    rule = "effects.value.eager"
    description = "a lazy reader is evaluated after a write that follows it"

    def program(self, program: Program, options: Options) -> Program:
        statements = list(program["statements"])
        for index in reversed(range(len(statements))):
            later = self._next_write(statements, index)
            if later:
                statements.insert(later, statements.pop(index))
        return {**program, "statements": statements}

    def _next_write(self, statements: list[Statement], index: int) -> int:
        """Where the first write to a source of this reader stands, if the reader can wait."""
        reader = statements[index]
        if not {"from", "to"} <= set(reader):
            return 0
        for place in range(index + 1, len(statements)):
            other = statements[place]
            used = {*other.get("from", ()), *other.get("names", ()), other.get("target")}
            dropped = other.get("names", ()) if other["do"] == "drop" else ()
            gone = {*dropped, other.get("to")} & {reader["to"], *reader["from"]}
            if reader["to"] in used or gone or "statements" in other:
                return 0
            if other.get("target") in reader["from"]:
                return place
        return 0


class EagerLawBroken(ReaderSeesLaterWrite):
    rule = "conventions.value.eager"
    description = "a reader sees the write that follows it"


class WriteHitsTheStart(Rewriting):
    rule = "effects.view-write.region"
    description = "a write through a part of an axis begins one element too early"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != "store":
            return [statement]
        view = [{**step, "bounds": [[max(start - 1, 0), stop - min(start, 1)]
                                    for start, stop in step["bounds"]]}
                if step["do"] == "shrink" else step for step in statement["view"]]
        return [{**statement, "view": view}]


class ViewsAreAliases(Rewriting):
    rule = "effects.variable.isolated"
    description = "a write to a tensor changes the reshaped views of it"

    def __init__(self) -> None:
        self.views: dict[str, str] = {}

    def program(self, program: Program, options: Options) -> Program:
        self.views = {}
        return super().program(program, options)

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] in ("reshape", "contiguous"):
            self.views[statement["to"]] = statement["from"][0]
        changed = [statement]
        for view, source in self.views.items():
            if statement.get("target") == source and {view, source} <= set(kinds):
                shape = list(kinds[view].shape)
                changed += [{"do": "reshape", "to": "seen", "from": [source], "shape": shape},
                            {"do": "assign", "target": view, "from": ["seen"]},
                            {"do": "drop", "names": ["seen"]}]
        return changed


class LastRealizedIsStale(AdapterSaboteur):
    rule = "effects.realize.order-independent+2"
    description = "which version is computed depends on the order of the names in a realize"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        for statement in protocol.walk(program["statements"]):
            if statement["do"] == "realize" and statement["names"] != sorted(statement["names"]):
                return spoiled(seen)
        return seen


def spoiled(seen: Observation) -> Observation:
    """The observation with the first element of each value changed."""
    def spoil(value: Value) -> Value:
        array = value.array().copy()
        if array.size:
            first = array.reshape(-1)[:1]
            array.reshape(-1)[:1] = first ^ True if array.dtype == bool else \
                np.where(first == 1, 2, 1).astype(array.dtype)
        return Value.of(value.name, array)

    return replace(seen, values=[spoil(value) for value in seen.values])


# Options that must not matter --------------------------------------------------------------


class OtherOrderOtherValues(AdapterSaboteur):
    rule = "ordering.any-legal.equal"
    description = "the values depend on the order in which kernels run"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        return spoiled(seen) if options.get("order_seed") else seen


class PlannerChangesValues(AdapterSaboteur):
    rule = "memory.off.equal"
    description = "without the memory planner the values are others"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        off = options.get("settings", {}).get("NO_MEMORY_PLANNER")
        return spoiled(seen) if off else seen


class FreedMemoryIsRead(AdapterSaboteur):
    rule = "memory.poison.unseen"
    description = "something is read from memory that was freed"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        return spoiled(seen) if options.get("poison") else seen


class HitReturnsOldValues(AdapterSaboteur):
    rule = "caching.hit.equal"
    description = "a plan that is found again keeps the inputs of the run that made it"

    def __init__(self) -> None:
        self.seen: dict[str, Observation] = {}

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        shape = str([{key: value for key, value in statement.items() if key != "data"}
                     for statement in program["statements"]])
        old = self.seen.setdefault(shape, seen)
        return replace(seen, values=old.values)


class ResultsShareMemory(AdapterSaboteur):
    rule = "caching.result.independent"
    description = "a later run of the same plan overwrites the earlier result"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        last = {(value.dtype, value.shape): value for value in seen.values}
        return replace(seen, values=[replace(last[value.dtype, value.shape], name=value.name)
                                     for value in seen.values])


class ReplayedOutputsShareMemory(ResultsShareMemory):
    rule = "replay.outputs.distinct"
    description = "the outputs of two replays are one buffer"


class AssignIsNotReplayed(AdapterSaboteur):
    rule = "replay.state.eager"
    description = "an assign that is not returned happens only while the function is captured"

    def program(self, program: Program, options: Options) -> Program:
        changed: list[Statement] = []
        for statement in program["statements"]:
            if statement["do"] != "repeat":
                changed.append(statement)
                continue
            replayed = [each for each in statement["statements"]
                        if each["do"] not in ("assign", "store")]
            changed += [{**statement, "count": min(2, statement["count"])},
                        {**statement, "count": max(0, statement["count"] - 2),
                         "statements": replayed}]
        return {**program, "statements": changed}


class ArgumentsAreFrozen(AdapterSaboteur):
    rule = "replay.arguments.call"
    description = "later calls are answered with the arguments of the second one"

    def program(self, program: Program, options: Options) -> Program:
        return {**program, "statements": [
            {**each, "given": [*each["given"][:2], *each["given"][1:2] * (len(each["given"]) - 2)]}
            if each["do"] == "calls" else each for each in program["statements"]]}


class OutsideIsFrozen(ArgumentsAreFrozen):
    rule = "replay.guard.complete"
    description = "what a body reads from outside is what it was at the second call"


# Operations --------------------------------------------------------------------------------


class PaddingAfterTheFunction(Rewriting):
    rule = "fusion.value.equal"
    description = "padding moves past exp, so that exp of it is 0 and not 1"

    def __init__(self) -> None:
        self.padded: dict[str, Statement] = {}

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] == "pad":
            self.padded[statement["to"]] = statement
        source = self.padded.get(statement.get("from", [""])[0])
        if statement["do"] != "exp" or source is None or source["from"][0] not in kinds:
            return [statement]
        return [{"do": "exp", "to": statement["to"] + "_a", "from": source["from"]},
                {**source, "to": statement["to"], "from": [statement["to"] + "_a"]}]


class PaddingIsNotZero(PaddingAfterTheFunction):
    rule = "tensor.pad.zeros"
    description = "what is computed from padding does not see zeros"


class MaximumLosesNan(Rewriting):
    rule = "tensor.nan.maximum"
    description = "maximum(a, b) is a < b ? b : a"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != "maximum":
            return [statement]
        return chain(statement, ("less", ["0", "1"], {}), ("where", ["a", "1", "0"], {}))


class NanIsLost(MaximumLosesNan):
    rule = "conventions.nan.propagate"
    description = "a comparison decides a maximum, and NaN loses every comparison"


class Saturating(Rewriting):
    rule = "dtypes.wraparound.integer"
    description = "sums of small integers stop at the limit"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        kind = kinds.get(statement.get("from", [""])[0])
        if statement["do"] != "add" or kind is None or kind.dtype not in ("int8", "uint8"):
            return [statement]
        limits, wide = np.iinfo(kind.dtype), Kind("int32", kind.shape)
        return chain(
            statement, ("cast", ["0"], {"dtype": "int32"}), ("cast", ["1"], {"dtype": "int32"}),
            ("add", ["a", "b"], {}), ("constant", [], full(wide, int(limits.max))),
            ("minimum", ["c", "d"], {}), ("constant", [], full(wide, int(limits.min))),
            ("maximum", ["e", "f"], {}), ("cast", ["g"], {"dtype": kind.dtype}))


class IntegersAreInexact(Saturating):
    rule = "conventions.integers.exact"
    description = "sums of small integers saturate"


class DivisionCutsOff(Rewriting):
    rule = "dtypes.division.floor"
    description = "integer division rounds toward zero, as C does it"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        kind = kinds.get(statement.get("from", [""])[0])
        if statement["do"] != "floordiv" or kind is None or kind.dtype != "int32":
            return [statement]
        return chain(
            statement, ("cast", ["0"], {"dtype": "float64"}),
            ("cast", ["1"], {"dtype": "float64"}), ("div", ["a", "b"], {}),
            ("cast", ["c"], {"dtype": "int32"}))


class CancelledSum(Rewriting):
    rule = "conventions.reassociation.elementwise+2"
    description = "(x + y) - y is simplified to x"

    def __init__(self) -> None:
        self.sums: dict[str, list[str]] = {}

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] == "add":
            self.sums[statement["to"]] = statement["from"]
        terms = self.sums.get(statement.get("from", [""])[0])
        if statement["do"] == "sub" and terms and statement["from"][1] in terms:
            rest = terms[1 - terms.index(statement["from"][1])]
            return [{"do": "copy", "to": statement["to"], "from": [rest]}]
        return [statement]


class SumKeptWider(CancelledSum):
    rule = "conventions.rounding.point"
    description = "a sum is kept in a wider register until it is stored"


class NegationBySubtraction(Rewriting):
    rule = "conventions.zero.sign"
    description = "-x is computed as 0 - x"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != "neg":
            return [statement]
        return chain(statement, ("constant", [], full(kinds[statement["from"][0]], 0)),
                      ("sub", ["a", "0"], {}))


class FlipIsForgotten(Rewriting):
    rule = "tensor.movement.elements"
    description = "a flip of several axes turns only the first of them"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] == "flip" and len(statement["axes"]) > 1:
            return [{**statement, "axes": statement["axes"][:1]}]
        return [statement]


class MeanOfNothingIsZero(AdapterSaboteur):
    rule = "tensor.reduce.empty"
    description = "a mean over no elements is 0"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        return replace(seen, values=[
            Value.of(value.name, np.nan_to_num(value.array())) for value in seen.values])


class HalvesInHalves(Rewriting):
    rule = "dtypes.half.accumulate"
    description = "a sum of float16 is the last of running sums that are rounded each time"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        kind = kinds.get(statement.get("from", [""])[0])
        if statement["do"] != "mean" or kind is None or kind.dtype != "float16":
            return [statement]
        axes = {"axes": statement["axes"], "keepdims": statement["keepdims"]}
        size = int(np.prod([kind.shape[axis] for axis in statement["axes"]]))
        shape = shapes.result({**statement, "do": "sum"}, kinds)
        return chain(statement, ("sum", ["0"], axes), ("constant", [], full(shape, size)),
                      ("div", ["a", "b"], {}))


class HalvesInColumnsInHalves(Rewriting):
    rule = "dtypes.half.accumulate"
    description = "a sum of float16 over the first axis alone stops counting at 2048"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        kind = kinds.get(statement.get("from", [""])[0])
        if statement["do"] != "sum" or kind is None or kind.dtype != "float16" \
                or statement["axes"] != [0] or len(kind.shape) < 2:
            return [statement]
        axes = {"axes": [0], "keepdims": statement["keepdims"]}
        result = shapes.result(statement, kinds)
        return chain(statement, ("sum", ["0"], axes), ("constant", [], full(result, 2048)),
                      ("minimum", ["a", "b"], {}))


class SoftmaxInHalves(Rewriting):
    rule = "tensor.activation.half"
    description = "softmax of halves rounds each of its steps to a half"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        kind = kinds.get(statement.get("from", [""])[0])
        if statement["do"] != "softmax" or kind is None or kind.dtype != "float16" \
                or 0 in kind.shape:
            return [statement]
        along = {"axes": [statement["axis"]], "keepdims": True}
        whole = {"shape": list(kind.shape)}
        return chain(statement, ("max", ["0"], along), ("expand", ["a"], whole),
                      ("sub", ["0", "b"], {}), ("exp", ["c"], {}), ("sum", ["d"], along),
                      ("expand", ["e"], whole), ("div", ["d", "f"], {}))


class SoftmaxOfNothing(Rewriting):
    rule = "tensor.softmax.empty"
    description = "softmax along an axis without elements raises, as a maximum of nothing does"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] == "softmax":
            if kinds[statement["from"][0]].shape[statement["axis"]] == 0:
                raise ValueError("zero-size array to reduction operation maximum")
        return [statement]


class MissingForOneDtype(Rewriting):
    """Raises for one statement and one dtype, both of which are declared."""

    do, dtype = "", ""

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        used = [kinds[name].dtype for name in statement.get("from", ()) if name in kinds]
        steps = [step["do"] for step in statement.get("view", ())]
        if self.do in (statement["do"], *steps) and self.dtype in used:
            raise TypeError(f"{self.do} is not implemented for {self.dtype}")
        return [statement]


class NoRowsOfShorts(MissingForOneDtype):
    rule = "conventions.support.declared"
    description = "gather is declared, and raises for uint16"
    do, dtype = "gather", "uint16"


class NoFlipOfBools(MissingForOneDtype):
    rule = "conventions.support.declared"
    description = "flip is declared, and raises for bool"
    do, dtype = "flip", "bool"


class NoRunningSumOfDoubles(MissingForOneDtype):
    rule = "conventions.support.declared"
    description = "cumsum is declared, and raises for float64"
    do, dtype = "cumsum", "float64"


class NoStoreOfBytes(MissingForOneDtype):
    rule = "conventions.support.declared"
    description = "store is declared, and raises for int8"
    do, dtype = "store", "int8"
