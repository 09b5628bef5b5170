"""What DEBUG prints while a program runs: schedules, kernels. Chapter: spec/inspect.md."""
from __future__ import annotations

from collections.abc import Sequence

from impl.device import Program
from impl.errors import user_line
from impl.ir import UOp
from impl.schedule import Plan, decisions, label


def print_schedule(plan: Plan, nodes: Sequence[UOp], hit: bool, seconds: float,
                   debug: int) -> None:
    """A schedule that was made or found; from 3 on with all that was decided."""
    noun = "kernel " if len(plan.kernels) == 1 else "kernels"
    print(f"scheduled {len(plan.kernels):5d} {noun} in {seconds * 1e3:8.2f} ms | "
          f"{'cache hit ' if hit else 'CACHE MISS'} | {user_line()}")
    if debug >= 3:
        for _, line in decisions(plan, nodes):
            print("  " + line)


def print_programs(compiled: int, on_disk: int, in_memory: int) -> None:
    """Where the programs of a plan came from."""
    print(f"programs: {compiled} compiled, {on_disk} found on disk, {in_memory} found in memory")


def print_kernel(plan: Plan, number: int, nodes: Sequence[UOp], program: Program | None,
                 seconds: float, operations: int, moved: int, debug: int) -> None:
    """A kernel that ran; from 3 on with the reasons of its steps, from 4 on with its source.

    `moved` are the bytes that it touched.
    """
    kernel = plan.kernels[number]
    steps = f" | {' '.join(program.steps)}" if program is not None and program.steps else ""
    print(f"*** {kernel.device:10s} {number:4d} "
          f"{kernel.name:28s} {seconds * 1e6:10.1f} us {operations:12d} operations "
          f"{moved:12d} bytes | {label(plan, number, nodes)}{steps}")
    if debug >= 3 and program is not None:
        for name, reason in zip(program.steps, program.reasons, strict=True):
            print(f"steps of kernel {number}: {name}: {reason}")
    if debug >= 4 and program is not None:
        print(program.source)
