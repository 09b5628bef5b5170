"""What a step is: a named change of a kernel's loops that keeps its values. Chapter: spec/steps.md.

A step takes a kernel and gives a kernel with the same values. It names the loop it works on by its
position in `Analysis.ranges`, says when it is legal, and raises `StepError` otherwise.
"""
from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import Analysis
from impl.steps.declaration import Declaration, StepError

#: How each step is made from the numbers that are written behind its name.
STEPS: dict[str, Callable[..., Step]] = {}
#: What each step says of itself.
DECLARED: dict[str, Declaration] = {}
#: Steps that need a device with work-groups, and what does the same without them.
OF_LANES: dict[str, str] = {}
#: Steps that round elsewhere than the kernel as it was written: nobody takes them unasked.
ASKED_FOR: list[str] = []
#: Names that nothing here stands behind, and what does the same.
OF_GROUPS = {"NOLOCALS": "a list of steps without LOCAL"}


def register_step(name: str, make: Callable[..., Step], declared: Declaration) -> None:
    """Whoever parses, draws, chooses or searches steps knows all of them, the newest one too."""
    STEPS[name], DECLARED[name] = make, declared
    if declared.instead:
        OF_LANES[name] = declared.instead
    if declared.asked:  # r[impl steps.asked.named]
        ASKED_FOR.append(name)


def step_parameters(name: str) -> tuple[str, ...]:
    """The names of a step's numbers, in the order in which they are written."""
    given = inspect.signature(STEPS[name]).parameters.values()
    return tuple(each.name for each in given if each.kind is not each.KEYWORD_ONLY)


@dataclass(frozen=True)
class Step:
    """One change. `axis` is a position in `Analysis.ranges`."""

    axis: int
    #: What the step says of itself: the registry has it too, by the step's name.
    declared: ClassVar[Declaration]

    def __init_subclass__(cls) -> None:
        """A class that declares something is a step of its own."""
        if "declared" in vars(cls):
            register_step(cls.__name__.upper(), cls, cls.declared)

    @staticmethod
    def parse(text: str) -> Step:
        """The step that is written like this: UPCAST(1,16).

        Raises:
            StepError: there is no such step, or its numbers are not as many as they should be.
        """
        # r[impl steps.name.parsed]
        found = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
        if found is not None and found[1].upper() in OF_GROUPS:  # r[impl searching.asked.steps+2]
            raise StepError(text, "is no step of any device here",
                            f"use {OF_GROUPS[found[1].upper()]}")
        if found is None or found[1].upper() not in STEPS:
            raise StepError(text, "is not a step", "write one of " + ", ".join(
                f"{name}({','.join(step_parameters(name))})" for name in sorted(STEPS)))
        name = found[1].upper()
        try:
            numbers = [int(each) for each in (found[2] or "").split(",") if found[2]]
            inspect.signature(STEPS[name]).bind(*numbers)
        except (TypeError, ValueError):
            raise StepError(text, f"{name} does not take these numbers", "write "
                            f"{name}({','.join(step_parameters(name))})") from None
        return STEPS[name](*numbers)

    @property
    def kind(self) -> str:
        """The name without the numbers: UPCAST."""
        return type(self).__name__.upper()

    @property
    def name(self) -> str:
        """How the step is written: UPCAST(1,16)."""
        return f"{self.kind}({','.join(str(value) for value in vars(self).values())})"

    def apply(self, known: Analysis) -> UOp:
        """The kernel after the step.

        Raises:
            StepError: the step is not legal here.
        """
        # r[impl steps.legal.refused, steps.declaration.single]
        declared = DECLARED[self.kind]
        loop = self._loop(known, declared.loops)
        for trace in declared.not_after:
            if trace.is_in(known):
                raise StepError(self.name, trace.detail, f"take this step before {trace.left_by}")
        if declared.amount is not None:
            declared.amount.check(self, self.size_of(loop))
        return self.changed(known, loop)

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """The kernel after the step, for a loop that is as it was declared.

        Raises:
            StepError: something else makes the step illegal.
        """
        raise NotImplementedError

    def _loop(self, known: Analysis, kinds: Sequence[RangeKind], axis: int | None = None) -> UOp:
        """The loop that the step works on: number `axis`, else its own."""
        axis = self.axis if axis is None else axis
        if not 0 <= axis < len(known.ranges):
            raise StepError(self.name, f"the kernel has {len(known.ranges)} loops",
                            "name one of them")
        loop = known.ranges[axis]
        if loop.arg[1] not in kinds:
            raise StepError(self.name, f"loop {axis} is a {loop.arg[1].name} loop",
                            "name one of kind " + " or ".join(kind.name for kind in kinds))
        return loop

    def size_of(self, loop: UOp) -> int:
        if loop.src[0].op is not Ops.CONST:
            raise StepError(self.name, "the number of iterations is known at run time only",
                            "name a loop of fixed extent")
        size: int = loop.src[0].arg
        return size


def with_stores(known: Analysis, stores: Sequence[UOp], name: str,
                prefix: tuple[UOp, ...] | None = None) -> UOp:
    """The kernel with other stores, and the step's name noted."""
    # r[impl steps.name.parsed]
    info = known.info
    changed = replace(info, prefix=info.prefix if prefix is None else prefix,
                      steps=(*info.steps, name))
    return UOp(Ops.SINK, known.ast.dtype, tuple(stores), changed)


def apply_steps(ast: UOp, steps: Iterable[Step]) -> UOp:
    """The kernel after some steps, in order.

    Raises:
        StepError: one of them is not legal.
    """
    known = Analysis(ast)
    for step in steps:
        known = Analysis(step.apply(known), known)
    return known.ast


def fold_gates(ast: UOp) -> UOp:
    """A load is zero where it is not valid: WHERE(valid, load, 0) is the load."""
    folded: dict[UOp, UOp] = {}
    for node in ast.toposort():
        if node.op is Ops.WHERE and node.src[1].op is Ops.LOAD and node.src[2].op is Ops.CONST:
            condition, load, other = node.src
            zero = other.arg == 0 and math.copysign(1, other.arg) > 0
            if zero and load.src[0].src[2] is condition:
                folded[node] = load
    return ast.substitute(folded) if folded else ast
