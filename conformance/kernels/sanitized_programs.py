"""All programs of the suite with kernels that watch their memory, and a report of them.

    python -m conformance sanitize all --report conformance/reports/sanitized.json --resume

A part is a chapter's checks of the tier `values`, some generated programs, or a few workloads of
the benchmark with one thread and with two. Each runs in a process of its own, in one of three ways
(see `ways`). The report is written anew after every part, and `--resume` runs what it has not found
right.
"""
from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.kernels import sanitized
from conformance.runner.interruption import STATUS, end_if_asked

REPORT_FORMAT = "tensor-sanitized/1"
#: Every buffer of a program has memory of its own: an overrun reaches a fence, and no neighbour.
_APART = {"NO_MEMORY_PLANNER": "1"}
_PLAIN = {**_APART, "CPU_TARGET": "x86-64"} if platform.machine() == "x86_64" else _APART


def ways() -> dict[str, Mapping[str, str]]:
    """How the parts run. No sanitizer sees inside of a special instruction, a gather for example,
    so the same kernels run as text without any, and then without vectors."""
    from impl.device import Device
    width = str(Device["CPU"].limits.vector_bytes)
    return {"machine": _APART, "portable": {**_PLAIN, "VECTOR_BYTES": width},
            "scalar": {**_PLAIN, "NOOPT": "1"}}


#: Generated programs in a part, and workloads.
_PROGRAMS = 50
_WORKLOADS = 6
_SETTINGS = "ordinary:4 NOOPT=1:1 FUSE=0:1 SCARCE=1:1"
SECONDS_OF_A_PART = 1800
THREADS = (1, 2)
#: What is kept of what a process says.
_KEPT = 6000


@dataclass(frozen=True)
class Part:
    """Words after `python`, and settings; the name says what it is."""

    name: str
    words: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()


def parts(count: int) -> Iterator[Part]:
    """All parts, with `count` generated programs in each way."""
    for way, settings in ways().items():
        yield from _checks(way, settings)
        if way == "portable":
            yield from _workloads(way, settings)
        yield from _generated(way, settings, count)


def _checks(way: str, settings: Mapping[str, str]) -> Iterator[Part]:
    """The chapters that have checks of values."""
    from conformance.runner.checks import collect
    chapters = dict.fromkeys(check.chapter for check in collect() if check.tier == "values")
    for chapter in chapters:
        yield Part(f"{way} checks {chapter}", ("-m", "conformance", "--tier", "values", "--chapter",
                                               chapter), tuple(settings.items()))


def _generated(way: str, settings: Mapping[str, str], count: int) -> Iterator[Part]:
    for first in range(0, count, _PROGRAMS):
        last = min(first + _PROGRAMS, count)
        yield Part(f"{way} programs {first} to {last - 1}", (
            "-m", "conformance", "fuzz", "--seed", str(700_000 + first), "--count",
            str(last - first), "--chunk", "25", "--styles", "general:1 effects:1",
            "--settings", _SETTINGS if way != "scalar" else "ordinary"), tuple(settings.items()))


def _workloads(way: str, settings: Mapping[str, str]) -> Iterator[Part]:
    from conformance.bench.suite import FURTHER, TABLE
    names = [*FURTHER, *TABLE]
    for first in range(0, len(names), _WORKLOADS):
        some = names[first:first + _WORKLOADS]
        yield Part(f"{way} workloads {', '.join(some)}",
                   ("-m", "conformance.kernels.sanitized_programs", *some), tuple(settings.items()))


@dataclass
class Run:
    """The parts that were run, by name: what was wrong, and seconds."""

    path: Path | None
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    planned: int = 0

    def resume(self) -> None:
        """Keep what an earlier run found right."""
        if self.path is None or not self.path.exists():
            return
        known = json.loads(self.path.read_text(encoding="utf-8"))
        if known.get("format") != REPORT_FORMAT:
            raise ValueError(f"{self.path} is no report of this command")
        self.found = {name: each for name, each in known["parts"].items() if not each["wrong"]}

    def all(self, chosen: Sequence[Part]) -> bool:
        """Run what is left; whether nothing was wrong."""
        for number, part in enumerate(chosen):
            end_if_asked()
            if part.name not in self.found:
                self.found[part.name] = one(part)
                self.write()
                wrong = self.found[part.name]["wrong"]
                print(f"{number + 1} of {len(chosen)}  {part.name}: {wrong or 'right'}",
                      flush=True)
        return not any(self.found[part.name]["wrong"] for part in chosen)

    def write(self) -> None:
        """Write the report, whole or not at all."""
        if self.path is None:
            return
        partial = self.path.with_suffix(".tmp")
        partial.write_text(json.dumps({
            "format": REPORT_FORMAT, "complete": len(self.found) == self.planned,
            "planned": self.planned, "compiler": _compiler(),
            "flags": " ".join(sanitized.FLAGS), "ways": {name: dict(way) for name, way
                                                         in ways().items()},
            "parts": self.found}, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.path)


def _compiler() -> str:
    said = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=False)
    return said.stdout.partition("\n")[0]


def one(part: Part) -> dict[str, Any]:
    """Run a part: what was wrong, empty if nothing was, and how long it took."""
    started = time.perf_counter()
    environment = {**sanitized.environment(), **dict(part.settings)}
    with subprocess.Popen([sys.executable, *part.words], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            said, _ = process.communicate(timeout=SECONDS_OF_A_PART)
            wrong = "" if process.returncode == 0 else f"status {process.returncode}: {told(said)}"
        except subprocess.TimeoutExpired:
            process.kill()
            wrong = f"it took more than {SECONDS_OF_A_PART} s"
        except KeyboardInterrupt:
            process.terminate()
            raise
    return {"wrong": wrong, "seconds": round(time.perf_counter() - started, 1)}


def told(said: str) -> str:
    """What a sanitizer said, from its first word on; else the end of what was said."""
    places = [said.find(word) for word in ("==ERROR: AddressSanitizer", "runtime error:")]
    first = min((place for place in places if place >= 0), default=-1)
    return said[max(first - 200, 0):][:_KEPT] if first >= 0 else said[-_KEPT:]


def main(arguments: Sequence[str]) -> int:
    """Run all parts. The status is 0 if nothing was wrong, 130 after an interruption, else 1."""
    parser = ArgumentParser(prog="python -m conformance sanitize all")
    parser.add_argument("--report", type=Path, help="where to write what was found")
    parser.add_argument("--resume", action="store_true", help="go on where the report ends")
    parser.add_argument("--count", type=int, default=300, help="generated programs in each way")
    parser.add_argument("--only", default="", help="parts whose names contain this")
    options = parser.parse_args(arguments)
    run = Run(options.report)
    if options.resume:
        run.resume()
    every = list(parts(options.count))
    run.planned = len(every)
    chosen = [part for part in every if options.only in part.name]
    try:
        right = run.all(chosen)
    except KeyboardInterrupt:
        print(f"interrupted after {len(run.found)} of {len(chosen)} parts", file=sys.stderr)
        return STATUS
    wrong = sum(bool(run.found[part.name]["wrong"]) for part in chosen)
    print(f"{len(chosen)} parts, {wrong} wrong")
    return 0 if right else 1


# Workloads in this process --------------------------------------------------------------------


def workload(name: str) -> None:
    """Compute a workload of the benchmark, with one thread and with two, as NumPy does.

    Raises:
        WrongAnswer: it is something else.
    """
    from conformance.bench.peers import impl_peer
    from conformance.bench.suite import workload as made
    from conformance.bench.workloads import check
    from impl import Context
    work = made(name)
    exact = work.exact()
    for threads in THREADS:
        with Context(CPU_COUNT=threads):
            check(work, impl_peer.make().values(work), exact)


if __name__ == "__main__":
    import impl  # noqa: F401  (its memory is what is guarded)
    sanitized.guard()
    for each in sys.argv[1:]:
        workload(each)
        print(f"{each} is right", flush=True)
