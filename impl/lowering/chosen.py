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

    def note(condition: UOp, bits: int) -> None:
        found[condition] = max(found.get(condition, 0), bits)

    for node in reversed(known.order):
        if node.op is Ops.INDEX:
            note(node.src[2], 8 * node.src[0].dtype.itemsize)
        elif node.op in _PASSING and node.dtype is dtypes.bool:
            for source in node.src:
                note(source, found.get(node, 0))
        elif node.op is Ops.WHERE:
            note(node.src[0], 8 * max(node.dtype.itemsize, 4 * (node.dtype.kind == "f")))
        elif node.op is not Ops.STORE:
            for source in node.src:
                note(source, 8 * node.dtype.itemsize)
    return found
