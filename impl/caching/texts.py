"""Texts of kernels on disk: what was optimised and printed once need not be printed again.

To optimise and print a kernel takes a hundred times longer than to read what was printed before.
A text is found by the kernel as it was planned and by all that turns it into a text: settings,
compiler, processor, and our own code.
"""
from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from impl.caching.disk import store
from impl.ir import KernelInfo, Ops, UOp, toposort


def kernel_name(ast: UOp, circumstances: str = "", named: bool = True) -> str:
    """A digest of a kernel and of the circumstances: whatever else is to count.

    The numbers of its loops do not count, nor, unless it is `named`, its name and how it was made.
    """
    # r[impl caching.text.same]
    info: KernelInfo = ast.arg
    place: dict[UOp, int] = {}
    rows: list[Any] = [circumstances]
    for node in toposort((*info.prefix, *info.variables, ast)):
        place[node] = len(place)
        arg = node.arg.hex() if isinstance(node.arg, float) else node.arg
        if node.op is Ops.RANGE:
            arg = node.arg[1].name
        rows.append((int(node.op), node.dtype.name, None if node is ast else arg, node.tag,
                     *map(place.__getitem__, node.src)))
    said: Any = replace(info, prefix=(), variables=()) if named else (info.threads, info.lanes)
    rows.append([*map(place.__getitem__, (*info.prefix, *info.variables))])
    return hashlib.sha256(repr((rows, said)).encode()).hexdigest()


def kept_text(name: str) -> dict[str, Any]:
    """What was kept of a kernel's text; nothing if it is not there, or damaged."""
    try:
        found = json.loads(store().get("text", name) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def keep_text(name: str, facts: dict[str, Any]) -> None:
    """Keep what is known of a kernel's text."""
    store().put("text", name, json.dumps(facts).encode())


@functools.cache
def code_version() -> str:
    """A digest of our own code: another version may make other texts."""
    # r[impl caching.text.same]
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.[pc]*")):
        if path.suffix in (".py", ".c"):
            found.update(path.read_bytes())
    return found.hexdigest()
