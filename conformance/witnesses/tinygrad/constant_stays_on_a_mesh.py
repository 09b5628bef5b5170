"""tinygrad 0.14.0, CPU. What is known to be one constant on a mesh, as a product with zero, cannot
be brought to one device. Found by the tier sharded.
"""
from tinygrad import Tensor

x = Tensor([1, 2]).realize().shard(("CPU", "CPU:1"))
expected, found = [0, 0], None
try:
    found = (x * 0).to("CPU").tolist()
except AssertionError as error:
    print(error)
print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
