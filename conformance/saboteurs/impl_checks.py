"""Verifiers that find nothing."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch


class _Blind(Edit):
    """One check of a pass does not see what it is there for."""

    rule = ""
    file = "impl/schedule/checks.py"


class LoopsAreNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "a value may depend on loops that are nowhere"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old = "for loop in sorted(free[form.value] - own, key=lambda loop: loop.arg[0]):"
    new = "for loop in free[form.value] - free[form.value]:"


class ReadsAreNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "a read may leave what it reads"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old, new = "known and not 0 <= low <= high < plain(", "known and not 0 <= low < 9 + plain("


class SimplicityIsNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "an expression may hold what a rule takes away"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old, new = "if not is_simple(stage.form.value):", "if not is_simple(stage.form.write.flat):"


class VersionsAreNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "a stage may read another version than it means"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old, new = "if now.get(storage) != version:", "if version < 0:"


class StagesAreNotCounted(_Blind):
    rule = "schedule.verify.passes"
    description = "kernels may have any numbers"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old, new = "in seen or group.number != place:", "in seen:"


class DevicesAreNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "a kernel may be on another device than its results"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old = "if draft.placement.values[storage].device != group.device:"
    new = "if draft.placement.values[storage].device != draft.placement.values[storage].device:"


class HazardsAreNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "kernels that touch one byte need not wait"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old = 'kind = "" if before[kernel] >> earlier & 1 else'
    new = 'kind = "" if earlier >= 0 else'


class OrderIsNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "a kernel may run before one that it waits for"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old = "if position[edge.before] >= position[edge.after]:"
    new = "if position[edge.before] == position[edge.after]:"


class ArenasAreNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "memory may begin anywhere in an arena"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old, new = "if offset % ALIGNMENT or offset < 0 or offset", "if offset < 0 or offset"


class BytesAreNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "two that are alive at once may share bytes"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old, new = "if life.meets(other):", "if life is other:"


class KernelsAreNotLookedAt(_Blind):
    rule = "schedule.verify.passes"
    description = "a kernel may name arguments that it has not"
    first = "test_a_mistake_of_a_pass_is_found_behind_it"
    old, new = "not 0 <= node.arg < len(kernel.arguments)", "not 0 <= node.arg"


class UsesAreNotLookedAt(Edit):
    rule = "lowering.lower.checked"
    description = "a value may be used before it is computed"
    file = "impl/lowering/checks.py"
    old, new = "if source not in ready and", "if source in ready and source not in ready and"


class StepsAreNotLookedAt(ImplPatch):
    rule = "searching.steps.checked"
    description = "a step may leave anything"
    target = "impl.searching:check_steps"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda ast, steps: None
