"""BEAM on devices with work-groups: OpenCL, CUDA over the mock driver, Metal over its mock."""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.chapters.cuda.test_cuda import Check, needs_mock
from conformance.chapters.cuda.test_cuda import on_gpu as on_gpu  # noqa: PLC0414  (a fixture)
from conformance.chapters.metal.test_metal import mock as mock  # noqa: PLC0414
from conformance.chapters.metal.test_metal import needs_emulator
from conformance.emulation import driver, metal_objects
from conformance.kernels import kernel_builder as kb
from conformance.trace import verifies
from impl import Context, Device, Tensor
from impl.caching import disk
from impl.errors import DeviceError
from impl.kernel import DeviceLimits
from impl.searching import beam, with_steps

_factors = itertools.count(2)
SEARCHED: dict[str, Any] = {"BEAM": 1, "BEAM_TIMEOUT_SEC": 100, "PARALLEL": 1, "SCACHE": 0}


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A process that has searched nothing, with a folder of its own."""
    monkeypatch.setattr(beam, "_known", {})
    monkeypatch.setattr(disk, "_stores", disk.Stores())
    with Context(CACHE_FOLDER=str(tmp_path / "cache")):
        yield


def searched(device: str) -> beam.Found:
    """Search steps for sums of rows, and compare their values; what was found.

    Each time for another factor: what this process has compiled once is not searched again.
    """
    factor = next(_factors)
    values = np.random.default_rng(0).integers(-9, 9, (8, 300)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch, Context(DEVICE=device, **SEARCHED):
        patch.setattr(beam._Search, "_is_over", lambda self: self.tried > 4)  # not by the clock
        x = Tensor(values).realize()
        assert (x * factor).sum(1).tolist() == (values * factor).sum(1).tolist()
    return list(beam._known.values())[-1]


@pytest.mark.device("OPENCL")
@pytest.mark.usefixtures("fresh")
@verifies("searching.trial.harmless")
@verifies("device.trial.released+2")
def test_steps_are_searched_on_opencl() -> None:
    device: Any = Device["OPENCL"]
    loaded, attempts = len(device.functions), []
    with pytest.MonkeyPatch.context() as patch:
        attempt = device.attempt

        def counted(program: Any) -> None:
            attempts.append(program)
            attempt(program)
        patch.setattr(device, "attempt", counted)
        found = searched("OPENCL")
    assert 1 < len(attempts) <= found.tried  # equal texts are loaded once
    assert found.seconds <= found.start_seconds
    assert all(program.function is None for program in attempts)
    assert len(device.functions) == loaded + 1
    assert disk.store().entries("beam") and len(disk.store().entries("opencl")) == 1


@pytest.mark.device("OPENCL")
@pytest.mark.usefixtures("fresh")
@verifies("searching.trial.limits")
def test_what_compiles_too_long_or_not_at_all_is_no_candidate() -> None:
    device: Any = Device["OPENCL"]
    product = kb.matmul(8, 8, 8)
    assert device.trial([with_steps(product, ())], 1e-9) == [None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "dialect", lambda: None)
        assert device.trial([product], 10) == [None]


def test_no_more_local_memory_is_tried_than_there_is() -> None:
    """And no group of more lanes than the device has."""
    ast = kb.softmax(4, 700)
    bench: Any = type("Bench", (), {"limits": DeviceLimits(lanes=64, local_memory=1 << 20)})()
    tried = beam._Search(ast, bench, 1, [])
    wide = beam.apply_steps(ast, [step for step, _ in beam.lane_steps(
        ast, DeviceLimits(lanes=64, lockstep=32, local_memory=1 << 20))])
    assert tried._fits(wide)
    bench.limits = DeviceLimits(lanes=64, local_memory=16)
    assert not tried._fits(wide)


@pytest.mark.usefixtures("fresh")
@verifies("searching.trial.harmless")
def test_a_candidate_that_the_device_refuses_to_run_is_dropped() -> None:
    def refused(program: Any) -> float:
        raise DeviceError("launch", "too many lanes", "use fewer")
    released: list[Any] = []
    bench: Any = type("Bench", (), {"limits": DeviceLimits(),
                                    "release": lambda _, some: released.extend(some)})()
    made = beam._Search(kb.matmul(4, 4, 4), bench, 1, [])
    made.trial = type("Trial", (), {"sample": staticmethod(refused)})()
    runner = beam._Candidate((), made.ast, "a program")
    made._race([runner], [])
    assert runner.program is None and released == ["a program"]


def check_cuda() -> None:
    gpu: Any = driver.load()
    before = {name: gpu.calls(name) for name in ("cuEventRecord", "cuModuleLoadData",
                                                 "cuModuleUnload")}
    found = searched("CUDA")
    timed, loaded, unloaded = (gpu.calls(name) - count for name, count in before.items())
    assert timed > 3 and (loaded, unloaded) == (found.tried + 1, found.tried), \
        (found, timed, loaded, unloaded)


@needs_mock
@verifies("searching.trial.harmless")
@verifies("device.trial.released+2")
@verifies("cuda.time.events")
def test_steps_are_searched_on_cuda(on_gpu: Callable[[Check], None]) -> None:  # noqa: F811
    on_gpu(check_cuda)


@pytest.mark.slow
@needs_emulator
@pytest.mark.usefixtures("fresh")
@verifies("searching.trial.harmless")
@verifies("metal.time.commands")
def test_steps_are_searched_on_metal(mock: metal_objects.Device) -> None:  # noqa: F811
    gpu: Any = Device["METAL"]
    assert searched("METAL").tried > 1
    program, memory = gpu.compile([kb.matmul(16, 16, 16)])[0], gpu.allocate(1024)

    def launches() -> None:
        for _ in range(100):  # in more than one command buffer
            program([memory, memory, memory])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.perf_counter", lambda: 0.0)
        assert gpu.seconds(launches) > 0
        assert gpu.seconds(lambda: None) == 0
