"""More distributions: `impl.nn.drawing` has the others, `impl.nn.distributions` has all."""
from __future__ import annotations

import math
from typing import Any

from impl.errors import ArgumentError
from impl.nn.constraints import (
    Constraint,
    greater_than_eq,
    integer_interval,
    lower_cholesky,
    nonnegative,
    nonnegative_integer,
    positive,
    positive_definite,
    real,
    real_vector,
    simplex,
    unit_interval,
)
from impl.nn.drawing import (
    Categorical,
    Distribution,
    Normal,
    kl_divergence,
    of_one_shape,
    one_of,
    register_kl,
)
from impl.tensor import Tensor

__all__ = ["Beta", "Binomial", "Cauchy", "Chi2", "Dirichlet", "Exponential", "Gamma", "Geometric",
           "Gumbel", "HalfCauchy", "HalfNormal", "Laplace", "LogNormal", "MixtureSameFamily",
           "Multinomial", "MultivariateNormal", "NegativeBinomial", "Pareto", "Poisson",
           "RelaxedOneHotCategorical", "StudentT", "VonMises", "Weibull"]

#: So many candidates are drawn for each number of a gamma distribution: more than 1 in 20 is
#: refused nowhere, so none of them is taken once in 10^20 draws.
_CANDIDATES = 16
_EULER = 0.5772156649015329
#: What the chance of one more success is held to.
_HALF_OPEN = Constraint("0 or greater, less than 1", lambda value: (value >= 0) & (value < 1))


def _chance(shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers above 0, up to 1."""
    return 1 - Tensor.rand(*shape)


def _standard_gamma(concentration: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Draws with rate 1, by the method of Marsaglia and Tsang (2000)."""
    wanted = concentration.detach().expand(shape)
    small = wanted < 1
    d = small.where(wanted + 1, wanted) - 1 / 3
    c = 1 / (d * 9).sqrt()
    normal, chance = Tensor.randn(_CANDIDATES, *shape), _chance((_CANDIDATES, *shape))
    v = (1 + c * normal) ** 3
    safe = (v > 0).where(v, 1.0)
    taken = (v > 0) & (chance.log() < normal.square() / 2 + d - d * v + d * safe.log())
    first = taken.cast("int32").argmax(0).unsqueeze(0)
    drawn = d * safe.gather(0, first).squeeze(0)
    power = _chance(shape) ** (1 / wanted)
    return small.where(drawn * power, drawn)


class Gamma(Distribution):
    """Positive numbers with a shape (`concentration`) and a rate."""

    arg_constraints = {"concentration": positive, "rate": positive}

    @property
    def support(self) -> Constraint:
        return nonnegative

    def __init__(self, concentration: Any, rate: Any, validate_args: Any = None) -> None:
        self.concentration, self.rate = of_one_shape(concentration, rate)
        self.batch_shape = self.concentration.shape

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._shape(sample_shape)
        return _standard_gamma(self.concentration, shape) / self.rate.detach()

    def log_prob(self, value: Any) -> Tensor:
        value, a = Tensor.broadcast_tensors(*of_one_shape(value), self.concentration)
        return a * self.rate.log() + (a - 1) * value.log() - self.rate * value - a.lgamma()

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """Sums of squares of `df` normal numbers."""

    arg_constraints = {"df": positive}

    def __init__(self, df: Any, validate_args: Any = None) -> None:
        (self.df,) = of_one_shape(df)
        super().__init__(self.df * 0.5, 0.5)


class Exponential(Distribution):
    """Waiting times at a rate."""

    has_rsample = True
    arg_constraints = {"rate": positive}

    @property
    def support(self) -> Constraint:
        return nonnegative

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        (self.rate,) = of_one_shape(rate)
        self.batch_shape = self.rate.shape

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / self.rate.square()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return -_chance(self._shape(sample_shape)).log() / self.rate

    def log_prob(self, value: Any) -> Tensor:
        return self.rate.log() - self.rate * value

    def cdf(self, value: Any) -> Tensor:
        """The probability of less than that."""
        return -(-self.rate * value).expm1()

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()


class Dirichlet(Distribution):
    """Shares along the last axis, which add up to 1."""

    arg_constraints = {"concentration": positive}

    @property
    def support(self) -> Constraint:
        return simplex

    def __init__(self, concentration: Tensor, validate_args: Any = None) -> None:
        self.concentration = concentration
        self.batch_shape, self.event_shape = concentration.shape[:-1], concentration.shape[-1:]

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.mean * (1 - self.mean) / (total + 1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = _standard_gamma(self.concentration, self._shape(sample_shape))
        return drawn / drawn.sum(-1, keepdim=True)

    def log_prob(self, value: Any) -> Tensor:
        a = self.concentration
        return (value.log() * (a - 1)).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, total = self.concentration, self.concentration.sum(-1)
        return a.lgamma().sum(-1) - total.lgamma() - (a.shape[-1] - total) * total.digamma() \
            - ((a - 1) * a.digamma()).sum(-1)


class Beta(Distribution):
    """Numbers between 0 and 1, by two concentrations."""

    arg_constraints = {"concentration1": positive, "concentration0": positive}

    @property
    def support(self) -> Constraint:
        return unit_interval

    def __init__(self, concentration1: Any, concentration0: Any,
                 validate_args: Any = None) -> None:
        self.concentration1, self.concentration0 = of_one_shape(concentration1, concentration0)
        self.batch_shape = self.concentration1.shape

    @property
    def _both(self) -> Dirichlet:
        return Dirichlet(self.concentration1.stack(self.concentration0, dim=-1))

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._both.sample(sample_shape)[..., 0]

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        return self._both.log_prob(value.stack(1 - value, dim=-1))

    def entropy(self) -> Tensor:
        return self._both.entropy()


class _Placed(Distribution):
    """Distributions with a place and a width: draws of the standard one, moved."""

    has_rsample = True
    arg_constraints = {"loc": real, "scale": positive}

    @property
    def support(self) -> Constraint:
        return real

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        self.loc, self.scale = of_one_shape(loc, scale)
        self.batch_shape = self.loc.shape

    def _away(self, value: Any) -> Tensor:
        found: Tensor = (value - self.loc) / self.scale
        return found

    @property
    def mean(self) -> Tensor:
        return self.loc


class Laplace(_Placed):
    """Numbers whose density falls off exponentially on both sides."""

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * 2

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        half = _chance(self._shape(sample_shape)) - 0.5
        return self.loc - self.scale * half.sign() * (1 - half.abs() * 2).clip(min=1e-37).log()

    def log_prob(self, value: Any) -> Tensor:
        return -self._away(value).abs() - (self.scale * 2).log()

    def entropy(self) -> Tensor:
        return (self.scale * 2).log() + 1


class Cauchy(_Placed):
    """Numbers without a mean."""

    @property
    def mean(self) -> Tensor:
        return self.loc * math.nan

    @property
    def variance(self) -> Tensor:
        return self.loc.full_like(math.inf)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + self.scale * ((_chance(self._shape(sample_shape)) - 0.5) * math.pi).tan()

    def log_prob(self, value: Any) -> Tensor:
        return -(self._away(value).square()).log1p() - self.scale.log() - math.log(math.pi)

    def entropy(self) -> Tensor:
        return (self.scale * 4 * math.pi).log()


class Gumbel(_Placed):
    """The greatest of many numbers."""

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * _EULER

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (math.pi ** 2 / 6)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        waiting = -_chance(self._shape(sample_shape)).clip(max=1 - 2.0 ** -24).log()
        return self.loc - self.scale * waiting.log()

    def log_prob(self, value: Any) -> Tensor:
        away = self._away(value)
        return -away - (-away).exp() - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + _EULER)


class StudentT(_Placed):
    """Numbers as normal ones with an uncertain deviation."""

    has_rsample = False
    arg_constraints = {"df": positive, "loc": real, "scale": positive}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0,
                 validate_args: Any = None) -> None:
        self.df, self.loc, self.scale = of_one_shape(df, loc, scale)
        self.batch_shape = self.loc.shape

    @property
    def mean(self) -> Tensor:
        return (self.df > 1).where(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        known = self.scale.square() * self.df / (self.df - 2)
        return (self.df > 2).where(known, (self.df > 1).where(math.inf, math.nan))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return Distribution.rsample(self, sample_shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._shape(sample_shape)
        half = (self.df * 0.5).detach()
        width = (_standard_gamma(half, shape) / half).rsqrt()
        return self.loc.detach() + self.scale.detach() * Tensor.randn(*shape) * width

    def log_prob(self, value: Any) -> Tensor:
        more = (self.df + 1) * 0.5
        norm = self.scale.log() + self.df.log() * 0.5 + 0.5 * math.log(math.pi) \
            + (self.df * 0.5).lgamma() - more.lgamma()
        return -more * (self._away(value).square() / self.df).log1p() - norm


class LogNormal(_Placed):
    """Exponentials of normal numbers."""

    @property
    def support(self) -> Constraint:
        return positive

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.square()
        return square.expm1() * (self.loc * 2 + square).exp()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return Normal(self.loc, self.scale).rsample(sample_shape).exp()

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        return Normal(self.loc, self.scale).log_prob(value.log()) - value.log()

    def entropy(self) -> Tensor:
        return Normal(self.loc, self.scale).entropy() + self.loc


class _Folded(Distribution):
    """The sizes of numbers that are placed around 0."""

    has_rsample = True
    arg_constraints = {"scale": positive}
    around: type[Any]

    @property
    def support(self) -> Constraint:
        return nonnegative

    def __init__(self, scale: Any, validate_args: Any = None) -> None:
        (self.scale,) = of_one_shape(scale)
        self.batch_shape = self.scale.shape

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn: Tensor = self.around(0.0, self.scale).rsample(sample_shape)
        return drawn.abs()

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        found = self.around(0.0, self.scale).log_prob(value) + math.log(2)
        return (value >= 0).where(found, -math.inf)

    def entropy(self) -> Tensor:
        found: Tensor = self.around(0.0, self.scale).entropy()
        return found - math.log(2)


class HalfNormal(_Folded):
    """Sizes of normal numbers."""

    around = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)


class HalfCauchy(_Folded):
    """Sizes of numbers of Cauchy's distribution."""

    around = Cauchy

    @property
    def mean(self) -> Tensor:
        return self.scale.full_like(math.inf)

    variance = mean


class Weibull(Distribution):
    """Lives of what wears out."""

    has_rsample = True
    arg_constraints = {"scale": positive, "concentration": positive}

    @property
    def support(self) -> Constraint:
        return positive

    def __init__(self, scale: Any, concentration: Any, validate_args: Any = None) -> None:
        self.scale, self.concentration = of_one_shape(scale, concentration)
        self.batch_shape = self.scale.shape

    @property
    def mean(self) -> Tensor:
        return self.scale * (1 + 1 / self.concentration).lgamma().exp()

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 + 2 / self.concentration).lgamma().exp() \
            - self.mean.square()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        waiting = -_chance(self._shape(sample_shape)).log()
        return self.scale * waiting ** (1 / self.concentration)

    def log_prob(self, value: Any) -> Tensor:
        part, k = value / self.scale, self.concentration
        found: Tensor = (k / self.scale).log() + (k - 1) * part.log() - part ** k
        return found


class Pareto(Distribution):
    """Numbers from `scale` on, with a power as density."""

    has_rsample = True
    arg_constraints = {"scale": positive, "alpha": positive}

    @property
    def support(self) -> Constraint:
        return greater_than_eq(self.scale)

    def __init__(self, scale: Any, alpha: Any, validate_args: Any = None) -> None:
        self.scale, self.alpha = of_one_shape(scale, alpha)
        self.batch_shape = self.scale.shape

    @property
    def mean(self) -> Tensor:
        a = self.alpha
        return (a > 1).where(a * self.scale / (a - 1), math.inf)

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        known = self.scale.square() * a / ((a - 1).square() * (a - 2))
        return (a > 2).where(known, math.inf)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.scale * (-_chance(self._shape(sample_shape)).log() / self.alpha).exp()

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()


class Poisson(Distribution):
    """Counts of what happens at a rate."""

    arg_constraints = {"rate": nonnegative}

    @property
    def support(self) -> Constraint:
        return nonnegative_integer

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        (self.rate,) = of_one_shape(rate)
        self.batch_shape = self.rate.shape

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws: how many waiting times are over before 1."""
        return self.rate.detach().expand(self._shape(sample_shape)).poisson()

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        return value.xlogy(self.rate) - self.rate - (value + 1).lgamma()


class Geometric(Distribution):
    """How often something fails before it succeeds."""

    arg_constraints = {"probs": unit_interval, "logits": real}

    @property
    def support(self) -> Constraint:
        return nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        one_of("Geometric", probs, logits)
        (given,) = of_one_shape(probs if logits is None else logits)
        self.probs = given if logits is None else given.sigmoid()
        self.batch_shape = self.probs.shape

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        chance = _chance(self._shape(sample_shape))
        return (chance.log() / (-self.probs.detach()).log1p()).floor()

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        return value.xlog1py(-self.probs) + self.probs.log()  # 0 for 0 failures at probability 1

    def entropy(self) -> Tensor:
        p = self.probs
        return -((1 - p).xlogy(1 - p) + p.xlogy(p)) / p


class Binomial(Distribution):
    """How many of `total_count` tries succeed."""

    arg_constraints = {"total_count": nonnegative_integer, "probs": unit_interval,
                       "logits": real}

    @property
    def support(self) -> Constraint:
        return integer_interval(0, self.total_count)

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None,
                 validate_args: Any = None) -> None:
        one_of("Binomial", probs, logits)
        self.total_count = total_count
        (given,) = of_one_shape(probs if logits is None else logits)
        self.probs = given if logits is None else given.sigmoid()
        self.batch_shape = self.probs.shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.mean * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._shape(sample_shape)
        tries = Tensor.rand(self.total_count, *shape) < self.probs.detach()
        return tries.sum(0).cast(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        n, p = self.total_count, self.probs
        ways = math.lgamma(n + 1) - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value.xlogy(p) + (n - value).xlogy(1 - p)


class NegativeBinomial(Distribution):
    """How often something succeeds before it has failed `total_count` times."""

    arg_constraints = {"total_count": nonnegative, "probs": _HALF_OPEN, "logits": real}

    @property
    def support(self) -> Constraint:
        return nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None,
                 validate_args: Any = None) -> None:
        one_of("NegativeBinomial", probs, logits)
        self.total_count, given = of_one_shape(total_count, probs if logits is None else logits)
        self.probs = given if logits is None else given.sigmoid()
        self.logits = given.logit() if logits is None else given
        self.batch_shape = given.shape

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws: counts at a rate that is drawn, too."""
        rates = Gamma(self.total_count, (-self.logits).exp()).sample(sample_shape)
        return rates.poisson()

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        n = self.total_count
        ways = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        chances = n * (-self.logits).logsigmoid() + value * self.logits.logsigmoid()
        return chances + (n + value == 0).where(0.0, ways)


class VonMises(Distribution):
    """Angles around `loc`, from -pi to pi, the nearer the greater the concentration."""

    arg_constraints = {"loc": real, "concentration": positive}

    @property
    def support(self) -> Constraint:
        return real

    def __init__(self, loc: Any, concentration: Any, validate_args: Any = None) -> None:
        self.loc, self.concentration = of_one_shape(loc, concentration)
        self.batch_shape = self.loc.shape

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular one: from 0 to 1."""
        return 1 - self.concentration.i1e() / self.concentration.i0e()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws, by the method of Best and Fisher (1979)."""
        shape = self._shape(sample_shape)
        k = self.concentration.detach().expand(shape).clip(min=1e-6)
        root = (k.square() * 4 + 1).sqrt()
        width = (root + 1).sqrt()
        rho = width * k * 2 / ((root + 1) * (width + math.sqrt(2)))  # without a difference
        r = (rho.square() + 1) / (rho * 2)
        turn = (_chance((_CANDIDATES * 2, *shape)) * math.pi).cos()
        cosine = ((r * turn + 1) / (r + turn)).clip(-1, 1)
        c, chance = k * (r - cosine), _chance((_CANDIDATES * 2, *shape))
        taken = (c * (2 - c) > chance) | ((c / chance).log() + 1 - c >= 0)
        first = taken.cast("int32").argmax(0).unsqueeze(0)
        angle = (_chance(shape) - 0.5).sign() * cosine.gather(0, first).squeeze(0).acos()
        return (angle + self.loc.detach() + math.pi) % (2 * math.pi) - math.pi

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        k = self.concentration
        return k * ((value - self.loc).cos() - 1) - math.log(2 * math.pi) - k.i0e().log()


class Multinomial(Distribution):
    """How often each class comes in `total_count` draws."""

    arg_constraints = {"total_count": nonnegative_integer, "probs": nonnegative,
                       "logits": real_vector}

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None,
                 validate_args: Any = None) -> None:
        self.total_count, self.one = total_count, Categorical(probs, logits)
        self.batch_shape, self.event_shape = self.one.batch_shape, self.one.logits.shape[-1:]

    @property
    def probs(self) -> Tensor:
        """The probability of each class."""
        return self.one.probs

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.mean * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        given = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        drawn = self.one.sample((self.total_count, *given))
        return drawn.one_hot(self.event_shape[0]).sum(0).cast(self.probs.dtype)

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return ways + (value == 0).where(0.0, value * self.one.logits).sum(-1)


class MultivariateNormal(Distribution):
    """Vectors with a mean, and a covariance, a precision, or the triangle of Cholesky."""

    has_rsample = True
    arg_constraints = {"loc": real_vector, "covariance_matrix": positive_definite,
                       "precision_matrix": positive_definite, "scale_tril": lower_cholesky}

    @property
    def support(self) -> Constraint:
        return real_vector

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None,
                 precision_matrix: Tensor | None = None, scale_tril: Tensor | None = None,
                 validate_args: Any = None) -> None:
        given = [one for one in (covariance_matrix, precision_matrix, scale_tril)
                 if one is not None]
        if len(given) != 1:  # r[impl errors.argument.refused]
            raise ArgumentError("MultivariateNormal", f"{len(given)} matrices are given",
                                "give covariance_matrix, precision_matrix or scale_tril")
        if precision_matrix is not None:
            covariance_matrix = precision_matrix.inverse()
        low = covariance_matrix.cholesky() if covariance_matrix is not None else scale_tril
        assert low is not None
        batch = Tensor.broadcast_tensors(loc, low[..., 0])[0].shape
        self.loc, self.scale_tril = loc.expand(batch), low.expand(*batch, low.shape[-1])
        self.batch_shape, self.event_shape = batch[:-1], batch[-1:]

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariances."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariances."""
        return self.covariance_matrix.inverse()

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        normal = Tensor.randn(*self._shape(sample_shape))
        return self.loc + (self.scale_tril @ normal.unsqueeze(-1)).squeeze(-1)

    def _half_logdet(self) -> Tensor:
        return self.scale_tril.diagonal(0, -2, -1).log().sum(-1)

    def log_prob(self, value: Any) -> Tensor:
        away = (value - self.loc).unsqueeze(-1)
        low = self.scale_tril.expand(*away.shape[:-2], *self.scale_tril.shape[-2:])
        square = away.triangular_solve(low, upper=False).square().sum((-2, -1))
        count = self.event_shape[0]
        return -(square + count * math.log(2 * math.pi)) * 0.5 - self._half_logdet()

    def entropy(self) -> Tensor:
        return self._half_logdet() + 0.5 * self.event_shape[0] * (1 + math.log(2 * math.pi))


class MixtureSameFamily(Distribution):
    """One of several distributions of one kind, along their last axis, by chance."""

    def __init__(self, mixture_distribution: Any, component_distribution: Any,
                 validate_args: Any = None) -> None:
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        self.batch_shape = component_distribution.batch_shape[:-1]
        self.event_shape = component_distribution.event_shape

    def _weighted(self, value: Tensor) -> Tensor:
        probs = self.mixture_distribution.probs
        rank = len(self.event_shape)
        return (value * probs.reshape(*probs.shape, *(1,) * rank)).sum(-1 - rank)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        one = self.component_distribution
        return self._weighted(one.variance + one.mean.square()) - self.mean.square()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        axis = -1 - len(self.event_shape)
        drawn = self.component_distribution.sample(sample_shape)
        place = self.mixture_distribution.sample(sample_shape)
        place = place.reshape(*place.shape, *(1,) * -axis)
        shape = [*drawn.shape]
        shape[axis] = 1
        chosen: Tensor = drawn.gather(axis, place.expand(shape)).squeeze(axis)
        return chosen

    def log_prob(self, value: Any) -> Tensor:
        (value,) = of_one_shape(value)
        each = self.component_distribution.log_prob(value.unsqueeze(-1 - len(self.event_shape)))
        found: Tensor = (each + self.mixture_distribution.logits).logsumexp(-1)
        return found


class RelaxedOneHotCategorical(Distribution):
    """Shares that are nearly one class, the nearer the lower the temperature."""

    has_rsample = True
    arg_constraints = {"temperature": positive, "probs": nonnegative, "logits": real_vector}

    @property
    def support(self) -> Constraint:
        return simplex

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None,
                 validate_args: Any = None) -> None:
        self.temperature, self.one = temperature, Categorical(probs, logits)
        self.batch_shape, self.event_shape = self.one.batch_shape, self.one.logits.shape[-1:]

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        noise = Gumbel(0.0, 1.0).sample(self._shape(sample_shape))
        return ((self.one.logits + noise) / self.temperature).softmax(-1)

    def log_prob(self, value: Any) -> Tensor:
        count, heat = self.event_shape[0], of_one_shape(self.temperature)[0]
        score = self.one.logits - value.log() * heat
        score = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        found: Tensor = score - value.log().sum(-1) + math.lgamma(count) \
            + heat.log() * (count - 1)
        return found + (value.log() * 0).sum(-1)


@register_kl(Exponential, Exponential)
def _of_exponential(p: Any, q: Any) -> Tensor:
    ratio: Tensor = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _of_gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    found: Tensor = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() \
        + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)
    return found


@register_kl(Dirichlet, Dirichlet)
def _of_dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1, keepdim=True)
    found: Tensor = total.squeeze(-1).lgamma() - b.sum(-1).lgamma() \
        - (a.lgamma() - b.lgamma()).sum(-1) + ((a - b) * (a.digamma() - total.digamma())).sum(-1)
    return found


@register_kl(Beta, Beta)
def _of_beta(p: Any, q: Any) -> Tensor:
    return kl_divergence(p._both, q._both)


@register_kl(Laplace, Laplace)
def _of_laplace(p: Any, q: Any) -> Tensor:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    found: Tensor = -ratio.log() + away / q.scale + ratio * (-away / p.scale).exp() - 1
    return found


@register_kl(Poisson, Poisson)
def _of_poisson(p: Any, q: Any) -> Tensor:
    found: Tensor = p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)
    return found


@register_kl(MultivariateNormal, MultivariateNormal)
def _of_vectors(p: Any, q: Any) -> Tensor:
    turned = p.scale_tril.triangular_solve(q.scale_tril, upper=False)
    away = (q.loc - p.loc).unsqueeze(-1).triangular_solve(q.scale_tril, upper=False)
    found: Tensor = q._half_logdet() - p._half_logdet() + 0.5 * (
        turned.square().sum((-2, -1)) + away.square().sum((-2, -1)) - p.event_shape[0])
    return found
