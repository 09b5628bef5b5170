"""JAX 0.10.2, CPU. In a compiled function a zero that is known and -0 add up to -0; outside of
one, and in NumPy, to 0.
"""
import jax
import jax.numpy as jnp

x = jnp.asarray([-0.0], jnp.float32)
expected, found = str((jnp.zeros(1) + x)[0]), str(jax.jit(lambda x: jnp.zeros(1) + x)(x)[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
