"""torch 2.13.0, CPU. A Python number that fills a tensor of float16 is rounded to float32 first:
just above the middle of two halves it becomes the lower one.
"""
import numpy as np
import torch

number = 1 + 2.0**-11 + 2.0**-45
expected, found = float(np.float16(number)), torch.full((1,), number, dtype=torch.float16).item()

print(f"expected {expected!r}, found {found!r}")
raise SystemExit(found == expected)  # 0 while the library does this
