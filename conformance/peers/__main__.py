"""`python -m conformance.peers`: torch's samples of operator inputs, asked of `impl`.

Torch ships with samples of inputs for each of its operators (`op_db`). Each sample that is about
dense real numbers is given to the method of the same name: the values have to be torch's, and so
have the gradients. What does not apply is listed with the reason, and so is what fails. What is
kept in `conformance/reports` is of

    python -m conformance.peers --samples 12 --report conformance/reports/torch-samples.json
"""
from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from conformance.peers.report import Report
from conformance.peers.samples import operators, run
from impl import Context


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each operator that fails, and the sums. The status is 1 below 98 %."""
    parser = ArgumentParser(prog="python -m conformance.peers")
    parser.add_argument("names", nargs="*", help="only operators with these names")
    parser.add_argument("--samples", type=int, default=30, help="the most samples of an operator")
    parser.add_argument("--verbose", action="store_true", help="each sample that fails")
    parser.add_argument("--report", type=Path, help="a file for the counts, as JSON")
    options = parser.parse_args(arguments)
    report = Report(options.verbose)
    with Context(DEVICE="REFERENCE"):
        for operator in operators(options.names):
            run(operator, options.samples, report)
    if options.report:
        options.report.write_text(json.dumps(report.as_data(), indent=1) + "\n", encoding="utf-8")
    report.show(sys.stdout)
    return 0 if report.share() >= 0.98 else 1


if __name__ == "__main__":
    sys.exit(main())
