"""Linear algebra, beside NumPy; and its gradients, beside differences. Chapter: spec/tensor.md."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, func
from impl.errors import ArgumentError, ShapeError

random = np.random.default_rng(0)
SQUARE = random.standard_normal((2, 3, 3)) + 2 * np.eye(3)
TALL = random.standard_normal((2, 4, 3))
POSITIVE = SQUARE @ SQUARE.swapaxes(-1, -2) + np.eye(3)
RIGHT = random.standard_normal((2, 3, 2))
VECTORS = random.standard_normal((2, 3))


def exact(x: np.ndarray) -> Tensor:
    return Tensor(x.astype(np.float64))


CASES: dict[str, tuple[Callable[[Tensor], Any], Callable[[np.ndarray], Any], np.ndarray]] = {
    "inverse": (lambda x: x.inverse(), np.linalg.inv, SQUARE),
    "pinverse": (lambda x: x.pinverse(), np.linalg.pinv, TALL),
    "det": (lambda x: x.det(), np.linalg.det, SQUARE),
    "slogdet": (lambda x: Tensor.linalg.slogdet(x)[1], lambda x: np.linalg.slogdet(x)[1], SQUARE),
    "logdet": (lambda x: x.logdet(), lambda x: np.log(np.linalg.det(x)), POSITIVE),
    "solve": (lambda x: Tensor.linalg.solve(x, exact(RIGHT)),
              lambda x: np.linalg.solve(x, RIGHT), SQUARE),
    "solve a vector": (lambda x: x.solve(exact(VECTORS)),
                       lambda x: np.linalg.solve(x, VECTORS[..., None])[..., 0], SQUARE),
    "right side": (lambda b: exact(SQUARE).solve(b), lambda b: np.linalg.solve(SQUARE, b), RIGHT),
    "cholesky": (lambda x: (x @ x.mT).cholesky(),
                 lambda x: np.linalg.cholesky(x @ x.swapaxes(-1, -2)), SQUARE),
    "qr": (lambda x: x.qr().R, lambda x: np.linalg.qr(x)[1], TALL),
    "eigenvalues": (lambda x: (x + x.mT).eigvalsh(),
                    lambda x: np.linalg.eigvalsh(x + x.swapaxes(-1, -2)), SQUARE),
    "projections": (lambda x: (x + x.mT).eigh()[1].abs(),
                    lambda x: abs(np.linalg.eigh(x + x.swapaxes(-1, -2))[1]), SQUARE),
    "singular values": (lambda x: x.svdvals(), lambda x: np.linalg.svd(x, compute_uv=False), TALL),
    "singular vectors": (lambda x: x.svd()[2].abs(),
                         lambda x: abs(np.linalg.svd(x)[2]).swapaxes(-1, -2), TALL),
    "nuclear": (lambda x: Tensor.linalg.norm(x, "nuc", (-2, -1)),
                lambda x: np.linalg.norm(x, "nuc", (-2, -1)), TALL),
    "spectral": (lambda x: x.matrix_norm(2), lambda x: np.linalg.norm(x, 2, (-2, -1)), TALL),
    "columns": (lambda x: x.matrix_norm(1), lambda x: np.linalg.norm(x, 1, (-2, -1)), TALL),
    "least squares": (lambda x: x.lstsq(exact(np.ones((2, 4, 1)))).solution,
                      lambda x: np.stack([np.linalg.lstsq(one, np.ones((4, 1)), rcond=None)[0]
                                          for one in x]), TALL),
    "exponential": (lambda x: x.matrix_exp(), lambda x: series(x), SQUARE),
    "chain": (lambda x: Tensor.linalg.multi_dot([x.mT, x, exact(RIGHT)]),
              lambda x: x.swapaxes(-1, -2) @ x @ RIGHT, SQUARE),
}


def series(x: np.ndarray) -> np.ndarray:
    total, term = np.zeros_like(x), np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    for order in range(1, 60):
        total, term = total + term, term @ x / order
    return total


@verifies("tensor.linalg.host+3")
@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    ours, theirs, x = CASES[name]
    found = ours(exact(x)).numpy()
    assert np.allclose(abs(found) if name == "qr" else found,
                       abs(theirs(x)) if name == "qr" else theirs(x), atol=1e-9)


@pytest.mark.slow
@verifies("tensor.linalg.slope+2")
@pytest.mark.parametrize("name", CASES)
def test_slopes(name: str) -> None:
    """Along a line a weighted sum of the results grows as the gradient says."""
    ours, _, x = CASES[name]
    way = random.standard_normal(x.shape)
    tensor = exact(x).requires_grad_()
    found = ours(tensor)
    weight = exact(random.standard_normal(found.shape))
    slope = ((found * weight).sum().gradient(tensor)[0] * exact(way)).sum().item()
    there, back = ((ours(exact(x + step * way)) * weight).sum().item() for step in (1e-5, -1e-5))
    assert abs((there - back) / 2e-5 - slope) < 1e-4 * max(1, abs(slope))


@pytest.mark.slow
@verifies("tensor.linalg.slope+2")
@pytest.mark.parametrize("name", [name for name in CASES if name not in ("columns", "chain")])
def test_slopes_have_slopes(name: str) -> None:
    """Along a line the gradient changes as its own gradient says."""
    ours, _, x = CASES[name]
    x, way = x[:1], random.standard_normal(x[:1].shape)
    if name == "right side" or name.startswith("solve"):
        x, way = CASES[name][2], random.standard_normal(CASES[name][2].shape)

    def slope(tensor: Tensor) -> Tensor:
        return (ours(tensor).square().sum().gradient(tensor)[0] * exact(way)).sum()
    tensor = exact(x).requires_grad_()
    curve = (slope(tensor).gradient(tensor)[0] * exact(way)).sum().item()
    there, back = (slope(exact(x + step * way)).item() for step in (1e-5, -1e-5))
    assert abs((there - back) / 2e-5 - curve) < 1e-4 * max(1, abs(curve))


@verifies("tensor.linalg.slope+2")
def test_slopes_under_transforms() -> None:
    x = exact(SQUARE[0])
    matrix = np.linalg.inv(SQUARE[0])
    wanted = np.einsum("ai,jk,lb->aijklb", matrix, matrix, matrix)
    wanted = wanted.sum((0, -1))
    wanted = wanted + wanted.transpose(2, 3, 0, 1)
    assert np.allclose(func.hessian(lambda y: y.inverse().sum())(x).numpy(), wanted)
    for axis in (None, 0):
        spread = x.shard(("CPU:0", "CPU:1"), axis).requires_grad_()
        (spread.inverse().sum() * 10 + spread.sum()).backward()
        assert spread.grad is not None
        assert np.allclose(spread.grad.numpy(), 1 - 10 * (matrix.T @ np.ones((3, 3)) @ matrix.T))


@verifies("tensor.linalg.host+3")
def test_parts_give_the_matrix_again() -> None:
    x = exact(TALL)
    q, r = x.qr()
    u, s, v = x.svd()
    p, low, up = x.lu()
    for again in (q @ r, u * s.unsqueeze(-2) @ v.mT, p @ low @ up):
        assert np.allclose(again.numpy(), TALL)
    full = Tensor.linalg.svd(x)
    assert full.U.shape == (2, 4, 4) and full.Vh.shape == (2, 3, 3)
    assert np.allclose((full.U @ full.U.mT).numpy(), np.eye(4))
    assert x.matrix_rank().tolist() == [3, 3] and exact(np.ones((3, 3))).matrix_rank().item() == 1
    low = exact(POSITIVE).cholesky()
    assert np.allclose(exact(RIGHT).cholesky_solve(low).numpy(), np.linalg.solve(POSITIVE, RIGHT))
    assert np.allclose(low.cholesky_inverse().numpy(), np.linalg.inv(POSITIVE))
    solved = Tensor.linalg.solve_triangular(exact(SQUARE), exact(RIGHT), upper=True)
    assert np.allclose(solved.numpy(), np.linalg.solve(np.triu(SQUARE), RIGHT))


@verifies("tensor.linalg.host+3")
def test_singular_matrices_have_values_where_numpy_has_them() -> None:
    """What has no slope has a value all the same; beside it the other matrices have both."""
    x = exact(np.array([[[1, 2], [2, 4]], [[2, 1], [1, 3]]])).requires_grad_()
    sign, size = Tensor.linalg.slogdet(x)
    assert sign.tolist() == [0, 1] and size.tolist() == [-np.inf, pytest.approx(np.log(5))]
    assert x.logdet().tolist() == size.tolist()
    slope = size[1].gradient(x)[0].numpy()
    assert np.allclose(slope[1], [[.6, -.2], [-.2, .4]])
    assert not np.isfinite(size.sum().gradient(x)[0].numpy()[0]).all()
    for shape in ((3, 2), (2, 2), (2, 3)):
        zeros = exact(np.zeros(shape))
        (q, r), (p, low, up) = zeros.qr(), zeros.lu()
        assert np.allclose((q.mT @ q).numpy(), np.eye(2)) and not r.numpy().any()
        assert np.allclose((p @ low @ up).numpy(), 0)


@verifies("tensor.linalg.host+3")
def test_what_cannot_be_done_is_told() -> None:
    with pytest.raises(ArgumentError, match="inverse: of .3, 3.: Singular matrix"):
        Tensor(np.zeros((3, 3))).inverse()
    with pytest.raises(ArgumentError, match="cholesky"):
        Tensor([[-1.0]]).cholesky()
    with pytest.raises(ShapeError, match="square"):
        Tensor([[1.0, 2.0]]).det()
    with pytest.raises(AttributeError, match="linalg: there is no invv; .*did you mean inv?"):
        Tensor.linalg.invv  # noqa: B018


@verifies("tensor.linalg.host+3")
def test_a_captured_function_computes_each_matrix() -> None:
    step = TinyJit(lambda x: x.inverse() * 2)
    for number in range(4):
        x = SQUARE[0] + number * np.eye(3)
        assert np.allclose(step(exact(x).realize()).numpy(), 2 * np.linalg.inv(x))


@verifies("tensor.linalg.host+3")
def test_of_each_of_many_examples() -> None:
    """Within `vmap` no matrix is there: the host is asked when the schedule runs."""
    methods: list[Callable[[Tensor], Any]] = [
        lambda x: x.inverse(), lambda x: x.det(), lambda x: x.slogdet(), lambda x: x.lu(),
        lambda x: x.solve(x[..., 0]), lambda x: x.qr(), lambda x: x.qr("r")[1], lambda x: x.eigh(),
        lambda x: Tensor.linalg.svd(x), lambda x: (x @ x.mT).cholesky(upper=True)]
    numbers = random.standard_normal((3, 2, 2))
    with Context(DEVICE="REFERENCE"):
        for method in methods:
            for matrices in (exact(numbers), Tensor(numbers.astype(np.float32))):
                wanted = _results(method(matrices))
                once = _results(func.vmap(method)(matrices))
                twice = _results(func.vmap(func.vmap(method))(matrices[None]))
                for one, other, known in zip(once, twice, wanted, strict=True):
                    assert one.shape == known.shape and one.dtype is known.dtype
                    assert np.allclose(one.numpy(), known.numpy(), atol=1e-6)
                    assert np.allclose(other.numpy()[0], known.numpy(), atol=1e-6)


def _results(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


@verifies("tensor.linalg.host+3")
def test_in_loops_and_with_gradients() -> None:
    positive = POSITIVE[0] if POSITIVE.ndim == 3 else POSITIVE
    with Context(DEVICE="REFERENCE"):
        x = exact(np.stack([positive, positive * 2]))
        last, all_of_them = func.scan(lambda c, m: (m.solve(c), c), exact(np.ones(3)), x)
        inverse = np.linalg.inv(positive)
        assert np.allclose(last.numpy(), inverse @ inverse @ np.ones(3) / 2)
        assert all_of_them.shape == (2, 3)
        slopes = func.vmap(func.grad(lambda m: m.slogdet()[1]))(x)
        assert np.allclose(slopes.numpy(), [inverse.T, inverse.T / 2])
        steps = exact(np.array([1, 3]))
        along = func.grad(lambda m: func.scan(lambda c, s: (c.inverse() * s, c), m, steps)[0].sum()
                          )(exact(positive))
        assert np.allclose(along.numpy(), 3)
        with pytest.raises(ArgumentError, match="inverse: of .2, 2, 2.: Singular matrix"):
            func.vmap(lambda m: m.inverse())(exact(np.zeros((2, 2, 2)))).realize()
        # Half of a digit more would be lost in float32.
        stiff = np.array([[1, 1], [1, 1 + 1e-6]], np.float32)
        found = func.vmap(lambda m: m.det())(Tensor(stiff[None])).item()
        assert np.isclose(found, np.linalg.det(stiff.astype(np.float64)), 1e-4)


@verifies("tensor.linalg.slope+2")
@pytest.mark.parametrize("method", [
    lambda x: x.qr().Q @ x.qr().R.square(), lambda x: x.lu()[1] @ x.lu()[2].square()])
def test_slopes_of_wide_and_tall_matrices(method: Callable[[Tensor], Tensor]) -> None:
    for shape in ((2, 4), (4, 2)):
        x, way = random.standard_normal(shape), random.standard_normal(shape)
        with Context(DEVICE="REFERENCE"):
            along = exact(way)

            def change(y: Tensor, along: Tensor = along) -> Tensor:
                return func.jvp(lambda z: method(z).sin().sum(), (y,), (along,))[1]

            there, back = (exact(x + step * way) for step in (1e-5, -1e-5))
            slope = (method(there).sin().sum() - method(back).sin().sum()).item() / 2e-5
            assert np.isclose(change(exact(x)).item(), slope, 1e-5)
            curve = (change(there) - change(back)).item() / 2e-5
            found = (func.grad(change)(exact(x)) * along).sum().item()
            assert np.isclose(found, curve, 1e-4)


@verifies("tensor.linalg.slope+2")
def test_a_number_that_was_read_keeps_its_slope() -> None:
    x = Tensor([[3.0, 0.0], [0.0, 2.0]], requires_grad=True)
    for method, wanted in ((Tensor.det, [[2.0, 0.0], [0.0, 3.0]]),
                           (Tensor.logdet, [[1 / 3, 0.0], [0.0, 0.5]])):
        found = method(x)
        found.item()
        assert np.allclose((found * 1).gradient(x)[0].numpy(), wanted, atol=1e-6)
