"""Numbers that need all their digits, and elements that decide a result wherever they stand.

Chapter: spec/statements.md."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft
from conformance.protocol import FLOATS, INTEGERS
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
    "exp": [88.0, 88.5, 88.7, -86.5, -87.0, -87.3, 1e-4, -1e-4, 1e-30, 30.0, -30.0],
    "log": [1e-37, 3e38, 1.0, 0.9, 1.1, 0.5, 2.0, 1e-10, 1e10],
    "sin": [1e-4, 1e-8, 1e-30, 3.0, 3.1, 22.0, 355.0, 1e4, 1e5, 2e7, -2e7, 1e9],
    "tanh": [1e-8, -1e-8, 1e-4, 1e-30, 0.1, 3.0, 8.9, 9.1, -20.0, -1e-3]}


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
