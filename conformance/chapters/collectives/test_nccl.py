"""Collectives of GPUs as calls of NCCL: a stand-in of it, on the mock of the CUDA driver."""
from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.chapters.cuda.test_cuda import needs_mock
from conformance.emulation import driver
from conformance.emulation.nccl import stand_in
from conformance.saboteurs.impl_patches import inherited
from conformance.trace import verifies
from impl import Context, Device, GlobalCounters, Mesh
from impl.collectives import MeshDevice, nccl
from impl.dtypes import DType, dtypes
from impl.errors import DeviceError
from impl.ir import Ops
from impl.multi import Transfer

GRID = {"data": 2, "model": 2}


@needs_mock
@verifies("collectives.nccl.calls+2")
def test_collectives_of_gpus_are_calls_of_nccl(emulation_folder: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", driver.environment()["LD_LIBRARY_PATH"])
    monkeypatch.setenv("EMULATION_DEVICES", "4")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(_all).result(300)


def _all() -> None:
    with inherited(), driver.installed() as mock, stand_in(mock) as library, \
            Context(NCCL=1):
        mock.set_lazy(True)  # what nobody waits for has not been done
        for axes, axis in (({"data": 4}, "data"), (GRID, "data"), (GRID, "model")):
            mesh = Mesh([f"CUDA:{i}" if i else "CUDA" for i in range(4)], axes)
            for dtype in (dtypes.float32, dtypes.int64):
                _values(mesh, axis, dtype, library)
        _errors(mesh, library)


def _run(mesh: Mesh, transfer: Transfer, given: np.ndarray, dtype: DType, piece: int,
         result: int) -> np.ndarray:
    """The result of each device, from what each is given."""
    device = Device[mesh]
    assert isinstance(device, MeshDevice)
    source, target = device.allocate(given[0].nbytes), device.allocate(result)
    for memory, values in zip(source.members, given, strict=True):
        memory.device.put(memory, values.view(np.uint8))
    device.together([(transfer, (source, target), piece, dtype)])()
    for memory, values in zip(source.members, given, strict=True):  # behind the call, not before
        memory.device.put(memory, np.zeros_like(values).view(np.uint8))
    return np.stack([memory.device.copy_out(memory, dtype, result // dtype.itemsize)
                     for memory in target.members])


def _values(mesh: Mesh, axis: str, dtype: DType, library: Any) -> None:
    count, item = mesh.extent(axis), dtype.itemsize
    given = np.random.default_rng(0).integers(-99, 99, (4, 12)).astype(dtype.numpy)
    part = 12 // count

    def made(kind: str, op: Ops | None = None, shift: int = 0) -> np.ndarray:
        piece = part * item if kind == "reduce-scatter" else 12 * item
        size = {"all-gather": 12 * count, "reduce-scatter": part}.get(kind, 12) * item
        return _run(mesh, Transfer(kind, mesh, mesh, axis, op, shift), given, dtype, piece, size)

    for op, combined in ((Ops.ADD, np.add), (Ops.MUL, np.multiply)):
        whole, scattered = made("all-reduce", op), made("reduce-scatter", op)
        for group in mesh.groups(axis):
            total = combined.reduce([given[i] for i in group]).astype(dtype.numpy)
            for place, i in enumerate(group):
                np.testing.assert_array_equal(whole[i], total)
                np.testing.assert_array_equal(scattered[i], total[place * part:][:part])
    gathered, crossed, moved = made("all-gather"), made("all-to-all"), made("permute", shift=1)
    for group in mesh.groups(axis):
        for place, i in enumerate(group):
            np.testing.assert_array_equal(gathered[i], np.concatenate([given[j] for j in group]))
            np.testing.assert_array_equal(moved[i], given[group[place - 1]])
            np.testing.assert_array_equal(crossed[i], np.concatenate(
                [given[j][place * part:][:part] for j in group]))
    number = {dtypes.float32: 7, dtypes.int64: 4}[dtype]
    assert f"AllReduce rank 0 count 12 type {number} op 0 peer 0" in library.told()
    assert f"ReduceScatter rank 1 count {part} type {number} op 1 peer 0" in library.told()
    assert f"AllGather rank 1 count {12 * item} type 1 op 0 peer 0" in library.told()


def _errors(mesh: Mesh, library: Any) -> None:
    device = Device[mesh]
    assert isinstance(device, MeshDevice)
    before, calls = len(library.told()), GlobalCounters.kernels
    given = np.full((4, 4), 3, np.float32)
    with Context(NCCL=0):
        found = _run(mesh, Transfer("permute", mesh, mesh, "data", None, 1), given,
                     dtypes.float32, 16, 16)
    assert (found == 3).all() and len(library.told()) == before and GlobalCounters.kernels == calls
    # Its maximum does not say what becomes of NaN, and halves are added in a wider type here.
    largest = Transfer("all-reduce", mesh, mesh, "data", Ops.MAXIMUM)
    total = Transfer("all-reduce", mesh, mesh, "data", Ops.ADD)
    assert not nccl.Clique.can(largest, dtypes.float32)
    assert not nccl.Clique.can(total, dtypes.float16)
    sent = Transfer("permute", mesh, mesh, "data", None, 1)
    assert "rounds" not in device.sends(sent, [16], dtypes.float32)  # NCCL has its own
    library.fail(7)  # an earlier call is under way
    _run(mesh, sent, given, dtypes.float32, 16, 16)
    library.fail(6)  # it has failed: what waits for it is given up
    for says in ("ncclCommGetAsyncError: some error .error 6.*NCCL=0", "invalid argument"):
        with pytest.raises(DeviceError, match=rf"NCCL.*{says}"):
            _run(mesh, sent, given, dtypes.float32, 16, 16)
        library.fail(0)
    assert library.told()[-2:] == ["Abort", "Abort"]
