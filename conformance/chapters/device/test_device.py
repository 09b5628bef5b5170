"""Names, memory, launches, replay and counts, on every device. Chapter: spec/device.md."""
from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conformance.kernels import kernel_builder as kb
from conformance.kernels.devices import on_each_processor
from conformance.kernels.kernel_builder import FLOAT, INT, load, param, store
from conformance.trace import verifies
from impl import Context, GlobalCounters, Tensor, symbolic
from impl.device import Device
from impl.errors import DeviceError, VariableError
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel import DeviceLimits

ROOT = Path(__file__).parents[3]


def add_one(count: int, name: str = "add_one") -> UOp:
    i = new_range(count, RangeKind.GLOBAL)
    value = kb.apply(Ops.ADD, load(param(1), i), kb.number(FLOAT, 1.0))
    return kb.kernel(store(param(0), i, value), prefix=(i,), name=name)


@verifies("device.name.resolved+2")
def test_a_device_has_one_name() -> None:
    for name, wanted in (("CPU", "CPU"), ("cpu", "CPU"), ("CPU:0", "CPU"), ("cpu:1", "CPU:1"),
                         ("Reference", "REFERENCE"), ("CPU:01", "CPU:1")):
        assert Device.canonical(name) == wanted
        assert Device[name] is Device[wanted] and Device[name].name == wanted
    assert Device["CPU:1"] is not Device["CPU"]


@verifies("device.name.resolved+2")
def test_an_unknown_device_is_refused_with_the_names() -> None:
    for name in ("TPU", "", "CPU:", "CPU:x", "CPU:-1"):
        with pytest.raises(DeviceError, match="CPU, .*REFERENCE") as caught:
            Device[name]
        assert "test_device.py" in str(caught.value)


@verifies("device.name.resolved+2")
def test_a_name_that_is_nearly_right_is_guessed() -> None:
    for name, wanted in (("CUDDA", "CUDA"), ("cup:1", "CPU"), ("METL", "METAL"),
                         ("gpu", "CUDA or OPENCL or METAL or WEBGPU"), ("mps:0", "METAL")):
        with pytest.raises(DeviceError, match=f"did you mean {wanted}[?] Else use one of CPU, "):
            Device.canonical(name)
    with pytest.raises(DeviceError) as caught:
        Device.canonical("TPUX")
    assert "did you mean" not in str(caught.value)


@verifies("device.name.resolved+2")
def test_a_device_that_is_not_here_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Device.kinds, "ABSENT", (Device.kinds["CPU"][0], lambda: "none is there"))
    x = Tensor([1.0, 2.0])
    uses: list[Callable[[], Tensor]] = [
        lambda: x.to("absent"), lambda: (x + 1).to("ABSENT:1"),
        lambda: Tensor([1], device="absent"), lambda: Tensor.ones(2, device="absent")]
    for use in uses:
        with pytest.raises(DeviceError, match="ABSENT.* cannot be used: none is there") as caught:
            use()
        assert __file__ in caught.value.line
    with Context(DEVICE="absent"), pytest.raises(DeviceError, match="ABSENT cannot be used"):
        Tensor([1])


@verifies("device.default.host")
def test_without_a_compiler_the_processor_interprets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Device.kinds, "CPU", (Device.kinds["CPU"][0], lambda: "no compiler"))
    monkeypatch.setattr(Device, "opened", {})
    x = Tensor([1.0, 2.0], device="cpu")
    assert x.device == Tensor([1.0]).device == "REFERENCE"
    assert (x.to("cpu") + Tensor([1.0, 1.0]).cpu()).tolist() == [2, 3]
    assert x.to("CPU:1").device == "REFERENCE:1"


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, **environment}
    code = f"from conformance.saboteurs.impl_patches import inherit; inherit(); {code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env=settings, check=True, cwd=ROOT)


@verifies("device.default.line")
def test_without_a_compiler_there_is_one_line() -> None:
    code = "from impl import Device; print(Device.DEFAULT); print(Device.DEFAULT)"
    run = python(code, CC="no-such-compiler", DEVICE="")
    assert run.stdout.split() == ["REFERENCE", "REFERENCE"]
    assert len(run.stderr.strip().splitlines()) == 1 and "no-such-compiler" in run.stderr
    run = python(code, DEVICE="reference")
    assert run.stdout.split() == ["REFERENCE"] * 2 and run.stderr == ""


@pytest.mark.slow
@verifies("device.default.line")
def test_the_main_job_runs_without_a_compiler(tmp_path: Path) -> None:
    """A machine with Python and NumPy alone: no program can be found, ziglang is not installed."""
    pytest.importorskip("sklearn")
    code = ("import runpy, sys; sys.modules['ziglang'] = None\n"
            "sys.argv[1:] = ['--epochs', '1', '--report', sys.argv[1]]\n"
            "runpy.run_module('impl', run_name='__main__')")
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "report.html")],
                         capture_output=True, text=True, cwd=ROOT,
                         env={**os.environ, "PATH": "", "CC": "", "DEVICE": ""}, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("device    REFERENCE") and "accuracy" in run.stdout
    assert len(run.stderr.splitlines()) == 1 and "no C compiler found" in run.stderr


@on_each_processor
@verifies("device.memory.blocks")
@pytest.mark.parametrize("size", [1 << 60, (1 << 63) - 1, 1 << 70])
def test_memory_that_cannot_be_had_is_refused(device: str, size: int) -> None:
    gc.collect()
    before = GlobalCounters.allocated
    with pytest.raises(DeviceError, match="bytes left") as caught:
        Device[device].allocate(size)
    assert "test_device.py" in str(caught.value) and GlobalCounters.allocated == before


@on_each_processor
@verifies("device.memory.blocks")
def test_memory_is_aligned(device: str) -> None:
    blocks = [Device[device].allocate(size) for size in (0, 1, 7, 64, 65, 1000, 1 << 21)]
    assert [b.nbytes for b in blocks] == [0, 1, 7, 64, 65, 1000, 1 << 21]
    for block in blocks:
        assert block.address % 64 == 0
        block.array[:] = 1


@on_each_processor
@verifies("device.memory.blocks")
def test_parts_share_memory_and_keep_it_alive(device: str) -> None:
    whole = Device[device].allocate(256)
    whole.array[:] = 0
    part = whole.part(64, 32)
    part.array[:] = 5
    assert whole.array.sum() == 5 * 32
    address = whole.address
    del whole
    gc.collect()
    other = Device[device].allocate(256)
    assert other.address != address
    assert part.array.tolist() == [5] * 32
    with pytest.raises(DeviceError):
        part.part(0, 33)


@on_each_processor
@verifies("device.copy.exact")
def test_copies(device: str) -> None:
    given = np.arange(10, dtype=np.float32)
    one, two = Device[device].allocate(40), Device["REFERENCE"].allocate(40)
    one.device.copy_in(one, given[::-1])
    two.device.copy(two, one)
    assert two.device.copy_out(two, FLOAT, 10).tolist() == given[::-1].tolist()
    assert two.device.copy_out(two, FLOAT, 2, offset=4).tolist() == [8.0, 7.0]
    bits = np.array([0x7f800001, 0xffc12345, 0x80000000, 1], np.uint32)  # NaNs, -0, subnormal
    one.device.copy_in(one, np.zeros(10, np.float32))
    one.device.copy_in(one, bits.view(np.float32))
    two.device.copy(two, one, 16)
    assert (two.device.copy_out(two, FLOAT, 4).view(np.uint32) == bits).all()
    assert two.device.copy_out(two, FLOAT, 1, offset=16).tolist() == [5.0]  # left as it was


@on_each_processor
@verifies("device.launch.refused+2")
def test_arguments_are_checked(device: str) -> None:
    variable = symbolic.Variable("n", 2, 5).uop
    i = new_range(variable, RangeKind.GLOBAL)
    ast = kb.kernel(store(param(0, INT), i, kb.number(INT, 1)), prefix=(i,),
                    variables=(variable,))
    program = Device[device].compile([ast])[0]
    memory = Device[device].allocate(20)
    for values in ((1,), (6,), (), (2, 3)):
        with pytest.raises(VariableError):
            program([memory], values)
    with pytest.raises(DeviceError):
        program([], (3,))
    program([memory], (5,))


@on_each_processor
@verifies("device.launch.refused+2")
def test_a_launch_with_too_few_memories_is_refused(device: str) -> None:
    program = Device[device].compile([add_one(4)])[0]
    for count in (0, 1):
        with pytest.raises(DeviceError, match=f"{count} memories for 2 arguments"):
            program([Device[device].allocate(16)] * count)


@on_each_processor
@verifies("device.compile.once")
def test_equal_kernels_share_a_program(device: str) -> None:
    ast = add_one(11)
    one, two = Device[device].compile([ast, ast])
    assert one is two is Device[device].compile([ast])[0]
    with Context(NOOPT=1):
        assert Device[device].compile([ast])[0] is not one


@on_each_processor
@verifies("device.launch.refused+2")
def test_a_kernel_with_too_many_arguments_is_refused(
        device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    i = new_range(13, RangeKind.GLOBAL)
    value = kb.apply(Ops.ADD, load(param(1), i), load(param(2), i))
    ast = kb.kernel(store(param(0), i, value), prefix=(i,), name="three")
    with monkeypatch.context() as patch:
        patch.setattr(type(Device[device]), "maximum_arguments", 2)
        for _ in range(2):
            with pytest.raises(DeviceError, match="three: 3 arguments"):
                Device[device].compile([ast])
    assert Device[device].compile([ast])[0].arguments == 3


@on_each_processor
@verifies("device.counters.exact")
def test_a_launch_that_is_refused_is_not_counted(device: str) -> None:
    program = Device[device].compile([add_one(100)])[0]
    GlobalCounters.reset()
    with pytest.raises(DeviceError):
        program([Device[device].allocate(400)])
    assert (GlobalCounters.kernels, GlobalCounters.operations, GlobalCounters.bytes) == (0, 0, 0)


@on_each_processor
@verifies("device.counters.exact")
def test_counts_follow_the_values_of_variables(device: str) -> None:
    """A kernel over n elements costs n, also after a table's value was exchanged."""
    variable = symbolic.Variable("n", 0, 50).uop
    i = new_range(variable, RangeKind.GLOBAL)
    value = kb.apply(Ops.MUL, load(param(1), i), kb.number(FLOAT, 2.0))
    ast = kb.kernel(store(param(0), i, value), prefix=(i,), variables=(variable,))
    program = Device[device].compile([ast])[0]
    memories = [Device[device].allocate(200) for _ in range(2)]
    table = Device[device].table([(program, memories, [7])])
    found = []
    for n in (7, 50, 0):
        table.set_value(0, 0, n)
        GlobalCounters.reset()
        table.run()
        program(memories, [n])
        found.append((GlobalCounters.kernels, GlobalCounters.operations, GlobalCounters.bytes))
    assert found == [(2, 14, 112), (2, 100, 800), (2, 0, 0)]


@on_each_processor
@verifies("device.counters.exact")
def test_launches_and_copies_are_counted(device: str) -> None:
    program = Device[device].compile([add_one(100)])[0]
    memories = [Device[device].allocate(400) for _ in range(2)]
    GlobalCounters.reset()
    Device[device].copy_in(memories[1], np.zeros(100, np.float32))
    for _ in range(3):
        program(memories)
    table = Device[device].table([(program, memories, ())] * 5)
    table.run()
    assert (GlobalCounters.kernels, GlobalCounters.operations) == (8, 800)
    assert GlobalCounters.bytes == 8 * 800
    assert (GlobalCounters.copies, GlobalCounters.copied_bytes) == (1, 400)


@on_each_processor
@verifies("device.counters.exact")
def test_memory_in_use_is_counted(device: str) -> None:
    gc.collect()
    GlobalCounters.reset()
    before = GlobalCounters.allocated
    block = Device[device].allocate(1000)
    assert GlobalCounters.allocated == before + 1000 == GlobalCounters.peak
    part = block.part(0, 10)
    assert GlobalCounters.allocated == before + 1000
    del block, part
    gc.collect()
    assert GlobalCounters.allocated == before and GlobalCounters.peak == before + 1000


@on_each_processor
@verifies("device.table.equal+2")
def test_a_table_runs_its_launches_in_order(device: str) -> None:
    program = Device[device].compile([add_one(16)])[0]
    a, b = (Device[device].allocate(64) for _ in range(2))
    a.array[:] = 0
    table = Device[device].table([(program, [b, a], ()), (program, [a, b], ())] * 10)
    table.run()
    table.run()
    assert a.view(FLOAT).tolist() == [40.0] * 16


@on_each_processor
@verifies("device.table.equal+2")
def test_memories_and_values_of_a_table_can_be_exchanged(device: str) -> None:
    variable = symbolic.Variable("n", 1, 8).uop
    i = new_range(variable, RangeKind.GLOBAL)
    value = kb.apply(Ops.CAST, variable, dtype=INT)
    ast = kb.kernel(store(param(0, INT), i, value), prefix=(i,), variables=(variable,))
    program = Device[device].compile([ast])[0]
    one, two = (Device[device].allocate(32) for _ in range(2))
    one.array[:] = 0
    two.array[:] = 0
    table = Device[device].table([(program, [one], [2]), (program, [one], [3])])
    table.run()
    assert one.view(INT).tolist() == [3, 3, 3, 0, 0, 0, 0, 0]
    table.set_memory(1, 0, two)
    table.set_value(1, 0, 5)
    table.set_value(0, 0, 1)
    table.run()
    assert one.view(INT).tolist() == [1, 3, 3, 0, 0, 0, 0, 0]
    assert two.view(INT).tolist() == [5, 5, 5, 5, 5, 0, 0, 0]
    with pytest.raises(VariableError):
        table.set_value(0, 0, 9)
    Device[device].table([]).run()


@on_each_processor
@verifies("caching.key.circumstances")
def test_the_key_names_what_changes_plans(device: str) -> None:
    key = Device[device].plan_key()
    assert key == Device[f"{device}:1"].plan_key() and hash(key) == hash(Device[device].plan_key())
    assert Device["CPU"].plan_key() != Device["REFERENCE"].plan_key()


@on_each_processor
@pytest.mark.device("CPU")
@verifies("caching.key.circumstances")
def test_every_property_that_matters_changes_the_key(
        device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Device[device]
    keys = [backend.plan_key()]
    with monkeypatch.context() as patch:
        patch.setattr(backend, "alignment", 128)
        keys.append(backend.plan_key())
    with monkeypatch.context() as patch:
        patch.setattr(type(backend), "maximum_arguments", 7)
        keys.append(backend.plan_key())
    with monkeypatch.context() as patch:
        patch.setattr(type(backend), "limits", DeviceLimits(name=device, vector_bytes=8))
        keys.append(backend.plan_key())
    if device == "CPU":
        with monkeypatch.context() as patch:
            patch.setattr("impl.cpu.backend.compiler_identity", lambda command: "another compiler")
            keys.append(backend.plan_key())
    assert len(set(keys)) == len(keys)
