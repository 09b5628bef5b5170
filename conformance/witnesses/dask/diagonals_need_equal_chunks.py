"""dask 2026.8.0. `einsum("ii->i")` is refused where the two axes are cut otherwise; `da.diagonal`
and NumPy give the diagonal.
"""
import dask.array as da
import numpy as np

x = da.from_array(np.arange(4).reshape(2, 2), chunks=(1, 2))
expected = "[0, 3]"
try:
    found = str(da.einsum("ii->i", x).compute().tolist())
except ValueError as error:
    found = f"ValueError: {str(error)[:60]}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
