"""dask 2026.8.0. `argmax` with an empty chunk is refused, where `max` is right."""
import dask.array as da
import numpy as np

x = da.from_array(np.arange(4), chunks=((0, 2, 0, 2),))
expected = "3"
try:
    found = str(int(x.argmax().compute()))
except ValueError as error:
    found = f"ValueError: {error}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
