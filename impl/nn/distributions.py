"""Distributions to draw from and to weigh by, with the names of `torch.distributions`."""
from __future__ import annotations

import math
from typing import Any

from impl.errors import ArgumentError
from impl.nn.names import publish
from impl.tensor import Tensor

__all__ = ["Bernoulli", "Categorical", "Normal", "Uniform"]
publish("distributions", __all__)


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor(float(value))


class Normal:
    """Numbers with a mean and a standard deviation, each a tensor or a number."""

    def __init__(self, loc: Any, scale: Any) -> None:
        self.loc, self.scale = Tensor.broadcast_tensors(_tensor(loc), _tensor(scale))

    def rsample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Draws, through which gradients flow to mean and deviation."""
        return self.loc + self.scale * Tensor.randn(*sample_shape, *self.loc.shape)

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Draws."""
        return self.rsample(sample_shape).detach()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density there."""
        away = (value - self.loc) / self.scale
        return -away.square() / 2 - self.scale.log() - math.log(2 * math.pi) / 2

    def entropy(self) -> Tensor:
        """In nats."""
        return self.scale.log() + (1 + math.log(2 * math.pi)) / 2


class Uniform:
    """Numbers spread evenly from `low` to `high`."""

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = Tensor.broadcast_tensors(_tensor(low), _tensor(high))

    def rsample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Draws, through which gradients flow to the bounds."""
        return self.low + (self.high - self.low) * Tensor.rand(*sample_shape, *self.low.shape)

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Draws."""
        return self.rsample(sample_shape).detach()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density there."""
        inside = (value >= self.low) & (value < self.high)
        return inside.where(-(self.high - self.low).log(), -math.inf)


class Categorical:
    """One of several classes along the last axis, by probabilities or by logits."""

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None) -> None:
        if (probs is None) == (logits is None):  # r[impl errors.argument.refused]
            raise ArgumentError("Categorical", "probs and logits are given, or neither",
                                "give one of them")
        if logits is None:
            assert probs is not None
            logits = (probs / probs.sum(-1, keepdim=True)).log()
        self.logits = logits.log_softmax(-1)

    @property
    def probs(self) -> Tensor:
        """The probability of each class."""
        return self.logits.exp()

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Draws: numbers of classes, by the largest of the logits with Gumbel's noise added."""
        uniform = Tensor.rand(*sample_shape, *self.logits.shape).clip(min=2.0 ** -60)
        return (self.logits.detach() - (-uniform.log()).log()).argmax(-1)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of these classes."""
        number = value if isinstance(value, Tensor) else Tensor(value)
        shape = (*number.shape, self.logits.shape[-1])
        return self.logits.expand(shape).gather(-1, number.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """In nats."""
        finite = (self.logits > -math.inf).where(self.logits, 0.0)
        return -(self.probs * finite).sum(-1)


class Bernoulli:
    """0 or 1, by probabilities or by logits."""

    def __init__(self, probs: Any = None, logits: Any = None) -> None:
        if (probs is None) == (logits is None):  # r[impl errors.argument.refused]
            raise ArgumentError("Bernoulli", "probs and logits are given, or neither",
                                "give one of them")
        self.probs = _tensor(probs) if logits is None else _tensor(logits).sigmoid()
        self.logits = self.probs.logit() if logits is None else _tensor(logits)

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Draws, as floats."""
        drawn = Tensor.rand(*sample_shape, *self.probs.shape) < self.probs.detach()
        return drawn.cast(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of 0 and 1."""
        return -self.logits.binary_cross_entropy_with_logits(value, reduction="none")

    def entropy(self) -> Tensor:
        """In nats."""
        return self.logits.binary_cross_entropy_with_logits(self.probs, reduction="none")
