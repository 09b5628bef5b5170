"""MLX 0.32.4, CPU. The variance of integers squares and adds them as 32 bits: of `2**30` and
`2**30 + 2` it is 4.6e18. NumPy computes with floats.
"""
import mlx.core as mx

mx.set_default_device(mx.cpu)
expected, found = 1.0, mx.var(mx.array([2**30, 2**30 + 2], mx.int32)).item()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
