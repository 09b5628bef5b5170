"""GPUs of several processes, and NCCL between them: a stand-in of it, on the mock of the driver."""
from __future__ import annotations

from pathlib import Path

import pytest

from conformance.chapters.cuda.test_cuda import needs_mock
from conformance.chapters.distributed.test_distributed import needs_mpi, started
from conformance.emulation import driver
from conformance.faults import jobs
from conformance.trace import verifies

#: Before the mesh is made: the driver's mock, and the stand-in of NCCL.
EMULATED = """
import contextlib, ctypes, os, threading, time
from conformance.emulation import driver
from conformance.emulation.nccl import stand_in
from impl import Device, dtypes
from impl.collectives import nccl
from impl.ir import Ops
from impl.multi import Mesh, Transfer
stack = contextlib.ExitStack()
mock = stack.enter_context(driver.installed())
library = stack.enter_context(stand_in(mock))

def exchanged(mesh, given, *wanted):
    device, made = Device[mesh], []
    for transfer, piece, result in wanted:
        source, target = device.allocate(given[me].nbytes), device.allocate(result)
        device.members[0].put(source.members[0], given[me].view(np.uint8))
        made.append((transfer, (source, target), piece, dtypes.float32))
    if len(made) == 1:
        device.exchange(made[0][0], made[0][1][1], made[0][1][0], *made[0][2:])
    else:
        device.together(made)()
    return [device.members[0].copy_out(target.members[0], dtypes.float32, target.nbytes // 4)
            for _, (_, target), _, _ in made]
"""

CALLS = EMULATED + """
calls = lambda: len(library.told())
own = [int(Device[name].context.device) for name in ("CUDA", "CUDA:1")]
assert own == [me, (me + 1) % 4], own
given = np.random.default_rng(0).integers(-99, 99, (4, 12)).astype(np.float32)
for axes, axis in (({"data": 4}, "data"), ({"data": 2, "model": 2}, "model")):
    mesh = distributed.mesh(**axes)
    group = next(group for group in mesh.groups(axis) if me in group)
    k, place = len(group), group.index(me)
    total, part = given[group].sum(0), 12 // k
    def of(kind, op=None, shift=0):
        return Transfer(kind, mesh, mesh, axis, op, shift)
    for transfer, piece, result, expected in (
            (of("all-reduce", Ops.ADD), 48, 48, total),
            (of("reduce-scatter", Ops.ADD), part * 4, part * 4, total[place * part:][:part]),
            (of("all-gather"), 48, 48 * k, given[group].reshape(-1)),
            (of("permute", shift=1), 48, 48, given[group[place - 1]]),
            (of("all-to-all"), 48, 48, np.concatenate([given[j][place * part:][:part]
                                                       for j in group]))):
        before = calls()
        found, = exchanged(mesh, given, (transfer, piece, result))
        np.testing.assert_array_equal(found, expected)
        assert calls() > before, (transfer, library.told())
    # NCCL does not say what becomes of NaN in a maximum.
    assert Device[mesh].called_by(of("all-reduce", Ops.MAXIMUM), dtypes.float32) is None
    before = calls()
    several = exchanged(mesh, given, *[(of("all-reduce", Ops.ADD), 48, 48)] * 2)
    assert calls() == before + 2 and all((each == total).all() for each in several)
    with Context(NCCL=0):
        before = calls()
        found, = exchanged(mesh, given, (of("all-reduce", Ops.ADD), 48, 48))
        assert (found == total).all() and calls() == before
mesh = distributed.mesh(data=4)
x = Tensor(np.arange(8, dtype=np.float32)).shard(mesh, data=0)
before = calls()
assert x.sum().item() == 28 and calls() > before
sys.stdout.write(f"{me} right\\n")
"""

#: What is not as it should be: two processes with one GPU; one that goes between note and call.
SHARED = EMULATED + """
given = np.ones((2, 4), np.float32)
mesh = distributed.mesh(data=2)
found, = exchanged(mesh, given, (Transfer("all-reduce", mesh, mesh, "data", Ops.ADD), 16, 16))
assert (found == 2).all() and not library.told()
# Who sends is known when it runs; planned is a collective.
x = Tensor(np.ones((4, 100), np.float32)).shard(mesh, data=0).realize().sum(0)
told = [row["transfer"] for row in Tensor.schedule_document(x)["kernels"] if "transfer" in row]
assert len(told) == 1 and told[0].startswith("all-reduce over data, 400 bytes"), told
sys.stdout.write(f"{me} right\\n")
"""

LEFT_ALONE = EMULATED + """
given = np.ones((2, 4), np.float32)
mesh = distributed.mesh(data=2)
wanted = Transfer("all-reduce", mesh, mesh, "data", Ops.ADD), 16, 16
exchanged(mesh, given, wanted)
if me == 1:
    nccl.Clique.exchange = lambda *given: time.sleep(3600)
try:
    print("value", exchanged(mesh, given, wanted))
except DistributedError:
    if me == 0 and "Abort" not in library.told():
        print("value of a call that was not given up", flush=True)
    raise
"""


def emulated(count: int, program: str, folder: Path, fails: bool = False,
             **more: str) -> list[str]:
    """What the processes print, each with as many emulated GPUs to see as there are processes."""
    return started(count, program.replace("mesh, me = distributed", "_, me = distributed"),
                   folder, fails, **{**driver.environment(), "DEVICE": "CUDA", "NCCL": "1",
                                     "EMULATION_DEVICES": str(count),
                                     "CACHE_FOLDER": str(folder / "kept"),
                                     "PYTHONPATH": jobs.environment()["PYTHONPATH"], **more})


@pytest.mark.slow
@needs_mpi
@needs_mock
@verifies("distributed.nccl.calls")
@verifies("distributed.gpus.own")
def test_collectives_between_gpus_of_processes_are_calls_of_nccl(
        emulation_folder: Path, tmp_path: Path) -> None:
    assert emulated(4, CALLS, tmp_path) == [f"{rank} right" for rank in range(4)]


@needs_mpi
@needs_mock
@verifies("distributed.nccl.calls")
@verifies("distributed.pair.combined+2")
def test_processes_with_one_gpu_send_over_mpi(emulation_folder: Path, tmp_path: Path) -> None:
    assert emulated(2, SHARED, tmp_path, EMULATION_DEVICES="1") == ["0 right", "1 right"]


@needs_mpi
@needs_mock
@verifies("distributed.nccl.ended")
def test_a_call_of_nccl_that_others_do_not_make_is_given_up(emulation_folder: Path,
                                                            tmp_path: Path) -> None:
    found = emulated(2, LEFT_ALONE, tmp_path, fails=True, DISTRIBUTED_SECONDS="2")
    assert found and all("collective " in line and "all-reduce (add) over data" in line
                         for line in found), found
