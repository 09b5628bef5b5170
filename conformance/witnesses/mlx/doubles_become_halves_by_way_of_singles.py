"""MLX 0.32.4, CPU. A double becomes a half by way of a single, and is rounded twice: just above
the middle of two halves it becomes the middle first, and goes to the even one then.
"""
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
number = 1 + 2.0**-11 + 2.0**-40
expected = float(np.float16(number))
found = mx.array([number], mx.float64).astype(mx.float16).item()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
