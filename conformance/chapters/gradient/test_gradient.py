"""Gradients equal differences, and go where they should. Chapter: spec/gradient.md.

The oracle is the difference quotient in float64: for a loss L, a point x and a direction v, the
gradient's product with v is (L(x + hv) - L(x - hv)) / 2h up to terms in h squared.
"""
from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, dtypes, func
from impl.effects import living
from impl.errors import DTypeError, GraphError, ShapeError
from impl.gradient import compute_gradient, nodes
from impl.ir import Ops, UOp, toposort
from impl.rewrite import simplify
from impl.tensor.autograd import GradientMode
from impl.tensor.parameters import dependent_bits

Function = Callable[..., Tensor]

STEP = 1e-5


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Float64 between 0.3 and 1.7: no kinks, poles or ties nearby for what is tested."""
    return np.asarray(np.random.default_rng(seed + len(shape)).uniform(0.3, 1.7, shape))


def signed(*shape: int, seed: int = 1) -> np.ndarray:
    """Float64 of both signs, at least 0.1 away from 0."""
    random = np.random.default_rng(seed + len(shape))
    return random.uniform(0.1, 2.0, shape) * random.choice([-1.0, 1.0], shape)


def weights(shape: tuple[int, ...]) -> np.ndarray:
    """What the outputs are multiplied with, so that no two of them cancel."""
    return np.random.default_rng(7).uniform(0.5, 1.5, shape)


def loss(function: Function, arrays: list[np.ndarray]) -> Tensor:
    result = function(*(Tensor(array) for array in arrays))
    return (result * Tensor(weights(result.shape))).sum()


def check(function: Function, *arrays: np.ndarray) -> None:
    """Compare the gradients with respect to all arrays with a difference quotient."""
    tensors = [Tensor(array) for array in arrays]
    result = function(*tensors)
    total = (result * Tensor(weights(result.shape))).sum()
    gradients = total.gradient(*tensors)
    Tensor.realize(*gradients)
    random = np.random.default_rng(3)
    directions = [random.normal(size=array.shape) for array in arrays]
    expected = 0.0
    for sign in (1, -1):
        moved = [array + sign * STEP * d for array, d in zip(arrays, directions, strict=True)]
        expected += sign * loss(function, moved).item() / (2 * STEP)
    found = 0.0
    for tensor, gradient, direction in zip(tensors, gradients, directions, strict=True):
        assert gradient.shape == tensor.shape and gradient.dtype is tensor.dtype
        found += float((gradient.numpy() * direction).sum())
    assert found == pytest.approx(expected, rel=2e-6, abs=2e-6)


UNARY: dict[str, Function] = {
    "neg": lambda x: -x, "exp": Tensor.exp, "exp2": Tensor.exp2, "log": Tensor.log,
    "log2": Tensor.log2, "log10": Tensor.log10, "sqrt": Tensor.sqrt, "rsqrt": Tensor.rsqrt,
    "sin": Tensor.sin, "cos": Tensor.cos, "tan": lambda x: (x * 0.5).tan(), "tanh": Tensor.tanh,
    "expm1": Tensor.expm1, "log1p": lambda x: x.square().log1p(),
    "sinh": Tensor.sinh, "cosh": Tensor.cosh, "erf": Tensor.erf, "reciprocal": Tensor.reciprocal,
    "square": Tensor.square, "cube": lambda x: x ** 3, "fourth": lambda x: x ** 4,
    "power": lambda x: x ** 2.7, "exponent": lambda x: 3.0 ** x, "contiguous": Tensor.contiguous,
}

SIGNED: dict[str, Function] = {
    "abs": Tensor.abs, "relu": Tensor.relu, "leaky_relu": Tensor.leaky_relu, "elu": Tensor.elu,
    "sigmoid": Tensor.sigmoid, "silu": Tensor.silu, "softplus": Tensor.softplus,
    "logsigmoid": Tensor.logsigmoid, "mish": Tensor.mish, "gelu": Tensor.gelu,
    "gelu_tanh": lambda x: x.gelu("tanh"), "softsign": Tensor.softsign,
    "hardswish": Tensor.hardswish, "clip": lambda x: x.clip(-0.9, 0.9),
    "where": lambda x: (x > 0).where(x * x, -x), "masked": lambda x: x.masked_fill(x > 1, 3.0),
}

REDUCTIONS: dict[str, Function] = {
    "sum": lambda x: x.sum((0, 2)), "mean": lambda x: x.mean(1), "prod": lambda x: x.prod(1),
    "max": lambda x: x.max(1), "min": lambda x: x.min((0, 2)), "var": lambda x: x.var(2),
    "std": lambda x: x.std(keepdim=True), "norm": lambda x: x.norm(),
    "cumsum": lambda x: x.cumsum(1), "cumprod": lambda x: x.cumprod(2),
    "cummax": lambda x: x.cummax(2), "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1), "logsumexp": lambda x: x.logsumexp((0, 1)),
    "layernorm": lambda x: x.layernorm((1, 2)), "rms_norm": lambda x: x.rms_norm(),
    "sort": lambda x: x.sort(2)[0], "long cumsum": lambda x: x.reshape(-1).repeat(7).cumsum(),
}

MOVEMENT: dict[str, Function] = {
    "reshape": lambda x: x.reshape(4, 6) * x.reshape(4, 6), "expand": lambda x: x[:, :1].expand(
        2, 3, 4), "permute": lambda x: x.permute(2, 0, 1), "pad": lambda x: x.pad((1, 2, 0, 1)),
    "pad value": lambda x: x.pad((1, 2), value=3.0), "shrink": lambda x: x[:, 1:, 1:3],
    "flip": lambda x: x.flip(0, 2), "strided": lambda x: x[:, ::2, ::3],
    "backward strided": lambda x: x[:, ::-2, 3:0:-2], "unfold": lambda x: x.unfold(2, 3, 1),
    "dilated": lambda x: x.unfold(2, 2, 1, dilation=2), "roll": lambda x: x.roll(1, 1),
    "cat": lambda x: x.cat(x * x, dim=1), "stack": lambda x: x.stack(-x), "repeat": lambda x:
    x.repeat(2, 1, 2), "tril": lambda x: x.tril(), "reflect": lambda x: x.pad((2, 1), "reflect"),
    "rows": lambda x: x[Tensor([1, 0, 1, 1])], "pairs": lambda x: x[:, [0, 2], [3, 3]],
    "gather": lambda x: x.gather(2, Tensor([[[0, 0, 3]] * 3] * 2)),
    "scatter": lambda x: Tensor(weights((2, 3, 4))).scatter(2, Tensor([[[0, 0, 3]] * 3] * 2), x),
    "scatter_add": lambda x: x.scatter_add(2, Tensor([[[0, 0, 3]] * 3] * 2), x * x),
}

PAIRS: dict[str, Function] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "pow": lambda a, b: a ** b, "maximum": Tensor.maximum,
    "minimum": Tensor.minimum, "lerp": lambda a, b: a.lerp(b, 0.3), "self": lambda a, b: a * a * b,
    "outer": lambda a, b: a.outer(b[0]), "einsum": lambda a, b: Tensor.einsum("ij,j->i", a, b[0]),
    "mse": lambda a, b: a.mse_loss(b), "huber": lambda a, b: (a * 3).huber_loss(b),
    "write": lambda a, b: written(a, b), "bce": lambda a, b: a.binary_crossentropy_logits(b),
}


def written(a: Tensor, b: Tensor) -> Tensor:
    """Writes to regions of a copy: whole rows, strided and reversed views."""
    result = a * 1.5
    result[0] = b[0] * 2
    result[:, ::2] = b[0, 0] * result[:, ::2]
    result[1, ::-1] += b[0]
    return result * result


def all_of(cases: dict[str, Function]) -> list[Any]:
    return [pytest.param(function, id=name) for name, function in cases.items()]


@verifies("gradient.value.derivative")
def test_a_write_takes_the_gradient_of_its_region() -> None:
    x, y = Tensor(np.array([2.0, 3.0, 4.0])), Tensor(np.array([5.0]))
    whole = x * 10
    whole[1:2] = y * y
    left, right = (whole * whole).sum().gradient(x, y)
    assert (left.tolist(), right.tolist()) == ([400, 0, 800], [500])


@pytest.mark.slow
@verifies("gradient.value.derivative")
@pytest.mark.parametrize("function", all_of(UNARY))
def test_functions_of_one_number(function: Function) -> None:
    check(function, numbers(2, 3))


@verifies("gradient.value.derivative")
@pytest.mark.parametrize("function", all_of(SIGNED))
def test_functions_with_two_branches(function: Function) -> None:
    check(function, signed(3, 4))


@pytest.mark.slow
@verifies("gradient.value.derivative")
@pytest.mark.parametrize("function", all_of(REDUCTIONS))
def test_reductions(function: Function) -> None:
    check(function, numbers(2, 3, 4))


@verifies("gradient.value.derivative")
@verifies("gradient.broadcast.sum")
@pytest.mark.parametrize("function", all_of(PAIRS))
def test_functions_of_two_tensors(function: Function) -> None:
    check(function, numbers(2, 3), numbers(1, 3, seed=5))
    if function is PAIRS["div"]:
        check(function, numbers(3), numbers(seed=2))  # a number next to a vector


@pytest.mark.slow
@verifies("gradient.value.derivative")
@pytest.mark.parametrize("function", all_of(MOVEMENT))
def test_movements(function: Function) -> None:
    check(function, signed(2, 3, 4))


@verifies("gradient.value.derivative")
def test_products() -> None:
    check(lambda a, b: a @ b, numbers(2, 3, 4), numbers(4, 5))
    check(lambda a, b: a @ b, numbers(4), numbers(4, seed=2))
    check(lambda x, w, b: x.linear(w, b), numbers(2, 3), numbers(5, 3), numbers(5))
    check(lambda x, w, b: x.conv2d(w, b, groups=2, stride=2, padding=1),
          signed(1, 4, 5, 5), signed(2, 2, 3, 3), numbers(2))
    check(lambda x, w: x.conv_transpose2d(w, stride=2, padding=1), signed(1, 2, 3, 3),
          signed(2, 3, 3, 3))
    check(lambda x: x.max_pool2d(2, 1, padding=1), signed(1, 1, 3, 4))
    check(lambda x: x.avg_pool2d(2, 2), signed(1, 1, 4, 4))


@verifies("gradient.value.derivative")
def test_layers() -> None:
    classes = Tensor([1, 0, 2])
    check(lambda x: x.cross_entropy(classes), signed(3, 4))
    check(lambda x: x.sparse_categorical_crossentropy(classes, label_smoothing=0.1), signed(3, 4))
    check(lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
          signed(2, 3, 4), signed(2, 3, 4, seed=2), signed(2, 3, 4, seed=3))
    check(lambda x, w: x.group_norm(2, w), signed(2, 4, 3), numbers(4))
    check(lambda w: w.embedding(Tensor([[1, 0], [1, 1]])), signed(3, 2))


@verifies("gradient.product.zero")
def test_a_product_with_zeros() -> None:
    x = Tensor(np.array([[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 0.0, 4.0]]))
    gradient = x.prod(1).sum().gradient(x)[0].tolist()
    assert gradient == [[12, 8, 6], [0, 8, 0], [0, 0, 0]]


@verifies("gradient.maximum.tie+2")
def test_two_tensors_share_a_tie_and_a_number_takes_nothing() -> None:
    a, b = Tensor([1.0, 2.0, 3.0]), Tensor([3.0, 2.0, 1.0])
    left, right = a.maximum(b).sum().gradient(a, b)
    assert (left.tolist(), right.tolist()) == ([0, 0.5, 1], [1, 0.5, 0])
    left, right = a.minimum(b).sum().gradient(a, b)
    assert (left.tolist(), right.tolist()) == ([1, 0.5, 0], [0, 0.5, 1])
    zero = Tensor([0.0])
    assert zero.relu().sum().gradient(zero)[0].tolist() == [0]
    assert zero.abs().sum().gradient(zero)[0].tolist() == [0]


@verifies("gradient.clip.inclusive")
def test_the_ends_of_an_interval_belong_to_it() -> None:
    x = Tensor([-2.0, -1.0, 0.5, 1.0, 2.0])
    for found in (x.clip(-1, 1), x.clamp(Tensor([-1.0]), Tensor([1.0]))):
        assert found.sum().gradient(x)[0].tolist() == [0, 1, 1, 1, 0]
        assert found.tolist() == [-1, -1, 0.5, 1, 1]
    for other, ends in ((Tensor.hardtanh, [-1.0, 1.0]), (Tensor.relu6, [0.0, 6.0])):
        end = Tensor(ends)
        assert other(end).sum().gradient(end)[0].tolist() == [0, 0]


@verifies("gradient.max.tie")
def test_equal_maxima_share() -> None:
    x = Tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    gradient = x.max(1).sum().gradient(x)[0].numpy()
    assert np.allclose(gradient, [[0, 0.5, 0.5], [1 / 3] * 3])


@verifies("gradient.detach.stops+2")
def test_detached_values_are_constants() -> None:
    x = Tensor([2.0, 3.0])
    assert (x * x.detach()).sum().gradient(x)[0].tolist() == [2, 3]
    leaf = Tensor([2.0, 3.0], requires_grad=True)
    (leaf * leaf.detach()).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [2, 3]


@verifies("gradient.value.derivative")
def test_a_cast_passes_the_gradient_on_in_the_dtype_of_its_source() -> None:
    x = Tensor(np.array([2.0, 3.0]))
    gradient = (x.float() * 3).half().sum().gradient(x)[0]
    assert (gradient.dtype, gradient.tolist()) == (dtypes.float64, [3, 3])


@verifies("gradient.broadcast.sum")
def test_a_number_collects_a_sum() -> None:
    number, many = Tensor([2.0]).reshape(()), Tensor([1.0, 2.0, 4.0])
    left, right = (number * many).sum().gradient(number, many)
    assert (left.tolist(), right.tolist()) == (7, [2, 2, 2])


@verifies("gradient.walk.sum")
def test_several_uses_add_up() -> None:
    x = Tensor([3.0])
    y = x * x
    assert (y + y * x + x).sum().gradient(x)[0].tolist() == [2 * 3 + 3 * 9 + 1]


@verifies("gradient.nodes.few+2")
@pytest.mark.parametrize(("function", "slope"), [(Tensor.expm1, np.exp), (Tensor.sinh, np.cosh)])
def test_a_series_has_the_slope_of_its_function(function: Function, slope: Callable[..., Any]
                                                ) -> None:
    x = Tensor(signed(9) / 4, requires_grad=True)
    y = function(x)
    gradient = y.sum().gradient(x)[0]
    known = set(toposort([y.uop]))
    assert sum(node not in known for node in toposort([gradient.uop])) < 16
    np.testing.assert_allclose(gradient.numpy(), slope(x.numpy()), rtol=1e-14)


@verifies("gradient.nodes.few+2")
def test_products_of_several_users_are_summed_each_on_its_own() -> None:
    inputs = [Tensor(signed(4, 3, seed=seed)) for seed in range(3)]
    w = Tensor(numbers(3, 5), requires_grad=True)
    outputs = [x @ w for x in inputs]
    loss = (outputs[0] * outputs[1] + outputs[2]).sum()
    gradient = loss.gradient(w)[0]
    sums = [node for node in toposort([gradient.uop]) if node.op is Ops.REDUCE
            and node.shape is not None and node.src[0].op is not Ops.MUL]
    assert not sums
    one, two, three = (x.numpy() for x in inputs)
    expected = one.T @ (two @ w.numpy()) + two.T @ (one @ w.numpy()) + three.sum(0)[:, None]
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12)


@verifies("gradient.nodes.few+2")
def test_on_several_devices_the_products_are_one_sum_that_is_sent() -> None:
    x = Tensor(numbers(3, 4), requires_grad=True).shard_(("REFERENCE:0", "REFERENCE:1"))
    weights = [Tensor(signed(4, 2, seed=seed)).shard(x.device, 1) for seed in range(3)]
    loss = Tensor.stack([(x @ w).square().sum() for w in weights]).sum()
    gradient = loss.gradient(x)[0]
    known = set(toposort([loss.uop]))
    sums = [node for node in toposort([gradient.uop])
            if node.op is Ops.REDUCE and node not in known]
    assert len(sums) == 1
    expected = sum(2 * (x.numpy() @ w.numpy()) @ w.numpy().T for w in weights)
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12)


@verifies("gradient.walk.needed+2")
def test_only_what_leads_to_a_target_is_differentiated() -> None:
    x, other = Tensor([1.0]), Tensor([2.0])
    costly = other.sin().exp().log()
    (gradient,) = (x * costly).sum().gradient(x)
    assert not any(node.op is Ops.COS for node in toposort([gradient.uop]))
    index = Tensor([0, 0])
    assert (x[index] * index).sum().gradient(x)[0].tolist() == [0]


@verifies("gradient.walk.once")
def test_depth_and_width_cost_no_more_than_the_graph() -> None:
    x = Tensor([1.0])
    y = x
    for _ in range(3000):  # 2 ** 3000 paths, and deeper than any recursion limit
        y = y * 0.5 + y * 0.5
    found = compute_gradient(y.uop, nodes.full_like(y.uop, 1), [x.uop])
    assert len(toposort(found.values())) < 20_000


@verifies("gradient.nodes.exact")
def test_simplification_keeps_every_bit() -> None:
    x = UOp(Ops.IOTA, dtypes.int32, (), 3)
    y = nodes.cast(x, dtypes.float32)

    def number(value: float) -> UOp:
        return UOp.const(dtypes.float32, value)

    assert nodes.add(y, number(-0.0)) is y and nodes.sub(y, number(0.0)) is y
    assert nodes.mul(y, number(1)) is y and nodes.add(x, UOp.const(dtypes.int32, 0)) is x
    assert nodes.add(y, number(0.0)) is not y and nodes.sub(y, number(-0.0)) is not y
    assert nodes.constant(nodes.mul(y, number(0))) is None
    minus = Tensor([-0.0, 1.0])
    assert np.signbit((minus + 0.0).numpy()).tolist() == [False, False]
    assert np.signbit((minus * 1.0 - 0.0).numpy()).tolist() == [True, False]
    assert nodes.add(number(0.1), number(0.2)).arg == float(np.float32(0.1) + np.float32(0.2))


@verifies("gradient.nodes.exact")
@verifies("rewrite.simplify.exact")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_large_whole_number_is_rounded_once(dtype: str) -> None:
    """Just above and just below the middle of two floats, which 53 digits do not tell apart."""
    for low in (2**60 + 2**36, 2**60 + 3 * 2**36, 2**62 - 2**37, 2**62 - 3 * 2**37, 2**61 + 2**8):
        for value in (low - 1, low, low + 1, -low - 1, -low, 1 - low):
            whole = UOp.const(dtypes.int64, value)
            folded = nodes.cast(nodes.full(whole, (2,)), getattr(dtypes, dtype))
            simple = simplify(UOp(Ops.CAST, getattr(dtypes, dtype), (whole,)))
            right = np.int64(value).astype(dtype)
            constant = nodes.constant(folded)
            assert constant is not None and constant.arg == simple.arg == right


@verifies("gradient.backward.accumulate")
def test_backward_adds_to_what_is_there() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    (x * 10).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [12, 14]


@verifies("gradient.backward.accumulate")
def test_parameters_of_equal_value_are_different_variables() -> None:
    a, b = Tensor.zeros(2, requires_grad=True), Tensor.zeros(2, requires_grad=True)
    (a * 2 + b * 3).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert (a.grad.tolist(), b.grad.tolist()) == ([2, 2], [3, 3])


@verifies("gradient.backward.nothing")
def test_backward_of_nothing_is_refused() -> None:
    other = Tensor([1.0], requires_grad=True)
    with pytest.raises(DTypeError, match="requires_grad = True"):
        Tensor([1.0]).sum().backward()
    assert other.grad is None


@verifies("gradient.seed.scalar")
def test_only_one_number_has_a_gradient_of_its_own() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ShapeError, match="gradient="):
        (x * x).backward()
    (x * x).backward(gradient=Tensor([1.0, 10.0]))
    assert x.grad is not None and x.grad.tolist() == [2, 40]


@verifies("gradient.target.unused+2")
def test_what_a_result_does_not_depend_on_has_zeros() -> None:
    x, unused = Tensor([-1.0, 0.0, 2.0]), Tensor([[2.0]], dtype="float64")
    first, second = (x * x).sum().gradient(x, unused)
    assert first.tolist() == [-2, 0, 4] and second.tolist() == [[0]]
    assert second.dtype is unused.dtype
    for steps in (x.sign(), x.floor(), (x > 0).float(), x ** 0, x.argmax().float(), x.round()):
        assert steps.sum().gradient(x)[0].tolist() == [0, 0, 0]


@verifies("gradient.realized.keeps+2")
def test_a_parameter_that_lies_elsewhere_since_it_was_assigned() -> None:
    """A view holds the old memory, so the new value lies in other memory."""
    x = Tensor([[1.0], [2.0]], requires_grad=True)
    shown = x[:, 0].unsqueeze(-1)
    x.assign(x.detach() + 1)
    assert x.tolist() == [[2.0], [3.0]] and shown.tolist() == [[1.0], [2.0]]
    slope = (x * x * x).sum().gradient(x)[0].realize()
    assert slope.sum().gradient(x)[0].tolist() == [[12.0], [18.0]]


@verifies("gradient.realized.keeps+2")
def test_a_value_that_was_looked_at_still_has_a_gradient() -> None:
    w = Tensor([2.0, 3.0], requires_grad=True)
    hidden = (w * w).realize()
    result = (hidden * 5 + w).sum()
    assert result.item() == 70
    result.backward()
    assert w.grad is not None and w.grad.tolist() == [21, 31]


@verifies("gradient.realized.keeps+2")
@pytest.mark.parametrize("place", ["CPU", "mesh"])
@pytest.mark.parametrize("look", [lambda y: y.sum().item(), Tensor.realize, Tensor.numpy, repr])
def test_looking_changes_no_gradient_of_what_was_made(look: Callable[[Tensor], Any],
                                                      place: str) -> None:
    """The parameter is an expression itself: to look at one value computes it, and others too."""
    made = Tensor([1.0, 2.0])
    made = made.shard(("CPU:0", "CPU:1"), 0) + 1 if place == "mesh" else made + 1
    w = made.requires_grad_()
    y = w * w
    look(y)
    (y.sum() + w.sum()).backward()
    assert w.grad is not None and w.grad.tolist() == [5, 7]


@verifies("gradient.realized.keeps+2")
@pytest.mark.parametrize("look", [Tensor.realize, Tensor.tolist, lambda h: h[:1].realize()])
def test_a_value_that_nobody_holds_passes_gradients_on(look: Callable[[Tensor], Any]) -> None:
    """Each value of a recurrence is looked at, and only the last is held."""
    w, h = Tensor([2.0], requires_grad=True), Tensor([1.0])
    for _ in range(4):
        h = h * w
        look(h)
    assert h.gradient(w)[0].tolist() == [32]
    first = (w * 3).realize()[0]
    assert first.gradient(w)[0].tolist() == [3]
    shown = (w * 3).realize()
    shown = shown.reshape(1, 1).realize()
    shown = shown.permute(1, 0).reshape(1).realize()
    assert (shown * shown).gradient(w)[0].tolist() == [36]


@verifies("gradient.realized.keeps+2")
def test_what_gradients_keep_goes_with_the_last_value() -> None:
    w, state = Tensor([2.0], requires_grad=True), Tensor([0.0]).realize()
    gc.disable()
    try:
        memory = [weakref.ref((w * number).realize().uop.arg[0]) for number in range(2, 5)]
        assert not any(buffer() for buffer in memory)  # no circle holds it
        inputs = []
        for number in range(3):
            x = Tensor([float(number)]).realize()
            inputs.append(weakref.ref(x.uop.arg[0]))
            state.assign(state * 0.5 + (w * x).detach()).realize()
        del x
        assert [buffer() is None for buffer in inputs] == [True] * 3
    finally:
        gc.enable()


@verifies("gradient.realized.keeps+2")
@pytest.mark.parametrize("place", ["CPU", "mesh"])
@pytest.mark.parametrize("look", [Tensor.tolist, Tensor.realize, lambda total: None])
def test_sums_that_are_looked_at_have_the_gradient_of_all_terms(look: Callable[[Tensor], Any],
                                                               place: str) -> None:
    def made(*values: float) -> Tensor:
        tensor = Tensor(list(values))
        return tensor.shard(("CPU:0", "CPU:1"), 0) if place == "mesh" else tensor.realize()

    w = made(2.0, 3.0).requires_grad_()
    total, mean, part = made(0.0, 0.0), made(0.0, 0.0), made(0.0, 0.0)
    for turn in range(3):
        total += w * w
        mean.assign(mean * 0.5 + w * turn)
        part[:] = part + w
        for each in (total, mean, part):
            look(each)
    (total + mean + part).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [17.5, 23.5]
    given = made(0.0, 0.0).assign(w * w)
    look(given)
    assert given.sum().gradient(w)[0].tolist() == [4, 6]
    shown = w.reshape(2, 1)
    look(shown)
    shown = shown * w.reshape(2, 1)
    assert shown.sum().gradient(w)[0].tolist() == [4, 6]

    def function(x: Tensor) -> Tensor:
        inner = x * 0
        inner += x * x
        look(inner)
        inner += x
        look(inner)
        return inner.sum()
    assert func.grad(function)(made(2.0, 3.0)).tolist() == [5, 7]


@verifies("gradient.realized.keeps+2")
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_passes_gradients_on(copied: Callable[[Tensor], Tensor]) -> None:
    w = Tensor([2.0, 3.0], requires_grad=True)
    assert copied(w * w).sum().gradient(w)[0].tolist() == [4, 6]
    other = copied(w)
    assert other.requires_grad and other.tolist() == [2, 3]


@verifies("gradient.realized.keeps+2")
def test_nothing_is_kept_of_what_no_parameter_is_in() -> None:
    many = [Tensor([1.0], requires_grad=True).realize() for _ in range(200)]
    with Context(DEVICE="REFERENCE"):
        x = Tensor([1.0]).realize()
        memory, y = weakref.ref(x.uop.arg[0]), (x * 2).realize()
    del x
    assert memory() is None and y.tolist() == [2] and len(many) == 200
    many[0].replace(Tensor([3.0]).realize())  # a parameter that lies elsewhere
    hidden = (many[0] * 2).realize()
    assert (hidden * hidden).realize().gradient(many[0])[0].tolist() == [24]


@pytest.fixture
def no_parameters() -> Iterator[None]:
    """As if no test before had any."""
    before, dependent_bits[0] = dependent_bits[0], 0
    yield
    dependent_bits[0] |= before


@verifies("gradient.realized.forgotten")
@pytest.mark.usefixtures("no_parameters")
def test_nobody_gets_zeros_where_the_way_was_forgotten() -> None:
    x, unused = Tensor([2.0]), Tensor([1.0])
    y = (x * x).realize()
    with pytest.raises(GraphError, match="computed before"):
        (y * 3).gradient(x)
    assert (y * 3).gradient(y, Tensor([1.0]))[1].tolist() == [0]
    later = Tensor([3.0])  # made after y: y cannot depend on it
    assert (y * x).gradient(later, x)[0].tolist() == [0]
    x.requires_grad = True
    y = (x * x).realize()
    assert y.gradient(x, unused)[0].tolist() == [4]


@verifies("gradient.realized.overwritten")
def test_a_gradient_that_needs_overwritten_memory_is_refused() -> None:
    w, state = Tensor([2.0, 3.0], requires_grad=True), Tensor([1.0, 2.0]).realize()
    result = (w * state).sum().realize()
    state.assign(state * 2).realize()
    with pytest.raises(GraphError, match="overwritten"):
        result.backward()


@verifies("gradient.value.derivative")
def test_gradients_have_gradients() -> None:
    x = Tensor(np.array([2.0, 3.0]))
    first = (x ** 3).sum().gradient(x)[0]
    second = first.sum().gradient(x)[0]
    assert np.allclose(second.numpy(), 6 * x.numpy())


@verifies("gradient.value.derivative")
def test_extreme_arguments_give_finite_gradients() -> None:
    x = Tensor([-200.0, -90.0, 0.0, 90.0, 200.0])
    for function, ends in ((Tensor.sigmoid, (0, 0.25, 0)), (Tensor.softplus, (0, 0.5, 1)),
                           (Tensor.silu, (0, 0.5, 1)), (Tensor.logsigmoid, (1, 0.5, 0)),
                           (Tensor.elu, (0, 1, 1))):
        gradient = function(x).sum().gradient(x)[0].numpy()
        assert np.isfinite(gradient).all()
        assert np.allclose(gradient[[0, 2, 4]], ends, atol=1e-6)


@verifies("tensor.parameter.own+3")
def test_a_gradient_of_a_copy_is_none_of_the_original() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    v = copy.deepcopy(w)
    (w * 2 + v * 3).sum().backward()
    assert gradients(w, v) == [[2, 2], [3, 3]]
    base = Tensor([1.0, 2.0]).realize()
    p, q = Tensor(base, requires_grad=True), Tensor(base, requires_grad=True)
    (p * 2 + q * 3).sum().backward()
    assert gradients(p, q) == [[2, 2], [3, 3]]
    made = (Tensor([1.0, 2.0], requires_grad=True) * 2).requires_grad_()
    (made * 3).sum().backward()
    assert gradients(made) == [[3, 3]]


def gradients(*tensors: Tensor) -> list[Any]:
    """What `backward` has left with tensors."""
    return [None if tensor.grad is None else tensor.grad.tolist() for tensor in tensors]


@verifies("gradient.mode.stops")
def test_operations_in_a_block_without_gradients_pass_none_on() -> None:
    x = Tensor([2.0, 3.0], requires_grad=True)

    @GradientMode.off()
    def doubled(given: Tensor) -> Tensor:
        return given * 2

    with GradientMode.off():
        assert not GradientMode.is_on()
        inside = [x * 2, x.reshape(1, 2), x[0], x.clone(), x.exp().realize(), x.to("REFERENCE")]
        with GradientMode.on():
            again = x * 2
        assert not GradientMode.is_on()
    assert GradientMode.is_on()
    for value in (*inside, doubled(x)):
        assert (x.sum().to(value.device) * value.sum()).to(x.device).gradient(x)[0].tolist() \
            == pytest.approx([value.sum().item()] * 2)
    assert again.sum().gradient(x)[0].tolist() == [2, 2]
    GradientMode.set(False)
    assert (x.sum() * (x * 3).sum()).gradient(x)[0].tolist() == [0, 0]
    with GradientMode.set(True):
        assert GradientMode.is_on()
    assert not GradientMode.is_on()
    GradientMode.set(True)
    seen = []
    with GradientMode.off():
        other = threading.Thread(target=lambda: seen.append(GradientMode.is_on()))
        other.start()
        other.join()
    assert seen == [True]


@verifies("gradient.mode.stops")
def test_writing_in_a_block_without_gradients_is_as_elsewhere() -> None:
    found = []
    for mode in (GradientMode.off(), GradientMode.on()):
        x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        x.grad = Tensor([[1.0, 1.0], [2.0, 2.0]])
        with mode:
            x -= 0.5 * x.grad
            row = x[1]
            last = row[1:]
            last += 10
            row[0] = 7.0
            x[0] *= 2
            copied = x.clone()
            copied[0, 0] = 9.0
            made = Tensor.zeros(2).contiguous()
            made[1] = 3.0
        found.append([one.tolist() for one in (x, row, last, copied, made)])
        assert (x * x).sum().gradient(x)[0].tolist() == (2 * x.numpy()).tolist()
    assert found[0] == found[1] and found[0][0] == [[1.0, 3.0], [7.0, 13.0]]


@verifies("gradient.detach.stops+2")
def test_a_value_with_a_gradient_of_its_own_is_detached_and_keeps_it_when_realized() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    doubled = func.custom_gradient(lambda given: (given * 2, lambda change: change * 5))
    assert (x.sum() * doubled(x).detach().sum()).gradient(x)[0].tolist() == [6, 6]
    assert doubled(x).realize().sum().gradient(x)[0].tolist() == [5, 5]


@verifies("gradient.hook.instead")
def test_what_a_hook_returns_is_the_gradient() -> None:
    seen: list[list[float]] = []

    def look(gradient: Tensor) -> None:
        seen.append(gradient.tolist())

    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    w.register_hook(look)
    doubling = w.register_hook(lambda gradient: gradient * 2)
    inner = w * w
    inner.register_hook(look)
    more = inner.register_hook(lambda gradient: gradient + 1)
    for _ in range(2):  # whose nodes are the same: a hook belongs to one tensor
        value = w * w
        (value * 3).sum().backward()
    assert seen == [[6, 12, 18]] * 2
    assert w.grad is not None and w.grad.tolist() == [24, 48, 72]
    loss = (inner * 3 + inner * 4).sum()
    assert loss.gradient(w)[0].tolist() == [32, 64, 96]
    assert seen[2:] == [[7, 7, 7], [16, 32, 48]]
    more.remove()
    more.remove()
    with doubling:
        assert loss.gradient(w)[0].tolist() == [28, 56, 84]
    w += 1  # another value of the same variable
    assert w.sum().gradient(w)[0].tolist() == [1, 1, 1] and seen[-1] == [1, 1, 1]
    assert w.grad_fn is None and inner.grad_fn is inner.uop


@verifies("gradient.hook.instead")
def test_hooks_are_called_through_what_was_computed() -> None:
    seen: list[list[float]] = []
    w = Tensor([1.0, 2.0], requires_grad=True)
    for realized_first in (True, False):
        inner = w * w
        if realized_first:
            inner.realize()
        inner.register_hook(lambda gradient: gradient * 2)
        inner.register_hook(lambda gradient: seen.append(gradient.tolist()))
        inner.realize()
        outer = (inner * 3).realize()
        del inner
        assert outer.sum().gradient(w)[0].tolist() == [12, 24]
    assert seen == [[6, 6]] * 2
    before = w * 5
    used = before.sum()
    before.register_hook(lambda gradient: gradient * 100)  # too late for `used`
    assert used.gradient(w)[0].tolist() == [5, 5]
    assert (used + before.sum()).gradient(before)[0].tolist() == [101, 101]
    with pytest.raises(ShapeError, match="the hook returned"):
        held = w * 7
        held.register_hook(lambda gradient: gradient.sum())
        held.sum().gradient(w)
    with pytest.raises(DTypeError, match="int32 has no gradient"):
        Tensor([1]).register_hook(print)


@verifies("gradient.hook.instead")
def test_a_hook_that_is_removed_holds_nothing() -> None:
    def used() -> None:
        x = Tensor([1.0, 2.0], requires_grad=True)
        inner, later = x * 2, list[Tensor]()
        handle = inner.register_hook(lambda gradient: later[0] + gradient)
        later.append(inner * 3)
        assert later[0].sum().gradient(x)[0].tolist() == [18.0, 30.0]
        handle.remove()
    used()
    gc.collect()
    before = len(living())
    used()
    gc.collect()
    assert len(living()) == before


@verifies("gradient.hook.accumulated")
def test_a_hook_sees_the_tensor_when_its_grad_is_whole() -> None:
    w, idle = (Tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    seen: list[list[float]] = []

    def step(parameter: Tensor) -> None:
        assert parameter is w and parameter.grad is not None
        seen.append(parameter.grad.tolist())

    handle = w.register_post_accumulate_grad_hook(step)
    idle.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        (w * 2 + w * 3).sum().backward()
    assert seen == [[5, 5], [10, 10]]
    w.sum().gradient(w)
    handle.remove()
    w.sum().backward()
    assert len(seen) == 2
    with pytest.raises(DTypeError, match="gets no grad"):
        (w * 2).register_post_accumulate_grad_hook(step)


@verifies("gradient.target.constant")
def test_a_number_is_no_variable_unless_it_is_said() -> None:
    w = Tensor([1.0, 2.0, 3.0])
    for number in (Tensor.ones(3), Tensor(2.0), Tensor.zeros(1, 1).expand(1, 3)):
        with pytest.raises(GraphError, match="one number that is known") as caught:
            (number * w).sum().gradient(number)
        assert "requires_grad" in caught.value.remedy
    for variable in (Tensor.ones(3, requires_grad=True), Tensor.ones(3).contiguous()):
        assert (variable * w).sum().gradient(variable)[0].tolist() == [1, 2, 3]


@verifies("gradient.hook.accumulated")
def test_one_hook_behind_two_handles() -> None:
    w, seen = Tensor([1.0, 2.0]).requires_grad_(), list[Tensor]()

    def look(tensor: Tensor) -> None:
        seen.append(tensor)
    first, second = (w.register_post_accumulate_grad_hook(look) for _ in range(2))
    (w * 1).sum().backward()
    assert len(seen) == 2
    first.remove()
    first.remove()
    (w * 1).sum().backward()
    assert len(seen) == 3
    second.remove()
    (w * 1).sum().backward()
    assert len(seen) == 3


@verifies("gradient.parameter.end+2")
@pytest.mark.parametrize("assigned", [
    lambda w, new: w.assign(new), lambda w, new: w[:].assign(new),
    lambda w, new: w.__setitem__(slice(None), new), lambda w, new: w.add_(new - w),
    lambda w, new: w.replace(new), lambda w, new: w.reshape(1, 1)[0].assign(new)])
def test_gradients_end_at_a_parameter_that_waits(assigned: Callable[[Tensor, Tensor], Any]) -> None:
    """One parameter is assigned what depends on itself and on the other one."""
    def slopes(realized: bool) -> list[list[float]]:
        one, two = (Tensor([value], requires_grad=True).realize() for value in (1.0, 0.5))
        found = []
        for _ in range(3):
            loss = (one * two).square().sum()
            of_one, of_two = loss.gradient(one, two)
            assigned(one, one - of_one * 0.0625)
            found.append((one * of_two).sum().gradient(one)[0] + of_two)
            if realized:
                Tensor.realize(one, *found)
        assert one.requires_grad
        return [each.tolist() for each in found]
    assert slopes(False) == slopes(True)
