"""MLX 0.32.4, CPU. `exp` of float32 multiplies by the logarithm of e in float32 first, so that the
error grows with the number: at 88 it is 15 units in the last place. NumPy and torch are within one.

Upstream: ml-explore/mlx#1341, which is closed.
"""
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
expected = float(np.exp(np.float64(88.0)))
found = mx.exp(mx.array([88.0])).item()

print(f"expected {expected}, found {found}")
raise SystemExit(abs(found / expected - 1) < 8 * 2.0**-24)  # 0 while the library does this
