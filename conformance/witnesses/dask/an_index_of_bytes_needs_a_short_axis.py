"""dask 2026.8.0. An index of uint8 into an axis of more than 255 elements is refused, whatever it
points at: the length of the axis is made a byte.
"""
import dask.array as da
import numpy as np

x = da.from_array(np.arange(300), chunks=100)
expected = "[200]"
try:
    found = str(x[np.array([200], np.uint8)].compute().tolist())
except OverflowError as error:
    found = f"OverflowError: {error}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
