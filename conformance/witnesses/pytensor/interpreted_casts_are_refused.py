"""PyTensor 3.0.7. Without a compiler, in the mode FAST_COMPILE for example, a cast of an integer
that the new dtype has not is an error; compiled, its low bits are kept, as NumPy keeps them.
"""
import numpy as np
import pytensor
import pytensor.tensor as pt

x = pt.vector("x", dtype="int8")
numbers = np.array([-1], np.int8)
expected = str(numbers.astype(np.uint16).tolist())
try:
    cast = pytensor.function([x], pt.cast(x, "uint16"), mode="FAST_COMPILE")
    found = str(cast(numbers).tolist())
except OverflowError as error:
    found = f"OverflowError: {str(error).splitlines()[0]}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
