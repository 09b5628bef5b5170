"""Operands that lie in different ways: in which sharding they are brought together. Chapter:
spec/multi.md.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from impl.gradient import nodes
from impl.ir import ELEMENTWISE, UOp
from impl.multi.mesh import Mesh, Sharding, together
from impl.multi.pieces import Piece, brought, price, with_sources, with_whole
from impl.multi.transfers import Axes, bytes_sent


def elementwise_piece(node: UOp, given: list[Piece], axes: Axes | None = None) -> Piece:
    """All operands in the sharding of one of them, or of all: that for which least is sent."""
    assert node.op in ELEMENTWISE, f"{node.op.name} has no rule for pieces"
    if axes is None:
        axes = cheapest_sharding(given, shardings_to_try(given))
    sources = [brought(one, axes if one.shape else ()).node for one in given]
    mesh = given[0].sharding.mesh  # type: ignore[union-attr]
    sharding = next((one.sharding for one in given if one.axes == axes), None)
    return Piece(with_sources(node, sources), node.shape or (), sharding or Sharding(mesh, axes))


def shardings_to_try(given: Sequence[Piece]) -> list[Axes]:
    """The shardings into which operands may be brought: that of each, and that of all cuts."""
    wide = [one for one in given if one.shape] or given[:1]
    return _to_try(tuple([one.axes for one in wide]))


@lru_cache(4096)
def _to_try(given: tuple[Axes, ...]) -> list[Axes]:
    found = dict.fromkeys(given)
    if len(list(filter(any, found))) > 1:
        found[_together(given)] = None
    return list(found)


@lru_cache(4096)
def widest(mesh: Mesh, given: tuple[Axes, ...]) -> list[Axes]:
    """Of the shardings into which operands may be brought those of most pieces: to save bytes is
    no reason to compute twice.
    """
    choices = _to_try(given)
    pieces = [math.prod([mesh.extent(name) for name in axes if name]) for axes in choices]
    return [axes for axes, count in zip(choices, pieces, strict=True) if count == max(pieces)]


def cheapest_sharding(given: Sequence[Piece], choices: Sequence[Axes],
              further: Callable[[Axes], int] | None = None) -> Axes:
    """The sharding for which least is sent, and what is sent `further` because of it."""
    found, least = choices[0], math.inf
    if len(choices) == 1:
        return found
    wide = [one for one in given if one.shape] or given[:1]
    for axes in choices:
        sent = sum([price(one, axes) for one in wide]) + (further(axes) if further else 0)
        if sent < least:  # r[impl multi.operands.cheapest+5]: of equal prices the first operand's
            found, least = axes, sent
        if not sent:
            break
    return found


def due_price(node: UOp, mesh: Mesh, axes: Axes) -> int:
    """Bytes that each device sends to combine the parts of a reduction of what is cut so."""
    op, reduced = node.arg
    due = tuple([(name, op) for axis in reduced if (name := axes[axis])])
    kept = with_whole(axes, *reduced)
    return bytes_sent(mesh, kept, kept, due, nodes.shape_of(node), node.dtype.itemsize)


def _together(given: Sequence[Axes]) -> Axes:
    """The cuts of all: of each axis that of the first which cuts it, and none of them twice."""
    found: list[str | None] = [None] * len(given[0])
    for one in given:
        for axis, name in enumerate(one):
            if name is not None and found[axis] is None \
                    and not together([name]) & together(found):
                found[axis] = name
    return tuple(found)
