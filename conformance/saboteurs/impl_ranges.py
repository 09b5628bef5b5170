"""Mistakes in what is taken for the same loop nest, made inside `impl.ranges`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


def _without(part: Callable[[tuple[Any, ...]], bool]) -> Callable[[Function], Function]:
    """The description of a nest, in which some parts of a row are left out."""
    def replace(original: Function) -> Function:
        def describe(graph: Any, root: Any, inside: bool) -> Any:
            rows, values = original(graph, root, inside)
            return tuple(() if isinstance(row, tuple) and part(row) else row
                         for row in rows), values
        return describe
    return replace


class FormsForgetConstants(ImplPatch):
    rule = "ranges.form.shared"
    description = "nests that differ in a constant are taken for equal"
    target = "impl.ranges:StageGraph._describe"

    def replacement(self, original: Function) -> Function:
        return _without(lambda row: getattr(row[0], "name", "") == "CONST")(original)


class FormsForgetWhichValue(ImplPatch):
    rule = "ranges.form.shared"
    description = "x + x and x + y are taken for the same nest"
    target = "impl.ranges:StageGraph._describe"

    def replacement(self, original: Function) -> Function:
        def describe(graph: Any, root: Any, inside: bool) -> Any:
            rows, values = original(graph, root, inside)
            met = [row for row in rows if not isinstance(row, int)]
            rows = [met[row] if isinstance(row, int) else row for row in rows]
            return tuple(row[1:] if type(row[0]) is int else row for row in rows), values
        return describe


class EveryNestIsTraced(ImplPatch):
    rule = "ranges.form.shared"
    description = "no two stages share a form"
    target = "impl.ranges:StageGraph._describe"

    def replacement(self, original: Function) -> Function:
        def describe(graph: Any, root: Any, inside: bool) -> Any:
            rows, values = original(graph, root, inside)
            return (*rows, len(graph.stages)), values
        return describe


class FormsForgetThePlaceOfAWrite(ImplPatch):
    rule = "ranges.form.place"
    description = "writes of equal parts at different places are taken for the same nest"
    target = "impl.ranges:_way_to_base"

    def replacement(self, original: Function) -> Function:
        return lambda write: (write.src[1].src[0].shape, write.src[0].shape)
