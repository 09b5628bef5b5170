"""Dr.Jit 1.5.0, LLVM backend. Reductions of a tensor without elements that have a result with
elements are refused: the sum over nothing is 0, and the product 1.
"""
import drjit as dr
import numpy as np
from drjit.llvm import TensorXf

expected = "[1, 1]"
try:
    found = str(dr.prod(TensorXf(np.ones((2, 0), np.float32)), axis=1))
except RuntimeError as error:
    found = f"RuntimeError: {str(error.__cause__).partition('): ')[2]}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
