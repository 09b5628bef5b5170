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

__all__ = ["Adagrad", "Adam", "AdamW", "LAMB", "LARS", "Lion", "Muon", "Optimizer", "RMSprop",
           "SGD", "clip_grad_norm_", "clip_grad_value_"]
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


def _wanted(given: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that require a gradient, each once. If none does, all floats are meant, but
    those of which somebody has said that they do not.

    Raises:
        DTypeError: there is none.
    """
    wanted = [p for p in given if p.requires_grad] or [
        p.requires_grad_() for p in given if p.is_floating_point() and p._parameter is None]
    if not wanted:
        raise DTypeError("optim", "no parameter requires a gradient",
                         "set requires_grad = True on the tensors to be changed")
    return list({id(p): p for p in wanted}.values())


class Optimizer:
    """What all optimisers share. Subclasses say how one parameter changes."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        made(cls)

    def __init__(self, params: Sequence[Tensor], lr: float) -> None:
        if isinstance(params, Tensor) or not isinstance(params, Iterable):
            raise DTypeError("optim", f"{type(params).__name__} is no list of tensors",
                             "give nn.state.get_parameters(model)")
        self.params = _wanted(list(params))
        self.lr = _number(lr)

    def __setattr__(self, name: str, value: object) -> None:
        """A number given to `lr` goes into the memory of the one before: nothing is made anew."""
        known = self.__dict__.get(name)
        if name == "lr" and isinstance(known, Tensor) and isinstance(value, (int, float)):
            known.assign(value)
        else:
            super().__setattr__(name, value)

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

    velocity: list[Tensor]

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
                 b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0,
                 betas: tuple[float, float] | None = None) -> None:
        super().__init__(params, lr)
        self.b1, self.b2 = (b1, b2) if betas is None else betas
        self.eps, self.weight_decay = eps, weight_decay
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
                 b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.01,
                 betas: tuple[float, float] | None = None) -> None:
        super().__init__(params, lr, b1, b2, eps, weight_decay, betas)


class LAMB(AdamW):
    """AdamW whose steps are as long as the parameter is large (You and others, 2019)."""

    layerwise = True


class RMSprop(Optimizer):
    """Steps divided by the root of a running mean of squared gradients, as PyTorch defines it."""

    def __init__(self, params: Sequence[Tensor], lr: float = 0.01, alpha: float = 0.99,
                 eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
                 centered: bool = False) -> None:
        super().__init__(params, lr)
        self.alpha, self.eps, self.weight_decay = alpha, eps, weight_decay
        self.momentum, self.centered = momentum, centered
        self.square = [_memory(p) for p in self.params]
        self.mean = [_memory(p) for p in self.params] if centered else []
        self.velocity = [_memory(p) for p in self.params] if momentum else []
        self.begin([*self.square, *self.mean, *self.velocity])

    def change(self, place: int, parameter: Tensor, gradient: Tensor) -> list[Tensor]:
        if self.weight_decay:
            gradient = gradient + parameter.detach() * self.weight_decay
        square, changed = self.square[place], [self.square[place]]
        square.assign(square * self.alpha + gradient.square() * (1 - self.alpha))
        size = square
        if self.centered:
            mean = self.mean[place]
            mean.assign(mean * self.alpha + gradient * (1 - self.alpha))
            size = square - mean.square()
            changed.append(mean)
        update = gradient / (size.sqrt() + self.eps)
        if self.momentum:
            velocity = self.velocity[place]
            velocity.assign(velocity * self.momentum + update)
            update = velocity * 1
            changed.append(velocity)
        self.move(parameter, update)
        return changed


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients (Duchi and others, 2011)."""

    def __init__(self, params: Sequence[Tensor], lr: float = 0.01, weight_decay: float = 0.0,
                 initial_accumulator_value: float = 0.0, eps: float = 1e-10) -> None:
        super().__init__(params, lr)
        self.eps, self.weight_decay = eps, weight_decay
        self.total = [_memory(p).assign(initial_accumulator_value) for p in self.params]
        self.begin(self.total)

    def change(self, place: int, parameter: Tensor, gradient: Tensor) -> list[Tensor]:
        if self.weight_decay:
            gradient = gradient + parameter.detach() * self.weight_decay
        total = self.total[place]
        total.assign(total + gradient.square())
        self.move(parameter, gradient / (total.sqrt() + self.eps))
        return [total]


class Lion(Optimizer):
    """Steps of equal length, by the sign of a running mean (Chen and others, 2023)."""

    def __init__(self, params: Sequence[Tensor], lr: float = 0.0001,
                 betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0) -> None:
        super().__init__(params, lr)
        self.betas, self.weight_decay = betas, weight_decay
        self.mean = [_memory(p) for p in self.params]
        self.begin(self.mean)

    def change(self, place: int, parameter: Tensor, gradient: Tensor) -> list[Tensor]:
        mean, (near, far) = self.mean[place], self.betas
        update = (mean * near + gradient * (1 - near)).sign()
        if self.weight_decay:
            update = update + parameter.detach() * self.weight_decay
        mean.assign(mean * far + gradient * (1 - far))
        self.move(parameter, update)
        return [mean]


class LARS(SGD):
    """SGD whose steps are as long as the parameter is large (You and others, 2017)."""

    def __init__(self, params: Sequence[Tensor], lr: float = 0.001, momentum: float = 0.9,
                 weight_decay: float = 0.0001, nesterov: bool = False,
                 tcoef: float = 0.001) -> None:
        self.tcoef = tcoef
        super().__init__(params, lr, momentum, weight_decay, nesterov)

    def change(self, place: int, parameter: Tensor, gradient: Tensor) -> list[Tensor]:
        value = parameter.detach()
        size, length = value.norm(), gradient.norm()
        both = (size > 0) & (length > 0)
        ratio = both.where(self.tcoef * size / (length + self.weight_decay * size), 1.0)
        decayed = (gradient + value * self.weight_decay) * ratio
        decay, self.weight_decay = self.weight_decay, 0.0
        changed = super().change(place, parameter, decayed)
        self.weight_decay = decay
        return changed


class Muon(SGD):
    """SGD with momentum, whose steps for matrices are made nearly orthogonal (Jordan, 2024)."""

    def __init__(self, params: Sequence[Tensor], lr: float = 0.02, momentum: float = 0.95,
                 weight_decay: float = 0.1, nesterov: bool = True, steps: int = 5) -> None:
        self.steps, self.decay = steps, weight_decay
        super().__init__(params, lr, momentum, 0.0, nesterov)

    def move(self, parameter: Tensor, update: Tensor) -> None:
        if len(parameter.shape) >= 2:
            update = orthogonal(update.flatten(1), self.steps).reshape(parameter.shape)
            rows, columns = parameter.shape[0], parameter.numel() // parameter.shape[0]
            update = update * max(1.0, rows / columns) ** 0.5
        super().move(parameter, update + parameter.detach() * self.decay)


def orthogonal(matrix: Tensor, steps: int = 5) -> Tensor:
    """A matrix with nearly the same singular vectors, and singular values near 1, by iterations of
    Newton and Schulz with the coefficients of Jordan (2024).
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = x * 3.4445 + (square * -4.7750 + square @ square * 2.0315) @ x
    return x.T if tall else x


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The gradients of those that have one."""
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [p.grad for p in given if p.grad is not None]


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float,
                    norm_type: float = 2.0) -> Tensor:
    """Scale all gradients so that their norm, taken together, is at most `max_norm`; return what it
    was.
    """
    gradients = _gradients(parameters)
    if not gradients:
        return Tensor(0.0)
    total = Tensor.stack([each.norm(norm_type) for each in gradients]).norm(norm_type)
    factor = (max_norm / (total + 1e-6)).clip(max=1.0)
    for gradient in gradients:
        gradient.assign(gradient * factor.cast(gradient.dtype))
    return total


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Move each element of each gradient into [-clip_value, clip_value]."""
    for gradient in _gradients(parameters):
        gradient.assign(gradient.clip(-clip_value, clip_value))
