"""NumPy 2.4: a cumulative sum of halves stops at 2048. Documented: the accumulator has the dtype
of the array unless another one is asked for. `sum` of the same array is exact.
"""
import numpy as np

ones = np.ones(3000, np.float16)
expected, found = float(ones.sum()), float(np.cumsum(ones)[-1])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
