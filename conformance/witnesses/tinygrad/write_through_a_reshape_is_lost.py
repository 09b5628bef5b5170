"""tinygrad 0.14.0, CPU. An assign to `x[0:3]` writes to `x`. An assign to `x.reshape(1, 3)` does
not, and nothing says so.
"""
from tinygrad import Tensor

x = Tensor([1.0, 2.0, 3.0]).contiguous().realize()
x.reshape(1, 3).assign(Tensor([[9.0, 9.0, 9.0]]))
expected, found = [9, 9, 9], x.tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
