"""Mistakes in keys and in what is done with a cached plan, made inside `impl`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]
Row = tuple[Any, ...]


def is_leaf(row: Row) -> bool:
    """Rows of buffers begin with a slot, all others with an operation."""
    return type(row[0]) is int


class _Key(ImplPatch):
    target = "impl.caching.plans:canonicalize"

    def replacement(self, original: Function) -> Function:
        def canonicalize(effects: Any, device_key: Any) -> Any:
            found = original(effects, device_key)
            return replace(found, key=self.changed(found, *found.key))
        return canonicalize

    def changed(self, found: Any, rows: tuple[Row, ...], roots: Row, held: Row, plan: Row,
                device: Row) -> Row:
        """The spoiled key."""
        rows = tuple(self.row(each) for each in rows)
        return rows, roots, held, plan, device

    def row(self, row: Row) -> Row:
        """The spoiled row of a node."""
        return row


class AliasesForgotten(_Key):
    rule = "caching.key.alias"
    description = "the key does not say which leaves are the same buffer"

    def row(self, row: Row) -> Row:
        return (0, *row[1:]) if is_leaf(row) else row


class SourcesForgotten(_Key):
    rule = "caching.key.alias"
    description = "the key does not say which nodes an operation reads"

    def row(self, row: Row) -> Row:
        return row if is_leaf(row) or len(row) < 4 else row[:3]


class DtypesForgotten(_Key):
    rule = "caching.key.program"
    description = "the key does not say of what dtype a buffer is"

    def row(self, row: Row) -> Row:
        return (*row[:3], "", *row[4:]) if is_leaf(row) else row


class ConstantsForgotten(_Key):
    rule = "caching.key.program"
    description = "the key does not have the values of constants"

    def row(self, row: Row) -> Row:
        return row[:2] if not is_leaf(row) and row[0].name == "CONST" else row


class ZerosAreOne(_Key):
    rule = "caching.key.program"
    description = "0.0 and -0.0 are one constant to the key"
    apart = True  # what other tests leave in a process can hide it

    def row(self, row: Row) -> Row:
        return (*row[:2], row[2].lstrip("-")) if row[-1] == "-0x0.0p+0" else row


class ViewsForgotten(_Key):
    rule = "caching.key.program"
    description = "the key does not say which part of a tensor a view shows"

    def row(self, row: Row) -> Row:
        return (*row[:2], None, *row[3:]) if not is_leaf(row) and row[0].name == "SHRINK" else row


class KnownForgotten(Edit):
    rule = "caching.key.circumstances"
    description = "the key does not say which number memory is known to hold"
    first = "test_memory_that_holds_one_number_is_no_other_memory"
    file = "impl/caching/rows.py"
    old, new = "None if constant is None else exact", "None if constant is not node else exact"


class HeldForgotten(_Key):
    rule = "caching.key.held"
    description = "the key does not say which versions stay observable"

    def changed(self, found: Any, rows: tuple[Row, ...], roots: Row, held: Row, plan: Row,
                device: Row) -> Row:
        return rows, roots, plan, device


class SettingsForgotten(_Key):
    rule = "caching.key.settings"
    description = "the key has no settings"

    def changed(self, found: Any, rows: tuple[Row, ...], roots: Row, held: Row, plan: Row,
                device: Row) -> Row:
        return rows, roots, held, device


class DeviceForgotten(_Key):
    rule = "caching.key.circumstances"
    description = "the key does not say for which device the plan is"
    first = "test_what_the_device_says"

    def changed(self, found: Any, rows: tuple[Row, ...], roots: Row, held: Row, plan: Row,
                device: Row) -> Row:
        return rows, roots, held, plan


class BuffersByNumber(_Key):
    rule = "caching.key.renaming"
    description = "the key has the numbers of the buffers"

    def changed(self, found: Any, rows: tuple[Row, ...], roots: Row, held: Row, plan: Row,
                device: Row) -> Row:
        return rows, roots, held, plan, device, tuple(buffer.number for buffer in found.buffers)


class ValuesInTheKey(_Key):
    rule = "caching.key.circumstances"
    description = "each value of a variable gets a plan of its own"
    first = "test_another_value_of_a_variable_hits"

    def changed(self, found: Any, rows: tuple[Row, ...], roots: Row, held: Row, plan: Row,
                device: Row) -> Row:
        return rows, roots, held, plan, device, tuple(found.values)


class VariablesMixedUp(ImplPatch):
    rule = "caching.values.each"
    description = "every variable gets the value of the first one"
    target = "impl.caching.plans:canonicalize"

    def replacement(self, original: Function) -> Function:
        def canonicalize(effects: Any, device_key: Any) -> Any:
            found = original(effects, device_key)
            return replace(found, values=found.values[:1] * len(found.values))
        return canonicalize


class NamesOfOneProcess(ImplPatch):
    rule = "caching.key.stable"
    description = "keys are named by Python's hash, which differs from process to process"
    target = "impl.caching.plans:stable_name"

    def replacement(self, original: Function) -> Function:
        return lambda key: f"{hash(repr(key)) & (1 << 64) - 1:x}"


class CacheWithoutBound(ImplPatch):
    rule = "caching.bound.kept"
    description = "no plan is ever dropped"
    first = "test_a_dropped_plan_is_not_found_by_its_short_key"
    target = "impl.caching.plans:PlanCache.put"

    def replacement(self, original: Function) -> Function:
        return lambda cache, key, plan: cache.entries.update({key: [plan, 0]})


class AnyPlanWillDo(ImplPatch):
    rule = "caching.hit.equal"
    description = "a plan is found by the number of nodes"
    target = "impl.caching.plans:PlanCache.get"

    def replacement(self, original: Function) -> Function:
        return lambda cache, key, last=True: next(
            (plan for known, (plan, _) in cache.entries.items()
             if len(known[0]) == len(key[0])), None)


class ShortKeysWithoutForms(ImplPatch):
    rule = "caching.key.short+2"
    description = "a short key has the operation, and nothing of its sources"
    target = "impl.caching.rows:short_key"

    def replacement(self, original: Function) -> Function:
        def short(root: Any, circumstances: Any) -> Any:
            found = original(root, circumstances)
            return found and (found[0][:4], found[1])
        return short


class OutputsStayWithThePlan(ImplPatch):
    rule = "caching.result.independent"
    description = "every run of a plan puts its outputs into the same memory"
    target = "impl.realize.run:Run.__init__"

    def replacement(self, original: Function) -> Function:
        memory: dict[tuple[int, int], Any] = {}

        def start(run: Any, plan: Any, *given: Any, **named: Any) -> None:
            from impl.realize import ensure_memory
            original(run, plan, *given, **named)
            for number, storage in plan.storages.items():
                if storage.kind == "output":
                    buffer = run.buffers[number]
                    buffer.memory = memory.setdefault((id(plan), number), ensure_memory(buffer))
        return start


class PlacesOfWritesForgotten(ImplPatch):
    rule = "caching.key.place+2"
    description = "the key ends at what was computed, though a write goes through it"
    target = "impl.caching.rows:way"

    def replacement(self, original: Function) -> Function:
        return lambda write: iter(())


class FamiliesOfOne(Edit):
    rule = "caching.family.shared+2"
    description = "every position has a plan of its own"
    first = "test_programs_of_a_family_have_one_plan_and_their_own_values"
    file = "impl/caching/positions.py"
    old, new = "many = family.count >= _MANY and", "many = family.count < 0 and"


class FamiliesAtAnyPrice(Edit):
    rule = "caching.family.shared+2"
    description = "a family has one plan, though it has more kernels than each by itself"
    first = "test_a_family_whose_plan_has_more_kernels_is_left"
    file = "impl/schedule/pipeline.py"
    old = "if len(own.kernels) < len(plan.kernels) and lock.changes == since:"
    new = "if not plan.kernels:"


class FirstPositionsForAll(Edit):
    rule = "caching.family.shared+2"
    description = "what differs for the first time in a family stays as it is in the plan of all"
    first = "test_programs_of_a_family_have_one_plan_and_their_own_values"
    file = "impl/caching/positions.py"
    old, new = "differ.update(number for", "differ.intersection_update(number for"


class ZerosInFamilies(Edit):
    rule = "caching.family.shared+2"
    description = "a number in a family has the value, and not the bits, that it had"
    first = "test_bits_of_numbers_stay_in_a_family"
    file = "impl/caching/positions.py"
    old, new = "return float_bits(number) if", "return float_bits(number + 0.0) if"


class FormsOfOne(Edit):
    rule = "caching.sizes.shared+2"
    description = "every size has a plan of its own"
    first = "test_from_the_second_length_on_there_is_one_plan"
    file = "impl/caching/sizes.py"
    old, new = "if form.left or not sizes or", "if form.samples or"


class FirstSizesForAll(Edit):
    rule = "caching.sizes.shared+2"
    description = "a size that depended on another one in two programs is taken to do so in all"
    first = "test_programs_of_a_form_have_one_plan_and_their_own_values"
    file = "impl/caching/sizes.py"
    old, new = "return values if same else None", "return values if within else None"


class NumbersOfForms(Edit):
    rule = "caching.sizes.shared+2"
    description = "a number that differs for the first time in a form stays as it is"
    first = "test_numbers_of_a_form_are_its_programs_own"
    file = "impl/caching/sizes.py"
    old, new = "form.differ |= differ", "form.differ |= set()"


class OnesInForms(Edit):
    rule = "caching.sizes.shared+2"
    description = "an axis of one element is taken for a short one"
    first = "test_an_axis_of_one_element_and_of_none_are_other_programs"
    file = "impl/caching/sizes.py"
    old, new = "marks = tuple([_LEAST if size >= _LEAST", "marks = tuple([_LEAST if size >= 0"


class FormsAtAnyPrice(Edit):
    rule = "caching.sizes.shared+2"
    description = "a form has one plan, though its temporaries need many times the memory"
    first = "test_a_form_whose_plan_needs_much_memory_is_left"
    file = "impl/schedule/pipeline.py"
    old = "or _arena(plan) > max("
    new = "or _arena(plan) < 0 * max("


class OftenInForms(Edit):
    rule = "caching.sizes.often+2"
    description = "sizes that come again and again never get a plan of their own"
    first = "test_sizes_that_come_often_have_a_plan_of_their_own"
    file = "impl/caching/sizes.py"
    old, new = "self.uses.get(sizes, 0) + 1", "self.uses.get(sizes, 0) + 0"


class DearForms(Edit):
    rule = "caching.sizes.often+2"
    description = "how much a program computes does not count"
    first = "test_programs_that_compute_much_have_plans_of_their_own"
    file = "impl/caching/sizes.py"
    old, new = "min(_OFTEN, kernels * _WORTH // max(1, elements))", "_OFTEN"


class DearCasesOfForms(Edit):
    rule = "caching.sizes.often+2"
    description = "how much is computed is judged once for all programs of a form"
    first = "test_how_much_is_computed_is_judged_by_a_programs_own_sizes"
    file = "impl/caching/sizes.py"
    old, new = "uses > shared_uses(effects, form.kernels)", "uses > _OFTEN"


class FormsUnasked(Edit):
    rule = "caching.hit.equal"
    description = "programs share a plan for all sizes though nobody asked for it"
    first = "test_by_default_no_digit_depends_on_what_ran_before"
    file = "impl/schedule/pipeline.py"
    old, new = 'settings.get("SHARE_SIZES")', 'settings.get("SCACHE")'
