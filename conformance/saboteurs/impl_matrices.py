"""Mistakes with the matrices of a warp and the copies that feed them, made inside `impl`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class RegistersSwapped(ImplPatch):
    rule = "render.mma.registers"
    description = "two registers of the first operand change places"
    target = "impl.dialects.cuda:CUDA.multiply"

    def replacement(self, original: Function) -> Function:
        def multiply(dialect: Any, unit: Any, sums: Any, first: Any, second: Any) -> str:
            one, two, *rest = first
            return str(original(dialect, unit, sums, (two, one, *rest), second))
        return multiply


class SumsSwapped(ImplPatch):
    rule = "render.mma.registers"
    description = "two sums of a lane change places on the way to the instruction"
    target = "impl.dialects.cuda:CUDA.multiply"

    def replacement(self, original: Function) -> Function:
        def multiply(dialect: Any, unit: Any, sums: Any, first: Any, second: Any) -> str:
            one, two, *rest = sums
            return str(original(dialect, unit, (two, one, *rest), first, second))
        return multiply


class NothingIsTurned(ImplPatch):
    rule = "render.mma.registers"
    description = "matrices whose lines go across the pairs of a fragment are fetched as they lie"
    target = "impl.dialects.cuda:loader_name"

    def replacement(self, original: Function) -> Function:
        return lambda count, turned: original(count, False)


class LinesOfOthers(ImplPatch):
    rule = "render.mma.registers"
    description = "lanes bring the lines of their own elements, and not those of a matrix in order"
    target = "impl.dialects.cuda:lines_of_matrices"

    def replacement(self, original: Function) -> Function:
        return lambda taken: "0"


class PairsTheOtherWayRound(ImplPatch):
    rule = "kernel.mma.value"
    description = "in the table of a fragment two digits of an element's number change places"
    target = "impl.kernel.fragments:Fragment.places"

    def replacement(self, original: Function) -> Function:
        def places(part: Any) -> Any:
            if len(part.elements) < 2:
                return original(part)
            first, second, *rest = part.elements
            return original(replace(part, elements=(second, first, *rest)))
        return places


class LanesApart(ImplPatch):
    rule = "kernel.mma.layout+2"
    description = "nobody looks whether the lanes of an MMA are whole warps"
    first = "test_an_mma_that_no_unit_can_do_is_no_kernel"
    target = "impl.kernel.analysis:_verify_warps"

    def replacement(self, original: Function) -> Function:
        return lambda known: None


class AnyOperand(ImplPatch):
    rule = "kernel.mma.layout+2"
    description = "nobody looks where an operand of an MMA comes from"
    first = "test_an_mma_that_no_unit_can_do_is_no_kernel"
    target = "impl.kernel.analysis:_verify_fragments"

    def replacement(self, original: Function) -> Function:
        return lambda node: None


class LinesBeginAnywhere(ImplPatch):
    rule = "kernel.mma.layout+2"
    description = "nobody looks where the lines of an MMA's operand begin"
    first = "test_lines_begin_where_an_access_can"
    target = "impl.kernel.analysis:_verify_lines"

    def replacement(self, original: Function) -> Function:
        return lambda load, own: None


class WhateverIsLeftOver(ImplPatch):
    rule = "groups.matrices.refused"
    description = "a block that the warps do not share evenly is taken"
    first = "test_what_a_unit_cannot_compute_is_refused"
    target = "impl.groups.tensor_cores:TC._fits"

    def replacement(self, original: Function) -> Function:
        return lambda step, nest, unit: None


class NothingBeyondTheSum(ImplPatch):
    rule = "groups.matrices.refused"
    description = "what lies beyond the end of a padded sum is taken for zero"
    first = "test_a_condition_of_the_padded_sum_reaches_both_operands"
    target = "impl.groups.tensor_cores:_operand"

    def replacement(self, original: Function) -> Function:
        from impl.ir import TRUE
        return lambda factor, unit, inside: original(factor, unit, TRUE)


class LinesWithoutGaps(ImplPatch):
    rule = "groups.memory.lanes"
    description = "lines of a copy lie one after the other, in the same banks"
    first = "test_lanes_read_lines_of_an_ordinary_product_from_different_banks"
    target = "impl.groups.tensor_cores:_padding"

    def replacement(self, original: Function) -> Function:
        return lambda dtype, turned: 0


class RoundedWithoutAsking(ImplPatch):
    rule = "groups.matrices.exact"
    description = "TF32 is offered whatever the setting says"
    target = "impl.kernel.fragments:units_of_nvidia"

    def replacement(self, original: Function) -> Function:
        return lambda capability: (*original(capability), "m16n8k8_tf32")


class AnyUnit(ImplPatch):
    rule = "searching.asked.steps+2"
    description = "nobody looks whether the device has the unit that is asked for"
    first = "test_a_unit_that_is_not_there_is_refused_by_name"
    target = "impl.searching:refuse_units"

    def replacement(self, original: Function) -> Function:
        return lambda asked, limits: None


class HalvesAreRounded(ImplPatch):
    rule = "render.half.copied+2"
    description = "a half that is copied becomes a float in between"
    target = "impl.render.printer:_Printer._is_copied"

    def replacement(self, original: Function) -> Function:
        return lambda printer, value: False


class CopiesAreNotAwaited(ImplPatch):
    rule = "lowering.wait.lanes"
    description = "nobody waits for the copies that were begun early"
    first = "test_each_lane_waits_once_in_an_iteration"
    target = "impl.dialects.cuda:CUDA.arrive"

    def replacement(self, original: Function) -> Function:
        return lambda dialect, open: ""


class OneBundleTooFew(ImplPatch):
    rule = "lowering.wait.lanes"
    description = "one bundle of copies more than may be is still under way"
    first = "test_each_lane_waits_once_in_an_iteration"
    target = "impl.dialects.cuda:CUDA.arrive"

    def replacement(self, original: Function) -> Function:
        return lambda dialect, open: original(dialect, open + 1)


class OneBundleOfAll(ImplPatch):
    rule = "lowering.wait.lanes"
    description = "copies are never bundled, so that a wait for all but the last ones is for none"
    first = "test_each_lane_waits_once_in_an_iteration"
    target = "impl.dialects.cuda:CUDA.bundle"

    def replacement(self, original: Function) -> Function:
        return lambda dialect: ""


class EachLaneForItself(ImplPatch):
    rule = "lowering.wait.lanes"
    description = "a lane waits for its own copies, and not for the lanes that still read the place"
    first = "test_each_lane_waits_once_in_an_iteration"
    target = "impl.render.printer:_Printer._item"

    def replacement(self, original: Function) -> Function:
        def item(printer: Any, given: Any) -> None:
            if getattr(given, "open", None) is None:
                original(printer, given)
            else:
                printer._line(printer.groups.arrive(given.open))
        return item


class CopiesReadAnything(ImplPatch):
    rule = "render.copy.ahead"
    description = "a copy that the device makes ignores whether the load is valid"
    target = "impl.dialects.cuda:CUDA.copy_ahead"

    def replacement(self, original: Function) -> Function:
        return lambda dialect, to, source, dtype, count, condition: original(
            dialect, to, source, dtype, count, "")


class CopiesForWhomever(ImplPatch):
    rule = "groups.pipeline.legal"
    description = "nobody looks who else needs what a stage copies"
    target = "impl.groups.pipeline:_serves"

    def replacement(self, original: Function) -> Function:
        return lambda known, key, place, loop: True


class OnePlaceTooFew(ImplPatch):
    rule = "groups.pipeline.legal"
    description = "the place of a copy is given to another one while it is read"
    target = "impl.groups.pipeline:_Ring._place"

    def replacement(self, original: Function) -> Function:
        def place(ring: Any, index: Any, at: Any, iteration: Any, valid: Any) -> Any:
            ring.amount -= 1
            try:
                return original(ring, index, at, iteration, valid)
            finally:
                ring.amount += 1
        return place


class CopiesOnEveryGpu(ImplPatch):
    rule = "cuda.text.legal"
    description = "GPUs that cannot copy by themselves are told to"
    first = "test_an_older_gpu_makes_its_copies_itself"
    target = "impl.dialects.cuda:copies_of_nvidia"

    def replacement(self, original: Function) -> Function:
        return lambda capability: (4, 8, 16)


class LinesSideBySide(ImplPatch):
    rule = "groups.memory.lanes"
    description = "lines of the copies of an ordinary product follow one upon the other"
    first = "test_lanes_read_lines_of_an_ordinary_product_from_different_banks"
    target = "impl.groups.spread:Spread.strides"

    def replacement(self, original: Function) -> Function:
        from impl.blocking.pack import Pack
        return lambda step, sizes, line, itemsize: Pack.strides(step, sizes, line, itemsize)


class OperandsLoadedInPart(ImplPatch):
    rule = "groups.matrices.refused"
    description = "a loop is padded, whatever its MMA reads beyond the end"
    first = "test_what_a_unit_reads_is_not_parted"
    target = "impl.steps.padding:_parts_operands"

    def replacement(self, original: Function) -> Function:
        return lambda store: False
