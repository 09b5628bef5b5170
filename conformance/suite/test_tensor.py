"""What the operations mean: movement, reductions, products.  Chapter: spec/tensor.md."""

from __future__ import annotations

from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from conformance import protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.protocol import Program
from conformance.protocol.shapes import ProgramError
from conformance.runner.subject import Failure, NotClaimed, Subject
from conformance.suite import verifies

SHAPES = ((), (1,), (5,), (2, 3), (3, 1, 2), (0,), (2, 0), (2, 2, 3))


def _numbers(draft: Draft, shape: tuple[int, ...], dtype: str = "float32") -> str:
    array = (np.arange(int(np.prod(shape))) - 2).reshape(shape).astype(dtype)
    return draft.add("input", dtype=dtype, shape=list(shape), data=protocol.encode(array))


def _check(subject: Subject, draft: Draft) -> None:
    draft.append({"do": "observe", "names": list(draft.kinds)})
    subject.check_declared(protocol.program(draft.statements))


@verifies("tensor.nan.maximum")
def test_maximum_and_relu_keep_nan_wherever_it_stands(subject: Subject) -> None:
    for dtype in protocol.FLOATS:
        draft = Draft()
        plain = np.arange(6).reshape(2, 3)
        # A NaN in each place in turn, against numbers below and above.
        marked = np.where(np.eye(6, dtype=bool).reshape(6, 2, 3), np.nan, plain).astype(dtype)
        x = draft.add("input", dtype=dtype, shape=[6, 2, 3], data=protocol.encode(marked))
        for bound in (-1, 100):
            limit = draft.constant(draft.kinds[x], bound)
            for do in ("maximum", "minimum"):
                draft.add(do, x, limit)
                draft.add(do, limit, x)
        draft.add("relu", x)
        for do in ("max", "min"):
            draft.add(do, x, axes=[1, 2], keepdims=False)
            draft.add(do, x, axes=[0], keepdims=True)
        _check(subject, draft)


@verifies("tensor.movement.elements")
def test_every_movement_of_every_small_shape(subject: Subject) -> None:
    for shape in SHAPES:
        draft = Draft()
        source = _numbers(draft, shape)
        seen: list[dict[str, Any]] = []
        for do in protocol.MOVEMENT:
            for choice in range(24):
                move = programs.movement(do, shape, choice)
                if move and move not in seen:
                    seen.append(move)
                    draft.add(do, source, **{key: field for key, field in move.items()
                                             if key != "do"})
        _check(subject, draft)


@verifies("tensor.movement.elements")
def test_movements_compose(subject: Subject) -> None:
    for first, second, third in permutations(protocol.MOVEMENT, 3):
        draft = Draft()
        name = _numbers(draft, (2, 3, 4), "int32")
        for position, do in enumerate((first, second, third)):
            move = programs.movement(do, draft.kinds[name].shape, 7 + 5 * position)
            if move:
                name = draft.add(do, name, **{key: field for key, field in move.items()
                                              if key != "do"})
        _check(subject, draft)


@verifies("tensor.pad.zeros")
def test_padding_is_zero_and_what_is_computed_from_it_sees_zeros(subject: Subject) -> None:
    draft = Draft()
    padded = draft.add("pad", _numbers(draft, (2, 3)), widths=[[1, 0], [0, 2]])
    for do in ("exp", "reciprocal", "neg", "abs"):
        draft.add("max", draft.add(do, padded), axes=[0, 1], keepdims=False)
    draft.add("min", draft.add("exp", padded), axes=[1], keepdims=False)
    draft.add("prod", padded, axes=[1], keepdims=False)
    draft.add("sum", draft.add("exp", padded), axes=[0], keepdims=False)
    _check(subject, draft)


@verifies("tensor.reduce.axes")
def test_reductions_over_every_set_of_axes(subject: Subject) -> None:
    for dtype in ("float32", "int32"):
        draft = Draft()
        source = _numbers(draft, (2, 3, 4), dtype)
        for count in range(4):
            for axes in combinations(range(3), count):
                for do in protocol.REDUCTIONS:
                    if do != "mean" or dtype == "float32":
                        draft.add(do, source, axes=list(axes), keepdims=count % 2 == 0)
        _check(subject, draft)


@verifies("tensor.reduce.empty")
def test_reductions_over_nothing_have_a_value(subject: Subject) -> None:
    for shape in ((0,), (2, 0), (0, 3), (2, 0, 3)):
        draft = Draft()
        source = _numbers(draft, shape)
        for axis in range(len(shape)):
            for do in ("sum", "prod", "mean"):
                draft.add(do, source, axes=[axis], keepdims=axis == 0)
            for do in ("max", "min"):
                try:
                    draft.add(do, source, axes=[axis], keepdims=False)
                except ProgramError:
                    continue  # of nothing there is no largest
        _check(subject, draft)


@verifies("tensor.softmax.empty")
def test_what_runs_along_nothing_is_empty(subject: Subject) -> None:
    for shape in ((0,), (2, 0), (0, 3), (2, 0, 3)):
        draft = Draft()
        source = _numbers(draft, shape)
        for axis in range(len(shape)):
            for do in ("softmax", "cumsum"):
                draft.add(do, source, axis=axis)
        _check(subject, draft)


@verifies("tensor.activation.half")
def test_softmax_of_halves_is_rounded_once(subject: Subject) -> None:
    subject.require(dtypes=["float16"])
    draft = Draft()
    rows = np.outer([1, 2.5, -6], np.linspace(-2, 1.3, 10)).astype(np.float16)
    x = draft.add("input", dtype="float16", shape=list(rows.shape), data=protocol.encode(rows))
    draft.append({"do": "observe", "names": [draft.add("softmax", x, axis=1)]})
    powers = np.exp(rows - rows.astype(np.float64).max(axis=1, keepdims=True))
    real = powers / powers.sum(axis=1, keepdims=True)

    program = protocol.program(draft.statements)
    subject.check_whole(program)
    found = subject.run(program).values[0].array()
    away = np.max(np.abs(found - real) / np.spacing(real.astype(np.float16)))
    if away > 0.6:
        raise Failure(f"a weight is {away:.1f} units in the last place from the real one", program)


@verifies("tensor.matmul.value")
def test_products_of_matrices(subject: Subject) -> None:
    for dtype in ("float32", "int32", "float64", "int8", "float16"):
        for rows, inner, columns in ((1, 1, 1), (2, 3, 4), (5, 17, 3), (2, 0, 3), (0, 2, 2)):
            draft = Draft()
            left, right = _numbers(draft, (rows, inner), dtype), _numbers(draft, (inner, columns),
                                                                          dtype)
            draft.add("matmul", left, right)
            draft.add("matmul", _numbers(draft, (2, rows, inner), dtype),
                      _numbers(draft, (2, inner, columns), dtype))
            _check(subject, draft)


@verifies("tensor.gather.rows")
def test_rows_chosen_by_index(subject: Subject) -> None:
    for dtype in ("int32", "int64", "uint8"):
        draft = Draft()
        index = np.array([[2, 0], [1, 2]], dtype)
        name = draft.add("input", dtype=dtype, shape=[2, 2], data=protocol.encode(index))
        draft.add("gather", _numbers(draft, (3,)), name)
        draft.add("gather", _numbers(draft, (3, 2)), name)
        _check(subject, draft)


# Functions of one number at the ends of their dtypes ------------------------------------------


def _at(draft: Draft, numbers: Any, dtype: str) -> str:
    array = np.array(numbers, dtype)
    return draft.add("input", dtype=dtype, shape=list(array.shape), data=protocol.encode(array))


REAL = {"exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "tanh": np.tanh,
        "reciprocal": np.reciprocal, "neg": np.negative, "abs": np.abs}


@verifies("tensor.unary.limits")
def test_functions_where_a_dtype_ends(subject: Subject) -> None:
    """Zeros, infinities, NaN, the least and the greatest; a zero has its sign."""
    for dtype, do in product(protocol.FLOATS, REAL):
        ends = np.finfo(dtype)
        numbers = [0.0, -0.0, np.inf, -np.inf, np.nan, float(ends.tiny), -float(ends.tiny),
                   float(ends.max), -float(ends.max), 1.0, -1.0]
        draft = Draft()
        x = _at(draft, numbers, dtype)
        draft.append({"do": "observe", "names": [draft.add(do, x)]})
        with np.errstate(all="ignore"):
            real = REAL[do](np.array(numbers, dtype))

        def signed(program: Program, real: protocol.Array = real) -> None:
            for value in subject.check_values(program).values:
                zero = (real == 0) & (value.array() == 0)
                if (np.signbit(real) != np.signbit(value.array()))[zero].any():
                    raise Failure("a zero has the wrong sign", program)

        program = protocol.program(draft.statements)
        if subject.supports(program):
            subject.check_smallest(program, signed)
        else:
            subject.skipped += 1


@verifies("tensor.unary.finite")
def test_functions_are_finite_as_far_as_the_dtype_goes(subject: Subject) -> None:
    for dtype in protocol.FLOATS:
        ends = np.finfo(dtype)
        last = float(np.log(float(ends.max))) * (1 - 4 * float(ends.eps))
        for do, numbers in (("exp", [last, last - 0.25, -last]),
                            ("tanh", [last, 2 * last, -9 * last]),
                            ("sqrt", [float(ends.max)]), ("log", [float(ends.max)]),
                            ("reciprocal", [float(ends.tiny), -2 * float(ends.tiny)])):
            draft = Draft()
            draft.append({"do": "observe", "names": [draft.add(do, _at(draft, numbers, dtype))]})
            program = protocol.program(draft.statements)
            if not subject.supports(program):
                subject.skipped += 1
                continue
            found = subject.check_values(program).values[0].array()
            if not np.isfinite(found).all():
                raise Failure(f"{do} of {numbers} is {found.tolist()}, and fits {dtype}", program)


@verifies("tensor.running.value")
def test_running_sums_know_only_what_was_before(subject: Subject) -> None:
    """What is no number shows from its place on, and not before it."""
    for dtype in protocol.FLOATS:
        draft = Draft()
        for place in range(4):
            for special in (np.nan, np.inf):
                numbers = [1.0, 2.0, -3.0, 4.0]
                numbers[place] = special
                draft.add("cumsum", _at(draft, numbers, dtype), axis=0)
        _check(subject, draft)


@verifies("tensor.matmul.half")
def test_products_of_halves_are_accumulated_in_singles(subject: Subject) -> None:
    subject.require(dtypes=["float16"])
    draft = Draft()
    for inner in (2049, 3000):
        left, right = _at(draft, [[1.0] * inner], "float16"), _at(draft, [[1.0]] * inner, "float16")
        draft.append({"do": "observe", "names": [draft.add("matmul", left, right)]})

    def counted(program: Program) -> None:
        for value, wanted in zip(subject.check_values(program).values, (2048, 3000), strict=True):
            if float(value.array().item()) != wanted:
                raise Failure(f"{wanted} ones in a row are {value.array().item()}", program)

    program = protocol.program(draft.statements)
    if not subject.supports(program):
        raise NotClaimed("matmul is not declared")
    counted(program)
