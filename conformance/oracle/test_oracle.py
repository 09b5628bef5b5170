"""The oracle against NumPy written out, and its errors against other ways to round."""

from __future__ import annotations

import numpy as np
import pytest

from conformance import oracle, protocol
from conformance.generators import programs
from conformance.generators.programs import Draft
from conformance.oracle import Approximate, Expected
from conformance.protocol import Value, shapes


def exactly(values: list[float], dtype: str = "float32") -> Approximate:
    array = np.array(values, dtype)
    return Approximate(array, np.zeros(array.shape))


def run(draft: Draft, *names: str) -> list[Expected]:
    draft.append({"do": "observe", "names": list(names)})
    return oracle.run(protocol.program(draft.statements))


def test_a_reader_keeps_its_value_and_a_store_hits_its_region() -> None:
    draft = Draft()
    draft.add("input", dtype="uint8", shape=[4], data="01020304")
    reader = draft.add("add", "t0", "t0")
    nine = draft.add("constant", dtype="uint8", shape=[2], value=9)
    draft.append({"do": "store", "target": "t0", "from": [nine],
                  "view": [{"do": "flip", "axes": [0]}, {"do": "stride", "steps": [2]}]})
    seen = run(draft, reader, "t0")
    assert seen[0].value.tolist() == [2, 4, 6, 8]
    assert seen[1].value.tolist() == [1, 9, 3, 9]


def test_repeat_runs_its_body_again() -> None:
    draft = Draft()
    draft.add("input", dtype="int8", shape=[1], data="01")
    draft.append({"do": "repeat", "count": 7, "statements": [
        {"do": "add", "to": "n", "from": ["t0", "t0"]},
        {"do": "assign", "target": "t0", "from": ["n"]}]})
    assert run(draft, "t0")[0].value.tolist() == [-128]


def test_exact_arithmetic_has_no_error_and_sums_of_fractions_have() -> None:
    with np.errstate(all="ignore"):
        whole = exactly([1, 2, 3, 4])
        assert not oracle._sum(whole, (0,), False, mean=False).error.any()
        parts = exactly([0.1, 0.2, 0.3])
        assert oracle._sum(parts, (0,), False, mean=False).error > 0
        assert not oracle._add(parts, parts).error.any()


def test_a_product_may_stay_unrounded_in_a_sum_only() -> None:
    with np.errstate(all="ignore"):
        product = oracle._mul(exactly([0.1]), exactly([0.3]))
        assert not product.error.any()
        assert oracle._add(product, exactly([-0.03])).error > 0
        assert not oracle._maximum(product, exactly([1.0])).error.any()
        assert not oracle._add(oracle._mul(exactly([3.0]), exactly([0.5])),
                               exactly([1.0])).error.any()


@pytest.mark.parametrize(("do", "left", "right", "certain"), [
    ("add", float("nan"), 1, True), ("div", 0, 0, True), ("div", 1, 0, False),
    ("mul", float("inf"), 0, True), ("maximum", float("nan"), 5, True),
    ("sub", float("inf"), float("inf"), True)])
def test_what_is_not_finite_is_certain_or_open(do: str, left: float, right: float,
                                               certain: bool) -> None:
    with np.errstate(all="ignore"):
        result = oracle.FUNCTIONS[do](exactly([left]), exactly([right]))
    assert (result.error == 0).all() == certain


def test_a_comparison_within_the_error_is_open() -> None:
    near = Approximate(np.array([1.0], np.float32), np.array([0.1]))
    assert np.isinf(oracle._less(near, exactly([1.05])).error)
    assert oracle._less(near, exactly([1.2])).error == 0


def test_a_store_keeps_the_error_of_what_it_stores() -> None:
    draft = Draft()
    draft.add("input", dtype="float32", shape=[2], data="cdcccc3dcdcc4c3e")
    draft.append({"do": "assign", "target": "t0", "from": [draft.add("exp", "t0")]})
    assert run(draft, "t0")[0].error.all()


@pytest.mark.parametrize(("value", "wrong"), [
    (Value.of("t0", np.array([1, 2], np.float32)), ""),
    (Value.of("t1", np.array([1, 2], np.float32)), "was reported"),
    (Value.of("t0", np.array([1, 2], np.float64)), "is float64"),
    (Value.of("t0", np.array([[1, 2]], np.float32)), "not float32"),
    (Value.of("t0", np.array([1, 3], np.float32)), "t0[1] is 3.0")])
def test_differences_are_named(value: Value, wrong: str) -> None:
    expected = Expected("t0", np.array([1, 2], np.float32), np.zeros(2))
    found = oracle.difference(expected, value)
    assert wrong in found and bool(wrong) == bool(found)


def test_nan_equals_nan_and_nothing_else() -> None:
    expected = Expected("t0", np.array([np.nan], np.float32), np.zeros(1))
    assert not oracle.difference(expected, Value.of("t0", np.array([np.nan], np.float32)))
    assert oracle.difference(expected, Value.of("t0", np.array([1.0], np.float32)))


def test_shapes_and_dtypes_are_those_that_the_rules_infer() -> None:
    for number in range(300):
        program = programs.random_program(number)
        kinds = shapes.check_program(program)
        for each in oracle.run(program)[-len(program["statements"][-1]["names"]):]:
            assert kinds[each.name] == shapes.Kind(each.value.dtype.name, each.value.shape)
            assert each.error.shape == each.value.shape and not np.isnan(each.error).any()


def test_nearly_everything_is_compared() -> None:
    """An oracle that leaves much open would agree with anything."""
    errors = np.concatenate([each.error.reshape(-1) for number in range(300)
                             for each in oracle.run(programs.random_program(number))])
    assert np.isinf(errors).mean() < 0.05


def uncertain(values: list[float], dtype: type = np.float32) -> Approximate:
    """The first of the values may be off by a tenth, or be anything if it is a whole number."""
    array: np.ndarray = np.array(values, dtype)
    error = np.zeros(array.shape)
    error[0] = 0.1 if array.dtype.kind == "f" else np.inf
    return Approximate(array, error)


def test_a_row_that_is_not_there_is_open() -> None:
    """On either side; an index that is not certain asks for no row in particular either."""
    rows = exactly([1, 2, 3])
    found = oracle._gather(rows, Approximate(np.array([0, -1, 3, 2]), np.array([0, 0, 0, 1.0])))
    assert found.error.tolist() == [0, np.inf, np.inf, np.inf] and found.value[0] == 1


def test_a_product_is_exact_only_for_certain_whole_numbers() -> None:
    for given, exact in ((exactly([2, 3]), True), (uncertain([2, 3]), False),
                         (exactly([0.1, 0.3]), False), (exactly([2.0**20, 2.0**20]), False)):
        assert (oracle._product(given, (0,), False).error == 0).all() == exact


def test_one_uncertain_operand_makes_a_sum_of_products_open() -> None:
    one, two = uncertain([2, 3], np.int32), Approximate(np.array([[1], [4]], np.int32),
                                                        np.zeros((2, 1)))
    left = Approximate(one.value.reshape(1, 2), one.error.reshape(1, 2))
    assert np.isinf(oracle._matmul(left, two).error).all()
    assert not oracle._matmul(Approximate(left.value, np.zeros((1, 2))), two).error.any()


def softmax(x: np.ndarray, intermediate: type) -> np.ndarray:
    """Of the last axis, every operation rounded to `intermediate`."""
    with np.errstate(all="ignore"):
        wide: np.ndarray = x.astype(intermediate)
        powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
        found: np.ndarray = (powers / powers.sum(axis=-1, keepdims=True)).astype(x.dtype)
    return found


def agree(expected: Approximate, value: np.ndarray) -> bool:
    return bool(oracle._agrees(expected.value, expected.error, value).all())


def test_what_rounds_to_zero_may_be_the_smallest_number() -> None:
    """A unit in the last place is not nothing there: halves end at 6e-8."""
    places = np.array([[0, -0.5, -17], [0, -17, -np.inf], [0, -16.6, 0]], np.float16)
    lines = Approximate(places, np.zeros(places.shape))
    with np.errstate(all="ignore"):
        found = oracle._softmax(lines, 1)
        assert (found.value[:, 1:] == 0).any() and not found.error[1, 2]
        for intermediate in (np.float16, np.float64):
            assert agree(found, softmax(places, intermediate))
        assert not agree(found, softmax(places, np.float16) + np.float16(1e-3))
        assert not agree(found, softmax(places, np.float64) * 2)
        below = oracle._exp(exactly([-17.5, -np.inf], "float16"))
        assert agree(below, np.array([2.0**-24, 0], np.float16))
        assert not agree(below, np.array([0, 2.0**-24], np.float16))
        assert not agree(below, np.array([2.0**-20, 0], np.float16))
        near = Approximate(np.array([2.0**-26], np.float32), np.array([2.0**-27]))
        half = oracle._cast(near, np.dtype(np.float16))
        assert agree(half, np.array([2.0**-24], np.float16))


def test_a_zero_that_nothing_rounded_has_no_error() -> None:
    with np.errstate(all="ignore"):
        assert not oracle._pow(exactly([0.0]), exactly([2.0])).error.any()
        assert not oracle._sum(exactly([1, -1]), (0,), False, mean=True).error.any()
        assert not oracle._sum(exactly([0, 0]), (0,), False, mean=True).error.any()
        assert not oracle._add(exactly([1.0]), exactly([-1.0])).error.any()
