"""PyTensor 3.0.7. Constants that are equal are merged into one, and 0.0 is equal to -0.0: of two
results that are made of them both have the sign of one.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x", dtype="float32")
zeros = [np.array([zero], np.float32) for zero in (0.0, -0.0)]
quotients = pytensor.function([x], [x / pt.constant(zero) for zero in zeros])
found = str([float(each[0]) for each in quotients(np.ones(1, np.float32))])
expected = "[inf, -inf]"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
