"""Dr.Jit 1.5.0, LLVM backend. `dr.transpose` and `dr.take` of a tensor without elements are
refused, and so is `dr.cumsum`.
"""
import drjit as dr
import numpy as np
from drjit.llvm import TensorXf

expected = "(2, 0)"
try:
    found = str(dr.transpose(TensorXf(np.ones((0, 2), np.float32)), (1, 0)).shape)
except RuntimeError as error:
    found = f"RuntimeError: {str(error).partition('): ')[2]}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
