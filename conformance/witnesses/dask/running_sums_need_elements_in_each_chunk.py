"""dask 2026.8.0. `cumsum` with an empty chunk before the last one is refused; with
`method="blelloch"` it is right. Empty chunks come from boolean indices.
"""
import dask.array as da
import numpy as np

x = da.from_array(np.arange(4), chunks=((0, 2, 0, 2),))
expected = str(np.cumsum(np.arange(4)).tolist())
try:
    found = str(da.cumsum(x, axis=0).compute().tolist())
except ValueError as error:
    found = f"ValueError: {error}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
