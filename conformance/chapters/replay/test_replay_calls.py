"""What a captured function does at each call. See spec/replay.md."""
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Device, Tensor, TinyJit, Variable, settings
from impl.errors import ReplayError, ShapeError


def numbers(value: float, count: int = 2) -> Tensor:
    return Tensor(np.full(count, value, np.float32)).realize()


def assign(target: Tensor, value: Tensor) -> None:
    """A statement: what `assign` returns is not a result of the function."""
    target.assign(value)


def first(tensor: Tensor) -> float:
    return float(tensor.numpy().reshape(-1)[0])


def same_as_eager(program: Callable[[Callable[..., Any]], Any]) -> Any:
    """What a program computes with its function captured, after comparing it with eager calls."""
    eager = program(lambda function: function)
    assert program(TinyJit) == eager
    return eager


# Values ------------------------------------------------------------------------------------


@verifies("replay.state.eager", observe="replay")
def test_results_follow_the_arguments() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        step = captured(lambda x, y: (x - y).cumsum(0) * 2)
        a, b = numbers(5), numbers(3)
        pairs = [(a, b), (a, b), (b, a), (a, b), (numbers(9), numbers(1))]
        return [first(step(*pair)) for pair in pairs]

    assert same_as_eager(program) == [4, 4, -4, 4, 16]


@verifies("replay.state.eager", observe="replay")
def test_lazy_arguments_and_views_of_arguments() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        step = captured(lambda x: x + 1)
        base = Tensor(np.arange(10, dtype=np.float32)).realize()
        return [first(step(base[2 * i:2 * i + 2] * 3)) for i in range(5)]

    assert same_as_eager(program) == [1, 7, 13, 19, 25]


@verifies("replay.state.eager", observe="replay")
@verifies("replay.effects.all", observe="replay")
def test_a_state_that_is_not_returned_advances() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        state, statistics = numbers(0), numbers(100)

        def body(x: Tensor) -> Tensor:
            statistics.assign(statistics * 0.5)
            state[0:1] = state[0:1] + x[0:1]
            return x * 2

        step = captured(body)
        found = [first(step(numbers(i))) for i in range(5)]
        return [*found, *state.tolist(), *statistics.tolist()]

    assert same_as_eager(program) == [0, 2, 4, 6, 8, 10, 0, 3.125, 3.125]


@verifies("replay.effects.all", observe="replay")
def test_an_argument_that_is_assigned() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        step = captured(lambda x, y: assign(x, y + 1))
        found = []
        for i in range(5):
            x = numbers(0)
            step(x, numbers(i))
            found.append(first(x))
        return found

    assert same_as_eager(program) == [1, 2, 3, 4, 5]


@verifies("replay.effects.all", observe="replay")
def test_values_that_are_realized_inside() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        state = numbers(0)

        def body(x: Tensor) -> Tensor:
            middle = (x * 3).realize()
            state.assign(state + middle).realize()
            return state * 10

        step = captured(body)
        return [first(step(numbers(i))) for i in range(5)]

    assert same_as_eager(program) == [0, 30, 90, 180, 300]


@verifies("replay.pending.before", observe="replay")
def test_what_was_pending_is_no_part_of_the_call() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        state = numbers(1)
        step = captured(lambda: assign(state, state * 2))
        readers = []
        for _ in range(5):
            readers.append(state + 0.5)  # stays pending while the function is captured
            step()
        assert getattr(step, "replays", 3) == 3
        return [*(first(each) for each in readers), first(state)]

    assert same_as_eager(program) == [1.5, 2.5, 4.5, 8.5, 16.5, 32]


@verifies("replay.readers.kept", observe="replay")
def test_a_reader_from_before_a_replay() -> None:
    state = numbers(0)
    step = TinyJit(lambda: assign(state, state + 1))
    for _ in range(3):
        step()
    lazy, held = state + 0.5, Tensor(state.uop)
    view = state.reshape(1, 2).realize()
    step()
    step()
    assert [first(each) for each in (lazy, held, view, state)] == [3.5, 3, 3, 5]


@verifies("replay.readers.kept", observe="replay")
def test_a_reader_from_before_each_replay() -> None:
    """From the second one on, the state is not where it was when the function was captured."""
    state, held = numbers(0), []
    step = TinyJit(lambda: assign(state, state + 1))
    for _ in range(6):
        held.append(Tensor(state.uop))
        step()
    assert [first(each) for each in (*held, state)] == [0, 1, 2, 3, 4, 5, 6]


@verifies("replay.outputs.distinct", observe="replay")
@verifies("replay.output.fresh", observe="replay")
def test_outputs_of_all_calls_are_held() -> None:
    step = TinyJit(lambda x: (x * 2, [x.sum(), {"again": x + 1}]))
    held = [step(numbers(i)) for i in range(6)]
    assert [first(pair[0]) for pair in held] == [0, 2, 4, 6, 8, 10]
    assert [first(pair[1][0]) for pair in held] == [0, 2, 4, 6, 8, 10]
    assert [first(pair[1][1]["again"]) for pair in held] == [1, 2, 3, 4, 5, 6]


@verifies("replay.output.fresh", observe="replay")
def test_every_replay_has_outputs_of_its_own() -> None:
    step = TinyJit(lambda x: x * 2)
    held = [step(numbers(i)).realize() for i in range(6)]
    assert len({id(each.uop.arg[0].memory) for each in held}) == 6


@verifies("replay.outputs.distinct", observe="replay")
def test_an_output_that_is_an_argument_or_a_state() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        state = numbers(0)

        def body(x: Tensor) -> tuple[Tensor, Tensor]:
            state.assign(state + x)
            return x, state + 0

        step = captured(body)
        held = [step(numbers(i)) for i in range(5)]
        return [first(each) for pair in held for each in pair]

    assert same_as_eager(program) == [0, 0, 1, 1, 2, 3, 3, 6, 4, 10]


@verifies("replay.state.eager", observe="replay")
def test_a_result_that_no_kernel_touches() -> None:
    """An argument and a state are returned as they are; the state changes outside."""
    def program(captured: Callable[..., Any]) -> list[float]:
        state = numbers(0)
        step = captured(lambda x: (x, state, state.reshape(1, 2)))
        found = []
        for i in range(5):
            found += [first(each) for each in step(numbers(i + 1))]
            state.assign(state + 10)
        return found

    assert same_as_eager(program) == [1, 0, 0, 2, 10, 10, 3, 20, 20, 4, 30, 30, 5, 40, 40]


@verifies("replay.random.advances", observe="replay")
def test_random_numbers_are_new_in_each_call() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        Tensor.manual_seed(3)
        step = captured(lambda x: x + Tensor.rand(2))
        return [first(step(numbers(0))) for _ in range(5)] + [first(Tensor.rand(2))]

    found = same_as_eager(program)
    assert len(set(found)) == 6


@verifies("replay.sizes.follow+3", observe="replay")
def test_variables_are_read_in_each_call() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        n, m = Variable("n", 0, 9), Variable("m", 0, 9)
        step = captured(lambda x, i, j: x * i + x * 10 * j)
        return [first(step(numbers(1), n.bind(k), m.bind(9 - k))) for k in range(6)]

    assert same_as_eager(program) == [90, 81, 72, 63, 54, 45]


# Guards ------------------------------------------------------------------------------------


@verifies("replay.arguments.call", observe="replay")
@verifies("replay.entries.limit", observe="replay")
def test_another_call_is_captured_for_itself() -> None:
    """Other forms and other numbers give their own values, and further captures."""
    n = Variable("n", 0, 9)
    good = {"a": [numbers(1)]}

    def body(x: Any, y: Any, k: Any) -> Tensor:
        inner = next(iter(x.values()))
        return inner[0] + y * k

    step = TinyJit(body)
    for value in range(3):
        step({"a": [numbers(value)]}, numbers(10), 2)
    others: list[Any] = [
        ({"a": [numbers(1).cast("int32")]}, numbers(10), 2), ({"a": (numbers(1),)}, numbers(10), 2),
        ({"a": [numbers(1), numbers(1)]}, numbers(10), 2), ({"b": [numbers(1)]}, numbers(10), 2),
        (good, numbers(10), 3), (good, numbers(10), 2.0), (good, numbers(10), True),
        (good, 10, 2), (good, numbers(10), numbers(2)), (good, numbers(10), n.bind(2))]
    with Context(JIT_ENTRIES=20):
        for _ in range(3):
            for arguments in others:
                assert step(*arguments).tolist() == body(*arguments).tolist(), arguments
        assert step.traces == 0 and len(step.entries) == 1 + len(others)
        assert step.replays >= 2 * len(others) + 1
    assert first(step(good, numbers(10), 2)) == 21


@verifies("replay.arguments.call", observe="replay")
def test_keywords_are_part_of_a_call() -> None:
    step = TinyJit(lambda x, scale=1: x * scale)
    for value in range(3):
        step(numbers(value), scale=2)
    assert first(step(numbers(4), scale=2)) == 8
    for arguments, named, right in (((numbers(1),), {}, 1), ((numbers(1), 2), {}, 2),
                                    ((numbers(1),), {"scale": 3}, 3)):
        assert [first(step(*arguments, **named)) for _ in range(3)] == [right] * 3


@verifies("replay.arguments.form", observe="replay")
def test_keywords_in_any_order() -> None:
    step = TinyJit(lambda x, *, low, high: x * high - low)
    for value in range(3):
        step(numbers(value), low=numbers(1), high=numbers(2))
    assert first(step(numbers(5), high=numbers(3), low=numbers(4))) == 11
    assert len(step.entries) == 1
    with pytest.raises(TypeError):
        step(numbers(5), high=numbers(3))  # type: ignore[call-arg]


@verifies("replay.arguments.call", observe="replay")
def test_the_order_of_any_keywords_is_seen() -> None:
    step = TinyJit(lambda **named: list(named.values())[0] - list(named.values())[1])
    for value in range(3):
        step(a=numbers(value), b=numbers(1))
    assert first(step(b=numbers(1), a=numbers(2))) == -1


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor


@verifies("replay.arguments.call", observe="replay")
def test_another_object_is_another_argument() -> None:
    """Also one that was made where the captured one was, after that one was dropped."""
    step = TinyJit(lambda x, scale: x * scale.factor)
    x = numbers(1)
    for factor in range(2, 30):
        assert first(step(x, Scale(factor))) == factor
    assert len(step.entries) <= settings.get("JIT_ENTRIES")


@verifies("replay.arguments.form", observe="replay")
@pytest.mark.parametrize("late", [True, False])
def test_arguments_that_have_become_one_tensor(late: bool) -> None:
    """`y` is read after `x` is written, or before: of two tensors these are the same kernels."""
    def body(x: Tensor, y: Tensor) -> Tensor:
        before = y * 10
        x.assign(x + 1)
        return x + (y * 10 if late else before)

    step = TinyJit(body)
    for value in range(3):
        assert first(step(numbers(value), numbers(1))) == value + 11
    one, read = numbers(5), 0 if late else 10
    assert first(step(one, one)) == 66 - read and first(one) == 6
    other = TinyJit(body)
    for turn in range(3):
        assert first(other(one, one)) == 11 * (7 + turn) - read
    assert first(other(numbers(1), numbers(2))) == 22


@verifies("replay.read.traced", observe="replay")
def test_a_value_that_is_read_inside() -> None:
    for read in (Tensor.item, Tensor.tolist, Tensor.numpy):
        step = TinyJit(lambda x, read=read: x * float(np.sum(read(x.sum()))))
        for value in range(1, 6):
            assert first(step(numbers(value))) == 2 * value * value
        assert step.replays == 0 and "reads a value of a tensor" in step.explain()


@verifies("replay.failure.done+2", observe="replay")
def test_what_was_assigned_before_an_error_stays() -> None:
    state, argument = numbers(0), numbers(10)

    def body(x: Tensor) -> None:
        state.assign(state + 1)
        x.assign(x + 1)
        state.assign(state * 2)
        x.reshape(3)

    step = TinyJit(body)
    for wanted in [(2, 11), (6, 12), (14, 13), (30, 14)]:
        with pytest.raises(ShapeError):
            step(argument)
        assert (first(state), first(argument)) == wanted


@verifies("replay.output.own+2", observe="replay")
@pytest.mark.parametrize("turn", range(1, 5))
def test_a_result_is_no_view(turn: int) -> None:
    """In the call that is captured, in replays, and in those that take a shortcut."""
    state = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()

    def body(x: Tensor) -> tuple[Tensor, ...]:
        made = (x + state).realize()
        return made, made[0], x[1], state.T, state

    step: Any = TinyJit(body)
    for _ in range(turn):
        step(Tensor([[5.0, 6.0], [7.0, 8.0]]).realize())
    x = Tensor([[5.0, 6.0], [7.0, 8.0]]).realize()
    made, row, of_argument, of_state, same = step(x)
    for each in (row, of_argument, of_state):
        each.assign(each * 100)
    assert made.tolist() == [[6, 8], [10, 12]] and row.tolist() == [600, 800]
    assert x.tolist() == [[5, 6], [7, 8]] and of_argument.tolist() == [700, 800]
    assert state.tolist() == [[1, 2], [3, 4]] and same is state
    assert of_state.tolist() == [[100, 300], [200, 400]]


@verifies("replay.failure.done+2", observe="replay")
def test_a_call_that_raised_is_not_replayed() -> None:
    table = {"a": 1.0}
    step = TinyJit(lambda x: x + table["a"])
    assert first(step(numbers(0))) == 1
    del table["a"]
    with pytest.raises(KeyError):
        step(numbers(1))
    table["a"] = 2.0
    assert [first(step(numbers(i))) for i in range(2, 6)] == [4, 5, 6, 7]
    assert step.replays == 3


@verifies("replay.capture.whole", observe="replay")
def test_what_was_computed_before_the_capture_is_captured() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        state, found, known = numbers(1), [], []
        step = captured(lambda: state * 2)
        for _ in range(5):
            kept = state * 2
            node = kept.uop  # the same expression, in memory and alive during the capture
            kept.realize()
            assert node.realized is not None
            known.append(kept)  # a replay could go on to read it
            found += [first(step()), first(kept)]
            state.assign(state + 1).realize()
        return found

    assert same_as_eager(program) == [2, 2, 4, 4, 6, 6, 8, 8, 10, 10]


@verifies("replay.guard.complete", observe="replay")
def test_a_tensor_that_is_replaced() -> None:
    """Right or refused: a replay cannot put another tensor where the function would."""
    class Model:
        state = numbers(0)

    model = Model()

    def body(x: Tensor) -> Tensor:
        model.state = model.state + x
        return model.state * 1

    step = TinyJit(body)
    found = []
    try:
        for _ in range(5):
            found.append(first(step(numbers(1))))
    except ReplayError as error:
        assert error.remedy
    assert found == [1.0, 2.0, 3.0, 4.0, 5.0][:len(found)]


@verifies("replay.guard.complete", observe="replay")
def test_a_tensor_that_is_kept_aside() -> None:
    """A replay would append nothing, so there is none."""
    kept: list[Tensor] = []

    def body(x: Tensor) -> Tensor:
        y = x * 2
        kept.append(y)
        return y + 1

    step = TinyJit(body)
    for value in range(5):
        step(numbers(value))
    assert [first(each) for each in kept] == [0, 2, 4, 6, 8]
    assert "kept" in step.explain() and step.traces == 4


@verifies("replay.guard.complete", observe="replay")
def test_a_closure_that_names_another_tensor() -> None:
    other = numbers(3)
    step = TinyJit(lambda: other * 2)
    assert [first(step()) for _ in range(3)] == [6, 6, 6]
    other = numbers(4)
    try:
        assert first(step()) == 8
    except ReplayError as error:
        assert error.remedy


@verifies("replay.outputs.distinct", observe="replay")
@verifies("replay.effects.all", observe="replay")
def test_gradients_are_new_in_each_call() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        weight = Tensor(np.ones((2, 2), np.float32)).requires_grad_()

        def body(x: Tensor) -> Tensor:
            weight.grad = None
            loss = ((x @ weight) ** 2).sum()
            loss.backward()
            return loss

        step, held = captured(body), []
        for value in range(5):
            step(numbers(value).reshape(1, 2))
            assert weight.grad is not None
            held.append(weight.grad)
        return [first(each) for each in held]

    assert same_as_eager(program) == [0, 4, 16, 36, 64]


# The wrapper -------------------------------------------------------------------------------


@verifies("replay.nested.inlined+2", observe="replay")
def test_a_captured_function_in_a_captured_function() -> None:
    def program(captured: Callable[..., Any]) -> list[float]:
        state = numbers(0)

        def inner(x: Tensor) -> Tensor:
            state.assign(state + x)
            return x + 1

        inside = captured(inner)
        step = captured(lambda x: inside(inside(x)) * 2)
        return [*(first(step(numbers(i))) for i in range(5)), first(state)]

    assert same_as_eager(program) == [4, 6, 8, 10, 12, 25]


def test_a_method_has_a_capture_for_each_object() -> None:
    class Counter:
        def __init__(self) -> None:
            self.total = numbers(0)

        @TinyJit
        def add(self, x: Tensor) -> Tensor:
            self.total.assign(self.total + x)
            return self.total + 0

    one, other = Counter(), Counter()
    found = [(first(one.add(numbers(1))), first(other.add(numbers(10)))) for _ in range(5)]
    assert found == [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)]


@verifies("following.trust.known", observe="replay")
def test_python_runs_twice_only() -> None:
    calls = []

    def body(x: Tensor) -> Tensor:
        calls.append(0)
        return x + 1

    step = TinyJit(body, trust=True)
    for value in range(5):
        assert first(step(numbers(value))) == value + 1
    assert len(calls) == 2
    step.cache_clear()
    for value in range(5):
        assert first(step(numbers(value, 3))) == value + 1
    assert len(calls) == 4
    with Context(JIT=0):
        step(numbers(0, 3))
    assert len(calls) == 5


@verifies("replay.devices.each", observe="replay")
def test_kernels_of_two_devices_that_no_copy_separates() -> None:
    other = next(name for name in ("REFERENCE", "CPU") if name != Device.DEFAULT)

    def body(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (x + 1).realize(), (y * 2).realize(), (x * 3).realize()

    step = TinyJit(body)
    for number in range(4):
        given = np.arange(4, dtype=np.float32) + number
        found = step(Tensor(given).realize(), Tensor(given, device=other).realize())
        for one, expected in zip(found, (given + 1, given * 2, given * 3), strict=True):
            np.testing.assert_array_equal(one.numpy(), expected)
    assert step.replays == 2


@verifies("replay.explain.short")
def test_an_explanation_is_short_and_whole_on_request() -> None:
    with Context(DEVICE="REFERENCE"):
        held = SimpleNamespace(**{name: float(place) for place, name in enumerate("abcdefghijkl")},
                               weights=[numbers(1) for _ in range(9)])

        def body(x: Tensor, y: Tensor) -> Tensor:
            for weight in held.weights:
                x = x + weight
            return (x + held.a + held.b + held.c + held.d + held.e + held.f + held.g + held.h
                    + held.i + held.j + held.k + held.l + y)

        step = TinyJit(body)
        for _ in range(4):
            step(numbers(1), numbers(2))
        lines, named = step.explain().splitlines(), step.explain(verbose=True)
    assert lines[:5] == [
        "body: 4 calls, 2 replayed, 0 traced", "  capture 0: used 2 times",
        "    args[0]: Tensor (2,) float32 on REFERENCE",
        "    args[1]: Tensor (2,) float32 on REFERENCE", "    Tensor.training is False"]
    assert lines[5:-1] == [f"    held.{name} is {n}.0" for n, name in enumerate("abcdefghi")]
    assert " tensors: 9" in lines[-1] and "more values: 3" in lines[-1]
    assert lines[-1].endswith("(explain(verbose=True) names them)")
    assert all(f"held.{name} is " in named for name in "abcdefghijkl")
    assert all(f"held.weights[{n}]: shape (2,), float32" in named for n in range(9))


@verifies("replay.arguments.form", observe="replay")
@pytest.mark.parametrize("wanted", [None, False, True])
def test_an_argument_says_the_same_of_gradients_in_each_call(wanted: bool | None) -> None:
    def given(value: float) -> Tensor:
        x = numbers(value, 1)
        return x if wanted is None else x.requires_grad_(wanted)

    step = TinyJit(lambda x: x * 2)
    assert [step(given(turn)).item() for turn in range(5)] == [0, 2, 4, 6, 8]
    assert len(step.entries) == 1 and step.replays == 3


@verifies("replay.pending.before")
def test_what_a_write_left_under_other_names_is_no_part_of_a_capture() -> None:
    """Earlier answers are names of what was written; what that was computed from is gone."""
    for name in (Tensor.detach, lambda state: state.detach().reshape(2, 2).detach()):
        state = Tensor.zeros(4).contiguous().realize()

        @TinyJit
        def step(x: Tensor, state: Tensor = state, name: Any = name) -> Tensor:
            state.assign(state + x)
            return name(state).realize()
        found = [step(Tensor.full((4,), float(i)).contiguous().realize()) for i in range(5)]
        assert [each.numpy().reshape(4)[0] for each in found] == [0, 1, 3, 6, 10]
        assert step.replays == 3
