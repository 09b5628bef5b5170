"""Graphs with nodes replaced. Chapter: spec/gradient.md."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from impl.dtypes import dtypes
from impl.effects import Placeholder
from impl.gradient import Custom, below, expression_of, nodes
from impl.gradient.custom import Ruled, ruled, with_gradient
from impl.gradient.nodes import shape_of, where
from impl.gradient.rules import adjoint, movement_path, region
from impl.ir import Ops, UOp, give_origin


def substituted(roots: Sequence[UOp], replaced: Mapping[UOp, UOp], through: int = -1,
                pure: bool = False, anew: bool = False) -> list[UOp]:
    """The graphs with nodes replaced; a node that reads none of `through` stays as it is.

    With `pure` no memory is written: what is written is a choice of elements instead. With `anew`
    what was computed from a node that is replaced is computed again, though it is in memory.
    """
    done: dict[UOp, UOp] = dict(replaced)
    for node in below(roots, through, replaced):
        if node in done:
            continue
        if node.op is Ops.BUFFER:
            done[node] = node  # in memory: its value is what it is
            if anew and (expression := expression_of(node)) is not node \
                    and done[expression] is not expression:
                done[node] = done[expression]
            continue
        if pure and node.op is Ops.AFTER:
            base, (view, value) = node.src[0], node.src[1].src
            done[node] = overwritten(base, view, done[base], done[value])
            continue
        sources = tuple([done[source] for source in node.src])
        custom = node.tag if node.op is Ops.DETACH and node.tag is not None else None
        changed = sources != node.src
        if custom is not None:
            changed = changed or any(done[each] is not each for each in custom.inputs)
        if not changed:
            done[node] = node
            continue
        made = done[node] = UOp(node.op, node.dtype, sources, node.arg, node.tag) \
            if custom is None else with_gradient(sources[0], renamed_custom(
                custom, done, replaced, through))
        if made.origin is None and node.origin is not None:
            give_origin(made, node.origin)
    return [done[root] for root in roots]


def renamed_custom(custom: Custom, done: Mapping[UOp, UOp], replaced: Mapping[UOp, UOp],
                   through: int = -1) -> Custom:
    """The same gradient of one's own, with nodes replaced in what it gives too."""
    inputs = tuple(done.get(each, each) for each in custom.inputs)
    if isinstance(custom, Ruled):
        return ruled(inputs, custom.rule)

    def pull(gradient: UOp) -> list[UOp | None]:
        # What comes in is of the outside already: only what the function adds is replaced.
        place = Placeholder(None, gradient.dtype, gradient.shape or ()).leaf(gradient.shape or ())
        found = custom.pull(place)
        known = [part for part in found if part is not None]
        bits = -1 if through < 0 else through | place.reads
        made = iter(substituted(known, {**replaced, place: gradient}, bits))
        return [None if part is None else next(made) for part in found]
    return Custom(inputs, pull)


def overwritten(base: UOp, view: UOp, old: UOp, new: UOp) -> UOp:
    """`old`, with `new` in the region of it that `view` shows of `base`; no memory is written."""
    path = movement_path(view, base)
    if not path:
        return new
    if new.dtype.kind == "b":
        old, new = nodes.cast(old, dtypes.uint8), nodes.cast(new, dtypes.uint8)
        return nodes.cast(overwritten(base, view, old, new), dtypes.bool)
    mark = region(view, path)
    for step in reversed(path):
        new = adjoint(step.op, step.arg, shape_of(step.src[0]), new)
    return where(mark, new, old)
