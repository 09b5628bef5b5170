"""Functions of one number where they are easily wrong: zeros, infinities, the smallest and the
greatest numbers.  Chapter: spec/tensor.md.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.kernels.kernel_builder import FLOAT_FUNCTIONS
from conformance.trace import verifies
from impl import Tensor


def logistic(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, 0, x) + np.log1p(np.exp(-np.abs(x)))


def clipped(x: np.ndarray, least: float, most: float) -> np.ndarray:
    return np.minimum(np.maximum(x, least), most)


#: What each function is, written with NumPy in float64.
FUNCTIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "sqrt": np.sqrt, "square": np.square,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
    "exp": np.exp, "expm1": np.expm1, "log1p": np.log1p, "exp2": np.exp2, "log": np.log,
    "log2": np.log2, "log10": np.log10,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "relu": lambda x: np.maximum(x, 0), "relu6": lambda x: clipped(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, x * 0.01),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.where(x > 0, 0, x))),
    "sigmoid": logistic, "silu": lambda x: x * logistic(x), "softplus": softplus,
    "logsigmoid": lambda x: -softplus(-x), "softsign": lambda x: x / (1 + np.abs(x)),
    "mish": lambda x: x * np.tanh(softplus(x)), "hardtanh": lambda x: clipped(x, -1, 1),
    "hardsigmoid": lambda x: clipped(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * (clipped(x + 3, 0, 6) / 6),
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "logical_not": np.logical_not}
#: Of two zeros `maximum` and `minimum` take either: r[conventions.zero.sign].
EITHER_ZERO = ("relu", "relu6", "hardtanh", "hardsigmoid", "hardswish")
#: Relative errors of some operations that are each rounded.
CLOSE = {"float16": 2e-3, "float32": 2e-6, "float64": 4e-15}


def values_of(dtype: str) -> np.ndarray:
    limits = np.finfo(dtype)
    ends = (limits.smallest_subnormal, limits.tiny, limits.max)
    some = [0.0, math.inf, *map(float, ends), 1e-3, 0.3, 0.5, 1, 3, 20, 87]
    return np.array([*some, *(-value for value in some), math.nan], dtype)


@verifies("tensor.unary.limits")
def test_every_operation_of_one_float_has_its_limits() -> None:
    missing = {op.name.lower() for op in FLOAT_FUNCTIONS} - {*FUNCTIONS}
    assert not missing, f"FUNCTIONS does not say what they are in NumPy: {missing}"


@pytest.mark.slow
@verifies("tensor.unary.limits")
@pytest.mark.device("CPU", "REFERENCE")
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_limits(name: str, dtype: str) -> None:
    x = values_of(dtype)
    if name in ("sin", "cos", "tan"):  # of the greatest number float64 itself is hard put to say
        x = x[(np.abs(x) < 1e4) | ~np.isfinite(x)]
    with np.errstate(all="ignore"):
        exact = np.asarray(FUNCTIONS[name](x.astype(np.float64)))
        wanted = exact.astype(bool if exact.dtype == bool else dtype)
    got = getattr(Tensor(x), name)().numpy()
    assert got.dtype == wanted.dtype
    if got.dtype == bool:
        np.testing.assert_array_equal(got, wanted)
        return
    for place, one, right in zip(x, got, wanted, strict=True):
        assert alike(one, right, dtype, name in EITHER_ZERO), f"{name}({place}): {one}, {right}"


def alike(one: Any, right: Any, dtype: str, either_zero: bool) -> bool:
    if right != right or np.isinf(right):
        return bool(one != one if right != right else one == right)
    if right == 0 and one == 0:
        return either_zero or bool(np.signbit(one) == np.signbit(right))
    # Results below the normal numbers have few digits, and some processors none.
    slack = abs(float(right)) * CLOSE[dtype] + 4 * float(np.finfo(dtype).smallest_subnormal)
    return abs(float(one) - float(right)) <= slack


@pytest.mark.slow
@verifies("tensor.unary.finite")
@pytest.mark.device("CPU", "REFERENCE")
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_finite_is_not_infinite(name: str, dtype: str) -> None:
    """Numbers near those whose exponential, square or reciprocal is the last that is finite."""
    greatest = float(np.finfo(dtype).max)
    ends = np.array([np.log(greatest), np.log2(greatest), np.sqrt(greatest), greatest ** 0.25,
                     greatest / 6, 1 / greatest])
    x = np.concatenate([ends * way for way in (0.9, 0.999, 1, 1.005, 1.01, 1.1)])
    x = np.concatenate([x, -x]).astype(dtype)
    with np.errstate(all="ignore"):
        exact = np.asarray(FUNCTIONS[name](x.astype(np.float64)))
        wanted = np.isfinite(exact) & (np.abs(exact) < 0.99 * greatest)
    got = getattr(Tensor(x), name)().numpy()
    assert not np.isinf(got[wanted]).any(), f"{name} of {x[wanted & np.isinf(got)]}"


@verifies("tensor.unary.limits")
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("exponent", [-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, math.inf])
def test_powers(exponent: float, dtype: str) -> None:
    """A number and a tensor as the exponent mean the same."""
    x = values_of(dtype)
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.float64), np.full(x.shape, exponent)).astype(dtype)
    for given in (exponent, Tensor(np.full_like(x, exponent))):
        got = (Tensor(x) ** given).numpy()
        for place, one, right in zip(x, got, wanted, strict=True):
            assert alike(one, right, dtype, False), f"{place} ** {exponent}: {one}, {right}"


@verifies("tensor.unary.limits")
@pytest.mark.parametrize("name", [
    "sigmoid", "softplus", "logsigmoid", "elu", "sinh", "silu", "expm1", "log1p"])
def test_slopes_have_limits_too(name: str) -> None:
    places = np.array([-np.inf, -200.0, -1e-3, 0.0, 1e-3, 200.0, np.inf], np.float64)
    places = places[1:-1] if name in ("silu", "sinh") else places
    places = np.abs(places) if name == "log1p" else places
    x = Tensor(places)
    got = getattr(x, name)().sum().gradient(x)[0].numpy()
    slopes: dict[str, Callable[[np.ndarray], Any]] = {
        "sigmoid": lambda x: logistic(x) * logistic(-x), "softplus": logistic,
        "logsigmoid": lambda x: logistic(-x), "sinh": np.cosh,
        "expm1": np.exp, "log1p": lambda x: 1 / (1 + x),
        "elu": lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0))),
        "silu": lambda x: logistic(x) * (1 + x * logistic(-x))}
    np.testing.assert_allclose(got, slopes[name](places), rtol=1e-9, atol=1e-80)


@verifies("tensor.division.value")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_remainders_are_exact(dtype: Any) -> None:
    random = np.random.default_rng(0)
    x = (random.standard_normal(3000) * np.exp2(random.integers(-10, 15, 3000))).astype(dtype)
    y = (random.standard_normal(3000) * np.exp2(random.integers(-10, 5, 3000))).astype(dtype)
    x, y = x[y != 0], y[y != 0]
    one, two = Tensor(x), Tensor(y)
    with np.errstate(all="ignore"):
        for found, wanted in ((one % two, np.remainder(x, y)), (one.fmod(two), np.fmod(x, y)),
                              (one // two, np.floor_divide(x, y))):
            assert np.array_equal(found.numpy(), wanted, equal_nan=True)
    edges = Tensor([1e6, -1e12, 5.5, 3e38, 2.0]), Tensor([6.2831855, 7.0, 0.1, 1e30, np.inf])
    wanted = np.remainder(*(one.numpy() for one in edges))
    assert np.array_equal((edges[0] % edges[1]).numpy(), wanted)
    assert abs(Tensor([3e38]) % 1e-3).item() < 1e-3  # too many digits: 0


@verifies("tensor.division.value")
def test_remainders_of_bools() -> None:
    x, y = np.array([True, True, False]), np.array([True, False, True])
    for found in (Tensor(x) % Tensor(y), Tensor(x).fmod(Tensor(y))):
        assert found.numpy().dtype == np.int8 and found.tolist() == [0, 0, 0]


@verifies("tensor.division.value")
def test_remainders_have_slopes() -> None:
    x, y = Tensor([7.5, -7.5, 1.0]).requires_grad_(), Tensor([2.0, 2.0, np.inf]).requires_grad_()
    (x % y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 1, 1]
    assert y.grad is not None and y.grad.tolist() == [-3, 4, 0]


@verifies("tensor.unary.limits")
def test_sinc_of_numbers_whose_angle_is_infinite() -> None:
    assert Tensor([3e38, -2e38, 0.0]).sinc().tolist() == [0, 0, 1]


@verifies("tensor.running.exact")
@pytest.mark.parametrize("shape, axis", [((200_000,), 0), ((3, 5003), 1), ((5000, 3), 0)])
def test_running_sums_keep_their_digits(shape: tuple[int, ...], axis: int) -> None:
    x = (0.1 + np.zeros(shape)).astype(np.float32)
    found, exact = Tensor(x).cumsum(axis).numpy(), x.astype(np.float64).cumsum(axis)
    assert (abs(found - exact) <= 256 * 2.0 ** -24 * exact).all()
    whole = Tensor(np.ones(shape, np.int8)).cumsum(axis).numpy()
    assert np.array_equal(whole, np.ones(shape).cumsum(axis))


@pytest.mark.slow
@verifies("dtypes.cast.nearest")
@pytest.mark.parametrize("device", ["REFERENCE", None])
def test_a_float_that_does_not_fit_becomes_the_nearest_integer(device: str | None) -> None:
    values = [math.inf, -math.inf, math.nan, 1e10, -1e10, 300.0, -5.0, 2.9]
    for name in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"):
        least, most = np.iinfo(name).min, np.iinfo(name).max
        wanted = [most, least, 0, *(min(max(int(one), least), most) for one in values[3:])]
        for kind in ("float32", "float64"):
            assert Tensor(values, device, kind).cast(name).tolist() == wanted
        assert Tensor(values, device, name).tolist() == wanted
        assert [Tensor(one, device, name).item() for one in values] == wanted
    assert Tensor([math.inf, -6e4], device, "float16").cast("int16").tolist() == [32767, -32768]
