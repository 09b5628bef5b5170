"""Names that are given other tensors, by a captured function or between its calls.

Each body is called several times, captured and plain, and has to be right or refused.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, TinyJit, nn
from impl.errors import ReplayError


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).realize()


class Model:
    """Two states, and another holder of each tensor that they ever had."""

    def __init__(self) -> None:
        self.state, self.other = numbers(1), numbers(100)
        self.items = [numbers(1), numbers(2)]
        self.table = {"a": numbers(1)}
        self.keep = [self.state, self.other, *self.items, *self.table.values()]


class Slotted:
    __slots__ = ("state", "keep")

    def __init__(self) -> None:
        self.state = numbers(1)
        self.keep = [self.state]


def rebind_returned(model: Model, x: Tensor) -> Tensor:
    model.state = model.state + x
    return model.state


def swap(model: Model, x: Tensor) -> Tensor:
    model.state, model.other = model.other, model.state
    return model.state + x


def rebind_item(model: Model, x: Tensor) -> Tensor:
    model.items[1] = model.items[0] + x
    return model.items[1]


def swap_items(model: Model, x: Tensor) -> Tensor:
    model.items.reverse()
    return model.items[0] + x


def rebind_in_table(model: Model, x: Tensor) -> Tensor:
    model.table["a"] = model.table["a"] * 2 + x
    return model.table["a"]


def new_in_table(model: Model, x: Tensor) -> Tensor:
    model.table[f"new {len(model.table)}"] = x * 2
    return model.table["a"] + x


def append(model: Model, x: Tensor) -> Tensor:
    model.items.append(x * 2)
    return x + model.items[-1]


def save_argument(model: Model, x: Tensor) -> Tensor:
    model.other = x
    return x + 1


def drop(model: Model, x: Tensor) -> Tensor:
    return model.items.pop() + x if model.items else x


def total(model: Model) -> list[Any]:
    tensors = [model.state, model.other, *model.items, *model.table.values()]
    return [tensor.tolist() for tensor in tensors]


@verifies("replay.guard.complete", observe="replay")
@pytest.mark.parametrize("body", [rebind_returned, swap, rebind_item, swap_items, rebind_in_table,
                                  new_in_table, append, save_argument, drop],
                         ids=lambda body: body.__name__)
def test_rebinding_is_done_at_each_call(body: Callable[[Model, Tensor], Tensor]) -> None:
    plain, captured = Model(), Model()
    step = TinyJit(lambda x: body(captured, x))
    for turn in range(5):
        assert step(numbers(turn)).tolist() == body(plain, numbers(turn)).tolist(), turn
        assert total(captured) == total(plain)
    assert step.replays == 0 and "outside" in step.explain()


@verifies("replay.guard.complete", observe="replay")
@verifies("following.traced.reason", observe="replay")
def test_rebinding_a_slot_a_global_and_a_cell() -> None:
    slotted, cell = Slotted(), numbers(1)

    def to_slot(x: Tensor) -> Tensor:
        slotted.state = slotted.state + x
        return slotted.state

    def to_cell(x: Tensor) -> Tensor:
        nonlocal cell
        cell = cell + x
        return cell

    def to_global(x: Tensor) -> Tensor:
        global GLOBAL
        GLOBAL = GLOBAL + x
        return GLOBAL

    for body, name in ((to_slot, "slotted.state"), (to_cell, "cell"), (to_global, "GLOBAL")):
        step = TinyJit(body)
        assert [step(numbers(1)).item() for _ in range(5)] == [2, 3, 4, 5, 6]
        line = body.__code__.co_firstlineno + 1 + (name != "slotted.state")
        assert f"{__file__}:{line} changes " in step.explain() and name in step.explain()


@verifies("replay.guard.complete", observe="replay")
@pytest.mark.parametrize("kind", ["list", "dict", "layers"])
@pytest.mark.parametrize("calls", [2, 5])
def test_a_container_of_another_length_is_noticed(kind: str, calls: int) -> None:
    """After two calls there is a recording, after five a shortcut, too."""
    items = [numbers(2), numbers(3)]
    table = dict(enumerate(items))
    model = Model()
    model.items = items

    def body(x: Tensor) -> Tensor:
        for each in items if kind == "list" else table.values() if kind == "dict" else model.items:
            x = x * each
        return x

    step = TinyJit(body)
    assert [step(numbers(1)).item() for _ in range(calls)] == [6] * calls
    model.seen = 1  # type: ignore[attr-defined]  # which is no item
    assert step(numbers(1)).item() == 6 and len(step.entries) == 1
    items.append(numbers(10))
    table[2] = items[2]
    assert [step(numbers(1)).item() for _ in range(3)] == [60] * 3
    items.pop()
    del table[2]
    assert step(numbers(1)).item() == 6 and len(step.entries) == 2


GLOBAL = numbers(1)
HELD = [GLOBAL]


@verifies("replay.guard.complete", observe="replay")
def test_rebinding_between_calls() -> None:
    """The old tensor lives on elsewhere, so that only the name tells."""
    model = Model()
    step = TinyJit(lambda x: model.state * x)
    assert [step(numbers(i)).item() for i in range(4)] == [0, 1, 2, 3]
    model.other = numbers(5)  # not used by the function
    assert step(numbers(4)).item() == 4 and len(step.entries) == 1
    model.state = numbers(10)
    assert [step(numbers(i)).item() for i in range(4)] == [0, 10, 20, 30]
    model.state.assign(numbers(7))
    assert step(numbers(1)).item() == 7


class Part:
    shared = numbers(1)

    def __init__(self) -> None:
        self.state = numbers(1)


@verifies("replay.guard.complete", observe="replay")
@pytest.mark.parametrize("change", [
    lambda whole: setattr(whole, "part", Part()), lambda whole: whole.parts.reverse(),
    lambda whole: whole.table.update(part={"state": numbers(7)}),
    lambda whole: setattr(whole.part, "state", 7.0), lambda whole: whole.table.clear(),
    lambda whole: setattr(whole.part, "state", None), lambda whole: setattr(Part, "shared", 3.0)])
def test_what_holds_a_tensor_is_replaced_between_calls(change: Callable[[Any], None]) -> None:
    """Nobody sees it in the tensors: they live on, and are what they were."""
    class Whole:
        def __init__(self) -> None:
            self.part, self.parts = Part(), [Part(), Part()]
            self.table: dict[str, Any] = {"part": {"state": numbers(1)}}

    def body(x: Tensor) -> Tensor:
        return (x + whole.part.state + whole.parts[0].state + Part.shared
                + whole.table["part"]["state"])

    whole, kept = Whole(), Part.shared
    whole.parts[1].state = numbers(9)
    step = TinyJit(body)
    held = [whole.part, *whole.parts, whole.table["part"], whole.part.state]
    assert [step(numbers(turn)).item() for turn in range(5)] == [4, 5, 6, 7, 8]
    assert step.replays == 3 and held
    change(whole)
    try:
        wanted = body(numbers(1)).item()
    except Exception as error:
        with pytest.raises(type(error)):
            step(numbers(1))
    else:
        assert [step(numbers(1)).item() for _ in range(3)] == [wanted] * 3
    finally:
        Part.shared = kept


@verifies("replay.guard.complete", observe="replay")
def test_what_a_function_does_not_read_may_be_replaced() -> None:
    """Attributes that are called like a global, bound arguments, captured functions inside."""
    global GLOBAL_PART
    part = Part()
    part.GLOBAL_PART = numbers(2)  # type: ignore[attr-defined]
    GLOBAL_PART = part.GLOBAL_PART  # type: ignore[attr-defined]
    inner = TinyJit(lambda x: x + part.GLOBAL_PART)  # type: ignore[attr-defined]
    outer = TinyJit(functools.partial(lambda w, x: inner(x) * w, numbers(3)))
    assert [outer(numbers(turn)).item() for turn in range(5)] == [6, 9, 12, 15, 18]
    GLOBAL_PART = None
    assert [inner(numbers(turn)).item() for turn in range(5)] == [2, 3, 4, 5, 6]
    assert outer(numbers(1)).item() == 9 and outer.replays == 4


GLOBAL_PART: Any = None


@verifies("replay.guard.complete", observe="replay")
def test_names_that_stay_are_no_hindrance() -> None:
    """Models, optimizers, statistics: assigned, read through many names, or only looked at."""
    layer, norm = nn.Linear(4, 4), nn.BatchNorm(4)
    parameters = nn.state.get_parameters([layer, norm])
    optimizer = nn.optim.Adam(parameters, lr=0.01)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        with Tensor.train():
            loss = norm(layer(x)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    x = Tensor(np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)).realize()
    losses = [step(x) for _ in range(6)]
    assert step.replays == 4
    assert len({loss.item() for loss in losses}) > 1


@verifies("replay.state.eager", observe="replay")
def test_gradients_that_accumulate() -> None:
    """Each call adds to the gradient that is there, whoever made it."""
    weight = numbers(1, 2)
    weight.requires_grad = True

    @TinyJit
    def step(x: Tensor) -> Tensor:
        loss = (weight * x).sum()
        loss.backward()
        return loss

    for turn in range(1, 7):
        step(numbers(turn, 1))
        assert weight.grad is not None
        assert weight.grad.tolist() == [turn * (turn + 1) / 2, turn]
    weight.grad = numbers(100, 100)
    step(numbers(1, 1))
    assert weight.grad.tolist() == [101, 101] and step.replays == 5
    weight.grad = None
    for turn in range(1, 4):
        step(numbers(1, 1))
        assert weight.grad is not None and weight.grad.tolist() == [turn, turn]


@verifies("replay.guard.complete", observe="replay")
def test_a_gradient_that_is_kept_elsewhere() -> None:
    weight = numbers(1, 2)
    weight.requires_grad = True
    step = TinyJit(lambda x: (weight * x).sum().backward())
    step(numbers(1, 1))
    held = weight.grad
    try:
        for turn in range(2, 6):
            step(numbers(1, 1))
            assert weight.grad is not None and weight.grad.tolist() == [turn, turn]
    except ReplayError as error:
        assert "gradient" in error.detail
    assert held is not None and held.tolist() == [1, 1]


# Arguments -----------------------------------------------------------------------------------


@dataclass
class Batch:
    x: Tensor
    scale: float
    rest: list[Tensor]


@verifies("replay.arguments.call", observe="replay")
def test_dataclasses_are_taken_apart() -> None:
    step = TinyJit(lambda batch: batch.x * batch.scale + batch.rest[0])
    for turn in range(5):
        batch = Batch(numbers(turn), 2.0, [numbers(1)])
        assert step(batch).item() == 2 * turn + 1
    assert step.replays == 3
    assert step(Batch(numbers(1), 3.0, [numbers(1)])).item() == 4
    assert step(Batch(numbers(1), 2.0, [numbers(1, 2)])).tolist() == [3, 4]


@verifies("replay.guard.complete", observe="replay")
def test_containers_that_are_given_something_else() -> None:
    def in_list(items: Any) -> Any:
        items[0] = items[0] + 1
        return items[0] * 1

    def in_record(batch: Any) -> Any:
        batch.x = batch.x + 1
        return batch.x * 1

    def count(batch: Any) -> Any:
        batch.scale += 1
        return batch.x * batch.scale

    def batch() -> Batch:
        return Batch(numbers(1), 2.0, [])

    for body, make in ((in_list, lambda: [numbers(1)]), (in_record, batch), (count, batch)):
        step, given, wanted = TinyJit(body), make(), make()
        for _ in range(6):
            assert step(given).item() == body(wanted).item()
        assert "gives argument args[0]" in step.explain()


@verifies("replay.arguments.call", observe="replay")
def test_dataclasses_are_returned() -> None:
    step = TinyJit(lambda x: Batch(x + 1, 0.5, [x * 2]))
    found = [step(numbers(turn)) for turn in range(5)]
    assert [(b.x.item(), b.scale, b.rest[0].item()) for b in found] == \
        [(turn + 1, 0.5, turn * 2) for turn in range(5)]


@verifies("replay.arguments.call", observe="replay")
def test_containers_in_containers_and_keywords() -> None:
    def body(*parts: Any, **named: Any) -> dict[str, Any]:
        (a, [b]), = parts
        return {"sum": a + b * named["scale"]["by"], "pair": (a, [b + 1])}

    step = TinyJit(body)
    for turn in range(5):
        found = step((numbers(turn), [numbers(2)]), scale={"by": numbers(10)})
        assert found["sum"].item() == turn + 20 and found["pair"][1][0].item() == 3
    assert step((numbers(1), [numbers(2)]), scale={"by": 10})["sum"].item() == 21


@verifies("replay.arguments.call", observe="replay")
@verifies("replay.entries.limit", observe="replay")
@pytest.mark.parametrize(("given", "said"), [
    (lambda: Tensor(np.array([1, 2], np.int32)).realize(), "float32.*int32"),
    (lambda: 4, "Tensor.*int"),
    (lambda: np.ones(2, np.float32), "Tensor.*array")])
def test_what_changed_and_how(given: Callable[[], Any], said: str,
                              capsys: pytest.CaptureFixture[str]) -> None:
    """With no room for another capture, a call runs as it is, and the guard is named once."""
    step = TinyJit(lambda x, y: x + y)
    with Context(JIT_ENTRIES=1):
        for _ in range(3):
            step(numbers(1, 2), numbers(3, 4))
        for _ in range(3):
            x, y = numbers(1, 2), given()
            assert step(x, y).tolist() == (x + y).tolist()
    told = capsys.readouterr().err
    assert step.traces == 3 and told.count("JIT_ENTRIES") == 1
    assert re.search(rf"argument args\[1\] was .*{said}", told)
    assert re.search(rf"3 times: argument args\[1\] was .*{said}", step.explain())


@verifies("replay.outputs.distinct", observe="replay")
def test_outputs_that_are_fed_back() -> None:
    step = TinyJit(lambda x, y: (x + y, x * 2))
    x, y = numbers(1), numbers(1)
    a, b = 1.0, 1.0
    held = []
    for _ in range(8):
        x, y = step(x, y)
        a, b = a + b, a * 2
        held.append((x, a, y, b))
    assert all(s.item() == p and t.item() == q for s, p, t, q in held) and step.replays == 6


@verifies("replay.nested.inlined+2", observe="replay")
def test_three_captures_in_one_another() -> None:
    state = numbers(0)

    @TinyJit
    def inner(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state * 2

    @TinyJit
    def middle(x: Tensor) -> Tensor:
        return inner(x) + inner(x * 10)

    @TinyJit
    def outer(x: Tensor) -> Tensor:
        return middle(x) + 1

    expected = 0.0
    for turn in range(1, 6):
        wanted = 2 * (expected + turn) + 2 * (expected + 11 * turn) + 1
        expected += 11 * turn
        assert outer(numbers(turn)).item() == wanted and state.item() == expected
    assert outer.replays == 3


@verifies("replay.state.eager", observe="replay")
def test_two_objects_share_no_capture() -> None:
    class Counter:
        def __init__(self, start: float) -> None:
            self.count = numbers(start)

        @TinyJit
        def step(self, x: Tensor) -> Tensor:
            self.count.assign(self.count + x)
            return self.count + 0

    one, two = Counter(0), Counter(100)
    for turn in range(1, 6):
        assert one.step(numbers(1)).item() == turn
        assert two.step(numbers(2)).item() == 100 + 2 * turn
