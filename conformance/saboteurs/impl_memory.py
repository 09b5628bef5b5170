"""Mistakes in the places of temporaries, made inside `impl.memory`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class LastStepDoesNotCount(ImplPatch):
    rule = "memory.reuse.disjoint"
    description = "lives that have only their ends in common are taken not to meet"
    target = "impl.memory:Lifetime.meets"

    def replacement(self, original: Function) -> Function:
        return lambda one, other: one.first < other.last and other.first < one.last


class GivenBackTooEarly(ImplPatch):
    rule = "memory.reuse.disjoint"
    description = "the planner that walks through time gives a place back before its last step"
    target = "impl.memory:_by_time"

    def replacement(self, original: Function) -> Function:
        return lambda spans: original([replace(s, last=max(s.first, s.last - 1)) for s in spans])


class FirstFitOverlaps(ImplPatch):
    rule = "memory.reuse.disjoint"
    description = "first fit puts everything at offset 0"
    target = "impl.memory:_first_fit"

    def replacement(self, original: Function) -> Function:
        return lambda spans: {span.storage: 0 for span in spans}


class _ShortLives(ImplPatch):
    target = "impl.memory:lifetimes"

    def replacement(self, original: Function) -> Function:
        return lambda *given: [replace(each, last=max(each.first, each.last - 1))
                               for each in original(*given)]


class LivesEndEarly(_ShortLives):
    rule = "memory.lifetime.covers"
    description = "a life ends one step before its last reader"


class ReadsWhatWasFreed(_ShortLives):
    rule = "memory.poison.unseen"
    description = "a temporary is freed before it is read for the last time"


class PlannedValuesDiffer(_ShortLives):
    rule = "memory.off.equal"
    description = "with the planner on, values are overwritten before they are read"


class LivesBeginLate(ImplPatch):
    rule = "memory.lifetime.covers"
    description = "a life begins one step after its writer"
    target = "impl.memory:lifetimes"

    def replacement(self, original: Function) -> Function:
        return lambda *given: [replace(each, first=min(each.last, each.first + 1))
                               for each in original(*given)]


class NothingIsAligned(ImplPatch):
    rule = "memory.alignment.arena"
    description = "sizes are not rounded up, so that what follows is not aligned"
    target = "impl.memory:aligned"

    def replacement(self, original: Function) -> Function:
        return lambda nbytes: nbytes


class ArenaTooSmall(ImplPatch):
    rule = "memory.alignment.arena"
    description = "the size of the last temporary is forgotten in the size of the arena"
    target = "impl.memory:_height"

    def replacement(self, original: Function) -> Function:
        return lambda offsets, spans: max((offsets[s.storage] for s in spans), default=0)


class BoundIsTheSum(ImplPatch):
    rule = "memory.planned.bounds"
    description = "the lower bound counts what is never alive together"
    target = "impl.memory:lower_bound"

    def replacement(self, original: Function) -> Function:
        return lambda spans: sum(span.nbytes for span in spans)
