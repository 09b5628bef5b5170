"""JAX 0.10.2, CPU. An index of bytes into an axis of more than 127 elements is refused, whatever it
points at: the length of the axis is made a byte.
"""
import jax.numpy as jnp
import numpy as np

index = np.asarray([0, 127], np.int8)
expected = np.arange(300)[index].tolist()
try:
    found = str(jnp.arange(300)[jnp.asarray(index)].tolist())
except OverflowError as error:
    found = f"OverflowError: {error}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == str(expected))  # 0 while the library does this
