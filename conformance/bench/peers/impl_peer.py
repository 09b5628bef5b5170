"""This implementation, as the benchmark sees it.

A schedule is what `impl.realize.planned` makes: everything up to the plan, nothing compiled.
"""
from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import impl
from conformance.bench.peers import Numbers
from conformance.bench.peers.lazy import LazyOperations, LazyPeer, LazyWords
from conformance.bench.workloads import Workload
from impl import realize
from impl.ir import toposort
from impl.models import llama
from impl.schedule import schedule_cache


def make() -> ImplPeer:
    """The adapter."""
    return ImplPeer()


class ImplPeer(LazyPeer):
    """Counts come from the schedule document, which the specification describes."""

    Tensor: Any = impl.Tensor
    TinyJit: Any = impl.TinyJit
    words = LazyWords(impl.dtypes.int32)
    writer: llama.Writer

    def version(self) -> str:
        return impl.__version__

    def schedule(self, tensors: Sequence[Any]) -> int:
        return len(realize.planned(realize.Request([t.uop for t in tensors])).plan.kernels)

    def forget(self) -> None:
        schedule_cache.clear()

    def separating(self) -> AbstractContextManager[Any]:
        return impl.Context(FUSE=0)  # by default small kernels that follow each other are joined

    def operations(self, program: str) -> LazyOperations:
        return Unfused() if program == "separate" else LazyOperations()

    def nodes(self, tensor: Any) -> int:
        return len(toposort((tensor.uop,), lambda node: node.realized is None))

    def kernels(self, workload: Workload) -> Numbers:
        document = self._document(workload)
        return {"kernels": len(document["kernels"]),
                "bytes": sum(kernel["bytes"] for kernel in document["kernels"])}

    def memory(self, workload: Workload) -> Numbers:
        memory = self._document(workload)["memory"]
        return {"unplanned": memory["unplanned"], "bound": memory["lower_bound"],
                "planned": memory["planned"]}

    def open_model(self, file: str, places: int) -> Numbers:
        """Read a file of GGUF; `seconds`."""
        start = time.perf_counter()
        self.writer = llama.Writer(llama.load(file, places), places)
        return {"seconds": time.perf_counter() - start}

    def write(self, prompt: Sequence[int], count: int) -> dict[str, list[float]]:
        """The `times` of a prompt and of so many tokens behind it."""
        times, start = [], time.perf_counter()
        for _ in self.writer.write(prompt, count + 1):
            times.append(time.perf_counter() - start)
            start = time.perf_counter()
        return {"times": times}

    def _document(self, workload: Workload) -> Any:
        made = self.graph(workload, self.tensors(workload))
        return self.Tensor.schedule_document(*made)


class Unfused(LazyOperations):
    """With FUSE=0 every operation is a kernel; a copy would be one more."""

    def apart(self, x: Any) -> Any:
        return x
