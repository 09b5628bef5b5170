"""Mistakes in loops that stages share and in steps for products, made inside `impl.kernel`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class PlansAreTakenAtAnyPrice(Edit):
    rule = "choosing.product.refused"
    description = "a product whose plan has a step that is not legal has no kernel"
    first = "test_a_plan_that_is_not_legal_is_not_taken"
    file = "impl/choosing/heuristic.py"
    old, new = "or self._if_legal(plan_product, node)", "or plan_product(self, node)"


class TapsReadForThemselves(Edit):
    rule = "choosing.product.windows"
    description = "what the taps of a gradient share is read, and computed, for each of them"
    first = "test_the_gradient_of_weights_reads_a_copy_of_what_its_taps_share"
    file = "impl/choosing/products.py"
    old = "if math.prod(planner.extent(pair.output) for pair in pairs) < _LEAST_TILES"
    new = "if pairs"


class StreamsCostNothing(Edit):
    rule = "choosing.product.streams"
    description = "a tile has eight rows, however much memory comes with each result"
    first = "test_rows_of_a_tile_are_few_where_each_result_has_memory_of_its_own"
    file = "impl/choosing/heuristic.py"
    old, new = "if streams < _STREAMS:", "if streams < 99:"


class WhatRowsShareIsAStream(Edit):
    rule = "choosing.product.streams"
    description = "a number that all rows of a column share is a stream of each row"
    first = "test_rows_of_a_tile_are_few_where_each_result_has_memory_of_its_own"
    file = "impl/choosing/heuristic.py"
    old = "grows.get(vector) == 1 and any(loop in grows for loop in rows)"
    new = "grows.get(vector) == 1"


class BlocksStayOneLoop(Edit):
    rule = "choosing.plain.blocks"
    description = "in a loop over blocks each element finds its block by a division"
    first = "test_what_memory_sees_in_blocks_is_cut"
    file = "impl/choosing/plain.py"
    old, new = "if node.op is Ops.FLOORDIV and node.src[1]", \
        "if node.op is Ops.REDUCE and node.src[1]"


class RowsAreCutByTheirDivisors(Edit):
    rule = "choosing.plain.whole"
    description = "a row that all stages share is cut into as many lanes as divide it"
    first = "test_rows_of_stages_that_hand_elements_on_are_whole_vectors"
    file = "impl/choosing/plain.py"
    old, new = "if -extent % each <= _MOST_ADDED * extent), 0)", "if extent % each < 0), 0)"


class RowsAreMuchLonger(Edit):
    rule = "choosing.plain.whole"
    description = "a row that all stages share is made longer, by however much"
    first = "test_rows_of_stages_that_hand_elements_on_are_whole_vectors"
    file = "impl/choosing/plain.py"
    old, new = "if -extent % each <= _MOST_ADDED * extent), 0)", "if each), 0)"


class PhasesStayOneLoop(Edit):
    rule = "choosing.product.phases"
    description = "a loop that memory sees as two stays one"
    first = "test_loops_that_memory_sees_in_phases_are_two"
    file = "impl/choosing/heuristic.py"
    old, new = "cut_divided(self)", "pass"


class ShiftsStayInTheirLoop(Edit):
    rule = "choosing.product.shifts"
    description = "a loop over the parts of a byte is never written out"
    first = "test_shifts_of_packed_numbers_are_written_out"
    file = "impl/choosing/heuristic.py"
    old, new = "1 < self.extent(loop) <= _MOST_WRITTEN", "1 < self.extent(loop) <= 0"


class AllShiftsAreWrittenOut(Edit):
    rule = "choosing.product.shifts"
    description = "a loop by which bits are shifted is written out, however long it is"
    first = "test_shifts_of_packed_numbers_are_written_out"
    file = "impl/choosing/heuristic.py"
    old, new = "1 < self.extent(loop) <= _MOST_WRITTEN", "1 < self.extent(loop) <= 64"


class TablesAreReadOneByOne(Edit):
    rule = "choosing.product.table"
    description = "a sum that reads a table of a few numbers computes them one by one"
    first = "test_a_table_of_few_numbers_is_read_from_a_register"
    file = "impl/choosing/planner.py"
    old, new = "or self._is_table(load):", "or False:"


class LongTablesArePermutedToo(Edit):
    rule = "choosing.product.table"
    description = "a table of two vectors is taken for one that fits a register"
    first = "test_a_table_of_few_numbers_is_read_from_a_register"
    file = "impl/render/accesses.py"
    old, new = "symbolic.bounds(index.src[1]) == (0, count - 1)", \
        "symbolic.bounds(index.src[1])[1] < 2 * count"


class SharedKeysAreReadApart(Edit):
    rule = "choosing.product.phases"
    description = "a loop around a sum that memory sees in phases by a quotient alone stays one"
    first = "test_heads_that_share_keys_are_rows_beside_each_other"
    file = "impl/choosing/products.py"
    old = "mine = loop in known.info.prefix or"
    new = "mine = node.op is Ops.FLOORMOD and loop in known.info.prefix or"


class FewRowsReadOneByOne(Edit):
    rule = "choosing.product.phases"
    description = "a product with few rows copies nothing, however its operand lies"
    first = "test_a_product_with_few_rows_copies_what_it_would_read_one_by_one"
    file = "impl/choosing/products.py"
    old, new = "            rows < _FEWEST_ROWS or", "            rows < _LEAST_ROWS or"


class LongSumsAreCopiedWhole(Edit):
    rule = "choosing.product.windows"
    description = "a sum over several loops is never cut into chunks"
    first = "test_the_gradient_of_weights_reads_a_copy_of_what_its_taps_share"
    file = "impl/choosing/products.py"
    old, new = "or not sizes or dtype in HALF:", "or not sizes or dtype in HALF or inner[1:]:"


class TakesValuesOutOfSharedLoops(ImplPatch):
    rule = "kernel.block.loops"
    description = "what a shared loop stores anew is read once, before the loop"
    first = "test_an_iteration_runs_its_stages_before_the_next"
    target = "impl.lowering.lower:_Placement._changed"

    def replacement(self, original: Function) -> Function:
        return lambda placement: {}


class AcceptsAnyOrderOfStages(ImplPatch):
    rule = "kernel.block.loops"
    description = "stages with another one between them may share a loop"
    first = "test_stages_that_share_a_loop_stand_side_by_side"
    target = "impl.kernel.analysis:_verify_nest"

    def replacement(self, original: Function) -> Function:
        return lambda known: None


class PadsWithoutGates(ImplPatch):
    rule = "steps.padding.untouched"
    description = "the iterations that were added to a loop store like the others"
    target = "impl.steps.padding:_Padder._gated"

    def replacement(self, original: Function) -> Function:
        return lambda padder, place: place


class SumsAreNotSetToZero(Edit):
    rule = "kernel.local.own"
    description = "the sums of pieces begin with what the LOCAL held before"
    first = "test_values_are_the_same_when_memory_is_poisoned"
    file = "impl/blocking/chunk.py"
    old = "(target, zero, *shared, *own)),\n                UOp(Ops.STORE, node.dtype, "
    new = ""


class CopiesWhatIsStored(ImplPatch):
    rule = "blocking.copy.stored"
    description = "an operand is copied although a stage stores to its memory"
    target = "impl.blocking.pack:_is_stale"

    def replacement(self, original: Function) -> Function:
        return lambda stores, value: False


class ComputesOperandsAgain(ImplPatch):
    rule = "choosing.product.memory+2"
    description = "an operand is computed for each panel of columns"
    first = "test_a_batch_shares_a_copy"
    target = "impl.choosing.products:_set_aside"

    def replacement(self, original: Function) -> Function:
        return lambda planner, number, factor: None


class RowsAreAskedForAtEachElement(Edit):
    rule = "choosing.product.memory+2"
    description = "rows of padding are left out at each element of the operand"
    first = "test_rows_of_attention_are_as_many_as_registers_hold"
    file = "impl/choosing/products.py"
    old, new = "loads[0].src[0].src[2] is TRUE", "loads"


class FourRowsForFewRegisters(Edit):
    rule = "choosing.product.stage"
    description = "sixteen registers hold a tile of four rows"
    first = "test_rows_of_attention_are_as_many_as_registers_hold"
    file = "impl/choosing/products.py"
    old, new = "else (6, 4, 2)\n", "else (4, 2)\n"


class StoresSideBySideAlways(Edit):
    rule = "choosing.product.column+3"
    description = "three results that lie side by side are a vector, however long their sums are"
    file = "impl/choosing/products.py"
    old, new = "iter(wide or beside)", "iter(beside or wide)"


class TwoResultsAreAVector(Edit):
    rule = "choosing.product.column+3"
    description = "two results that lie side by side are a vector, if sums are not very long"
    first = "test_two_results_side_by_side_are_no_vector_where_sums_are_not_short"
    file = "impl/choosing/products.py"
    old, new = "(_LONG_SUM if not beside else _LONGER_SUM)", "_LONG_SUM"


class LanesMayBeIdle(Edit):
    rule = "choosing.product.column+3"
    description = "a row of results is a vector, however many of its lanes are idle"
    first = "test_rows_that_fill_few_lanes_are_no_vectors"
    file = "impl/choosing/products.py"
    old, new = "if deep >= _DEEP_SUM and", "if deep < 0 and"


class TakesEveryRegisterForSums(ImplPatch):
    rule = "choosing.product.tile"
    description = "the tile takes all registers, and none is left for the operands"
    first = "test_a_tile_fits_the_registers"
    target = "impl.choosing.products:choose_tile"

    def replacement(self, original: Function) -> Function:
        def choose(limits: Any, itemsize: int, rows: int, columns: int) -> Any:
            tile = original(limits, itemsize, rows, columns)
            return type(tile)(min(rows, limits.vector_registers // tile.vectors), tile.vectors,
                              tile.width)
        return choose


class LoadsForEveryProduct(ImplPatch):
    rule = "choosing.product.tile"
    description = "a tile has one row, so nothing that is loaded is used twice"
    first = "test_a_tile_multiplies_and_loads_little"
    target = "impl.choosing.products:choose_tile"

    def replacement(self, original: Function) -> Function:
        def choose(limits: Any, itemsize: int, rows: int, columns: int) -> Any:
            tile = original(limits, itemsize, rows, columns)
            return type(tile)(1, tile.vectors, tile.width)
        return choose


class KeepsRowsTogether(ImplPatch):
    rule = "choosing.product.parts+2"
    description = "tiles of rows that share a copy are left to one thread"
    target = "impl.choosing.products:_parts_of_rows"

    def replacement(self, original: Function) -> Function:
        return lambda planner, tiles, straight: min(original(planner, tiles, straight), 1)


class CopiesForEverySentence(ImplPatch):
    rule = "choosing.product.memory+2"
    description = "an operand is copied again in each iteration of the loops around the rows"
    first = "test_a_batch_shares_a_copy"
    target = "impl.choosing.products:_share_around"

    def replacement(self, original: Function) -> Function:
        return lambda planner, node, second, tiles: None


class GathersAgain(ImplPatch):
    rule = "choosing.product.memory+2"
    description = "an operand is gathered again for each row that reads it"
    first = "test_an_operand_that_a_later_stage_stores_is_copied_before"
    target = "impl.choosing.heuristic:copy_gathered"

    def replacement(self, original: Function) -> Function:
        return lambda planner: False


class FetchesNothing(ImplPatch):
    rule = "choosing.product.memory+2"
    description = "no product asks for the memory of its results"
    first = "test_outputs_across_lines_are_asked_for"
    target = "impl.choosing.products:_fetch"

    def replacement(self, original: Function) -> Function:
        return lambda planner, number: None


class FetchesEachVector(ImplPatch):
    rule = "lowering.fetch.before+3"
    description = "a line of memory is asked for again and again"
    target = "impl.render.accesses:_apart"

    def replacement(self, original: Function) -> Function:
        return lambda places, line: [*places, *places]


class HidesWhatIsSeen(Edit):
    rule = "blocking.hide.read+2"
    description = "a product is left out although somebody reads it without the mask"
    file = "impl/blocking/hidden.py"
    old, new = "store.src[1] in bare or any(", "any("


class HidesAddresses(Edit):
    rule = "blocking.hide.read+2"
    description = "a product is left out although its elements are taken for addresses"
    file = "impl/blocking/hidden.py"
    old, new = "node.op is Ops.INDEX for node in bare", "False for node in bare"


class HidesBehindWhatIsStored(Edit):
    rule = "blocking.hide.read+2"
    description = "a product is left out by a number that is stored after it"
    file = "impl/blocking/hidden.py"
    old, new = "if stored or known", "if known"


class HidesNothing(ImplPatch):
    rule = "choosing.product.hidden"
    description = "products that a mask hides are computed"
    target = "impl.choosing.products:_hide"

    def replacement(self, original: Function) -> Function:
        return lambda planner, column, dtype: None


class SkipsNothing(ImplPatch):
    rule = "lowering.gate.skipped+2"
    description = "what is not stored is computed all the same"
    target = "impl.lowering.lower:_Placement._gates"

    def replacement(self, original: Function) -> Function:
        return lambda placement, group: []


class RowsBeginAnywhere(ImplPatch):
    rule = "steps.lanes.lines+2"
    description = "rows of lanes lie one behind the other, whatever their length is"
    target = "impl.steps.rewriting:_pitch"

    def replacement(self, original: Function) -> Function:
        return lambda buffer: buffer.arg[1]


class AsksForNoNextRow(ImplPatch):
    rule = "choosing.memory.ahead+2"
    description = "no stage asks memory for the next row"
    first = "test_the_next_row_is_asked_for"
    target = "impl.choosing.heuristic:look_ahead"

    def replacement(self, original: Function) -> Function:
        return lambda planner: None


class AsksForNoRowsToAdd(Edit):
    rule = "choosing.memory.ahead+2"
    description = "rows that are added to results are not asked for before"
    first = "test_rows_that_are_added_ask_for_the_next_ones"
    file = "impl/choosing/ahead.py"
    old, new = " or planner.known.free[load] & alone\n", "\n"


class FewColumnsHaveTheirRowsCopied(Edit):
    rule = "choosing.product.along+2"
    description = "for two or three columns the rows of the other operand are copied"
    first = "test_two_or_three_columns_copy_no_rows"
    file = "impl/choosing/products.py"
    old, new = "or any(beside) and planner", "or False and planner"


class AsksForNoRowsBeside(Edit):
    rule = "choosing.memory.ahead+2"
    description = "rows of halves that are read side by side do not ask for the next ones"
    first = "test_rows_of_narrow_elements_ask_for_the_next_ones"
    file = "impl/choosing/ahead.py"
    old, new = "load.dtype.itemsize < _WORD and", "load.dtype.itemsize < 0 and"


class AsksForTheSameRow(Edit):
    rule = "render.hint.pays+2"
    description = "what is asked for is what has just been read"
    first = "test_each_vector_of_the_next_row_is_asked_for"
    file = "impl/render/accesses.py"
    old, new = 'f"{address} + {self.ahead[node]}", False', 'f"{address} + 0", False'


class LeavesNumbersOver(ImplPatch):
    rule = "choosing.plain.lanes"
    description = "what a vector of a row leaves over is computed one by one"
    first = "test_the_rest_of_a_row_is_a_vector"
    target = "impl.choosing.planner:Planner.whole_rest"

    def replacement(self, original: Function) -> Function:
        return lambda planner, before, rest, width: None


class DividesEachElement(Edit):
    rule = "tensor.softmax.once"
    description = "a softmax divides each element by the sum"
    file = "impl/tensor/reduce.py"
    old, new = "nodes.mul(grown, part)", "nodes.div(grown, nodes.expand(total, self.shape))"


class MultipliesTiles(ImplPatch):
    rule = "choosing.product.tile"
    description = "a second loop of the prefix is cut although its lanes join a tile"
    first = "test_a_loop_in_which_another_reduction_has_lanes_is_not_cut"
    target = "impl.choosing.heuristic:HandPlanner._multiplies_tiles"

    def replacement(self, original: Function) -> Function:
        return lambda planner, node, loop: False


class SeveralVectorsEverywhere(ImplPatch):
    rule = "choosing.plain.lanes"
    description = "each of many stages computes several vectors at a time"
    first = "test_many_stages_get_one_vector_each"
    target = "impl.choosing.plain:has_many_stages"

    def replacement(self, original: Function) -> Function:
        return lambda known: False


class OneLaneForAll(ImplPatch):
    rule = "lowering.vector.choice"
    description = "lanes are weighed one against one"
    target = "impl.lowering.lower:_worth_most"

    def replacement(self, original: Function) -> Function:
        def greedy(points: dict[Any, int], rivals: dict[Any, list[Any]]) -> tuple[Any, ...]:
            taken: list[Any] = []
            for lane in sorted(points, key=lambda each: -points[each]):
                if not any(rival in taken for rival in rivals[lane]):
                    taken.append(lane)
            return tuple(taken)
        return greedy


class NothingIsScaled(Edit):
    rule = "blocking.online.equal"
    description = "what was summed before the maximum grew stays as it was"
    file = "impl/blocking/online.py"
    old = "so_far = UOp(Ops.MUL, _FLOAT, (_load(self.done), _load(self.scale)))"
    new = "so_far = _load(self.done)"


class HiddenBlocksAreNotANumber(ImplPatch):
    rule = "blocking.online.equal"
    description = "a block of nothing but negative infinity is taken from itself"
    target = "impl.blocking.online:_Blocks._shifted"

    def replacement(self, original: Function) -> Function:
        from impl.dtypes import dtypes
        from impl.ir import Ops, UOp

        def shifted(blocks: Any, value: Any) -> Any:
            most = UOp(Ops.LOAD, dtypes.float32, (blocks.after,))
            return UOp(Ops.EXP, dtypes.float32, (UOp(Ops.SUB, dtypes.float32, (value, most)),))
        return shifted


class AnyMaximum(ImplPatch):
    rule = "blocking.online.legal"
    description = "nobody looks what a softmax is divided and shifted by"
    target = "impl.blocking.online:_over"

    def replacement(self, original: Function) -> Function:
        return lambda node, op, element, loop: True


class WeightsOfTheMaximumBefore(ImplPatch):
    rule = "blocking.online.equal"
    description = "a block is weighted by the maximum of the blocks before it"
    target = "impl.blocking.online:_Blocks._shifted"

    def replacement(self, original: Function) -> Function:
        def shifted(blocks: Any, value: Any) -> Any:
            blocks.before, blocks.after = blocks.after, blocks.before
            try:
                return original(blocks, value)
            finally:
                blocks.before, blocks.after = blocks.after, blocks.before
        return shifted


class RunningMaximumForAll(ImplPatch):
    rule = "steps.asked.named"
    description = "a search tries steps that round elsewhere"
    target = "impl.searching.beam:actions"

    def replacement(self, original: Function) -> Function:
        from impl.blocking import Online

        def actions(known: Any, draw: Any, limits: Any) -> Any:
            return [*original(known, draw, limits), Online(0, 2)]
        return actions


class FewRowsAreWorthACopy(Edit):
    rule = "choosing.product.along+2"
    description = "a product of three rows copies an operand that can be read as it lies"
    first = "test_few_rows_read_an_operand_as_it_lies"
    file = "impl/choosing/products.py"
    old, new = "or _lie_along(planner, node, roles.inner[-1])):", "or False):"


class FewColumnsAreGathered(Edit):
    rule = "choosing.product.along+2"
    description = "sums are made of vectors along which one operand does not lie"
    first = "test_few_rows_read_an_operand_as_it_lies"
    file = "impl/choosing/products.py"
    old, new = "planner.extent(loop) >= width and all(beside)", \
        "planner.extent(loop) >= width and any(beside)"


class OneAccumulatorIsEnough(Edit):
    rule = "choosing.reduction.long"
    description = "a long sum of one vector waits for each addition"
    first = "test_a_long_reduction_has_several_accumulators"
    file = "impl/choosing/heuristic.py"
    old, new = "self._lanes_of(node) <= 2 * width:", "self._lanes_of(node) < 1:"


class FewColumnsAreNoVector(Edit):
    rule = "choosing.reduction.long"
    description = "the rows of three columns are reduced one by one"
    first = "test_a_long_reduction_has_several_accumulators"
    file = "impl/choosing/planner.py"
    old, new = "all(0 < step <= most for step in steps)", "False"


class MixedSumsAreNoVector(Edit):
    rule = "choosing.reduction.mostly"
    description = "sums of which one part lies otherwise are made one by one"
    first = "test_of_three_parts_one_may_be_gathered"
    file = "impl/choosing/heuristic.py"
    old, new = "if use.contiguous > use.scattered", "if use.contiguous > 99"


class HalfASumIsNoVector(Edit):
    rule = "choosing.reduction.mostly"
    description = "sums of two parts that lie otherwise are made one by one"
    first = "test_of_two_parts_of_a_sum_one_may_be_gathered"
    file = "impl/choosing/heuristic.py"
    old, new = "if use.contiguous and use.contiguous >= use.scattered", "if use.contiguous > 99"


class ImagesOfSevenAreShort(Edit):
    rule = "choosing.window.apart"
    description = "rows of seven that lie side by side stay apart"
    first = "test_short_rows_that_lie_side_by_side_are_one"
    file = "impl/choosing/plain.py"
    old, new = "or size % width and _merges", "or size < 0 and _merges"


class TwoGathersAreTooMany(Edit):
    rule = "choosing.plain.lanes"
    description = "a stage that gathers both of its operands has no vector"
    first = "test_two_operands_may_be_gathered"
    file = "impl/choosing/plain.py"
    old, new = "scattered <= 2 + contiguous", "scattered <= 1 + contiguous"


class LinesBetweenAreAskedFor(Edit):
    rule = "lowering.fetch.before+3"
    description = "all lines from the first element of a vector to the last are asked for"
    first = "test_lines_between_what_is_stored_are_not_asked_for"
    file = "impl/render/accesses.py"
    old = "within = [step * each for each in range(0, count - 1, max(line // max(step, 1), 1))]"
    new = "within = [*range(0, step * (count - 1), line)]"
