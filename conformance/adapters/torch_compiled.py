"""PyTorch with `torch.compile`, its default backend, on the CPU: needs a C++ compiler.

A captured function is a compiled one; it specialises on numbers and compiles again.  Outside of
repetitions a program is one function that is compiled as a whole, from one `realize` or `observe`
to the next: what is between them is what the compiler sees at once.  Nothing is left to be run as
it is (`fullgraph`).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from conformance.adapters import torch_adapter
from conformance.adapters.library import CompilingAdapter, Function


class Adapter(CompilingAdapter[torch.Tensor], torch_adapter.Adapter):
    """Drives torch.compile."""

    backend = "inductor"

    def __init__(self) -> None:
        super().__init__("torch.compile", observes=("values", "replay"))

    def reset(self) -> None:
        torch.compiler.reset()

    def captured(self, function: Function) -> Function:
        # Compiled code is found by the code of a function, of which all programs have one here:
        # without a reset torch would soon give up and run it as it is.
        torch.compiler.reset()
        compiled: Callable[..., Any] = torch.compile(function, backend=self.backend,
                                                     fullgraph=True)
        return compiled
