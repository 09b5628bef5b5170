"""tinygrad 0.14.0, CPU. A chain of operations on halves is not rounded after each of them, so
that its value depends on where kernels end.
"""
from tinygrad import Tensor, dtypes

big = Tensor([2048.0], dtype=dtypes.float16).realize()
one = Tensor([1.0], dtype=dtypes.float16).realize()
stepwise = (big + one).realize() - big
expected, found = stepwise.tolist(), ((big + one) - big).tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
