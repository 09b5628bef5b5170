"""Optimisers whose steps are replayed. See spec/replay.md."""
from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

from conformance.trace import verifies
from impl import GlobalCounters, Tensor, TinyJit, nn
from impl.errors import ArgumentError

VALUES = [np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
          for seed in range(3)]


def played(kind: str, fused: bool) -> tuple[list[Any], Any]:
    """The parameters after each of some steps, between which much changes."""
    parameters = [Tensor(value).requires_grad_() for value in VALUES]
    optimizer = getattr(nn.optim, kind)(parameters, lr=0.01, fused=fused, foreach=None)
    random, found = np.random.default_rng(9), []
    for number in range(9):
        for place, parameter in enumerate(parameters):
            gradient = Tensor(random.standard_normal((3, 4)).astype(np.float32))
            missing = number in (4, 5) and place == 1
            parameter.grad = None if missing else gradient * 2 if number % 2 else gradient.realize()
        if number == 6:
            optimizer.param_groups[0]["lr"] = 0.05
            optimizer.param_groups[0]["weight_decay"] = 0.1
        if number == 7:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer.step()
        found.append([parameter.tolist() for parameter in parameters])
    return found, optimizer


@pytest.mark.slow
@verifies("replay.state.eager", observe="replay")
@pytest.mark.parametrize("kind", ["SGD", "AdamW", "NAdam", "Lion"])
def test_a_fused_step_is_a_step(kind: str) -> None:
    wanted, _ = played(kind, False)
    found, optimizer = played(kind, True)
    assert found == wanted and optimizer.replayed.replays >= 3


@verifies("replay.pickle.again")
def test_a_copy_of_a_fused_optimizer_changes_its_own_parameters() -> None:
    _, optimizer = played("SGD", True)
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        before = [parameter.tolist() for parameter in optimizer.params]
        for parameter in copied.params:
            parameter.grad = Tensor.ones(3, 4)
        for _ in range(4):
            copied.step()
        assert [parameter.tolist() for parameter in optimizer.params] == before
        assert copied.params[0].tolist() != before[0]


@verifies("replay.nested.inlined+2")
def test_a_fused_step_in_a_captured_one() -> None:
    w = Tensor([1.0, 2.0]).requires_grad_()
    make: Any = nn.optim.SGD  # whose words for how it computes all optimisers have
    optimizer = make([w], lr=0.5, fused=True)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (w * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach().realize()
    assert [step(Tensor([1.0, 0.0])).item() for _ in range(5)] == [1.0, 0.5, 0.0, -0.5, -1.0]
    assert step.replays == 3


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_a_step_is_captured_unless_it_is_not_to_be(kind: str) -> None:
    """AdamW is made of Adam, which has words of its own."""
    make: Any = getattr(nn.optim, kind)
    for fused, replays in ((None, 3), (True, 10), (False, 0)):
        w = Tensor([1.0, 2.0]).requires_grad_()
        optimizer = make([w], fused=fused)
        for _ in range(12):  # eight of them are not worth a capture
            w.grad = w.detach() * 2
            optimizer.step()
        assert (optimizer.replayed.replays if optimizer.replayed else 0) == replays


def test_a_class_of_the_user_says_whether_steps_are_captured() -> None:
    class Plain(nn.optim.SGD):
        def __init__(self, params: Any) -> None:
            make: Any = super().__init__
            make(params, lr=0.1, fused=False)
    make: Any = Plain
    w = Tensor([1.0]).requires_grad_()
    assert make([w]).replayed is None and make([w], fused=True).replayed is not None


def test_options_that_change_at_each_step_are_not_complained_about(
        capsys: pytest.CaptureFixture[str]) -> None:
    make: Any = nn.optim.SGD
    w = Tensor([1.0]).requires_grad_()
    optimizer = make([w], fused=True)
    for number in range(14):
        optimizer.param_groups[0]["weight_decay"] = 0.1 / (number + 1)
        w.grad = w.detach()
        optimizer.step()
    assert not capsys.readouterr().err and optimizer.replayed.traces


@verifies("replay.readers.together", observe="replay")
def test_a_loss_that_waits_is_computed_with_the_gradients() -> None:
    w, x = Tensor(np.ones((64, 64), np.float32)).requires_grad_(), Tensor(np.ones((64, 64)))
    make: Any = nn.optim.SGD
    optimizer = make([w], lr=0.01, fused=True)
    x.realize()

    def operations(waits: bool) -> int:
        optimizer.zero_grad()
        loss = (x.float() @ w).sin().mean()
        loss.backward()
        if not waits:
            loss = Tensor(0.0)
        before = GlobalCounters.operations
        optimizer.step()
        loss.item()
        return GlobalCounters.operations - before
    for waits in (True, False, True):
        operations(waits)
    assert operations(True) < 1.1 * operations(False)


@verifies("errors.argument.refused")
def test_a_step_is_no_part_of_a_graph() -> None:
    make: Any = nn.optim.Adam
    with pytest.raises(ArgumentError, match=r"differentiable.*func\.grad"):
        make([Tensor([1.0]).requires_grad_()], differentiable=True)
    assert {"fused", "foreach", "capturable"} <= set(inspect.signature(make).parameters)
