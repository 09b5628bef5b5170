"""Dr.Jit 1.5.0, LLVM backend. `dr.exp` of float32 is infinite from 88.38 on, that of float64 from
709.44 on: the largest results are lost.
"""
import drjit as dr
import numpy as np
from drjit.llvm import Float

expected = float(np.exp(np.float32(88.7)))
found = float(dr.exp(Float([88.7]))[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
