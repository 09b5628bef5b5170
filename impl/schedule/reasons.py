"""What a person reads of a plan: whose operations a kernel holds, why values cross memory."""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from impl.dependencies import Dependency
from impl.fusion import Blocked, Group, Kernel
from impl.ir import ELEMENTWISE, MOVEMENT, Ops, UOp, line_of, toposort
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
            line = str(origin[1])
        else:
            names[nodes[place].op.name.lower()] = None
    shown = ", ".join(list(names)[:6])
    return f"{shown} ({_near(line)})" if line else shown


def kernel_origin(plan: Plan, kernel: int, nodes: Sequence[UOp]) -> Any:
    """Where the user has written the last operation in a kernel; None if that is unknown.

    `nodes` are those of this call.
    """
    found = (_origin(nodes[place]) for place in reversed(plan.kernels[kernel].origins))
    return next((origin for origin in found if origin is not None), None)


def kernel_line(plan: Plan, kernel: int, nodes: Sequence[UOp]) -> str:
    """The user's last operation in a kernel, and its line, as errors name them; empty if unknown.
    """
    return line_of(kernel_origin(plan, kernel, nodes))


def _near(line: str) -> str:
    """A `file:line` as one reads it: from the working folder, if the file is below it."""
    return line.removeprefix(os.getcwd() + os.sep)


def _origin(node: UOp) -> Any:
    """Where the user made a node, or one that it was made from a few nodes before.

    A value that is only looked at differently is named after the operation that computes it.
    """
    found = node.origin
    for below in range(8):
        # What it reads may have been in memory before; it itself is, once the kernel has run.
        if not node.src or below and node.realized is not None:
            break
        if node.origin is not None and node.op not in MOVEMENT:
            return node.origin
        node = node.src[1].src[1] if node.op is Ops.AFTER else node.src[0]
        found = found or node.origin
    return found


def fusion(group: Group) -> str:
    """The reason why the stages of a kernel are together; empty for one stage."""
    if len(group.members) == 1:
        return ""
    if group.members[0].stage.task is not None:
        return f"together: {len(group.members)} sums that devices send each other at one go"
    shared = " x ".join(text(size.expression) if is_symbolic(size) else str(size)
                        for size in group.sizes)
    if not shared:
        return f"fused: {len(group.members)} small stages, one after the other"
    return (f"fused: {len(group.members)} stages share the loops {shared}; what they hand on "
            "stays in local memory")


def boundaries(groups: Sequence[Group], storage_of: Sequence[int],
               dependencies: Sequence[Dependency],
               blocked: Sequence[Blocked]) -> list[tuple[int, int, int, str]]:
    """Why each value that crosses memory does. `storage_of` says where each value lives."""
    group_of = {m.stage.number: g.number for g in groups for m in g.members}
    refused: dict[tuple[int, int], str] = {}
    for kernel, stage, why in blocked:
        refused.setdefault((kernel, group_of[stage]), why)
    writer: dict[tuple[int, int], str] = {}
    for group in groups:
        for member in group.members:
            for access in member.stage.writes:
                writer[group.number, storage_of[access.value]] = member.stage.reason
    rows = []
    for d in dependencies:
        if d.hands_on:
            reason = refused.get((d.before, d.after)) or writer.get((d.before, d.storage), "")
            rows.append((d.before, d.after, d.storage, reason))
    return rows


def shown_numbers(plan: Plan) -> dict[int, int]:
    """The storages that are shown to people, numbered without gaps."""
    visible = _visible(plan)  # once: r[impl schedule.cost.linear]
    return {n: i for i, n in enumerate(n for n in plan.storages if n in visible)}


def _visible(plan: Plan) -> set[int]:
    """The storages that some kernel touches in global memory, and those of the results."""
    seen = {t.storage for reads, writes in plan.accesses for t in (*reads, *writes)}
    return seen | {r.storage for r in plan.results}


def decisions(plan: Plan, nodes: Sequence[UOp]) -> list[tuple[frozenset[int], str]]:
    """All decisions, a line each, with the kernels that each concerns."""
    found: list[tuple[frozenset[int], str]] = []
    shown = shown_numbers(plan)
    for number, kernel in enumerate(plan.kernels):  # r[impl inspect.debug.lines+2]
        names = label(plan, number, nodes).partition(" (")[0]
        found.append((frozenset((number,)), f"kernel {number}: "
                      + (kernel.fusion or _one_stage(kernel)) + f" ({names})"))
    for before, after, storage, reason in plan.boundaries:
        found.append((frozenset((before, after)), f"kernel {before} -> kernel {after}: "
                      f"not fused: b{shown[storage]}: {reason}"))
    found += [(frozenset(), note) for note in plan.notes]
    for d in plan.dependencies:
        found.append((frozenset((d.before, d.after)), f"{d.kind}: kernel {d.before} before kernel "
                      f"{d.after} (b{shown[d.storage]} version {d.version})"))
    return found + _allocations(plan, shown)


def _one_stage(kernel: Kernel) -> str:
    """How many operations of the user share the loops of a kernel with one stage."""
    if kernel.loop is not None:
        return f"alone: {kernel.loop}, whose body has a schedule of its own"
    if kernel.task is not None:
        return "alone: a copy from another device"
    nodes = toposort((kernel.ast,), lambda u: u.op is not Ops.INDEX)  # not those of addresses
    count = sum(node.op in ELEMENTWISE or node.op is Ops.REDUCE for node in nodes)
    return f"fused: {count} operations in one loop nest" if count > 1 else \
        f"alone: {count} operation{'' if count == 1 else 's'}"


def _allocations(plan: Plan, shown: dict[int, int]) -> list[tuple[frozenset[int], str]]:
    """Where each value that is stored lies: in an arena, or in memory of its own."""
    lines: dict[int, tuple[frozenset[int], str]] = {}
    for device, planned in plan.memories.items():
        for span in planned.lifetimes:
            users = frozenset(plan.order[place] for place in (span.first, span.last))
            place = f"{device} arena + {planned.offsets[span.storage]}"
            lines[span.storage] = users, f"{place}, positions {span.first} to {span.last}"
    for number, kernel in enumerate(plan.kernels):
        for touch in kernel.writes:
            storage = plan.storages[touch.storage]
            where = "in place" if storage.kind == "input" else "memory of its own"
            lines.setdefault(touch.storage, (
                frozenset((number,)), f"{storage.device}, {where} ({storage.kind})"))
    return [(users, f"alloc b{shown[n]}: {plan.storages[n].nbytes} bytes on {where}")
            for n, (users, where) in lines.items()]
