"""numexpr 2.14.2. `min` and `max` of an array with a NaN ignore it; NumPy and arithmetic keep
it.
"""
import numexpr
import numpy as np

x = np.array([np.nan, 2, -1], np.float32)
expected, found = "nan nan", f"{numexpr.evaluate('min(x)')} {numexpr.evaluate('max(x)')}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
