"""Derivatives of captured functions, from outside and from inside of transforms."""
from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, func, gradient
from impl.errors import GraphError
from impl.nn.optim import SGD, Adam
from impl.replay import history
from impl.tensor.random import generator
from impl.torch import no_grad


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
    with Context(DEVICE="REFERENCE"):
        yield


def _weights() -> Tensor:
    return Tensor([[1.0, 2.0], [-3.0, 0.5]], requires_grad=True).realize()


def _product(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).relu() * x


def _of_two(x: Tensor, w: Tensor) -> Tensor:
    made = {"left": x * w, "right": [(x.exp() * 2).sum(), 3.0]}
    return made["left"] * made["right"][0]  # type: ignore[index]


def _counted(x: Tensor, w: Tensor) -> Tensor:
    return x * Tensor([0.5, 2.0]) + w.sum(0) * Tensor([1, 2])


def _transposed(x: Tensor, w: Tensor) -> Tensor:
    one, two = x.reshape(1, 1, 2, 2), w.reshape(1, 1, 2, 2)
    return one.conv_transpose2d(two, stride=2)[0, 0, 1:3, 1:3]


BODIES = [_product, _of_two, _counted, lambda x, w: x.softmax() @ w, lambda x, w: (w * w) @ x,
          lambda x, w: (x * w).expm1() + w.elu(), _transposed, lambda x, w: x.detach() * w,
          lambda x, w: (x * w).sum(), lambda x, w: w + 0,
          lambda x, w: (x.maximum(w) * x.where(x > 1, w)).cumsum(1)]


@verifies("replay.gradient.eager")
@pytest.mark.parametrize("body", [
    lambda a: a.reshape(2), lambda a: a * 1.0, lambda a: (a * 1.0, a * 2)[0], lambda a: a,
    lambda a: a.reshape(2, 1).reshape(2), lambda a: a.flip(0).flip(0)])
def test_an_argument_that_is_returned_as_it_is(body: Callable[[Tensor], Tensor]) -> None:
    step = TinyJit(body)
    for _ in range(4):
        w = Tensor([2.0, 3.0], requires_grad=True)
        y = w * w
        step(y)
        assert (step(y) * w).sum().gradient(w)[0].tolist() == [12, 27]
        assert y.sum().gradient(w)[0].tolist() == [4, 6]


@pytest.mark.slow
@verifies("replay.gradient.eager")
@pytest.mark.parametrize("body", BODIES)
def test_a_gradient_goes_through_what_a_call_returned(body: Callable[..., Tensor]) -> None:
    """By an argument, by a tensor from outside, and once more by the gradient itself."""
    w, mine = _weights(), list[Any]()

    def plain(x: Tensor) -> Tensor:
        return body(x, w)
    step = TinyJit(plain)
    for call in range(5):
        x = Tensor([[1.0 + call, -2.0], [0.5, 3.0]]).realize()
        for number in range(2):
            function = (step, plain)[number]
            first, second = (function(x) * 3).sum().gradient(x, w)
            again = (first * first + second * x).sum().gradient(x, w)
            w.grad = None
            (function(x).sum() * 2).backward()
            found: list[Any] = [first, second, *again, w.grad]
            mine = mine if number else found
        for one, other in zip(mine, found, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert step.replays >= 6


@verifies("replay.arguments.depending")
@pytest.mark.parametrize("late", [0, 4])
@pytest.mark.parametrize("realized", [False, True])
def test_a_gradient_inside_goes_through_what_an_argument_was_computed_from(
        late: int, realized: bool) -> None:
    """Also if the function was captured before with one that comes from nowhere."""
    def slopes(capture: Callable[[Any], Any]) -> list[Any]:
        p, q = Tensor([0.5, -0.5], requires_grad=True), Tensor([1.0, 2.0], requires_grad=True)
        step, found = capture(lambda x: (p * x).sum().backward()), list[Any]()
        for _ in range(late):
            step(Tensor([3.0, 4.0]).realize())
        for number in range(4):
            q.grad, given = None, q * q if number < 2 else q * 3
            step(given.realize() if realized else given)
            assert q.grad is not None and p.grad is not None
            found.append((q.grad.tolist(), p.grad.tolist()))
            if not number:  # nothing from outside any more
                step(given.detach().realize())
        return found
    assert slopes(TinyJit) == slopes(lambda function: function)


@verifies("replay.arguments.depending")
def test_a_gradient_inside_goes_through_what_a_state_was_computed_from() -> None:
    def slopes(capture: Callable[[Any], Any]) -> list[Any]:
        q, state = Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0]).realize()

        def body(x: Tensor) -> Tensor:
            loss = (x * state * q).sum()
            loss.backward()
            return loss.detach()
        step, found, x = capture(body), list[Any](), Tensor([1.0, -1.0]).realize()
        for number in range(8):
            q.grad = None
            if number > 3:
                state.assign(q * 2 if number % 2 else q * q).realize()
            found += [step(x).tolist(), q.grad.tolist()]  # type: ignore[attr-defined]
        return found
    assert slopes(TinyJit) == slopes(lambda function: function)


@pytest.mark.slow
@verifies("replay.arguments.depending")
@pytest.mark.parametrize("body", [
    lambda x, p: x * p.detach(), lambda x, p: x + p, lambda x, p: (p > 0).float() * x,
    lambda x, p: x[p.argsort()], lambda x, p: x * p.sign(), lambda x, p: x + p.floor(),
    lambda x, p: (x.detach() * 2, x * 2), lambda x, p: (x * p).detach() + p.sum().detach(),
    lambda x, p: x * 2 if x.requires_grad else x * 3])
def test_what_requires_a_gradient(body: Any) -> None:
    def seen(capture: Callable[[Any], Any]) -> list[Any]:
        p, state = Tensor([3.0, -5.0], requires_grad=True), Tensor([1.0, 1.0]).realize()

        def both(x: Tensor) -> Any:
            found = body(x, p)
            state.assign(found[0] if isinstance(found, tuple) else found)
            return found
        step, found = capture(both), list[Any]()
        for number in range(9):
            x = Tensor([1.0, 2.0])
            results = step((x, x * p, p * 1)[number // 3])
            for each in results if isinstance(results, tuple) else (results,):
                found += [each.requires_grad, each.tolist()]
            found.append(state.requires_grad)
        return found
    assert seen(TinyJit) == seen(lambda function: function)


@verifies("replay.arguments.depending")
@pytest.mark.parametrize("when", [0, 1, 3])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_a_gradient_inside_goes_to_a_parameter_to_which_is_still_to_be_assigned(
        when: int, state: bool, alone: bool) -> None:
    """In the call that is captured too: `alone`, nothing else requires a gradient."""
    def slopes(capture: Callable[[Any], Any]) -> list[Any]:
        p, q = Tensor([3.0, 4.0], requires_grad=True), Tensor([1.0, 2.0], requires_grad=not alone)
        held, found = Tensor([0.0, 0.0]).realize(), list[Any]()
        step = capture(lambda x: ((held if state else x) * q).sum().backward())
        for number in range(5):
            if number == when:
                p.assign(p.detach() * 2.0)
            p.grad = q.grad = None
            given = p * p
            if state:
                held.assign(given)
            step(given)
            assert p.grad is not None
            found += [p.grad.tolist(), q.grad is not None and q.grad.tolist(), p.tolist()]
        return found
    assert slopes(TinyJit) == slopes(lambda function: function)


@verifies("replay.arguments.depending")
def test_what_others_compute_requires_no_gradient_for_that() -> None:
    """What was pending when a capture began, and the memories of an optimiser."""
    p, x = Tensor([0.5, -0.5], requires_grad=True), Tensor([1.0, 2.0]).realize()
    pending, optimizer = x * 3, Adam([p], lr=0.1)

    def body(x: Tensor) -> None:
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()
    step = TinyJit(body)
    for _ in range(4):
        step(x)
    assert step.replays == 2 and not pending.requires_grad
    assert [t.requires_grad for t in optimizer.state[p].values()] == [False] * len(
        optimizer.state[p])
    other = TinyJit(lambda t: t + 1)
    for given in (x, x, x, pending):
        other(given)
    assert other.replays == 2  # for a gradient, too, it is like the others


@verifies("replay.gradient.eager")
def test_gradients_of_results_in_containers_and_of_results_of_results() -> None:
    step = TinyJit(lambda x, by: {"half": [x * 0.5 * by], "square": (x * x, 1)})
    x, by = Tensor([1.0, 2.0]).realize(), Tensor([2.0, 4.0]).realize()
    for _ in range(4):
        first = step(x, by)
        second = step(first["half"][0], first["square"][0])
        gradient, = second["half"][0].sum().gradient(x)  # x/4 by x^2
        np.testing.assert_allclose(gradient.numpy(), 0.25 * by.numpy() * 3 * x.numpy() ** 2)
    assert step.replays == 6


@verifies("replay.gradient.eager")
def test_a_gradient_uses_the_random_numbers_of_its_call() -> None:
    x = Tensor([1.0] * 32).realize()
    step = TinyJit(lambda x: x * Tensor.rand(32))
    results = [step(x) for _ in range(4)]
    for result in results[::-1]:
        assert (result.sum().gradient(x)[0].numpy() == result.numpy()).all()


@verifies("replay.gradient.eager")
def test_a_gradient_uses_the_values_of_its_call_or_is_refused() -> None:
    """Where an argument or a tensor from outside was overwritten since, it is an error."""
    w, x = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
    step = TinyJit(lambda x: x * w)
    for _ in range(5):
        result = step(x)
        assert result.sum().gradient(x)[0].tolist() == w.tolist()
        w.assign(w + 1).realize()
        with pytest.raises(GraphError, match="overwritten"):
            result.sum().gradient(x)
        result = step(x)
        x.assign(x + 1).realize()
        with pytest.raises(GraphError, match="overwritten"):
            result.sum().gradient(w)
    assert step.replays == 8


@verifies("replay.gradient.eager")
def test_a_gradient_through_a_state_that_the_body_writes() -> None:
    """What is written is a value; no write is done again for a gradient."""
    state, x = Tensor([0.0, 0.0]).realize(), Tensor([3.0, 4.0]).realize()

    def body(x: Tensor) -> Tensor:
        state.assign(state * 0 + x * x)
        return state * 2 + x
    step = TinyJit(body)
    for number in range(4):
        result = step(x)
        assert result.sum().gradient(x)[0].tolist() == [13.0, 17.0], number
        assert state.tolist() == [9.0, 16.0]


@verifies("replay.gradient.eager")
def test_what_cannot_be_told_again_is_an_error_that_names_the_remedy() -> None:
    """Where no gradient is asked for it is none."""
    w = _weights()

    @func.custom_gradient
    def twice(x: Tensor) -> Any:
        doubled = x * 2
        return doubled, lambda g: g * doubled
    step = TinyJit(lambda x: twice(x) + 1)
    for number in range(4):
        x = Tensor([[1.0, 2.0], [3.0, number]]).realize()
        assert (step(x).numpy() == x.numpy() * 2 + 1).all()
        assert ((step(x) * w).sum().gradient(w)[0].numpy() == x.numpy() * 2 + 1).all()
        if number:
            with pytest.raises(GraphError, match="take the gradient inside"):
                step(x).sum().gradient(x)
    assert step.replays == 9  # nor is a tensor of the gradient kept outside


@verifies("replay.gradient.eager")
def test_what_nobody_holds_any_more_is_an_error_or_held() -> None:
    """By what requires a gradient everything is held, as long as a result is."""
    many = 1000  # of small results a capture holds the last two itself
    x = Tensor([1.0, 2.0] * many).realize()
    step = TinyJit(lambda x: x * x)
    step(step(x))
    for _ in range(3):
        with pytest.raises(GraphError, match="nobody holds any more"):
            step(step(x)).sum().gradient(x)
        inner = step(x)
        assert step(inner).sum().gradient(x)[0].tolist() == [4.0, 32.0] * many
        assert step(x * 2).sum().gradient(x)[0].tolist() == [8.0, 16.0] * many
        kept = step(x) * 2
        assert step(kept).sum().gradient(x)[0].tolist() == [16.0, 128.0] * many
    x.requires_grad = True
    for _ in range(4):
        x.grad = None
        step(step(step(x)) * 1).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [8.0, 1024.0] * many


@verifies("replay.gradient.eager")
def test_a_step_that_updates_its_parameters() -> None:
    """Its gradients are taken inside: outside, the parameters of then are there no more."""
    w = _weights()

    def body(x: Tensor) -> Tensor:
        w.grad = None
        loss = (x @ w).square().sum()
        loss.backward()
        w.assign(w.detach() - w.grad * 0.01)  # type: ignore[operator]
        return loss
    step, x = TinyJit(body), Tensor([[1.0, 2.0]]).realize()
    step(x)
    for _ in range(4):
        with pytest.raises(GraphError, match="overwritten"):
            step(x).gradient(x)[0].realize()
    assert step.replays == 3


@verifies("replay.gradient.eager")
@pytest.mark.parametrize("flagged", ["neither", "below", "both"])
@pytest.mark.parametrize("computed", [False, True])
def test_an_argument_that_is_computed_for_the_call(flagged: str, computed: bool) -> None:
    """Also in the call that is captured, which forgets for its time what was computed before."""
    def body(x: Tensor) -> Tensor:
        return (x * x * 3).sum()

    def slopes(function: Any, number: int) -> Any:
        below = Tensor([1.0, float(number)], requires_grad=flagged != "neither")
        x = below * 2
        other = (x * 5).sum()  # is not computed by the call
        if flagged == "both":
            x.requires_grad_()
        if computed:
            x.realize()
        result = function(x)
        return [each.tolist() for root in (result, result + other)
                for each in root.gradient(*[x, below][:1 if flagged == "neither" else 2])]

    step = TinyJit(body)
    for number in range(5):
        assert slopes(step, number) == slopes(body, number)
    assert step.replays == 3


@verifies("replay.gradient.eager")
@pytest.mark.parametrize("body", [
    lambda x, p: x.flip(0), lambda x, p: (x * p, x.flip(0)), lambda x, p: (x * p, x[1:]),
    lambda x, p: (x.reshape(2, 1), x * 2), lambda x, p: (x.flip(0).exp(), p.flip(0)),
    lambda x, p: (x.reshape(2), p.reshape(2))])
def test_a_result_that_is_a_movement_of_a_parameter(body: Any) -> None:
    p, step = Tensor([3.0, 5.0], requires_grad=True), TinyJit(lambda x: body(x, p))

    def slopes(function: Any) -> Any:
        x = Tensor([1.0, 2.0], requires_grad=True)
        results = function(x)
        every = results if isinstance(results, tuple) else (results,)
        loss = sum((each.sin().sum() for each in every), start=(x * x * p).sum())
        p.grad = None
        loss.backward()
        assert p.grad is not None and x.grad is not None
        return x.grad.tolist(), p.grad.tolist()

    wanted = slopes(lambda x: body(x, p))
    for number in range(5):
        assert slopes(step) == wanted, number
    assert step.replays == 3


@verifies("replay.gradient.eager")
def test_a_result_beside_a_state_that_is_written_holds_its_arguments() -> None:
    """Statistics of a batch norm are no reason that a result forgets what it was computed from."""
    w, mean = Tensor([3.0, 4.0], requires_grad=True), Tensor([0.0, 0.0]).realize()
    buffers: list[Any] = []

    def body(x: Tensor) -> tuple[Tensor, Tensor]:
        mean.assign(mean * 0.5 + x.detach())
        return x * x * w, mean * w
    step = TinyJit(body)
    for number in range(5):
        x = Tensor([1.0, float(number)]).realize()
        buffers.append(weakref.ref(x.uop.arg[0]))
        result, _ = step(x)
        del x
        w.grad = None
        result.sum().backward()
        assert w.grad is not None and w.grad.tolist() == [1, number * number]
    assert step.replays == 3
    del result
    gc.collect()
    assert sum(each() is not None for each in buffers) <= 2  # of the capture, and of the last call


@verifies("replay.gradient.eager")
def test_a_history_keeps_the_memory_of_one_call() -> None:
    """A state that goes through many calls does not keep those before; under no_grad none."""
    step = TinyJit(lambda x: x * 2)
    held, buffers = step(Tensor([1.0, 2.0] * 1000).realize()).realize(), list[Any]()
    for _ in range(12):
        held = step(held)
        buffers.append(weakref.ref(held.uop.arg[0]))
    gc.collect()
    assert sum(each() is not None for each in buffers) == 2
    with no_grad():
        for _ in range(4):
            held = step(held)
            buffers.append(weakref.ref(held.uop.arg[0]))
    gc.collect()  # each of the two captures knows what it has made itself, and holds the last
    assert sum(each() is not None for each in buffers) == 4
    losses, w = [], _weights()

    def body(x: Tensor) -> Tensor:
        loss = (x @ w).sum()
        w.assign(w.detach() * 0.5)
        return loss
    step = TinyJit(body)
    for _ in range(6):
        x = Tensor(np.ones((2, 2), np.float32)).realize()
        buffers.append(weakref.ref(x.uop.arg[0]))
        losses.append(step(x))
    del x
    gc.collect()
    assert sum(each() is not None for each in buffers[-4:]) == 0


def _cube(x: Tensor) -> Tensor:
    return (x * x * x).sum()


def _carried(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return carry + x, carry * x


ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
TRANSFORMS: dict[str, tuple[Callable[..., Any], Callable[[Any, Tensor, Tensor], Any]]] = {
    "grad": (_cube, lambda f, x, m: func.grad(f)(x)),
    "value_and_grad": (_cube, lambda f, x, m: func.value_and_grad(f)(x)),
    "hessian": (_cube, lambda f, x, m: func.hessian(f)(x)),
    "jvp": (_cube, lambda f, x, m: func.jvp(f, (x,), (x,))),
    "vjp": (_cube, lambda f, x, m: func.vjp(f, x)[1](Tensor(2.0))),
    "vmap": (_cube, lambda f, x, m: func.vmap(f)(m)),
    "grad of vmap": (_cube, lambda f, x, m: func.grad(lambda t: func.vmap(f)(t).sum())(m)),
    "vmap of grad": (_cube, lambda f, x, m: func.vmap(func.grad(f))(m)),
    "checkpoint": (_cube, lambda f, x, m: func.grad(func.checkpoint(f))(x)),
    "scan": (_carried, lambda f, x, m: func.scan(f, x, m)),
    "cond": (_cube, lambda f, x, m: func.cond(Tensor(True), f, lambda t: t.sum(), x)),
    "while_loop": (lambda x: x * 2, lambda f, x, m: func.while_loop(
        lambda t: t.sum() < 100, f, x))}


@pytest.mark.slow
@verifies("replay.nested.inlined+2")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_of_a_captured_function_is_one_of_its_body(name: str) -> None:
    """Before and after it was captured, and captured itself."""
    body, transform = TRANSFORMS[name]
    step, x, rows = TinyJit(body), Tensor(ROWS[0]).realize(), Tensor(ROWS).realize()
    outer = TinyJit(lambda x, rows: transform(step, x, rows))
    wanted = _plain(transform(body, x, rows))
    for _ in range(4):
        assert _plain(transform(step, x, rows)) == wanted
        assert _plain(outer(x, rows)) == wanted
        step(x, x) if body is _carried else step(x)
    assert step.replays == 2 and outer.replays == 2


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, (tuple, list)) \
        else value.tolist() if isinstance(value, Tensor) else value


@verifies("replay.random.advances")
def test_a_gradient_draws_no_random_numbers() -> None:
    x = Tensor([1.0, 2.0]).realize()
    step = TinyJit(lambda x: x * Tensor.rand(2))
    for _ in range(4):
        result, before = step(x), generator.counter
        result.sum().gradient(x)[0].realize()
        assert generator.counter == before


@verifies("replay.gradient.eager")
def test_expressions_of_many_states_are_found_in_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes looked at while the results of a training step are told, per parameter."""
    visits, sources_of = list[int](), gradient.sources_of

    def counted(node: Any) -> Any:
        visits[-1] += 1
        return sources_of(node)

    def added(*given: Any) -> None:
        visits.append(0)
        with pytest.MonkeyPatch.context() as patch:
            for module in (gradient, history):
                patch.setattr(module, "sources_of", counted)
            add(*given)

    add = history.Expressions.add
    monkeypatch.setattr(history.Expressions, "add", added)
    for count in (4, 8, 16):
        weights = [Tensor([float(n), 1.0], requires_grad=True).realize() for n in range(count)]
        optimiser = SGD(weights, lr=0.1, momentum=0.5)

        def step(x: Tensor) -> Tensor:
            optimiser.zero_grad()  # noqa: B023
            for w in weights:  # noqa: B023
                x = (x * w).relu()
            loss = x.sum().backward()
            optimiser.step()  # noqa: B023
            return loss
        captured = TinyJit(step)
        with Tensor.train():
            for _ in range(3):
                captured(Tensor([1.0, -2.0]).realize())
        assert captured.replays == 1
    few, some, many = visits
    assert many - some < 2.2 * (some - few) and few > 0, visits


@verifies("replay.guard.complete")
@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("outside", [False, True])
def test_a_body_that_asks_what_requires_a_gradient(computed: bool, outside: bool) -> None:
    """What an argument, or a tensor from outside, was computed from may be frozen meanwhile."""
    w, one = Tensor([2.0], requires_grad=True), Tensor([1.0]).realize()
    held = [w * 2]

    def body(x: Tensor) -> Tensor:
        return x + 1 if (held[0] if outside else x).requires_grad else x - 1
    step = TinyJit(body)
    for number in range(12):
        w.requires_grad_(number // 4 != 1)
        x = one if outside else w * 2
        if computed:
            Tensor.realize(x, held[0])
        assert step(x).tolist() == body(x).tolist(), number
    assert step.replays >= 6


@pytest.mark.slow
@verifies("replay.gradient.eager")
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("way", ["frozen", "result", "other"])
def test_what_was_computed_of_something_frozen(given: bool, way: str) -> None:
    """It requires a gradient when that does again, and gives it; other frozen tensors have none."""
    def found(function: Callable[[Any], Any]) -> list[Any]:
        w, one = Tensor([2.0]).realize().requires_grad_(), Tensor([3.0]).realize()
        other, told = Tensor([5.0]).realize().requires_grad_(False), list[Any]()
        held = [w]
        step = function((lambda x, p: x * p + 1) if given else (lambda x: x * held[0] + 1))
        for number in range(13):
            w.requires_grad_(way == "frozen" and number // 4 % 2 == 0)
            if way == "result":
                w.requires_grad_(True)
                held[0] = (w * 2).realize().requires_grad_(False)
            elif way == "other":
                held[0] = w if number >= 8 else other
            y = step(one, held[0]) if given else step(one)
            before = y.requires_grad
            w.requires_grad_(True)
            w.grad = None
            if y.requires_grad:
                y.sum().backward()
            told.append((y.tolist(), before, y.requires_grad,
                         None if w.grad is None else w.grad.tolist()))
        return told

    step: list[Any] = []

    def captured(body: Callable[..., Any]) -> Any:
        step.append(TinyJit(body))
        return step[0]
    assert found(captured) == found(lambda body: body)
    assert step[0].replays >= 4 or way == "result" and not given  # each is another state


@verifies("replay.gradient.eager")
@pytest.mark.parametrize("computed", [False, True])
def test_an_argument_that_is_given_another_value(computed: bool) -> None:
    """What it was computed from before is forgotten."""
    w, s = Tensor([2.0, 3.0]).realize().requires_grad_(), Tensor([5.0, 6.0]).realize()
    step = TinyJit(lambda x: x.assign(s * 2))
    for _ in range(5):
        x, w.grad = w * 2, None
        if computed:
            x.realize()
        step(x)
        assert not x.realize().requires_grad
        (x + w).sum().backward()
        assert w.grad is not None and w.grad.tolist() == [1.0, 1.0]
    assert step.replays == 3


@pytest.mark.slow
@verifies("replay.gradient.eager")
@pytest.mark.parametrize("dependent", [(), (0,), (2,), (5,), (3, 6)])
@pytest.mark.parametrize("given", [False, True])
def test_a_state_that_depends_on_a_parameter(dependent: tuple[int, ...], given: bool) -> None:
    """What was in it before is overwritten: a gradient through that is an error, and never less."""
    def found(function: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        w, one = Tensor([2.0, 3.0]).realize().requires_grad_(), Tensor([1.0, 1.0]).realize()
        state, told = Tensor([1.0, 1.0]).realize(), list[Any]()
        step = function((lambda x, s: s.assign(s * 2 + x)) if given
                        else (lambda x: state.assign(state * 2 + x)))
        for number in range(8):
            x = w * 2 if number in dependent else one
            step(x, state) if given else step(x)
            told.append((state.tolist(), state.requires_grad))
        try:
            (state * 3 + w).sum().backward()
        except GraphError:
            return told, None
        return told, w.grad.tolist()  # type: ignore[union-attr]

    (eager, gradient), (captured, same) = found(lambda body: body), found(TinyJit)
    assert captured == eager and gradient is not None
    assert same in ((gradient,) if not dependent else (gradient, None))


@verifies("replay.gradient.eager")
@pytest.mark.parametrize("change", [
    lambda w, x: w.assign(w.detach() + x), lambda w, x: w.assign(x),
    lambda w, x: w.assign(w.detach() * 2 + x).realize(), lambda w, x: w.__setitem__(0, x[0])])
def test_a_result_of_what_a_parameter_has_become(change: Any) -> None:
    """Of the new value of a parameter a replay tells nothing: such a function is traced."""
    def gradients(function: Callable[[Any], Any]) -> list[Any]:
        w, found = Tensor([1.0, 2.0]).realize().requires_grad_(), list[Any]()

        def body(x: Tensor) -> Tensor:
            change(w, x)
            return w * 3
        step = function(body)
        for _ in range(4):
            result = step(Tensor([1.0, 1.0]).realize())
            w.grad = None
            (w * 0.5 + result).sum().backward()
            found.append((result.tolist(), None if w.grad is None else w.grad.tolist()))
        return found

    assert gradients(TinyJit) == gradients(lambda body: body)
    step, w = TinyJit(lambda x: (w.assign(w.detach() + x) * 3).detach()), Tensor([1.0]).realize()
    w.requires_grad_()
    assert [step(Tensor([1.0])).item() for _ in range(5)] == [6, 9, 12, 15, 18]
    assert step.replays == 3
