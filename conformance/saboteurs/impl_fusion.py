"""Mistakes in what becomes one kernel, made inside `impl.fusion`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class JoinsTooEarly(ImplPatch):
    rule = "fusion.group.acyclic"
    description = "a stage may join a kernel that comes before one that the stage depends on"
    target = "impl.fusion.groups:_Grouper._candidates"

    def replacement(self, original: Function) -> Function:
        def candidates(grouper: Any, stage: Any, earliest: int) -> Any:
            """As without `earliest`: those it depends on, and all that read the same inputs."""
            written = grouper._storage(stage.write)
            read = [grouper._storage(access) for access in stage.reads]
            pasts = [grouper.past.written[written], grouper.past.read[written],
                     *(grouper.past.written[storage] for storage in read)]
            numbers = [number for past in pasts for number in past.by_kernel]
            numbers += [grouper.past.last_reader(storage) for storage in read]
            found = [grouper.groups[number] for number in dict.fromkeys(numbers) if number >= 0]
            return [g for g in found if g.device == grouper._device(stage)
                    and not g.members[0].stage.task and len(g.members) < grouper.limits.stages]
        return candidates


class ComputesAgainFromLaterVersions(ImplPatch):
    rule = "fusion.late.same"
    description = "what is computed again may read what has been overwritten meanwhile"
    first = "test_what_is_computed_again_has_its_value"
    target = "impl.fusion.late:_Keeper._there"

    def replacement(self, original: Function) -> Function:
        def there(keeper: Any, source: int, value: int, late: int) -> bool:
            kept, keeper.replaced = keeper.replaced, {}
            try:
                return bool(original(keeper, source, value, late))
            finally:
                keeper.replaced = kept
        return there


class ComputesReductionsAgain(ImplPatch):
    rule = "fusion.late.chosen"
    description = "any price is paid for computing a value again"
    first = "test_only_what_is_cheap_is_computed_again"
    target = "impl.fusion.late:_Keeper._cost"

    def replacement(self, original: Function) -> Function:
        return lambda keeper, value: 1


class NumbersAreStoredAlone(Edit):
    rule = "fusion.stages.together"
    description = "each stage that reads nothing has a kernel of its own"
    first = "test_what_reads_nothing_is_stored_together"
    file = "impl/fusion/groups.py"
    old, new = "if alike is not None and _reads_nothing(alike, stage):", "if False:"


class ReducesForEachUser(Edit):
    rule = "fusion.cut.once"
    description = "a reduction with two users is computed in both of them"
    file = "impl/fusion/cuts.py"
    old, new = 'if len(places) > 1:\n            return f"reduce', \
        'if len(places) > 2:\n            return f"reduce'


class ReducesForEachWindow(Edit):
    rule = "fusion.cut.once"
    description = "a reduction with one user that repeats its value is computed inside it"
    file = "impl/fusion/cuts.py"
    old, new = 'if repeated:\n            return "reduce: its', \
        'if repeated and not places:\n            return "reduce: its'


class StoresWhatIsFar(Edit):
    rule = "fusion.cut.again+2"
    description = "a dear value is stored however long it stays in memory"
    first = "test_what_no_cache_keeps_is_computed_again"
    file = "impl/fusion/cuts.py"
    old, new = "size > max(self.limits.cached_bytes", "0 > max(self.limits.cached_bytes"


class BitsCostSomething(Edit):
    rule = "fusion.cut.again+2"
    description = "reading bits as other ones costs as much as an addition"
    first = "test_wider_whole_numbers_and_other_bits_cost_nothing"
    file = "impl/fusion/cuts.py"
    old, new = "op in _COMPUTED and not _is_free(node)", "op in _COMPUTED"


class CountsUsersOfParts(Edit):
    rule = "fusion.cut.again+2"
    description = "a dear value with several users is stored, though each needs another part of it"
    first = "test_parts_are_not_computed_again"
    file = "impl/fusion/cuts.py"
    old, new = "again = min(sum([place.part for place in places]) - 1, 1)", "again = 1"


class ForgetsThatKernelsKeepRows(Edit):
    rule = "fusion.cut.again+2"
    description = "a dear value is computed again also where a kernel would keep its rows"
    first = "test_what_no_cache_keeps_is_computed_again"
    file = "impl/fusion/cuts.py"
    old, new = "self.limits.local_bytes * max(rows)", "max(rows)"


class StoresOnlyWhatIsDear(Edit):
    rule = "fusion.cut.own"
    description = "`contiguous` of a cheap value is taken for a hint and not followed"
    first = "test_contiguous_is_storage_of_its_own"
    file = "impl/fusion/cuts.py"
    old, new = "if node.op is Ops.CONTIGUOUS:\n", \
        "if node.op is Ops.CONTIGUOUS and self.cost[node.src[0]] > self.limits.recompute:\n"


class JoinsTheScan(Edit):
    rule = "fusion.cut.own"
    description = "what comes after a scan may join its kernel"
    first = "test_what_runs_in_order_is_alone"
    file = "impl/fusion/groups.py"
    old, new = "g.device == device and not g.members[0].stage.alone", "g.device == device"


class ComputesWhileCopying(Edit):
    rule = "fusion.cut.device+2"
    description = "the step that copies to another device computes the value on its way"
    file = "impl/fusion/cuts.py"
    old, new = 'self.forced.setdefault(node.src[0], "device: read by a copy to another device")', \
        "self._need(node.src[0], places)"


class LooksAtOneExchange(Edit):
    rule = "fusion.group.legal"
    description = "the common loops of two stages are those of the first value that they exchange"
    first = "test_stages_exchange_within_one_iteration"
    file = "impl/fusion/groups.py"
    old, new = "for (member, theirs), mine in conflicts:\n            found", \
        "for (member, theirs), mine in conflicts[:1]:\n            found"


class WritesPartsTwice(Edit):
    rule = "fusion.group.legal"
    description = "a kernel may write a storage and then a part of it"
    first = "test_stages_exchange_within_one_iteration"
    file = "impl/fusion/groups.py"
    old, new = "if mine is stage.write:\n", "if mine is stage.write and stage.whole:\n"


class HandsOnParts(Edit):
    rule = "fusion.group.legal"
    description = "a stage may read what another stage of its kernel has written in part"
    first = "test_writes_of_parts_are_kernels_of_their_own"
    file = "impl/fusion/groups.py"
    old, new = "if not member.stage.whole:", \
        "if not member.stage.whole and mine.index == theirs.index:"


class ForgetsTheOutput(Edit):
    rule = "fusion.limit.device"
    description = "the limit of arguments is applied to what a kernel reads, not to what it writes"
    first = "test_no_kernel_has_too_many_arguments"
    file = "impl/fusion/limits.py"
    old, new = "if arguments > self.arguments:", "if arguments - 1 > self.arguments:"


class AlwaysExpectsACrowd(Edit):
    rule = "fusion.limit.least+2"
    description = "values are stored as if each value with several users were an input"
    file = "impl/fusion/cuts.py"
    old, new = "if cutter.is_crowded():", "if nodes:"


class StoresWhatIsExpanded(Edit):
    rule = "fusion.limit.least+2"
    description = "too many inputs meet in an outer product: the product is stored"
    file = "impl/fusion/cuts.py"
    old, new = "return parts if sum(map(_elements, parts)) < _elements(node) else []", "return []"


class ProductsHandOnElements(Edit):
    rule = "fusion.split.product"
    description = "a product stays with the stages that need its elements"
    file = "impl/fusion/split.py"
    old, new = "(apart[number] or apart[number - 1])", "apart[number]"


class EverySumIsAProduct(Edit):
    rule = "fusion.split.product"
    description = "a sum over one matrix has a kernel of its own too"
    file = "impl/fusion/products.py"
    old = "return any(wide & one - two and wide & two - one for one in used for two in used)"
    new = "return bool(wide and used)"


class ConvolutionsStayAmongOthers(Edit):
    rule = "fusion.stages.product"
    description = "a product joins stages whose loops leave it no tile"
    first = "test_a_convolution_is_not_joined_where_it_has_no_tile"
    file = "impl/fusion/groups.py"
    old, new = "and not has_tile(each, prefix)\n", "and not prefix\n"


class PlacesAreRows(Edit):
    rule = "fusion.stages.product"
    description = "places that lie side by side, and share weights, are rows of a kernel's product"
    first = "test_a_convolution_is_not_joined_where_it_has_no_tile"
    file = "impl/fusion/products.py"
    old, new = "return bool(first and second) and not turned", "return bool(first and second)"


class AxesOfOneAreInnermost(Edit):
    rule = "fusion.stages.product"
    description = "elements lie side by side along the last axis, also where that has one element"
    first = "test_elements_lie_side_by_side_along_the_last_axis_that_has_several"
    file = "impl/fusion/products.py"
    old, new = "if index.op is not Ops.CONST), ())", "if index.op), ())"


class SmallStagesTurnLargeOnes(Edit):
    rule = "fusion.stages.strips"
    description = "a small stage joins a kernel that then computes a large one in narrow strips"
    first = "test_a_small_stage_does_not_turn_a_large_one"
    file = "impl/fusion/groups.py"
    old, new = "if group.work >= _MUCH_MORE * iterations and", "if group.work < 0 and"


class LargeStagesAreTurned(Edit):
    rule = "fusion.stages.strips"
    description = "a large stage joins the kernel of a small one, and is computed in narrow strips"
    first = "test_a_small_stage_does_not_turn_a_large_one"
    file = "impl/fusion/groups.py"
    old, new = "elif iterations >= _MUCH_MORE * group.work:", "elif iterations < 0:"


class StagesOfRowsAreApart(Edit):
    rule = "fusion.stages.strips"
    description = "no small stage joins a large one, not even for whole rows"
    first = "test_what_is_small_or_has_rows_of_its_own_is_joined"
    file = "impl/fusion/products.py"
    old, new = "return bool(own) and not any(loop in inner for loop in own) and any(", \
        "return bool(own) and any(True for loop in own) or any("


class WindowsStayAmongOthers(Edit):
    rule = "fusion.stages.product"
    description = "a sum over windows is no product, and joins any stages"
    first = "test_a_convolution_is_not_joined_where_it_has_no_tile"
    file = "impl/fusion/products.py"
    old = "if form.iterations < max(limits.small_kernel, _LEAST_WINDOW * results):"
    new = "if form.iterations:"


class CountsTheLastBuffer(Edit):
    rule = "fusion.limit.device"
    description = "each stage has the local memory of the device for itself"
    first = "test_local_memory_is_not_exceeded"
    file = "impl/fusion/groups.py"
    old, new = "return local + group.local_bytes, ", "return local, "


class ComputesLittleAgain(Edit):
    rule = "fusion.late.same"
    description = "REMATERIALIZE=0 lowers the price that may be paid, and does not forbid it"
    first = "test_nothing_is_computed_again_where_that_is_not_wanted"
    file = "impl/realize/environment.py"
    old, new = "limits = replace(limits, late=0)", "limits = replace(limits, late=limits.recompute)"


class TwinsComeTooLate(Edit):
    rule = "fusion.switch.meaning"
    description = "what is computed again comes after the first stage that reads it"
    first = "test_what_is_computed_again_comes_before_its_readers"
    file = "impl/fusion/late.py"
    old, new = "return min(readers) if readers else", "return min(readers) + 1 if readers else"


class FusesWhatIsCheap(Edit):
    rule = "fusion.switch.meaning"
    description = "with FUSE=0 what is cheap is computed inside its user"
    first = "test_fused_and_unfused_agree"
    file = "impl/fusion/cuts.py"
    old = "if not self.fuse:"
    new = "if not self.fuse and self.cost[node] > self.limits.repeat:"


class KeepsTheNames(Edit):
    rule = "fusion.kernel.canonical+2"
    description = "a kernel has the names that the user gave to variables"
    file = "impl/fusion/assemble.py"
    old, new = 'name = f"variable{len(self.variables)}"', "name = node.arg[0]"


class MarksAreOperations(Edit):
    rule = "fusion.cut.same"
    description = "a mark past which no gradient flows costs as much as an addition"
    first = "test_a_mark_of_no_gradient_changes_nothing"
    file = "impl/fusion/cuts.py"
    old = "total = DEAR.get(op, 1) if op in _COMPUTED and"
    new = "total = DEAR.get(op, 1) if op in ELEMENTWISE and"


class MarksMakeStagesLong(Edit):
    rule = "fusion.cut.same"
    description = "a mark past which no gradient flows counts as an operation of its stage"
    first = "test_marks_count_for_no_limit"
    file = "impl/fusion/cuts.py"
    old, new = "for place in places if node.op is not Ops.DETACH else ():", "for place in places:"


class MarksAreStored(Edit):
    rule = "fusion.cut.same"
    description = "a value and its mark, both asked for, are stored twice"
    first = "test_a_mark_of_no_gradient_changes_nothing"
    file = "impl/fusion/cuts.py"
    old = "same = node.op is Ops.RESHAPE or node.op is Ops.DETACH and leaf_of(node.src[0]) is None"
    new = "same = node.op is Ops.RESHAPE"


class WhatFeedsAStageIsApart(Edit):
    rule = "fusion.stages.feeding"
    description = "small stages that are made for one large stage go through memory"
    first = "test_what_is_made_for_one_stage_is_in_its_kernel"
    file = "impl/fusion/groups.py"
    old, new = "if feeding is not None:", "if False:"


class WhatIsLargeFeedsAStage(Edit):
    rule = "fusion.stages.feeding"
    description = "stages as large as their reader join each other for its sake"
    first = "test_what_is_as_large_as_its_reader_is_apart"
    file = "impl/fusion/groups.py"
    old = "and reader.form.iterations >= _MUCH_MORE * stage.form.iterations:"
    new = "and reader.form.iterations >= 0:"
