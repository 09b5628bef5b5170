"""What a person reads of a plan: whose operations a kernel holds, why values cross memory."""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from impl.dependencies import Dependency, Placement
from impl.fusion import Blocked, Group
from impl.ir import MOVEMENT, Ops, UOp
from impl.schedule.plan import Plan
from impl.symbolic import is_symbolic, text


def origins(groups: Sequence[Group], nodes: Sequence[UOp]) -> list[list[int]]:
    """Where the values of each kernel stand among the nodes of the schedule."""
    place = {node: i for i, node in enumerate(nodes)}
    return [[place[node] for node in (_value(m.stage.node, place) for m in group.members)
             if node is not None] for group in groups]


def _value(node: UOp, place: dict[UOp, int]) -> UOp | None:
    """A stage's node; for a copy that the scheduler added, the node that it copies."""
    while node not in place:
        if not node.src:
            return None
        node = node.src[0]
    return node


def label(plan: Plan, kernel: int, nodes: Sequence[UOp]) -> str:
    """The user's operations in a kernel, and the line of the last one.

    The plan may come from the cache: `nodes` are those of this call, so that the line is its line.
    """
    names: dict[str, None] = {}
    line = ""
    for place in plan.kernels[kernel].origins:  # r[impl schedule.label.line]
        origin = _origin(nodes[place])
        if origin is not None:
            names[str(origin[0])] = None
            line = _near(str(origin[1]))
        else:
            names[nodes[place].op.name.lower()] = None
    shown = ", ".join(list(names)[:6])
    return f"{shown} ({line})" if line else shown


def _near(line: str) -> str:
    """A `file:line` as one reads it: from the working folder, if the file is below it."""
    return line.removeprefix(os.getcwd() + os.sep)


def _origin(node: UOp) -> Any:
    """Where the user made a node, or one that it was made from a few steps before.

    A value that is only looked at differently is named after the operation that computes it.
    """
    found = node.origin
    for _ in range(8):
        if not node.src or node.realized is not None:
            break
        if node.origin is not None and node.op not in MOVEMENT:
            return node.origin
        node = node.src[1].src[1] if node.op is Ops.AFTER else node.src[0]
        found = found or node.origin
    return found


def fusion(group: Group) -> str:
    """What the stages of a kernel have in common; empty for one stage."""
    if len(group.members) == 1:
        return ""
    shared = " x ".join(text(size.expression) if is_symbolic(size) else str(size)
                        for size in group.sizes)
    if not shared:
        return f"fused: {len(group.members)} small stages, one after the other"
    return (f"fused: {len(group.members)} stages share the loops {shared}; what they hand on "
            "stays in local memory")


def boundaries(groups: Sequence[Group], placement: Placement, dependencies: Sequence[Dependency],
               blocked: Sequence[Blocked]) -> list[tuple[int, int, int, str]]:
    """Why each value that crosses memory does."""
    group_of = {m.stage.number: g.number for g in groups for m in g.members}
    refused: dict[tuple[int, int], str] = {}
    for kernel, stage, why in blocked:
        refused.setdefault((kernel, group_of[stage]), why)
    writer: dict[tuple[int, int], str] = {}
    for group in groups:
        for member in group.members:
            storage = placement.storage[member.stage.write.value]
            writer[group.number, storage] = member.stage.reason
    rows = []
    for d in dependencies:
        if d.kind == "RAW":
            reason = refused.get((d.before, d.after)) or writer.get((d.before, d.storage), "")
            rows.append((d.before, d.after, d.storage, reason))
    return rows
