"""PyTensor 3.0.7. In the default mode, integers that are fused do not wrap around in between: of
bytes, `maximum(x + y, x)` for 200 and 100 is 44, which is neither. Alone x + y is 44, and the
greater one is 200. What is fused is computed with 64 bits, and cut off at the end.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

x, y = pt.vector("x", dtype="uint8"), pt.vector("y", dtype="uint8")
greater = pytensor.function([x, y], pt.maximum(x + y, x))
numbers = np.array([200], np.uint8), np.array([100], np.uint8)
expected = str(np.maximum(numbers[0] + numbers[1], numbers[0]).tolist())
found = str(greater(*numbers).tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
