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


# Calibration


class TheSystemIsBelieved(Edit):
    rule = "cpu.calibration.streams"
    description = "stores go past the caches above what the system says that they hold"
    first = "test_the_greatest_size_that_the_caches_serve"
    file = "impl/cpu/calibration.py"
    old = "    if not given:\n        return told\n"
    new = "    if True:\n        return told\n"


class CachesThatNeverServe(Edit):
    rule = "cpu.calibration.streams"
    description = "stores that are faster through the caches are not looked at"
    first = "test_where_the_caches_serve_all_or_nothing"
    file = "impl/cpu/calibration.py"
    old = "given if each.cached < _AHEAD * each.streamed"
    new = "given if each.cached < 0 * each.streamed"


class BlocksAreAlwaysLarge(Edit):
    rule = "cpu.calibration.streams"
    description = "a process with little memory copies blocks as large as it has"
    first = "test_little_memory_has_small_blocks"
    file = "impl/cpu/calibration.py"
    old, new = "if not memory or size * _PART <= memory]", "]"


class BothWaysAreOne(Edit):
    rule = "cpu.calibration.streams"
    description = "both kernels that are measured copy through the caches"
    first = "test_both_ways_are_measured_by_kernels_that_copy"
    file = "impl/cpu/calibration.py"
    old = "(replace(few, third_cache=_BLOCK), few)]"
    new = "(replace(few, third_cache=_BLOCK),) * 2]"


class MeasuredByEachProcess(Edit):
    rule = "cpu.calibration.kept"
    description = "each process measures for itself"
    first = "test_it_is_measured_once_and_kept"
    file = "impl/cpu/calibration.py"
    old = '        kept.put("calibration", key, json.dumps({"cached_bytes": known}).encode())\n'
    new = ""


class MeasuredForEachFolder(Edit):
    rule = "cpu.calibration.kept"
    description = "who keeps kernels in another folder measures for himself"
    first = "test_another_folder_for_kernels_has_the_same"
    file = "impl/cpu/calibration.py"
    old = "told_bytes(), machine_store()"
    new = "told_bytes(), __import__('impl.caching.disk').caching.disk.store()"


class TheLastOneIsBelieved(Edit):
    rule = "cpu.calibration.kept"
    description = "of two processes that measure, each believes itself"
    first = "test_of_several_processes_the_first_one_is_believed"
    file = "impl/cpu/calibration.py"
    old, new = "known = _known(kept, key) or found", "known = found"


class KeptForAnyProcessor(Edit):
    rule = "cpu.calibration.kept"
    description = "what was measured serves all processors that share a folder"
    first = "test_another_processor_is_measured_for_itself"
    file = "impl/cpu/calibration.py"
    old = 'key = f"{processor()}\\n{processors()}\\n{told}\\n{_SIZES[0]}"'
    new = 'key = ""'
