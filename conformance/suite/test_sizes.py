"""The same statements on more elements, on more axes, on sizes that leave a remainder.

Chapter: spec/statements.md."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft
from conformance.protocol import Array, Statement
from conformance.protocol.shapes import view_shape
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
@verifies("statements.max.negative")
@verifies("statements.min.positive")
def test_rows_on_one_side_of_zero_at_many_lengths(subject: Subject) -> None:
    """What is put behind the end of a row, to fill a block, is neither its greatest nor its least.
    """
    for length in (*LENGTHS, 63, 130, 200, 511):
        draft, names = Draft(), list[str]()
        below = -1 - np.random.default_rng(length).integers(0, 90, (3, length))
        for dtype in ("float32", "int32", "int8", "float64"):
            for do, rows in (("max", below), ("min", -below)):
                x, y = given(draft, rows, dtype), given(draft, rows.T, dtype)
                names += [draft.add(do, x, axes=[1], keepdims=False),
                          draft.add(do, y, axes=[0], keepdims=False),
                          draft.add(do, x, axes=[0, 1], keepdims=False)]
        signs = given(draft, np.where(below % 5 == 0, -1, 1), "float32")
        names += [draft.add("prod", signs, axes=[1], keepdims=False),
                  draft.add("softmax", given(draft, below - 300, "float32"), axis=1)]
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


@verifies("statements.store.rest")
@verifies("statements.size.any")
def test_writes_behind_more_elements_than_two_bytes_count(subject: Subject) -> None:
    for dtype, count in (("int32", 40011), ("int8", MANY)):
        draft, names = Draft(), list[str]()
        for start, stop in ((count - 7, count), (32766, 32770), (count // 2, count // 2 + 3000)):
            target = draft.add("copy", given(draft, _small(count), dtype))
            value = given(draft, 20 + _small(stop - start, 2), dtype)
            draft.append({"do": "store", "target": target, "from": [value],
                          "view": [{"do": "shrink", "bounds": [[start, stop]]}]})
            names.append(target)
        _checked(subject, draft, *names)


@verifies("statements.mean.value")
@verifies("statements.size.any")
def test_means_of_more_elements_than_a_half_counts(subject: Subject) -> None:
    """A half has no number above 65504, which is also how many elements a mean divides by."""
    for dtype in ("float16", "float32"):
        draft = Draft()
        x = given(draft, np.full(MANY, 3), dtype)
        rows = given(draft, np.full((MANY, 2), [0.25, 2]), dtype)
        names = [draft.add("mean", x, axes=[0], keepdims=False),
                 draft.add("mean", rows, axes=[0], keepdims=True),
                 draft.add("mean", rows, axes=[0, 1], keepdims=False)]
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
    table = np.random.default_rng(5).integers(-3, 4, (2, 96, 96))
    for first in subject.part(range(0, 16, 4)):
        draft, names = Draft(), list[str]()
        left, right = (given(draft, each, "int32") for each in table)
        for remainder in range(first, first + 4):
            rows, inner, columns = 65 + 5 * remainder % 16, 64 + remainder, 17 + 7 * remainder % 16
            names.append(draft.add(
                "matmul", draft.add("shrink", left, bounds=[[0, rows], [0, inner]]),
                draft.add("shrink", right, bounds=[[0, inner], [0, columns]])))
        _checked(subject, draft, *names)
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


# Ladders: each role of a statement goes through sizes ----------------------------------------

#: What a vector, a tile, a group or a byte holds, one fewer and one more, and round numbers.
LADDER = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128, 129,
          192, 200, 255, 256, 257, 320, 384, 500, 511, 512, 513, 768, 1000, 1023, 1024, 1025, 1536,
          2000, 2047, 2048, 2049, 3072, 4095, 4096, 4097, 8192, 10000, 16384, 32768, 65535, 65536,
          65537, 70000, 131072)
#: Lines beside a length, the latter from one to some thousands: `(before, length, after)`.
LINES = ((1, 1, 1), (65, 4, 1), (130, 3, 1), (257, 2, 1), (5000, 3, 1), (9, 1, 9), (3, 64, 1),
         (1, 128, 2), (70, 16, 5), (2, 512, 1), (1, 1, 40), (2, 5, 130), (16, 16, 16), (3, 9, 257),
         (4, 256, 4), (101, 70, 1), (2, 1024, 1), (1, 2048, 3), (4097, 1, 2), (300, 8, 3),
         (33, 33, 1), (2, 600, 2), (129, 17, 2), (5, 4096, 1), (32, 2, 32), (1, 3, 1100))
#: Rows, inner length and columns: one role is long, or all are whole tiles.
TABLES = ((16, 16, 16), (32, 32, 32), (64, 64, 64), (8, 8, 8), (48, 16, 32), (128, 16, 4),
          (4, 16, 128), (129, 3, 2), (2, 3, 129), (300, 2, 3), (3, 2, 300), (5, 9, 1), (1, 9, 17),
          (40, 64, 1), (1, 64, 40), (1, 256, 1), (1, 1, 1), (17, 1, 17), (2, 1024, 2), (7, 512, 3),
          (1, 4097, 2), (257, 1, 33), (33, 1, 257), (600, 5, 1), (1, 5, 600), (2, 128, 256),
          (256, 128, 2), (65, 65, 65), (96, 7, 96), (20, 100, 20))


@verifies("statements.size.any")
def test_loops_of_each_length(subject: Subject) -> None:
    """An operation on so many elements, and the sum, the ends and the running sum of them."""
    for length in subject.part(LADDER, at_least=5):
        draft = Draft()
        x, y = (given(draft, _small(length, seed), "int32") for seed in (1, 2))
        made = draft.add("sub", draft.add("mul", x, y), x)
        places = np.arange(length) * 7919 % 1000003  # a number of its own for each place
        far = given(draft, places, "int32")
        turned = draft.add("sub", draft.add("flip", far, axes=[0]), y)
        names = [made, turned, draft.add("sum", x, axes=[0], keepdims=False),
                 draft.add("max", far, axes=[0], keepdims=False)]
        if length <= 5000:
            names += [draft.add("cumsum", x, axis=0),
                      draft.add("mean", draft.add("cast", x, dtype="float32"), axes=[0],
                                keepdims=False)]
        _checked(subject, draft, *names)


@verifies("statements.size.any")
def test_lines_of_each_number_and_length(subject: Subject) -> None:
    """Reductions, running sums and weights along the last, the middle and the first axis."""
    for before, length, after in subject.part(LINES, at_least=5):
        draft = Draft()
        shape = (before, length, after)
        numbers = _small(prod(shape)).reshape(shape)
        x = given(draft, numbers + np.arange(before)[:, None, None] % 90, "int32")
        y = given(draft, numbers / 4 + np.arange(after) % 3, "float32")
        names = [draft.add("cumsum", x, axis=1), draft.add("softmax", y, axis=1)]
        names += [draft.add(do, x, axes=axes, keepdims=False) for do, axes in (
            ("sum", [1]), ("max", [1]), ("min", [0]), ("sum", [0, 2]), ("max", [2]))]
        if min(before, after) == 1:
            flat = draft.add("reshape", x, shape=[before, length * after])
            names += [draft.add("sum", flat, axes=[1], keepdims=True),
                      draft.add("cumsum", flat, axis=0), draft.add("cumsum", flat, axis=1),
                      draft.add("softmax", draft.add("reshape", y, shape=[before, length * after]),
                                axis=1)]
        _checked(subject, draft, *names)


@verifies("statements.size.any")
def test_products_of_tables_of_each_size(subject: Subject) -> None:
    for number, (rows, inner, columns) in enumerate(subject.part(TABLES, at_least=5)):
        draft = Draft()
        lead = ((), (), (2,), (3, 2), (1,), (17,), (33,))[number % 7] \
            if rows * inner * columns < 5000 else ()
        left, right = (given(draft, _small(prod((*lead, *last)), seed).reshape(*lead, *last),
                             ("int32", "float32")[number % 2])
                       for seed, last in enumerate(((rows, inner), (inner, columns)), 1))
        _checked(subject, draft, draft.add("matmul", left, right))


@verifies("statements.matmul.batch")
def test_more_matrices_than_a_byte_counts(subject: Subject) -> None:
    """Each product is that of its own two, also behind the 256th."""
    for lead in ((257,), (300,), (3, 100), (2, 2, 65), (1030,)):
        for dtype in ("int32", "float32"):
            draft = Draft()
            left, right = (given(draft, _small(prod((*lead, *last)), seed).reshape(*lead, *last),
                                 dtype) for seed, last in ((1, (2, 3)), (2, (3, 2))))
            _checked(subject, draft, draft.add("matmul", left, right))


@verifies("statements.gather.shape")
def test_indices_and_rows_of_each_shape(subject: Subject) -> None:
    """An index of one axis to four, with few numbers and with thousands; rows of none to four."""
    shapes = (((7,), (300,)), ((257,), (5,)), ((300, 2), (4,)), ((5, 3), (16, 17)),
              ((4, 2, 3), (6,)), ((3, 2, 2, 3), (5,)), ((6,), (2, 3, 4)), ((2, 3, 2, 1, 2), (2, 2)),
              ((40,), (65, 64)), ((129, 5), (2, 2, 2, 2)), ((3, 4, 5), (3, 1, 2)),
              ((5000,), (4100,)), ((2, 3), (0,)), ((4100, 2), (3,)), ((1, 5), (513,)),
              ((9, 1, 1), (1, 1)))
    for rows, index in subject.part(shapes, at_least=4):
        draft = Draft()
        places = (np.arange(prod(index)) * 7 + 3) % rows[0]
        x = given(draft, np.arange(prod(rows)).reshape(rows), "int32")
        _checked(subject, draft, draft.add("gather", x, given(
            draft, places.reshape(index), "int32")))


@verifies("statements.size.any")
def test_reductions_of_axes_of_one_size(subject: Subject) -> None:
    """Which of them are left shows in the values alone."""
    for shape in subject.part(((3, 3, 3), (2, 2, 2, 2), (3, 4, 4, 3), (2, 3, 3, 3, 2)), at_least=2):
        draft = Draft()
        x = given(draft, np.arange(prod(shape)) ** 2 % 101 + 1, "int32")
        x = draft.add("reshape", x, shape=list(shape))
        rank = len(shape)
        names = [draft.add("sum", x, axes=list(axes), keepdims=False)
                 for count in range(1, rank) for axes in combinations(range(rank), count)]
        names += [draft.add("cumsum", x, axis=axis) for axis in range(rank)]
        _checked(subject, draft, *names)


@verifies("statements.size.any")
def test_numbers_that_are_repeated_often(subject: Subject) -> None:
    """As a value of its own, as an operand, and padded."""
    for shape, wide in subject.part((((1,), (5000,)), ((3, 1), (3, 2001)), ((1, 4, 1), (70, 4, 33)),
                                     ((1, 1), (257, 256)), ((2, 1, 3, 1), (2, 40, 3, 30))),
                                    at_least=2):
        draft = Draft()
        x = given(draft, np.arange(prod(shape)).reshape(shape) + 5, "int32")
        y = given(draft, _small(prod(wide)).reshape(wide), "int32")
        often = draft.add("expand", x, shape=list(wide))
        padded = draft.add("pad", often, widths=[[1, 2]] * len(wide))
        _checked(subject, draft, often, draft.add("mul", often, y), padded,
                 draft.add("sum", often, axes=[len(wide) - 1], keepdims=False))


@verifies("statements.size.any")
def test_as_many_operands_as_there_are(subject: Subject) -> None:
    """A sum of two values and of seventy, each with a factor of its own."""
    for count in subject.part((2, 7, 8, 9, 16, 17, 30, 31, 32, 33, 48, 64, 70), at_least=4):
        draft = Draft()
        total = ""
        for number in range(count):
            x = given(draft, _small(6, number) + number, "int32")
            term = draft.add("mul", x, draft.constant(draft.kinds[x], number * number + 3))
            total = draft.add("add", total, term) if total else term
        draft.append({"do": "drop", "names": [name for name in draft.kinds if name != total]})
        _checked(subject, draft, total)


@verifies("statements.size.any")
def test_as_many_statements_as_there_are(subject: Subject) -> None:
    """One after the other on one value: elementwise ones, and such that no loop has together."""
    for count in subject.part((9, 17, 25, 33, 65, 129), at_least=3):
        draft = Draft()
        x, y = given(draft, _small(12).reshape(3, 4), "int32"), ""
        names = []
        for number in range(count):
            y = draft.add(("add", "sub", "mul", "xor", "maximum")[number % 5], y or x,
                          draft.constant(draft.kinds[x], number % 11 - 4))
            if number % 8 == 7 and number < count - 1:
                names.append(y)
        _checked(subject, draft, *names[::2], y)
        draft = Draft()
        y = x = given(draft, _small(9).reshape(3, 3), "int32")
        for number in range(count):
            y = draft.add("xor", draft.add("cumsum", y, axis=number % 2),
                          draft.add("permute", x, order=[1, 0]))
        draft.append({"do": "drop", "names": [n for n in draft.kinds if n not in (x, y)]})
        _checked(subject, draft, y)


@verifies("statements.size.any")
def test_as_many_writes_as_there_are(subject: Subject) -> None:
    """Into one value, with a reader that waits between each two of them."""
    for count in subject.part((9, 17, 33, 70), at_least=2):
        draft = Draft()
        state, value = given(draft, _small(8), "int32"), given(draft, _small(3, 2), "int32")
        draft.append({"do": "realize", "names": [state, value]})
        total = state
        for number in range(count):
            total = draft.add("xor", draft.add("add", total, draft.add("flip", state, axes=[0])),
                              draft.constant(draft.kinds[state], number))
            start = number * 3 % 6
            new = draft.add("add", value, draft.constant(draft.kinds[value], number * number))
            draft.append({"do": "store", "target": state, "from": [new],
                          "view": [{"do": "shrink", "bounds": [[start, start + 3]]}]})
        draft.append({"do": "drop", "names": [
            name for name in draft.kinds if name not in (state, total)]})
        _checked(subject, draft, state, total)


@verifies("statements.size.any")
def test_as_many_results_as_there_are(subject: Subject) -> None:
    """Of one loop, and of loops of different lengths."""
    for count in subject.part((8, 9, 17, 33, 66), at_least=2):
        draft = Draft()
        x = given(draft, _small(5), "int32")
        names = [draft.add("mul", x, draft.constant(draft.kinds[x], number + 2))
                 for number in range(count)]
        names += [draft.add("pad", x, widths=[[number % 3, number]])
                  for number in range(count // 4)]
        _checked(subject, draft, *names)


@verifies("statements.store.rest")
def test_writes_to_large_values(subject: Subject) -> None:
    """To their end, to one element, to every third: of values of some thousand elements."""
    shapes: tuple[tuple[int, ...], ...] = ((5000,), (70, 65), (17, 16, 20), (300, 2))
    for shape in subject.part(shapes, at_least=2):
        draft = Draft()
        views: list[list[Statement]] = [
            [{"do": "shrink", "bounds": [[size - 2, size] for size in shape]}],
            [{"do": "shrink", "bounds": [[size // 2, size // 2 + 1] for size in shape]}],
            [{"do": "stride", "steps": [3] * len(shape)}],
            [{"do": "flip", "axes": [len(shape) - 1]},
             {"do": "shrink", "bounds": [[1, size - 1 + (size < 3)] for size in shape]}]]
        for steps in views:
            target = draft.add("copy", given(draft, np.arange(prod(shape)).reshape(shape), "int32"))
            region = view_shape(shape, steps)
            value = given(draft, -_small(prod(region)).reshape(region) - 9, "int32")
            draft.append({"do": "store", "target": target, "view": steps, "from": [value]})
            _checked(subject, draft, target)
            draft = Draft()
