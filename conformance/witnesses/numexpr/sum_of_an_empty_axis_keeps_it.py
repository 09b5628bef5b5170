"""numexpr 2.14.2. A sum over an axis without elements has the shape of its argument, and is
empty.
"""
import numexpr
import numpy as np

x = np.zeros((2, 0), np.float32)
expected, found = (2,), numexpr.evaluate("sum(x, axis=1)").shape

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
