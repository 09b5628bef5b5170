"""Optimisation steps: named changes of a kernel's loops. Chapter: spec/kernel.md.

A step takes a kernel and gives a kernel with the same values. It names the loop it works on by its
position in `Analysis.ranges`, says when it is legal, and raises `StepError` otherwise.
"""
from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from impl import symbolic
from impl.dtypes import DType, sum_accumulator
from impl.errors import GraphError
from impl.ir import Ops, RangeKind, UOp, new_range
from impl.kernel.analysis import Analysis, Key, accessed, exchanged, shared_loops, stage_of

#: Bytes of a line of memory, and lines of a long row.
_LINE, _LONG = 64, 4


class StepError(GraphError):
    """A step is not legal for a kernel."""


#: How each step is made from the numbers that are written behind its name.
STEPS: dict[str, Callable[..., Step]] = {}
#: Steps that need a device with work-groups, and what does the same without them.
OF_LANES = {"LOCAL": "UPCAST for lanes, THREAD for processors",
            "GRID": "THREAD for a stage, GROUPTOP for a reduction",
            "INNER": "OWN, or UPCAST",
            "SPREAD": "PACK: caches have no banks to mind",
            "PIPELINE": "PACK: a processor fetches ahead by itself",
            "TC": "UPCAST both loops of the output, and GROUP or UNROLL the sum",
            "WARP": "GROUP, or LOCAL on a device without warps"}
#: Steps that round elsewhere than the kernel as it was written: nobody takes them unasked.
ASKED_FOR = ("ONLINE",)
#: Names that nothing here stands behind, and what does the same.
OF_GROUPS = {"NOLOCALS": "a list of steps without LOCAL"}


def parameters(name: str) -> tuple[str, ...]:
    """What the numbers of a step are called, in the order in which they are written."""
    given = inspect.signature(STEPS[name]).parameters.values()
    return tuple(each.name for each in given if each.kind is not each.KEYWORD_ONLY)


@dataclass(frozen=True)
class Step:
    """One change. `axis` is a position in `Analysis.ranges`."""

    axis: int

    def __init_subclass__(cls) -> None:
        """Whoever parses, draws or searches steps knows all classes, the newest one too."""
        STEPS[cls.__name__.upper()] = cls

    @staticmethod
    def parse(text: str) -> Step:
        """The step that is written like this: UPCAST(1,16).

        Raises:
            StepError: there is no such step, or its numbers are not as many as they should be.
        """
        # r[impl kernel.step.parsed]
        found = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
        if found is not None and found[1].upper() in OF_GROUPS:  # r[impl searching.asked.device+2]
            raise StepError(text, "is no step of any device here",
                            f"use {OF_GROUPS[found[1].upper()]}")
        if found is None or found[1].upper() not in STEPS:
            raise StepError(text, "is not a step", "write one of " + ", ".join(
                f"{name}({','.join(parameters(name))})" for name in sorted(STEPS)))
        name = found[1].upper()
        try:
            numbers = [int(each) for each in (found[2] or "").split(",") if found[2]]
            inspect.signature(STEPS[name]).bind(*numbers)
        except (TypeError, ValueError):
            raise StepError(text, f"{name} does not take these numbers", "write "
                            f"{name}({','.join(parameters(name))})") from None
        return STEPS[name](*numbers)

    @property
    def name(self) -> str:
        """How the step is written: UPCAST(1,16)."""
        given = ",".join(str(value) for value in vars(self).values())
        return f"{type(self).__name__.upper()}({given})"

    def apply(self, known: Analysis) -> UOp:
        """The kernel after the step.

        Raises:
            StepError: the step is not legal here.
        """
        raise NotImplementedError

    def _loop(self, known: Analysis, kinds: Sequence[RangeKind], axis: int | None = None) -> UOp:
        """The loop that the step works on: number `axis`, else its own."""
        # r[impl kernel.step.refused]
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


@dataclass(frozen=True)
class Upcast(Step):
    """Cut `amount` iterations off an output loop: they become lanes, inside of all reductions.

    Legal for a loop of the prefix or of a stage with a fixed extent of at least `amount`. The
    prefix is one for all stages, so there the extent has to be a multiple of `amount`; the
    buffers between stages gain a dimension. A stage's loop may leave a rest: it is stored by a
    second STORE.
    """

    amount: int
    #: Whether the new dimension of the buffers is their last one.
    abreast: ClassVar[bool] = False

    def apply(self, known: Analysis) -> UOp:
        """Any order of output iterations is legal."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.GLOBAL, RangeKind.LOOP))
        size = self.size_of(loop)
        if not 1 < self.amount <= size:
            raise StepError(self.name, f"the loop has {size} iterations", "ask for 2 to that many")
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


@dataclass(frozen=True)
class Abreast(Upcast):
    """UPCAST for a loop of the prefix; in buffers between stages its lanes lie side by side.

    So the lane can be a vector in all stages: one of several rows, and not of a part of one. Not
    legal after TC: a unit for matrices reads neighbours of a row at once.
    """

    abreast: ClassVar[bool] = True

    def apply(self, known: Analysis) -> UOp:
        """Where elements of a private buffer lie is no part of a value."""
        # r[impl kernel.step.refused]
        self._loop(known, (RangeKind.GLOBAL,))
        if any(node.op is Ops.MMA for node in known.order):
            raise StepError(self.name, "a unit reads neighbours of a row", "use UPCAST")
        return super().apply(known)


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
class Split(Step):
    """Give a reduction `amount` accumulators, combined at the end; `grouped` 0: only unroll it.

    Legal for a reduction's loop with a fixed extent of at least `amount`. Grouping combines the
    elements of a float sum in another order, which r[conventions.reassociation.reduction] allows.
    A rest is reduced apart and combined last.
    """

    amount: int
    grouped: int = 1

    @property
    def name(self) -> str:
        """GROUP if partial results stand side by side, UNROLL if not."""
        return f"{'GROUP' if self.grouped else 'UNROLL'}({self.axis},{self.amount})"

    def apply(self, known: Analysis) -> UOp:
        """Every element is combined once."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.REDUCE,))
        size = self.size_of(loop)
        if not 1 < self.amount <= size:
            raise StepError(self.name, f"the loop has {size} iterations", "ask for 2 to that many")
        whole, rest = divmod(size, self.amount)
        inner = new_range(self.amount, RangeKind.UNROLL)
        outer = (new_range(whole, RangeKind.REDUCE),) if whole > 1 else ()
        place = symbolic.add(symbolic.mul(outer[0], self.amount), inner) if outer else inner
        rewriter = Reducer(known, loop, place, outer, inner, bool(self.grouped))
        if rest:
            left = new_range(rest, RangeKind.REDUCE)
            rewriter.rest = (symbolic.add(left, whole * self.amount), left)
        stores = [rewriter.value(store) if loop in stage_of(store).ranges else store
                  for store in known.ast.src]
        return with_stores(known, stores, self.name)


del STEPS["SPLIT"]  # it is written as one of two steps
STEPS["GROUP"], STEPS["UNROLL"] = partial(Split, grouped=1), partial(Split, grouped=0)


@dataclass(frozen=True)
class Swap(Step):
    """Exchange two loops of the prefix, or two loops of the stages that have both.

    Legal for output loops of one kind; if one extent depends on nothing but variables, as here,
    their order is free.
    """

    other: int

    def apply(self, known: Analysis) -> UOp:
        """Any order of output iterations is legal."""
        # r[impl kernel.step.equal+2]
        one = self._loop(known, (RangeKind.GLOBAL, RangeKind.LOOP))
        two = self._loop(known, (one.arg[1],), self.other)
        exchange = {one: two, two: one}
        info = known.info
        if one in info.prefix and two in info.prefix:
            prefix = tuple(exchange.get(loop, loop) for loop in info.prefix)
            return with_stores(known, known.ast.src, self.name, prefix)
        found = [store for store in known.ast.src if one in store.src and two in store.src]
        if not found:
            raise StepError(self.name, "no stage has both loops", "name two loops of one stage")
        stores = [store.replace(src=tuple(exchange.get(s, s) for s in store.src))
                  if store in found else store for store in known.ast.src]
        return with_stores(known, stores, self.name)


@dataclass(frozen=True)
class Own(Step):
    """Make the last loop of the prefix a loop of the stages, the outermost of each.

    Legal if no memory passes between stages: it is private to one iteration of the prefix.
    """

    def apply(self, known: Analysis) -> UOp:
        """Nothing private is shared by the stages."""
        # r[impl kernel.step.equal+2]
        loop = self._loop(known, (RangeKind.GLOBAL,))
        if not known.info.prefix or loop is not known.info.prefix[-1]:
            raise StepError(self.name, "it is not the last loop of the prefix", "name that one")
        refuse_exchanged(self.name, known)
        refuse_passed(self.name, known)
        own = UOp(Ops.RANGE, loop.dtype, loop.src, (loop.arg[0], RangeKind.LOOP))
        rewriter = Rewriter(known, {loop: own}, {loop: (own,)})
        stores = []
        for store in known.ast.src:
            done = rewriter.store(store, False)
            place = 2 + len(shared_loops(done))
            stores.append(done.replace(src=(*done.src[:place], own, *done.src[place:])))
        return with_stores(known, stores, self.name, known.info.prefix[:-1])


def passes(known: Analysis) -> bool:
    """Whether memory passes between stages: it is private to one iteration of the prefix."""
    return any(key[0] is Ops.LOCAL for key in known.stored) or (
        len(known.ast.src) > 1 and known.reads_stored(known.order))


def refuse_passed(name: str, known: Analysis) -> None:
    """A loop of the prefix stays there if stages of an iteration need each other's results."""
    if passes(known):
        raise StepError(name, "memory passes between the stages", "leave the loop there")


def refuse_exchanged(name: str, known: Analysis) -> None:
    """A reduction among lanes stays outside of the loops of a stage: all lanes come by there."""
    # r[impl kernel.warp.whole+2]
    if any(exchanged(node) for node in known.order):
        raise StepError(name, "lanes exchange values for a reduction", "name this step before WARP")


def with_stores(known: Analysis, stores: Sequence[UOp], name: str,
                prefix: tuple[UOp, ...] | None = None) -> UOp:
    """The kernel with other stores, and the step's name noted."""
    # r[impl kernel.step.recorded]
    info = known.info
    changed = replace(info, prefix=info.prefix if prefix is None else prefix,
                      steps=(*info.steps, name))
    return UOp(Ops.SINK, known.ast.dtype, tuple(stores), changed)


class Rewriter:
    """Puts expressions in the place of loops, and new loops into the stores and reductions."""

    def __init__(self, known: Analysis, places: dict[UOp, UOp],
                 loops: dict[UOp, tuple[UOp, ...]]) -> None:
        self.known, self.loops = known, loops
        self.places, self.done = places.keys(), dict(places)
        self.touched = known.mask(places)
        self.inner: UOp | None = None
        self.private: tuple[UOp, int] | None = None  # the lane that stage buffers gain
        self.abreast = False  # whether the elements of the lane are neighbours in them

    def value(self, root: UOp) -> UOp:
        """The rewritten graph below a node."""
        done = self.done
        if root in done:
            return done[root]
        for node in root.toposort(lambda u: u not in done):
            if node not in done:
                done[node] = self._node(node)
        return done[root]

    def _node(self, node: UOp) -> UOp:
        if node.op is Ops.LOCAL and self.private:
            size = node.arg[1] if self.abreast else _pitch(node)
            return node.replace(arg=(node.arg[0], size * self.private[1]))
        sources = {s: self.done[s] for s in node.src}
        if node.op is Ops.INDEX and node.src[0].op is Ops.LOCAL and self.private:
            buffer, index, valid = (sources[s] for s in node.src)
            lane, amount = self.private
            moved = symbolic.add(symbolic.mul(index, amount), lane) if self.abreast else \
                symbolic.add(index, symbolic.mul(lane, _pitch(node.src[0])))
            return node.replace(src=(buffer, moved, valid))
        return symbolic.rebuilt(node, sources)

    def store(self, store: UOp, lane: bool) -> UOp:
        """A store with its loops replaced, and the new lane if it gets one."""
        added = self.private or lane and self.inner is not None
        if not added and self.places.isdisjoint(stage_of(store).ranges):
            return store
        loops = [new for old in store.src[2:] for new in self.loops.get(old, (old,))]
        if lane and self.inner is not None:
            loops.append(self.inner)
        return store.replace(src=(self.value(store.src[0]), self.value(store.src[1]), *loops))


def _pitch(buffer: UOp) -> int:
    """How far the rows of lanes lie apart in a LOCAL: long ones begin where lines of memory do."""
    # r[impl kernel.lane.lines]
    size, line = int(buffer.arg[1]), _LINE // buffer.dtype.itemsize
    return -(-size // line) * line if size >= _LONG * line else size


class Reducer:
    """Rewrites the reductions over one loop; `main` and `rest` are the two parts of its range."""

    def __init__(self, known: Analysis, loop: UOp, place: UOp, outer: tuple[UOp, ...], inner: UOp,
                 grouped: bool) -> None:
        self.known, self.loop, self.outer, self.inner = known, loop, outer, inner
        self.grouped = grouped
        self.main: dict[UOp, UOp] = {loop: place}
        self.left: dict[UOp, UOp] = {}
        self.rest: tuple[UOp, UOp] | None = None

    def value(self, root: UOp) -> UOp:
        """The rewritten graph below a node."""
        if self.rest is not None:
            self.left.setdefault(self.loop, self.rest[0])
        parts = [self.main, self.left] if self.rest is not None else [self.main]
        for node in root.toposort(lambda u: u not in self.main):
            if node in self.main:
                continue
            if node.op is Ops.REDUCE and self.loop in node.src[1:]:
                found = self._reduction(node)
                for part in parts:
                    part[node] = found
                continue
            for part in parts:
                part[node] = self._node(node, part)
        return self.main[root]

    def _node(self, node: UOp, part: dict[UOp, UOp]) -> UOp:
        return symbolic.rebuilt(node, part)

    def _reduction(self, node: UOp) -> UOp:
        """The reduction over the whole blocks, lane by lane, combined with that of the rest."""
        kept = node.src[1:]
        blocks = tuple(new for old in kept for new in (self.outer if old is self.loop else (old,)))
        dtype = sum_accumulator(node.dtype)
        value = _as(self.main[node.src[0]], dtype)
        if self.grouped:
            found = self._combined(node.arg, value, blocks)
        else:
            place = kept.index(self.loop) + len(self.outer)
            found = reduce(node.arg, value, (*blocks[:place], self.inner, *blocks[place:]))
        if self.rest is not None:
            loops = tuple(self.rest[1] if loop is self.loop else loop for loop in kept)
            last = reduce(node.arg, _as(self.left[node.src[0]], dtype), loops)
            found = UOp(node.arg, dtype, (found, last))
        return _as(found, node.dtype)

    def _combined(self, op: Ops, value: UOp, loops: tuple[UOp, ...]) -> UOp:
        """One result for each accumulator, and then their combination."""
        return reduce(op, reduce(op, value, loops), (self.inner,))


def _as(value: UOp, dtype: DType) -> UOp:
    """The value as another type: half types are accumulated in float32 and rounded once."""
    return value if value.dtype is dtype else UOp(Ops.CAST, dtype, (value,))


def reduce(op: Ops, value: UOp, loops: Iterable[UOp]) -> UOp:
    given = tuple(loops)
    return UOp(Ops.REDUCE, value.dtype, (value, *given), op) if given else value


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
