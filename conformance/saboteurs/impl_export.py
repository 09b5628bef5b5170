"""Mistakes in programs that leave Python."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class KernelsAreInAnotherOrder(Edit):
    rule = "export.values.equal"
    description = "of several kernels the first runs last"
    first = "test_training_goes_on_in_c_bit_for_bit"
    file = "impl/export/c.py"
    old = "for call in made.calls:"
    new = "for call in made.calls[1:] + made.calls[:1]:"


class TheCallLeavesItsMark(Edit):
    rule = "export.state.kept"
    description = "what the call overwrote is not put back"
    first = "test_exporting_changes_nothing"
    file = "impl/replay/once.py"
    old = "if holder.uop is not before:"
    new = "if holder.uop is None:"


class TheCounterGoesOn(Edit):
    rule = "export.state.kept"
    description = "random numbers are drawn by the export"
    first = "test_exporting_changes_nothing"
    file = "impl/replay/once.py"
    old = "generator.counter = capture.random_start"
    new = "generator.counter += 0"


class CopiesOneAfterTheOther(Edit):
    rule = "export.plan.kept+2"
    description = "a state is overwritten before it is copied to another one"
    first = "test_states_that_are_replaced_and_returned"
    file = "impl/export/artefact.py"
    old = "if source in overwritten and source != target and source not in aside:"
    new = "if source in aside:"


class ValuesDieBeforeTheirCopy(Edit):
    rule = "export.plan.kept+2"
    description = "the kernels of the second half have the memory of what is still read"
    first = "test_a_language_model_writes_without_python"
    file = "impl/export/artefact.py"
    old = "life[1], life[2] = min(life[1], step), max(life[2], step)"
    new = "life[1], life[2] = step, step"


class TheSameNumbersAgain(Edit):
    rule = "export.random.kept"
    description = "the counter of random numbers stands still"
    first = "test_random_numbers_go_on"
    file = "impl/export/c.py"
    old = "+ {made.random_used}) "
    new = "+ {made.random_used * 0}) "


class WeightsLieElsewhere(Edit):
    rule = "export.weights.named"
    description = "the names of the states are in another order than their values"
    first = "test_training_goes_on_in_c_bit_for_bit"
    file = "impl/export/c.py"
    old = "for state, content in zip(artefact.states, artefact.contents, strict=True):"
    new = "for state, content in zip(artefact.states[::-1], artefact.contents, strict=True):"


class CopiesAreNotTold(Edit):
    rule = "export.document.whole"
    description = "the document has the calls of the first half only"
    first = "test_the_document_has_ports_calls_and_schedules"
    file = "impl/export/artefact.py"
    old = "for call in self.calls],"
    new = "for call in self.calls[1:]],"


class WordsOfTheLanguage(Edit):
    rule = "export.name.legal"
    description = "a name may be a word that the language keeps"
    first = "test_names_are_legal_and_differ"
    file = "impl/export/names.py"
    old = 'name += "_" * (name in _KEPT)'
    new = 'name += "_" * (name == _KEPT)'


class BoundsAreNotLookedAt(Edit):
    rule = "export.variable.checked+2"
    description = "an integer may be one more than its bound"
    first = "test_a_language_model_writes_without_python"
    file = "impl/export/c.py"
    old = 'f"{variable.greatest}) return {name}_OUT_OF_RANGE;")'
    new = 'f"{variable.greatest + 1}) return {name}_OUT_OF_RANGE;")'


class OneValueIsAll(Edit):
    rule = "export.variable.checked+2"
    description = "a function is not called with other values of its variables"
    first = "test_a_python_number_made_of_a_size_is_found"
    file = "impl/export/sizes.py"
    old = "for values in _tried(binds) if binds else ():"
    new = "for values in ():"


class NothingIsLoaded(Edit):
    rule = "export.c.header"
    description = "a program computes with states that were not loaded"
    first = "test_weights_in_the_source_and_codes"
    file = "impl/export/c.py"
    old = 'lines.append(f"  if (!loaded) return {name}_NOT_LOADED;")'
    new = 'lines.append("  (void)loaded;")'


class CopiesAreKernels(Edit):
    rule = "export.refused.named"
    description = "what the host does is taken for a kernel"
    first = "test_what_needs_python_is_refused"
    file = "impl/export/artefact.py"
    old = "if kernel.task is not None:"
    new = "if kernel.task is not None and not kernel.task:"


class NumbersAreDoubles(Edit):
    rule = "export.js.values"
    description = "JavaScript rounds nothing to float32"
    first = "test_operations_in_javascript"
    file = "impl/dialects/javascript.py"
    old = 'return text if dtype is dtypes.float64 else f"f{text}"'
    new = 'return text if dtype is dtypes.float64 else f"{text}"'


class IntegersGrow(Edit):
    rule = "export.js.values"
    description = "integers of 32 bits are not cut back"
    first = "test_operations_in_javascript"
    file = "impl/functions/javascript.py"
    old = "if width == 64:"
    new = "if width >= 32:"


class PlansForOtherDevices(Edit):
    rule = "export.gpu.values"
    description = "the plan is one for devices with more arrays"
    first = "test_training_and_writing_in_a_browser"
    file = "impl/export/__init__.py"
    old = 'if target in ("webgpu", "page"):'
    new = 'if target == "gpu":'


class ArraysOfAnyLength(Edit):
    rule = "export.page.checked"
    description = "arrays may be longer than what a kernel reads"
    first = "test_what_a_page_gives_is_checked"
    file = "impl/export/javascript.py"
    old = '"bytes": port.nbytes, "exact": exact,'
    new = '"bytes": 2 * port.nbytes, "exact": not exact,'


class EachGradientIsTheFirst(Edit):
    rule = "export.gradient.added"
    description = "a gradient that was not there is not there at the next call either"
    file = "impl/export/__init__.py"
    old = "if change.gradient and not isinstance"
    new = "if not change.gradient and not isinstance"


class GradientsBeginWithZero(Edit):
    rule = "export.gradient.added"
    description = "what is added to the first gradient loses the sign of zero"
    file = "impl/export/__init__.py"
    old = "Tensor.full(tensor.shape, -0.0,"
    new = "Tensor.full(tensor.shape, 0.0,"


class NoDeviceIsTheEnd(Edit):
    rule = "export.page.fallback"
    description = "a page without WebGPU stays empty"
    first = "test_a_page_without_a_device_says_so_and_goes_on"
    file = "impl/export/javascript.py"
    old = 'f\'{target}: () => import("./{name}.mjs")\' for'
    new = 'f\'{target}: () => import("./{artefact.name}_webgpu.mjs")\' for'


class SizesOfOtherArrays(Edit):
    rule = "export.page.watched"
    description = "who watches is told of each kernel's arrays with the sizes of others"
    first = "test_a_page_without_a_device_says_so_and_goes_on"
    file = "impl/export/javascript.py"
    old = '"bytes": call.nbytes, "writes": call.writes,'
    new = '"bytes": call.nbytes[::-1], "writes": call.writes,'
