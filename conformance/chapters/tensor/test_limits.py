"""Functions of one number where they are easily wrong: zeros, infinities, the smallest and the
greatest numbers.  Chapter: spec/tensor.md.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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
