"""MLX 0.32.4, CPU. A Python integer from 2**63 on is refused with `std::bad_cast`, also where the
dtype is said to be uint64, which has it.

Upstream: ml-explore/mlx#4365.
"""
import mlx.core as mx

mx.set_default_device(mx.cpu)
expected = "18446744073709551615"
try:
    found = str(mx.full((1,), 2**64 - 1, mx.uint64).item())
except RuntimeError as error:
    found = f"RuntimeError: {error}"

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
