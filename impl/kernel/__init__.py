"""One kernel: what its graph means, what it costs, how it is optimised. Chapter: spec/kernel.md.

`analysis` answers questions about a kernel, `steps` are the changes that keep its meaning, and
`heuristic` picks steps for a device.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from impl import settings
from impl.ir import UOp
from impl.kernel.ahead import Next, next_loads
from impl.kernel.analysis import (
    LANES,
    REDUCERS,
    Analysis,
    Early,
    Estimate,
    Growth,
    Limits,
    Way,
    accessed,
    buffer_key,
    estimate,
    exchanged,
    growth,
    shared_loops,
    verify,
)
from impl.kernel.blocking import Aside, Chunk, Cut, Fetch, Pack, Share, Spread
from impl.kernel.chain import Chain
from impl.kernel.dots import Dot
from impl.kernel.grouping import lane_steps
from impl.kernel.heuristic import hand_plan, hand_steps
from impl.kernel.hidden import Hide
from impl.kernel.lanes import Grid, Inner, Local, Warp
from impl.kernel.online import Online
from impl.kernel.padding import PadTo
from impl.kernel.pipeline import Pipeline
from impl.kernel.plain import Merge, Stream
from impl.kernel.roll import Roll
from impl.kernel.search import Bench, searched_steps
from impl.kernel.steps import (
    OF_GROUPS,
    OF_LANES,
    STEPS,
    Abreast,
    Own,
    Split,
    Step,
    StepError,
    Swap,
    Upcast,
    apply_steps,
    fold_gates,
    parameters,
)
from impl.kernel.tensor_cores import TC, refuse_units
from impl.kernel.threads import GroupTop, Thread, duration
from impl.kernel.windows import Window


def optimize(ast: UOp, limits: Limits | None = None, bench: Bench | None = None,
             search: bool = True) -> UOp:
    """The kernel after the steps that it asks for, else after those that suit the device.

    With `BEAM=n` and a device to try on, a search chooses them, or has chosen before if `search` is
    false. Its values stay what they are. `KernelInfo.steps` names the steps, `reasons` says why.

    Raises:
        StepError: a step that was asked for is not legal.
    """
    if ast.arg.asked is not None:  # r[impl kernel.step.asked]
        asked = [(Step.parse(name), "asked for") for name in ast.arg.asked]
        if limits is None or limits.lanes == 1:
            _refuse_groups(asked)
        else:
            refuse_units(asked, limits)
        return taken(ast, asked)
    simple, width = fold_gates(ast), settings.get("BEAM")
    if width and bench is not None:
        # r[impl kernel.beam.equal]: what it finds are steps
        return taken(simple, searched_steps(simple, bench, width, search))
    if limits and limits.lanes > 1:
        return taken(simple, lane_steps(simple, limits))
    return _said(*hand_plan(simple, limits or Limits()))



def _refuse_groups(asked: Iterable[tuple[Step, str]]) -> None:
    """Raise if a device without work-groups is asked for a step that needs them."""
    for step, _ in asked:  # r[impl kernel.step.groups]
        remedy = OF_LANES.get(step.name.partition("(")[0])
        if remedy:
            raise StepError(step.name, "needs a device that launches work-groups",
                            f"use {remedy}, or a device with work-groups: OPENCL")


def taken(ast: UOp, steps: Iterable[tuple[Step, str]]) -> UOp:
    """The kernel after some steps, with the reason for each; it asks for no more.

    Raises:
        StepError: one of them is not legal.
    """
    given = list(steps)
    return _said(apply_steps(ast, [step for step, _ in given]), given)


def _said(made: UOp, steps: Iterable[tuple[Step, str]]) -> UOp:
    """A kernel that was made, saying why."""
    # r[impl kernel.step.reason]
    reasons = (*made.arg.reasons, *(reason for _, reason in steps))
    return made.replace(arg=replace(made.arg, reasons=reasons, asked=()))


def with_steps(ast: UOp, steps: Iterable[str | Step]) -> UOp:
    """The kernel asking for some steps, "UPCAST(1,16)" or the like, and for no others."""
    asked = tuple(step if isinstance(step, str) else step.name for step in steps)
    return ast.replace(arg=replace(ast.arg, asked=asked))


__all__ = ["LANES", "OF_GROUPS", "OF_LANES", "REDUCERS", "STEPS", "TC", "Abreast", "Analysis",
           "Aside", "Bench", "Chain", "Chunk", "Cut", "Dot", "Early", "Estimate", "Fetch", "Grid",
           "GroupTop", "Growth", "Hide", "Inner", "Limits", "Local", "Merge", "Next", "Online",
           "Own", "Pack", "PadTo", "Pipeline", "Roll", "Share", "Split", "Spread", "Step",
           "StepError", "Stream", "Swap", "Thread", "Upcast", "Warp", "Way", "Window",
           "accessed", "apply_steps", "buffer_key", "duration", "estimate", "exchanged",
           "fold_gates", "growth", "hand_steps", "lane_steps", "next_loads", "optimize",
           "parameters", "shared_loops", "taken", "verify", "with_steps"]
