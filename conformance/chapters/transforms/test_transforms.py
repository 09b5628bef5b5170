"""Functions of functions, against numbers that are known. Chapter: spec/transforms.md."""
from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from conformance.generators.functions import OPERATIONS, drawn
from conformance.trace import verifies
from impl import Context, Ops, Tensor, TinyJit, Variable, func
from impl.custom import loop
from impl.errors import ArgumentError, AxisError, DTypeError, ShapeError, TraceError
from impl.tensor.parameters import expressions_kept
from impl.torch import no_grad

POINT = np.array([[0.3, 1.7, -0.6], [2.2, -1.1, 0.9]])


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    """Many small functions, each run once: nothing is compiled for them."""
    with Context(DEVICE="REFERENCE"):
        yield


def close(mine: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    got = mine.numpy()
    assert got.shape == np.shape(wanted)
    np.testing.assert_allclose(got, wanted, tolerance, tolerance)


@verifies("transforms.derivative.argument+2")
def test_a_derivative_is_for_the_argument_at_its_place() -> None:
    x = Tensor(POINT)
    close(func.grad(lambda y: (x * y).sum())(x), POINT)
    first, second = func.grad(lambda a, b: (a * a * b).sum(), (0, 1))(x, x)
    close(first, 2 * POINT ** 2)
    close(second, POINT ** 2)
    assert func.grad(func.grad(func.grad(lambda y: y ** 4)))(2.0).item() == 48
    # One within another: the inner one does not see the outer variable as its own.
    assert func.grad(lambda y: y * func.grad(lambda z: y * z)(y))(Tensor(3.0)).item() == 6
    close(func.jvp(lambda y: (x * y).sum(), (x,), (Tensor(np.ones((2, 3))),))[1], POINT.sum())


@verifies("transforms.derivative.mode")
def test_a_derivative_is_the_same_where_no_gradients_are_kept() -> None:
    x = Tensor(POINT)
    with no_grad():
        close(func.grad(lambda y: (y ** 3).sum())(x), 3 * POINT ** 2)
        close(func.jvp(lambda y: y * y, (x,), (x,))[1], 2 * POINT ** 2)
        close(func.vjp(lambda y: y * y, x)[1](x)[0], 2 * POINT ** 2)
        close(func.hvp(lambda y: (y ** 3).sum(), (x,), (x,))[0], 6 * POINT ** 2)

    def half(y: Tensor) -> Tensor:
        with no_grad():
            kept = y * y
        return (kept * y).sum()
    close(func.grad(half)(x), POINT ** 2)


@dataclass
class Parts:
    weight: Tensor
    more: dict[str, Any]


@verifies("transforms.derivative.value")
def test_arguments_and_results_are_trees() -> None:
    given = Parts(Tensor([1.0, 2.0]), {"bias": Tensor(3.0), "name": "layer"})

    def loss(parts: Parts, times: float) -> tuple[Tensor, list[Any]]:
        value = (parts.weight * parts.more["bias"]).sum() * times
        return value, [value * 2, "more"]
    (value, aux), gradient = func.value_and_grad(loss, has_aux=True)(given, 2.0)
    assert value.item() == 18 and aux[0].item() == 36 and aux[1] == "more"
    assert isinstance(gradient, Parts) and gradient.weight.tolist() == [6, 6]
    assert gradient.more["bias"].item() == 6 and gradient.more["name"] == "layer"
    matrix = func.jacrev(lambda x: {"a": x * 2, "b": (x[0], x.sum())})(Tensor([1.0, 2.0]))
    assert matrix["a"].tolist() == [[2, 0], [0, 2]] and matrix["b"][0].tolist() == [1, 0]


@verifies("transforms.values.looked")
def test_a_function_may_look_at_its_values() -> None:
    def looks(x: Tensor) -> Tensor:
        y = (x * x).realize()
        return (y * y).sum() if y.sum().item() > 1 else y.sum()
    for function in (looks, lambda x: func.checkpoint(looks)(x)):
        close(func.grad(function)(Tensor(POINT)), 4 * POINT ** 3)
    close(func.jvp(looks, (Tensor(POINT),), (Tensor(POINT),))[1], (4 * POINT ** 4).sum())
    number = Tensor(2.0)
    assert func.grad(lambda y: (y * 3).contiguous().realize() * y)(number).item() == 12


@verifies("transforms.derivative.value")
def test_writes_inside_change_nothing_outside() -> None:
    def writes(x: Tensor) -> Tensor:
        x[0] = x[1] * 2
        return (x * x).sum()
    x = Tensor(POINT)
    wanted = np.stack([np.zeros(3), 10 * POINT[1]])
    close(func.grad(writes)(x), wanted)
    close(func.vmap(func.grad(writes))(Tensor(np.stack([POINT, POINT]))), [wanted, wanted])
    close(x, POINT)


@verifies("transforms.derivative.value")
def test_matrices_of_derivatives() -> None:
    a = np.random.default_rng(0).standard_normal((3, 3))
    matrix, x = Tensor(a), Tensor(POINT[0])
    for jacobian in (func.jacrev, func.jacfwd):
        close(jacobian(lambda y: matrix @ y)(x), a)
        close(jacobian(lambda y, z: y * z.sum(), (0, 1))(x, x)[1],
              np.outer(POINT[0], np.ones(3)))
    close(func.hessian(lambda y: (y * (matrix @ y)).sum())(x), a + a.T)
    close(func.hvp(lambda y: (y * (matrix @ y)).sum(), (x,), (x,))[0], (a + a.T) @ POINT[0])
    value, linear = func.linearize(lambda y: y * y, x)
    close(value, POINT[0] ** 2)
    for times in (1.0, 3.0):
        close(linear(x * times), 2 * times * POINT[0] ** 2)
    results, pull = func.vjp(lambda y: (y * 2, {"s": y.sum()}), x)
    close(pull((x, {"s": Tensor(1.0)}))[0], 2 * POINT[0] + 1)
    assert func.stop_gradient({"a": x, "b": 1})["b"] == 1
    assert func.grad(lambda y: (y * func.stop_gradient(y)).sum())(x).tolist() == x.tolist()


def marked(x: Tensor, y: Tensor) -> Tensor:
    """Writes into a mask, and through a view of a tensor that all examples have."""
    mask, more = (x > 0) * True, y * 1
    mask[1:] = x[:2] < 0.5
    more[:, 1] = x
    return mask.where(more[0], more[2])


LAYOUTS: list[tuple[Callable[..., Tensor], Any, Any]] = [
    (lambda x, y: x * y.sum(), (0, None), 0), (lambda x, y: x @ y, (0, 1), 0),
    (lambda x, y: x[Tensor([1, 0, 5])] + y, (1, 1), 1), (lambda x, y: x.flip(0) - y, 0, 0),
    (lambda x, y: x.pad((1, 2)).cumsum(0), (0, None), -1), (lambda x, y: x.unfold(0, 2, 1), 0, 0),
    (lambda x, y: x.sort()[0] + y.max(), 0, 0), (lambda x, y: x.argmax(), (0, None), 0),
    (lambda x, y: y.contiguous()[(x > 0).int()], (0, None), 0),
    (lambda x, y: y[(x > 0).int()], 0, 0), (lambda x, y: x.cumprod(0) + x.max(), (0, None), 0),
    (lambda x, y: y.scatter_reduce(0, (x > 0).long(), x, "sum"), 0, 0),
    (lambda x, y: x.scatter(0, Tensor([1]), y[:1]), 0, 0), (lambda x, y: y * 2, (None, 0), 0),
    (lambda x, y: marked(x, y), (0, None), 0),
    (lambda x, y: x.float().bitcast("int32").float(), (0, None), 0),
]


@verifies("transforms.batch.loop")
@pytest.mark.parametrize("number", range(len(LAYOUTS)))
def test_many_examples_are_a_loop(number: int) -> None:
    function, inside, outside = LAYOUTS[number]
    numbers = np.random.default_rng(number)
    x, y = numbers.standard_normal((3, 3)), numbers.standard_normal((3, 3))
    axes = inside if isinstance(inside, tuple) else (inside, inside)
    examples = [function(*[Tensor(v if axis is None else v.take(i, axis))
                           for v, axis in zip((x, y), axes, strict=True)]).numpy()
                for i in range(3)]
    got = func.vmap(function, inside, outside)(Tensor(x), Tensor(y))
    close(got, np.stack(examples, outside))
    twice = func.vmap(func.vmap(function, inside, outside), (0, None))(
        Tensor(np.stack([x, -x])), Tensor(y))
    close(twice[0], np.stack(examples, outside))


@verifies("transforms.batch.loop")
def test_axes_may_be_said_of_containers() -> None:
    given = {"a": Tensor(POINT), "b": (Tensor(POINT.T.copy()), 3)}
    mapped = func.vmap(lambda d, y: (d["a"] + d["b"][0] * d["b"][1] + y, y), (
        {"a": 0, "b": 1}, None), (0, None))
    first, second = mapped(given, Tensor(1.0))
    close(first, POINT * 4 + 1)
    assert second.item() == 1
    assert func.vmap(lambda: Tensor.ones(2), axis_size=3)().shape == (3, 2)
    close(func.vmap(lambda x: x.sum(), in_dims=1, out_dims=0)(Tensor(POINT)), POINT.sum(0))


@verifies("transforms.batch.loop")
def test_an_array_has_examples_too() -> None:
    a, b = Tensor([1.0, 2.0, 3.0, 4.0]), np.arange(4.0, dtype=np.float32)
    assert func.vmap(lambda x, y: x * y)(a, b).tolist() == [0, 2, 6, 12]
    assert func.vmap(lambda x, y: x * y)(a, y=b).tolist() == [0, 2, 6, 12]
    assert func.vmap(lambda x, s: x * s, (0, None))(a, 2.0).tolist() == [2, 4, 6, 8]
    assert func.vmap(lambda x, y: (x * y).sum(), (0, None))(a, b).tolist() == [6, 12, 18, 24]


@verifies("transforms.batch.random")
def test_examples_draw_as_in_a_loop() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x * Tensor.rand(3) + Tensor.randn(2).sum() + x.dropout(0.5, training=True)
    Tensor.manual_seed(7)
    loop = [noisy(Tensor(row)).numpy() for row in POINT]
    after = Tensor.rand(2).tolist()
    Tensor.manual_seed(7)
    close(func.vmap(noisy)(Tensor(POINT)), loop)
    assert Tensor.rand(2).tolist() == after
    Tensor.manual_seed(7)
    same = func.vmap(lambda x: x * 0 + Tensor.rand(3), randomness="same")(Tensor(POINT))
    Tensor.manual_seed(7)
    assert same.tolist() == [Tensor.rand(3).tolist()] * 2
    with pytest.raises(ArgumentError, match="draws random numbers"):
        func.vmap(noisy, randomness="error")(Tensor(POINT))


@verifies("transforms.trace.values")
def test_a_value_of_one_example_is_not_there() -> None:
    kept: list[Tensor] = []

    def keeps(x: Tensor) -> Tensor:
        assert "lazy" in repr(x + 1) and repr(x)
        kept.append(x * 2)
        return x
    func.vmap(keeps)(Tensor(POINT))
    for ask in (lambda: kept[0].tolist(), lambda: (kept[0] + 1).realize(),
                lambda: func.vmap(lambda x: x.sum().item())(Tensor(POINT)),
                lambda: func.vmap(lambda x: x if x.sum() > 0 else -x)(Tensor(POINT)),
                lambda: func.grad(lambda y: func.vmap(lambda x: x.numpy())(y))(Tensor(POINT))):
        for _ in range(2):  # the second time as well
            with pytest.raises(TraceError, match="vmap"):
                ask()


@verifies("transforms.arguments.refused+2")
def test_what_does_not_fit_is_refused() -> None:
    x = Tensor(POINT)
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (DTypeError, "int32", lambda: func.grad(lambda y: y.sum().float())(Tensor([1, 2]))),
        (ShapeError, "one number", lambda: func.grad(lambda y: y)(x)),
        (ArgumentError, "argnums", lambda: func.grad(lambda y: y.sum(), 1)(x)),
        (ArgumentError, "has_aux", lambda: func.grad(lambda y: y.sum(), has_aux=True)(x)),
        (ShapeError, "tangents", lambda: func.jvp(lambda y: y, (x,), (x[0],))),
        (ArgumentError, "tangents", lambda: func.jvp(lambda y: y, (x,), (x, x))),
        (ArgumentError, "gradients of the results",
         lambda: func.vjp(lambda y: (y, y), x)[1](x)),
        (ArgumentError, "in_axes", lambda: func.vmap(lambda y: y, (0, 0))(x)),
        (AxisError, "axis 2", lambda: func.vmap(lambda y: y, 2)(x)),
        (AxisError, "out_axes", lambda: func.vmap(lambda y: y.sum(), out_axes=1)(x)),
        (ArgumentError, "out_axes is None", lambda: func.vmap(lambda y: y, out_axes=None)(x)),
        (ShapeError, "2 and 3 examples", lambda: func.vmap(lambda y, z: y, (0, 1))(x, x)),
        (ArgumentError, "no argument", lambda: func.vmap(lambda y: y, None)(x)),
        (ArgumentError, "axis 0 is said of the number 2.0",
         lambda: func.vmap(lambda y, s: y * s)(x, 2.0)),
        (ArgumentError, "randomness", lambda: func.vmap(lambda y: y, randomness="often")),
        (ArgumentError, "pair", lambda: func.custom_gradient(lambda y: y)(x)),
    ]
    for kind, said, call in wrong:
        with pytest.raises(kind, match=said):
            call()


def layer(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).tanh() * 2 @ w.transpose()  # two users, each with a gradient of its own


@verifies("transforms.checkpoint.again")
def test_a_checkpoint_computes_again() -> None:
    numbers = np.random.default_rng(2)
    x = Tensor(numbers.standard_normal((64, 32)).astype(np.float32))
    weights = [Tensor(numbers.standard_normal((32, 32)).astype(np.float32) / 6) for _ in range(5)]

    def planned(each: Callable[[Tensor, Tensor], Tensor]) -> tuple[list[Tensor], int]:
        def network(y: Tensor, *ws: Tensor) -> Tensor:
            for w in ws:
                y = each(y, w)
            return (y * y).sum()
        found = list(func.grad(network, tuple(range(6)))(x, *weights))
        return found, Tensor.schedule_document(*found)["memory"]["unplanned"]
    plain, _ = planned(layer)
    products = _products(plain)
    for policy, again in ((func.Policies.nothing, 5), (func.Policies.dots, 0),
                          (func.Policies.everything, 0)):
        found, _ = planned(func.checkpoint(layer, policy))
        for mine, wanted in zip(found, plain, strict=True):
            close(mine, wanted.numpy(), 1e-3)
        found, _ = planned(func.checkpoint(layer, policy))
        # Of the way there every first product is computed twice, or none.
        assert _products(found) == products + again
    named = func.checkpoint(
        lambda y, w: (func.checkpoint_name(y @ w, "dot").tanh() * 2) @ w.transpose(),
        func.Policies.names("dot"))
    found, _ = planned(named)
    assert _products(found) == products
    assert func.grad(func.grad(lambda y: func.checkpoint(lambda z: z ** 3)(y)))(2.0).item() == 12
    two = func.vmap(func.grad(lambda y: func.checkpoint(lambda z: z ** 3)(y)))
    assert two(Tensor([2.0, 3.0])).tolist() == [12, 27]


@func.custom_gradient
def seventh(x: Tensor, y: Tensor) -> Any:
    return x * y, lambda gradient: (gradient * y * 7, gradient * x)


def doubled(x: Tensor, y: Tensor) -> Tensor:
    def double(out: Any, given: Any) -> Any:
        i = loop(2)
        return out[i].store(given[i] * 2).end(i).sink()
    return Tensor.custom_kernel(Tensor.empty(2), x, fxn=double, grad_fxn=lambda slopes, tensors,
                                results: [None, slopes[0] * 5])[0] * y


def checkpointed(x: Tensor, y: Tensor) -> Tensor:
    return func.checkpoint(lambda z: z.sin() * y)(x * 2)


@verifies("transforms.checkpoint.again")
@pytest.mark.parametrize("inside", [seventh, doubled, checkpointed])
@pytest.mark.parametrize("policy", [func.Policies.nothing, func.Policies.everything,
                                    lambda node: node.op is Ops.DETACH])
def test_a_checkpoint_keeps_the_gradients_that_were_said(
        inside: Callable[[Tensor, Tensor], Tensor], policy: Callable[[Any], bool]) -> None:
    def total(x: Tensor, y: Tensor) -> Tensor:
        return (inside(x * 3, y).tanh() * x).sum()
    x, y = Tensor([0.2, -0.1]), Tensor([0.3, 0.4])
    wanted = func.grad(total, (0, 1))(x, y)
    found = func.grad(func.checkpoint(total, policy), (0, 1))(x, y)
    assert np.abs(wanted[0].numpy()).min() > 0.1
    for mine, other in zip(found, wanted, strict=True):
        close(mine, other.numpy(), 1e-6)


@verifies("transforms.checkpoint.within")
def test_as_few_calls_as_will_do_are_computed_again() -> None:
    numbers = np.random.default_rng(3)
    x = Tensor(numbers.standard_normal((64, 32)).astype(np.float32))
    weights = [Tensor(numbers.standard_normal((32, 32)).astype(np.float32) / 6) for _ in range(8)]

    def wide(y: Tensor, w: Tensor) -> Tensor:
        grown = (y @ Tensor.cat(w, w, w, w, dim=1)).tanh()
        return y + (grown * grown @ Tensor.cat(w, w, w, w))

    def step(each: Callable[..., Tensor], *ws: Tensor) -> Any:
        def network(*ws: Tensor) -> Tensor:
            y = x
            for w in ws:
                y = each(y, w)
            return (y * y).mean() + Tensor.rand()
        return func.value_and_grad(network, tuple(range(8)))(*ws)

    def planned(result: Any) -> int:
        return result[0].schedule_document(*result[1])["memory"]["planned"]
    Tensor.manual_seed(2)
    plain = step(wide, *weights)
    most, checked = planned(plain), func.checkpoint(wide)
    least = planned(step(checked, *weights))
    assert least < 2 / 3 * most
    calls = []

    def counted(y: Tensor, w: Tensor) -> Tensor:
        calls.append(1)
        return wide(y, w)
    products = _products(list(plain[1]))
    again = [_products(list(step(checked, *weights)[1])) - products]
    results = []
    for limit in (most, (most + least) // 2, least):
        Tensor.manual_seed(2)
        limited = func.checkpoint_within(lambda *ws: step(func.checkpoint(counted), *ws), limit)
        result = limited(*weights)
        assert planned(result) <= limit
        again.append(_products(list(result[1])) - products)
        results.append(result)
        before = len(calls)
        limited(*weights)
        assert len(calls) == before + 8  # what was found is known
    every, none, some, all_but = again
    assert 0 == none < some < all_but <= every
    with pytest.raises(ArgumentError, match="bytes are needed"):
        func.checkpoint_within(lambda *ws: step(checked, *ws), least // 2)(*weights)
    for result in results:  # at the end: what is in memory needs no plan
        close(result[0], plain[0].numpy(), 1e-5)
        for mine, wanted in zip(result[1], plain[1], strict=True):
            close(mine, wanted.numpy(), 1e-3)


@verifies("transforms.checkpoint.within")
def test_the_count_is_that_of_the_call() -> None:
    x, calls = Tensor(np.ones((32, 32), np.float32)), []

    def value(y: Tensor, depth: int, extra: Any = None) -> Any:
        calls.append(depth)

        def deep(y: Tensor) -> Tensor:
            for _ in range(depth):
                y = func.checkpoint(lambda z: (z.sin() @ z).tanh())(y)
            return y.sum()
        return func.grad(deep)(y)
    limited = func.checkpoint_within(value, 1 << 30)
    for depth, settings in ((1, {}), (2, {}), (2, {"FUSE": 0})):
        with Context(**settings):
            for counted in (True, False):  # what was found is known, of the same call alone
                calls.clear()
                limited(x, depth=depth)
                assert (len(calls) > 1) is counted
    for _ in range(2):  # what cannot be compared is counted each time
        calls.clear()
        limited(x, depth=1, extra={1, 2})
        assert len(calls) > 1


def _products(tensors: list[Tensor]) -> int:
    """How many nodes are sums of products: what a graph has of matrix products."""
    nodes = {node for tensor in tensors for node in tensor.uop.toposort()}
    return sum(func.Policies.dots(node) and len(node.src[0].shape or ()) == 3 for node in nodes)


@verifies("transforms.derivative.argument+2")
def test_an_argument_that_was_looked_at_is_not_what_has_its_value() -> None:
    x = Tensor([2.0, 3.0]).realize()

    def product(inner: Tensor) -> Tensor:
        inner.numpy()
        return (inner * x).sum()
    assert func.grad(product)(x).tolist() == [2, 3]


@verifies("transforms.derivative.argument+2")
@pytest.mark.parametrize("view", [
    lambda x: x[:, 0].unsqueeze(-1), lambda x: x.permute(1, 0).reshape(2, 1)])
def test_a_view_that_was_looked_at_is_not_what_it_shows(view: Callable[[Tensor], Tensor]) -> None:
    """A view of all elements lies where the argument lies, in the same form."""
    x = Tensor([[1.0], [2.0]]).realize()

    def product(inner: Tensor) -> Tensor:
        shown = view(inner)
        shown.numpy()
        return (shown * x * shown).sum()
    assert func.grad(product)(x).tolist() == [[2], [8]]
    assert func.jvp(product, (x,), (x,))[1].item() == 18
    parameter = Tensor([[1.0], [2.0]], requires_grad=True)
    shown = view(parameter)
    shown.realize()
    (shown * parameter).sum().backward()
    assert parameter.grad is not None and parameter.grad.tolist() == [[2], [4]]
    detached = view(parameter.detach()).realize()
    assert (detached * parameter).sum().gradient(parameter)[0].tolist() == [[1], [2]]
    matrix = Tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
    slope = matrix.det().gradient(matrix)[0].realize()  # a gradient of its own is remembered
    assert slope[0, 0].gradient(matrix)[0].tolist() == [[0, 0], [0, 1]]


@verifies("transforms.values.returned")
@pytest.mark.parametrize("function", [
    lambda x: (x * x).sum().item(), lambda x: x[0].item() ** 2, lambda x: float(x.sum()),
    lambda x: (x * x).numpy(), lambda x: (x * x).sum().numpy()])
def test_what_was_read_is_no_result(function: Any) -> None:
    x = Tensor([1.0, 2.0]).realize()
    for derivative in (func.grad, func.jacrev, func.jacfwd, func.value_and_grad):
        with pytest.raises(TraceError, match="after it had read values"):
            derivative(function)(x)
    others: list[Callable[[], Any]] = [lambda: func.vjp(function, x),
                                       lambda: func.jvp(function, (x,), (x,))]
    for apart in others:
        with pytest.raises(TraceError, match="after it had read values"):
            apart()


@verifies("transforms.trace.assigned+4")
@pytest.mark.parametrize("write", [
    lambda total, x: total.assign(total + x), lambda total, x: total.__setitem__(0, x),
    lambda total, x: total.add_(x), lambda total, x: total.add_(1),
    lambda total, x: total[:1].assign(total + 1), lambda total, x: total.replace(total * 2)])
def test_a_traced_function_assigns_to_nothing_outside(write: Any) -> None:
    total, x = Tensor([5.0]).realize(), Tensor([1.0, 2.0]).realize()

    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        write(total, row)
        return carry + row, row
    for trace in (lambda: func.scan(step, Tensor(0.0), x), lambda: func.vmap(step)(x, x),
                  lambda: func.vmap(lambda a: func.vmap(lambda b: step(a, b))(x))(x)):
        with pytest.raises(TraceError, match="assigns to a tensor from outside") as caught:
            trace()
        assert f"{__file__}:" in caught.value.line and total.tolist() == [5]


@verifies("transforms.trace.assigned+4")
def test_a_choice_and_a_loop_assign_to_nothing_outside() -> None:
    """Also not in the branch that is not taken, nor to memory."""
    total = Tensor([5.0]).realize()

    def counts(x: Tensor) -> Tensor:
        total.add_(1.0)
        return x + 1
    traces: list[Callable[[], Any]] = [
        lambda: func.cond(Tensor(True), lambda x: x + 0, counts, Tensor([1.0])),
        lambda: func.while_loop(lambda x: (x < 3).all(), counts, Tensor([1.0]))]
    for trace in traces:
        with pytest.raises(TraceError, match="assigns to a tensor from outside"):
            trace()
        assert total.tolist() == [5]
    total.add_(1.0)  # waits, and what it waits for is overwritten inside
    with pytest.raises(TraceError, match="assigns to a tensor from outside"):
        func.vmap(lambda x: x + total.assign(total + 1).realize())(Tensor([1.0, 2.0]))
    assert total.tolist() == [7]


@verifies("transforms.trace.assigned+4")
def test_what_another_thread_assigns_is_none_of_the_functions() -> None:
    total, begun = Tensor([5.0]).realize(), threading.Event()

    def counts() -> None:
        begun.set()
        total.add_(1.0)

    def waits(x: Tensor) -> Tensor:
        thread.start()
        while not begun.is_set():
            time.sleep(0.001)
        time.sleep(0.02)
        return x + 1
    thread = threading.Thread(target=counts)
    assert func.vmap(waits)(Tensor([1.0, 2.0])).tolist() == [2, 3]
    thread.join()
    assert total.tolist() == [6]


@verifies("transforms.trace.assigned+4")
def test_what_a_thread_does_that_a_function_waits_for_stays() -> None:
    total, weight = Tensor([5.0]).realize(), Tensor([3.0], requires_grad=True).realize()

    def counts() -> None:
        total.add_(1.0)
        (weight * 2).sum().backward()

    def waits(x: Tensor) -> Tensor:
        thread.start()
        thread.join()
        return x + 1
    thread = threading.Thread(target=counts)
    assert func.vmap(waits)(Tensor([1.0, 2.0])).tolist() == [2, 3]
    assert total.tolist() == [6] and weight.grad is not None and weight.grad.tolist() == [2]


@verifies("transforms.trace.assigned+4")
def test_to_take_a_gradient_away_is_no_reason() -> None:
    weight, x = Tensor([3.0], requires_grad=True), Tensor([1.0, 2.0])
    weight.grad = Tensor([4.0])

    def forgets(row: Tensor) -> Tensor:
        weight.grad = None
        return row + 1
    assert func.vmap(forgets)(x).tolist() == [2, 3] and weight.grad is None


@verifies("transforms.trace.assigned+4")
@pytest.mark.parametrize("loss", [lambda w, x: (w * 2).sum(), lambda w, x: (w * x).sum()])
def test_a_gradient_is_left_at_nothing_outside(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    weight, slope = Tensor([1.0, 5.0], requires_grad=True), Tensor([7.0, 7.0])
    for before in (None, slope):
        weight.grad = before
        with pytest.raises(TraceError, match="leaves a gradient at a tensor from outside"):
            func.vmap(lambda x: (loss(weight, x).backward(), x)[1])(Tensor([1.0, 2.0, 3.0]))
        assert weight.grad is before


@verifies("transforms.trace.assigned+4")
def test_what_is_computed_inside_is_not_assigned() -> None:
    """A tensor from outside that waits may be computed, and looked at."""
    outside = Tensor([2.0]) + 1
    assert func.vmap(lambda x: x * outside.item())(Tensor([1.0, 2.0])).tolist() == [3, 6]
    assert outside.tolist() == [3]


@verifies("transforms.trace.assigned+4")
def test_a_traced_function_may_assign_to_its_own() -> None:
    x = Tensor([1.0, 2.0]).realize()

    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        mine = Tensor([3.0, 4.0])
        mine[0] = row
        carry += row
        return carry, mine
    assert func.scan(step, Tensor(0.0), x)[1].tolist() == [[1, 4], [2, 4]]
    assert func.vmap(lambda row: step(row * 1, row)[1])(x).tolist() == [[1, 4], [2, 4]]


@verifies("transforms.values.returned")
def test_a_constant_is_a_result() -> None:
    x, outside = Tensor([1.0, 2.0]).realize(), Tensor([2.0, 3.0])
    assert func.grad(lambda y: 3.0)(x).tolist() == [0, 0]
    assert func.grad(lambda y: outside.sum().item())(x).tolist() == [0, 0]
    found = func.grad(lambda y: ((y * y).sum(), y.sum().item()), has_aux=True)(x)
    assert found[0].tolist() == [2, 4] and found[1] == 3


@verifies("transforms.values.looked")
def test_a_checkpoint_may_look_at_values() -> None:
    x = Tensor([2.0, 3.0], requires_grad=True)

    def looks(y: Tensor) -> Tensor:
        return (y * y * y).realize().sum()
    func.checkpoint(looks)(x).backward()
    assert x.grad is not None and x.grad.tolist() == [12, 27]


@verifies("transforms.custom.said+2")
def test_checkpoints_keep_what_is_said_of_gradients() -> None:
    @func.custom_gradient
    def said(x: Tensor) -> Any:
        return x * x, lambda gradient: gradient * 100
    x = Tensor([[2.0, 1.0], [1.0, 3.0]])
    assert func.grad(func.checkpoint(lambda y: said(y).sum()))(x).tolist() == [[100, 100]] * 2
    twice = func.checkpoint(func.checkpoint(lambda y: (y * y).sum()))
    assert func.grad(twice)(x).tolist() == [[4, 2], [2, 6]]
    slope = func.grad(func.checkpoint(lambda y: y.inverse().sum()))(x)
    inverse = np.linalg.inv(x.numpy())
    close(slope, -inverse.T @ np.ones((2, 2)) @ inverse.T, 1e-5)


@verifies("transforms.custom.said+2")
def test_a_gradient_is_what_was_said() -> None:
    @func.custom_gradient
    def odd(x: Tensor, y: Tensor) -> Any:
        return (x * y, {"s": x + y}), lambda a, b: (a * y * 10, b["s"] * 0.5)

    def total(x: Tensor, y: Tensor) -> Tensor:
        first, second = odd(x, y)
        return (first + second["s"] * 3).sum()
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    for found in (func.grad(total, (0, 1))(x, y),
                  func.vmap(func.grad(total, (0, 1)))(x, y),
                  func.grad(lambda a, b: func.vmap(total)(a, b).sum(), (0, 1))(x, y),
                  func.jacfwd(total, (0, 1))(x, y)):
        assert [part.tolist() for part in found] == [[30, 40], [1.5, 1.5]]
    # What all examples have in common gets what each of them says.
    shared = func.grad(lambda b: func.vmap(total, (0, None))(x, b).sum())(Tensor(2.0))
    assert shared.item() == 3
    second = func.grad(lambda a: func.grad(total)(a, a * 2).sum())(x)
    assert second.tolist() == [20, 20]


@verifies("transforms.derivative.value")
def test_under_a_captured_function_with_sizes_and_on_a_mesh() -> None:
    def step(w: Tensor, x: Tensor) -> Any:
        each = func.vmap(func.value_and_grad(lambda w, x: (x * w).sin().sum()), (None, 0))
        return each(w, x)
    captured = TinyJit(step)
    for factor in (1.0, 2.0, 3.0, 4.0):
        w, x = POINT[0] * factor, POINT + factor
        value, gradient = captured(Tensor(w), Tensor(x))
        close(value, np.sin(x * w).sum(1))
        close(gradient, np.cos(x * w) * x)
    size = Variable("n", 1, 8)
    rows = Tensor(np.resize(POINT, (8, 3)))
    for count in (2, 5):
        part = rows[:size.bind(count)]
        _, gradient = step(Tensor(POINT[1]), part)
        wanted = np.resize(POINT, (8, 3))[:count]
        np.testing.assert_allclose(gradient.sum(0).numpy(),
                                   (np.cos(wanted * POINT[1]) * wanted).sum(0), 1e-9)
    spread = Tensor(POINT).shard(("REFERENCE", "REFERENCE:1"), 0)
    w = Tensor(POINT[1]).shard(("REFERENCE", "REFERENCE:1"))
    value, gradient = step(w, spread)
    close(gradient, np.cos(POINT * POINT[1]) * POINT)
    assert value.shape == (2,)


@verifies("transforms.derivative.value")
def test_functions_drawn_by_chance_against_differences() -> None:
    chooser, met = random.Random(4), set[str]()
    plain = [operation for operation in OPERATIONS if operation.plain]
    for number in range(8):
        function = drawn(chooser, operations=plain)
        met |= {operation.name for operation, _ in function.steps}
        numbers = np.random.default_rng(number)
        x, y, v = (numbers.uniform(-1.2, 1.2, shape)
                   for shape in (*function.shapes, function.shapes[0]))
        up, down = (function.impl(Tensor(x + s * 1e-6 * v), Tensor(y)).numpy()
                    for s in (1, -1))
        _, change = func.jvp(lambda a, f=function, b=y: f.impl(a, Tensor(b)),
                             (Tensor(x),), (Tensor(v),))
        close(change, (up - down) / 2e-6, 1e-5)
        back, = func.vjp(lambda a, f=function, b=y: f.impl(a, Tensor(b)), Tensor(x))[1](
            Tensor(np.ones(function.shape)))
        assert abs((back.numpy() * v).sum() - change.numpy().sum()) < 1e-6
    assert len(met) > len(plain) / 3


@verifies("transforms.derivative.value")
def test_functions_drawn_by_chance_against_jax() -> None:
    pytest.importorskip("jax")
    from conformance.chapters.transforms.against_jax import differences
    found, _, compared = differences(11, 2, 2)
    assert compared >= 3 and not found, found[0]


#: Functions that are written alike here and in PyTorch, of positive numbers none of which is alike.
SMOOTH: list[Callable[[Any], Any]] = [
    *[(lambda x, name=name: getattr(x, name)()) for name in (
        "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "tanh",
        "sigmoid", "erf", "abs", "square", "sinh", "cosh", "atan", "asinh", "neg", "prod", "relu",
        "log1p", "expm1", "var", "std", "norm", "log10")],
    lambda x: x.softmax(1), lambda x: x.log_softmax(0), lambda x: x.logsumexp(1),
    lambda x: x.cumsum(1), lambda x: x.cumprod(1),
    lambda x: (m if isinstance(m := x.cummax(1), Tensor) else m[0]) ** 2,
    lambda x: x.amax(0) ** 3, lambda x: x.max() * x.min(), lambda x: x.sort(1)[0] ** 3,
    lambda x: x ** x, lambda x: x ** 2.5, lambda x: 2 ** x, lambda x: x / x.sum(0),
    lambda x: x @ x.T, lambda x: x.clamp(0.5, 1.5) ** 2, lambda x: x.minimum(x * x),
    lambda x: x.reshape(3, 2).flip(0) * x.T, lambda x: x.unfold(1, 2, 1) ** 2,
    lambda x: (x > 1).where(x, 0 * x) ** 2 if isinstance(x, Tensor) else (x > 1) * x ** 2,
    lambda x: x.mean(1, keepdim=True) * x, lambda x: x[:, 1:] * x[:, :-1],
]
#: Places where a function has a corner, or is flat: what PyTorch says there.
CORNERS: list[tuple[Callable[[Any], Any], list[float]]] = [
    (lambda x: x.relu(), [0.0, 1.0]), (lambda x: x.abs(), [0.0, -1.0]),
    (lambda x: x.sign() * 1.0, [0.0, 2.0]), (lambda x: x ** 0, [0.0, 2.0]),
    (lambda x: x ** 2, [0.0]), (lambda x: x ** 1, [0.0]), (lambda x: x.sqrt(), [0.0, 4.0]),
    (lambda x: x.amax(), [2.0, 1.0, 2.0]), (lambda x: x.max(), [2.0, 1.0, 2.0]),
    (lambda x: x.min(), [1.0, 1.0]), (lambda x: x.maximum(x.flip(0)), [1.0, 1.0, 1.0]),
    (lambda x: x.minimum(x.flip(0)), [1.0, 1.0]), (lambda x: x.clamp(0, 1), [0.5, 2.0]),
    (lambda x: x.prod(), [0.0, 2.0, 0.0]), (lambda x: x.prod(), [0.0, 2.0, 3.0]),
    (lambda x: x.cumprod(0), [0.0, 2.0, 3.0]), (lambda x: x.norm(), [0.0, 0.0]),
    (lambda x: x.floor() + x.round() + x.trunc() + x, [0.5, 1.0]),
]


@verifies("transforms.derivative.value")
def test_derivatives_are_those_of_torch_to_second_order() -> None:
    torch = pytest.importorskip("torch")
    point = np.array([[0.3, 1.7, 0.6], [2.2, 1.1, 0.9]])
    weights = np.linspace(0.5, 1.5, 9)

    def total(f: Callable[[Any], Any], x: Any) -> Any:
        value = f(x)
        count = int(np.prod(tuple(value.shape)))
        weight = Tensor(weights.repeat(2)[:count]) if isinstance(x, Tensor) \
            else torch.tensor(weights.repeat(2)[:count])
        return (value.reshape(count) * weight).sum()
    for number, f in enumerate(SMOOTH):
        x, y = Tensor(point), torch.tensor(point)
        slope, theirs = (grad(lambda z, f=f: total(f, z)) for grad in (func.grad, torch.func.grad))
        second, other = (grad(lambda z, s=s: s(z).sin().sum())(at) for grad, s, at in (
            (func.grad, slope, x), (torch.func.grad, theirs, y)))
        for mine, wanted in ((slope(x), theirs(y)), (second, other)):
            np.testing.assert_allclose(mine.numpy(), wanted.numpy(force=True), 1e-6, 1e-8,
                                       err_msg=str(number))
    for number, (f, places) in enumerate(CORNERS):
        mine = func.grad(lambda z, f=f: total(f, z))(Tensor(np.array(places)))
        wanted = torch.func.grad(lambda z, f=f: total(f, z))(torch.tensor(np.array(places)))
        np.testing.assert_allclose(mine.numpy(), wanted.numpy(force=True), 1e-9, 1e-9,
                                   err_msg=f"corner {number}")


@verifies("transforms.values.looked")
def test_what_another_thread_realizes_is_none_of_the_functions() -> None:
    """The thread that traces keeps its expressions, and no other one."""
    x = Tensor([1.0, 2.0]).realize()
    with expressions_kept() as kept, ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: (x * 3).realize()).result()
        mine = (x * 2).realize()
    assert len(kept) == 1 and other._history is None and mine._history is kept[0]
