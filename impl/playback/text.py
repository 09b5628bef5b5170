"""Schedules and kernels as lines of text that are compared: what depends on a process is left out.
"""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from impl.ir import KernelInfo, Ops, UOp, toposort
from impl.schedule import Plan, document

#: Parts of a document that say where a question came from, and not how it was answered.
_OF_THE_CALL = ("cache", "format", "implementation")


def schedule_text(plan: Plan, nodes: Sequence[UOp]) -> str:
    """A schedule: kernels, order, dependencies, reasons, memory, and each kernel's graph."""
    whole = document(plan, False, nodes)
    lines = [f"order {whole['order']}"]
    for part, content in whole.items():
        if part in _OF_THE_CALL or part == "order":
            continue
        rows = content if isinstance(content, list) else \
            [{"name": name, "value": value} for name, value in content.items()]
        lines += [f"{part} {json.dumps(_plain(row), sort_keys=True)}" for row in rows]
    for number, kernel in enumerate(plan.kernels):
        lines += [f"kernel {number}: {line}" for line in kernel_text(kernel.ast).splitlines()]
    return "\n".join(lines)


def _plain(row: Any) -> Any:
    """A row without the user's line."""
    return {k: v for k, v in row.items() if k != "label"} if isinstance(row, dict) else row


def kernel_text(ast: UOp) -> str:
    """A kernel's graph, a line for each node, with loops numbered as they appear."""
    place: dict[UOp, int] = {}
    loops = 0
    lines = []
    for node in toposort((ast,)):
        place[node] = len(place)
        shown = node.arg
        if node.op is Ops.RANGE:
            shown, loops = (loops, *node.arg[1:]), loops + 1
        elif isinstance(shown, KernelInfo):
            shown = (shown.name, [place.get(u) for u in shown.prefix],
                     [u.arg for u in shown.variables], shown.steps)
        sources = ", ".join(f"%{place[s]}" for s in node.src)
        detail = "" if shown is None else f" {shown!r}"
        lines.append(f"%{place[node]} = {node.op.name} {node.dtype.name} ({sources}){detail}")
    return "\n".join(lines)
