"""What captured functions refuse, their methods, and threads. See spec/replay.md."""
from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.chapters.realize.test_realize import run_in_threads
from conformance.chapters.replay.test_replay_calls import assign, first, numbers
from conformance.trace import verifies
from impl import (
    Context,
    Device,
    Ops,
    Tensor,
    TinyJit,
    UOp,
    Variable,
    dtypes,
    func,
    nn,
    run_schedule,
)
from impl.custom import loop
from impl.device import Table
from impl.errors import ReplayError, VariableError
from impl.linear import get_kernel_graph

# Arguments that the function also knows by another name ----------------------------------------


@verifies("replay.guard.state", observe="replay")
def test_an_argument_that_the_function_uses_besides() -> None:
    w, other = numbers(3), numbers(10)
    step = TinyJit(lambda x: x + w)
    assert [first(step(x)) for x in (w, w, w, other, w)] == [6, 6, 6, 13, 6]


def refused_or(step: Callable[..., Any], *arguments: Tensor) -> bool:
    """Whether a call was refused; the first argument is as it was, then."""
    before = arguments[0].numpy()
    try:
        step(*arguments)
    except ReplayError as error:
        assert error.remedy
        np.testing.assert_array_equal(arguments[0].numpy(), before)
        return True
    return False


@verifies("replay.guard.state", observe="replay")
def test_an_argument_that_becomes_a_state_that_is_written() -> None:
    for shared in (False, True):
        w = Tensor(np.array([1, 2], np.float32)).realize()
        step = TinyJit(lambda x, w=w: assign(w, w + x.flip(0)))
        for _ in range(2):
            step(numbers(1))
        given = Tensor(w.uop) if shared else w
        assert w.tolist() == [3, 4]
        if not refused_or(step, given):
            assert w.tolist() == [7, 7]
        step(numbers(1))  # and nothing is lost
        assert w.tolist()[0] in (4, 8)


@verifies("replay.guard.state", observe="replay")
def test_a_capture_that_comes_to_nothing_is_not_replayed() -> None:
    w = numbers(1)
    step = TinyJit(lambda x: assign(w, w + x))
    step(numbers(1))
    step(w)
    assert first(w) == 4 and not step.entries
    step(numbers(2))
    step(numbers(3))
    assert (step.replays, first(w)) == (1, 9)


@verifies("replay.guard.state", observe="replay")
@verifies("replay.failure.done+2", observe="replay")
@pytest.mark.parametrize("case", range(5))
def test_an_argument_that_is_a_state_when_captured(case: int) -> None:
    """The body reads or writes the tensor by both its names."""
    def program(captured: Callable[..., Any]) -> list[float]:
        w = Tensor(np.array([1, 2], np.float32)).realize()

        def body(x: Tensor) -> Tensor | None:
            if case == 0:
                assign(w, w + x.flip(0))
                return None
            if case == 1:
                x.assign(x + 1)
                return w * 2
            if case == 2:
                w.assign(w + 1)
                return x * 2
            if case == 3:
                x.assign(x + 1)
                assign(w, w * 2)
                return None
            x.assign(x.flip(0))
            return w + 0

        step, found = captured(body), []
        for _ in range(4):
            if captured is TinyJit and refused_or(step, w):
                break
            if captured is not TinyJit:
                step(w)
            found += w.tolist()
        return found

    eager, replayed = program(lambda function: function), program(TinyJit)
    assert replayed == eager[:len(replayed)] and len(replayed) >= 2


@verifies("replay.guard.state", observe="replay")
def test_an_argument_that_is_a_view() -> None:
    """To assign to a view changes the tensor that it was taken from, or is refused."""
    whole = Tensor(np.zeros(4, np.float32)).realize()
    step = TinyJit(lambda x: assign(x, x + 1))
    for count in range(1, 5):
        view = whole[1:3]
        if refused_or(step, view):
            break
        assert whole.tolist() == [0, count, count, 0]
    step = TinyJit(lambda x: assign(x, x + 1))
    for count in range(3):
        step(numbers(count))
    view = whole[1:3]
    before = view.tolist()[0]
    if not refused_or(step, view):
        assert whole.tolist() == [0, before + 1, before + 1, 0]


@verifies("replay.guard.state", observe="replay")
@verifies("replay.failure.done+2", observe="replay")
@pytest.mark.parametrize("raising", [(), (1,), (1, 2)])
@pytest.mark.parametrize("counts", [False, True])
def test_views_of_one_tensor_that_are_written(raising: tuple[int, ...], counts: bool) -> None:
    """The body runs again on the arguments themselves: but it does nothing twice, and what it has
    done when it raises is done.
    """
    def program(captured: Callable[..., Any]) -> list[Any]:
        whole, calls = Tensor(np.array([1, 2, 3, 4], np.float32)).realize(), SimpleNamespace(n=0)
        fails = SimpleNamespace(now=False)

        def body(a: Tensor, b: Tensor) -> Tensor:
            if counts:
                calls.n += 1
            a[0] = 7.0
            b[1] = b[1] * 2
            if fails.now:
                raise ValueError
            return a.sum() + b.sum()

        step, a, b, found = captured(body), whole[0:3], whole[0:3], []
        for number in range(6):
            fails.now = number in raising
            with pytest.raises(ValueError) if fails.now else nullcontext():
                step(a, b)
            found.append((whole.tolist(), a.tolist(), b.tolist(), calls.n))
        return found

    assert program(TinyJit) == program(lambda function: function)


@verifies("replay.guard.state", observe="replay")
@pytest.mark.parametrize("writes", [False, True])
def test_a_body_reaches_its_argument_by_another_name_and_counts(writes: bool) -> None:
    """The argument is a view of a tensor that the body reads, or writes to. A call that cannot be
    replayed counts once, as each of the others does.
    """
    def program(captured: Callable[..., Any]) -> list[Any]:
        whole, calls = Tensor(np.array([1, 2, 3, 4], np.float32)).realize(), SimpleNamespace(n=0)

        def body(a: Tensor) -> Tensor:
            calls.n += 1
            if writes:
                whole[0] = 7.0
            a[1] = a[1] * 2
            return (whole * 1).sum() + a.sum()

        step, a, found = captured(body), whole[0:3], []
        for _ in range(6):
            found.append((step(a).tolist(), whole.tolist(), a.tolist(), calls.n))
        return found

    assert program(TinyJit) == program(lambda function: function)


@verifies("replay.guard.complete", observe="replay")
@pytest.mark.parametrize("moved", [0, 1])
def test_two_owners_of_one_buffer_that_part(moved: int) -> None:
    used = numbers(1)
    owners = [used, Tensor(used.uop)]
    step = TinyJit(lambda: used * 10)
    for _ in range(3):
        assert first(step()) == 10
    owners[moved].assign(numbers(5)).realize()
    try:
        assert first(step()) == (50 if moved == 0 else 10)
    except ReplayError as error:
        assert error.remedy


# Methods -----------------------------------------------------------------------------------


class Base:
    def __init__(self, start: float) -> None:
        self.total = numbers(start)

    @TinyJit
    def step(self, x: Tensor) -> Tensor:
        self.total.assign(self.total + x)
        return self.total + 0


class Derived(Base):
    double = TinyJit(lambda self, x: x * 2 + self.total)
    triple = TinyJit(lambda self, x: x * 3 + self.total)

    @TinyJit
    def step(self, x: Tensor) -> Tensor:
        return super().step(x) * 100


@verifies("replay.state.eager", observe="replay")
def test_two_methods_of_one_name() -> None:
    one = Derived(0)
    found = [(first(one.double(numbers(i))), first(one.triple(numbers(i)))) for i in range(5)]
    assert found == [(0, 0), (2, 3), (4, 6), (6, 9), (8, 12)]


@verifies("replay.state.eager", observe="replay")
def test_the_method_of_the_base_class() -> None:
    one, other = Derived(0), Derived(10)
    found = [(first(one.step(numbers(1))), first(other.step(numbers(1)))) for _ in range(5)]
    assert found == [(100 * i, 1000 + 100 * i) for i in range(1, 6)]


@verifies("replay.state.eager", observe="replay")
def test_a_copy_of_an_object_has_its_own_capture() -> None:
    one = Derived(0)
    for _ in range(3):
        one.double(numbers(1))
    other = copy.copy(one)
    other.total = numbers(100)
    assert [first(other.double(numbers(1))) for _ in range(4)] == [102] * 4
    assert first(one.double(numbers(1))) == 2
    other.double.reset()
    assert one.double.entries


# What is refused ---------------------------------------------------------------------------


@verifies("replay.arguments.call", observe="replay")
def test_zeros_and_nan() -> None:
    for number, other in ((0.0, -0.0), (-0.0, 0.0), (1.5, float("nan")), (float("nan"), 1.5)):
        step = TinyJit(lambda x, number: x * number)
        for _ in range(2):
            step(numbers(1), number)
        assert str(first(step(numbers(1), number))) == str(number)
        again = float(str(number))  # another object of the same value
        assert str(first(step(numbers(1), again))) == str(number) and step.replays == 2
        assert [str(first(step(numbers(1), other))) for _ in range(3)] == [str(other)] * 3


@verifies("replay.read.traced", observe="replay")
def test_schedules_that_a_replay_would_not_know_of() -> None:
    done: Any = []
    bodies: list[Callable[[Tensor], Any]] = [
        lambda x: run_schedule((x + 1).schedule()),
        lambda x: Tensor.schedule(x + 1, x + 2) and None,
        lambda x: get_kernel_graph(UOp(Ops.SINK, dtypes.index, (x.uop,))) and None]
    for body in bodies:
        step = TinyJit(body)
        for _ in range(5):
            done.append(step(numbers(1)))
        assert step.replays == 0 and "a replay would not know of" in step.explain()
    run_schedule((numbers(1) + 1).schedule())  # outside, all is well


@verifies("replay.sizes.follow+3", observe="replay")
def test_one_variable_with_two_values() -> None:
    n = Variable("n", 0, 9)

    def body(x: Tensor, i: UOp, j: UOp) -> tuple[Tensor, Tensor]:
        return (x * i).realize(), (x * j).realize()

    for good in (0, 2):  # at the capture, and at a replay
        step = TinyJit(body)
        step(numbers(1), n.bind(3), n.bind(3))
        for value in range(good):
            one, other = step(numbers(1), n.bind(value), n.bind(value))
            assert first(one) == first(other) == value
        with pytest.raises(VariableError, match="n: .*(3.*4|4.*3)"):
            step(numbers(1), n.bind(3), n.bind(4))


# Threads -----------------------------------------------------------------------------------


@verifies("realize.thread.serial+2")
@verifies("replay.state.eager", observe="replay")
def test_replays_in_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """One captured function is replayed by some threads while others realize.

    Between filling in the arguments and the launch, every other thread gets its turn.
    """
    kind = type(Device[Device.DEFAULT].table([]))
    launch = kind.run

    def slow(table: Table) -> None:
        time.sleep(0.002)
        launch(table)

    monkeypatch.setattr(kind, "run", slow)
    scale = numbers(2, 64)
    step = TinyJit(lambda x: ((x * scale).flip(0) + x).sum())
    wrong: list[Any] = []

    def work(number: int) -> None:
        for turn in range(15):
            x = Tensor(np.arange(64, dtype=np.float32) + number * 100 + turn)
            with Context(FUSE=0):
                found = (step(x) if number % 2 else ((x * scale).flip(0) + x).sum()).item()
            expected = 3 * float(x.numpy().sum())
            if found != expected:
                wrong.append((number, turn, found, expected))

    run_in_threads(work, 6)
    assert not wrong and step.replays



# Arguments that know each other, and gradients ---------------------------------------------------


def floats(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


@verifies("replay.arguments.form", observe="replay")
def test_two_tensors_of_one_value_are_not_one_tensor_twice() -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        x[0] = 9.0
        return x + y

    ways: dict[str, tuple[Any, int]] = {
        "itself": (lambda a: a, 18), "a slice": (lambda a: a[:], 10),
        "a shape": (lambda a: a.reshape(2), 10), "a sum": (lambda a: a + 0, 10)}
    for begun in ways:
        step = TinyJit(body)
        for name in (begun, begun, begun, *ways):
            way, wanted = ways[name]
            a = floats(1, 2)
            assert step(a, way(a)).tolist() == [wanted, 4], (begun, name)
        assert step.replays, begun


@verifies("replay.guard.state", observe="replay")
def test_arguments_of_which_one_is_a_view_of_another() -> None:
    def both(x: Tensor, y: Tensor) -> Tensor:
        x.assign(x + y)
        y.assign(y * 2)
        return x + y

    def run(step: Callable[..., Any], cut: Callable[[Tensor], tuple[Tensor, Tensor]]) -> list[Any]:
        found = []
        for turn in range(4):
            a = floats(1, turn, 3, 4)
            found += [step(*cut(a)).tolist(), a.tolist()]
        return found

    for cut in (lambda a: (a[:2], a[1:3]), lambda a: (a[:], a), lambda a: (a, a[:]),
                lambda a: (a[1:][:2], a[1:3])):
        assert run(TinyJit(both), cut) == run(both, cut)


def variables(count: int) -> list[Any]:
    """Tensors that require a gradient, and have one."""
    made = [floats(n, 1).requires_grad_() for n in range(count)]
    for n, each in enumerate(made):
        each.grad = floats(1, n)
    return made


@verifies("replay.guard.complete", observe="replay")
def test_the_gradient_of_an_argument_is_that_of_this_call() -> None:
    def update(p: Any) -> None:
        p.assign(p - p.grad)
        p.grad.assign(p.grad * 2)

    given = variables(3)
    step = TinyJit(update)
    for turn in range(6):
        step(given[turn % 3])
    assert [p.tolist() for p in given] == [[-3, 1], [-2, -2], [-1, -5]]
    assert "gradient of an argument" in step.explain()


@verifies("replay.guard.complete", observe="replay")
def test_a_gradient_that_is_another_tensor_now() -> None:
    p, = variables(1)
    doubled = TinyJit(lambda: p.grad.assign(p.grad * 2))
    held = [doubled() for _ in range(4)]
    p.grad = floats(3, 5)
    held.append(doubled())
    assert p.grad.tolist() == [6, 10] and held[0].tolist() == [16, 0]
    assert held[4] is p.grad and held[0] is held[3] and doubled.replays == 2


def gradients_of_turns(captured: bool) -> tuple[list[Any], int]:
    """What a function that reads gradients shows, whose tensors are given others."""
    p, q = variables(2)

    def read() -> Tensor:
        return p.grad * 2 + q.grad

    step = TinyJit(read) if captured else read
    shared, form = floats(7, 8), Tensor([[1.0, 2.0]]).realize()
    found = list[Any]()
    for one, other in [*[(floats(n, 1), floats(2, n)) for n in range(4)], (shared, shared),
                       (shared, shared), (floats(1, 2), shared), (shared, floats(3, 4)),
                       (form, shared), (shared, form), (shared * 3, shared + 1)]:
        p.grad, q.grad = one, other
        found.append(step().tolist())
    p.grad = None
    with pytest.raises(TypeError):
        step()
    return found, step.replays if isinstance(step, TinyJit) else 0


@verifies("replay.guard.complete", observe="replay")
def test_gradients_that_are_only_read_are_those_that_their_tensors_have() -> None:
    """`backward` stands in one captured function, and the step of the optimiser in another."""
    found, replays = gradients_of_turns(True)
    assert found == gradients_of_turns(False)[0] and replays == 6


@verifies("replay.guard.complete", observe="replay")
@pytest.mark.parametrize("changed", ["first", "second", "both", "apart"])
def test_a_gradient_of_two_tensors_is_looked_for_at_each(changed: str) -> None:
    """A function that reads it at one of them does not know of the other."""
    def turns(captured: bool) -> list[list[float]]:
        p, q = floats(1, 2), floats(3, 4)
        p.requires_grad = q.requires_grad = True
        p.grad = q.grad = floats(5, 6)

        def doubled() -> Tensor:
            found: Any = p.grad  # nothing else is asked of it
            return found * 2
        step, found = TinyJit(doubled) if captured else doubled, []
        for turn in range(8):
            found.append(step().tolist())
            if turn >= 3:
                new = floats(turn, 1)
                p.grad = new if changed != "second" else p.grad
                q.grad = floats(9, turn) if changed == "apart" else \
                    new if changed != "first" else q.grad
        return found
    assert turns(True) == turns(False)


class Louder(Tensor):
    """A tensor whose products are another thing."""

    def __mul__(self, other: Any) -> Any:
        return Tensor.__mul__(self, other) + 100


def one_for_both(p: Any, q: Any, _: Any, late: bool) -> Any:
    p.grad = floats(5, 6)
    q.grad = p.grad if late else floats(7, 8)


def one_from_outside(p: Any, _: Any, known: Any, late: bool) -> Any:
    p.grad = known if late else floats(5, 6)


def one_of_a_class(p: Any, _: Any, __: Any, late: bool) -> Any:
    p.grad = Louder([5.0, 6.0]).realize() if late else floats(5, 6)


def one_with_a_gradient(p: Any, _: Any, __: Any, late: bool) -> Any:
    p.grad = floats(5, 6)
    p.grad.grad = floats(1, 1) if late else None


@verifies("replay.guard.complete", observe="replay")
@pytest.mark.parametrize(("make", "give"), [
    (lambda p, q, u: lambda: p.grad * (2.0 if p.grad is q.grad else 3.0), one_for_both),
    (lambda p, q, u: lambda: p.grad is q.grad, one_for_both),
    (lambda p, q, u: lambda: sum({id(each.grad): each.grad for each in (p, q)}.values()),
     one_for_both),
    (lambda p, q, u: lambda: p.grad * (2.0 if p.grad is u else 3.0), one_from_outside),
    (lambda p, q, u: lambda: p.grad * 2.0, one_of_a_class),
    (lambda p, q, u: lambda: p.grad * (2.0 if p.grad.grad is None else 3.0),
     one_with_a_gradient)])
def test_which_tensor_a_gradient_is(make: Any, give: Any) -> None:
    found = []
    for captured in (True, False):
        p, q = variables(2)
        known = floats(9, 9)
        body = make(p, q, known)
        step = TinyJit(body) if captured else body
        for turn in range(7):
            give(p, q, known, turn > 4)
            shown = step()
            found.append(shown.tolist() if isinstance(shown, Tensor) else shown)
    assert found[:7] == found[7:]


@verifies("replay.guard.state", observe="replay")
def test_an_argument_that_is_a_gradient() -> None:
    p, = variables(1)
    step = TinyJit(lambda x: p.grad * x + (p.grad is x))
    for turn in range(7):
        p.grad = floats(5, turn)
        given = p.grad if turn > 4 else floats(1, 1)
        assert step(given).tolist() == ([26, turn * turn + 1] if turn > 4 else [5, turn])


@verifies("replay.guard.complete", observe="replay")
def test_a_gradient_with_a_name_of_its_own() -> None:
    found = []
    for captured in (True, False):
        p, = variables(1)
        known, optimizer = [p.grad], nn.optim.SGD([p], lr=1.0)

        def both(known: Any = known, optimizer: Any = optimizer) -> Tensor:
            optimizer.step()
            return known[0] * 10
        step = TinyJit(both) if captured else both
        for turn in range(6):
            found.append((step().tolist(), p.tolist()))
            if turn > 2:  # until then it is the one that has a name
                p.grad = floats(turn, turn)
    assert found[:6] == found[6:]


@verifies("replay.state.eager", observe="replay")
def test_a_gradient_that_is_returned_is_that_of_its_tensor() -> None:
    p, = variables(1)

    def slope(x: Tensor) -> Any:
        p.grad = None
        (x * p * p).sum().backward()
        return p.grad

    step = TinyJit(slope)
    for turn in range(5):
        found = step(floats(1, turn))
        assert found is p.grad and found.tolist() == [0, 2 * turn]
        found += 1  # as one clips it
        assert p.grad.tolist() == [1, 2 * turn + 1]
    assert step.replays == 3


@verifies("replay.state.eager", observe="replay")
def test_a_tensor_from_outside_that_becomes_a_gradient() -> None:
    p, = variables(1)

    def give(x: Tensor) -> None:
        p.grad = x

    step = TinyJit(give)
    for turn in range(4):
        x = floats(1, turn)
        step(x)
        assert p.grad is x


@verifies("replay.arguments.depending", observe="replay")
def test_an_argument_that_is_made_a_parameter_inside() -> None:
    def slope(x: Tensor) -> Any:
        x.requires_grad_()
        (x * x).sum().backward()
        return x.grad

    step = TinyJit(slope)
    for turn in range(4):
        x = floats(1, turn)
        found: Any = step(x)
        slope_of_x: Any = x.grad
        assert found is slope_of_x and slope_of_x.tolist() == [2, 2 * turn]
        assert x.requires_grad and found.requires_grad


@verifies("replay.failure.done+2", observe="replay")
def test_what_a_view_was_given_reaches_its_tensor_where_nothing_is_recorded() -> None:
    def looking(x: Tensor) -> Tensor:
        x += 1
        return x * x.sum().item()

    def failing(x: Tensor) -> Tensor:
        x += 1
        return x.reshape(99)

    for body in (looking, failing):
        step = TinyJit(body)
        for turn in range(4):
            a = floats(1, 2, turn)
            try:
                step(a[:2])
            except ValueError:
                assert body is failing
            assert a.tolist() == [2, 3, turn]


@verifies("replay.state.parted", observe="replay")
@verifies("replay.guard.complete", observe="replay")
def test_a_pullback_from_outside_knows_what_tensors_were() -> None:
    w, x = Tensor([3.0, 4.0]).realize(), Tensor([1.0, 2.0]).realize()
    _, pull = func.vjp(lambda v: v * v * w, x)
    _, linear = func.linearize(lambda v: v * v * w, x)
    pulled, pushed = TinyJit(lambda c: pull(c)[0]), TinyJit(lambda c: linear(c))
    for number in range(7):
        if number == 4:
            w.assign(w * 0)
        if number == 5:
            x.assign(x + 10)
        for step in (pulled, pushed):
            assert step(Tensor([1.0, 1.0])).tolist() == [6.0, 16.0]
    assert "knows what tensors were" in pulled.explain()


@verifies("replay.guard.complete", observe="replay")
def test_an_object_that_makes_a_kernel() -> None:
    class Scaled:
        by = 2.0

        def __call__(self, out: Any, x: Any) -> Any:
            i = loop(x.size)
            return out[i].store(x[i] * self.by).end(i).sink()
    kernel = Scaled()
    step: Any = TinyJit(lambda x: Tensor.custom_kernel(Tensor.empty(2), x, fxn=kernel)[0])
    for number in range(6):
        if number == 4:
            kernel.by = 3.0
        assert step(Tensor([1.0, 2.0])).tolist() == [kernel.by, 2 * kernel.by]
    assert step.replays


@verifies("replay.guard.complete", observe="replay")
def test_lists_of_parameters_are_read_in_a_replay() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    for parameter in model.parameters():
        parameter.assign(Tensor.ones(*parameter.shape)).realize()
    step = TinyJit(lambda x: sum([p.sum() for p in model.parameters()], x.sum()).realize())
    assert [step(Tensor([1.0])).item() for _ in range(4)] == [7.0] * 4 and step.replays == 2
    model[0].scale = nn.Buffer(Tensor([5.0]))
    assert [step(Tensor([1.0])).item() for _ in range(3)] == [7.0] * 3
    model[0].more = nn.Parameter(Tensor([5.0]))
    assert [step(Tensor([1.0])).item() for _ in range(3)] == [12.0] * 3


@verifies("replay.sizes.follow+3", observe="replay")
def test_an_embedding_at_a_variable_is_replayed() -> None:
    table, at = nn.Embedding(6, 2), Variable("at", 0, 5)
    tokens = Tensor([5, 4, 3, 2, 1, 0]).realize()
    step = TinyJit(lambda n: table(tokens[n]).sum().realize())
    for value in (1, 2, 3, 4, 0):
        wanted = table.weight.numpy()[5 - value].sum()
        np.testing.assert_allclose(step(at.bind(value)).item(), wanted, 1e-5)
    assert step.replays == 2


@verifies("replay.guard.complete", observe="replay")
def test_values_that_are_equal_and_are_not_one() -> None:
    outside: dict[str, Any] = {"r": range(0), "s": math.nan}
    start = TinyJit(lambda x: x + outside["r"].start)
    sign = TinyJit(lambda x: x * math.copysign(1.0, outside["s"]))
    for _ in range(3):
        start(Tensor([1.0])), sign(Tensor([1.0]))
    outside.update(r=range(7, 7), s=-math.nan)
    assert start(Tensor([1.0])).tolist() == [8.0] and sign(Tensor([1.0])).tolist() == [-1.0]


@verifies("replay.explain.short")
def test_what_is_told_of_calls_stays_short() -> None:
    array = np.arange(8000.0)
    step: Any = TinyJit(lambda x, given, scale: x * (given[1] * scale))
    with Context(JIT_ENTRIES=1):
        for number in range(60):
            step(Tensor([1.0]), array, float(number))
    assert len(step.explain()) < 2000 and len(step._full) <= 21


@verifies("following.traced.reason", observe="replay")
def test_an_argument_that_is_read_by_another_name_is_said_to_be_in_the_way() -> None:
    x, y = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
    known = {"x": x}
    step = TinyJit(lambda given: (given + known["x"]).realize())
    assert [step(x).tolist() for _ in range(4)] == [[2.0, 4.0]] * 4
    assert step.replays == 0 and "by another name" in step.explain()
    assert [step(y).tolist() for _ in range(4)] == [[4.0, 6.0]] * 4
    assert step.replays == 3
