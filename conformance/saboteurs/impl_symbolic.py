"""Mistakes in index arithmetic, in bounds and in variables."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.saboteurs.edits import Edit
from conformance.saboteurs.impl_patches import ImplPatch


class TheRestIsForgotten(Edit):
    rule = "symbolic.rewriting.equal"
    description = "a variable of a limited sum is taken for the sum"
    first = "test_a_sum_under_a_condition"
    file = "impl/symbolic/rebuild.py"
    old, new = "forth[atom] = sub(variable, sub(limited, atom))", "forth[atom] = variable"


class DividesLikeC(Edit):
    rule = "symbolic.floor.exact"
    description = "a quotient of two numbers is rounded towards zero"
    file = "impl/symbolic/arithmetic.py"
    old = "return const(left.arg // divisor if divisor else 0)"
    new = "return const(int(left.arg / divisor) if divisor else 0)"


class NegativeDivisorsKeepTheSign(Edit):
    rule = "symbolic.floor.exact"
    description = "a remainder by a negative divisor has the sign of a positive one"
    file = "impl/symbolic/arithmetic.py"
    old = "return mul(mod(mul(left, -1), -divisor), -1)"
    new = "return mod(left, -divisor)"


class ConstantsAreNotMultiplied(Edit):
    rule = "symbolic.rewriting.equal"
    description = "in a sum times a number the constant stays as it was"
    first = "test_two_operations_on_numbers_of_any_sign"
    file = "impl/symbolic/arithmetic.py"
    old = "for atom, f in terms.items()}, constant * factor)"
    new = "for atom, f in terms.items()}, constant)"


class RecombinesWithoutTheConstant(Edit):
    rule = "symbolic.rewriting.equal"
    description = "a quotient and a remainder put together lose the constant of their number"
    first = "test_halves_that_are_put_together"
    file = "impl/symbolic/arithmetic.py"
    old, new = "constant += factor * extra", "constant += 0 * extra"


class CornersInOrder(Edit):
    rule = "symbolic.bounds.sound"
    description = "the least product is taken to be that of the least factors"
    file = "impl/symbolic/bounds.py"
    old, new = "return min(values), max(values)", "return values[0], values[-1]"


class TermsStandAsTheyCame(Edit):
    rule = "symbolic.sum.canonical"
    description = "the terms of a sum stand in the order in which they were added"
    file = "impl/symbolic/terms.py"
    old = "sorted(terms.items(), key=term_order) if len(terms) > 1 else terms.items()"
    new = "terms.items()"


class OnlyNumbersAreDecided(Edit):
    rule = "symbolic.division.simple"
    description = "the quotient of a rest is decided only where the rest is a number"
    first = "test_reshapes_cancel"
    file = "impl/symbolic/arithmetic.py"
    old = "if low // divisor == high // divisor:  # r[impl symbolic.division.simple]"
    new = "if low == high:"


class LoopsAreDividedByTheirSize(Edit):
    rule = "symbolic.division.loop"
    description = "a loop over as many places as there are so far is divided by their number"
    first = "test_a_loop_stays_below_its_number_of_iterations"
    file = "impl/symbolic/arithmetic.py"
    old, new = "if counts or 0 <= low", "if 0 <= low"


class EveryLoopIsBelowEverySize(Edit):
    rule = "symbolic.division.loop"
    description = "any loop over a size that is known at run time is taken to stay below any other"
    first = "test_a_loop_stays_below_its_number_of_iterations"
    file = "impl/symbolic/arithmetic.py"
    old, new = "left.op is Ops.RANGE and left.src[0] is right", "left.op is Ops.RANGE"


class OpensMultiplesOnly(Edit):
    rule = "symbolic.division.simple"
    description = "a quotient in a quotient is opened where one divisor divides the other"
    first = "test_nested_divisions_join"
    file = "impl/symbolic/arithmetic.py"
    old = "if alone and atom.op is _FLOORDIV and _positive(atom.src[1]):"
    new = "if alone and atom.op is _FLOORDIV and _multiple(atom, divisor):"


class EqualDivisorsOnly(Edit):
    rule = "symbolic.division.simple"
    description = "a remainder in a remainder vanishes where both divisors are equal"
    first = "test_nested_divisions_join"
    file = "impl/symbolic/arithmetic.py"
    old = "factor * atom.src[1].arg % divisor == 0):"
    new = "factor * atom.src[1].arg == divisor):"


class BoundsByRecursion(Edit):
    rule = "symbolic.depth.iterative"
    description = "the bounds of a node are found by a function that calls itself"
    file = "impl/symbolic/bounds.py"
    old, new = "stack.extend(waiting)", "list(map(bounds, waiting))"


class LeavesOpenWhatIsEqual(Edit):
    rule = "symbolic.comparison.implied"
    description = "a < b is left open where the least a is the greatest b"
    first = "test_comparisons_are_decided"
    file = "impl/symbolic/comparison.py"
    old, new = "if low >= limit:", "if low > limit:"


class KeepsTheWeakerLimit(Edit):
    rule = "symbolic.comparison.implied"
    description = "of two limits the one that the other implies is kept"
    first = "test_weaker_limits_vanish"
    file = "impl/symbolic/comparison.py"
    old, new = "if (limit[2] > known[2]) == limit[1]:", "if (limit[2] > known[2]) != limit[1]:"


class FloatsAreWhole(Edit):
    rule = "symbolic.comparison.implied"
    description = "two limits of a float between which no whole number lies exclude each other"
    first = "test_between_two_whole_numbers_there_are_floats"
    file = "impl/symbolic/comparison.py"
    old = "if condition.op is not _CMPLT or condition.src[0].dtype is not _index:"
    new = "if condition.op is not _CMPLT:"


class OtherOperationsStay(Edit):
    rule = "symbolic.rewriting.equal"
    description = "what is not built by a function of its own keeps its old sources"
    first = "test_what_is_not_index_arithmetic_is_rebuilt_on_new_sources"
    file = "impl/symbolic/rebuild.py"
    old = "return node if sources == node.src else node.replace(src=sources)"
    new = "return node"


class LimitsCountAsExcluded(Edit):
    rule = "symbolic.rewriting.equal"
    description = "the greatest value under a condition is taken to be one less"
    first = "test_an_index_under_a_condition"
    file = "impl/symbolic/rebuild.py"
    old, new = "else (low, min(high, value))", "else (low, min(high, value - 1))"


class NegativeIntervalsAreNotChecked(Edit):
    rule = "symbolic.variable.refused"
    description = "an empty interval is refused only where its bounds are positive"
    first = "test_empty_interval_is_refused"
    file = "impl/symbolic/variable.py"
    old, new = "if minimum > maximum:", "if minimum > maximum > 0:"


class CutsFractions(Edit):
    rule = "symbolic.variable.refused"
    description = "a value of 3.5 is taken for 3"
    first = "test_what_is_no_whole_number_is_refused"
    file = "impl/symbolic/variable.py"
    old, new = 'if not hasattr(value, "__index__"):', 'if not hasattr(value, "__int__"):'


class KnowsItsOwnNamesOnly(Edit):
    rule = "symbolic.variable.refused"
    description = "only the names that random numbers have today are refused"
    first = "test_names_of_the_package_are_refused"
    file = "impl/symbolic/variable.py"
    old, new = 'if "#" in name:', 'if name.startswith("random#"):'


class BindsBeyondTheInterval(Edit):
    rule = "symbolic.variable.refused"
    description = "a value above the interval is bound"
    first = "test_binding_outside_is_refused"
    file = "impl/symbolic/variable.py"
    old, new = "if not self.minimum <= value <= self.maximum:", "if not self.minimum <= value:"


class VariablesAreTheirLeastValue(ImplPatch):
    rule = "symbolic.variable.refused"
    description = "a variable that is used as a number is its least value"
    first = "test_a_variable_without_a_value_is_refused"
    target = "impl.symbolic.variable:Variable.__int__"

    def replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda variable: variable.minimum


class VariablesEqualNoNumber(Edit):
    rule = "symbolic.variable.refused"
    description = "a variable without a value is unequal to every number"
    first = "test_a_variable_without_a_value_is_refused"
    file = "impl/symbolic/variable.py"
    old = 'if hasattr(other, "__sub__") and not isinstance(other, Variable):'
    new = 'if not hasattr(other, "__hash__"):'
