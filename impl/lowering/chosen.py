"""What truth values choose. Chapter: spec/render.md."""
from __future__ import annotations

from impl.dtypes import dtypes
from impl.ir import COMPARISONS, Ops, UOp
from impl.kernel import Analysis

#: Operations on truth values whose result chooses what their operands choose.
_PASSING = (Ops.AND, Ops.OR, Ops.XOR, Ops.WHERE, *COMPARISONS)


def chosen_bits(known: Analysis) -> dict[UOp, int]:
    """How many bits the widest elements have that a truth value chooses, in memory or among two."""
    found: dict[UOp, int] = {}
    for node in reversed(known.order):
        wide = 8 * max(node.dtype.itemsize, 4 * (node.dtype.kind == "f"))
        if node.op is Ops.INDEX:
            wide = 8 * node.src[0].dtype.itemsize
        elif node.op in _PASSING and node.dtype is dtypes.bool:
            wide = found.get(node, 0)
        elif node.op is Ops.STORE:
            continue  # of a bool: as wide as what it is made of
        for source in node.src:
            if source.dtype is dtypes.bool and source.op not in (Ops.PARAM, Ops.LOCAL):
                found[source] = max(found.get(source, 0), wide)
    return found
