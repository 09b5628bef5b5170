"""MLX 0.32.4, CPU. `arange` of floats adds the step again and again: the last of the numbers from
0 to a million, in steps of 0.1, is 1,087,936.9, beyond the stop. NumPy and JAX multiply.
"""
import mlx.core as mx

mx.set_default_device(mx.cpu)
found = mx.arange(0.0, 1e6, 0.1)[-1].item()
expected = "999999.9, below the stop"

print(f"expected {expected}, found {found}")
raise SystemExit(found < 1e6)  # 0 while the library does this
