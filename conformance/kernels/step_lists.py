"""Random kernels under random lists of steps: every legal list gives what no list gives.

A program is written with tensors, or loop by loop; its kernels run on the reference device as they
were written, and their arguments are kept as they were before and after. Then each kernel gets
lists of steps drawn from the registry, and runs on the reference device and compiled.

Steps that are added to the registry are drawn as soon as they are there.

    python -m conformance steps --count 10000 --seed 0 -n 2 --report steps.json
    python -m conformance steps --count 300 --groups
"""
from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import impl.cpu  # noqa: F401  (registers the device)
import impl.reference  # noqa: F401
from conformance.kernels import emulated_kernels, sanitized, step_kernels
from conformance.kernels import kernel_builder as kb
from conformance.kernels.kernel_programs import PROGRAMS
from impl import Context
from impl.choosing import hand_steps
from impl.device import Device, Memory
from impl.dtypes import DType, dtypes
from impl.errors import DTypeError
from impl.ir import Ops, UOp
from impl.kernel import Analysis, verify_kernel
from impl.realize import ensure_memory
from impl.steps import (
    OF_LANES,
    STEPS,
    Step,
    StepError,
    apply_steps,
    starting_kernel,
    step_parameters,
)

#: The most copies of one value that lanes may make, and nodes a kernel may have: texts stay short.
MOST_LANES, MOST_NODES = 256, 1500
#: What two right results may differ by, as a part of the greatest value that is stored.
TOLERANCE = {dtypes.float16: 4e-3, dtypes.bfloat16: 3e-2, dtypes.float32: 2e-5,
             dtypes.float64: 1e-12}


#: Steps for processors alone.
_OF_PROCESSORS = ("THREAD", "GROUPTOP", "STREAM", "DOT", "TILES")


@dataclass
class Argument:
    """One argument: where it lies among all of the kernel's memory, before and after a run."""

    dtype: DType
    block: int
    offset: int
    before: np.ndarray
    after: np.ndarray


@dataclass
class Case:
    """A kernel as it was written, and what it made of its arguments."""

    name: str
    ast: UOp
    arguments: list[Argument]
    values: list[int] = field(default_factory=list)

    def wrong(self, ast: UOp, device: str) -> str:
        """What is wrong about the results of a version of the kernel; empty if nothing is."""
        with Context(NOOPT=1):
            program = Device[device].compile([ast])[0]
        found = run(self, program)
        for position, (argument, stored) in enumerate(zip(self.arguments, found, strict=True)):
            problem = difference(argument.after, stored, argument.dtype)
            if problem:
                return f"argument {position} on {device}: {problem}"
        return ""


def run(case: Case, program: object) -> list[np.ndarray]:
    """Run a program on memory that lies as the case's did; what the arguments are afterwards."""
    device = program.device  # type: ignore[attr-defined]
    sizes: dict[int, int] = {}
    for each in case.arguments:
        sizes[each.block] = max(sizes.get(each.block, 1), each.offset + each.before.nbytes)
    blocks: dict[int, Memory] = {number: device.allocate(size) for number, size in sizes.items()}
    memories = []
    for each in case.arguments:
        memories.append(blocks[each.block].part(each.offset, each.before.nbytes))
        memories[-1].array[:] = each.before.view(np.uint8)
    program(memories, case.values)  # type: ignore[operator]
    return [memory.array.view(each.before.dtype).copy()
            for memory, each in zip(memories, case.arguments, strict=True)]


def difference(wanted: np.ndarray, found: np.ndarray, dtype: DType) -> str:
    """How two results differ by more than the float policy allows; empty if they do not."""
    if wanted.tobytes() == found.tobytes():
        return ""
    one, two = kb.to_host(wanted, dtype), kb.to_host(found, dtype)
    if dtype.kind != "f":
        places = np.flatnonzero(one != two)
    else:
        with np.errstate(all="ignore"):
            first, second = one.astype(np.float64), two.astype(np.float64)
            scale = np.max(np.abs(first[np.isfinite(first)]), initial=1e-30)
            far = np.abs(first - second) > TOLERANCE[dtype] * max(scale, 1.0)
            far |= np.isnan(first) != np.isnan(second)
            far |= (np.isinf(first) | np.isinf(second)) & (first != second) & ~np.isnan(first)
        places = np.flatnonzero(far)
    if not len(places):
        return ""
    at = places[0]
    return (f"{len(places)} of {len(one)} elements, first [{at}]: {two[at]} where {one[at]} "
            "is right")


# Kernels -------------------------------------------------------------------------------------


def cases(seed: int) -> list[Case]:
    """The kernels of one program, written with tensors or loop by loop."""
    draw = random.Random(seed)
    kind = draw.random()
    if kind < 0.1:
        return [written(seed)]
    if kind < 0.25:
        return [ran("overwriting", *step_kernels.overwriting(seed))]
    name, program = draw.choice(PROGRAMS)
    with Context(DEVICE="REFERENCE"):
        return [case for case in captured(name, program, draw) if len(case.ast.src)]


def written(seed: int) -> Case:
    """A kernel that is drawn loop by loop: gates, memory between stages, in int32."""
    made = kb.random_kernel(seed)
    return ran("written", made.ast, made.arrays(seed))


def ran(name: str, ast: UOp, arrays: Sequence[np.ndarray]) -> Case:
    """A kernel with its arguments, and what it makes of them as it is written."""
    types = {node.arg: node.dtype for node in ast.toposort() if node.op is Ops.PARAM}
    arguments = [Argument(types.get(i, dtypes.int32), i, 0, array, array)
                 for i, array in enumerate(arrays)]
    case = Case(name, ast, arguments)
    program = Device["REFERENCE"].compile([ast])[0]
    for each, after in zip(arguments, run(case, program), strict=True):
        each.after = after
    return case


def captured(name: str, program: Callable[[random.Random], Sequence[object]],
             draw: random.Random) -> Iterator[Case]:
    """The kernels of a program with the arguments that they meet, in the order of the schedule."""
    outputs = program(draw)
    items = type(outputs[0]).schedule(*outputs)  # type: ignore[attr-defined]
    for item in items:
        if item.program is None:  # a copy
            item.run()
            continue
        memories = [ensure_memory(buffer) for buffer in item.bufs]
        types = _types(item.ast, item.bufs)
        before = [memory.array[:buffer.nbytes].copy()
                  for memory, buffer in zip(memories, item.bufs, strict=True)]
        item.run()
        after = [memory.array[:buffer.nbytes].copy()
                 for memory, buffer in zip(memories, item.bufs, strict=True)]
        arguments = [
            Argument(dtype, *place, one.view(dtype.numpy), two.view(dtype.numpy))
            for dtype, place, one, two in zip(types, places(memories), before, after, strict=True)]
        yield Case(name, item.ast, arguments, list(item.values))


def _types(ast: UOp, buffers: Sequence[Any]) -> list[DType]:
    """The types of the arguments; of one that the kernel does not use, that of its buffer."""
    known = {node.arg: node.dtype for node in ast.toposort() if node.op is Ops.PARAM}
    found: list[DType] = []
    for position, buffer in enumerate(buffers):
        found.append(known.get(position) or buffer.dtype)
    return found


def places(memories: Sequence[Memory]) -> list[tuple[int, int]]:
    """For each memory the block that it lies in, and where: what overlaps is in one block."""
    found: dict[int, tuple[int, int]] = {}
    block, start, end = -1, 0, -1
    for number in sorted(range(len(memories)), key=lambda i: memories[i].address):
        memory = memories[number]
        if memory.address >= end:
            block, start = block + 1, memory.address
        end = max(end, memory.address + memory.nbytes)
        found[number] = (block, memory.address - start)
    return [found[i] for i in range(len(memories))]


# Steps ---------------------------------------------------------------------------------------


class WrongStep(AssertionError):
    """A step did what no step may do."""


def drawn_step(known: Analysis, draw: random.Random, name: str = "", lanes: int = 0) -> Step:
    """A step of a kind, or any, with any numbers, most of which have a chance to be legal.

    With `lanes` the step may be one of those that share loops among so many lanes.
    """
    if lanes and not name:
        name = draw.choice([*OF_LANES] if draw.random() < 0.5 else
                           [each for each in STEPS if each not in _OF_PROCESSORS])
    name = name or draw.choice([each for each in STEPS if each not in OF_LANES])
    loops = len(known.ranges)
    extent = 1
    numbers = []
    for parameter in step_parameters(name):
        if parameter in ("axis", "other"):
            axis = draw.randrange(-1, loops + 1) if draw.random() < 0.1 else \
                draw.randrange(max(loops, 1))
            if 0 <= axis < loops and known.ranges[axis].src[0].op is Ops.CONST:
                extent = known.ranges[axis].src[0].arg
            numbers.append(axis)
        elif parameter == "width":
            numbers.append(draw.choice((2, 4, 8, lanes, lanes, 3)))
        elif lanes and parameter == "amount" and name in ("LOCAL", "WARP", "GRID"):
            numbers.append(lanes)
        elif parameter != "amount":  # which of a few
            numbers.append(draw.choice((0, 0, 1, 1, 2, -1)))
        else:
            near = [d for d in range(2, min(extent, 64) + 1) if extent % d == 0]
            numbers.append(draw.choice((2, 3, 4, 5, 8, 16, extent, *near, *near, 0, 1, -1,
                                        extent + 1)))
    return STEPS[name](*numbers)


def drawn_list(ast: UOp, draw: random.Random, lanes: int = 0,
               most_nodes: int = MOST_NODES, tries: int = 16) -> list[Step]:
    """A legal list. Each step that is refused raises StepError, each that is taken is recorded.

    With `lanes`, one for a device with work-groups.

    Raises:
        WrongStep: a step raised something else, or made no kernel.
    """
    taken: list[Step] = []
    for _ in range(draw.randint(1, tries)):
        if len(taken) == 5:
            break
        step = drawn_step(Analysis(ast), draw, lanes=lanes)
        changed = legal(ast, step)
        if changed is not None and lane_values(changed) <= MOST_LANES \
                and len(changed.toposort()) <= most_nodes:
            ast = changed
            taken.append(step)
    return taken


def chosen_list(ast: UOp) -> list[Step]:
    """What the heuristic chooses.

    Raises:
        WrongStep: it took a step that is not legal.
    """
    try:
        return [step for step, _ in hand_steps(ast, Device["CPU"].limits)]
    except Exception as error:
        raise WrongStep(f"the heuristic raised {type(error).__name__}: {error}") from error


def legal(ast: UOp, step: Step) -> UOp | None:
    """The kernel after a step; None if the step is refused as it should be."""
    names = ast.arg.steps
    try:
        changed = step.apply(Analysis(ast))
    except StepError as error:
        if error.operation != step.name or not error.detail:
            raise WrongStep(f"{step.name} was refused as {error}") from None
        return None
    except Exception as error:
        raise WrongStep(f"{step.name} after {names} raised {type(error).__name__}: {error}") \
            from error
    if changed.arg.steps != (*names, step.name) or Step.parse(step.name) != step:
        raise WrongStep(f"{step.name} after {names} was recorded as {changed.arg.steps}")
    if changed.replace(arg=replace(changed.arg, steps=names)) is ast:
        raise WrongStep(f"{step.name} after {names} changed nothing")
    try:
        verify_kernel(changed)
    except Exception as error:
        raise WrongStep(f"{step.name} after {names} made no kernel: {error}") from error
    return changed


def lane_values(ast: UOp) -> int:
    """The most copies of one value that lanes make."""
    return kb.lane_values(ast)


# Checking ------------------------------------------------------------------------------------


@dataclass
class Trial:
    """One kernel under one list, and what was wrong."""

    seed: int
    kernel: int
    name: str
    steps: tuple[str, ...]
    problem: str = ""

    def __str__(self) -> str:
        return (f"seed {self.seed}, kernel {self.kernel} of {self.name}, steps "
                f"{' '.join(self.steps) or '(none)'}: {self.problem}")


def trials(seed: int, lists: int = 2) -> tuple[list[tuple[Trial, Case, UOp]], list[Trial]]:
    """The kernels of a seed under the heuristic's list and some drawn ones; and failed draws."""
    made: list[tuple[Trial, Case, UOp]] = []
    failed: list[Trial] = []
    draw = random.Random(f"steps {seed}")
    for number, case in enumerate(cases(seed)):
        start = starting_kernel(case.ast)
        for which in range(1 + lists):
            ast = case.ast if which % 2 else start
            try:
                steps = drawn_list(ast, draw) if which else chosen_list(ast)
            except WrongStep as error:
                failed.append(Trial(seed, number, case.name, (), str(error)))
                continue
            if which == 0 or steps:
                trial = Trial(seed, number, case.name, tuple(step.name for step in steps))
                made.append((trial, case, apply_steps(ast, steps)))
    return made, failed


def check(seeds: Sequence[int], lists: int = 2,
          devices: Sequence[str] = ("REFERENCE", "CPU"),
          most: int | None = None) -> tuple[list[Trial], list[Trial]]:
    """All trials of some seeds, and those of them that failed, with a shorter list if one fails.

    With `most` the first so many.
    """
    made: list[tuple[Trial, Case, UOp]] = []
    failed: list[Trial] = []
    for seed in seeds:
        one, two = trials(seed, lists)
        made, failed = made + one, failed + two
        if most is not None and len(made) >= most:
            made = made[:most]
            break
    for device in devices:
        with Context(NOOPT=1), contextlib.suppress(Exception):  # one by one, each says what it is
            Device[device].compile([ast for _, _, ast in made])
    for trial, case, ast in made:
        for device in devices:
            trial.problem = trial.problem or attempt(case, ast, device)
        if trial.problem:
            failed.append(shortened(trial, case, devices))
    for name in devices:  # what was tried is not needed any more
        Device[name].programs.clear()
    return [trial for trial, _, _ in made], failed


def check_lanes(seeds: Sequence[int], lists: int = 2) -> tuple[list[Trial], list[Trial]]:
    """Lists for devices with work-groups: all trials of some seeds, and those that failed.

    The kernels run as the texts of CUDA and Metal on the emulator. Those whose arguments share
    memory are left out: the emulator gives each argument its own.
    """
    made: list[Trial] = []
    failed: list[Trial] = []
    for seed in seeds:
        draw = random.Random(f"lanes {seed}")
        for number, case in enumerate(cases(seed)):
            if len({each.block for each in case.arguments}) < len(case.arguments):
                continue
            for _ in range(lists):
                start, lanes = starting_kernel(case.ast), draw.choice((2, 4, 8, 32))
                try:
                    steps = drawn_list(start, draw, lanes)
                except WrongStep as error:
                    failed.append(Trial(seed, number, case.name, (), str(error)))
                    continue
                if any(step.name.partition("(")[0] in OF_LANES for step in steps):
                    trial = Trial(seed, number, case.name, tuple(step.name for step in steps))
                    trial.problem = emulated(case, apply_steps(start, steps))
                    made.append(trial)
                    failed += [trial] if trial.problem else []
    return made, failed


def check_units(seeds: Sequence[int], lists: int = 2) -> tuple[list[Trial], list[Trial]]:
    """The same for products that a GPU's units compute: TC, and then what is drawn after it."""
    made: list[Trial] = []
    failed: list[Trial] = []
    for seed in seeds:
        plain, start, arrays, language = step_kernels.units(seed)
        case, draw = ran("units", plain, arrays), random.Random(f"after TC {seed}")
        for _ in range(lists):
            try:
                steps = drawn_list(start, draw, 32, 2 * MOST_NODES, tries=80)
            except WrongStep as error:
                failed.append(Trial(seed, 0, case.name, start.arg.steps, str(error)))
                continue
            ast = apply_steps(start, steps)
            made.append(Trial(seed, 0, case.name, ast.arg.steps, emulated(case, ast, (language,))))
            failed += [made[-1]] if made[-1].problem else []
    return made, failed


def check_groups(seeds: Sequence[int], lists: int, most: int) -> tuple[list[Trial], list[Trial]]:
    """Both of them, seed by seed, until so many lists were tried."""
    made: list[Trial] = []
    failed: list[Trial] = []
    for seed in seeds:
        for check_some in (check_lanes, check_units):
            one, two = check_some((seed,), lists)
            made, failed = made + one, failed + two
        if len(made) >= most:
            break
    return made[:most], failed


def emulated(case: Case, ast: UOp,
             languages: Sequence[str] = tuple(emulated_kernels.DIALECTS)) -> str:
    """What is wrong with a version of a kernel as a text of CUDA and of Metal."""
    for language in languages:
        found = [each.before.copy() for each in case.arguments]
        try:
            emulated_kernels.run(ast, *found, values=case.values, language=language)
        except DTypeError:  # no doubles
            continue
        except Exception as error:
            return f"{language}: {type(error).__name__}: {str(error)[:2000]}"
        for position, (argument, stored) in enumerate(zip(case.arguments, found, strict=True)):
            problem = difference(argument.after, stored, argument.dtype)
            if problem:
                return f"argument {position} in {language}: {problem}"
    return ""


def attempt(case: Case, ast: UOp, device: str) -> str:
    """What is wrong with a version of a kernel on a device."""
    try:
        return case.wrong(ast, device)
    except Exception as error:
        return f"{device}: {type(error).__name__}: {str(error)[:2000]}"


def shortened(trial: Trial, case: Case, devices: Sequence[str]) -> Trial:
    """The failure with as few steps as it takes."""
    steps = [Step.parse(name) for name in trial.steps]
    place = 0
    while place < len(steps):
        fewer = steps[:place] + steps[place + 1:]
        try:
            ast = apply_steps(case.ast, fewer)
        except StepError:
            place += 1
            continue
        found = [problem for device in devices if (problem := attempt(case, ast, device))]
        if found:
            steps, trial.problem = fewer, found[0]
        else:
            place += 1
    trial.steps = tuple(step.name for step in steps)
    return trial


# A long run ----------------------------------------------------------------------------------


REPORT_FORMAT = "tensor-steps/1"
#: Seeds in a process: it loads what it compiles, and a crash takes no more than these with it.
SEEDS_OF_A_PROCESS = 30
#: The most lists in a process. As many are counted before it starts, so that the run is exact.
LISTS_OF_A_PROCESS = 60
SECONDS_OF_A_PROCESS = 900


@dataclass
class Profile:
    """Trials from a seed on, `count` of them, in several processes at once."""

    seed: int = 0
    count: int = 10_000
    processes: int = 1
    lists: int = 2
    report: Path | None = None
    groups: bool = False
    tried: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    interrupted: bool = False

    def run(self) -> bool:
        """Whether nothing was wrong; the report is written anew after every process."""
        try:
            self._run()
        except KeyboardInterrupt:
            self.interrupted = True
        self._write(not self.interrupted)
        return not self.failures

    def _run(self) -> None:
        first = self.seed
        with ThreadPoolExecutor(self.processes) as pool:
            waiting: dict[Future[tuple[int, dict[str, Any]]], int] = {}
            while waiting or self.tried.total() < self.count:
                while len(waiting) < self.processes:
                    most = min(LISTS_OF_A_PROCESS,
                               self.count - self.tried.total() - sum(waiting.values()))
                    if most <= 0:
                        break
                    waiting[pool.submit(self._process, first, most)] = most
                    first += SEEDS_OF_A_PROCESS
                for each in wait(waiting, return_when=FIRST_COMPLETED).done:
                    del waiting[each]
                    self._take(*each.result())

    def _process(self, first: int, most: int) -> tuple[int, dict[str, Any]]:
        """What a process of its own found out about some seeds, in `most` lists or fewer."""
        command = [sys.executable, "-X", "faulthandler", "-m", "conformance.kernels.step_lists",
                   str(first), str(first + SEEDS_OF_A_PROCESS), str(self.lists), str(most),
                   *(["groups"] if self.groups else [])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False,
                                  timeout=SECONDS_OF_A_PROCESS)
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return first, found
        except subprocess.TimeoutExpired:
            said = f"it took more than {SECONDS_OF_A_PROCESS} s"
        except (ValueError, IndexError):
            said = f"status {done.returncode}: {done.stderr[-4000:]}"
        return first, {"failures": [f"seeds {first} to {first + SEEDS_OF_A_PROCESS - 1}: the "
                                    f"process died, {said}"]}

    def _take(self, first: int, found: dict[str, Any]) -> None:
        self.tried.update(found.get("tried") or {"nothing": 1})
        self.steps.update(found.get("steps", {}))
        self.failures += found["failures"]
        for failure in found["failures"]:
            print(failure, flush=True)
        self._write(False)
        print(f"{self.tried.total()} of {self.count} lists tried, {len(self.failures)} wrong, "
              f"{time.perf_counter() - self.started:.0f} s", file=sys.stderr, flush=True)

    def _write(self, complete: bool) -> None:
        if self.report is not None:
            self.report.write_text(json.dumps({
                "format": REPORT_FORMAT, "complete": complete, "interrupted": self.interrupted,
                "seed": self.seed,
                "lists": self.tried.total(), "kernels of": dict(sorted(self.tried.items())),
                "steps": dict(sorted(self.steps.items())), "failures": self.failures,
                "seconds": round(time.perf_counter() - self.started, 1)}, indent=1) + "\n",
                encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """The trials of some seeds in this process: first seed, seed to stop at, lists a kernel, and
    the most lists; and "groups" for lists of devices with work-groups."""
    first, stop, lists, most = map(int, arguments[:4])
    sanitized.guard()
    with Context(CACHELEVEL=0):
        if arguments[4:]:
            made, failed = check_groups(range(first, stop), lists, most)
        else:
            made, failed = check(range(first, stop), lists, most=most)
    print(json.dumps({
        "tried": Counter(trial.name for trial in made),
        "steps": Counter(name.partition("(")[0] for trial in made for name in trial.steps),
        "failures": [str(trial) for trial in failed]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
