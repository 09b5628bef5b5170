"""tinygrad 0.14.0, CPU. A captured function assigns to a tensor that it does not return: the
replays do not assign. tinygrad/tinygrad#16618, open. The repository's notes for contributors say
so, and ask for a `realize`; no error does.
"""
from tinygrad import Tensor, TinyJit

state = Tensor([1.0]).contiguous().realize()


@TinyJit
def step(x: Tensor) -> Tensor:
    state.assign(state + x)
    return (x * 2).realize()


for _ in range(5):
    step(Tensor([1.0]).contiguous().realize())
expected, found = [6], state.tolist()

print(f"expected {expected}, found {found}")
raise SystemExit(found == expected)  # 0 while the library does this
