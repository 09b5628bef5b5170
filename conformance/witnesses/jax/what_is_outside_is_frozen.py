"""jax 0.10.2, CPU. What a function under `jit` reads from outside is that of the first call for
ever: a number, a flag, an attribute. The documentation asks for functions that are pure; no error
says that one is not.
"""
import jax
import jax.numpy as jnp

outside = {"k": 2.0}
scaled = jax.jit(lambda x: x * outside["k"])
found = []
for k in (2.0, 2.0, 3.0, 3.0):
    outside["k"] = k
    found.append(float(scaled(jnp.ones(()))))
expected = [2.0, 2.0, 3.0, 3.0]

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
