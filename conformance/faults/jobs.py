"""Jobs that go wrong: started, read, judged."""
from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from conformance.faults import program
from conformance.trace import ROOT
from impl import nn

#: Seconds that a process waits for the others in these jobs; and what starting and saying may take.
LIMIT, MARGIN = 3, 60
RANKS = 3
KINDS = ("killed", "stopped", "other", "alone", "raises", "ends")
#: Where the package stands that the processes import, if not here: a copy with a mistake.
TESTED = "TENSOR_SCHEDULE_TESTED"

Fault = dict[str, Any]
NONE: Fault = {"kind": "none", "rank": -1, "step": -1, "where": "", "after": 0.0}


def mpiexec() -> str | None:
    """The launcher that belongs to this Python, or another one."""
    return shutil.which("mpiexec", path=os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def drawn(seed: int, kinds: tuple[str, ...] = KINDS) -> Fault:
    """A fault by chance; the kinds come in turns."""
    chance = random.Random(seed)
    return {"kind": kinds[seed % len(kinds)], "rank": chance.randrange(RANKS),
            "step": chance.randrange(1, program.STEPS), "where": chance.choice(("step", "save")),
            "after": chance.choice((0.0, chance.random() * 0.02))}


@dataclass
class JobRun:
    """What became of a job: the lines of each rank, its status, how long it took."""

    launcher: str = ""

    lines: dict[int, list[str]] = field(default_factory=dict)
    status: int | None = None
    seconds: float = 0.0

    def words(self, rank: int, word: str) -> list[str]:
        """What a rank has said of itself that begins so."""
        return [line for line in self.lines.get(rank, []) if line.startswith(word + " ")]


def environment(**more: str) -> dict[str, str]:
    """Of the processes that are started."""
    return {**os.environ, "PYTHONPATH": os.environ.get(TESTED, "") + os.pathsep + str(ROOT),
            "DEVICE": "REFERENCE", "DISTRIBUTED_SECONDS": str(LIMIT), **more}


def run(fault: Fault, folder: Path, ranks: int = RANKS) -> JobRun:
    """Run a job with a fault."""
    launcher, found, begun = mpiexec(), JobRun(), time.monotonic()
    assert launcher is not None
    started = subprocess.Popen(
        [launcher, "-n", str(ranks), sys.executable, "-m", "impl.distributed",
         program.__file__, str(folder), json.dumps(fault)], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(),
        start_new_session=True)
    try:
        found.launcher, _ = started.communicate(timeout=2 * LIMIT + MARGIN)
        found.status = started.returncode
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        found.launcher, _ = started.communicate()
    found.seconds = time.monotonic() - begun
    for path in folder.glob("said.*"):
        found.lines[int(path.suffix[1:])] = path.read_text().splitlines()
    return found


def right() -> JobRun:
    """A job without a fault."""
    return _right(os.environ.get(TESTED, ""))


@cache
def _right(tested: str) -> JobRun:
    with tempfile.TemporaryDirectory() as folder:
        found = run(NONE, Path(folder))
    if found.status != 0:
        raise RuntimeError(f"a job without a fault ended with {found.status}: {found.lines}")
    return found


def problems(fault: Fault, job: JobRun, folder: Path) -> list[str]:
    """What is wrong with what a job with a fault said and left."""
    found: list[str] = []
    if job.status is None:
        found.append("it hung")
    if job.status == 0:
        found.append("it ended as if nothing were wrong")
    for rank in range(RANKS):
        errors = [line for line in job.lines.get(rank, []) if "DistributedError:" in line]
        if rank != fault["rank"]:
            found += [f"rank {rank}: {problem}" for problem in _unclear(fault, errors)]
        for word in ("loss", "state"):
            said = job.words(rank, word)
            if said != right().words(rank, word)[:len(said)]:
                found.append(f"rank {rank} printed a wrong {word}")
    return found + _lost(job, folder)


def _unclear(fault: Fault, errors: list[str]) -> list[str]:
    """What is missing in the errors of a rank."""
    if not errors:
        return ["no error"]
    last = errors[-1]
    wanted = {"the rank": rf"rank {fault['rank']}\b", "the collective": r"collective \d+",
              "the line": r"program\.py:\d+"}
    return [f"{what} is not in: {last}" for what, form in wanted.items()
            if not re.search(form, last)]


def _lost(job: JobRun, folder: Path) -> list[str]:
    """Whether the last complete save is not there."""
    saved = max((int(line.split()[1]) for rank in job.lines for line in job.words(rank, "saved")),
                default=-1)
    states = {line.split()[2]: int(line.split()[1]) for line in right().words(0, "state")}
    path = folder / program.NAME
    if not path.exists():
        return [f"the save of step {saved} is lost"] if saved >= 0 else []
    try:
        step = states.get(program.digest(nn.state.safe_load(path)))
    except Exception as error:  # whatever it is: a save that cannot be read is lost
        return [f"the save cannot be read: {error}"]
    if step is None or step not in (saved, saved + 1):
        return [f"step {saved} was saved, and {step} is there"]
    return []


def one(seed: int, kinds: tuple[str, ...] = KINDS) -> tuple[Fault, JobRun, list[str]]:
    """One fault by chance, and what was wrong with how it was met."""
    fault = drawn(seed, kinds)
    with tempfile.TemporaryDirectory() as folder:
        job = run(fault, Path(folder))
        return fault, job, problems(fault, job, Path(folder))


def saving(seed: int, moments: int) -> list[str]:
    """Kill a process of four devices while it saves, at random moments; what was wrong."""
    chance, found = random.Random(seed), list[str]()
    fault = {**NONE, "kind": "saving"}
    with tempfile.TemporaryDirectory() as name:
        folder, states = Path(name), set[str]()
        for moment in range(moments):
            process = subprocess.Popen(
                [sys.executable, program.__file__, name, json.dumps(fault)], text=True,
                stdout=subprocess.PIPE, env=environment())
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("state"):
                    states.add(line.split()[2])
                if line.startswith("ready"):
                    break
            time.sleep(chance.random() * 0.1)
            process.kill()
            process.wait()
            process.stdout.close()
            try:
                if program.digest(nn.state.safe_load(folder / program.NAME)) not in states:
                    found.append(f"moment {moment}: a state that was never saved")
            except Exception as error:  # whatever it is: a save that cannot be read is lost
                found.append(f"moment {moment}: {error}")
            left = len(list(folder.iterdir()))
            if left > 2 * 4 + 3:  # those of the last save, and of one that was not completed
                found.append(f"moment {moment}: {left} files are left")
    return found
