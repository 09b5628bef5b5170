"""Reverse mode: from a graph to the graph of its derivatives. Chapter: spec/gradient.md.

Nothing is recorded while tensors are computed: a lazy graph is its own tape. `compute_gradient`
walks it once, from the result back to the leaves, and builds new nodes. What comes out is an
expression like any other, so it is fused and scheduled with the rest, and can be differentiated
again.
"""
from __future__ import annotations

from collections.abc import Container, Iterable, Sequence, Set
from typing import Any

from impl.errors import GraphError
from impl.gradient import nodes
from impl.gradient.custom import Custom
from impl.gradient.nodes import expression_of
from impl.gradient.rules import GRADIENTS, Parts
from impl.ir import Ops, UOp, give_origin, in_memory, toposort
from impl.rewrite import look

__all__ = ["GRADIENTS", "Custom", "below", "compute_gradient", "compute_gradients",
           "depends", "expression_of", "nodes", "parts_of", "reached", "sources_of"]


def compute_gradient(root: UOp, root_gradient: UOp, targets: Iterable[UOp]) -> dict[UOp, UOp]:
    """The gradient of `root` with respect to each target: target -> node of the same shape.

    Args:
        root: the value to differentiate.
        root_gradient: the gradient of whatever comes after with respect to `root`; root's shape.
        targets: nodes below `root`. Those on which `root` does not depend are left out.

    Raises:
        GraphError: an operation on the way has no gradient rule, or memory that a gradient needs
            was overwritten since (r[gradient.realized.overwritten]).
    """
    return compute_gradients({root: root_gradient}, targets)


def compute_gradients(seeds: dict[UOp, UOp], targets: Iterable[UOp],
                      through: int = -1) -> dict[UOp, UOp]:
    """The same for several roots, each with the gradient of what comes after.

    `through` says which buffers the way to the targets reads, as in `UOp.reads`: what reads none
    of them is not looked at.
    """
    wanted = set(targets)
    order = below(seeds, through)
    leads = leading_to(order, wanted)  # r[impl gradient.walk.needed+2]
    gradients = dict(seeds)
    for node in reversed(order):  # r[impl gradient.walk.once]
        gradient = gradients.get(node) if node in wanted else gradients.pop(node, None)
        if gradient is None or node not in leads:
            continue
        if leads.isdisjoint(sources_of(node)):
            continue
        for source, part in parts_of(node, gradient, leads):
            if part.origin is None and node.origin is not None:
                give_origin(part, node.origin)
            known = gradients.get(source)
            # r[impl gradient.walk.sum]
            gradients[source] = part if known is None else nodes.add(known, part)
    results = {node: gradients[node] for node in order if node in wanted and node in gradients}
    _refuse_overwritten(order, results)
    return results


def parts_of(node: UOp, gradient: UOp, leads: Set[UOp]) -> Parts:
    """What the gradient of a node means for each of its sources that lead to a target.

    Raises:
        GraphError: the operation has no gradient rule.
    """
    found = look(GRADIENTS, node, (gradient, leads), "gradient")
    if found is None:
        raise GraphError("gradient", f"{node.op.name} has no gradient rule",
                         "call .detach() on the tensor that it reads")
    return found[0]


def sources_of(node: UOp) -> tuple[UOp, ...]:
    """What a node was computed from; a leaf is the same value as the expression it came from, and
    a value with a gradient of its own comes from what that gradient is for.
    """
    op = node.op
    if op is _BUFFER:
        expression = expression_of(node)
        return () if expression is node else (expression,)
    if op is _DETACH and node.tag is not None:
        custom: Custom = node.tag
        return node.src + custom.inputs
    return node.src


_BUFFER, _DETACH = Ops.BUFFER, Ops.DETACH


def below(roots: Iterable[UOp], through: int = -1, ends: Container[UOp] = ()) -> list[UOp]:
    """All nodes below the roots, through realized tensors too, sources first; below a node that
    reads none of some buffers, and below the `ends`, none.
    """
    order: list[UOp] = []
    seen: set[UOp] = set()
    # As in `toposort`, a node stands on the stack twice: to be opened, and below None to be closed.
    stack: list[Any] = list(roots)[::-1]
    while stack:
        node = stack.pop()
        if node is None:
            order.append(stack.pop())
        elif node not in seen:
            seen.add(node)
            if (through < 0 or node.reads & through) and node not in ends:
                stack += (node, None, *sources_of(node)[::-1])
            else:
                order.append(node)
    return order


def _refuse_overwritten(order: Sequence[UOp], found: dict[UOp, UOp]) -> None:
    """An old expression may name memory that has been written since."""
    stale = {node for node in order
             if node.op is Ops.BUFFER and node.arg[1] != node.arg[0].version}
    # What is in memory needs nothing of what is below it any more.
    if stale and not stale.isdisjoint(toposort(found.values(), lambda u: in_memory(u) is None)):
        # r[impl gradient.realized.overwritten]
        raise GraphError("backward", "a value that the gradient needs was overwritten after it was "
                         "used", "call backward before assigning to the tensor")


def leading_to(order: Sequence[UOp], targets: set[UOp]) -> set[UOp]:
    """The nodes of an order, sources first, that are targets or lead to one.

    Only through these gradients are computed. Comparisons, integers and detached values end the
    way.
    """
    leads: set[UOp] = set()
    for node in order:
        if node in targets:
            leads.add(node)
        elif node.dtype.kind == "f" and node.op not in _BLIND:
            if not leads.isdisjoint(differentiable(node)):
                leads.add(node)
    return leads


#: Operations through which no change passes: constant almost everywhere, or told so.
_BLIND: frozenset[Any] = frozenset((Ops.FLOOR, Ops.TRUNC, Ops.BITCAST, Ops.BIND))


def differentiable(node: UOp) -> tuple[UOp, ...]:
    """The sources through which a change of a node's value can come."""
    op = node.op
    if op is _DETACH:  # r[impl gradient.detach.stops+2]
        return () if node.tag is None else node.tag.inputs
    part = _PART.get(op)
    return sources_of(node) if part is None else node.src[part]


def reached(root: UOp, ends: Container[UOp]) -> list[UOp]:
    """Those of the `ends` through which a change can come to `root`, without another end between.
    """
    found, seen, stack = list[UOp](), {root}, [root]
    while stack:
        node = stack.pop()
        if node in ends:
            found.append(node)
            continue
        new = [source for source in differentiable(node) if source not in seen]
        seen.update(new)
        stack += new
    return found


def depends(root: UOp, target: UOp) -> bool:
    """Whether a value was computed from a target by floats, none of which was detached."""
    seen, stack = {root}, [root]
    while stack:
        node = stack.pop()
        if node is target:
            return True
        new = [source for source in differentiable(node)
               if source not in seen and source.dtype.kind not in "biu"]
        seen.update(new)
        stack += new
    return False


#: Which sources of an operation have a slope, where not all have one.
_PART = {Ops.STORE: slice(1, None), Ops.WHERE: slice(1, None), Ops.GATHER: slice(1),
         Ops.SCAN: slice(1), Ops.SCATTER: slice(None, None, 2)}
