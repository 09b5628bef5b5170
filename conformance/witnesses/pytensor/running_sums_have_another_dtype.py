"""PyTensor 3.0.7. `cumsum` of small integers says that it has their dtype, and gives int64: the
values are too large for what the graph goes on with, and a cast to that dtype is left out.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x", dtype="int8")
sums = pt.cast(pt.cumsum(x, 0), "int8")
result = pytensor.function([x], sums)(np.array([100, 100], np.int8))
expected = f"{np.cumsum(np.array([100, 100]), dtype=np.int8).tolist()} of int8"
found = f"{result.tolist()} of {result.dtype}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
