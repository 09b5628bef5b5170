"""PyTensor 3.0.7. `(x + y) - y` is replaced by x, though floats round in between: the sum of 1 and
16777216 is 16777216.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

x, y = pt.vector("x", dtype="float32"), pt.vector("y", dtype="float32")
difference = pytensor.function([x, y], (x + y) - y)
numbers = np.array([1], np.float32), np.array([2**24], np.float32)
expected = str((numbers[0] + numbers[1] - numbers[1]).tolist())
found = str(difference(*numbers).tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
