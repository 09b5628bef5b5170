"""Means of a model's weights while it learns, with the names of `torch.optim.swa_utils`."""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from impl.nn.module import Module
from impl.nn.names import publish
from impl.nn.state import get_state_dict, laid_as
from impl.tensor import Tensor

__all__ = ["AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn"]
publish("swa_utils", __all__)

#: From the mean, the model's value, and how many have been taken in, to the next mean.
Mean = Callable[[Tensor, Tensor, Tensor], Tensor]


def get_ema_avg_fn(decay: float = 0.999) -> Mean:
    """The exponential moving average: `decay` of the mean, and the rest of the new value."""
    def averaged(mean: Tensor, value: Tensor, count: Tensor) -> Tensor:
        return mean * decay + value * (1 - decay)
    return averaged


def get_ema_multi_avg_fn(decay: float = 0.999) -> Mean:
    """PyTorch's other name for it: here each tensor is changed by itself, in one schedule."""
    return get_ema_avg_fn(decay)


def _equal_parts(mean: Tensor, value: Tensor, count: Tensor) -> Tensor:
    return mean + (value - mean) / (count + 1)


class AveragedModel(Module):
    """A copy of a model whose parameters are the mean of what the model's have been.

    `update_parameters(model)` takes in one more; the first is copied. What is no parameter is
    copied each time, or taken in, too, with `use_buffers`. It is saved with the number of updates.
    """

    n_averaged: Tensor

    def __init__(self, model: Any, device: str | None = None, avg_fn: Mean | None = None,
                 multi_avg_fn: Mean | None = None, use_buffers: bool = False) -> None:
        self.module = copy.deepcopy(model)
        for tensor in get_state_dict(self.module).values():
            tensor.requires_grad_(False)
            if device is not None:
                tensor.replace(tensor.to(device))
        self.register_buffer("n_averaged", Tensor.zeros((), dtype="int64").contiguous())
        self.mean = avg_fn or multi_avg_fn or _equal_parts
        self.use_buffers = use_buffers

    def forward(self, *given: Any, **named: Any) -> Any:
        """What the copy returns."""
        return self.module(*given, **named)

    def update_parameters(self, model: Any) -> None:
        """Take in the model's weights as they are now."""
        first = self.n_averaged == 0
        changed = [self.n_averaged]
        learned = {id(one) for one in self._learned(model)}
        mine = get_state_dict(self.module)
        for name, given in get_state_dict(model).items():
            mean, value = mine[name], laid_as(given.detach(), mine[name])
            if mean.is_floating_point() and (self.use_buffers or id(given) in learned):
                value = first.where(value, self.mean(mean, value, self.n_averaged).cast(mean.dtype))
            changed.append(mean.assign(value))
        self.n_averaged.assign(self.n_averaged + 1)
        Tensor.realize(*changed)

    def _learned(self, model: Any) -> Iterator[Tensor]:
        if isinstance(model, Module):
            return model.parameters()
        return iter(get_state_dict(model).values())
