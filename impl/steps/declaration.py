"""What a step says of itself, once. Chapter: spec/steps.md.

Checks, the lists of those who choose and search, and the table of the chapter are made of it.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from impl.errors import GraphError
from impl.ir import Ops, RangeKind
from impl.kernel.analysis import LANES, Analysis, Early, exchanged


class StepError(GraphError):
    """A step is not legal for a kernel."""


class Sized(Protocol):
    """A step with an amount."""

    amount: int

    @property
    def name(self) -> str:
        """How it is written."""


@dataclass(frozen=True)
class Amount:
    """What `amount` may be, for a loop of fixed extent: at least `least`, at most the extent."""

    divides: bool = False
    below: bool = False  # less than the extent, and not as much
    least: int = 2

    def check(self, step: object, size: int) -> None:
        """Raise if a step asks for another number.

        Raises:
            StepError: the number does not suit a loop of `size` iterations.
        """
        sized: Sized = step  # type: ignore[assignment]
        most = size - 1 if self.below else size
        if not self.least <= sized.amount <= most or self.divides and size % sized.amount:
            remedy = "ask for a divisor" if self.divides else "ask for fewer" if self.below else \
                "ask for 2 to that many"
            raise StepError(sized.name, f"the loop has {size} iterations", remedy)

    def __str__(self) -> str:
        """What the table says."""
        return "n divides the extent" if self.divides else \
            "n is less than the extent" if self.below else "n is at most the extent"


class Counting(Enum):
    """What the amount of a step counts: a search tries numbers accordingly."""

    ITERATIONS = "iterations"
    THREADS = "threads"
    LANES = "lanes"


class Trace(Enum):
    """A trace of a step in a kernel, after which some other steps are refused."""

    UNIT = "TC", "a unit reads neighbours of a row at once"
    EXCHANGE = "WARP", "lanes exchange values for a reduction"
    LANES = "LOCAL", "the lanes of a group share a loop"
    THREADS = "THREAD", "the kernel is shared by threads"
    EARLY = "PIPELINE", "copies are made early already"

    @property
    def left_by(self) -> str:
        """The step that leaves it."""
        return str(self.value[0])

    @property
    def detail(self) -> str:
        """Why others cannot follow."""
        return str(self.value[1])

    def is_in(self, known: Analysis) -> bool:
        """Whether a kernel has it, however it came there."""
        return _FOUND[self](known)


_FOUND: dict[Trace, Callable[[Analysis], bool]] = {
    Trace.UNIT: lambda known: any(node.op is Ops.MMA for node in known.order),
    # r[impl kernel.warp.whole+2]
    Trace.EXCHANGE: lambda known: any(exchanged(node) for node in known.order),
    Trace.LANES: lambda known: known.info.lanes > 1,
    Trace.THREADS: lambda known: known.info.threads > 1,
    Trace.EARLY: lambda known: any(isinstance(s.arg, Early) for s in known.ast.src)}


@dataclass(frozen=True)
class Declaration:
    """What a step does and why, for which loops, and after which steps not.

    `does` speaks of its numbers by their names; n is the amount. `only` says in words what
    else `Step.changed` looks at. `instead` says what does the same on a device without
    work-groups, for a step that needs them. `asked` is whether it has to be asked for by name.
    """

    does: str
    why: str
    loops: tuple[RangeKind, ...]
    amount: Amount | None = None
    only: str = ""
    not_after: tuple[Trace, ...] = ()
    counted: Counting = Counting.ITERATIONS
    instead: str = ""
    asked: bool = False

    @property
    def legal(self) -> str:
        """For what the step is legal, as the table says it."""
        # r[impl steps.declaration.single]
        kinds = [kind for kind in self.loops if kind not in LANES]
        output = kinds[:2] == [RangeKind.GLOBAL, RangeKind.LOOP]
        named = ["an output loop"] * output + [_LOOPS[kind] for kind in kinds[2 * output:]]
        parts = [" or ".join(named) or "a lane", str(self.amount or ""), self.only]
        if self.not_after:
            parts.append("not after " + " or ".join(each.left_by for each in self.not_after))
        if self.asked:
            parts.append("has to be asked for")
        return "; ".join(part for part in parts if part)


_LOOPS = {RangeKind.GLOBAL: "a loop of the prefix", RangeKind.LOOP: "a loop of a stage",
          RangeKind.REDUCE: "the loop of a reduction", RangeKind.BLOCK: "a BLOCK loop"}


__all__ = ["Amount", "Counting", "Declaration", "StepError", "Trace"]
