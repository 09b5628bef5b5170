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
    rule = "cpu.target.named"
    description = "kernels are compiled for the processor, whatever CPU_TARGET says"
    file = "impl/cpu/compiler.py"
    old = "-march={settings.get('CPU_TARGET') or 'native'}"
    new = "-march=native"


class StepsForThisProcessor(ImplPatch):
    rule = "cpu.target.steps"
    description = "steps are chosen for the processor itself, whatever target is named"
    target = "impl.cpu.backend:features"

    def replacement(self, original: Function) -> Function:
        return own_features


class AnyTargetWillDo(ImplPatch):
    rule = "cpu.target.wider"
    description = "nobody asks whether there is such a target"
    target = "impl.cpu.compiler:_features"

    def replacement(self, original: Function) -> Function:
        return lambda command, target: frozenset()


class VectorsOfOneWidth(ImplPatch):
    rule = "cpu.target.vectors"
    description = "products are computed in vectors of 16 bytes"
    target = "impl.kernel.analysis:DeviceLimits.elements"

    def replacement(self, original: Function) -> Function:
        return lambda limits, itemsize: original(replace(limits, vector_bytes=16), itemsize)
