"""One library in a process of its own: reads questions, one JSON line each, and answers them.

    {"method": "cold", "arguments": {"workload": "gpt_step"}}  ->  {"seconds": 0.05}

Answers are `{"missing": reason}` where there is no number and `{"error": text}` where it failed.
What a library prints goes to standard error.
"""
from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from conformance.bench import growing
from conformance.bench.peers import NotMeasured, Ready, load
from conformance.bench.suite import workload
from conformance.bench.workloads import Array, Workload, WrongAnswer, check

#: Where the processes of a run keep what the answers have to be.
EXPECTED = "BENCH_EXPECTED"
#: Calls that are timed for one answer, at most.
CALLS = 2_000
#: The workload that is ready, by its name. Only one, as some are great.
_ready: dict[str, Ready] = {}


def main(name: str, threads: int) -> None:
    """Answer until standard input ends."""
    # Before a library is imported: it counts the cores that it may use.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Deep graphs are legal; libraries that recurse get the room that Python can give.
    sys.setrecursionlimit(1_000_000)
    try:
        start = time.perf_counter()
        peer = load(name)
        said: dict[str, Any] = {"version": peer.version(), "import": time.perf_counter() - start}
    except ImportError as error:
        _send(answers, {"missing": f"not installed: {error}"})
        return
    _send(answers, said)
    for line in sys.stdin:
        _send(answers, _answer(peer, json.loads(line)))


def _send(answers: TextIO, said: dict[str, Any]) -> None:
    answers.write(json.dumps(said) + "\n")
    answers.flush()


def _answer(peer: Any, question: dict[str, Any]) -> dict[str, Any]:
    try:
        return ask(peer, question["method"], question["arguments"])
    except NotMeasured as reason:
        return {"missing": str(reason)}
    except WrongAnswer as error:
        return {"error": f"computes something else: {error}"}
    except Exception as error:  # a peer's failure is a result, too
        line = (str(error).strip().splitlines() or [""])[0]
        return {"error": f"{type(error).__name__}: {line}"[:200]}


def ask(peer: Any, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Put one question; workloads are named in it."""
    if method == "time":
        return _time(**arguments)
    given = {**arguments}
    if "workload" in given:
        given["workload"] = workload(given["workload"])
    if method == "check":
        check(given["workload"], peer.values(given["workload"]))
        return {}
    if method == "prepare":
        return _prepare(peer, given["workload"])
    if method == "check_grown":
        return _check_grown(peer, **given)
    if method == "first_run":
        start = time.perf_counter()
        peer.values(given["workload"])
        return {"seconds": time.perf_counter() - start}
    found: dict[str, Any] = getattr(peer, method)(**given)
    return {**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def _prepare(peer: Any, workload: Workload) -> dict[str, Any]:
    """Compile a workload, and check what it answers as it will be timed."""
    _ready.clear()
    start = time.perf_counter()
    made = peer.ready(workload)
    seconds = time.perf_counter() - start
    for _ in range(2):  # what was right once may be wrong when it is run again
        made.reset()
        check(workload, made.values(made.run()), expected(workload))
    _ready[workload.name] = made
    return {"seconds": seconds}


def _time(workload: str, seconds: float) -> dict[str, Any]:
    """The times of calls, until so many seconds have passed: their median, and their number."""
    made = _ready[workload]
    made.reset()
    made.run()
    times: list[float] = []
    ends = time.perf_counter() + seconds
    while not times or (len(times) < CALLS and time.perf_counter() < ends):
        start = time.perf_counter()
        made.run()
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times), "calls": len(times)}


def expected(workload: Workload) -> Array | None:
    """What NumPy computes, in float64: once for all processes of a run, as it may take a second."""
    folder = os.environ.get(EXPECTED)
    if folder is None or workload.parameters:
        return None
    path = Path(folder, f"{workload.name}.npy")
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}.npy")
        np.save(part, workload.exact())
        part.replace(path)
    return np.load(path, mmap_mode="r")


def _check_grown(peer: Any, program: str, count: int) -> dict[str, Any]:
    got, right = peer.grown_value(program, count), growing.expected(program, count)
    if not np.allclose(got, right, rtol=1e-3, atol=1e-4):
        raise WrongAnswer(f"{program} of {count} operations: {got} instead of {right}")
    return {}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
