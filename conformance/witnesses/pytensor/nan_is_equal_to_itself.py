"""PyTensor 3.0.7. `eq(x, x)` is replaced by True and `neq(x, x)` by False, so that NaN is equal to
itself, and the usual way to find it finds nothing. `x - x` and `x * 0` are replaced by 0 as well,
and `x / x` by 1.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x", dtype="float32")
unequal = pytensor.function([x], pt.neq(x, x))
numbers = np.array([1, np.nan], np.float32)
expected, found = str((numbers != numbers).tolist()), str(unequal(numbers).tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
