"""`python -m conformance.peers`: torch's samples of operator inputs, asked of `impl`.

Torch ships with samples of inputs for each of its operators (`op_db`). Each sample that is about
dense real numbers is given to the method of the same name: the values have to be torch's, and so
have the gradients. What does not apply is listed with the reason, and so is what fails.
"""
from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from conformance.peers.report import Report
from conformance.peers.samples import operators, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each operator that fails, and the sums. The status is 1 below 98 %."""
    parser = ArgumentParser(prog="python -m conformance.peers")
    parser.add_argument("names", nargs="*", help="only operators with these names")
    parser.add_argument("--samples", type=int, default=30, help="the most samples of an operator")
    parser.add_argument("--verbose", action="store_true", help="each sample that fails")
    options = parser.parse_args(arguments)
    report = Report(options.verbose)
    for operator in operators(options.names):
        run(operator, options.samples, report)
    report.show(sys.stdout)
    return 0 if report.share() >= 0.98 else 1


if __name__ == "__main__":
    sys.exit(main())
