"""One adapter for each library that is measured. Each answers the questions of `Peer`.

A question that a library has no answer to raises `NotMeasured` with the reason; the reason is
printed where the number would stand. Adapters live in a process of their own (`worker.py`).
"""
from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

from conformance.bench.workloads import Array, Workload

Numbers = dict[str, float]
Answer = TypeVar("Answer")

#: Names on the command line, and where the adapters are.
PEERS = {
    "impl": "conformance.bench.peers.impl_peer",
    "tinygrad": "conformance.bench.peers.tinygrad_peer",
    "jax": "conformance.bench.peers.jax_peer",
    "torch.compile": "conformance.bench.peers.torch_peer",
    "torch": "conformance.bench.peers.eager_peer",
    "onnxruntime": "conformance.bench.peers.onnx_peer",
    "numpy": "conformance.bench.peers.numpy_peer",
    "llama.cpp": "conformance.bench.peers.llama_peer",
}
#: What the tables call them.
TITLES = {"impl": "ours", "jax": "JAX", "torch": "torch eager", "numpy": "NumPy"}


class NotMeasured(Exception):
    """There is no such number here, and why."""


@dataclass(frozen=True)
class Ready:
    """A workload that is compiled, with its inputs in memory. What is timed is `run`.

    `run` returns when the work is done; `values` reads its answer as arrays. Where a step changes
    its parameters in place, `reset` puts them back.
    """

    run: Callable[[], Any]
    values: Callable[[Any], list[Array]]
    reset: Callable[[], None] = lambda: None


class Runner(Protocol):
    """What every library is asked. All times are in seconds, all sizes in bytes."""

    def version(self) -> str:
        """The library's version."""

    def ready(self, workload: Workload) -> Ready:
        """The workload as its users would run it many times."""

    def values(self, workload: Workload) -> list[Array]:
        """Run the workload once: its value, or the loss and the new parameters."""

    def add(self) -> Numbers:
        """`seconds` of `a + b` on four elements, realized, when it was seen before."""


class Peer(Runner, Protocol):
    """What a library is asked that makes schedules."""

    def kernels(self, workload: Workload) -> Numbers:
        """`kernels` of the schedule, and the `bytes` that they read and write."""

    def memory(self, workload: Workload) -> Numbers:
        """Of the temporaries: `unplanned`, `bound` and `planned`, as far as they can be read."""

    def cold(self, workload: Workload) -> Numbers:
        """`seconds` to schedule a graph that was never seen."""

    def hit(self, workload: Workload) -> Numbers:
        """`seconds` to find the schedule of a graph again that was made anew."""

    def build(self, workload: Workload) -> Numbers:
        """`seconds` to write the graph down, gradients included."""

    def grown(self, program: str, count: int) -> Numbers:
        """Schedule a program of `growing`: `seconds`, `operations`, own `nodes`, `kernels`."""

    def grown_value(self, program: str, count: int) -> Array:
        """The value of a program of `growing`."""

    def replay(self, kernels: int) -> Numbers:
        """`seconds` of one replay of a captured function of so many tiny kernels."""

    def call(self, names: int) -> Numbers:
        """`seconds` of a call of a captured function of `calls`, that reads so many names."""


def load(name: str) -> Any:
    """The adapter of a library, a `Runner` or a `Peer`; ImportError if it is not installed."""
    return import_module(PEERS[name]).make()


def timed(work: Callable[[], Answer]) -> tuple[float, Answer]:
    """How long a call takes that starts nothing elsewhere, and what it answers.

    The time is that of the processor: on an idle machine the clock's, on a busy one without what
    others take.
    """
    start = time.process_time()
    answer = work()
    return time.process_time() - start, answer


def repeated(work: Callable[[], Any], count: int) -> float:
    """The mean time of a short call on the clock, over `count` calls."""
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count
