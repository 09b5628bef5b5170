"""What is measured, in which unit, and the goal. Less is better everywhere."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from conformance.bench import growing

MICRO, MILLI = 1e6, 1e3
#: Lengths of growing programs, in operations.
SIZES = (100, 1_000, 10_000, 100_000)
TINY_KERNELS = 1_000

WORKLOADS = {"softmax": "softmax", "layer_norm": "layer norm", "attention": "attention",
             "mlp_step": "MLP step", "gpt_block": "GPT-2 block", "gpt_step": "GPT step"}
PROGRAMS = {"chain": "chain of elementwise operations", "tree": "balanced tree of sums",
            "transformer": "transformer of many layers",
            "separate": "chain of separate kernels"}
KERNEL_GOALS = {"softmax": 1, "layer_norm": 1, "attention": 1, "mlp_step": 9, "gpt_block": 9,
                "gpt_step": 58}


@dataclass(frozen=True)
class Figure:
    """One row: its name, and how it is read from an answer. `goal` is in `unit`."""

    key: str
    group: str
    title: str
    unit: str
    read: Callable[[dict[str, Any]], float | None]
    goal: float | None = None


@dataclass(frozen=True)
class Measurement:
    """One question to every library, and the rows that its answers fill."""

    method: str
    arguments: dict[str, Any]
    figures: tuple[Figure, ...]
    repeats: int = 1
    fresh: str = ""  # "empty" or "warm": in a new process, with such a cache on disk
    checks: tuple[tuple[str, dict[str, Any]], ...] = field(default=())


def number(name: str, scale: float = 1) -> Callable[[dict[str, Any]], float | None]:
    """A field of the answer, in another unit."""
    return lambda said: said[name] * scale if name in said else None


def quotient(name: str, by: str, scale: float = 1) -> Callable[[dict[str, Any]], float | None]:
    """One field divided by another."""
    return lambda said: said[name] / said[by] * scale if said.get(by) and name in said else None


def measurements(quick: bool, first_run: bool) -> Iterator[Measurement]:
    """Everything that is measured, in the order of the tables."""
    for name in WORKLOADS:
        yield _kernels(name)
    yield _memory("gpt_step")
    for name in ("mlp_step", "gpt_block") if quick else ("mlp_step", "gpt_block", "gpt_step"):
        yield from _stages(name, 1 if quick else 7)
    for program in PROGRAMS:
        for size in SIZES[:1] if quick else SIZES:
            yield _grown(program, size, 1 if quick else 7)
    yield _replay(100 if quick else TINY_KERNELS, 1 if quick else 9)
    for names, title, goal in ((0, "captured call of one tiny kernel", 5.0), (
            10, "the same, where it reads ten names that may change", 7.0)):
        yield Measurement("call", {"names": names}, (Figure(
            f"call.{names}", "Running", title, "us", number("seconds", MICRO), goal),),
            1 if quick else 5)
    yield Measurement("add", {}, (Figure("add", "Running", "`a + b` on 4 elements, realized",
                                         "us", number("seconds", MICRO), 20),),
                      3 if quick else 9)
    if first_run:
        yield from _first_runs("gpt_step")


def _checked(name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    return (("check", {"workload": name}),)


def _kernels(name: str) -> Measurement:
    title = WORKLOADS[name]
    return Measurement("kernels", {"workload": name}, (
        Figure(f"kernels.{name}", "Kernels", title, "kernels", number("kernels"),
               KERNEL_GOALS[name]),
        Figure(f"bytes.{name}", "Bytes moved by the kernels", title, "MB", number("bytes", 1e-6)),
    ), checks=_checked(name))


def _memory(name: str) -> Measurement:
    group = f"Memory of temporaries, {WORKLOADS[name]}"
    return Measurement("memory", {"workload": name}, (
        Figure(f"memory.unplanned.{name}", group, "without reuse", "MB",
               number("unplanned", 1e-6)),
        Figure(f"memory.bound.{name}", group, "alive at once, at most", "MB",
               number("bound", 1e-6)),
        Figure(f"memory.planned.{name}", group, "planned", "MB", number("planned", 1e-6)),
        Figure(f"memory.over.{name}", group, "planned, by what is alive at once", "x",
               quotient("planned", "bound"), 1.01),
    ), checks=_checked(name))


def _stages(name: str, repeats: int) -> Iterator[Measurement]:
    goals = {"cold": 60.0, "hit": 3.0, "build": 15.0} if name == "gpt_step" else {}
    titles = {"build": "write the graph down", "cold": "schedule it, never seen",
              "hit": "schedule it, seen before"}
    for method, title in titles.items():
        figure = Figure(f"{method}.{name}", f"Scheduling the {WORKLOADS[name]}", title, "ms",
                        number("seconds", MILLI), goals.get(method))
        yield Measurement(method, {"workload": name}, (figure,), repeats, checks=_checked(name))


def _grown(program: str, size: int, repeats: int) -> Measurement:
    group, key = f"Growing: {PROGRAMS[program]}", f"{program}.{size}"
    return Measurement("grown", {"program": program, "count": size}, (
        Figure(f"operation.{key}", group, f"{size:,}: for each operation", "us",
               quotient("seconds", "operations", MICRO), 30),
        Figure(f"node.{key}", group, f"{size:,}: for each node of its own graph", "us",
               quotient("seconds", "nodes", MICRO)),
        Figure(f"kernel.{key}", group, f"{size:,}: for each kernel", "us",
               quotient("seconds", "kernels", MICRO)),
    ), repeats if size < 10_000 else min(repeats, 3),
        checks=(("check_grown", {"program": program, "count": 100}),))


def _replay(kernels: int, repeats: int) -> Measurement:
    return Measurement("replay", {"kernels": kernels}, (
        Figure("replay", "Running", f"replay of {kernels:,} tiny kernels, for each", "us",
               lambda said: said["seconds"] * MICRO / kernels, 0.1),
    ), repeats)


def _first_runs(name: str, repeats: int = 3) -> Iterator[Measurement]:
    group = f"First run of the {WORKLOADS[name]} in a process"
    for state, goal in (("empty", 1.2), ("warm", 0.2)):
        title = "nothing kept on disk" if state == "empty" else "kernels kept on disk"
        yield Measurement("first_run", {"workload": name}, (
            Figure(f"first.{state}.{name}", group, title, "s", number("seconds"), goal),
            Figure(f"first.{state}.process.{name}", group, f"{title}, with Python and the imports",
                   "s", number("process")),
        ), repeats, fresh=state)


def eager() -> Measurement:
    """What one small operation costs that is realized at once."""
    return Measurement("add", {}, (Figure("eager", "Eager", "`a + b` on 4 elements, realized",
                                          "us", number("seconds", MICRO), 20),), 9)


def first(repeats: int) -> Iterator[Measurement]:
    """The first run of the training step."""
    yield from _first_runs("gpt_step", repeats)


def timed(name: str, title: str, group: str, threads: int, seconds: float,
          rounds: int) -> Measurement:
    """The time of a workload: the median of its calls in each round."""
    figure = Figure(f"{name}.{threads}", group, title, "ms", number("seconds", MILLI))
    return Measurement("time", {"workload": name, "seconds": seconds}, (figure,), rounds,
                       checks=(("prepare", {"workload": name}),))


# The figures that do not depend on the machine: the tests hold them.

def recorded_questions() -> Iterator[tuple[str, str, dict[str, Any], tuple[str, ...]]]:
    """Name, method, arguments and fields of what a test compares with the record."""
    for name in WORKLOADS:
        yield name, "kernels", {"workload": name}, ("kernels", "bytes")
    for name in ("mlp_step", "gpt_block", "gpt_step"):
        yield name, "memory", {"workload": name}, ("bound", "planned")
    for program in growing.PROGRAMS:
        yield program, "grown", {"program": program, "count": 1_000}, ("nodes", "kernels")
