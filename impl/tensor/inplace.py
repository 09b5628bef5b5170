"""The forms with `_`, which give a tensor the value of a method. Chapter: spec/tensor.md.

`x.add_(y)` is `x.assign(x.add(y))`: whoever read the old value before keeps it.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Self

from impl.dtypes import SIGNIFICANDS, dtypes
from impl.effects import living
from impl.errors import ArgumentError, ShapeError
from impl.host import np
from impl.tensor.aliases import Aliases
from impl.tensor.movement import flat_arguments

_KINDS = "buif"


def written(method: Callable[..., Any]) -> Callable[..., Any]:
    """The form of a method that gives its value to the tensor it was called on."""
    @functools.wraps(method, updated=())  # not that it is another name of the method
    def in_place(self: Any, *given: Any, **named: Any) -> Any:
        return self._receive(method(self, *given, **named))
    return in_place


class InPlace(Aliases):
    """Methods that assign what the method without `_` returns, and return the tensor."""

    __slots__ = ()

    def _receive(self, value: Any) -> Self:
        """Take over a result, in this tensor's dtype, where that is of a kind that holds it.

        Raises:
            DTypeError: floats do not fit into integers, or numbers into bools.
            ShapeError: the shape of the result is another one.
        """
        if value is NotImplemented:
            return value
        if value.shape != self.shape:
            raise ShapeError("assign", f"a value of shape {value.shape} does not fit a tensor of "
                             f"shape {self.shape}", "use the method without _")
        mine, theirs = (_KINDS.index(one.dtype.kind) for one in (self, value))
        fits = theirs <= mine or (mine, theirs) == (1, 2)  # wraps around, as in PyTorch
        # r[impl tensor.inplace.assigns]
        return self.assign(value.cast(self.dtype) if fits else value)

    def _take_form(self, name: str, made: Self) -> Self:
        """Be what `made` is, which has another shape and the same values.

        Raises:
            ArgumentError: others are views of this tensor, or it is one, or a variable.
        """
        tied = "it requires a gradient" if self._parameter else \
            "it is a view of another tensor" if any(root() is not None
                                                    for root, _ in self._ancestors) else \
            "another tensor is a view of it" if any(
                root() is self for other in living() if other is not made
                and isinstance(other, InPlace) for root, _ in other._ancestors) else ""
        if tied:  # r[impl tensor.inplace.form]
            raise ArgumentError(name, f"{tied}, which would have another form than this one",
                                f"write y = x.{name.removesuffix('_')}(...), or take a .clone()")
        # r[impl tensor.inplace.form]
        self.runtime.keep_forms(name, f"y = x.{name.removesuffix('_')}(...)")
        self.uop = made.uop
        return self

    def unsqueeze_(self, dim: int) -> Self:
        """unsqueeze, of this tensor itself"""
        return self._take_form("unsqueeze_", self.unsqueeze(dim))

    def squeeze_(self, dim: Any = None) -> Self:
        """squeeze, of this tensor itself"""
        return self._take_form("squeeze_", self.squeeze(dim))

    def transpose_(self, dim0: int, dim1: int) -> Self:
        """transpose, of this tensor itself"""
        return self._take_form("transpose_", self.transpose(dim0, dim1))

    swapaxes_ = swapdims_ = transpose_

    def t_(self) -> Self:
        """t, of this tensor itself"""
        return self._take_form("t_", self.t())

    def resize_(self, *size: Any) -> Self:
        """So many of the elements in another shape, of this tensor itself; more of them are 0."""
        return self._take_form("resize_", self._resized(flat_arguments(size)))

    def _resized(self, shape: tuple[int, ...]) -> Self:
        count, had, flat = math.prod(shape), self.numel(), self.reshape(-1)
        flat = flat[:count] if count <= had else flat.pad((0, count - had))
        return flat.reshape(shape)

    def resize_as_(self, the_template: Any) -> Self:
        """resize_ to the shape of another tensor"""
        return self.resize_(*the_template.shape)

    def copy_(self, source: Any) -> Self:
        """Take over the values of another tensor, in this dtype."""
        theirs = self._tensor(source)
        return self.assign(theirs.cast(self.dtype))

    def fill_(self, value: Any) -> Self:
        """One number everywhere."""
        return self.assign(self.full_like(value) if isinstance(value, (bool, int, float))
                           else self._tensor(value).cast(self.dtype))

    def zero_(self) -> Self:
        """Zero everywhere."""
        return self.fill_(0)

    def fill_diagonal_(self, fill_value: float) -> Self:
        """One number on the diagonal of a matrix."""
        line = self.diagonal().full_like(fill_value)
        return self.assign(self.diagonal_scatter(line))

    def normal_(self, mean: float = 0.0, std: float = 1.0) -> Self:
        """Random numbers of the normal distribution."""
        return self.assign(self.normal(self.shape, mean=mean, std=std, dtype=self.dtype,
                                       device=self.device))

    def uniform_(self, low: float = 0.0, high: float = 1.0) -> Self:
        """Random numbers spread evenly over [low, high)."""
        return self.assign(self.uniform(self.shape, low=low, high=high, dtype=self.dtype,
                                        device=self.device))

    def bernoulli_(self, p: float = 0.5) -> Self:
        """1 with probability p, else 0."""
        return self.assign((self.rand(self.shape, device=self.device) < p).cast(self.dtype))

    def exponential_(self, lambd: float = 1.0) -> Self:
        """Random numbers of the exponential distribution."""
        chance = self.rand(self.shape, device=self.device)
        return self.assign((-(1 - chance).log() / lambd).cast(self.dtype))

    def random_(self, low: int = 0, high: int | None = None) -> Self:
        """Whole numbers from `low` to `high - 1` (of one number: from 0 on below that), all as
        likely. Of none: from 0 on, as many as the dtype holds exactly, 2**32 at most.

        Raises:
            ShapeError: there are none between them, they are more than 2**32 apart, or the dtype
                does not hold them.
        """
        kind = self.dtype.kind
        if high is None and not low:
            high = 2 ** SIGNIFICANDS.get(self.dtype, 32) if kind == "f" else int(self.dtype.max) + 1
            high = min(high, 1 << 32)
        elif high is None:
            low, high = 0, low
        if kind != "f" and not int(self.dtype.min) <= low < high <= int(self.dtype.max) + 1:
            # r[impl tensor.arguments.refused+2]
            raise ShapeError("random_", f"there are no numbers from {low} to {high} - 1 in "
                             f"{self.dtype}", "use low < high, and bounds that the dtype holds")
        wanted = self.dtype if kind in "iu" else dtypes.int64
        return self.assign(self.randint(*self.shape, low=low, high=high, dtype=wanted,
                                        device=self.device).cast(self.dtype))

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0) -> Self:
        """Random numbers of Cauchy's distribution."""
        chance = self.rand(self.shape, device=self.device)
        return self.assign((((chance - 0.5) * math.pi).tan() * sigma + median).cast(self.dtype))

    def log_normal_(self, mean: float = 1.0, std: float = 2.0) -> Self:
        """Exponentials of normal numbers."""
        drawn = self.randn(*self.shape, device=self.device)
        return self.assign((drawn * std + mean).exp().cast(self.dtype))

    def geometric_(self, p: float) -> Self:
        """How many tries it takes until something of probability p happens."""
        chance = 1 - self.rand(self.shape, device=self.device)
        return self.assign((chance.log() / math.log1p(-p)).floor().add(1).cast(self.dtype))

    def apply_(self, callable: Any) -> Self:  # noqa: A002
        """The values that a function of Python gives for each; they are computed now."""
        known = self.numpy()
        made = np.array([callable(one) for one in known.reshape(-1).tolist()], known.dtype)
        return self.assign(self.__class__(made.reshape(known.shape), self.device, self.dtype))

    def map_(self, tensor: Any, callable: Any) -> Self:  # noqa: A002
        """The values that a function of Python gives for each and that of another tensor."""
        known = self.numpy()
        theirs = np.broadcast_to(self._tensor(tensor).numpy(), known.shape)
        made = np.array([callable(one, two) for one, two in zip(
            known.reshape(-1).tolist(), theirs.reshape(-1).tolist(), strict=True)], known.dtype)
        return self.assign(self.__class__(made.reshape(known.shape), self.device, self.dtype))

    def detach_(self) -> Self:
        """The value without what it was computed from."""
        return self.replace(self.detach()).requires_grad_(False)

    gcd_ = written(Aliases.gcd)
    lcm_ = written(Aliases.lcm)
    i0_ = written(Aliases.i0)
    put_ = written(Aliases.put)
    renorm_ = written(Aliases.renorm)
    mvlgamma_ = written(Aliases.mvlgamma)
    polygamma_ = written(Aliases.polygamma)
    index_reduce_ = written(Aliases.index_reduce)
    nextafter_ = written(Aliases.nextafter)
    igamma_ = written(Aliases.igamma)
    igammac_ = written(Aliases.igammac)
    rrelu_ = written(Aliases.rrelu)
    conj_physical_ = written(Aliases.conj_physical)

    abs_ = written(Aliases.abs)
    absolute_ = written(Aliases.absolute)
    acos_ = written(Aliases.acos)
    acosh_ = written(Aliases.acosh)
    add_ = written(Aliases.add)
    addbmm_ = written(Aliases.addbmm)
    addcdiv_ = written(Aliases.addcdiv)
    addcmul_ = written(Aliases.addcmul)
    addmm_ = written(Aliases.addmm)
    addmv_ = written(Aliases.addmv)
    addr_ = written(Aliases.addr)
    arccos_ = written(Aliases.arccos)
    arccosh_ = written(Aliases.arccosh)
    arcsin_ = written(Aliases.arcsin)
    arcsinh_ = written(Aliases.arcsinh)
    arctan2_ = written(Aliases.arctan2)
    arctan_ = written(Aliases.arctan)
    arctanh_ = written(Aliases.arctanh)
    asin_ = written(Aliases.asin)
    asinh_ = written(Aliases.asinh)
    atan2_ = written(Aliases.atan2)
    atan_ = written(Aliases.atan)
    atanh_ = written(Aliases.atanh)
    baddbmm_ = written(Aliases.baddbmm)
    bitwise_and_ = written(Aliases.bitwise_and)
    bitwise_left_shift_ = written(Aliases.bitwise_left_shift)
    bitwise_not_ = written(Aliases.bitwise_not)
    bitwise_or_ = written(Aliases.bitwise_or)
    bitwise_right_shift_ = written(Aliases.bitwise_right_shift)
    bitwise_xor_ = written(Aliases.bitwise_xor)
    ceil_ = written(Aliases.ceil)
    celu_ = written(Aliases.celu)
    clamp_ = written(Aliases.clamp)
    clamp_max_ = written(Aliases.clamp_max)
    clamp_min_ = written(Aliases.clamp_min)
    clip_ = written(Aliases.clip)
    copysign_ = written(Aliases.copysign)
    cos_ = written(Aliases.cos)
    cosh_ = written(Aliases.cosh)
    cumprod_ = written(Aliases.cumprod)
    cumsum_ = written(Aliases.cumsum)
    deg2rad_ = written(Aliases.deg2rad)
    digamma_ = written(Aliases.digamma)
    div_ = written(Aliases.div)
    divide_ = written(Aliases.divide)
    elu_ = written(Aliases.elu)
    eq_ = written(Aliases.eq)
    erf_ = written(Aliases.erf)
    erfc_ = written(Aliases.erfc)
    erfinv_ = written(Aliases.erfinv)
    exp2_ = written(Aliases.exp2)
    exp_ = written(Aliases.exp)
    expm1_ = written(Aliases.expm1)
    fix_ = written(Aliases.fix)
    float_power_ = written(Aliases.float_power)
    floor_ = written(Aliases.floor)
    floor_divide_ = written(Aliases.floor_divide)
    fmod_ = written(Aliases.fmod)
    frac_ = written(Aliases.frac)
    ge_ = written(Aliases.ge)
    greater_ = written(Aliases.greater)
    greater_equal_ = written(Aliases.greater_equal)
    gt_ = written(Aliases.gt)
    hardtanh_ = written(Aliases.hardtanh)
    heaviside_ = written(Aliases.heaviside)
    hypot_ = written(Aliases.hypot)
    index_add_ = written(Aliases.index_add)
    index_copy_ = written(Aliases.index_copy)
    index_fill_ = written(Aliases.index_fill)
    index_put_ = written(Aliases.index_put)
    ldexp_ = written(Aliases.ldexp)
    le_ = written(Aliases.le)
    leaky_relu_ = written(Aliases.leaky_relu)
    lerp_ = written(Aliases.lerp)
    less_ = written(Aliases.less)
    less_equal_ = written(Aliases.less_equal)
    lgamma_ = written(Aliases.lgamma)
    log10_ = written(Aliases.log10)
    log1p_ = written(Aliases.log1p)
    log2_ = written(Aliases.log2)
    log_ = written(Aliases.log)
    logical_and_ = written(Aliases.logical_and)
    logical_not_ = written(Aliases.logical_not)
    logical_or_ = written(Aliases.logical_or)
    logical_xor_ = written(Aliases.logical_xor)
    logit_ = written(Aliases.logit)
    lt_ = written(Aliases.lt)
    masked_fill_ = written(Aliases.masked_fill)
    masked_scatter_ = written(Aliases.masked_scatter)
    mul_ = written(Aliases.mul)
    multiply_ = written(Aliases.multiply)
    nan_to_num_ = written(Aliases.nan_to_num)
    ne_ = written(Aliases.ne)
    neg_ = written(Aliases.neg)
    negative_ = written(Aliases.negative)
    not_equal_ = written(Aliases.not_equal)
    pow_ = written(Aliases.pow)
    rad2deg_ = written(Aliases.rad2deg)
    reciprocal_ = written(Aliases.reciprocal)
    relu_ = written(Aliases.relu)
    relu6_ = written(Aliases.relu6)
    remainder_ = written(Aliases.remainder)
    round_ = written(Aliases.round)
    rsqrt_ = written(Aliases.rsqrt)
    scatter_ = written(Aliases.scatter)
    scatter_add_ = written(Aliases.scatter_add)
    scatter_reduce_ = written(Aliases.scatter_reduce)
    selu_ = written(Aliases.selu)
    sgn_ = written(Aliases.sgn)
    sigmoid_ = written(Aliases.sigmoid)
    sign_ = written(Aliases.sign)
    silu_ = written(Aliases.silu)
    sin_ = written(Aliases.sin)
    sinc_ = written(Aliases.sinc)
    sinh_ = written(Aliases.sinh)
    sqrt_ = written(Aliases.sqrt)
    square_ = written(Aliases.square)
    sub_ = written(Aliases.sub)
    subtract_ = written(Aliases.subtract)
    tan_ = written(Aliases.tan)
    tanh_ = written(Aliases.tanh)
    threshold_ = written(Aliases.threshold)
    tril_ = written(Aliases.tril)
    triu_ = written(Aliases.triu)
    true_divide_ = written(Aliases.true_divide)
    trunc_ = written(Aliases.trunc)
    xlogy_ = written(Aliases.xlogy)
