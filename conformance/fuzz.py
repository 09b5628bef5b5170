"""Runs thousands of generated programs and answers the first failures, shrunk and ready to paste.

This is the same question that the checks ask of a few programs, without their bookkeeping.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from conformance import programs, protocol
from conformance.protocol import Program
from conformance.subject import Subject, fails


@dataclass(frozen=True)
class Job:
    """Programs `seed` to `seed + count`, of at most `size` choices; every `stride`-th of them."""

    implementation: str
    command: str
    seed: int
    count: int
    size: int
    first: int = 0
    stride: int = 1


def run(job: Job, processes: int = 1) -> list[str]:
    """A text about the first failure that each process met; none if nothing is wrong."""
    parts = [Job(job.implementation, job.command, job.seed, job.count, job.size, first,
                 max(1, processes)) for first in range(max(1, processes))]
    if len(parts) == 1:
        return [text for text in map(_part, parts) if text]
    # Fresh processes: a runtime with threads does not survive being forked.
    with ProcessPoolExecutor(len(parts), mp_context=get_context("spawn")) as pool:
        return [text for text in pool.map(_part, parts) if text]


def _part(job: Job) -> str:
    subject = Subject.of(job.implementation, job.command)
    try:
        for number in range(job.seed + job.first, job.seed + job.count, job.stride):
            program = programs.random_program(number, job.size)
            if program["statements"] and subject.supports(program):
                wrong = fails(subject, program)
                if wrong:
                    return _failure(subject, program, number, wrong)
            if (number - job.seed) // job.stride % 500 == 499:
                print(f"program {number}", file=sys.stderr)
        return ""
    finally:
        subject.close()


def _failure(subject: Subject, program: Program, number: int, wrong: str) -> str:
    smallest = programs.shrink(program, lambda each: bool(fails(subject, each)))
    return (f"program {number}: {wrong}\n\nshrunk: {fails(subject, smallest) or wrong}\n"
            f"cat > witness.json <<'END'\n{protocol.paste(smallest)}END\n"
            f"python -m conformance run witness.json {subject.spec}\n")
