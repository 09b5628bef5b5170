"""Mistakes in what kernels are made for, made inside `impl`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch
from impl.cpu.machine import own_features

Function = Callable[..., Any]


class TargetsAreNotTold(Edit):
    rule = "cpu.target.settings"
    description = "kernels are compiled for the processor, whatever CPU_TARGET says"
    first = "test_kernels_are_made_for_the_target_that_is_named"
    file = "impl/cpu/compiler.py"
    old = "-march={settings.get('CPU_TARGET') or 'native'}"
    new = "-march=native"


class StepsForThisProcessor(ImplPatch):
    rule = "cpu.target.settings"
    description = "steps are chosen for the processor itself, whatever target is named"
    first = "test_steps_are_chosen_for_the_target_that_is_named"
    target = "impl.cpu.backend:features"

    def replacement(self, original: Function) -> Function:
        return own_features


class AnyTargetWillDo(ImplPatch):
    rule = "cpu.target.settings"
    description = "nobody asks whether there is such a target"
    first = "test_a_target_that_nobody_knows_is_an_error"
    target = "impl.cpu.compiler:_features"

    def replacement(self, original: Function) -> Function:
        return lambda command, target: frozenset()


class VectorsOfOneWidth(ImplPatch):
    rule = "cpu.target.settings"
    description = "products are computed in vectors of 16 bytes"
    first = "test_vectors_of_any_width"
    target = "impl.kernel.analysis:DeviceLimits.elements"

    def replacement(self, original: Function) -> Function:
        return lambda limits, itemsize: original(replace(limits, vector_bytes=16), itemsize)
