"""Integers wrap around, halves accumulate in singles, casts are defined.  Chapter:
spec/dtypes.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance import protocol
from conformance.generators.programs import Draft
from conformance.runner.subject import Subject
from conformance.suite import verifies


def _limits(dtype: str) -> protocol.Array:
    limits = np.iinfo(dtype)
    values = [limits.min, limits.min + 1, 0, 1, 2, 7, limits.max // 2 + 1, limits.max - 1,
              limits.max]
    return np.array(values, dtype)


def _input(draft: Draft, array: protocol.Array) -> str:
    return draft.add("input", dtype=array.dtype.name, shape=list(array.shape),
                     data=protocol.encode(array))


def _declared(subject: Subject, dtypes: Sequence[str]) -> list[str]:
    return [dtype for dtype in dtypes if dtype in subject.info.dtypes]


def _check(subject: Subject, draft: Draft) -> None:
    draft.append({"do": "observe", "names": list(draft.kinds)})
    subject.check_declared(protocol.program(draft.statements))


@verifies("dtypes.wraparound.integer")
def test_arithmetic_at_the_limits_wraps_around(subject: Subject) -> None:
    for dtype in _declared(subject, protocol.INTEGERS):
        values = _limits(dtype)
        draft = Draft()
        left = _input(draft, np.repeat(values, len(values)))
        right = _input(draft, np.tile(values, len(values)))
        for do in ("add", "sub", "mul", "maximum", "minimum", "less", "equal", "xor"):
            draft.add(do, left, right)
        draft.add("neg", left)
        draft.add("abs", left)
        for do in ("sum", "prod", "max", "min"):
            draft.add(do, left, axes=[0], keepdims=False)
        draft.add("cumsum", left, axis=0)
        _check(subject, draft)


@verifies("dtypes.division.floor")
def test_integer_division_rounds_down(subject: Subject) -> None:
    small = np.arange(-9, 10)
    for dtype in _declared(subject, protocol.INTEGERS):
        values = np.unique(np.concatenate([small.astype(dtype), _limits(dtype)]))
        draft = Draft()
        left = _input(draft, np.repeat(values, len(values)))
        right = _input(draft, np.tile(values, len(values)))
        draft.add("floordiv", left, right)
        draft.add("mod", left, right)
        _check(subject, draft)


@verifies("dtypes.cast.integer")
def test_casts_between_integers_keep_the_low_bits(subject: Subject) -> None:
    for dtype in _declared(subject, protocol.INTEGERS):
        draft = Draft()
        source = _input(draft, _limits(dtype))
        for other in protocol.DTYPES:
            if other in subject.info.dtypes:
                draft.add("cast", source, dtype=other)
        _check(subject, draft)


@verifies("dtypes.cast.float")
def test_casts_of_floats_cut_off_toward_zero(subject: Subject) -> None:
    for dtype in _declared(subject, protocol.FLOATS):
        draft = Draft()
        source = _input(draft, np.array([-2.75, -1.0, -0.5, 0.0, 0.5, 1.5, 100.9], dtype))
        alone = _input(draft, np.array([-2.75], dtype))  # no vector
        for other in ("bool", "int8", "int32", "int64", "float16", "float32", "float64"):
            if other in subject.info.dtypes:
                draft.add("cast", source, dtype=other)
                draft.add("cast", alone, dtype=other)
        _check(subject, draft)


@verifies("dtypes.half.accumulate")
def test_halves_are_accumulated_in_singles(subject: Subject) -> None:
    subject.require(dtypes=["float16"])
    draft = Draft()
    ones = _input(draft, np.ones((3, 3000), np.float16))
    large = _input(draft, np.full((3, 300), 300, np.float16))
    draft.add("sum", ones, axes=[1], keepdims=False)
    draft.add("mean", large, axes=[1], keepdims=False)
    draft.add("cumsum", ones, axis=1)
    # Down the columns a library adds whole rows, which is another loop.
    columns = draft.add("permute", ones, order=[1, 0])
    tall = _input(draft, np.ones((3000, 3), np.float16))
    for source in (columns, tall):
        draft.add("sum", source, axes=[0], keepdims=False)
        draft.add("cumsum", source, axis=0)
    draft.add("mean", _input(draft, np.full((300, 3), 300, np.float16)), axes=[0], keepdims=False)
    _check(subject, draft)
