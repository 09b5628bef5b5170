"""Which steps a kernel gets: those it asks for, those a search finds, those that rules choose.

Chapter: spec/searching.md. `beam` searches, `trial` measures.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from impl import settings
from impl.choosing.heuristic import hand_plan
from impl.choosing.threads import duration, parts_for, threads_for
from impl.custom import written_text
from impl.errors import GraphError
from impl.groups import lane_steps
from impl.groups.tensor_cores import refuse_units
from impl.ir import RangeKind, UOp
from impl.kernel import Analysis, DeviceLimits, verify_kernel
from impl.rewrite import simplify
from impl.searching.beam import searched_steps
from impl.searching.trial import Bench
from impl.steps import OF_LANES, Step, StepError, apply_steps, starting_kernel

#: Lanes of a group whose items know nothing of each other.
_LANES = 64


def optimize(ast: UOp, limits: DeviceLimits | None = None, bench: Bench | None = None,
             search: bool = True) -> UOp:
    """The kernel after the steps that it asks for, else after those that suit the device.

    With `BEAM=n` and a device to try on, a search chooses them, or has chosen before if `search` is
    false. Its values stay what they are. `KernelInfo.steps` names the steps, `reasons` says why.

    Raises:
        StepError: a step that was asked for is not legal.
    """
    if ast.arg.asked is not None:  # r[impl searching.asked.steps+2]
        asked = [(Step.parse(name), "asked for") for name in ast.arg.asked]
        if limits is None or limits.lanes == 1:
            _refuse_groups(asked)
        else:
            refuse_units(asked, limits)
        return taken(ast, asked)
    if written_text(ast) is not None:
        return _shared_out(ast, limits or DeviceLimits())
    simple, width = starting_kernel(ast), settings.get("BEAM")
    if width and bench is not None:
        # r[impl searching.trial.harmless]: what it finds are steps
        return taken(simple, searched_steps(simple, bench, width, search))
    if limits and limits.lanes > 1:
        return taken(simple, lane_steps(simple, limits))
    return _said(*hand_plan(simple, limits or DeviceLimits()))


def _shared_out(ast: UOp, limits: DeviceLimits) -> UOp:
    """A kernel that is a text, its items dealt out to lanes or threads."""
    # r[impl custom.text.value]
    items, *lanes = ast.arg.prefix
    if lanes:  # the text knows of its lanes
        return ast
    if limits.lanes > 1:
        shared = items.replace(arg=(items.arg[0], RangeKind.LANE))
        return ast.replace(arg=replace(ast.arg, prefix=(shared,), lanes=min(_LANES, limits.lanes)))
    nanoseconds = duration(ast)
    threads = threads_for(nanoseconds, limits)
    if threads < 2:
        return ast
    return ast.replace(arg=replace(
        ast.arg, threads=parts_for(Analysis(ast), nanoseconds, threads, limits)))


def _refuse_groups(asked: Iterable[tuple[Step, str]]) -> None:
    """Raise if a device without work-groups is asked for a step that needs them."""
    for step, _ in asked:  # r[impl searching.asked.steps+2]
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
    if settings.get("SPEC") >= 2:
        check_steps(ast, [step for step, _ in given])
    return _said(apply_steps(ast, [step for step, _ in given]), given)


def check_steps(ast: UOp, steps: Iterable[Step]) -> None:
    """Check the kernel after each step.

    Raises:
        GraphError: one is no kernel any more; the error names the step and the kernel.
    """
    for step in steps:
        ast = apply_steps(ast, [step])
        try:
            verify_kernel(ast)
        except GraphError as error:  # r[impl searching.steps.checked]
            raise GraphError(f"verify {ast.arg.name} after {step.name}", error.detail,
                             "this is a mistake of that step") from None


def _said(made: UOp, steps: Iterable[tuple[Step, str]]) -> UOp:
    """A kernel that was made, saying why."""
    # r[impl searching.reason.given]
    reasons = (*made.arg.reasons, *(reason for _, reason in steps))
    # r[impl rewrite.simplify.kernels]
    return simplify(made).replace(arg=replace(made.arg, reasons=reasons, asked=()))


def with_steps(ast: UOp, steps: Iterable[str | Step]) -> UOp:
    """The kernel asking for some steps, "UPCAST(1,16)" or the like, and for no others."""
    asked = tuple(step if isinstance(step, str) else step.name for step in steps)
    return ast.replace(arg=replace(ast.arg, asked=asked))


__all__ = ["Bench", "optimize", "taken", "with_steps"]
