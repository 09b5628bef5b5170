"""tinygrad 0.14.0, CPU. Two columns of a tensor that two devices have whole are given values that
are cut between these devices: the write is refused. On one device it is done. Found by the tier
sharded.
"""
from tinygrad import Tensor

devices = ("CPU", "CPU:1")
x = Tensor.zeros(2, 3).contiguous().shard(devices).realize()
expected, found = [[0, 0, 1], [0, 2, 3]], None
try:
    x[:, 1:].assign(Tensor([[0.0, 1.0], [2.0, 3.0]]).shard(devices, axis=0))
    found = x.tolist()
except RuntimeError as error:
    print(error)
print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
