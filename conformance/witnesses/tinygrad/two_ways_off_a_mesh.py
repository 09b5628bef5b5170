"""tinygrad 0.14.0, CPU. A matrix on two devices and something computed of it there are both brought
to one device and used together: the kernel is refused. Found by the tier sharded.
"""
from tinygrad import Tensor

devices = ("CPU", "CPU:1")
x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize().shard(devices)
expected, found = [[3, 6], [9, 12]], None
try:
    found = (x.to("CPU") + (x * 2).to("CPU")).tolist()
except RuntimeError as error:
    print(error)
print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
