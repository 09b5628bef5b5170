"""What has to be true of a lowered kernel, and the check. Chapter: spec/lowering.md."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from impl.errors import GraphError
from impl.ir import Ops, UOp
from impl.kernel import Analysis
from impl.lowering.blocks import Accumulate, Block, Define, Finish, Item, Loop, Write

_LEAVES = (Ops.CONST, Ops.PARAM, Ops.LOCAL, Ops.DEFINE_VAR, Ops.RANGE)


class CheckedKernel(Protocol):
    """What a check looks at in a lowered kernel."""

    known: Analysis
    root: Block
    inputs: dict[UOp, tuple[UOp, ...]]


def check_lowered(low: CheckedKernel) -> None:
    """Every value is computed before it is used, inside all loops that it depends on.

    Raises:
        GraphError: one is not; the error names the kernel and the value.
    """
    # r[impl lowering.lower.checked]
    stored: list[UOp] = []
    # What is left to do of each open block, and what was ready before it was opened.
    open_: list[tuple[Block, list[Item], set[UOp]]] = [(low.root, list(low.root.items), set())]
    while open_:
        block, items, ready = open_[-1]
        if not items:
            open_.pop()
            continue
        item = items.pop(0)
        if isinstance(item, Loop):
            open_.append((item.block, list(item.block.items), set(ready)))
        elif isinstance(item, Define):
            _check_ready(low, item.node, ready, block)
            ready.add(item.node)
        elif isinstance(item, Accumulate):
            for node in item.nodes:
                _check_ready(low, node, ready, None)
        elif isinstance(item, Finish):
            ready.update(item.nodes)
        elif isinstance(item, Write):
            _check_ready(low, item.store, ready, None)
            stored.append(item.store)
    missing = [store for store in low.known.ast.src if store not in stored]
    if missing:
        raise _wrong(low, missing, "is never done")


def _check_ready(low: CheckedKernel, node: UOp, ready: set[UOp], block: Block | None) -> None:
    """What a node is computed from is there, and so are the loops around it."""
    early = [source for source in low.inputs.get(node, ())
             if source not in ready and source.op not in _LEAVES]
    if early:
        raise _wrong(low, early, f"is used by {node.op.name} before it is computed")
    known = low.known
    if block is not None and known.free.get(node, 0) & ~block.around & ~known.lanes:
        raise _wrong(low, [node], "is outside of a loop that it depends on")


def _wrong(low: CheckedKernel, nodes: Sequence[UOp], why: str) -> GraphError:
    return GraphError(f"verify lowering of {low.known.info.name}",
                      f"{nodes[0]!r} {why}, which breaks r[lowering.lower.checked]",
                      "this is a mistake of the lowering")
