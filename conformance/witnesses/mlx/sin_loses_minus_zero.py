"""MLX 0.32.4, CPU. `sin(-0.0)` is 0.0; IEEE 754 and C ask for -0.0, which `tan`, `tanh` and
`arctan` of MLX give.
"""
import mlx.core as mx
import numpy as np

mx.set_default_device(mx.cpu)
expected = str(np.sin(np.float32(-0.0)))
found = str(mx.sin(mx.array([-0.0])).item())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
