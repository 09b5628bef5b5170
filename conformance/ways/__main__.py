"""`python -m conformance.ways`: see the package."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.faults.jobs import mpiexec
from conformance.trace import ROOT
from conformance.ways import job
from conformance.ways.programs import SIZES, ways

#: As far as a float32 sum may be from the real one: r[conventions.sum.bound].
FURTHEST = 512 * 2.0 ** -24
#: What may be sent beside what a way needs: the loss, mostly.
MORE = 0.01
COUNTS, PLACES, MODES = ("2", "4"), ("process", "mpi"), ("eager", "replay")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ways, a line for each; the status is 1 if one is far from one device, or sends more."""
    names = tuple(ways(4))
    parser = ArgumentParser(prog="python -m conformance.ways", description=__doc__)
    # In the tiny one other placements send less.
    parser.add_argument("--size", default="large", choices=("small", "large"))
    for option, default, choices, what in (
            ("--only", ",".join(names), names, "which"),
            ("--devices", "4", COUNTS, "how many; two axes of a mesh need four"),
            ("--over", ",".join(PLACES), PLACES, "devices of one process, or processes over MPI"),
            ("--as", ",".join(MODES), MODES, "each step as it is, or captured and replayed")):
        parser.add_argument(option, default=default, type=_some(choices),
                            help=f"{what}; some of {', '.join(choices)}, separated by commas")
    given = vars(parser.parse_args(arguments))
    size, wrong = SIZES[given["size"]], 0
    print(f"{'':18} {'':20} {'':6} {'furthest':>9} {'bytes':>10} {'theory':>10}")
    for count in map(int, given["devices"].split(",")):
        known = ways(count)
        chosen = ",".join(name for name in given["only"].split(",") if name in known)
        for place in given["over"].split(",") if chosen else ():
            for found in (alone if place == "process" else together)(
                    given["size"], chosen, count, given["as"]):
                theory = known[found["way"]].sends(size)
                right = found["error"] <= FURTHEST and \
                    theory <= found["sent"] <= theory * (1 + MORE)
                wrong += not right
                where = f"{count} devices" if place == "process" else f"{count} processes"
                print(f"{found['way']:18} {where:20} {found['mode']:6} {found['error']:9.1e} "
                      f"{found['sent']:10} {theory:10}" + "   WRONG" * (not right), flush=True)
    print(f"{wrong} are further from one device than {FURTHEST:.1e} of the greatest element, "
          f"or send other bytes than theory up to {MORE:.0%}")
    return 1 if wrong else 0


def _some(choices: Sequence[str]) -> Any:
    """What reads some of the choices, separated by commas."""
    def some(text: str) -> str:
        if not set(text.split(",")) <= set(choices):
            raise ArgumentTypeError(f"{text}: some of {', '.join(choices)}, separated by commas")
        return text
    return some


def alone(size: str, names: str, count: int, modes: str) -> Iterator[dict[str, Any]]:
    """What came of each way on devices of this process."""
    known = ways(count)
    return (job.measured(known[name], SIZES[size], mode)
            for name in names.split(",") for mode in modes.split(","))


def together(size: str, names: str, count: int, modes: str) -> Iterator[dict[str, Any]]:
    """What came of each way in a job of some processes.

    Raises:
        RuntimeError: there is no launcher, or the job failed.
    """
    launcher = mpiexec()
    if launcher is None:
        raise RuntimeError("there is no mpiexec. Remedy: pip install -e '.[mpi]'")
    tested = os.environ.get("TENSOR_SCHEDULE_TESTED", "")
    done = subprocess.run(
        [launcher, "-n", str(count), sys.executable, "-m", "conformance.ways.job", size, names,
         str(count), modes], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": tested + os.pathsep + str(ROOT)})
    if done.returncode:
        raise RuntimeError(f"the job ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return map(json.loads, done.stdout.splitlines())


if __name__ == "__main__":
    sys.exit(main())
