"""MLX 0.32.4, CPU. The mean of integers is their sum in 32 bits, divided: where the sum does not
fit, the mean is none of them. NumPy, torch and JAX add floats. The documentation says nothing of a
limit.
"""
import mlx.core as mx

mx.set_default_device(mx.cpu)
numbers = [2**31 - 1, 2**31 - 1]
expected, found = 2.0**31, mx.mean(mx.array(numbers, mx.int32)).item()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
