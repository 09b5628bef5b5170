"""tinygrad 0.14.0, CPU. On two devices a tensor is assigned a clone of its reverse, and then
something else: the clone changes, too. On one device it stays. Found by the tier sharded.
"""
from tinygrad import Tensor

devices = ("CPU", "CPU:1")
x = Tensor([1, 2, 3]).realize().shard(devices)
reverse = x.flip(0).clone()
x.assign(reverse)
x.assign(Tensor.full((3,), 7).shard(devices))
Tensor.realize(x, reverse)
expected, found = [3, 2, 1], reverse.tolist()
print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
