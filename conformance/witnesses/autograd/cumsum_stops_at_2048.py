"""autograd 1.9.1 with NumPy 2.4: a cumulative sum of halves stops at 2048. NumPy's way out, an
accumulator of another dtype, is a TypeError in a trace: its derivative takes no `dtype`.
"""
import autograd.numpy as np
from autograd import make_vjp

ones = np.ones(3000, np.float16)
expected, found = 3000.0, float(make_vjp(np.cumsum)(ones)[1][-1])
try:
    make_vjp(lambda x: np.cumsum(x, dtype=np.float32))(ones)
except TypeError as error:
    print(f"expected {expected}, found {found}; and with a dtype: {error}")
raise SystemExit(found == expected)  # 0 while the library does this
