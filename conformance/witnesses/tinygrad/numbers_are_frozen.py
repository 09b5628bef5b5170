"""tinygrad 0.14.0, CPU. A number among the arguments of a captured function is that of the
second call for ever; no error says so. tinygrad/tinygrad#10956, closed. The repository's tests
have it among the footguns of the JIT.
"""
from tinygrad import Tensor, TinyJit

scaled = TinyJit(lambda x, k: (x * k).realize())
expected, found = [2, 3, 4, 5], [
    scaled(Tensor([1.0]).contiguous().realize(), k).item() for k in (2, 3, 4, 5)]

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
