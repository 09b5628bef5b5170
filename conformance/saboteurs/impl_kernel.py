"""Mistakes in what a kernel means, what it costs, and in the steps that make it fast."""
from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch
from impl import symbolic
from impl.ir import Ops, RangeKind, UOp
from impl.steps import STEPS, step_parameters

Function = Callable[..., Any]


class RestIsNotStored(ImplPatch):
    rule = "steps.value.equal"
    description = "what is left of a loop that was cut is not stored"
    first = "test_random_steps_keep_the_values_of_random_kernels"
    target = "impl.steps.upcast:Upcast.changed"

    def replacement(self, original: Function) -> Function:
        def changed(step: Any, known: Any, loop: UOp) -> UOp:
            made: UOp = original(step, known, loop)
            before, after = len(known.ast.src), len(made.src)
            return made if before == after else UOp(made.op, made.dtype, made.src[:-1], made.arg)
        return changed


class RestIsNotReduced(ImplPatch):
    rule = "steps.value.equal"
    description = "what is left of a reduction is not combined with the whole blocks"
    first = "test_random_steps_keep_the_values_of_random_kernels"
    target = "impl.steps.rewriting:Reducer._reduction"

    def replacement(self, original: Function) -> Function:
        def reduction(reducer: Any, node: UOp) -> UOp:
            rest, reducer.rest = reducer.rest, None
            try:
                found: UOp = original(reducer, node)
                return found
            finally:
                reducer.rest = rest
        return reduction


class StepsAreNotRecorded(ImplPatch):
    rule = "steps.name.parsed"
    description = "the list of steps that were applied is lost"
    target = "impl.steps.step:with_stores"

    def replacement(self, original: Function) -> Function:
        def sink(*given: Any, **named: Any) -> UOp:
            made: UOp = original(*given, **named)
            return UOp(made.op, made.dtype, made.src, replace(made.arg, steps=()))
        return sink


class AnyLoopMayBeCut(ImplPatch):
    rule = "steps.legal.refused"
    description = "loops of any kind are cut, whatever the step is for"
    target = "impl.steps.step:Step._loop"

    def replacement(self, original: Function) -> Function:
        def loop(step: Any, known: Any, kinds: Any, axis: int | None = None) -> UOp:
            found: UOp = known.ranges[step.axis if axis is None else axis]
            return found
        return loop


class NumbersAreNotCounted(ImplPatch):
    rule = "steps.name.parsed"
    description = "a step takes the numbers that it needs and forgets the others"
    target = "impl.steps.step:Step.parse"

    def replacement(self, original: Function) -> Function:
        def parse(text: str) -> Any:
            name, _, numbers = text.rstrip(")").partition("(")
            known = step_parameters(name.strip().upper()) if name.strip().upper() in STEPS else ()
            kept = ",".join(numbers.split(",")[:len(known)])
            return original(f"{name}({kept})")
        return parse


class SizesDoNotCount(ImplPatch):
    rule = "searching.found.later"
    description = "a list that was found for one size is used for all"
    first = "test_what_was_found_is_kept_for_equal_questions"
    target = "impl.searching.beam:kernel_name"

    def replacement(self, original: Function) -> Function:
        return lambda ast, circumstances="", named=True: " ".join(
            node.op.name for node in ast.toposort())


class StartIsForgotten(ImplPatch):
    rule = "searching.trial.harmless"
    description = "the best of the last generation is taken, however the list of the rules does"
    first = "test_what_is_fastest_is_found_in_several_generations"
    target = "impl.searching.beam:_Search._last"

    def replacement(self, original: Function) -> Function:
        def last(search: Any, start: Any, beam: Any) -> Any:
            return original(search, beam[0], beam)
        return last


class AnyWindowIsShared(ImplPatch):
    rule = "choosing.window.shared"
    description = "a condition on the output alone is taken for one of the window"
    target = "impl.blocking.windows:_only"

    def replacement(self, original: Function) -> Function:
        return lambda value, grows, pair: True


class StridedWindowsAreCopiedOneByOne(Edit):
    rule = "choosing.window.shared"
    description = "the elements that windows share are copied one by one"
    first = "test_windows_read_a_copy_of_what_they_share"
    file = "impl/choosing/windows.py"
    old, new = "cut_vector(planner, copy.src[-1].arg[0], width)", "pass"


class WindowsAreNeverVectors(ImplPatch):
    rule = "choosing.window.apart"
    description = "the results of a pool are computed one by one"
    first = "test_results_of_a_pool_are_vectors"
    target = "impl.choosing.heuristic:HandPlanner._stepped"

    def replacement(self, original: Function) -> Function:
        return lambda planner, node, outputs, loads: None


class TilesPartShortLoops(Edit):
    rule = "choosing.window.apart"
    description = "two short loops of a stage stay two where rows of a tile are lanes"
    first = "test_scales_of_rows_in_a_tile_are_vectors"
    file = "impl/choosing/plain.py"
    old, new = "if len(own) < 2 or any(node.op is Ops.REDUCE", \
        "if len(own) < 2 or known.lanes or any(node.op is Ops.REDUCE"


class TapsAreNeverPixels(ImplPatch):
    rule = "choosing.window.apart"
    description = "a loop over the taps of windows stays apart from the one over windows"
    first = "test_the_gradient_of_a_pool_is_made_of_vectors"
    target = "impl.choosing.short:_pays"

    def replacement(self, original: Function) -> Function:
        return lambda planner, row, sizes, width: False


class RowsAreNeverRead(ImplPatch):
    rule = "choosing.rows.vector"
    description = "a sum over rows of memory takes a few elements of each row"
    first = "test_few_rows_read_the_other_operand_from_end_to_end"
    target = "impl.choosing.heuristic:plan_rows"

    def replacement(self, original: Function) -> Function:
        return lambda planner, node: False


class PrivateArraysHaveNoEnd(ImplPatch):
    rule = "steps.padding.untouched"
    description = "a padded loop reads beyond the end of a private array"
    target = "impl.steps.padding:_within_local"

    def replacement(self, original: Function) -> Function:
        return lambda place: place.src[0].op is Ops.LOCAL


class AllBytesAreSigned(ImplPatch):
    rule = "kernel.integer.value"
    description = "both operands of DOT have signed bytes"
    first = "test_four_products_of_bytes"
    target = "impl.reference:_dot"

    def replacement(self, original: Function) -> Function:
        def dot(one: Any, two: Any) -> Any:
            parts = [(x.astype("i4")[..., None] >> [0, 8, 16, 24]).astype("i1").astype("i4")
                     for x in (one, two)]
            return (parts[0] * parts[1]).sum(-1).astype("i4")
        return dot


class UnitsGetNoProduct(ImplPatch):
    rule = "choosing.product.unit"
    description = "the processor's unit for matrices is never used"
    first = "test_only_a_unit_that_is_there_gets_products_that_it_reads"
    target = "impl.choosing.products:plan_tiles"

    def replacement(self, original: Function) -> Function:
        return lambda planner, node, roles: False


class UnitsAreForgotten(ImplPatch):
    rule = "lowering.tiles.whole"
    description = "a stage marked for a unit is lowered as loops, whatever it is"
    first = "test_a_stage_for_a_unit_is_one_call_as_long_as_it_is_a_product"
    target = "impl.lowering.lower:tiles_of"

    def replacement(self, original: Function) -> Function:
        return lambda store: None


class StepsOfGroupsAreIgnored(ImplPatch):
    rule = "searching.asked.steps+2"
    description = "a device without work-groups does not refuse their steps"
    first = "test_a_unit_that_is_not_there_is_refused_by_name"
    target = "impl.searching:_refuse_groups"

    def replacement(self, original: Function) -> Function:
        return lambda asked: None


class ReductionsDependOnTheirLoops(ImplPatch):
    rule = "kernel.scope.loops"
    description = "the value of a reduction depends on the loops that it reduces"
    first = "test_a_reduction_does_not_depend_on_what_it_reduces"
    target = "impl.kernel.analysis:Analysis._free"

    def replacement(self, original: Function) -> Function:
        def free(known: Any, node: UOp) -> int:
            mask: int = original(known, node)
            return mask | known.mask(node.src[1:]) if node.op is Ops.REDUCE else mask
        return free


class KernelsAreTakenAsTheyCome(ImplPatch):
    rule = "kernel.node.known"
    description = "nodes that are no operation of kernels are let through"
    target = "impl.kernel.analysis:verify_kernel"

    def replacement(self, original: Function) -> Function:
        from impl.kernel.analysis import Analysis
        return lambda ast: Analysis(ast)


class ValuesLeaveTheirLoops(KernelsAreTakenAsTheyCome):
    rule = "kernel.scope.loops"
    description = "a value is used outside of a loop that it depends on"
    first = "test_a_value_outside_of_its_loops_is_refused"


# Meaning


class ReadBeforeItWasStored(Edit):
    rule = "kernel.order.stores"
    description = "what was read of a memory is taken for what is there after a store"
    file = "impl/lowering/lower.py"
    old, new = "epoch = max(epoch, self.written.get(key, 0))", "epoch = max(epoch, 0)"


class LocalsOfTheFirstIteration(Edit):
    rule = "kernel.local.own"
    description = "what a stage stores is read once for all iterations of the prefix"
    first = "test_a_local_belongs_to_one_iteration"
    file = "impl/kernel/analysis.py"
    old, new = "mask |= self.prefix  #", "mask |= 0  #"


class NothingIsOne(Edit):
    rule = "kernel.access.gated"
    description = "a load that is not valid gives one"
    first = "test_an_empty_argument_may_stand_behind_a_gate"
    file = "impl/render/accesses.py"
    old, new = '"0" if copied else self._nothing(dtype)', '"1"'


class VectorsAreStoredWhole(Edit):
    rule = "kernel.access.gated"
    description = "a vector is stored whole, whatever part of it is valid"
    first = "test_a_store_that_is_not_valid_changes_nothing"
    file = "impl/dialects/vectors.py"
    old = 'return self._call(f"put_{kind}", array, index, text, self._mask(mask, kind)) + ";"'
    new = 'return f"*({kind}u *)({pointer} + {index}) = {text};"'


class LeastIsMinusTheGreatest(Edit):
    rule = "kernel.reduce.empty"
    description = "a maximum of nothing is minus the greatest value of its type"
    file = "impl/ir.py"
    old, new = "return dtype.min if op is Ops.MAXIMUM", \
        "return wrap(-dtype.max, dtype) if op is Ops.MAXIMUM"


class SumsRoundedEachTime(Edit):
    rule = "kernel.half.wide"
    description = "the sum of halves is rounded after each of them"
    first = "test_half_types_accumulate_in_float32"
    file = "impl/render/reductions.py"
    old, new = "self._line(self.dialect.assign(name, text))", \
        "self._line(self.dialect.assign(name, self.dialect.finish(node.dtype, text)))"


class HalvesAreFloats(ImplPatch):
    rule = "kernel.half.wide"
    description = "what is computed with halves stays a float32"
    first = "test_half_types_round_after_every_operation"
    target = "impl.dialects.c:C.rules"

    def replacement(self, original: Any) -> Any:
        return type(original)(rule for rule in original.rules if rule.name != "h + h")


class ExactQuotientsAreOneLess(Edit):
    rule = "kernel.integer.value"
    description = "a negative quotient is one less, also where nothing is left over"
    first = "test_integer_quotients_and_remainders"
    file = "impl/functions/definitions.py"
    old, new = "((a % b != 0) & ((a < 0) != (b < 0)))", "((a < 0) != (b < 0))"


class RemainderByZeroIsAll(Edit):
    rule = "kernel.integer.value"
    description = "the remainder by zero is the dividend"
    first = "test_integer_quotients_and_remainders"
    file = "impl/functions/definitions.py"
    old, new = "if (b == 0 || b == -1) return 0;", "if (b == 0 || b == -1) return b ? 0 : a;"


class ShiftsByTheWidth(Edit):
    rule = "kernel.integer.value"
    description = "a shift by the width of the type shifts by nothing, as processors do"
    first = "test_shifts_by_the_width_and_more"
    file = "impl/functions/definitions.py"
    old, new = "($U)b < {bits(kind)}", "($U)b <= {bits(kind)}"


class PowersOfMinusOne(Edit):
    rule = "kernel.integer.value"
    description = "-1 to an even negative power is -1"
    first = "test_integer_powers"
    file = "impl/functions/definitions.py"
    old, new = "(b & 1 ? -1 : 1)", "-1"


class RemaindersOfBools(Edit):
    rule = "kernel.integer.value"
    description = "the remainder of bools is true"
    first = "test_arithmetic_of_bools"
    file = "impl/lowering/legal.py"
    old, new = "lambda: FALSE)", "lambda: TRUE)"


# Cost


class SumsCostTheirResults(Edit):
    rule = "kernel.estimate.operations"
    description = "a reduction counts an operation for each result, and not for each element"
    file = "impl/kernel/analysis.py"
    old, new = "self._count(known.free[node] | known.free[node.src[0]])", \
        "self._count(known.free[node])"


# Steps


class NumbersBeginAtZero(ImplPatch):
    rule = "steps.loop.numbers"
    description = "loops that steps make are numbered from 0, as those of an assembled kernel are"
    target = "impl.ir:_range_numbers"

    def replacement(self, original: Any) -> Any:
        return itertools.count()


class StepsAreNotTakenBack(Edit):
    rule = "choosing.step.legal+2"
    description = "a plan with a step that is not legal ends in an error"
    first = "test_a_plan_that_is_not_legal_is_not_taken"
    file = "impl/choosing/heuristic.py"
    old, new = "except StepError:\n            self._", "except KeyError:\n            self._"


class LocalMemoryTwice(Edit):
    rule = "groups.memory.most"
    description = "a step may need twice the local memory that there is"
    file = "impl/groups/planner.py"
    old = "return False\n        if exceeds(self.known.ast, self.limits.local_memory):"
    new = "return False\n        if exceeds(self.known.ast, 2 * self.limits.local_memory):"


class StepsForKernelsOfStages(Edit):
    rule = "searching.noopt.plain"
    description = "a kernel of several stages gets its steps, whatever NOOPT says"
    file = "impl/cpu/backend.py"
    old, new = 'if settings.get("NOOPT"):', 'if settings.get("NOOPT") and len(ast.src) == 1:'


# Parts


class PartsAsTheyCome(ImplPatch):
    rule = "steps.parts.order"
    description = "every second kernel combines the parts of its threads from the last one on"
    target = "impl.steps.rewriting:element_of"

    def replacement(self, original: Function) -> Function:
        turned = itertools.count()

        def at(buffer: UOp, index: UOp) -> UOp:
            if index.arg[1] is RangeKind.REDUCE and next(turned) % 2:
                index = symbolic.sub(index.src[0].arg - 1, index)
            found: UOp = original(buffer, index)
            return found
        return at


class WarpsAsTheyCome(ImplPatch):
    rule = "steps.parts.order"
    description = "every second reduction begins its exchanges with the lane that is nearest"
    target = "impl.render.reductions:Reductions._exchange"

    def replacement(self, original: Function) -> Function:
        nearest = itertools.count()

        def exchange(printer: Any, node: UOp, width: int) -> None:
            before = len(printer.lines)
            original(printer, node, width)
            if next(nearest) % 2:
                lines = printer.lines[before:]
                pairs = [lines[i:i + 2] for i in range(0, len(lines), 2)]
                printer.lines[before:] = itertools.chain.from_iterable(pairs[::-1])
        return exchange


class TurnsAreStoredInParts(Edit):
    rule = "kernel.local.own"
    description = "what is left of a LOCAL that turns carry on is stored by itself"
    first = "test_what_turns_carry_on_is_stored_at_once"
    file = "impl/steps/upcast.py"
    old, new = "if is_carried(known, loop):", "if rest < 0:"


class SquaresWaitForTheirLines(Edit):
    rule = "choosing.plain.fetch"
    description = "a square of lanes does not ask for the memory of its results"
    first = "test_squares_ask_for_the_memory_of_their_results"
    file = "impl/choosing/heuristic.py"
    old, new = "if whole > self.limits.second_cache:", "if whole < 0:"


class RowsAreLeftAfterOneSquare(Edit):
    rule = "choosing.plain.lanes"
    description = "after each square of a transposition, squares of other rows are read"
    first = "test_squares_along_the_rows_that_are_read_come_first"
    file = "impl/choosing/heuristic.py"
    old, new = "self._read_on(stored, read, size)", "pass"


class EachThreadCopiesAllRows(Edit):
    rule = "choosing.product.parts+2"
    description = "threads have columns alone, and each copies all rows out of order"
    file = "impl/choosing/products.py"
    old, new = "roles = _rows_for_threads(planner, node, roles, tile, straight)", "pass"


class NothingIsCopiedAhead(Edit):
    rule = "groups.units.chosen"
    description = "tiles of a product are copied when they are needed, whatever the device can"
    first = "test_copies_are_made_early_where_a_device_copies_by_itself"
    file = "impl/groups/grouping.py"
    old, new = "if self.limits.asynchronous:", "if False:"


class FollowsWhatItCannot(Edit):
    rule = "steps.declaration.single"
    description = "no step looks at what others have left in the kernel"
    file = "impl/steps/step.py"
    old, new = "if trace.is_in(known):", "if trace.is_in(known) and not trace.detail:"
