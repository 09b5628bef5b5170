"""Runs kernels as the texts of CUDA and Metal, on the emulator, their lanes in several orders.

There is no runtime and no driver in between: a kernel is rendered, compiled as C++ and launched. It
has to store the same whichever lane goes first, and what the reference device stores.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conformance import emulation
from conformance.kernels import kernel_builder as kb
from impl.dialects import CUDA, Metal
from impl.dialects.metal import SCRATCH
from impl.groups.shape import Shape
from impl.ir import UOp
from impl.render import SourceText, render

DIALECTS = {"cuda": CUDA, "metal": Metal}
#: Lanes of a group that shares a phase.
_TOGETHER = 64


def source_of(ast: UOp, language: str) -> SourceText:
    """The text of a kernel as it is, without further steps, under a name that no header has."""
    named = ast.replace(arg=replace(ast.arg, name="emulated"))
    return render(named, DIALECTS[language]())


def run(ast: UOp, *arrays: np.ndarray, values: Sequence[int] = (),
        language: str = "cuda", seeds: Sequence[int] = (1,), sanitize: bool = False) -> SourceText:
    """Run a kernel on arrays, which then hold what it stored; the text that was run.

    Raises:
        OrderDependence: the order of the lanes changes what is stored.
        EmulationError: lanes wait for others that do not come, or touch what is not theirs.
    """
    source = source_of(ast, language)
    given = [arrays[position] for position in source.parameters]
    module = emulation.compile(source.text, language, sanitize)
    scratch = np.zeros(max(source.scratch, 1), np.uint8)
    shape = Shape(ast, source.phases, source.threads, _TOGETHER)
    for phase, (groups, lanes) in enumerate(shape.launches(values)):
        if groups:
            arguments: list[emulation.Argument] = [*given, *values]
            if language == "metal":
                nothing = [np.zeros(1, np.int64)] * (SCRATCH - len(given))
                arguments = [*given, *nothing, scratch, np.array([*values, phase], np.int64)]
            elif source.phases:
                arguments += [phase, scratch]
            module.launch_in_orders(source.name, groups, lanes, 0, arguments, seeds)
    return source


def problem(plain: UOp, made: UOp, arrays: Sequence[np.ndarray], language: str,
            tolerance: float = 1e-5, values: Sequence[int] = ()) -> str:
    """How a kernel after some steps differs from what it was before; empty if it does not."""
    wanted, found = ([each.copy() for each in arrays] for _ in range(2))
    kb.run(plain, *wanted, values=values, device="REFERENCE")
    run(made, *found, values=values, language=language)
    for place, (one, two) in enumerate(zip(wanted, found, strict=True)):
        same = np.array_equal(one, two) if one.dtype.kind != "f" else \
            np.allclose(one, two, tolerance, tolerance, equal_nan=True)
        if not same:
            at = np.flatnonzero(one.ravel() != two.ravel())[0]
            return (f"{language}: argument {place}[{at}] is {two.ravel()[at]}, "
                    f"{one.ravel()[at]} is right; steps {made.arg.steps}")
    return ""
