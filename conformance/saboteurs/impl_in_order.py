"""Mistakes in what is computed one element after the other, made inside `impl`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class RunningResultsForgetWhatWasBefore(ImplPatch):
    rule = "ranges.order.combined+2"
    description = "an element of a running result is the element itself"
    first = "test_running_results"
    target = "impl.ranges.in_order:_scan"

    def replacement(self, original: Function) -> Function:
        return lambda *given: None


class KeysAreForgotten(ImplPatch):
    rule = "ranges.order.combined+2"
    description = "all elements of a running result by key have one key"
    first = "test_a_running_sum_by_hand"
    target = "impl.ranges.in_order:_scan"

    def replacement(self, original: Function) -> Function:
        from impl.ranges import Pattern
        from impl.ranges.indices import ZERO

        def scan(*given: Any) -> Any:
            made = original(*given)
            return replace(made, key=ZERO, before=Pattern((made.table,), (ZERO,))) \
                if made.table else made
        return scan


class TheFirstWriterStays(ImplPatch):
    rule = "ranges.order.combined+2"
    description = "rows of a scatter are written from the last to the first"
    first = "test_a_scatter_by_hand"
    target = "impl.gradient.nodes:scatter"

    def replacement(self, original: Function) -> Function:
        from impl.gradient import nodes

        return lambda op, base, index, values: original(
            op, base, nodes.flip(index, (0,)), nodes.flip(values, (0,)))


class RowsOutsideAreTheFirst(ImplPatch):
    rule = "ranges.order.combined+2"
    description = "an index that names no row names the first one"
    first = "test_a_scatter_by_hand"
    target = "impl.ranges.in_order:_scatter"

    def replacement(self, original: Function) -> Function:
        from impl.ir import Ops, UOp
        from impl.ranges import Pattern
        from impl.ranges.indices import ZERO

        def scatter(*given: Any) -> Any:
            made = original(*given)
            row = made.target.index[0]
            inside = UOp(Ops.WHERE, row.dtype, (made.target.valid, row, ZERO))
            target = Pattern(made.target.shape, (inside, *made.target.index[1:]))
            return replace(made, before=target, target=target)
        return scatter


class DescendingIsTheReverse(ImplPatch):
    rule = "tensor.sort.order"
    description = "what is equal comes in the opposite order when the order is descending"
    target = "impl.tensor.reduce:sort_origin"

    def replacement(self, original: Function) -> Function:
        from impl.gradient import nodes

        def origin(x: Any, descending: bool) -> Any:
            made = original(x, False)
            return nodes.flip(made, (len(made.shape) - 1,)) if descending else made
        return origin
