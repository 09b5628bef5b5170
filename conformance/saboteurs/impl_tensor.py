"""Mistakes in the methods of tensors, made inside `impl.tensor`.

Most let something pass that has no meaning: an error that a user needs is as much of a rule as a
value is.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch
from impl.dtypes import dtypes
from impl.errors import NameMissingError, ShapeError
from impl.gradient import nodes
from impl.ir import Ops, UOp

Function = Callable[..., Any]


class TakesTheLeftShape(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "of two shapes that do not fit, the left one is taken"
    target = "impl.tensor.broadcasting:broadcast_shape"

    def replacement(self, original: Function) -> Function:
        def shape(a: Any, b: Any, operation: str) -> Any:
            try:
                return original(a, b, operation)
            except ShapeError:
                return a
        return shape


class DividesIntegersDown(ImplPatch):
    rule = "tensor.division.value"
    description = "the quotient of two integers is an integer"
    first = "test_dividing_integers_gives_floats"
    target = "impl.tensor.elementwise:Elementwise._divide"

    def replacement(self, original: Function) -> Function:
        def divide(tensor: Any, other: Any, name: str, reflected: bool) -> Any:
            if tensor.dtype.kind == "f":
                return original(tensor, other, name, reflected)
            return tensor._whole(other, Ops.FLOORDIV, name, reflected)
        return divide


class TruncatesByRoundingDown(ImplPatch):
    rule = "tensor.division.value"
    description = "a quotient to be rounded toward zero is rounded down"
    first = "test_division_toward_zero_keeps_every_digit"
    target = "impl.tensor.elementwise:Elementwise._truncated"

    def replacement(self, original: Function) -> Function:
        return lambda tensor, other: tensor._whole(other, Ops.FLOORDIV, "div", False)


class FloorsWhatIsLost(ImplPatch):
    rule = "tensor.division.value"
    description = "a quotient of floats is rounded down without a look at its edges"
    first = "test_remainders_are_exact"
    target = "impl.tensor.elementwise:floor_quotient"

    def replacement(self, original: Function) -> Function:
        return lambda x, y: nodes.unary(Ops.FLOOR, nodes.div(x, y))


class OneRoundedProduct(Edit):
    rule = "tensor.division.value"
    description = "the multiple of the divisor is rounded before it is subtracted"
    first = "test_remainders_are_exact"
    file = "impl/tensor/elementwise.py"
    old, new = "first, high = _upper(quotient), _upper(y)", "first, high = quotient, y"


class RunsInOneChain(Edit):
    rule = "tensor.running.exact"
    description = "running sums of a long axis are one chain of additions"
    file = "impl/tensor/reduce.py"
    old, new = "if is_symbolic(shape[axis]) or shape[axis] <= _CHAIN or 0 in shape:", "if True:"


class PlacesBesideTheirOwn(Edit):
    rule = "tensor.spatial.value"
    description = "a place of a resized picture stands at the edge of what it stands for"
    file = "impl/tensor/spatial.py"
    old, new = "return (place + 0.5) * step - 0.5 if half else place * step", "return place * step"


class WindowsBeyondCount(Edit):
    rule = "tensor.spatial.value"
    description = "a window that begins behind the padding counts"
    file = "impl/tensor/products.py"
    old, new = "places -= (places - 1) * step >= size + pads[0]", "places -= 0"


class SolvesInHalfTheDigits(Edit):
    rule = "tensor.linalg.host+3"
    description = "matrices are handed to LAPACK in half precision"
    file = "impl/tensor/linalg.py"
    old = "np.float64) for each in given]"
    new = "np.float16).astype(np.float64) for each in given]"


class HostsGetRoundedMatrices(Edit):
    rule = "tensor.linalg.host+3"
    description = "what is not there yet is handed to LAPACK in half precision"
    file = "impl/realize/looping.py"
    old = "return found.astype(np.float64) if"
    new = "return found.astype(np.float16).astype(np.float64) if"


class InversesAreConstants(Edit):
    rule = "tensor.linalg.slope+2"
    description = "the gradients of linear algebra have none"
    file = "impl/tensor/linalg.py"
    old, new = "small, following(given, constants, change))", "small, constants)"


class AnyConditionWillDo(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "a condition that is a number holds where it is not zero"
    target = "impl.tensor.elementwise:Elementwise.where"

    def replacement(self, original: Function) -> Function:
        return lambda tensor, a, b: original(tensor.cast(dtypes.bool), a, b)


class FloatsHaveBits(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "an operation on bits takes floats"
    target = "impl.tensor.elementwise:Elementwise._refuse_float"

    def replacement(self, original: Function) -> Function:
        return lambda tensor, name, dtype: None


class ImpossibleCountsAreOne(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "a size or a count that is impossible is one"
    target = "impl.tensor.movement:whole"

    def replacement(self, original: Function) -> Function:
        def whole(*given: Any) -> Any:
            try:
                return original(*given)
            except ShapeError:
                return 1
        return whole


class ExpandsNothing(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "an axis that cannot be expanded stays as it is"
    target = "impl.tensor.movement:Movement.expand"

    def replacement(self, original: Function) -> Function:
        def expand(tensor: Any, *shape: Any) -> Any:
            try:
                return original(tensor, *shape)
            except ShapeError:
                return tensor
        return expand


class ReshapesWhatItCan(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "a shape of another number of elements is taken for a flat one"
    target = "impl.tensor.movement:Movement._inferred"

    def replacement(self, original: Function) -> Function:
        def inferred(tensor: Any, wanted: Any, count: int, operation: str) -> Any:
            try:
                return original(tensor, wanted, count, operation)
            except ShapeError:
                return (count,)
        return inferred


class SmallSumsStaySmall(ImplPatch):
    rule = "tensor.sum.dtype"
    description = "the sum of small integers is a small integer"
    target = "impl.dtypes:sum_result"

    def replacement(self, original: Function) -> Function:
        return lambda dtype: dtype


class NothingHasExtremes(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "the greatest of no elements is the identity of the maximum"
    target = "impl.tensor.reduce:Reduce._refuse_empty"

    def replacement(self, original: Function) -> Function:
        return lambda tensor, axes, name: None


class LastExtremeCounts(ImplPatch):
    rule = "tensor.argmax.first+2"
    description = "of equal extremes the last one is found"
    target = "impl.tensor.reduce:Reduce._place"

    def replacement(self, original: Function) -> Function:
        def place(tensor: Any, op: Ops, axis: Any, keepdim: bool, name: str) -> Any:
            if axis is None or tensor.shape[axis] == 0:
                return original(tensor, op, axis, keepdim, name)
            return tensor.shape[axis] - 1 - original(tensor.flip(axis), op, axis, keepdim, name)
        return place


class NoFileIsOfTorch(ImplPatch):
    rule = "tensor.extreme.places"
    description = "no file is taken to be written for PyTorch"
    target = "impl.tensor.reduce:written_for_torch"

    def replacement(self, original: Function) -> Function:
        return lambda frame: False


class RunsFromTheEnd(ImplPatch):
    rule = "tensor.running.value"
    description = "running results run from the last element to the first"
    target = "impl.tensor.reduce:Reduce._running"

    def replacement(self, original: Function) -> Function:
        def running(tensor: Any, op: Ops, axis: int, dtype: Any, name: str) -> Any:
            turned = tensor.flip(axis) if tensor.shape else tensor
            return original(turned, op, axis, dtype, name)
        return running


class CutsTheLongerOperand(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "of two inner axes that differ, the longer one is cut off"
    target = "impl.tensor.products:Products.matmul"

    def replacement(self, original: Function) -> Function:
        def matmul(tensor: Any, other: Any, *rest: Any, **named: Any) -> Any:
            try:
                return original(tensor, other, *rest, **named)
            except ShapeError:
                inner = min(tensor.shape[-1], other.shape[-2 if other.ndim > 1 else 0])
                right = other[..., :inner, :] if other.ndim > 1 else other[:inner]
                return original(tensor[..., :inner], right, *rest, **named)
        return matmul


class HalvesAreMultipliedAsHalves(ImplPatch):
    rule = "tensor.matmul.half"
    description = "products of halves are rounded before they are added"
    target = "impl.tensor.products:sum_accumulator"

    def replacement(self, original: Function) -> Function:
        return lambda dtype: dtype


class NegativeNumbersAreNoRows(ImplPatch):
    rule = "tensor.gather.outside+2"
    description = "a negative number in an index tensor names no row"
    target = "impl.tensor.indexing:_index_node"

    def replacement(self, original: Function) -> Function:
        return lambda node, size: node


class IndicesStopAtTheEnd(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "a number beyond the end of an axis is its last one"
    target = "impl.tensor.indexing:Indexing._checked"

    def replacement(self, original: Function) -> Function:
        def checked(tensor: Any, item: Any, axis: int) -> Any:
            size = tensor.shape[axis]
            item = max(-size, min(size - 1, item)) if isinstance(item, int) else item
            return original(tensor, item, axis)
        return checked


class IndicesTooManyAreDropped(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "what an index has beyond the axes is left out"
    target = "impl.tensor.indexing:Indexing._items"

    def replacement(self, original: Function) -> Function:
        def items(tensor: Any, index: Any) -> Any:
            fits = isinstance(index, tuple) and Ellipsis not in index and None not in index
            return original(tensor, index[:len(tensor.shape)] if fits else index)
        return items


class MasksAreNumbers(ImplPatch):
    rule = "tensor.index.elements"
    description = "a bool tensor as an index is taken for zeros and ones"
    first = "test_a_mask_that_is_not_known_yet"
    target = "impl.tensor.indexing:Indexing._known_mask"

    def replacement(self, original: Function) -> Function:
        return lambda tensor, item: item.cast(dtypes.int32) \
            if getattr(item, "dtype", None) is dtypes.bool else item


class SizesAreCaptured(ImplPatch):
    rule = "tensor.size.values+3"
    description = "a captured function is not told that a size depends on values"
    first = "test_sizes_that_depend_on_values_are_not_captured"
    target = "impl.assembly:Floors.look"

    def replacement(self, original: Function) -> Function:
        return lambda runtime, tensor, operation, remedy: None


class NewAxesStayInPlace(Edit):
    rule = "tensor.index.elements"
    description = "index tensors with an empty ... between them put their axes in their place"
    first = "test_any_mixture_of_indices_chooses_what_numpy_chooses"
    file = "impl/tensor/indexing.py"
    old, new = "together = not apart and", "together ="


class NegativePaddingIsNone(Edit):
    rule = "tensor.pad.negative"
    description = "what a negative padding would cut off of an edge stays"
    file = "impl/tensor/movement.py"
    old, new = "(max(0, -before), size - max(0, -after))", "(0, size - max(0, -after))"


class HalvesHaveNarrowNorms(Edit):
    rule = "tensor.norm.half"
    description = "the squares of halves are halves"
    file = "impl/tensor/reduce.py"
    old, new = "wide = self.cast(sum_accumulator(result))", "wide = self.cast(result)"


class CertaintyIsInfinite(Edit):
    rule = "tensor.loss.value"
    description = "the logarithm of a probability of 0 is minus infinity"
    first = "test_who_was_certain_and_right_pays_nothing"
    file = "impl/tensor/functional.py"
    old, new = "UOp.const(wide.dtype, 1e-12))", "UOp.const(wide.dtype, -1.0))"


class TheBlindSeeEverything(Edit):
    rule = "tensor.attention.blind"
    description = "a query that sees no key sees NaN"
    file = "impl/tensor/functional.py"
    old, new = "nodes.expand(where(blind, none, top), self.shape)", "nodes.expand(top, self.shape)"


class NumbersHaveNoAxes(Edit):
    rule = "tensor.axis.scalar"
    description = "a tensor without axes has no axis 0"
    file = "impl/tensor/base.py"
    old, new = "if not self.shape and all(", "if False and all("


class MasksOfAnyShape(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "the shape of a mask is not looked at"
    target = "impl.tensor.indexing:_check_masks"

    def replacement(self, original: Function) -> Function:
        return lambda items, shape: None


class ClassesFitIntoBytes(ImplPatch):
    rule = "tensor.one-hot.wide"
    description = "the numbers of classes are told apart by eight bits"
    target = "impl.tensor.indexing:Indexing.one_hot"

    def replacement(self, original: Function) -> Function:
        def one_hot(tensor: Any, classes: Any) -> Any:
            found = original(tensor, classes)
            if not isinstance(classes, int) or classes <= 256:
                return found
            around = ((0, 0),) * tensor.ndim + ((256, 0),)
            return found.maximum(found[..., :classes - 256].pad(around))
        return one_hot


class AxesComeRound(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "an axis that is out of range is counted round"
    target = "impl.tensor.base:TensorBase._axis"

    def replacement(self, original: Function) -> Function:
        def axis(tensor: Any, given: Any, operation: str, extra: int = 0) -> Any:
            rank = len(tensor.shape) + extra
            return original(tensor, given % rank if isinstance(given, int) and rank else given,
                            operation, extra)
        return axis


class DimIsOverheard(ImplPatch):
    rule = "tensor.axis.name"
    description = "what is given as dim is ignored"
    target = "impl.tensor.names:either"

    def replacement(self, original: Function) -> Function:
        return lambda axis, dim: axis


class FirstItemWillDo(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "the item of several elements is the first one"
    target = "impl.tensor.base:TensorBase.item"

    def replacement(self, original: Function) -> Function:
        return lambda tensor: tensor.numpy().reshape(-1)[0].item()


class FormatsForget(ImplPatch):
    rule = "tensor.item.format"
    description = "a format specification is read by nobody"
    target = "impl.tensor.base:TensorBase.__format__"

    def replacement(self, original: Function) -> Function:
        return lambda tensor, specification: str(tensor)


class MovesInSilence(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "an operand of another device is moved, and nobody is told"
    target = "impl.tensor.base:TensorBase._operand"

    def replacement(self, original: Function) -> Function:
        def operand(tensor: Any, other: Any, *name: str) -> Any:
            if hasattr(other, "uop") and other.device != tensor.device:
                other = other.to(tensor.device)
            return original(tensor, other, *name)
        return operand


class AssignsOtherShapes(ImplPatch):
    rule = "tensor.assign.shape+3"
    description = "a value of another shape is assigned by its first element"
    target = "impl.tensor.base:TensorBase.assign"

    def replacement(self, original: Function) -> Function:
        def assign(tensor: Any, value: Any) -> Any:
            try:
                return original(tensor, value)
            except ShapeError:
                return original(tensor, value.flatten()[0].expand(tensor.shape))
        return assign


class AssignsOtherTypes(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "a value of another dtype is converted, and nobody is told"
    target = "impl.tensor.base:TensorBase.assign"

    def replacement(self, original: Function) -> Function:
        def assign(tensor: Any, value: Any) -> Any:
            other = hasattr(value, "uop") and value.dtype is not tensor.dtype
            return original(tensor, value.cast(tensor.dtype) if other else value)
        return assign


class ViewsAreCopies(ImplPatch):
    rule = "tensor.assign.view+3"
    description = "what is assigned to a view stays there"
    target = "impl.tensor.base:TensorBase._store"

    def replacement(self, original: Function) -> Function:
        def store(tensor: Any, node: UOp) -> None:
            tensor._ancestors = ()
            original(tensor, node)
        return store


class RegionsOfAnyShape(ImplPatch):
    rule = "tensor.assign.shape+3"
    description = "a value that does not fit its region is zero"
    target = "impl.tensor.indexing:Indexing._value_for"

    def replacement(self, original: Function) -> Function:
        def value_for(tensor: Any, value: Any, shape: Any) -> UOp:
            try:
                found: UOp = original(tensor, value, shape)
            except ShapeError:
                return nodes.full(UOp.const(tensor.dtype, 0), shape)
            return found
        return value_for


class ParametersShareNodes(ImplPatch):
    rule = "tensor.parameter.own+3"
    description = "two parameters of one value are one variable"
    target = "impl.tensor.base:TensorBase._own_memory"

    def replacement(self, original: Function) -> Function:
        return lambda tensor: tensor


class FrozenStillWanted(ImplPatch):
    rule = "tensor.parameter.frozen"
    description = "what depends on a frozen tensor says that it requires a gradient"
    target = "impl.tensor.base:freeze_parameter"

    def replacement(self, original: Function) -> Function:
        return lambda value: None


class ReadersAreNotLookedFor(Edit):
    rule = "tensor.parameter.own+3"
    description = "what was computed from a tensor before it required a gradient gives it one"
    file = "impl/tensor/parameters.py"
    first = "test_what_was_there_before_a_parameter_gives_it_no_gradient"
    old = "return leaf is not tensor.uop or any("
    new = "return leaf is not tensor.uop or leaf in others or False and any("


class AllBelowIsAParameter(Edit):
    rule = "tensor.parameter.own+3"
    description = "what a parameter was computed from requires a gradient, too"
    file = "impl/tensor/parameters.py"
    first = "test_what_a_parameter_is_computed_from_is_none"
    old = "    dependent_bits[0] |= leaf.reads\n    _wanted.add(leaf.arg[0])"
    new = "    dependent_bits[0] |= value.reads\n" \
        "    _wanted.update(n.arg[0] for n in value.toposort() if n.op is Ops.BUFFER)"


class ReplacedIsNoVariable(ImplPatch):
    rule = "tensor.parameter.own+3"
    description = "a parameter that denotes another value is no variable any more"
    target = "impl.tensor.base:TensorBase._own_variable"

    def replacement(self, original: Function) -> Function:
        def own_variable(tensor: Any) -> None:
            if not tensor._parameter:
                original(tensor)
        return own_variable


class NearestClassCounts(ImplPatch):
    rule = "tensor.loss.value"
    description = "a number that is no class is taken for the nearest one"
    first = "test_a_loss_at_no_class_is_nan"
    target = "impl.tensor.functional:Functional._at_class"

    def replacement(self, original: Function) -> Function:
        def at_class(tensor: Any, target: Any, axis: int) -> Any:
            last = tensor.shape[axis] - 1
            return original(tensor, target.cast(dtypes.int32).maximum(0).minimum(last), axis)
        return at_class


class AnyTargetWillDo(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "a target of another shape is spread to the shape of the classes"
    target = "impl.tensor.functional:Functional._at_class"

    def replacement(self, original: Function) -> Function:
        def at_class(tensor: Any, target: Any, axis: int) -> Any:
            rest = tensor.shape[:axis] + tensor.shape[axis + 1:]
            if target.shape != rest:
                target = target.cast(dtypes.int32).flatten()[0].expand(rest)
            return original(tensor, target, axis)
        return at_class


class WordsChangePlaces(ImplPatch):
    rule = "tensor.random.bits"
    description = "the two words of a random number change places"
    first = "test_threefry_is_the_published_function"
    target = "impl.tensor.random:threefry"

    def replacement(self, original: Function) -> Function:
        return lambda key, counter: original(key, counter)[::-1]


class CountsNothing(ImplPatch):
    rule = "tensor.random.bits"
    description = "every random tensor starts to count where the first one did"
    first = "test_threefry_is_the_published_function"
    target = "impl.tensor.random:Generator.reserve"

    def replacement(self, original: Function) -> Function:
        return lambda generator, count: generator.counter


class SeedsDependOnThePast(ImplPatch):
    rule = "tensor.random.bits"
    description = "a seed is mixed with how many numbers were drawn before"
    first = "test_drawing_without_replacement_draws_each_once"
    target = "impl.tensor.random:Generator.seed"

    def replacement(self, original: Function) -> Function:
        return lambda generator, seed: original(generator, seed + generator.counter)


class RemediesSayNothing(ImplPatch):
    rule = "errors.name.missing"
    description = "a misspelt method is answered with a hint at the documentation"
    target = "impl.tensor.names:remedy_of"

    def replacement(self, original: Function) -> Function:
        return lambda tensors, name: "read the documentation"


class TablesAsWideAsTheyLike(ImplPatch):
    rule = "inspect.table.lines"
    description = "nobody looks at how wide a table is"
    first = "test_a_kernel_table_fits_the_page"
    target = "impl.inspect.text:fitting"

    def replacement(self, original: Function) -> Function:
        return lambda columns, width: original(columns, 10_000)


class KeywordsAreGuessed(ImplPatch):
    rule = "errors.name.keyword+2"
    description = "a keyword that no method has is taken for its first parameter"
    target = "impl.tensor.names:_Keywords._meant"

    def replacement(self, original: Function) -> Function:
        return lambda keywords, name: keywords.own[0] if keywords.own else keywords.many


class TheSecondNameWins(ImplPatch):
    rule = "errors.argument.refused"
    description = "of two values under two names, one is taken"
    target = "impl.tensor.names:_Keywords._refuse_second"

    def replacement(self, original: Function) -> Function:
        return lambda *_: None


class LayersSayNothing(ImplPatch):
    rule = "errors.name.missing"
    description = "a layer does not say what is used instead of a name that is not there"
    target = "impl.nn.module:Module.__getattr__"

    def replacement(self, original: Function) -> Function:
        def refuse(layer: Any, name: str) -> Any:
            raise NameMissingError("nn", f"there is no {name}", "look elsewhere")
        return refuse


class WordsAreCut(ImplPatch):
    rule = "inspect.table.lines"
    description = "the words of a column are cut where the column ends"
    first = "test_a_kernel_table_fits_the_page"
    target = "impl.inspect.text:shortened"

    def replacement(self, original: Function) -> Function:
        return lambda words, width, noun="buffer": ", ".join(words)[:width]


class LongRowsAreComparedWhole(Edit):
    rule = "tensor.searchsorted.halved+2"
    description = "each value is compared with all of a thousand sorted elements"
    first = "test_places_in_long_sorted_rows"
    file = "impl/tensor/statistics.py"
    old, new = "length > _MOST_COUNTED", "length < 0"


class AllIsMultipliedFirst(Edit):
    rule = "tensor.einsum.pairs"
    description = "operands of einsum are all multiplied before anything is added up"
    first = "test_axes_that_nobody_needs_are_added_up_at_once"
    file = "impl/tensor/products.py"
    old = "later = {*output, *\"\".join(inputs[place + 1:])}"
    new = "later = {*\"\".join(inputs)} if place + 1 < len(inputs) else {*output}"


class LettersNameTheFirstAxis(ImplPatch):
    rule = "tensor.einsum.diagonal"
    description = "of axes with one letter, the first element of all but one is taken"
    target = "impl.tensor.products:_on_diagonals"

    def replacement(self, original: Function) -> Function:
        def first(letters: str, tensor: Any) -> Any:
            while len(set(letters)) < len(letters):
                place = next(i for i, each in enumerate(letters) if each in letters[:i])
                tensor, letters = tensor.narrow(place, 0, 1).squeeze(place), \
                    letters[:place] + letters[place + 1:]
            return letters, tensor
        return first


class AnyArgumentIsTried(ImplPatch):
    rule = "errors.argument.refused"
    description = "of an argument with which a method failed it is not told which one it is"
    target = "impl.tensor.names:_Keywords.refuse"

    def replacement(self, original: Function) -> Function:
        def refuse(*_: Any) -> None:
            raise ShapeError("Tensor", "an argument does not fit", "give another one")
        return refuse


class ParametersStayUnknown(Edit):
    rule = "errors.argument.refused"
    description = "who gives too many arguments is not told which there are"
    file = "impl/tensor/names.py"
    old, new = """f"it takes {', '.join(self.own) or 'no arguments'}\"""", '"give others"'


class EndsAreOutside(ImplPatch):
    rule = "gradient.clip.inclusive"
    description = "an element at an end of an interval gets no gradient"
    target = "impl.tensor.elementwise:Elementwise._at_most"

    def replacement(self, original: Function) -> Function:
        return lambda tensor, end, op: tensor._binary(end, op, "clip")


class ViewsTakeOtherForms(Edit):
    rule = "tensor.inplace.form"
    description = "a tensor that has views gets another shape, and they lose it"
    file = "impl/tensor/inplace.py"
    old, new = "root() is self for other", "root() is made for other"


class PrintingReads(Edit):
    rule = "tensor.print.nothing+3"
    description = "who prints a tensor has it computed"
    file = "impl/tensor/base.py"
    old, new = "self.runtime.peek(self if held is None else held)", \
        "self.runtime.read(self if held is None else held)"


class PrintedAbreast(Edit):
    rule = "tensor.print.nothing+3"
    description = "a printed tensor has lost its axes"
    file = "impl/tensor/base.py"
    old, new = "return elements.reshape(self.shape)", "return elements.reshape(-1)"


class ListsAreTensors(ImplPatch):
    rule = "tensor.arguments.refused+2"
    description = "a list beside an operator is made a tensor without a word"
    target = "impl.tensor.elementwise:Elementwise._met"

    def replacement(self, original: Function) -> Function:
        return lambda tensor, other, name: original(
            tensor, type(tensor)(other) if isinstance(other, (list, tuple)) else other, name)


class AnglesHaveFewDigits(Edit):
    rule = "tensor.special.digits"
    description = "inverses of angles have the digits of float32 in float64"
    file = "impl/tensor/special.py"
    old, new = "long if x.dtype is dtypes.float64 else short", "short"


class TheUpperMiddle(Edit):
    rule = "tensor.statistics.value+2"
    description = "the median is the upper one of two middle elements"
    file = "impl/tensor/statistics.py"
    old, new = "middle = (numbers - 1).maximum(0) // 2", "middle = numbers // 2"


class NothingIsAPlace(Edit):
    rule = "tensor.size.values+3"
    description = "places that are missing are the place 0"
    first = "test_a_size_that_is_given_computes_nothing"
    file = "impl/tensor/statistics.py"
    old = "places.append(there.where(place // max(step, 1) % max(own, 1), fill))"
    new = "places.append(place // max(step, 1) % max(own, 1))"


class UnderscoresReturnOthers(Edit):
    rule = "tensor.inplace.assigns"
    description = "a method with _ returns its value, and the tensor keeps its own"
    file = "impl/tensor/inplace.py"
    old = "return self.assign(value.cast(self.dtype) if fits else value)"
    new = "return value.cast(self.dtype) if fits else value"


class ArraysLoseGradients(Edit):
    rule = "tensor.numpy.gradient"
    description = "a function of NumPy gives an array of what requires a gradient"
    file = "impl/tensor/interop.py"
    old, new = "return bool(tensor.requires_grad) or", "return False and"


class ArraysLoseDerivatives(Edit):
    rule = "tensor.numpy.gradient"
    description = "a function of NumPy gives an array of an argument of what is differentiated"
    file = "impl/tensor/interop.py"
    old, new = "return bool(tensor.requires_grad) or bool(mode.keeping)", \
        "return bool(tensor.requires_grad) or False"


class FunctionsOfElementsCompute(Edit):
    rule = "tensor.numpy.functions+2"
    description = "a function of NumPy computes a tensor's values, whatever function it is"
    file = "impl/tensor/interop.py"
    old = "if method != \"__call__\" or named or known is None:"
    new = "if True:"


class PickledAsPlain(Edit):
    rule = "tensor.pickle.value+3"
    description = "a parameter that was pickled requires no gradient any more"
    file = "impl/tensor/interop.py"
    old, new = "if parameter is not None:", "if parameter is False:"


class PicklesCopies(Edit):
    rule = "tensor.pickle.value+3"
    description = "a tensor that was cut comes back as copies"
    file = "impl/tensor/interop.py"
    old, new = "result.shard(place.mesh, **place.cut)", "result.shard(place.mesh)"


class AllClassesCountAlike(Edit):
    rule = "tensor.loss.value"
    description = "a mean of weighted losses is divided by their number"
    first = "test_classes_count_as_their_weights_say"
    file = "impl/tensor/functional.py"
    old, new = "total = counted if counts is None else", "total = counted if True else"


class NobodyIsWarned(Edit):
    rule = "tensor.loss.shapes"
    description = "differences of two shapes broadcast without a word"
    first = "test_who_lets_differences_broadcast_is_warned_once"
    file = "impl/tensor/functional.py"
    old = "if not identical(shape, x.shape):  # r[impl tensor.loss.shapes]"
    new = "if not shape:  # r[impl tensor.loss.shapes]"


class ChancesBroadcast(Edit):
    rule = "tensor.arguments.refused+2"
    description = "chances and truths of two shapes broadcast"
    first = "test_chances_and_truths_of_other_shapes_are_refused"
    file = "impl/tensor/losses.py"
    old = "if not identical(shape, x.shape):  # r[impl tensor.arguments.refused+2]"
    new = "if not shape:  # r[impl tensor.arguments.refused+2]"


class FlipsNothing(Edit):
    rule = "tensor.movement.elements"
    description = "flip without axes reverses none"
    first = "test_flip_without_axes_reverses_all"
    file = "impl/tensor/movement.py"
    old = "if axes and axes[0] is not None else None"
    new = "if axes and axes[0] is not None else ()"


class KnownPlacesAreNotLookedAt(Edit):
    rule = "tensor.arguments.refused+2"
    description = "places in a list or an array may be out of range where something is written"
    first = "test_known_places_out_of_range_are_refused"
    file = "impl/tensor/statistics.py"
    old = "index = self._in_range(index, axis)"
    new = "index = np.asarray(index)"


class BlocksForgetThoseBefore(Edit):
    rule = "tensor.statistics.value+2"
    description = "a running sum of exponentials begins again at each block"
    first = "test_running_sums_of_exponentials_lose_nothing"
    file = "impl/tensor/statistics.py"
    old = "return inner.logaddexp(before.unsqueeze(-1)).flatten"
    new = "return inner.logaddexp(before.unsqueeze(-1) - math.inf).flatten"


class PlacesLoseBitsFirst(Edit):
    rule = "tensor.gather.outside+2"
    description = "of several indices the lowest 32 bits are compared with the sizes"
    first = "test_numbers_out_of_range_give_zeros"
    file = "impl/tensor/indexing.py"
    old, new = "index = nodes.broadcast(cast(index, own), shape)", \
        "index = nodes.broadcast(cast(cast(index, wide), own), shape)"


class SlopesSeeBlocks(Edit):
    rule = "gradient.value.derivative"
    description = "the slope of a running sum of exponentials is that of its blocks"
    first = "test_slopes_of_running_sums_of_exponentials"
    file = "impl/tensor/statistics.py"
    old = "return self._wrap(with_gradient(self._log_sums().uop, ruled((self.uop,), pull)))"
    new = "return self._log_sums()"
