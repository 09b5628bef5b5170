"""tinygrad 0.14.0, CPU. A tensor two containers deep in an argument is that of the second call
for ever; no error says so. One container deep it is replaced (tinygrad/tinygrad#14043).
tinygrad/tinygrad#10850.
"""
from tinygrad import Tensor, TinyJit

negated = TinyJit(lambda given: (-given[0]["x"]).realize())
expected, found = [-1, -2, -3, -4], [
    negated([{"x": Tensor([k]).contiguous().realize()}]).item() for k in (1.0, 2.0, 3.0, 4.0)]

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
