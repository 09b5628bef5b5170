"""The effects of a schedule as the pieces that each device computes. Chapter: spec/multi.md."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from impl.effects import leaf_of
from impl.ir import Ops, UOp, in_memory, toposort
from impl.multi.divide import Divider
from impl.multi.mesh import Mesh, Sharding
from impl.multi.pieces import brought


def is_spread(nodes: Iterable[UOp]) -> bool:
    """Whether anything of a schedule is on a mesh."""
    for node in nodes:
        if node.op is Ops.SHARD or node.op is Ops.COPY and isinstance(node.arg, Mesh):
            return True
        leaf = leaf_of(node)
        if leaf is not None and leaf.arg[0].shardings:
            return True
    return False


def sharding_of_node(root: UOp) -> Sharding | None:
    """How the value of a node lies on its mesh; None if it is on no mesh."""
    divider = Divider()
    for node in toposort((root,), lambda u: u.op is not Ops.BIND and in_memory(u) is None):
        divider.add(node)
    return divider.pieces[root].sharding


def divided(roots: Sequence[UOp], nodes: Sequence[UOp], held: Iterable[UOp],
            ) -> tuple[list[UOp], set[UOp], list[Sharding | None], list[str]]:
    """The roots and what stays observable as pieces, how each root lies then, and what a person
    is told of it.
    """
    divider = Divider()
    for node in nodes:
        divider.add(node)
    found, shardings = list[UOp](), list[Sharding | None]()
    for root in roots:
        piece = divider.pieces[root]
        if piece.sharding is not None:
            piece = brought(piece, piece.axes)
        found.append(piece.node)
        shardings.append(piece.sharding)
    alone = Divider()
    return found, {alone.add(leaf).node for leaf in held}, shardings, divider.notes


