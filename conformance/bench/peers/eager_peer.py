"""PyTorch without its compiler: each operation is a call of its library, one after the other."""
from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from conformance.bench.peers.torch_peer import Tensors, TorchPeer
from conformance.bench.workloads import RATE, Workload


def make() -> EagerPeer:
    """The adapter."""
    return EagerPeer(import_module("torch"))


class EagerPeer(TorchPeer):
    """It makes no schedules: `run` measures it, and `schedule` does not."""

    def fresh(self, function: Callable[..., Any]) -> Any:
        """There is nothing to compile."""
        return function

    def function(self, workload: Workload) -> Callable[[Tensors], list[Any]]:
        """A step with the gradients that the library records while it computes."""
        if not workload.parameters:
            return super().function(workload)

        def step(p: Tensors) -> list[Any]:
            with self.torch.enable_grad():
                changed = [p[name].detach().requires_grad_() for name in workload.parameters]
                value = workload.compute(
                    {**p, **dict(zip(workload.parameters, changed, strict=True))}, self.words)
                gradients = self.torch.autograd.grad(value, changed)
            with self.torch.no_grad():
                return [value.detach(), *(before - RATE * gradient for before, gradient
                                          in zip(changed, gradients, strict=True))]
        return step
