"""`python -m conformance.bench schedule`: what schedules cost, here and in other libraries.

Every library is checked first, then all are asked in turns (`rounds`).
"""
from __future__ import annotations

import json
import os
import statistics
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from conformance.bench import table
from conformance.bench.figures import measurements
from conformance.bench.rounds import Run, commit, machine, peers_of, row


def add_arguments(parser: ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--against", default="tinygrad,jax,torch.compile",
                        help="peers, separated by commas; 'none' measures this library alone")
    parser.add_argument("--threads", type=int, choices=(1, 2), default=1)
    parser.add_argument("--only", default="", help="figures whose names begin so, with commas")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--first-run", action="store_true", help="first runs too; takes minutes")
    parser.add_argument("--limit", type=float, default=20, help="seconds for one measurement")
    parser.add_argument("--repeats", type=int, help="how often each is measured, instead of 7")
    parser.add_argument("--json", type=Path, help="where to write the result")


def main(options: Namespace) -> int:
    """Measure, print the table, write the result. 1 if something of ours failed."""
    peers = peers_of(options.against)
    if peers is None:
        return 2
    run = Run(["impl", *peers], options, options.threads)
    try:
        result = everything(run)
    finally:
        run.close()
    print(table.markdown(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    failed = [row["key"] for row in result["rows"] if "error" in row["results"].get("impl", {})]
    if failed:
        print(f"ours failed: {', '.join(failed)}")
    return 1 if failed else 0


def everything(run: Run) -> dict[str, Any]:
    """All rows, with where and how they were measured."""
    options = run.options
    rows: list[dict[str, Any]] = []
    loads: list[float] = []
    for one in measurements(options.quick, options.first_run):
        if run.wanted(one.figures):
            print(f"{one.method} {' '.join(map(str, one.arguments.values()))}", file=sys.stderr)
            loads.append(os.getloadavg()[0])
            answers = run.fresh(one) if one.fresh else run.measure(one)
            rows += [row(figure, answers) for figure in one.figures]
    where = {**machine(), "load": round(statistics.mean(loads or [0]), 1)}
    return {"format": "tensor-schedule-bench/1", "kind": "schedule", "machine": where,
            "commit": commit(), "threads": options.threads, "quick": options.quick,
            "limit": options.limit, "versions": run.versions, "rows": rows}
