"""tinygrad 0.14.0, CPU. An expression that was written before an overwriting of its source, and
is computed after it, has the later value. tinygrad/tinygrad#17074, open.
"""
from tinygrad import Tensor

x = Tensor([1.0, 2.0, 3.0, 4.0]).contiguous().realize()
reader = x + 10
x[:2].assign(Tensor([9.0, 9.0]))
expected, found = [11, 12, 13, 14], reader.tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
