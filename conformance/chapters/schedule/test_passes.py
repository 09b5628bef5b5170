"""The list of passes: each writes its part of a draft, and changes nothing else."""
from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from conformance.trace import ROOT, verifies
from impl import Context, Tensor
from impl.caching import canonicalize
from impl.effects import collect
from impl.fusion import FusionLimits
from impl.ir import UOp
from impl.places import Place
from impl.schedule import Environment, pipeline
from impl.schedule.draft import Draft
from impl.schedule.passes import PASSES

MODULES = ("fusion/cuts", "ranges/graph", "placement", "fusion/groups", "fusion/late",
           "fusion/split", "fusion/touches", "ordering", "memory/takeovers", "memory/__init__",
           "fusion/assemble")
GIVEN = ("effects", "canonical", "environment")


def picture(value: Any) -> Any:
    """All that a value is made of, as plain data; of what was interned, which one it is."""
    if isinstance(value, UOp):
        return id(value)
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, id(value) if isinstance(value, Draft) else 0,
                [picture(getattr(value, each.name, None)) for each in fields(value)])
    if isinstance(value, dict):
        return [(picture(key), picture(each)) for key, each in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, map(picture, value)))
    if isinstance(value, list | tuple):
        return [picture(each) for each in value]
    if type(value).__module__.startswith("impl.ranges"):
        return [picture(each) for each in vars(value).values()] if hasattr(value, "__dict__") \
            else [picture(getattr(value, each)) for each in ("shape", "index", "flat", "valid")]
    return value if isinstance(value, str | int | float | None) else repr(value)


def written(draft: Draft) -> dict[str, Any]:
    """The fields that passes have written so far."""
    return {each.name: vars(draft)[each.name] for each in fields(Draft)
            if each.name in vars(draft) and each.name not in GIVEN}


def draft_of(*tensors: Tensor, limits: FusionLimits) -> Draft:
    effects = collect([tensor.uop for tensor in tensors])
    return Draft(effects, canonicalize(effects, ()), Environment(Place("REFERENCE"), limits))


def numbers(*shape: int) -> Tensor:
    return Tensor(np.arange(int(np.prod(shape))).reshape(shape).astype(np.float32)).realize()


def a_step() -> list[Tensor]:
    """Layers, what their gradients need in the opposite order, and weights that are changed."""
    hidden, weights, kept = numbers(24, 24), [numbers(24, 24) for _ in range(3)], []
    for weight in weights:
        mixed = weight @ hidden
        gate = mixed.sigmoid()
        kept.append((hidden, mixed, gate))
        hidden = (mixed * gate).T
    back, found = hidden, []
    for weight, (before, mixed, gate) in zip(weights[::-1], kept[::-1], strict=True):
        slope = back.T * (gate + mixed * (gate - gate * gate))
        back = weight.T @ slope
        found.append(weight.assign(weight - slope @ before.T))
    return [*found, back]


def a_swap() -> list[Tensor]:
    """Writes that need a copy."""
    x, y = numbers(4), numbers(4)
    first, second = y.flip(0) + 0, x.flip(0) + 0
    x.assign(first)
    y.assign(second)
    x[1:3] = x[0:2]
    return [x, y]


def a_chain() -> list[Tensor]:
    """Temporaries that take over the memory of others."""
    x = numbers(8, 8)
    for _ in range(4):
        x = (x.cumsum(0) + 1).contiguous()
    return [(x @ x).contiguous().softmax(1).contiguous().T @ x]


@verifies("schedule.passes.pure+3")
@pytest.mark.parametrize("program", [a_step, a_swap, a_chain])
def test_no_pass_changes_what_an_earlier_one_made(program: Callable[[], list[Tensor]]) -> None:
    with Context(DEVICE="REFERENCE"):
        draft = draft_of(*program(), limits=FusionLimits(memory_worth=0, small_kernel=0))
        before: dict[str, Any] = {}
        for pass_ in PASSES:
            draft = pass_(draft)
            now = {name: picture(value) for name, value in written(draft).items()}
            changed = [name for name, was in before.items() if now[name] != was]
            assert not changed, f"{pass_.__name__} changes {changed}"
            assert now.keys() > before.keys(), f"{pass_.__name__} writes nothing"
            before = now
        assert set(before) == {each.name for each in fields(Draft)} - set(GIVEN)


@verifies("schedule.passes.pure+3")
def test_a_field_is_written_once() -> None:
    with Context(DEVICE="REFERENCE"):
        draft = draft_of(numbers(3) + 1, limits=FusionLimits())
        with pytest.raises(AttributeError):
            _ = draft.placed
        first, *_ = PASSES
        first(draft)
        with pytest.raises(AttributeError, match="cuts was written by an earlier pass"):
            first(draft)


def test_the_pipeline_is_a_list() -> None:
    lines = inspect.getsource(pipeline.make_plan).splitlines()
    assert len(lines) <= 20 and len(PASSES) == len(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_the_module_of_a_pass_says_what_it_needs(module: str) -> None:
    text = (ROOT / "impl" / f"{module}.py").read_text(encoding="utf-8")
    head = ast.get_docstring(ast.parse(text)) or ""
    assert head.count("\nNeeds: ") == head.count("\nGuarantees: ") == 1
    assert head.index("\nNeeds: ") < head.index("\nGuarantees: ")
