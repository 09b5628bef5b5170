"""Collectives between GPUs, by NCCL and without it: in one process, or in all processes of a job.

    python -m conformance.hardware.collectives
    mpiexec -n 2 python -m conformance.hardware.collectives
"""
from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

#: Elements of a device's piece; each collective is timed so often.
LARGE, SMALL, TURNS = 1 << 24, 24, 9
KINDS = ("all-reduce", "reduce-scatter", "all-gather", "permute", "all-to-all")


def jobs(gpus: int, dry: bool, seconds: float) -> Iterator[dict[str, Any]]:
    """What came of each way to have the GPUs: all in one process, and one in each of several."""
    from conformance.emulation import driver
    from conformance.faults.jobs import mpiexec
    launcher = mpiexec()
    ways: dict[str, list[str] | None] = {
        "one process": [], f"{gpus} processes": [launcher, "-n", str(gpus)] if launcher else None}
    extra = {**driver.environment(), "EMULATION_DEVICES": str(gpus)} if dry else {}
    for way, words in ways.items():
        if words is None:
            yield {"way": way, "missing": "there is no mpiexec"}
            continue
        try:
            done = subprocess.run(
                [*words, sys.executable, "-m", "conformance.hardware.collectives",
                 *["--dry"] * dry], capture_output=True, text=True, timeout=seconds,
                env={**os.environ, "DEVICE": "CUDA", "NCCL": "1", **extra})
        except subprocess.TimeoutExpired:
            yield {"way": way, "missing": f"it took longer than {seconds:.0f} s"}
            continue
        found = done.stdout.splitlines()[-1:]
        yield {"way": way, **(json.loads(found[0]) if found and not done.returncode else
                              {"missing": done.stderr[-1500:] or "it said nothing"})}


def measured(size: int) -> dict[str, Any]:
    """Each collective on pieces of so many float32: whether it is right, and its seconds.

    Of several processes each looks at its own piece.
    """
    from impl import Context, Device, distributed
    from impl.collectives import nccl
    count = distributed.ranks()
    if count == 1 and not import_module("impl.cuda.driver").problem():
        count = int(import_module("cuda.bindings.driver").cuDeviceGetCount()[1])
    mesh = distributed.mesh(data=count)
    rows = []
    for kind in KINDS:
        row: dict[str, Any] = {"kind": kind, "bytes": 4 * size}
        for name, setting in (("nccl", 1), ("without", 0)):
            with Context(NCCL=setting):
                row[name] = _timed(Device[mesh], mesh, kind, size // count * count)
        rows.append(row)
    return {"gpus": count, "found": nccl.library() is not None, "rows": rows}


def _timed(device: Any, mesh: Any, kind: str, size: int) -> float | None:
    """The median of its seconds; None if what it gave is wrong."""
    from impl import dtypes
    from impl.ir import Ops
    from impl.multi import Transfer
    count = len(mesh.devices)
    part = size // count
    given = np.random.default_rng(0).integers(-99, 99, (count, size)).astype(np.float32)
    op = Ops.ADD if kind in ("all-reduce", "reduce-scatter") else None
    transfer = Transfer(kind, mesh, mesh, "data", op, shift=int(kind == "permute"))
    piece = part if kind == "reduce-scatter" else size
    result = {"all-gather": size * count, "reduce-scatter": part}.get(kind, size)
    source, target = device.allocate(4 * size), device.allocate(4 * result)
    for number, memory in zip(device.numbers, source.members, strict=True):
        memory.device.put(memory, given[number].view(np.uint8))
    device.together([(transfer, (source, target), 4 * piece, dtypes.float32)])()
    for number, memory in zip(device.numbers, target.members, strict=True):
        found = memory.device.copy_out(memory, dtypes.float32, result)
        if (found != _expected(kind, given, number, part)).any():
            return None
    times = []
    for _ in range(TURNS):
        start = time.perf_counter()
        device.together([(transfer, (source, target), 4 * piece, dtypes.float32)])()
        device.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _expected(kind: str, given: np.ndarray, number: int, part: int) -> np.ndarray:
    """What a device has afterwards."""
    if kind == "all-reduce":
        return np.asarray(given.sum(0))
    if kind == "reduce-scatter":
        return np.asarray(given.sum(0)[number * part:][:part])
    if kind == "all-to-all":
        return given[:, number * part:(number + 1) * part].reshape(-1)
    return given.reshape(-1) if kind == "all-gather" else np.asarray(given[number - 1])


def main(dry: bool) -> None:
    """What this process, or this job, has found, as a line of JSON."""
    with contextlib.ExitStack() as stack:
        if dry:
            emulation: Any = import_module("conformance.emulation.driver")
            mock = stack.enter_context(emulation.installed())
            nccl: Any = import_module("conformance.emulation.nccl")
            stack.enter_context(nccl.stand_in(mock))
        found = measured(SMALL if dry else LARGE)
        from impl import distributed
        if distributed.rank() == 0:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main("--dry" in sys.argv[1:])
