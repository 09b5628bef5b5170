"""Lanes: iterations that stand side by side, and become loops again. Chapter: spec/steps.md."""
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from impl import symbolic
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import LANES, Analysis, Key, accessed, stage_of
from impl.steps.declaration import Amount, Declaration, Trace
from impl.steps.rewriting import Rewriter
from impl.steps.step import Step, StepError, with_stores


@dataclass(frozen=True)
class Upcast(Step):
    """Cut `amount` iterations off an output loop: they become lanes, inside of all reductions.

    Legal for a loop of the prefix or of a stage with a fixed extent of at least `amount`. The
    prefix is one for all stages, so there the extent has to be a multiple of `amount`; the
    buffers between stages gain a dimension. A stage's loop may leave a rest: it is stored by a
    second STORE.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="n iterations of an output loop become *lanes*, inside of all reductions",
        why="a register for each lane: what is loaded serves all of them",
        loops=(RangeKind.GLOBAL, RangeKind.LOOP),
        amount=Amount(),
        only="in the prefix n divides the extent")

    amount: int
    #: Whether the new dimension of the buffers is their last one.
    abreast: ClassVar[bool] = False

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Any order of output iterations is legal."""
        # r[impl steps.value.equal]
        size = self.size_of(loop)
        whole, rest = divmod(size, self.amount)
        in_prefix = loop in known.info.prefix
        if in_prefix and rest:
            raise StepError(self.name, f"{size} prefix iterations are no multiple of "
                            f"{self.amount}", "choose a divisor, or make the loop the stage's OWN")
        inner = new_range(self.amount, RangeKind.UPCAST)
        outer = (new_range(whole, loop.arg[1]),) if whole > 1 else ()
        place = symbolic.add(symbolic.mul(outer[0], self.amount), inner) if outer else inner
        main = Rewriter(known, {loop: place}, {loop: outer})
        main.inner = inner
        if in_prefix:
            main.private, main.abreast = (inner, self.amount), self.abreast
            prefix = tuple(new for old in known.info.prefix
                           for new in (outer if old is loop else (old,)))
            moved = [main.store(store, True) for store in known.ast.src]
            return with_stores(known, moved, self.name, prefix)
        parts = [main]
        if rest:
            if is_carried(known, loop):  # r[impl kernel.local.own]
                raise StepError(self.name, "what is left of a LOCAL that turns carry on would be "
                                "stored by itself", "choose a divisor of the extent")
            left = new_range(rest, RangeKind.LOOP)
            parts.append(Rewriter(known, {loop: symbolic.add(left, whole * self.amount)},
                                  {loop: (left,)}))
        stores: list[UOp] = []
        for run in _runs(known, loop):
            if loop in run[0].src[2:]:
                stores += [part.store(store, part is main) for part in parts for store in run]
            else:
                stores += run
        return with_stores(known, stores, self.name)


def is_carried(known: Analysis, loop: UOp) -> bool:
    """Whether a stage of the loop reads what it stored in the turn before: two stores in its place
    would store a LOCAL again after it was read.
    """
    return any(loop in store.src[2:] and store.src[0].src[0].op is Ops.LOCAL and any(
        node.op is Ops.LOAD and node.src[0].src[0] is store.src[0].src[0]
        and node.src[0] is not store.src[0] for node in store.src[1].toposort())
        for store in known.ast.src)


@dataclass(frozen=True)
class Abreast(Upcast):
    """UPCAST for a loop of the prefix; in buffers between stages its lanes lie side by side.

    So the lane can be a vector in all stages: one of several rows, and not of a part of one. Not
    legal after TC: a unit for matrices reads neighbours of a row at once.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="UPCAST, with the lanes side by side in buffers between stages",
        why="a vector has an element of each of several short rows",
        loops=(RangeKind.GLOBAL,),
        amount=Amount(divides=True),
        not_after=(Trace.UNIT,))

    abreast: ClassVar[bool] = True

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Where elements of a private buffer lie is no part of a value."""
        return super().changed(known, loop)


def _runs(known: Analysis, loop: UOp) -> list[list[UOp]]:
    """The stores in order; neighbours that share a loop nest and need nothing of each other."""
    runs: list[list[UOp]] = []
    read, written = set[Key](), set[Key]()  # by the last run
    for store in known.ast.src:
        loads = {accessed(n) for n in stage_of(store).loads} \
            if loop in store.src[2:] else set()
        target = accessed(store)
        alone = loads & {*written, target} or target in read | written
        if runs and runs[-1][-1].src[2:] == store.src[2:] and not alone:
            runs[-1].append(store)
        else:
            runs.append([store])
            read, written = set(), set()
        read |= loads
        written.add(target)
    return runs


@dataclass(frozen=True)
class Roll(Step):
    """Make a lane a loop in the stages that reduce nothing along it.

    Legal for a lane that some stage has and reduces nothing along. A unit for matrices needs the
    lanes of its fragments.
    """

    declared: ClassVar[Declaration] = Declaration(
        does="a lane becomes a loop again in stages that reduce nothing along it",
        why="the stage needs no tile",
        loops=(RangeKind.UPCAST,),
        only="some stage has such a lane, and no unit computes along it")

    def changed(self, known: Analysis, loop: UOp) -> UOp:
        """Any order of output iterations is legal."""
        # r[impl steps.value.equal]
        found = rollable(known, loop)
        if not found:
            raise StepError(self.name, "every stage with this lane reduces along it",
                            "name a lane of a stage that does not")
        turn = new_range(self.size_of(loop), RangeKind.LOOP)
        rewriter = Rewriter(known, {loop: turn}, {loop: ()})
        stores = []
        for store in known.ast.src:
            if store in found:
                done = rewriter.store(store, False)
                loops = list(done.src[2:])
                place = next((i for i, each in enumerate(loops)
                              if each.arg[1] in (RangeKind.LOOP, *LANES)), len(loops))
                store = done.replace(src=(*done.src[:2], *loops[:place], turn, *loops[place:]))
            stores.append(store)
        return with_stores(known, stores, self.name)


def rollable(known: Analysis, lane: UOp) -> list[UOp]:
    """The stores in the lane with nothing that is reduced along it, nor computed by a unit."""
    bit = known.mask((lane,))
    return [store for store in known.ast.src if lane in store.src[2:] and not any(
        known.free[node] & bit if node.op is Ops.REDUCE else lane in node.src
        for node in stage_of(store).reductions)]
