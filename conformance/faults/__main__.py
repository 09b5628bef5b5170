"""`python -m conformance.faults`: see the package."""
from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from conformance.faults import jobs
from conformance.runner.interruption import quietly


def main(arguments: Sequence[str] | None = None) -> int:
    """Run faults, a line for each; the status is 1 if one was not met as it has to be."""
    parser = ArgumentParser(prog="python -m conformance.faults",
                            description="Jobs of several processes, of which one goes wrong.")
    parser.add_argument("--count", type=int, default=100, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--kinds", default=",".join(jobs.KINDS),
                        help="which, separated by commas; saving: one process, killed as it saves")
    given = parser.parse_args(arguments)
    kinds = tuple(given.kinds.split(","))
    if kinds == ("saving",):
        found = jobs.saving(given.seed, given.count)
        print("\n".join(found), f"killed at {given.count} moments of a save: "
              f"{len(found)} were not met", sep="\n" if found else "")
        return 1 if found else 0
    if set(kinds) - set(jobs.KINDS):
        parser.error(f"kinds are {', '.join(jobs.KINDS)}, or saving alone")
    if jobs.mpiexec() is None:
        print("there is no mpiexec. Remedy: pip install -e '.[mpi]'")
        return 2
    wrong, longest = 0, 0.0
    for seed in range(given.seed, given.seed + given.count):
        fault, job, problems = jobs.one(seed, kinds)
        wrong, longest = wrong + bool(problems), max(longest, job.seconds)
        print(f"{seed:4} {fault['kind']:8} rank {fault['rank']} in {fault['where']} "
              f"{fault['step']}: {'; '.join(problems) or 'met'}, {job.seconds:.1f} s", flush=True)
        if problems:
            print(*(f"     {line}" for line in job.launcher.splitlines()), sep="\n")
            for rank, lines in sorted(job.lines.items()):
                print(*(f"     [{rank}] {line}" for line in lines[-6:]), sep="\n")
    print(f"{given.count} faults, {wrong} were not met; the longest job took {longest:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(quietly(main))
