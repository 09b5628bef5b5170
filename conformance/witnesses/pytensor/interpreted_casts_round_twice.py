"""PyTensor 3.0.7. Without a compiler, in the mode FAST_COMPILE for example, an integer becomes a
float32 by way of a double, and is rounded twice: just above the middle of two it becomes the lower.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x", dtype="int64")
numbers = np.array([2**60 + 2**36 + 1])
cast = pytensor.function([x], pt.cast(x, "float32"), mode="FAST_COMPILE")
expected, found = float(numbers.astype(np.float32)[0]), float(cast(numbers)[0])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
