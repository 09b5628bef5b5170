"""Dr.Jit 1.5.0, LLVM backend. A double becomes a half by way of a single, and rounds twice: just
above the middle of two halves it becomes the middle first, and goes to the even one then.
"""
import numpy as np
from drjit.llvm import Float16, Float64

number = 1 + 2.0**-11 + 2.0**-40
expected, found = float(np.float16(number)), float(Float16(Float64([number]))[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
