"""Who has to wait, and how long a value is needed, is decided in one place for all who ask.

The module of the first is impl/dependencies/hazards.py, that of the second
impl/dependencies/lives.py. See spec/dependencies.md.
"""
from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from conformance.chapters.dependencies.orders import realized
from conformance.trace import ROOT
from impl import Tensor, dependencies, memory, ordering
from impl.caching import canonicalize
from impl.dependencies import Dependency, lives, past
from impl.effects import collect
from impl.fusion import FusionLimits, late
from impl.memory import spans, takeovers
from impl.ordering import Uses, linearize
from impl.places import Place
from impl.schedule import Environment, Plan, make_plan

KINDS = {"RAW", "WAR", "WAW"}
DECIDES = "impl/dependencies/hazards.py"
#: What a person reads of them.
SHOWS = ("impl/inspect/", "impl/dependencies/__init__.py")


def names_kinds(path: str) -> bool:
    """Whether a module has one of the kinds as a text of its own."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return any(isinstance(node, ast.Constant) and node.value in KINDS for node in ast.walk(tree))


def test_one_module_names_the_kinds_of_hazards() -> None:
    modules = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "impl").rglob("*.py"))]
    assert names_kinds(DECIDES)
    found = [path for path in modules
             if names_kinds(path) and path != DECIDES and not path.startswith(SHOWS)]
    assert not found, f"these decide it too: {found}"


def planned(*tensors: Tensor, fuse: bool = True, limits: FusionLimits | None = None) -> Plan:
    effects = collect([tensor.uop for tensor in tensors])
    environment = Environment(Place("REFERENCE"), limits or FusionLimits(), fuse)
    return make_plan(effects, canonicalize(effects, ()), environment)


def read_and_write() -> list[Tensor]:
    """A reader of what was there before, a write, and a reader of what is there then."""
    state = realized([1, 2, 3, 4])
    early = state.cumsum(0)
    state[0:2] = realized([5, 6])
    return [early, state, state.cumsum(0)]


def of_a_schedule() -> Any:
    return planned(*read_and_write(), fuse=False).dependencies


def of_a_placement() -> Any:
    """Two writes that would have to wait for each other."""
    x, y = realized([1, 2, 3]), realized([4, 5, 6])
    first, second = y.flip(0) + 0, x.flip(0) + 0
    x.assign(first)
    y.assign(second)
    del first, second
    return planned(x, y).notes


def of_groups() -> Any:
    x = Tensor(np.ones((64, 32), np.float32)).realize()
    return [kernel.stages for kernel in planned(x.softmax(1)).kernels]


def of_an_order_that_is_tried() -> Any:
    return dependencies.waits([({0}, {1}), ({1}, {0})])


ASKED: tuple[Callable[[], Any], ...] = (
    of_a_schedule, of_a_placement, of_groups, of_an_order_that_is_tried)


def nobody_waits(*given: Any) -> Iterator[Any]:
    """In place of `hazards`."""
    return iter(())


@pytest.mark.parametrize("ask", ASKED)
def test_all_who_ask_who_has_to_wait_ask_one_function(ask: Callable[[], Any]) -> None:
    """Without its answers each of them answers something else."""
    expected = ask()
    with patch.object(dependencies, "hazards", nobody_waits), \
            patch.object(past, "hazards", nobody_waits):
        try:
            without = ask()
        except Exception as error:
            without = error
    assert without != expected


# Lives ------------------------------------------------------------------------------------

SCARCE = FusionLimits(memory_worth=0, small_kernel=0)


def of_a_memory_plan() -> Any:
    return memory.lifetimes([0, 1, 2], [[0], [1], [0, 1]], {0: 64, 1: 64})


def of_memory_that_is_taken_over() -> Any:
    return [kernel.arguments
            for kernel in planned(((realized([1, 2]) + 1) * 2 - 3) * 5, fuse=False).kernels]


def of_an_order() -> Any:
    needs = [Dependency(0, 2, "RAW", 0, 1), Dependency(1, 3, "RAW", 1, 1)]
    return linearize(4, needs, Uses({0: 64, 1: 64}, [[0], [1], [0], [1]]))


def forward_and_back() -> list[Tensor]:
    """Values of a way forward that the way back needs again, in the opposite order."""
    hidden, factor = (Tensor(np.ones(shape, np.float32)).realize() for shape in ((24, 24), 24))
    weights = [Tensor(np.full((24, 24), i, np.float32)).realize() for i in range(3)]
    kept = []
    for weight in weights:
        mixed = weight @ hidden
        gate = (mixed * factor).sigmoid()
        kept.append((hidden, mixed, gate))
        hidden = (mixed * gate).T  # the next layer walks over it in another direction
    back, found = hidden * factor, []
    for weight, (before, mixed, gate) in zip(weights[::-1], kept[::-1], strict=True):
        slope = back.T * (gate + mixed * (gate - gate * gate))
        back = weight.T @ slope
        found.append(weight.assign(weight - slope @ before.T))
    return [*found, back]


def of_late_twins() -> Any:
    """What nobody holds any more is made again where it is read."""
    return [kernel.stages for kernel in planned(*forward_and_back(), limits=SCARCE).kernels]


class EndsAtOnce(lives.Lives):
    """In place of `Lives`: everything is taken to be dead after its first position."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.last = dict(self.first)


@pytest.mark.parametrize("ask", [of_a_memory_plan, of_memory_that_is_taken_over, of_an_order,
                                 of_late_twins])
def test_all_who_ask_how_long_a_value_is_needed_ask_one_class(ask: Callable[[], Any]) -> None:
    expected = ask()
    with patch.object(spans, "Lives", EndsAtOnce), patch.object(takeovers, "Lives", EndsAtOnce), \
            patch.object(ordering, "Lives", EndsAtOnce), patch.object(late, "Lives", EndsAtOnce):
        assert ask() != expected


def test_one_module_counts_what_is_alive() -> None:
    """Whoever counts in positions of an order has to keep a first and a last one."""
    found = [path.relative_to(ROOT).as_posix() for folder in ("fusion", "memory", "schedule", ".")
             for path in sorted((ROOT / "impl" / folder).glob("*.py"))
             if any(isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setdefault")
                    and "position" in ast.unparse(node) for node in ast.walk(ast.parse(
                        path.read_text(encoding="utf-8"))))]
    assert not found
