"""PyTorch with `torch.compile`, its default backend, on the CPU: needs a C++ compiler.

A captured function is a compiled one; it specialises on numbers and compiles again.  Outside of
repetitions a program is one function that is compiled as a whole, from one `realize` or `observe`
to the next: what is between them is what the compiler sees at once.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from conformance.adapters import torch_adapter
from conformance.adapters.library import CompilingAdapter, Function, Variables
from conformance.protocol import Statement

Tensors = Variables[torch.Tensor]


class Adapter(CompilingAdapter[torch.Tensor], torch_adapter.Adapter):
    """Drives torch.compile."""

    backend = "inductor"

    def __init__(self) -> None:
        super().__init__("torch.compile", observes=("values", "replay"))

    def reset(self) -> None:
        torch.compiler.reset()

    def captured(self, function: Function) -> Function:
        compiled: Callable[..., Any] = torch.compile(function, backend=self.backend)
        return compiled

    def together(self, statements: Sequence[Statement], variables: Tensors) -> None:
        """Each function is compiled once: nothing is found again."""
        if statements:
            torch.compiler.reset()
        super().together(statements, variables)
