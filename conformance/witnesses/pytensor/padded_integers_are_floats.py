"""PyTensor 3.0.7. `pad` gives float64, of integers too, and integers beyond 2**53 lose digits.
NumPy, whose function it is, keeps the dtype.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x", dtype="int64")
padded = pytensor.function([x], pt.pad(x, [(1, 0)]))
numbers = np.array([2**53 + 1])
expected, found = int(np.pad(numbers, [(1, 0)])[1]), int(padded(numbers)[1])

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
