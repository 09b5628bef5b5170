"""Operators about signals: transforms and filters."""
from __future__ import annotations

from typing import Any

from impl import fft
from impl.complex import Complex
from impl.host import np
from impl.onnx.operators import Host, dtype_of, operator
from impl.tensor import Tensor


@operator("DFT", 20)
def transform(x: Tensor, length: Host | None = None, axis: Host | None = None, *,
              inverse: int = 0, onesided: int = 0) -> Tensor:
    """The last axis holds the real and, if it is there, the imaginary part."""
    along = -2 if axis is None else int(axis.item())
    along = along - 1 if along < 0 else along - x.ndim  # of the axes without the last
    count = None if length is None else int(length.item())
    real, rest = x[..., 0], x.shape[-1]
    if inverse and onesided:
        whole = Complex(real, x[..., 1] if rest == 2 else real.zeros_like())
        return fft.irfft(whole, count, along + 1).unsqueeze(-1)
    if onesided:
        found = fft.rfft(real, count, along + 1)
    else:
        given = Complex(real, x[..., 1] if rest == 2 else real.zeros_like())
        found = (fft.ifft if inverse else fft.fft)(given, count, along + 1)
    return Tensor.stack(found.real, found.imag, dim=-1)


@operator("DFT", 17)
def transform_17(x: Tensor, length: Host | None = None, *, axis: int = 1, inverse: int = 0,
                 onesided: int = 0) -> Tensor:
    return transform(x, length, np.array(axis), inverse=inverse, onesided=onesided)


@operator("STFT")
def transform_of_frames(x: Tensor, step: Host, window: Tensor | None = None,
                        length: Host | None = None, *, onesided: int = 1) -> Tensor:
    if length is not None:
        width = int(length.item())
    else:
        assert window is not None
        width = window.shape[0]
    real = x[..., 0] if x.ndim == 3 else x
    parts = [real] if x.ndim == 2 or x.shape[-1] == 1 else [real, x[..., 1]]
    frames = [each.unfold(1, width, int(step.item())) for each in parts]
    if window is not None:
        frames = [each * window for each in frames]
    whole = Tensor.stack(*frames, dim=-1)
    return transform(whole, None, np.array(2), onesided=onesided)


@operator("MelWeightMatrix")
def mel_weights(count: Host, length: Host, rate: Host, low: Host, high: Host, *,
                output_datatype: int = 1) -> Any:
    """Triangles on the scale of pitches that a listener hears as equally far apart."""
    bins, width, per_second = (int(each.item()) for each in (count, length, rate))
    ends = 2595 * np.log10(1 + np.array([low.item(), high.item()], np.float64) / 700)
    mel = ends[0] + np.arange(bins + 2) * (ends[1] - ends[0]) / (bins + 2)
    at = ((width + 1) * (700 * (10 ** (mel / 2595) - 1)) // per_second).astype(int)
    found = np.zeros((width // 2 + 1, bins))
    for each in range(bins):
        first, middle, last = at[each:each + 3]
        rising = np.arange(first, middle + 1)
        found[rising, each] = (rising - first) / (middle - first) if middle > first else 1
        falling = np.arange(middle, last)
        if last > middle:
            found[falling, each] = (last - falling) / (last - middle)
    return Tensor(found.astype(np.float32)).cast(dtype_of(output_datatype))


