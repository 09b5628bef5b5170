"""Runs generated programs by the hundred thousand, and reports how far it came and what it met.

This is the same question that the checks ask of a few programs.  The work is cut into chunks,
each run by a process that lives for a few of them; after every chunk the report is written anew,
so that a run that is cut off leaves one, and `resume` goes on from there.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, TextIO

import numpy as np

from conformance import protocol
from conformance.generators import (
    coverage,
    effect_programs,
    multi_programs,
    programs,
    sharded_programs,
)
from conformance.protocol import Program
from conformance.runner.interruption import (
    close_when_terminated,
    end_if_asked,
    end_workers,
    held_back,
)
from conformance.runner.subject import Subject, examine, fails

REPORT_FORMAT = "tensor-fuzz/1"
STYLES: dict[str, Callable[[int, int], Program]] = {
    "general": programs.random_program, "effects": effect_programs.random_program,
    "multi": multi_programs.random_program, "sharded": sharded_programs.random_program,
    "replayed": sharded_programs.replayed_program}
#: With `meshes` a program is of both of these.
MESHES = ("sharded", "replayed")
#: Where the adapters on single devices are.
ON_DEVICES = "conformance.emulation.devices"
#: Chunks that a process runs before a fresh one takes over: what it keeps must not pile up.
CHUNKS_OF_A_PROCESS = 8
#: Programs that may find each other's plans; keeping more makes every step slower.
PROGRAMS_OF_A_CACHE = 25


@dataclass(frozen=True)
class Job:
    """Programs `seed` to `seed + count`, of at most `size` choices.

    `styles` and `settings` are shares, such as "general:1 effects:4" and
    "ordinary:6 NOOPT=1:1"; a program's number decides which of them it gets.  With `orders`
    each program runs in a legal order drawn with its number.  `devices` are names, separated by
    commas: each program then runs on each of these devices of this project.  With `meshes` each
    number is two programs on a mesh: one as it is, and the same captured and replayed.
    """

    implementation: str = ""
    command: str = ""
    seed: int = 0
    count: int = 10_000
    size: int = 14
    styles: str = "general"
    settings: str = "ordinary"
    orders: bool = False
    chunk: int = 100
    most_failures: int = 3
    devices: str = ""
    meshes: bool = False

    def subjects(self) -> dict[str, tuple[str, str]]:
        """What is asked, by device: an implementation and a command."""
        if not self.devices:
            return {"": (self.implementation, self.command)}
        return {name: (f"{ON_DEVICES}:{name}", "") for name in self.devices.split(",")}

    def chunks(self) -> Iterator[tuple[int, int]]:
        """The first program of each chunk and the first one after it."""
        end = self.seed + self.count
        return ((first, min(first + self.chunk, end))
                for first in range(self.seed, end, self.chunk))


def shares(text: str) -> list[str]:
    """What "a:2 b" says, every choice as often as its share.

    Raises:
        ValueError: a share is no number.
    """
    chosen: list[str] = []
    for part in text.split():
        name, _, share = part.partition(":")
        chosen += [name] * int(share or 1)
    if not chosen:
        raise ValueError("no shares are given; write for example 'general:1 effects:4'")
    return chosen


def options_of(job: Job, number: int) -> tuple[str, str, dict[str, Any]]:
    """The style and the settings of a program, and the options for the implementation."""
    random = Random(f"{number}")
    style, setting = random.choice(shares(job.styles)), random.choice(shares(job.settings))
    options: dict[str, Any] = {}
    if setting != "ordinary":
        pairs = [each.split("=") for each in setting.split(",")]
        options["settings"] = {name: int(value) if value.lstrip("-").isdigit() else value
                               for name, value in pairs}
    if job.orders:
        options["order_seed"] = number % 1_000_003
    return style, setting, options


# One chunk ---------------------------------------------------------------------------------


@dataclass
class Tally:
    """What was run, by kind, and what was wrong.

    `skipped` programs are empty or use what is not declared; `refused` ones were answered with an
    error that the implementation declares, by the name of its type, in its choice `refuses`.
    `devices` counts runs, by device, and `everywhere` the programs that ran on all devices.
    """

    programs: int = 0
    skipped: int = 0
    refused: int = 0
    everywhere: int = 0
    devices: Counter[str] = field(default_factory=Counter)
    styles: Counter[str] = field(default_factory=Counter)
    settings: Counter[str] = field(default_factory=Counter)
    statements: Counter[str] = field(default_factory=Counter)
    hazards: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count in what another one counted."""
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)

    def to_json(self) -> dict[str, Any]:
        return {name: dict(sorted(value.items())) if isinstance(value, Counter) else value
                for name, value in vars(self).items()}

    @staticmethod
    def from_json(known: dict[str, Any]) -> Tally:
        fields: dict[str, Any] = {
            name: Counter(known[name]) if isinstance(known[name], dict) else known[name]
            for name in Tally.__dataclass_fields__}
        return Tally(**fields)


_subjects: dict[tuple[str, str], Subject] = {}


def _subject(asked: tuple[str, str]) -> Subject:
    """An implementation, started once in each process."""
    if asked not in _subjects:
        _subjects[asked] = Subject.of(*asked)
    return _subjects[asked]


def _close_subjects() -> None:
    for subject in _subjects.values():
        subject.close()


def run_chunk(job: Job, first: int, end: int) -> Tally:
    """Run the programs `first` to `end`; stop early at a failure limit."""
    tally = Tally()
    for start in range(first, end, PROGRAMS_OF_A_CACHE):
        runs = list(_runs(job, range(start, min(start + PROGRAMS_OF_A_CACHE, end))))
        for device, asked in job.subjects().items():
            _run_on(_subject(asked), device, runs, tally, job.most_failures)
        for run in runs:
            _count(run, len(job.subjects()), tally)
        if len(tally.failures) >= job.most_failures:
            break
    return tally


@dataclass
class _OneRun:
    """A program, how it is to be run, what its schedules were, and where it was run."""

    number: int
    program: Program
    style: str
    setting: str
    options: dict[str, Any]
    documents: list[protocol.Document] = field(default_factory=list)
    answers: list[bool] = field(default_factory=list)  # False for each that refuses


def _runs(job: Job, numbers: Sequence[int]) -> Iterator[_OneRun]:
    for number in numbers:
        style, setting, options = options_of(job, number)
        for each in MESHES if job.meshes else (style,):
            yield _OneRun(number, STYLES[each](number, job.size), each, setting, options)


def _run_on(subject: Subject, device: str, runs: Sequence[_OneRun], tally: Tally,
            most_failures: int) -> None:
    """Run programs on one device, those that it declares."""
    subject.adapter.reset()
    gc.freeze()  # an implementation that collects garbage need not look at this again
    able = [run for run in runs if run.program["statements"] and subject.supports(run.program)]
    prepare = getattr(subject.adapter, "prepare", None)
    if prepare is not None:
        prepare([(run.program, run.options) for run in able])
    for run in able:
        if len(tally.failures) >= most_failures:
            return
        wrong, documents = examine(subject, run.program, **run.options)
        run.answers.append(not wrong.startswith(tuple(subject.info.choices.get("refuses", "-"))))
        if not run.answers[-1]:
            continue
        run.documents = run.documents or documents
        tally.devices.update([device] if device else [])
        if wrong:
            tally.failures.append(_failure(subject, run, device, wrong))


def _count(run: _OneRun, devices: int, tally: Tally) -> None:
    """Count a program that was run, or not."""
    if not any(run.answers):
        tally.refused += bool(run.answers)
        tally.skipped += not run.answers
        return
    tally.programs += 1
    tally.everywhere += run.answers == [True] * devices
    tally.styles[run.style] += 1
    tally.settings[run.setting] += 1
    tally.statements.update(coverage.statements(run.program))
    tally.hazards.update(coverage.hazards(run.program))
    tally.events.update(coverage.events(run.documents))


def _failure(subject: Subject, run: _OneRun, device: str, wrong: str) -> dict[str, Any]:
    refused = tuple(subject.info.choices.get("refuses", ["-"]))

    def wrongly(each: Program) -> str:
        found = fails(subject, each, **run.options)
        return "" if found.startswith(refused) else found  # to refuse is no failure

    smallest = programs.shrink(run.program, lambda each: bool(wrongly(each)))
    return {"program": run.number, "wrong": wrong, "options": run.options, "witness": smallest,
            "shrunk": wrongly(smallest) or "nothing: it fails now and then",
            "implementation": subject.spec, **({"device": device} if device else {})}


def explained(failure: dict[str, Any]) -> str:
    """A failure as a text to read, with its witness to paste."""
    options = f" with {failure['options']}" if failure["options"] else ""
    if "witness" not in failure:
        return f"program {failure['program']}: {failure['wrong']}"
    return (f"program {failure['program']}{options}: {failure['wrong']}\n\n"
            f"shrunk: {failure['shrunk']}\n"
            f"cat > witness.json <<'END'\n{protocol.paste(failure['witness'])}END\n"
            f"python -m conformance run witness.json {failure['implementation']}\n")


# All chunks --------------------------------------------------------------------------------


class Fuzzing:
    """A job under way: what is done, what is left, and where it is written down."""

    def __init__(self, job: Job, processes: int = 1, report: Path | None = None,
                 resume: bool = False, tell: TextIO = sys.stderr, every: float = 10.0) -> None:
        self.job, self.processes, self.path = job, max(1, processes), report
        self.tell, self.every = tell, every
        self.tally, self.done, self.seconds = Tally(), list[tuple[int, int]](), 0.0
        self.interrupted = False
        self.said = self.started = time.monotonic()
        if resume and report is not None and report.exists():
            self._resume(json.loads(report.read_text(encoding="utf-8")))
        self.ran_before, self.before = self.tally.programs, self.seconds

    def _resume(self, known: dict[str, Any]) -> None:
        if known.get("format") != REPORT_FORMAT or known["job"] != asdict(self.job):
            raise ValueError(f"{self.path} is the report of another job: "
                             f"{known.get('job')}; give its options, or another file")
        self.tally, self.seconds = Tally.from_json(known["tally"]), known["seconds"]
        self.done = [(first, end) for first, end in known["chunks"]]

    def run(self) -> Tally:
        """Run what is left; the tally of everything, also when somebody ends the run."""
        done = set(self.done)
        left = [chunk for chunk in self.job.chunks() if chunk not in done]
        try:
            if self.processes == 1:
                for chunk in left:
                    end_if_asked()
                    self._finished(chunk, run_chunk(self.job, *chunk))
                    if self._enough():
                        break
            else:
                self._in_processes(left)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self._write()
        self._say()
        return self.tally

    def _enough(self) -> bool:
        return len(self.tally.failures) >= self.job.most_failures

    def _in_processes(self, left: Sequence[tuple[int, int]]) -> None:
        """Give each process a few chunks; then fresh ones take over."""
        waiting = list(reversed(left))
        while waiting and not self._enough():
            # Fresh processes: a runtime with threads does not survive being forked.
            batch = [waiting.pop()
                     for _ in range(min(len(waiting), CHUNKS_OF_A_PROCESS * self.processes))]
            for chunk in self._together(batch, self.processes):
                # A process died, and it is not known over which chunk: each gets one of its own.
                for lost in self._together([chunk], 1):
                    self._finished(lost, Tally(failures=[{
                        "program": lost[0], "options": {}, "wrong":
                        f"the process died that ran the programs {lost[0]} to {lost[1] - 1}"}]))

    def _together(self, batch: Sequence[tuple[int, int]],
                  processes: int) -> list[tuple[int, int]]:
        """Run chunks in new processes; the chunks that a process died over are answered."""
        lost: list[tuple[int, int]] = []
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn"),
                                 initializer=close_when_terminated,
                                 initargs=(_close_subjects,)) as pool:
            try:
                with held_back():
                    under_way = {pool.submit(run_chunk, self.job, *each): each for each in batch}
                for future in as_completed(under_way):
                    try:
                        if not future.cancelled():
                            self._finished(under_way[future], future.result())
                    except BrokenProcessPool:
                        lost.append(under_way[future])
                    if self._enough():
                        pool.shutdown(wait=False, cancel_futures=True)
            except KeyboardInterrupt:
                end_workers()  # their chunks are not done; `resume` begins them anew
                raise
        return lost

    def _finished(self, chunk: tuple[int, int], tally: Tally) -> None:
        self.tally.add(tally)
        self.done.append(chunk)
        self.seconds = self.before + time.monotonic() - self.started
        self._write()
        if time.monotonic() - self.said >= self.every:
            self._say()

    def _say(self) -> None:
        """One line about how far it came."""
        self.said = time.monotonic()
        ran = self.tally.programs - self.ran_before
        rate = ran / max(1e-9, time.monotonic() - self.started)
        count = self.job.count * (len(MESHES) if self.job.meshes else 1)
        print(f"{self.tally.programs} of {count} programs, {rate:.1f} a second, "
              f"{len(self.tally.failures)} failures", file=self.tell, flush=True)

    def _write(self) -> None:
        """Write the report, whole or not at all."""
        if self.path is None:
            return
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        partial.write_text(json.dumps(self.report(), indent=1) + "\n", encoding="utf-8")
        partial.replace(self.path)

    def report(self) -> dict[str, Any]:
        """What is known by now."""
        info = _subject(next(iter(self.job.subjects().values()))).info
        chunks = len(list(self.job.chunks()))
        return {"format": REPORT_FORMAT, "job": asdict(self.job),
                "implementation": {"name": info.name, "version": info.version},
                "commit": commit(), "complete": len(self.done) == chunks,
                "interrupted": self.interrupted,
                "python": platform.python_version(), "numpy": np.__version__,
                "platform": platform.platform(), "processes": self.processes,
                "seconds": round(self.seconds, 1), "tally": self.tally.to_json(),
                "not met": self._not_met(), "chunks": sorted(self.done)}

    def _not_met(self) -> list[str]:
        """Hazards and events that no program of the run had."""
        met = {*self.tally.hazards, *self.tally.events}
        return [name for name in (*coverage.HAZARDS, *coverage.EVENTS) if name not in met]


def commit() -> str:
    """The commit of the working copy that this file is in; empty where there is none."""
    folder = Path(__file__).resolve().parents[2] / ".git"
    try:
        if folder.is_file():  # a second working copy of the same repository
            folder = Path(folder.read_text(encoding="utf-8").partition(":")[2].strip())
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head
        common = folder / "commondir"
        if common.exists():
            folder = folder / common.read_text(encoding="utf-8").strip()
        return (folder / head[5:]).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
