"""Dr.Jit 1.5.0, LLVM backend. `dr.log` and `dr.log2` of a subnormal number are finite and wrong: of
1e-40 -88.02, where -92.10 is right; the mantissa is read as if it were that of a normal number.
"""
import drjit as dr
import numpy as np
from drjit.llvm import Float

expected = f"{np.log(np.float32(1e-40)):.2f}"
found = f"{dr.log(Float([1e-40]))[0]:.2f}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
