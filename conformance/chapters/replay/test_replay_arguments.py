"""A recording answers for arguments that are in all respects those of its capture. See
spec/replay.md.
"""
from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Tensor, TinyJit, Variable, dtypes, func, nn


def of(*numbers: float) -> Tensor:
    return Tensor([*map(float, numbers)]).realize()


def same(body: Callable[..., Any], make: Callable[[Any], tuple[Any, ...]], values: Sequence[Any],
         replays: int | None = None) -> None:
    """Each call shows what the body shows, given its own arguments, made of one value each."""
    step = TinyJit(body)
    for value in values:
        wanted, found = body(*make(value)), step(*make(value))
        if isinstance(wanted, Tensor):
            wanted, found = wanted.tolist(), found.tolist()
        assert found == wanted, value
    if replays is not None:
        assert step.replays == replays


def batches() -> list[Any]:
    """Two classes of one name, as two modules may have them."""
    def made(factor: int) -> Any:
        @dataclasses.dataclass
        class Batch:
            x: Tensor

            def scaled(self) -> Tensor:
                return self.x * factor
        return Batch
    return [made(2), made(3)]


@verifies("replay.arguments.call", observe="replay")
def test_classes_of_one_name() -> None:
    first, second = batches()
    same(lambda batch: batch.scaled(), lambda kind: (kind(of(1)),),
         (first, first, first, second, first), 2)


class Missing(dict[Any, Any]):
    """A dict that knows more."""

    def __missing__(self, key: Any) -> float:
        return 5.0


class Vector(Tensor):
    """A user's own tensors."""


@verifies("replay.arguments.call", observe="replay")
def test_a_class_of_the_users_own_is_no_other_one() -> None:
    kinds = (dict, dict, dict, collections.OrderedDict, Missing, dict)
    same(lambda d: d["x"] * (2 if isinstance(d, Missing) else 3),
         lambda kind: (kind(x=of(1)),), kinds)
    tensors = (Tensor, Tensor, Tensor, Vector, Vector, Tensor)
    same(lambda x: x * (2 if isinstance(x, Vector) else 5),
         lambda kind: (kind([1.0]),), tensors)
    step = TinyJit(lambda d: d["x"] * 2)
    for _ in range(3):
        step(Missing(x=of(1)))
    assert "argument args[0] is a Missing, a dict of its own" in step.explain()


@dataclasses.dataclass
class Sample:
    """A dataclass with more than its fields."""

    x: Tensor

    def __post_init__(self) -> None:
        self.total = self.x.sum().item()


class Place(collections.namedtuple("Place", "x y")):
    """A named tuple that somebody sets attributes on."""


@verifies("replay.arguments.call", observe="replay")
def test_attributes_that_are_no_fields() -> None:
    same(lambda sample: sample.x / sample.total,
         lambda n: (Sample(of(n, 1)),), (1, 1, 1, 3, 5), 1)

    def place(scale: int) -> tuple[Any]:
        made = Place(of(1), of(2))
        made.scale = scale  # type: ignore[attr-defined]
        return (made,)
    same(lambda place: place.x * place.scale, place, (2, 2, 2, 3, 2), 2)


@verifies("replay.arguments.call", observe="replay")
def test_arrays_whose_fields_have_other_names() -> None:
    one, other = [("k", "f4"), ("l", "f4")], [("l", "f4"), ("k", "f4")]
    same(lambda x, a: x * float(a["k"][0]),
         lambda form: (of(1), np.array([(2, 3)], dtype=form)), (one, one, one, other, one))


@verifies("replay.arguments.call", observe="replay")
def test_keys_that_are_equal_are_not_one() -> None:
    same(lambda d: d[1] * (2 if type(next(iter(d))) is bool else 3),
         lambda key: ({key: of(1)},), (1, 1, 1, True, 1.0), 1)

    class Key:
        """A key that looks like others."""

        def __repr__(self) -> str:
            return "key"
    first, second = Key(), Key()
    same(lambda d: d[first] * 10 + d[second],
         lambda n: ({first: of(n), second: of(1)},), range(4), 2)


@verifies("replay.guard.state", observe="replay")
def test_a_container_that_the_function_knows_by_another_name() -> None:
    known, sample = [of(1)], Sample(of(1))
    same(lambda one: one[0] * (2 if one is known else 3),
         lambda kept: (known if kept else [of(1)],), (0, 0, 0, 1, 0), 2)
    same(lambda one: one.x * (2 if one is sample else 3),
         lambda kept: (sample if kept else Sample(of(1)),), (0, 0, 0, 1, 0), 2)


@verifies("replay.arguments.call", observe="replay")
def test_a_container_given_twice() -> None:
    def body(first: list[Any], second: list[Any]) -> Tensor:
        first.append(1)
        found: Tensor = second[0] * len(second)
        return found

    def lists(twice: int) -> tuple[Any, Any]:
        given = [of(1)]
        return given, given if twice else [of(2)]
    same(body, lists, (0, 0, 0, 1, 1))
    same(lambda first, second: first[0] * (2 if first is second else 3), lists, (0, 0, 0, 1, 1), 1)


def counter(x: Tensor) -> Any:
    """A result that is a function of its own."""
    count = 0

    def again() -> int:
        nonlocal count
        count += 1
        return count
    return x * 2, again


@verifies("replay.guard.complete", observe="replay")
def test_functions_that_a_body_makes_are_made_at_each_call() -> None:
    step = TinyJit(counter)
    made = [step(of(n))[1] for n in range(6)]
    assert [each() for each in made] == [1] * 6 and len({*map(id, made)}) == 6
    held: Any = TinyJit(lambda x: (lambda: x))
    for _ in range(5):
        x = of(1)
        assert held(x)() is x
    plain = TinyJit(lambda x: (x * 2, counter, dtypes.float32))
    assert [plain(of(1))[1] is counter for _ in range(4)] == [True] * 4 and plain.replays == 2


@verifies("replay.guard.complete", observe="replay")
@pytest.mark.parametrize("calls", [(1, 1, 1, 1), (0, 0, 0, 1, 1)])
def test_a_pullback_is_that_of_its_call(calls: Sequence[int]) -> None:
    step = TinyJit(lambda x, wanted: func.vjp(lambda v: v * v, x) if wanted else (x * x, None))
    for number, wanted in enumerate(calls):
        value, pull = step(of(number + 1), wanted)
        assert value.tolist() == [(number + 1.0) ** 2]
        assert pull is None or pull(of(1))[0].tolist() == [2.0 * (number + 1)]


@verifies("replay.sizes.follow+3", observe="replay")
def test_sizes_that_are_returned() -> None:
    count, data = Variable("count", 1, 9), Tensor.arange(9).realize()
    step = TinyJit(lambda x, n: (x.sum() * n, x.shape[0], n))
    for value in (2, 3, 4, 5, 1, 2):
        total, size, bound = step(data[:count.bind(value)], count.bind(value))
        assert (total.item(), int(size), int(bound)) == (
            sum(range(value)) * value, value, value)
    assert step.replays == 3


@verifies("replay.gradient.eager", observe="replay")
def test_parameters_that_a_body_makes() -> None:
    step = TinyJit(lambda x: x * Tensor([2.0], requires_grad=True))
    layer = TinyJit(lambda x: nn.Linear(1, 1)(x) * 0)
    for _ in range(4):
        assert step(of(1)).requires_grad and layer(of(1)).requires_grad


@func.custom_gradient
def doubled_backwards(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    return x, lambda gradient: gradient * 2


@verifies("replay.call.any", observe="replay")
@pytest.mark.parametrize("replays", [0, 2])
def test_an_argument_that_is_another_name_of_a_memory(replays: int) -> None:
    """What is written in place waits in its memory, and so does its name without a gradient."""
    counter, seen = of(0, 0), []
    step = TinyJit(lambda x: x + 1)
    for turn in range(replays + 3):
        if turn in (1, replays + 2):  # at the capture, and where it is replayed
            counter += 1
        seen.append((counter.detach(), step(counter.detach())))
        counter.realize()
    assert [(was.tolist(), got.tolist()) for was, got in seen] == [
        ([n, n], [n + 1, n + 1]) for n in [0.0, *[1.0] * (replays + 1), 2.0]]
    assert step.replays == replays + 1


@verifies("replay.call.any", observe="replay")
@verifies("replay.gradient.eager")
def test_an_argument_that_is_another_name_of_a_parameter() -> None:
    slopes = Tensor([1.0, 2.0], requires_grad=True)
    step = TinyJit(lambda x: x * 3)
    for _ in range(4):
        slopes.grad = None
        step(doubled_backwards(slopes)).sum().backward()
        assert slopes.grad is not None and slopes.grad.tolist() == [6.0, 6.0]
    assert step.replays == 2


@verifies("effects.view-write.region", observe="replay")
@verifies("replay.failure.done+2", observe="replay")
@pytest.mark.parametrize("fails", [False, True])
def test_a_view_of_what_was_given_another_value(fails: bool) -> None:
    """What the body writes to an element of it is all that its tensor gets, at each call."""
    def put(part: Tensor) -> Tensor:
        part[0] = 7
        return part.reshape(2, 2) if fails else part + 1

    step, table = TinyJit(put), of(1, 2, 3, 4)
    for turn in range(5):
        table.assign(of(1, 2, 3, 4))
        view = table[:3]
        table += 10
        try:
            assert step(view).tolist() == [8, 3, 4]
        except ValueError:
            assert fails
        assert (view.tolist(), table.tolist()) == ([7, 2, 3], [7, 12, 13, 14]), turn


@verifies("replay.guard.state")
@pytest.mark.parametrize("calls", ["vvvvp", "vvvpv", "vpvvp", "pvvvp"])
def test_what_was_recorded_of_a_view_is_nothing_of_other_tensors(calls: str) -> None:
    """A call that assigns to a view changes a tensor around it: it says nothing of later calls."""
    def double(x: Tensor) -> Tensor:
        x.assign(x * 2)
        return (x + 1).realize()
    step, seen = TinyJit(double), list[tuple[Tensor, list[float]]]()
    for kind in calls:
        around = Tensor([1.0, 2.0, 3.0, 4.0] if kind == "v" else [5.0, 6.0]).realize()
        found = step(around[1:3] if kind == "v" else around)
        assert found.tolist() == ([5, 7] if kind == "v" else [11, 13])
        seen.append((around, [1, 4, 6, 4] if kind == "v" else [10, 12]))
    for tensor, values in seen:
        assert tensor.tolist() == values
