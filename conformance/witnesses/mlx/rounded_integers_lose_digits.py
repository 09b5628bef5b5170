"""MLX 0.32.4, CPU. `round` of an integer with decimals goes by way of float32: 16777217 is
16777216 afterwards. NumPy leaves it as it is.
"""
import mlx.core as mx

mx.set_default_device(mx.cpu)
expected, found = 2**24 + 1, mx.round(mx.array([2**24 + 1]), 1).item()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
