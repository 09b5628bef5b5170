"""Forward mode: what a change of the arguments means for each result. Chapter: spec/gradient.md.

The change of a node is that of its sources times its slopes. One walk from the leaves to the
results writes it down as nodes, beside those of the values. Of an operation that has no rule here
the rule of `GRADIENTS` is turned round: it is linear in the gradient.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from impl.effects import Placeholder
from impl.gradient import below, compute_gradients, leading_to, nodes, parts_of, sources_of
from impl.gradient.nodes import add, div, mul, neg, shape_of, sub, where
from impl.gradient.rules import (
    SLOPES,
    shares_of_larger,
    slope_of_base,
    slope_of_exponent,
    zero,
)
from impl.gradient.substitution import overwritten
from impl.ir import MOVEMENT, Ops, UOp, give_origin

Change = UOp | None  # None: it does not change
Rule = Callable[[UOp, Sequence[Change]], Change]


def push_forward(roots: Sequence[UOp], changes: dict[UOp, UOp]) -> list[Change]:
    """How each root changes with some nodes below it, given how those change.

    Args:
        roots: values to differentiate.
        changes: nodes below them, each with its change, of its shape and dtype.

    Raises:
        GraphError: an operation on the way has no rule.
    """
    order = below(roots)
    leads = leading_to(order, set(changes))
    found: dict[UOp, Change] = {}
    for node in order:
        if node in changes:
            found[node] = changes[node]
        elif node in leads:  # r[impl gradient.forward.derivative]
            given = [found.get(source) for source in sources_of(node)]
            change = FORWARD.get(node.op, _turned)(node, given)
            if change is not None and change.origin is None and node.origin is not None:
                give_origin(change, node.origin)
            found[node] = change
    return [found.get(root) for root in roots]


def _spread(change: UOp, node: UOp) -> UOp:
    """A change in the shape of the node that it belongs to."""
    return change if change.shape == node.shape else nodes.full(change, shape_of(node))


def _total(node: UOp, parts: Sequence[Change]) -> Change:
    """The sum of those parts that there are."""
    total: Change = None
    for part in parts:
        if part is not None:
            total = part if total is None else add(total, part)
    return None if total is None else _spread(total, node)


def _alike(node: UOp, given: Sequence[Change]) -> Change:
    """Of an operation that is linear in its first source: the same of the change."""
    if given[0] is None:
        return None
    return UOp(node.op, node.dtype, (given[0], *node.src[1:]), node.arg)


def _unary(node: UOp, given: Sequence[Change]) -> Change:
    return None if given[0] is None else mul(given[0], SLOPES[node.op](node.src[0], node))


def _neg(node: UOp, given: Sequence[Change]) -> Change:
    return None if given[0] is None else neg(given[0])


def _cast(node: UOp, given: Sequence[Change]) -> Change:
    return None if given[0] is None else nodes.cast(given[0], node.dtype)


def _same(node: UOp, given: Sequence[Change]) -> Change:
    return given[0]


def _sub(node: UOp, given: Sequence[Change]) -> Change:
    a, b = given
    if a is not None and b is not None:
        return _spread(sub(a, b), node)
    return _total(node, (a, None if b is None else neg(b)))


def _mul(node: UOp, given: Sequence[Change]) -> Change:
    (a, b), (x, y) = given, node.src
    return _total(node, (None if a is None else mul(a, y), None if b is None else mul(x, b)))


def _div(node: UOp, given: Sequence[Change]) -> Change:
    a, b = given
    part = None if b is None else neg(mul(node, b))
    total = a if part is None else part if a is None else add(a, part)
    return None if total is None else _spread(div(total, node.src[1]), node)


def _pow(node: UOp, given: Sequence[Change]) -> Change:
    a, b = given
    return _total(node, (None if a is None else mul(a, slope_of_base(node)),
                         None if b is None else mul(b, slope_of_exponent(node))))


def _larger(node: UOp, given: Sequence[Change]) -> Change:
    parts = [None if change is None else shares_of_larger(node, _spread(change, node))[which]
             for which, change in enumerate(given)]
    return _total(node, parts)


def _where(node: UOp, given: Sequence[Change]) -> Change:
    _, a, b = given
    if a is None and b is None:
        return None
    return _spread(where(node.src[0], zero(node) if a is None else a,
                         zero(node) if b is None else b), node)


def _move(node: UOp, given: Sequence[Change]) -> Change:
    return None if given[0] is None else nodes.move(given[0], node.op, node.arg)


def _reduce(node: UOp, given: Sequence[Change]) -> Change:
    return _alike(node, given) if node.arg[0] is Ops.ADD else _turned(node, given)


def _scatter(node: UOp, given: Sequence[Change]) -> Change:
    base, _, values = given
    if node.arg is not Ops.ADD or base is None and values is None:
        return _turned(node, given)
    own, more = (nodes.full_like(source, 0) if change is None else change
                 for source, change in ((node.src[0], base), (node.src[2], values)))
    return UOp(Ops.SCATTER, node.dtype, (own, node.src[1], more), node.arg)


def _store(node: UOp, given: Sequence[Change]) -> Change:
    return given[1]  # what is written; its AFTER looks at it


def _after(node: UOp, given: Sequence[Change]) -> Change:
    base, (view, value) = given[0], node.src[1].src
    return overwritten(node.src[0], view, _or_zero(base, node.src[0]), _or_zero(given[1], value))


def _or_zero(change: Change, node: UOp) -> UOp:
    return nodes.full_like(node, 0) if change is None else change


def _turned(node: UOp, given: Sequence[Change]) -> Change:
    """What is linear in `u`, the gradient of the node, is turned round: sum(part(u) * change) has
    the change of the node as its gradient.
    """
    sources = sources_of(node)
    changing = {source: change for source, change in zip(sources, given, strict=True)
                if change is not None}
    place = Placeholder(nodes.device_of(node), node.dtype, shape_of(node)).leaf(shape_of(node))
    parts = [found for source, part in parts_of(node, place, changing.keys())
             if (found := compute_gradients({part: changing[source]}, [place],
                                            place.reads).get(place)) is not None]
    return _total(node, parts)


FORWARD: dict[Ops, Rule] = {
    **dict.fromkeys(SLOPES, _unary), **{Ops(op): _move for op in MOVEMENT},
    **dict.fromkeys((Ops.CONTIGUOUS, Ops.COPY, Ops.SHARD, Ops.FOLD, Ops.GATHER), _alike),
    Ops.BUFFER: _same, Ops.NEG: _neg, Ops.CAST: _cast, Ops.ADD: lambda node, given: _total(
        node, given), Ops.SUB: _sub, Ops.MUL: _mul, Ops.DIV: _div, Ops.POW: _pow,
    Ops.MAXIMUM: _larger, Ops.MINIMUM: _larger, Ops.WHERE: _where, Ops.REDUCE: _reduce,
    Ops.SCAN: _reduce, Ops.SCATTER: _scatter, Ops.STORE: _store, Ops.AFTER: _after,
}
