"""Dr.Jit 1.5.0, LLVM backend. NaN != 0 is False, and a NaN that becomes a `Bool` is False with it.
IEEE 754 says that NaN is unequal to every number; C, NumPy and Python do.
"""
import math

from drjit.llvm import Float

x = Float([math.nan, 1.0])
expected, found = math.nan != 0, bool((x != 0)[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
