"""tinygrad 0.14.0, CPU. `contiguous` of a tensor that is in memory is that memory, so it changes
with the tensor; `clone` is what makes a copy. torch does the same, and documents it; tinygrad
documents only that the result is contiguous.
"""
from tinygrad import Tensor

x = Tensor([1.0, 2.0]).realize()
kept = x.contiguous()
x.assign(Tensor([0.0, 0.0])).realize()
expected, found = [1, 2], kept.tolist()
print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
