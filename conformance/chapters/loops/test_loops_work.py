"""How much is done to trace bodies. Chapter: spec/loops.md."""
from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import Context, GlobalCounters, Tensor, func, realize
from impl.device import Device
from impl.errors import CompileError
from impl.loops import LoopInfo
from impl.schedule import schedule_cache
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


#: Rows where they lie, and rows that are copied; temporaries; a choice, and what is not chosen.
LOOPS: list[Callable[[Tensor], Tensor]] = [
    lambda x: func.scan(lambda c, r: (c + r.sum(), r.sum()), x.sum(), x)[0],
    lambda x: func.scan(lambda c, r: ((c / c.sum() + r).softmax(), c), x[0] * 2, x)[0],
    lambda x: func.scan(lambda c, r: (c + r.sum(), r * c), x.sum(), x[:, 1:])[1],
    lambda x: func.while_loop(lambda c: c.sum() < 9, lambda c: c / c.max() + c, x),
    lambda x: func.cond(x.sum() > 0, lambda v: v / v.sum(), lambda v: v * 2, x),
    lambda x: func.scan(lambda c, r: (func.scan(lambda d, s: (d / d.sum() + s, None), c, x)[0] + r,
                                      None), x[0], x)[0]]


@verifies("schedule.plan.slots")
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("mesh", [(), ("REFERENCE", "REFERENCE:1")])
def test_a_body_keeps_no_memory(loop: Callable[[Tensor], Tensor], mesh: tuple[str, ...]) -> None:
    """The plan is in the cache, and the body in it."""
    with Context(DEVICE="REFERENCE"):
        schedule_cache.clear()
        left = []
        for _ in range(2):
            realize.session.arenas.clear()
            gc.collect()
            left.append(GlobalCounters.allocated)
            x = Tensor(np.ones((3, 64), np.float32))
            loop(x.shard(mesh) if mesh else x).realize()
            del x
        realize.session.arenas.clear()
        gc.collect()
        assert [*left, GlobalCounters.allocated] == left[:1] * 3
        assert len(schedule_cache) > 1


@verifies("realize.failure.left+2")
def test_a_compiler_that_fails_at_a_body_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever kernels it fails at: those of a body, of one in it, or those around them."""
    device = type(Device["REFERENCE"])
    compiled = device.compile
    left = failed = 0

    def compiles(self: Any, asts: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise CompileError("test", "no", "none")
        return compiled(self, asts)

    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, None]:
        return func.cond(carry.sum() > 99, lambda v: v * 2, lambda v: v + row, carry), None

    for most in range(9):
        with Context(DEVICE="REFERENCE", SCACHE=0):
            state = Tensor([1.0, 2.0]).realize()
            state.assign(state + 1)
            last, _ = func.scan(step, state * 0, Tensor([[1.0, 2.0], [3.0, 4.0]]) + state)
            with monkeypatch.context() as patched:
                left = most
                patched.setattr(device, "compile", compiles)
                try:
                    Tensor.realize(state, last)
                except CompileError:
                    failed += 1
            assert state.tolist() == [2, 3]
            assert last.tolist() == [8, 12]
            del state, last  # who has the LOOP has its bodies, compiled
    assert 3 <= failed < 9
