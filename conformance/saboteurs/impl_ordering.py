"""Mistakes in the order of kernels, made inside `impl.ordering`."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class _Order(ImplPatch):
    target = "impl.ordering:linearize"


class TransfersComeLate(ImplPatch):
    rule = "ordering.transfers.early+2"
    description = "a transfer waits until nothing else is left to compute"
    target = "impl.ordering:overlapped"

    def replacement(self, original: Function) -> Function:
        return lambda order, *given: order


class SizesAreAsSmallAsTheyAre(Edit):
    rule = "ordering.peak.not-worse"
    description = "orders are compared by the bytes of values, and not by those of their places"
    first = "test_the_peak_is_that_of_memory_in_which_places_are_aligned"
    file = "impl/schedule/draft.py"
    old, new = "{n: aligned(s.nbytes) for", "{n: s.nbytes for"


class LastKernelIsForgotten(_Order):
    rule = "ordering.legal.permutation"
    description = "the last kernel does not run"

    def replacement(self, original: Function) -> Function:
        return lambda *given, **named: original(*given, **named)[:-1]


class SomeOrdersBreakReaders(ImplPatch):
    rule = "ordering.any-legal.equal"
    description = "a write may pass its readers, which shows in some orders only"
    target = "impl.dependencies:find"

    def replacement(self, original: Function) -> Function:
        return lambda *given: [d for d in original(*given) if d.kind != "WAR"]


class OrderIsDrawn(_Order):
    rule = "ordering.deterministic.same"
    description = "among legal orders one is drawn at random"
    first = "test_the_order_does_not_depend_on_how_dependences_are_listed"

    def replacement(self, original: Function) -> Function:
        def linearize(count: int, dependencies: Any, uses: Any, seed: int | None = None) -> Any:
            drawn = random.SystemRandom().randrange(1 << 30)
            return original(count, dependencies, uses, drawn if seed is None else seed)
        return linearize


class CyclesRun(_Order):
    rule = "ordering.cycle.error"
    description = "kernels that wait for each other run in some order"

    def replacement(self, original: Function) -> Function:
        def linearize(count: int, *given: Any, **named: Any) -> Any:
            try:
                return original(count, *given, **named)
            except Exception:
                return list(range(count))
        return linearize


class AlwaysGreedy(_Order):
    rule = "ordering.peak.not-worse"
    description = "the greedy order is taken even where the plain one needs less memory"

    def replacement(self, original: Function) -> Function:
        def linearize(count: int, dependencies: Any, uses: Any, seed: int | None = None) -> Any:
            from impl import ordering
            pairs = {(each.before, each.after) for each in dependencies}
            return ordering._greedy_order(ordering._Graph(count, pairs), uses)
        return linearize
