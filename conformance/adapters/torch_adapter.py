"""PyTorch, eager, on the CPU.

Movements are documented views, and `contiguous` may return its argument: hence the clones.  A
store writes through a view, which is how torch writes to a region; `flip` copies in torch, and a
region with one is written by index.  Of `uint16`, `uint32` and `uint64` torch documents limited
support; they are not declared, nor are `floordiv` and `mod`, whose division by zero raises.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from conformance.adapters.library import LibraryAdapter, slices
from conformance.protocol import Array, Statement

DTYPES = {name: getattr(torch, name) for name in (
    "bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")}
MOVEMENTS: dict[str, Callable[[Statement, torch.Tensor], torch.Tensor]] = {
    "reshape": lambda s, x: x.reshape(s["shape"]), "expand": lambda s, x: x.expand(s["shape"]),
    "permute": lambda s, x: x.permute(s["order"]),
    "pad": lambda s, x: torch.nn.functional.pad(
        x, [each for pair in reversed(s["widths"]) for each in pair]),
    "flip": lambda s, x: x.flip(s["axes"]), "shrink": lambda s, x: x[slices(s)],
    "stride": lambda s, x: x[slices(s)],
}


def _reduced(name: str, dtype: bool = False) -> Callable[[Statement, torch.Tensor], torch.Tensor]:
    """A reduction over several axes."""
    def reduce(s: Statement, x: torch.Tensor) -> torch.Tensor:
        if not s["axes"]:
            return x.clone()  # torch takes no axes to mean all of them
        wanted = {"dtype": x.dtype} if dtype else {}
        result: torch.Tensor = getattr(torch, name)(x, dim=tuple(s["axes"]),
                                                    keepdim=s["keepdims"], **wanted)
        return result
    return reduce


def _product(s: Statement, x: torch.Tensor) -> torch.Tensor:
    """`prod` takes one axis at a time."""
    for axis in sorted(s["axes"], reverse=True):
        x = torch.prod(x, axis, keepdim=s["keepdims"], dtype=x.dtype)
    return x.clone()


class Adapter(LibraryAdapter[torch.Tensor]):
    """Drives torch."""

    functions = {
        "neg": torch.neg, "abs": torch.abs, "relu": torch.relu, "not": torch.bitwise_not,
        "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "sin": torch.sin,
        "tanh": torch.tanh, "reciprocal": torch.reciprocal, "add": torch.add, "sub": torch.sub,
        "mul": torch.mul, "div": torch.div, "maximum": torch.maximum, "minimum": torch.minimum,
        "pow": torch.pow, "less": torch.lt, "less_equal": torch.le, "equal": torch.eq,
        "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
        "where": torch.where, "matmul": torch.matmul, "copy": torch.clone,
        "contiguous": lambda x: x.contiguous().clone(), "gather": lambda x, at: x[at.long()],
    }
    shaped = {
        **{name: lambda s, x: MOVEMENTS[s["do"]](s, x).clone() for name in MOVEMENTS},
        "sum": _reduced("sum", True), "mean": _reduced("mean"), "max": _reduced("amax"),
        "min": _reduced("amin"), "prod": _product,
        "cast": lambda s, x: x.to(DTYPES[s["dtype"]], copy=True),
        "bitcast": lambda s, x: x.view(DTYPES[s["dtype"]]).clone(),
        "softmax": lambda s, x: torch.softmax(x, s["axis"]),
        "cumsum": lambda s, x: torch.cumsum(x, s["axis"], dtype=x.dtype),
    }
    effects = (*LibraryAdapter.effects, "assign", "store")

    def __init__(self, name: str = "torch", **declared: Any) -> None:
        super().__init__(name, torch.__version__, dtypes=tuple(DTYPES), **declared)

    def array(self, elements: Array) -> torch.Tensor:
        return torch.from_numpy(elements)

    def full(self, dtype: str, shape: Sequence[int], value: Any) -> torch.Tensor:
        return torch.full(tuple(shape), value, dtype=DTYPES[dtype])

    def elements(self, tensor: torch.Tensor) -> Array:
        found: Array = tensor.contiguous().numpy()
        return found

    def held(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def write(self, target: torch.Tensor, view: Sequence[Statement],
              value: torch.Tensor) -> torch.Tensor:
        # No view is reversed in torch, and a reshape of what was moved is a copy: the elements of
        # such a region are written by number.
        numbered = any(step["do"] in ("flip", "reshape") for step in view)
        region = torch.arange(target.numel()).reshape(target.shape) if numbered else target
        for step in view:
            region = MOVEMENTS[step["do"]](step, region)
        if numbered:
            target.view(-1)[region.reshape(-1)] = value.reshape(-1).clone()  # perhaps of the target
        else:
            region.copy_(value.clone())
        return target
