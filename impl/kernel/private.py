"""Which LOCALs the lanes of a work-group share, and which each has for itself.

Chapter: spec/render.md.
"""
from __future__ import annotations

import math

from impl import symbolic
from impl.dtypes import dtypes
from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import growth

# --8<-- [start:private]
#: A lane keeps at most so many elements of a LOCAL in registers.
_MOST_KEPT = 128
#: The loops that lanes share around an access: their extents, and how the index grows with them.
_Pattern = tuple[tuple[int, int], ...]


def keep_private(ast: UOp) -> tuple[UOp, frozenset[UOp]]:
    """Make LOCALs of which each lane touches a part of its own as small as that part.

    The answer is the kernel, and the LOCALs that are a lane's own now. So the sums of a register
    tile are registers, although they pass from one stage to another.
    """
    # r[impl render.wait.private]
    if ast.arg.lanes == 1 or any(r.arg[1] is RangeKind.LANE for r in ast.arg.prefix):
        return ast, frozenset()
    found: dict[UOp, dict[UOp, tuple[_Pattern, UOp]] | None] = {}
    for store in ast.src:
        lanes = [r for r in store.src[2:] if r.arg[1] is RangeKind.LANE]
        order = store.toposort()
        grows = growth(order, lanes)
        for node in order:
            if node.op is Ops.INDEX and node.src[0].op is Ops.LOCAL:
                taken = _pattern(node, lanes, grows[node.src[1]], ast.arg.lanes)
                known = found.setdefault(node.src[0], {})
                if taken is None or known is None or known.get(node, taken)[0] != taken[0]:
                    found[node.src[0]] = None
                else:
                    known[node] = taken
    places: dict[UOp, UOp] = {}
    kept: list[UOp] = []
    for buffer, accesses in found.items():
        own = _own_part(accesses) if accesses else None
        if accesses and own is not None:
            kept.append(buffer.replace(arg=(buffer.arg[0], own[1])))
            for node, (_, rest) in accesses.items():
                index = symbolic.add(rest, -own[0])
                places[node] = node.replace(src=(kept[-1], index, node.src[2]))
    return (ast.substitute(places) if places else ast), frozenset(kept)


def _pattern(node: UOp, lanes: list[UOp], grows: dict[UOp, int] | None,
             count: int) -> tuple[_Pattern, UOp] | None:
    """How an access grows with the loops that lanes share, and its index without them.

    None if an iteration is not always the same lane's.
    """
    if grows is None or any(r.src[0].op is not Ops.CONST for r in lanes) \
            or math.prod(r.src[0].arg for r in lanes) != count:
        return None
    pattern = tuple((r.src[0].arg, grows.get(r, 0)) for r in lanes)
    nothing = UOp.const(dtypes.index, 0)
    return pattern, symbolic.rebuild(node.src[1], dict.fromkeys(lanes, nothing))


def _own_part(accesses: dict[UOp, tuple[_Pattern, UOp]]) -> tuple[int, int] | None:
    """The first place of the part that a lane touches, and its size; None if parts overlap."""
    patterns = {pattern for pattern, _ in accesses.values()}
    limits = [symbolic.bounds(rest) for _, rest in accesses.values()]
    least, most = min(low for low, _ in limits), max(high for _, high in limits)
    size = most - least + 1
    if len(patterns) > 1 or size > _MOST_KEPT:
        return None
    room = size
    for extent, step in sorted(next(iter(patterns)), key=lambda each: each[1]):
        if extent > 1:
            if step < room:
                return None
            room = step * extent
    return least, size


def shared_bytes(ast: UOp) -> int:
    """How much local memory a group needs: the LOCALs that its lanes share."""
    return sum(node.arg[1] * node.dtype.itemsize for node in _shared(keep_private(ast)))


def exceeds(ast: UOp, limit: int) -> bool:
    """Whether a group needs more local memory than there is."""
    most = sum(node.arg[1] * node.dtype.itemsize for node in _shared((ast, frozenset())))
    return most > limit and shared_bytes(ast) > limit


def _shared(known: tuple[UOp, frozenset[UOp]]) -> list[UOp]:
    ast, kept = known
    if ast.arg.lanes == 1 or any(r.arg[1] is RangeKind.LANE for r in ast.arg.prefix):
        return []
    return [node for node in ast.toposort() if node.op is Ops.LOCAL and node not in kept]
# --8<-- [end:private]
