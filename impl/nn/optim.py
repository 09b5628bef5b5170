"""Optimisers: they turn gradients into new values of the parameters.

`step()` computes the new values; `schedule_step()` only writes them down, and returns the tensors
to realize, so that a step can share a schedule with the loss.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from impl.dtypes import DType, sum_accumulator
from impl.errors import DTypeError
from impl.nn.names import missing, publish
from impl.tensor import Tensor
from impl.tensor.names import made

__all__ = ["Adam", "AdamW", "LAMB", "Optimizer", "SGD"]
publish("optim", __all__)


def __getattr__(name: str) -> NoReturn:
    raise missing(name, (), "nn.optim")  # r[impl errors.name.missing]


def _number(value: float) -> Tensor:
    """One number with memory of its own: changing it compiles nothing anew."""
    return Tensor.empty(()).assign(value)


def _beside(number: Tensor, parameter: Tensor) -> Tensor:
    """A number that all parameters share, where one of them is."""
    return number if number.device == parameter.device else number.to(parameter.device)


def _wide(dtype: DType) -> DType:
    """The dtype of an optimiser's state: float32 for half-width parameters."""
    return sum_accumulator(dtype)


def _memory(parameter: Tensor) -> Tensor:
    """Zeros for a parameter's state."""
    return parameter.empty_like(_wide(parameter.dtype)).assign(0)


class Optimizer:
    """What all optimisers share. Subclasses say how one parameter changes."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        made(cls)

    def __init__(self, params: Sequence[Tensor], lr: float) -> None:
        if isinstance(params, Tensor) or not isinstance(params, Iterable):
            raise DTypeError("optim", f"{type(params).__name__} is no list of tensors",
                             "give nn.state.get_parameters(model)")
        wanted = [p for p in params if p.requires_grad]
        if not wanted:
            raise DTypeError("optim", "no parameter requires a gradient",
                             "set requires_grad = True on the tensors to be changed")
        self.params = list({id(p): p for p in wanted}.values())
        self.lr = _number(lr)

    def begin(self, state: Sequence[Tensor]) -> None:
        """Put parameters and state into memory, so that the first step has the plan of all."""
        Tensor.realize(*self.params, self.lr, *state)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.params:
            parameter.grad = None

    def step(self) -> None:
        """Change the parameters, in memory."""
        Tensor.realize(*self.schedule_step())

    def schedule_step(self) -> list[Tensor]:
        """Give the parameters their new values, and return all tensors that changed."""
        changed = self.before_step()
        for place, parameter in enumerate(self.params):
            if parameter.grad is not None:
                gradient = parameter.grad.detach().cast(_wide(parameter.dtype))
                changed += self.change(place, parameter, gradient)
        return [*self.params, *changed]

    def before_step(self) -> list[Tensor]:
        """Change what the parameters share; return what changed."""
        return []

    def change(self, place: int, parameter: Tensor, gradient: Tensor) -> list[Tensor]:
        """Change one parameter; return what else changed."""
        raise NotImplementedError

    def move(self, parameter: Tensor, update: Tensor) -> None:
        """Subtract lr * update."""
        value = parameter.detach()
        change = _beside(self.lr, parameter) * update
        parameter.assign((value - change).cast(parameter.dtype))


class SGD(Optimizer):
    """Gradient descent with momentum, as PyTorch defines it."""

    def __init__(self, params: Sequence[Tensor], lr: float = 0.001, momentum: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False) -> None:
        super().__init__(params, lr)
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
        self.velocity = [_memory(p) for p in self.params] if momentum else []
        self.begin(self.velocity)

    def change(self, place: int, parameter: Tensor, gradient: Tensor) -> list[Tensor]:
        if self.weight_decay:
            gradient = gradient + parameter.detach() * self.weight_decay
        if not self.momentum:
            self.move(parameter, gradient)
            return []
        velocity = self.velocity[place]
        velocity.assign(velocity * self.momentum + gradient)
        self.move(parameter, gradient + velocity * self.momentum if self.nesterov else velocity)
        return [velocity]


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2014); `decoupled` weight decay makes it AdamW, `layerwise` LAMB."""

    decoupled = False
    layerwise = False

    def __init__(self, params: Sequence[Tensor], lr: float = 0.001, b1: float = 0.9,
                 b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr)
        self.b1, self.b2, self.eps, self.weight_decay = b1, b2, eps, weight_decay
        self.first = [_memory(p) for p in self.params]
        self.second = [_memory(p) for p in self.params]
        # 1 - b1**t and 1 - b2**t after t steps, kept in a form that loses no digits.
        self.b1_weight, self.b2_weight = _number(0.0), _number(0.0)
        self.begin([*self.first, *self.second, self.b1_weight, self.b2_weight])

    def before_step(self) -> list[Tensor]:
        self.b1_weight.assign(self.b1_weight * self.b1 + (1 - self.b1))
        self.b2_weight.assign(self.b2_weight * self.b2 + (1 - self.b2))
        return [self.b1_weight, self.b2_weight]

    def change(self, place: int, parameter: Tensor, gradient: Tensor) -> list[Tensor]:
        value = parameter.detach()
        if self.weight_decay and not self.decoupled:
            gradient = gradient + value * self.weight_decay
        first, second = self.first[place], self.second[place]
        first.assign(first * self.b1 + gradient * (1 - self.b1))
        second.assign(second * self.b2 + gradient * gradient * (1 - self.b2))
        size = (second / _beside(self.b2_weight, parameter)).sqrt() + self.eps
        update = (first / _beside(self.b1_weight, parameter)) / size
        if self.weight_decay and self.decoupled:
            update = update + value * self.weight_decay
        if self.layerwise:
            size, length = value.norm(), update.norm()
            ratio = ((size > 0) & (length > 0)).where(size / length, 1.0)
            update = update * ratio
        self.move(parameter, update)
        return [first, second]


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017)."""

    decoupled = True

    def __init__(self, params: Sequence[Tensor], lr: float = 0.001, b1: float = 0.9,
                 b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.01) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay)


class LAMB(AdamW):
    """AdamW whose steps are as long as the parameter is large (You and others, 2019)."""

    layerwise = True
