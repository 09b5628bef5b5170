"""tinygrad 0.14.0, CPU. After `a.assign(b)` and a realize of both, a write to b changes a. Found
by the fuzzer.
"""
from tinygrad import Tensor

a = Tensor([1.0, 2.0]).contiguous().realize()
b = a + a
a.assign(b)
b.realize()
b[:1].assign(Tensor([9.0]))
expected, found = [2, 4], a.tolist()
print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
