"""tinygrad 0.14.0, CPU. abs(-0.0) is -0.0; IEEE 754, NumPy and torch say 0.0.
"""
from tinygrad import Tensor

expected, found = "[0.0]", str(Tensor([-0.0]).realize().abs().tolist())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
