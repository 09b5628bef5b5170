"""Axes that become one, of which a later one is cut: what follows is computed before they do.

Chapter: spec/multi.md. `logits.reshape(batch * tokens, words)` with tokens cut is no block on any
device. But most of what is computed of it is the same before the axes are merged, up to a reshape;
and a sum over all of it is the same sum. So beside the value another one is kept, *unmerged*: a
graph of whole values, which is divided like any other. Of the two, what nobody asks for is not
computed.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from impl.gradient import nodes
from impl.ir import ELEMENTWISE, Ops, Shape, UOp, in_memory, note_origin, toposort
from impl.multi.mesh import together
from impl.symbolic import is_symbolic

#: Which axes of the unmerged value make each axis of the value, the slowest first.
Groups = tuple[tuple[int, ...], ...]


class Unmerged(NamedTuple):
    """A value before some of its axes became one, perhaps with its axes in another order."""

    node: UOp
    groups: Groups

    @property
    def order(self) -> tuple[int, ...]:
        """All axes, in the order of the value."""
        return tuple(itertools.chain(*self.groups))

    def ordered(self) -> UOp:
        """The node, its axes in the order of the value."""
        return nodes.permute(self.node, self.order)

    def like(self, value: UOp) -> UOp:
        """Another value of the merged shape, as this one."""
        shape = nodes.shape_of(self.node)
        apart = nodes.reshape(value, tuple(shape[axis] for axis in self.order))
        return nodes.permute(apart, tuple(map(self.order.index, range(len(shape)))))


class CutPiece(Protocol):
    """Of a piece, as `divide` has it, how it lies."""

    @property
    def axes(self) -> tuple[str | None, ...]:
        """The cut of each axis."""


class Merger:
    """Keeps what is unmerged beside values.

    It does not hold who divides: memory of a plan that was made would stay until Python looks for
    circles.
    """

    def __init__(self, pieces: Mapping[UOp, CutPiece]) -> None:
        self.pieces = pieces
        self.known: dict[UOp, Unmerged] = {}
        self.is_dividing = False  # what is made here is divided as it is

    def merge(self, node: UOp) -> None:
        """Note a reshape that loses a cut, if it does no more than to merge axes."""
        source, shape = node.src[0], nodes.shape_of(node)
        before = nodes.shape_of(source)
        if any(map(is_symbolic, (*before, *shape))) or 0 in shape:
            return
        groups = made_of(before, shape)
        if groups is not None:
            self.known[node] = Unmerged(source, groups)

    def replaced(self, node: UOp, add: Callable[[UOp], Any]) -> UOp | None:
        """The same value, computed of what is unmerged, if no axis is left that was merged; else
        None, and what is unmerged of this node is noted. `add` divides a node whose sources were
        divided.
        """
        if self.is_dividing or in_memory(node) is not None \
                or not any(source in self.known for source in node.src):
            return None
        found = None
        if node.op in ELEMENTWISE:
            found = self._elementwise(node)
        elif node.op in _RULES:
            found = _RULES[node.op](node, self.known[node.src[0]])
        if found is None or self._divide(found.node, node, add) is None:
            return None
        if node.op is Ops.RESHAPE and self._cut(found) != self._cut(self.known[node.src[0]]):
            return None
        shape, ordered = nodes.shape_of(node), found.ordered()
        if nodes.shape_of(ordered) == shape or not self._is_lost(found):
            return self._divide(nodes.reshape(ordered, shape), node, add)
        self.known[node] = found
        return None

    def _cut(self, given: Unmerged) -> set[str]:
        """Along which axes of the mesh it is cut."""
        return together(self.pieces[given.node].axes)

    def _is_lost(self, found: Unmerged) -> bool:
        """Whether a cut is lost where axes are merged."""
        axes, shape = self.pieces[found.node].axes, nodes.shape_of(found.node)
        return any(axes[axis] is not None and math.prod(shape[a] for a in group[:place]) != 1
                   for group in found.groups for place, axis in enumerate(group))

    def _divide(self, node: UOp, instead: UOp, add: Callable[[UOp], Any]) -> UOp | None:
        """Divide a node that is computed instead of another one, and those below it that were made
        for it; None if the other one is among them.
        """
        new = toposort((node,), lambda u: u not in self.pieces and in_memory(u) is None)
        if instead in new:
            return None
        self.is_dividing = True
        for each in new:
            if each.origin is None and instead.origin is not None:
                note_origin(each, instead.origin)
            add(each)
        self.is_dividing = False
        return node

    def _elementwise(self, node: UOp) -> Unmerged | None:
        first = next(self.known[source] for source in node.src if source in self.known)
        shape, sources = nodes.shape_of(first.node), list[UOp]()
        for source in node.src:
            known = self.known.get(source)
            if known is not None and known.groups == first.groups \
                    and nodes.shape_of(known.node) == shape:
                sources.append(known.node)
            elif known is None and not any(self.pieces[source].axes):
                sources.append(first.like(source) if source.shape else source)
            else:
                return None
        return Unmerged(UOp(node.op, node.dtype, tuple(sources), node.arg, node.tag), first.groups)


def made_of(before: Shape, shape: Shape) -> Groups | None:
    """Which axes of a shape each axis of another one is made of; None if one is in two."""
    found, axis = list[tuple[int, ...]](), 0
    for size in shape:
        start, made = axis, 1
        while axis < len(before) and made < size:
            made, axis = made * before[axis], axis + 1
        if made != size:
            return None
        found.append(tuple(range(start, axis)))
    if any(size != 1 for size in before[axis:]) or not found:
        return None
    found[-1] = (*found[-1], *range(axis, len(before)))
    return tuple(found)


def _reshape(node: UOp, given: Unmerged) -> Unmerged:
    """Axes of size 1 come and go; or more axes are merged; or they are taken apart."""
    shape, old = nodes.shape_of(node), nodes.shape_of(node.src[0])
    if [size for size in old if size != 1] != [size for size in shape if size != 1]:
        further = made_of(old, shape)
        if further is None:
            return Unmerged(nodes.reshape(given.ordered(), shape),
                            tuple((axis,) for axis in range(len(shape))))
        return Unmerged(given.node, tuple(tuple(itertools.chain(*(given.groups[axis]
                                                                  for axis in group)))
                                          for group in further))
    groups = iter([group for group, size in zip(given.groups, old, strict=True) if size != 1])
    sizes, found = list[int](), list[tuple[int, ...]]()
    whole = nodes.shape_of(given.node)
    source = list[int]()
    for size in shape:
        group = next(groups) if size != 1 else ()
        axes = [whole[axis] for axis in group] or [1]
        found.append(tuple(range(len(sizes), len(sizes) + len(axes))))
        sizes += axes
        source += group
    rest = [axis for axis in range(len(whole)) if axis not in source]  # all of size 1
    return Unmerged(nodes.reshape(nodes.permute(given.node, (*source, *rest)), tuple(sizes)),
                    tuple(found))


def _permute(node: UOp, given: Unmerged) -> Unmerged:
    return Unmerged(given.node, tuple(given.groups[axis] for axis in node.arg))


def _expand(node: UOp, given: Unmerged) -> Unmerged | None:
    """Axes that grow and were not merged."""
    shape = list(nodes.shape_of(given.node))
    sizes = zip(nodes.shape_of(node.src[0]), nodes.shape_of(node), strict=True)
    for group, (old, new) in zip(given.groups, sizes, strict=True):
        if old == new:
            continue
        if len(group) != 1:
            return None
        shape[group[0]] = new
    return Unmerged(nodes.expand(given.node, tuple(shape)), given.groups)


def _reduce(node: UOp, given: Unmerged) -> Unmerged | None:
    op, axes = node.arg
    reduced = tuple(sorted(itertools.chain(*(given.groups[axis] for axis in axes))))
    if not reduced:
        return None
    return Unmerged(UOp(Ops.REDUCE, node.dtype, (given.node,), (op, reduced), node.tag),
                    given.groups)


_RULES: dict[Ops, Callable[[UOp, Unmerged], Unmerged | None]] = {
    Ops.RESHAPE: _reshape, Ops.PERMUTE: _permute, Ops.EXPAND: _expand, Ops.REDUCE: _reduce}
