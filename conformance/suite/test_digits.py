"""Numbers that need all their digits, and elements that decide a result wherever they stand.

Chapter: spec/statements.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance import oracle, protocol
from conformance.generators.programs import Draft
from conformance.protocol import DTYPES, FLOATS, INTEGERS, Program, Value
from conformance.runner.subject import Subject
from conformance.suite import verifies
from conformance.suite.test_statements import INF, NAN, given, shown

#: Odd numbers that no double holds.
WIDE = {"int64": [2**53 + 1, -(2**53) - 3, 2**62 + 1, -(2**63) + 1, 2**60 + 7, 3, -1, 7],
        "uint64": [2**53 + 1, 2**54 + 3, 2**62 + 1, 2**63 + 1, 2**64 - 1, 3, 1, 7],
        "int32": [2**24 + 1, -(2**24) - 3, 2**30 + 1, -(2**31) + 1, 2**28 + 7, 3, -1, 7],
        "uint32": [2**24 + 1, 2**25 + 3, 2**30 + 1, 2**31 + 1, 2**32 - 1, 3, 1, 7]}


@verifies("statements.integers.digits")
def test_every_statement_on_integers_that_no_float_holds(subject: Subject) -> None:
    for dtype, numbers in WIDE.items():
        with shown(subject) as draft:
            x, y = given(draft, numbers, dtype), given(draft, numbers[::-1], dtype)
            for do in ("add", "sub", "mul", "floordiv", "mod", "maximum", "minimum",
                       *protocol.BITWISE, *protocol.COMPARISONS):
                draft.add(do, x, y)
                draft.add(do, y, x)
            for do in ("neg", "abs", "relu", "not", "copy"):
                draft.add(do, x)
            draft.add("where", draft.add("less", x, y), x, y)
            draft.add("pad", draft.add("flip", x, axes=[0]), widths=[[1, 0]])
            draft.add("gather", x, given(draft, [4, 0, 3], "int32"))
        with shown(subject) as draft:
            x = given(draft, np.array(numbers, dtype).reshape(4, 2), dtype)
            for axis in (0, 1):
                for do in ("sum", "prod", "max", "min"):
                    draft.add(do, x, axes=[axis], keepdims=False)
                draft.add("cumsum", x, axis=axis)
            draft.add("matmul", x, draft.add("permute", x, order=[1, 0]))


@verifies("statements.integers.digits")
def test_integers_are_rounded_once_to_a_float(subject: Subject) -> None:
    """Just beside the middle of two singles: a double lies on it, and goes to the even one."""
    near = [2**60 + 2**36 + 1, 2**60 + 3 * 2**36 - 1, 2**54 + 2**30 + 1, 2**62 - 1, 2**53 + 1]
    for dtype, numbers in (("int64", [*near, *(-number for number in near)]),
                           ("uint64", [*near, 2**63 + 2**39 + 1, 2**63 + 2**11, 2**64 - 1])):
        with shown(subject) as draft:
            for target in ("float32", "float64"):
                draft.add("cast", given(draft, np.array(numbers, dtype), dtype), dtype=target)


def _ends(dtype: str) -> list[Any]:
    """Numbers of a dtype beside powers of two, its ends, and what is nearly zero."""
    if dtype == "bool":
        return [False, True]
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        whole = [sign * (2**power + more) for power in (0, 7, 8, 11, 15, 16, 24, 31, 32, 53, 62, 63)
                for more in (-1, 0, 1) for sign in (1, -1)]
        return [each for each in (*whole, info.min, info.max) if info.min <= each <= info.max]
    finfo = np.finfo(dtype)
    near = [0.3, 0.5, -0.9, 1.5, -2.5, 100.7, 2049.0, -127.9, 255.9, 32767.5, -32768.0, 2**31 - 256,
            -(2.0**31), 3e9, 2.0**32 - 256, 2.0**53 + 2, 2.0**40 + 3, 65519.0, 65520.0, 1e-5, 3e-6,
            1 / 3, float(finfo.tiny), 1 + float(finfo.eps), INF, -INF, NAN]
    if dtype == "float64":
        near += [1e-50, -1e-300, 1e39, 1 + 2**-24, 1 + 2**-24 + 2**-40, 1 + 2**-11 + 2**-40, 0.1]
    return [each for each in near if abs(each) <= float(finfo.max) or each in (INF, -INF)]


@verifies("statements.cast.nearest")
@verifies("statements.cast.once")
@verifies("statements.cast.truth")
def test_every_cast_of_numbers_at_the_ends(subject: Subject) -> None:
    """From each dtype to each other, in one step: where two would lose digits, signs or size."""
    for dtype in DTYPES:
        with shown(subject) as draft:
            x = given(draft, _ends(dtype), dtype)
            for target in DTYPES:
                draft.add("cast", x, dtype=target)


@verifies("statements.cast.once")
@verifies("statements.cast.nearest")
def test_two_casts_in_a_row(subject: Subject) -> None:
    """What the first one cuts off or rounds away does not come back with the second."""
    for dtype in ("int8", "int32", "uint32", "int64", "float32", "float64"):
        # A few readers each: what many read may be kept in memory, and is not put together.
        for targets in (("float64", "int16"), ("int64", "float32"), ("uint64",)):
            with shown(subject, between=False) as draft:
                x = given(draft, _ends(dtype)[-30:], dtype)
                for middle in ("bool", "int8", "uint16", "int32", "uint32", "float16", "float32"):
                    if (dtype, middle) == ("float64", "float16"):
                        continue  # which another check asks for
                    between = draft.add("cast", x, dtype=middle)
                    for target in targets:
                        if target != middle:
                            draft.add("cast", between, dtype=target)


@verifies("statements.constant.computed")
@verifies("conventions.nan.propagate")
@verifies("statements.comparison.nan")
def test_operations_of_two_numbers_that_are_known(subject: Subject) -> None:
    """NaN on either side, infinities that cancel each other, zeros."""
    numbers = ("nan", 1.5, "-inf", -0.0, 0.0, -2.0, "inf")
    for dtype in FLOATS:
        with shown(subject) as draft:
            for left in numbers:
                x = draft.add("constant", dtype=dtype, shape=[2], value=left)
                for right in numbers:
                    y = draft.add("constant", dtype=dtype, shape=[2], value=right)
                    for do in ("maximum", "minimum", "less", "less_equal", "equal"):
                        draft.add(do, x, y)


@verifies("statements.less.strict")
@verifies("statements.less-equal.reached")
def test_integers_are_compared_with_fractions(subject: Subject) -> None:
    """Between two integers, and on one of them; the known number on either side."""
    for dtype, target in (("int32", "float64"), ("uint8", "float32"), ("int64", "float32")):
        with shown(subject, between=False) as draft:
            x = draft.add("cast", given(draft, np.arange(-4, 5), dtype), dtype=target)
            for number in (2.5, -2.5, 0.5, -0.5, 2.0, -3.0, 3.0, 0.0):
                known = draft.constant(draft.kinds[x], number)
                for do in protocol.COMPARISONS:
                    draft.add(do, x, known)
                    draft.add(do, known, x)


@verifies("statements.where.choice")
def test_choices_within_choices(subject: Subject) -> None:
    """By the same condition, by its opposite, by another one; of truths that are known, too."""
    for dtype in ("float32", "int32", "bool"):
        with shown(subject, between=False) as draft:
            x, y, z = (given(draft, np.arange(12) * step % 7 % (2 if dtype == "bool" else 9), dtype)
                       for step in (1, 3, 5))
            c, d = (given(draft, np.arange(12) // size % 2, "bool") for size in (1, 2))
            opposite = draft.add("not", c)
            within = {each: draft.add("where", each, y, z) for each in (c, d, opposite)}
            for condition in (c, d, opposite):
                for inner in within.values():
                    draft.add("where", condition, x, inner)
                    draft.add("where", condition, inner, x)
            if dtype == "bool":
                known = [draft.constant(draft.kinds[x], truth) for truth in (True, False)]
                for condition in (c, d, opposite):
                    for each in known:
                        draft.add("where", condition, each, x)
                        draft.add("where", condition, x, each)
                    draft.add("where", condition, *known)
                    draft.add("where", condition, *known[::-1])


@verifies("statements.mod.sign")
@verifies("dtypes.division.floor")
def test_quotients_of_sums_whose_first_term_is_a_multiple(subject: Subject) -> None:
    """The second one is no smaller than the divisor, or below zero, or their sum wraps around."""
    for dtype in ("int32", "int64", "uint8", "int16"):
        with shown(subject, between=False) as draft:
            most = int(np.iinfo(dtype).max)
            x = given(draft, [0, 1, 5, most // 4, most // 4 + 1, most // 3, most, 9, 2], dtype)
            y = given(draft, [0, 3, 4, 3, 100, most, most, -1 if dtype[0] == "i" else 1, 7], dtype)
            _divided(draft, x, y)
    with shown(subject, between=False) as draft:  # no sum of these wraps around
        x, y = (draft.add("cast", given(draft, numbers, "uint8"), dtype="int32")
                for numbers in ([0, 1, 5, 255, 7, 16, 200], [0, 3, 4, 255, 100, 16, 15]))
        _divided(draft, x, y)
        _divided(draft, x, draft.add("neg", y))
        small = draft.add("cast", given(draft, [-128, -3, -1, 0, 5, 127, -2], "int8"),
                          dtype="int32")
        _divided(draft, x, small, (128, 200, 1000))


def _divided(draft: Draft, x: str, y: str, numbers: Sequence[int] = (4, 3, 16)) -> None:
    for number in numbers:
        known = draft.constant(draft.kinds[x], number)
        total = draft.add("add", draft.add("mul", x, known), y)
        for do in ("floordiv", "mod"):
            draft.add(do, total, known)
            draft.add(do, draft.add(do, y, known), known)


@verifies("statements.constant.computed")
def test_what_is_computed_of_constants(subject: Subject) -> None:
    """Each operation rounds, whoever carries it out: a folded product of three as well."""
    numbers = (0.1, 0.7, 1 / 3, 1.1, 3.3)
    for dtype in FLOATS:
        for do in ("mul", "add", "div", "sub"):
            with shown(subject) as draft:
                names = [draft.add("constant", dtype=dtype, shape=[2], value=number)
                         for number in numbers]
                made = names[0]
                for other in names[1:]:
                    draft.add(do, other, names[0])
                    made = draft.add(do, made, other)
    for dtype in INTEGERS:
        with shown(subject) as draft:
            large = int(np.iinfo(dtype).max)
            x, y, z = (draft.add("constant", dtype=dtype, shape=[2], value=value)
                       for value in (large, large // 3, 7))
            for do in ("mul", "add", "sub", "floordiv", "mod", "maximum"):
                draft.add(do, draft.add(do, x, y), z)


def _reduced(draft: Draft, x: str, *names: str) -> None:
    for do in names:
        draft.add(do, x, axes=[1], keepdims=False)


@verifies("statements.reduction.each")
def test_a_nan_is_seen_wherever_it_stands(subject: Subject) -> None:
    """In each of nine places, the last one too; and in the longer rows at the end."""
    for dtype in FLOATS:
        for length in (2, 9, 70):
            with shown(subject) as draft:
                places = sorted({0, 1, length // 2, length - 2, length - 1})
                rows = np.ones((len(places), length)) * np.arange(length)
                rows[range(len(places)), places] = NAN
                _reduced(draft, given(draft, rows, dtype), "max", "min", "sum", "mean", "prod")


@verifies("statements.reduction.each")
def test_rows_without_any_finite_number(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            rows = [[-INF] * 5, [INF] * 5, [-INF, -INF, -INF, -INF, -60000],
                    [INF, INF, 60000, INF, INF]]
            x = given(draft, rows, dtype)
            _reduced(draft, x, "max", "min")
            draft.add("max", x, axes=[0, 1], keepdims=True)
            draft.add("max", draft.add("shrink", x, bounds=[[0, 1], [0, 5]]), axes=[0, 1],
                      keepdims=False)
            draft.add("min", draft.add("shrink", x, bounds=[[1, 2], [0, 5]]), axes=[0, 1],
                      keepdims=False)


@verifies("statements.reduction.each")
def test_infinities_in_sums(subject: Subject) -> None:
    """One makes an infinity of a sum, two that differ make NaN; a zero and one make NaN."""
    for dtype in FLOATS:
        with shown(subject) as draft:
            rows = [[1, INF, 2, 3, 4], [-INF, 1, 2, -INF, 3], [INF, 1, 1, 2, -INF], [1, 2, 3, 4, 0],
                    [0, 1, INF, 1, 1]]
            x = given(draft, rows, dtype)
            _reduced(draft, x, "sum", "mean", "prod")
            draft.add("sum", x, axes=[0], keepdims=False)
            draft.add("cumsum", x, axis=1)


@verifies("statements.reduction.each")
def test_reductions_have_the_digits_of_their_dtype(subject: Subject) -> None:
    """Whole numbers whose sums fit: exact along each axis and along several."""
    for dtype, digits in (("float64", 48), ("float32", 19), ("int64", 58), ("int32", 27)):
        with shown(subject) as draft:
            numbers = np.random.default_rng(4).integers(-(2**digits), 2**digits, (2, 4, 4)) | 1
            x = given(draft, numbers, dtype)
            for axes in ([0], [1], [2], [0, 1], [1, 2], [0, 1, 2]):
                for do in ("sum", "max", "min", *(["mean"] if dtype in FLOATS else [])):
                    draft.add(do, x, axes=axes, keepdims=False)
            for axis in range(3):
                draft.add("cumsum", x, axis=axis)
    for dtype, few in (("float64", 5), ("float32", 2), ("int64", 5)):  # odd: no digit is a zero
        with shown(subject) as draft:
            numbers = np.random.default_rng(6).integers(2**8, 2**9, (4, few)) * 2 + 1
            for axis, each in enumerate((numbers.T, numbers)):
                x = given(draft, each, dtype)
                draft.add("prod", x, axes=[axis], keepdims=False)


@verifies("statements.reduction.each")
def test_the_ends_of_each_dtype_in_a_reduction(subject: Subject) -> None:
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)
        with shown(subject) as draft:
            rows = np.array([[limits.min] * 3, [limits.max] * 3,
                             [limits.min, limits.max - 1, limits.max],
                             [limits.max, limits.min, limits.min + 1]], dtype)
            _reduced(draft, given(draft, rows, dtype), "max", "min")


#: Where a function ends, and where it is all but one of its limits; normal numbers everywhere.
NEAR: dict[str, list[Any]] = {
    "exp": [88.0, 88.5, 88.7, -86.5, -87.0, -87.3, 1e-4, -1e-4, 1e-30, 30.0, -30.0, 1 / 3, 50 / 7,
            -300 / 7, -500 / 7, 600 / 7],
    "log": [1e-37, 3e38, 1.0, 0.9, 1.1, 0.5, 2.0, 1e-10, 1e10, 1 + 1e-3, 1 - 1e-3, 1 + 2e-6,
            1 - 2e-6, 1 + 1e-9, 1 - 1e-9, 7e20 / 3],
    "sin": [1e-4, 1e-8, 1e-30, 3.0, 3.1, 22.0, 355.0, 1e4, 1e5, 2e7, -2e7, 1e9, 1 / 3, 1e-2 / 7],
    "tanh": [1e-8, -1e-8, 1e-4, 1e-30, 0.1, 3.0, 8.9, 9.1, -20.0, -1e-3, 1 / 3, 50 / 7, 1e-2 / 7]}


@verifies("statements.function.digits")
def test_functions_have_digits_where_their_results_are_small_or_large(subject: Subject) -> None:
    for do, numbers in NEAR.items():
        for dtype in ("float32", "float64"):
            with shown(subject) as draft:
                draft.add(do, given(draft, numbers, dtype))
        with shown(subject) as draft:
            halves = [number for number in numbers if 1e-4 <= abs(number) <= 60000]
            draft.add(do, given(draft, halves, "float16"))


@verifies("statements.softmax.large")
def test_weights_of_large_numbers_of_each_dtype(subject: Subject) -> None:
    for dtype in FLOATS:
        with shown(subject) as draft:
            rows = [[60000, 59968, 100], [-60000, -59968, -60000], [100, 101, 99]]
            x = given(draft, rows, dtype)
            for axis in (0, 1):
                draft.add("softmax", x, axis=axis)
            block = given(draft, [rows, np.array(rows)[::-1].tolist(), np.array(rows).T], dtype)
            for axis in (0, 1, 2):
                draft.add("softmax", block, axis=axis)


@verifies("statements.pow.value")
def test_powers_of_negative_numbers(subject: Subject) -> None:
    """A whole exponent has a sign to give; another one has no real result."""
    for dtype in ("float32", "float64"):
        with shown(subject) as draft:
            bases, exponents = np.meshgrid([-3.0, -2.0, -0.5, -1.0], [2, 3, 5, -1, -3, 0, 0.5, 7])
            draft.add("pow", given(draft, bases, dtype), given(draft, exponents, dtype))
            for exponent in (3, -3, 5, 0.5):
                x = given(draft, [-3.0, -1.5, 2.0], dtype)
                draft.add("pow", x, draft.constant(draft.kinds[x], exponent))


@verifies("statements.pow.value")
def test_powers_of_each_number_by_each(subject: Subject) -> None:
    """Infinities, zeros and NaN too; a base that the exponent uses is not lost."""
    bases = [-INF, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, INF, NAN]
    exponents = [2.0, 3.0, 1.0, 0.5, -1.0, -2.0, -0.5, 4.0, 7.0]
    for dtype in FLOATS:
        with shown(subject) as draft:
            x = given(draft, bases, dtype)
            for exponent in exponents:
                draft.add("pow", x, draft.constant(draft.kinds[x], exponent))
            both = np.meshgrid(bases, exponents)
            draft.add("pow", *(given(draft, each, dtype) for each in both))


@verifies("statements.pow.value")
def test_powers_have_their_digits(subject: Subject) -> None:
    """A whole exponent, a half, and one between; known before and not."""
    random = np.random.default_rng(8)
    for dtype in ("float32", "float64"):
        with shown(subject) as draft:
            x = given(draft, np.abs(random.standard_normal(40)) * 4 + 0.1, dtype)
            for exponent in (2.0, 3.0, 4.0, 5.0, 8.0, -1.0, -3.0, 0.5, 1.5, 7.25, 1 / 3):
                draft.add("pow", x, draft.constant(draft.kinds[x], exponent))
                draft.add("pow", x, given(draft, [exponent] * 40, dtype))


@verifies("statements.log.below")
def test_functions_of_subnormal_halves_and_doubles(subject: Subject) -> None:
    """Logarithms and roots of them are far from subnormal."""
    for dtype, numbers in (("float16", [6e-8, 3.6e-7, 2e-6, 3e-5, 6e-5]),
                           ("float64", [5e-324, 1e-320, 3e-310, 2e-308])):
        if subject.flushes(dtype):
            continue
        with shown(subject) as draft:
            x = given(draft, numbers, dtype)
            draft.add("log", x)
            draft.add("sqrt", x)


@verifies("statements.constant.digits")
def test_constants_that_need_all_their_digits(subject: Subject) -> None:
    """Seventeen of a double, nine of a single: with one less they are a neighbour."""
    numbers = {"float64": [0.1 + 0.2, 1 / 3 + 1e-16, 2 / 3 * 1e-7, 0.7 + 0.1, 1e22 + 2.0**21],
               "float32": [16777217 / 2**20, 0.1, 1 / 3, 1 + 2.0**-23, 9.00000095]}
    for dtype, constants in numbers.items():
        with shown(subject) as draft:
            x = given(draft, [0.0, 1.0, -2.0], dtype)
            for number in constants:
                constant = draft.constant(draft.kinds[x], number)
                draft.add("add", x, constant)
                draft.add("mul", x, constant)


@verifies("statements.and.bits")
@verifies("statements.or.bits")
def test_masks_of_what_a_cast_has_made_wide(subject: Subject) -> None:
    """A negative number has all bits above its own: what is compared, divided and limited then."""
    for narrow, wide in (("int8", "int32"), ("int16", "int64"), ("uint8", "int32"),
                         ("int8", "uint16"), ("int32", "int64")):
        for mask in (255, 15, 1023, 127):
            with shown(subject, between=False) as draft:
                x = draft.add("cast", given(draft, [-1, -100, 5, 127, 0], narrow), dtype=wide)
                for do in ("and", "or", "xor"):
                    bits = draft.add(do, x, draft.constant(draft.kinds[x], mask))
                    for other, number in (("less", 130), ("maximum", 128), ("floordiv", 200),
                                          ("mod", 256), ("minimum", 1)):
                        draft.add(other, bits, draft.constant(draft.kinds[x], number))


@verifies("statements.div.rounded")
def test_quotients_by_each_power_of_two(subject: Subject) -> None:
    """Also by those whose reciprocal the dtype has not, or has as a subnormal number."""
    for dtype, powers in (("float16", range(-24, 16)), ("float32", range(-149, 128, 9)),
                          ("float64", range(-1074, 1024, 61))):
        if subject.flushes(dtype):
            continue
        with shown(subject) as draft:
            for power in powers:
                x = given(draft, np.array([0, 1, 1.5, -3]) * 2.0**max(power, powers[0]), dtype)
                draft.add("div", x, draft.constant(draft.kinds[x], 2.0**power))


@verifies("statements.cast.nearest")
@verifies("statements.kind.any")
def test_two_dtypes_of_one_size_side_by_side(subject: Subject) -> None:
    """The same bits, cast to one dtype in one go: each as what it is."""
    array = np.array([0xFFFF, 2, 0x80, 0x7F, 0xFF81], np.uint64) * np.uint64(0x0001000100010001)
    for one, other in (("int8", "uint8"), ("int16", "uint16"), ("int32", "uint32"),
                       ("int64", "uint64"), ("int32", "float32"), ("uint16", "float16")):
        for target in ("float64", "int64"):
            if target == "int64" and other.startswith("float"):
                continue
            with shown(subject, between=False) as draft:
                for dtype in (one, other, one):
                    x = given(draft, array.view(dtype), dtype)
                    y = draft.add("cast", x, dtype=target)
                    draft.add("add", y, y)


@verifies("statements.reciprocal.rounded")
@verifies("statements.div.rounded")
def test_quotients_by_subnormal_numbers(subject: Subject) -> None:
    """And such quotients, and quotients of two of them: none of these is zero or infinite."""
    for dtype in FLOATS:
        if subject.flushes(dtype):
            continue
        tiny = float(np.finfo(dtype).tiny)
        least = float(np.finfo(dtype).smallest_subnormal)
        with shown(subject) as draft:
            small = np.array([tiny * 0.75, tiny * 0.9, -tiny * 0.6, tiny - least, -tiny])
            x = given(draft, small, dtype)
            draft.add("reciprocal", x)
            others = given(draft, [tiny * 0.9, tiny, 1.5, -tiny * 4, 3 * least], dtype)
            draft.add("div", others, x)
            draft.add("div", x, given(draft, [3, 7, 1.5, 2, 5], dtype))
            draft.add("div", x, draft.constant(draft.kinds[x], 3.0))


@verifies("conventions.rounding.point")
def test_subnormal_halves_and_doubles_are_rounded_like_others(subject: Subject) -> None:
    """Who does not say that they become zero keeps each of their bits."""
    for dtype, least in (("float16", 2.0**-24), ("float64", 2.0**-1074)):
        if dtype not in subject.info.dtypes or subject.flushes(dtype):
            continue
        draft = Draft()
        many = np.array([1, 3, -7, 100, 1000, -1023]) * least
        x, y = given(draft, many, dtype), given(draft, many[::-1], dtype)
        names = [draft.add(do, x, y) for do in ("add", "sub", "maximum")]
        names += [draft.add("mul", x, draft.constant(draft.kinds[x], 3.0)),
                  draft.add("neg", x), draft.add("copy", x), draft.add("less", x, y),
                  draft.add("sum", x, axes=[0], keepdims=False)]
        draft.append({"do": "observe", "names": names})
        subject.check_declared_by(protocol.program(draft.statements), _differing)


def _differing(program: Program, values: Sequence[Value]) -> str:
    """The values that are not, bit for bit, those of NumPy."""
    wrong = [(each.name, value.array().tolist(), each.value.tolist())
             for each, value in zip(oracle.run(program), values, strict=True)
             if not np.array_equal(value.array(), each.value)]
    return "; ".join(f"{name} is {is_!r}, not {wanted!r}" for name, is_, wanted in wrong)


@verifies("statements.softmax.axis")
def test_weights_of_what_is_not_finite(subject: Subject) -> None:
    """Minus infinity weighs nothing; NaN, or an infinity, makes NaN of its line and of no other."""
    rows = [[-INF, 1.0, 2.0], [1.0, NAN, 2.0], [0.0, 1.0, -INF], [1.0, INF, 2.0], [3.0, 2.0, 1.0],
            [-INF, -INF, 5.0], [-INF, -INF, -INF], [-1.0, 20.0, -30.0]]
    for dtype in FLOATS:
        with shown(subject) as draft:
            draft.add("softmax", given(draft, rows, dtype), axis=1)
            draft.add("softmax", given(draft, np.transpose(rows), dtype), axis=0)


@verifies("conventions.nan.propagate")
def test_products_of_tables_with_zeros_and_infinities(subject: Subject) -> None:
    """Zero times an infinity is NaN, in a row of zeros as well."""
    left = [[0, 0, 0], [1, 0, 2], [0, -0.0, 0], [1, 1, 1], [INF, 0, 1]]
    right = [[1, INF, 2, NAN], [3, 1, -INF, 0], [0, 2, 1, 1]]
    for dtype in FLOATS:
        with shown(subject) as draft:
            x, y = given(draft, left, dtype), given(draft, right, dtype)
            draft.add("matmul", x, y)
            draft.add("matmul", draft.add("permute", y, order=[1, 0]),
                      draft.add("permute", x, order=[1, 0]))


@verifies("tensor.matmul.half")
def test_products_of_halves_cancel_before_they_are_rounded(subject: Subject) -> None:
    """45 * 47 needs more digits than a half has; 44 * 48, taken away from it, leaves 3."""
    with shown(subject) as draft:
        left = given(draft, [[45, 44], [-91, 90], [2047, 2047]], "float16")
        right = given(draft, [[47, 61], [-48, 67]], "float16")
        draft.add("matmul", left, right)
        draft.add("matmul", draft.add("shrink", left, bounds=[[0, 1], [0, 2]]),
                  draft.add("shrink", right, bounds=[[0, 2], [0, 1]]))


@verifies("statements.constant.digits")
def test_constants_are_rounded_once(subject: Subject) -> None:
    """Just beside the middle of two halves, or of two singles, and very small ones."""
    for dtype, step in (("float16", 2.0**-10), ("float32", 2.0**-23)):
        with shown(subject) as draft:
            for value in (1 + step / 2 + 2.0**-45, 1 + 1.5 * step - 2.0**-45,
                          -(1 + step / 2 + 2.0**-45), 3 * step / 7):
                draft.add("copy", draft.add("constant", dtype=dtype, shape=[2], value=value))


@verifies("statements.div.rounded")
@verifies("statements.mod.sign")
def test_operations_with_a_number_that_is_known(subject: Subject) -> None:
    """On either side; of integers such as a shift or a mask might do, and such as they do not."""
    random = np.random.default_rng(9)
    for dtype in ("float32", "float64"):
        with shown(subject) as draft:
            x = given(draft, random.standard_normal(30) * 10, dtype)
            for value in (3.0, 5.0, 10.0, 0.1, 0.625, 8.0):
                known = draft.constant(draft.kinds[x], value)
                for do in ("div", "mul", "sub"):
                    draft.add(do, x, known)
                    draft.add(do, known, x)
    for dtype in ("int32", "uint8"):
        with shown(subject) as draft:
            x = given(draft, np.arange(-40, 41) * 3, dtype)
            for value in (1, 2, 3, 8, 10, 127, *((-1, -2, -7) if dtype[0] == "i" else ())):
                known = draft.constant(draft.kinds[x], value)
                for do in ("floordiv", "mod", "mul", "and", "or", "less", "maximum"):
                    draft.add(do, x, known)


@verifies("statements.comparison.nan")
@verifies("conventions.nan.propagate")
def test_an_operand_that_stands_twice(subject: Subject) -> None:
    """NaN differs from itself, and takes away no infinity; zeros and integers are as usual."""
    for dtype, numbers in (*((each, [NAN, INF, -INF, 0.0, -0.0, 1.5, -2.0]) for each in FLOATS),
                           ("int32", [0, 1, -1, 7, -(2**31), 2**31 - 1]), ("bool", [True, False])):
        with shown(subject) as draft:
            x = given(draft, numbers, dtype)
            for do in (*protocol.COMPARISONS, "maximum", "minimum", *(
                    ("and", "or", "xor") if dtype == "bool" else ("add", "sub", "mul")), *(
                    ("div",) if dtype in FLOATS else ()), *(
                    ("floordiv", "mod", "xor", "and") if dtype == "int32" else ())):
                draft.add(do, x, x)
            draft.add("where", draft.add("equal", x, x), x, draft.add("copy", x))
