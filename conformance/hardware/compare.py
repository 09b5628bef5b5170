"""One workload, computed by every library that is there: first checked, then timed in turns."""
from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np

from conformance.bench.workloads import Array, Workload, WrongAnswer
from conformance.hardware import libraries, measure
from conformance.hardware.works import MOST_FOR_NUMPY, rounded

ROUNDS = 7
Said = dict[str, Any]


def times(workload: Workload, dtype: str, seconds: float) -> dict[str, Said]:
    """For each library its times in milliseconds, or why there are none."""
    given, until = rounded(workload, dtype), time.monotonic() + seconds
    said: dict[str, Said] = {}
    ready: dict[str, tuple[Any, Any, int]] = {}
    expected: Array | None = None
    for name in libraries.LIBRARIES:
        try:
            library = libraries.make(name, dtype)
            if expected is None:
                expected = _expected(given, dtype)
            made = library.ready(given)
            made.reset()  # making it ready has run it, and a step changes its parameters
            answer = made.run()
            library.finish(answer)
            _check(given, made.values(answer)[0], expected)
            ready[name] = made.run, library.finish, measure.runs_of(made.run, library.finish)
        except ImportError as error:
            said[name] = {"missing": "not here" if "No module" in str(error) else str(error)}
        except Exception as error:  # what one library cannot do is a line in the table
            said[name] = {"missing": f"{type(error).__name__}: {error}"}
    samples: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(ROUNDS):
        for name, (run, finish, count) in ready.items():
            samples[name].append(measure.sample(run, finish, count))
        if time.monotonic() > until:
            break
    said |= {name: measure.figures(found) for name, found in samples.items()}
    del ready
    gc.collect()
    return {name: said[name] for name in libraries.LIBRARIES}


def _expected(workload: Workload, dtype: str) -> Array:
    """The value of the rounded inputs: NumPy's in float64, or PyTorch's in float32 if it is much.

    Of steps of training, the loss.
    """
    if workload.work.operations <= MOST_FOR_NUMPY and not _long(workload):
        return workload.exact()
    try:
        return libraries.Torch(dtype, False).exact(workload)
    except ImportError:
        return workload.value(workload.inputs)


def _long(workload: Workload) -> bool:
    return sum(array.size for array in workload.inputs.values()) > 1 << 24


def _check(workload: Workload, found: Array, expected: Array) -> None:
    """Raise `WrongAnswer` unless it is right within the dtype's tolerance."""
    if found.shape != expected.shape:
        raise WrongAnswer(f"shape {found.shape}, expected {expected.shape}")
    most = max(float(np.abs(expected).max()), 1e-12)
    error = float(np.abs(found - expected).max()) / most
    if not error <= workload.tolerance:
        raise WrongAnswer(f"off by {error:.2g} of the greatest value")
