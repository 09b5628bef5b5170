"""Mistakes in which temporary lies where another one was, made inside `impl.memory.takeovers`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class TakesOverWhatIsReadElsewhere(ImplPatch):
    rule = "memory.take-over.legal"
    description = "an element may be overwritten before another one is computed from it"
    first = "test_what_is_taken_over_is_not_read_afterwards"
    target = "impl.memory.takeovers:same_element"

    def replacement(self, original: Function) -> Function:
        return lambda read, write: read.shape == write.shape


class TakesOverWhatIsCopied(Edit):
    rule = "realize.device.named"
    description = "a copy goes to where what it copies lies, if that is on its device"
    file = "impl/memory/takeovers.py"
    old = "if writer.stage.alone:"
    new = "if writer.stage.alone and not writer.stage.task:"


class TakesOverBeforeTheLastRead(ImplPatch):
    rule = "memory.take-over.legal"
    description = "memory may be overwritten that a later stage of the kernel reads"
    first = "test_what_is_taken_over_is_not_read_afterwards"
    target = "impl.memory.takeovers:_Taker._may_lie_there"

    def replacement(self, original: Function) -> Function:
        return lambda *given: True


class TakesOverWhatLives(ImplPatch):
    rule = "memory.take-over.legal"
    description = "a temporary counts as dead at its first reader"
    first = "test_what_is_read_later_is_not_taken_over"
    target = "impl.memory.takeovers:_Taker.run"

    def replacement(self, original: Function) -> Function:
        def run(taker: Any, order: Any, touched: Any, steps: Any) -> Any:
            for storage, first in taker.born.items():
                readers = (step for step, number in enumerate(order)
                           if storage in touched[number] and step > first)
                taker.last[storage] = min(readers, default=first)
            return original(taker, order, touched, steps)
        return run


class TwoTakeOverOne(ImplPatch):
    rule = "memory.take-over.legal"
    description = "what one result has taken over, another result of the kernel takes too"
    first = "test_two_results_of_a_kernel_do_not_share_memory"
    target = "impl.memory.takeovers:_Taker.run"

    def replacement(self, original: Function) -> Function:
        def run(taker: Any, *given: Any) -> Any:
            moved = original(taker, *given)
            for group in taker.groups:
                made = [member.stage.write.value for member in group.members]
                took = [value for value in made if value in moved]
                for value in made if took else ():
                    if value in taker.temporaries and taker.storage[value] == value:
                        moved[value] = moved[took[0]]
                        taker.storage[value] = moved[value][0]
            return moved
        return run


class TakesOverWhateverFits(ImplPatch):
    rule = "memory.reuse.disjoint+2"
    description = "a result lies where an operand lay, whichever elements it is made of"
    first = "test_what_does_not_fit_in_place_is_read_before_it_is_overwritten"
    target = "impl.memory.takeovers:_Taker._may_lie_there"

    def replacement(self, original: Function) -> Function:
        return lambda taker, group, writer, old: not writer.stage.alone
