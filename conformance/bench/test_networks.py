"""Kernels of common networks: which are done one element at a time, and what they need at least."""
from __future__ import annotations

import pytest

from conformance.bench import networks
from conformance.bench.architectures import ARCHITECTURES
from conformance.bench.limits import Limits, Speeds
from conformance.bench.networks import least, planned, scalar_work, step_of, without_lanes
from impl import Context, Tensor
from impl.ir import UOp

pytestmark = pytest.mark.device("CPU")
LIMITS = Limits(1, 1e9, (Speeds(1 << 40, 1e6, 2e6),), "made up")


def only(tensor: Tensor) -> UOp:
    kernel, = planned([tensor])
    return kernel


def test_work_without_lanes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = Tensor.empty(512, 512).realize(), Tensor.empty(512, 512).realize()
    made = [only(x.exp() + y), only(x @ y)]
    assert not any(map(without_lanes, made))
    small = only(Tensor.empty(8).realize() + 1)
    monkeypatch.setattr(networks, "hand_plan", lambda ast, _: (ast, []))
    assert scalar_work(made[0]) == (2 * 512 * 512, 2 * 512 * 512)
    assert all(map(without_lanes, made)) and not without_lanes(small)


def test_a_kernel_needs_its_operations_or_its_bytes() -> None:
    x, y = Tensor.empty(100, 200).realize(), Tensor.empty(200, 300).realize()
    assert least(only(x @ y), Limits(1, 1e9, (Speeds(1 << 40, 1e15, 2e15),), "")) == \
        pytest.approx(2 * 100 * 200 * 300 / 1e9)
    # 80,000 bytes are read and as many are written
    assert least(only(x * 2), LIMITS) == pytest.approx(160_000 / 1e6)
    assert least(only(x.sum()), LIMITS) == pytest.approx(80_000 / 2e6, rel=0.01)


@pytest.mark.parametrize("name", ["mlp", "residual_mlp", "autoencoder"])
def test_no_large_kernel_of_a_network_is_without_steps(name: str) -> None:
    with Context(CPU_COUNT=1):
        kernels = planned(step_of(name))
    assert len(kernels) > 10
    assert not [kernel.arg.name for kernel in kernels if without_lanes(kernel)]


def test_the_command_names_a_network_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    from conformance.bench.__main__ import main
    assert main(["networks", "mpl"]) == 2
    assert "mlp" in capsys.readouterr().out and len(ARCHITECTURES) >= 30
