"""The code of a function is followed in each version of Python: run these under all of them."""
from __future__ import annotations

import argparse
import contextlib
import dis
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor, TinyJit
from impl.following import instructions, versions
from impl.following.following import Following
from impl.following.things import Entered

factor, flag, many = 2.0, True, [1.0, 2.0, 3.0]


def times(x: Tensor, by: float = 1.0, *, and_by: float = 1.0) -> Tensor:
    return x * by * and_by * factor


class Above:
    by = 1.0

    def __enter__(self) -> float:
        return factor

    def __exit__(self, *what: object) -> None:
        pass

    def __bool__(self) -> bool:
        return factor < 3

    def times(self, x: Tensor) -> Tensor:
        return times(x)

    @property
    def factor(self) -> float:
        return factor


class Below(Above):
    def times(self, x: Tensor) -> Tensor:
        return super().times(x) + super().factor


above, below = Above(), Below()


def chosen(x: Tensor) -> Tensor:
    found = times(x, 1.0 if flag else 2.0)  # the only way to what `times` reads
    return found + found


def last(x: Tensor) -> Tensor:
    return x * many[-1]


def either(x: Tensor) -> Tensor:
    return (times if flag else last)(x)  # the only way to what `last` reads


def inherited(x: Tensor) -> Tensor:
    return below.times(x if flag else x + 1) + super(Below, below).factor


def named(x: Tensor) -> Tensor:
    more: dict[str, Any] = {"and_by": 3.0}
    return times(x, and_by=1.0 if flag else 2.0) + times(*(x, 2.0), **more)


def comprehension(x: Tensor) -> Tensor:
    number = 10.0
    found = [(lambda: number * factor)() for number in many if number < factor]
    more = {key: value * factor for key, value in enumerate(many)}
    return x * sum(found) + sum(more.values()) + sum(each * factor for each in {1, 2}) + number


def slices(x: Tensor) -> Tensor:
    mine = [*many]
    mine[0:1] = [factor, factor]
    mine[1:][0] = 7.0
    first, *rest = [*many[1:], *mine[:int(factor)]]
    last, second = rest[-1], first
    return x * last + second + len(rest)


def texts(x: Tensor) -> Tensor:
    return x + len(f"{factor:{int(factor)}.1f}{factor!r:>9}{many}{factor}" + str(factor)) + factor


def truths(x: Tensor) -> Tensor:
    return x * (1 if above and not (flag and factor > 9) or None is not flag is None else 4) + (
        +int(factor)) + (1 < factor < 4)


def handled(x: Tensor) -> Tensor:
    total = 0.0
    for number in many:
        try:
            if number > factor:
                raise ValueError(factor)
            total += {1.0: factor}[number]
        except (KeyError, ValueError) as caught:
            total += 10 * len(caught.args) * factor
        finally:
            total += 1
    else:
        total += factor
    with above as inside:
        total += inside
    while total > 30 * factor:
        total -= factor
    return x + total


def generated(x: Tensor) -> Tensor:
    def inner() -> Iterator[float]:
        yield factor
        yield from (factor * each for each in many)

    def outer(by: float = factor) -> Iterator[float]:
        yield from inner()
        yield by * shared
    shared = factor
    return x * sum(outer())


def matched(x: Tensor) -> Tensor:
    match many, {"a": factor}:
        case [first, *_], {"a": value} if value < 100:
            return x * first * value
        case _:
            return x


def nothing(x: Tensor) -> Tensor | None:
    if factor > 2:
        return None
    return x


BODIES: tuple[Callable[[Any], Any], ...] = (
    chosen, either, inherited, named, comprehension, slices, texts, truths, handled, generated,
    matched, nothing, below.times)


@verifies("following.reads.places", observe="replay")
@verifies("replay.guard.complete", observe="replay")
@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(body.__name__))
def test_what_is_read_is_found_however_it_is_written(
        body: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    here, step = sys.modules[__name__], TinyJit(body)
    with Context(DEVICE="REFERENCE"):
        x = Tensor([1.0, 2.0]).realize()
        for name, value in (("factor", 2.0), ("factor", 3.0), ("flag", False),
                            ("many", [2.5, 1.0])):
            monkeypatch.setattr(here, name, value)
            for _ in range(3):
                found, wanted = step(x), body(x)
                assert (found is None) == (wanted is None)
                if wanted is not None:
                    np.testing.assert_array_equal(found.numpy(), wanted.numpy())
    assert step.replays >= 3, step.explain()


def functions(code: types.CodeType) -> Iterator[types.CodeType]:
    """The plain functions in a code, at any depth."""
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from [each] if each.co_flags & inspect.CO_NEWLOCALS else []
            yield from functions(each)


#: In Python 3.11 `dis` counts what PRECALL and CALL take together as taken by the first.
UNCOUNTED = ("PRECALL", "CALL") if sys.version_info < (3, 12) else ()


@verifies("following.reads.places", observe="replay")
def test_an_instruction_takes_and_leaves_as_many_things_as_python_says(
        monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[Any] = []
    seen: set[str] = set()

    def step(following: Following, frame: Entered, each: dis.Instruction,
             stack: list[Any]) -> list[Any] | None:
        before = len(stack)
        found = instructions.step(following, frame, each, stack)
        if found is not None and each.opname not in (*UNCOUNTED, "RETURN_GENERATOR"):
            given = each.arg if each.opcode >= dis.HAVE_ARGUMENT else None
            seen.add(each.opname)
            if len(found) - before != dis.stack_effect(each.opcode, given, jump=False):
                wrong.append((each, len(found) - before))
        return found

    def joined(first: list[Any] | None, second: list[Any]) -> list[Any]:
        return list(second) if first is None else [
            a | b for a, b in zip(first, second, strict=True)]

    monkeypatch.setattr(Following, "call_one", lambda *given: frozenset())
    monkeypatch.setattr(Following, "joined", staticmethod(joined))
    for module in (sys.modules[__name__], argparse, contextlib):
        source = inspect.getsource(module)
        for code in functions(compile(source, str(module.__file__), "exec")):
            frame = Entered(code, vars(module), code.co_name)
            frame.boxes = {name: types.CellType(None) for name in code.co_freevars}
            Following(step, lambda value: None, trust=True).interpret(frame)
    assert not wrong and len(seen) > 50, wrong


@verifies("following.traced.reason", observe="replay")
def test_in_a_version_that_is_not_known_functions_are_traced(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "LAYOUT", None)
    step = TinyJit(lambda x: x * factor)
    for _ in range(4):
        assert step(Tensor([1.0])).item() == factor
    assert (step.replays, step.traces) == (0, 3) and "version of Python" in step.explain()
