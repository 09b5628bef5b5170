"""Mistakes in which write is in place, made inside `impl.placement`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class WritesIgnoreReadingStages(ImplPatch):
    rule = "dependencies.war.order"
    description = "stages are sorted as if nobody read what is overwritten in place"
    target = "impl.placement:_Placer._edges"

    def replacement(self, original: Function) -> Function:
        def edges(placer: Any) -> Any:
            producer = {stage.write.value: stage.number for stage in placer.stages}
            return {(before, after) for before, after in original(placer) if before in {
                producer.get(placer.stages[after].overwrites),
                *(producer.get(each.value) for each in placer.stages[after].reads)}}
        return edges


class OverwritesWhatItReads(ImplPatch):
    rule = "placement.in-place.safe"
    description = "a flip in place is taken to be as harmless as an addition in place"
    target = "impl.placement:_Placer._reads_own_target"

    def replacement(self, original: Function) -> Function:
        return lambda placer, stage: False


class NobodyHoldsAnything(ImplPatch):
    rule = "placement.held.kept"
    description = "versions that tensors hold are overwritten"
    target = "impl.placement:place_writes"

    def replacement(self, original: Function) -> Function:
        return lambda values, stages, held, *more: original(values, stages, set(), *more)


class TwoSuccessors(ImplPatch):
    rule = "placement.version.one-successor"
    description = "two writes to one version both take its memory"
    target = "impl.placement:_Placer._move"

    def replacement(self, original: Function) -> Function:
        def move(placer: Any, stage: Any, why: str) -> None:
            old = stage.overwrites
            if old not in placer.taken or old in placer.held or placer._reads_own_target(stage):
                original(placer, stage, why)
        return move


class CycleIsCutWithoutCopy(ImplPatch):
    rule = "placement.cycle.copied"
    description = "of writes that wait for each other, one no longer waits"
    target = "impl.placement:_Placer._edges"

    def replacement(self, original: Function) -> Function:
        def edges(placer: Any) -> Any:
            pairs = original(placer)
            before: dict[int, set[int]] = {stage.number: set() for stage in placer.stages}
            for early, late in pairs:
                before[late].add(early)
            left = {stage.number for stage in placer.stages}
            while True:
                ready = {number for number in left if not before[number] & left}
                if not left:
                    return {(early, late) for late in before for early in before[late]}
                if not ready:
                    before[min(left)] -= left
                left -= ready
        return edges
