"""What a replay returns is what the body returns. See spec/replay.md."""
from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from conformance.trace import verifies
from impl import Tensor, TinyJit
from impl.errors import ReplayError


class Words(dict[str, Any]):
    """A dict of a user's own."""


class Pair(list[Any]):
    """A list that is made of its parts."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(parts)


@dataclasses.dataclass
class Record:
    """A record with an attribute that is no field."""

    a: Any

    def __post_init__(self) -> None:
        self.b = self.a + 1


@verifies("replay.call.any", observe="replay")
@pytest.mark.parametrize("make", [
    lambda x: collections.OrderedDict(b=x * 2, a=x), lambda x: Words(a=x * 2),
    lambda x: collections.defaultdict(int, {"a": x * 2}), lambda x: Pair(x * 2, x),
    lambda x: vars(Record(x * 2)), Record])
def test_containers_keep_their_classes(make: Callable[[Any], Any]) -> None:
    step = TinyJit(make)
    for number in range(6):
        x = Tensor([1.0 + number, 2.0]).realize()
        wanted, found = make(x), step(x)
        assert type(found) is type(wanted)
        if isinstance(wanted, Record):
            wanted, found = vars(wanted), vars(found)
        parts = list(wanted.values() if isinstance(wanted, dict) else wanted)
        got = list(found.values() if isinstance(found, dict) else found)
        assert [each.tolist() for each in got] == [each.tolist() for each in parts]
    assert step.replays == (0 if make is Record else 4)  # a class is no function that is followed


@verifies("replay.call.any", observe="replay")
def test_a_container_with_another_name_is_that_one() -> None:
    outside, given = {"a": 1}, [Tensor([1.0])]

    def twice(x: Tensor) -> Any:
        both = [x * 2]
        return both, both
    x = Tensor([1.0, 2.0]).realize()
    cases: list[tuple[Any, Any]] = [(lambda x, y: outside, outside), (lambda x, y: y, given)]
    for body, wanted in cases:
        step = TinyJit(body)
        assert all(step(x, given) is wanted for _ in range(5))
    pair = TinyJit(twice)
    for _ in range(5):
        one, other = pair(x)
        assert one is other


@verifies("replay.call.any", observe="replay")
def test_a_list_in_itself() -> None:
    """Such a result is an error that says so; such an argument is no reason not to run."""
    def body(x: Tensor) -> Any:
        found: list[Any] = [x * 2]
        found.append(found)
        return found
    x, given = Tensor([1.0, 2.0]).realize(), list[Any]()
    given.append(given)
    step = TinyJit(body)
    step(x)
    with pytest.raises(ReplayError, match="in itself"):
        step(x)
    plain = TinyJit(lambda x, y: x * 2)
    assert [plain(x, given).tolist() for _ in range(3)] == [[2, 4]] * 3


@verifies("replay.outputs.distinct", observe="replay")
@pytest.mark.parametrize("kept", [False, True])
def test_data_that_a_body_makes_a_tensor_of(kept: bool) -> None:
    """Who writes to it does not write to what the next call returns."""
    state = Tensor([0.0, 0.0]).realize()

    def body(x: Tensor) -> Any:
        data = Tensor([1.0, 2.0])
        if kept:
            state.replace(data)
        return data, data * x
    step = TinyJit(body)
    for _ in range(5):
        data, result = step(Tensor([3.0, 3.0]).realize())
        assert data.tolist() == [1, 2] and result.tolist() == [3, 6]
        data += 1
        if kept:
            state.assign(state * 5).realize()


@verifies("replay.gradient.eager")
@pytest.mark.parametrize("case", range(4))
def test_a_result_of_which_the_body_keeps_a_gradient(case: int) -> None:
    def program(function: Callable[[Any], Any]) -> list[Any]:
        w, found = Tensor([2.0, 3.0]).realize().requires_grad_(), list[Any]()

        def body(x: Tensor) -> Any:
            if case == 0:
                h = w * x
                h.retain_grad()
                return h, h * h
            if case == 1:
                h = w * x
                h.grad = x * 3
                return h, h * 2
            h = Tensor([1.0, 2.0], requires_grad=True) if case == 2 \
                else (x * 2).detach().requires_grad_()
            return h, h * w * x
        step = function(body)
        for _ in range(5):
            w.grad = None
            h, y = step(Tensor([1.0, 2.0]).realize())
            before = h.requires_grad, None if h.grad is None else h.grad.tolist()
            y.sum().backward()
            found.append((before, [None if t.grad is None else t.grad.tolist() for t in (h, w)]))
        return found

    assert program(TinyJit) == program(lambda body: body)


@verifies("gradient.realized.keeps+2")
def test_a_gradient_that_is_retained_ends_no_way() -> None:
    """Also where the value is computed before `backward`."""
    for realized in (False, True):
        w = Tensor([2.0, 3.0]).realize().requires_grad_()
        h = w * Tensor([1.0, 2.0])
        h.retain_grad()
        if realized:
            h.realize()
        (h * h).sum().backward()
        assert h.grad is not None and h.grad.tolist() == [4.0, 12.0]
        assert w.grad is not None and w.grad.tolist() == [4.0, 24.0]


@verifies("replay.wrapper.attributes", observe="replay")
def test_what_is_set_on_a_captured_model_is_set_on_the_model() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = Tensor([3.0]).realize()
            self.name, self.full, self.reasons = "small", True, ["none"]

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.weight
    model = Model()
    step: Any = TinyJit(model)
    for _ in range(4):
        assert step(Tensor([2.0])).item() == 6
    step.weight = Tensor([5.0])
    assert step(Tensor([2.0])).item() == 10 and model.weight.item() == 5
    assert (step.name, step.full, step.reasons) == ("small", True, ["none"])
    step.name = "large"
    assert model.name == "large" and "Model: 5 calls" in step.explain()
