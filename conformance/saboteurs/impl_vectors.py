"""Mistakes in loops without reductions, vectors and stores past the caches."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch
from impl.ir import Ops

Function = Callable[..., Any]


class LoopsStayApart(ImplPatch):
    rule = "choosing.plain.lanes"
    description = "loops are never made one"
    first = "test_loops_are_merged_where_every_access_allows_it"
    target = "impl.choosing.plain:merge_loops"

    def replacement(self, original: Function) -> Function:
        return lambda planner: None


class NothingIsAVector(ImplPatch):
    rule = "choosing.plain.lanes"
    description = "loops that store contiguously stay as they are"
    first = "test_the_rest_of_a_row_is_a_vector"
    target = "impl.choosing.plain:vectorize"

    def replacement(self, original: Function) -> Function:
        return lambda planner: None


class RowsThatAreLoadedAreScattered(Edit):
    rule = "choosing.plain.row"
    description = "a row whose number is loaded is added to one element after the other"
    file = "impl/choosing/planner.py"
    old = "grows = growth(toposort([index]), (loop,))[index]"
    new = "grows = None"


class SumsOfLoadedRowsAreGathered(Edit):
    rule = "choosing.plain.row"
    description = "sums over rows whose numbers are loaded have no vector along the rows"
    first = "test_sums_of_rows_whose_numbers_are_loaded_are_vectors"
    file = "impl/choosing/planner.py"
    old = "step = self.step(load.src[0].src[1], loop) if self.known.free[load] & bit else 0"
    new = """step = (self.growth[load.src[0].src[1]] or {loop: 9}).get(loop, 0)"""


class VectorsAreHalfAsWide(ImplPatch):
    rule = "choosing.plain.lanes"
    description = "a vector has half of the lanes that its widest type allows"
    first = "test_the_rest_of_a_row_is_a_vector"
    target = "impl.choosing.plain:_widest"

    def replacement(self, original: Function) -> Function:
        return lambda known, loop: 2 * original(known, loop)


class RowsStayApart(ImplPatch):
    rule = "choosing.rows.vector"
    description = "short rows are done one after the other"
    first = "test_short_rows_lie_abreast"
    target = "impl.choosing.heuristic:plan_short"

    def replacement(self, original: Function) -> Function:
        return lambda planner: None


class GathersSquares(ImplPatch):
    rule = "dialects.vector.memory+2"
    description = "no square of registers is transposed"
    first = "test_squares_are_transposed_in_registers"
    target = "impl.render.printer:_Printer._across"

    def replacement(self, original: Function) -> Function:
        return lambda printer, index, wide, vector: None


class GathersWhatIsAFewApart(Edit):
    rule = "dialects.vector.memory+2"
    description = "elements a few apart are gathered one by one"
    first = "test_elements_a_few_apart_are_taken_out_of_whole_vectors"
    file = "impl/dialects/vectors.py"
    old, new = "if not (2 <= step <= count // 2 or", "if not (2 <= step <= 1 or"


class ConvertsInOneGo(Edit):
    rule = "dialects.vector.memory+2"
    description = "bytes become four times as wide at once"
    first = "test_a_conversion_doubles_or_halves_the_width"
    file = "impl/functions/conversions.py"
    old, new = "while 2 * size < wanted or", "while size > wanted < 0 or"


class MaskedStepsAreWhole(Edit):
    rule = "dialects.vector.within"
    description = "of elements a few apart all are read if one of them is valid"
    first = "test_elements_a_few_apart_under_a_mask"
    file = "impl/functions/vector_functions.py"
    old, new = 'f"if (!any_$I(~m)) return stepped{step}_$K(p);"', \
        'f"if (any_$I(m)) return stepped{step}_$K(p);"'


class EachVectorHasTheFirstMask(Edit):
    rule = "dialects.vector.within"
    description = "all vectors that elements a few apart are taken from have the mask of the first"
    first = "test_elements_a_few_apart_under_a_mask"
    file = "impl/functions/vector_functions.py"
    old, new = "for place in range(start, start + size)]", "for place in range(size)]"


class ReadsBehindTheLastElement(Edit):
    rule = "dialects.vector.within"
    description = "the last vector goes on behind the last element"
    file = "impl/functions/vector_functions.py"
    old, new = "starts = [*range(0, last, size), last]", "starts = [*range(0, last + size, size)]"


class MasksOfNothingNameAddresses(Edit):
    rule = "dialects.vector.nowhere"
    description = "what a mask selects is loaded without a look at the mask"
    first = "test_a_mask_of_nothing_asks_for_no_memory"
    file = "impl/functions/vector_functions.py"
    old = '"  if (!any_$I(m)) return ($K){0};\\n" + _either(base, kind, loop)'
    new = "_either(base, kind, loop)"


class BytesOfTheUpperHalfAreForgotten(Edit):
    rule = "dialects.vector.nowhere"
    description = "of 64 bits that say which bytes are chosen 32 are looked at"
    first = "test_one_element_that_a_mask_selects_is_loaded_and_stored"
    file = "impl/functions/vector_functions.py"
    old, new = '"return {} != 0;"', '"return {};"'


class BoundsAreBytes(Edit):
    rule = "render.mask.places"
    description = "a bound beyond the places of a vector loses its upper bits"
    first = "test_places_are_compared_with_bounds_near_and_far"
    file = "impl/dialects/vectors.py"
    old, new = 'nearest = self._call("nearest", bound, str(count))', "nearest = bound"


class PlacesAreIndices(Edit):
    rule = "render.mask.places"
    description = "bytes are chosen by comparing places of 32 bits"
    first = "test_a_mask_of_bytes_is_compared_as_bytes"
    file = "impl/render/masks.py"
    old, new = "or not 0 < bits < _OF_INDICES:", "or not 0 < bits < 0:"


class TurnedVectorsBeginOneTooFar(Edit):
    rule = "dialects.vector.within"
    description = "a vector that is read from its last element on begins one place before its first"
    first = "test_elements_from_the_last_to_the_first"
    file = "impl/functions/vector_functions.py"
    old, new = "step * (1 - size), ", "step * (1 - size) - 1, "


class WhatLiesBackwardsIsGathered(Edit):
    rule = "dialects.vector.memory+2"
    description = "elements that lie backwards are gathered one by one"
    first = "test_elements_from_the_last_to_the_first"
    file = "impl/dialects/vectors.py"
    old, new = "or -count // 2 <= step <= -1)", "or 1 <= step <= -1)"


class AddressesAreAlwaysShort(Edit):
    rule = "render.index.wraps"
    description = "an address has 32 bits however large the memory is"
    first = "test_a_place_that_is_read_has_32_bits_where_it_is_valid"
    file = "impl/lowering/wrapped.py"
    old, new = "return 0 <= least and most < NARROW", "return 0 <= most"


class AddressesAreLong(Edit):
    rule = "render.index.wraps"
    description = "what is read may be anything, and so the address has 64 bits"
    first = "test_a_place_that_is_read_has_32_bits_where_it_is_valid"
    file = "impl/lowering/wrapped.py"
    old, new = "symbolic.bounds_assuming(address, valid)", "symbolic.bounds(address)"


class NumbersWrapToo(Edit):
    rule = "render.index.wraps"
    description = "an index that is stored as a number has 32 bits because it is an address as well"
    first = "test_a_place_that_is_also_a_number_has_all_its_bits"
    file = "impl/lowering/wrapped.py"
    old, new = "    while refused:", "    while refused and not refused:"


class ChainsStoreAgain(Edit):
    rule = "kernel.local.own"
    description = "a running result in a LOCAL is taken several elements at once"
    first = "test_a_running_result_that_nobody_reads"
    file = "impl/blocking/chain.py"
    old, new = "if index.src[0].op is Ops.LOCAL:", "if index.src[0].op is Ops.MMA:"


class CutsNoSquares(ImplPatch):
    rule = "choosing.plain.lanes"
    description = "what is read along one loop and stored along another is no square of lanes"
    first = "test_what_is_read_across_is_read_in_squares"
    target = "impl.choosing.heuristic:HandPlanner._transpose"

    def replacement(self, original: Function) -> Function:
        return lambda planner: None


class NothingGoesPastTheCaches(ImplPatch):
    rule = "choosing.memory.ahead+2"
    description = "large outputs are stored like small ones"
    first = "test_large_outputs_go_past_the_caches"
    target = "impl.choosing.plain:_stream"

    def replacement(self, original: Function) -> Function:
        return lambda planner, loop: None


class LanesAreNeverRolledUp(ImplPatch):
    rule = "choosing.plain.lanes"
    description = "a stage that reduces nothing keeps all lanes of the one before it"
    first = "test_a_stage_that_only_scales_is_rolled_up"
    target = "impl.choosing.roll:roll_lanes"

    def replacement(self, original: Function) -> Function:
        return lambda planner: None


class MaximumIsMinimum(ImplPatch):
    rule = "dialects.vector.equal"
    description = "the larger of two vectors is the smaller one"
    target = "impl.dialects.vectors:Vectors.vector_combine"

    def replacement(self, original: Function) -> Function:
        def combine(vectors: Any, op: Ops, *given: Any) -> Any:
            return original(vectors, Ops.MINIMUM if op is Ops.MAXIMUM else op, *given)
        return combine


class StoredOneByOne(ImplPatch):
    rule = "dialects.vector.memory+2"
    description = "the elements of a vector are stored one by one"
    first = "test_no_element_is_computed_by_itself"
    target = "impl.dialects.vectors:Vectors.vector_store"

    def replacement(self, original: Function) -> Function:
        def stored(vectors: Any, pointer: str, index: str, dtype: Any, count: int, value: Any,
                   mask: Any, stream: bool = False) -> Any:
            return vectors.vector_scatter(pointer, index, 1, dtype, count, value, mask)
        return stored


class NobodyWaitsForStreams(ImplPatch):
    rule = "dialects.stream.fence+2"
    description = "a kernel ends before what it stored past the caches can be seen"
    target = "impl.dialects.vectors:Vectors.fence"

    def replacement(self, original: Function) -> Function:
        return lambda vectors: ""


class PassedElementsStayAlone(Edit):
    rule = "choosing.plain.lanes"
    description = "what passes one element on to other stages keeps all of them from being vectors"
    first = "test_what_is_passed_on_element_by_element_is_a_vector"
    file = "impl/choosing/plain.py"
    old, new = " and not _passes_one(known, store)", ""


class StagesPassOnTheirElements(Edit):
    rule = "steps.start.passed"
    description = "what one other stage needs passes through memory all the same"
    first = "test_what_one_stage_needs_is_computed_there"
    file = "impl/steps/step.py"
    old, new = "return _without_passing(_fold_gates(ast))", "return _fold_gates(ast)"


class ComputedFromWhatIsStoredSince(Edit):
    rule = "steps.start.passed"
    description = "what was passed on is computed where it is read, from memory that has changed"
    first = "test_what_one_stage_needs_is_computed_there"
    file = "impl/steps/step.py"
    old, new = "or any(accessed(each) in needs for each in between)", "or not needs"


class BytesThatLoseTheirSign(Edit):
    rule = "dialects.vector.equal"
    description = "signed bytes become wider as if they had no sign"
    first = "test_whole_numbers_of_another_width_on_other_processors"
    file = "impl/functions/conversions.py"
    old = "pmov{'sz'[source[0] == 'u']}x{letters}"
    new = "pmovzx{letters}"
