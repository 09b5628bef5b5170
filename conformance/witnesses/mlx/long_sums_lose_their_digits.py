"""MLX 0.32.4, CPU. A long sum of float32 is added one after the other: ten million times 0.1 are
1,087,937. NumPy and torch add in pairs or blocks, and have 1,000,000 with an error in the last
places.

Upstream: ml-explore/mlx#483, which is closed.
"""
import mlx.core as mx

mx.set_default_device(mx.cpu)
expected, found = 1e6, mx.sum(mx.full((10**7,), 0.1)).item()

print(f"expected {expected}, found {found}")
raise SystemExit(abs(found - expected) < 1000)  # 0 while the library does this
