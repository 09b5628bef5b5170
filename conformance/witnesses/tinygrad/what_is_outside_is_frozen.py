"""tinygrad 0.14.0, CPU. What a captured function reads from outside is that of the second call for
ever: a number, a flag, an attribute. No error says so.
"""
from tinygrad import Tensor, TinyJit

outside = {"k": 2.0}
scaled = TinyJit(lambda x: (x * outside["k"]).realize())
found = []
for k in (2.0, 2.0, 3.0, 3.0):
    outside["k"] = k
    found.append(scaled(Tensor([1.0]).contiguous().realize()).item())
expected = [2.0, 2.0, 3.0, 3.0]

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
