"""Mistakes in what a schedule says and keeps, made inside `impl.schedule`, `.realize`, `.ir`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class NotesInTheGraph(Edit):
    rule = "schedule.passes.pure+3"
    description = "the reason for a cut is noted in the user's graph"
    file = "impl/fusion/cuts.py"
    old, new = "self.reasons[node] = reason ", "self.reasons[node] = node.tag = reason "


class FieldsAreWrittenAgain(Edit):
    rule = "schedule.passes.pure+3"
    description = "nobody sees that a pass writes what an earlier one wrote, on the way to a plan"
    first = "test_a_pass_that_writes_a_field_again_is_named"
    file = "impl/realize/planning.py"
    old, new = "if getattr(request, name) is not value:", "if False:"


class RunsTheReaders(Edit):
    rule = "schedule.document.nothing-runs"
    description = "who waits for an old value is computed before the document is made"
    file = "impl/realize/schedule.py"
    old = "        first = len(rewrites)\n"
    new = "        from impl.realize import planning; planning._readers_first(" \
        "planning.choose(Request(nodes)), planning.collect(nodes), None); first = len(rewrites)\n"


class PlanKeepsItsCall(ImplPatch):
    rule = "schedule.plan.slots"
    description = "a plan keeps the graph that it was made for"
    target = "impl.schedule.pipeline:make_plan"

    def replacement(self, original: Function) -> Function:
        def make_plan(effects: Any, *rest: Any) -> Any:
            plan = original(effects, *rest)
            plan.made_for = effects
            return plan
        return make_plan


class CopyWithoutMemory(Edit):
    rule = "device.several.equal"
    description = "a copy of which nothing is read has no memory to go to"
    first = "test_a_copy_of_which_nothing_is_read_is_in_nobodys_way"
    file = "impl/fusion/touches.py"
    old, new = "in placement.temporaries and n not in copied}", "in placement.temporaries}"


class CopiesAreCalledKernels(Edit):
    rule = "schedule.document.devices+2"
    description = "what copies to another device is listed as a kernel of that device"
    file = "impl/schedule/document.py"
    old, new = '"copy" if kernel.task else "kernel"', '"kernel"'


class ConstantsAreReadAnywhere(Edit):
    rule = "schedule.document.devices+2"
    description = "a constant in memory is read by its equals on another device"
    first = "test_a_number_that_lies_on_one_device_is_computed_on_others"
    file = "impl/ranges/graph.py"
    old, new = "node not in self.copied and constant_of(node) is not None", "False"


class ListsOneElementTooFew(Edit):
    rule = "schedule.document.complete"
    description = "the bytes that a kernel touches end where its last element begins"
    file = "impl/fusion/touches.py"
    old, new = "(high + 1) * size)", "max(high, low + 1) * size)"


class AsksTheFirstChecker(Edit):
    rule = "schedule.verify.passes"
    description = "only the first of the registered checkers is asked"
    first = "test_every_plan_that_is_made_is_checked_before_it_runs"
    file = "impl/realize/planning.py"
    old, new = "for checker in session.checkers:", "for checker in session.checkers[:1]:"


class LabelsStayWithThePlan(ImplPatch):
    rule = "schedule.label.line"
    description = "a label is made once for each plan"
    target = "impl.schedule.reasons:label"

    def replacement(self, original: Function) -> Function:
        made: dict[Any, str] = {}

        def label(plan: Any, kernel: int, nodes: Any) -> str:
            return made.setdefault((plan.key, kernel), original(plan, kernel, nodes))
        return label


class ForgetsWhatIsWritten(Edit):
    rule = "schedule.document.outputs"
    description = "buffers that were there before are not listed as outputs"
    file = "impl/schedule/document.py"
    old, new = "for r in plan.results if r.storage in names]", \
        "for r in plan.results if r.storage in names and r.storage not in plan.written]"
