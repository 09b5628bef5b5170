"""MLX 0.32.4, CPU. `erf` of float32 loses small numbers: at 1e-5 two digits are right, and at 1e-7
it is 0, where it is 1.128 times the number.
"""
import mlx.core as mx

mx.set_default_device(mx.cpu)
expected, found = 1.1283791670955126e-07, mx.erf(mx.array([1e-7])).item()

print(f"expected {expected}, found {found}")
raise SystemExit(abs(found / expected - 1) < 1e-3)  # 0 while the library does this
