"""Special functions, order and counts, matrices and arrangements, compared with NumPy."""
from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor, dtypes
from impl.errors import DTypeError, ShapeError
from impl.replay import TinyJit

random = np.random.default_rng(0)
A = random.standard_normal((3, 4)).astype(np.float32)
I = random.integers(0, 5, (3, 4)).astype(np.int32)  # noqa: E741
N = np.where(A > 1, np.nan, A).astype(np.float32)
V = random.standard_normal(6).astype(np.float32)
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, 1e30])
LINE = np.concatenate([np.linspace(-6, 6, 49), [1e-6, -1e-6, 1e4, -1e4, 1e10, -1e10], EDGES])
UNIT = np.concatenate([np.linspace(-0.99, 0.99, 41), [1e-6, -1e-6, 1.0, -1.0, 1.5]])


def _digamma(x: float) -> float:
    """By the recurrence up to a number that is large enough for the first terms of its series."""
    if x <= 0 and x == int(x):
        return math.nan if x else -math.copysign(math.inf, x)
    shift = 0.0
    while x < 20:
        shift, x = shift - 1 / x, x + 1
    return shift + math.log(x) - 1 / (2 * x) - 1 / (12 * x ** 2) + 1 / (120 * x ** 4) \
        - 1 / (252 * x ** 6)


def _lgamma(x: float) -> float:
    return math.inf if x == math.inf or (x <= 0 and x == int(x)) else math.lgamma(x)


def _erfinv(x: float) -> float:
    """By bisection."""
    if abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    low, high = -6.0, 6.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < x else (low, middle)
    return low


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "atan": (np.arctan, LINE), "asin": (np.arcsin, UNIT), "acos": (np.arccos, UNIT),
    "asinh": (np.arcsinh, LINE), "acosh": (np.arccosh, LINE), "atanh": (np.arctanh, UNIT),
    "erfc": (np.vectorize(math.erfc), LINE), "erfinv": (np.vectorize(_erfinv), UNIT),
    "lgamma": (np.vectorize(_lgamma), LINE[:53]), "digamma": (np.vectorize(_digamma), LINE[:53]),
    "deg2rad": (np.deg2rad, LINE), "rad2deg": (np.rad2deg, LINE), "sinc": (np.sinc, LINE[:49]),
    "frac": (lambda x: x - np.trunc(x), LINE[:53]),
    "logit": (lambda p: np.log(p / (1 - p)), np.linspace(0.01, 0.99, 20)),
    "nan_to_num": (np.nan_to_num, EDGES), "signbit": (np.signbit, EDGES),
    "isposinf": (np.isposinf, EDGES), "isneginf": (np.isneginf, EDGES)}


@pytest.mark.slow
@verifies("tensor.special.digits")
@verifies("tensor.unary.limits")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype, digits", [("float32", 2e-6), ("float64", 1e-12)])
def test_special_functions(name: str, dtype: str, digits: float) -> None:
    function, points = FUNCTIONS[name]
    given = points.astype(dtype)
    with np.errstate(all="ignore"):
        expected = function(given if name == "nan_to_num" else given.astype(np.float64))
    found = getattr(Tensor(given), name)().numpy()
    assert found.dtype == (np.bool_ if expected.dtype == np.bool_ else given.dtype)
    assert np.allclose(found, expected, rtol=4 * digits, atol=digits * (name != "erfc"),
                       equal_nan=True)


#: Their slopes, which come from the formulas and are not written down anywhere.
SLOPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "atan": lambda x: 1 / (1 + x * x), "asin": lambda x: 1 / np.sqrt(1 - x * x),
    "acos": lambda x: -1 / np.sqrt(1 - x * x), "asinh": lambda x: 1 / np.sqrt(1 + x * x),
    "atanh": lambda x: 1 / (1 - x * x), "log1p": lambda x: 1 / (1 + x),
    "erfc": lambda x: -2 / math.sqrt(math.pi) * np.exp(-x * x),
    "erfinv": lambda x: math.sqrt(math.pi) / 2 * np.exp(np.vectorize(_erfinv)(x) ** 2)}


@verifies("gradient.value.derivative")
@pytest.mark.parametrize("name", SLOPES)
def test_slopes_of_special_functions(name: str) -> None:
    """At small numbers, too, where a correction of a value must not be one of the slope."""
    points = np.concatenate([np.linspace(-0.9, 0.9, 19), [1e-6, -1e-6, 1e-3]])
    x = Tensor(points.astype(np.float32))
    found = getattr(x, name)().sum().gradient(x)[0].numpy()
    assert np.allclose(found, SLOPES[name](points), rtol=2e-5)


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "fmax": np.fmax,
    "fmin": np.fmin, "logaddexp": np.logaddexp, "logaddexp2": np.logaddexp2, "fmod": np.fmod}


@verifies("tensor.special.digits")
@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two_numbers(name: str) -> None:
    first, second = np.array(np.meshgrid(EDGES, EDGES)).reshape(2, -1)
    first = np.concatenate([first[:0 if name == "fmod" else None], LINE[:49]]).astype(np.float32)
    second = np.concatenate([second[:0 if name == "fmod" else None],
                             np.resize([0.7, -2.5, 3.25], 49)]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = PAIRS[name](first, second)
    found = getattr(Tensor(first), name)(Tensor(second)).numpy()
    if name == "logaddexp2":
        expected[np.isinf(expected) & np.isnan(found)] = np.nan
    assert np.allclose(found, expected, rtol=2e-6, atol=2e-6, equal_nan=True)
    known = expected == expected
    assert name in ("fmod", "fmax", "fmin") or np.array_equal(
        np.signbit(found[known]), np.signbit(expected[known]))


@verifies("tensor.special.digits")
def test_closeness() -> None:
    x, y = EDGES, EDGES * (1 + 1e-6)
    assert np.array_equal(Tensor(x).isclose(Tensor(y)).numpy(), np.isclose(x, y))
    assert Tensor(x).allclose(y, equal_nan=True) and not Tensor(x).allclose(y)
    assert Tensor([1, 2]).equal(Tensor([1, 2])) and not Tensor([1, 2]).equal(Tensor([1]))
    assert Tensor([7, -7, 7, -7]).fmod(Tensor([3, 3, -3, -3])).tolist() == [1, -1, 1, -1]


Case = tuple[Callable[[], Any], Callable[[], Any]]
STATISTICS: dict[str, Case] = {
    "median": (lambda: Tensor(V).median(), lambda: np.sort(V)[2]),
    "median of an axis": (lambda: Tensor(A).median(1).values, lambda: np.sort(A)[:, 1]),
    "median with nan": (lambda: Tensor(N).median(), lambda: np.nan),
    "nanmedian": (lambda: Tensor(N[:, :3]).nanmedian(),
                  lambda: np.sort(N[:, :3], None)[(~np.isnan(N[:, :3])).sum() - 1 >> 1]),
    **{f"quantile {kind}": (partial(Tensor(A).quantile, 0.3, 1, interpolation=kind),
                            partial(np.quantile, A, 0.3, 1, method=kind))
       for kind in ("linear", "lower", "higher", "nearest", "midpoint")},
    "quantiles": (lambda: Tensor(A).quantile(Tensor([0.1, 1.0]), 0, keepdim=True),
                  lambda: np.quantile(A, [0.1, 1.0], 0, keepdims=True)),
    "nanquantile": (lambda: Tensor(N).nanquantile(0.4, 0), lambda: np.nanquantile(N, 0.4, 0)),
    "kthvalue": (lambda: Tensor(A).kthvalue(2, 0).values, lambda: np.sort(A, 0)[1]),
    "mode": (lambda: Tensor([[2, 1, 2, 1], [3, 0, 3, 3]]).mode().values, lambda: [1, 3]),
    "nansum": (lambda: Tensor(N).nansum(1), lambda: np.nansum(N, 1)),
    "nanmean": (lambda: Tensor(N).nanmean(0), lambda: np.nanmean(N, 0)),
    "logcumsumexp": (lambda: Tensor(A * 100).logcumsumexp(1),
                     lambda: np.logaddexp.accumulate(A.astype(np.float64) * 100, 1)),
    "softmin": (lambda: Tensor(A).softmin(1),
                lambda: np.exp(-A) / np.exp(-A).sum(1, keepdims=True)),
    "diff": (lambda: Tensor(A).diff(2, 0), lambda: np.diff(A, 2, 0)),
    "bincount": (lambda: Tensor(I.ravel()).bincount(minlength=7),
                 lambda: np.bincount(I.ravel(), minlength=7)),
    "histogram": (lambda: Tensor(A).histogram(5)[0], lambda: np.histogram(A, 5)[0]),
    "histogram of a range": (lambda: Tensor(A).histogram(4, (-1, 1), True)[0],
                             lambda: np.histogram(A, 4, (-1, 1), True)[0]),
    "histc": (lambda: Tensor(A).histc(4, -1, 1), lambda: np.histogram(A, 4, (-1, 1))[0]),
    "searchsorted": (lambda: Tensor(np.sort(V)).searchsorted(Tensor(A)),
                     lambda: np.searchsorted(np.sort(V), A)),
    "bucketize": (lambda: Tensor(I).bucketize(Tensor([1, 3]), right=True),
                  lambda: np.searchsorted([1, 3], I, "right")),
    "nonzero": (lambda: Tensor(I).nonzero(), lambda: np.argwhere(I)),
    "nonzero of a number": (lambda: Tensor(3).nonzero(), lambda: np.empty((1, 0))),
    "unique": (lambda: Tensor(I).unique(), lambda: np.unique(I)),
    "unique inverse": (lambda: Tensor(I).unique(return_inverse=True)[1],
                       lambda: np.unique(I, return_inverse=True)[1].reshape(I.shape)),
    "unique_consecutive": (lambda: Tensor([1, 1, 2, 2, 1]).unique_consecutive(),
                           lambda: [1, 2, 1])}
MATRICES: dict[str, Case] = {
    **{f"diag {k}": (partial(Tensor(A).diag, k), partial(np.diag, A, k)) for k in (-1, 0, 2)},
    **{f"diag of a vector {k}": (partial(Tensor(V).diag, k), partial(np.diag, V, k))
       for k in (-2, 0, 1)},
    "diag_embed": (lambda: Tensor(A).diag_embed(), lambda: A[:, :, None] * np.eye(4)),
    "trace": (lambda: Tensor(A).trace(), lambda: np.trace(A)),
    "kron": (lambda: Tensor(A).kron(Tensor(A[:2])), lambda: np.kron(A, A[:2])),
    "cross": (lambda: Tensor(A[:, :3]).cross(Tensor(A[:, 1:]), 1),
              lambda: np.cross(A[:, :3], A[:, 1:])),
    "inner": (lambda: Tensor(A).inner(Tensor(A)), lambda: np.inner(A, A)),
    "tensordot": (lambda: Tensor(A).tensordot(Tensor(A), ([0, 1], [0, 1])),
                  lambda: np.tensordot(A, A)),
    "addmm": (lambda: Tensor(A).addmm(Tensor(A[:, :3]), Tensor(A), 2, 3),
              lambda: 2 * A + 3 * (A[:, :3] @ A)),
    "matrix_power": (lambda: Tensor(A[:, :3]).matrix_power(3),
                     lambda: np.linalg.matrix_power(A[:, :3], 3)),
    "cdist": (lambda: Tensor(A).cdist(Tensor(A[:2])),
              lambda: np.linalg.norm(A[:, None] - A[None, :2], axis=-1)),
    "cov": (lambda: Tensor(A).cov(), lambda: np.cov(A)),
    "corrcoef": (lambda: Tensor(A).corrcoef(), lambda: np.corrcoef(A)),
    "vander": (lambda: Tensor(V).vander(3), lambda: np.vander(V, 3))}
ARRANGEMENTS: dict[str, Case] = {
    **{f"rot90 {k}": (partial(Tensor(A).rot90, k), partial(np.rot90, A, k))
       for k in range(-1, 4)},
    "fliplr": (lambda: Tensor(A).fliplr(), lambda: np.fliplr(A)),
    "tile": (lambda: Tensor(A).tile(2, 1, 3), lambda: np.tile(A, (2, 1, 3))),
    "vstack": (lambda: Tensor.vstack(Tensor(V), Tensor(V)), lambda: np.vstack([V, V])),
    "hstack": (lambda: Tensor.hstack([Tensor(A), Tensor(A)]), lambda: np.hstack([A, A])),
    "dstack": (lambda: Tensor.dstack(Tensor(A), Tensor(A)), lambda: np.dstack([A, A])),
    "column_stack": (lambda: Tensor.column_stack(Tensor(V), Tensor(V)),
                     lambda: np.column_stack([V, V])),
    "meshgrid": (lambda: Tensor.meshgrid(Tensor(V), Tensor(V[:2]), indexing="xy")[1],
                 lambda: np.meshgrid(V, V[:2])[1]),
    "select": (lambda: Tensor(A).select(1, -1), lambda: A[:, -1]),
    "t": (lambda: Tensor(A).t(), lambda: A.T),
    "take_along_dim": (lambda: Tensor(A).take_along_dim(Tensor([[3, 0]]), 1),
                       lambda: A[:, [3, 0]]),
    "diagonal_scatter": (lambda: Tensor(A).diagonal_scatter(Tensor([7.0, 8.0, 9.0]), 1),
                         lambda: np.where(np.eye(3, 4, 1) > 0, [[0, 7, 8, 9]], A))}
CASES = {**STATISTICS, **MATRICES, **ARRANGEMENTS}


@pytest.mark.slow
@verifies("tensor.statistics.value+2")
@pytest.mark.parametrize("name", CASES)
def test_what_numpy_has_too(name: str) -> None:
    mine, theirs = CASES[name]
    found, expected = mine().numpy(), np.asarray(theirs())
    assert found.shape == expected.shape
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@verifies("tensor.statistics.value+2")
@pytest.mark.parametrize("shape", [(16,), (17,), (3, 256), (2, 1100), (257, 2)])
def test_running_sums_of_exponentials_lose_nothing(shape: tuple[int, ...]) -> None:
    """However far below the maximum: of `[-200, 0]` the first sum is not the logarithm of 0."""
    x = (random.standard_normal(shape) * 300).astype(np.float32)
    x[random.random(shape) < 0.1] = -np.inf
    x[0] = -np.inf
    for axis in range(x.ndim):
        wanted = np.logaddexp.accumulate(x.astype(np.float64), axis)
        np.testing.assert_allclose(Tensor(x).logcumsumexp(axis).numpy(), wanted, rtol=1e-6)
    x[-1] = np.nan
    assert np.isnan(Tensor(x).logcumsumexp(0).numpy()[-1]).all()


@verifies("gradient.value.derivative")
@pytest.mark.parametrize("line", [
    [0.0] * 16 + [-math.inf], [1.0] * 3 + [-math.inf] * 20, [0.0, math.inf] + [0.0] * 15,
    [0.5] * 40, [-900.0, 900.0] * 17, [300.0 - each for each in range(300)]], ids=len)
def test_slopes_of_running_sums_of_exponentials(line: list[float]) -> None:
    """Of each result exp(x[j] - result); nothing of the blocks is seen, also where one is -inf."""
    x, seed = np.array(line), np.random.default_rng(0).standard_normal(len(line))
    total = np.logaddexp.accumulate(x)
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.where(np.arange(len(x))[:, None] <= np.arange(len(x)),
                          np.exp(x[:, None] - total), 0)
    given = Tensor(x, requires_grad=True)
    (given.logcumsumexp(0) * Tensor(seed)).sum().backward()
    assert given.grad is not None
    np.testing.assert_allclose(given.grad.numpy(), (powers * seed).sum(1), rtol=1e-9, atol=1e-12)


@verifies("tensor.statistics.value+2")
@pytest.mark.parametrize("shape", [(1,), (9,), (6, 40), (2, 3, 5)])
@pytest.mark.parametrize("kinds", [1, 3, 1000])
def test_what_is_there_most_often(shape: tuple[int, ...], kinds: int) -> None:
    """The least of several, and a place of it, whichever axis it is."""
    x = random.integers(0, kinds, shape)
    for axis in range(x.ndim):
        found = Tensor(x).mode(axis, keepdim=True)
        counts = [(x == x.take([place], axis)).sum(axis) for place in range(shape[axis])]
        most = np.max(counts, 0)
        often = [np.where(count == most, x.take(place, axis), kinds)
                 for place, count in enumerate(counts)]
        assert np.array_equal(found.values.squeeze(axis).numpy(), np.min(often, 0))
        assert np.array_equal(np.take_along_axis(x, found.indices.numpy(), axis),
                              found.values.numpy())


@verifies("tensor.statistics.value+2")
@pytest.mark.parametrize("cut", [6, 5])
def test_parts_of_almost_equal_size(cut: int) -> None:
    for given in (2, 3, 4, [1, 1, 3]):
        found = [one.tolist() for one in Tensor(V[:cut]).tensor_split(given)]
        assert found == [one.tolist() for one in np.array_split(V[:cut], given)]


@verifies("tensor.statistics.value+2")
def test_writing_by_index() -> None:
    rows, more = Tensor([2, 0, 2]), random.standard_normal((3, 4)).astype(np.float32)
    expected = A.copy()
    np.add.at(expected, [2, 0, 2], 2 * more)
    assert np.allclose(Tensor(A).index_add(0, rows, Tensor(more), alpha=2).numpy(), expected)
    copied = Tensor(A).index_copy(1, Tensor([3, 0]), Tensor(more[:, :2]))
    assert np.array_equal(copied.numpy(), np.stack([more[:, 1], A[:, 1], A[:, 2], more[:, 0]], 1))
    assert Tensor(A).index_fill(0, Tensor([1]), 7)[1].tolist() == [7] * 4
    put = Tensor(A).index_put((Tensor([1, 1]), Tensor([2, 2])), Tensor([1.0, 2.0]), True)
    assert abs(put[1, 2].item() - A[1, 2] - 3) < 1e-6
    chosen = Tensor(A).masked_scatter(Tensor(A > 0), Tensor(more)).numpy()
    expected = A.copy()
    expected[A > 0] = more.ravel()[:(A > 0).sum()]
    assert np.array_equal(chosen, expected)


@verifies("tensor.statistics.value+2")
@pytest.mark.parametrize("reduce, combine, start", [
    ("sum", np.add, 0), ("prod", np.multiply, 1), ("amax", np.maximum, -np.inf),
    ("amin", np.minimum, np.inf)])
@pytest.mark.parametrize("own", [True, False])
def test_scattered_values_are_combined(reduce: str, combine: Any, start: float,
                                       own: bool) -> None:
    places = np.array([[0, 2, 2], [1, 1, 1]])
    values = random.standard_normal((2, 3)).astype(np.float32)
    expected = A.copy()
    for row, column in np.ndindex(places.shape):
        if not own:
            expected[row, places[row, column]] = start
    for row, column in np.ndindex(places.shape):
        place = row, places[row, column]
        expected[place] = combine(expected[place], values[row, column])
    found = Tensor(A).scatter_reduce(1, Tensor(places), Tensor(values), reduce, own)
    assert np.allclose(found.numpy(), expected, rtol=1e-5)


@verifies("tensor.size.values+3")
def test_a_size_that_is_given_computes_nothing() -> None:
    places = TinyJit(lambda x: (x > 0).nonzero(size=4, fill_value=-1).realize())
    for array in ([[1.0, -1.0], [1.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]], [[1.0] * 2] * 2):
        expected = np.argwhere(np.array(array) > 0).tolist()
        assert places(Tensor(array)).tolist() == (expected + [[-1, -1]] * 4)[:4]


@verifies("tensor.size.values+3")
@pytest.mark.parametrize("method", ["nonzero", "argwhere", "unique", "unique_consecutive"])
def test_sizes_that_depend_on_values_are_not_captured(method: str) -> None:
    captured = TinyJit(lambda x: getattr(x, method)())
    for values in ([1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [0.0, 0.0], [3.0, 0.0]):
        x = Tensor(values).realize()
        found, wanted = captured(x), getattr(x, method)()
        assert found.tolist() == wanted.tolist()
    assert captured.replays == 0 and "depends on values" in captured.explain()


@verifies("tensor.inplace.assigns")
def test_a_method_with_an_underscore_assigns() -> None:
    x = Tensor([[1.0, 4.0], [9.0, 16.0]])
    before = x * 1
    assert x.sqrt_() is x and x.tolist() == [[1, 2], [3, 4]]
    row = x[0]
    row.add_(10).mul_(other=2)
    assert x.tolist() == [[22, 24], [3, 4]] and before.tolist() == [[1, 4], [9, 16]]
    assert x.zero_().fill_(2).fill_diagonal_(5).tolist() == [[5, 2], [2, 5]]
    half = Tensor([1.0], dtype=dtypes.float16)
    assert half.add_(Tensor([1.5])).dtype is dtypes.float16 and half.item() == 2.5
    with pytest.raises(DTypeError, match="mul_"):
        Tensor([1]).mul_(1.5)
    with pytest.raises(ShapeError):
        Tensor([1.0]).add_(Tensor([1.0, 2.0]))


@verifies("tensor.inplace.assigns")
def test_every_method_with_an_underscore_does_what_the_one_without_does() -> None:
    x = random.uniform(0.1, 0.9, (2, 3)).astype(np.float32)
    tried, there = 0, "REFERENCE"  # which compiles nothing
    for name in dir(Tensor):
        plain = getattr(Tensor, name[:-1], None) if name.endswith("_") else None
        if plain is None or name.startswith("_") or name in ("normal_", "uniform_", "bernoulli_"):
            continue
        for given in ((), (0.5,), (Tensor(x[::-1].copy(), device=there),), (0,)):
            try:
                expected = plain(Tensor(x, device=there), *given)
                expected = expected.cast(dtypes.float32).numpy()
                written = Tensor(x, device=there)
                getattr(written, name)(*given)
            except (TypeError, ValueError, AttributeError, IndexError):
                continue
            assert np.array_equal(written.numpy(), expected, equal_nan=True), name
            tried += 1
            break
    assert tried > 80


@verifies("tensor.random.bits")
def test_drawing_without_replacement_draws_each_once() -> None:
    Tensor.manual_seed(3)
    drawn = Tensor([[0.1, 0.0, 5.0, 3.0, 1.0]]).expand(200, 5).multinomial(3).numpy()
    assert all(len(set(row)) == 3 and 1 not in row for row in drawn.tolist())
    assert (drawn[:, 0] == 2).mean() > 0.4
    assert set(Tensor([0.0, 1.0]).bernoulli().tolist()) == {0, 1}


@verifies("dtypes.division.floor")
def test_the_remainder_by_zero_is_zero() -> None:
    assert Tensor([7, -7, 5]).fmod(Tensor([0, 0, 3])).tolist() == [0, 0, 2]
