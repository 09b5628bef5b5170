"""MLX 0.32.4, CPU. The mean of halves is their sum in halves, divided: 300 numbers of 300 have an
infinite mean. NumPy and torch add in float32.

Upstream: ml-explore/mlx#3909, and ml-explore/mlx#4387, which is merged.
"""
import mlx.core as mx

mx.set_default_device(mx.cpu)
expected, found = 300.0, mx.mean(mx.full((300,), 300.0, mx.float16)).item()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
