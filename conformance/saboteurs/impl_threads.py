"""Mistakes in how threads share kernels, and in how memory is kept, made inside `impl`."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class NobodyWaits(ImplPatch):
    rule = "lowering.phase.order"
    description = "no stage is thought to need what another one stores"
    target = "impl.lowering.phases:must_wait"

    def replacement(self, original: Function) -> Function:
        return lambda reads, writes, loaded, stored: False


class PartsForOneMore(ImplPatch):
    rule = "dialects.thread.parts+2"
    description = "a loop is cut for one thread more than there are"
    target = "impl.dialects.c:C.share"

    def replacement(self, original: Function) -> Function:
        def share(dialect: Any, name: str, extent: str, threads: int, *how: bool) -> Any:
            return original(dialect, name, extent, threads + 1, *how)
        return share


class AnyLoopIsShared(ImplPatch):
    rule = "steps.threads.refused+2"
    description = "threads share loops of which one part needs another"
    first = "test_random_kernels_store_the_same_with_threads"
    target = "impl.steps.threads:not_shared"

    def replacement(self, original: Function) -> Function:
        return lambda known, loop: ""


class SharesWhatIsShort(Edit):
    rule = "choosing.threads.shares+2"
    description = "every kernel is shared by all threads, however short it is"
    first = "test_small_kernels_are_left_to_one_thread"
    file = "impl/choosing/threads.py"
    old, new = "return min(limits.threads, nanoseconds // SHARE)", "return limits.threads"


class PartsForThreads(Edit):
    rule = "choosing.threads.sum"
    description = "a sum over everything is cut into as many parts as there are threads"
    file = "impl/choosing/threads.py"
    old, new = "_extent(loop) // _LEAST_PART, _MOST_PARTS)", "limits.threads)"


class OnePartAThread(ImplPatch):
    rule = "choosing.threads.shares+2"
    description = "each thread has one part, however long that takes"
    first = "test_long_kernels_have_several_parts_for_each_thread"
    target = "impl.choosing.threads:parts_for"

    def replacement(self, original: Function) -> Function:
        return lambda known, nanoseconds, threads, limits: threads


class AnyReductionIsCut(ImplPatch):
    rule = "steps.threads.refused+2"
    description = "a reduction is cut although it reads what a stage stores"
    first = "test_a_reduction_that_reads_what_is_stored_is_not_cut"
    target = "impl.steps.threads:not_apart"

    def replacement(self, original: Function) -> Function:
        return lambda known, loop: ""


class LargeStagesOnTheStack(ImplPatch):
    rule = "dialects.local.large+2"
    description = "stage buffers stand on the stack, however large they are"
    target = "impl.dialects.c:C.own_scratch"

    def replacement(self, original: Function) -> Function:
        return lambda dialect, total: 0


class CompilersWaitForTheLast(ImplPatch):
    rule = "cpu.compile.shared+2"
    description = "no compiler starts before all kernels are printed"
    first = "test_compilers_run_while_the_last_kernel_is_printed"
    target = "impl.cpu.objects:_length"

    def replacement(self, original: Function) -> Function:
        return lambda pairs: 0


class ShortUnitsAllTheWay(Edit):
    rule = "cpu.compile.shared+2"
    description = "every unit is as short as the first"
    first = "test_units_are_longer_where_all_processors_have_a_compiler"
    file = "impl/cpu/objects.py"
    old, new = "later = _WORTH_A_LATER if", "later = 1 if"


class KeysWithoutThreads(ImplPatch):
    rule = "cpu.threads.count"
    description = "plans for another number of threads are used"
    target = "impl.cpu:CPU.plan_key"

    def replacement(self, original: Function) -> Function:
        return lambda device: (device.kind,)


class KeepsMoreThanThereIs(Edit):
    rule = "cpu.memory.size+2"
    description = "as much is kept in a small control group as on a large machine"
    first = "test_less_is_kept_where_there_is_little"
    file = "impl/cpu/memory.py"
    old, new = "min(_LEAST_KEPT, memory // 4 or _LEAST_KEPT)", "_LEAST_KEPT"


class SizesOfPowersOfTwo(ImplPatch):
    rule = "cpu.memory.size+2"
    description = "a block may be twice as large as asked for"
    first = "test_a_block_is_little_larger_than_asked"
    target = "impl.device.pool:rounded"

    def replacement(self, original: Function) -> Function:
        return lambda nbytes, alignment: 1 << (max(nbytes, alignment) - 1).bit_length()


class PoolWithoutBound(ImplPatch):
    rule = "cpu.memory.size+2"
    description = "every block that is freed is kept for ever"
    first = "test_blocks_of_a_pool"
    target = "impl.device.pool:Pool._sort"

    def replacement(self, original: Function) -> Function:
        def sort(pool: Any) -> list[Any]:
            limit, pool.limit = pool.limit, 1 << 60
            beyond: list[Any] = original(pool)
            pool.limit = limit
            return beyond
        return sort


class OneRefusalLosesAll(ImplPatch):
    rule = "cpu.compile.failure"
    description = "what was compiled beside a refused kernel is thrown away"
    first = "test_what_stood_beside_a_refused_kernel_is_kept"
    target = "impl.cpu.objects:Build._finish"

    def replacement(self, original: Function) -> Function:
        def finish(build: Any) -> Any:
            for _, made in build.started:
                made.result()
            return original(build)
        return finish
