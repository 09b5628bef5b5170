"""Mistakes in running a schedule and in telling who may know of it, made inside `impl.realize`."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest import mock

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class ForgetsAllOnAnotherDevice(Edit):
    rule = "realize.value.once"
    description = "when the default device changes, all that was computed is forgotten"
    file = "impl/realize/planning.py"
    old, new = "forget_realized(is_free)", "forget_realized(lambda node: node.op is not Ops.BUFFER)"


class StaysOnTheDefaultDevice(Edit):
    rule = "realize.device.named"
    description = "what was computed on another default device is read from there"
    file = "impl/realize/planning.py"
    old, new = "forget_realized(is_free)", "forget_realized(lambda node: False)"


class LaunchesInTheOrderOfTheKey(Edit):
    rule = "realize.direct.same"
    description = "a kernel that is launched at once gets its buffers in the order of the key"
    file = "impl/realize/prepared.py"
    old = "slots.get(storage, -1) for storage in kernel.arguments"
    new = "place - 1 for place, _ in enumerate(kernel.arguments)"


class LaunchesUncounted(Edit):
    rule = "realize.direct.same"
    description = "a kernel that is launched at once is not counted"
    file = "impl/realize/prepared.py"
    old = "self.call([*map(memories.__getitem__, self.places)])"
    new = "self.call.__self__.run([*map(memories.__getitem__, self.places)], ())"


class LaunchesWhatIsWatched(Edit):
    rule = "realize.direct.same"
    description = "kernels are launched at once where a capture watches"
    file = "impl/realize/values.py"
    old, new = "session.scheduled or session.capturing.observers or", "session.scheduled or"


class LaunchesWhatIsMeasured(Edit):
    rule = "realize.direct.same"
    description = "kernels are launched at once where somebody measures"
    first = "test_nothing_is_launched_at_once_where_somebody_measures"
    file = "impl/realize/values.py"
    old, new = "or session.spans is not None", ""


class LaunchesWhereTheValueLies(Edit):
    rule = "realize.direct.same"
    description = "a kernel is launched at once on the default device, whatever its holder names"
    file = "impl/realize/values.py"
    old, new = "or holder.device != default or", "or"


class SizeOfTheLargest(Edit):
    rule = "realize.size.actual+2"
    description = "a result has the size that it has for the greatest values of its variables"
    file = "impl/realize/run.py"
    old = "symbolic.actual(size, bound) if bound else size)"
    new = "symbolic.plain(size))"


class ShapesInNumbers(Edit):
    rule = "realize.size.actual+2"
    description = "a realized value has the numbers of this run in its shape"
    file = "impl/realize/run.py"
    old = "buffer.leaf(root.shape or ())"
    new = "buffer.leaf(tuple(map(int, root.shape or ())))"


class OneVersionForEachRun(Edit):
    rule = "realize.commit.version+2"
    description = "a run gives a buffer one version, however often it has written there"
    file = "impl/realize/run.py"
    old, new = "advance(buffers[number], gained)", "advance(buffers[number], min(gained, 1))"


class RescuedKeepTheirExpression(Edit):
    rule = "realize.rescue.held+2"
    description = "a tensor whose value was computed for it keeps its expression"
    file = "impl/realize/run.py"
    old, new = "if run.effects.rescued:", "if run.effects.rescued > 1:"


class RescuesTheFirst(Edit):
    rule = "realize.rescue.held+2"
    description = "of those that wait with other values, only the first is computed before"
    file = "impl/realize/planning.py"
    old, new = "for waiting in effects.roots[len(roots):]:", \
        "for waiting in effects.roots[len(roots):len(roots) + 1]:"


class CommitsBeforeItRuns(Edit):
    rule = "realize.failure.left+2"
    description = "versions advance before the programs are compiled"
    first = "test_a_compiler_that_fails_changes_nothing"
    file = "impl/realize/launching.py"
    old = "    turns = _InTurn(run, mode)\n"
    new = "    run.commit(); turns = _InTurn(run, mode)\n"


class CombinationsAreCompiledOnTheWay(Edit):
    rule = "realize.failure.left+2"
    description = "kernels of collectives are compiled when the turn of these has come"
    first = "test_a_compiler_that_fails_at_a_collective_changes_nothing"
    file = "impl/realize/run.py"
    old = "elif kernel.transfer is not None and kernel.transfer.op is not None:"
    new = "elif False:"


class AllocatesOnTheWay(ImplPatch):
    rule = "realize.failure.left+2"
    description = "memory is allocated for a kernel when its turn has come"
    first = "test_too_little_memory_changes_nothing"
    target = "impl.realize.values:execute"

    def replacement(self, original: Function) -> Function:
        launching: Any = import_module("impl.realize.launching")
        commit = launching.commit

        def execute(run: Any, mode: Any) -> None:
            """Run a kernel at a time, as if it were a plan of its own."""
            plan = run.plan
            launching.commit = lambda run: None
            try:
                for number in plan.order:
                    run.plan, run.begun = replace(plan, order=[number]), 0
                    original(run, mode)
            finally:
                run.plan, launching.commit = plan, commit
            commit(run)
        return execute


class KernelsOfALinearFailInSilence(Edit):
    rule = "realize.failure.left+2"
    description = "what a kernel of a LINEAR has half written can be read"
    first = "test_every_way_to_run_kernels_says_the_same_of_one_that_fails"
    file = "impl/linear.py"
    old, new = "writes=[buffers[place] for place in info.writes]", "writes=[]"


class MarksTheLastKernel(Edit):
    rule = "realize.failure.left+2"
    description = "after an interruption only what the last kernel wrote is taken for lost"
    first = "test_a_run_that_is_interrupted"
    file = "impl/realize/run.py"
    old, new = "for kernel in self.plan.order[:self.begun]\n", \
        "for kernel in self.plan.order[:self.begun][-1:]\n"


class ScheduledKernelsFailInSilence(Edit):
    rule = "realize.failure.left+2"
    description = "of kernels that were scheduled only the one that failed leaves nothing to read"
    first = "test_a_scheduled_kernel_that_fails"
    file = "impl/realize/session.py"
    old = "left = [each for each in self.scheduled if not each.done]"
    new = "left = [item]"


class NestedRunsWriteInPlace(Edit):
    rule = "realize.nested.apart"
    description = "the handler of a signal overwrites what the run in whose middle it is reads"
    first = "test_a_handler_that_writes_what_is_read"
    file = "impl/realize/run.py"
    old, new = "if plan.written and is_nested():", "if False:"


class NestedRunsShareTheArena(Edit):
    rule = "realize.nested.apart"
    description = "the temporaries of a nested run lie on those of the outer one"
    first = "test_temporaries_of_a_handler_lie_elsewhere"
    file = "impl/realize/run.py"
    old = "                self._arenas[device] = arena\n"
    new = "                session.arenas[device] = arena\n"


class CapturesHoldWhatHandlersDo(Edit):
    rule = "realize.nested.apart"
    description = "what the handler of a signal does during a capture is done again by each replay"
    first = "test_a_capture_holds_nothing_of_a_handler"
    file = "impl/realize/nested.py"
    old, new = "    lock.disturbed = True\n    handler(number, frame)", "    handler(number, frame)"


class HandlersCapture(Edit):
    rule = "realize.nested.apart"
    description = "a function that a handler calls in the middle of its first call is captured"
    first = "test_a_handler_captures_nothing"
    file = "impl/realize/run.py"
    old, new = "            lock.disturbed = True  # a capture would not know the copies\n", ""


class NobodyIsAlone(Edit):
    rule = "realize.nested.refused"
    description = "a handler reads what a run has half overwritten"
    first = "test_a_handler_that_reads"
    file = "impl/realize/nested.py"
    old, new = "    lock.running.append((call, given))\n", ""


class TakesBackWhatAHandlerAssigned(Edit):
    rule = "realize.nested.later"
    description = "a replay gives a tensor its value, though a handler has assigned to it meanwhile"
    first = "test_a_handler_that_assigns"
    file = "impl/replay/settled.py"
    old = "            elif tensors[place].uop.arg is self.found[place]:"
    new = "            elif True:"


class LeavesBehindWhatAHandlerAssigned(Edit):
    rule = "realize.nested.later"
    description = "what a handler wrote down of a state in a replay's middle names an old value"
    first = "test_a_handler_that_assigns"
    file = "impl/replay/states.py"
    old = "            behind = any(node in leaves for node in nodes)\n"
    new = "            behind = False\n"


class HoldsThoughAHandlerAssigned(Edit):
    rule = "realize.nested.later"
    description = "a tensor holds what was computed, though a handler has assigned to it meanwhile"
    first = "test_a_handler_that_assigns"
    file = "impl/tensor/base.py"
    old = "            if self.uop is node:  # r[impl realize.nested.later]"
    new = "            if node:"


class ReadsAWindow(Edit):
    rule = "realize.read.fresh"
    description = "a reading is a window on the memory of the tensor"
    file = "impl/device/__init__.py"
    old, new = "return memory.array[offset:offset + nbytes].copy()", \
        "return memory.array[offset:offset + nbytes]"


class ReadsRowsForColumns(Edit):
    rule = "realize.part.direct"
    description = "a part with gaps is read as if it had none"
    first = "test_a_part_that_lies_in_one_piece_is_read_where_it_is"
    file = "impl/realize/values.py"
    old, new = "within = within and high - low == size", "within = within and high - low >= 1"


class ReadsPartsByKernels(Edit):
    rule = "realize.part.direct"
    description = "a part is computed before it is read"
    first = "test_a_part_that_lies_in_one_piece_is_read_where_it_is"
    file = "impl/realize/values.py"
    old, new = "if found is None or found[0].device", "if not found or found[1] or found[0].device"


class TakesAPromiseForAValue(Edit):
    rule = "realize.schedule.once"
    description = "a tensor that was scheduled is read before its kernels have run"
    first = "test_what_was_scheduled_before_runs_before"
    file = "impl/realize/values.py"
    old = "        if not session.scheduled:\n            return"
    new = "        if True:\n            return"


class RunsWhatWasRun(Edit):
    rule = "realize.schedule.once"
    description = "what the caller has run by hand is run again before a value is read"
    first = "test_an_item_runs_once"
    file = "impl/realize/session.py"
    old = "if not item.done:  # r[impl realize.schedule.once]"
    new = "if item.done or not item.done:"


class EachThreadForItself(ImplPatch):
    rule = "realize.thread.serial+2"
    description = "each thread has a lock of its own"
    first = "test_one_thread_at_a_time"

    @contextmanager
    def mistake(self) -> Iterator[None]:
        lock = import_module("impl.effects").lock
        with mock.patch.object(lock, "mutex", _LockForEach()):
            yield


class _LockForEach(threading.local):
    def __init__(self) -> None:
        own = threading.RLock()
        self.acquire, self.release = own.acquire, own.release

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
