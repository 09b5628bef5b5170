"""numexpr 2.14.2. `max` and `min` of 64-bit integers are wrong.
"""
import numexpr
import numpy as np

x = np.array([-(2**63), 5, 2**63 - 1], np.int64)
expected, found = [2**63 - 1, -(2**63)], [
    int(numexpr.evaluate(each)) for each in ("max(x)", "min(x)")]

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
