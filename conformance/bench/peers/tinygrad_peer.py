"""tinygrad, as the benchmark sees it. Needs clang, as tinygrad's CPU device does.

A schedule is what `Tensor.schedule_linear` makes; its kernels are the calls in it. The bytes that
they move are the sizes of the buffers that each call is given, once each: tinygrad does not say
which part of a buffer a kernel reads. The memory planner prints what it did with DEBUG=1.
"""
from __future__ import annotations

import contextlib
import io
import math
import os
import re
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

from conformance.bench.peers import NotMeasured, Numbers
from conformance.bench.peers.lazy import LazyPeer, LazyWords
from conformance.bench.workloads import Workload

PLANNED = re.compile(r"memory reduced from ([\d.]+) MB -> ([\d.]+) MB")


def make() -> TinygradPeer:
    """The adapter; chooses the CPU device before tinygrad is imported."""
    os.environ.setdefault("DEV", "CPU")
    return TinygradPeer(import_module("tinygrad"))


class TinygradPeer(LazyPeer):
    """Version 0.14: a schedule is one LINEAR node whose sources are calls."""

    def __init__(self, library: Any) -> None:
        self.Tensor, self.TinyJit = library.Tensor, library.TinyJit
        self.words, self.context = LazyWords(library.dtypes.int32), library.Context
        self.device = library.Device[library.Device.DEFAULT]
        self.scheduling = import_module("tinygrad.schedule")

    def version(self) -> str:
        return version("tinygrad")

    def schedule(self, tensors: Sequence[Any]) -> int:
        return len(self._linear(tensors).src)

    def _linear(self, tensors: Sequence[Any]) -> Any:
        return tensors[0].schedule_linear(*tensors[1:])

    def forget(self) -> None:
        self.scheduling.schedule_cache.clear()

    def nodes(self, tensor: Any) -> int:
        return len(tensor.uop.toposort())

    def wait(self) -> None:
        self.device.synchronize()

    def kernels(self, workload: Workload) -> Numbers:
        calls = self._linear(self.graph(workload, self.tensors(workload))).src
        moved = sum(_bytes(buffer) for call in calls for buffer in call.src[1:])
        return {"kernels": len(calls), "bytes": moved}

    def memory(self, workload: Workload) -> Numbers:
        made = self.graph(workload, self.tensors(workload))
        self.forget()
        said = io.StringIO()
        with contextlib.redirect_stdout(said), self.context(DEBUG=1):
            self._linear(made)
        found = PLANNED.search(said.getvalue())
        if found is None:
            raise NotMeasured("its planner printed nothing")
        return {"unplanned": float(found[1]) * 1e6, "planned": float(found[2]) * 1e6}


def _bytes(buffer: Any) -> float:
    """The size of what a call is given; a bound variable has none."""
    shape = getattr(buffer, "shape", None)
    return math.prod(shape) * buffer.dtype.itemsize if shape else 0.0
