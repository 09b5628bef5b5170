"""Tensors from nothing: constants, ranges, random numbers. Chapter: spec/tensor.md."""
from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Self

from impl.dtypes import DType, Scalar, as_dtype, dtypes
from impl.effects import new_buffer_node
from impl.errors import DTypeError, ShapeError
from impl.gradient import nodes
from impl.gradient.nodes import cast
from impl.host import np
from impl.ir import Ops, Shape, UOp
from impl.multi import Mesh, Sharding
from impl.symbolic import Variable, as_size, is_number, is_symbolic
from impl.tensor.factors import Factors
from impl.tensor.host import dtype_of_number, refuse_outside
from impl.tensor.movement import flat_arguments
from impl.tensor.random import generator, integer_node, normal_node, uniform_node


def _shape(given: tuple[Any, ...], name: str) -> Shape:
    """Sizes given one by one or as one sequence."""
    shape = flat_arguments(flat_arguments(given))
    for size in shape:
        if not hasattr(size, "__index__") or size.__index__() < 0:
            # r[impl tensor.arguments.refused+2]
            raise ShapeError(name, f"{shape} is no shape", "give whole numbers from 0 on")
    return tuple(size if is_symbolic(size) else size.__index__() for size in shape)


def steps_between(start: Any, stop: Any, step: Any) -> int:
    """How many of start, start + step, ... come before stop."""
    given = (start, stop, step)
    if not any(is_symbolic(one) for one in given) or any(isinstance(one, float) for one in given):
        return max(0, math.ceil((stop - start) / step))
    return -(-(stop - start) // step) if (stop - start) * step >= 0 else 0


def _number(value: Any, name: str) -> Scalar:
    """A Python number, also from a NumPy one.

    Raises:
        DTypeError: it is no number.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, (bool, int, float)):  # r[impl tensor.arguments.refused+2]
        raise DTypeError(name, f"{value!r} is no number", "give a bool, an int or a float")
    return plain


def _bounds_first(given: tuple[Any, ...], low: int, high: int) -> tuple[tuple[Any, ...], int, int]:
    """PyTorch's order: the bounds, and then the shape."""
    if len(given) in (2, 3) and isinstance(given[-1], (tuple, list)):
        low, high = (0, *given[:-1])[-2:]
        return (given[-1],), low, high
    return given, low, high


def _float(dtype: Any, name: str) -> DType:
    wanted = dtypes.default_float if dtype is None else as_dtype(dtype)
    if wanted.kind != "f":
        raise DTypeError(name, f"{wanted.name} is no floating dtype", "use a floating dtype")
    return wanted


def _whole_dtype(*ends: Any) -> DType:
    """The default integer type, or int64 if it does not hold the ends."""
    wide = any(isinstance(end, int) and not dtypes.default_int.min <= end <= dtypes.default_int.max
               for end in ends)
    return dtypes.int64 if wide else dtypes.default_int


class Creation(Factors):
    """Class methods that make tensors. All take `device`, and `requires_grad` where it fits."""

    __slots__ = ()

    @classmethod
    def full(cls, shape: Any, fill_value: Any, dtype: Any = None, device: str | None = None,
             requires_grad: bool = False) -> Self:
        """One number everywhere; its dtype follows the number unless one is given.

        Raises:
            DTypeError: `fill_value` is no number.
            ShapeError: `shape` is no shape.
        """
        if isinstance(fill_value, (UOp, Variable)) or is_symbolic(fill_value):
            wanted = dtypes.default_int if dtype is None else as_dtype(dtype)
            return cls.full(shape, 0, wanted, device, requires_grad) + fill_value
        fill = _number(fill_value, "full")
        natural = as_dtype(fill_value.dtype) if isinstance(fill_value, np.generic) else None
        wanted = natural or dtype_of_number(fill) if dtype is None else as_dtype(dtype)
        if isinstance(fill_value, int):
            refuse_outside("full", fill_value, fill_value, wanted)
        sizes = _shape((shape,), "full")
        return cls._made(nodes.full(UOp.const(wanted, fill), sizes), device, requires_grad)

    @classmethod
    def zeros(cls, *shape: Any, dtype: Any = None, device: str | None = None,
              requires_grad: bool = False) -> Self:
        """Zeros, as the default float unless a dtype is given."""
        wanted = dtypes.default_float if dtype is None else dtype
        return cls.full(flat_arguments(shape), 0, wanted, device, requires_grad)

    @classmethod
    def ones(cls, *shape: Any, dtype: Any = None, device: str | None = None,
             requires_grad: bool = False) -> Self:
        """Ones, as the default float unless a dtype is given."""
        wanted = dtypes.default_float if dtype is None else dtype
        return cls.full(flat_arguments(shape), 1, wanted, device, requires_grad)

    @classmethod
    def empty(cls, *shape: Any, dtype: Any = None, device: str | None = None,
              requires_grad: bool = False) -> Self:
        """Memory of its own, whose values are not specified until something is assigned."""
        wanted = dtypes.default_float if dtype is None else as_dtype(dtype)
        sizes, place = _shape(shape, "empty"), cls._device(device)
        sharding = Sharding.copies(place, len(sizes)) if isinstance(place, Mesh) else None
        node = new_buffer_node(place, wanted, sizes, sharding=sharding)
        return cls._made(node, place, requires_grad)

    def full_like(self, fill_value: Scalar, dtype: Any = None, device: Any = None,
                  requires_grad: bool = False) -> Self:
        """One number in this tensor's shape and dtype, cut as it is where it lies on a mesh."""
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        fill = _number(fill_value, "full_like")
        if isinstance(fill_value, int):
            refuse_outside("full_like", fill_value, fill_value, wanted)
        return self._laid_like(nodes.full(UOp.const(wanted, fill), self.shape)) \
            ._as_asked(device, requires_grad)

    def _as_asked(self, device: Any, requires_grad: bool) -> Self:
        """A new tensor, on the device that was asked for, and wanting a gradient if it was."""
        made = self if device is None else self.to(device)
        return made.requires_grad_() if requires_grad else made

    def _laid_like(self, value: UOp) -> Self:
        """A value of this tensor's shape, cut as it is where it lies on a mesh."""
        if isinstance(self.device, Mesh):
            value = UOp(Ops.SHARD, value.dtype, (value,), self.sharding)
        return self._wrap(value)

    def zeros_like(self, dtype: Any = None, device: Any = None,
                   requires_grad: bool = False) -> Self:
        """Zeros in this tensor's shape and dtype."""
        return self.full_like(0, dtype, device, requires_grad)

    def ones_like(self, dtype: Any = None, device: Any = None,
                  requires_grad: bool = False) -> Self:
        """Ones in this tensor's shape and dtype."""
        return self.full_like(1, dtype, device, requires_grad)

    def empty_like(self, dtype: Any = None, device: Any = None,
                   requires_grad: bool = False) -> Self:
        """Memory of its own in this tensor's shape and dtype, on its devices."""
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        node = new_buffer_node(self.device, wanted, self.shape,
                               sharding=self.runtime.sharding(self))
        return self._made(node, self.device)._as_asked(device, requires_grad)

    @classmethod
    def arange(cls, start: float, stop: float | None = None, step: float = 1, dtype: Any = None,
               device: str | None = None) -> Self:
        """start, start + step, ... below stop (above it for a negative step)."""
        start, stop, step = as_size(start), as_size(stop), as_size(step)
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise ShapeError("arange", "the step is 0", "use another step")
        whole = all(isinstance(one, int) for one in (start, stop, step))
        natural = _whole_dtype(start, stop) if whole else dtypes.default_float
        wanted = natural if dtype is None else as_dtype(dtype)
        count = steps_between(start, stop, step)
        if is_number(count, 0):
            return cls._made(nodes.full(UOp.const(wanted, 0), (0,)), device)
        # In the wider type, so that 300 steps of a small integer type wrap only at the end.
        narrow = wanted.kind in "biu" and (wanted.itemsize <= natural.itemsize or not whole)
        between = natural if narrow else wanted
        line = cast(nodes.iota(count), between)
        scaled = nodes.mul(line, nodes.scalar(between, step))
        moved = scaled if is_number(start, 0) else nodes.add(scaled, nodes.scalar(between, start))
        return cls._made(cast(moved, wanted), device)

    @classmethod
    def linspace(cls, start: float, stop: float, steps: int, dtype: Any = None,
                 device: str | None = None) -> Self:
        """`steps` numbers from start to stop, both included, equally far apart; integers cut off.

        Raises:
            ShapeError: `steps` is no whole number from 0 on.
        """
        if dtype is not None and as_dtype(dtype).kind in "iu":
            return cls.linspace(start, stop, steps, dtypes.float64, device).cast(dtype)
        wanted = _float(dtype, "linspace")
        (steps,) = _shape((steps,), "linspace")
        if steps < 2:
            return cls.full((steps,), float(start), wanted, device)
        line = cast(nodes.iota(steps), wanted)
        # From the nearer end, so that both ends are exact.
        distance = (stop - start) / (steps - 1)
        up = nodes.add(nodes.scale(line, distance), UOp.const(wanted, start))
        left = nodes.sub(UOp.const(wanted, steps - 1), line)
        down = nodes.sub(UOp.const(wanted, stop), nodes.scale(left, distance))
        first_half = UOp(Ops.CMPLT, dtypes.bool, (line, UOp.const(wanted, steps / 2)))
        return cls._made(nodes.where(first_half, up, down), device)

    @classmethod
    def logspace(cls, start: float, stop: float, steps: int, base: float = 10.0,
                 dtype: Any = None, device: str | None = None) -> Self:
        """Powers of a base, whose exponents go from start to stop, equally far apart."""
        wanted = None if dtype is None else as_dtype(dtype)
        if wanted is not None and wanted.kind in "iu":
            powers = base ** cls.linspace(start, stop, steps, dtypes.float64, device)
            return powers.cast(wanted)
        return base ** cls.linspace(start, stop, steps, dtype, device)

    @classmethod
    def eye(cls, rows: int, columns: int | None = None, dtype: Any = None,
            device: str | None = None, requires_grad: bool = False) -> Self:
        """Ones on the diagonal, zeros elsewhere.

        Raises:
            ShapeError: a size is no whole number from 0 on.
        """
        wanted = dtypes.default_float if dtype is None else as_dtype(dtype)
        shape = _shape((rows, rows if columns is None else columns), "eye")
        row = nodes.expand(nodes.iota_along(shape[0], 0, 2), shape)
        column = nodes.expand(nodes.iota_along(shape[1], 1, 2), shape)
        node = cast(UOp(Ops.CMPEQ, dtypes.bool, (row, column)), wanted)
        return cls._made(node, device, requires_grad)

    @classmethod
    def scalar_tensor(cls, value: Any, dtype: Any = None, device: str | None = None,
                      requires_grad: bool = False) -> Self:
        """A number as a tensor."""
        return cls(value, device, dtypes.default_float if dtype is None else dtype, requires_grad)

    @classmethod
    def tril_indices(cls, row: int, col: int, offset: int = 0, dtype: Any = None,
                     device: str | None = None) -> Self:
        """The places of the elements on and below a diagonal of a matrix: (2, count)."""
        return cls(np.stack(np.tril_indices(row, offset, col)), device,
                   dtypes.default_int if dtype is None else dtype)

    @classmethod
    def triu_indices(cls, row: int, col: int, offset: int = 0, dtype: Any = None,
                     device: str | None = None) -> Self:
        """The places of the elements on and above a diagonal of a matrix: (2, count)."""
        return cls(np.stack(np.triu_indices(row, offset, col)), device,
                   dtypes.default_int if dtype is None else dtype)

    def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
        """All choices of r elements of a vector, as rows."""
        choose = itertools.combinations_with_replacement if with_replacement \
            else itertools.combinations
        places = list(choose(range(self.shape[0]), r))
        table = np.array(places, np.int64).reshape(len(places), r)
        if not len(table) or not r:
            return self.reshape(-1)[:0].reshape(0, *((r,) if r else ()))
        return self.index_select(0, table.reshape(-1).tolist()).reshape(len(table), r)

    # Windows

    @classmethod
    def _cosine_window(cls, terms: Sequence[float], length: int, periodic: bool, dtype: Any,
                       device: str | None) -> Self:
        """Sums of cosines with these factors, of turning signs."""
        if length == 1:
            return cls(np.ones(1), device, _float(dtype, "window"))
        angle = np.arange(length) * (2 * math.pi / max(length if periodic else length - 1, 1))
        line = sum(((-1) ** k * factor * np.cos(k * angle) for k, factor in enumerate(terms)),
                   np.zeros(length))
        return cls(line, device, _float(dtype, "window"))

    @classmethod
    def hann_window(cls, window_length: int, periodic: bool = True, dtype: Any = None,
                    device: str | None = None) -> Self:
        """(1 - cos) / 2 of a turn."""
        return cls._cosine_window((0.5, 0.5), window_length, periodic, dtype, device)

    @classmethod
    def hamming_window(cls, window_length: int, periodic: bool = True, alpha: float = 0.54,
                       beta: float = 0.46, dtype: Any = None, device: str | None = None) -> Self:
        """alpha - beta * cos of a turn."""
        return cls._cosine_window((alpha, beta), window_length, periodic, dtype, device)

    @classmethod
    def blackman_window(cls, window_length: int, periodic: bool = True, dtype: Any = None,
                        device: str | None = None) -> Self:
        """A window of three cosines."""
        return cls._cosine_window((0.42, 0.5, 0.08), window_length, periodic, dtype, device)

    @classmethod
    def bartlett_window(cls, window_length: int, periodic: bool = True, dtype: Any = None,
                        device: str | None = None) -> Self:
        """A triangle."""
        line = np.bartlett(window_length + 1)[:-1] if periodic and window_length > 1 \
            else np.bartlett(window_length)
        return cls(line, device, _float(dtype, "window"))

    @classmethod
    def kaiser_window(cls, window_length: int, periodic: bool = True, beta: float = 12.0,
                      dtype: Any = None, device: str | None = None) -> Self:
        """Kaiser's window."""
        line = np.kaiser(window_length + 1, beta)[:-1] if periodic and window_length > 1 \
            else np.kaiser(window_length, beta)
        return cls(line, device, _float(dtype, "window"))

    # Random numbers

    @staticmethod
    def manual_seed(seed: int = 0) -> None:
        """Start the random numbers again: the same seed gives the same numbers."""
        try:
            generator.seed(operator.index(seed))  # r[impl tensor.random.bits]
        except TypeError:  # r[impl tensor.arguments.refused+2]
            raise DTypeError("manual_seed", f"{seed!r} is no whole number",
                             "give one: 42") from None

    @classmethod
    def get_rng_state(cls) -> Self:
        """Where the random numbers are, to be saved beside a model: 16 bytes, as `uint8`."""
        return cls(np.frombuffer(generator.state(), np.uint8))

    @staticmethod
    def set_rng_state(new_state: Any) -> None:
        """Go on with the random numbers where `get_rng_state` was called.

        Raises:
            DTypeError: it is something else than that returned.
        """
        state = np.asarray(new_state)
        if state.dtype != np.uint8 or state.shape != (16,):
            # r[impl tensor.arguments.refused+2]
            raise DTypeError("set_rng_state", f"{state.dtype} of shape {state.shape} is no state "
                             "of random numbers", "give what Tensor.get_rng_state() returned")
        generator.restore(state.tobytes())  # r[impl tensor.random.bits]

    @classmethod
    def rand(cls, *shape: Any, dtype: Any = None, device: str | None = None,
             requires_grad: bool = False) -> Self:
        """Floats spread evenly over [0, 1)."""
        node = uniform_node(_shape(shape, "rand"), _float(dtype, "rand"))
        return cls._made(node, device, requires_grad)

    @classmethod
    def randn(cls, *shape: Any, dtype: Any = None, device: str | None = None,
              requires_grad: bool = False) -> Self:
        """Floats of the normal distribution with mean 0 and variance 1."""
        node = normal_node(_shape(shape, "randn"), _float(dtype, "randn"))
        return cls._made(node, device, requires_grad)

    @classmethod
    def randint(cls, *shape: Any, low: int = 0, high: int = 10, dtype: Any = None,
                device: str | None = None) -> Self:
        """Whole numbers from `low` to `high - 1`, int32 unless another dtype is given.

        PyTorch's order, `Tensor.randint(low, high, (2, 3))`, is understood, too.
        """
        wanted = dtypes.default_int if dtype is None else as_dtype(dtype)
        shape, low, high = _bounds_first(shape, low, high)
        if high <= low or high - low > 1 << 32:
            raise ShapeError("randint", f"there are no numbers from {low} to {high} - 1 to choose",
                             "use low < high, at most 2**32 apart")
        return cls._made(integer_node(_shape(shape, "randint"), low, high, wanted), device)

    @classmethod
    def uniform(cls, *shape: Any, low: float = 0.0, high: float = 1.0, dtype: Any = None,
                device: str | None = None, requires_grad: bool = False) -> Self:
        """Floats spread evenly over [low, high)."""
        wanted = _float(dtype, "uniform")
        node = nodes.scale(uniform_node(_shape(shape, "uniform"), wanted), high - low)
        node = nodes.add(node, UOp.const(wanted, low)) if low else node
        return cls._made(node, device, requires_grad)

    @classmethod
    def normal(cls, *shape: Any, mean: float = 0.0, std: float = 1.0, dtype: Any = None,
               device: str | None = None, requires_grad: bool = False) -> Self:
        """Floats of the normal distribution."""
        wanted = _float(dtype, "normal")
        node = nodes.scale(normal_node(_shape(shape, "normal"), wanted), std)
        node = nodes.add(node, UOp.const(wanted, mean)) if mean else node
        return cls._made(node, device, requires_grad)

    @classmethod
    def scaled_uniform(cls, *shape: Any, dtype: Any = None, device: str | None = None,
                       requires_grad: bool = False) -> Self:
        """uniform over (-1, 1), divided by the square root of the number of elements."""
        bound = math.prod(_shape(shape, "scaled_uniform")) ** -0.5
        return cls.uniform(*shape, low=-bound, high=bound, dtype=dtype, device=device,
                           requires_grad=requires_grad)

    @classmethod
    def glorot_uniform(cls, *shape: Any, dtype: Any = None, device: str | None = None,
                       requires_grad: bool = False) -> Self:
        """uniform, with the bound of Glorot and Bengio (2010)."""
        sizes = _shape(shape, "glorot_uniform")
        bound = (6 / (sizes[0] + math.prod(sizes[1:]))) ** 0.5
        return cls.uniform(sizes, low=-bound, high=bound, dtype=dtype, device=device,
                           requires_grad=requires_grad)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, dtype: Any = None,
                        device: str | None = None, requires_grad: bool = False) -> Self:
        """uniform, with the bound of He and others (2015) for leaky ReLU of slope `a`."""
        sizes = _shape(shape, "kaiming_uniform")
        bound = (6 / (1 + a ** 2) / math.prod(sizes[1:])) ** 0.5
        return cls.uniform(sizes, low=-bound, high=bound, dtype=dtype, device=device,
                           requires_grad=requires_grad)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, dtype: Any = None,
                       device: str | None = None, requires_grad: bool = False) -> Self:
        """normal, with the deviation of He and others (2015) for leaky ReLU of slope `a`."""
        sizes = _shape(shape, "kaiming_normal")
        return cls.normal(sizes, std=(2 / (1 + a ** 2) / math.prod(sizes[1:])) ** 0.5, dtype=dtype,
                          device=device, requires_grad=requires_grad)

    def rand_like(self, dtype: Any = None, device: Any = None,
                  requires_grad: bool = False) -> Self:
        """rand in this tensor's shape and dtype."""
        wanted = self.dtype if dtype is None else dtype
        made = self._laid_like(self.rand(self.shape, dtype=wanted, device=self.device).uop)
        return made._as_asked(device, requires_grad)

    def randn_like(self, dtype: Any = None, device: Any = None,
                   requires_grad: bool = False) -> Self:
        """randn in this tensor's shape and dtype."""
        wanted = self.dtype if dtype is None else dtype
        made = self._laid_like(self.randn(self.shape, dtype=wanted, device=self.device).uop)
        return made._as_asked(device, requires_grad)

    def randint_like(self, low: int = 0, high: int = 10, dtype: Any = None,
                     device: Any = None) -> Self:
        """randint in this tensor's shape and dtype."""
        wanted = self.dtype if dtype is None else dtype
        made = self._laid_like(self.randint(self.shape, low=low, high=high, dtype=wanted,
                                            device=self.device).uop)
        return made._as_asked(device, False)

    def bernoulli(self, p: float | None = None) -> Self:
        """1 with the probability that each element says (or with probability p), else 0."""
        chance = self.rand(self.shape, device=self.device)
        return (chance < (self if p is None else p)).cast(self.dtype)

    @classmethod
    def randperm(cls, count: int, device: str | None = None) -> Self:
        """0, ..., count-1 in random order."""
        return cls.rand(count, device=device).argsort()

    def poisson(self, generator: Any = None) -> Self:
        """Counts of what happens at these rates: how many waiting times are over before 1.

        The greatest rate is computed, since the number of waiting times depends on it.
        """
        rates = self.detach()
        most = float(rates.max().known("poisson", "a rate that is a number").item()) \
            if self.numel() else 0.0
        if not 0 <= most < math.inf:  # r[impl tensor.arguments.refused+2]
            raise ShapeError("poisson", f"the greatest rate is {most}", "give rates of 0 or more")
        with generator or nullcontext():
            chance = 1 - self.rand((math.ceil(most + 10 * most ** 0.5) + 16, *self.shape),
                                   device=self.device)
        over = (-chance.log()).cumsum(0) < rates
        return over.sum(0).cast(self.dtype)

    def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
        """Places along the last axis, drawn with probabilities proportional to the elements.

        The elements are not looked at: where one is negative, or all are 0, the places mean
        nothing.

        Without replacement each place is drawn once: those with the least waiting times, which are
        exponential with the element as rate (Efraimidis and Spirakis, 2006).
        """
        weights = self.unsqueeze(0) if len(self.shape) == 1 else self
        if num_samples != 1 and not replacement:
            chance = 1 - self.rand(weights.shape, device=self.device)
            waiting = (weights > 0).where(-chance.log() / weights, math.inf)
            place = waiting.topk(num_samples, 1, largest=False).indices
            return place.squeeze(0) if len(self.shape) == 1 else place
        bounds = (weights.cumsum(1) / weights.sum(1, keepdim=True)).unsqueeze(1)
        chance = self.rand(weights.shape[0], num_samples, 1, device=self.device)
        place = (chance >= bounds).sum(2).minimum(weights.shape[1] - 1)
        return place.squeeze(0) if len(self.shape) == 1 else place
