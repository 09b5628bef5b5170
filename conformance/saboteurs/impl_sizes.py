"""Mistakes with sizes that depend on variables: values where expressions belong, and the reverse.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch

Function = Callable[..., Any]


class SizesByValue(ImplPatch):
    rule = "caching.key.circumstances"
    description = "the key has the value of a size, so that every value has a plan of its own"
    first = "test_values_of_sizes_are_not_in_the_key"
    target = "impl.caching.rows:_Describer._size"

    def replacement(self, original: Function) -> Function:
        return lambda describer, size: (*original(describer, size), int.__index__(size))


class SizesNotDescribed(ImplPatch):
    rule = "caching.key.circumstances"
    description = "the key does not say which expression a size is"
    first = "test_values_of_sizes_are_not_in_the_key"
    target = "impl.caching.rows:_Describer._size"

    def replacement(self, original: Function) -> Function:
        def described(describer: Any, size: Any) -> Any:
            original(describer, size)
            return ("size",)
        return described


class IntervalsForgotten(ImplPatch):
    rule = "caching.key.circumstances"
    description = "the key does not have the intervals of the variables in a size"
    first = "test_values_of_sizes_are_not_in_the_key"
    target = "impl.caching.rows:_Describer._rows"

    def replacement(self, original: Function) -> Function:
        return lambda describer, expression: (row[:2] for row in original(describer, expression))


class SizesOfTheFirstCall(ImplPatch):
    rule = "memory.size.greatest"
    description = "temporaries are as large as they can be small"
    target = "impl.schedule:Storage.nbytes"

    def replacement(self, original: Any) -> Any:
        from impl.symbolic import Size, bounds
        return property(lambda storage: storage.dtype.itemsize * (
            max(0, bounds(storage.size.expression)[0]) if isinstance(storage.size, Size)
            else storage.size))


class EqualByNumber(ImplPatch):
    rule = "symbolic.size.compared"
    description = "two sizes in a plan are equal if their greatest values are"
    first = "test_sizes_in_a_plan"
    target = "impl.symbolic.size:Extent.__eq__"

    def replacement(self, original: Function) -> Function:
        return lambda size, other: int.__eq__(size, other)


class LeastForGreatest(ImplPatch):
    rule = "symbolic.size.greatest"
    description = "a size in a plan is the least that it can be"
    target = "impl.symbolic.size:bounds"

    def replacement(self, original: Function) -> Function:
        return lambda expression: original(expression)[::-1]


class HashOfTheNumber(ImplPatch):
    rule = "symbolic.size.compared"
    description = "a size is interned as the int that it is today"
    first = "test_equal_today_is_not_equal"
    target = "impl.symbolic.size:Size.__hash__"

    def replacement(self, original: Function) -> Function:
        return lambda size: int.__hash__(size)


class FactorsLost(ImplPatch):
    rule = "symbolic.size.arithmetic"
    description = "a product of sizes forgets the constant of the second one"
    target = "impl.symbolic.size:product"

    def replacement(self, original: Function) -> Function:
        from impl.symbolic import sub
        from impl.symbolic.terms import terms_of
        return lambda left, right: original(left, sub(right, terms_of(right)[1])
                                            if terms_of(right)[0] else right)


class NothingNoted(ImplPatch):
    rule = "symbolic.size.watched"
    description = "a capture takes no note of comparisons"
    target = "impl.symbolic.size:_Watch.note"

    def replacement(self, original: Function) -> Function:
        return lambda watch, condition, outcome: None


class OneIsAlwaysOne(ImplPatch):
    rule = "symbolic.size.general"
    description = "a size that is 1 today is taken for the number 1"
    target = "impl.symbolic.size:is_number"

    def replacement(self, original: Function) -> Function:
        return lambda size, value: int.__eq__(int.__index__(size), value)


class BoundsNotChecked(ImplPatch):
    rule = "tensor.index.elements"
    description = "a slice by a variable may go beyond the tensor"
    first = "test_slices_are_those_of_python"
    target = "impl.tensor.indexing:_indices"

    def replacement(self, original: Function) -> Function:
        def indices(item: slice, size: int) -> tuple[int, int, int]:
            start, stop, step = original(item, size)
            return start, stop if item.stop is None else item.stop, step
        return indices


class StartsMixedUp(ImplPatch):
    rule = "tensor.index.elements"
    description = "a kernel with several variables gets them in another order"
    first = "test_slices_are_those_of_python"
    target = "impl.schedule.passes:variable_slots"

    def replacement(self, original: Function) -> Function:
        return lambda kernels, canonical: [slots[::-1] for slots in original(kernels, canonical)]


class GuardsNotAsked(ImplPatch):
    rule = "replay.sizes.same"
    description = "a replay does not look whether a comparison has another outcome"
    target = "impl.replay.recording:Recording._other_outcome"

    def replacement(self, original: Function) -> Function:
        return lambda recording, arguments: ""


class FloatsAreComparedUnseen(Edit):
    rule = "replay.sizes.same"
    description = "a float that is compared with a size takes its value, and nobody notes it"
    first = "test_numbers_that_python_takes_out_of_a_size"
    file = "impl/symbolic/size.py"
    old, new = "        elif isinstance(other, (numbers", \
        "        elif False and isinstance(other, (numbers"


class FloatsComeLast(Edit):
    rule = "replay.sizes.same"
    description = "a float on the left of a size is taken for something that asks the size"
    first = "test_numbers_that_python_takes_out_of_a_size"
    file = "impl/following/instructions.py"
    old, new = "    if may_be_float(left):\n", "    if False:\n"


class LengthsAreSizes(Edit):
    rule = "replay.sizes.same"
    description = "the number that Python makes of a length is not noted"
    first = "test_numbers_that_python_takes_out_of_a_size"
    file = "impl/tensor/base.py"
    old, new = "return int(self.shape[0])", "return self.shape[0]"


class ValuesAreUnboundUnseen(Edit):
    rule = "symbolic.bound.number"
    description = "who takes a bound variable apart has its value, and nobody notes it"
    first = "test_numbers_that_python_takes_out_of_a_size"
    file = "impl/ir.py"
    old, new = "return self.src[0], int(self)", "return bound_parts(self)"


class OneCaptureWillDo(ImplPatch):
    rule = "replay.sizes.same"
    description = "a capture is replayed for other values at once"
    target = "impl.replay.recording:Recording.unsure"

    def replacement(self, original: Function) -> Function:
        return lambda recording, arguments: False


class MemoryOfTheCapture(ImplPatch):
    rule = "replay.sizes.follow+3"
    description = "outputs of a replay are as large as in the capture"
    target = "impl.replay.recording:Recording._size"

    def replacement(self, original: Function) -> Function:
        return lambda recording, buffer, arguments: buffer.size


class ShapesOfTheCapture(ImplPatch):
    rule = "replay.sizes.follow+3"
    description = "results of a replay have the shapes of the capture"
    target = "impl.replay.arguments:Arguments.again"

    def replacement(self, original: Function) -> Function:
        return lambda arguments, shape, paths: shape
