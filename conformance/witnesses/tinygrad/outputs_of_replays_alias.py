"""tinygrad 0.14.0, CPU. Every replay answers with the same tensor: a result that is held changes
with the next call. tinygrad/tinygrad#7020. The repository's tests have it among the footguns of
the JIT; no error says so.
"""
from tinygrad import Tensor, TinyJit

double = TinyJit(lambda x: (x * 2).realize())
held = [double(Tensor([float(i)]).contiguous().realize()) for i in range(5)]
expected, found = [0, 2, 4, 6, 8], [each.item() for each in held]

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
