"""Fourier transforms, compared with NumPy."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from impl import Tensor, fft
from impl.errors import (
    ArgumentError,
    DTypeError,
    NameMissingError,
    ShapeError,
    TensorScheduleError,
)
from impl.settings import Context

random = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _reference() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def drawn(*shape: int) -> tuple[np.ndarray, fft.Complex]:
    real, imag = (random.standard_normal(shape) for _ in range(2))
    return real + 1j * imag, fft.Complex(Tensor(real), Tensor(imag))


def close(found: Any, wanted: Any) -> bool:
    value = found.numpy()
    return value.shape == np.shape(wanted) and np.allclose(value, wanted, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 12, 67, 72, 128])
def test_a_transform_and_its_inverse(n: int) -> None:
    wanted, z = drawn(2, n)
    assert close(fft.fft(z), np.fft.fft(wanted))
    assert close(fft.ifft(z), np.fft.ifft(wanted))
    assert close(fft.rfft(z.real), np.fft.rfft(wanted.real))
    assert close(fft.irfft(fft.rfft(z.real), n), wanted.real)


@pytest.mark.parametrize("n", [66, 135, 1019, 4096, 8190])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_long_transforms_of_any_axis(n: int, axis: int) -> None:
    """Of several factors, even and odd, of a part of what is there and of more."""
    shape = [2, 3, 2]
    shape[axis] = n
    wanted, z = drawn(*shape)
    for size in (n, n - 1, n + 5):
        assert close(fft.fft(z, size, axis), np.fft.fft(wanted, size, axis))
        assert close(fft.rfft(z.real, size, axis), np.fft.rfft(wanted.real, size, axis))
        assert close(fft.irfft(z, size, axis), np.fft.irfft(wanted, size, axis))


def test_a_length_is_any_whole_number() -> None:
    _, z = drawn(5)
    lengths: list[Any] = [np.int64(4), np.int32(5), True]
    for n in lengths:
        assert fft.irfft(z, n).shape == (int(n),) == fft.ifft(z, n).shape
        assert fft.hfft(z, n).shape == (int(n),)
    wrongs: list[Any] = ["3", 4.5]
    for wrong in wrongs:
        with pytest.raises(ArgumentError, match=f"n is {wrong!r}"):
            fft.irfft(z, wrong)
    with pytest.raises(DTypeError):
        fft.irfft([1.0])
    with pytest.raises(ShapeError, match="no axes"):
        fft.irfft(Tensor(1.0))


def test_lengths_axes_and_norms() -> None:
    wanted, z = drawn(3, 6)
    for norm in (None, "backward", "ortho", "forward"):
        for n, axis in ((4, 0), (2, 0), (9, 1)):
            assert close(fft.fft(z, n, axis, norm), np.fft.fft(wanted, n, axis, norm))
            assert close(fft.ifft(z, n, axis, norm), np.fft.ifft(wanted, n, axis, norm))
            assert close(fft.irfft(z, n, axis, norm), np.fft.irfft(wanted, n, axis, norm))
    assert close(fft.fft2(z), np.fft.fft2(wanted)) and close(fft.ifftn(z), np.fft.ifftn(wanted))
    assert close(fft.fftn(z, (2, 4)), np.fft.fftn(wanted, (2, 4), (0, 1)))
    assert close(fft.fftshift(z), np.fft.fftshift(wanted))
    assert close(fft.ifftshift(z.real, 1), np.fft.ifftshift(wanted.real, 1))
    assert np.allclose(fft.fftfreq(5, 0.1).numpy(), np.fft.fftfreq(5, 0.1))
    assert np.allclose(fft.rfftfreq(6).numpy(), np.fft.rfftfreq(6))
    single = fft.rfft(Tensor([1, 2, 3]))
    assert single.real.dtype.name == "float32" and np.allclose(single.numpy(),
                                                               np.fft.rfft([1, 2, 3]))


def test_complex_numbers_calculate() -> None:
    a, x = drawn(2, 3)
    b, y = drawn(3)
    for found, wanted in ((x + y, a + b), (x - y, a - b), (x * y, a * b), (x / y, a / b),
                          (2 - x, 2 - a), (1 / x, 1 / a), (x * 2j, a * 2j), (x / 2, a / 2),
                          (x.conj(), a.conj()), (x.exp(), np.exp(a)), (x[1], a[1]),
                          (x.sum(0), a.sum(0)), (x.transpose(0, 1), a.T), (-x, -a),
                          (abs(x), abs(a)), (x.angle(), np.angle(a))):
        assert close(found, wanted)
    assert [close(one, a[:, place:place + 1]) for place, one in enumerate(x.chunk(3, 1))] == [1] * 3
    assert x.shape == (2, 3) and len(x) == 2
    with pytest.raises(NameMissingError, match="Complex: there is no softmax"):
        _ = x.softmax


def test_complex_numbers_are_as_large_and_as_small_as_their_parts() -> None:
    numbers = np.array([1 + 2j, 3e38 + 1e38j, 1e-30 - 2e-30j, 2e38 - 1j, -1e30j, 5, 0,
                        complex("inf")], np.complex64)
    over, under = np.meshgrid(numbers, numbers)

    def pair(array: np.ndarray) -> fft.Complex:
        return fft.Complex(Tensor(array.real.copy()), Tensor(array.imag.copy()))

    with np.errstate(all="ignore"):
        for found, wanted in ((pair(over) / pair(under), over / under),
                              (abs(pair(numbers)), np.abs(numbers))):
            array = found.numpy()
            for one, two in ((array.real, wanted.real), (array.imag, wanted.imag)):
                assert np.allclose(one, two, rtol=1e-5, atol=0, equal_nan=True)


def test_what_cannot_be_transformed_is_told() -> None:
    x: Any = Tensor.ones(2, 3)
    part: Any = 1.5
    for call, words in ((lambda: fft.fft(x, dim=4), "fft.fft: axis 4 is out of range"),
                        (lambda: fft.fft(Tensor(1.0)), "the tensor has no axes"),
                        (lambda: fft.rfft(x, n=part), "fft.rfft: n is 1.5"),
                        (lambda: fft.fft2(x[0]), "2 axes for shape"),
                        (lambda: fft.ifftn(x, s=(1, 2, 3)), "fft.ifftn: 3 sizes and 3 axes"),
                        (lambda: fft.fftfreq(0), "fft.fftfreq: n is 0"),
                        (lambda: fft.rfftfreq(part), "fft.rfftfreq: n is 1.5"),
                        (lambda: fft.fftt, "did you mean fft.fft")):
        with pytest.raises(TensorScheduleError, match=words):
            call()


def test_gradients_flow() -> None:
    x = Tensor([1.0, -2.0, 3.0, 0.5], requires_grad=True)
    fft.rfft(x).abs().square().sum().backward()
    wanted = 4 * x.numpy() + (x.sum().item() + (x * Tensor([1.0, -1, 1, -1])).sum().item()
                              * np.array([1, -1, 1, -1]))  # sum |X|^2 by Parseval
    assert x.grad is not None and np.allclose(x.grad.numpy(), wanted, atol=1e-5)
    zero = Tensor([0.0, 0.0], requires_grad=True)
    fft.fft(zero).abs().sum().backward()
    assert zero.grad is not None and zero.grad.tolist() == [0, 0]


def test_windows_of_a_signal() -> None:
    signal = random.standard_normal((2, 20))
    window = np.hanning(6)
    wide = np.pad(signal, [(0, 0), (4, 4)], mode="reflect")
    shape = np.pad(window, 1)
    wanted = np.stack([np.fft.rfft(wide[:, start:start + 8] * shape)
                       for start in range(0, 21, 3)], -1)
    found = fft.stft(Tensor(signal), 8, 3, 6, Tensor(window), return_complex=True)
    assert close(found, wanted)
    parts = fft.stft(Tensor(signal), 8, 3, 6, Tensor(window), return_complex=False)
    assert np.allclose(parts.numpy(), np.stack([wanted.real, wanted.imag], -1))
    whole = fft.stft(Tensor(signal), 4, center=False, onesided=False, normalized=True)
    assert close(whole, np.stack([np.fft.fft(signal[:, start:start + 4], norm="ortho")
                                  for start in range(17)], -1))


def test_what_cannot_be_transformed_is_refused() -> None:
    _, z = drawn(3)
    with pytest.raises(DTypeError, match=r"fft.rfft: the numbers are complex"):
        fft.rfft(z)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match=r"fft.fft: list is no tensor"):
        fft.fft([1, 2])
    with pytest.raises(ShapeError, match="fft.fft: there are 0 values along axis -1"):
        fft.fft(Tensor([]))
    with pytest.raises(ArgumentError, match="fft.ifft: norm is 'other'"):
        fft.ifft(z, norm="other")
    with pytest.raises(ArgumentError, match="stft: a window of shape"):
        fft.stft(z.real, 2, win_length=3)
