"""What became of a line of the user, step by step, up to the text of its kernels.

Chapter: spec/inspect.md. Only with TRACK_MATCH_STATS=2: it keeps every rewrite.
"""
from __future__ import annotations

from collections.abc import Sequence

from impl.device import Device
from impl.rewrite import Rewrite, rewrites
from impl.rewrite.written import written_tree
from impl.schedule import PlannedKernel
from impl.searching import with_steps


def rewrite_rows(made: Sequence[Rewrite]) -> list[dict[str, str]]:
    """What rules did while expressions of stages and texts of kernels were made, in order."""
    return [{"rule": each.rule, "pass": each.where, "line": each.origin,
             "before": written_tree(each.before), "after": written_tree(each.after)}
            for each in made]


def language_rewrites(kernel: PlannedKernel, steps: Sequence[str]) -> list[Rewrite]:
    """The rewrites for a kernel's language, made again, since its text may come from a cache."""
    # r[impl inspect.journey.complete]
    first = len(rewrites)
    Device[kernel.device].source(with_steps(kernel.ast, steps))
    return [each for each in rewrites[first:] if each.where == "legalize"]


def step_rows(kernel: PlannedKernel, steps: Sequence[str],
              reasons: Sequence[str]) -> list[dict[str, str]]:
    """A kernel as it was planned, and after each of its steps."""
    ast, rows = kernel.ast, [{"step": "as planned", "why": "", "kernel": written_tree(kernel.ast)}]
    for count, (step, why) in enumerate(zip(steps, reasons, strict=False), 1):
        # r[impl inspect.journey.complete]
        made = Device[kernel.device].optimized(with_steps(ast, steps[:count]), False)
        rows.append({"step": step, "why": why, "kernel": written_tree(made)})
    return rows
