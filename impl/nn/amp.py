"""Scaling of losses, for gradients in half precision, with the names of `torch.amp`."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from impl.errors import ArgumentError
from impl.nn.names import missing, publish
from impl.nn.optim import Optimizer, number_in_memory
from impl.tensor import Tensor

__all__ = ["GradScaler"]
publish("amp", __all__)


def __getattr__(name: str) -> NoReturn:
    raise missing(name, (), "nn.amp")  # r[impl errors.name.missing]


class GradScaler:
    """Multiplies a loss, so that small gradients in float16 are not 0, and divides them again.

    A step whose gradients are not finite is left out, and the scale made smaller. The scale is a
    number in memory: to change it compiles nothing anew.
    """

    def __init__(self, device: str = "", init_scale: float = 65536.0, growth_factor: float = 2.0,
                 backoff_factor: float = 0.5, growth_interval: int = 2000,
                 enabled: bool = True) -> None:
        """`device` is PyTorch's, and says nothing here."""
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval, self.enabled = growth_interval, enabled
        self._scale, self._growth_tracker = number_in_memory(init_scale), 0
        #: Whether the gradients of each optimiser whose gradients are divided are finite.
        self._finite: dict[int, bool] = {}

    def scale(self, outputs: Tensor) -> Tensor:
        """A loss times the scale."""
        return outputs * self._scale.cast(outputs.dtype) if self.enabled else outputs

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide an optimiser's gradients, for those who clip them before the step.

        Raises:
            ArgumentError: they are divided already.
        """
        if not self.enabled:
            return
        if id(optimizer) in self._finite:  # r[impl errors.argument.refused]
            raise ArgumentError("GradScaler.unscale_", "the gradients are divided already",
                                "call it once between two calls of update()")
        finite = [Tensor(True)]
        for parameter in optimizer.params:
            if parameter.grad is not None:
                wide = parameter.grad.float() / self._scale
                parameter.grad = wide.cast(parameter.grad.dtype)
                finite.append(wide.isfinite().all())
        self._finite[id(optimizer)] = bool(Tensor.stack(finite).all().item())

    def step(self, optimizer: Optimizer) -> None:
        """The step of an optimiser, if all its gradients are finite: they are computed."""
        if self.enabled and id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        if not self.enabled or self._finite[id(optimizer)]:
            optimizer.step()

    def update(self) -> None:
        """Make the scale smaller after a step that was left out, larger after many that were not.
        """
        if not self.enabled:
            return
        if not all(self._finite.values()):
            self._scale.assign(self._scale * self.backoff_factor)
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self.growth_interval:
                self._scale.assign(self._scale * self.growth_factor)
                self._growth_tracker = 0
        self._scale.realize()
        self._finite.clear()

    def get_scale(self) -> float:
        """The scale."""
        return float(self._scale.item()) if self.enabled else 1.0

    def state_dict(self) -> dict[str, Any]:
        """The scale and how it changes, under PyTorch's names."""
        return {"scale": self.get_scale(), "growth_factor": self.growth_factor,
                "backoff_factor": self.backoff_factor, "growth_interval": self.growth_interval,
                "_growth_tracker": self._growth_tracker} if self.enabled else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where a scaler was."""
        for name, value in state_dict.items():
            if name != "scale":
                setattr(self, name, value)
        if state_dict:
            self._scale.assign(float(state_dict["scale"])).realize()
