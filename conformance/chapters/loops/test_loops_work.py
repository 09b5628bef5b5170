"""How much is done to trace bodies. Chapter: spec/loops.md."""
from __future__ import annotations

from typing import Any

import pytest

from conformance.trace import verifies
from impl import Context, Tensor, func
from impl.loops import LoopInfo
from impl.transforms import control


def looked_at(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """At how many nodes a body looks that reads so many values, each made of the one before."""
    calls = 0

    def counted(node: Any) -> bool:
        nonlocal calls
        calls += 1
        return original(node)

    original = control.is_variable
    with Context(DEVICE="REFERENCE"), monkeypatch.context() as patch:
        patch.setattr(control, "is_variable", counted)
        outside = [Tensor.arange(2).cast("float32")]  # it reads no memory
        for number in range(count):
            outside.append(outside[-1] * (number + 2))

        def body(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            for value in outside[1:]:
                carry = carry + value * row
            return carry, carry.sum()
        func.scan(body, Tensor([0.0, 0.0]), Tensor([1.0, 2.0, 3.0]))
    return calls


@verifies("loops.body.once")
def test_what_a_body_reads_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (looked_at(count, monkeypatch) for count in (20, 40))
    assert 0 < many < 2.5 * few


@verifies("loops.body.once")
def test_places_of_outputs_are_added_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each output, not of each one before it again."""
    calls = 0
    original = LoopInfo.root_shape

    def counted(loop: LoopInfo, root: int) -> Any:
        nonlocal calls
        calls += 1
        return original(loop, root)

    monkeypatch.setattr(LoopInfo, "root_shape", counted)
    with Context(DEVICE="REFERENCE"):
        func.scan(lambda carry, row: (carry + row, tuple(row * n for n in range(20))),
                  Tensor([0.0]), Tensor([[1.0], [2.0]]))
    assert 21 <= calls <= 6 * 21
