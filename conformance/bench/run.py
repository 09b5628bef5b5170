"""`python -m conformance.bench run`: how fast generated code is, here and in other libraries.

Every workload is checked against NumPy in float64, then all libraries run it in turns (`rounds`).
The machine's limits are measured in the same run. With `--merge` the rows of a file stay that this
run does not measure, so that a long run can be made in parts.
"""
from __future__ import annotations

import json
import os
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from conformance.bench import figures, limits, timings
from conformance.bench.figures import Measurement
from conformance.bench.processes import UNCACHED
from conformance.bench.rounds import Run, commit, machine, peers_of, row
from conformance.bench.suite import FURTHER, TABLE, workload
from conformance.bench.worker import EXPECTED
from conformance.bench.workloads import Work

PEERS = "tinygrad,torch,torch.compile,jax,onnxruntime,numpy"
#: How often each library has its turn, and for how many seconds.
ROUNDS, SECONDS = 7, 0.12
FURTHER_ROUNDS, FURTHER_SECONDS = 5, 0.05
#: A library that has taken longer for a workload has no more turns, in seconds.
PATIENCE = 5.0
GROUPS = {"table": "Generated code", "further": "Shapes that nobody tuned"}


def threads(text: str) -> list[int]:
    """Numbers with commas: `1,2`."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise ArgumentTypeError(f"{text!r}: write numbers with commas, such as 1,2") from None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if found[0] < 1 or found[-1] > (cores or 1):
        raise ArgumentTypeError(f"{text!r}: from 1 to the {cores} cores that may be used here")
    return found


def add_arguments(parser: ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--against", default=PEERS,
                        help="peers, separated by commas; 'none' measures this library alone")
    parser.add_argument("--threads", type=threads, default=[1], metavar="1,2")
    parser.add_argument("--only", default="",
                        help="workloads whose names begin so, with commas; also first, eager")
    parser.add_argument("--further", action="store_true",
                        help="the shapes that nobody tuned, instead of the table")
    parser.add_argument("--repeats", type=int, help=f"rounds, instead of {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs")
    parser.add_argument("--limit", type=float, default=60,
                        help="seconds for one library to compile a workload, or to run it")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write the result")
    parser.add_argument("--merge", action="store_true",
                        help="keep the rows of --output that this run does not measure")


def main(options: Namespace) -> int:
    """Measure, print the table, write the result. 1 if something of ours failed."""
    peers = peers_of(options.against)
    if peers is None:
        return 2
    if options.merge and options.output is None:
        print("--merge needs a file to keep the rows of. Remedy: name it with --output")
        return 2
    result = earlier(options) or {"format": "tensor-schedule-bench/1", "kind": "run",
                                  "machine": machine(), "versions": {}, "runs": [], "rows": []}
    keys: list[str] = []
    for count in options.threads:
        keys += part(["impl", *peers], options, count, result)
    rows = [one for one in result["rows"] if one["key"] in keys]
    print(timings.markdown({**result, "rows": rows}))
    failed = [one["key"] for one in rows if "error" in one["results"].get("impl", {})]
    if failed:
        print(f"ours failed: {', '.join(failed)}")
    return 1 if failed else 0


def earlier(options: Namespace) -> dict[str, Any] | None:
    """What --merge adds to."""
    if not options.merge or not options.output.exists():
        return None
    found: dict[str, Any] = json.loads(options.output.read_text(encoding="utf-8"))
    return found


def part(names: list[str], options: Namespace, count: int, result: dict[str, Any]) -> list[str]:
    """Measure with so many threads; the rows go into the result, and their keys are answered."""
    wanted = [one for one in measurements(options, count) if _wanted(options.only, one)]
    if not wanted:
        return []
    most = limits.measure(count)
    place, keys = len(result["runs"]), []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        run = Timed(names, options, count, {EXPECTED: folder, **folders(count)})
        try:
            result["runs"].append({"limits": most.as_json(), "versions": run.versions,
                                   "commit": commit()})
            result["versions"] |= run.versions
            for one in wanted:
                answers = run.fresh(one) if one.fresh else run.measure(one)
                for figure in one.figures:
                    made = row(figure, answers) | {"threads": count, "run": place,
                                                   "load": round(os.getloadavg()[0], 1)}
                    add(result, made | bounds(one, most))
                    keys.append(made["key"])
                    print(timings.line(made | bounds(one, most)), file=sys.stderr)
                if options.output:  # after each row: what is interrupted is not lost
                    save(options.output, result)
        finally:
            run.close()
    return keys


def folders(count: int) -> dict[str, str]:
    """Compiled graphs may stay on disk from run to run, since it is the kernels that are timed.

    Inductor writes the number of threads into its code, but looks graphs up without it.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"tensor-schedule-bench-{user}-inductor-{count}")
    return {**dict.fromkeys(UNCACHED, "1"), "TORCHINDUCTOR_CACHE_DIR": str(folder)}


class Timed(Run):
    """A run with one limit for everything."""

    def __init__(self, names: list[str], options: Namespace, count: int,
                 environment: dict[str, str]) -> None:
        self.patience, self.check_limit = PATIENCE, options.limit
        super().__init__(names, options, count, environment)

    def limit(self, one: Measurement) -> float:
        return self.check_limit


def measurements(options: Namespace, count: int) -> Iterator[Measurement]:
    """What is measured with so many threads. First runs have all, small operations need one."""
    rounds, seconds = (FURTHER_ROUNDS, FURTHER_SECONDS) if options.further else (ROUNDS, SECONDS)
    if options.quick:
        rounds, seconds = 1, 0.001
    for name, (title, _) in (FURTHER if options.further else TABLE).items():
        group = GROUPS["further" if options.further else "table"]
        yield figures.timed(name, title, group, count, seconds, rounds)
    if not options.further:
        if count == options.threads[0]:
            yield figures.eager()
        if count == options.threads[-1]:
            yield from figures.first(1 if options.quick else 3)


def _wanted(only: str, one: Measurement) -> bool:
    starts = tuple(part for part in only.split(",") if part)
    return not starts or any(figure.key.startswith(starts) for figure in one.figures)


def bounds(one: Measurement, most: limits.Limits) -> dict[str, Any]:
    """What the workload has to do by its definition, and the least milliseconds for that."""
    if one.method != "time":
        return {}
    work = work_of(one.arguments["workload"])
    return {"read": work.read, "written": work.written, "operations": work.operations,
            "limit": most.seconds(work) * 1e3}


@cache
def work_of(name: str) -> Work:
    """The work of a workload, without keeping its inputs."""
    return workload(name).work


def add(result: dict[str, Any], made: dict[str, Any]) -> None:
    """Put a row where it belongs, in place of an older one."""
    rows = [one for one in result["rows"] if one["key"] != made["key"]] + [made]
    names = [*TABLE, *FURTHER, "eager", "first"]
    rows.sort(key=lambda one: (names.index(one["key"].split(".")[0]), one["key"]))
    result["rows"] = rows


def save(path: Path, result: dict[str, Any]) -> None:
    """Write a result; runs that no row is of any more are left out."""
    used = sorted({one["run"] for one in result["rows"]})
    rows = [one | {"run": used.index(one["run"])} for one in result["rows"]]
    kept = {**result, "runs": [result["runs"][number] for number in used], "rows": rows}
    for one in rows:
        if "limit" in one:
            work = Work(one["read"], one["written"], one["operations"])
            one["limit"] = limits.possible(kept, one["threads"]).seconds(work) * 1e3
    part = path.with_suffix(".part")
    part.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
