"""torch 2.13.0, CPU. A float64 becomes a float16 by way of float32, and is rounded twice: just
above the middle of two halves it becomes the middle first, and goes to the even one then.
"""
import numpy as np
import torch

number = 1 + 2.0**-11 + 2.0**-40
expected = float(np.float16(number))
found = torch.tensor([number], dtype=torch.float64).half().item()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
