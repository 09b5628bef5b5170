"""Every rule for a derivative, against the difference of two values. See spec/gradient.md."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, func
from impl.gradient import GRADIENTS
from impl.gradient.nodes import expression_of
from impl.ir import BINARY, COMPARISONS, FLOAT_ONLY, UNARY, Ops
from impl.rewrite import Rule

POINT = np.array([[0.3, 1.7, -0.6], [2.2, -1.1, 0.9]])
PLACES = Tensor([1, 0, 1])


def written(x: Tensor) -> Tensor:
    base = Tensor(np.ones((2, 3))).realize() * 1
    base[:, 1:] = x[:, :2] * 3
    return base * base


def scattered(x: Tensor) -> Tensor:
    return Tensor(np.ones((2, 3))).scatter_reduce(0, Tensor([[1, 0, 1], [0, 0, 1]]), x * 2, "sum")


KEPT: list[Tensor] = []  # a tensor keeps the expression that its memory came from


def leaf(x: Tensor) -> Tensor:
    KEPT.append((x * x).realize())
    return KEPT[-1] * 3


def of_square(name: str) -> Callable[[Tensor], Tensor]:
    """A method of tensors, which is called as the operation is, of what has a logarithm."""
    return lambda x: getattr(x * x, name)()


#: Rule -> functions of a float64 tensor of shape (2, 3) whose graphs have its operations.
EXAMPLES: dict[str, list[Callable[[Tensor], Tensor]]] = {
    "gradient of a leaf": [leaf],
    "gradient of a function": [
        of_square(op.name.lower()) for op in sorted(FLOAT_ONLY - {Ops.DIV})],
    "gradient of one's own": [lambda x: func.checkpoint(lambda y: (y * 2).exp() * y)(x)],
    "gradient of -x": [lambda x: (-x) * x],
    "gradient of a cast": [lambda x: x.cast("float32").cast("float64") * 3],
    "gradient of contiguous": [lambda x: (x * 2).contiguous() * x],
    "gradient of a copy": [lambda x: (x * x).to("REFERENCE").to("CPU") * x],
    "gradient of shards": [lambda x: (x * x).shard(("CPU", "CPU:1"), 0).to("CPU") * 3],
    "gradient of x + y": [lambda x: (x + x[0]) * x],
    "gradient of x - y": [lambda x: (x[0] - x) * x],
    "gradient of x * y": [lambda x: x * x[1]],
    "gradient of x / y": [lambda x: x[0] / x],
    "gradient of x ** y": [lambda x: (x * x) ** x, lambda x: x ** 3],
    "gradient of the larger": [lambda x: x.maximum(x[0] * 0.7), lambda x: x.minimum(x * x)],
    "gradient of a choice": [lambda x: (x > 0).where(x * x, x * 5)],
    "gradient of a reduction": [lambda x: x.sum(0) * x, lambda x: x.max(1), lambda x: x.prod(1)],
    "gradient of a movement": [
        lambda x: x.reshape(3, 2) * x.permute(1, 0), lambda x: x.unfold(1, 2, 1).exp(),
        lambda x: x.flip(1)[:, 1:].pad(((0, 0), (1, 0))),
        lambda x: x[:1].expand(4, 3) * Tensor.arange(12).reshape(4, 3)],
    "gradient of a fold": [lambda x: fold(x.exp())],
    "gradient of a gather": [lambda x: x[PLACES.to(x.device)] * x[PLACES.to(x.device)]],
    "gradient of a write": [written],
    "gradient of a loop": [lambda x: func.scan(lambda c, r: ((c * r).sin(), c), x[0], x)[1]],
    "gradient of a scan": [lambda x: x.cumsum(1) * x, lambda x: x.cumprod(1),
                           lambda x: x.cummax(1)],
    "gradient of a scatter": [scattered],
}


def fold(x: Tensor) -> Tensor:
    """The gradient of wide windows is a fold; that of the fold is windows again."""
    inside = (x * x).pad(((0, 0), (1, 2))).unfold(1, 4, 1)
    return inside.sum().gradient(x)[0] * x


def difference(function: Callable[[Tensor], Tensor], direction: np.ndarray) -> float:
    step = 1e-2 if function in EXAMPLES["gradient of a cast"] else 1e-6  # of few bits, but linear
    up, down = (float(weighted(function(Tensor(POINT + sign * step * direction))).item())
                for sign in (1, -1))
    return (up - down) / (2 * step)


def weighted(value: Tensor) -> Tensor:
    count = int(np.prod(value.shape))
    return (value * Tensor(np.linspace(0.5, 1.5, count)).reshape(*value.shape)).sum()


def operations(value: Tensor) -> set[Ops]:
    found, waiting = set(), [value.uop]
    while waiting:
        for node in waiting.pop().toposort():
            found.add(node.op)
            if node.op is Ops.BUFFER and expression_of(node) is not node:
                waiting.append(expression_of(node))
    return found


@pytest.mark.slow
@verifies("gradient.value.derivative")
@verifies("rewrite.rule.named")
@pytest.mark.parametrize("rule", GRADIENTS.rules, ids=lambda rule: rule.name)
def test_a_rule_is_the_slope(rule: Rule) -> None:
    assert rule.reason and rule.name in EXAMPLES
    chooser, met = np.random.default_rng(3), set[Ops]()
    with Context(DEVICE="CPU"):
        for function in EXAMPLES[rule.name]:
            x = Tensor(POINT, requires_grad=True)
            value = function(x)
            met |= operations(value)
            slope = weighted(value).gradient(x)[0].numpy()
            for _ in range(3):
                direction = chooser.standard_normal(POINT.shape)
                wanted = difference(function, direction)
                assert abs(float((slope * direction).sum()) - wanted) < 1e-4 * (1 + abs(wanted))
    assert met & set(rule.pattern.ops or ())


@verifies("gradient.forward.derivative")
@pytest.mark.parametrize("rule", GRADIENTS.rules, ids=lambda rule: rule.name)
def test_forward_and_backward_agree_to_second_order(rule: Rule) -> None:
    """<u, J v> is <J' u, v>, and so it is for the gradient in the place of the function."""
    chooser = np.random.default_rng(5)
    with Context(DEVICE="REFERENCE"):
        for function in EXAMPLES[rule.name]:
            if rule.name in ("gradient of a copy", "gradient of shards"):
                continue  # of places, which that test above goes to
            x, v = Tensor(POINT), Tensor(chooser.standard_normal(POINT.shape))
            slope = func.grad(lambda y, f=function: weighted(f(y)))
            for order, f in enumerate((function, slope)):
                value, change = func.jvp(f, (x,), (v,))
                u = Tensor(chooser.standard_normal(value.shape))
                back, = func.vjp(f, x)[1](u)
                assert change.shape == value.shape and change.dtype is value.dtype
                there, here = ((change * u).sum().item(), (back * v).sum().item())
                assert abs(there - here) < 1e-6 * (1 + abs(there)), (rule.name, order)
            if rule.name == "gradient of a cast":
                continue  # of few bits, but linear
            up, down = (slope(Tensor(POINT + sign * 1e-5 * v.numpy())).numpy() for sign in (1, -1))
            wanted = (up - down) / 2e-5
            assert np.abs(change.numpy() - wanted).max() < 1e-4 * (1 + np.abs(wanted).max())


#: What is no number, or has steps and no slope.
WITHOUT_SLOPE = COMPARISONS | {Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.FLOORDIV,
                               Ops.FLOORMOD, Ops.TRUNC, Ops.FLOOR, Ops.BITCAST, Ops.DETACH}


@verifies("gradient.value.derivative")
@pytest.mark.parametrize("op", sorted((UNARY | BINARY) - WITHOUT_SLOPE),
                         ids=lambda op: Ops(op).name)
def test_every_operation_with_a_slope_has_a_rule(op: int) -> None:
    assert GRADIENTS.of(Ops(op)), f"{Ops(op).name}: no rule of impl/gradient/rules.py has it"


#: Where slopes easily go wrong: at both ends, and where the square of a float16 is infinite.
ENDS = [0.0, 6e-8, 1e-3, 0.3, 1.0, 4.0, 300.0, 1e3, 6e4, np.inf]
#: 1 - y * y loses its digits where y is nearly 1, as it does in PyTorch.
LOSES_DIGITS = {Ops.TANH}


def slopes_at_the_ends(op: Ops, dtype: str) -> list[np.ndarray]:
    """The first and the second derivative of an operation, in float64."""
    with Context(DEVICE="REFERENCE"), np.errstate(all="ignore"):
        x = Tensor(np.array([*ENDS, *(-each for each in ENDS)], dtype))
        first = getattr(x, op.name.lower())().sum().gradient(x)[0]
        second = first.sum().gradient(x)[0]
        return [each.numpy().astype(np.float64) for each in (first, second)]


@verifies("gradient.value.derivative")
@pytest.mark.parametrize("op", sorted(FLOAT_ONLY - {Ops.DIV}), ids=lambda op: Ops(op).name)
def test_slopes_at_the_ends(op: int) -> None:
    """In float16 they are what they are in float64, and where the first is finite, so is what
    makes the second one.
    """
    exact, rounded = (slopes_at_the_ends(Ops(op), dtype) for dtype in ("float64", "float16"))
    finite = np.isfinite(exact[0])
    with np.errstate(all="ignore"):
        for order, (wide, half) in enumerate(zip(exact, rounded, strict=True), 1):
            wanted = wide.astype(np.float16).astype(np.float64)
            assert not np.isnan(wide[finite]).any(), f"derivative {order} is NaN: {wide}"
            known = finite & np.isfinite(wanted)
            least = 2e-3 if op in LOSES_DIGITS else 3e-7  # some of the smallest float16
            error = np.abs(half - wanted) - 0.01 * np.abs(wanted)
            assert (error[known] < least).all(), f"derivative {order}: {half}, not {wanted}"
