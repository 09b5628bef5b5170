"""The same statements on more elements, on more axes, on sizes that leave a remainder.

Chapter: spec/statements.md."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft
from conformance.protocol import Array
from conformance.runner.subject import Subject
from conformance.suite import verifies
from conformance.suite.test_statements import given

#: One more and one fewer than what vectors, tiles, lanes and bytes have, and some primes.
LENGTHS = (31, 33, 127, 257, 1031, 4099)
#: More than 2 ** 16, and no multiple of anything.
MANY = 65537 + 34
#: Rows, inner length, columns.
PRODUCTS = ((33, 65, 17), (7, 129, 31), (66, 34, 5), (1, 301, 1), (35, 7, 67), (1, 70, 33))


def _small(count: int, seed: int = 1) -> Array:
    """Whole numbers from -3 to 3 without a pattern: all sums of them are exact."""
    return np.random.default_rng(seed).integers(-3, 4, count)


def _checked(subject: Subject, draft: Draft, *names: str) -> None:
    draft.append({"do": "observe", "names": list(names)})
    subject.check_declared(protocol.program(draft.statements))


@verifies("statements.size.any")
def test_element_by_element_at_many_lengths(subject: Subject) -> None:
    for length in LENGTHS:
        draft = Draft()
        x, y = (given(draft, _small(length, seed), "int32") for seed in (1, 2))
        z = given(draft, _small(length) / 4, "float32")
        names = [draft.add(do, x, y) for do in ("add", "mul", "less")]
        names += [draft.add("where", names[-1], x, y), draft.add("cast", x, dtype="float32"),
                  draft.add("exp", z), draft.add("copy", x), draft.add("flip", y, axes=[0])]
        _checked(subject, draft, *names)


@verifies("statements.size.any")
def test_reductions_at_many_lengths(subject: Subject) -> None:
    for length in LENGTHS:
        draft = Draft()
        flat = given(draft, _small(length), "float32")
        names = [draft.add(do, flat, axes=[0], keepdims=False) for do in ("sum", "max", "mean")]
        # The greatest number stands somewhere else in each row, also at the end.
        rows = _small(3 * length).reshape(3, length)
        rows[0, -1], rows[1, length // 2], rows[2, 0] = 9, 8, 7
        x = given(draft, rows, "int32")
        for axes in ([0], [1]):
            for do in ("sum", "max", "min"):
                names.append(draft.add(do, x, axes=axes, keepdims=False))
        names += [draft.add("max", given(draft, rows[0], "int32"), axes=[0], keepdims=False),
                  draft.add("cumsum", x, axis=1), draft.add("cumsum", x, axis=0),
                  draft.add("softmax", flat, axis=0)]
        _checked(subject, draft, *names)


@verifies("statements.size.any")
def test_sums_of_more_than_two_bytes_count(subject: Subject) -> None:
    """A number whose elements a runtime may sum in parts; the parts need more than a half has."""
    for dtype in ("float32", "int32"):
        draft = Draft()
        x = given(draft, _small(MANY) + 2, dtype)
        names = [draft.add(do, x, axes=[0], keepdims=False) for do in ("sum", "max", "min")]
        table = given(draft, np.arange(4 * 2051).reshape(4, 2051) % 1999, dtype)
        names += [draft.add("sum", table, axes=axes, keepdims=False) for axes in ([0], [1], [0, 1])]
        names += [draft.add("neg", x)]
        _checked(subject, draft, *names)


@verifies("statements.size.any")
def test_products_of_matrices_that_no_tile_divides(subject: Subject) -> None:
    for dtype in ("float32", "int32"):
        for rows, inner, columns in PRODUCTS:
            draft = Draft()
            left = given(draft, _small(rows * inner).reshape(rows, inner), dtype)
            right = given(draft, _small(inner * columns, 2).reshape(inner, columns), dtype)
            _checked(subject, draft, draft.add("matmul", left, right))
        for lead in ((6,), (2, 5), (2, 3, 2)):
            draft = Draft()
            left, right = (given(draft, _small(prod(lead) * 5 * 7, seed).reshape(*lead, *last),
                                 dtype) for seed, last in enumerate(((5, 7), (7, 5))))
            _checked(subject, draft, draft.add("matmul", left, right))


@verifies("statements.size.any")
def test_products_need_all_digits_of_their_operands(subject: Subject) -> None:
    """Whole numbers of eleven bits and more, whose products and sums a single holds."""
    for dtype, digits in (("float32", 11), ("float64", 25), ("int32", 13), ("int64", 30)):
        draft = Draft()
        numbers = (np.random.default_rng(3).integers(2**(digits - 1), 2**digits, (2, 2, 3, 3)) | 1)
        left, right = (given(draft, each, dtype) for each in numbers)
        one, other = (given(draft, each[0], dtype) for each in numbers)
        _checked(subject, draft, draft.add("matmul", left, right), draft.add("matmul", one, other))


@verifies("statements.size.any")
def test_rows_whose_number_needs_more_than_a_byte(subject: Subject) -> None:
    for count in (300, MANY):
        draft = Draft()
        index = [0, 255, 256, 299, 257, 128] + [65535, 65536, MANY - 1] * (count == MANY)
        x = given(draft, np.arange(count) * 3, "int32")
        names = [draft.add("gather", x, given(draft, index, dtype))
                 for dtype in ("int32", "int64")]
        _checked(subject, draft, *names)


@verifies("statements.size.any")
def test_reductions_of_five_axes(subject: Subject) -> None:
    shape = (2, 3, 2, 1, 3)
    for do in ("sum", "max"):
        draft = Draft()
        x = given(draft, _small(prod(shape)).reshape(shape) * 5 + np.arange(36).reshape(shape),
                  "int32")
        names = [draft.add(do, x, axes=list(axes), keepdims=False) for count in (1, 2, 3, 5)
                 for axes in combinations(range(5), count)]
        _checked(subject, draft, *names[::2 if do == "max" else 1])


@verifies("statements.size.any")
def test_reductions_of_eight_axes(subject: Subject) -> None:
    """Whichever axes are left, they are in their order."""
    shape = (2, 1, 3, 2, 1, 2, 2, 3)
    draft = Draft()
    x = given(draft, _small(prod(shape)).reshape(shape) + 7 * np.arange(144).reshape(shape),
              "int32")
    names = [draft.add("sum", x, axes=axes, keepdims=keepdims) for axes, keepdims in (
        ([0], False), ([1], False), ([2], True), ([7], False), ([4], False), ([0, 3], False),
        ([1, 4], False), ([2, 5, 7], True))]
    _checked(subject, draft, *names, draft.add("permute", x, order=[7, 0, 6, 1, 5, 2, 4, 3]))


@verifies("statements.size.any")
def test_values_of_many_bytes_side_by_side(subject: Subject) -> None:
    """None of them starts in the first bytes of memory: offsets need more than two bytes."""
    rows = 2048
    draft = Draft()
    x = given(draft, np.arange(4 * rows).reshape(4, rows) % 509, "int32")
    values = []
    for number in range(12):
        factor = draft.constant(draft.kinds[x], number + 2)
        values.append(draft.add("cumsum", draft.add("mul", x, factor), axis=number % 2))
    total = values[-1]
    for value in values[:-1]:
        total = draft.add("sub", draft.add("contiguous", draft.add("flip", total, axes=[1])), value)
    draft.append({"do": "drop", "names": [name for name in draft.kinds if name not in (x, total)]})
    _checked(subject, draft, total)


@verifies("statements.size.any")
def test_large_tables_turned_and_repeated(subject: Subject) -> None:
    draft = Draft()
    for rows, columns in ((33, 70), (65, 129)):
        x = given(draft, np.arange(rows * columns).reshape(rows, columns), "int32")
        row = draft.add("expand", draft.add("shrink", x, bounds=[[0, 1], [0, columns]]),
                        shape=[rows, columns])
        turned = draft.add("permute", x, order=[1, 0])
        _checked(subject, draft, turned, draft.add("add", x, row))


@verifies("statements.size.any")
def test_many_values_that_come_and_go(subject: Subject) -> None:
    """Sixty values of three sizes; all of them are alive for a while, and some to the end."""
    for lives, sizes in ((3, ((5,), (16,), (33,))), (9, ((5,), (16,), (33,))),
                         (4, ((300,), (700,), (1300,)))):
        draft = Draft()
        kept = list[str]()
        alive = [given(draft, np.arange(prod(shape)) + 1, "int32") for shape in sizes]
        for number in range(60):
            same = [name for name in alive
                    if draft.kinds[name].shape == sizes[number * number % 3]]
            value = draft.add("contiguous", draft.add("sub", same[-1], same[0]))
            value = draft.add("contiguous", draft.add("add", value, same[len(same) // 2]))
            alive.append(value)
            if len(same) > lives:
                draft.append({"do": "drop", "names": [same[1]]})
                alive.remove(same[1])
            if number % 10 == 9:
                kept.append(value)
        _checked(subject, draft, *alive)


@verifies("statements.size.any")
def test_whatever_is_left_over_of_sixteen(subject: Subject) -> None:
    """Each remainder of vectors, behind more than 256 elements, in a loop and in a reduction."""
    for remainder in range(16):
        draft = Draft()
        x, y = (given(draft, _small(272 + remainder, seed), "int32") for seed in (1, 2))
        total = draft.add("sub", draft.add("mul", x, y), x)
        spread = np.arange(272 + remainder) * 5 % 311
        spread[-1], spread[-2] = 400, -400
        least = given(draft, spread, "int32")
        _checked(subject, draft, total, draft.add("max", least, axes=[0], keepdims=False),
                 draft.add("min", least, axes=[0], keepdims=False))
    for length in (527, 1043):  # 15 and 3 more than whole vectors, behind more of them
        draft = Draft()
        x, y = (given(draft, _small(length, seed), "int32") for seed in (1, 2))
        _checked(subject, draft, draft.add("sub", draft.add("mul", x, y), x))


@verifies("statements.size.any")
def test_products_of_whatever_is_left_over(subject: Subject) -> None:
    """Rows, inner lengths and columns have each remainder of sixteen once, in other orders."""
    draft = Draft()
    table = np.random.default_rng(5).integers(-3, 4, (2, 96, 96))
    left, right = (given(draft, each, "int32") for each in table)
    names = []
    for remainder in range(16):
        rows, inner, columns = 65 + 5 * remainder % 16, 64 + remainder, 17 + 7 * remainder % 16
        names.append(draft.add("matmul", draft.add("shrink", left, bounds=[[0, rows], [0, inner]]),
                               draft.add("shrink", right, bounds=[[0, inner], [0, columns]])))
        if remainder % 4 == 3:
            _checked(subject, draft, *names[-4:])
    draft = Draft()
    left, right = (given(draft, _small(35 * 6, seed).reshape(35, *last), "int32")
                   for seed, last in ((1, (2, 3)), (2, (3, 2))))
    _checked(subject, draft, draft.add("matmul", left, right))


@verifies("statements.size.any")
def test_an_index_of_each_dtype_as_far_as_it_goes(subject: Subject) -> None:
    """Numbers whose first bit is set are no negative ones."""
    wide = np.arange(300 * 70).reshape(300, 70) % 4001
    for dtype, places in (("uint8", [0, 127, 128, 255, 200]), ("int8", [0, 127, 64]),
                          ("uint16", [0, 255, 256, 299]), ("int16", [299, 256, 128]),
                          ("uint32", [299, 0, 128]), ("int64", [128, 299])):
        draft = Draft()
        index = given(draft, places, dtype)
        _checked(subject, draft, draft.add("gather", given(draft, wide, "int32"), index),
                 draft.add("gather", given(draft, wide[:, 0], "float32"), index))
    draft = Draft()
    many = given(draft, np.arange(MANY) * 3, "int32")
    _checked(subject, draft, *(draft.add("gather", many, given(draft, places, dtype))
                               for dtype, places in (("uint16", [32767, 32768, 65535, 40000]),
                                                     ("int32", [32768, MANY - 1, 65536]))))


@verifies("statements.size.any")
def test_what_runs_along_any_long_axis(subject: Subject) -> None:
    """Columns and middle axes of some hundred elements, not the rows alone."""
    for shape, axis in (((1100, 2), 0), ((2, 301, 3), 1), ((300, 2, 2), 0), ((2, 2, 290), 2)):
        draft = Draft()
        numbers = _small(prod(shape)).reshape(shape)
        x, y = given(draft, numbers, "int32"), given(draft, numbers / 4, "float32")
        names = [draft.add("cumsum", x, axis=axis), draft.add("softmax", y, axis=axis)]
        names += [draft.add(do, x, axes=[axis], keepdims=False) for do in ("sum", "max", "min")]
        _checked(subject, draft, *names)
    draft = Draft()
    signs = np.where(np.random.default_rng(2).random((3, 70)) < 0.5, -1, 1)
    signs[:, [0, 35, -1]] = [[-1, 3, 5], [7, -1, 2], [2, 2, -3]]
    far = np.arange(40001) % 509
    far[-1], far[-2] = -5, 600
    x, y = given(draft, signs, "int32"), given(draft, far, "int32")
    _checked(subject, draft, draft.add("prod", x, axes=[1], keepdims=False),
             *(draft.add(do, y, axes=[0], keepdims=False) for do in ("max", "min", "sum")))
