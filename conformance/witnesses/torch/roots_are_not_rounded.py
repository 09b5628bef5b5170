"""torch 2.13.0, CPU. The square root of a float32 is off by a unit in the last place for some
numbers. IEEE 754 has it rounded correctly, as NumPy and the processor's instruction do.
"""
import numpy as np
import torch

numbers = np.random.default_rng(0).random(64, np.float32)
expected, found = np.sqrt(numbers).tolist(), torch.from_numpy(numbers).sqrt().tolist()
first = next((i for i in range(64) if found[i] != expected[i]), 0)

print(f"expected {expected[first]}, found {found[first]}")
raise SystemExit(found == expected)  # 0 while the library does this
