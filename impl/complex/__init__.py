"""Complex numbers: pairs of real tensors, on every device, with gradients.

`Tensor([1 + 2j])`, `x.cast(dtypes.complex64)`, `x * 1j`, `fft.fft(x)` and `torch.complex(x, y)`
make a `Complex`. Graphs, schedules and kernels know real numbers alone.
"""
from __future__ import annotations

from impl.complex.conversion import beside, instead
from impl.complex.value import Complex

__all__ = ["Complex", "beside", "instead"]
