"""BEAM: steps found by trying them on the machine. Chapter: spec/searching.md.

From the heuristic's list and from none, every step of the registry is tried, everywhere and with
several numbers; what is legal is compiled and measured; the fastest few go on, until nothing gets
faster or time is up. What was found is kept on disk.
"""
from __future__ import annotations

import functools
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from impl import settings
from impl.caching.disk import store
from impl.caching.texts import code_version, kernel_name
from impl.choosing.heuristic import hand_steps
from impl.choosing.planner import Reasoned
from impl.errors import DeviceError, GraphError
from impl.groups.grouping import lane_steps
from impl.ir import Ops, UOp
from impl.kernel.analysis import Analysis, DeviceLimits
from impl.kernel.private import exceeds
from impl.progress import Progress
from impl.searching.trial import Bench, Trial
from impl.steps.declaration import Counting
from impl.steps.step import DECLARED, STEPS, Step, StepError, apply_steps, step_parameters

#: Numbers that are tried where a step asks for an amount; and those that have to divide the loop.
AMOUNTS, DIVISORS = (2, 4, 8, 16, 32, 64), (3, 5, 6, 7, 9, 10, 12)
#: Numbers of lanes that are tried for a group.
GROUPS = (8, 16, 32, 64, 128, 256, 512)
#: Numbers that are tried where a step asks which of a few.
CHOICES = (0, 1, 2)
_GENERATIONS, _IDLE = 12, 2  # at most, and at most so many one after the other that gain nothing
_SAMPLES, _LAST_SAMPLES = 4, 12
_SURE = 2  # so many samples before one is given up as slow
#: What is found has to be faster by this factor than the list that the search started from.
_GAIN = 0.98


@dataclass(frozen=True)
class Found:
    """The fastest list, its time and that of the heuristic's list in seconds; how many tried."""

    steps: tuple[str, ...]
    seconds: float
    start_seconds: float
    tried: int


def searched_steps(ast: UOp, bench: Bench, width: int, search: bool = True) -> Reasoned:
    """Steps for a kernel, each with its reason: kept ones, else those that a search finds.

    `ast` is as `starting_kernel` makes it. What cannot be tried gets the heuristic's list, and so
    does what was not searched for yet if `search` is false.
    """
    limits = bench.limits
    start = lane_steps(ast, limits) if limits.lanes > 1 else hand_steps(ast, limits)
    key = _key(ast, bench, width)
    found = _known.get(key)
    if found is None and not settings.get("IGNORE_BEAM_CACHE"):
        found = _kept(key, ast)  # r[impl searching.found.later]
    if found is None and not search:
        return start
    if found is None:
        with Progress(f"searching steps of {ast.arg.name}") as progress:
            found = _Search(ast, bench, width, start, progress).run()
        store().put("beam", key, json.dumps(vars(found)).encode())
    _remember(key, found)
    if found.steps == tuple(step.name for step, _ in start):
        last = len(start) - 1
        return [(step, f"{reason}; BEAM={width} found nothing faster" if i == last else reason)
                for i, (step, reason) in enumerate(start)]
    reason = (f"BEAM={width}: {found.seconds * 1e6:.1f} us, where the steps that rules choose "
              f"take {found.start_seconds * 1e6:.1f} us")  # r[impl searching.reason.given]
    return [(Step.parse(name), reason) for name in found.steps]


_known: dict[str, Found] = {}
#: How many of them a process remembers; the others it reads again.
_MOST_KNOWN = 4096


def _remember(key: str, found: Found) -> None:
    """What was found first is forgotten first."""
    _known[key] = found
    for old in list(_known)[:-_MOST_KNOWN]:  # r[impl searching.found.later]
        _known.pop(old, None)  # another thread may have been here


def _kept(key: str, ast: UOp) -> Found | None:
    """What was kept on disk, if it is legal for the kernel still."""
    try:
        entry = json.loads(store().get("beam", key) or b"")
        found = Found(tuple(entry["steps"]), float(entry["seconds"]),
                      float(entry["start_seconds"]), int(entry["tried"]))
        apply_steps(ast, map(Step.parse, found.steps))
    except (ValueError, KeyError, TypeError, GraphError):
        return None
    return found


_LIMITS = ("BEAM_TIMEOUT_SEC", "BEAM_BUDGET_SEC", "BEAM_UPCAST_MAX", "BEAM_UOPS_MAX")


def _key(ast: UOp, bench: Bench, width: int) -> str:
    """A name for the question, the same in every process."""
    limits = [f"{name}={settings.get(name)}" for name in _LIMITS]
    return "\n".join([kernel_name(ast, named=False), repr(bench.limits), bench.code_version(),
                      code_version(), str(width), *limits])


def actions(known: Analysis, draw: random.Random, limits: DeviceLimits) -> list[Step]:
    """Every step worth a try on a kernel, in random order: time may be up before the last.

    No more threads share a kernel than the device has, and no more lanes a group.
    """
    found = []
    extents = [loop.src[0].arg if loop.src[0].op is Ops.CONST else 0 for loop in known.ranges]
    for name, declared in sorted(DECLARED.items()):
        if declared.asked or declared.instead and limits.lanes < 2 \
                or declared.counted is Counting.THREADS and limits.threads < 2:
            continue  # r[impl steps.asked.named, cpu.threads.count]
        for axis in range(len(extents)):
            rest = [_numbers(parameter, axis, extents, declared.counted, limits)
                    for parameter in step_parameters(name)[1:]]
            found += [STEPS[name](axis, *numbers) for numbers in itertools.product(*rest)]
    draw.shuffle(found)
    return found


def _numbers(parameter: str, axis: int, extents: Sequence[int], counted: Counting,
             limits: DeviceLimits) -> Sequence[int]:
    """What is tried for one of a step's numbers."""
    if parameter == "other":
        return range(axis + 1, len(extents))
    if parameter != "amount":
        return CHOICES
    if counted is Counting.THREADS:
        return sorted({limits.threads, limits.threads * limits.parts})
    if counted is Counting.LANES:
        return [lanes for lanes in GROUPS if lanes <= limits.lanes]
    extent = extents[axis]
    found = {n for n in AMOUNTS if n <= extent} | {n for n in DIVISORS if extent % n == 0}
    return sorted(found | {extent} if 1 < extent <= AMOUNTS[-1] else found)


@dataclass
class _Candidate:
    """A list of steps, what it makes of the kernel, and the best time so far."""

    steps: tuple[Step, ...]
    ast: UOp
    program: Any = None
    seconds: float = math.inf


@functools.cache
def _announce() -> None:
    """Say once that a search takes its time: else it looks as if nothing happened."""
    print(f"BEAM: searching steps, up to {settings.get('BEAM_BUDGET_SEC')} s a kernel "
          "(BEAM_BUDGET_SEC); BEAM_DEBUG=1 tells more", file=sys.stderr)


@dataclass
class _Search:
    """One search. `start` is the list that the heuristic chose."""

    ast: UOp
    bench: Bench
    width: int
    start: Reasoned
    progress: Progress = field(default_factory=lambda: Progress("searching steps"))
    tried: int = 0
    seen: set[str] = field(default_factory=set)
    began: float = field(default_factory=lambda: time.perf_counter())

    def run(self) -> Found:
        """The fastest list, which is the start's unless another one is faster."""
        first = tuple(step for step, _ in self.start)
        names = tuple(step.name for step in first)
        _announce()
        trial = Trial.of(self.ast, self.bench)
        if trial is None:
            return Found(names, math.nan, math.nan, 0)
        self.trial, self.draw = trial, random.Random(0)
        starts = [_Candidate(first, apply_steps(self.ast, first))]
        if first:
            starts.append(_Candidate((), self.ast))
        self.seen.update(kernel_name(each.ast, named=False) for each in starts)
        beam = self._measured(starts, ())
        if not beam or beam[0].steps != first and starts[0].program is None:
            return Found(names, math.nan, math.nan, self.tried)
        return self._last(starts[0], self._grown(starts[0], beam))

    def _grown(self, start: _Candidate, beam: list[_Candidate]) -> list[_Candidate]:
        """The fastest that are found from a beam, one generation after the other."""
        idle = 0
        for _ in range(_GENERATIONS):
            best = beam[0].seconds
            made = self._next(beam)
            found = sorted([*beam, *self._measured(made, beam[:1])], key=_time)
            self._drop(found[self.width:], keep=start)
            beam = found[:self.width]
            self._say(beam[0], len(made))
            idle = idle + 1 if beam[0].seconds > best * _GAIN else 0
            if not made or idle == _IDLE or self._is_over():
                break
        return beam

    def _last(self, start: _Candidate, beam: list[_Candidate]) -> Found:
        """Measure the start and the best side by side once more, and choose."""
        finalists = [start, *(each for each in beam[:3] if each is not start)]
        for each in finalists:
            each.seconds = math.inf
        for _ in range(_LAST_SAMPLES):
            for each in finalists:
                each.seconds = min(each.seconds, self.trial.sample(each.program))
        best = min(finalists, key=_time)
        if best.seconds > start.seconds * _GAIN:  # r[impl searching.trial.harmless]
            best = start
        self._drop([*beam, start])
        return Found(tuple(step.name for step in best.steps), best.seconds, start.seconds,
                     self.tried)

    def _next(self, beam: list[_Candidate]) -> list[_Candidate]:
        """Every list of the beam with one more step, where that is legal and not too large."""
        made: list[_Candidate] = []
        for each in beam:
            known = Analysis(each.ast)
            for step in actions(known, self.draw, self.bench.limits):
                try:
                    ast = step.apply(known)
                except StepError:
                    continue
                if self._fits(ast) and (name := kernel_name(ast, named=False)) not in self.seen:
                    self.seen.add(name)
                    made.append(_Candidate((*each.steps, step), ast))
        return made

    def _fits(self, ast: UOp) -> bool:
        """Whether the text of a kernel is not too long to try."""
        known, limits = Analysis(ast), self.bench.limits
        if limits.lanes > 1 and exceeds(ast, limits.local_memory):
            return False
        copies = [_lanes(known, known.free[node]) for node in known.order]
        return max(copies) <= settings.get("BEAM_UPCAST_MAX") \
            and sum(copies) <= settings.get("BEAM_UOPS_MAX")

    def _measured(self, made: list[_Candidate], best: Sequence[_Candidate]) -> list[_Candidate]:
        """Those that could be compiled in time, with their times, the fastest first."""
        found: list[_Candidate] = []
        size = 4 * settings.workers()
        for first in range(0, len(made), size):
            if self._is_over() and (best or found):  # r[impl searching.trial.limits]
                break
            some = made[first:first + size]
            programs = self.bench.trial([each.ast for each in some],
                                        settings.get("BEAM_TIMEOUT_SEC"))
            self.tried += len(some)
            self.progress.step(len(some))
            for each, program in zip(some, programs, strict=True):
                each.program = program
            compiled = [each for each in some if each.program is not None]
            self._race(compiled, [*best, *found])
            running = [each for each in compiled if each.program is not None]
            found = sorted([*found, *running], key=_time)
            self._drop(found[max(self.width, 2):])
            found = found[:max(self.width, 2)]
        return found

    def _race(self, runners: list[_Candidate], others: Sequence[_Candidate]) -> None:
        """Measure in turns, so that what disturbs one disturbs all; the slow are given up soon."""
        for each in runners:
            if self._sampled(each) == math.inf:  # caches and pages get warm
                self._drop([each])
        runners = [each for each in runners if each.program is not None]
        for turn in range(_SAMPLES):
            limit = 1.5 * min((each.seconds for each in (*runners, *others)), default=math.inf)
            for each in runners:
                # r[impl searching.trial.harmless]: one sample alone may have been disturbed
                if turn < _SURE or each.seconds < limit:
                    each.seconds = min(each.seconds, self._sampled(each))

    def _sampled(self, each: _Candidate) -> float:
        """The time of one run; endless if the device refuses to run it."""
        try:
            return self.trial.sample(each.program)
        except DeviceError:
            return math.inf

    def _drop(self, slow: Sequence[_Candidate], keep: _Candidate | None = None) -> None:
        programs = []
        for each in slow:
            if each is not keep and each.program is not None:
                programs.append(each.program)
                each.program = None
        self.bench.release(programs)

    def _is_over(self) -> bool:
        return time.perf_counter() - self.began > float(settings.get("BEAM_BUDGET_SEC"))

    def _say(self, best: _Candidate, made: int) -> None:
        if settings.get("BEAM_DEBUG"):
            print(f"BEAM {self.ast.arg.name}: {time.perf_counter() - self.began:6.2f} s, {made} "
                  f"new lists, best {best.seconds * 1e6:.1f} us: "
                  f"{' '.join(step.name for step in best.steps) or 'no steps'}")


def _time(candidate: _Candidate) -> float:
    return candidate.seconds


def _lanes(known: Analysis, mask: int) -> int:
    """How many copies of a value its lanes make."""
    return math.prod(loop.src[0].arg for loop in known.loops(mask & known.lanes))
