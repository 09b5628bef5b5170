"""MLX 0.32.4, CPU. A running sum of halves is kept in halves: of 5000 ones it stops at 2048. On
the GPU it is 5000.

Upstream: ml-explore/mlx#3907.
"""
import mlx.core as mx

mx.set_default_device(mx.cpu)
expected, found = 5000.0, mx.cumsum(mx.ones((5000,), mx.float16))[-1].item()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
