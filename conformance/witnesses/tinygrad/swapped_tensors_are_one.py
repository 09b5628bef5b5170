"""tinygrad 0.14.0, CPU. Two tensors change places by way of a clone, and are one tensor after
it. Found by the fuzzer.
"""
from tinygrad import Tensor, dtypes

a = Tensor([1, 2], dtype=dtypes.int8).realize().cast(dtypes.int32)
b = Tensor([8, 9]).contiguous().realize()
kept = a.clone()
a.assign(b)
b.assign(kept)
Tensor.realize(a, b)
expected, found = "[8, 9] [1, 2]", f"{a.tolist()} {b.tolist()}"
print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
