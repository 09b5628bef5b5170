"""What distributions have in common, and the most used of them, with PyTorch's names.

`sample` draws, `rsample` draws so that gradients flow to the parameters, where there is a formula
for that. Parameters are tensors or numbers, and broadcast. Others stand in `impl.nn.families`,
and all of them in `impl.nn.distributions`.
"""
from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from impl.errors import ArgumentError, ValueOutsideError
from impl.nn.constraints import (
    Constraint,
    boolean,
    integer_interval,
    interval,
    nonnegative,
    one_hot,
    positive,
    real,
    real_vector,
    unit_interval,
)
from impl.tensor import Tensor

__all__ = ["Bernoulli", "Categorical", "Distribution", "Independent", "Normal",
           "OneHotCategorical", "Uniform", "kl_divergence", "register_kl"]


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor(float(value))


def of_one_shape(*values: Any) -> list[Tensor]:
    """Parameters as tensors of one shape."""
    return list(Tensor.broadcast_tensors(*map(_tensor, values)))


def one_of(kind: str, probs: Any, logits: Any) -> None:
    """Refuse both ways to say a probability at once, and none.

    Raises:
        ArgumentError: both are given, or neither.
    """
    if (probs is None) == (logits is None):  # r[impl errors.argument.refused]
        raise ArgumentError(kind, "probs and logits are given, or neither", "give one of them")


def _checked_parameters(build: Callable[..., None]) -> Callable[..., None]:
    """A constructor whose parameters are looked at first."""
    signature = inspect.signature(build)

    @functools.wraps(build)
    def __init__(self: Any, *given: Any, **named: Any) -> None:
        known = signature.bind(self, *given, **named).arguments
        if known.get("validate_args") is not None:
            self._validate_args = known["validate_args"]
        for name, constraint in self.arg_constraints.items():
            self._refuse_outside(name, known.get(name), constraint)
        build(self, *given, **named)
    return __init__


def _checked_value(density: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A method that is asked about a value, which is looked at first."""
    @functools.wraps(density)
    def log_prob(self: Any, value: Any) -> Tensor:
        if getattr(type(self), "log_prob", None) is log_prob:  # no other kind asks this one
            self._refuse_outside("the value", value, self.support)
        return density(self, value)
    return log_prob


class Distribution:
    """What distributions have in common: shapes, draws, and `log_prob` by another name.

    Numbers of Python are held to what is allowed (`arg_constraints`, `support`), unless
    `validate_args` is False. Tensors are if it is True, or `set_default_validate_args(True)` was
    called: then they are computed at once. PyTorch looks at all of them unasked. What nobody looked
    at has the density of its formula.

    Raises:
        ValueOutsideError: a parameter, or the value of `log_prob`, is not allowed.
    """

    batch_shape: tuple[int, ...] = ()
    event_shape: tuple[int, ...] = ()
    has_rsample = False
    #: What each parameter is held to.
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {}
    _validate_args: bool | None = None

    def __init_subclass__(cls) -> None:
        """Let a kind of distribution look at what it is given."""
        for name, checked in (("__init__", _checked_parameters), ("log_prob", _checked_value)):
            if name in vars(cls):
                setattr(cls, name, checked(vars(cls)[name]))

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether tensors are looked at where `validate_args` is not said."""
        Distribution._validate_args = value

    @property
    def support(self) -> Constraint | None:
        """What can be drawn, where it is known."""
        return None

    def _refuse_outside(self, name: str, value: Any, constraint: Constraint | None) -> None:
        asked = self._validate_args if isinstance(value, Tensor) else \
            isinstance(value, (int, float)) and self._validate_args is not False
        if constraint is None or not asked:
            return
        fits = constraint.check(value)
        if not (fits.all().item() if isinstance(fits, Tensor) else fits):
            given = f"a tensor of shape {value.shape}" if isinstance(value, Tensor) else value
            raise ValueOutsideError(  # r[impl errors.argument.refused]
                type(self).__name__, f"{name} is {given}, and has to be {constraint.name}",
                "give what is allowed, or validate_args=False")

    def _shape(self, sample_shape: Any) -> tuple[int, ...]:
        given = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return (*given, *self.batch_shape, *self.event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws, through which gradients flow to the parameters.

        Raises:
            ArgumentError: there is no formula for that.
        """
        kind = type(self).__name__
        raise ArgumentError(f"{kind}.rsample", "gradients do not flow through these draws",
                            "use sample() and log_prob()")

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws."""
        return self.rsample(sample_shape).detach()

    def sample_n(self, n: int) -> Tensor:
        """`n` draws."""
        return self.sample((n,))

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, there."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def entropy(self) -> Tensor:
        """In nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def expand(self, batch_shape: Any) -> Self:
        """The same for a larger shape: its parameters are repeated."""
        made = object.__new__(type(self))
        rank = len(self.batch_shape)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                value = value.expand(*batch_shape, *value.shape[rank:])
            setattr(made, name, value)
        made.batch_shape = tuple(batch_shape)
        return made

    def __repr__(self) -> str:
        shapes = f"batch_shape={self.batch_shape}, event_shape={self.event_shape}"
        return f"{type(self).__name__}({shapes})"


class Normal(Distribution):
    """Numbers with a mean and a standard deviation, each a tensor or a number."""

    has_rsample = True
    arg_constraints = {"loc": real, "scale": positive}

    @property
    def support(self) -> Constraint:
        return real

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        self.loc, self.scale = of_one_shape(loc, scale)
        self.batch_shape = self.loc.shape

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws, through which gradients flow to mean and deviation."""
        return self.loc + self.scale * Tensor.randn(*self._shape(sample_shape))

    def cdf(self, value: Any) -> Tensor:
        """The probability of less than that."""
        return (((value - self.loc) / (self.scale * math.sqrt(2))).erf() + 1) * 0.5

    def icdf(self, value: Any) -> Tensor:
        """Below which value so much of the probability is."""
        return self.loc + self.scale * (_tensor(value) * 2 - 1).erfinv() * math.sqrt(2)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density there."""
        away = (value - self.loc) / self.scale
        return -away.square() / 2 - self.scale.log() - math.log(2 * math.pi) / 2

    def entropy(self) -> Tensor:
        """In nats."""
        return self.scale.log() + (1 + math.log(2 * math.pi)) / 2


class Uniform(Distribution):
    """Numbers spread evenly from `low` to `high`."""

    has_rsample = True
    arg_constraints = {"low": real, "high": real}

    @property
    def support(self) -> Constraint:
        return interval(self.low, self.high)

    def __init__(self, low: Any, high: Any, validate_args: Any = None) -> None:
        self.low, self.high = of_one_shape(low, high)
        self.batch_shape = self.low.shape

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) * 0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws, through which gradients flow to the bounds."""
        return self.low + (self.high - self.low) * Tensor.rand(*self._shape(sample_shape))

    def cdf(self, value: Any) -> Tensor:
        """The probability of less than that."""
        return ((value - self.low) / (self.high - self.low)).clip(0, 1)

    def entropy(self) -> Tensor:
        """In nats."""
        return (self.high - self.low).log()

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density there."""
        inside = (value >= self.low) & (value < self.high)
        return inside.where(-(self.high - self.low).log(), -math.inf)


class Categorical(Distribution):
    """One of several classes along the last axis, by probabilities or by logits."""

    arg_constraints = {"probs": nonnegative, "logits": real_vector}

    @property
    def support(self) -> Constraint:
        return integer_interval(0, self.logits.shape[-1] - 1)

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None,
                 validate_args: Any = None) -> None:
        one_of("Categorical", probs, logits)
        if logits is None:
            assert probs is not None
            logits = (probs / probs.sum(-1, keepdim=True)).log()
        self.logits = logits.log_softmax(-1)
        self.batch_shape = self.logits.shape[:-1]

    @property
    def probs(self) -> Tensor:
        """The probability of each class."""
        return self.logits.exp()

    @property
    def mode(self) -> Tensor:
        """The class with the greatest probability."""
        return self.logits.argmax(-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws: numbers of classes, by the largest of the logits with Gumbel's noise added."""
        given = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        uniform = Tensor.rand(*given, *self.logits.shape).clip(min=2.0 ** -60)
        return (self.logits.detach() - (-uniform.log()).log()).argmax(-1)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of these classes."""
        number = value if isinstance(value, Tensor) else Tensor(value)
        count = self.logits.shape[-1]
        both = Tensor.broadcast_tensors(number, self.logits[..., 0].detach())[0].shape
        number, shape = number.expand(both), (*both, count)
        return self.logits.expand(shape).gather(-1, number.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """In nats."""
        finite = (self.logits > -math.inf).where(self.logits, 0.0)
        return -(self.probs * finite).sum(-1)


class Bernoulli(Distribution):
    """0 or 1, by probabilities or by logits."""

    arg_constraints = {"probs": unit_interval, "logits": real}

    @property
    def support(self) -> Constraint:
        return boolean

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        one_of("Bernoulli", probs, logits)
        self.probs = _tensor(probs) if logits is None else _tensor(logits).sigmoid()
        self.logits = self.probs.logit() if logits is None else _tensor(logits)
        self.batch_shape = self.probs.shape

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws, as floats."""
        drawn = Tensor.rand(*self._shape(sample_shape)) < self.probs.detach()
        return drawn.cast(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of 0 and 1."""
        logits, value = Tensor.broadcast_tensors(self.logits, _tensor(value))
        return -logits.binary_cross_entropy_with_logits(value, reduction="none")

    def entropy(self) -> Tensor:
        """In nats."""
        return self.logits.binary_cross_entropy_with_logits(self.probs, reduction="none")


class OneHotCategorical(Categorical):
    """One of several classes, as a vector with one 1."""

    @property
    def support(self) -> Constraint:
        return one_hot

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None,
                 validate_args: Any = None) -> None:
        super().__init__(probs, logits)
        self.event_shape = self.logits.shape[-1:]

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    @property
    def mode(self) -> Tensor:
        """The vector of the class that is most probable."""
        return self.logits.argmax(-1).one_hot(self.event_shape[0]).cast(self.logits.dtype)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws, as floats."""
        return super().sample(sample_shape).one_hot(self.event_shape[0]).cast(self.logits.dtype)

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the probability of these vectors."""
        return super().log_prob(value.argmax(-1))


class Independent(Distribution):
    """Another distribution, whose last axes are one event: their densities are multiplied."""

    def __init__(self, base_distribution: Any, reinterpreted_batch_ndims: int,
                 validate_args: Any = None) -> None:
        self.base_dist, self.axes = base_distribution, reinterpreted_batch_ndims
        shape = base_distribution.batch_shape
        if self.axes > len(shape):  # r[impl errors.argument.refused]
            raise ArgumentError("Independent", f"{self.axes} axes of shape {shape}",
                                "name at most as many as it has")
        self.batch_shape = shape[:len(shape) - self.axes]
        self.event_shape = shape[len(shape) - self.axes:] + base_distribution.event_shape
        self.has_rsample = base_distribution.has_rsample

    @property
    def support(self) -> Constraint | None:
        found: Constraint | None = self.base_dist.support
        return found

    @property
    def mean(self) -> Tensor:
        found: Tensor = self.base_dist.mean
        return found

    @property
    def variance(self) -> Tensor:
        found: Tensor = self.base_dist.variance
        return found

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of the other one."""
        drawn: Tensor = self.base_dist.sample(sample_shape)
        return drawn

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of the other one, through which gradients flow."""
        drawn: Tensor = self.base_dist.rsample(sample_shape)
        return drawn

    def _summed(self, value: Tensor) -> Tensor:
        return value.sum(tuple(range(-self.axes, 0))) if self.axes else value

    def log_prob(self, value: Any) -> Tensor:
        """The sum of its logarithms."""
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        """In nats."""
        return self._summed(self.base_dist.entropy())


#: How far two distributions of these kinds are apart.
_APART: dict[tuple[type, type], Any] = {}


def register_kl(type_p: type, type_q: type) -> Any:
    """A decorator of the function that `kl_divergence` uses for two kinds."""
    def registered(function: Any) -> Any:
        _APART[type_p, type_q] = function
        return function
    return registered


def kl_divergence(p: Any, q: Any) -> Tensor:
    """The mean under `p` of how much more probable a draw is under `p` than under `q`, in nats.

    Raises:
        ArgumentError: there is no formula for these kinds.
    """
    for one in type(p).__mro__:
        for two in type(q).__mro__:
            if (one, two) in _APART:
                apart: Tensor = _APART[one, two](p, q)
                return apart
    names = f"{type(p).__name__} and {type(q).__name__}"
    raise ArgumentError("kl_divergence", f"there is no formula for {names}",
                        "use (p.log_prob(x) - q.log_prob(x)).mean() of x = p.sample((n,))")


@register_kl(Normal, Normal)
def _of_normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return ((ratio + ((p.loc - q.loc) / q.scale).square() - 1) - ratio.log()) * 0.5


@register_kl(Categorical, Categorical)
def _of_categorical(p: Any, q: Any) -> Tensor:
    away = (p.probs == 0).where(0.0, p.logits - q.logits)
    return (p.probs * away).sum(-1)


@register_kl(Bernoulli, Bernoulli)
def _of_bernoulli(p: Any, q: Any) -> Tensor:
    def part(one: Tensor, two: Tensor) -> Tensor:
        return (one == 0).where(0.0, one * (one / two).log())
    return part(p.probs, q.probs) + part(1 - p.probs, 1 - q.probs)


@register_kl(Uniform, Uniform)
def _of_uniform(p: Any, q: Any) -> Tensor:
    within = (q.low <= p.low) & (q.high >= p.high)
    return within.where(((q.high - q.low) / (p.high - p.low)).log(), math.inf)


@register_kl(Independent, Independent)
def _of_independent(p: Any, q: Any) -> Tensor:
    return p._summed(kl_divergence(p.base_dist, q.base_dist))
