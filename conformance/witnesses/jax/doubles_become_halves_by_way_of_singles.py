"""JAX 0.10.2, CPU. A double becomes a half by way of a single, and is rounded twice: just above the
middle of two halves it becomes the middle first, and goes to the even one then.
"""
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
number = 1 + 2.0**-11 + 2.0**-40
expected = float(np.float16(number))
found = float(jnp.asarray([number], jnp.float64).astype(jnp.float16)[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
