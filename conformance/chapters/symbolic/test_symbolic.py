"""Index arithmetic against plain evaluation: random expressions, any sign. See spec/symbolic.md."""
from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.trace import verifies
from impl import Tensor, symbolic
from impl.dtypes import dtypes
from impl.errors import GraphError, VariableError
from impl.ir import FALSE, TRUE, Ops, RangeKind, UOp, new_range
from impl.symbolic import Variable

LOOPS = [new_range(size, RangeKind.LOOP, 90 + number) for number, size in enumerate((2, 3, 8))]
VARIABLES = [Variable("offset", -5, 6).uop, Variable("size", 0, 9).uop]
ATOMS = [*LOOPS, *VARIABLES]
DIVISORS = (1, 2, 3, 4, 6, 8, 12, -3, -4, 0)
FACTORS = (-4, -1, 0, 2, 3, 4, 6, 8, 12)
BUILDERS: dict[Ops, Callable[[UOp, UOp], UOp]] = {
    Ops.ADD: symbolic.add, Ops.SUB: symbolic.sub, Ops.MUL: symbolic.mul,
    Ops.FLOORDIV: symbolic.floordiv, Ops.FLOORMOD: symbolic.mod,
    Ops.CMPLT: symbolic.less_than, Ops.CMPLE: symbolic.less_equal, Ops.CMPEQ: symbolic.equal}
Pair = tuple[UOp, UOp]  # the simplified node and the plain one

# One flat list of small steps: what a step refers to is found by counting back, so that any part
# of the list can be left out. That is what lets a failing example shrink.
STEPS = st.lists(st.tuples(st.sampled_from(list(BUILDERS)[:5]), st.integers(0, 40),
                           st.integers(0, 40)), min_size=1, max_size=14)
SEEDS = st.integers(0, 1 << 30)


def atom_or_number(choice: int) -> UOp:
    return ATOMS[choice % 5] if choice % 3 else symbolic.const(choice - 20)


def build(steps: list[tuple[Ops, int, int]]) -> Pair:
    """Both forms of the expression that the steps describe."""
    made: list[Pair] = []

    def operand(choice: int) -> Pair:
        if made and choice % 2:
            return made[-1 - (choice // 2) % min(len(made), 4)]
        leaf = atom_or_number(choice // 2)
        return leaf, leaf

    for op, first, second in steps:
        left, right = operand(first * 2 + 1), operand(second)
        if op in (Ops.FLOORDIV, Ops.FLOORMOD, Ops.MUL) and second % 8:
            numbers = FACTORS if op is Ops.MUL else DIVISORS
            number = symbolic.const(numbers[second % len(numbers)])
            right = number, number
        made.append(combine(op, left, right))
    return made[-1]


def combine(op: Ops, left: Pair, right: Pair) -> Pair:
    dtype = dtypes.bool if op >= Ops.CMPLT else dtypes.index
    return BUILDERS[op](left[0], right[0]), UOp(op, dtype, (left[1], right[1]))


def points(seed: int, count: int = 12) -> list[dict[UOp, int]]:
    """Some values for the atoms; the extremes are always among them."""
    chosen = random.Random(seed)
    limits = {atom: symbolic.bounds(atom) for atom in ATOMS}
    found = [{atom: limits[atom][side] for atom in ATOMS} for side in (0, 1)]
    found += [{a: chosen.randint(*limits[a]) for a in ATOMS} for _ in range(count)]
    return found


@verifies("symbolic.rewriting.equal")
@verifies("symbolic.bounds.sound")
@pytest.mark.parametrize("first, second", list(itertools.product(list(BUILDERS)[:5], repeat=2)))
def test_two_operations_on_numbers_of_any_sign(first: Ops, second: Ops) -> None:
    """All points, where the random test looks at some of many more expressions."""
    offset, size = VARIABLES
    numbers = symbolic.const(4), symbolic.const(-3), offset
    for left, number in itertools.product((offset, symbolic.add(size, -3)), numbers):
        inner = combine(first, (left, left), (number, number))
        simple, plain = combine(second, inner, (number, number))
        (low, high), widest = symbolic.bounds(simple), symbolic.bounds(plain)
        for point in ({offset: a, size: b} for a in range(-5, 7) for b in range(10)):
            value = symbolic.evaluate(plain, point)
            assert symbolic.evaluate(simple, point) == value
            assert low <= value <= high and widest[0] <= value <= widest[1]


@verifies("symbolic.rewriting.equal")
@pytest.mark.parametrize("constant", [-7, 0, 5])
@pytest.mark.parametrize("factor", [-2, 1, 3])
def test_halves_that_are_put_together(constant: int, factor: int) -> None:
    number = Variable("number", -30, 30).uop
    whole = symbolic.add(symbolic.mul(number, 5), constant)
    quotient, remainder = symbolic.floordiv(whole, 12), symbolic.mod(whole, 12)
    again = symbolic.add(symbolic.mul(quotient, 12 * factor), symbolic.mul(remainder, factor))
    assert again is symbolic.mul(whole, factor)


@verifies("symbolic.rewriting.equal")
def test_what_is_not_index_arithmetic_is_rebuilt_on_new_sources() -> None:
    loop, outer = LOOPS[2], new_range(2, RangeKind.LOOP, 210)
    inside = symbolic.less_than(loop, 5)
    most = UOp(Ops.MAXIMUM, dtypes.index, (loop, symbolic.const(3)))
    chosen = UOp(Ops.WHERE, dtypes.index, (inside, most, UOp(Ops.NEG, dtypes.index, (loop,))))
    rebuilt = symbolic.rebuild(chosen, {loop: symbolic.mul(outer, 6)})
    assert [symbolic.evaluate(rebuilt, {outer: value}) for value in (0, 1)] == [3, -6]


@verifies("symbolic.rewriting.equal")
@pytest.mark.parametrize("divisor", [3, 4, 7])
def test_an_index_under_a_condition(divisor: int) -> None:
    number = Variable("number", -9, 12).uop
    for low, high, shift in itertools.product((-9, 0, 2), (3, 8, 12), (0, 4)):
        condition = symbolic.logical_and(symbolic.less_equal(low, number),
                                         symbolic.less_equal(number, high))
        index = symbolic.add(number, shift)
        parts = symbolic.floordiv(index, divisor), symbolic.mod(index, divisor)
        assumed = [symbolic.assuming(part, condition) for part in parts]
        for value in range(low, high + 1):
            found = [symbolic.evaluate(part, {number: value}) for part in assumed]
            assert found == list(divmod(value + shift, divisor))


@verifies("symbolic.rewriting.equal")
def test_a_sum_under_a_condition() -> None:
    first, second, third = LOOPS
    place = symbolic.sub(symbolic.add(second, third), 1)
    other = symbolic.add(first, second)
    condition = symbolic.logical_and(
        symbolic.logical_and(symbolic.less_equal(0, place), symbolic.less_than(place, 8)),
        symbolic.less_equal(1, other))
    index = symbolic.add(symbolic.mul(symbolic.floordiv(place, 8), 50),
                         symbolic.add(symbolic.mod(place, 8), symbolic.mul(third, 9)))
    assumed = symbolic.assuming(index, condition)
    assert not [part for part in assumed.toposort() if part.op in (Ops.FLOORDIV, Ops.FLOORMOD)]
    for values in itertools.product(range(2), range(3), range(8)):
        point = dict(zip(LOOPS, values, strict=True))
        if symbolic.evaluate(condition, point):
            assert symbolic.evaluate(assumed, point) == symbolic.evaluate(index, point)


@verifies("symbolic.rewriting.equal")
@pytest.mark.parametrize("turned", [False, True])
def test_two_places_that_are_compared_with_each_other(turned: bool) -> None:
    """Where a window lies within an image: neither place has a bound of its own, their distance."""
    row, column = new_range(32, RangeKind.LOOP, 220), new_range(32, RangeKind.LOOP, 221)
    down, right = new_range(3, RangeKind.REDUCE, 222), new_range(3, RangeKind.REDUCE, 223)
    condition = symbolic.const(1)
    for place, within in ((row, down), (column, right)):
        sides = [symbolic.less_than(within, symbolic.add(place, 2)),
                 symbolic.less_than(place, symbolic.add(within, 31))]
        for side in sides[::-1] if turned else sides:
            condition = side if condition.op is Ops.CONST else symbolic.logical_and(condition, side)
    index = symbolic.add(symbolic.add(symbolic.mul(symbolic.sub(row, down), 32),
                                      symbolic.sub(column, right)), 33)
    beyond = symbolic.mul(symbolic.floordiv(index, 1024), 7)
    wrapped = symbolic.add(symbolic.mod(index, 1024), beyond)
    assumed = symbolic.assuming(wrapped, condition)
    assert assumed is index
    for last in (31, 0):  # the index is 1023, and 0
        corner = {row: last, column: last, down: 1, right: 1}
        near = symbolic.assuming(symbolic.mod(index, 1023), condition)
        assert symbolic.evaluate(condition, corner)
        assert symbolic.evaluate(near, corner) == symbolic.evaluate(index, corner) % 1023


@verifies("symbolic.rewriting.equal")
@given(STEPS, st.integers(-6, 9), st.booleans(), SEEDS)
@settings(max_examples=200)
def test_what_is_assumed_of_two_variables(steps: list[tuple[Ops, int, int]], limit: int,
                                          turned: bool, seed: int) -> None:
    simple, plain = build(steps)
    sides = [VARIABLES[0], symbolic.add(symbolic.mul(VARIABLES[1], 1 + limit % 2), limit)]
    condition = symbolic.less_than(*sides[::-1] if turned else sides)
    assumed = symbolic.assuming(simple, condition)
    for point in points(seed):
        if symbolic.evaluate(condition, point):
            assert symbolic.evaluate(assumed, point) == symbolic.evaluate(plain, point)


@verifies("symbolic.rewriting.equal")
@verifies("symbolic.bounds.sound")
@given(STEPS, SEEDS)
@settings(max_examples=300)
def test_simplified_equals_plain(steps: list[tuple[Ops, int, int]], seed: int) -> None:
    simple, plain = build(steps)
    low, high = symbolic.bounds(simple)
    widest = symbolic.bounds(plain)
    for point in points(seed):
        value = symbolic.evaluate(plain, point)
        assert symbolic.evaluate(simple, point) == value
        assert low <= value <= high
        assert widest[0] <= value <= widest[1]


@verifies("symbolic.rewriting.equal")
@given(STEPS, st.integers(-6, 9), SEEDS)
@settings(max_examples=200)
def test_rebuilt_and_assumed_equal_plain(steps: list[tuple[Ops, int, int]], limit: int,
                                         seed: int) -> None:
    simple, plain = build(steps)
    outer = new_range(2, RangeKind.LOOP, 200)
    inner = new_range(4, RangeKind.LOOP, 201)
    tile = symbolic.add(symbolic.mul(outer, 4), inner)
    rebuilt = symbolic.rebuild(plain, {LOOPS[2]: tile})
    narrow = [symbolic.less_than(VARIABLES[0], limit), symbolic.less_equal(limit, VARIABLES[1])]
    condition = symbolic.logical_and(*narrow)
    assumed = symbolic.assuming(simple, condition)
    for point in points(seed):
        value = symbolic.evaluate(plain, point)
        parts = {outer: point[LOOPS[2]] // 4, inner: point[LOOPS[2]] % 4}
        assert symbolic.evaluate(rebuilt, {**point, **parts}) == value
        if symbolic.evaluate(condition, point):
            assert symbolic.evaluate(assumed, point) == value


@verifies("symbolic.floor.exact")
@pytest.mark.parametrize("divisor", [d for d in range(-9, 10) if d])
def test_floor_for_all_signs(divisor: int) -> None:
    number = Variable("number", -30, 30).uop
    for factor, constant in itertools.product((-7, -2, 1, 3, 12), (-5, 0, 4)):
        whole = symbolic.add(symbolic.mul(number, factor), constant)
        quotient, remainder = symbolic.floordiv(whole, divisor), symbolic.mod(whole, divisor)
        for value in range(-30, 31):
            x = value * factor + constant
            got = [symbolic.evaluate(part, {number: value}) for part in (quotient, remainder)]
            assert got == [x // divisor, x % divisor]
        assert symbolic.floordiv(constant, divisor).arg == constant // divisor


@verifies("symbolic.sum.canonical")
def test_sums_do_not_depend_on_order() -> None:
    terms = [symbolic.mul(atom, factor) for atom, factor in zip(ATOMS, (5, -2, 1, 7, 3),
                                                                strict=True)]
    sums = set()
    for order in itertools.permutations(terms):
        whole = symbolic.const(4)
        for term in order:
            whole = symbolic.add(whole, term)
        sums.add(whole)
        sums.add(symbolic.total([*order, 4]))
    assert len(sums) == 1
    assert symbolic.text(sums.pop()) == "offset*7 + size*3 + r90*5 + r91*-2 + r92 + 4"


@verifies("symbolic.division.simple")
def test_reshapes_cancel() -> None:
    """Every reshape there and back leaves the index as it was."""
    shapes = [(24,), (4, 6), (6, 4), (2, 3, 4), (3, 8), (2, 12), (4, 3, 2)]
    for first, second in itertools.product(shapes, shapes):
        index = [new_range(size, RangeKind.LOOP, n) for n, size in enumerate(first)]
        there = unflatten(flatten(index, first), second)
        assert unflatten(flatten(there, second), first) == index


def flatten(index: list[UOp], shape: tuple[int, ...]) -> UOp:
    flat = symbolic.const(0)
    for position, size in zip(index, shape, strict=True):
        flat = symbolic.add(symbolic.mul(flat, size), position)
    return flat


def unflatten(flat: UOp, shape: tuple[int, ...]) -> list[UOp]:
    index = []
    for size in reversed(shape):
        index.append(symbolic.mod(flat, size))
        flat = symbolic.floordiv(flat, size)
    return index[::-1]


@verifies("symbolic.division.simple")
def test_small_terms_vanish() -> None:
    small, large = new_range(4, RangeKind.LOOP, 0), new_range(100, RangeKind.LOOP, 1)
    whole = symbolic.add(symbolic.mul(large, 4), small)
    assert symbolic.floordiv(whole, 4) is large
    assert symbolic.mod(whole, 4) is small
    assert symbolic.mod(small, 4) is small
    assert symbolic.floordiv(small, 4) is symbolic.const(0)
    assert symbolic.less_than(whole, 40) is symbolic.less_than(large, 10)
    assert symbolic.floordiv(symbolic.sub(3, small), 4) is symbolic.const(0)


@verifies("symbolic.division.simple")
def test_nested_divisions_join() -> None:
    number = Variable("number", -1000, 1000).uop
    nested = symbolic.floordiv(symbolic.add(symbolic.floordiv(number, 5), 2), 7)
    assert nested is symbolic.floordiv(symbolic.add(number, 10), 35)
    assert symbolic.mod(symbolic.mod(number, 12), 4) is symbolic.mod(number, 4)
    halved = symbolic.floordiv(symbolic.mod(number, 12), 4)
    assert halved is symbolic.mod(symbolic.floordiv(number, 4), 3)


@verifies("symbolic.division.loop")
def test_a_loop_stays_below_its_number_of_iterations() -> None:
    size, other = VARIABLES[1], Variable("other", 0, 9).uop
    loop = new_range(size, RangeKind.LOOP, 93)
    assert symbolic.mod(loop, size) is loop
    assert symbolic.floordiv(loop, size) is symbolic.const(0)
    assert symbolic.mod(loop, other).op is Ops.FLOORMOD
    assert symbolic.floordiv(loop, other).op is Ops.FLOORDIV


@verifies("symbolic.comparison.implied")
def test_comparisons_are_decided() -> None:
    small, large = LOOPS[0], LOOPS[2]
    assert symbolic.less_than(small, 2) is TRUE
    assert symbolic.less_than(large, small) is not TRUE
    assert symbolic.less_equal(8, large) is FALSE
    assert symbolic.less_than(large, large) is FALSE
    assert symbolic.less_equal(large, large) is TRUE
    assert symbolic.equal(symbolic.add(large, 1), 0) is FALSE
    assert symbolic.equal(symbolic.mul(large, 2), 7) is FALSE
    assert symbolic.equal(large, large) is TRUE


@verifies("symbolic.comparison.implied")
def test_weaker_limits_vanish() -> None:
    x = LOOPS[2]
    strong, weak = symbolic.less_than(x, 3), symbolic.less_than(x, 5)
    assert symbolic.logical_and(weak, strong) is strong
    assert symbolic.logical_and(strong, weak) is strong
    assert symbolic.logical_and(strong, symbolic.less_than(3, x)) is FALSE
    assert symbolic.logical_and(True, strong) is strong
    assert symbolic.logical_and(strong, False) is FALSE
    assert symbolic.conjuncts(TRUE) == []


@verifies("symbolic.comparison.implied")
@pytest.mark.parametrize("low, high", [(0.0, 1.0), (0.5, 0.9), (0.5, 1.5)])
def test_between_two_whole_numbers_there_are_floats(low: float, high: float) -> None:
    number = UOp(Ops.DEFINE_VAR, dtypes.float32, (), ("x", low, high))
    above = UOp(Ops.CMPLT, dtypes.bool, (UOp.const(dtypes.float32, low), number))
    below = UOp(Ops.CMPLT, dtypes.bool, (number, UOp.const(dtypes.float32, high)))
    both = symbolic.logical_and(above, below)
    assert symbolic.conjuncts(both) == [above, below]


@verifies("symbolic.comparison.implied")
def test_a_vector_of_floats_between_two_limits() -> None:
    numbers = np.linspace(-2, 2, 37, dtype=np.float32)  # as long as a vector, and not so long
    x = Tensor(numbers)
    assert ((x > 0) & (x < 1)).tolist() == ((numbers > 0) & (numbers < 1)).tolist()


@verifies("symbolic.comparison.implied")
@given(STEPS, STEPS, st.sampled_from(list(BUILDERS)[5:]), SEEDS)
@settings(max_examples=200)
def test_conditions_equal_plain(first: list[tuple[Ops, int, int]],
                                second: list[tuple[Ops, int, int]], op: Ops, seed: int) -> None:
    left, right = build(first), build(second)
    condition, plain = combine(op, left, right)
    limited = symbolic.logical_and(symbolic.less_than(left[0], seed % 20), condition)
    for point in points(seed):
        held = symbolic.evaluate(plain, point)
        assert symbolic.evaluate(condition, point) == held
        small = symbolic.evaluate(left[1], point) < seed % 20
        assert symbolic.evaluate(limited, point) == (small and held)
    low, high = symbolic.bounds(left[0])
    least, most = symbolic.bounds(right[0])
    if op is Ops.CMPLT and (high < least or low >= most):
        assert condition in (TRUE, FALSE)


@verifies("symbolic.depth.iterative")
def test_deep_expressions_whose_bounds_nobody_asked_for() -> None:
    x = new_range(1 << 60, RangeKind.LOOP, 0)
    plain = x
    for level in range(10_000):
        plain = UOp((Ops.ADD, Ops.MAXIMUM)[level % 2], dtypes.index, (plain, symbolic.const(level)))
    assert symbolic.bounds(plain)[0] == symbolic.evaluate(plain, {x: 0})
    assert symbolic.less_than(plain, 0) is FALSE


@verifies("symbolic.depth.iterative")
def test_deep_expressions() -> None:
    x = new_range(1 << 60, RangeKind.LOOP, 0)
    remainder = quotient = x
    for level in range(10_000):
        remainder = symbolic.mod(remainder, (1 << 30) - 7 * level)
        quotient = symbolic.add(symbolic.mul(symbolic.floordiv(quotient, 3), 2), 1)
    assert len(remainder.toposort()) > 10_000
    value = {x: 987654321}
    plain = 987654321
    for _ in range(10_000):
        plain = plain // 3 * 2 + 1
    assert symbolic.evaluate(quotient, value) == plain
    assert symbolic.evaluate(symbolic.floordiv(quotient, 2), value) == plain // 2
    assert symbolic.rebuild(remainder) is remainder


@verifies("symbolic.bounds.sound")
def test_bounds_of_loads_and_casts() -> None:
    pointer = UOp(Ops.PARAM, dtypes.uint8, (), 0)
    place = UOp(Ops.INDEX, dtypes.uint8, (pointer, symbolic.const(0), TRUE))
    load = UOp(Ops.LOAD, dtypes.uint8, (place,))
    assert symbolic.bounds(load) == (0, 255)
    wide = UOp(Ops.CAST, dtypes.index, (load,))
    assert symbolic.less_than(wide, 256) is TRUE
    assert symbolic.mod(wide, 1000) is wide
    wrapped = UOp(Ops.ADD, dtypes.uint8, (load, load))
    assert symbolic.bounds(wrapped) == (0, 255)
    with pytest.raises(GraphError, match="floating"):
        symbolic.bounds(UOp.const(dtypes.float32, 1.0))


@verifies("symbolic.variable.refused")
def test_empty_interval_is_refused() -> None:
    for least, greatest in ((3, 2), (0, -1), (-2, -9), (1, -1)):
        with pytest.raises(VariableError, match="length"):
            Variable("length", least, greatest)
    assert Variable("length", -2, -2).minimum == -2


@verifies("symbolic.variable.refused")
def test_names_of_the_package_are_refused() -> None:
    for name in ("random#0", "random-key#0", "#", "n#"):
        with pytest.raises(VariableError, match=name) as caught:
            Variable(name, 0, 9)
        assert caught.value.remedy


@verifies("symbolic.variable.refused")
@pytest.mark.parametrize("wrong", [3.5, 3.0, "3", None, [3]])
def test_what_is_no_whole_number_is_refused(wrong: Any) -> None:
    length = Variable("length", 1, 10)
    for attempt in (lambda: length.bind(wrong), lambda: Variable("length", wrong, 10),
                    lambda: Variable("length", 1, wrong)):
        with pytest.raises(VariableError, match="is no whole number") as caught:
            attempt()
        assert caught.value.remedy
    given: Any = np.int64(3)
    assert Variable.unbind(length.bind(given))[1] == 3


@verifies("symbolic.variable.refused")
def test_binding_outside_is_refused() -> None:
    length = Variable("length", 1, 10)
    variable, value = Variable.unbind(length.bind(10))
    assert (variable.uop, value) == (length.uop, 10)
    assert symbolic.bounds(length.bind(3)) == (1, 10)  # a plan serves every value
    for wrong in (0, 11):
        with pytest.raises(VariableError, match=f"length = {wrong} is not from 1 to 10"):
            length.bind(wrong)
