"""tinygrad 0.14.0, CPU. (x + y) - y is simplified to x, which it is not for floats: the sum has
been rounded. The same program computed step by step gives zero.
"""
from tinygrad import Tensor

x, y = Tensor([1.0]).realize(), Tensor([1e8]).realize()
stepwise = (x + y).realize() - y
expected, found = stepwise.tolist(), ((x + y) - y).tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
