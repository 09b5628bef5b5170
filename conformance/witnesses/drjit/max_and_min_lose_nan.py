"""Dr.Jit 1.5.0, LLVM backend. `dr.max` and `dr.min` of numbers with a NaN are those of the others,
where `dr.maximum` and `dr.minimum` are documented to keep it, and do.
"""
import math

import drjit as dr
from drjit.llvm import Float

x = Float([1.0, math.nan, 3.0])
expected, found = "nan", str(dr.max(x)[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
