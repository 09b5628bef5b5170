"""PyTorch with `torch.compile`, its default backend, on the CPU: needs a C++ compiler.

A captured function is a compiled one; it specialises on numbers and compiles again.  Outside of
repetitions a program is one function that is compiled as a whole, from one `realize` or `observe`
to the next: what is between them is what the compiler sees at once.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from conformance import protocol
from conformance.adapters import torch_adapter
from conformance.adapters.library import Function, Variables
from conformance.protocol import Statement

Tensors = Variables[torch.Tensor]
BOUNDARIES = ("realize", "observe", "drop", "input", *protocol.REPETITIONS)


class Adapter(torch_adapter.Adapter):
    """Drives torch.compile."""

    backend = "inductor"

    def __init__(self) -> None:
        super().__init__("torch.compile", observes=("values", "replay"))

    def reset(self) -> None:
        torch.compiler.reset()

    def captured(self, function: Function) -> Function:
        compiled: Callable[..., Any] = torch.compile(function, backend=self.backend)
        return compiled

    def execute(self, statements: Sequence[Statement], variables: Tensors) -> None:
        waiting: list[Statement] = []
        for statement in statements:
            if statement["do"] in BOUNDARIES:
                self.together(waiting, variables)
                waiting = []
                super().execute([statement], variables)
            else:
                waiting.append(statement)
        self.together(waiting, variables)

    def together(self, statements: Sequence[Statement], variables: Tensors) -> None:
        """Compile these statements as one function of the variables, and call it."""
        if not statements:
            return
        torch.compiler.reset()  # a program is compiled once: nothing is found again

        def function(given: Tensors) -> Tensors:
            known = dict(given)
            for statement in statements:
                self.perform(statement, known)
            return known

        variables.update(self.captured(function)(variables))
