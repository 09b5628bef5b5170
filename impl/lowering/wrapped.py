"""Indices of which the lowest 32 bits are enough. Chapter: spec/render.md."""
from __future__ import annotations

from impl import symbolic
from impl.dtypes import dtypes
from impl.ir import Ops, UOp
from impl.lowering.lower import Lowered

#: Indices below this in size have 32 bits.
NARROW = 1 << 31
#: Operations that are right in the lowest bits, whatever the others are.
WRAPPING = (Ops.ADD, Ops.SUB, Ops.MUL)


def is_narrow(node: UOp) -> bool:
    """Whether an index has 32 bits at most, whatever the loops and variables are."""
    least, most = symbolic.bounds(node)
    return -NARROW <= least and most < NARROW


def wrapped_addresses(low: Lowered) -> frozenset[UOp]:
    """Sums and products that go into nothing but addresses which have 32 bits at most wherever they
    are valid: a number that is read says nothing of itself, but its access has a condition.
    """
    # r[impl render.index.wraps]
    long = {node for node in low.inputs if node.dtype is dtypes.index and node.op in WRAPPING
            and not is_narrow(node)}
    refused = []
    for user, inputs in low.inputs.items() if long else ():
        address = user.op in (Ops.LOAD, Ops.STORE) and has_short_address(user)
        refused += [source for place, source in enumerate(inputs) if source in long
                    and user not in long and not (address and place == 0)]
    while refused:
        node = refused.pop()
        if node in long:
            long.remove(node)
            refused += low.inputs[node]
    return frozenset(long)


def has_short_address(access: UOp) -> bool:
    """Whether an address has 32 bits at most where the condition of its access holds."""
    _, address, valid = access.src[0].src
    least, most = symbolic.bounds_assuming(address, valid)
    return 0 <= least and most < NARROW
