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
from impl.kernel.analysis import Analysis, accessed, loaded
from impl.steps.declaration import Declaration, StepError
from impl.symbolic import conjuncts

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


def starting_kernel(ast: UOp) -> UOp:
    """The kernel that steps begin with: gates are said once, and no stage passes on one element
    that one other stage needs.
    """
    return _without_passing(_fold_gates(ast))


def _fold_gates(ast: UOp) -> UOp:
    """A load is zero where it is not valid: WHERE(valid, load, 0) is the load."""
    folded: dict[UOp, UOp] = {}
    for node in ast.toposort():
        if node.op is Ops.WHERE and _is_zero(node.src[2]):
            value = folded.get(node.src[1], node.src[1])
            if _vanishes(value, conjuncts(node.src[0])):
                folded[node] = value
    return ast.substitute(folded) if folded else ast


def _is_zero(node: UOp) -> bool:
    return node.op is Ops.CONST and node.arg == 0 and math.copysign(1, node.arg) > 0


def _vanishes(value: UOp, conditions: Sequence[UOp]) -> bool:
    """Whether a value is zero where one of some conditions does not hold."""
    while value.op is Ops.WHERE and _is_zero(value.src[2]):
        value = value.src[1]
    if value.op is not Ops.LOAD:
        return False
    known = conjuncts(value.src[0].src[2])
    return all(condition in known for condition in conditions)


def _without_passing(ast: UOp) -> UOp:
    """The kernel without stages whose only element one later stage reads: it is computed there."""
    # r[impl steps.start.passed]
    stores = list(ast.src)
    place = 0
    while place < len(stores):
        reader = _only_reader(stores, place)
        if reader is None:
            place += 1
            continue
        made = stores.pop(place)
        load = next(n for n in stores[reader - 1].toposort() if _reads(n, made))
        stores[reader - 1] = stores[reader - 1].substitute({load: made.src[1]})
    return ast if len(stores) == len(ast.src) else ast.replace(src=tuple(stores))


def _reads(node: UOp, store: UOp) -> bool:
    return node.op is Ops.LOAD and node.src[0].src[0] is store.src[0].src[0]


def _only_reader(stores: Sequence[UOp], place: int) -> int | None:
    """The only stage that reads what a stage passes on, if both have no loops of their own and
    nothing that the first reads is stored between them.
    """
    store = stores[place]
    target = store.src[0]
    if target.src[0].op is not Ops.LOCAL or len(store.src) > 2 or target.src[1].op is not Ops.CONST:
        return None
    found = [i for i, each in enumerate(stores) if i != place
             and any(n.op is Ops.INDEX and n.src[0] is target.src[0] for n in each.toposort())]
    if len(found) != 1 or found[0] < place or len(stores[found[0]].src) > 2:
        return None
    reader = stores[found[0]]
    read = [n for n in reader.src[1].toposort() if _reads(n, store)]
    summed = {n for node in reader.src[1].toposort() if node.op is Ops.REDUCE
              for n in node.toposort()}
    needs = loaded(store.src[1].toposort())
    between = stores[place + 1:found[0]]
    if len(read) != 1 or read[0].src[0] is not target or read[0] in summed \
            or any(_reads(n, store) for n in reader.src[0].toposort()) \
            or any(accessed(each) in needs for each in between):
        return None
    return found[0]
