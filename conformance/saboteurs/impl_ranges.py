"""Mistakes in the index of a nest, in what has one, and in what is taken for the same nest."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
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


class DividesAtTheBorder(Edit):
    rule = "ranges.reshape.local+4"
    description = "a reshape below padding divides places that are inside wherever they are read"
    file = "impl/ranges/tracing.py"
    old, new = "return symbolic.assuming(at, valid) if divided else at", "return at"


class DistancesSayNothing(Edit):
    rule = "ranges.reshape.local+4"
    description = "of two places that are compared with each other nothing is known"
    first = "test_windows_that_are_added_up_divide_no_place"
    file = "impl/symbolic/rebuild.py"
    old, new = "if found is not None or", "if True or"


class DistancesAreOneMore(Edit):
    rule = "symbolic.rewriting.equal"
    description = "of x < y + 2 it follows that x - y is at most -1"
    first = "test_two_places_that_are_compared_with_each_other"
    file = "impl/symbolic/rebuild.py"
    old, new = "False, -constant - 1", "False, -constant - 3"


class FormsForgetConstants(ImplPatch):
    rule = "ranges.form.shared+2"
    description = "nests that differ in a constant are taken for equal"
    target = "impl.ranges:StageGraph._describe"

    def replacement(self, original: Function) -> Function:
        return _without(lambda row: getattr(row[0], "name", "") == "CONST")(original)


class FormsForgetWhichValue(ImplPatch):
    rule = "ranges.form.shared+2"
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
    rule = "ranges.form.shared+2"
    description = "no two stages share a form"
    target = "impl.ranges:StageGraph._describe"

    def replacement(self, original: Function) -> Function:
        def describe(graph: Any, root: Any, inside: bool) -> Any:
            rows, values = original(graph, root, inside)
            return (*rows, len(graph.stages)), values
        return describe


class FormsForgetThePlaceOfAWrite(ImplPatch):
    rule = "ranges.form.shared+2"
    description = "writes of equal parts at different places are taken for the same nest"
    target = "impl.ranges.graph:_way_to_base"

    def replacement(self, original: Function) -> Function:
        return lambda write: (write.src[1].src[0].shape, write.src[0].shape)


class PermutesTheWrongWay(Edit):
    rule = "ranges.index.exact+2"
    description = "the index of a transposed value is transposed in the same direction"
    file = "impl/ranges/indices.py"
    old, new = "moved[old] = index[axis]", "moved[axis] = index[old]"


class FlipsOneTooFar(Edit):
    rule = "ranges.index.exact+2"
    description = "a flipped axis starts one element behind its end"
    file = "impl/ranges/indices.py"
    old, new = "symbolic.sub(source[axis] - 1, i)", "symbolic.sub(source[axis], i)"


class LoadsForgetTheirCondition(Edit):
    rule = "ranges.access.inside"
    description = "what lies below a PAD is loaded for the padding too"
    file = "impl/ranges/tracing.py"
    old = "self.pattern(shape, region.index, region.valid)"
    new = "self.pattern(shape, region.index)"


class OnlyLoadsAreZero(Edit):
    rule = "ranges.outside.zero"
    description = "padding is zero because its loads are, so that exp makes it one"
    first = "test_padding_is_zero_over_any_function"
    file = "impl/ranges/tracing.py"
    old = "return self._where(source_index(node, region.index)[1], sources[0])"
    new = "return sources[0]"


class NegativeRowsExist(Edit):
    rule = "ranges.outside.zero"
    description = "of an index only the greatest value is looked at"
    first = "test_a_gather_of_no_row_gives_zero"
    file = "impl/ranges/tracing.py"
    old = "return symbolic.logical_and(symbolic.less_equal(0, picked),\n"
    new = "return symbolic.logical_and(TRUE,\n"


class EveryTapHits(Edit):
    rule = "ranges.order.combined+2"
    description = "windows between two steps are added too"
    first = "test_fold_adds_windows_of_two"
    file = "impl/ranges/tracing.py"
    old = "inside = symbolic.logical_and(inside, hit)"
    new = "inside = symbolic.logical_and(inside, TRUE)"


class WritesMakeNoValue(Edit):
    rule = "ranges.stage.one-value+2"
    description = "a write into memory stores the old value once more, not a new one"
    file = "impl/ranges/graph.py"
    old = ("overwrites, = self._brought((overwrites,), device)\n"
           "        slots = self._brought(slots, device)\n"
           "        value = self._new_value(node, node, False, device)")
    new = ("overwrites, = self._brought((overwrites,), device)\n"
           "        slots = self._brought(slots, device)\n"
           "        value = self.values[overwrites or 0]; self.number_of[node] = value.number")


class AtHomeWhereItReads(Edit):
    rule = "places.home.made-of+2"
    description = "what reads nothing is computed on the default device"
    file = "impl/places.py"
    old, new = "    stack = list(nodes)\n", "    stack = list(nodes)[:0]\n"


class CopiesAReshapeOfNothing(Edit):
    rule = "realize.device.named"
    description = "of a number in another shape, the reshape is copied, which is not stored"
    file = "impl/ranges/graph.py"
    old = "self.copied = {self._itself(source) for node in cuts"
    new = "self.copied = {source for node in cuts"


class ReadsWhatLiesElsewhere(Edit):
    rule = "schedule.document.devices+2"
    description = "a kernel reads what was made of no memory wherever it was stored"
    file = "impl/ranges/graph.py"
    old = "if slot in self.homeless and value.device != (device or self.default_device):"
    new = "if slot in self.homeless and device is None:"


class EmptyRowsHaveAStage(Edit):
    rule = "ranges.stage.one-value+2"
    description = "only values of one axis are seen to have no elements"
    file = "impl/ranges/graph.py"
    old, new = "if 0 in (node.shape or ()):", "if node.shape == (0,):"


class TwoWaysAreTwoNodes(Edit):
    rule = "ranges.stage.lean"
    description = "a node that is reached on two ways is computed twice at one index"
    first = "test_a_node_that_is_reached_on_two_ways_is_computed_once"
    file = "impl/ranges/tracing.py"
    old, new = "region = self.regions.get(key)\n", "region = None\n"


class ReductionsShareALoop(Edit):
    rule = "ranges.reduce.own+2"
    description = "all reductions of one size have one loop"
    file = "impl/ranges/tracing.py"
    old, new = "number = self.first_loop + len(self.reduced)", "number = self.first_loop"


class TracesByRecursion(ImplPatch):
    rule = "ranges.trace.depth"
    description = "a node is traced by a function that calls itself for the sources"
    target = "impl.ranges:Tracer._open"

    def replacement(self, original: Function) -> Function:
        def open_all(tracer: Any, node: Any, region: Any, inside: bool, stack: list[Any]) -> bool:
            done: bool = original(tracer, node, region, inside, stack)
            for source, where in () if done else tracer._needs(node, region):
                if source not in where.done:
                    open_all(tracer, source, where, False, stack)
            return done
        return open_all
