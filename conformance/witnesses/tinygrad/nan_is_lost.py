"""tinygrad 0.14.0, CPU. `relu`, `max` and `maximum` lose NaN, depending on where it stands; `a +
nan` keeps it. tinygrad/tinygrad#862, pytorch/pytorch#93784, apache/tvm#19579.
"""
from tinygrad import Tensor

nan = float("nan")
values = [Tensor([nan, 1.0]).relu(), Tensor([1.0, nan, 3.0]).max(),
          Tensor([0.0, 0.0]).maximum(Tensor([nan, 1.0]))]
expected, found = "[nan, 1.0] nan [nan, 1.0]", " ".join(str(each.tolist()) for each in values)

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
