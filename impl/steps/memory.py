"""On which way values go to memory, and when memory is asked for them. Chapter: spec/steps.md."""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import (
    LANES,
    Analysis,
    Way,
    accessed,
    loaded,
    next_loads,
    stage_of,
)
from impl.steps.declaration import Declaration
from impl.steps.step import Step, StepError, with_stores


@dataclass(frozen=True)
class Stream(Step):
    """Stores along a loop go past the caches, where the device can do that.

    Legal for stores to memory that the kernel does not read and that do not go there yet.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="stores along a loop go past the caches",
        why="more than the caches hold",
        loops=(RangeKind.GLOBAL, RangeKind.LOOP, *LANES),
        only="the kernel does not read what is stored, and some of it goes by the caches")

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Where a value waits on its way to memory is no part of it."""
        # r[impl steps.value.equal]
        read = loaded(known.order)
        found = [store for store in known.ast.src
                 if loop in store.src[2:] or known.free[store.src[0]] & known.mask((loop,))]
        if not found or any(store.src[0].src[0].op is not Ops.PARAM
                            or accessed(store) in read for store in found):
            raise StepError(self.name, "the kernel reads what is stored along it",
                            "name a loop of outputs")
        if all(store.arg is Way.PAST for store in found):
            raise StepError(self.name, "all that is stored along it goes past the caches already",
                            "leave the step out")
        return with_stores(known, [store.replace(arg=Way.PAST) if store in found else store
                                   for store in known.ast.src], self.name)


@dataclass(frozen=True)
class Next(Step):
    """Ask for what a stage will read in the next iteration of the loop around it: the BLOCK loop
    that it has for itself, or else the last loop of the prefix.

    Legal for a loop of a stage, or of a reduction in it, that reads an argument which goes on
    evenly along the loop around it, if no other step has decided where its results go.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="memory is asked for what a stage will read in the next iteration of the loop around "
             "it",
        why="the next row is on its way while this one is computed",
        loops=(RangeKind.LOOP, RangeKind.REDUCE),
        only="it reads an argument that goes on with the loop around the stage")

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """When memory comes to a cache is no part of a value."""
        # r[impl steps.value.equal]
        ahead = next_loads(known)
        found = [store for store in known.ast.src if store.arg is None
                 and loop in stage_of(store).ranges
                 and any(load in ahead for load in stage_of(store).loads)]
        if not found:
            raise StepError(self.name, "no stage reads along it what goes on in the next iteration",
                            "name a loop of a stage that reads an argument along that loop")
        return with_stores(known, [store.replace(arg=Way.NEXT) if store in found else store
                                   for store in known.ast.src], self.name)


@dataclass(frozen=True)
class Fetch(Step):
    """Ask for the memory where a value will be stored, before it is computed.

    Then it is in a cache by the time the value is there. Legal for a loop of a reduction whose
    result goes to an argument, and for a lane along which a stage stores to one, if no other step
    has decided on the way.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="memory is asked for before what will be stored there is computed",
        why="outputs are fetched while they are computed",
        loops=(RangeKind.REDUCE, *LANES),
        only="a stage stores to an argument what is reduced over it, or along it")

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """When memory comes to a cache is no part of a value."""
        # r[impl steps.value.equal]
        of = 1 if loop.arg[1] is RangeKind.REDUCE else 0
        found = [store for store in known.ast.src if store.arg is None
                 and store.src[0].src[0].op is Ops.PARAM and loop in store.src[of].toposort()]
        if not found:
            raise StepError(self.name, "no stage stores to an argument what is reduced over it, or "
                            "along it", "name a loop of a result that is stored")
        return with_stores(known, [store.replace(arg=Way.AHEAD) if store in found else store
                                   for store in known.ast.src], self.name)
