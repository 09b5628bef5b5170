"""Which LOCALs the lanes of a work-group share, and which each has for itself.

Chapter: spec/render.md.
"""
from __future__ import annotations

import math
from collections.abc import Collection

from impl import symbolic
from impl.dtypes import dtypes
from impl.ir import Ops, RangeKind, UOp
from impl.kernel.analysis import LANES, growth

#: A lane keeps at most so many elements of a LOCAL in registers.
_MOST_KEPT = 128
#: Each lane has one of its own of a LOCAL of so few elements, if all would store the same.
_MOST_ALIKE = 16
#: How an index grows with the number of the lane, as digits: how many of each, and their step.
_Pattern = tuple[tuple[int, int], ...]
_Accesses = dict[UOp, tuple[_Pattern, UOp]]


def keep_private(ast: UOp) -> tuple[UOp, frozenset[UOp]]:
    """Make LOCALs of which each lane touches a part of its own as small as that part.

    The answer is the kernel, and the LOCALs that are a lane's own now. So the sums of a register
    tile are registers, although they pass from one stage to another, and so are the elements of a
    row of which each lane has every 256th. What no loop stores, every lane may have for itself.
    """
    # r[impl lowering.wait.private]
    if ast.arg.lanes == 1 or any(r.arg[1] is RangeKind.LANE for r in ast.arg.prefix):
        return ast, frozenset()
    alike = _stored_alike(ast)
    places: dict[UOp, UOp] = {}
    kept: list[UOp] = [*alike]
    for buffer, accesses in _accesses(ast, alike).items():
        own = (_block(accesses) or _interleaved(accesses, ast.arg.lanes)) if accesses else None
        if own is not None:
            kept.append(buffer.replace(arg=(buffer.arg[0], own[0])))
            for node, index in own[1].items():
                places[node] = node.replace(src=(kept[-1], index, node.src[2]))
    return (ast.substitute(places) if places else ast), frozenset(kept)


def _stored_alike(ast: UOp) -> dict[UOp, None]:
    """Small LOCALs that are stored outside of all loops: each lane can store one of its own."""
    found: dict[UOp, None] = {}
    others = set()
    for store in ast.src:
        buffer = store.src[0].src[0]
        if buffer.op is Ops.LOCAL and buffer.arg[1] <= _MOST_ALIKE and all(
                r.arg[1] in (*LANES, RangeKind.BLOCK) for r in store.src[2:]):
            found[buffer] = None
        else:
            others.add(buffer)
    return {buffer: None for buffer in found if buffer not in others}


def _accesses(ast: UOp, known: Collection[UOp]) -> dict[UOp, _Accesses | None]:
    """For each other LOCAL how it is accessed; None if a lane's part is not its own."""
    found: dict[UOp, _Accesses | None] = {}
    for store in ast.src:
        order = store.toposort()
        own = [r for r in store.src[2:] if r.arg[1] is RangeKind.LANE]
        among = [r for r in order if r.op is Ops.RANGE and r.arg[1] is RangeKind.LANE
                 and r not in own]  # of reductions
        grows = growth(order, [*own, *among])
        for node in order:
            if node.op is Ops.INDEX and node.src[0].op is Ops.LOCAL and node.src[0] not in known:
                taken = _pattern(node, own, among, grows[node.src[1]], ast.arg.lanes)
                before = found.setdefault(node.src[0], {})
                if taken is None or before is None or before.get(node, taken)[0] != taken[0]:
                    found[node.src[0]] = None
                else:
                    before[node] = taken
    return found


def _pattern(node: UOp, own: list[UOp], among: list[UOp], grows: dict[UOp, int] | None,
             count: int) -> tuple[_Pattern, UOp] | None:
    """How an access grows with the number of the lane, and its index without that.

    None if an iteration is not always the same lane's.
    """
    if grows is None:
        return None
    lanes = [*own, *(r for r in among if r in grows)]
    if any(r.src[0].op is not Ops.CONST for r in lanes) \
            or math.prod(r.src[0].arg for r in lanes) != count:
        return None
    digits: list[tuple[int, int]] = []
    for loop in lanes:
        extent, step = loop.src[0].arg, grows.get(loop, 0)
        if digits and digits[-1][1] == step * extent:
            extent *= digits.pop()[0]
        digits.append((extent, step))
    nothing = UOp.const(dtypes.index, 0)
    return tuple(digits), symbolic.rebuild(node.src[1], dict.fromkeys(lanes, nothing))


def _block(accesses: _Accesses) -> tuple[int, dict[UOp, UOp]] | None:
    """The size of the part that a lane touches, and where in it; None if parts overlap."""
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
    return size, {node: symbolic.add(rest, -least) for node, (_, rest) in accesses.items()}


def _interleaved(accesses: _Accesses, lanes: int) -> tuple[int, dict[UOp, UOp]] | None:
    """The same if parts are cut in pieces: a lane has one piece of each round of the lanes."""
    patterns = {pattern for pattern, _ in accesses.values()}
    if len(patterns) > 1 or len(next(iter(patterns))) != 1:
        return None
    piece, size, found = next(iter(patterns))[0][1], 0, dict[UOp, UOp]()
    for node, (_, rest) in accesses.items():
        place = _in_pieces(rest, piece, piece * lanes)
        if place is None:
            return None
        found[node] = place
        size = max(size, symbolic.bounds(place)[1] + 1)
    return (size, found) if size <= _MOST_KEPT else None


def _in_pieces(rest: UOp, piece: int, round_: int) -> UOp | None:
    """Where the lane has an element, if it is in the first piece of its round."""
    order = rest.toposort()
    loops = [node for node in order if node.op is Ops.RANGE]
    grows = growth(order, loops)[rest]
    first = symbolic.rebuild(rest, dict.fromkeys(loops, UOp.const(dtypes.index, 0)))
    if grows is None or first.op is not Ops.CONST or piece < 1:
        return None
    whole, within = divmod(first.arg, round_)
    terms: list[UOp] = [UOp.const(dtypes.index, whole * piece + within)]
    for loop, step in grows.items():
        if step % round_:
            within += step * (symbolic.bounds(loop)[1] if step > 0 else piece)
        terms.append(symbolic.mul(loop, step if step % round_ else step // round_ * piece))
    return symbolic.total(terms) if 0 <= within < piece else None


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
