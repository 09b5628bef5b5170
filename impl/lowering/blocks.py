"""What lowering makes of a kernel: blocks of items, in the order in which they are done.

Chapter: spec/lowering.md. `lower` builds them; `groups` and `phases` add where lanes and threads
wait for each other; the printer writes a line or two for each item.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from impl.ir import UOp


@dataclass(eq=False)
class Block:
    """The body of a loop: what happens in it, in order. `loop` is None for the whole kernel, and
    for what is done in one phase only.
    """

    parent: Block | None
    loop: UOp | None
    own: int = 0                    # the loop as a bit mask
    around: int = 0                 # all loops around the block, its own too
    items: list[Item] = field(default_factory=list)
    ready: dict[UOp, int] = field(default_factory=dict)  # values placed here, with their epoch
    scope: frozenset[UOp] = frozenset()  # REDUCEs that may be merged into a loop in this block
    phase: int = -1                 # number of the phase, where there are several
    alone: bool = False             # one lane of a group does it


@dataclass(frozen=True, eq=False)
class Define:
    """Compute a value."""

    node: UOp


@dataclass(frozen=True, eq=False)
class Loop:
    """Run a block for every value of its loop variable."""

    block: Block


@dataclass(frozen=True, eq=False)
class Begin:
    """Set the accumulators of reductions."""

    nodes: tuple[UOp, ...]


@dataclass(frozen=True, eq=False)
class Accumulate:
    """Combine one element with the accumulators of reductions."""

    nodes: tuple[UOp, ...]


@dataclass(frozen=True, eq=False)
class Finish:
    """The accumulators are complete: the reductions have their values."""

    nodes: tuple[UOp, ...]


@dataclass(frozen=True, eq=False)
class Write:
    """Store a value."""

    store: UOp


@dataclass(frozen=True, eq=False)
class Prefetch:
    """Ask for the memory that a store will write."""

    store: UOp


@dataclass(frozen=True, eq=False)
class Skip:
    """Unless a condition is true, an iteration has nothing to do."""

    condition: UOp


@dataclass(frozen=True, eq=False)
class Leave:
    """The last thing that is done in a phase was before this."""

    phase: int


@dataclass(frozen=True, eq=False)
class Wait:
    """The lanes of a group wait for each other: what was stored is there for all of them.

    Before that each waits for the copies that it has begun early: all but the last `open` bundles.
    """

    open: int | None = None


@dataclass(frozen=True, eq=False)
class Bundle:
    """The copies that were begun early since the last bundle are one, to be waited for at once."""


Item = Define | Loop | Begin | Accumulate | Finish | Write | Prefetch | Skip | Leave | Wait | Bundle
