"""Stress: what only happens when several do something at once, or when one of them is killed.

    python -m conformance.runner.stress threads --seconds 60
    python -m conformance.runner.stress processes --seconds 60
    python -m conformance.runner.stress kill --times 50

Threads of one process run generated programs at once, each with an adapter of its own. Processes
that share an empty cache folder run the same programs. A process is killed at any moment, while it
compiles and while it writes, and the next one has to start and to give right values. Every value is
compared with the oracle's. The folder is given by an environment variable, `--folder-variable`.

The status is 0 if nothing was wrong.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from conformance.generators import programs
from conformance.protocol import Program, shapes
from conformance.runner.interruption import quietly
from conformance.runner.subject import Failure, NotClaimed, Subject

DEFAULT = "conformance.adapters.impl_adapter:Adapter"
#: A file whose name is the checksum of its content.
NAMED_BY_CHECKSUM = re.compile(r"([0-9a-f]{64})\.\w+")


@dataclass
class Tally:
    """What was done and what was wrong. A value is one observed array."""

    programs: int = 0
    schedules: int = 0
    kernels: int = 0
    values: int = 0
    elements: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count what another one has counted."""
        for name, count in asdict(other).items():
            setattr(self, name, getattr(self, name) + count)

    def line(self) -> str:
        """The counts as a line."""
        return (f"{self.programs} programs, {self.schedules} schedules, {self.kernels} kernels, "
                f"{self.values} values compared ({self.elements} elements), "
                f"wrong: {len(self.wrong)}")


def check(subject: Subject, program: Program, tally: Tally, *tiers: str) -> None:
    """Run a program and compare its values; what is wrong is noted, and nothing is raised."""
    tally.programs += 1
    try:
        shapes.check_program(program)
        wanted = [tier for tier in ("schedule", *tiers) if tier in subject.info.observes]
        seen = subject.check_values(program, *wanted)
    except NotClaimed:
        return
    except Failure as failure:
        tally.wrong.append(failure.message)
        return
    except Exception as error:  # the implementation's own: it is the finding
        tally.wrong.append(f"{type(error).__name__}: {error}")
        return
    tally.schedules += len(seen.schedule)
    tally.kernels += sum(len(document["kernels"]) for document in seen.schedule)
    tally.values += len(seen.values)
    tally.elements += sum(value.array().size for value in seen.values)


def chosen(subject: Subject, numbers: Iterator[int], size: int) -> Iterator[Program]:
    """The programs of these numbers that use only what is declared."""
    for number in numbers:
        program = programs.random_program(number, size)
        if program["statements"] and subject.supports(program):
            yield program


def threads(options: Namespace) -> Tally:
    """Several threads run programs at once, of which half are the same ones over and over."""
    tallies = [Tally() for _ in range(options.workers)]
    subjects = [Subject.of(options.impl, options.impl_cmd) for _ in tallies]
    end = time.monotonic() + options.seconds

    def work(which: int) -> None:
        dice, subject = random.Random(options.seed * 1000 + which), subjects[which]

        def numbers() -> Iterator[int]:
            while time.monotonic() < end:
                common = dice.random() < 0.5
                yield dice.randrange(20) if common else dice.randrange(1 << 40)

        for program in chosen(subject, numbers(), options.size):
            check(subject, program, tallies[which], *(["replay"] if dice.random() < 0.5 else []))
            if dice.random() < 0.02:
                subject.adapter.reset()

    running = [threading.Thread(target=work, args=(which,)) for which in range(options.workers)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    whole = Tally()
    for tally, subject in zip(tallies, subjects, strict=True):
        whole.add(tally)
        subject.close()
    return whole


def processes(options: Namespace) -> Tally:
    """Rounds of a few seconds: processes begin at once, with the same programs, in a new folder."""
    whole, end, rounds = Tally(), time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        rounds += 1
        with scratch() as folder:
            running = [worker(options, folder, seed=options.seed + rounds * 10_000,
                              seconds=min(options.round, max(1.0, end - time.monotonic())))
                       for _ in range(options.workers)]
            for process in running:
                whole.add(outcome(process))
            whole.wrong += torn(folder / "cache")
    print(f"{rounds} rounds of {options.workers} processes")
    return whole


def kill(options: Namespace) -> Tally:
    """Kill a process at any moment, and look what the next one makes of what it left."""
    whole, dice = Tally(), random.Random(options.seed)
    found = {"while compiling": 0, "while writing": 0}
    with scratch() as folder:
        for time_ in range(options.times):
            seed = options.seed + time_ * 10_000
            renames = dice.randrange(1, 12) if time_ % 3 == 0 else 0
            killed(worker(options, folder, seed=seed, seconds=600.0, renames=renames),
                   dice.random() * 2, group=time_ % 3 == 1)
            found["while writing"] += bool(unfinished(folder / "cache"))
            found["while compiling"] += bool(list((folder / "tmp").iterdir()))
            whole.wrong += torn(folder / "cache")
            clear(folder)
            whole.add(outcome(worker(options, folder, seed=seed, count=3)))
            whole.wrong += torn(folder / "cache")
    print(f"{options.times} killed, " + ", ".join(f"{n} {what}" for what, n in found.items())
          + f"; as often the next one started; torn: {sum('torn' in w for w in whole.wrong)}")
    return whole


def killed(process: subprocess.Popen[str], seconds: float, group: bool) -> None:
    """Kill a worker some time after it is ready, with or without the compilers that it started.

    One that kills itself at a rename is waited for.
    """
    assert process.stdout is not None
    try:
        process.stdout.readline()
        process.wait(seconds if "--renames" not in process.args else 60.0)  # type: ignore
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL) if group else process.kill()
    process.communicate()


def unfinished(folder: Path) -> list[Path]:
    """Files that were being written when a process was killed."""
    return [path for path in folder.glob(".*") if path.is_file()]


def clear(folder: Path) -> None:
    """Remove what was under way, once compilers that were left alone are done with it."""
    for path in [*(folder / "tmp").iterdir(), *unfinished(folder / "cache")]:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def torn(folder: Path) -> list[str]:
    """Files that say what they hold and do not hold it."""
    found = []
    for path in folder.glob("*"):
        name = NAMED_BY_CHECKSUM.fullmatch(path.name)
        if name and hashlib.sha256(path.read_bytes()).hexdigest() != name[1]:
            found.append(f"{path.name} is torn")
    return found


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder with one for the cache and one for temporary files."""
    path = Path(tempfile.mkdtemp(prefix="stress-"))
    try:
        (path / "tmp").mkdir()
        (path / "cache").mkdir(mode=0o700)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def worker(options: Namespace, folder: Path, **how: Any) -> subprocess.Popen[str]:
    """A process that runs programs, in a group of its own."""
    command = [sys.executable, "-m", "conformance.runner.stress", "worker", "--size",
               str(options.size), "--impl", options.impl, "--impl-cmd", options.impl_cmd]
    for name, value in how.items():
        if value:
            command += [f"--{name}", str(value)]
    environment = {**os.environ, options.folder_variable: str(folder / "cache"),
                   "TMPDIR": str(folder / "tmp")}
    return subprocess.Popen(command, env=environment, text=True, start_new_session=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def outcome(process: subprocess.Popen[str]) -> Tally:
    """What a worker counted; that it failed, or had something to say, is wrong too."""
    output, errors = process.communicate()
    if process.returncode or errors:
        return Tally(wrong=[f"a process ended with {process.returncode}: {errors[-2000:]}"])
    return Tally(**json.loads(output.splitlines()[-1]))


def run_worker(options: Namespace) -> Tally:
    """The programs after a seed, until the time or the count is over; then the counts as JSON."""
    subject, tally = Subject.of(options.impl, options.impl_cmd), Tally()
    if options.renames:
        _kill_at_rename(options.renames)
    print("ready", flush=True)
    end = time.monotonic() + options.seconds if not options.count else float("inf")
    for program in chosen(subject, iter(range(options.seed, 1 << 60)), options.size):
        check(subject, program, tally)
        if time.monotonic() >= end or tally.programs == options.count:
            break
    subject.close()
    print(json.dumps(asdict(tally)))
    return tally


def _kill_at_rename(left: int) -> None:
    """Let this process be killed between writing a file and giving it its name."""
    plain, lock = os.replace, threading.Lock()

    def replace(*given: Any, **named: Any) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        plain(*given, **named)

    os.replace = replace


MODES: dict[str, Callable[[Namespace], Tally]] = {
    "threads": threads, "processes": processes, "kill": kill, "worker": run_worker}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a mode and print its counts; the status is 1 if something was wrong."""
    parser = ArgumentParser(prog="python -m conformance.runner.stress",
                            description=__doc__.split("\n")[0])
    parser.add_argument("mode", choices=MODES,
                        help="what happens at once; `worker`: a process that another mode starts")
    parser.add_argument("--impl", default=DEFAULT, help="package.module:Adapter")
    parser.add_argument("--impl-cmd", default="", help="an executable that speaks JSON lines")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--times", type=int, default=50, help="how often a process is killed")
    parser.add_argument("--workers", type=int, default=2, help="threads or processes at once")
    parser.add_argument("--round", type=float, default=5.0, help="seconds of one empty folder")
    parser.add_argument("--seed", type=int, default=0, help="of the programs")
    parser.add_argument("--size", type=int, default=10, help="the most choices in a program")
    parser.add_argument("--folder-variable", default="CACHE_FOLDER",
                        help="the variable of the environment that names the cache folder")
    parser.add_argument("--count", type=int, default=0, help="programs of a worker")
    parser.add_argument("--renames", type=int, default=0, help="after which a worker kills itself")
    options = parser.parse_args(arguments)
    tally = MODES[options.mode](options)
    if options.mode != "worker":
        print(f"{options.mode}: {tally.line()}")
        print("\n".join(tally.wrong[:10]), end="\n" if tally.wrong else "")
    if options.mode == "worker":  # what was wrong is in its last line
        return 0
    return 1 if tally.wrong or not tally.values else 0


if __name__ == "__main__":
    sys.exit(quietly(main))
