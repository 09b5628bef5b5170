"""The extension for Fourier transforms."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from impl import fft as _fft
from impl.array_api.arrays import Array, array_of
from impl.dtypes import DType, dtypes

__all__ = ["fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft",
           "irfft", "irfftn", "rfft", "rfftfreq", "rfftn"]


def fft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The transform along an axis."""
    return array_of(_fft.fft(array_of(x), n, axis, norm))


def ifft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse of `fft`."""
    return array_of(_fft.ifft(array_of(x), n, axis, norm))


def fftn(x: Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
         norm: str = "backward") -> Array:
    """`fft` along several axes."""
    return array_of(_fft.fftn(array_of(x), s, axes, norm))


def ifftn(x: Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str = "backward") -> Array:
    """`ifft` along several axes."""
    return array_of(_fft.ifftn(array_of(x), s, axes, norm))


def rfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The first half of the transform of real numbers."""
    return array_of(_fft.rfft(array_of(x), n, axis, norm))


def irfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse of `rfft`."""
    return array_of(_fft.irfft(array_of(x), n, axis, norm))


def rfftn(x: Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: str = "backward") -> Array:
    """`rfft` along the last of several axes, and `fft` along the others."""
    return array_of(_fft.rfftn(array_of(x), s, axes, norm))


def irfftn(x: Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
           norm: str = "backward") -> Array:
    """The inverse of `rfftn`."""
    return array_of(_fft.irfftn(array_of(x), s, axes, norm))


def hfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The transform of a signal whose later half are the conjugates of the first."""
    return array_of(_fft.hfft(array_of(x), n, axis, norm))


def ihfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse of `hfft`."""
    return array_of(_fft.ihfft(array_of(x), n, axis, norm))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None,
            device: Any = None) -> Array:
    """The frequency of each value of `fft`."""
    return _frequencies(_fft.fftfreq(n, d), dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None,
             device: Any = None) -> Array:
    """The frequency of each value of `rfft`."""
    return _frequencies(_fft.rfftfreq(n, d), dtype, device)


def _frequencies(found: Any, dtype: DType | None, device: Any) -> Array:
    made = array_of(found).cast(dtype or dtypes.default_float)
    return made if device is None else made.to(device)


def fftshift(x: Array, /, *, axes: Any = None) -> Array:
    """Frequency 0 in the middle."""
    return array_of(_fft.fftshift(array_of(x), axes))


def ifftshift(x: Array, /, *, axes: Any = None) -> Array:
    """The inverse of `fftshift`."""
    return array_of(_fft.ifftshift(array_of(x), axes))
