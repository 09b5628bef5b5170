"""torch.compile 2.13.0, CPU. A chain of operations on halves is computed in float32 and rounded at
its end, so that its value is another one than that of the same function without compilation.
`torch._inductor.config.emulate_precision_casts = True` rounds after each of them; it is off unless
somebody sets it.
"""
import torch


def chain(big: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    return (big + one) - big


big, one = torch.tensor([2048.0]).half(), torch.tensor([1.0]).half()
expected, found = chain(big, one).tolist(), torch.compile(chain)(big, one).tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
