"""Mistakes in transforms: variables, examples, copies, and what functions may not do."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class ArgumentsAreTheirValues(Edit):
    rule = "transforms.derivative.argument+2"
    description = "a derivative is with respect to all that has the value of the argument"
    file = "impl/transforms/tracing.py"
    old = "made = UOp(Ops.RESHAPE, node.dtype, (node,), node.shape, tag)"
    new = "made = node"


class TracesLeaveWhatTheyAssign(Edit):
    rule = "transforms.trace.assigned+4"
    description = "a tensor from outside keeps what a traced function has assigned to it"
    file = "impl/transforms/tracing.py"
    old, new = "                        holder.uop = node\n", "                        pass\n"


class TracesLeaveGradients(Edit):
    rule = "transforms.trace.assigned+4"
    description = "a traced function leaves the gradient of one of many times at a tensor outside"
    first = "test_a_gradient_is_left_at_nothing_outside"
    file = "impl/transforms/tracing.py"
    old, new = "if holder.grad is not gradient and", "if False and"


class TracesAssignUnseen(Edit):
    rule = "transforms.trace.assigned+4"
    description = "a traced function assigns to a tensor from outside, and nobody says so"
    file = "impl/transforms/tracing.py"
    old, new = "    if not changed and not left:\n", "    if True:\n"


class TracesTakeOthersForTheirs(Edit):
    rule = "transforms.trace.assigned+4"
    description = "what another thread assigns meanwhile is taken back, and the function refused"
    first = "test_what_another_thread_assigns_is_none_of_the_functions"
    file = "impl/transforms/tracing.py"
    old, new = "    with lock.turn() as free:  # what", "    if free := True:  # what"


class WhatWasReadIsAResult(Edit):
    rule = "transforms.values.returned"
    description = "a number that was made of a read value is a result without a derivative"
    file = "impl/transforms/reverse.py"
    old, new = "if found and any(reached", "if not found and any(reached"


class PartsAreReadUnseen(Edit):
    rule = "transforms.values.returned"
    description = "nobody notes that a part of an argument was read"
    file = "impl/tensor/base.py"
    old, new = "            kept.append(self.uop)\n", "            pass\n"


class GradientsChangePlaces(Edit):
    rule = "transforms.derivative.value"
    description = "the gradients of several arguments change places"
    file = "impl/transforms/reverse.py"
    old = "for target, part in zip(targets, parts, strict=True)]"
    new = "for target, part in zip(targets, parts[::-1], strict=True)]"


class DerivativesObeyTheBlockOutside(Edit):
    rule = "transforms.derivative.mode"
    description = "under `no_grad` a derivative is zero"
    file = "impl/transforms/reverse.py"
    old, new = "with looked_at() as self.kept, GradientMode.on():", "with looked_at() as self.kept:"


class LooksAreForgotten(Edit):
    rule = "transforms.values.looked"
    description = "what a function realizes is a leaf for its derivative"
    file = "impl/tensor/base.py"
    old, new = "always or mode.keeping or needs_gradient", "always or needs_gradient"


class AllThreadsAreTraced(Edit):
    rule = "transforms.values.looked"
    description = "what any thread realizes is kept by a derivative that is taken meanwhile"
    file = "impl/tensor/parameters.py"
    first = "test_what_another_thread_realizes_is_none_of_the_functions"
    old = "    mode.keeping += kept,\n"
    new = "    _Mode.keeping = mode.keeping = (*mode.keeping, kept)\n"


class FlipsTheExamples(Edit):
    rule = "transforms.batch.loop"
    description = "an axis that is turned is the one before it, once there are many examples"
    file = "impl/transforms/batching.py"
    old = """elif op is Ops.FLIP:
            arg = tuple(axis + 1 for axis in arg)"""
    new = """elif op is Ops.FLIP:
            arg = tuple(axis for axis in arg)"""


class TablesAreMixed(Edit):
    rule = "transforms.batch.loop"
    description = "each example looks its rows up in the table of the first"
    file = "impl/transforms/batching.py"
    old, new = "return where(inside, nodes.add(index, first), UOp.const(wide, -1))", \
        "return where(inside, index, UOp.const(wide, -1))"


class AllDrawTheSame(Edit):
    rule = "transforms.batch.random"
    description = "all examples draw the same numbers"
    file = "impl/transforms/batching.py"
    old, new = "nodes.scale(along, self.draws[1])", "nodes.scale(along, 0)"


class TheCounterStandsStill(Edit):
    rule = "transforms.batch.random"
    description = "the numbers of all examples but one are drawn again"
    file = "impl/transforms/batching.py"
    old = "generator.reserve(drawn * (int(count) - 1) if count else 0)"
    new = "generator.reserve(0)"


class ValuesAreWhatIsThere(Edit):
    rule = "transforms.trace.values"
    description = "a placeholder is memory, with anything in it"
    file = "impl/transforms/tracing.py"
    old = "Placeholder(tensor.device, tensor.dtype, shape, operation)"
    new = "Placeholder.__mro__[1](tensor.device, tensor.dtype, 64)"


class IntegersHaveZeros(Edit):
    rule = "transforms.arguments.refused+2"
    description = "integers are differentiated for, and never reached"
    file = "impl/transforms/reverse.py"
    old = 'if tensor.dtype.kind != "f":  # r[impl transforms.arguments.refused+2]'
    new = 'if tensor.dtype.kind == "b":  # r[impl transforms.arguments.refused+2]'


class CopiesAreTheOriginal(Edit):
    rule = "transforms.checkpoint.again"
    description = "the copy of a checkpointed function is the function's own graph"
    file = "impl/transforms/custom.py"
    old = 'tag = "again", next(_copies)'
    new = 'return {**dict(zip(self.inside, substituted(list(self.inside), self.back))), ' \
        '**{e: self.back.get(e, e) for e in self.inputs}}'


class KeptValuesForgetWhatIsSaid(Edit):
    rule = "transforms.checkpoint.again"
    description = "a value that is kept has a gradient for its operands, and not the one it says"
    file = "impl/transforms/custom.py"
    old, new = "for s in sources_of(again) if", "for s in again.src if"


class KeepsNothing(Edit):
    rule = "transforms.checkpoint.again"
    description = "what a policy keeps is computed again"
    file = "impl/transforms/custom.py"
    old, new = "if self.policy(node):", "if self.policy is None:"


class OperationsSayIt(Edit):
    rule = "transforms.custom.said+2"
    description = "a gradient of one's own is that of the operations, once there are many examples"
    file = "impl/transforms/batching.py"
    old = "return with_gradient(self.whole(node.src[0]), Custom(inputs, pull))"
    new = "return self.whole(node.src[0])"


class CheckpointsForgetWhatIsSaid(Edit):
    rule = "transforms.custom.said+2"
    description = "the copy in a checkpoint keeps the gradient that is said of the original"
    file = "impl/transforms/custom.py"
    old, new = "renamed_custom(node.tag, copies, copies))", "node.tag)"
    first = "test_checkpoints_keep_what_is_said_of_gradients"


class HalvesTheWrongWay(Edit):
    rule = "transforms.checkpoint.within"
    description = "with a limit of bytes all calls are computed again"
    file = "impl/transforms/custom.py"
    old = "            known[key] = most\n        return tried(most)[0]"
    new = "            known[key] = most = tried(0)[1]\n        return tried(most)[0]"
