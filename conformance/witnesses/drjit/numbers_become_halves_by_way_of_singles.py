"""Dr.Jit 1.5.0, LLVM backend. A number of Python becomes a `Float16` by way of a single, and rounds
twice.
"""
import numpy as np
from drjit.llvm import Float16

number = 1 + 2.0**-11 + 2.0**-40
expected, found = float(np.float16(number)), float(Float16(number)[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
