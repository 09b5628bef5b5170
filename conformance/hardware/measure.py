"""Times on a GPU, and what the GPU could do at most."""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import impl
from impl.dtypes import dtypes

#: A sample takes at least so long, so that neither the clock nor one launch matters.
SAMPLE, MOST_RUNS = 0.02, 400


def sample(run: Callable[[], Any], finish: Callable[[Any], None], count: int) -> float:
    """Seconds of one run, over `count` that are started one after another and then waited for."""
    start = time.perf_counter()
    for _ in range(count):
        answer = run()
    finish(answer)
    return (time.perf_counter() - start) / count


def runs_of(run: Callable[[], Any], finish: Callable[[Any], None]) -> int:
    """How many runs make a sample; the first runs, which may compile, are over then."""
    finish(run())
    once = sample(run, finish, 1)
    return max(1, min(MOST_RUNS, int(SAMPLE / max(once, 1e-7))))


def figures(samples: list[float]) -> dict[str, float]:
    """Median, least and greatest, in milliseconds."""
    return {"median": 1e3 * statistics.median(samples), "low": 1e3 * min(samples),
            "high": 1e3 * max(samples), "count": len(samples)}


def copy_speed(nbytes: int) -> float:
    """Bytes a second that the GPU reads and writes when it copies, by the driver's own copy."""
    device = impl.Device[impl.Device.DEFAULT]
    target, source = device.allocate(nbytes), device.allocate(nbytes)

    def run() -> None:
        device.copy(target, source)

    def finish(_: Any) -> None:
        device.synchronize()
    count = runs_of(run, finish)
    return 2 * nbytes / min(sample(run, finish, count) for _ in range(5))


def peak(torch: Any, dtype: str, size: int) -> float:
    """Operations a second of the vendor's product of matrices; float32 without tensor cores."""
    torch.backends.cuda.matmul.allow_tf32 = False
    x, y = (torch.randn(size, size, device="cuda").to(getattr(torch, dtype)) for _ in range(2))

    def run() -> Any:
        return x @ y

    def finish(_: Any) -> None:
        torch.cuda.synchronize()
    count = runs_of(run, finish)
    return 2 * size**3 / min(sample(run, finish, count) for _ in range(5))


def limit(work: Any, dtype: str, copy: float, most: float | None) -> float | None:
    """The least seconds for a workload: its bytes at the speed of a copy, or its operations."""
    moved = (work.read + work.written) * getattr(dtypes, dtype).itemsize / copy
    if work.operations and most is None:
        return None
    return max(moved, work.operations / (most or 1.0))
