"""Kernels without a prefix whose stages are shared by threads: phases. Chapter: spec/lowering.md.

Threads that are at different stages must not need anything of each other. So the stages are cut
into phases; the device runs a phase once those before it are over. A phase is run by all threads,
or, where nothing in it is shared, by one.
"""
from __future__ import annotations

from impl.dependencies import must_wait
from impl.errors import GraphError
from impl.ir import Ops, RangeKind, UOp
from impl.kernel import accessed
from impl.kernel.analysis import Key
from impl.lowering.blocks import Block, Item, Leave, Loop, Write
from impl.lowering.lower import Lowered

#: A launch has a bit for each phase.
MOST_PHASES = 62


def cut_phases(low: Lowered) -> tuple[bool, ...]:
    """Put what stores at the top of a kernel into phases; for each, whether threads share it.

    What is between the stages is computed in every phase that comes after it. A kernel with a
    shared loop in its prefix has one phase, and one without any shared loop has none.
    """
    # r[impl lowering.phase.order]
    info = low.known.info
    if info.threads == 1:
        return ()
    if any(loop.arg[1] is RangeKind.THREAD for loop in info.prefix):
        return (True,)
    phases: list[bool] = []
    stored: set[Key] = set()
    loaded: set[Key] = set()
    items: list[Item] = []
    over = 0  # where the items of the last phase end
    for item in low.root.items:
        stores = _stores(item)
        if not stores:
            items.append(item)
            continue
        shared = any(r.arg[1] is RangeKind.THREAD for store in stores for r in store.src[2:])
        writes = {accessed(store) for store in stores}
        reads = {accessed(n) for store in stores for n in store.toposort()
                 if n.op is Ops.LOAD}
        if not phases or phases[-1] is not shared or shared and \
                must_wait(reads, writes, loaded, stored):
            if phases:
                items.insert(over, Leave(len(phases) - 1))
            phases.append(shared)
            stored, loaded = set(), set()
        stored |= writes
        loaded |= reads
        items.append(Loop(Block(None, None, items=[item], phase=len(phases) - 1)))
        over = len(items)
    low.root.items = items
    if len(phases) > MOST_PHASES:
        raise GraphError("render", f"the kernel has {len(phases)} phases", f"cut it where threads "
                         f"wait for each other at most {MOST_PHASES} times")
    return tuple(phases)


def _stores(item: Item) -> list[UOp]:
    """The stores in an item and in the loops below it."""
    found: list[UOp] = []
    stack: list[Item] = [item]
    while stack:
        top = stack.pop()
        if isinstance(top, Write):
            found.append(top.store)
        elif isinstance(top, Loop):
            stack.extend(top.block.items)
    return found
