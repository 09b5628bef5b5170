"""Mistakes in what single statements mean: each is another statement, or several, in its place."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from conformance.protocol import FLOATS, INTEGERS, Statement
from conformance.protocol.shapes import Kind, Kinds
from conformance.saboteurs import AdapterSaboteur
from conformance.saboteurs.values import Rewriting, chain, full

#: A statement: what it does, its sources, its fields. See `chain`.
Step = tuple[str, list[str], dict[str, Any]]


class Instead(Rewriting):
    """Executes `steps` in the place of each statement that does `do`; none: it stays as it is."""

    do: ClassVar[str] = ""

    def steps(self, statement: Statement, kind: Kind) -> list[Step]:
        """What stands in its place. `kind` is that of its first operand."""
        raise NotImplementedError

    def rewrite(self, statement: Statement, kinds: Kinds) -> list[Statement]:
        if statement["do"] != self.do:
            return [statement]
        return chain(statement, *self.steps(statement, kinds[statement["from"][0]])) \
            or [statement]


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
