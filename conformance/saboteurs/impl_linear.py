"""Mistakes in the steps of a schedule: the order, variables, and places in memory."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class TakesTheGivenOrder(Edit):
    rule = "linear.order.legal"
    description = "the CALLs stay in the order in which they stand in the graph"
    file = "impl/linear.py"
    old = "tuple(calls[i] for i in order))"
    new = "tuple(calls[i] for i in sorted(order)))"


class WritesDoNotWaitForReads(Edit):
    rule = "linear.order.legal"
    description = "memory may be written before the old version was read"
    file = "impl/linear.py"
    old, new = "number[buffers[place]], version - 1)", "number[buffers[place]], version - 9)"


class GivesTheKernelBack(Edit):
    rule = "linear.entry.nested+2"
    description = "a kernel is its own schedule"
    first = "test_a_kernel_is_not_lowered_again"
    file = "impl/linear.py"
    old = "return None\n    return create_schedule("
    new = "return function\n    return create_schedule("


class IntervalsTellNamesApart(Edit):
    rule = "linear.variables.one-value"
    description = "variables of one name and different intervals may have two values"
    file = "impl/caching/rows.py"
    old = "self.names.setdefault(variable.arg[0], value)"
    new = "self.names.setdefault(str(variable.arg), value)"


class InnerCallsRunBackwards(Edit):
    rule = "linear.entry.nested+2"
    description = "the CALLs of a LINEAR in a LINEAR run in reverse"
    first = "test_a_nested_linear_is_flattened"
    file = "impl/linear.py"
    old, new = "for call in node.src[::-1]]", "for call in node.src]"


class CallsHaveTheBuffersAround(Edit):
    rule = "linear.entry.nested+2"
    description = "a LINEAR that is called gets the buffers of the CALL around its own"
    file = "impl/linear.py"
    old = "stack.append((node.src[0], buffers))"
    new = "stack.append((node.src[0], given or buffers))"


class PlacesWhatTensorsHold(Edit):
    rule = "linear.memory.kept+2"
    description = "what a living tensor needs is placed in the arena"
    file = "impl/linear.py"
    old, new = "{*keep, *held, *others,", "{*keep, *others,"


class PlacesWhatIsFilledInPart(Edit):
    rule = "linear.memory.kept+2"
    description = "a buffer that a kernel fills in part counts as filled"
    file = "impl/linear.py"
    old, new = "math.prod(loops) == buffers[pointer.arg].size)", "math.prod(loops) > 0)"


class PlacesWhatOthersWaitFor(Edit):
    rule = "linear.memory.kept+2"
    description = "what a waiting kernel outside the schedule uses is placed in the arena"
    first = "test_what_the_rest_of_a_linear_needs_is_not_placed"
    file = "impl/linear.py"
    old, new = "{*keep, *held, *others,", "{*keep, *held,"


class TellsNobodyThatALinearWaits(Edit):
    rule = "linear.read.waits"
    description = "the kernels of a LINEAR wait, and who reads does not know it"
    first = "test_what_is_read_before_its_linear_runs"
    file = "impl/linear.py"
    old = "session.scheduled.extend(items[n] for n in run.plan.order)"
    new = "session.scheduled.extend([])"


class RunsALinearAgain(Edit):
    rule = "linear.read.waits"
    description = "the kernels that ran for a reader are run again as items of the LINEAR"
    first = "test_what_is_read_before_its_linear_runs"
    file = "impl/linear.py"
    old = "item = info.first.pop()  # r[impl linear.read.waits]"
    new = "return None"


class WaitsWithOtherBuffers(Edit):
    rule = "linear.read.waits"
    description = "a CALL of a LINEAR with other buffers takes the items of its own"
    first = "test_a_linear_that_waits_is_called_with_other_buffers"
    file = "impl/linear.py"
    old, new = "or info.first[0].bufs != buffers", "or info.first[0].bufs is None"
