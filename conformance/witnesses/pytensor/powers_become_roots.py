"""PyTensor 3.0.7. `x ** 0.5` is replaced by `sqrt(x)`. The power of minus infinity is infinity, its
root NaN; that of -0.0 is 0.0, its root -0.0.
"""
import math

import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x", dtype="float32")
power = pytensor.function([x], x ** np.float32(0.5))
numbers = np.array([-np.inf], np.float32)
expected, found = str([math.pow(-math.inf, 0.5)]), str(power(numbers).tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
