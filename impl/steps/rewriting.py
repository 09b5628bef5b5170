"""Kernels with other loops: expressions and reductions written anew. Chapter: spec/steps.md."""
from __future__ import annotations

from collections.abc import Iterable

from impl import symbolic
from impl.dtypes import DType, sum_accumulator
from impl.ir import TRUE, Ops, UOp
from impl.kernel.analysis import Analysis, stage_of
from impl.steps.step import StepError

#: Bytes of a line of memory, and lines of a long row.
_LINE, _LONG = 64, 4


def passes(known: Analysis) -> bool:
    """Whether memory passes between stages: it is private to one iteration of the prefix."""
    return any(key[0] is Ops.LOCAL for key in known.stored) or (
        len(known.ast.src) > 1 and known.reads_stored(known.order))


def refuse_passed(name: str, known: Analysis) -> None:
    """A loop of the prefix stays there if stages of an iteration need each other's results."""
    if passes(known):
        raise StepError(name, "memory passes between the stages", "leave the loop there")


class Rewriter:
    """Puts expressions in the place of loops, and other loops into the lists of stores and of
    reductions.

    `places` says what each loop is now, `loops` which loops stand where it stood: of a loop that
    becomes two, outer * size + inner, and (outer, inner).
    """

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
        if node.op is Ops.REDUCE:
            kept = [new for old in node.src[1:] for new in self.loops.get(old, (old,))]
            return node.replace(src=(self.done[node.src[0]], *kept))
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
    # r[impl steps.lanes.lines+2]
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


def element_of(buffer: UOp, index: UOp) -> UOp:
    return UOp(Ops.INDEX, buffer.dtype, (buffer, index, TRUE))
