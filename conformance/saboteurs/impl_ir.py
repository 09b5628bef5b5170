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
    rule = "ir.intern.identity"
    description = "two threads that make a node at the same time get one each"
    file = "impl/ir.py"
    old = "return node if known is reference else _first(key, node, reference)"
    new = "return node"


class SuccessorsForgotten(Edit):
    rule = "ir.intern.identity"
    description = "a node that dies takes the one out of the table that was made in its place"
    file = "impl/ir.py"
    old, new = "_remove_dead(_interned, reference.key)", "_interned.pop(reference.key, None)"


class PartsCanBeSet(ImplPatch):
    rule = "ir.node.immutable"
    description = "a part of a node can be set, whoever else has the node"
    target = "impl.ir:UOp.__setattr__"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return object.__setattr__


class MinusZeroIsZero(Edit):
    rule = "ir.const.identity"
    description = "0.0 and -0.0 are one node, as they are equal in Python"
    file = "impl/ir.py"
    old, new = 'else math.copysign(1.0, number)\n    key', 'else ""\n    key'


class TaggedNumbersLoseTheirSign(Edit):
    rule = "ir.const.identity"
    description = "a number that is made by `replace` is looked up as Python compares numbers"
    file = "impl/ir.py"
    old = 'elif op is _CONST and draft.dtype.kind == "f" and len(key) == 5:'
    new = 'elif op is _CONST and draft.dtype.kind == "f" and len(key) == 4:'


class PickledNumbersLoseTheirTag(Edit):
    rule = "ir.pickle.identity"
    description = "a number is read back without its tag"
    file = "impl/ir.py"
    old = "nodes.append(UOp(Ops(op), dtype, tuple(nodes[i] for i in sources), arg, tag))"
    new = ("nodes.append(UOp.const(dtype, arg) if op == Ops.CONST else "
           "UOp(Ops(op), dtype, tuple(nodes[i] for i in sources), arg, tag))")


class UsersBeforeSources(Edit):
    rule = "ir.walk.order"
    description = "a node is listed before its sources"
    file = "impl/ir.py"
    old = "stack += (node, None, *node.src[::-1])"
    new = "stack += (*node.src[::-1], node, None)"


class SubstitutesByRecursion(ImplPatch):
    rule = "ir.walk.depth"
    description = "nodes are replaced by a function that calls itself for the sources"
    target = "impl.ir:UOp.substitute"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def substitute(node: Any, replacements: dict[Any, Any]) -> Any:
            if node in replacements:
                return replacements[node]
            sources = tuple([substitute(source, replacements) for source in node.src])
            return node if sources == node.src else node.replace(src=sources)
        return substitute


class ShapesOfOneRank(Edit):
    rule = "ir.shape.elementwise"
    description = "shapes of as many axes are taken for the same"
    file = "impl/ir.py"
    old = "elif shape is not other and shape != other:"
    new = "elif len(shape) != len(other):"


class AnyStageIsTensor(Edit):
    rule = "ir.stage.tensor"
    description = "a tensor graph may contain loops and pointers"
    file = "impl/rewrite/verify.py"
    old = "lambda node: node.op in TENSOR_OPS,"
    new = "lambda node: node.op in TENSOR_OPS | KERNEL_OPS,"


class KernelsDetach(Edit):
    rule = "ir.stage.kernel"
    description = "every elementwise operation is let through, DETACH too"
    file = "impl/rewrite/verify.py"
    old = "lambda node: node.op in KERNEL_OPS,"
    new = "lambda node: node.op in KERNEL_OPS | _SHARED,"


class LeavesOutTheUsersLine(Edit):
    rule = "ir.verify.names"
    description = "the error does not say which line made the node"
    file = "impl/rewrite/verify.py"
    old, new = "line_of(node.origin) or None)", "None)"


class MoreSourcesAreFine(Edit):
    rule = "ir.source.count"
    description = "a node may have more sources than its operation takes"
    file = "impl/rewrite/verify.py"
    old, new = "len(node.src) == _SOURCES[node.op]", "len(node.src) >= _SOURCES[node.op]"


class EqualNumbersFit(Edit):
    rule = "ir.const.fits"
    description = "an int is taken for a float of the same value"
    file = "impl/rewrite/verify.py"
    old = "type(value) is type(node.arg) and (value == node.arg or value != value)"
    new = "bool(value == node.arg or value != value)"


class OnlySourcesAreCompared(Edit):
    rule = "ir.dtype.equal"
    description = "the sources have one type, and the result any"
    file = "impl/rewrite/verify.py"
    old = "source.dtype is node.dtype for source in node.src)"
    new = "source.dtype is node.src[0].dtype for source in node.src)"


class ComparisonsGiveNumbers(Edit):
    rule = "ir.dtype.comparison"
    description = "a comparison may have a result that is no bool"
    file = "impl/rewrite/verify.py"
    old = "node.dtype is dtypes.bool and node.src[0].dtype is node.src[1].dtype"
    new = "node.src[0].dtype is node.src[1].dtype"


class TheOtherChoiceIsNotLookedAt(Edit):
    rule = "ir.dtype.where"
    description = "only the first of two values has to have the type of the choice"
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
    rule = "ir.dtype.float"
    description = "the error function of integers is let through"
    operation = "ERF"


class ForgetsRemainders(_Forgets):
    rule = "ir.dtype.integer"
    description = "a remainder of floats is let through"
    operation = "FLOORMOD"


class ForgetsAnd(_Forgets):
    rule = "ir.dtype.bits"
    description = "the bits of floats may be combined by AND"
    operation = "AND"


class NarrowerBitcasts(Edit):
    rule = "ir.dtype.bitcast"
    description = "a bitcast may go from a narrower type"
    file = "impl/rewrite/verify.py"
    old = "node.dtype.itemsize == node.src[0].dtype.itemsize"
    new = "node.dtype.itemsize >= node.src[0].dtype.itemsize"


class ShapelessArithmetic(Edit):
    rule = "ir.shape.known"
    description = "arithmetic on what has no shape is let through"
    file = "impl/rewrite/verify.py"
    old = "node.shape is not None or node.op in (\n        Ops.STORE, Ops.SINK)"
    new = "node.shape is not None or node.op in ELEMENTWISE or node.op in (\n  Ops.STORE, Ops.SINK)"


class AnyAxisGrows(Edit):
    rule = "ir.movement.expand"
    description = "an axis of any size may grow"
    file = "impl/rewrite/verify.py"
    old, new = "all(o in (1, n) for o, n", "all(o <= n for o, n"


class AxesStandTwice(Edit):
    rule = "ir.movement.permute"
    description = "a permutation may name an axis twice"
    file = "impl/rewrite/verify.py"
    old = "sorted(node.arg) == list(range("
    new = "sorted(set(node.arg)) == list(range("


class PadsCutTheEnd(Edit):
    rule = "ir.movement.pad"
    description = "the amount behind an axis may be negative"
    file = "impl/rewrite/verify.py"
    old, new = "all(before >= 0 and after >= 0 for", "all(before >= 0 for"


class PartsBeyondTheEnd(Edit):
    rule = "ir.movement.shrink"
    description = "the interval may stop behind the end of the axis"
    file = "impl/rewrite/verify.py"
    old, new = "0 <= start <= stop <= size for", "0 <= start <= stop for"


class FlipsTwice(Edit):
    rule = "ir.movement.flip"
    description = "an axis may be flipped twice"
    file = "impl/rewrite/verify.py"
    old = "return _axes(node.arg, len(_source_shape(node)))"
    new = "return _axes(tuple(set(node.arg)), len(_source_shape(node)))"


class WindowsOneTooFar(Edit):
    rule = "ir.movement.unfold"
    description = "the last window may end one element behind the axis"
    file = "impl/rewrite/verify.py"
    old, new = "(size - 1) * dilation < shape[axis]", "(size - 1) * dilation <= shape[axis]"


class FoldsOneTooFar(Edit):
    rule = "ir.movement.fold"
    description = "the last window may end one element behind the extent"
    file = "impl/rewrite/verify.py"
    old, new = "(size - 1) * dilation < extent", "(size - 1) * dilation <= extent"


class ReducesAnAxisTwice(Edit):
    rule = "ir.reduce.axes"
    description = "a reduction may name an axis twice"
    file = "impl/rewrite/verify.py"
    old = "op in REDUCERS and _axes(axes, len(_source_shape(node)))"
    new = "op in REDUCERS and _axes(tuple(set(axes)), len(_source_shape(node)))"


class RowsOfANumber(Edit):
    rule = "ir.gather.index"
    description = "the values that are gathered may have no axis"
    file = "impl/rewrite/verify.py"
    old = 'node.src[1].dtype.kind in "iu" and bool(_source_shape(node))'
    new = 'node.src[1].dtype.kind in "iu"'


class FewerKeysThanElements(Edit):
    rule = "ir.scan.axis"
    description = "a scan may have a key of another shape than its elements"
    file = "impl/rewrite/verify.py"
    old, new = 'key.dtype.kind in "iu" and key.shape == node.shape', 'key.dtype.kind in "iu"'


class RowsOfAnyShape(Edit):
    rule = "ir.scatter.rows"
    description = "rows that are scattered may have another shape than the rows of the base"
    file = "impl/rewrite/verify.py"
    old = "and values.shape == (*(index.shape or ()), *base.shape[1:]))"
    new = "and (values.shape or ())[:1] == index.shape)"


class StoresAnyShape(Edit):
    rule = "ir.store.value"
    description = "the value stored may have another shape than the view"
    file = "impl/rewrite/verify.py"
    old = "return view.dtype is value.dtype and value.shape in (view.shape, ())"
    new = "return view.dtype is value.dtype"


class WritesThroughWindows(Edit):
    rule = "ir.after.chain"
    description = "a write may go through windows that overlap"
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
    rule = "ir.kernel.range"
    description = "the size of a loop may have any type"
    file = "impl/rewrite/verify.py"
    old, new = "node.dtype is dtypes.index is node.src[0].dtype", "node.dtype is dtypes.index"


class PointersOfAnotherType(Edit):
    rule = "ir.kernel.index"
    description = "an INDEX may have a pointer of another type"
    file = "impl/rewrite/verify.py"
    old = "and valid.dtype is dtypes.bool and pointer.dtype is node.dtype)"
    new = "and valid.dtype is dtypes.bool)"


class LoadsConvert(Edit):
    rule = "ir.kernel.load"
    description = "a load may have another type than the place that it reads"
    file = "impl/rewrite/verify.py"
    old = "node.src[0].op is Ops.INDEX and node.src[0].dtype is node.dtype"
    new = "node.src[0].op is Ops.INDEX"


class StoresRepeatLoops(Edit):
    rule = "ir.kernel.store"
    description = "what stands behind a stored value may be anything"
    file = "impl/rewrite/verify.py"
    old = "node.src[0].dtype is node.src[1].dtype and _loops(node, 2)"
    new = "node.src[0].dtype is node.src[1].dtype"


class ReducesNothing(Edit):
    rule = "ir.kernel.reduce"
    description = "a reduction may have no loop"
    file = "impl/rewrite/verify.py"
    old, new = "len(node.src) > 1 and _loops(node, 1)", "_loops(node, 1)"
