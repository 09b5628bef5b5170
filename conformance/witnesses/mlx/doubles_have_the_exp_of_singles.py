"""MLX 0.32.4, CPU. `exp` of float64 is that of float32, as `sin` and `cos` are: `exp(700)` is
infinite, and `exp(1.5)` has seven digits.

Upstream: ml-explore/mlx#4158 and ml-explore/mlx#3047.
"""
import math

import mlx.core as mx

mx.set_default_device(mx.cpu)
with mx.stream(mx.cpu):
    expected = math.exp(700.0)
    found = mx.exp(mx.array([700.0], mx.float64)).item()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
