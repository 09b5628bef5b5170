"""torch 2.13.0, CPU. The square root of a float64 is off by a unit in the last place for some
numbers, such as 2 and one half. IEEE 754 has it rounded correctly, as Python's is.
"""
import math

import torch

expected, found = math.sqrt(2), torch.tensor([2.0], dtype=torch.float64).sqrt().item()

print(f"expected {expected!r}, found {found!r}")
raise SystemExit(found == expected)  # 0 while the library does this
