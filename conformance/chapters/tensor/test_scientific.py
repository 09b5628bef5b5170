"""Factors of matrices in one, functions of physics, and other names of PyTorch's tensors."""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import impl.torch as torch
from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, fft
from impl.errors import ArgumentError, ShapeError


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    """Values, on the device that compiles nothing."""
    with Context(DEVICE="REFERENCE"):
        yield


MATRICES = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)


def test_packed_factors_solve_what_they_were_made_of() -> None:
    x, right = Tensor(MATRICES), MATRICES[..., :2]
    packed, pivots = torch.linalg.lu_factor(x)
    assert packed.shape == x.shape and pivots.shape == (2, 4) and (pivots.numpy() >= 1).all()
    wanted = np.linalg.solve(MATRICES, right)
    assert np.allclose(torch.linalg.lu_solve(packed, pivots, Tensor(right)).numpy(), wanted,
                       atol=1e-4)
    assert np.allclose(Tensor(right).lu_solve(packed, pivots).numpy(), wanted, atol=1e-4)
    p, low, up = packed.lu_unpack(pivots)
    assert np.allclose((p @ low @ up).numpy(), MATRICES, atol=1e-5)
    values, vectors = torch.linalg.eig(x)
    assert np.allclose(np.sort_complex(values.numpy()),
                       np.sort_complex(np.linalg.eigvals(MATRICES)), atol=1e-4)
    assert vectors.shape == x.shape
    inverse = torch.linalg.tensorinv(x[0].reshape(2, 2, 4), ind=2).numpy()
    assert np.allclose(inverse.reshape(4, 4), np.linalg.inv(MATRICES[0]), atol=1e-3)
    left = torch.linalg.tensorsolve(x[0].reshape(2, 2, 4), Tensor(right[0, :, 0]).reshape(2, 2))
    assert np.allclose(left.numpy(), np.linalg.solve(MATRICES[0], right[0, :, 0]), atol=1e-3)


def test_what_is_not_possible_is_said_in_a_number() -> None:
    good = MATRICES @ MATRICES.swapaxes(-1, -2) + np.eye(4, dtype=np.float32)
    found = torch.linalg.cholesky_ex(Tensor(np.stack([good[0], -good[0]])))
    assert found.info.tolist() == [0, 1]
    assert np.allclose(found[0][0].numpy(), np.linalg.cholesky(good[0]), atol=1e-5)
    singular = np.stack([good[0], np.zeros((4, 4), np.float32)])
    assert torch.linalg.inv_ex(Tensor(singular)).info.tolist() == [0, 1]


def test_functions_of_physics_are_those_of_scipy() -> None:
    special = pytest.importorskip("scipy.special")
    x = np.linspace(0.5, 4.0, 5).astype(np.float32)
    for name, own, order in (("bessel_j0", "j0", ()), ("modified_bessel_k1", "k1", ()),
                             ("legendre_polynomial_p", "eval_legendre", (3,)),
                             ("gammainc", "gammainc", (2.0,))):
        first, second = (Tensor(x), *order) if name != "gammainc" else (Tensor(2.0), Tensor(x)), x
        found = getattr(torch.special, name)(*first)
        assert np.allclose(found.numpy(), getattr(special, own)(*order, second), rtol=1e-4), name
    at = Tensor(x, requires_grad=True)
    Tensor(2.0).igamma(at).sum().backward()
    assert at.grad is not None and np.allclose(at.grad.numpy(), x * np.exp(-x), rtol=1e-4)
    captured: Any = TinyJit(lambda value: torch.special.bessel_j0(value))
    for _ in range(3):
        assert np.allclose(captured(Tensor(x)).numpy(), special.j0(x), rtol=1e-4)


def test_a_spectrum_becomes_the_signal_again() -> None:
    signal = np.random.default_rng(1).standard_normal((2, 40)).astype(np.float32)
    window = Tensor(np.hanning(18)[1:-1].astype(np.float32))
    spectra = fft.stft(Tensor(signal), 16, 4, window=window)
    again = torch.istft(spectra, 16, 4, window=window, length=40)
    assert again.shape == (2, 40) and np.allclose(again.numpy(), signal, atol=1e-4)


def test_other_names_of_tensors() -> None:
    x = Tensor.arange(12).cast("float32").reshape(3, 4)
    assert x.stride() == (4, 1) and x.stride(0) == 4 and x.storage_offset() == 0
    assert x.as_strided((3, 2), (2, 3), 1).tolist() == [[1, 4], [3, 6], [5, 8]]
    with pytest.raises(ShapeError, match="leave a tensor of 12 elements"):
        x.as_strided((3, 4), (4, 2))
    assert Tensor([-1.0, 2.0]).angle().tolist() == [np.float32(math.pi), 0.0]
    assert Tensor([1.0]).nextafter(2.0).item() == np.nextafter(np.float32(1), np.float32(2))
    assert Tensor([1.0, 2.0]).apply_(lambda one: one + 1).tolist() == [2, 3]
    w = Tensor([1.0, 2.0], requires_grad=True)
    inner = w * 2
    inner.retain_grad()
    inner.square().sum().backward()
    assert inner.grad is not None and inner.grad.tolist() == [4, 8]
    assert w.grad is not None and w.grad.tolist() == [8, 16]
    Tensor.manual_seed(0)
    drawn = Tensor.zeros(50).contiguous().random_(5)
    assert set(drawn.tolist()) <= {0, 1, 2, 3, 4} and len(set(drawn.tolist())) > 2
    wide = Tensor.zeros(50, dtype="int64").contiguous()
    assert wide.random_(0, 2 ** 32).numpy().max() >= 2 ** 31
    assert (wide.random_(2 ** 40, 2 ** 40 + 2).numpy() - 2 ** 40).max() == 1
    assert {*Tensor.zeros(50, dtype="bool").contiguous().random_().tolist()} == {False, True}
    assert np.isfinite(Tensor.zeros(50, dtype="float16").contiguous().random_().numpy()).all()
    with pytest.raises(ShapeError, match="at most 2\\*\\*32 apart"):
        wide.random_(0, 2 ** 40)
    with pytest.raises(ShapeError, match="bounds that the dtype holds"):
        Tensor.zeros(5, dtype="uint8").random_(0, 1000)
    assert abs(Tensor.full((2000,), 3.0).poisson().mean().item() - 3) < 0.2
    assert torch.range(1, 4).tolist() == [1, 2, 3, 4]


@verifies("tensor.extreme.places")
def test_extremes_have_places_in_a_file_of_torch() -> None:
    x = torch.tensor([[1.0, 5.0], [7.0, 2.0]])
    assert x.max(1).indices.tolist() == [1, 0] and x.min(dim=0).values.tolist() == [1, 2]
    values, places = x.cummax(1)
    assert values.tolist() == [[1, 5], [7, 7]] and places.tolist() == [[0, 1], [0, 0]]
    assert x.max().item() == 7 and x.amax(1).tolist() == [5, 7]
    sized: Any = torch.Tensor
    assert sized(2, 3).shape == (2, 3)
    elsewhere: dict[str, Any] = {"x": x}
    exec("one, two = x.max(1), x.cummin(0)", elsewhere)  # noqa: S102  (a file without torch)
    assert elsewhere["one"].tolist() == [5, 7] and elsewhere["two"].tolist() == [[1, 5], [1, 2]]


def test_windows_of_torch() -> None:
    assert np.allclose(torch.signal.windows.hann(5).numpy(), np.hanning(5), atol=1e-6)
    bell = torch.signal.windows.gaussian(6, std=2.0, sym=False).numpy()
    assert np.allclose(bell, np.exp(-((np.arange(6) - 3) / 2) ** 2 / 2), atol=1e-6)
    assert torch.initial_seed() >= 0 and torch.diagonal_copy(Tensor.eye(2)).tolist() == [1, 1]


def test_slopes_between_neighbours_and_signs() -> None:
    x = np.random.default_rng(2).standard_normal((4, 5)).astype(np.float32)
    for found, wanted in zip(torch.gradient(Tensor(x), spacing=2.0), np.gradient(x, 2.0),
                             strict=True):
        assert np.allclose(found.numpy(), wanted, atol=1e-5)
    places = [0.0, 1.0, 3.0, 4.0]
    (found,) = torch.gradient(Tensor(x), spacing=(Tensor(places),), dim=0, edge_order=2)
    assert np.allclose(found.numpy(), np.gradient(x, places, axis=0, edge_order=2), atol=1e-4)
    with pytest.raises(ArgumentError, match="edge_order=1"):
        torch.gradient(Tensor([1.0]))
    assert torch.sign(Tensor([-2.0, float("nan"), 0.0])).tolist() == [-1, 0, 0]
