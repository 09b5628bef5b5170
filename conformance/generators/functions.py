"""Functions of tensors drawn by chance, each written twice: for `impl` and for JAX.

A function is a list of steps on a growing list of values, so it can be printed and run by anybody
who has the table of operations. Values have at most two axes, of sizes 1 to 3, and stay moderate.
"""
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """An operation on one or two values; `shape` gives the shape of the result, or None."""

    name: str
    inputs: int
    shape: Callable[..., Shape | None]
    impl: Callable[..., Any]
    jax: Callable[..., Any]  # gets jax.numpy as its first argument
    forward: bool = True     # whether JAX has a derivative forwards, too
    plain: bool = True       # whether the derivative is the limit of differences


def _same(shape: Shape) -> Shape:
    return shape


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    pairs = list(zip(a, b, strict=True))
    return tuple(map(max, pairs)) if all(x == y or 1 in (x, y) for x, y in pairs) else None


def _matmul(a: Shape, b: Shape) -> Shape | None:
    return (a[0], b[1]) if len(a) == len(b) == 2 and a[1] == b[0] else None


def _first_less(shape: Shape) -> Shape | None:
    return shape[1:] if shape else None


def _kept(shape: Shape) -> Shape | None:
    return (*shape[:-1], 1) if shape else None


def _ranked(shape: Shape) -> Shape | None:
    return shape or None


def _turned(shape: Shape) -> Shape | None:
    return shape[::-1] if len(shape) == 2 else None


def _flat(shape: Shape) -> Shape:
    count = 1
    for size in shape:
        count *= size
    return (count,)


def _longer(shape: Shape) -> Shape | None:
    return (*shape[:-1], shape[-1] + 2) if shape and shape[-1] < 3 else None


def _cut(shape: Shape) -> Shape | None:
    return (*shape[:-1], shape[-1] - 1) if shape and shape[-1] > 1 else None


def _rows(shape: Shape) -> Shape | None:
    return (3, *shape[1:]) if shape and shape[0] > 1 else None


def _windows(shape: Shape) -> Shape | None:
    return (*shape[:-1], shape[-1] - 1, 2) if shape and len(shape) == 1 and shape[-1] > 1 else None


def _written(x: Any) -> Any:
    x = x * 1
    x[0] = x[-1] * 2
    return x


def _picked(x: Any) -> Any:
    from impl import Tensor
    return x[Tensor([1, 0, 1], device=x.device)]


def _matrix(shape: Shape) -> Shape | None:
    return shape if len(shape) == 2 else None


def _square(shape: Shape) -> Shape | None:
    return (shape[0], shape[0]) if len(shape) == 2 else None


def _solved(shape: Shape) -> Shape | None:
    return (shape[0],) if len(shape) == 2 else None


def _number(shape: Shape) -> Shape | None:
    return () if len(shape) == 2 else None


def _taller(a: Shape, b: Shape) -> Shape | None:
    return (a[0] + b[0], *a[1:]) if a and b and a[1:] == b[1:] and a[0] + b[0] <= 4 else None


def _convolved(a: Shape, b: Shape) -> Shape | None:
    fits = len(a) == len(b) == 2 and all(x >= y for x, y in zip(a, b, strict=True))
    return tuple(x - y + 1 for x, y in zip(a, b, strict=True)) if fits else None


def _table(a: Shape, b: Shape) -> Shape | None:
    return (*b, *a[1:]) if a and b and len(a) + len(b) <= 3 else None


def _outer(a: Shape, b: Shape) -> Shape | None:
    return (*a, *b) if len(a) == len(b) == 1 else None


def _one(shape: Shape) -> Shape | None:
    return (*shape[:-1], 1) if shape else None


def _symmetric(np: Any, x: Any) -> Any:
    """A positive matrix of rows, without eigenvalues that are equal."""
    return x @ x.T + np.diag(np.arange(1.0, x.shape[0] + 1))


def _positive(x: Any) -> Any:
    """The same of `impl`."""
    from impl import Tensor
    return x @ x.mT + Tensor.arange(1.0, x.shape[-2] + 1, dtype=x.dtype, device=x.device).diag()


def _lax() -> Any:
    from jax import lax
    return lax


def _func() -> Any:
    from impl import func
    return func


def _jax() -> Any:
    import jax
    return jax


def _running(np: Any, scan: Any, x: Any, reverse: bool) -> Any:
    """A recurrence over rows, of both libraries."""
    def step(carry: Any, row: Any) -> Any:
        following = np.tanh(carry * 0.5 + row)
        return following, following * carry + row
    return scan(step, x[0] * 0, x, reverse=reverse)[1]


class _Methods:
    """What a function that is written for jax.numpy calls, of tensors."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda x: getattr(x, name)()


def _nested(np: Any, scan: Any, x: Any) -> Any:
    """A loop in a loop."""
    def inner(carry: Any, element: Any) -> Any:
        return carry + np.sin(element * carry), carry

    def outer(carry: Any, row: Any) -> Any:
        last, seen = scan(inner, carry, row)
        return np.tanh(last), seen * carry
    return scan(outer, x[0, 0] * 0 + 0.5, x)[1]


def _times(cond: Any, x: Any) -> Any:
    """One of two functions, by a value."""
    return cond(x.sum() > 0.1, lambda y: y * y.sum(), lambda y: 1 / (y * y + 1), x)


def _strange(x: Any) -> Any:
    func = _func()
    return func.custom_gradient(lambda y: (y * y, lambda slope: slope * y * 5))(x)


def _strange_of_jax(x: Any) -> Any:
    jax = _jax()

    @jax.custom_vjp
    def squared(y: Any) -> Any:
        return y * y
    squared.defvjp(lambda y: (y * y, y), lambda y, slope: (slope * y * 5,))
    return squared(x)


def _again(x: Any) -> Any:
    return _func().checkpoint(lambda y: (y.sin() * y).tanh())(x)


def _added(x: Any) -> Any:
    """Rows that are added at places, some of them twice."""
    from impl import Tensor
    places = Tensor([0] * x.shape[0], device=x.device, dtype="int32")
    return (x * 1).index_add(0, places, x.sin())


def _spread(x: Any) -> Any:
    from impl import Tensor
    index = Tensor([x.shape[0] - 1], device=x.device, dtype="int32")
    return (x * x).index_copy(0, index, x[:1].sin())


OPERATIONS: tuple[Operation, ...] = (
    Operation("sin", 1, _same, lambda x: x.sin(), lambda np, x: np.sin(x)),
    Operation("tanh", 1, _same, lambda x: x.tanh(), lambda np, x: np.tanh(x)),
    Operation("exp of tanh", 1, _same, lambda x: x.tanh().exp(), lambda np, x: np.exp(np.tanh(x))),
    Operation("log", 1, _same, lambda x: (x * x + 1).log(), lambda np, x: np.log(x * x + 1)),
    Operation("sqrt", 1, _same, lambda x: (x * x + 1).sqrt(), lambda np, x: np.sqrt(x * x + 1)),
    Operation("reciprocal", 1, _same, lambda x: 1 / (x * x + 2), lambda np, x: 1 / (x * x + 2)),
    Operation("sigmoid", 1, _same, lambda x: x.sigmoid(), lambda np, x: 1 / (1 + np.exp(-x))),
    Operation("cube", 1, _same, lambda x: x.tanh() ** 3, lambda np, x: np.tanh(x) ** 3),
    Operation("erf-like", 1, _same, lambda x: (-x * x).exp(), lambda np, x: np.exp(-x * x)),
    Operation("add", 2, _broadcast, lambda x, y: x + y, lambda np, x, y: x + y),
    Operation("sub", 2, _broadcast, lambda x, y: x - y, lambda np, x, y: x - y),
    Operation("mul", 2, _broadcast, lambda x, y: x.sin() * y, lambda np, x, y: np.sin(x) * y),
    Operation("div", 2, _broadcast, lambda x, y: x / (y * y + 1), lambda np, x, y: x / (y * y + 1)),
    Operation("pow", 2, _broadcast, lambda x, y: (x * x + 1) ** y.tanh(),
              lambda np, x, y: (x * x + 1) ** np.tanh(y)),
    Operation("where", 2, _broadcast, lambda x, y: (x < y).where(x * x, y),
              lambda np, x, y: np.where(x < y, x * x, y)),
    Operation("maximum", 2, _broadcast, lambda x, y: x.maximum(y),
              lambda np, x, y: np.maximum(x, y)),
    Operation("matmul", 2, _matmul, lambda x, y: x @ y, lambda np, x, y: x @ y),
    Operation("sum", 1, _first_less, lambda x: x.sum(0), lambda np, x: x.sum(0)),
    Operation("mean", 1, _kept, lambda x: x.mean(-1, keepdim=True),
              lambda np, x: x.mean(-1, keepdims=True)),
    Operation("max", 1, _first_less, lambda x: x.max(0), lambda np, x: x.max(0)),
    Operation("prod", 1, _first_less, lambda x: x.prod(0), lambda np, x: x.prod(0)),
    Operation("softmax", 1, _ranked, lambda x: x.softmax(-1), lambda np, x: np.exp(
        x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(
            -1, keepdims=True)),
    Operation("logsumexp", 1, _first_less, lambda x: x.logsumexp(0),
              lambda np, x: np.log(np.exp(x).sum(0))),
    Operation("cumsum", 1, _ranked, lambda x: x.cumsum(-1), lambda np, x: np.cumsum(x, -1)),
    Operation("cumprod", 1, _ranked, lambda x: x.sin().cumprod(-1),
              lambda np, x: np.cumprod(np.sin(x), -1)),
    Operation("turned", 1, _turned, lambda x: x.permute(1, 0), lambda np, x: x.T),
    Operation("flat", 1, _flat, lambda x: x.reshape(-1), lambda np, x: x.reshape(-1)),
    Operation("flip", 1, _ranked, lambda x: x.flip(-1), lambda np, x: np.flip(x, -1)),
    Operation("pad", 1, _longer, lambda x: x.pad((1, 1)), lambda np, x: np.pad(
        x, [(0, 0)] * (x.ndim - 1) + [(1, 1)])),
    Operation("cut", 1, _cut, lambda x: x[..., 1:], lambda np, x: x[..., 1:]),
    Operation("rows", 1, _rows, _picked, lambda np, x: x[np.array([1, 0, 1])]),
    Operation("windows", 1, _windows, lambda x: x.unfold(0, 2, 1),
              lambda np, x: np.stack([x[:-1], x[1:]], -1)),
    Operation("written", 1, _ranked, _written, lambda np, x: x.at[0].set(x[-1] * 2)),
    Operation("abs", 1, _same, lambda x: (x + 0.01).abs(), lambda np, x: np.abs(x + 0.01)),
    Operation("sign", 1, _same, lambda x: x.sign() * x, lambda np, x: np.sign(x) * x),
    Operation("floor", 1, _same, lambda x: (x * 3).floor() * x, lambda np, x: np.floor(x * 3) * x),
    Operation("clip", 1, _same, lambda x: (x * 1.01).clip(-0.5, 0.7),
              lambda np, x: np.clip(x * 1.01, -0.5, 0.7)),
    Operation("relu", 1, _same, lambda x: x.relu() * x,
              lambda np, x: _jax().nn.relu(x) * x),
    Operation("gelu", 1, _same, lambda x: x.gelu(),
              lambda np, x: _jax().nn.gelu(x, approximate=False)),
    Operation("softplus", 1, _same, lambda x: x.softplus(), lambda np, x: _jax().nn.softplus(x)),
    Operation("log1p", 1, _same, lambda x: (x * x).log1p(), lambda np, x: np.log1p(x * x)),
    Operation("expm1", 1, _same, lambda x: x.tanh().expm1(),
              lambda np, x: np.expm1(np.tanh(x))),
    Operation("erf", 1, _same, lambda x: x.erf(), lambda np, x: _jax().scipy.special.erf(x)),
    Operation("lgamma", 1, _same, lambda x: (x * x + 1).lgamma(),
              lambda np, x: _jax().scipy.special.gammaln(x * x + 1)),
    Operation("atan2", 2, _broadcast, lambda x, y: (x + 0.01).atan2(y * y + 1),
              lambda np, x, y: np.arctan2(x + 0.01, y * y + 1)),
    Operation("logaddexp", 2, _broadcast, lambda x, y: x.logaddexp(y),
              lambda np, x, y: np.logaddexp(x, y)),
    Operation("hypot", 2, _broadcast, lambda x, y: (x + 2).hypot(y),
              lambda np, x, y: np.hypot(x + 2, y)),
    Operation("minimum", 2, _broadcast, lambda x, y: x.minimum(y),
              lambda np, x, y: np.minimum(x, y)),
    Operation("min", 1, _first_less, lambda x: x.min(0), lambda np, x: x.min(0)),
    Operation("var", 1, _kept, lambda x: x.var(-1, keepdim=True, correction=0),
              lambda np, x: x.var(-1, keepdims=True)),
    Operation("norm", 1, _kept, lambda x: (x * x + 1).norm(2, -1, keepdim=True),
              lambda np, x: np.sqrt(((x * x + 1) ** 2).sum(-1, keepdims=True))),
    Operation("sort", 1, _ranked, lambda x: x.sort(-1)[0] * x,
              lambda np, x: np.sort(x, -1) * x),
    Operation("gather", 1, _ranked, lambda x: x.sin().gather(-1, x.argsort(-1)),
              lambda np, x: np.take_along_axis(np.sin(x), np.argsort(x, -1), -1)),
    Operation("top", 1, _one, lambda x: x.topk(1)[0], lambda np, x: _lax().top_k(x, 1)[0]),
    Operation("chosen rows", 2, _table, lambda x, y: x[(y > 0).int() * (x.shape[0] - 1)],
              lambda np, x, y: x[(y > 0).astype(int) * (x.shape[0] - 1)]),
    Operation("argmax", 1, _ranked, lambda x: x * x.argmax(-1, keepdim=True),
              lambda np, x: x * np.argmax(x, -1, keepdims=True)),
    Operation("scatter of sums", 1, _ranked, _added,
              lambda np, x: x.at[np.zeros(x.shape[0], int)].add(np.sin(x))),
    Operation("scatter", 1, _ranked, _spread,
              lambda np, x: (x * x).at[x.shape[0] - 1].set(np.sin(x[0]))),
    Operation("cummax", 1, _ranked, lambda x: (x + 0.001).cummax(-1) * x,
              lambda np, x: _lax().cummax(x + 0.001, x.ndim - 1) * x),
    Operation("logcumsumexp", 1, _ranked, lambda x: x.logcumsumexp(-1),
              lambda np, x: _lax().cumlogsumexp(x, x.ndim - 1)),
    Operation("roll", 1, _ranked, lambda x: x.roll(1, -1) * x, lambda np, x: np.roll(x, 1, -1) * x),
    Operation("tril", 1, _matrix, lambda x: x.tril(), lambda np, x: np.tril(x)),
    Operation("cat", 2, _taller, lambda x, y: x.cat(y * y, dim=0),
              lambda np, x, y: np.concatenate([x, y * y], 0)),
    Operation("outer", 2, _outer, lambda x, y: x.outer(y), lambda np, x, y: np.outer(x, y)),
    Operation("convolution", 2, _convolved, lambda x, y: x[None, None].conv2d(
        y[None, None])[0, 0], lambda np, x, y: _lax().conv_general_dilated(
            x[None, None], y[None, None], (1, 1), "VALID")[0, 0]),
    Operation("inverse", 1, _square, lambda x: _positive(x).inverse(),
              lambda np, x: np.linalg.inv(_symmetric(np, x))),
    Operation("determinant", 1, _number, lambda x: _positive(x).slogdet()[1],
              lambda np, x: np.linalg.slogdet(_symmetric(np, x))[1]),
    Operation("solution", 1, _solved, lambda x: _positive(x).solve(x[:, 0]),
              lambda np, x: np.linalg.solve(_symmetric(np, x), x[:, 0])),
    Operation("cholesky", 1, _square, lambda x: _positive(x).cholesky(),
              lambda np, x: np.linalg.cholesky(_symmetric(np, x))),
    Operation("eigenvalues", 1, _solved, lambda x: _positive(x).eigvalsh(),
              lambda np, x: np.linalg.eigvalsh(_symmetric(np, x))),
    Operation("scan", 1, _matrix, lambda x: _running(_Methods(), _func().scan, x, False),
              lambda np, x: _running(np, _lax().scan, x, False)),
    Operation("scan back", 1, _ranked, lambda x: _running(_Methods(), _func().scan, x, True),
              lambda np, x: _running(np, _lax().scan, x, True)),
    Operation("scan of scans", 1, _matrix, lambda x: _nested(_Methods(), _func().scan, x),
              lambda np, x: _nested(np, _lax().scan, x)),
    Operation("condition", 1, _same, lambda x: _times(_func().cond, x),
              lambda np, x: _times(_lax().cond, x)),
    Operation("one's own gradient", 1, _same, _strange, lambda np, x: _strange_of_jax(x),
              forward=False, plain=False),
    Operation("stopped", 1, _same, lambda x: x * _func().stop_gradient(x.sin()),
              lambda np, x: x * _lax().stop_gradient(np.sin(x)), plain=False),
    Operation("again", 1, _same, _again, lambda np, x: np.tanh(np.sin(x) * x)),
    Operation("slopes within", 1, _same, lambda x: _func().grad(lambda y: (y ** 3).sum())(x),
              lambda np, x: _jax().grad(lambda y: (y ** 3).sum())(x)),
    Operation("rows within", 1, _matrix,
              lambda x: _func().vmap(lambda row: row * row.sum(), 1, 1)(x),
              lambda np, x: _jax().vmap(lambda row: row * row.sum(), 1, 1)(x)),
    Operation("whole numbers", 1, _same, lambda x: x * (x * 4).int() + (x > 0),
              lambda np, x: x * (x * 4).astype(int) + (x > 0)),
)


@dataclass(frozen=True)
class Function:
    """A function of two tensors: steps, each an operation and the places of its inputs."""

    shapes: tuple[Shape, Shape]
    steps: tuple[tuple[Operation, tuple[int, ...]], ...]
    shape: Shape

    def impl(self, *given: Any) -> Any:
        """What `impl` computes."""
        values = list(given)
        for operation, places in self.steps:
            values.append(operation.impl(*[values[place] for place in places]))
        return values[-1]

    def jax(self, *given: Any) -> Any:
        """What JAX computes."""
        import jax.numpy
        values = [jax.numpy.asarray(each) for each in given]
        for operation, places in self.steps:
            values.append(operation.jax(jax.numpy, *[values[place] for place in places]))
        return values[-1]

    @property
    def forward(self) -> bool:
        """Whether JAX has its derivative forwards."""
        return all(operation.forward for operation, _ in self.steps)

    def __str__(self) -> str:
        lines = [f"{number + 2} = {operation.name}{places}"
                 for number, (operation, places) in enumerate(self.steps)]
        return f"of {self.shapes}: " + "; ".join(lines)


def drawn(chooser: random.Random, length: int = 6,
          operations: Sequence[Operation] = OPERATIONS) -> Function:
    """A function, whose result depends on its last step."""
    shapes: list[Shape] = [_shape(chooser), _shape(chooser)]
    first = shapes[0], shapes[1]
    steps: list[tuple[Operation, tuple[int, ...]]] = []
    while len(steps) < length:
        operation = chooser.choice(operations)
        places = _places(chooser, len(shapes), operation.inputs)
        found = operation.shape(*[shapes[place] for place in places])
        if found is not None and len(found) <= 2:
            steps.append((operation, places))
            shapes.append(found)
    return Function(first, tuple(steps), shapes[-1])


def _places(chooser: random.Random, count: int, inputs: int) -> tuple[int, ...]:
    """Often the last value, so that one step leads to another."""
    return tuple(count - 1 if chooser.random() < 0.6 else chooser.randrange(count)
                 for _ in range(inputs))


def _shape(chooser: random.Random) -> Shape:
    return tuple(chooser.randint(1, 3) for _ in range(chooser.choice((1, 2, 2))))


def operations_of(functions: Sequence[Function]) -> set[str]:
    """The names of what some functions do."""
    return {operation.name for function in functions for operation, _ in function.steps}
