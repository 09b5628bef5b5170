"""`python -m conformance.ways`: see the package."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from conformance.faults.jobs import mpiexec
from conformance.trace import ROOT
from conformance.ways import job
from conformance.ways.programs import COUNT, SIZES, WAYS

#: As far as a float32 sum may be from the real one: r[conventions.float.sum].
FURTHEST = 512 * 2.0 ** -24
#: What may be sent beside what a way needs: the loss, mostly.
MORE = 0.01


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ways, a line for each; the status is 1 if one is far from one device, or sends more."""
    parser = ArgumentParser(prog="python -m conformance.ways", description=__doc__)
    parser.add_argument("--only", default=",".join(WAYS), help="which, separated by commas")
    parser.add_argument("--size", default="large", choices=tuple(SIZES))
    parser.add_argument("--processes", default="1,4", help="1: devices of one process; 4: over MPI")
    given = parser.parse_args(arguments)
    if not set(given.only.split(",")) <= set(WAYS):
        parser.error(f"ways are {', '.join(WAYS)}")
    size, wrong = SIZES[given.size], 0
    print(f"{'':18} {'':13} {'furthest':>9} {'bytes':>10} {'theory':>10}")
    for processes in given.processes.split(","):
        for found in (alone if processes == "1" else together)(given.size, given.only):
            theory = WAYS[found["way"]].sends(size)
            right = found["error"] <= FURTHEST and \
                theory <= found["sent"] <= theory * (1 + MORE)
            wrong += not right
            print(f"{found['way']:18} {'one process' if processes == '1' else '4 processes':13} "
                  f"{found['error']:9.1e} {found['sent']:10} {theory:10}"
                  + "   WRONG" * (not right), flush=True)
    print(f"{wrong} are further from one device than {FURTHEST:.1e} of the greatest element, "
          f"or send other bytes than theory up to {MORE:.0%}")
    return 1 if wrong else 0


def alone(size: str, names: str) -> Any:
    """What came of each way on four devices of this process."""
    return (job.measured(WAYS[name], SIZES[size]) for name in names.split(","))


def together(size: str, names: str) -> list[dict[str, Any]]:
    """What came of each way in a job of four processes.

    Raises:
        RuntimeError: there is no launcher, or the job failed.
    """
    launcher = mpiexec()
    if launcher is None:
        raise RuntimeError("there is no mpiexec. Remedy: pip install -e '.[mpi]'")
    tested = os.environ.get("TENSOR_SCHEDULE_TESTED", "")
    done = subprocess.run(
        [launcher, "-n", str(COUNT), sys.executable, "-m", "conformance.ways.job", size, names],
        capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": tested + os.pathsep + str(ROOT)})
    if done.returncode:
        raise RuntimeError(f"the job ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
