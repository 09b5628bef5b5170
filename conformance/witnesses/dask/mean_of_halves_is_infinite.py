"""dask 2026.8.0. The mean of halves is their sum in halves, divided: 300 numbers of 300 have an
infinite mean. NumPy, which it runs on, adds in float32.
"""
import dask.array as da
import numpy as np

x = np.full(300, 300, np.float16)
expected, found = float(x.mean()), float(da.from_array(x, chunks=100).mean().compute())

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
