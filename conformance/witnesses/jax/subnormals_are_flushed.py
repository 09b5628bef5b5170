"""JAX 0.10.2, CPU: subnormal numbers become zero; NumPy and torch compute with them. XLA does
not say so in its documentation of types. The rule is a SHOULD.
"""
import jax.numpy as jnp

x = jnp.asarray([2.0**-130], jnp.float32)
expected, found = [2.0**-129], (x + x).tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
