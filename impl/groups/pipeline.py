"""The step PIPELINE: copies for later iterations are under way. Chapter: spec/groups.md.

A stage that copies a part of an operand to a LOCAL, and the stage that multiplies it, take turns:
each waits for the other. With several copies, the one for a later part is made while the part at
hand is multiplied.
"""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.blocking.pack import gated, with_places
from impl.dtypes import dtypes
from impl.ir import TRUE, Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, Early, Key, accessed, loaded, shared_loops
from impl.steps.declaration import Declaration, Trace
from impl.steps.step import Step, StepError, with_stores

#: More copies than this do not make a lane wait less.
MOST_COPIES = 8
#: A copy begins where the widest access may.
_LINE_BYTES = 16


@dataclass(frozen=True)
class Pipeline(Step):
    """Make the copies of a BLOCK loop `amount - 1` iterations early, each to a buffer of its own.

    A copy is a stage that stores a LOCAL, always the same elements of it, from what no stage
    stores, for later stages of the loop and no others. The LOCAL becomes a ring of `amount` copies.
    Those for the first iterations are made before the loop. Legal for a loop of at least `amount`
    iterations that has a copy, once in a kernel.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="the copies of a BLOCK loop are made n - 1 iterations early, each to a place of "
             "its own",
        why="memory is read while a part is multiplied",
        loops=(RangeKind.BLOCK,),
        only="n is at most the extent; a stage of the loop copies what no stage stores",
        not_after=(Trace.EARLY,),
        instead="PACK: a processor fetches ahead by itself")

    amount: int

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """When a copy is made is no part of a value, if nobody stores what it reads."""
        # r[impl steps.value.equal, groups.pipeline.legal]
        size = self.size_of(loop)
        if not 2 <= self.amount <= min(size, MOST_COPIES):
            raise StepError(self.name, f"{self.amount} copies for {size} iterations",
                            f"ask for 2 to as many, and at most {MOST_COPIES}")
        copies = _copies(known, loop)
        if not copies:
            raise StepError(self.name, "no stage of the loop copies what no stage stores",
                            "take PACK or TC first")
        ring = _Ring(loop, self.amount, {copy.src[0].src[0] for copy in copies})
        stores = [ring.made(store) if store in copies else ring.read(store)
                  for store in known.ast.src]
        start = next(i for i, store in enumerate(known.ast.src) if loop in store.src[2:])
        stores[start:start] = [ring.first(copy) for copy in copies]
        return with_stores(known, stores, self.name)


def _copies(known: Analysis, loop: UOp) -> list[UOp]:
    """The stages of a BLOCK loop that may be run early."""
    # r[impl groups.pipeline.legal]
    found = []
    for place, store in enumerate(known.ast.src):
        buffer, index, valid = store.src[0].src
        if shared_loops(store)[-1:] != (loop,) or buffer.op is not Ops.LOCAL:
            continue
        own = known.mask(r for r in store.src[2:] if r.arg[1] is not RangeKind.BLOCK)
        always = valid is TRUE and not known.free[index] & ~own
        reads_stored = known.reads_stored(store.src[1].toposort())
        if always and not reads_stored and _serves(known, accessed(store), place, loop):
            found.append(store)
    return found


def _serves(known: Analysis, key: Key, place: int, loop: UOp) -> bool:
    """Whether what one stage stores is needed by later stages of the loop, and by no others."""
    for number, store in enumerate(known.ast.src):
        stored = accessed(store) == key
        read = key in loaded(store.toposort())
        if stored and number != place or read and (number < place or loop not in store.src[2:]):
            return False
    return True


class _Ring:
    """LOCALs with so many copies: iteration i of the loop has number i mod `amount`."""

    def __init__(self, loop: UOp, amount: int, buffers: Collection[UOp]) -> None:
        self.loop, self.amount, self.buffers = loop, amount, buffers
        #: Counts the iterations whose copies are made before the loop.
        self.before = new_range(amount - 1, RangeKind.BLOCK) if amount > 2 else \
            UOp.const(dtypes.index, 0)

    def _place(self, index: UOp, place: UOp, iteration: symbolic.Index, valid: UOp) -> UOp:
        """An element of the copy of an iteration."""
        buffer = index.src[0]
        line = _LINE_BYTES // buffer.dtype.itemsize
        size = -(-buffer.arg[1] // line) * line
        ring = buffer.replace(arg=(buffer.arg[0], size * self.amount))
        number = symbolic.mul(symbolic.mod(iteration, self.amount), size)
        return index.replace(src=(ring, symbolic.add(place, number), valid))

    def _copy(self, copy: UOp, iteration: UOp, valid: UOp) -> tuple[UOp, UOp]:
        """Where the copy for an iteration is stored, and what; where it is not `valid`, nothing."""
        value = symbolic.rebuild(copy.src[1], {self.loop: iteration})
        return (self._place(copy.src[0], copy.src[0].src[1], iteration, valid),
                gated(value, valid))

    def first(self, copy: UOp) -> UOp:
        """The stage that makes the copies for the first iterations."""
        ahead, shared = self.amount - 1, shared_loops(copy)
        around = (*shared[:-1], self.before) if ahead > 1 else shared[:-1]
        return copy.replace(src=(*self._copy(copy, self.before, TRUE), *around,
                                 *copy.src[2 + len(shared):]), arg=Early(ahead))

    def made(self, copy: UOp) -> UOp:
        """The stage that makes the copy for an iteration to come, if there is one."""
        iteration = symbolic.add(self.loop, self.amount - 1)
        valid = symbolic.less_than(iteration, self.loop.src[0])
        return copy.replace(src=(*self._copy(copy, iteration, valid), *copy.src[2:]),
                            arg=Early(self.amount - 1))

    def read(self, store: UOp) -> UOp:
        """A stage that reads the copy of the iteration at hand."""
        return with_places(store, lambda n: self._place(n, n.src[1], self.loop, n.src[2])
                           if n.src[0] in self.buffers else n)


#: Copies of a part that are worth a try, on a device that copies by itself: the most first.
COPIES = (3, 2)


def early_copies(known: Analysis, amount: int) -> tuple[Pipeline, str]:
    """The step for the only BLOCK loop of a kernel, and the reason for it."""
    axis = next((place for place, loop in enumerate(known.ranges)
                 if loop.arg[1] is RangeKind.BLOCK), -1)
    return (Pipeline(axis, amount),
            f"{amount - 1} parts are copied while one is multiplied")


__all__ = ["COPIES", "Pipeline", "early_copies"]
