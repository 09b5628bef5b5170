"""When to take several elements of a running result at once. Chapter: spec/choosing.md."""
from __future__ import annotations

from impl.blocking.chain import Chain, find_link
from impl.choosing.planner import Planner
from impl.ir import RangeKind

#: So many elements are combined with each other before the result that was stored last is needed.
_AT_ONCE = 16


def chain(planner: Planner) -> None:
    """Take several elements of a running result at once, where no vector goes across it."""
    known = planner.known
    for loop in known.ast.src[0].src[2:][-1:]:
        if loop.arg[1] is RangeKind.BLOCK and planner.extent(loop) >= 2 * _AT_ONCE \
                and find_link(known, loop) is not None:
            planner.take(Chain(known.position[loop], _AT_ONCE))
