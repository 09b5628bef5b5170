"""Mistakes in the steps of a schedule: the order, variables, and places in memory."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class TakesTheGivenOrder(Edit):
    rule = "linear.order.legal+2"
    description = "the CALLs stay in the order in which they stand in the graph"
    file = "impl/linear.py"
    old = "    spans.sort(key=lambda each: each[0])\n"
    new = ""


class AllPlansAreOne(Edit):
    rule = "linear.order.legal+2"
    description = "kernels of several plans stand in the order that each has in its own"
    first = "test_of_several_plans_the_first_runs_first"
    file = "impl/linear.py"
    old, new = "(made, place[item.number])", "(0, place[item.number])"


class OthersRunInBetween(Edit):
    rule = "linear.order.legal+2"
    description = "a LINEAR that is called comes before what has to run between its kernels"
    first = "test_a_linear_between_whose_kernels_others_run_is_refused"
    file = "impl/linear.py"
    old, new = "if one[1] >= other[0] and one != other:", "if one[1] < one[0]:"


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


class PlacesWhatIsKept(Edit):
    rule = "linear.memory.kept+3"
    description = "what the caller wants to keep is placed in the arena"
    first = "test_kept_buffers_get_memory_of_their_own"
    file = "impl/linear.py"
    old, new = "place_temporaries(own_arena=True, keep=keep)", "place_temporaries(own_arena=True)"


class PlacesInAnyOrder(Edit):
    rule = "linear.memory.kept+3"
    description = "temporaries get the places of the plan, also where its kernels run otherwise"
    first = "test_places_are_right_for_a_part_of_the_order_alone"
    file = "impl/linear.py"
    old, new = "if mine == once * (len(mine) // len(once)):", "if mine:"


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
