"""tinygrad 0.14.0, CPU. A quotient in a kernel that also needs the reciprocal of its divisor
becomes a product with that reciprocal, and is rounded twice.
"""
from tinygrad import Tensor

a, b = Tensor([9.0]).realize(), Tensor([7.0]).realize()
alone = (a / b).realize().tolist()
together, reciprocal = a / b, b.reciprocal()
Tensor.realize(together, reciprocal)
expected, found = alone, together.tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
