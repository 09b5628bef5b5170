"""Mistakes in transforms: variables, examples, copies, and what functions may not do."""
from __future__ import annotations

from conformance.saboteurs.edits import Edit


class ArgumentsAreTheirValues(Edit):
    rule = "transforms.derivative.argument+2"
    description = "a derivative is with respect to all that has the value of the argument"
    file = "impl/transforms/tracing.py"
    old = "made = UOp(Ops.RESHAPE, node.dtype, (node,), node.shape, tag)"
    new = "made = node"


class GradientsChangePlaces(Edit):
    rule = "transforms.derivative.value"
    description = "the gradients of several arguments change places"
    file = "impl/transforms/reverse.py"
    old = "for target, part in zip(targets, parts, strict=True)]"
    new = "for target, part in zip(targets, parts[::-1], strict=True)]"


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
