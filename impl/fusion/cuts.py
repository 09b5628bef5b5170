"""Which values get a loop nest of their own. Chapter: spec/fusion.md.

Needs: the values that are asked for, and all nodes below them, sources first.
Guarantees: each value that is asked for is stored, or is a reshape of one that is; everything else
that is stored has a reason too; and no stage has more inputs than a kernel may have.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from impl.effects import leaf_of
from impl.fusion.limits import FusionLimits
from impl.ir import DEAR, ELEMENTWISE, IN_ORDER, MOVEMENT, Ops, UOp


class _Place(NamedTuple):
    """Where a value is needed: in which stage, at which index (a token), and how.

    `repeated`: more often than it has elements. `reduced`: inside a reduction. `part`: which part
    of its elements, padding included.
    """

    stage: UOp
    token: int
    repeated: bool = False
    reduced: bool = False
    part: float = 1.0


@dataclass
class Cuts:
    """The values that get storage, sources first, each with the reason; and pure aliases.

    `alias` maps a reshape of a stored value to that value: the same memory, seen with another
    shape.
    """

    reasons: dict[UOp, str]
    alias: dict[UOp, UOp]


#: A DETACH is a mark for gradients: it shows its source, as a movement does, and computes nothing.
_SHOWN, _COMPUTED = MOVEMENT | {Ops.DETACH}, ELEMENTWISE - {Ops.DETACH}
_SCALAR = -1  # the token of a single number: it has one index, whoever uses it
_REDUCTIONS = (Ops.REDUCE, Ops.FOLD)
_WORST = 1 << 20
#: Around a value with so much more padding the loops run over the padding too often.
_MOST_PADDED = 1.25
Inputs = frozenset[int]
_NONE: Inputs = frozenset()
#: Values that are read from memory, or cost as little as that.
_LOADED = frozenset((Ops.BUFFER, *_REDUCTIONS, *IN_ORDER, Ops.CONTIGUOUS, Ops.COPY, Ops.LOOP,
                     Ops.CUSTOM, Ops.AFTER))


def _is_free(node: UOp) -> bool:
    """Whether a processor does nothing for it: it reads bits as other ones, or reads whole numbers
    from memory as wider ones.
    """
    if node.op is not Ops.CAST:
        return node.op is Ops.BITCAST
    source, target = node.src[0].dtype, node.dtype
    return source.kind in "iu" and target.kind in "iu" and source.itemsize < target.itemsize


def _costs(nodes: Sequence[UOp]) -> dict[UOp, int]:
    """What it costs to compute each value again, down to memory or the next reduction."""
    cost: dict[UOp, int] = {}
    for node in nodes:
        op = node.op
        if op in _LOADED or node.realized is not None:
            cost[node] = 1
        elif op is Ops.BIND:
            cost[node] = 0
        else:
            total = DEAR.get(op, 1) if op in _COMPUTED and not _is_free(node) else 0
            for source in node.src:
                total += cost[source]
            cost[node] = min(_WORST, total)
    return cost


class _Cutter:
    """Walks from the roots to the leaves; when a node is reached, all its users are known."""

    def __init__(self, roots: Sequence[UOp], nodes: Sequence[UOp], limits: FusionLimits,
                 fuse: bool) -> None:
        self.roots, self.nodes, self.limits, self.fuse = roots, nodes, limits, fuse
        self.cost = _costs(nodes)
        self.forced: dict[UOp, str] = {}
        self.inputs: dict[UOp, Inputs] = {}  # only where a stage would read too much otherwise
        self.read: dict[UOp, set[Any]] = {}  # by stage: the values that it reads, and its memory
        self.places: dict[UOp, dict[tuple[UOp, int], _Place]] = {}
        self.operations: dict[UOp, int] = {}
        self.reasons: dict[UOp, str] = {}
        self.alias: dict[UOp, UOp] = {}
        self.taken: dict[UOp, Inputs] = {}  # inputs of a stage, with those of reductions inside it
        self.tokens = itertools.count(1)

    def run(self) -> Cuts:
        """Decide for every node that is needed."""
        for root in self.roots:
            self.forced.setdefault(root, "output: its value was asked for")
        for node in reversed(self.nodes):
            if (node in self.forced or node in self.places) and leaf_of(node) is None:
                self._decide(node)
        ordered = {n: self.reasons[n] for n in self.nodes if n in self.reasons}
        return Cuts(ordered, self.alias)

    def is_crowded(self) -> bool:
        """Whether a stage reads more than a kernel may have beside its output."""
        for node, places in self.places.items():  # what is in memory: nobody has decided about it
            leaf = leaf_of(node)
            if leaf is not None:
                self._note_read(leaf.arg[0], places.values())
        return any(len(read) >= self.limits.arguments for read in self.read.values())

    def _note_read(self, value: Any, places: Iterable[_Place]) -> None:
        for place in places:
            self.read.setdefault(place.stage, set()).add(value)

    def _decide(self, node: UOp) -> None:
        places = list(self.places.pop(node, {}).values())
        reason = self._reason(node, places)
        same = node.op is Ops.RESHAPE or node.op is Ops.DETACH and leaf_of(node.src[0]) is None
        if reason is not None and same:  # r[impl fusion.cut.same]
            # The same elements in the same order: store the source, and look at it differently.
            self.alias[node] = node.src[0]
            self.forced.setdefault(node.src[0], reason)
            self._need(node.src[0], places)
            return
        if reason is not None:
            self._note_read(node, places)
            self.reasons[node] = reason  # r[impl fusion.boundary.reason]
            self.operations[node] = 0
            places = [_Place(node, 0)]
        for place in places if node.op is not Ops.DETACH else ():
            self.operations[place.stage] += 1
        self._pass_on(node, places)

    def _reason(self, node: UOp, places: list[_Place]) -> str | None:
        """Why the node gets storage of its own, or None: it is computed inside its users."""
        if node in self.forced:
            return self.forced[node]
        if node.op is Ops.CONTIGUOUS:
            return "contiguous: asked for"  # r[impl fusion.cut.own]
        if node.op is Ops.COPY:
            copied = isinstance(node.arg, str)  # r[impl fusion.cut.device+2]
            return f"device: copied to {node.arg}" if copied else f"device: {node.arg}"
        if node.op is Ops.LOOP:
            return f"loop: {node.arg}, whose body has a schedule of its own"
        if node.op is Ops.CUSTOM:  # r[impl custom.kernel.alone]
            return f"custom: {node.arg.name} stores it"
        if node.op is Ops.AFTER:
            return "assign: it writes to memory"
        if node.op in IN_ORDER:  # r[impl fusion.cut.own]
            return "order: its elements are computed one after the other"
        if not node.src or node.shape == () and self.cost[node] == 0:
            return None
        if node.op in _SHOWN:  # r[impl fusion.cut.same]
            return None
        if not self.fuse:
            # r[impl fusion.switch.meaning]
            return "FUSE=0: every operation has a kernel of its own"
        several = len(places) > 1
        repeated = any([p.repeated or p.part > _MOST_PADDED for p in places]) if several else \
            places[0].repeated or places[0].part > _MOST_PADDED
        if node.op in _REDUCTIONS:
            return self._reduction_reason(node, places, repeated)  # r[impl fusion.cut.once]
        cost = self.cost[node]
        if several and cost > self.limits.recompute:
            again = min(sum([place.part for place in places]) - 1, 1)
            # r[impl fusion.cut.again+2]
            if again * cost > self.limits.recompute and not self._is_far(node, places):
                return f"recompute too dear: {len(places)} users, {cost} additions each"
        if repeated and cost > self.limits.repeat and node.shape != ():
            return f"recompute too dear: repeated along an axis, {cost} additions each time"
        if self.operations[places[0].stage] > self.limits.stage_operations:
            return f"length: the stage has {self.limits.stage_operations} operations already"
        return None

    def _is_far(self, node: UOp, places: list[_Place]) -> bool:
        """Whether to compute a value again for its second user is faster than to read it again:
        no cache keeps it, and no kernel a row of it.
        """
        # r[impl fusion.cut.again+2]
        size = _elements(node) * node.dtype.itemsize
        rows = [_elements(place.stage) for place in places if place.reduced]
        return (len(places) == 2 and bool(rows) and self.cost[node] <= self.limits.late
                and size > max(self.limits.cached_bytes, self.limits.local_bytes * max(rows)))

    def _reduction_reason(self, node: UOp, places: list[_Place], repeated: bool) -> str | None:
        if len(places) > 1:
            return f"reduce: {len(places)} users, and a reduction is not done twice"
        if repeated:
            return "reduce: its value is repeated along an axis, and it is not done twice"
        place = places[0]
        inside_fold = place.reduced and (node.op is Ops.FOLD or place.stage.op is Ops.FOLD)
        if place.reduced and not inside_fold:
            return "reduce: feeds another reduction"
        if not self.inputs:
            return None
        together = self.inputs[node.src[0]] | self.taken.get(place.stage, self.inputs[place.stage])
        if len(together) >= self.limits.arguments:
            return "argument limit: with its inputs the kernel would have too many"
        self.taken[place.stage] = together
        return None

    def _pass_on(self, node: UOp, places: list[_Place]) -> None:
        """Tell the sources where they are needed."""
        op = node.op
        if op in ELEMENTWISE:
            for source in node.src:
                if source.shape == () != node.shape:  # one number for all elements
                    self._need(source, [_Place(p.stage, _SCALAR, True, p.reduced)
                                        for p in places])
                else:
                    self._need(source, places)
        elif op is Ops.AFTER:
            self._pass_on_write(node, places)
        elif op in IN_ORDER:  # no vector along it: what is dear is better computed before
            for source in node.src:
                dear = self.cost[source] > self.limits.in_order
                self._need(source, self._moved(places, dear, True))
        elif op is Ops.GATHER:
            self._need(node.src[1], self._moved(places, False, False))
            self._need(node.src[0], self._moved(places, True, False))
        elif op is Ops.COPY:
            self.forced.setdefault(node.src[0], "device: read by a copy to another device")
        elif op is Ops.LOOP or op is Ops.CUSTOM:
            why = "loop: its bodies read it" if op is Ops.LOOP else \
                f"custom: {node.arg.name} reads it"
            for source in node.src:
                self.forced.setdefault(source, why)
        elif op in _REDUCTIONS:
            self._need(node.src[0], self._moved(places, False, True))
        elif op is Ops.SHRINK or op is Ops.PAD:
            self._need(node.src[0], self._parts(places, _ratio(node)))
        elif op in MOVEMENT:
            self._need(node.src[0], self._moved(places, _repeats(node), False))
        elif op is Ops.CONTIGUOUS:
            self._need(node.src[0], places)

    def _pass_on_write(self, node: UOp, places: list[_Place]) -> None:
        base, (view, value) = node.src[0], node.src[1].src
        if view is not base:
            self.forced.setdefault(base, "assign: part of its memory is written")
        # A whole assign needs nothing of the old value, so that is not computed for its sake.
        self._need(value, places)

    def _need(self, source: UOp, places: list[_Place]) -> None:
        known = self.places.get(source)
        if known is None:
            known = self.places[source] = {}
        for place in places:
            key = place[:2]  # stage and token
            old = known.get(key)
            if old is None or (place.repeated and not old.repeated):
                known[key] = place

    def _moved(self, places: list[_Place], repeats: bool, reduces: bool) -> list[_Place]:
        """The places of a node's source: another index, so another token."""
        return [_Place(p.stage, next(self.tokens), p.repeated or repeats, p.reduced or reduces,
                       p.part) for p in places]

    def _parts(self, places: list[_Place], ratio: float) -> list[_Place]:
        """The same where the node has so many times the elements of its source."""
        return [_Place(p.stage, next(self.tokens), p.repeated, p.reduced, p.part * ratio)
                for p in places]

    def find_inputs(self) -> None:
        """For every node the buffers that computing it would read at most, as numbers.

        Where too many meet, the source with the most gets storage of its own: then it is one.
        """
        sets = self.inputs
        numbers = itertools.count()
        shared = self._perhaps_stored()
        limit = self.limits.arguments - 1  # one is the output
        for node in self.nodes:
            if leaf_of(node) is not None:
                sets[node] = frozenset((next(numbers),))
                continue
            sources = () if node.op is Ops.BIND else node.src
            inputs = self._fitting(sources, sets, numbers, limit)
            if node.op in _LOADED:
                inputs = frozenset((next(numbers),))
            if node in shared:  # it may be stored, or computed inside: reckon with both
                inputs |= {next(numbers)}
            sets[node] = inputs

    def _perhaps_stored(self) -> set[UOp]:
        """Dear values with several users, or with one that repeats them."""
        users: dict[UOp, int] = {}
        for node in self.nodes:
            weight = 2 if node.op is Ops.GATHER or node.op in MOVEMENT and _repeats(node) else 1
            for source in node.src:
                users[source] = users.get(source, 0) + weight
        return {node for node in self.nodes if users.get(node, 0) > 1 and node.op in _COMPUTED
                and self.cost[node] > self.limits.repeat}

    def _fitting(self, sources: Sequence[UOp], sets: dict[UOp, Inputs], numbers: Iterator[int],
                 limit: int) -> Inputs:
        """All inputs of some sources together; as long as they are too many, the source with the
        most gets storage of its own.
        """
        if len(sources) == 1 and len(sets[sources[0]]) <= limit:
            return sets[sources[0]]
        while True:
            together = _NONE.union(*[sets[source] for source in sources])
            if len(together) <= limit:
                return together
            crowd = max(sources, key=lambda s: len(sets[s]))
            if len(sets[crowd]) == 1:
                return together
            parts = [part for part in _smaller_parts(crowd) if len(sets[part]) > 1]
            for part in parts or [crowd]:
                self.forced[part] = f"argument limit: the device allows {limit + 1}"
                sets[part] = frozenset((next(numbers),))
            if parts:
                sets[crowd] = _NONE.union(*[sets[part] for part in _smaller_parts(crowd)])


def _repeats(node: UOp) -> bool:
    """Whether computing the result needs the source's elements more often than there are any.

    An expansion shows an element several times; so do windows that overlap. Around a padded value
    the loops run over the padding too.
    """
    if node.op is Ops.EXPAND:
        return True
    if node.op is Ops.PAD:
        return _ratio(node) > _MOST_PADDED
    if node.op is Ops.UNFOLD:
        _, count, size, step, dilation = node.arg
        return bool(count > 1 and size > 1 and step < size * dilation)
    return False


def _ratio(node: UOp) -> float:
    """How many elements a part, or what is padded, has for each one of its source."""
    return _elements(node) / max(_elements(node.src[0]), 1)


def _elements(node: UOp) -> int:
    return math.prod(node.shape or ())


def _smaller_parts(node: UOp) -> list[UOp]:
    """What a value is made of that is expanded in it: together, these have fewer elements."""
    if node.op not in ELEMENTWISE and node.op not in MOVEMENT:
        return []
    parts = []
    for part in node.src:
        while part.op in _SHOWN:
            part = part.src[0]
        parts.append(part)
    return parts if sum(map(_elements, parts)) < _elements(node) else []


def choose_cuts(roots: Sequence[UOp], nodes: Sequence[UOp], limits: FusionLimits,
                fuse: bool) -> Cuts:
    """Which values get a stage of their own (r[fusion.cut.once], r[fusion.boundary.reason])."""
    cutter = _Cutter(roots, nodes, limits, fuse)
    cuts = cutter.run()
    if cutter.is_crowded():  # r[impl fusion.limit.device, fusion.limit.least+2]
        cutter = _Cutter(roots, nodes, limits, fuse)
        cutter.find_inputs()
        cuts = cutter.run()
    return cuts
