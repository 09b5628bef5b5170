"""What each statement of a program means, one by one.  Chapter: spec/statements.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations, product
from typing import Any

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft
from conformance.protocol import FLOATS, INTEGERS, Array, Program, Statement
from conformance.runner.subject import Failure, Subject
from conformance.suite import after, verifies

SIGNED = ("int8", "int16", "int32", "int64")
INF, NAN = float("inf"), float("nan")
#: Numbers of both signs with all their digits; the same ones everywhere.
DIGITS = np.random.default_rng(7).standard_normal(60) * 10.0 ** np.arange(-4, 8).repeat(5)


def given(draft: Draft, elements: Any, dtype: str) -> str:
    """An input with these elements."""
    with np.errstate(all="ignore"):
        array: Array = np.asarray(elements).astype(dtype)
    return draft.add("input", dtype=dtype, shape=list(array.shape), data=protocol.encode(array))


@contextmanager
def shown(subject: Subject, *, between: bool = True) -> Iterator[Draft]:
    """A program to write; all its variables are observed and compared with the oracle's.

    Without `between`, only those are that no statement reads: what leads to them may be put
    together in another way, and is never in memory.
    """
    draft = Draft()
    yield draft
    read = {name for each in draft.statements for name in each.get("from", ())}
    draft.append({"do": "observe", "names": [name for name in draft.kinds
                                             if between or name not in read]})
    subject.check_declared(protocol.program(draft.statements))


def pairs(draft: Draft, elements: Sequence[Any], dtype: str) -> tuple[str, str]:
    """Two inputs: each of the elements against each."""
    array = np.array(elements, dtype)
    return (given(draft, np.repeat(array, len(array)), dtype),
            given(draft, np.tile(array, len(array)), dtype))


def limits(dtype: str) -> list[Any]:
    """Numbers of a dtype where it ends, and some between."""
    if dtype == "bool":
        return [False, True]
    if dtype in FLOATS:
        return [-INF, -2.5, -1.0, -0.0, 0.0, 0.5, 3.0, INF, NAN]
    info = np.iinfo(dtype)
    return [info.min, info.min + 1, info.max // 2, 0, 1, 5, info.max - 1, info.max]


# Values ------------------------------------------------------------------------------------


@verifies("statements.result.dtype")
def test_a_result_has_the_dtype_of_its_operands(subject: Subject) -> None:
    for dtype in (*INTEGERS, *FLOATS):
        with shown(subject) as draft:
            x = given(draft, [[1, 2], [3, 4]], dtype)
            for do in ("add", "mul", "less", "matmul"):
                draft.add(do, x, x)
            for do in ("sum", "prod", "max"):
                draft.add(do, x, axes=[0], keepdims=False)
            draft.add("cumsum", x, axis=1)
            draft.add("neg", x)


@verifies("statements.result.scalar")
def test_a_value_without_axes_is_one_number(subject: Subject) -> None:
    for dtype in ("int32", "float32"):
        with shown(subject) as draft:
            x = given(draft, 3, dtype)
            draft.add("add", x, x)
            draft.add("sum", given(draft, [1, 2], dtype), axes=[0], keepdims=False)
            draft.add("reshape", given(draft, [7], dtype), shape=[])


@verifies("statements.result.empty")
def test_a_result_without_elements_has_its_shape(subject: Subject) -> None:
    for shape in ((0,), (2, 0), (0, 3), (2, 0, 3)):
        with shown(subject) as draft:
            x = given(draft, np.zeros(shape), "float32")
            draft.add("add", x, x)
            draft.add("permute", x, order=list(reversed(range(len(shape)))))
            draft.add("less", x, x)
            draft.add("cast", x, dtype="int32")
            draft.add("pad", x, widths=[[0, 0]] * len(shape))


@verifies("statements.input.order")
def test_inputs_are_read_row_by_row(subject: Subject) -> None:
    for dtype in protocol.DTYPES:
        with shown(subject) as draft:
            for shape in ((2, 3), (3, 2), (2, 3, 2)):
                array = np.arange(np.prod(shape)).reshape(shape) * 7 + 1
                x = given(draft, array % 2 if dtype == "bool" else array, dtype)
                draft.add("copy", x)


@verifies("statements.constant.digits")
def test_a_constant_has_all_its_digits(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            for value in (0.1, -1 / 3, 3.14159265358979, 1e-3, 12345.678, 1e20 / 3):
                if dtype != "float16" or abs(value) < 65504:
                    draft.add("copy", draft.add("constant", dtype=dtype, shape=[2], value=value))
    for dtype in INTEGERS:
        with shown(subject) as draft:
            for value in limits(dtype):
                draft.add("copy", draft.add("constant", dtype=dtype, shape=[2], value=int(value)))


@verifies("statements.constant.words")
def test_constants_that_are_no_numbers(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            for word in ("nan", "inf", "-inf"):
                x = draft.add("constant", dtype=dtype, shape=[3], value=word)
                draft.add("equal", x, x)


# One operand -------------------------------------------------------------------------------


@verifies("statements.abs.value")
def test_abs_takes_the_sign_away(subject: Subject) -> None:
    for dtype in (*INTEGERS, *FLOATS):
        with shown(subject) as draft:
            draft.add("abs", given(draft, limits(dtype), dtype))


@verifies("statements.relu.value")
def test_relu_keeps_what_is_above_zero(subject: Subject) -> None:
    for dtype in (*INTEGERS, *FLOATS):
        with shown(subject) as draft:
            draft.add("relu", given(draft, limits(dtype), dtype))


@verifies("statements.not.bits")
def test_not_inverts_every_bit(subject: Subject) -> None:
    for dtype in INTEGERS:
        with shown(subject) as draft:
            draft.add("not", given(draft, limits(dtype), dtype))


@verifies("statements.not.truth")
def test_not_of_truth(subject: Subject) -> None:
    with shown(subject) as draft:
        x = given(draft, [1, 2, 3], "int32")
        same = draft.add("equal", x, given(draft, [1, 5, 3], "int32"))
        draft.add("not", draft.add("not", draft.add("not", same)))


@verifies("statements.sqrt.rounded")
def test_roots_are_rounded_once(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            draft.add("sqrt", given(draft, np.abs(DIGITS[:45]), dtype))
            draft.add("sqrt", given(draft, [0, 1, 4, 2, 1e4, INF], dtype))


@verifies("statements.sqrt.negative")
def test_roots_of_negative_numbers_are_nan(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            draft.add("sqrt", given(draft, [-1, -0.25, -INF, -1e-3], dtype))


@verifies("statements.reciprocal.rounded")
def test_reciprocals_are_rounded_once(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            draft.add("reciprocal", given(draft, DIGITS[20:45], dtype))


@verifies("statements.exp.overflow")
def test_exponentials_end_at_infinity_and_at_zero(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            draft.add("exp", given(draft, [1000, 20000, INF, -1000, -20000, -INF, 0, 1], dtype))


@verifies("statements.log.below")
def test_logarithms_of_zero_and_below(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            draft.add("log", given(draft, [0.0, -0.0, -1, -INF, INF, 1], dtype))


@verifies("statements.sin.infinite")
def test_the_sine_of_an_infinity(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            draft.add("sin", given(draft, [INF, -INF, 0, 1], dtype))


@verifies("statements.tanh.saturated")
def test_tanh_is_one_far_from_zero(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            draft.add("tanh", given(draft, [40, 1000, 30000, INF, -40, -30000, -INF], dtype))


SIGNS = [-0.0, 0.0, 1.5, -INF, INF, NAN]


def _same_bits(subject: Subject, do: str) -> None:
    for dtype in FLOATS:
        draft = Draft()
        x = given(draft, SIGNS, dtype)
        draft.append({"do": "observe", "names": [draft.add(do, x)]})
        wanted = np.array(SIGNS, dtype)

        def same(program: Program, wanted: Array = wanted) -> None:
            for value in subject.check_values(program).values:
                kept = np.signbit(value.array()) == np.signbit(wanted)
                if not (kept | np.isnan(wanted)).all():
                    raise Failure(f"{do} changed the sign of a zero", program)

        if dtype in subject.info.dtypes and subject.supports(protocol.program(draft.statements)):
            subject.check_smallest(protocol.program(draft.statements), same)
        else:
            subject.skipped += 1


@verifies("statements.copy.bits")
def test_a_copy_is_what_was_copied(subject: Subject) -> None:
    _same_bits(subject, "copy")


@verifies("statements.contiguous.bits")
def test_what_is_made_contiguous_stays_what_it_is(subject: Subject) -> None:
    _same_bits(subject, "contiguous")


# Two operands and more ---------------------------------------------------------------------


def _rounded_once(subject: Subject, do: str) -> None:
    for dtype in FLOATS:
        numbers = DIGITS[10:40] if dtype == "float16" else DIGITS
        with shown(subject) as draft:
            draft.add(do, given(draft, numbers, dtype), given(draft, numbers[::-1], dtype))
            draft.add(do, given(draft, numbers, dtype), given(draft, np.roll(numbers, 3), dtype))


@verifies("statements.add.rounded")
def test_sums_are_rounded_once(subject: Subject) -> None:
    _rounded_once(subject, "add")


@verifies("statements.sub.order")
def test_differences_are_of_the_first_and_the_second(subject: Subject) -> None:
    _rounded_once(subject, "sub")


@verifies("statements.mul.rounded")
def test_products_are_rounded_once(subject: Subject) -> None:
    _rounded_once(subject, "mul")


@verifies("statements.div.rounded")
def test_quotients_are_rounded_once(subject: Subject) -> None:
    _rounded_once(subject, "div")


@verifies("statements.pow.value")
def test_powers(subject: Subject) -> None:
    for dtype in ("float32", "float64"):
        with shown(subject) as draft:
            left, right = pairs(draft, [0.5, 1.25, 2, 3, 7.5], dtype)
            draft.add("pow", left, right)
            draft.add("pow", given(draft, [-2, -3, -0.5], dtype), given(draft, [2, 3, 1], dtype))


@verifies("statements.mod.sign")
def test_remainders_have_the_sign_of_the_divisor(subject: Subject) -> None:
    for dtype in SIGNED:
        with shown(subject) as draft:
            draft.add("mod", *pairs(draft, [-7, -3, -2, -1, 1, 2, 3, 7, 100], dtype))


def _chosen(subject: Subject, do: str) -> None:
    for dtype in protocol.DTYPES:
        with shown(subject) as draft:
            draft.add(do, *pairs(draft, limits(dtype), dtype))


@verifies("statements.maximum.choice")
def test_the_greater_of_two(subject: Subject) -> None:
    _chosen(subject, "maximum")


@verifies("statements.minimum.choice")
def test_the_smaller_of_two(subject: Subject) -> None:
    _chosen(subject, "minimum")


@verifies("statements.less.strict")
def test_less_is_strict(subject: Subject) -> None:
    _chosen(subject, "less")


@verifies("statements.less-equal.reached")
def test_less_or_equal(subject: Subject) -> None:
    _chosen(subject, "less_equal")


@verifies("statements.equal.same")
def test_equal_is_the_same_number(subject: Subject) -> None:
    _chosen(subject, "equal")


@verifies("statements.comparison.nan")
def test_nothing_compares_with_nan(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            left, right = pairs(draft, [NAN, 1, -INF, INF], dtype)
            for do in protocol.COMPARISONS:
                draft.add(do, left, right)


@verifies("statements.comparison.zero")
def test_two_zeros_are_equal(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            left, right = pairs(draft, [0.0, -0.0], dtype)
            for do in protocol.COMPARISONS:
                draft.add(do, left, right)


@verifies("statements.comparison.digits")
def test_large_integers_are_told_apart(subject: Subject) -> None:
    for dtype, large in (("int64", 2**62), ("uint64", 2**63), ("int32", 2**30)):
        with shown(subject) as draft:
            left, right = pairs(draft, [large, large + 1, large - 1, 0], dtype)
            for do in protocol.COMPARISONS:
                draft.add(do, left, right)


def _bits(subject: Subject, do: str) -> None:
    for dtype in ("bool", *INTEGERS):
        with shown(subject) as draft:
            draft.add(do, *pairs(draft, limits(dtype), dtype))


@verifies("statements.and.bits")
def test_bits_of_both(subject: Subject) -> None:
    _bits(subject, "and")


@verifies("statements.or.bits")
def test_bits_of_either(subject: Subject) -> None:
    _bits(subject, "or")


@verifies("statements.xor.bits")
def test_bits_of_one_alone(subject: Subject) -> None:
    _bits(subject, "xor")


def _condition(draft: Draft, truths: Sequence[int]) -> str:
    """A condition that is computed, so that no dtype `bool` has to be declared."""
    return draft.add("equal", given(draft, truths, "int32"),
                     given(draft, np.ones(len(truths)), "int32"))


@verifies("statements.where.choice")
def test_where_chooses(subject: Subject) -> None:
    for dtype in protocol.DTYPES:
        with shown(subject) as draft:
            x, y = (given(draft, each, dtype) for each in ([1, 0, 1, 0], [0, 0, 1, 1]))
            draft.add("where", _condition(draft, [1, 0, 0, 1]), x, y)


@verifies("statements.where.untouched")
def test_what_is_not_chosen_has_no_influence(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            x, y = given(draft, [1, NAN, INF, 4], dtype), given(draft, [NAN, 2, 3, -INF], dtype)
            draft.add("where", _condition(draft, [1, 0, 0, 1]), x, y)
            root = draft.add("sqrt", given(draft, [-1, 4, -1, 4], dtype))
            draft.add("where", _condition(draft, [0, 1, 0, 1]), root, x)


# Casts -------------------------------------------------------------------------------------


@verifies("statements.cast.truth")
def test_what_is_not_zero_is_true(subject: Subject) -> None:
    for dtype in (*INTEGERS, *FLOATS):
        with shown(subject) as draft:
            numbers = [0.25, -0.5, 0.0, -0.0, INF, NAN] if dtype in FLOATS else [0, 1, 2, 64]
            numbers += {"float16": [1e-4, 6e4], "float32": [1e-30, 3e38, -1e-37],
                        "float64": [1e-60, 1e300, -3e-308]}.get(dtype, [])
            numbers += [] if dtype in FLOATS else [int(np.iinfo(dtype).max)]
            numbers += [2**32, 2**40] if dtype in ("int64", "uint64") else []
            draft.add("cast", given(draft, numbers, dtype), dtype="bool")


@verifies("statements.cast.nearest")
def test_integers_become_the_nearest_floats(subject: Subject) -> None:
    for dtype, target in product(("int16", "int32", "uint32"), FLOATS):
        with shown(subject) as draft:
            numbers = [1, 2049, 2051, 4097, 12345, 32767]
            numbers += [] if dtype == "int16" or target == "float16" else \
                [16777217, 16777219, 33554435, 2**31 - 1]
            draft.add("cast", given(draft, numbers, dtype), dtype=target)
    with shown(subject) as draft:
        draft.add("cast", given(draft, [2**53 + 1, 2**53 + 3, 2**62 + 1], "int64"),
                  dtype="float64")


@verifies("statements.cast.once")
def test_a_cast_does_not_round_twice(subject: Subject) -> None:
    """Just above the middle of two halves: in a single it is the middle, and goes to the even."""
    with shown(subject) as draft:
        middles = [1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11 - 2.0**-40, -1 - 2.0**-11 - 2.0**-40]
        draft.add("cast", given(draft, middles, "float64"), dtype="float16")


@verifies("statements.cast.infinite")
def test_casts_keep_what_is_no_number(subject: Subject) -> None:
    for source, target in (("float64", "float32"), ("float32", "float16"), ("float64", "float16")):
        with shown(subject) as draft:
            far = 1e30 if source == "float32" else 1e300
            draft.add("cast", given(draft, [INF, -INF, NAN, far, -far, 1], source), dtype=target)


@verifies("statements.bitcast.bits")
def test_bits_stay_as_another_dtype(subject: Subject) -> None:
    for source, target in (("float32", "int32"), ("int32", "float32"), ("int8", "uint8"),
                           ("float64", "uint64"), ("float16", "int16"), ("uint32", "int32")):
        with shown(subject) as draft:
            draft.add("bitcast", given(draft, [0, 1, 2, 3, 100], source), dtype=target)


# Movements ---------------------------------------------------------------------------------


def _numbered(draft: Draft, *shape: int, dtype: str = "int32") -> str:
    return given(draft, np.arange(1, np.prod(shape) + 1).reshape(shape), dtype)


@verifies("statements.reshape.order")
def test_reshape_goes_row_by_row(subject: Subject) -> None:
    for shape in ((6,), (3, 2), (2, 3), (1, 6), (2, 1, 3)):
        for new in ((6,), (3, 2), (2, 3), (6, 1), (3, 1, 2)):
            with shown(subject) as draft:
                draft.add("reshape", _numbered(draft, *shape), shape=list(new))


@verifies("statements.expand.repeat")
def test_expand_repeats_an_element(subject: Subject) -> None:
    with shown(subject) as draft:
        draft.add("expand", _numbered(draft, 1, 3), shape=[4, 3])
        draft.add("expand", _numbered(draft, 3, 1), shape=[3, 4])
        draft.add("expand", _numbered(draft, 1, 2, 1), shape=[3, 2, 2])


@verifies("statements.permute.order")
def test_every_permutation_of_three_axes(subject: Subject) -> None:
    for shape in ((2, 3, 4), (3, 3, 3)):
        with shown(subject) as draft:
            x = _numbered(draft, *shape)
            for order in permutations(range(3)):
                draft.add("permute", x, order=list(order))


@verifies("statements.pad.sides")
def test_padding_on_each_side(subject: Subject) -> None:
    with shown(subject) as draft:
        x = _numbered(draft, 2, 3)
        for widths in ([[1, 0], [0, 2]], [[0, 1], [2, 0]], [[2, 1], [1, 3]]):
            draft.add("pad", x, widths=widths)


@verifies("statements.shrink.bounds")
def test_bounds_of_several_axes(subject: Subject) -> None:
    with shown(subject) as draft:
        x = _numbered(draft, 4, 5)
        for bounds in ([[1, 3], [0, 5]], [[0, 4], [2, 5]], [[1, 4], [1, 2]], [[2, 2], [0, 5]]):
            draft.add("shrink", x, bounds=bounds)


@verifies("statements.flip.axes")
def test_flips_of_each_set_of_axes(subject: Subject) -> None:
    with shown(subject) as draft:
        x = _numbered(draft, 2, 3, 2)
        for axes in ([], [0], [1], [2], [0, 2], [1, 2], [0, 1, 2]):
            draft.add("flip", x, axes=axes)


@verifies("statements.stride.first")
def test_strides_begin_with_the_first(subject: Subject) -> None:
    with shown(subject) as draft:
        x = _numbered(draft, 6, 5)
        for steps in ([2, 1], [1, 2], [4, 3], [5, 4]):
            draft.add("stride", x, steps=steps)


# Reductions and what runs along an axis ----------------------------------------------------


def _reduced(draft: Draft, do: str, x: str, *axes: int, keepdims: bool = False) -> str:
    return draft.add(do, x, axes=list(axes), keepdims=keepdims)


@verifies("statements.sum.exact")
def test_sums_that_fit_are_exact(subject: Subject) -> None:
    """Whole numbers: all that any order can add up to needs nearly all digits of the dtype."""
    for dtype, largest in (("float32", 2**24), ("float64", 2**53), ("int64", 2**62)):
        numbers = np.resize([3, -2, 1, 5, 1, -7], 300).astype(np.int64)
        numbers[::2] += largest // 200
        draft = Draft()
        x = given(draft, numbers, dtype)
        names = [_reduced(draft, "sum", x, 0),
                 _reduced(draft, "sum", draft.add("reshape", x, shape=[10, 30]), 0, 1)]
        draft.append({"do": "observe", "names": names})
        program = protocol.program(draft.statements)
        if not subject.supports(program):
            subject.skipped += 1
            continue
        for value in subject.check_values(program).values:
            if int(value.array()) != int(numbers.sum()):
                raise Failure(f"the sum is {value.array()}, not {numbers.sum()}", program)


@verifies("statements.prod.value")
def test_products_of_all_elements(subject: Subject) -> None:
    for dtype in ("int32", "int8", "float32"):
        with shown(subject) as draft:
            x = given(draft, [[1, -2, 3], [2, 2, -1]], dtype)
            for axes in ((0,), (1,), (0, 1)):
                _reduced(draft, "prod", x, *axes)


@verifies("statements.max.negative")
def test_the_greatest_of_negative_numbers(subject: Subject) -> None:
    for dtype in (*SIGNED, *FLOATS):
        with shown(subject) as draft:
            _reduced(draft, "max", given(draft, [[-3, -1], [-7, -100]], dtype), 1)
    with shown(subject) as draft:
        _reduced(draft, "max", given(draft, [[-INF, -INF], [-INF, -1]], "float32"), 1)


@verifies("statements.min.positive")
def test_the_smallest_of_positive_numbers(subject: Subject) -> None:
    for dtype in (*INTEGERS, *FLOATS):
        with shown(subject) as draft:
            _reduced(draft, "min", given(draft, [[3, 1], [7, 100]], dtype), 1)
    with shown(subject) as draft:
        _reduced(draft, "min", given(draft, [[INF, INF], [INF, 1]], "float32"), 1)


@verifies("statements.mean.value")
def test_means(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            x = given(draft, [[1, 2, 3, 6], [0, 0, 0, 8]], dtype)
            for axes in ((0,), (1,), (0, 1)):
                _reduced(draft, "mean", x, *axes)


@verifies("statements.reduction.keepdims")
def test_axes_are_kept_if_asked_for(subject: Subject) -> None:
    with shown(subject) as draft:
        x = _numbered(draft, 2, 3, 2)
        for axes, keepdims in product(((0,), (1, 2), (0, 1, 2)), (False, True)):
            _reduced(draft, "sum", x, *axes, keepdims=keepdims)


@verifies("statements.reduction.none")
def test_reductions_over_no_axes(subject: Subject) -> None:
    with shown(subject) as draft:
        x = _numbered(draft, 2, 3)
        for do in ("sum", "prod", "max", "min"):
            _reduced(draft, do, x)


@verifies("statements.cumsum.inclusive")
def test_running_sums_have_their_own_element(subject: Subject) -> None:
    for dtype in ("int32", "float32", "int8"):
        with shown(subject) as draft:
            draft.add("cumsum", given(draft, [3, 1, 4, 1, 5, 9, 2, 6], dtype), axis=0)


@verifies("statements.cumsum.axis")
def test_running_sums_along_each_axis(subject: Subject) -> None:
    with shown(subject) as draft:
        x = _numbered(draft, 2, 3, 4)
        for axis in range(3):
            draft.add("cumsum", x, axis=axis)


@verifies("statements.softmax.axis")
def test_weights_along_each_axis(subject: Subject) -> None:
    with shown(subject) as draft:
        x = given(draft, (np.arange(12) % 5).reshape(3, 4), "float32")
        for axis in range(2):
            draft.add("softmax", x, axis=axis)


@verifies("statements.softmax.large")
def test_weights_of_large_numbers(subject: Subject) -> None:
    for dtype in ("float32", "float64"):
        with shown(subject) as draft:
            x = given(draft, [[1000, 1001, 999], [-5000, -5000, -5002]], dtype)
            draft.add("softmax", x, axis=1)


@verifies("statements.matmul.batch")
def test_matrices_are_multiplied_pair_by_pair(subject: Subject) -> None:
    for dtype in ("int32", "float32"):
        with shown(subject) as draft:
            draft.add("matmul", _numbered(draft, 3, 2, 2, dtype=dtype),
                      _numbered(draft, 3, 2, 4, dtype=dtype))
            draft.add("matmul", _numbered(draft, 2, 2, 1, 3, dtype=dtype),
                      _numbered(draft, 2, 2, 3, 1, dtype=dtype))


@verifies("statements.matmul.nothing")
def test_products_over_nothing_are_zero(subject: Subject) -> None:
    for dtype in ("int32", "float32"):
        with shown(subject) as draft:
            draft.add("matmul", given(draft, np.zeros((2, 0)), dtype),
                      given(draft, np.zeros((0, 3)), dtype))


@verifies("statements.gather.shape")
def test_rows_stand_where_the_index_stands(subject: Subject) -> None:
    with shown(subject) as draft:
        index = given(draft, [[2, 0], [1, 2]], "int32")
        for shape in ((3,), (3, 2), (3, 2, 2)):
            draft.add("gather", _numbered(draft, *shape), index)


@verifies("statements.gather.repeated")
def test_rows_may_be_named_often(subject: Subject) -> None:
    with shown(subject) as draft:
        index = given(draft, [3, 3, 0, 3, 1, 0], "int32")
        draft.add("gather", _numbered(draft, 4), index)
        draft.add("gather", _numbered(draft, 4, 3), index)


# Names, writes, repetitions ----------------------------------------------------------------


def _written(*statements: Statement) -> Program:
    """x is 1 to 4 and y is 10 to 40; then these statements."""
    draft = Draft()
    _numbered(draft, 4)
    given(draft, [10, 20, 30, 40], "int32")
    return protocol.program([*draft.statements, *statements])


@verifies("statements.name.rebound")
def test_a_name_that_is_given_again(subject: Subject) -> None:
    subject.check_whole(_written(
        {"do": "add", "to": "z", "from": ["t0", "t0"]},
        {"do": "neg", "to": "t0", "from": ["t1"]},
        {"do": "add", "to": "w", "from": ["t0", "z"]},
        {"do": "observe", "names": ["t0", "z", "w"]}))


@verifies("statements.assign.whole")
def test_an_assign_gives_all_elements(subject: Subject) -> None:
    subject.check_whole(_written(
        {"do": "neg", "to": "z", "from": ["t1"]},
        {"do": "assign", "target": "t0", "from": ["z"]},
        {"do": "observe", "names": ["t0", "t1", "z"]}))


@verifies("statements.store.rest")
def test_a_store_leaves_the_rest_alone(subject: Subject) -> None:
    for view in ([{"do": "shrink", "bounds": [[1, 3]]}],
                 [{"do": "stride", "steps": [2]}],
                 [{"do": "reshape", "shape": [2, 2]}, {"do": "shrink", "bounds": [[0, 2], [1, 2]]},
                  {"do": "reshape", "shape": [2]}]):
        subject.check_whole(_written(
            {"do": "shrink", "to": "z", "from": ["t1"], "bounds": [[0, 2]]},
            {"do": "store", "target": "t0", "view": view, "from": ["z"]},
            {"do": "observe", "names": ["t0", "t1"]}))


@verifies("statements.drop.others")
def test_what_is_dropped_changes_nothing_else(subject: Subject) -> None:
    subject.check_whole(_written(
        {"do": "add", "to": "z", "from": ["t0", "t1"]},
        {"do": "drop", "names": ["t0"]},
        {"do": "add", "to": "w", "from": ["z", "t1"]},
        {"do": "drop", "names": ["t1"]},
        {"do": "observe", "names": ["z", "w"]}))


@verifies("statements.observe.order")
def test_values_come_in_the_order_of_the_question(subject: Subject) -> None:
    subject.check_whole(_written({"do": "observe", "names": ["t1", "t0"]},
                                 {"do": "observe", "names": ["t0"]},
                                 {"do": "observe", "names": ["t0", "t1"]}))


@verifies("statements.observe.again")
def test_looking_changes_nothing(subject: Subject) -> None:
    subject.check_whole(_written({"do": "neg", "to": "z", "from": ["t0"]},
                                 *[{"do": "observe", "names": ["z", "t0"]}] * 3))


@verifies("statements.repeat.count")
def test_a_body_runs_as_often_as_it_says(subject: Subject) -> None:
    for count in (1, 2, 3, 6):
        subject.check_whole(_written(
            {"do": "repeat", "count": count, "statements": [
                {"do": "add", "to": "next", "from": ["t0", "t1"]},
                {"do": "assign", "target": "t0", "from": ["next"]}]},
            {"do": "observe", "names": ["t0"]}))


@verifies("statements.calls.names")
def test_a_call_has_its_own_variables(subject: Subject) -> None:
    subject.check_whole(_written(
        {"do": "calls", "nested": 0,
         "given": [{"a": "t0", "b": "t1"}, {"a": "t1", "b": "t0"}, {"a": "t1", "b": "t1"}],
         "statements": [{"do": "sub", "to": "z", "from": ["a", "b"]},
                        {"do": "observe", "names": ["z"]}]}))


@verifies("statements.calls.numbers")
def test_a_call_has_its_own_numbers(subject: Subject) -> None:
    subject.check_whole(_written(
        {"do": "calls", "nested": 0, "given": [{"k": 2}, {"k": 3}, {"k": -1}],
         "statements": [{"do": "constant", "to": "c", "dtype": "int32", "shape": [4],
                         "value": {"given": "k"}},
                        {"do": "mul", "to": "z", "from": ["t0", "c"]},
                        {"do": "observe", "names": ["z"]}]}))


# Programs that are refused -----------------------------------------------------------------


def _refused(subject: Subject, *statements: Statement) -> None:
    """The program is answered with an error. Nobody is asked what he does not declare."""
    program = _written(*statements, {"do": "observe", "names": ["t0"]})
    if not subject.supports(program):
        subject.skipped += 1
        return
    subject.examples += 1
    try:
        subject.adapter.run(program, {"values"}, {})
    except protocol.ProtocolError:
        raise
    except Exception:  # whatever it is: that is its affair
        return
    raise Failure("this program has no meaning, and was answered with values", program)


@verifies("statements.refused.unknown", observe="errors")
def test_an_unknown_name_is_refused(subject: Subject) -> None:
    _refused(subject, {"do": "add", "to": "z", "from": ["t0", "nobody"]},
             {"do": "observe", "names": ["z"]})


@verifies("statements.refused.dropped", observe="errors")
def test_a_dropped_name_is_refused(subject: Subject) -> None:
    _refused(subject, {"do": "drop", "names": ["t1"]},
             {"do": "neg", "to": "z", "from": ["t1"]}, {"do": "observe", "names": ["z"]})


@verifies("statements.refused.shapes", observe="errors")
def test_shapes_that_differ_are_refused(subject: Subject) -> None:
    for do in ("add", "mul", "maximum", "less"):
        _refused(subject, {"do": "shrink", "to": "y", "from": ["t1"], "bounds": [[0, 3]]},
                 {"do": do, "to": "z", "from": ["t0", "y"]}, {"do": "observe", "names": ["z"]})


@verifies("statements.refused.reshape", observe="errors")
def test_a_reshape_to_more_or_fewer_is_refused(subject: Subject) -> None:
    for shape in ([5], [3], [2, 3], [1]):
        _refused(subject, {"do": "reshape", "to": "z", "from": ["t0"], "shape": shape},
                 {"do": "observe", "names": ["z"]})


@verifies("statements.refused.expand", observe="errors")
def test_an_expand_of_several_elements_is_refused(subject: Subject) -> None:
    for shape in ([8], [5]):
        _refused(subject, {"do": "expand", "to": "z", "from": ["t0"], "shape": shape},
                 {"do": "observe", "names": ["z"]})


@verifies("statements.refused.permute", observe="errors")
def test_an_order_that_is_none_is_refused(subject: Subject) -> None:
    for order in ([0, 0], [1, 2], [0]):
        _refused(subject, {"do": "reshape", "to": "y", "from": ["t0"], "shape": [2, 2]},
                 {"do": "permute", "to": "z", "from": ["y"], "order": order},
                 {"do": "observe", "names": ["z"]})


@verifies("statements.refused.axis", observe="errors")
def test_an_axis_that_is_not_there_is_refused(subject: Subject) -> None:
    for do in ("sum", "max"):
        _refused(subject, {"do": do, "to": "z", "from": ["t0"], "axes": [3], "keepdims": False},
                 {"do": "observe", "names": ["z"]})


@verifies("statements.refused.matmul", observe="errors")
def test_inner_sizes_that_differ_are_refused(subject: Subject) -> None:
    _refused(subject, {"do": "reshape", "to": "a", "from": ["t0"], "shape": [1, 4]},
             {"do": "reshape", "to": "b", "from": ["t1"], "shape": [2, 2]},
             {"do": "matmul", "to": "z", "from": ["a", "b"]}, {"do": "observe", "names": ["z"]})


@verifies("statements.refused.assign", observe="errors")
def test_an_assign_of_another_shape_is_refused(subject: Subject) -> None:
    for shape in ([2, 2], [4, 1]):
        _refused(subject, {"do": "reshape", "to": "y", "from": ["t1"], "shape": shape},
                 {"do": "assign", "target": "t0", "from": ["y"]})


@verifies("statements.refused.store", observe="errors")
def test_a_store_of_another_shape_is_refused(subject: Subject) -> None:
    for bounds in ([[0, 3]], [[1, 3]]):
        _refused(subject, {"do": "store", "target": "t0", "from": ["t1"],
                           "view": [{"do": "shrink", "bounds": bounds}]})


@verifies("statements.refused.after", observe="errors")
@after("statements.refused.reshape", "statements.refused.unknown")
def test_the_program_after_an_error_has_its_values(subject: Subject) -> None:
    for wrong in ({"do": "reshape", "to": "z", "from": ["t0"], "shape": [5]},
                  {"do": "neg", "to": "z", "from": ["nobody"]}):
        _refused(subject, {"do": "assign", "target": "t0", "from": ["t1"]}, wrong,
                 {"do": "observe", "names": ["z"]})
        subject.check_whole(_written({"do": "add", "to": "z", "from": ["t0", "t1"]},
                                     {"do": "observe", "names": ["t0", "t1", "z"]}))
