"""One library in a process of its own: reads questions, one JSON line each, and answers them.

    {"method": "cold", "arguments": {"workload": "gpt_step"}}  ->  {"seconds": 0.05}

Answers are `{"missing": reason}` where there is no number and `{"error": text}` where it failed.
What a library prints goes to standard error.
"""
from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any, TextIO

import numpy as np

from conformance.bench import growing
from conformance.bench.peers import NotMeasured, Peer, load
from conformance.bench.workloads import WrongAnswer, check, workload


def main(name: str) -> None:
    """Answer until standard input ends."""
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


def _answer(peer: Peer, question: dict[str, Any]) -> dict[str, Any]:
    try:
        return ask(peer, question["method"], question["arguments"])
    except NotMeasured as reason:
        return {"missing": str(reason)}
    except WrongAnswer as error:
        return {"error": f"computes something else: {error}"}
    except Exception as error:  # a peer's failure is a result, too
        line = (str(error).strip().splitlines() or [""])[0]
        return {"error": f"{type(error).__name__}: {line}"[:200]}


def ask(peer: Peer, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Put one question; workloads are named in it."""
    given = {**arguments}
    if "workload" in given:
        given["workload"] = workload(given["workload"])
    if method == "check":
        check(given["workload"], peer.values(given["workload"]))
        return {}
    if method == "check_grown":
        return _check_grown(peer, **given)
    if method == "first_run":
        start = time.perf_counter()
        peer.values(given["workload"])
        return {"seconds": time.perf_counter() - start}
    found: dict[str, Any] = getattr(peer, method)(**given)
    return {**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def _check_grown(peer: Peer, program: str, count: int) -> dict[str, Any]:
    got, right = peer.grown_value(program, count), growing.expected(program, count)
    if not np.allclose(got, right, rtol=1e-3, atol=1e-4):
        raise WrongAnswer(f"{program} of {count} operations: {got} instead of {right}")
    return {}


if __name__ == "__main__":
    main(sys.argv[1])
