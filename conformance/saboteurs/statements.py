"""Mistakes in what single statements mean: each is another statement, or several, in its place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from conformance.protocol import (
    FLOATS,
    INTEGERS,
    Adapter,
    Observation,
    Options,
    Program,
    Statement,
    Value,
)
from conformance.protocol.shapes import Kind, Kinds
from conformance.saboteurs import AdapterSaboteur
from conformance.saboteurs.values import Rewriting, chain, full, spoiled

#: A statement: what it does, its sources, its fields. See `chain`.
Step = tuple[str, list[str], dict[str, Any]]


class Instead(Rewriting):
    """Executes `steps` in the place of each statement that does `do`; none: it stays as it is."""

    do: ClassVar[str] = ""

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        """What stands in its place. `kind` is that of its first operand, or else of its result."""
        raise NotImplementedError

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != self.do:
            return [statement]
        kind = kinds[statement["from"][0]] if "from" in statement else \
            Kind(statement["dtype"], tuple(statement["shape"]))
        return chain(statement, *self.steps(statement, kind)) or [statement]


def without_first(kind: Kind, axis: int) -> Step:
    """The first operand without its first element along an axis."""
    return ("shrink", ["0"], {"bounds": [[int(each == axis), size]
                                         for each, size in enumerate(kind.shape)]})


class CastSaturates(Instead):
    rule = "dtypes.cast.integer"
    description = "a cast to a narrower integer stops at its limits"
    do = "cast"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype not in INTEGERS or statement["dtype"] not in INTEGERS:
            return []
        wide, narrow = np.iinfo(kind.dtype), np.iinfo(statement["dtype"])
        if wide.min > narrow.min or wide.max < narrow.max:
            return []
        return [("constant", [], full(kind, int(narrow.max))), ("minimum", ["0", "a"], {}),
                ("constant", [], full(kind, int(narrow.min))), ("maximum", ["b", "c"], {}),
                ("cast", ["d"], {"dtype": statement["dtype"]})]


class CastRounds(Instead):
    rule = "dtypes.cast.float"
    description = "a cast of a float to an integer takes the nearest one"
    do = "cast"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype not in FLOATS or statement["dtype"] not in INTEGERS:
            return []
        return [("constant", [], full(kind, 0.5)), ("add", ["0", "a"], {}),
                ("cast", ["b"], {"dtype": statement["dtype"]})]


class SumSkipsTheFirst(Instead):
    rule = "tensor.reduce.axes"
    description = "a sum leaves out the first element along its first axis"
    do = "sum"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        axes = [axis for axis in statement["axes"] if kind.shape[axis]]
        if not axes:
            return []
        return [without_first(kind, axes[0]),
                ("sum", ["a"], {"axes": statement["axes"], "keepdims": statement["keepdims"]})]


class ProductPairsBackwards(Instead):
    rule = "tensor.matmul.value"
    description = "the inner axis of the left operand is walked backwards"
    do = "matmul"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("flip", ["0"], {"axes": [len(kind.shape) - 1]}), ("matmul", ["a", "1"], {})]


class GatherCountsFromTheEnd(Instead):
    rule = "tensor.gather.rows"
    description = "rows are counted from the last one"
    do = "gather"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("flip", ["0"], {"axes": [0]}), ("gather", ["a", "1"], {})]


class CountsElements(AdapterSaboteur):
    rule = "conventions.units.bytes"
    description = "sizes and ranges of memory are counted in elements"

    def document(self, document: dict[str, Any]) -> None:
        sizes = {each["id"]: np.dtype(each["dtype"]).itemsize for each in document["buffers"]}
        for buffer in document["buffers"]:
            buffer["bytes"] //= sizes[buffer["id"]]
        for kernel in document["kernels"]:
            for access in (*kernel["reads"], *kernel["writes"]):
                access["start"] //= sizes[access["buffer"]]
                access["stop"] //= sizes[access["buffer"]]


class Another(Instead):
    """Executes another statement of the same form, or the same one with other operands."""

    other: ClassVar[str] = ""
    operands: ClassVar[tuple[str, ...]] = ("0",)

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        fields = {key: field for key, field in statement.items()
                  if key not in ("do", "to", "from")}
        return [(self.other or self.do, list(self.operands), fields)]


class InHalves(Instead):
    """Computes with operands that were rounded to halves first."""

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype not in ("float32", "float64"):
            return []
        narrow, wide = {"dtype": "float16"}, {"dtype": kind.dtype}
        second: list[Step] = [("cast", ["1"], narrow)] if len(statement["from"]) > 1 else []
        names = ["a", "b"][:1 + len(second)]
        return [("cast", ["0"], narrow), *second, (self.do, names, {}),
                ("cast", [chr(ord(names[-1]) + 1)], wide)]


# Values ------------------------------------------------------------------------------------


class SumsAreWider(AdapterSaboteur):
    rule = "statements.result.dtype"
    description = "bytes come out as 32-bit integers"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        return replace(seen, values=[
            Value.of(value.name, value.array().astype(np.int32)) if value.dtype == "int8" else value
            for value in seen.values])


class ScalarsHaveAnAxis(AdapterSaboteur):
    rule = "statements.result.scalar"
    description = "a number comes out as a list of one"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        return replace(seen, values=[replace(value, shape=value.shape or (1,))
                                     for value in seen.values])


class NothingIsFlat(AdapterSaboteur):
    rule = "statements.result.empty"
    description = "what has no elements loses its axes"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        return replace(seen, values=[value if value.array().size else replace(value, shape=(0,))
                                     for value in seen.values])


class InputsGoDownColumns(Instead):
    rule = "statements.input.order"
    description = "inputs are read column by column"
    do = "input"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        turned = list(reversed(kind.shape))
        return [("input", [], {**_fields(statement), "shape": turned}),
                ("permute", ["a"], {"order": list(reversed(range(len(turned))))})]


def _fields(statement: Statement) -> dict[str, Any]:
    return {key: field for key, field in statement.items() if key not in ("do", "to", "from")}


class ConstantsOfHalves(Instead):
    rule = "statements.constant.digits"
    description = "a constant has the digits of a half"
    do = "constant"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype not in ("float32", "float64"):
            return []
        return [("constant", [], _fields(statement)), ("cast", ["a"], {"dtype": "float16"}),
                ("cast", ["b"], {"dtype": kind.dtype})]


class InfinityIsLarge(Instead):
    rule = "statements.constant.words"
    description = "the constant inf is a large number"
    do = "constant"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if statement["value"] != "inf":
            return []
        return [("constant", [], {**_fields(statement), "value": 60000})]


# One operand -------------------------------------------------------------------------------


class AbsIsRelu(Another):
    rule = "statements.abs.value"
    description = "abs gives zero for what is below it"
    do, other = "abs", "relu"


class ReluIsAbs(Another):
    rule = "statements.relu.value"
    description = "relu turns what is below zero round"
    do, other = "relu", "abs"


class NotIsNegation(Instead):
    rule = "statements.not.bits"
    description = "~x is computed as -x"
    do = "not"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("neg", ["0"], {})] if kind.dtype != "bool" else []


class NotIsForgotten(Instead):
    rule = "statements.not.truth"
    description = "not of a truth is that truth"
    do = "not"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("copy", ["0"], {})] if kind.dtype == "bool" else []


class RootOfHalves(InHalves):
    rule = "statements.sqrt.rounded"
    description = "a root has the digits of a half"
    do = "sqrt"


class RootOfAbs(Instead):
    rule = "statements.sqrt.negative"
    description = "a root forgets the sign"
    do = "sqrt"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("abs", ["0"], {}), ("sqrt", ["a"], {})]


class ReciprocalOfHalves(InHalves):
    rule = "statements.reciprocal.rounded"
    description = "a reciprocal is an estimate of eleven digits"
    do = "reciprocal"


class ExponentialStops(Instead):
    rule = "statements.exp.overflow"
    description = "an exponential stops at a large number"
    do = "exp"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("exp", ["0"], {}), ("constant", [], full(kind, 60000)),
                ("minimum", ["a", "b"], {})]


class LogarithmOfAbs(Instead):
    rule = "statements.log.below"
    description = "a logarithm forgets the sign"
    do = "log"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("abs", ["0"], {}), ("log", ["a"], {})]


class SineOfLarge(Instead):
    rule = "statements.sin.infinite"
    description = "the sine of an infinity is that of a large number"
    do = "sin"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("constant", [], full(kind, 1000)), ("minimum", ["0", "a"], {}), ("sin", ["b"], {})]


class TanhByExponentials(Instead):
    rule = "statements.tanh.saturated"
    description = "tanh is a quotient of two infinities"
    do = "tanh"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("add", ["0", "0"], {}), ("exp", ["a"], {}), ("constant", [], full(kind, 1)),
                ("sub", ["b", "c"], {}), ("add", ["b", "c"], {}), ("div", ["d", "e"], {})]


class AddsZero(Instead):
    """Adds zero, which takes the sign of -0 away."""

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype not in FLOATS:
            return []
        return [("constant", [], full(kind, 0)), ("add", ["0", "a"], {})]


class CopyAddsZero(AddsZero):
    rule = "statements.copy.bits"
    description = "a copy is computed as x + 0"
    do = "copy"


class ContiguousAddsZero(AddsZero):
    rule = "statements.contiguous.bits"
    description = "what is made contiguous is computed as x + 0"
    do = "contiguous"


# Two operands and more ---------------------------------------------------------------------


class SumOfHalves(InHalves):
    rule = "statements.add.rounded"
    description = "a sum is computed in halves"
    do = "add"


class DifferenceTurned(Another):
    rule = "statements.sub.order"
    description = "the first operand is taken from the second"
    do, operands = "sub", ("1", "0")


class ProductOfHalves(InHalves):
    rule = "statements.mul.rounded"
    description = "a product is computed in halves"
    do = "mul"


class QuotientByReciprocal(Instead):
    rule = "statements.div.rounded"
    description = "x / y is computed as x times 1 / y, and rounded twice"
    do = "div"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("reciprocal", ["1"], {}), ("mul", ["0", "a"], {})]


class PowerTurned(Another):
    rule = "statements.pow.value"
    description = "basis and exponent change places"
    do, operands = "pow", ("1", "0")


class RemainderOfC(Instead):
    rule = "statements.mod.sign"
    description = "a remainder has no sign"
    do = "mod"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("abs", ["0"], {}), ("abs", ["1"], {}), ("mod", ["a", "b"], {})] \
            if kind.dtype in INTEGERS else []


class MaximumIsMinimum(Another):
    rule = "statements.maximum.choice"
    description = "maximum takes the smaller one"
    do, other, operands = "maximum", "minimum", ("0", "1")


class MinimumIsMaximum(Another):
    rule = "statements.minimum.choice"
    description = "minimum takes the greater one"
    do, other, operands = "minimum", "maximum", ("0", "1")


class LessIsReached(Another):
    rule = "statements.less.strict"
    description = "a < b is true of equal numbers"
    do, other, operands = "less", "less_equal", ("0", "1")


class LessEqualIsStrict(Another):
    rule = "statements.less-equal.reached"
    description = "a <= b is false of equal numbers"
    do, other, operands = "less_equal", "less", ("0", "1")


class EqualIsLessEqual(Another):
    rule = "statements.equal.same"
    description = "a == b is true of a smaller a"
    do, other, operands = "equal", "less_equal", ("0", "1")


class LessIsNotMore(Instead):
    rule = "statements.comparison.nan"
    description = "a < b is computed as not b <= a, which is true of NaN"
    do = "less"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("less_equal", ["1", "0"], {}), ("not", ["a"], {})]


class EqualOfBits(Instead):
    rule = "statements.comparison.zero"
    description = "numbers are equal if their bits are"
    do = "equal"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        bits = {"float32": "int32", "float64": "int64", "float16": "int16"}.get(kind.dtype)
        return [("bitcast", ["0"], {"dtype": bits}), ("bitcast", ["1"], {"dtype": bits}),
                ("equal", ["a", "b"], {})] if bits else []


class ComparesDoubles(Instead):
    rule = "statements.comparison.digits"
    description = "integers are compared as doubles"
    do = "equal"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("cast", ["0"], {"dtype": "float64"}), ("cast", ["1"], {"dtype": "float64"}),
                ("equal", ["a", "b"], {})] if kind.dtype in INTEGERS else []


class AndIsOr(Another):
    rule = "statements.and.bits"
    description = "and gives the bits of either"
    do, other, operands = "and", "or", ("0", "1")


class OrIsXor(Another):
    rule = "statements.or.bits"
    description = "or forgets the bits of both"
    do, other, operands = "or", "xor", ("0", "1")


class XorIsOr(Another):
    rule = "statements.xor.bits"
    description = "xor keeps the bits of both"
    do, other, operands = "xor", "or", ("0", "1")


class WhereTurned(Another):
    rule = "statements.where.choice"
    description = "where takes the third operand where the first is true"
    do, operands = "where", ("0", "1", "middle")


class WhereByArithmetic(Rewriting):
    rule = "statements.where.untouched"
    description = "where is computed as c * x + (1 - c) * y"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        kind = kinds[statement["from"][1]] if statement["do"] == "where" else None
        if kind is None or kind.dtype not in FLOATS:
            return [statement]
        return chain(statement, ("cast", ["0"], {"dtype": kind.dtype}),
                     ("mul", ["a", "middle"], {}), ("not", ["0"], {}),
                     ("cast", ["c"], {"dtype": kind.dtype}), ("mul", ["d", "1"], {}),
                     ("add", ["b", "e"], {}))


# Casts -------------------------------------------------------------------------------------


class TruthOfIntegers(Instead):
    rule = "statements.cast.truth"
    description = "a float is cut off before it is asked whether it is zero"
    do = "cast"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype not in FLOATS or statement["dtype"] != "bool":
            return []
        return [("cast", ["0"], {"dtype": "int32"}), ("cast", ["a"], {"dtype": "bool"})]


class IntegersOfHalves(Instead):
    rule = "statements.cast.nearest"
    description = "an integer becomes a half on its way to a float"
    do = "cast"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype not in INTEGERS or statement["dtype"] not in ("float32", "float64"):
            return []
        return [("cast", ["0"], {"dtype": "float16"}), ("cast", ["a"], _fields(statement))]


class CastsByWayOfSingles(Instead):
    rule = "statements.cast.once"
    description = "a double becomes a half by way of a single, and is rounded twice"
    do = "cast"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if (kind.dtype, statement["dtype"]) != ("float64", "float16"):
            return []
        return [("cast", ["0"], {"dtype": "float32"}), ("cast", ["a"], {"dtype": "float16"})]


class CastsStop(Instead):
    rule = "statements.cast.infinite"
    description = "a cast to a narrower float stops at a large number"
    do = "cast"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype not in FLOATS or statement["dtype"] not in FLOATS:
            return []
        return [("constant", [], full(kind, 60000)), ("minimum", ["0", "a"], {}),
                ("cast", ["b"], _fields(statement))]


class BitcastIsCast(Another):
    rule = "statements.bitcast.bits"
    description = "a bitcast keeps the number, and not its bits"
    do, other = "bitcast", "cast"


# Movements ---------------------------------------------------------------------------------


class ReshapeGoesDownColumns(Instead):
    rule = "statements.reshape.order"
    description = "reshape takes the elements column by column"
    do = "reshape"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        order = list(reversed(range(len(kind.shape))))
        return [("permute", ["0"], {"order": order}), ("reshape", ["a"], _fields(statement))]


class ExpandPads(Instead):
    rule = "statements.expand.repeat"
    description = "expand fills up with zeros"
    do = "expand"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        widths = [[0, new - old] for old, new in zip(kind.shape, statement["shape"], strict=True)]
        return [("pad", ["0"], {"widths": widths})]


class PermuteTurned(Instead):
    rule = "statements.permute.order"
    description = "axis i of the operand becomes axis order[i]"
    do = "permute"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        order = statement["order"]
        return [("permute", ["0"], {"order": [order.index(each) for each in range(len(order))]})]


class PadTurned(Instead):
    rule = "statements.pad.sides"
    description = "what is to be before the elements comes behind them"
    do = "pad"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("pad", ["0"], {"widths": [[b, a] for a, b in statement["widths"]]})]


class ShrinkIsLate(Instead):
    rule = "statements.shrink.bounds"
    description = "a shrink begins one element late where there is room"
    do = "shrink"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        bounds = [[start + (stop < size), stop + (stop < size)]
                  for (start, stop), size in zip(statement["bounds"], kind.shape, strict=True)]
        return [("shrink", ["0"], {"bounds": bounds})]


class FlipOfAllAxes(Instead):
    rule = "statements.flip.axes"
    description = "a flip reverses every axis"
    do = "flip"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("flip", ["0"], {"axes": list(range(len(kind.shape)))})]


class StrideFromTheLast(Instead):
    rule = "statements.stride.first"
    description = "a stride begins with the last element"
    do = "stride"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        axes = {"axes": list(range(len(kind.shape)))}
        return [("flip", ["0"], axes), ("stride", ["a"], _fields(statement)), ("flip", ["b"], axes)]


# Reductions and what runs along an axis ----------------------------------------------------


class SumIsRoundedBefore(Instead):
    rule = "statements.sum.exact"
    description = "the terms of a sum are rounded to halves"
    do = "sum"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("cast", ["0"], {"dtype": "float16"}), ("cast", ["a"], {"dtype": kind.dtype}),
                ("sum", ["b"], _fields(statement))]


class ProductIsSum(Another):
    rule = "statements.prod.value"
    description = "elements are added and not multiplied"
    do, other = "prod", "sum"


class MaxBeginsWithZero(Instead):
    rule = "statements.max.negative"
    description = "the search for the greatest begins with zero"
    do = "max"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.dtype == "bool":
            return []
        return [("relu", ["0"], {}), ("max", ["a"], _fields(statement))]


class MinBeginsWithZero(Instead):
    rule = "statements.min.positive"
    description = "the search for the smallest begins with zero"
    do = "min"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("constant", [], full(kind, 0)), ("minimum", ["0", "a"], {}),
                ("min", ["b"], _fields(statement))]


class MeanIsSum(Another):
    rule = "statements.mean.value"
    description = "a mean is not divided"
    do, other = "mean", "sum"


class AxesAreAlwaysKept(Instead):
    rule = "statements.reduction.keepdims"
    description = "the axes of a sum are always kept"
    do = "sum"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("sum", ["0"], {**_fields(statement), "keepdims": True})]


class NoAxesAreAll(Instead):
    rule = "statements.reduction.none"
    description = "a sum over no axes is over all of them"
    do = "sum"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        axes = statement["axes"] or list(range(len(kind.shape)))
        return [("sum", ["0"], {**_fields(statement), "axes": axes})]


class RunningSumWithoutItself(Instead):
    rule = "statements.cumsum.inclusive"
    description = "a running sum lacks the element where it stands"
    do = "cumsum"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("cumsum", ["0"], _fields(statement)), ("sub", ["a", "0"], {})]


class OtherAxis(Instead):
    """Runs along the axis after the one that is asked for."""

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [(self.do, ["0"], {"axis": (statement["axis"] + 1) % len(kind.shape)})]


class RunningSumAlongAnother(OtherAxis):
    rule = "statements.cumsum.axis"
    description = "a running sum runs along another axis"
    do = "cumsum"


class WeightsAlongAnother(OtherAxis):
    rule = "statements.softmax.axis"
    description = "softmax divides by the sums along another axis"
    do = "softmax"


class SoftmaxIsNotShifted(Instead):
    rule = "statements.softmax.large"
    description = "softmax is the quotient of exponentials as they are"
    do = "softmax"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        return [("exp", ["0"], {}), ("sum", ["a"], {"axes": [statement["axis"]], "keepdims": True}),
                ("expand", ["b"], {"shape": list(kind.shape)}), ("div", ["a", "c"], {})]


class BatchesAreMixed(Instead):
    rule = "statements.matmul.batch"
    description = "the first left matrix meets the last right one"
    do = "matmul"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if len(kind.shape) < 3:
            return []
        return [("flip", ["1"], {"axes": [0]}), ("matmul", ["0", "a"], {})]


class ProductOfNothingIsRefused(Instead):
    rule = "statements.matmul.nothing"
    description = "a product over an empty axis raises"
    do = "matmul"

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        if kind.shape[-1] == 0:
            raise ValueError("the inner axis is empty")
        return []


class GatherOfOneAxis(Rewriting):
    rule = "statements.gather.shape"
    description = "the axes of an index are walked in the opposite order"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != "gather":
            return [statement]
        order = list(reversed(range(len(kinds[statement["from"][1]].shape))))
        return chain(statement, ("permute", ["1"], {"order": order}), ("gather", ["0", "a"], {}))


class GatherInOrder(Rewriting):
    rule = "statements.gather.repeated"
    description = "rows come as they stand in the index read backwards"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != "gather":
            return [statement]
        axes = list(range(len(kinds[statement["from"][1]].shape)))
        return chain(statement, ("flip", ["1"], {"axes": axes}), ("gather", ["0", "a"], {}))


# Names, writes, repetitions ----------------------------------------------------------------


class OldNamesFollow(AdapterSaboteur):
    rule = "statements.name.rebound"
    description = "what was computed from a name is computed when it is asked for, from the new one"

    def program(self, program: Program, options: Options) -> Program:
        statements = list(program["statements"])
        for index, reader in enumerate(program["statements"]):
            later = [place for place, each in enumerate(program["statements"]) if place > index
                     and "to" in each and each["to"] in reader.get("from", ())]
            if later and "to" in reader and not _used(statements[index:later[0] + 1], reader["to"]):
                statements.insert(later[0], statements.pop(index))
                break
        return {**program, "statements": statements}


def _used(statements: Sequence[Statement], name: str) -> bool:
    """Whether a statement reads a variable."""
    return any(name in (*each.get("from", ()), *each.get("names", ())) for each in statements)


class AssignIsForgotten(AdapterSaboteur):
    rule = "statements.assign.whole"
    description = "an assign does nothing"

    def program(self, program: Program, options: Options) -> Program:
        return {**program, "statements": [each for each in program["statements"]
                                          if each["do"] != "assign"]}


class StoreClears(Rewriting):
    rule = "statements.store.rest"
    description = "a store sets what it does not select to zero"

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != "store":
            return [statement]
        target = statement["target"]
        return [{"do": "constant", "to": "cleared", **full(kinds[target], 0)},
                {"do": "assign", "target": target, "from": ["cleared"]}, statement]


class DropGivesMemoryAway(AdapterSaboteur):
    rule = "statements.drop.others"
    description = "the memory of what is dropped is reused while it is still read"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        dropped = any(each["do"] == "drop" for each in program["statements"])
        return spoiled(seen) if dropped else seen


class ObservedInOrderOfNames(AdapterSaboteur):
    rule = "statements.observe.order"
    description = "values are reported in the order of their names"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        return replace(seen, values=sorted(seen.values, key=lambda value: value.name))


class LookingChanges(AdapterSaboteur):
    rule = "statements.observe.again"
    description = "what is looked at a second time is another value"

    def observation(self, seen: Observation, program: Program, options: Options) -> Observation:
        names: set[str] = set()
        values = []
        for value in seen.values:
            again = replace(seen, values=[value])
            values += spoiled(again).values if value.name in names else [value]
            names.add(value.name)
        return replace(seen, values=values)


class OnceTooFew(AdapterSaboteur):
    rule = "statements.repeat.count"
    description = "a body is executed once at least, and else once too few"

    def program(self, program: Program, options: Options) -> Program:
        return {**program, "statements": [
            {**each, "count": max(1, each["count"] - 1)} if each["do"] == "repeat" else each
            for each in program["statements"]]}


class CallsAreAlike(AdapterSaboteur):
    rule = "statements.calls.names"
    description = "each call has the variables of the first one"

    def program(self, program: Program, options: Options) -> Program:
        return {**program, "statements": [
            {**each, "given": [each["given"][0]] * len(each["given"])}
            if each["do"] == "calls" else each for each in program["statements"]]}


class NumbersAreFrozen(CallsAreAlike):
    rule = "statements.calls.numbers"
    description = "each call has the numbers of the first one"


# Programs that are refused -----------------------------------------------------------------


class AnswersAnyway(AdapterSaboteur):
    """Answers with values of some sort where the program has no meaning."""

    do: ClassVar[tuple[str, ...]] = ()

    def wrap(self, adapter: Adapter) -> Adapter:
        answers = self.do

        class Answering(type(super().wrap(adapter))):  # type: ignore[misc]
            def run(self, program: Program, observe: Collection[str],
                    options: Options | None = None) -> Observation:
                try:
                    return super().run(program, observe, options)
                except Exception:  # whatever it was
                    if any(each["do"] in answers for each in program["statements"]):
                        return Observation()
                    raise

        return Answering(adapter, self)


class UnknownNamesAreEmpty(AnswersAnyway):
    rule = "statements.refused.unknown"
    description = "a name that nothing defines is a value of no elements"
    do = ("add", "neg")


class DroppedNamesLive(AnswersAnyway):
    rule = "statements.refused.dropped"
    description = "a name can be used after its drop"
    do = ("drop",)


class ShapesAreCut(AnswersAnyway):
    rule = "statements.refused.shapes"
    description = "the longer operand is cut off"
    do = ("add", "mul", "maximum", "less")


class ReshapeCuts(AnswersAnyway):
    rule = "statements.refused.reshape"
    description = "a reshape to fewer elements drops the rest"
    do = ("reshape",)


class ExpandTiles(AnswersAnyway):
    rule = "statements.refused.expand"
    description = "an expand of several elements repeats them"
    do = ("expand",)


class PermuteGuesses(AnswersAnyway):
    rule = "statements.refused.permute"
    description = "an order that names an axis twice is taken as it comes"
    do = ("permute",)


class AxisIsIgnored(AnswersAnyway):
    rule = "statements.refused.axis"
    description = "an axis that is not there is left out"
    do = ("sum", "max")


class InnerSizesAreCut(AnswersAnyway):
    rule = "statements.refused.matmul"
    description = "the longer inner axis is cut off"
    do = ("matmul",)


class AssignReshapes(AnswersAnyway):
    rule = "statements.refused.assign"
    description = "an assign takes another shape as it is"
    do = ("assign",)


class StoreCuts(AnswersAnyway):
    rule = "statements.refused.store"
    description = "a store of too many elements stores the first ones"
    do = ("store",)


class ErrorsLinger(AdapterSaboteur):
    rule = "statements.refused.after"
    description = "the program after an error still has values of the one before"

    def wrap(self, adapter: Adapter) -> Adapter:
        class Lingering(type(super().wrap(adapter))):  # type: ignore[misc]
            failed = False

            def run(self, program: Program, observe: Collection[str],
                    options: Options | None = None) -> Observation:
                failed, self.failed = self.failed, True
                seen: Observation = super().run(program, observe, options)
                self.failed = False
                return spoiled(seen) if failed else seen

        return Lingering(adapter, self)
