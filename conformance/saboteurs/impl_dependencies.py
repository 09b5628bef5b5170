"""Mistakes in what has to wait for what, made inside `impl.dependencies`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class _Without(ImplPatch):
    target = "impl.dependencies:find"
    kind = ""

    def replacement(self, original: Function) -> Function:
        return lambda *given: [d for d in original(*given) if d.kind != self.kind]


class FindsNoReadsAfterWrites(_Without):
    rule = "dependencies.raw.order"
    description = "no kernel waits for what it reads"
    first = "test_write_read_write"
    kind = "RAW"


class FindsNoWritesAfterReads(_Without):
    rule = "dependencies.war.order"
    description = "no kernel waits for the readers of what it overwrites"
    first = "test_write_read_write"
    kind = "WAR"


class FindsNoWritesAfterWrites(_Without):
    rule = "dependencies.waw.order"
    description = "no kernel waits for the writers of what it overwrites"
    first = "test_write_read_write"
    kind = "WAW"


class WritesIgnoreReadingStages(ImplPatch):
    rule = "dependencies.war.order"
    description = "stages are sorted as if nobody read what is overwritten in place"
    target = "impl.dependencies:_Placer._edges"

    def replacement(self, original: Function) -> Function:
        def edges(placer: Any) -> Any:
            before = original(placer)
            producer = {stage.write.value: stage.number for stage in placer.stages}
            for stage in placer.stages:
                needed = {producer.get(each.value) for each in stage.reads}
                before[stage.number] &= needed | {producer.get(stage.overwrites)}
            return before
        return edges


class BytesAlwaysMeet(ImplPatch):
    rule = "dependencies.ranges.disjoint"
    description = "accesses of one storage are taken to meet, whatever bytes they touch"
    target = "impl.dependencies:Touch.overlaps"

    def replacement(self, original: Function) -> Function:
        return lambda touch, other: True


class OverwritesWhatItReads(ImplPatch):
    rule = "dependencies.in-place.safe"
    description = "a flip in place is taken to be as harmless as an addition in place"
    target = "impl.dependencies:_Placer._reads_own_target"

    def replacement(self, original: Function) -> Function:
        return lambda placer, stage: False


class NobodyHoldsAnything(ImplPatch):
    rule = "dependencies.held.kept"
    description = "versions that tensors hold are overwritten"
    target = "impl.dependencies:place_writes"

    def replacement(self, original: Function) -> Function:
        return lambda graph, held: original(graph, set())


class TwoSuccessors(ImplPatch):
    rule = "dependencies.version.one-successor"
    description = "two writes to one version both take its memory"
    target = "impl.dependencies:_Placer._move"

    def replacement(self, original: Function) -> Function:
        def move(placer: Any, stage: Any, why: str) -> None:
            old = stage.overwrites
            if old not in placer.taken or old in placer.held or placer._reads_own_target(stage):
                original(placer, stage, why)
        return move


class CycleIsCutWithoutCopy(ImplPatch):
    rule = "dependencies.cycle.copied"
    description = "of writes that wait for each other, one no longer waits"
    target = "impl.dependencies:_Placer._edges"

    def replacement(self, original: Function) -> Function:
        def edges(placer: Any) -> Any:
            before = original(placer)
            left = {stage.number for stage in placer.stages}
            while True:
                ready = {number for number in left if not before[number] & left}
                if not left:
                    return before
                if not ready:
                    before[min(left)] -= left
                left -= ready
        return edges


class TakesOverWhatIsReadElsewhere(ImplPatch):
    rule = "dependencies.take-over.safe"
    description = "an element may be overwritten before another one is computed from it"
    target = "impl.dependencies:_same_element"

    def replacement(self, original: Function) -> Function:
        return lambda read, write: read.shape == write.shape


class TakesOverWhatIsCopied(Edit):
    rule = "realize.device.named"
    description = "a copy goes to where what it copies lies, if that is on its device"
    file = "impl/dependencies.py"
    old = "if writer.stage.form.in_order is not None or writer.stage.copy:"
    new = "if writer.stage.form.in_order is not None:"


class TakesOverBeforeTheLastRead(ImplPatch):
    rule = "dependencies.take-over.safe"
    description = "memory may be overwritten that a later stage of the kernel reads"
    target = "impl.dependencies:_may_lie_there"

    def replacement(self, original: Function) -> Function:
        return lambda *given: True


class TakesOverWhatLives(ImplPatch):
    rule = "dependencies.take-over.dead"
    description = "a temporary counts as dead at its first reader"
    target = "impl.dependencies:spans"

    def replacement(self, original: Function) -> Function:
        def spans(order: Any, touched: Any) -> Any:
            first, _ = original(order, touched)
            last: dict[int, int] = dict(first)
            for step, number in enumerate(order):
                for storage in touched[number]:
                    if last[storage] == first[storage]:
                        last[storage] = step
            return first, last
        return spans


class TwoTakeOverOne(ImplPatch):
    rule = "dependencies.take-over.one"
    description = "what one result has taken over, another result of the kernel takes too"
    target = "impl.dependencies:take_over"

    def replacement(self, original: Function) -> Function:
        def take_over(groups: Any, order: Any, touched: Any, temporaries: Any,
                      placement: Any, *steps: Any) -> Any:
            moved = original(groups, order, touched, temporaries, placement, *steps)
            for group in groups:
                made = [member.stage.write.value for member in group.members]
                took = [value for value in made if value in moved]
                for value in made if took else ():
                    if value in temporaries and placement.storage[value] == value:
                        moved[value] = moved[took[0]]
                        placement.storage[value] = moved[value][0]
                        placement.version[value] += moved[value][1]
            return moved
        return take_over
