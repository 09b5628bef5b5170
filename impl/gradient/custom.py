"""Values with a gradient of their own. Chapter: spec/gradient.md."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from impl.errors import GraphError
from impl.ir import Ops, UOp, note_reads


@dataclass(frozen=True, eq=False)
class Custom:
    """What is said of a value's gradient, in place of what its operations say.

    `pull` takes the gradient of the value and gives one for each of the `inputs`, or None for one
    that has none. It is linear, and may be called often.
    """

    inputs: tuple[UOp, ...]
    pull: Callable[[UOp], Sequence[UOp | None]]


@dataclass(frozen=True, eq=False)
class Ruled(Custom):
    """What a rule says, of the inputs alone: so it can be said of others in their places, too."""

    rule: Callable[[UOp, tuple[UOp, ...]], Sequence[UOp | None]]


def ruled(inputs: tuple[UOp, ...],
          rule: Callable[[UOp, tuple[UOp, ...]], Sequence[UOp | None]]) -> Ruled:
    """A gradient that `rule` makes of that of the value and of the inputs, and of nothing else."""
    return Ruled(inputs, lambda gradient: rule(gradient, inputs), rule)


@dataclass(frozen=True, eq=False)
class Lost(Custom):
    """What is said where nothing is known of the gradient: `pull` raises `error`.

    With `others` it is not even known of what else the value may depend.
    """

    error: GraphError
    others: bool


def lost(inputs: tuple[UOp, ...], error: GraphError, others: bool) -> Lost:
    """A gradient of which nothing is known but that the value depends on the inputs."""
    def pull(gradient: UOp) -> list[UOp | None]:
        raise error
    return Lost(inputs, pull, error, others)


def with_gradient(value: UOp, custom: Custom) -> UOp:
    """The same value, with a gradient of its own."""
    # A tag is no part of what a plan is made of: equal values have one plan.
    made = UOp(Ops.DETACH, value.dtype, (value,), None, custom)
    for each in custom.inputs if made.reads else ():  # it stands for them, too
        note_reads(made, made.reads | each.reads)
    return made
