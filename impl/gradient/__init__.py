"""Reverse mode: from a graph to the graph of its derivatives. Chapter: spec/gradient.md.

Nothing is recorded while tensors are computed: a lazy graph is its own tape. `compute_gradient`
walks it once, from the result back to the leaves, and builds new nodes. What comes out is an
expression like any other, so it is fused and scheduled with the rest, and can be differentiated
again.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from impl.errors import GraphError
from impl.gradient import nodes
from impl.gradient.rules import RULES, Rule
from impl.ir import Ops, UOp, toposort

__all__ = ["compute_gradient", "nodes", "RULES", "Rule"]


# --8<-- [start:compute]
def compute_gradient(root: UOp, root_gradient: UOp, targets: Iterable[UOp]) -> dict[UOp, UOp]:
    """The gradient of `root` with respect to each target: target -> node of the same shape.

    Args:
        root: the value to differentiate.
        root_gradient: the gradient of whatever comes after with respect to `root`; root's shape.
        targets: nodes below `root`. Those on which `root` does not depend are left out.

    Raises:
        GraphError: an operation on the way has no gradient rule.
    """
    wanted = set(targets)
    order = toposort((root,))
    leads = _leading_to(order, wanted)  # r[impl gradient.walk.needed]
    gradients: dict[UOp, UOp] = {root: root_gradient}
    for node in reversed(order):  # r[impl gradient.walk.once]
        gradient = gradients.get(node) if node in wanted else gradients.pop(node, None)
        if gradient is None or node not in leads:
            continue
        if not any(source in leads for source in node.src):
            continue
        rule = RULES.get(node.op)
        if rule is None:
            raise GraphError("gradient", f"{node.op.name} has no gradient rule",
                             "call .detach() on the tensor that it reads")
        for source, part in rule(node, gradient, leads):
            if part.origin is None:
                part.origin = node.origin
            known = gradients.get(source)
            # r[impl gradient.walk.sum]
            gradients[source] = part if known is None else nodes.add(known, part)
    return {target: gradients[target] for target in wanted if target in gradients}
# --8<-- [end:compute]


def _leading_to(order: Sequence[UOp], targets: set[UOp]) -> set[UOp]:
    """The nodes of an order, sources first, that are targets or lead to one.

    Only through these gradients are computed. Comparisons, integers and detached values end the
    way.
    """
    leads: set[UOp] = set()
    for node in order:
        if node in targets:
            leads.add(node)
        elif node.src and node.dtype.kind == "f" and node.op not in _BLIND:
            if any(source in leads for source in _differentiable(node)):
                leads.add(node)
    return leads


#: Operations through which no change passes: constant almost everywhere, or told so.
_BLIND: frozenset[Any] = frozenset((Ops.DETACH, Ops.FLOOR, Ops.TRUNC, Ops.BITCAST, Ops.BIND))


def _differentiable(node: UOp) -> tuple[UOp, ...]:
    """The sources through which a change of a node's value can come."""
    if node.op is Ops.STORE:
        return node.src[1:]
    if node.op is Ops.WHERE:
        return node.src[1:]
    if node.op is Ops.GATHER:
        return node.src[:1]
    return node.src
