"""tinygrad 0.14.0, CPU. One element leaves a mesh for a device of it and is laid on the mesh again;
used with another value there it is in a buffer that cannot be run on. With two elements it is
right. Found by the tier sharded.
"""
from tinygrad import Tensor

devices = ("CPU", "CPU:1")
x = Tensor([2.0]).realize().shard(devices)
expected, found = [6], None
try:
    found = ((x + 1).to("CPU").shard(devices) * x).tolist()
except AttributeError as error:
    print(error)
print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
