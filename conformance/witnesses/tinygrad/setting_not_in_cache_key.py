"""tinygrad 0.14.0, CPU. The schedule of a sum is looked up without regard to SPLIT_REDUCEOP,
which decides into how many kernels it is cut: the second schedule is that of the other setting.
tinygrad/tinygrad#15057.
"""
from tinygrad import Context, Tensor


def kernels(setting: int) -> int:
    with Context(SPLIT_REDUCEOP=setting):
        return len(Tensor.empty(256, 256).sum().schedule_linear().src)


expected, found = [2, 1], [kernels(1), kernels(0)]

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
