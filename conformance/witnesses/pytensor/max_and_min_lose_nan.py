"""PyTensor 3.0.7. `max` and `min` of numbers with a NaN are those of the others, in the default
mode; `argmax` points at the NaN, as NumPy's does.

Upstream: pymc-devs/pytensor#2272, which was to mend it.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x", dtype="float32")
greatest = pytensor.function([x], pt.max(x))
numbers = np.array([1, np.nan, 3], np.float32)
expected, found = str(numbers.max()), str(np.float32(greatest(numbers)))

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
