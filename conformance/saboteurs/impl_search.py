"""Mistakes in steps that are asked for, told and searched, and in replays on several devices."""
from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_kernel import RestIsNotStored
from conformance.saboteurs.impl_patches import ImplPatch
from impl.errors import GraphError
from impl.ir import UOp
from impl.kernel import Analysis

Function = Callable[..., Any]


class LocalsAreStoredAgain(ImplPatch):
    rule = "kernel.local.own"
    description = "a LOCAL may be stored after it was read"
    first = "test_a_stage_may_replace_what_it_reads"
    target = "impl.kernel.analysis:verify_kernel"

    def replacement(self, original: Function) -> Function:
        def verify(ast: UOp) -> Any:
            try:
                return original(ast)
            except GraphError as error:
                if "after it was read" not in str(error):
                    raise
                return Analysis(ast)
        return verify


class AskedForNothing(ImplPatch):
    rule = "searching.asked.steps+2"
    description = "a kernel gets the steps of the rules, whatever it asks for"
    first = "test_a_kernel_gets_the_steps_that_it_asks_for"
    target = "impl.searching:optimize"

    def replacement(self, original: Function) -> Function:
        return lambda ast, *given, **named: original(
            ast.replace(arg=replace(ast.arg, asked=None)), *given, **named)


class NoReasonForSteps(ImplPatch):
    rule = "searching.reason.given"
    description = "the reasons of steps are lost"
    target = "impl.searching:taken"

    def replacement(self, original: Function) -> Function:
        def taken(ast: UOp, steps: Any) -> UOp:
            made: UOp = original(ast, steps)
            return made.replace(arg=replace(made.arg, reasons=()))
        return taken


class StepsWithoutReasons(ImplPatch):
    rule = "inspect.explain.complete"
    description = "an explanation names the steps only"
    target = "impl.inspect.text:_explain_kernel"

    def replacement(self, original: Function) -> Function:
        def explain(document: Any, step: int, kernel: dict[str, Any], *rest: Any) -> Any:
            told = {name: value for name, value in kernel.items() if name != "because"}
            return original(document, step, told, *rest)
        return explain


class SearchGoesOn(ImplPatch):
    rule = "searching.trial.limits"
    description = "a search does not look at the clock"
    first = "test_no_trial_begins_when_time_is_up"
    target = "impl.searching.beam:_Search._is_over"

    def replacement(self, original: Function) -> Function:
        return lambda search: False


class TrialsSeeTheLastOne(ImplPatch):
    rule = "searching.trial.harmless"
    description = "a trial finds what the trial before it has overwritten"
    first = "test_every_trial_finds_the_same_values"
    target = "impl.searching.trial:Trial._runs"

    def replacement(self, original: Function) -> Function:
        def runs(trial: Any, program: Any, count: int) -> Any:
            kept, trial.again = trial.again, {}
            try:
                return original(trial, program, count)
            finally:
                trial.again = kept
        return runs


class SlowCompilersEndTheSearch(ImplPatch):
    rule = "searching.trial.limits"
    description = "a trial that takes too long to compile is an error"
    first = "test_a_compiler_that_takes_too_long_is_ended"
    target = "impl.cpu.backend:compile_unit"

    def replacement(self, original: Function) -> Function:
        def compiled(*given: Any, **named: Any) -> Any:
            try:
                return original(*given, **named)
            except subprocess.TimeoutExpired as error:
                raise RuntimeError("the compiler takes too long") from error
        return compiled


class SearchForgetsTheRest(RestIsNotStored):
    rule = "searching.trial.harmless"
    description = "what a search found leaves out the rest of a loop that was cut"
    first = "test_a_search_keeps_the_values"


class OneSampleGivesUp(Edit):
    rule = "searching.trial.harmless"
    description = "what was disturbed once is given up as slow"
    first = "test_one_sample_that_was_disturbed_gives_nobody_up"
    file = "impl/searching/beam.py"
    old, new = "turn < _SURE", "turn < 1"


class EverySearchIsRemembered(Edit):
    rule = "searching.found.later"
    description = "nothing that a search found is ever forgotten"
    first = "test_what_was_found_first_is_forgotten_first_and_found_again"
    file = "impl/searching/beam.py"
    old, new = "list(_known)[:-_MOST_KNOWN]", "list(_known)[:0]"


class OneTableForAll(Edit):
    rule = "replay.devices.each"
    description = "kernels that no copy separates go to the device of the first"
    first = "test_kernels_of_two_devices_that_no_copy_separates"
    file = "impl/realize/layout.py"
    old, new = "self._close()  # r[impl replay.devices.each]", "pass"
