"""tinygrad 0.14.0, CPU. An expression is assigned to the tensor that it reads; asked for
afterwards it is computed once more, from what was assigned. Found by the fuzzer.
"""
from tinygrad import Tensor

x = Tensor([1.0, 2.0]).contiguous().realize()
double = x + x
x.assign(double).realize()
expected, found = [2, 4], double.tolist()
print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
