"""MLX 0.32.4, CPU. `exp` of float32 is infinite from 88.38 on: the largest results, up to 3.4e38,
are lost, and with them those of `expm1`, `sinh` and `cosh` written by `exp`.

Upstream: a remark in pymc-devs/pytensor#2332.
"""
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
expected = float(np.exp(np.float32(88.7)))
found = mx.exp(mx.array([88.7])).item()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
