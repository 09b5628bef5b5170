"""Mistakes in the places of temporaries, made inside `impl.memory`."""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class LastStepDoesNotCount(ImplPatch):
    rule = "memory.reuse.disjoint+2"
    description = "lives that have only their ends in common are taken not to meet"
    first = "test_what_is_alive_together_lies_apart"
    target = "impl.memory:Lifetime.meets"

    def replacement(self, original: Function) -> Function:
        return lambda one, other: one.first < other.last and other.first < one.last


class GivenBackTooEarly(ImplPatch):
    rule = "memory.reuse.disjoint+2"
    description = "the planner that walks through time gives a place back before its last step"
    target = "impl.memory.greedy:walk_through_time"

    def replacement(self, original: Function) -> Function:
        return lambda spans: original([replace(s, last=max(s.first, s.last - 1)) for s in spans])


class FirstFitOverlaps(ImplPatch):
    rule = "memory.reuse.disjoint+2"
    description = "first fit puts everything at offset 0"
    target = "impl.memory.greedy:first_fit"

    def replacement(self, original: Function) -> Function:
        return lambda spans: {span.storage: 0 for span in spans}


class LowestFirstOverlaps(ImplPatch):
    rule = "memory.reuse.disjoint+2"
    description = "filling from below forgets how high what was placed is"
    target = "impl.memory.greedy:lowest_first"

    def replacement(self, original: Function) -> Function:
        return lambda spans: original([replace(s, nbytes=s.nbytes // 2) for s in spans])


class SearchOverlaps(ImplPatch):
    rule = "memory.reuse.disjoint+2"
    description = "the search lets the last step of a life not count"
    target = "impl.memory.search:Problem"

    def replacement(self, original: Function) -> Function:
        return lambda spans: original([replace(s, last=max(s.first, s.last - 1)) for s in spans])


class PartsCutTooEarly(ImplPatch):
    rule = "memory.reuse.disjoint+2"
    description = "time is cut where a life still goes on"
    target = "impl.memory:parts"

    def replacement(self, original: Function) -> Function:
        return lambda spans: [[span] for span in spans]


class SearchIsWorse(ImplPatch):
    rule = "memory.search.not-worse"
    description = "what the search found last is taken, whether it needs less or not"
    target = "impl.memory.search:improve"

    def replacement(self, original: Function) -> Function:
        def one_after_the_other(spans: Any, *_: Any) -> tuple[dict[int, int], int]:
            tops = [sum(s.nbytes for s in spans[:number]) for number in range(len(spans))]
            return {span.storage: top for span, top in zip(spans, tops, strict=True)}, 0
        return one_after_the_other


class SearchRollsDice(ImplPatch):
    rule = "memory.search.deterministic"
    description = "what the search prefers is random, and other in every run"
    target = "impl.memory.search:Problem.preferences"

    def replacement(self, original: Function) -> Function:
        chooser = random.SystemRandom()
        return lambda problem: (chooser.sample(order, len(order)) for order in original(problem))


class SearchRepeatsItself(ImplPatch):
    rule = "memory.plan.small+2"
    description = "after four orders of preference the search begins with the first again"
    first = "test_a_crowd_is_placed_at_the_bound"
    target = "impl.memory.search:Problem.preferences"

    def replacement(self, original: Function) -> Function:
        return lambda problem: cycle(islice(original(problem), 4))


class SearchGivesUp(ImplPatch):
    rule = "memory.plan.small+2"
    description = "the search finds nothing"
    first = "test_the_search_unties_a_knot"
    target = "impl.memory.search:pack"

    def replacement(self, original: Function) -> Function:
        return lambda problem, height, budget: ("unknown", 0, {})


class SearchLeavesNoGap(ImplPatch):
    rule = "memory.plan.small+2"
    description = "the search never leaves bytes free below a temporary"
    first = "test_tangles_are_placed_at_the_bound"
    target = "impl.memory.search:Attempt._risen"

    def replacement(self, original: Function) -> Function:
        return lambda attempt, state, corner: 1 << 62


class SearchCountsTwice(ImplPatch):
    rule = "memory.plan.small+2"
    description = "the search takes a height for impossible that is just enough"
    first = "test_the_search_unties_a_knot"
    target = "impl.memory.search:pack"

    def replacement(self, original: Function) -> Function:
        return lambda problem, height, budget: original(problem, height - 1, budget)


class ArenasOfOneDevice(ImplPatch):
    rule = "memory.alignment.arena"
    description = "the temporaries of all devices lie in one arena"
    target = "impl.schedule.passes:plan_memory"

    def replacement(self, original: Function) -> Function:
        def together(order: Any, touched: Any, nbytes: Any, device_of: Any, reuse: bool) -> Any:
            one = dict.fromkeys(device_of, min(device_of.values(), default=""))
            return original(order, touched, nbytes, one, reuse)
        return together


class _ShortLives(ImplPatch):
    target = "impl.memory:lifetimes"

    def replacement(self, original: Function) -> Function:
        return lambda *given: [replace(each, last=max(each.first, each.last - 1))
                               for each in original(*given)]


class LivesEndEarly(_ShortLives):
    rule = "memory.lifetime.covers+2"
    description = "a life ends one step before its last reader"


class ReadsWhatWasFreed(_ShortLives):
    rule = "memory.poison.unseen"
    description = "a temporary is freed before it is read for the last time"


class PlannedValuesDiffer(_ShortLives):
    rule = "memory.off.equal"
    description = "with the planner on, values are overwritten before they are read"


class LivesBeginLate(ImplPatch):
    rule = "memory.lifetime.covers+2"
    description = "a life begins one step after its writer"
    target = "impl.memory:lifetimes"

    def replacement(self, original: Function) -> Function:
        return lambda *given: [replace(each, first=min(each.last, each.first + 1))
                               for each in original(*given)]


class NothingIsAligned(ImplPatch):
    rule = "memory.alignment.arena"
    description = "sizes are not rounded up, so that what follows is not aligned"
    target = "impl.memory.spans:aligned"

    def replacement(self, original: Function) -> Function:
        return lambda nbytes: nbytes


class ArenaTooSmall(ImplPatch):
    rule = "memory.alignment.arena"
    description = "the size of the last temporary is forgotten in the size of the arena"
    target = "impl.memory:height"

    def replacement(self, original: Function) -> Function:
        return lambda offsets, spans: max((offsets[s.storage] for s in spans), default=0)


class BoundIsTheSum(ImplPatch):
    rule = "memory.planned.bounds"
    description = "the lower bound counts what is never alive together"
    target = "impl.memory:lower_bound"

    def replacement(self, original: Function) -> Function:
        return lambda spans: sum(span.nbytes for span in spans)


class FewHaveNoMoreTime(Edit):
    rule = "memory.plan.claimed"
    description = "a search for few temporaries ends as early as one for many"
    first = "test_few_temporaries_have_time_enough"
    file = "impl/memory/__init__.py"
    old, new = "_BUDGET_OF_FEW if len(spans) <= _FEW else PLAN_BUDGET", "PLAN_BUDGET"
