"""How often the loops of a lane turn, for a driver that ends them. Chapter: spec/webgpu.md."""
from __future__ import annotations

from impl import symbolic
from impl.custom import written_text
from impl.ir import RangeKind, UOp
from impl.lowering.blocks import Block, Loop
from impl.lowering.lower import lower


def turns(ast: UOp) -> int:
    """How often all loops of one lane turn together, at most; each turns once more to end."""
    if written_text(ast) is not None:
        return 0  # nobody knows
    low = lower(ast, False)
    info, total = low.known.info, 0
    stack: list[tuple[Block, int]] = [(low.root, 1)]
    while stack:
        block, times = stack.pop()
        for item in block.items:
            if not isinstance(item, Loop):
                continue
            loop, each = item.block.loop, times
            if loop is not None and loop not in info.prefix:
                share = {RangeKind.LANE: info.lanes, RangeKind.THREAD: info.threads}.get(
                    loop.arg[1], 1)
                each *= -(-max(symbolic.bounds(loop.src[0])[1], 1) // share)
                total += each + times
            stack.append((item.block, each))
    return total
