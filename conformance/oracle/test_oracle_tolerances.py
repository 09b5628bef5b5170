"""How far an answer may lie from the oracle's, in units in the last place, and where it is open.

Wider, and wrong answers pass; narrower, and right ones fail. Nobody is to change it by accident.
"""
from __future__ import annotations

import numpy as np
import pytest

from conformance import oracle, protocol
from conformance.oracle import Approximate

UNIT = 2.0**-23
#: How uncertain an uncertain operand is here: 2 ** 13 units of one.
SPREAD = 2.0**-10


def approximate(values: list[float], errors: list[float], dtype: str = "float32") -> Approximate:
    return Approximate(np.array(values, dtype), np.array(errors, np.float64))


def units(found: Approximate) -> list[float]:
    """The errors in units in the last place of the values."""
    return list(found.error / (UNIT * np.abs(found.value.astype(np.float64))))


def close(found: list[float], wanted: list[float]) -> None:
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


#: Of 0.5 and 3.0, known exactly, and known within SPREAD.
UNARY: dict[str, list[float]] = {
    "exp": [8, 8, 8205, 8204], "log": [8, 8, 23668, 2494],
    "sqrt": [0, 0, 16390, 2732], "sin": [16.34, 64.69, 17100, 58110],
    "tanh": [8, 8, 17740, 8241], "reciprocal": [0, 0, 16420, 2733],
    "neg": [0, 0, 16384, 2731], "abs": [0, 0, 16384, 2731], "relu": [0, 0, 16384, 2731]}


@pytest.mark.parametrize("do", UNARY)
def test_functions_of_one_number(do: str) -> None:
    with np.errstate(all="ignore"):
        found = oracle.FUNCTIONS[do](approximate([0.5, 3, 0.5, 3], [0, 0, SPREAD, SPREAD]))
    close(units(found), UNARY[do])


#: Of 0.7 and 3.1, and 2.3 and -1.7 (1.7 for pow): exact; the left within SPREAD; the last both.
BINARY: dict[str, list[float]] = {
    "add": [0, 0, 2732, 11700], "sub": [0, 0, 5121, 3414], "mul": [0, 0, 11700, 7464],
    "div": [0, 0, 11700, 7467], "maximum": [0, 0, 3562, 2643],
    "minimum": [0, 0, 11700, 4819], "pow": [8, 8, np.inf, np.inf]}


@pytest.mark.parametrize("do", BINARY)
def test_functions_of_two_numbers(do: str) -> None:
    left = approximate([0.7, 3.1, 0.7, 3.1], [0, 0, SPREAD, SPREAD])
    sign = 1 if do == "pow" else -1
    right = approximate([2.3, sign * 1.7, 2.3, sign * 1.7], [0, 0, 0, SPREAD])
    with np.errstate(all="ignore"):
        found = oracle.FUNCTIONS[do](left, right)
    close(units(found), BINARY[do])
    slack = [0.0] * 4 if found.slack is None else found.slack / (UNIT * np.abs(found.value))
    close(list(slack), [1.0 if do == "mul" else 0.0] * 4)


#: Of 0.1, 0.2, 0.3 and 0.4: exact, and with the last one within SPREAD.
ALONG: dict[str, tuple[list[float], list[float]]] = {
    "sum": ([6], [8198]), "mean": ([9], [8201]), "prod": ([5], [20485]),
    "max": ([0], [20480]), "cumsum": ([6, 6, 6, 6], [6, 6, 6, 8198]),
    "softmax": ([36.6, 36.4, 36.2, 36], [16437, 16436, 16436, 16436])}


@pytest.mark.parametrize("do", ALONG)
@pytest.mark.parametrize("uncertain", [False, True])
def test_functions_along_an_axis(do: str, uncertain: bool) -> None:
    x = approximate([0.1, 0.2, 0.3, 0.4], [0, 0, 0, SPREAD * uncertain])
    with np.errstate(all="ignore"):
        found = (oracle._cumsum(x, 0) if do == "cumsum" else oracle._softmax(x, 0)
                 if do == "softmax" else oracle._reduce(do, x, (0,), False))
    close(units(Approximate(np.atleast_1d(found.value), np.atleast_1d(found.error))),
          ALONG[do][uncertain])


def test_a_product_of_matrices() -> None:
    left = approximate([0.1, 0.2, 0.3, 0.4], [0, 0, 0, SPREAD])
    right = approximate([0.7, 0.3, 0.9, 0.1], [0, SPREAD, 0, 0])
    with np.errstate(all="ignore"):
        found = oracle._matmul(Approximate(left.value.reshape(2, 2), left.error.reshape(2, 2)),
                               Approximate(right.value.reshape(2, 2), right.error.reshape(2, 2)))
    # A row of the left within SPREAD meets both columns, a column of the right both rows.
    spread = np.array([[0, 0.1], [0.9, 0.3 + 0.1]]) * SPREAD
    rounding = 3 * UNIT * np.abs(found.value)
    assert (found.error >= spread).all() and (found.error[0, 0] >= 2 * UNIT * found.value[0, 0])
    assert (found.error <= spread * 1.01 + 3 * rounding).all()


def test_what_cannot_be_told_apart_is_open() -> None:
    """At a distance of exactly the error, too."""
    near = approximate([1.0], [0.5])
    for do in ("less", "less_equal", "equal"):
        for other, is_open in ((1.5, True), (0.5, True), (1.75, False), (0.25, False)):
            found = oracle.FUNCTIONS[do](near, approximate([other], [0]))
            assert np.isinf(found.error[0]) == is_open, (do, other)


@pytest.mark.parametrize(("dtype", "last"), [("int32", 2.0**31), ("int8", 128.0),
                                             ("uint8", 256.0)])
def test_a_cast_beyond_an_integer_is_open(dtype: str, last: float) -> None:
    lowest = 0.0 if dtype[0] == "u" else -last
    x = approximate([last, last - 1, lowest, lowest - last / 4], [0] * 4, "float64")
    found = oracle._cast(x, np.dtype(dtype))
    assert np.isinf(found.error).tolist() == [True, False, False, True]
    unsure = approximate([3.0, 3.5], [0.25, 0.25])
    assert np.isinf(oracle._cast(unsure, np.dtype(dtype)).error).tolist() == [True, False]


def test_an_infinity_settles_a_line_of_softmax_only_if_it_is_known() -> None:
    with np.errstate(all="ignore"):
        known = oracle._softmax(approximate([0, -np.inf, 1], [0, 0, 0]), 0)
        unsure = oracle._softmax(approximate([0, -np.inf, 1], [0, 0, 0.5]), 0)
        small = oracle._softmax(approximate([0, -101, 1], [0, 0, 0]), 0)
    assert known.error[1] == 0 and known.value[1] == 0
    assert unsure.error[0] > 0.1 * unsure.value[0]
    assert small.error[1] > 0  # e ** -102 may be a subnormal number, or zero


NAN, INF = float("nan"), float("inf")


def test_an_infinity_settles_a_sum_only_if_the_rest_is_known() -> None:
    with np.errstate(all="ignore"):
        for errors, is_open in (([0.0, 0.0], False), ([0.0, 0.1], True)):
            x = approximate([INF, 1], errors)
            assert (oracle._sum(x, (0,), False, mean=False).error > 0) == is_open
            assert (oracle._cumsum(x, 0).error > 0).tolist() == [False, is_open]


def test_functions_of_what_is_not_finite() -> None:
    with np.errstate(all="ignore"):
        for do, known in (("exp", [NAN, INF, -INF]), ("log", [NAN, -1, INF]), ("sin", [NAN, INF])):
            found = oracle.FUNCTIONS[do](approximate([float(each) for each in known],
                                                     [0.0] * len(known)))
            assert not found.error.any(), do
        unsure = oracle.FUNCTIONS["log"](approximate([0.05], [0.1]))
    assert np.isinf(unsure.error).all()


def test_bits_of_what_is_not_known_to_the_last_are_open() -> None:
    x = approximate([1, 1, NAN, 0, -0.0], [0, SPREAD, 0, 0, 0])
    found = oracle._bitcast(x, np.dtype("int32"))
    assert np.isinf(found.error).tolist() == [False, True, True, True, True]
    assert not oracle._bitcast(Approximate(np.zeros(1, np.int32), np.zeros(1)),
                               np.dtype("float32")).error.any()


def test_whether_a_number_is_zero() -> None:
    x = approximate([0, 3, 0.05, 3], [0, 0, 0.1, 0.1])
    found = oracle._cast(x, np.dtype("bool"))
    assert np.isinf(found.error).tolist() == [False, False, True, False]
    assert found.value.tolist() == [False, True, True, True]


def test_products_of_coarse_numbers_are_exact_as_long_as_they_fit() -> None:
    """Of multiples of an eighth: the products are multiples of 1/64, in 24 bits up to 2 ** 17."""
    with np.errstate(all="ignore"):
        for size, exact in ((2.0**16, True), (2.0**18, False)):
            left, right = approximate([size], [0]), approximate([1.0], [0])
            found = oracle._matmul(Approximate(left.value.reshape(1, 1), np.zeros((1, 1))),
                                   Approximate(right.value.reshape(1, 1), np.zeros((1, 1))))
            assert (found.error[0, 0] == 0) == exact, size


def test_an_answer_as_far_away_as_it_may_be_is_right() -> None:
    expected = oracle.Expected("t0", np.array([1.0], np.float32), np.array([0.25]))
    for answer, right in ((1.25, True), (0.75, True), (1.2500001, False), (NAN, False)):
        value = oracle.Value.of("t0", np.array([answer], np.float32))
        assert (oracle.difference(expected, value) == "") == right, answer


def test_what_is_flushed_may_be_read_as_zero() -> None:
    """By who says so; what is computed of it is then open, and what is not subnormal stays."""
    program = protocol.program([
        {"do": "input", "to": "bits", "dtype": "int32", "shape": [2], "data": "0500000000008040"},
        {"do": "bitcast", "to": "x", "from": ["bits"], "dtype": "float32"},
        {"do": "sqrt", "to": "root", "from": ["x"]}, {"do": "observe", "names": ["x", "root"]}])
    for flushed, subnormal in (((), False), (("float32",), True), (("float64",), False)):
        number, root = oracle.run(program, flushed)
        assert (number.error > 0).tolist() == [subnormal, False]
        assert (root.error > 1).tolist() == [subnormal, False]
