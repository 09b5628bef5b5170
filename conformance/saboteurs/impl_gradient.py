"""Mistakes in gradients: slopes, ties, the walk, and what `backward` does."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch
from impl.gradient import nodes
from impl.ir import Ops


class HandlesRemoveAnothers(Edit):
    rule = "gradient.hook.accumulated"
    description = "a handle that is asked twice removes what another handle has put there"
    first = "test_one_hook_behind_two_handles"
    file = "impl/gradient/hooks.py"
    old, new = "        self.kept = []\n", "        pass\n"


class GradientsGoOnBehindParameters(Edit):
    rule = "gradient.parameter.end+2"
    description = "a gradient flows to what a parameter was assigned, as long as it waits"
    first = "test_gradients_end_at_a_parameter_that_waits"
    file = "impl/tensor/base.py"
    old = "if (living[-1][0] if living else self)._parameter and needs_gradient(value):"
    new = "if False:"


class GradientsGoOnBehindReplacements(Edit):
    rule = "gradient.parameter.end+2"
    description = "a gradient flows to what a parameter was replaced by, as long as it waits"
    first = "test_gradients_end_at_a_parameter_that_waits"
    file = "impl/tensor/base.py"
    old = "if needs_gradient(self.uop):  # r[impl gradient.parameter.end+2]"
    new = "if False:  # r[impl gradient.parameter.end+2]"


class LosesTheSign(Edit):
    rule = "gradient.value.derivative"
    description = "the gradient of a negation is not negated"
    file = "impl/gradient/rules.py"
    old, new = "yield node.src[0], neg(gradient)", "yield node.src[0], gradient"


class ParametersStayWhereTheyWere(Edit):
    rule = "gradient.realized.keeps+2"
    description = "a parameter whose new value lies in other memory counts as none there"
    file = "impl/tensor/base.py"
    first = "test_a_parameter_that_lies_elsewhere_since_it_was_assigned"
    apart = True  # the bits of all parameters that a process had are kept
    old, new = "elif self._parameter:\n", "elif False:\n"


class WritesLeaveTheOldGradient(Edit):
    rule = "gradient.value.derivative"
    description = "the old version of a written region still has its gradient"
    file = "impl/gradient/rules.py"
    old = "yield base, where(region(view, path), zero(node), gradient)"
    new = "yield base, gradient"


class KeepsTheFold(Edit):
    rule = "gradient.window.sum+4"
    description = "what the windows of a convolution took is stored, and folded afterwards"
    file = "impl/gradient/windows.py"
    old, new = "if is_symbolic(length) or", "if found or"


class KernelIsNotReversed(Edit):
    rule = "gradient.window.sum+4"
    description = "the windows of the signal meet the taps of the kernel in their own order"
    file = "impl/gradient/windows.py"
    old, new = "kernel = nodes.flip(kernel, (axis + 1,))", "kernel = nodes.flip(kernel, ())"


class EndsAreAddedTwice(Edit):
    rule = "gradient.window.sum+4"
    description = "the last elements of a window are added where its first ones are"
    file = "impl/gradient/windows.py"
    old, new = "around = (start, length - start", "around = (0, length"


class OneWindowMeetsZeros(Edit):
    rule = "gradient.window.sum+4"
    description = "one window is added up as if there were others, whose elements are zeros"
    file = "impl/gradient/windows.py"
    old, new = "if shape_of(taps)[axis] == 1 and", "if shape_of(taps)[axis] == 0 and"


class SlopesOfPhases(Edit):
    rule = "gradient.window.sum+4"
    description = "the sum of windows has the gradient of the windows that the signal was cut into"
    file = "impl/gradient/windows.py"
    old = "return with_gradient(total, ruled("
    new = "return total or with_gradient(total, ruled("


class SlopesOfSeries(Edit):
    rule = "gradient.nodes.few+2"
    description = "the slope of a series is that of its terms"
    file = "impl/tensor/elementwise.py"
    old = "return with_gradient(value, ruled("
    new = "return value or with_gradient(value, ruled("


class OneSumOfProducts(Edit):
    rule = "gradient.nodes.few+2"
    description = "the products of several users of a weight are added before they are summed"
    file = "impl/gradient/rules.py"
    old, new = "None if terms or len(found) < 2 else", "None if terms or found else"


class SumsAreSentOneByOne(Edit):
    rule = "gradient.nodes.few+2"
    description = "products of several users are summed each on its own on several devices, too"
    file = "impl/gradient/rules.py"
    old, new = "len(place.members()) > 1", "not place"


class StepsAmongTheGaps(Edit):
    rule = "gradient.window.sum+4"
    description = "a kernel with gaps falls into phases as one without"
    file = "impl/gradient/windows.py"
    old, new = "or step > 1 < dilation or", "or"


class WalksByRecursion(ImplPatch):
    rule = "gradient.walk.once"
    description = "the order of the walk is found by a function that calls itself"
    target = "impl.gradient:below"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def below(roots: Any, through: int = -1, ends: Any = ()) -> Any:
            found: dict[Any, None] = {}

            def visit(node: Any) -> None:
                for source in node.src:
                    if source not in found:
                        visit(source)
                found[node] = None

            for root in roots:
                visit(root)
            return list(found)
        return below


class TheLastUseCounts(Edit):
    rule = "gradient.walk.sum"
    description = "of several uses of a value one gives it its gradient"
    file = "impl/gradient/__init__.py"
    old, new = "part if known is None else nodes.add(known, part)", "part"


class DetachDoesNothing(Edit):
    rule = "gradient.detach.stops+2"
    description = "a detached value is the value itself"
    file = "impl/gradient/nodes.py"
    old, new = "return UOp(Ops.DETACH, x.dtype, (x,))", "return x"


class NoGradDoesNothing(Edit):
    rule = "gradient.mode.stops"
    description = "what is computed in a block with no_grad passes gradients on"
    file = "impl/gradient/nodes.py"
    old = "return x.replace(src=(detach(x.src[0]), *x.src[1:]))\n    return detach(x)"
    new = "return x\n    return x"


class HooksOnlyLook(Edit):
    rule = "gradient.hook.instead"
    description = "what a hook returns is not used"
    file = "impl/gradient/hooks.py"
    old, new = "            gradient = each(gradient)", "            each(gradient)"


class HooksAreForgotten(Edit):
    rule = "gradient.hook.accumulated"
    description = "the hooks of the gradient are called with the tensor, too"
    file = "impl/tensor/autograd.py"
    old, new = "tuple(tensor._hooks_of_grad(1))", "tuple(tensor._hooks_of_grad(0))"


class NumbersAreVariables(Edit):
    rule = "gradient.target.constant"
    description = "the gradient for a tensor that is one number is zeros"
    file = "impl/tensor/autograd.py"
    old, new = "constant_of(place) is not None and not target._parameter", \
        "constant_of(place) is not None and target._parameter"


class OneRepetitionCounts(Edit):
    rule = "gradient.broadcast.sum"
    description = "of the gradients of a repeated element the greatest is taken"
    file = "impl/gradient/rules.py"
    old = "return _sum_over(gradient, grown)"
    new = "return nodes.reduce(Ops.MAXIMUM, gradient, grown)"


class TheFirstOfTwoEquals(Edit):
    rule = "gradient.maximum.tie+2"
    description = "where both operands are equal, the first one has the gradient"
    file = "impl/gradient/rules.py"
    old, new = "first_wins = UOp(Ops.CMPLT,", "first_wins = UOp(Ops.CMPLE,"


class TwoTensorsShareNothing(Edit):
    rule = "gradient.maximum.tie+2"
    description = "of two equal tensors the second one has the whole gradient"
    file = "impl/gradient/rules.py"
    old, new = "half = scale(gradient, 0.5)", "half = gradient"


class RootsOfNothingHaveASlope(ImplPatch):
    rule = "gradient.root.zero"
    description = "the gradient of a norm is that of a root, which is infinite at 0"
    target = "impl.tensor.reduce:root_of_squares"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda total: nodes.unary(Ops.SQRT, total)


class AllHaveTheWholeGradient(Edit):
    rule = "gradient.max.tie"
    description = "each of several greatest elements has the whole gradient"
    file = "impl/gradient/rules.py"
    old = "share = div(gradient, nodes.reduce(Ops.ADD, weight, axes))"
    new = "share = gradient"


class DividesByTheFactor(Edit):
    rule = "gradient.product.zero"
    description = "the product of the other factors is the product divided by the factor"
    file = "impl/gradient/rules.py"
    old = "yield source, mul(spread, _others_product(source, axes))"
    new = "yield source, mul(spread, div(nodes.expand(node, shape), source))"


class BackwardReplaces(Edit):
    rule = "gradient.backward.accumulate"
    description = "`backward` replaces the `grad` that a tensor has"
    file = "impl/tensor/autograd.py"
    old = "tensor.grad = given if tensor.grad is None else"
    new = "tensor.grad = given if given is not None else"


class BackwardOfNothingIsFine(Edit):
    rule = "gradient.backward.nothing"
    description = "`backward` does nothing where only other results have parameters"
    file = "impl/tensor/autograd.py"
    old = "if not any(node is not None for node in found):"
    new = "if not any(node is not None or wanted for node in found):"


class SeedsEveryElement(Edit):
    rule = "gradient.seed.scalar"
    description = "a tensor of any shape has the gradient 1 of its own"
    file = "impl/tensor/autograd.py"
    old, new = "if self.numel() != 1:", "if self.numel() < 1:"


class UnusedTargetsAreOnes(Edit):
    rule = "gradient.target.unused+2"
    description = "a target that is not used has ones as its gradient"
    file = "impl/tensor/autograd.py"
    old, new = "nodes.full_like(target.uop, 0) if node is None", \
        "nodes.full_like(target.uop, 1) if node is None"


class ChangesOfQuotientsHaveNoSign(Edit):
    rule = "gradient.forward.derivative"
    description = "a quotient grows with its divisor, forwards"
    file = "impl/gradient/forward.py"
    old = "part = None if b is None else neg(mul(node, b))"
    new = "part = None if b is None else mul(node, b)"


class NothingIsTurned(Edit):
    rule = "gradient.forward.derivative"
    description = "an operation without a rule of its own does not change"
    file = "impl/gradient/forward.py"
    old = "return _total(node, parts)\n\n\nFORWARD"
    new = "return None\n\n\nFORWARD"


class LooksEndTheWay(Edit):
    rule = "gradient.realized.keeps+2"
    description = "a tensor that was realized is a leaf"
    file = "impl/gradient/nodes.py"
    old, new = "return computed  # r[impl gradient.realized.keeps+2]", "return node"


class WhatIsComputedBesidesIsForgotten(Edit):
    rule = "gradient.realized.keeps+2"
    description = "a tensor that is computed because others overwrite what it reads is a leaf"
    file = "impl/realize/run.py"
    old, new = "holder.hold(node, leaf, True)", "holder.uop = leaf"


class OnlyTensorsKeepTheWay(Edit):
    rule = "gradient.realized.keeps+2"
    description = "a value whose tensor is gone is a leaf"
    file = "impl/tensor/base.py"
    first = "test_a_value_that_nobody_holds_passes_gradients_on"
    old = "note_late(leaf, (as_written, needed, weakref.ref(leaf), *parts))"
    new = "None"


class TheWayIsHeldInACircle(Edit):
    rule = "gradient.realized.keeps+2"
    description = "a leaf holds the expression that holds the leaf"
    file = "impl/tensor/base.py"
    first = "test_what_gradients_keep_goes_with_the_last_value"
    old = "note_late(leaf, (as_written, needed, weakref.ref(leaf), *parts))"
    new = "note_late(leaf, (lambda told: told, needed, node))"


class AssignedStatesStartAnew(Edit):
    rule = "gradient.realized.keeps+2"
    description = "what was assigned and looked at has no gradient of what it was before"
    file = "impl/tensor/base.py"
    first = "test_sums_that_are_looked_at_have_the_gradient_of_all_terms"
    old = "in_memory(node) is leaf \\\n"
    new = "in_memory(node) is leaf and shown.op is not Ops.AFTER \\\n"


class CopiesAreDetached(Edit):
    rule = "gradient.realized.keeps+2"
    description = "a copy of a value has no gradient"
    file = "impl/tensor/base.py"
    first = "test_a_copy_passes_gradients_on"
    old, new = "return self.__deepcopy__({})", "return self.detach()"


class AllIsKept(Edit):
    rule = "gradient.realized.keeps+2"
    description = "what was computed is kept where a few bits say that a parameter may be in it"
    file = "impl/tensor/base.py"
    first = "test_nothing_is_kept_of_what_no_parameter_is_in"
    old = "always or mode.keeping or needs_gradient(node)"
    new = "always or mode.keeping or node.reads & dependent_bits[0]"


class ReplacedParametersAreNone(Edit):
    rule = "tensor.parameter.own+3"
    description = "nothing is kept of what was computed from a parameter that was replaced"
    file = "impl/tensor/base.py"
    first = "test_a_parameter_that_denotes_another_value_stays_a_variable"
    old = "            self._own_variable()\n            note_parameter(self.uop)\n"
    new = "            self._own_variable()\n"


class ForgottenWaysAreZero(Edit):
    rule = "gradient.realized.forgotten"
    description = "the gradient is zero where nobody knows how a value was computed"
    file = "impl/tensor/autograd.py"
    first = "test_nobody_gets_zeros_where_the_way_was_forgotten"
    old = "if place not in known and not target._parameter:"
    new = "if False:"


class ReadsWhatIsThereNow(Edit):
    rule = "gradient.realized.overwritten"
    description = "a gradient reads memory that was overwritten since"
    file = "impl/gradient/__init__.py"
    old = "node.arg[1] != node.arg[0].version}"
    new = "node.arg[1] > node.arg[0].version}"


class SumsOfNothingAreNumbers(Edit):
    rule = "gradient.empty.reached"
    description = "a sum over no elements depends on nothing"
    file = "impl/gradient/nodes.py"
    old = "else add(_of_nothing(x, kept), full(identity, rest))"
    new = "else full(identity, rest)"


class PlusZeroIsLeftOut(Edit):
    rule = "gradient.nodes.exact"
    description = "an addition of 0.0 is left out, so that -0.0 stays"
    file = "impl/rewrite/folding.py"
    old = "number == 0 and (isinstance(number, int) or math.copysign(1.0, number) < 0)"
    new = "number == 0"


class LargeNumbersAreRoundedTwice(Edit):
    rule = "gradient.nodes.exact"
    description = "a whole number becomes a float64 before it becomes a float32"
    file = "impl/dtypes.py"
    old = "kept = magnitude >> extra | (magnitude & ((1 << extra) - 1) != 0)"
    new = "kept = magnitude >> extra"
