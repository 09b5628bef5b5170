"""JAX 0.10.2, CPU. In a compiled function, a division by a number that is known is a product with
its reciprocal, which rounds twice.
"""
import jax
import jax.numpy as jnp
import numpy as np

x = np.asarray([-8.028369], np.float32)
expected = (x / np.float32(3)).tolist()
found = jax.jit(lambda x: x / jnp.full(1, 3, jnp.float32))(x).tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
