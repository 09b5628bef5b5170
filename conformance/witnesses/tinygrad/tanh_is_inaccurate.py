"""tinygrad 0.14.0, CPU. `tanh` of a small number is wrong in its fourth digit from the end: 2 *
sigmoid(2 * x) - 1 cancels. Not in its documentation.
"""
import math

from tinygrad import Tensor

value = Tensor([0.01]).tanh().item()
error = abs(value - math.tanh(0.01)) / math.tanh(0.01) * 2**24
expected, found = True, error < 8  # units in the last place

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
