"""MLX 0.32.4, CPU. `softmax` of halves rounds each of its steps to a half, so that weights are off
by more than their last place. `precise=True` is documented to compute in float32; it is not the
default.

Upstream: the argument `precise` of `mx.softmax`.
"""
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
x = np.linspace(-2, 1.3, 10).astype(np.float16)
weights = np.array(mx.softmax(mx.array(x)))
powers = np.exp(x.astype(np.float64) - x.max())
real = powers / powers.sum()
away = np.abs(weights - real) / np.spacing(real.astype(np.float16))
place = int(np.argmax(away))

print(f"expected {np.float16(real[place])}, found {weights[place]}: {away[place]:.1f} places away")
raise SystemExit(bool(away[place] <= 0.6))  # 0 while the library does this
