"""PyTensor 3.0.7. A number of Python that an expression is made with is that of its compiled
function for ever. The documentation has shared variables for what changes; no error says that
something has.

Upstream: the documentation of `pytensor.shared`.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

outside = {"k": 2.0}
x = pt.scalar("x", dtype="float64")
scaled = pytensor.function([x], x * outside["k"])
found = []
for k in (2.0, 3.0):
    outside["k"] = k
    found.append(float(scaled(np.float64(1))))
expected = [2.0, 3.0]

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
