"""The passes from values to a plan: each writes its part of a request, and changes nothing else."""
from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, Tensor
from impl.caching import stable_name
from impl.effects import Effects
from impl.realize import planning
from impl.realize.planning import PASSES, Request, planned

WRITERS = {"choose": ["waiting"], "gather": ["effects", "notes"],
           "divide": ["lying", "mesh_notes", "pieces"],
           "find_plan": ["canonical", "hit", "plan", "program"]}


def content(value: Any) -> Any:
    """What a field says now."""
    if isinstance(value, Effects):
        return [*map(id, (*value.roots, *value.nodes)), sorted(map(id, value.held))]
    return [*map(id, value)] if isinstance(value, list) else id(value)


def written(request: Request) -> dict[str, Any]:
    return {each.name: content(getattr(request, each.name)) for each in fields(Request)
            if hasattr(request, each.name)}


def rows() -> Tensor:
    return Tensor(np.arange(12, dtype=np.float32).reshape(4, 3)).realize()


def a_sum() -> list[Tensor]:
    return [rows().sum(0)]


def a_write() -> list[Tensor]:
    """A reader that nobody asks for is computed before what it reads is overwritten."""
    state = rows()
    a_write.reader = state + 1  # type: ignore[attr-defined]
    return [state.assign(state * 2)]


def on_a_mesh() -> list[Tensor]:
    x = rows().shard(("REFERENCE", "REFERENCE:1"), axis=0)
    return [x.sum(0) + 1]


@verifies("schedule.passes.pure+3")
@pytest.mark.parametrize("program", [a_sum, a_write, on_a_mesh])
def test_no_pass_changes_what_an_earlier_one_found(program: Callable[[], list[Tensor]]) -> None:
    with Context(DEVICE="REFERENCE", SCACHE=0, SPEC=1):
        request = Request(planning.values_of(program()))
        before = written(request)
        for pass_ in PASSES:
            request = pass_(request)
            now = written(request)
            assert {name: now[name] for name in before} == before, pass_.__name__
            assert sorted(now.keys() - before.keys()) == WRITERS.get(pass_.__name__, [])
            before = now
        assert set(before) == {each.name for each in fields(Request)} - {"started"}


@verifies("schedule.passes.pure+3")
@pytest.mark.parametrize("field", ["waiting", "effects", "plan", "hit"])
def test_a_pass_that_writes_a_field_again_is_named(field: str) -> None:
    def rewrites(request: Request) -> Request:
        value = getattr(request, field)
        setattr(request, field, not value if field == "hit" else copy.copy(value))
        return request

    with Context(DEVICE="REFERENCE", SCACHE=0, SPEC=1), \
            patch.object(planning, "PASSES", (*PASSES, rewrites)), \
            pytest.raises(AttributeError, match=f"{field} .*rewrites writes it again"):
        planned(Request(planning.values_of(a_sum())))


@pytest.mark.parametrize("pass_", PASSES)
def test_a_pass_says_what_it_needs(pass_: Callable[[Request], Request]) -> None:
    text = inspect.getdoc(pass_) or ""
    assert text.count("Needs: ") == text.count("Guarantees: ") == 1
    assert text.index("Needs: ") < text.index("Guarantees: ")


def test_the_head_of_the_module_lists_the_passes() -> None:
    lines = [line.split() for line in (planning.__doc__ or "").splitlines() if "    " in line]
    named = [words[0] for words in lines if len(words) > 1]
    assert named == [pass_.__name__ for pass_ in PASSES]


def test_nothing_is_planned_for_what_is_in_memory() -> None:
    with Context(DEVICE="REFERENCE"):
        x = rows()
        request = planned(Request([x.uop]))
        assert request.waiting == [] and not hasattr(request, "plan")
        shown = planned(Request([x.uop], document=True))
        assert shown.plan.kernels == [] and len(stable_name(shown.plan.key)) == 64
