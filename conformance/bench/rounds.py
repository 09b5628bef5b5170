"""Libraries asked in turns: ours, a peer, the next peer, and again.

So a machine that slows down for a while does so for all. Whoever answers wrongly, fails or takes
too long is not asked again for that figure.
"""
from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.bench.figures import Figure, Measurement
from conformance.bench.peers import PEERS
from conformance.bench.processes import UNCACHED, Answer, Worker
from conformance.trace import ROOT

#: A library that has taken longer than this for one figure is not asked again for it, in seconds.
PATIENCE = 20.0
#: How long a check may take: it compiles.
CHECK_LIMIT = 400.0
#: What a quick run checks; the greater workloads take long to compile.
QUICKLY_CHECKED = {"softmax", "layer_norm", "attention"}
#: Between two libraries, so that the one that had its turn stands still, in seconds.
BREATH = 0.01
#: Where each library keeps on disk what it has compiled.
DISK = {"impl": ("CACHE_FOLDER",), "tinygrad": ("XDG_CACHE_HOME",),
        "jax": ("JAX_COMPILATION_CACHE_DIR",), "torch.compile": ("TORCHINDUCTOR_CACHE_DIR",)}


def peers_of(against: str) -> list[str] | None:
    """The peers that are named on the command line; None, and a line, if there is no such peer."""
    peers = [name for name in against.split(",") if name not in ("", "none", "impl")]
    unknown = [name for name in peers if name not in PEERS]
    if unknown:
        print(f"no such peer: {', '.join(unknown)}. Remedy: use {', '.join([*PEERS][1:])}")
        return None
    return peers


class Run:
    """The libraries that take part, and what they answered."""

    def __init__(self, names: Sequence[str], options: Namespace, threads: int = 1,
                 environment: dict[str, str] | None = None) -> None:
        self.options, self.threads, self.environment = options, threads, environment or {}
        self.workers: dict[str, Worker] = {}
        self.versions: dict[str, str] = {}
        self.verdicts: dict[tuple[str, str], Answer] = {}
        for name in names:
            worker = Worker(name, threads, self.environment)
            said = worker.start()
            if "version" in said:
                self.workers[name], self.versions[name] = worker, said["version"]
            else:
                print(f"{name} is left out: {said.get('missing') or said.get('error')}")
                worker.close()

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers.values():
            worker.close()

    def wanted(self, figures: Sequence[Figure]) -> bool:
        starts = tuple(part for part in self.options.only.split(",") if part)
        return not starts or any(figure.key.startswith(starts) for figure in figures)

    patience, check_limit = PATIENCE, CHECK_LIMIT

    def limit(self, one: Measurement) -> float:
        """Growing programs have a limit; the others have one so that nothing hangs."""
        return self.options.limit if one.method == "grown" else CHECK_LIMIT

    def measure(self, one: Measurement) -> dict[str, list[Answer]]:
        """The answers of all libraries, each checked first, then asked in turns."""
        answers: dict[str, list[Answer]] = {}
        for name in self.workers:
            wrong = self._checked(name, one)
            answers[name] = [wrong] if wrong else []
        return self.turns(one, answers)

    def turns(self, one: Measurement,
              answers: dict[str, list[Answer]]) -> dict[str, list[Answer]]:
        """Ask whoever has not failed yet, round after round."""
        spent = dict.fromkeys(self.workers, 0.0)
        repeats = self.options.repeats or one.repeats
        for _ in range(repeats if one.repeats > 1 else 1):
            for name, worker in self.workers.items():
                if spent[name] > self.patience or any(_failed(said) for said in answers[name]):
                    continue
                time.sleep(BREATH)
                before = time.monotonic()
                said = worker.ask(one.method, one.arguments, self.limit(one))
                answers[name].append(said)
                if "over" in said and one.method == "grown":
                    self.verdicts[name, f"over {one.arguments['program']}"] = said
                spent[name] += time.monotonic() - before
        return answers

    def _checked(self, name: str, one: Measurement) -> Answer | None:
        """What is wrong with the values of a library, or None. A workload is checked once."""
        for method, arguments in one.checks:
            if self.options.quick and method == "check" \
                    and arguments["workload"] not in QUICKLY_CHECKED:
                continue
            key = name, f"{method} {arguments}"
            if key not in self.verdicts:
                self.verdicts[key] = self.workers[name].ask(method, arguments, self.check_limit)
            if _failed(self.verdicts[key]):
                return self.verdicts[key]
        # What a program of this kind could not do in time, one of ten times its size cannot.
        return self._too_long(name, one)

    def _too_long(self, name: str, one: Measurement) -> Answer | None:
        if one.method != "grown":
            return None
        key = name, f"over {one.arguments['program']}"
        return self.verdicts.get(key)

    def fresh(self, one: Measurement) -> dict[str, list[Answer]]:
        """Each answer from a new process, with an empty cache on disk or one that was used."""
        answers: dict[str, list[Answer]] = {name: [] for name in self.workers}
        with tempfile.TemporaryDirectory() as used:
            for _ in range(self.options.repeats or one.repeats):
                for name in self.workers:
                    with tempfile.TemporaryDirectory() as empty:
                        folder = os.path.join(used if one.fresh == "warm" else empty, name)
                        os.makedirs(folder, exist_ok=True)
                        if one.fresh == "warm" and not answers[name]:
                            self._once(name, one, folder)
                        answers[name].append(self._once(name, one, folder))
        return answers

    def _once(self, name: str, one: Measurement, folder: str) -> Answer:
        environment = {**dict.fromkeys(DISK.get(name, ()), folder), **dict.fromkeys(UNCACHED, "1"),
                       "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                       "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
        worker = Worker(name, self.threads, environment)
        try:
            begin = time.monotonic()
            said = worker.start()
            started = time.monotonic() - begin
            if "version" not in said:
                return said
            said = worker.ask(one.method, one.arguments, self.check_limit)
            return {**said, "process": started + said["seconds"]} if "seconds" in said else said
        finally:
            worker.close()


def _failed(said: Answer) -> bool:
    return "missing" in said or "error" in said


def row(figure: Figure, answers: dict[str, list[Answer]]) -> dict[str, Any]:
    """One row of the table: medians with their spread, and each peer's ratio to ours."""
    results = {name: summary(figure, said) for name, said in answers.items()}
    ours = results.get("impl", {}).get("median")
    ratios = {name: result["median"] / ours for name, result in results.items()
              if name != "impl" and ours and "median" in result}
    return {"key": figure.key, "group": figure.group, "title": figure.title, "unit": figure.unit,
            "goal": figure.goal, "results": results, "ratios": ratios}


def summary(figure: Figure, answers: Sequence[Answer]) -> dict[str, Any]:
    """Median, least and greatest value of one library; or why there is none."""
    for said in answers:
        if _failed(said):
            return {key: said[key] for key in ("missing", "error") if key in said}
    values = [value for value in (figure.read(said) for said in answers) if value is not None]
    if not values:
        return {"missing": "not counted"}
    return {"median": statistics.median(values), "low": min(values), "high": max(values),
            "count": len(values)}


def machine() -> dict[str, Any]:
    """The machine in plain words."""
    return {"processor": _processor(), "cores": os.cpu_count(), "system": platform.system(),
            "python": platform.python_version()}


def commit() -> str | None:
    """The commit that is measured, with `-dirty` where files differ from it; None without git."""
    if not (ROOT / ".git").exists():
        return None
    try:
        return subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12",
                               "--exclude=*"], cwd=ROOT, text=True, check=True,
                              capture_output=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    wide = any("avx512f" in line for line in lines if line.startswith("flags"))
    return (names[0] if names else platform.machine()) + (", AVX-512" if wide else "")
