"""Dr.Jit 1.5.0, LLVM backend. Reductions and running sums of tensors of 8 bits are refused with the
words that the data type is not supported; the documentation names no limit.
"""
import drjit as dr
import numpy as np
from drjit.llvm import TensorXi8

expected = "[3, 3]"
try:
    found = str(dr.sum(TensorXi8(np.ones((2, 3), np.int8)), axis=1))
except RuntimeError as error:
    found = f"RuntimeError: {str(error.__cause__).rpartition('): ')[2]}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
