"""When a kernel of one's own may store into the memory that it loads from. Chapter: spec/custom.md.
"""
from __future__ import annotations

from impl.custom.texts import written_text
from impl.ir import Ops, UOp


def merged(ast: UOp, output: int, source: int) -> UOp | None:
    """The kernel with one argument in place of two, `source` for what it loads and `output` for
    what it stores; None if it would load something that it has stored.
    """
    # r[impl custom.assign.direct]
    if written_text(ast) is not None:  # nobody knows in which order it loads and stores
        return None
    target, given = (_param(ast, position) for position in (output, source))
    if target is None or given is None or target.dtype is not given.dtype:
        return None
    mine = [store for store in ast.src if store.src[0].src[0] is target]
    if len(mine) != 1 or any(
            each.op is Ops.INDEX and each.src[0] is given and each.src[1:] != mine[0].src[0].src[1:]
            for each in ast.toposort()):
        return None
    later = ast.src[ast.src.index(mine[0]) + 1:]
    if any(given in store.toposort() for store in later):
        return None
    merging = ast.substitute({target: given})
    return merging.substitute({node: node.replace(arg=node.arg - 1) for node in merging.toposort()
                               if node.op is Ops.PARAM and node.arg > output})


def _param(ast: UOp, position: int) -> UOp | None:
    return next((node for node in ast.toposort()
                 if node.op is Ops.PARAM and node.arg == position), None)
