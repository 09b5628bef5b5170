"""tinygrad 0.14.0, CPU. Two halves change places by way of clones; one of them is lost. A clone
has "a separate buffer for the data", but is not made before the write. tinygrad/tinygrad#15093
shows it with `contiguous`.
"""
from tinygrad import Tensor

x = Tensor([1.0, 2.0, 3.0, 4.0]).contiguous().realize()
left, right = x[:2].clone(), x[2:].clone()
x[:2].assign(right)
x[2:].assign(left)
expected, found = [3, 4, 1, 2], x.tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
