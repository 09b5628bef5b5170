"""Dr.Jit 1.5.0, LLVM backend. A sum of halves along an axis that is not the last one is kept in
halves: of 3000 ones it stops at 2048. Along the last axis it is 3000.
"""
import drjit as dr
import numpy as np
from drjit.llvm import TensorXf16

ones = TensorXf16(np.ones((3000, 2), np.float16))
expected, found = 3000.0, float(dr.sum(ones, axis=0).numpy()[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
