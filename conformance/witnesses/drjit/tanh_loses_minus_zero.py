"""Dr.Jit 1.5.0, LLVM backend. `dr.tanh(-0.0)` is 0.0; IEEE 754 and C ask for -0.0, which `dr.sin`
gives.
"""
import drjit as dr
import numpy as np
from drjit.llvm import Float

expected = str(np.tanh(np.float32(-0.0)))
found = str(dr.tanh(Float([-0.0])).numpy()[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
