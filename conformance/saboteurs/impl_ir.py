"""Mistakes in the node: identity, walks, and what a verifier lets through."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any, ClassVar
from unittest import mock

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch


class RacingThreadsKeepTheirNodes(Edit):
    rule = "ir.identity.one"
    description = "two threads that make a node at the same time get one each"
    first = "test_threads_get_one_node"
    file = "impl/ir.py"
    old = "return node if known is reference else _first(key, node, reference)"
    new = "return node"


class SuccessorsForgotten(Edit):
    rule = "ir.identity.one"
    description = "a node that dies takes the one out of the table that was made in its place"
    first = "test_threads_get_one_node"
    file = "impl/ir.py"
    old, new = "_remove_dead(_interned, reference.key)", "_interned.pop(reference.key, None)"


class EachLeafIsAnother(Edit):
    rule = "ir.identity.one"
    description = "what is in memory has another node each time that it is named"
    first = "test_leaves_of_a_buffer"
    file = "impl/ir.py"
    old, new = "    if buffer.leaves:\n", "    if not buffer:\n"


class LeavesLoseTheirTag(Edit):
    rule = "ir.identity.one"
    description = "a leaf with a tag is the leaf without it"
    first = "test_leaves_of_a_buffer"
    file = "impl/ir.py"
    old, new = "if op is _BUFFER and tag is None:", "if op is _BUFFER:"


class LeavesOfVariablesAreThoseOfNumbers(Edit):
    rule = "ir.identity.one"
    description = "a leaf whose size is a bound variable is that whose size is its value"
    first = "test_leaves_of_a_buffer"
    file = "impl/ir.py"
    old, new = " and hash(node.arg) == hash(arg)", ""


class PartsCanBeSet(ImplPatch):
    rule = "ir.node.immutable"
    description = "a part of a node can be set, whoever else has the node"
    target = "impl.ir:UOp.__setattr__"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return object.__setattr__


class MinusZeroIsZero(Edit):
    rule = "ir.identity.one"
    description = "0.0 and -0.0 are one node, as they are equal in Python"
    first = "test_numbers_that_look_alike"
    file = "impl/ir.py"
    old, new = 'else math.copysign(1.0, number)\n    key', 'else ""\n    key'


class TaggedNumbersLoseTheirSign(Edit):
    rule = "ir.identity.one"
    description = "a number that is made by `replace` is looked up as Python compares numbers"
    first = "test_numbers_that_are_made_from_others"
    file = "impl/ir.py"
    old = 'if op is _CONST and dtype.kind == "f" and len(key) == 5:'
    new = 'if op is _CONST and dtype.kind == "f" and len(key) == 4:'


class PickledNumbersLoseTheirTag(Edit):
    rule = "ir.identity.one"
    description = "a number is read back without its tag"
    first = "test_pickle_gives_the_same_object"
    file = "impl/ir.py"
    old = "nodes.append(UOp(Ops(op), dtype, tuple(nodes[i] for i in sources), arg, tag))"
    new = ("nodes.append(UOp.const(dtype, arg) if op == Ops.CONST else "
           "UOp(Ops(op), dtype, tuple(nodes[i] for i in sources), arg, tag))")


class UsersBeforeSources(Edit):
    rule = "ir.walk.whole"
    description = "a node is listed before its sources"
    first = "test_sources_come_first_and_once"
    file = "impl/ir.py"
    old = "stack += (node, None, *node.src[::-1])"
    new = "stack += (*node.src[::-1], node, None)"


class SubstitutesByRecursion(ImplPatch):
    rule = "ir.walk.whole"
    description = "nodes are replaced by a function that calls itself for the sources"
    first = "test_a_chain_of_100_000"
    target = "impl.ir:UOp.substitute"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def substitute(node: Any, replacements: dict[Any, Any]) -> Any:
            if node in replacements:
                return replacements[node]
            sources = tuple([substitute(source, replacements) for source in node.src])
            return node if sources == node.src else node.replace(src=sources)
        return substitute


class ShapesOfOneRank(Edit):
    rule = "ir.shape.tensor"
    description = "shapes of as many axes are taken for the same"
    first = "test_shapes_of_elementwise_nodes"
    file = "impl/ir.py"
    old = "elif shape is not other and shape != other:"
    new = "elif len(shape) != len(other):"


class AnyStageIsTensor(Edit):
    rule = "ir.stage.operations+2"
    description = "a tensor graph may contain loops and pointers"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "lambda node: node.op in TENSOR_OPS,"
    new = "lambda node: node.op in TENSOR_OPS | KERNEL_OPS,"


class KernelsDetach(Edit):
    rule = "ir.stage.operations+2"
    description = "every elementwise operation is let through, DETACH too"
    first = "test_malformed_kernels"
    file = "impl/rewrite/verify.py"
    old = "lambda node: node.op in KERNEL_OPS,"
    new = "lambda node: node.op in KERNEL_OPS | _SHARED,"


class LeavesOutTheUsersLine(Edit):
    rule = "ir.verify.names"
    description = "the error does not say which line made the node"
    file = "impl/rewrite/verify.py"
    old, new = "line_of(node.origin) or None)", "None)"


class MoreSourcesAreFine(Edit):
    rule = "ir.source.legal"
    description = "a node may have more sources than its operation takes"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old, new = "len(node.src) == _SOURCES[node.op]", "len(node.src) >= _SOURCES[node.op]"


class EqualNumbersFit(Edit):
    rule = "ir.source.legal"
    description = "an int is taken for a float of the same value"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "type(value) is type(node.arg) and (value == node.arg or value != value)"
    new = "bool(value == node.arg or value != value)"


class OnlySourcesAreCompared(Edit):
    rule = "ir.dtype.operands"
    description = "the sources have one type, and the result any"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "source.dtype is node.dtype for source in node.src)"
    new = "source.dtype is node.src[0].dtype for source in node.src)"


class ComparisonsGiveNumbers(Edit):
    rule = "ir.dtype.operands"
    description = "a comparison may have a result that is no bool"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "node.dtype is dtypes.bool and node.src[0].dtype is node.src[1].dtype"
    new = "node.src[0].dtype is node.src[1].dtype"


class TheOtherChoiceIsNotLookedAt(Edit):
    rule = "ir.dtype.operands"
    description = "only the first of two values has to have the type of the choice"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old, new = "left.dtype is right.dtype is node.dtype", "left.dtype is node.dtype"


class _Forgets(ImplPatch):
    """A requirement is not asked of one operation that it is about."""

    operation: ClassVar[str] = ""

    @contextmanager
    def mistake(self) -> Iterator[None]:
        module = import_module("impl.rewrite.verify")
        with ExitStack() as stack:
            for checks in module._CHECKS.values():
                for op, all_of_it in checks.items():
                    kept = [each for each in all_of_it if each.rule != self.rule]
                    if op.name == self.operation:
                        if len(kept) == len(all_of_it):
                            raise TypeError(f"{self.rule} is not asked of {self.operation}")
                        stack.enter_context(mock.patch.dict(checks, {op: kept}))
            yield


class ForgetsErf(_Forgets):
    rule = "ir.dtype.operands"
    description = "the error function of integers is let through"
    first = "test_malformed_tensor_graphs"
    operation = "ERF"


class ForgetsRemainders(_Forgets):
    rule = "ir.dtype.operands"
    description = "a remainder of floats is let through"
    first = "test_malformed_tensor_graphs"
    operation = "FLOORMOD"


class ForgetsAnd(_Forgets):
    rule = "ir.dtype.operands"
    description = "the bits of floats may be combined by AND"
    first = "test_malformed_tensor_graphs"
    operation = "AND"


class NarrowerBitcasts(Edit):
    rule = "ir.dtype.operands"
    description = "a bitcast may go from a narrower type"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "node.dtype.itemsize == node.src[0].dtype.itemsize"
    new = "node.dtype.itemsize >= node.src[0].dtype.itemsize"


class ShapelessArithmetic(Edit):
    rule = "ir.shape.tensor"
    description = "arithmetic on what has no shape is let through"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "node.shape is not None or node.op in (\n        Ops.STORE, Ops.SINK)"
    new = "node.shape is not None or node.op in ELEMENTWISE or node.op in (\n  Ops.STORE, Ops.SINK)"


class AnyAxisGrows(Edit):
    rule = "ir.movement.argument"
    description = "an axis of any size may grow"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old, new = "all(o in (1, n) for o, n", "all(o <= n for o, n"


class AxesStandTwice(Edit):
    rule = "ir.movement.argument"
    description = "a permutation may name an axis twice"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "sorted(node.arg) == list(range("
    new = "sorted(set(node.arg)) == list(range("


class PadsCutTheEnd(Edit):
    rule = "ir.movement.argument"
    description = "the amount behind an axis may be negative"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old, new = "all(before >= 0 and after >= 0 for", "all(before >= 0 for"


class PartsBeyondTheEnd(Edit):
    rule = "ir.movement.argument"
    description = "the interval may stop behind the end of the axis"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old, new = "0 <= start <= stop <= size for", "0 <= start <= stop for"


class FlipsTwice(Edit):
    rule = "ir.movement.argument"
    description = "an axis may be flipped twice"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "return _axes(node.arg, len(_source_shape(node)))"
    new = "return _axes(tuple(set(node.arg)), len(_source_shape(node)))"


class WindowsOneTooFar(Edit):
    rule = "ir.movement.argument"
    description = "the last window may end one element behind the axis"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old, new = "(size - 1) * dilation < shape[axis]", "(size - 1) * dilation <= shape[axis]"


class FoldsOneTooFar(Edit):
    rule = "ir.movement.argument"
    description = "the last window may end one element behind the extent"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old, new = "(size - 1) * dilation < extent", "(size - 1) * dilation <= extent"


class ReducesAnAxisTwice(Edit):
    rule = "ir.reduce.operands"
    description = "a reduction may name an axis twice"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "op in REDUCERS and _axes(axes, len(_source_shape(node)))"
    new = "op in REDUCERS and _axes(tuple(set(axes)), len(_source_shape(node)))"


class RowsOfANumber(Edit):
    rule = "ir.reduce.operands"
    description = "the values that are gathered may have no axis"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = 'node.src[1].dtype.kind in "iu" and bool(_source_shape(node))'
    new = 'node.src[1].dtype.kind in "iu"'


class FewerKeysThanElements(Edit):
    rule = "ir.reduce.operands"
    description = "a scan may have a key of another shape than its elements"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old, new = 'key.dtype.kind in "iu" and key.shape == node.shape', 'key.dtype.kind in "iu"'


class RowsOfAnyShape(Edit):
    rule = "ir.reduce.operands"
    description = "rows that are scattered may have another shape than the rows of the base"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "and values.shape == (*(index.shape or ()), *base.shape[1:]))"
    new = "and (values.shape or ())[:1] == index.shape)"


class StoresAnyShape(Edit):
    rule = "ir.write.legal"
    description = "the value stored may have another shape than the view"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "return view.dtype is value.dtype and value.shape in (view.shape, ())"
    new = "return view.dtype is value.dtype"


class WritesThroughWindows(Edit):
    rule = "ir.write.legal"
    description = "a write may go through windows that overlap"
    first = "test_malformed_tensor_graphs"
    file = "impl/rewrite/verify.py"
    old = "if view.op is not Ops.UNFOLD:"
    new = "if view.op in MOVEMENT:"


class KernelsWithoutStores(Edit):
    rule = "ir.kernel.sink+2"
    description = "a kernel that stores nothing is let through"
    file = "impl/rewrite/verify.py"
    old = "isinstance(node.arg, KernelInfo) and bool(node.src)"
    new = "isinstance(node.arg, KernelInfo)"


class LoopsOfAnySize(Edit):
    rule = "ir.kernel.operands+2"
    description = "the size of a loop may have any type"
    first = "test_malformed_kernels"
    file = "impl/rewrite/verify.py"
    old, new = "node.dtype is dtypes.index is node.src[0].dtype", "node.dtype is dtypes.index"


class PointersOfAnotherType(Edit):
    rule = "ir.kernel.operands+2"
    description = "an INDEX may have a pointer of another type"
    first = "test_malformed_kernels"
    file = "impl/rewrite/verify.py"
    old = "and valid.dtype is dtypes.bool and pointer.dtype is node.dtype)"
    new = "and valid.dtype is dtypes.bool)"


class LoadsConvert(Edit):
    rule = "ir.kernel.operands+2"
    description = "a load may have another type than the place that it reads"
    first = "test_malformed_kernels"
    file = "impl/rewrite/verify.py"
    old = "node.src[0].op is Ops.INDEX and node.src[0].dtype is node.dtype"
    new = "node.src[0].op is Ops.INDEX"


class StoresRepeatLoops(Edit):
    rule = "ir.kernel.operands+2"
    description = "what stands behind a stored value may be anything"
    first = "test_malformed_kernels"
    file = "impl/rewrite/verify.py"
    old = "node.src[0].dtype is node.src[1].dtype and _loops(node, 2)"
    new = "node.src[0].dtype is node.src[1].dtype"


class ReducesNothing(Edit):
    rule = "ir.kernel.operands+2"
    description = "a reduction may have no loop"
    first = "test_malformed_kernels"
    file = "impl/rewrite/verify.py"
    old, new = "len(node.src) > 1 and _loops(node, 1)", "_loops(node, 1)"
